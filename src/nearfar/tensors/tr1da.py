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
from nearfar.base.progress import get_reporter
from nearfar.base.rank_one import deflate, flatten_atoms
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import split_rows
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import AllowedValues, array, integer, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh, partial_eigh
from nearfar.solvers.rank_one_ascent import (
    AscentInterrupted,
    Atom,
    ascend_modes,
    draw_random_vectors,
    find_best_atom,
)
from nearfar.solvers.spectral_step import max_abs_value
from nearfar.solvers.tensor_algebra import (
    contract_except,
    find_varying_basis,
    mode_scatter,
    project_stack,
)
from nearfar.state import State, floats, labels

# Ridge for within_weight="max_eig", as a fraction of the mean within-class variance of an entry.
_RIDGE = 1e-3
# Maximum number of entries of a tensor at which a QR decomposition is used. If there are more rows
# than entries, the triangular factor replaces the rows, because it has the same scatter.
_MAX_ENTRIES_FOR_QR = 2048
# Maximum of the values of X, and of their reciprocals, whose products are computed in float32.
_MAX_FLOAT32 = 1e9
# Maximum number of rows that are copied at once.
_ROWS_PER_BLOCK = 64
# Minimum length of the last mode at which the product with its vector is cached and used for all
# other modes.
_MIN_SHARED_LENGTH = 4
_VECTOR_LIST = AllowedValues(
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
    Memory: one copy of X in float64, from which the atoms are subtracted in place.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output: number of features R. If the residuals no longer separate the
        classes, ``fit`` finds fewer features and warns.
    within_weight : float, sequence of float or "max_eig", default=0.1
        Weight of the within-class scatter: a number, or one number per feature. "max_eig"
        maximizes the ratio of the two scatters instead (see Notes).
    init : "random", "hosvd" or list of ndarray, default="random"
        Starting point: random vectors, the leading eigenvector of each mode of the residuals
        ("hosvd"), or a list with one array of shape (d_k,) or (d_k, n_components) per mode. "hosvd"
        and a list apply to the first start of each feature. All further starts are random.
    n_init : int, default=1
        Number of starts. The best result for each feature is kept.
    max_iter : int, default=1000
        Maximum number of iterations. Each iteration is a sweep over the modes. The limit applies to
        each start separately.
    tol : float, default=1e-6
        Stop when a sweep hardly changes the vectors. For each vector u and its previous value v,
        :math:`1 - |u^T v|` must be at most ``tol`` times the number of entries d_k, as in [1]_.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, n_components)
        One matrix per mode k, with the vectors :math:`u_{kr}` as columns.
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix for flat rows. It is computed on access from the flattened atoms and their
        inner products.
    objectives_ : ndarray of shape (n_components,)
        Maximum of the objective for each feature. With "max_eig", the objective is the ratio of the
        two scatters.
    within_weight_ : ndarray of shape (n_components,)
        Weight used for each feature. With "max_eig", the weight is the ratio of the two scatters.
    n_components_ : tuple of int
        Number of features found, as a tuple (R,).
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        Lists for the best start of each feature. "objective" has one value per update of a mode.
        "sweeps" is the number of sweeps of each feature. "step" (the largest :math:`1 - |u^T v|`)
        and "seconds" (the time since the start) have one value per sweep.
    n_iter_ : int
        Total number of sweeps of all features.

    See Also
    --------
    TR1A, GTDA, DSDC

    Notes
    -----
    Values of ``within_weight`` well below 1 give almost the same result. From about 1 on, fewer
    features are found: a feature needs a direction in which the scatter of the class means exceeds
    ``within_weight`` times the scatter within classes.

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
    renamed: ClassVar = {"zeta": "within_weight", "zeta_": "within_weight_"}
    state = State(
        {"objectives_": floats("q"), "within_weight_": floats("q"), "classes_": labels("c")}, rows=0
    )
    settings = ({"n_components": 30}, {"n_components": 30, "within_weight": 0.3})
    parameters: ClassVar = {
        "n_components": [integer(1, 100_000)],
        "within_weight": [real(0), array, one_of("max_eig")],
        "init": [one_of("random", "hosvd"), _VECTOR_LIST],
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
        within_weight: float | Sequence[float] | Literal["max_eig"] = 0.1,
        init: Literal["random", "hosvd"] | Sequence[ArrayLike] = "random",
        n_init: int = 1,
        max_iter: int = 1000,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.within_weight = within_weight
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
        weights = self._check_weights()
        T = self._check_tensors(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(T))
        user_starts = self._check_user_starts(T.shape[1:])
        dtype, size = T.dtype, float(np.abs(T).max())
        if size and not 1 / _MAX_FLOAT32 <= size <= _MAX_FLOAT32:
            T = T.astype(np.float64, copy=False)
        residuals = Residuals(T, codes)
        if not residuals.total > 0:
            raise ValueError("TR1DA: all samples in X are equal. At least two must differ.")
        if self.within_weight == "max_eig" and not residuals.ridge > 0:
            raise ValueError(
                "TR1DA: all samples of each class are equal, so within_weight='max_eig' would "
                "divide by zero. Pass a number for within_weight."
            )
        random = check_random_state(self.random_state)
        atoms: list[Atom] = []
        started, interrupt = perf_counter(), None
        try:
            for r, weight in enumerate(weights):
                atom = self._find_next_atom(
                    residuals, weight, None if user_starts is None else user_starts[r], random
                )
                if atom.objective <= residuals.rounding_level and (
                    atoms or residuals.measure_explained_scatter(atom) <= residuals.rounding_level
                ):
                    break
                residuals.subtract(atom)
                atoms.append(atom)
        except KeyboardInterrupt as error:
            interrupt = error
            if (
                isinstance(error, AscentInterrupted)
                and residuals.measure_explained_scatter(error.atom) > residuals.rounding_level
            ):
                atoms.append(error.atom)
            if not atoms:
                raise
        if not atoms:
            raise ValueError(
                f"TR1DA: no feature was found with within_weight={self.within_weight} and "
                f"n_init={self.n_init}. Use a smaller within_weight, or a larger n_init."
            )
        self.classes_ = classes
        self._keep_atoms(residuals.collect_factors(atoms), None, dtype)
        self.objectives_ = np.array([atom.objective for atom in atoms])
        used_weights = [weight for weight, _ in zip(weights, atoms, strict=False)]
        self.within_weight_ = (
            self.objectives_.copy()
            if self.within_weight == "max_eig"
            else np.array(used_weights, float)
        )
        self.history_ = {
            "objective": [value for atom in atoms for value in atom.objectives],
            "sweeps": [atom.n_sweeps for atom in atoms],
            "step": [step for atom in atoms for step in atom.steps],
            "seconds": [time - started for atom in atoms for time in atom.times],
        }
        self.n_iter_ = sum(atom.n_sweeps for atom in atoms)
        if interrupt is not None:
            raise interrupt  # The attributes contain the features found before Ctrl-C.
        self._warn_about_atoms(atoms)
        return self

    def _warn_about_atoms(self, atoms: list[Atom]) -> None:
        """Warn of missing features, and of features that did not converge."""
        if len(atoms) < self.n_components:
            warn(
                f"TR1DA: only {len(atoms)} of {self.n_components} features were found. In the "
                "residuals, no direction has a scatter between classes above "
                f"within_weight={self.within_weight} times the scatter within classes. Use a "
                "smaller n_components or a smaller within_weight."
            )
        n_unconverged = sum(not atom.converged for atom in atoms)
        if n_unconverged:
            warn_not_converged(
                "TR1DA", self.max_iter, f"the limit, for {n_unconverged} of {len(atoms)} features"
            )

    def _check_weights(self) -> list[float | None]:
        """Return the weight of each feature. If the ratio is maximized, all weights are None."""
        if isinstance(self.within_weight, str):
            return [None] * self.n_components
        weights = np.asarray(self.within_weight, float)
        weights = np.full(self.n_components, weights) if weights.ndim == 0 else weights
        has_valid_shape = weights.shape == (self.n_components,)
        if not has_valid_shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(
                f"TR1DA: within_weight={self.within_weight!r} must be a nonnegative, finite "
                f"number, or a sequence of n_components={self.n_components} nonnegative, finite "
                "numbers."
            )
        return [float(weight) for weight in weights]

    def _check_user_starts(self, shape: Sequence[int]) -> list[list[Vector]] | None:
        """Return the vectors in ``init`` as unit vectors, or None if ``init`` is a string."""
        if isinstance(self.init, str):
            return None
        matrices = [np.asarray(U, float) for U in self.init]
        allowed_shapes = [[(d,), (d, self.n_components)] for d in shape]
        has_valid_shape = len(matrices) == len(shape) and all(
            U.shape in sizes for U, sizes in zip(matrices, allowed_shapes, strict=True)
        )
        if not has_valid_shape or not all(np.isfinite(U).all() for U in matrices):
            raise ValueError(
                f"TR1DA: init must contain finite arrays of shapes {[(d,) for d in shape]}, or "
                f"matrices with {self.n_components} columns; got shapes "
                f"{[U.shape for U in matrices]}."
            )
        columns = [
            np.broadcast_to(U.reshape(len(U), -1), (len(U), self.n_components)) for U in matrices
        ]
        if not all(linalg.norm(U, axis=0).all() for U in columns):
            raise ValueError("TR1DA: init must not contain a vector of zeros.")
        return [[U[:, r] / linalg.norm(U[:, r]) for U in columns] for r in range(self.n_components)]

    def _find_next_atom(
        self,
        residuals: Residuals,
        weight: float | None,
        user_start: list[Vector] | None,
        random: np.random.RandomState,
    ) -> Atom:
        """Return the best atom of all starts."""

        def run_start(start: int) -> Atom:
            if start == 0 and user_start is not None:
                vectors = residuals.project_vectors(user_start)
            elif start == 0 and self.init == "hosvd":
                vectors = residuals.compute_leading_vectors(weight)
            else:
                vectors = residuals.project_vectors(draw_random_vectors(residuals.shape, random))
            return ascend_modes(
                lambda vectors, mode: residuals.compute_best_vector(vectors, mode, weight),
                vectors,
                max_iter=self.max_iter,
                tolerances=[self.tol * d for d in residuals.shape],
                report=get_reporter(self),
            )

        return find_best_atom(partial(run_start, start) for start in range(self.n_init))


class Residuals:
    """Residuals of labeled tensors after subtraction of atoms.

    The residuals need about as much memory as X in float64. The rows
    :math:`\\sqrt{n_c}(M_c - M)` come first, then the rows :math:`X_i - M_{c(i)}`. Subtracting an
    atom is a projection of each row, so the method needs only these rows, or other rows with the
    same scatter. With a large weight, directions of a mode without variance, such as a blank
    border, would have the largest objective. The tensors are therefore stored in bases that exclude
    these directions.
    """

    def __init__(self, T: Floats, codes: Indices) -> None:
        self.shape, self.n_samples = T.shape[1:], len(T)
        counts = np.bincount(codes)
        n_classes, flat = len(counts), T.reshape(len(T), -1)
        members = sparse.csr_array(
            (1.0 / counts[codes], (codes, np.arange(len(T)))), (n_classes, len(T))
        )
        means = np.asarray(members @ flat)
        # float64, because rounded products with a large entry would hide the small entries.
        rows = np.empty((n_classes + len(T), flat.shape[1]))
        rows[:n_classes] = np.sqrt(counts)[:, None] * (means - counts @ means / len(T))
        for block in split_rows(len(T), rows.itemsize * flat.shape[1], max_rows=_ROWS_PER_BLOCK):
            np.subtract(flat[block], means[codes[block]], out=rows[n_classes:][block])
        self.n_between = n_classes
        is_float32 = T.dtype == np.float32
        largest_entry = max_abs_value(rows)
        # If the differences are only rounding errors of the mean, all tensors are equal.
        if largest_entry <= (1e-6 if is_float32 else 1e-14) * max_abs_value(T):
            largest_entry = 0.0
        #: Scatter of all rows.
        self.total = (
            float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) if largest_entry else 0.0
        )
        #: Maximum scatter that may be due to rounding errors.
        self.rounding_level = 1e-12 * self.total
        within = float(np.einsum("ij,ij->", rows[n_classes:], rows[n_classes:], dtype=np.float64))
        #: Ridge added to the scatter within classes for within_weight="max_eig".
        self.ridge = _RIDGE * within / prod(self.shape) if within > self.rounding_level else 0.0
        self.rows: Floats = rows.reshape(-1, *self.shape)
        self.bases: list[Matrix | None] = [None] * len(self.shape)
        # Cached vector of the last mode, and the product of the rows with this vector.
        self._shared: tuple[Vector, Floats] | None = None
        if self.total > 0:
            # The squares of the rounding errors of float32 samples are below 1e-12.
            self._reduce(1e-12 if is_float32 else 1e-14)

    def _reduce(self, precision: float) -> None:
        """Remove directions without variance. Replace many rows by fewer with the same scatter."""
        bases = [find_varying_basis(self.rows, mode, precision) for mode in range(len(self.shape))]
        self.bases = [Q if Q.shape[1] < len(Q) else None for Q in bases]
        self.rows = _project_in_place(self.rows, self.bases)
        shape = self.rows.shape[1:]
        d, n_between = prod(shape), self.n_between
        if d < len(self.rows) - n_between and d <= _MAX_ENTRIES_FOR_QR:
            flat = self.rows.reshape(-1, d)
            triangle = np.zeros((0, d))
            for i in range(n_between, len(flat), 2 * d):
                stacked = np.vstack([triangle, flat[i : i + 2 * d]])
                triangle = linalg.qr(stacked, mode="r", overwrite_a=True, check_finite=False)[0][:d]
            self.rows = np.vstack([flat[:n_between], triangle]).reshape(-1, *shape)

    def project_vectors(self, vectors: Sequence[Vector]) -> list[Vector]:
        """Project vectors to the bases, and scale them to unit length."""
        projected = [u if Q is None else Q.T @ u for u, Q in zip(vectors, self.bases, strict=True)]
        # If a projection is zero, use an arbitrary vector instead.
        lengths = [float(linalg.norm(u)) for u in projected]
        return [
            u / s if s > 1e-8 else np.full(len(u), len(u) ** -0.5)
            for u, s in zip(projected, lengths, strict=True)
        ]

    def collect_factors(self, atoms: Sequence[Atom]) -> list[Matrix]:
        """Return one matrix per mode whose columns are the atoms' vectors in the space of X."""
        columns = [
            np.column_stack(vectors) for vectors in zip(*(a.vectors for a in atoms), strict=True)
        ]
        return [U if Q is None else Q @ U for U, Q in zip(columns, self.bases, strict=True)]

    def _contract_rows(self, vectors: Sequence[Vector], mode: int) -> Matrix:
        last_mode = len(vectors) - 1
        if last_mode < 2 or mode == last_mode or len(vectors[last_mode]) < _MIN_SHARED_LENGTH:
            return np.asarray(contract_except(self.rows, vectors, mode), np.float64)
        # The product with the vector of the last mode is the same for all other modes.
        if self._shared is None or self._shared[0] is not vectors[last_mode]:
            self._shared = vectors[last_mode], self.rows @ vectors[last_mode]
        contracted = contract_except(self._shared[1], vectors[:last_mode], mode)
        return np.asarray(contracted, np.float64)

    def compute_best_vector(
        self, vectors: Sequence[Vector], mode: int, weight: float | None
    ) -> tuple[float, Vector]:
        """Return the best objective and vector of one mode, with the other vectors fixed."""
        Z = self._contract_rows(vectors, mode)
        between, within = Z[: self.n_between], Z[self.n_between :]
        return _compute_leading_eigenvector(
            between.T @ between, within.T @ within, weight, self.ridge
        )

    def compute_leading_vectors(self, weight: float | None) -> list[Vector]:
        """Return the leading eigenvector of each mode, without contracting the other modes."""
        vectors = []
        for mode in range(len(self.shape)):
            B = mode_scatter(self.rows[: self.n_between], mode)
            W = mode_scatter(self.rows[self.n_between :], mode)
            vectors.append(_compute_leading_eigenvector(B, W, weight, self.ridge)[1])
        return vectors

    def measure_explained_scatter(self, atom: Atom) -> float:
        """Return the part of the scatter of all rows that an atom explains."""
        return float(np.sum((self._contract_rows(atom.vectors, 0) @ atom.vectors[0]) ** 2))

    def subtract(self, atom: Atom) -> None:
        """Subtract an atom from the residuals in place."""
        self._shared = None
        flat = self.rows.reshape(len(self.rows), -1)
        deflate(flat, flatten_atoms([u[:, None] for u in atom.vectors])[:, 0])


