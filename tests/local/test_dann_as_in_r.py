"""DANN with the settings of the R package dann gives the same votes as its algorithm."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from nearfar import DANNClassifier


def votes_as_in_r(X, y, queries, k, size, epsilon):
    """Vote without standardization, weights and shrinkage; constant directions are ignored."""
    found = []
    for query in queries:
        near = np.argsort(((X - query) ** 2).sum(axis=1), kind="stable")[:size]
        rows, labels = X[near], y[near]
        within, between = np.zeros((2, X.shape[1], X.shape[1]))
        for label in np.unique(labels):
            own = rows[labels == label]
            apart = own.mean(axis=0) - rows.mean(axis=0)
            within += (own - own.mean(axis=0)).T @ (own - own.mean(axis=0)) / size
            between += len(own) / size * np.outer(apart, apart)
        values, vectors = np.linalg.eigh(within)
        kept = values > np.sqrt(np.finfo(float).eps) * values.max()
        root = vectors[:, kept] / np.sqrt(values[kept]) @ vectors[:, kept].T
        metric = root @ (root @ between @ root + epsilon * np.eye(len(root))) @ root
        squares = np.einsum("ij,jk,ik->i", X - query, metric, X - query)
        voters = y[np.argsort(squares, kind="stable")[:k]]
        labels, counts = np.unique(voters, return_counts=True)
        found.append(labels[counts.argmax()])
    return np.array(found)


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize(("k", "epsilon"), [(5, 1.0), (4, 0.1)])
def test_the_settings_of_the_guide_are_those_of_r(load, k, epsilon):
    X, y = load(return_X_y=True)
    known = np.arange(len(X)) % 3 != 0
    dann = DANNClassifier(
        n_neighbors=k,
        n_metric_neighbors=50,
        epsilon=epsilon,
        weights="uniform",
        standardize=False,
        shrinkage=0.0,
        ties="first",
    ).fit(X[known], y[known])
    wanted = votes_as_in_r(X[known], y[known], X[~known], k, 50, epsilon)
    # Rounding can change the order of two equal distances.
    assert (dann.predict(X[~known]) != wanted).sum() <= 1
