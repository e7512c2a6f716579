"""Neighbor search over arrays, exact and approximate."""
