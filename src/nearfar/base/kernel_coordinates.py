"""Coordinates of points in the feature space of a kernel, shared by the kernel methods."""

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
from nearfar.blocks import row_blocks
from nearfar.parameters import Allowed, instance, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.state import (
    Sizes,
    State,
    Word,
    floats,
    need,
    none_or,
    number,
    object_of,
    optional,
    table,
)

#: The kernels that have a name.
KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine")
#: What a kernel without a name may be. A class is none, nor is ``learner.kernel``, which would be
#: called pair by pair: what is wanted is the learner.
UNNAMED_KERNELS: list[Allowed] = [
    instance(
        KernelLearner, description="a learner of kernels such as AlignmentKernelLearner() itself"
    ),
    Allowed(
        lambda value: (
            callable(value)
            and not isinstance(value, type)
            and not isinstance(getattr(value, "__self__", None), KernelLearner)
        ),
        "a function of two arrays",
    ),
]
#: What the parameters of the kernel may be.
KERNEL_PARAMETERS: dict[str, list[Allowed]] = {
    "kernel": [one_of(*KERNELS, "precomputed"), *UNNAMED_KERNELS],
    "gamma": [none, real(0, open_low=True)],
    "degree": [real(0, open_low=True)],
    "coef0": [real()],
    "n_directions": [none, integer(1), one_of("auto")],
}
#: Those of learners that may use some of the training rows only.
LANDMARK_PARAMETERS: dict[str, list[Allowed]] = {
    "n_landmarks": [none, integer(2), one_of("auto")],
    "random_state": [random_state],
}
# Landmarks at most, with "auto".
_LANDMARKS = 1000
# Relative eigenvalue of the centred kernel below which a direction is empty.
_EMPTY = 1e-10
# The same, not relative: what is smaller is known to a few digits only.
_LEAST = 1e-290
# Pairs of which all values with one another are computed for those of each pair.
_PAIRS = 32


