"""Optimisation engines that know nothing of data."""
