"""Tensor rank-one analysis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags, RankOneLearner
from nearfar.base.progress import get_reporter
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import split_rows
from nearfar.notices import warn_not_converged
from nearfar.parameters import boolean, integer, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.rank_one_ascent import (
    AscentInterrupted,
    Atom,
    ascend_modes,
    draw_random_vectors,
    find_best_atom,
)
from nearfar.solvers.tensor_algebra import contract_except, mode_scatter, rank_one_gram
from nearfar.state import State, floats

# Maximum number of rows that are converted to float64 at once.
_ROWS_PER_BLOCK = 256


class TR1A(RankOneLearner):
    r"""Tensor rank-one analysis: tensors as linear combinations of a few rank-one tensors.

    The rank-one tensors, called atoms, :math:`A_r = u_{1r} \otimes \cdots \otimes u_{Mr}`, are
    found one after another. Each atom is fitted to the residuals of the previous ones:

    .. math:: \max_{\|u_{kr}\| = 1} \sum_i \lambda_{ir}^2, \qquad
        \lambda_{ir} = \langle X_i^{(r)}, A_r \rangle, \qquad
        X_i^{(r+1)} = X_i^{(r)} - \lambda_{ir} A_r .

    The algorithm replaces one vector at a time by the best one for fixed other vectors. No step
    decreases the sum. ``transform`` returns the coefficients :math:`\lambda_r`, and

    .. math:: \|X_i\|^2 = \sum_r \lambda_{ir}^2 + \|X_i - \sum_r \lambda_{ir} A_r\|^2 .

    The atoms are not orthogonal. The coefficients of a new tensor are therefore not its inner
    products :math:`b_r = \langle X, A_r \rangle` with the atoms, but the solution of the triangular
    system :math:`\mathrm{tril}(G) \lambda = b` with :math:`G_{rs} = \langle A_r, A_s \rangle`. This
    is equal to subtracting one atom after another.

    Use it to represent images by few numbers, or if there are few samples: an atom of a 32 × 32
    image has 64 parameters, an eigenvector 1,024. It does not use labels; for classification, add
    :class:`LDA`. Since an atom is not changed after later atoms are found, :class:`GTA` with the
    same number of features usually keeps more. On a single matrix it is equal to the singular
    value decomposition, and on vectors to PCA without centering.

    Cost: O(n d M) per sweep over the M modes, for tensors with d entries, and about ten to a
    hundred sweeps per atom. The residuals are not stored: memory is O(n R) in addition to
    X in float64.

    Parameters
    ----------
    n_components : int, default=10
        Dimension of the output: number of atoms R. Fewer atoms are found if the residuals become
        zero, see ``n_components_``.
    center : bool, default=False
        Whether to subtract the mean. If False, ``mean_`` is not set.
    init : {"random", "hosvd"}, default="random"
        Starting point: random vectors, or the leading eigenvector of each mode of the residuals
        ("hosvd"). "hosvd" applies to the first start of each atom. All further starts are random.
    n_init : int, default=1
        Number of starts. The best result for each atom is kept.
    max_iter : int, default=200
        Maximum number of iterations. Each iteration is a sweep over the modes. The limit applies to
        each start separately.
    tol : float, default=1e-6
        Stop when a sweep hardly changes the vectors. For each vector u and its previous value v,
        :math:`1 - |u^T v|` must be at most ``tol``.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, n_components)
        One matrix per mode k, with the vectors :math:`u_{kr}` as columns.
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix for flat rows: :math:`\mathrm{tril}(G)^{-1}` times the flattened atoms. It
        is computed on access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row. This attribute exists only if ``center`` is
        True.
    energies_ : ndarray of shape (n_components,)
        Fraction of the sum of squares of all training tensors that each atom explains.
    n_components_ : tuple of int
        Number of atoms found, as a tuple (R,).
    tensor_shape_ : tuple of int
        Shape of a sample.
    history_ : dict
        Lists for the best start of each atom. "objective" (the sum of squares explained by all
        atoms so far) has one value per update of a mode. "sweeps" is the number of sweeps of each
        atom. "step" (the largest :math:`1 - |u^T v|`) and "seconds" (the time since the start) have
        one value per sweep.
    n_iter_ : int
        Total number of sweeps of all atoms.

    See Also
    --------
    GTA, nearfar.tensors.best_rank_one

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.3,
       table 3.3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import TR1A
    >>> X = load_digits().images
    >>> tr1a = TR1A(16).fit(X)
    >>> tr1a.transform(X).shape, [U.shape for U in tr1a.factors_]
    ((1797, 16), [(8, 16), (8, 16)])
    >>> round(float(tr1a.energies_.sum()), 2)
    0.93
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    state = State({"energies_": floats("q")}, rows=0)
    settings = ({"n_components": 30},)
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "center": [boolean],
        "init": [one_of("random", "hosvd")],
        "n_init": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "random_state": [random_state],
        **TENSOR_PARAMETERS,
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        center: bool = False,
        init: Literal["random", "hosvd"] = "random",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.center = center
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.tensor_shape = tensor_shape
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find the atoms of a stack of tensors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or rows. Rows are flat tensors if ``tensor_shape`` is set, and vectors
            otherwise.
        y : ignored
            Present for compatibility with pipelines.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=2 if self.center else 1)
        random = check_random_state(self.random_state)
        residuals = _Residuals(T, T.mean(axis=0, dtype=np.float64) if self.center else None)
        if not residuals.total > residuals.rounding_level:
            reason = "all samples in X are equal" if self.center else "all entries of X are zero"
            raise ValueError(f"TR1A: {reason}, so no atom can be found.")
        atoms: list[Atom] = []
        started, interrupt = perf_counter(), None
        try:
            for _ in range(self.n_components):
                atom = self._find_next_atom(residuals, atoms, random)
                if atom.objective <= residuals.rounding_level:
                    break
                residuals.subtract(atom.vectors)
                atoms.append(atom)
        except KeyboardInterrupt as error:
            interrupt = error
            if (
                isinstance(error, AscentInterrupted)
                and error.atom.objective > residuals.rounding_level
            ):
                atoms.append(error.atom)
            if not atoms:
                raise
        factors = [np.column_stack(us) for us in zip(*(a.vectors for a in atoms), strict=True)]
        self._keep_atoms(factors, residuals.mean, T.dtype)
        energies = np.array([atom.objective for atom in atoms])
        self.energies_ = energies / residuals.total
        explained_before = np.append(0.0, np.cumsum(energies[:-1]))
        self.history_ = {
            "objective": [
                float(start + energy)
                for start, atom in zip(explained_before, atoms, strict=True)
                for energy in atom.objectives
            ],
            "sweeps": [atom.n_sweeps for atom in atoms],
            "step": [step for atom in atoms for step in atom.steps],
            "seconds": [time - started for atom in atoms for time in atom.times],
        }
        self.n_iter_ = sum(atom.n_sweeps for atom in atoms)
        if interrupt is not None:
            raise interrupt  # The attributes contain the atoms found before Ctrl-C.
        n_unconverged = sum(not atom.converged for atom in atoms)
        if n_unconverged:
            warn_not_converged(
                "TR1A", self.max_iter, f"the limit, for {n_unconverged} of {len(atoms)} atoms"
            )
        return self

    def _find_next_atom(
        self, residuals: _Residuals, atoms: Sequence[Atom], random: np.random.RandomState
    ) -> Atom:
        """Return the best atom of all starts."""
        report = get_reporter(self)
        explained_before = sum(atom.objective for atom in atoms)
        number = len(atoms) + 1

        def report_atom(state: dict[str, Any]) -> None:
            if report is not None:
                report(
                    state
                    | {
                        "objective": explained_before + state["objective"],
                        "stage": f"atom {number}",
                    }
                )

        def ascend_from(vectors: list[Vector]) -> Atom:
            return ascend_modes(
                lambda vectors, mode: _compute_leading_eigenvector(
                    residuals.contract(vectors, mode)
                ),
                vectors,
                max_iter=self.max_iter,
                tolerances=[self.tol] * len(vectors),
                min_objective=residuals.rounding_level,
                report=report_atom,
            )

        def run_start(start: int) -> Atom:
            uses_leading_vectors = start == 0 and self.init == "hosvd"
            atom = ascend_from(
                residuals.compute_leading_vectors()
                if uses_leading_vectors
                else draw_random_vectors(residuals.shape, random)
            )
            if atom.objective <= residuals.rounding_level:
                # The leading vectors of the modes may come from different tensors. The atom of
                # these vectors may then be orthogonal to all tensors.
                atom = ascend_from(draw_random_vectors(residuals.shape, random))
            return atom

        return find_best_atom(partial(run_start, start) for start in range(self.n_init))