def _project_in_place(stack: Floats, bases: Sequence[Matrix | None]) -> Floats:
    """Project tensors to the bases. The result overwrites the beginning of the stack."""
    if all(Q is None for Q in bases):
        return stack
    shape = [d if Q is None else Q.shape[1] for d, Q in zip(stack.shape[1:], bases, strict=True)]
    buffer, end = stack.reshape(-1), 0
    for block in split_rows(len(stack), stack[0].nbytes, max_rows=_ROWS_PER_BLOCK):
        projected = project_stack(stack[block], bases)
        buffer[end : end + projected.size] = projected.ravel()
        end += projected.size
    return buffer[:end].reshape(-1, *shape)


def _compute_leading_eigenvector(
    B: Matrix, W: Matrix, weight: float | None, ridge: float
) -> tuple[float, Vector]:
    """Return the largest eigenvalue of B - weight W and its eigenvector.

    If the weight is None, solve the generalized eigenproblem of B and W + ridge I.
    """
    if weight is not None:
        values, vectors = descending_eigh(B - weight * W, 1)
        return float(values[0]), vectors[:, 0]
    last = len(B) - 1
    values, vectors = partial_eigh(B, last, last, W + ridge * np.eye(len(B)))
    return float(values[0]), vectors[:, 0] / linalg.norm(vectors[:, 0])
