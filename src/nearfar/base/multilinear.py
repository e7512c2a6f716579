"""Base classes of multilinear learners, with one projection matrix per tensor mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.base.progress import get_reporter
from nearfar.base.tensor_input import TensorEstimator
from nearfar.notices import warn_not_converged
from nearfar.solvers.mode_subspaces import ModeMatrix, ModeRank, alternate_modes
from nearfar.solvers.tensor_algebra import kron_rows, project_stack
from nearfar.state import (
    Condition,
    Sizes,
    State,
    check_that,
    flag,
    integer_value,
    list_of,
    matches_size,
    optional,
    shape_value,
)

# Maximum size of a block of rows in bytes, so that the block stays in the cache while it is
# centered and multiplied.
_BLOCK_BYTES = 2**21

#: Check for each entry of ``factors_`` in a model file.
factor_check = Condition(
    lambda value, _: (
        isinstance(value, np.ndarray)
        and value.ndim == 2
        and value.dtype in (np.float32, np.float64)
        and value.size > 0
    ),
    "a matrix of numbers",
)


class MultilinearLearner(TensorEstimator, LinearLearner):
    r"""Metric learner with the map :math:`X \mapsto (X - M) \times_1 U_1^T \cdots \times_M U_M^T`.

    The map is linear in flat rows: ``components_`` is the Kronecker product of the factors. It is
    computed on access only, because tensors are mapped mode by mode.

    A subclass implements ``fit``, which calls :meth:`_keep_factors`. If it has a parameter
    ``flatten`` that is False, ``transform`` returns tensors.
    """

    state = State(
        {"factors_": list_of(factor_check, "modes"), "n_components_": optional(shape_value)},
        fitted="factors_",
    )
    factors_: list[Floats]
    #: Length of each mode after the map.
    n_components_: tuple[int, ...]

    n_components: Any

    def __sklearn_is_fitted__(self) -> bool:
        return "factors_" in vars(self)

    def _resolve_n_components(self, shape: Sequence[int]) -> list[int] | None:
        """Return the number of components per mode, or None if ``n_components`` is None.

        An integer is the maximum for all modes. A tuple has the exact number for each mode.
        """
        requested = self.n_components
        if requested is None:
            return None
        if np.ndim(requested) == 0:
            n_components, is_valid = (
                [min(int(requested), d) for d in shape],
                int(requested) <= max(shape),
            )
        else:
            n_components, is_valid = [int(q) for q in requested], len(requested) == len(shape)
            is_valid = is_valid and all(q <= d for q, d in zip(n_components, shape, strict=True))
        if not is_valid:
            raise ValueError(
                f"{type(self).__name__}: n_components={requested!r} does not fit tensors of shape "
                f"{tuple(shape)}. Use at most "
                f"{max(shape) if np.ndim(requested) == 0 else tuple(shape)}, or None."
            )
        return n_components

    def _keep_factors(
        self, factors: Sequence[Matrix], mean: Floats | None, dtype: np.dtype[Any]
    ) -> None:
        """Set the fitted attributes in the dtype of X. ``mean_`` is not set if ``mean`` is None."""
        if mean is not None:
            self.mean_ = np.asarray(mean, dtype).ravel()
        self.factors_ = [np.ascontiguousarray(U, dtype) for U in factors]
        self.n_components_ = tuple(U.shape[1] for U in self.factors_)

    @property
    def components_(self) -> Floats:  # type: ignore[override]
        """Matrix of shape (n_features_out, n_features) that maps flat rows.

        Each row of the matrix is a flat eigen-tensor.
        """
        if "factors_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'components_'")
        return self._components()

    def _components(self) -> Floats:
        return kron_rows(self.factors_)

    @property
    def _n_features_out(self) -> int:
        return prod(self.n_components_)

    @property
    def _sample_shapes(self) -> list[tuple[int, ...]]:
        return [(self.n_features_in_,), tuple(self.tensor_shape_)]

    def _linear_map(self, dtype: Any) -> Callable[[Floats], Floats]:
        shape = tuple(self.tensor_shape_)
        factors = [U.astype(dtype, copy=False) for U in self.factors_]
        return lambda rows: project_stack(rows.reshape(-1, *shape), factors).reshape(len(rows), -1)

    def transform(self, X: ArrayLike) -> Floats:
        """Map tensors.

        For flat rows, the result is ``(X - mean_) @ components_.T``, or ``X @ components_.T`` for
        learners without ``mean_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or flat rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out) or (n_samples, q1, ..., qk)
            Mapped tensors, in the dtype of X. They are flat rows, unless the learner has a
            parameter ``flatten`` that is False.
        """
        check_is_fitted(self)
        T = self._check_tensors(X, reset=False)
        rows = T.reshape(len(T), -1)
        at_most = max(1, _BLOCK_BYTES // (rows.itemsize * rows.shape[1]))
        mapped = self._map_blocks(rows, at_most)
        if getattr(self, "flatten", True):
            return mapped
        return mapped.reshape(len(mapped), *self.n_components_)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Reconstruct tensors from mapped tensors.

        Many tensors are mapped to the same row of X. The tensor nearest to the mean is returned.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_out) or (n_samples, q1, ..., qk)
            Mapped tensors.

        Returns
        -------
        ndarray of shape (n_samples, d1, ..., dk)
            Reconstructed tensors, in the dtype of X.
        """
        check_is_fitted(self)
        mapped = np.asarray(X)
        coordinates = (
            mapped if mapped.dtype in (np.float32, np.float64) else mapped.astype(np.float64)
        )
        if coordinates.ndim < 2 or prod(coordinates.shape[1:]) != self._n_features_out:
            raise ValueError(
                f"X has shape {coordinates.shape}, but {type(self).__name__} maps to "
                f"(n_samples, {self._n_features_out}) or {('n_samples', *self.n_components_)}."
            )
        rows = self._rebuild(coordinates.reshape(len(coordinates), -1))
        if hasattr(self, "mean_"):
            rows += self.mean_.astype(rows.dtype, copy=False)
        return rows.reshape(-1, *self.tensor_shape_)

    def _rebuild(self, rows: Floats) -> Floats:
        """Return flat rows of minimum norm that are mapped to the given rows."""
        inverse = [np.linalg.pinv(U.astype(np.float64)) for U in self.factors_]
        return project_stack(rows.reshape(-1, *self.n_components_), inverse).reshape(len(rows), -1)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        shape = tuple(self.tensor_shape_) if "tensor_shape_" in vars(self) else ()
        matches = tuple(len(U) for U in self.factors_) == shape and prod(shape) == sizes.get("p")
        check_that(matches, "factors_ do not match tensor_shape_ and the number of features.")
        check_that("n_components_" in vars(self), "n_components_ is missing.")
        self._check_components(sizes)

    def _check_components(self, sizes: Sizes) -> None:
        """Raise if the shapes of the factors do not match ``n_components_``."""
        n_components = tuple(self.n_components_)
        check_that(
            n_components == tuple(U.shape[1] for U in self.factors_),
            "n_components_ does not match factors_.",
        )
        check_that(
            matches_size(self._n_features_out, "q", sizes),
            "factors_ have a wrong number of columns.",
        )