# ---------------------------------------------------------------------- residuals


def _compute_leading_eigenvector(rows: Matrix) -> tuple[float, Vector]:
    """Return the largest eigenvalue of ``rows.T @ rows`` and its eigenvector.

    The function decomposes the smaller one of ``rows.T @ rows`` and ``rows @ rows.T``.
    """
    n, d = rows.shape
    if d <= n:
        values, vectors = descending_eigh(rows.T @ rows, 1)
        return float(values[0]), vectors[:, 0]
    values, vectors = descending_eigh(rows @ rows.T, 1)
    u = rows.T @ vectors[:, 0]
    length = float(linalg.norm(u))
    return float(values[0]), u / length if length > 0 else np.eye(d)[0]


class _Residuals:
    """Residuals of a stack of tensors after subtraction of the mean and the atoms.

    The residuals are not stored. Instead, their contractions with vectors are computed from the
    contractions of the tensors, the mean and the atoms.
    """

    def __init__(self, stack: Floats, mean: Floats | None) -> None:
        # float64, because rounded contractions with a large entry would hide the small entries.
        self.stack, self.mean = np.ascontiguousarray(stack, np.float64), mean
        self.shape = stack.shape[1:]
        self.factors = [np.zeros((d, 0)) for d in self.shape]
        self.scores = np.zeros((len(stack), 0))
        self._scatters: list[Matrix] | None = None
        sums_of_squares = [0.0, 0.0]
        for block in split_rows(len(stack), 8 * stack[0].size, max_rows=_ROWS_PER_BLOCK):
            rows = self.stack[block]
            sums_of_squares[0] += float(np.sum(rows**2))
            sums_of_squares[1] += float(np.sum((rows - mean) ** 2)) if mean is not None else 0.0
        #: Sum of squares of all tensors after subtraction of the mean.
        self.total = sums_of_squares[0] if mean is None else sums_of_squares[1]
        #: Maximum sum of squares that may be due to rounding errors.
        self.rounding_level = sums_of_squares[0] * (100 * float(np.finfo(np.float64).eps)) ** 2

    def contract(self, vectors: Sequence[Vector], mode: int) -> Matrix:
        """Return the residuals (n, d_mode), contracted with the vectors of all modes except one."""
        rows = np.asarray(contract_except(self.stack, vectors, mode), np.float64)
        if self.mean is not None:
            rows -= contract_except(self.mean[None], vectors, mode)
        if self.scores.size:
            rows -= (self.scores * self._multiply_atoms_with(vectors, mode)) @ self.factors[mode].T
        return rows

    def _multiply_atoms_with(self, vectors: Sequence[Vector], mode: int) -> Vector:
        """Return the inner product of each atom with the vectors, in all modes except one."""
        atoms: list[Any] = list(self.factors)
        factors: list[Any] = list(vectors)
        atoms[mode], factors[mode] = np.ones((1, self.scores.shape[1])), np.ones(1)
        return np.asarray(rank_one_gram(atoms, factors)[:, 0], np.float64)

    def subtract(self, vectors: list[Vector]) -> None:
        """Subtract an atom from the residuals."""
        contractions = [self.contract(vectors, mode) for mode in range(len(vectors))]
        score = contractions[-1] @ vectors[-1]
        if self._scatters is not None:
            for S, contraction, u in zip(self._scatters, contractions, vectors, strict=True):
                cross = np.outer(score @ contraction, u)
                S += float(score @ score) * np.outer(u, u) - cross - cross.T
        self.scores = np.column_stack([self.scores, score])
        self.factors = [np.column_stack([U, u]) for U, u in zip(self.factors, vectors, strict=True)]

    def compute_leading_vectors(self) -> list[Vector]:
        """Return the leading eigenvector of each mode.

        The first call computes the scatters of the modes. Later, ``subtract`` updates them.
        """
        if self._scatters is None:
            self._scatters = [self._compute_scatter(mode) for mode in range(len(self.shape))]
        return [descending_eigh(S, 1)[1][:, 0] for S in self._scatters]

    def _compute_scatter(self, mode: int) -> Matrix:
        total = np.zeros((self.shape[mode],) * 2)
        for block in split_rows(len(self.stack), 8 * self.stack[0].size, max_rows=_ROWS_PER_BLOCK):
            rows = self.stack[block]
            total += mode_scatter(rows if self.mean is None else rows - self.mean, mode)
        return total
