"""Base class of kernel learners that optimize over one of several kernel families."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.alignment_weights import AlignmentWeights
from nearfar.kernels.kernel_combination import KernelCombination
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_weights import MarginWeights
from nearfar.state import Sizes, State, check_that, floats


class KernelProgram(KernelCombination):
    r"""Base class of kernel learners that have the parameter `kernel_family`.

    Subclasses implement `_solve`.

    With ``kernel_family="rank_one"``, the kernels are :math:`v_i v_i^T`, where :math:`v_i` are the
    leading eigenvectors of the mean of the base kernels. For a new point x, let k contain the
    values of the mean kernel at x and each training point. By Nyström's formula,
    :math:`v_i(x) = v_i^T k / \lambda_i`, which is exact on training points. The learned kernel is
    :math:`\sum_i \mu_i v_i(x) v_i(z)`.
    """

    state = State({"_mean_weights": floats("m")})
    renamed: ClassVar = {"_shares": "_mean_weights"}

    kernel_family: Any
    objective_: float
    bound_: float
    duality_gap_: float
    #: With kernel_family="rank_one", the weights of the base kernels in the mean kernel, whose
    #: eigenvectors are the directions.
    _mean_weights: Vector

    def _solve(
        self, kernels: Any, codes: NDArray[np.intp], **options: Any
    ) -> AlignmentWeights | MarginWeights:
        """Return the weights of the kernels, the objective value and its bound."""
        raise NotImplementedError

    def _learn(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        kernels = self._base.build_kernel_set(points)
        if self.kernel_family == "free":
            self._learn_matrix(points, codes)
        elif self.kernel_family == "rank_one":
            self._learn_directions(kernels, points, codes)
        else:
            super()._learn(points, codes)
            self._mean_weights = self.weights_

    def _compute_weights(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        weights = self._store_objective(self._solve(kernels, codes))
        assert weights is not None
        return weights

    def _learn_matrix(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        """Fit the kernel matrix for ``kernel_family="free"``, which has no weights."""
        self._store_objective(self._solve(None, codes, n_points=len(points)))
        self.weights_, self.shares_, self.kernel_names_ = np.empty(0), np.empty(0), []
        self._mean_weights = np.zeros(len(self._base))
        self._rows, self._basis, self._offset = points, np.empty((len(points), 0)), np.empty(0)

    def _learn_directions(
        self, kernels: KernelSet, points: Matrix, codes: NDArray[np.intp]
    ) -> None:
        """Fit the weights of eigenvectors of the mean kernel (``kernel_family="rank_one"``)."""
        n = len(points)
        self._mean_weights = n / (kernels.n_kernels * kernels.traces)
        K = kernels.compute_weighted_sum(self._mean_weights)
        n_directions = {"auto": None, None: n}.get(self.n_directions, self.n_directions)  # type: ignore
        result = self._solve([K], codes, n_directions=n_directions)
        weights, V = self._store_objective(result), result.directions
        assert weights is not None and V is not None
        # The eigenvectors of a centered kernel have mean zero, so centering new kernel values
        # needs only the column means.
        means = K.mean(axis=0) if getattr(self, "centered", False) else np.zeros(n)
        eigenvalues = np.einsum("ij,ij->j", V, K @ V)
        self._keep_weights(weights, np.ones(len(weights)), n)
        self.kernel_names_ = [f"direction {i}" for i in range(len(weights))]
        self._rows, self._basis, self._offset = points, V / eigenvalues, means @ (V / eigenvalues)
        self.n_directions_ = int((self.weights_ > 0).sum())

    def _store_objective(self, result: AlignmentWeights | MarginWeights) -> Vector | None:
        """Store the objective and its bound, and return the weights."""
        self.objective_, self.bound_ = float(result.value), float(result.bound)
        self.duality_gap_ = float(result.gap)
        return result.weights

    def _values(self, first: Matrix, second: Matrix) -> Matrix:
        if self.kernel_family == "free":
            raise ValueError(
                'kernel_family="free" learns a kernel matrix of the training rows only. It has no '
                "kernel values for other points, because the matrix depends only on the training "
                "labels. Choose another kernel_family."
            )
        if self.kernel_family == "rank_one":
            return np.asarray(self._coordinates(first) @ self._coordinates(second).T)
        return super()._values(first, second)

    def _compute_base_kernel(self, i: int, first: Matrix, second: Matrix) -> Matrix:
        if self.kernel_family != "rank_one":
            return super()._compute_base_kernel(i, first, second)
        return np.outer(self._extend_directions(first)[:, i], self._extend_directions(second)[:, i])

    def _extend_directions(self, rows: Matrix) -> Matrix:
        """Extend the eigenvectors to new rows with Nyström's formula."""
        return self._project(rows, partial(self._base.compute_weighted_sum, self._mean_weights))

    def _coordinates(self, rows: Matrix) -> Matrix:
        if self.kernel_family != "rank_one":
            return super()._coordinates(rows)
        has_weight = self.weights_ > 0
        return np.asarray(
            self._extend_directions(rows)[:, has_weight] * np.sqrt(self.weights_[has_weight])
        )

    @property
    def _n_features_out(self) -> int:
        return (
            int((self.weights_ > 0).sum())
            if self.kernel_family == "rank_one"
            else super()._n_features_out
        )

    def _check_state(self, sizes: Sizes) -> None:
        check_that(np.isfinite(self.weights_).all(), "weights_ must be finite.")
        n_expected = {"free": 0, "rank_one": sizes["d"]}.get(self.kernel_family, sizes["m"])
        check_that(
            sizes["w"] == n_expected, "weights_ must have one number per kernel or direction."
        )
