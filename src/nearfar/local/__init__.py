"""Classifiers with a separate metric for each query."""
