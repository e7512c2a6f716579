"""Base class of kernel learners that optimize the weights in one of several modes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.alignment_weights import AlignmentWeights
from nearfar.kernels.kernel_combination import KernelCombination
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_weights import MarginWeights
from nearfar.state import Sizes, State, check_that, floats


class KernelProgram(KernelCombination):
    r"""Base class of kernel learners with several modes; subclasses implement `_solve`.

    In mode "rank_one", the kernels are :math:`v_i v_i^T`, where :math:`v_i` are the leading
    eigenvectors of the mean of the base kernels. A new point with values k of the mean kernel gets
    :math:`v_i(x) = v_i^T k / \lambda_i` by Nyström's formula, which is exact on training points.
    The learned kernel is :math:`\sum_i \mu_i v_i(x) v_i(z)`.
    """

    state = State({"_shares": floats("m")})

    mode: Any
    objective_: float
    bound_: float
    duality_gap_: float
    #: Weights of the base kernels in the kernel whose eigenvectors are used.
    _shares: Vector

    def _solve(
        self, kernels: Any, codes: NDArray[np.intp], **options: Any
    ) -> AlignmentWeights | MarginWeights:
        """Return the weights of the kernels, with the objective value and its bound."""
        raise NotImplementedError

    def _learn(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        kernels = self._base.over(points)
        if self.mode == "free":
            self._learn_matrix(points, codes)
        elif self.mode == "rank_one":
            self._learn_directions(kernels, points, codes)
        else:
            super()._learn(points, codes)
            self._shares = self.weights_

    def _weigh(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        weights = self._noted(self._solve(kernels, codes))
        assert weights is not None
        return weights

    def _learn_matrix(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        """Fit in mode "free", without weights and without kernel values for new points."""
        self._noted(self._solve(None, codes, n_points=len(points)))
        self.weights_, self.shares_, self.kernel_names_ = np.empty(0), np.empty(0), []
        self._shares = np.zeros(len(self._base))
        self._rows, self._basis, self._offset = points, np.empty((len(points), 0)), np.empty(0)

    def _learn_directions(
        self, kernels: KernelSet, points: Matrix, codes: NDArray[np.intp]
    ) -> None:
        """Fit in mode "rank_one": compute weights of eigenvectors of the mean kernel."""
        n = len(points)
        self._shares = n / (kernels.n_kernels * kernels.traces)
        K = kernels.weighted(self._shares)
        wanted = {"auto": None, None: n}.get(self.n_directions, self.n_directions)  # type: ignore
        found = self._solve([K], codes, n_directions=wanted)
        weights, V = self._noted(found), found.directions
        assert weights is not None and V is not None
        # Eigenvectors of a centered kernel are orthogonal to constant vectors.
        means = K.mean(axis=0) if getattr(self, "centered", False) else np.zeros(n)
        values = np.einsum("ij,ij->j", V, K @ V)
        self._keep_weights(weights, np.ones(len(weights)), n)
        self.kernel_names_ = [f"direction {i}" for i in range(len(weights))]
        self._rows, self._basis, self._offset = points, V / values, means @ (V / values)
        self.n_directions_ = int((self.weights_ > 0).sum())

    def _noted(self, found: AlignmentWeights | MarginWeights) -> Vector | None:
        """Store the objective and its bound, and return the weights."""
        self.objective_, self.bound_ = float(found.value), float(found.bound)
        self.duality_gap_ = float(found.gap)
        return found.weights

    # ------------------------------------------------------------------ new points

    def _values(self, first: Matrix, second: Matrix) -> Matrix:
        if self.mode == "free":
            raise ValueError(
                'mode="free" learns only the kernel matrix of the training rows, which repeats '
                "their labels. It has no kernel values for other points. Choose another mode."
            )
        if self.mode == "rank_one":
            return np.asarray(self._coordinates(first) @ self._coordinates(second).T)
        return super()._values(first, second)

    def _base_values(self, i: int, first: Matrix, second: Matrix) -> Matrix:
        if self.mode != "rank_one":
            return super()._base_values(i, first, second)
        return np.outer(self._directions(first)[:, i], self._directions(second)[:, i])

    def _directions(self, rows: Matrix) -> Matrix:
        """Return the eigenvectors, extended to rows."""
        return self._along(rows, partial(self._base.weighted, self._shares))

    def _coordinates(self, rows: Matrix) -> Matrix:
        if self.mode != "rank_one":
            return super()._coordinates(rows)
        used = self.weights_ > 0
        return np.asarray(self._directions(rows)[:, used] * np.sqrt(self.weights_[used]))

    @property
    def _n_features_out(self) -> int:
        return (
            int((self.weights_ > 0).sum()) if self.mode == "rank_one" else super()._n_features_out
        )

    def _check_state(self, sizes: Sizes) -> None:
        check_that(np.isfinite(self.weights_).all(), "weights_ must be finite.")
        wanted = {"free": 0, "rank_one": sizes["d"]}.get(self.mode, sizes["m"])
        check_that(sizes["w"] == wanted, "weights_ must have one number per kernel or direction.")
