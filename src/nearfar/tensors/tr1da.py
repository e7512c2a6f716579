"""Tensor rank-one discriminant analysis: rank-one tensors that tell classes apart, in turn."""

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
from nearfar.blocks import row_blocks
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import Allowed, array, integer, one_of, random_state, real
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

# Of the mean variance within classes, added to it where a ratio divides by it: the default of TFDA.
_RIDGE = 1e-3
# Rows within classes are replaced by as many as there are entries, up to so many.
_FEW_ENTRIES = 2048
# Rows that are copied at once.
_FEW_ROWS = 64
# A last mode of at least so many entries is contracted once for all others.
_SHARED_LENGTH = 4
_VECTORS = Allowed(
    lambda value: isinstance(value, list | tuple) and all(array.accepts(u) for u in value),
    "a list of vectors, or of matrices with a column for each feature, one for each mode",
)


class TR1DA(RankOneLearner):
    r"""Tensor rank-one discriminant analysis: numbers of a tensor that tell classes apart.

    Atoms :math:`A_r = u_{1r} \otimes \cdots \otimes u_{Mr}` are found one after another, each from
    what those before it left over of all tensors:

    .. math:: \max_{\|u_{kr}\| = 1} \sum_c n_c \langle M_c - M, A_r \rangle^2
        - \zeta \sum_i \langle X_i^{(r)} - M_{c(i)}, A_r \rangle^2, \qquad
        X_i^{(r+1)} = X_i^{(r)} - \lambda_{ir} A_r, \qquad
        \lambda_{ir} = \langle X_i^{(r)}, A_r \rangle ,

    with the means :math:`M_c` of classes and M of all that is left over. Given the other vectors,
    the best :math:`u_k` is the leading eigenvector of the difference of two scatters of the
    contracted samples; no step lowers the objective. A tensor is mapped to its numbers
    :math:`\lambda_r`: those of new ones solve the triangle of inner products of the atoms, as in
    :class:`TR1A`. Those of fewer components are the first ones of more.

    Use it for a short code of images or volumes with few samples a class, before k-NN: with ten
    images of each digit, five numbers classify as well as PCA does with five, and ten as ten; from
    some twenty on there is no gain over :class:`TR1A` or PCA. Small weights :math:`\zeta` hardly
    matter; from about 1 on later features are lost, as no direction is left in which class means
    scatter more than :math:`\zeta` times the samples. Of vectors it gives the leading eigenvectors,
    as :class:`DSDC` does.

    Cost: O(n d M) for a sweep over M modes, with d numbers in a tensor, some ten to twenty sweeps a
    feature; with more samples than numbers O(n d²) once, and then O(d² M) a sweep. Memory: one
    copy of X, from which atoms are taken away in place.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output: the number of atoms R. There are fewer, with a warning, when
        nothing is left that tells classes apart.
    zeta : float, sequence of float or "max_eig", default=0.1
        Weight of the scatter within classes: a number, or one for each feature. "max_eig" maximises
        the ratio of the two scatters instead, which is the weight for which the largest eigenvalue
        is zero, with a thousandth of the mean variance added within classes.
    init : "random", "hosvd" or list of ndarray, default="random"
        Where to start: at random vectors for each feature, at the leading eigenvector of each mode
        alone, of what is left, or at given vectors, of shape (d_k,) or (d_k, n_components). Further
        starts are random.
    n_init : int, default=1
        Number of starts: for each feature; the best is kept.
    max_iter : int, default=1000
        Steps at most: sweeps over all modes, for one start.
    tol : float, default=1e-6
        Stops when of each vector and the one before, :math:`1 - |u^T v|` is at most this times its
        length d_k, as in the work.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random starts.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, n_components)
        The vectors :math:`u_{kr}` as columns, for each mode.
    components_ : ndarray of shape (n_components, n_features)
        The map of flat rows: the inverse triangle times the flat atoms, built when it is asked for.
    objectives_ : ndarray of shape (n_components,)
        What is maximised, of each feature; with "max_eig" the ratio.
    zeta_ : ndarray of shape (n_components,)
        The weight of each feature; with "max_eig" the ratio.
    n_components_ : tuple of int
        The number of atoms found, (R,).
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    history_ : dict
        "objective", after every step of a mode, one feature after another; "sweeps", those of each
        feature; after every sweep "step", the largest :math:`1 - |u^T v|`, and "seconds" since the
        start. Of the best start of each feature.
    n_iter_ : int
        Sweeps, of all features.

    See Also
    --------
    TR1A, GTDA, DSDC

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
        """Find the atoms.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or flat rows: with ``tensor_shape`` of such tensors, without of vectors.
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
            raise ValueError(
                "TR1DA: all samples are equal in X, so that there is nothing to learn."
            )
        if self.zeta == "max_eig" and not left.ridge > 0:
            raise ValueError(
                "TR1DA: in every class all samples are equal, so that zeta='max_eig' divides by "
                "zero. Give a number."
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
                f"TR1DA: with zeta={self.zeta} no feature was found from {self.n_init} start(s): "
                "use a smaller zeta, or more starts (n_init)."
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
            raise interrupt  # Ctrl-C as usual, after the features so far were left here
        self._tell(atoms)
        return self

    def _tell(self, atoms: list[Atom]) -> None:
        """Warn of what was not found."""
        if len(atoms) < self.n_components:
            warn(
                f"TR1DA: {len(atoms)} of {self.n_components} features were found. In what is left "
                f"no direction tells classes apart by more than zeta={self.zeta} times the scatter "
                "within them; further features would be zero. Use fewer n_components, or a smaller "
                "zeta."
            )
        late = sum(not atom.converged for atom in atoms)
        if late:
            warn_of_limit("TR1DA", self.max_iter, f"the limit, for {late} of {len(atoms)} features")

    def _weights(self) -> list[float | None]:
        """The weight of each feature; None is that of the largest ratio."""
        if isinstance(self.zeta, str):
            return [None] * self.n_components
        weights = np.asarray(self.zeta, float)
        weights = np.full(self.n_components, weights) if weights.ndim == 0 else weights
        fits = weights.shape == (self.n_components,)
        if not fits or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(
                f"TR1DA: zeta={self.zeta!r} must be one finite number of at least 0, or one for "
                f"each of n_components={self.n_components} features."
            )
        return [float(weight) for weight in weights]

    def _given_starts(self, shape: Sequence[int]) -> list[list[Vector]] | None:
        """Unit vectors for each feature, where they were given."""
        if isinstance(self.init, str):
            return None
        matrices = [np.asarray(U, float) for U in self.init]
        wanted = [[(d,), (d, self.n_components)] for d in shape]
        fits = len(matrices) == len(shape) and all(
            U.shape in sizes for U, sizes in zip(matrices, wanted, strict=True)
        )
        if not fits or not all(np.isfinite(U).all() for U in matrices):
            raise ValueError(
                f"TR1DA: init holds arrays of shapes {[U.shape for U in matrices]}; give finite "
                f"ones of shapes {[(d,) for d in shape]}, or with {self.n_components} columns."
            )
        columns = [
            np.broadcast_to(U.reshape(len(U), -1), (len(U), self.n_components)) for U in matrices
        ]
        if not all(linalg.norm(U, axis=0).all() for U in columns):
            raise ValueError("TR1DA: init holds a vector of zeros, which has no direction.")
        return [[U[:, r] / linalg.norm(U[:, r]) for U in columns] for r in range(self.n_components)]

    def _next_atom(
        self,
        left: Residuals,
        weight: float | None,
        given: list[Vector] | None,
        random: np.random.RandomState,
    ) -> Atom:
        """The best atom of all starts."""

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
    """What atoms left of a stack of tensors: rows between and within classes, in one copy.

    Rows :math:`\\sqrt{n_c}(M_c - M)` come first, then :math:`X_i - M_{c(i)}`. Taking an atom away
    is a projection of each row, so that nothing else of the samples is ever needed; and any rows of
    the same scatter serve. Directions of a mode in which nothing varies, as on a blank border,
    would be best for a large weight: tensors are held in bases of the others.
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
        for part in row_blocks(len(T), T.itemsize * flat.shape[1], at_most=_FEW_ROWS):
            np.subtract(flat[part], means[codes[part]], out=rows[n_classes:][part])
        self.n_between = n_classes
        narrow = T.dtype == np.float32
        size = largest_size(rows)
        # What rounding of the mean leaves of tensors that are all alike.
        if size <= (1e-6 if narrow else 1e-14) * largest_size(T):
            size = 0.0
        #: The scatter of all rows, and what rounding leaves of it.
        self.total = float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) if size else 0.0
        self.least = (1e-11 if narrow else 1e-12) * self.total
        within = float(np.einsum("ij,ij->", rows[n_classes:], rows[n_classes:], dtype=np.float64))
        #: Added to scatters within classes where a ratio divides by them.
        self.ridge = _RIDGE * within / prod(self.shape) if within > self.least else 0.0
        self.rows = rows.reshape(-1, *self.shape)
        self.bases: list[Matrix | None] = [None] * len(self.shape)
        # A vector of the last mode, and the rows contracted with it.
        self._shared: tuple[Vector, Floats] | None = None
        if self.total > 0:
            self._reduce(1e-6 if narrow else 1e-14)

    def _reduce(self, empty: float) -> None:
        """To directions in which anything varies, and to no more rows than entries."""
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
        """Unit vectors in the bases."""
        parts = [u if Q is None else Q.T @ u for u, Q in zip(vectors, self.bases, strict=True)]
        # A vector that is off a basis has no direction there; any other does as well.
        lengths = [float(linalg.norm(u)) for u in parts]
        return [
            u / s if s > 1e-8 else np.full(len(u), len(u) ** -0.5)
            for u, s in zip(parts, lengths, strict=True)
        ]

    def factors(self, atoms: Sequence[Atom]) -> list[Matrix]:
        """The vectors of atoms in columns, for each mode, off the bases."""
        columns = [
            np.column_stack(vectors) for vectors in zip(*(a.vectors for a in atoms), strict=True)
        ]
        return [U if Q is None else Q @ U for U, Q in zip(columns, self.bases, strict=True)]

    def _contract(self, vectors: Sequence[Vector], mode: int) -> Matrix:
        cast = [u.astype(self.rows.dtype) for u in vectors]
        last = len(cast) - 1
        if last < 2 or mode == last or len(cast[last]) < _SHARED_LENGTH:
            return contract_except(self.rows, cast, mode).astype(np.float64)
        # Until the vector of the last mode turns, all other modes share the product with it.
        if self._shared is None or self._shared[0] is not vectors[last]:
            self._shared = vectors[last], self.rows @ cast[last]
        return contract_except(self._shared[1], cast[:last], mode).astype(np.float64)

    def best_vector(
        self, vectors: Sequence[Vector], mode: int, weight: float | None
    ) -> tuple[float, Vector]:
        """The leading eigenvector of a mode, given the vectors of the others."""
        Z = self._contract(vectors, mode)
        between, within = Z[: self.n_between], Z[self.n_between :]
        return _leading(between.T @ between, within.T @ within, weight, self.ridge)

    def leading_vectors(self, weight: float | None) -> list[Vector]:
        """The leading vector of each mode alone."""
        found = []
        for mode in range(len(self.shape)):
            B = mode_scatter(self.rows[: self.n_between], mode)
            W = mode_scatter(self.rows[self.n_between :], mode)
            found.append(_leading(B, W, weight, self.ridge)[1])
        return found

    def taken_by(self, atom: Atom) -> float:
        """What an atom takes of the scatter of all rows."""
        return float(np.sum((self._contract(atom.vectors, 0) @ atom.vectors[0]) ** 2))

    def take(self, atom: Atom) -> None:
        """Take an atom away, in place."""
        self._shared = None
        flat = self.rows.reshape(len(self.rows), -1)
        deflate(flat, flat_atoms([u[:, None] for u in atom.vectors])[:, 0])


def _projected_in_place(stack: Floats, bases: Sequence[Matrix | None]) -> Floats:
    """Every tensor in the bases, at the beginning of the memory of the stack."""
    if all(Q is None for Q in bases):
        return stack
    shape = [d if Q is None else Q.shape[1] for d, Q in zip(stack.shape[1:], bases, strict=True)]
    free, end = stack.reshape(-1), 0
    for part in row_blocks(len(stack), stack[0].nbytes, at_most=_FEW_ROWS):
        projected = project_stack(stack[part], bases)
        free[end : end + projected.size] = projected.ravel()
        end += projected.size
    return free[:end].reshape(-1, *shape)


def _leading(B: Matrix, W: Matrix, weight: float | None, ridge: float) -> tuple[float, Vector]:
    """The largest eigenvalue of B - weight W and its vector; without a weight of the pencil."""
    if weight is not None:
        values, vectors = descending_eigh(B - weight * W, 1)
        return float(values[0]), vectors[:, 0]
    last = len(B) - 1
    values, vectors = some_eigh(B, last, last, W + ridge * np.eye(len(B)))
    return float(values[0]), vectors[:, 0] / linalg.norm(vectors[:, 0])