class AlternatingLearner(MultilinearLearner):
    """Multilinear learner with orthonormal factors, optimized one mode at a time.

    Subclasses have the parameters ``max_iter`` and ``tol``. Their ``fit`` calls
    :meth:`_learn_modes`.
    """

    state = State({"n_iter_": integer_value(), "converged_": flag})
    max_iter: int
    tol: float

    def _learn_modes(
        self,
        matrix_of: ModeMatrix,
        start: Sequence[Matrix],
        kept: ModeRank,
        mean: Floats | None,
        dtype: np.dtype[Any],
        *,
        by_magnitude: bool = False,
        bases: Sequence[Matrix] | None = None,
        history: dict[str, list[float]] | None = None,
    ) -> None:
        """Optimize the modes in turn, starting from ``start``, and set the fitted attributes.

        ``history`` contains entries to add to ``history_``.
        """
        result = alternate_modes(
            matrix_of,
            start,
            kept,
            max_iter=self.max_iter,
            tol=self.tol,
            by_magnitude=by_magnitude,
            bases=bases,
            precision=float(np.finfo(dtype).eps),
            report=get_reporter(self),
        )
        self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.history_ = {
            "objective": result.objective,
            "step": result.change,
            "seconds": result.seconds,
        } | (history or {})
        self._keep_factors(result.factors, mean, dtype)
        if result.interrupt is not None:
            # The best solution so far is already stored.
            raise result.interrupt
        if not result.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
