"""Tensor rank-one discriminant analysis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import LearnerTags, RankOneLearner
from nearfar.base.progress import report_of
from nearfar.base.rank_one import deflate, flat_atoms
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import split_rows
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import AllowedValues, array, integer, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh, some_eigh
from nearfar.solvers.rank_one_ascent import (
    AscentInterrupted,
    Atom,
    ascend_modes,
    best_atom,
    random_vectors,
)
from nearfar.solvers.spectral_step import check_squares, largest_size
from nearfar.solvers.tensor_algebra import (
    contract_except,
    mode_scatter,
    project_stack,
    varying_basis,
)
from nearfar.state import State, floats, labels

# Ridge for zeta="max_eig", as a fraction of the mean variance of an entry within classes.
_RIDGE = 1e-3
# Maximum number of entries per tensor for which more rows than entries are replaced by the
# triangular factor of a QR decomposition, which has the same scatter.
_FEW_ENTRIES = 2048
# Number of rows that are copied at once.
_FEW_ROWS = 64
# Minimum length of the last mode at which its contraction is computed once for all other modes.
_SHARED_LENGTH = 4
_VECTORS = AllowedValues(
    lambda value: isinstance(value, list | tuple) and all(array.accepts(u) for u in value),
    "a list with one vector per mode, or one matrix per mode with a column for each feature",
)


class TR1DA(RankOneLearner):
    r"""Tensor rank-one discriminant analysis: features from rank-one tensors that separate classes.

    The rank-one tensors, called atoms, :math:`A_r = u_{1r} \otimes \cdots \otimes u_{Mr}`, are
    found one after another. Each atom is fitted to the residuals of the previous ones:

    .. math:: \max_{\|u_{kr}\| = 1} \sum_c n_c \langle M_c - M, A_r \rangle^2
        - \zeta \sum_i \langle X_i^{(r)} - M_{c(i)}, A_r \rangle^2, \qquad
        X_i^{(r+1)} = X_i^{(r)} - \lambda_{ir} A_r, \qquad
        \lambda_{ir} = \langle X_i^{(r)}, A_r \rangle ,

    where :math:`M_c` are the class means and M is the mean of the residuals. For fixed other
    vectors, the best :math:`u_k` is the leading eigenvector of a difference of two scatters of the
    contracted samples. No step decreases the objective. ``transform`` returns the coefficients
    :math:`\lambda_r`; those of new tensors solve a triangular system with the inner products of
    the atoms, as in :class:`TR1A`. The first q features do not depend on ``n_components``.

    Use it before k-NN to represent images or volumes by few features, if there are few samples per
    class. With ten training images per digit, k-NN on five or ten features is about as accurate as
    on the same number of principal components. From about twenty features on it has no advantage
    over :class:`TR1A` or PCA. On vectors it finds the leading eigenvectors, like :class:`DSDC`.

    Cost: O(n d M) per sweep over the M modes, for tensors with d entries, and about ten to twenty
    sweeps per feature. With more samples than entries: O(n d²) once, then O(d² M) per sweep.
    Memory: one copy of X, from which the atoms are subtracted in place.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output: number of features R. Fewer are found, with a warning, if the
        residuals no longer separate the classes.
    zeta : float, sequence of float or "max_eig", default=0.1
        Weight of the within-class scatter: a number, or one number per feature. "max_eig"
        maximizes the ratio of the two scatters instead (see Notes).
    init : "random", "hosvd" or list of ndarray, default="random"
        Starting point: for the first start of each feature, random vectors, the leading eigenvector
        of each mode of the residuals, or your own list with one array of shape (d_k,) or (d_k,
        n_components) per mode. All further starts are random.
    n_init : int, default=1
        Number of starts. Each feature uses this number and keeps the best result.
    max_iter : int, default=1000
        Maximum number of iterations: sweeps over the modes per start.
    tol : float, default=1e-6
        Stop when :math:`1 - |u^T v|` between each vector and its previous value is at most
        ``tol`` times the vector's length d_k, as in [1]_.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, n_components)
        The vectors :math:`u_{kr}` of each mode as columns.
    components_ : ndarray of shape (n_components, n_features)
        Projection of flat rows, computed on access from the flat atoms and their inner products.
    objectives_ : ndarray of shape (n_components,)
        Maximized objective of each feature. With "max_eig" it is the ratio.
    zeta_ : ndarray of shape (n_components,)
        Weight used for each feature. With "max_eig" it is the ratio.
    n_components_ : tuple of int
        Number of features found, as a tuple (R,).
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        Lists for the best start of each feature: "objective" after each step of a mode; "sweeps",
        their number per feature; "step", the largest :math:`1 - |u^T v|`, and "seconds" since the
        start, after each sweep.
    n_iter_ : int
        Total number of sweeps of all features.

    See Also
    --------
    TR1A, GTDA, DSDC

    Notes
    -----
    Values of ``zeta`` well below 1 give almost the same result. From about 1 on, fewer features are
    found: a feature needs a direction in which the scatter of the class means exceeds ``zeta``
    times the scatter within classes.

    With "max_eig", each step maximizes the ratio of the scatters between and within classes. The
    ratio is the weight for which the largest eigenvalue of the difference is zero. A ridge of 0.001
    times the mean variance of an entry within classes is added to the scatter within classes.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.4,
       table 4.2.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import KNNClassifier, TR1DA
    >>> images, y = load_digits().images, load_digits().target
    >>> tr1da = TR1DA(20).fit(images[:500], y[:500])
    >>> tr1da.transform(images).shape, [U.shape for U in tr1da.factors_]
    ((1797, 20), [(8, 20), (8, 20)])
    >>> knn = KNNClassifier().fit(tr1da.transform(images[:500]), y[:500])
    >>> knn.score(tr1da.transform(images[500:]), y[500:]) > 0.9
    True
    """

    learner_tags = LearnerTags(reads="instances", input="tensors")
    state = State(
        {"objectives_": floats("q"), "zeta_": floats("q"), "classes_": labels("c")}, rows=0
    )
    settings = ({"n_components": 30}, {"n_components": 30, "zeta": 0.3})
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "zeta": [real(0), array, one_of("max_eig")],
        "init": [one_of("random", "hosvd"), _VECTORS],
        "n_init": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        **TENSOR_PARAMETERS,
        "random_state": [random_state],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        zeta: float | Sequence[float] | Literal["max_eig"] = 0.1,
        init: Literal["random", "hosvd"] | Sequence[ArrayLike] = "random",
        n_init: int = 1,
        max_iter: int = 1000,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.zeta = zeta
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.tensor_shape = tensor_shape
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find the atoms of labeled tensors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or rows. Rows are flat tensors if ``tensor_shape`` is set, and vectors
            otherwise.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        weights = self._weights()
        T = self._check_tensors(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(T))
        given = self._given_starts(T.shape[1:])
        check_squares(T)
        left = Residuals(T, codes)
        if not left.total > 0:
            raise ValueError("TR1DA: all samples are equal in X. At least two must differ.")
        if self.zeta == "max_eig" and not left.ridge > 0:
            raise ValueError(
                "TR1DA: all samples of each class are equal, so zeta='max_eig' would divide by "
                "zero. Pass a number for zeta."
            )
        random = check_random_state(self.random_state)
        atoms: list[Atom] = []
        begun, interrupt = perf_counter(), None
        try:
            for r, weight in enumerate(weights):
                atom = self._next_atom(left, weight, None if given is None else given[r], random)
                if atom.objective <= left.least and (atoms or left.taken_by(atom) <= left.least):
                    break
                left.take(atom)
                atoms.append(atom)
        except KeyboardInterrupt as error:
            interrupt = error
            if isinstance(error, AscentInterrupted) and left.taken_by(error.atom) > left.least:
                atoms.append(error.atom)
            if not atoms:
                raise
        if not atoms:
            raise ValueError(
                f"TR1DA: no feature was found with zeta={self.zeta} and n_init={self.n_init}. "
                "Use a smaller zeta, or a larger n_init."
            )
        self.classes_ = classes
        self._keep_atoms(left.factors(atoms), None, T.dtype)
        self.objectives_ = np.array([atom.objective for atom in atoms])
        used = [weight for weight, _ in zip(weights, atoms, strict=False)]
        self.zeta_ = self.objectives_.copy() if self.zeta == "max_eig" else np.array(used, float)
        self.history_ = {
            "objective": [value for atom in atoms for value in atom.objectives],
            "sweeps": [atom.n_sweeps for atom in atoms],
            "step": [step for atom in atoms for step in atom.steps],
            "seconds": [time - begun for atom in atoms for time in atom.times],
        }
        self.n_iter_ = sum(atom.n_sweeps for atom in atoms)
        if interrupt is not None:
            raise interrupt  # The attributes contain the features found before Ctrl-C.
        self._tell(atoms)
        return self

    def _tell(self, atoms: list[Atom]) -> None:
        """Warn of missing features, and of features that did not converge."""
        if len(atoms) < self.n_components:
            warn(
                f"TR1DA: only {len(atoms)} of {self.n_components} features were found. In the "
                "residuals, no direction has a scatter between classes above "
                f"zeta={self.zeta} times the scatter within classes. Use a smaller n_components "
                "or a smaller zeta."
            )
        late = sum(not atom.converged for atom in atoms)
        if late:
            warn_not_converged(
                "TR1DA", self.max_iter, f"the limit, for {late} of {len(atoms)} features"
            )

    def _weights(self) -> list[float | None]:
        """Return the weight of each feature, or None for each if the ratio is maximized."""
        if isinstance(self.zeta, str):
            return [None] * self.n_components
        weights = np.asarray(self.zeta, float)
        weights = np.full(self.n_components, weights) if weights.ndim == 0 else weights
        fits = weights.shape == (self.n_components,)
        if not fits or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(
                f"TR1DA: zeta={self.zeta!r} must be one finite number of at least 0, or a "
                f"sequence of n_components={self.n_components} such numbers."
            )
        return [float(weight) for weight in weights]

    def _given_starts(self, shape: Sequence[int]) -> list[list[Vector]] | None:
        """Return the unit vectors passed as ``init`` for each feature, or None."""
        if isinstance(self.init, str):
            return None
        matrices = [np.asarray(U, float) for U in self.init]
        wanted = [[(d,), (d, self.n_components)] for d in shape]
        fits = len(matrices) == len(shape) and all(
            U.shape in sizes for U, sizes in zip(matrices, wanted, strict=True)
        )
        if not fits or not all(np.isfinite(U).all() for U in matrices):
            raise ValueError(
                f"TR1DA: init must contain finite arrays of shapes {[(d,) for d in shape]}, or "
                f"with {self.n_components} columns; got shapes {[U.shape for U in matrices]}."
            )
        columns = [
            np.broadcast_to(U.reshape(len(U), -1), (len(U), self.n_components)) for U in matrices
        ]
        if not all(linalg.norm(U, axis=0).all() for U in columns):
            raise ValueError("TR1DA: init must not contain a vector of zeros.")
        return [[U[:, r] / linalg.norm(U[:, r]) for U in columns] for r in range(self.n_components)]

    def _next_atom(
        self,
        left: Residuals,
        weight: float | None,
        given: list[Vector] | None,
        random: np.random.RandomState,
    ) -> Atom:
        """Return the best atom of all starts."""

        def attempt(start: int) -> Atom:
            if start == 0 and given is not None:
                vectors = left.reduced(given)
            elif start == 0 and self.init == "hosvd":
                vectors = left.leading_vectors(weight)
            else:
                vectors = left.reduced(random_vectors(left.shape, random))
            return ascend_modes(
                lambda vectors, mode: left.best_vector(vectors, mode, weight),
                vectors,
                max_iter=self.max_iter,
                tolerances=[self.tol * d for d in left.shape],
                report=report_of(self),
            )

        return best_atom(partial(attempt, start) for start in range(self.n_init))


class Residuals:
    """Residuals of labeled tensors after subtraction of atoms, in one copy of X.

    The rows :math:`\\sqrt{n_c}(M_c - M)` come first, then :math:`X_i - M_{c(i)}`. Subtracting an
    atom is a projection of each row, so these rows are all that is needed. They may be replaced by
    other rows with the same scatter. With a large weight, the directions of a mode without
    variance, such as a blank border, would have the largest objective. The tensors are therefore
    stored in bases that exclude these directions.
    """

    def __init__(self, T: Floats, codes: Indices) -> None:
        self.shape, self.n_samples = T.shape[1:], len(T)
        counts = np.bincount(codes)
        n_classes, flat = len(counts), T.reshape(len(T), -1)
        members = sparse.csr_array(
            (1.0 / counts[codes], (codes, np.arange(len(T)))), (n_classes, len(T))
        )
        means = np.asarray(members @ flat)
        rows = np.empty((n_classes + len(T), flat.shape[1]), T.dtype)
        rows[:n_classes] = np.sqrt(counts)[:, None] * (means - counts @ means / len(T))
        means = means.astype(T.dtype, copy=False)
        for part in split_rows(len(T), T.itemsize * flat.shape[1], max_rows=_FEW_ROWS):
            np.subtract(flat[part], means[codes[part]], out=rows[n_classes:][part])
        self.n_between = n_classes
        narrow = T.dtype == np.float32
        size = largest_size(rows)
        # Differences this small are rounding errors of the mean: the tensors are equal.
        if size <= (1e-6 if narrow else 1e-14) * largest_size(T):
            size = 0.0
        #: Scatter of all rows, and the part of it that may be due to rounding errors.
        self.total = float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) if size else 0.0
        self.least = (1e-11 if narrow else 1e-12) * self.total
        within = float(np.einsum("ij,ij->", rows[n_classes:], rows[n_classes:], dtype=np.float64))
        #: Ridge added to the scatter within classes for zeta="max_eig".
        self.ridge = _RIDGE * within / prod(self.shape) if within > self.least else 0.0
        self.rows = rows.reshape(-1, *self.shape)
        self.bases: list[Matrix | None] = [None] * len(self.shape)
        # Cache: a vector of the last mode, and the rows contracted with it.
        self._shared: tuple[Vector, Floats] | None = None
        if self.total > 0:
            self._reduce(1e-6 if narrow else 1e-14)

    def _reduce(self, empty: float) -> None:
        """Remove directions without variance, and rows in excess of the number of entries."""
        bases = [varying_basis(self.rows, mode, empty) for mode in range(len(self.shape))]
        self.bases = [Q if Q.shape[1] < len(Q) else None for Q in bases]
        self.rows = _projected_in_place(self.rows, self.bases)
        shape = self.rows.shape[1:]
        d, C = prod(shape), self.n_between
        if d < len(self.rows) - C and d <= _FEW_ENTRIES:
            flat = self.rows.reshape(-1, d)
            triangle = np.zeros((0, d))
            for i in range(C, len(flat), 2 * d):
                above = np.vstack([triangle, flat[i : i + 2 * d]])
                triangle = linalg.qr(above, mode="r", overwrite_a=True, check_finite=False)[0][:d]
            self.rows = np.vstack([flat[:C], triangle.astype(flat.dtype)]).reshape(-1, *shape)

    def reduced(self, vectors: Sequence[Vector]) -> list[Vector]:
        """Return unit vectors in the coordinates of the bases."""
        parts = [u if Q is None else Q.T @ u for u, Q in zip(vectors, self.bases, strict=True)]
        # A vector orthogonal to its basis is replaced by an arbitrary one.
        lengths = [float(linalg.norm(u)) for u in parts]
        return [
            u / s if s > 1e-8 else np.full(len(u), len(u) ** -0.5)
            for u, s in zip(parts, lengths, strict=True)
        ]

    def factors(self, atoms: Sequence[Atom]) -> list[Matrix]:
        """Return the vectors of the atoms as columns for each mode, in original coordinates."""
        columns = [
            np.column_stack(vectors) for vectors in zip(*(a.vectors for a in atoms), strict=True)
        ]
        return [U if Q is None else Q @ U for U, Q in zip(columns, self.bases, strict=True)]

    def _contract(self, vectors: Sequence[Vector], mode: int) -> Matrix:
        cast = [u.astype(self.rows.dtype) for u in vectors]
        last = len(cast) - 1
        if last < 2 or mode == last or len(cast[last]) < _SHARED_LENGTH:
            return contract_except(self.rows, cast, mode).astype(np.float64)
        # As long as the vector of the last mode is the same, all other modes share its product.
        if self._shared is None or self._shared[0] is not vectors[last]:
            self._shared = vectors[last], self.rows @ cast[last]
        return contract_except(self._shared[1], cast[:last], mode).astype(np.float64)

    def best_vector(
        self, vectors: Sequence[Vector], mode: int, weight: float | None
    ) -> tuple[float, Vector]:
        """Return the largest eigenvalue and its vector for a mode, for fixed other vectors."""
        Z = self._contract(vectors, mode)
        between, within = Z[: self.n_between], Z[self.n_between :]
        return _leading(between.T @ between, within.T @ within, weight, self.ridge)

    def leading_vectors(self, weight: float | None) -> list[Vector]:
        """Return the leading vector of each mode, without contraction of the other modes."""
        found = []
        for mode in range(len(self.shape)):
            B = mode_scatter(self.rows[: self.n_between], mode)
            W = mode_scatter(self.rows[self.n_between :], mode)
            found.append(_leading(B, W, weight, self.ridge)[1])
        return found

    def taken_by(self, atom: Atom) -> float:
        """Return the part of the scatter of all rows that an atom explains."""
        return float(np.sum((self._contract(atom.vectors, 0) @ atom.vectors[0]) ** 2))

    def take(self, atom: Atom) -> None:
        """Subtract an atom in place."""
        self._shared = None
        flat = self.rows.reshape(len(self.rows), -1)
        deflate(flat, flat_atoms([u[:, None] for u in atom.vectors])[:, 0])


def _projected_in_place(stack: Floats, bases: Sequence[Matrix | None]) -> Floats:
    """Project the tensors to the bases, and return them in the first part of the same memory."""
    if all(Q is None for Q in bases):
        return stack
    shape = [d if Q is None else Q.shape[1] for d, Q in zip(stack.shape[1:], bases, strict=True)]
    free, end = stack.reshape(-1), 0
    for part in split_rows(len(stack), stack[0].nbytes, max_rows=_FEW_ROWS):
        projected = project_stack(stack[part], bases)
        free[end : end + projected.size] = projected.ravel()
        end += projected.size
    return free[:end].reshape(-1, *shape)


def _leading(B: Matrix, W: Matrix, weight: float | None, ridge: float) -> tuple[float, Vector]:
    """Return the largest eigenvalue of B - weight W and its vector.

    If the weight is None, solve the generalized problem of B and W plus the ridge.
    """
    if weight is not None:
        values, vectors = descending_eigh(B - weight * W, 1)
        return float(values[0]), vectors[:, 0]
    last = len(B) - 1
    values, vectors = some_eigh(B, last, last, W + ridge * np.eye(len(B)))
    return float(values[0]), vectors[:, 0] / linalg.norm(vectors[:, 0])
