"""A metric for each query."""
