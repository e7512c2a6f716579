"""Multiple distance metrics learning: a large-margin metric for each mode of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags, MultilinearLearner, report_of
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.blocks import blas_for
from nearfar.large_margin.impostors import chosen_targets
from nearfar.large_margin.mode_metrics import ModeMetrics
from nearfar.large_margin.problem import Progress
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import Allowed, array, boolean, integer, one_of, real
from nearfar.solvers.mode_subspaces import signed_columns
from nearfar.solvers.spectral_step import check_squares
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack, varying_basis
from nearfar.state import State, flag, labels, number, whole

# Iterations of the joint descent in a round: about as many lie between two searches for impostors.
_ROUND = 20
# Of the mean scatter of the directions of a mode, added to each before they are made alike.
_LEAST_SCATTER = 1e-3
_MATRICES = Allowed(
    lambda value: isinstance(value, list | tuple) and all(array.accepts(W) for W in value),
    "a list of matrices, one for each mode",
)


class MDML(MultilinearLearner):
    r"""Multiple distance metrics learning: a large-margin metric for each mode of a tensor.

    Points are drawn to their nearest points of the same class, their targets :math:`j \leadsto i`,
    and those of other classes pushed away beyond a margin:

    .. math:: \min_{\Sigma_k \succeq 0} \sum_{i, j \leadsto i} D_{ij}
        + c \sum_{i, j \leadsto i} \sum_{l : y_l \ne y_i} [1 + D_{ij} - D_{il}]_+, \qquad
        D_{ij} = \|(X_i - X_j) \times_1 W_1 \cdots \times_M W_M\|^2,

    with :math:`\Sigma_k = W_k^T W_k`. On flat tensors the metric is the Kronecker product of all
    :math:`\Sigma_k`. The work solves one semidefinite program after another, one for each mode;
    there the hinges stop it where no single mode gains, although all together would. Here all
    modes descend together with hinges that are rounded at first, and end where no mode gains
    either. The optimum is local: the objective is convex in each metric, not in all. With vectors
    it is the program of :class:`LMNN`, in other units.

    Use it before k-NN on images or volumes, where a metric of all entries has far more numbers
    than there are samples: for 28×28 images 812 instead of 307,720. Hold it against the plain
    distance: learned from 300 digits of 8×8 (five draws), 3-NN errs on 5.8 % of the others, and on
    5.2 % without it; from 1,000 of MNIST on 15 %, and on 18 % without it. There it takes a third of
    the time of an :class:`LMNN` that stops early, which errs on 17 %.

    Cost: O(n² d) a step with d numbers in a tensor, in blocks, less where few points are impostors;
    some hundred steps, in coordinates in which all directions of a mode vary alike. Memory: O(n d)
    and a list of pairs.

    Parameters
    ----------
    n_neighbors : int, default=3
        Number of neighbours, here targets: those of the same class that are nearest in the
        Euclidean metric, fixed once.
    push : float, default=1.0
        The weight c of the hinges. Where it is far too small, metrics of zero are best.
    n_components : int, tuple of int or None, default=None
        Dimension of the output: of each mode. An integer is the most in any mode, a tuple has one
        number for each. None keeps all directions in which anything varies.
    init : "identity" or list of ndarray of shape (q_k, d_k), default="identity"
        Where to start: at the Euclidean metric, cut to the directions of the largest scatter where
        ``n_components`` are fewer, or at given matrices :math:`W_k`.
    max_iter : int, default=50
        Steps at most: rounds of 20 steps of all modes together.
    tol : float, default=1e-6
        Stops when a step lowers the objective by less than this share.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. False returns tensors.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        The matrices :math:`W_k^T`, of one mean square each.
    metrics_ : list of ndarray of shape (d_k, d_k)
        The metrics :math:`\Sigma_k`, built when they are asked for.
    components_ : ndarray of shape (n_features_out, n_features)
        Projection of flat rows: the Kronecker product of the factors, computed on access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row.
    n_components_ : tuple of int
        Number of components in each mode.
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    objective_ : float
        The objective, with sharp hinges over all points.
    n_active_ : int
        The number of triplets whose hinge is above zero.
    history_ : dict
        "objective" (with hinges as they were rounded, over the pairs listed then), "step",
        "active" and "seconds", after every step.
    n_iter_ : int
        Steps of all modes together, of which ``max_iter`` counts twenty as one.
    converged_ : bool
        Whether it stopped by itself.

    See Also
    --------
    LMNN, GTDA, TR1DA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 4.3.4.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       chapter 2.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import MDML
    >>> images, y = load_digits().images / 16, load_digits().target
    >>> mdml = MDML().fit(images[:300], y[:300])
    >>> [S.shape for S in mdml.metrics_]
    [(8, 8), (8, 8)]
    >>> mdml.transform(images).shape[1] <= 64
    True
    """

    learner_tags = LearnerTags(reads="supervision", input="tensors")
    state = State(
        {
            "classes_": labels("c"),
            "objective_": number(0),
            "n_active_": whole(),
            "n_iter_": whole(),
            "converged_": flag,
        }
    )
    settings = ({"push": 0.1},)
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "push": [real(0, open_low=True)],
        "n_components": N_COMPONENTS_OF_MODES,
        "init": [one_of("identity"), _MATRICES],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
    }

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        push: float = 1.0,
        n_components: int | tuple[int, ...] | None = None,
        init: Literal["identity"] | Sequence[ArrayLike] = "identity",
        max_iter: int = 50,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push = push
        self.n_components = n_components
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.tensor_shape = tensor_shape
        self.flatten = flatten

    @property
    def metrics_(self) -> list[Floats]:
        """The metric of each mode."""
        if "factors_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'metrics_'")
        return [U @ U.T for U in self.factors_]

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the metrics.

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
        T = self._check_tensors(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(T))
        wanted = self._wanted_components(T.shape[1:])
        given = self._given_start(T.shape[1:], wanted)
        check_squares(T)
        # In an order of their own: sums round alike in whatever order samples come.
        flat = np.ascontiguousarray(T.reshape(len(T), -1), np.float64)
        order = np.lexsort((flat.sum(axis=1), codes))
        flat, codes = flat[order], codes[order]
        mean = flat.mean(axis=0)
        stack = (flat - mean).reshape(T.shape)
        size, digits = float(np.abs(stack).max()), 1e-14 if T.dtype == np.float64 else 1e-6
        if size <= digits * float(np.abs(T).max()):
            raise ValueError("MDML: all samples are equal in X, so that there is nothing to learn.")
        targets = chosen_targets(
            stack.reshape(len(T), -1), codes, classes, self.n_neighbors, "MDML"
        )
        bases = [_white_basis(stack, mode, digits) for mode in range(stack.ndim - 1)]
        stack = np.ascontiguousarray(project_stack(stack, bases))
        start = _start(bases, wanted, given)
        weight = self.push / (1 + self.push)
        problem = ModeMetrics(stack, [len(W) for W in start], codes, targets, weight)
        self.classes_ = classes
        progress = Progress(np.concatenate([W.ravel() for W in start]), report=report_of(self))
        try:
            with blas_for(2.0 * stack.size * max(stack.shape[1:])):
                limit = _ROUND * self.max_iter
                self.converged_ = problem.solve(progress, max_iter=limit, tol=self.tol)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            parts = problem.parts(progress.L)
            factors = [Q @ W.T for Q, W in zip(bases, parts, strict=True)]
            self._keep_factors(_canonical(factors), mean, T.dtype)
            self.n_iter_ = progress.n_iter
            self.history_ = progress.history
            # The problem divides by 1 + c.
            self.history_["objective"] = [
                (1 + self.push) * value for value in self.history_["objective"]
            ]
        problem.search(progress.L)
        final = problem.objective(progress.L)
        self.objective_, self.n_active_ = (1 + self.push) * final.loss, final.n_active
        if final.loss >= (1 - 1e-4) * problem.loss_of_nothing() > 0:
            warn(
                f"MDML: with push={self.push} metrics of zero are as good as any: of most points "
                "impostors are nearer than the targets. Use a larger push, or fewer n_neighbors."
            )
        if not self.converged_:
            warn_of_limit("MDML", self.max_iter)
        return self

    def _given_start(self, shape: Sequence[int], wanted: list[int] | None) -> list[Matrix] | None:
        if isinstance(self.init, str):
            return None
        matrices = [np.asarray(W, float) for W in self.init]
        sizes = list(zip(wanted or shape, shape, strict=True))
        if [W.shape for W in matrices] != sizes or not all(np.isfinite(W).all() for W in matrices):
            raise ValueError(
                f"MDML: init holds arrays of shapes {[W.shape for W in matrices]}; give finite "
                f"ones of shapes {sizes}."
            )
        return matrices


def _white_basis(stack: Floats, mode: int, empty: float) -> Matrix:
    """Orthogonal columns (d_k, r) in which a mode varies, the largest scatter first, all alike.

    In directions in which nothing varies there is nothing to measure. In the others the descent
    takes a fifth of the steps where their scatters are alike; those next to nothing are not blown
    up to the size of the rest.
    """
    Q = varying_basis(stack, mode, empty)
    scatter = np.einsum("ij,ij->j", Q, mode_scatter(stack, mode) @ Q)
    return np.asarray(Q / np.sqrt(scatter / scatter.mean() + _LEAST_SCATTER))


def _start(
    bases: Sequence[Matrix], wanted: list[int] | None, given: list[Matrix] | None
) -> list[Matrix]:
    """Matrices (q_k, r_k) to begin with, for tensors in the bases."""
    start = []
    for k, Q in enumerate(bases):
        r = Q.shape[1]
        rows = min(wanted[k], r) if wanted else r
        lengths = linalg.norm(Q, axis=0)
        if given is None:
            start.append(np.eye(rows, r) / lengths)
            continue
        # As many rows as can differ give the same metric.
        W = given[k] @ (Q / lengths**2)
        W = linalg.qr(W, mode="r")[0][:rows] if len(W) > rows else W
        if not W.any():
            raise ValueError("MDML: init holds a matrix of zeros where X varies: no way leads out.")
        start.append(W)
    return start


def _canonical(factors: Sequence[Matrix]) -> list[Matrix]:
    """The same distances: orthogonal columns, the longest first, one mean square in all modes."""
    axes = [linalg.svd(U, full_matrices=False)[:2] for U in factors]
    sizes = np.array([np.sqrt(np.mean(singular**2)) for _, singular in axes])
    common = float(np.exp(np.mean(np.log(sizes)))) if sizes.all() else 0.0
    return [
        signed_columns(A) * (singular * (common / size if common else 1.0))
        for (A, singular), size in zip(axes, sizes, strict=True)
    ]
