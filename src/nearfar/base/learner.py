"""Methods that learn a map; those whose map is a matrix."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base.estimator import Estimator
from nearfar.blocks import row_blocks
from nearfar.state import State, floats, optional


class Learner(TransformerMixin, Estimator):
    """A method that learns a map in which near means alike."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _sample_shapes(self) -> list[tuple[int, ...]]:
        """What one point may look like."""
        return [(self.n_features_in_,)]

    def _check_pairs(self, pairs: ArrayLike) -> Matrix:
        """Pairs of points, of shape (n_pairs, 2, n_features), for what was learned."""
        check_is_fitted(self)
        points: Matrix = check_array(pairs, dtype=np.float64, allow_nd=True, input_name="pairs")
        wanted = [(2, *shape) for shape in self._sample_shapes]
        if points.shape[1:] not in wanted:
            shapes = " or ".join(f"(n_pairs, {str(shape)[1:]}" for shape in wanted)
            raise ValueError(f"pairs must have shape {shapes}; got {points.shape}.")
        return points.reshape(len(points), 2, self.n_features_in_)


class LinearLearner(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""A learner whose map is :math:`x \mapsto L (x - m)`, with ``components_`` for L.

    Distances after the map are :math:`d(x, z)^2 = (x-z)^T L^T L (x-z)`; the mean :math:`m` only
    keeps digits and plays no part in them.
    """

    state = State(
        {"components_": optional(floats("q", "p")), "mean_": optional(floats("p"))},
        fitted="components_",
    )

    components_: Floats
    mean_: Floats

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: ArrayLike) -> Floats:
        """Map points: ``(X - mean_) @ components_.T``, or without the mean if there is none.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._map_blocks(rows, at_most=8192)

    def _map_blocks(self, rows: Floats, at_most: int) -> Floats:
        """Rows less the mean, mapped in blocks: there is never a centred copy of them all."""
        linear = self._linear_map(rows.dtype)
        # The mean is rounded like X: a common shift changes no distance.
        mean = self.mean_.astype(rows.dtype, copy=False) if hasattr(self, "mean_") else None
        mapped = np.empty((len(rows), self._n_features_out), dtype=rows.dtype)
        for block in row_blocks(len(rows), rows.itemsize * rows.shape[1], at_most=at_most):
            mapped[block] = linear(rows[block] if mean is None else rows[block] - mean)
        return mapped

    def _linear_map(self, dtype: Any) -> Callable[[Floats], Floats]:
        """Rows to rows, without the mean; a function that knows no learner."""
        components = self.components_.astype(dtype, copy=False)
        return lambda rows: np.asarray(rows @ components.T)

    def get_mahalanobis_matrix(self) -> Floats:
        """The matrix M of the learned distance, ``components_.T @ components_``."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Vector:
        """Learned distance between the two points of each pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        points = self._check_pairs(pairs)
        differences = self._linear_map(np.float64)(points[:, 0] - points[:, 1])
        return np.sqrt(np.einsum("ij,ij->i", differences, differences))

    def pair_score(self, pairs: ArrayLike) -> Vector:
        """How alike the points of each pair are: minus their distance.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """A function ``metric(u, v, squared=False)`` of two points, free of the learner.

        Points are given as to SciPy's distances: vectors, lists or single rows. For neighbours it
        is many times faster to transform all points once and to use the Euclidean distance.
        """
        check_is_fitted(self)
        linear, shapes = self._linear_map(np.float64), self._sample_shapes

        def metric(u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
            difference = linear((_point(u, "u", shapes) - _point(v, "v", shapes))[None])[0]
            square = float(difference @ difference)
            return square if squared else square**0.5

        return metric


def _point(values: ArrayLike, name: str, shapes: list[tuple[int, ...]]) -> Vector:
    """One point, flat: a vector or a single row, or of one of the shapes."""
    point = np.asarray(values, np.float64)
    if point.ndim == 2 and len(point) == 1 and point.shape not in shapes:
        point = point[0]
    if point.shape not in shapes:
        n_features = prod(shapes[0])
        raise ValueError(
            f"{name} should be one point of {n_features} features; got shape {point.shape}."
        )
    return point.ravel()
