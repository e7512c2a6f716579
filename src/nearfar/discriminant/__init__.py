"""Linear subspaces from class statistics."""
