"""Base classes of metric learners: general maps and linear maps."""

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
from nearfar.blocks import check_mask, check_range, split_rows
from nearfar.state import State, floats, optional


class Learner(TransformerMixin, Estimator):
    """Metric learner: a transformer that maps similar points close to each other."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _sample_shapes(self) -> list[tuple[int, ...]]:
        """Allowed shapes of one point."""
        return [(self.n_features_in_,)]

    def _check_pairs(self, pairs: ArrayLike) -> Matrix:
        """Validate pairs of points and return them with shape (n_pairs, 2, n_features)."""
        check_is_fitted(self)
        check_mask(pairs, "pairs")
        points: Matrix = check_array(pairs, dtype=np.float64, allow_nd=True, input_name="pairs")
        expected = [(2, *shape) for shape in self._sample_shapes]
        if points.shape[1:] not in expected:
            shapes = " or ".join(f"(n_pairs, {str(shape)[1:]}" for shape in expected)
            raise ValueError(f"pairs must have shape {shapes}; got {points.shape}.")
        check_range(points, "pairs", small=False)
        return points.reshape(len(points), 2, self.n_features_in_)


class LinearLearner(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Metric learner with the linear map :math:`x \mapsto L (x - m)`.

    ``components_`` is L, and ``mean_`` is m. The learned distance is the Euclidean distance after
    the map, :math:`d(x, z)^2 = (x-z)^T L^T L (x-z)`. It does not depend on the mean, which is
    subtracted to reduce rounding errors.
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
        """Map points to ``(X - mean_) @ components_.T``.

        Learners without ``mean_`` return ``X @ components_.T``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Mapped points, in the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._map_blocks(rows, at_most=8192)

    def _map_blocks(self, rows: Floats, at_most: int) -> Floats:
        """Center and map the rows in blocks, to avoid a centered copy of all rows."""
        linear = self._linear_map(rows.dtype)
        # Rounding the mean to the dtype of X shifts all points equally, so distances do not change.
        mean = self.mean_.astype(rows.dtype, copy=False) if hasattr(self, "mean_") else None
        mapped = np.empty((len(rows), self._n_features_out), dtype=rows.dtype)
        for block in split_rows(len(rows), rows.itemsize * rows.shape[1], max_rows=at_most):
            with np.errstate(over="ignore", invalid="ignore"):
                mapped[block] = linear(rows[block] if mean is None else rows[block] - mean)
        if rows.dtype == np.float32 and not np.isfinite(mapped).all():
            raise ValueError(
                "X: the mapped points overflow float32. Rescale X, or convert it to float64."
            )
        return mapped

    def _linear_map(self, dtype: Any) -> Callable[[Floats], Floats]:
        """Return a function that maps centered rows and holds no reference to the learner."""
        components = self.components_.astype(dtype, copy=False)
        return lambda rows: np.asarray(rows @ components.T)

    def get_mahalanobis_matrix(self) -> Floats:
        """Return the Mahalanobis matrix M of the learned distance.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            ``components_.T @ components_``.
        """
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> Vector:
        """Return the learned distance between the two points of each pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Distances.
        """
        points = self._check_pairs(pairs)
        differences = self._linear_map(np.float64)(points[:, 0] - points[:, 1])
        return np.sqrt(np.einsum("ij,ij->i", differences, differences))

    def pair_score(self, pairs: ArrayLike) -> Vector:
        """Return the similarity of the two points of each pair, which is the negative distance.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Similarities. Larger values mean more similar points.
        """
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """Return a function ``metric(u, v, squared=False)`` that computes the learned distance.

        The function accepts two points as vectors, lists or single rows, like SciPy's distances.
        It does not change if the learner is fitted again. For nearest-neighbor search, it is many
        times faster to transform all points once and to use the Euclidean distance.

        Returns
        -------
        callable
        """
        check_is_fitted(self)
        linear, shapes = self._linear_map(np.float64), self._sample_shapes

        def metric(u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
            difference = linear(
                (_check_point(u, "u", shapes) - _check_point(v, "v", shapes))[None]
            )[0]
            square = float(difference @ difference)
            return square if squared else square**0.5

        return metric


def _check_point(values: ArrayLike, name: str, shapes: list[tuple[int, ...]]) -> Vector:
    """Return one point as a flat vector.

    ``values`` is a vector, a single row, or an array with one of the ``shapes``.
    """
    point = np.asarray(values, np.float64)
    if point.ndim == 2 and len(point) == 1 and point.shape not in shapes:
        point = point[0]
    if point.shape not in shapes:
        n_features = prod(shapes[0])
        raise ValueError(
            f"{name} should be one point of {n_features} features; got shape {point.shape}."
        )
    return point.ravel()
