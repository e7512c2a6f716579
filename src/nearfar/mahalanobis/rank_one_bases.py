"""Directions of which a metric can be put together, each one feature of its own."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from nearfar.arrays import Indices, Matrix
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import fix_signs, whitener

# Nearest points of each class around a centre that make a local discriminant.
_NEARBY = (10, 20)
# Share of the total covariance that is mixed into so few.
_MIXED = 0.03
# Directions that vary less than this, as a share of the most, are none.
_RANK = 1e-12


def local_discriminants(
    points: Matrix, codes: Indices, n_basis: int, rng: np.random.RandomState
) -> Matrix:
    """Fisher's directions of the nearest points of each class around the centres of k-means.

    Around each centre the nearest 10, and the nearest 20, points of each class give as many
    directions as there are classes but one; their covariance within classes is mixed with 3 %
    of the total covariance, so that few points do not whiten noise. At most ``n_basis`` of them,
    with unit variance over all points.
    """
    n_classes = int(codes.max()) + 1
    T = whitener(points.T @ points / len(points), _RANK)
    white = points @ T
    each = min(n_classes - 1, T.shape[1])
    n_centers = -(-n_basis // (len(_NEARBY) * each))
    if n_centers >= len(points):
        centers = points
    else:
        means = KMeans(n_centers, n_init=1, max_iter=20, random_state=rng).fit(points)
        centers = np.asarray(means.cluster_centers_, np.float64)
    members = [np.flatnonzero(codes == c) for c in range(n_classes)]
    nearest = [
        rows[kneighbors(points[rows], centers, n_neighbors=min(max(_NEARBY), len(rows)))[1]]
        for rows in members
    ]
    found = [
        _discriminants(white, [rows[block, :k] for rows in nearest], each)
        for k in _NEARBY
        for block in _blocks(len(centers), T.shape[1])
    ]
    basis = np.vstack(found)
    if len(basis) > n_basis:
        basis = basis[rng.permutation(len(basis))[:n_basis]]
    return _unit(basis) @ T.T


def _discriminants(white: Matrix, groups: list[Indices], each: int) -> Matrix:
    """One problem for each row of the groups, all solved together."""
    r = white.shape[1]
    within = np.broadcast_to(_MIXED * np.eye(r), (len(groups[0]), r, r)).copy()
    means = []
    for rows in groups:
        near = white[rows]
        means.append(near.mean(axis=1))
        apart = near - means[-1][:, None]
        within += apart.transpose(0, 2, 1) @ apart / (rows.shape[1] * len(groups))
    between = np.stack(means, axis=2)  # (centres, r, classes)
    between -= between.mean(axis=2, keepdims=True)
    factor = np.linalg.cholesky(within)
    left, _, _ = np.linalg.svd(np.linalg.solve(factor, between), full_matrices=False)
    axes = np.linalg.solve(factor.transpose(0, 2, 1), left[:, :, :each])
    return np.asarray(axes.transpose(0, 2, 1).reshape(-1, r))


def triplet_differences(
    points: Matrix, triplets: Indices, n_basis: int, rng: np.random.RandomState
) -> Matrix:
    """Directions in which far points are further than near ones, in random groups of triplets.

    Of as many triplets as there are dimensions: the eigenvectors of the sum of their scatters to
    far points less those to near ones that have positive eigenvalues. ``n_basis`` of them, or
    fewer, with unit variance over all points.
    """
    T = whitener(points.T @ points / len(points), _RANK)
    white = points @ T
    r = T.shape[1]
    size = min(r, len(triplets))
    found: list[Matrix] = []
    count = 0
    # A group may have no such direction; those that have, have many.
    for _ in range(4 * n_basis):
        a, near, far = white[triplets[rng.randint(len(triplets), size=size)]].transpose(1, 0, 2)
        values, axes = np.linalg.eigh((a - far).T @ (a - far) - (a - near).T @ (a - near))
        found.append(axes[:, values > 1e-9 * np.abs(values).max(initial=0.0)].T)
        count += len(found[-1])
        if count >= n_basis:
            break
    return _unit(np.vstack(found)[:n_basis]) @ T.T


def _blocks(n: int, r: int) -> list[slice]:
    """Of problems whose matrices take some 30 MB together."""
    step = max(1, 4_000_000 // (r * r))
    return [slice(start, start + step) for start in range(0, n, step)]


def _unit(basis: Matrix) -> Matrix:
    lengths = np.linalg.norm(basis, axis=1)
    kept = lengths > 0
    return fix_signs(basis[kept] / lengths[kept][:, None]) if kept.any() else basis[:0]
