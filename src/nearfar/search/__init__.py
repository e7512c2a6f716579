"""Neighbour search over arrays, exact and approximate."""
