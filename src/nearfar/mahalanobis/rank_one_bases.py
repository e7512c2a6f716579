"""Candidate directions from which SCML composes a metric."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from nearfar.arrays import Indices, Matrix
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import fix_signs, whitener

# Numbers of nearest points per class. Around each center, discriminant directions are computed for
# each of these numbers.
_NEARBY = (10, 20)
# This fraction of the total covariance is added to the within-class covariance of nearby points.
_MIXED = 0.03
# Eigenvalues below this fraction of the largest eigenvalue are treated as zero.
_RANK = 1e-12


def find_local_discriminants(
    points: Matrix, codes: Indices, n_basis: int, rng: np.random.RandomState
) -> Matrix:
    """Return local Fisher directions, computed from the points nearest to k-means centers.

    The nearest 10 and the nearest 20 points of each class around each center give ``n_classes - 1``
    directions each. Their within-class covariance is mixed with 3% of the total covariance, because
    the covariance of few points is noisy. At most ``n_basis`` directions are returned, with unit
    variance over all points.
    """
    n_classes = int(codes.max()) + 1
    T = whitener(points.T @ points / len(points), _RANK)
    white = points @ T
    n_per_center = min(n_classes - 1, T.shape[1])
    n_centers = -(-n_basis // (len(_NEARBY) * n_per_center))
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
    bases = [
        _solve_discriminants(white, [rows[block, :k] for rows in nearest], n_per_center)
        for k in _NEARBY
        for block in _split_problems(len(centers), T.shape[1])
    ]
    basis = np.vstack(bases)
    if len(basis) > n_basis:
        basis = basis[rng.permutation(len(basis))[:n_basis]]
    return _normalize_rows(basis) @ T.T


def _solve_discriminants(white: Matrix, groups: list[Indices], n_directions: int) -> Matrix:
    """Return the discriminant directions for all centers.

    Each group has one row per center, with the indices of the nearest points of one class.
    """
    r = white.shape[1]
    within = np.broadcast_to(_MIXED * np.eye(r), (len(groups[0]), r, r)).copy()
    means = []
    for rows in groups:
        nearest = white[rows]
        means.append(nearest.mean(axis=1))
        centered = nearest - means[-1][:, None]
        within += centered.transpose(0, 2, 1) @ centered / (rows.shape[1] * len(groups))
    # Class means around each center, of shape (n_centers, r, n_classes).
    between = np.stack(means, axis=2)
    between -= between.mean(axis=2, keepdims=True)
    factor = np.linalg.cholesky(within)
    left_vectors, _, _ = np.linalg.svd(np.linalg.solve(factor, between), full_matrices=False)
    axes = np.linalg.solve(factor.transpose(0, 2, 1), left_vectors[:, :, :n_directions])
    return np.asarray(axes.transpose(0, 2, 1).reshape(-1, r))


def find_triplet_directions(
    points: Matrix, triplets: Indices, n_basis: int, rng: np.random.RandomState
) -> Matrix:
    """Return directions in which far points are farther than near points, using random triplets.

    Each random group has as many triplets as there are dimensions. Its directions are the
    eigenvectors with positive eigenvalues of the scatter to the far points minus the scatter to the
    near points. At most ``n_basis`` directions are returned, with unit variance over all points.
    """
    T = whitener(points.T @ points / len(points), _RANK)
    white = points @ T
    r = T.shape[1]
    size = min(r, len(triplets))
    directions: list[Matrix] = []
    count = 0
    # Most groups have several directions with a positive eigenvalue, but some have none.
    for _ in range(4 * n_basis):
        a, near, far = white[triplets[rng.randint(len(triplets), size=size)]].transpose(1, 0, 2)
        values, axes = np.linalg.eigh((a - far).T @ (a - far) - (a - near).T @ (a - near))
        directions.append(axes[:, values > 1e-9 * np.abs(values).max(initial=0.0)].T)
        count += len(directions[-1])
        if count >= n_basis:
            break
    return _normalize_rows(np.vstack(directions)[:n_basis]) @ T.T


def _split_problems(n: int, r: int) -> list[slice]:
    """Split n problems into slices whose r×r matrices take about 30 MB of memory."""
    step = max(1, 4_000_000 // (r * r))
    return [slice(start, start + step) for start in range(0, n, step)]


def _normalize_rows(basis: Matrix) -> Matrix:
    lengths = np.linalg.norm(basis, axis=1)
    is_nonzero = lengths > 0
    return (
        fix_signs(basis[is_nonzero] / lengths[is_nonzero][:, None])
        if is_nonzero.any()
        else basis[:0]
    )
