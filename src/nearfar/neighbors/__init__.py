"""Putting a metric to work: the vote of the nearest, and the nearest class."""
