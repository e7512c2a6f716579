"""Putting a metric to work: neighbour search and the rules built on it."""
