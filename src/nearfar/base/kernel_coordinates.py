"""Base classes of kernel methods: kernel PCA coordinates of points in feature space."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base.kernel_learner import KernelLearner
from nearfar.base.learner import Learner
from nearfar.blocks import split_rows
from nearfar.parameters import AllowedValues, instance, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.state import (
    Condition,
    Sizes,
    State,
    check_that,
    floats,
    none_or,
    number,
    object_of,
    optional,
    table,
)

#: Names of the supported kernels.
KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine")
#: Allowed values of ``kernel`` that are not names. Classes are rejected. The method
#: ``learner.kernel`` of a kernel learner is also rejected, because it would be called once per
#: pair. Pass the learner itself instead.
UNNAMED_KERNELS: list[AllowedValues] = [
    instance(KernelLearner, description="a kernel learner such as AlignmentKernelLearner()"),
    AllowedValues(
        lambda value: (
            callable(value)
            and not isinstance(value, type)
            and not isinstance(getattr(value, "__self__", None), KernelLearner)
        ),
        "a function of two arrays",
    ),
]
#: Allowed values of the kernel parameters.
KERNEL_PARAMETERS: dict[str, list[AllowedValues]] = {
    "kernel": [one_of(*KERNELS, "precomputed"), *UNNAMED_KERNELS],
    "gamma": [none, real(0, open_low=True)],
    "degree": [real(0, open_low=True)],
    "coef0": [real()],
    "n_directions": [none, integer(1), one_of("auto")],
}
#: Allowed parameter values of learners that use landmarks, which are a subset of the training rows.
LANDMARK_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_landmarks": [none, integer(2), one_of("auto")],
    "random_state": [random_state],
}
# Maximum number of landmarks with n_landmarks="auto".
_MAX_LANDMARKS = 1000
# A direction is dropped if its eigenvalue is at most this fraction of the largest eigenvalue of the
# centered kernel.
_MIN_EIGENVALUE = 1e-10
# A direction is also dropped if its eigenvalue is at most this number, because smaller eigenvalues
# have only a few correct digits.
_MIN_ABSOLUTE = 1e-290
# Number of pairs per block for learned kernels. The kernel matrix between the first points and the
# second points of a block is computed, and only its diagonal is used.
_PAIR_BLOCK = 32


class KernelCoordinates(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Mixin that computes kernel PCA coordinates for learners with `KERNEL_PARAMETERS`.

    Let :math:`K_c = CKC = P \,\mathrm{diag}(\mu) P^T` be the centered kernel matrix of the training
    points. A point with centered kernel values k has the coordinates :math:`z = B^T k` with
    :math:`B = P\,\mathrm{diag}(\mu)^{-1/2}`. Distances between coordinates approximate the
    distances in feature space. For training points, both are equal if all directions are kept. A
    linear map L of the coordinates is ΩΦ in feature space, with :math:`\Omega = L B^T` and the
    training points Φ.

    If ``kernel`` is a kernel learner, ``_learn_kernel`` fits it first.
    """

    state = State(
        {
            "_basis": floats("n", "d"),
            "_rows": none_or(table("n", "p")),
            "_gamma": none_or(number(0, open_low=True)),
            "_means": floats("n"),
            "_mean": number(),
            "coefficients_": floats("q", "n"),
            "kernel_": optional(object_of(KernelLearner, p="p")),
        },
        fitted="coefficients_",
        rows="_means",
        fit_conditions={
            "kernel": Condition(
                lambda value, _: isinstance(value, str | KernelLearner),
                "a kernel name or a kernel learner (model files cannot store functions)",
            )
        },
    )

    kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    n_directions: int | Literal["auto"] | None
    coefficients_: Matrix
    kernel_: KernelLearner
    _rows: Matrix | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "coefficients_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        """Omit rows that the learned kernel also stores, so that a file has each row only once."""
        state = super().__getstate__()
        rows = state.get("_rows")
        if "kernel_" in state and rows is not None:
            if rows is self.kernel_._rows:
                state["_rows"] = None
            else:
                state["_rows"], state["_row_places"] = _split_stored_rows(rows, self.kernel_._rows)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = {name: value for name, value in state.items() if name != "_row_places"}
        super().__setstate__(stored)
        if "_row_places" in state:
            self._rows = _join_stored_rows(state["_rows"], state["_row_places"], self.kernel_._rows)
        elif vars(self).get("_rows") is None and "kernel_" in vars(self):
            self._rows = self.kernel_._rows

    def _share_rows(self, rows: Matrix) -> Matrix:
        """Return the learned kernel's array if it equals ``rows``, to store the rows only once."""
        are_equal = self._is_learned() and np.array_equal(rows, self.kernel_._rows)
        return self.kernel_._rows if are_equal else rows

    def _learn_kernel(self, X: ArrayLike, y: ArrayLike | None) -> None:
        """If the kernel is a kernel learner, fit a clone of it to X and y."""
        if not self._is_learned():
            return
        learner: Any = clone(self.kernel)
        if y is None and learner.learner_tags.supervised:
            raise ValueError(
                f"{type(self).__name__}: kernel is {type(learner).__name__}, which learns from "
                "labels, but the target y is None. Pass y, or choose a kernel by name."
            )
        self.kernel_ = learner.fit(X, y)

    def _fit_kernel(self, rows: Floats, auto: int | None = None) -> Matrix:
        """Fit the kernel PCA and return the coordinates of the rows.

        ``auto`` is the number of directions for ``n_directions="auto"``. None means a tenth of the
        number of rows, but at least 10 and at most 50.
        """
        K = self._training_kernel(rows)
        n_directions: Any = self.n_directions
        if self.n_directions == "auto":
            n_directions = min(50, max(10, len(K) // 10)) if auto is None else auto
        _, self._basis = self._span(self._centered(K), n_directions)
        self.n_directions_ = self._basis.shape[1]
        return self._coordinates(K)

    def _span(self, centered: Matrix, n_directions: int | None) -> tuple[Vector, Matrix]:
        """Return the eigenvalues μ of a centered kernel P diag(μ) P', and B = P diag(μ)^{-1/2}.

        The eigenvalues are in descending order.
        """
        values, vectors = descending_eigh(centered, n_directions)
        is_kept = values > max(_MIN_EIGENVALUE * values[0], _MIN_ABSOLUTE)
        if not is_kept.any():
            raise ValueError(
                "The kernel maps all training points to the same point. Check that the rows of X "
                "differ, or choose another kernel or gamma."
            )
        return values[is_kept], vectors[:, is_kept] / np.sqrt(values[is_kept])

    def _training_kernel(self, rows: Floats) -> Matrix:
        """Return the kernel matrix of the training rows, and store its column means.

        The rows are also stored, unless the kernel is precomputed.
        """
        # Copy the rows, because scikit-learn uses a different formula for the kernel of an array
        # with itself.
        self._rows = None if self._is_precomputed() else self._share_rows(_exact(rows).copy())
        self._gamma = self._choose_gamma()
        K = self._kernel(rows if self._rows is None else self._rows)
        if K.shape[0] != K.shape[1]:
            raise ValueError(
                "With kernel='precomputed', X must be a square kernel matrix in fit; got shape "
                f"{K.shape}."
            )
        if not np.isfinite(K).all():
            raise ValueError(
                "The kernel matrix contains NaN or infinity. Rescale the features of X, or choose "
                "another kernel or gamma."
            )
        if self._is_precomputed() or not isinstance(self.kernel, str):
            _check_symmetric(K)
        self._means = K.mean(axis=0)
        self._mean = float(self._means.mean())
        return K

    def _kernel_transform(self, rows: Floats) -> Matrix:
        """Return the coordinates of new points.

        If the kernel is precomputed, ``rows`` contains their kernel values.
        """
        mapped = np.empty((len(rows), self.n_directions_))
        for block in split_rows(len(rows), 32 * len(self._basis)):
            mapped[block] = self._coordinates(self._kernel(rows[block]))
        return mapped

    @property
    def _kernel_eigenvalues(self) -> Matrix:
        """Eigenvalues of the centered kernel, largest first."""
        return 1 / np.einsum("ij,ij->j", self._basis, self._basis)

    def _check_state(self, sizes: Sizes) -> None:
        is_precomputed = self._is_precomputed()
        check_that(
            (self._rows is None) == is_precomputed,
            "_rows must be set unless the kernel is precomputed.",
        )
        self._check_learned()
        check_that(
            not is_precomputed or sizes.get("p") == sizes["n"], "the kernel matrix must be square."
        )
        n_directions = vars(self).get("n_directions_")
        check_that(
            type(n_directions) is int and n_directions == sizes["d"],
            "n_directions_ does not match _basis.",
        )

    def _check_learned(self) -> None:
        is_computed = not self._is_precomputed() and not self._is_learned()
        check_that(
            (self._gamma is not None) == is_computed,
            "_gamma must be set unless the kernel is precomputed or learned.",
        )
        has_learned_kernel = "kernel_" in vars(self)
        check_that(
            has_learned_kernel == self._is_learned(),
            "kernel_ must be set for a learned kernel only.",
        )

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _is_learned(self) -> bool:
        return isinstance(self.kernel, KernelLearner)

    def _choose_gamma(self) -> float | None:
        if self._rows is None or self._is_learned():
            return None
        if self.gamma is not None:
            return float(self.gamma)
        return compute_gamma(self._rows, self.kernel)

    def _kernel(self, rows: Floats, training_points: Matrix | None = None) -> Matrix:
        """Return the kernel matrix between points and ``training_points``.

        None uses the stored training rows.
        """
        points = _exact(rows)
        if training_points is None:
            if self._rows is None:
                return points
            training_points = self._rows
        if self._is_learned():
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(self.kernel_.kernel(points, training_points), np.float64)
        options: dict[str, Any] = {}
        if not callable(self.kernel):
            options = {"gamma": self._gamma, "degree": self.degree, "coef0": self.coef0}
            options["filter_params"] = True
        if self.kernel == "rbf":
            # Center first, because |a|² + |b|² - 2ab loses all digits if all points are far from 0.
            mean = training_points.mean(axis=0)
            points, training_points = points - mean, training_points - mean
        with np.errstate(over="ignore", invalid="ignore"):  # The caller checks for overflow.
            values = pairwise_kernels(points, training_points, metric=self.kernel, **options)
        return np.asarray(values, np.float64)

    def _kernel_gaps(self, first: Matrix, second: Matrix) -> Vector:
        """Return the squared distance in feature space between the two points of each pair."""
        gamma = 1.0 if self._gamma is None else self._gamma
        if self.kernel in ("linear", "rbf", "cosine"):
            if self.kernel == "cosine":
                first, second = normalize(first), normalize(second)
            squares = np.einsum("ij,ij->i", first - second, first - second)
            return -2 * np.expm1(-gamma * squares) if self.kernel == "rbf" else squares
        if self.kernel == "laplacian":
            return -2 * np.expm1(-gamma * np.abs(first - second).sum(axis=1))

        def compute_values(A: Matrix, B: Matrix) -> Vector:
            if self._is_learned():
                blocks = split_rows(len(A), 8 * _PAIR_BLOCK, max_rows=_PAIR_BLOCK)
                return np.concatenate([np.diag(self._kernel(A[b], B[b])) for b in blocks])
            if callable(self.kernel):
                return np.array([self.kernel(a, b) for a, b in zip(A, B, strict=True)], float)
            level = gamma * np.einsum("ij,ij->i", A, B) + self.coef0
            return np.tanh(level) if self.kernel == "sigmoid" else level**self.degree

        return (
            compute_values(first, first)
            + compute_values(second, second)
            - 2 * compute_values(first, second)
        )

    def _centered(self, K: Matrix) -> Matrix:
        """Center kernel values at the mean of the training points in feature space."""
        return K - K.mean(axis=1, keepdims=True) - self._means + self._mean

    def _coordinates(self, K: Matrix) -> Matrix:
        return self._centered(K) @ self._basis

    def _map_by_coefficients(self, rows: Floats) -> Floats:
        """Return the mapped points Ωk, in the dtype of the rows.

        The matrix Ω is ``coefficients_``, and k contains the centered kernel values of a point.
        """
        mapped = np.empty((len(rows), len(self.coefficients_)), dtype=rows.dtype)
        for block in split_rows(len(rows), 32 * self.coefficients_.shape[1]):
            mapped[block] = self._centered(self._kernel(rows[block])) @ self.coefficients_.T
        return mapped

    @property
    def _n_features_out(self) -> int:
        return len(self.coefficients_)


class LandmarkCoordinates(KernelCoordinates):
    """Mixin of kernel coordinates for learners that store only landmarks and coefficients."""

    n_landmarks: int | Literal["auto"] | None
    random_state: int | np.random.RandomState | None

    def _landmarks(self, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the indices of the landmark rows, or of all rows if the kernel is precomputed."""
        if self._is_precomputed():
            return np.arange(len(codes))
        n_landmarks = _MAX_LANDMARKS if self.n_landmarks == "auto" else self.n_landmarks
        return draw_class_landmarks(codes, n_landmarks, check_random_state(self.random_state))

    def transform(self, X: ArrayLike) -> Floats:
        """Map points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_training)
            Points, or their kernel values with the training points if ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Mapped points, in the dtype of X.
        """
        check_is_fitted(self)
        return self._map_by_coefficients(self._check_X(X, reset=False))


def compute_gamma(rows: Matrix, kernel: Any) -> float:
    """Return 1 / (sum of the feature variances).

    For "laplacian", standard deviations are summed instead of variances. If the sum is 0, return 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variances = rows.var(axis=0)
    return convert_to_gamma(
        float((np.sqrt(variances) if kernel == "laplacian" else variances).sum())
    )


def convert_to_gamma(size: float) -> float:
    """Return 1 / ``size``, or 1 if ``size`` is 0."""
    if not np.isfinite(size):
        raise ValueError("X has values that are too large for kernels. Rescale the features of X.")
    return 1 / size if size > 0 else 1.0


def _check_symmetric(K: Matrix) -> None:
    size = max(K.max(), -K.min())
    for block in split_rows(len(K), 64 * len(K)):
        if not np.allclose(K[block], K[:, block].T, rtol=1e-6, atol=1e-8 * size):
            raise ValueError(
                "The kernel matrix is not symmetric. Pass a symmetric kernel matrix or function."
            )


def draw_class_landmarks(
    codes: NDArray[np.intp], n_landmarks: int | None, random: np.random.RandomState
) -> NDArray[np.intp]:
    """Draw about ``n_landmarks`` row indices, in ascending order. None selects all rows.

    Each class gets rows in proportion to its size, but at least one.
    """
    if n_landmarks is None or len(codes) <= n_landmarks:
        return np.arange(len(codes))
    landmarks = []
    for code in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == code)
        n_drawn = max(1, round(n_landmarks * len(rows) / len(codes)))
        landmarks.append(random.choice(rows, n_drawn, replace=False))
    return np.sort(np.concatenate(landmarks))


def _split_stored_rows(rows: Matrix, stored: Matrix) -> tuple[Matrix, Indices]:
    """Return the rows that are not in ``stored``, and each row's index in ``stored``.

    The index of a row that is not in ``stored`` is -1. Other indices are unique: equal rows are
    matched to different rows of ``stored``.

    >>> rows, stored = np.array([[3.0], [1.0], [2.0], [1.0]]), np.array([[1.0], [2.0], [0.0]])
    >>> _split_stored_rows(rows, stored)
    (array([[3.],
           [1.]]), array([-1,  0,  1, -1]))
    """
    unused: dict[bytes, list[int]] = {}
    for index in reversed(range(len(stored))):
        unused.setdefault(stored[index].tobytes(), []).append(index)
    matches = (unused.get(row.tobytes()) for row in rows)
    positions = np.array(
        [positions.pop() if positions else -1 for positions in matches], dtype=np.intp
    )
    return rows[positions < 0], positions


def _join_stored_rows(remaining: Matrix, places: Indices, stored: Matrix) -> Matrix:
    """Restore all rows from the results of `_split_stored_rows`.

    The contents of a file are checked before memory is allocated.
    """
    check_that(
        isinstance(places, np.ndarray) and places.ndim == 1 and places.dtype.kind == "i",
        "_row_places must be a vector of integers.",
    )
    stored_places = places[places >= 0]
    is_valid = len(np.unique(stored_places)) == len(stored_places) and stored_places.max(
        initial=-1
    ) < len(stored)
    check_that(is_valid, "_row_places contains duplicate or invalid row indices.")
    check_that(
        remaining.shape == (len(places) - len(stored_places), stored.shape[1]),
        "_rows does not match _row_places.",
    )
    rows = np.empty((len(places), stored.shape[1]))
    rows[places >= 0], rows[places < 0] = stored[stored_places], remaining
    return rows


def _exact(rows: Floats) -> Matrix:
    # Use float64, because kernels lose digits in float32. Use one memory order, so that equal rows
    # give bitwise equal results.
    return np.ascontiguousarray(rows, dtype=np.float64)
