"""Mahalanobis metric learning: one linear map for the whole space."""
