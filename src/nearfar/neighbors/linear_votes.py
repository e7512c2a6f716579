"""Explanations of neighbor votes after a linear transformation, in the units of the features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from nearfar.arrays import Floats, Matrix
from nearfar.base import Estimator, LinearLearner, LocalExplanation, NeighborsClassifier
from nearfar.base.relevance import compute_relevance

# Maximum number of training rows on which `estimate_linear_map` checks the estimated matrix.
_MAX_ROWS_COMPARED = 500
# A transformation is accepted as linear if the error of the estimated matrix is at most this
# fraction of the largest transformed value. The keys are the bytes per number: 4 for single
# precision and 8 for double precision.
_MAX_DEVIATION = {4: 1e-3, 8: 1e-6}


def explain_linear(
    voter: NeighborsClassifier,
    mapped: Any,
    queries: Matrix,
    rows: Matrix,
    linear: Matrix | None,
    feature_names: Sequence[str],
) -> LocalExplanation:
    """Return the neighbors that vote, and each feature's contribution to their distances.

    Parameters
    ----------
    voter : NeighborsClassifier
        Classifier fitted to transformed rows.
    mapped : array-like
        Rows to explain, after the transformation that ``voter.predict`` expects.
    queries, rows : ndarray of shape (n_queries, n_features) and (n_samples, n_features)
        Rows to explain and training rows, both before the transformation.
    linear : ndarray of shape (q, n_features) or None
        Matrix of the transformation. None means the identity.
    feature_names : sequence of str
        Names of the features.

    Returns
    -------
    LocalExplanation
    """
    distances, neighbors = voter.kneighbors(mapped)
    codes = voter._codes[neighbors]
    differences = rows[neighbors] - queries[:, None]
    if linear is None:
        diagonal, contributions = np.ones(rows.shape[1]), differences**2
    else:
        diagonal = np.einsum("ij,ij->j", linear, linear)
        contributions = differences * (differences @ linear.T @ linear)
    relevance = compute_relevance(diagonal[None], rows.std(axis=0))
    return LocalExplanation(
        relevance=np.repeat(relevance, len(queries), axis=0),
        contributions=contributions,
        neighbors=neighbors,
        distances=distances,
        neighbor_labels=voter.classes_[codes],
        labels=voter.predict(mapped),
        feature_names=feature_names,
        overall=relevance[0],
        ties=voter.ties,
        is_global=True,
    )


def may_be_linear(learner: Any) -> bool:
    """Return False if the learner is known to be nonlinear, otherwise True.

    Transformers from outside nearfar may be linear, which `estimate_linear_map` checks.
    """
    if isinstance(learner, Pipeline):
        return all(may_be_linear(step) for _, step in learner.steps)
    return isinstance(learner, LinearLearner) or not isinstance(learner, Estimator)


def to_numeric_rows(X: Any) -> Floats | None:
    """Return X as a 2-D array of finite numbers, or None if X is sparse or not numeric."""
    if sparse.issparse(X):
        return None
    try:
        rows = np.asarray(X)
        rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)
    except (TypeError, ValueError):
        return None
    if rows.ndim < 2 or not np.isfinite(rows).all():
        return None
    return rows.reshape(len(rows), -1)


def find_linear_map(learner: Any, rows: Matrix, points: Floats) -> Matrix | None:
    """Return the matrix with which a fitted learner maps ``rows`` to ``points``.

    Returns None if the learner is not linear.
    """
    if isinstance(learner, LinearLearner):
        return np.asarray(learner.components_, dtype=np.float64)
    return estimate_linear_map(learner.transform, rows, points)


def estimate_linear_map(
    transform: Callable[[Matrix], NDArray[Any]], rows: Matrix, points: Floats
) -> Matrix | None:
    """Estimate the matrix L of a transformation x -> Lx + b.

    Each column is a finite difference: a step of one standard deviation from the mean. Returns
    None if L does not reproduce ``points`` from ``rows``, since the transformation is then not
    linear.
    """
    center, steps = rows.mean(axis=0), rows.std(axis=0)
    steps = np.where(steps > 0, steps, 1.0)
    probes = np.vstack([center, center + np.diag(steps)])
    with warnings.catch_warnings():
        # A transformer fitted on a DataFrame warns that these rows have no feature names.
        warnings.simplefilter("ignore", UserWarning)
        mapped = np.asarray(transform(probes), dtype=np.float64)
    if mapped.ndim != 2:
        return None
    linear = (mapped[1:] - mapped[0]).T / steps
    sample = np.linspace(0, len(rows) - 1, min(_MAX_ROWS_COMPARED, len(rows))).astype(np.intp)
    expected = points[sample].astype(np.float64) - mapped[0]
    reproduced = (rows[sample] - center) @ linear.T
    tolerance = _MAX_DEVIATION[min(points.dtype.itemsize, 8)] * max(
        float(abs(expected).max()), 1e-300
    )
    return (
        linear
        if reproduced.shape == expected.shape and abs(reproduced - expected).max() <= tolerance
        else None
    )