class KernelCoordinates(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""For learners with the parameters above: kernel PCA and its formula for new points.

    With the centred kernel :math:`K_c = CKC = P \,\mathrm{diag}(\mu) P^T` of the training points
    the coordinates of a point with centred kernel values k are :math:`z = B^T k`,
    :math:`B = P\,\mathrm{diag}(\mu)^{-1/2}`: distances between them are those in feature space, as
    far as the leading directions show them. A linear map L of them is ΩΦ with :math:`\Omega = L
    B^T`, for the training points Φ.

    A kernel that is learned is fitted first, by `_learn_kernel`.
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
        needs={
            "kernel": Word(
                lambda value, _: isinstance(value, str | KernelLearner),
                "named or learned: a file has no function",
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
        tags.input_tags.pairwise = self._is_given()
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "coefficients_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        """Rows that a learned kernel has too are left to it, so that a file has each once."""
        kept = super().__getstate__()
        rows = kept.get("_rows")
        if "kernel_" in kept and rows is not None:
            if rows is self.kernel_._rows:
                kept["_rows"] = None
            else:
                kept["_rows"], kept["_row_places"] = _apart(rows, self.kernel_._rows)
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = {name: value for name, value in state.items() if name != "_row_places"}
        super().__setstate__(given)
        if "_row_places" in state:
            self._rows = _together(state["_rows"], state["_row_places"], self.kernel_._rows)
        elif vars(self).get("_rows") is None and "kernel_" in vars(self):
            self._rows = self.kernel_._rows

    def _once(self, rows: Matrix) -> Matrix:
        """The rows; where a learned kernel keeps the same ones, those."""
        same = self._is_learned() and np.array_equal(rows, self.kernel_._rows)
        return self.kernel_._rows if same else rows

    def _learn_kernel(self, X: ArrayLike, y: ArrayLike | None) -> None:
        """Fit a copy of the kernel, if it is a learner, to the rows and labels of this fit."""
        if not self._is_learned():
            return
        learner: Any = clone(self.kernel)
        if y is None and learner.learner_tags.supervised:
            raise ValueError(
                f"{type(self).__name__}: kernel is {type(learner).__name__}, which learns from "
                "labels, but the target y is None: pass y, or a kernel by its name."
            )
        self.kernel_ = learner.fit(X, y)

    def _fit_kernel(self, rows: Floats, auto: int | None = None) -> Matrix:
        """Keep the rows, or of given kernel values nothing; the coordinates of the rows.

        ``auto`` is the number of directions for "auto" if it is not a tenth of the rows, from 10
        to 50.
        """
        K = self._training_kernel(rows)
        n_directions: Any = self.n_directions
        if self.n_directions == "auto":
            n_directions = min(50, max(10, len(K) // 10)) if auto is None else auto
        _, self._basis = self._span(self._centered(K), n_directions)
        self.n_directions_ = self._basis.shape[1]
        return self._coordinates(K)

    def _span(self, centered: Matrix, n_directions: int | None) -> tuple[Vector, Matrix]:
        """Eigenvalues, largest first, and B = P diag(μ)^{-1/2} of a centred kernel matrix."""
        values, vectors = descending_eigh(centered, n_directions)
        kept = values > max(_EMPTY * values[0], _LEAST)
        if not kept.any():
            raise ValueError("The kernel maps all points to one: there is nothing to learn.")
        return values[kept], vectors[:, kept] / np.sqrt(values[kept])

    def _training_kernel(self, rows: Floats) -> Matrix:
        """Keep the rows, or of given kernel values nothing, and the means of the kernel."""
        # A copy: kernels of an array with itself are computed another way.
        self._rows = None if self._is_given() else self._once(_exact(rows).copy())
        self._gamma = self._choose_gamma()
        K = self._kernel(rows if self._rows is None else self._rows)
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"A precomputed kernel must be square to fit; got shape {K.shape}.")
        if not np.isfinite(K).all():
            raise ValueError(
                "The kernel has values that are NaN or infinite: rescale the features of X, or "
                "choose another kernel or gamma."
            )
        if self._is_given() or not isinstance(self.kernel, str):
            _check_symmetric(K)
        self._means = K.mean(axis=0)
        self._mean = float(self._means.mean())
        return K

    def _kernel_transform(self, rows: Floats) -> Matrix:
        """The coordinates of new points, or of their kernel values with the training points."""
        mapped = np.empty((len(rows), self.n_directions_))
        for block in row_blocks(len(rows), 32 * len(self._basis)):
            mapped[block] = self._coordinates(self._kernel(rows[block]))
        return mapped

    @property
    def _kernel_eigenvalues(self) -> Matrix:
        """Those of the centred kernel, largest first."""
        return 1 / np.einsum("ij,ij->j", self._basis, self._basis)

    def _check_state(self, sizes: Sizes) -> None:
        given = self._is_given()
        need((self._rows is None) == given, "_rows go with a kernel that is computed.")
        self._check_learned()
        need(not given or sizes.get("p") == sizes["n"], "the kernel values do not fit the rows.")
        count = vars(self).get("n_directions_")
        need(type(count) is int and count == sizes["d"], "n_directions_ must be the count d.")

    def _check_learned(self) -> None:
        computed = not self._is_given() and not self._is_learned()
        need((self._gamma is not None) == computed, "_gamma goes with a kernel that is computed.")
        learned = "kernel_" in vars(self)
        need(learned == self._is_learned(), "kernel_ goes with a kernel that is learned.")

    def _is_given(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _is_learned(self) -> bool:
        return isinstance(self.kernel, KernelLearner)

    def _choose_gamma(self) -> float | None:
        if self._rows is None or self._is_learned():
            return None
        if self.gamma is not None:
            return float(self.gamma)
        return natural_gamma(self._rows, self.kernel)

    def _kernel(self, rows: Floats, known: Matrix | None = None) -> Matrix:
        """Kernel values of points with the training points, or with others."""
        points = _exact(rows)
        if known is None:
            if self._rows is None:
                return points
            known = self._rows
        if self._is_learned():
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(self.kernel_.kernel(points, known), np.float64)
        options: dict[str, Any] = {}
        if not callable(self.kernel):
            options = {"gamma": self._gamma, "degree": self.degree, "coef0": self.coef0}
            options["filter_params"] = True
        if self.kernel == "rbf":
            # Of squares less twice products nothing is left where all points are far from zero.
            mean = known.mean(axis=0)
            points, known = points - mean, known - mean
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found by the caller
            values = pairwise_kernels(points, known, metric=self.kernel, **options)
        return np.asarray(values, np.float64)

    def _kernel_gaps(self, first: Matrix, second: Matrix) -> Vector:
        """Squared distances in feature space between the points of pairs."""
        gamma = 1.0 if self._gamma is None else self._gamma
        if self.kernel in ("linear", "rbf", "cosine"):
            if self.kernel == "cosine":
                first, second = normalize(first), normalize(second)
            squares = np.einsum("ij,ij->i", first - second, first - second)
            return -2 * np.expm1(-gamma * squares) if self.kernel == "rbf" else squares
        if self.kernel == "laplacian":
            return -2 * np.expm1(-gamma * np.abs(first - second).sum(axis=1))

        def values(A: Matrix, B: Matrix) -> Vector:
            if self._is_learned():
                blocks = row_blocks(len(A), 8 * _PAIRS, at_most=_PAIRS)
                return np.concatenate([np.diag(self._kernel(A[b], B[b])) for b in blocks])
            if callable(self.kernel):
                return np.array([self.kernel(a, b) for a, b in zip(A, B, strict=True)], float)
            level = gamma * np.einsum("ij,ij->i", A, B) + self.coef0
            return np.tanh(level) if self.kernel == "sigmoid" else level**self.degree

        return values(first, first) + values(second, second) - 2 * values(first, second)

    def _centered(self, K: Matrix) -> Matrix:
        """Kernel values about the mean of the training points."""
        return K - K.mean(axis=1, keepdims=True) - self._means + self._mean

    def _coordinates(self, K: Matrix) -> Matrix:
        return self._centered(K) @ self._basis

    def _map_by_coefficients(self, rows: Floats) -> Floats:
        """Ωk for the centred kernel values k of each point, in the dtype of the rows."""
        mapped = np.empty((len(rows), len(self.coefficients_)), dtype=rows.dtype)
        for block in row_blocks(len(rows), 32 * self.coefficients_.shape[1]):
            mapped[block] = self._centered(self._kernel(rows[block])) @ self.coefficients_.T
        return mapped

    @property
    def _n_features_out(self) -> int:
        return len(self.coefficients_)


class LandmarkCoordinates(KernelCoordinates):
    """The same for learners that keep landmarks only and map by ``coefficients_``."""

    n_landmarks: int | Literal["auto"] | None
    random_state: int | np.random.RandomState | None

    def _landmarks(self, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows that span the directions; of given kernel values all."""
        if self._is_given():
            return np.arange(len(codes))
        wanted = _LANDMARKS if self.n_landmarks == "auto" else self.n_landmarks
        return class_landmarks(codes, wanted, check_random_state(self.random_state))

    def transform(self, X: ArrayLike) -> Floats:
        """Map points, or their kernel values with the training points.

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
        return self._map_by_coefficients(self._check_X(X, reset=False))


def natural_gamma(rows: Matrix, kernel: Any) -> float:
    """1 over the sum of the features' variances, or deviations for "laplacian"; 1 if it is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        variances = rows.var(axis=0)
    return gamma_of(float((np.sqrt(variances) if kernel == "laplacian" else variances).sum()))


def gamma_of(size: float) -> float:
    """1 over what distances are like; 1 where there are none."""
    if not np.isfinite(size):
        raise ValueError("X has values too large for kernels: rescale its features.")
    return 1 / size if size > 0 else 1.0


def _check_symmetric(K: Matrix) -> None:
    size = max(K.max(), -K.min())
    for block in row_blocks(len(K), 64 * len(K)):
        if not np.allclose(K[block], K[:, block].T, rtol=1e-6, atol=1e-8 * size):
            raise ValueError("The kernel matrix is not symmetric.")


def class_landmarks(
    codes: NDArray[np.intp], n_landmarks: int | None, random: np.random.RandomState
) -> NDArray[np.intp]:
    """So many rows, ascending; of each class by its share, at least one. None is all rows."""
    if n_landmarks is None or len(codes) <= n_landmarks:
        return np.arange(len(codes))
    chosen = []
    for code in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == code)
        share = max(1, round(n_landmarks * len(rows) / len(codes)))
        chosen.append(random.choice(rows, share, replace=False))
    return np.sort(np.concatenate(chosen))


def _apart(rows: Matrix, known: Matrix) -> tuple[Matrix, Indices]:
    """The rows that are not among others, and of each its place there, -1 for none.

    No place comes twice: of equal rows each has its own.

    >>> _apart(np.array([[3.0], [1.0], [2.0], [1.0]]), np.array([[1.0], [2.0], [0.0]]))
    (array([[3.],
           [1.]]), array([-1,  0,  1, -1]))
    """
    free: dict[bytes, list[int]] = {}
    for place in reversed(range(len(known))):
        free.setdefault(known[place].tobytes(), []).append(place)
    found = (free.get(row.tobytes()) for row in rows)
    places = np.array([places.pop() if places else -1 for places in found], dtype=np.intp)
    return rows[places < 0], places


def _together(rest: Matrix, places: Indices, known: Matrix) -> Matrix:
    """All rows again; what a file says is checked before memory is taken for it."""
    need(
        isinstance(places, np.ndarray) and places.ndim == 1 and places.dtype.kind == "i",
        "_row_places must be integers.",
    )
    there = places[places >= 0]
    fits = len(np.unique(there)) == len(there) and there.max(initial=-1) < len(known)
    need(fits, "_row_places names rows twice, or rows that are not there.")
    need(
        rest.shape == (len(places) - len(there), known.shape[1]),
        "_rows do not fit _row_places.",
    )
    rows = np.empty((len(places), known.shape[1]))
    rows[places >= 0], rows[places < 0] = known[there], rest
    return rows


def _exact(rows: Floats) -> Matrix:
    # Kernels lose digits in float32; equal rows in another order of memory must give equal bits.
    return np.ascontiguousarray(rows, dtype=np.float64)
