"""Multilinear subspaces and supervised tensor learning."""
