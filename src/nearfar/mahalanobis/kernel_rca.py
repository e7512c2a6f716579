"""Relevant component analysis in the feature space of a kernel, with incremental fitting."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Mask, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.kernel_coordinates import (
    KERNEL_PARAMETERS,
    KERNELS,
    UNNAMED_KERNELS,
    KernelCoordinates,
)
from nearfar.blocks import split_rows
from nearfar.labels import make_label_array
from nearfar.notices import warn
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, descending_eigh, fix_signs
from nearfar.state import Sizes, State, check_that, floats, indices, labels, number, optional, table
from nearfar.summaries.supervision import Chunklets, as_chunklets

# Value of ridge="auto", as a fraction of the mean squared distance between a point and the mean of
# its chunklet.
_AUTO_RIDGE = 0.1
# Scatter below this fraction of the largest kernel value is treated as zero.
_ROUNDING = 1e-13


class KernelRCA(KernelCoordinates):
    r"""Relevant component analysis (RCA) in the feature space of a kernel.

    Let :math:`\Phi` contain the n points of all chunklets in feature space, let K be their kernel
    matrix, and let H subtract from each point the mean of its chunklet. The regularized covariance
    within chunklets, and the kernel that its inverse defines, are

    .. math::
        C = \tfrac1n (\Phi^T H \Phi + \rho I) , \qquad
        \tilde k(x, z) = \langle x, C^{-1} z \rangle
        = \tfrac n\rho\, k(x, z) - \tfrac n{\rho^2}\, k_x^T Y k_z , \quad
        Y = H (I + K H / \rho)^{-1} ,

    where :math:`k_x` contains the kernel values of x with the points in chunklets. The learned
    kernel is defined for any two points, see :meth:`learned_kernel` and :meth:`pair_distance`. With
    the linear kernel this is :class:`RCA` with the ridge :math:`\rho`.

    Use it if you know groups of similar points that no linear map brings together. Points in no
    chunklet and chunklets of a single point are left out. :meth:`partial_fit` adds more chunklets.

    Cost: O(n² p + n³) for n points in chunklets, which are stored together with an n×n array;
    O(n² m) to add m points; O(n p + n·components) to map a point; O(n²) per value of the learned
    kernel.

    Parameters
    ----------
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian" or "cosine"; a
        kernel learner such as ``AlignmentKernelLearner()``; or a function of two points. See
        Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None means 1 divided by the
        sum of the variances of the features, or of their standard deviations for "laplacian". The
        result then does not depend on the unit of X.
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".
    ridge : float or "auto", default="auto"
        Value added to the variances: the diagonal of the scatter within chunklets is increased by
        ``ridge`` before the scatter is divided by n. The unit is that of the kernel. "auto" is a
        tenth of the mean squared distance, in feature space, between a point and the mean of its
        chunklet.
    n_components : int or None, default=None
        Dimension of the output. None keeps all dimensions.

    Attributes
    ----------
    factor_ : ndarray of shape (n_points, n_degrees)
        Matrix W with :math:`Y = W W^T`. It has one row per point in a chunklet. The number of
        columns is the number of points minus the number of chunklets.
    coefficients_ : ndarray of shape (n_components, n_points)
        Matrix Ω. A point with centered kernel values k is mapped to Ωk. After ``partial_fit`` it is
        computed on first use.
    ridge_, gamma_ : float
        Values of ``ridge`` and ``gamma`` used in the fit. ``gamma_`` is None if the kernel is
        learned. Default values are computed from the first batch, and later batches do not change
        them.
    n_points_ : int
        Number of points in chunklets of at least two points.
    kernel_ : kernel learner
        The fitted kernel learner, if ``kernel`` is a kernel learner.

    See Also
    --------
    RCA, KernelDA, KernelLMNN

    Notes
    -----
    A kernel learner is fitted on the first batch with its labels; gamma, degree and coef0 are not
    used then. A function is called once per pair of points, and an estimator with a function as
    kernel cannot be saved to a model file.

    Y is stored as its factor W, to which new chunklets add a block as in a Cholesky factorization.
    With :math:`Y = W W^T` known for the points A, an orthonormal basis U of the differences within
    the new chunklets B, and :math:`S = W^T K_{AB} U / \rho`,

    .. math::
        W' = \begin{pmatrix} W & -W S Q^{-T} \\ 0 & U Q^{-T} \end{pmatrix} , \qquad
        Q Q^T = I + U^T K_{BB} U / \rho - S^T S .

    This is the block inverse of [1]_ in a numerically stable form, with its misprints corrected.

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, sections
       3.3.2 and 3.3.3.

    Examples
    --------
    Two rings, with some groups of points known to lie on the same ring:

    >>> from sklearn.datasets import make_circles
    >>> from nearfar import Chunklets, KernelRCA, KNNClassifier
    >>> X, y = make_circles(200, noise=0.05, factor=0.6, random_state=0)
    >>> known = Chunklets.from_labels(y, n_chunklets=8, chunklet_size=10, random_state=0)
    >>> rca = KernelRCA().fit(X, supervision=known)
    >>> rca.learned_kernel(X[:3]).shape
    (3, 3)
    """

    learner_tags = LearnerTags(reads="instances", supervision=("labels", "chunklets"))
    settings = ({"ridge": 1.0}, {"kernel": "poly", "degree": 2})
    state = State(
        {
            "_rows": table("n", "p"),
            "factor_": floats("n", "r"),
            "_names": labels("g"),
            "_codes": indices("n", below="g"),
            "ridge_": number(0, open_low=True),
            "_coefficients": optional(floats("q", "n")),
            "_means": optional(floats("n")),
            **{name: optional(number()) for name in ("_mean", "_basis", "coefficients_")},
        },
        fitted="factor_",
        rows="_rows",
    )
    parameters: ClassVar = {
        **{name: KERNEL_PARAMETERS[name] for name in ("gamma", "degree", "coef0")},
        "kernel": [one_of(*KERNELS), *UNNAMED_KERNELS],
        "ridge": [real(0, open_low=True), one_of("auto")],
        "n_components": [none, integer(1)],
    }

    factor_: Matrix
    _rows: Matrix
    _codes: Indices
    _names: NDArray[Any]

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        ridge: float | Literal["auto"] = "auto",
        n_components: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.ridge = ridge
        self.n_components = n_components

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        supervision: Chunklets | ArrayLike | None = None,
    ) -> Self:
        """Learn from chunklets, or from labels with each class as one chunklet.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels. If ``supervision`` is given, only a kernel learner uses them.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet number of each point, or -1 for points in no chunklet.

        Returns
        -------
        KernelRCA
            The fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        names, codes = self._encode_chunklets(len(rows), y, supervision)
        if not (codes >= 0).any():
            raise ValueError(
                "supervision puts no point into a chunklet, so nothing can be learned. Add "
                "chunklets."
            )
        self._learn_kernel(X, y)
        self._begin(rows, names, codes)
        self._solve()
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        supervision: Chunklets | ArrayLike | None = None,
    ) -> Self:
        """Add a batch of chunklets.

        The result is the same as after one fit to all batches with the same gamma and ridge. If a
        batch contains more points of an earlier chunklet, everything is computed again and a
        warning is issued. Use either labels or chunklets for all batches.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training points.
        y : array-like of shape (n_samples,), optional
            Labels. If ``supervision`` is given, only a kernel learner uses them.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet number of each point, or -1 for points in no chunklet.

        Returns
        -------
        KernelRCA
            The fitted estimator.
        """
        self._check_parameters()
        first = not self.__sklearn_is_fitted__()
        rows = self._check_X(X, reset=first)
        names, codes = self._encode_chunklets(len(rows), y, supervision)
        has_chunklet = codes >= 0
        if not has_chunklet.any():
            return self
        if first:
            self._learn_kernel(X, y)
            self._begin(rows, names, codes)
            return self
        if (names.dtype.kind in "iu") != (self._names.dtype.kind in "iu"):
            raise ValueError(
                f"Earlier batches had chunklets such as {self._names[0]!r}; this batch has "
                f"{names[0]!r}. Pass either labels or chunklets in all batches."
            )
        code_of_name = {name: code for code, name in enumerate(self._names.tolist())}
        new_names = [name for name in names.tolist() if name not in code_of_name]
        code_of_name |= {name: len(code_of_name) + k for k, name in enumerate(new_names)}
        codes = np.array([code_of_name[name] for name in names.tolist()])[codes[has_chunklet]]
        new_rows = _to_float64(rows[has_chunklet])
        all_names = make_label_array(self._names.tolist() + new_names)
        if len(new_names) < len(names):
            warn(
                f"{len(names) - len(new_names)} chunklets of earlier batches have more points in "
                "this batch, so KernelRCA computes everything again. Adding whole chunklets is "
                "much faster."
            )
            combined = np.concatenate([self._rows, new_rows]), np.concatenate([self._codes, codes])
            self._keep(*self._add_chunklets(*combined, None), all_names)
        else:
            self._keep(*self._add_chunklets(new_rows, codes, self.factor_), all_names)
        return self

    def _encode_chunklets(
        self, n: int, y: ArrayLike | None, supervision: Any
    ) -> tuple[NDArray[Any], Indices]:
        """Return the names of the chunklets, and for each row its chunklet number or -1."""
        if supervision is None:
            if y is None:
                raise ValueError(
                    "KernelRCA requires y to be passed, but the target y is None. Pass labels as "
                    "y, or Chunklets as supervision."
                )
            return self._check_labels(y, n, min_classes=1)
        chunklets = as_chunklets(supervision)
        chunklets.check_n_samples(n)
        codes = np.full(n, -1, np.intp)
        has_chunklet = chunklets.labels >= 0
        names, codes[has_chunklet] = np.unique(chunklets.labels[has_chunklet], return_inverse=True)
        return names, codes

    def _begin(self, rows: Floats, names: NDArray[Any], codes: Indices) -> None:
        """Fit the first batch. The default gamma is computed from all of its rows."""
        has_chunklet = codes >= 0
        if np.bincount(codes[has_chunklet]).max() < 2:
            raise ValueError(
                "KernelRCA needs a chunklet or class of y with at least two points; each one has "
                "only 1 sample."
            )
        self._rows = _to_float64(rows)
        self._gamma = self._choose_gamma()
        self._keep(
            *self._add_chunklets(_to_float64(rows[has_chunklet]), codes[has_chunklet], None), names
        )

    def _keep(self, rows: Matrix, codes: Indices, factor: Matrix, names: NDArray[Any]) -> None:
        self._rows, self._codes, self._names = self._share_rows(rows), codes, names
        self.n_points_ = int(self._mask_paired_rows().sum())
        self.factor_ = factor
        self.__dict__.pop("_coefficients", None)

    def _add_chunklets(
        self, rows: Matrix, codes: Indices, previous_factor: Matrix | None
    ) -> tuple[Matrix, Indices, Matrix]:
        """Add whole chunklets. Return all rows, their chunklet numbers and the factor W."""
        order = np.argsort(codes, kind="stable")
        rows, codes = rows[order], codes[order]
        contrasts = Contrasts(codes)
        K = self._kernel(rows, _center_if_linear(self.kernel, rows))
        if not np.isfinite(K).all():
            raise ValueError(
                "The kernel has values that are NaN or infinite. Rescale the features of X, or "
                "choose another kernel or gamma."
            )
        inner = contrasts.apply(contrasts.apply(K).T)
        if previous_factor is None and "ridge_" not in vars(self):
            n = int((np.bincount(codes) > 1)[codes].sum())
            self.ridge_ = self._choose_ridge(float(np.trace(inner)) / n, float(np.abs(K).max()))
        inner /= self.ridge_
        inner.flat[:: len(inner) + 1] += 1
        if previous_factor is None:
            return rows, codes, contrasts.expand(self._invert_cholesky(inner))
        cross = contrasts.apply(self._map_by_factor(rows)) / self.ridge_
        root = self._invert_cholesky(inner - cross @ cross.T)
        n, r = previous_factor.shape
        factor = np.zeros((n + len(rows), r + len(inner)))
        factor[:n, :r] = previous_factor
        factor[:n, r:] = -previous_factor @ (cross.T @ root)
        factor[n:, r:] = contrasts.expand(root)
        return (
            np.concatenate([self._rows, rows]),
            np.concatenate([self._codes, codes]),
            factor,
        )

    def _choose_ridge(self, scatter: float, largest: float) -> float:
        if not isinstance(self.ridge, str):
            return float(self.ridge)
        if scatter <= max(_ROUNDING * largest, np.finfo(float).tiny):
            raise ValueError(
                "In every chunklet all points are equal in the feature space of the kernel, so "
                "ridge='auto' would be zero. Set ridge to a number, or pass chunklets of distinct "
                "points."
            )
        return _AUTO_RIDGE * scatter

    def _invert_cholesky(self, inner: Matrix) -> Matrix:
        """Return the transposed inverse of the Cholesky factor."""
        try:
            Q = linalg.cholesky(inner, lower=True)
        except linalg.LinAlgError as error:
            raise ValueError(
                f"The kernel is not positive semi-definite, and ridge={self.ridge_:.3g} is too "
                "small to compensate. Increase ridge, or choose another kernel."
            ) from error
        return _invert_triangular(Q).T

    def _map_by_factor(self, points: Floats) -> Matrix:
        """Return W'k for each point, where k contains its kernel values with the stored rows."""
        image = np.empty((len(points), self.factor_.shape[1]))
        training_rows = _center_if_linear(self.kernel, self._rows)
        for block in split_rows(len(points), 32 * len(training_rows)):
            np.matmul(self._kernel(points[block], training_rows), self.factor_, out=image[block])
        return image

    def learned_kernel(self, X: ArrayLike, Y: ArrayLike | None = None) -> Matrix:
        r"""Return the values of the learned kernel :math:`\tilde k` between points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.
        Y : array-like of shape (n_others, n_features), optional
            Other points. None uses X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        second_rows = rows if Y is None else self._check_X(Y, reset=False)
        image = self._map_by_factor(rows)
        second_image = image if Y is None else self._map_by_factor(second_rows)
        K = self._kernel(rows, _to_float64(second_rows))
        return self._scale * (K - image @ second_image.T / self.ridge_)

    def pair_distance(self, pairs: ArrayLike) -> Vector:
        """Return the distance between the points of each pair, computed from the learned kernel.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        points = self._check_pairs(pairs)
        first, second = points[:, 0], points[:, 1]
        if self.kernel == "linear":
            # Map the difference of the points. Subtracting mapped points would lose digits if they
            # are far from zero.
            image = self._map_by_factor(first - second)
        else:
            image = self._map_by_factor(first) - self._map_by_factor(second)
        squares = self._kernel_gaps(first, second)
        squares -= np.einsum("ij,ij->i", image, image) / self.ridge_
        return np.sqrt(self._scale * np.maximum(squares, 0.0))

    def pair_score(self, pairs: ArrayLike) -> Vector:
        """Return the similarity of the two points of each pair: their negative distance.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return -self.pair_distance(pairs)

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points to coordinates in the span of the chunklets.

        Points are projected, in feature space, onto the span of the points in chunklets. Distances
        between points in chunklets equal those of :meth:`pair_distance`, unless ``n_components``
        leaves out directions. Other points lose their part outside the span. Their squared
        distances are too small by :math:`n/\rho` times the squared length, in feature space, of the
        difference of these parts. This can be much if the kernel is narrow. The chunklets contain
        no information about this part.

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

    @property
    def coefficients_(self) -> Matrix:  # type: ignore[override]
        """Matrix Ω. It is computed again after chunklets were added."""
        check_is_fitted(self)
        if "_coefficients" not in vars(self):
            self._solve()
        return self._coefficients

    @property
    def gamma_(self) -> float | None:
        """Value of gamma used in the fit, or None if the kernel is learned."""
        check_is_fitted(self)
        return self._gamma

    @property
    def _scale(self) -> float:
        return self.n_points_ / self.ridge_

    def _mask_paired_rows(self) -> Mask:
        """Return a mask of the rows in chunklets of at least two points."""
        return np.asarray((np.bincount(self._codes) > 1)[self._codes])

    def _solve(self) -> None:
        """Fit RCA to the points in chunklets, in kernel PCA coordinates. Store the matrix Ω."""
        paired = self._mask_paired_rows()
        rows, n = self._rows[paired], self.n_points_
        K = self._kernel(rows, _center_if_linear(self.kernel, self._rows))
        self._means = K.mean(axis=0)
        self._mean = float(self._means.mean())
        K_paired = K[:, paired]
        K_paired = (
            K_paired
            - K_paired.mean(axis=0)
            - K_paired.mean(axis=1, keepdims=True)
            + K_paired.mean()
        )
        values, basis = self._span(K_paired, None)
        points = basis * values  # Kernel PCA coordinates of the rows.
        contrasts = Contrasts(self._codes[paired]).apply(points)
        within = contrasts.T @ contrasts
        within.flat[:: len(within) + 1] += self.ridge_
        T = self._invert_cholesky(within / n)
        if self.n_components is not None and self.n_components > len(T):
            raise ValueError(
                f"n_components={self.n_components} is more than the {len(T)} directions that the "
                "points in chunklets span."
            )
        if self.n_components is None:
            L = T.T
        else:
            spread, axes = descending_eigh(T.T @ (values[:, None] * T), self.n_components)
            L = canonical_rows(spread, (T @ axes).T)
        self._coefficients = np.zeros((len(L), len(paired)))
        self._coefficients[:, paired] = fix_signs(L @ basis.T)

    def __sklearn_is_fitted__(self) -> bool:
        return "factor_" in vars(self)

    def _check_state(self, sizes: Sizes) -> None:
        count = vars(self).get("n_points_")
        paired = int(self._mask_paired_rows().sum())
        check_that(
            type(count) is int and count == paired, "n_points_ does not match the chunklets."
        )
        degrees = len(self._codes) - len(np.unique(self._codes))
        check_that(sizes["r"] == degrees, "factor_ does not match the chunklets.")
        self._check_learned()
        check_that(
            "_coefficients" not in vars(self) or "_means" in vars(self), "_means are missing."
        )


class Contrasts:
    """Orthonormal basis U of the differences within chunklets. Rows must be sorted by chunklet.

    For each chunklet, U is the Householder reflection that maps the first axis to the mean, without
    its first column. Applying U takes as long as centering.
    """

    def __init__(self, codes: Indices) -> None:
        self.starts = np.flatnonzero(np.diff(codes, prepend=-1))
        sizes = np.diff(self.starts, append=len(codes))
        self.chunklet_of_row = np.repeat(np.arange(len(sizes)), sizes)
        self.is_not_first = np.ones(len(codes), dtype=bool)
        self.is_not_first[self.starts] = False
        self.axis = (1 / np.sqrt(sizes))[self.chunklet_of_row]
        self.axis[self.starts] -= 1
        # Half of the squared norm of each reflection axis. A chunklet of one point has no axis and
        # gets the value 1.
        self.half_norm = np.where(sizes > 1, 1 - 1 / np.sqrt(sizes), 1.0)

    def apply(self, M: Matrix) -> Matrix:
        """Return U'M, which contains the differences between rows of M in the same chunklet."""
        return self._reflect(M)[self.is_not_first]

    def expand(self, M: Matrix) -> Matrix:
        """Return UM, which has one row per point."""
        padded = np.zeros((len(self.is_not_first), M.shape[1]))
        padded[self.is_not_first] = M
        return self._reflect(padded)

    def _reflect(self, M: Matrix) -> Matrix:
        sums = np.add.reduceat(self.axis[:, None] * M, self.starts) / self.half_norm[:, None]
        return M - self.axis[:, None] * sums[self.chunklet_of_row]


def _invert_triangular(factor: Matrix) -> Matrix:
    """Return the inverse of a lower triangular matrix."""
    # For an empty matrix, LAPACK would print an error message.
    return np.asarray(linalg.lapack.dtrtri(factor, lower=1)[0]) if len(factor) else factor


def _center_if_linear(kernel: Any, rows: Matrix) -> Matrix:
    """Return the rows, centered if the kernel is linear.

    Centering changes the kernel values by a constant per point, which does not matter to the
    callers. Inner products of points far from zero would lose digits.
    """
    return rows - rows.mean(axis=0) if isinstance(kernel, str) and kernel == "linear" else rows


def _to_float64(rows: Floats) -> Matrix:
    return np.array(rows, dtype=np.float64, order="C")
