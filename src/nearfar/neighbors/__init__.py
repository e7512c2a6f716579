"""Classifiers and regressors that use a learned distance: neighbors, class means, pairs."""
