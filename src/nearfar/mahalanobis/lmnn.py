"""Large margin nearest neighbours."""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from nearfar.base import LearnerTags, LinearLearner
from nearfar.blocks import blas_for, effective_threads
from nearfar.neighbors.impostors import find_impostors, pair_list, target_neighbors
from nearfar.parameters import array, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import descending_eigh, whitener
from nearfar.solvers.triplet_loss import (
    Evaluation,
    PairList,
    full_loss,
    listed_loss,
    target_distances,
)
from nearfar.summaries.class_statistics import ClassStatistics, Floats
from nearfar.summaries.whitening import rank_tolerance, total_range, within_whitener

Matrix = NDArray[np.float64]

# Tuned on breast cancer and digits for the time of a whole fit; none of them moves the optimum.
_SLACK = 1.1  # pairs up to this multiple of the reach are listed with the active ones
_FIRST, _ROUND = 5, 20  # iterations before the next full search, at first and later
# Widths over which the kink of the hinge is rounded, each solved from the one before. The second
# leaves an error of 1e-5 to 1e-4; a small tol asks for sharper ones, see _widths.
_WIDTHS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)


class LMNN(LinearLearner):
    r"""Large margin nearest neighbours: pull a point's neighbours in, push other classes out.

    For each point i the k nearest points j of its class are its targets, fixed before training.
    LMNN minimises over the linear map L, with :math:`D_{ij} = \|L(x_i - x_j)\|^2`,

    .. math::
        \varepsilon(L) = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l: y_l \ne y_i} [1 + D_{ij} - D_{il}]_+ .

    In :math:`M = L^T L` the problem is convex. It is solved over L by L-BFGS in whitened
    coordinates, so that the units of the features do not matter to the solver, with hinges that
    are rounded at first and sharpened on the way, over an active set of impostors that a full
    search completes until it finds no further one. A square map that has lost rank is checked for
    a direction of descent in M before it is accepted.

    Use it with labels when nearest neighbours are what you want: it makes no assumption about the
    shape of classes, only about their neighbourhoods. The targets are chosen by the Euclidean
    distance of the data as given.

    Cost: O(n² p) for each full impostor search, in blocks; O(a p) for each of the evaluations in
    between, a being the number of active impostor pairs. No n×n array.

    Parameters
    ----------
    n_neighbors : int, default=3
        Targets of each point; classes with fewer points give fewer.
    push_weight : float in (0, 1], default=0.5
        The weight μ of the push term; with 0 the best map would be zero.
    n_components : int or None, default=None
        Rows of L; None learns a square map. A rectangular map is not a convex problem.
    init : {"auto", "identity", "pca", "within"} or array of shape (n_components, n_features)
        Where to start: the Euclidean distance, the principal axes, or the directions whitened by
        the within-class covariance. "auto" is "within".
    max_iter : int, default=1000
        Limit on L-BFGS iterations over all rounds.
    tol : float, default=1e-7
        Stops when an iteration lowers the objective by less than this share. The default came
        within 1e-4 of the optimum in all cases checked; 1e-10 also sharpens the hinges, for 1e-6.
    random_state : int, RandomState or None, default=None
        Not used by this solver; there so that seeds can be set on every learner alike.
    n_jobs : int or None, default=None
        Threads of the impostor search; None is 1, -1 all cores.
    verbose : int, default=0
        1 prints a line for each round.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        ε at the solution, over all impostors.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Row numbers of the targets, nearest first; -1 where a class has too few points.
    n_active_ : int
        Hinges that are positive at the solution.
    n_iter_ : int
        L-BFGS iterations.
    history_ : dict of lists
        "objective", "step", "active" and "seconds" of each iteration. This objective is what the
        solver sees: with rounded hinges, over the impostors listed so far.
    classes_ : ndarray of shape (n_classes,)
        The labels.

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007, sections 2.1.3 and
       2.1.7.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import KNNClassifier, LMNN
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(cross_val_score(KNNClassifier(), X, y).mean() < 0.75)
    True
    >>> bool(cross_val_score(KNNClassifier(LMNN()), X, y).mean() > 0.95)
    True
    """

    learner_tags = LearnerTags(kind="supervision")
    settings = ({"n_neighbors": 1},)
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "push_weight": [real(0, 1, open_low=True)],
        "n_components": [none, integer(1)],
        "init": [one_of("auto", "identity", "pca", "within"), array],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "random_state": [random_state],
        "n_jobs": [none, integer(1), integer(high=-1)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_neighbors: int = 3,
        push_weight: float = 0.5,
        n_components: int | None = None,
        init: str | ArrayLike = "auto",
        max_iter: int = 1000,
        tol: float = 1e-7,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_components = n_components
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from labelled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        LMNN
            Itself.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        self.target_neighbors_ = self._choose_targets(rows, codes)

        statistics = ClassStatistics(pooled=True, exact=True).add(rows, self.classes_, codes)
        basis, image = total_range(statistics, standardise=True)
        white = basis @ whitener(
            image.total_scatter() / statistics.total_weight, rank_tolerance(statistics)
        )
        self.mean_ = statistics.mean.astype(rows.dtype)
        points = (rows - self.mean_).astype(np.float64) @ white
        start = self._start(statistics, white)
        problem = _ActiveSet(
            points,
            codes,
            self.target_neighbors_,
            self.push_weight,
            effective_threads(self.n_jobs),
        )
        best = _Best(start)
        try:
            with blas_for(2.0 * points.size * len(start)):
                converged = self._minimise(problem, best)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            self.components_ = (best.L @ white.T).astype(rows.dtype)
            self.history_ = best.history
            self.n_iter_ = len(best.history["objective"])
        final = problem.objective(best.L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        if not converged:
            warnings.warn(
                f"LMNN did not converge in {self.max_iter} iterations, its limit; raise max_iter, "
                "or tol to be content with less.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _choose_targets(self, rows: Floats, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        sizes = np.bincount(codes)
        if sizes.max() < 2:
            raise ValueError(
                "LMNN needs a class with at least two points; each class of y has only 1 sample."
            )
        if sizes.min() <= self.n_neighbors:
            label = self.classes_.tolist()[int(np.argmin(sizes))]
            warnings.warn(
                f"Class {label!r} has {sizes.min()} points: fewer than n_neighbors + 1 = "
                f"{self.n_neighbors + 1}. Its points get as many targets as there are.",
                stacklevel=3,
            )
        return target_neighbors(rows, codes, self.n_neighbors)

    def _start(self, statistics: ClassStatistics, white: Matrix) -> Matrix:
        """The first L in whitened coordinates."""
        rank = white.shape[1]
        size = rank if self.n_components is None else self.n_components
        if size > statistics.n_features:
            raise ValueError(
                f"n_components={size} is more than the {statistics.n_features} features of X."
            )
        # L acts on whitened coordinates x' = white.T x: L white.T = A needs L = A pinv(white.T).
        unwhite = np.linalg.pinv(white.T)
        if not isinstance(self.init, str):
            try:
                given = np.asarray(self.init, dtype=np.float64)
            except ValueError as error:
                raise ValueError(f"init must be an array of numbers: {error}") from error
            wanted = (self.n_components or statistics.n_features, statistics.n_features)
            if given.shape != wanted:
                raise ValueError(f"init must have shape {wanted}; got {given.shape}.")
            if not np.isfinite(given).all():
                raise ValueError("init contains NaN or infinity.")
            if not (given @ unwhite).any():
                raise ValueError("init maps all of X to one point, from which no step leads away.")
            return np.asarray(given @ unwhite)
        # Rows beyond the rank of the data stay zero.
        start = np.zeros((size, rank))
        used = min(size, rank)
        if self.init == "pca":
            start[:used] = np.eye(used, rank)
        elif self.init == "identity":
            values, axes = descending_eigh(unwhite.T @ unwhite, used)
            start[:used] = np.sqrt(np.maximum(values, 0))[:, None] * axes.T
        else:
            T = within_whitener(statistics, "auto")
            _, axes = descending_eigh(statistics.project(T).between_scatter(), used)
            # T may leave out directions that are empty within classes.
            start[: axes.shape[1]] = (T @ axes).T @ unwhite
        return start

    def _minimise(self, problem: _ActiveSet, best: _Best) -> bool:
        """L-BFGS on ever sharper hinges, in rounds that each end with a full search."""
        began = perf_counter()
        best.L = problem.rescaled(best.L)
        for problem.smoothing in _widths(self.tol):
            problem.search(best.L, keep=False)
            limit, keep, last = _FIRST, False, np.inf
            while True:
                left = self.max_iter - len(best.history["objective"])
                result = problem.minimise(best, min(limit, left), self.tol, began)
                added = problem.search(best.L, keep=keep)
                objective = problem.objective(best.L).loss
                if self.verbose:
                    print(
                        f"LMNN: iteration {len(best.history['objective'])}, objective "
                        f"{objective:.6g}, {problem.n_pairs} impostor pairs, {added} added, "
                        f"{perf_counter() - began:.1f} s"
                    )
                if len(best.history["objective"]) >= self.max_iter:
                    return False
                settled = result.status != 1 and not added  # 1: iteration limit
                square = self.n_components is None
                if settled and not (square and problem.escape(best, self.tol)):
                    break
                limit = min(2 * limit, _ROUND) if added else max(_ROUND, 10 * limit)
                # The list is renewed while that helps; from then on it only grows, so that the
                # rounds come to an end.
                keep, last = keep or objective >= last, objective
        return True


def _widths(tol: float) -> tuple[float, ...]:
    """Rounding of the hinges, down to 1e5 tol: sharper would be wasted on a solver that coarse."""
    return _WIDTHS[:2] + tuple(width for width in _WIDTHS[2:] if width >= 1e5 * tol)


class _Best:
    """Where the solver is, kept up to date so that an interrupted fit leaves it behind."""

    def __init__(self, L: Matrix) -> None:
        self.L = L
        self.history: dict[str, list[float]] = {
            "objective": [],
            "step": [],
            "active": [],
            "seconds": [],
        }


class _ActiveSet:
    """The loss over the impostor pairs found so far, or over all when these are too many."""

    def __init__(
        self,
        points: Matrix,
        codes: NDArray[np.intp],
        targets: NDArray[np.intp],
        push_weight: float,
        n_threads: int,
    ) -> None:
        self.points, self.codes, self.targets = points, codes, targets
        self.push_weight, self.n_threads = push_weight, n_threads
        n = len(points)
        # Beyond about n²/20 pairs the dense blocks are faster than the list, and smaller.
        self.max_pairs = int(np.clip(n * n // 20, 10**5, 10**7))
        self.pairs: PairList | None = pair_list([], n)
        self.smoothing = 0.0

    @property
    def n_pairs(self) -> int | str:
        return "all" if self.pairs is None else len(self.pairs.indices)

    def rescaled(self, L: Matrix) -> Matrix:
        """L times the number that is best for it, judged by a sample of centres.

        Far above it the pull drives L down past the margin, where every hinge is active at once.
        """
        n, k = self.targets.shape
        Z = self.points @ L.T
        sample = np.unique(np.linspace(0, n - 1, min(n, max(30, 10**6 // (n * k)))).astype(int))
        reach = target_distances(Z, self.targets)[sample]
        centred = Z - Z.mean(axis=0)
        squares = np.einsum("ij,ij->i", centred, centred)
        distances = squares[sample, None] + squares - 2 * centred[sample] @ centred.T
        gaps = reach[:, :, None] - distances[:, None, :]
        valid = np.isfinite(reach)[:, :, None] & (self.codes[sample, None, None] != self.codes)
        # In the square s of the factor the loss is convex and piecewise linear. A hinge of gap
        # g < 0 is active while s < -1/g; from large s down, the slope loses what these add.
        gaps = gaps[valid]
        pull = (1 - self.push_weight) * float(reach[np.isfinite(reach)].sum())
        pull += self.push_weight * float(gaps[gaps > 0].sum())
        closing = np.sort(gaps[gaps < 0])[::-1]
        slopes = pull + self.push_weight * np.cumsum(closing)
        turning = int(np.searchsorted(-slopes, 0.0, side="right"))
        if turning >= len(closing) or pull <= 0:
            mean = float(reach[np.isfinite(reach)].mean())
            return L / np.sqrt(mean) if mean > 0 else L
        return L / np.sqrt(-closing[turning])

    def search(self, L: Matrix, *, keep: bool) -> int:
        """List every pair with an active hinge under L; returns how many hinges were missing.

        ``keep`` retains the pairs listed before, which makes the rounds end; without it the list
        stays as short as the map is good.
        """
        Z = self.points @ L.T
        reach = 1.0 + target_distances(Z, self.targets).max(axis=1)
        # Pairs a little outside come along: they are the next to become active.
        pairs = find_impostors(
            Z,
            self.codes,
            np.maximum(_SLACK * reach, reach + self.smoothing),
            max_pairs=self.max_pairs,
            n_threads=self.n_threads,
        )
        listed = self.evaluate(L).n_active
        if keep and pairs is not None and self.pairs is not None:
            lists = [(old.centres, old.indices) for old in (self.pairs, pairs)]
            pairs = pair_list(lists, len(Z))
        self.pairs = pairs if pairs and len(pairs.indices) <= self.max_pairs else None
        return self.evaluate(L).n_active - listed

    def objective(self, L: Matrix) -> Evaluation:
        """The objective itself, with sharp hinges."""
        return self.evaluate(L, smoothing=0.0)

    def evaluate(
        self, L: Matrix, smoothing: float | None = None, V: Matrix | None = None
    ) -> Evaluation:
        width = self.smoothing if smoothing is None else smoothing
        Z = self.points @ L.T
        if self.pairs is None:
            return full_loss(Z, self.codes, self.targets, self.push_weight, width, V)
        return listed_loss(Z, self.targets, self.pairs, self.push_weight, width, V)

    def escape(self, best: _Best, tol: float) -> bool:
        """Leave a stationary point of L that is no optimum of M = L'L; False if there is no way.

        Where L has lost rank its gradient 2LG vanishes although G, the gradient in M, may have a
        negative eigenvalue; along that eigenvector the convex problem still descends.
        """
        here = self.evaluate(best.L, V=self.points)
        values, vectors = np.linalg.eigh(self.points.T @ here.laplacian_v)
        # Rotated so that the last row carries the weakest direction, which the new one replaces.
        _, singular, axes = np.linalg.svd(best.L, full_matrices=False)
        rows = singular[:, None] * axes
        for length in singular[0] * np.array([0.3, 0.1, 0.03, 0.01]):
            rows[-1] = length * vectors[:, 0]
            if values[0] < 0 and self.evaluate(rows).loss < here.loss * (1 - 10 * tol):
                best.L = rows
                return True
        return False

    def minimise(self, best: _Best, max_iter: int, tol: float, began: float) -> Any:
        shape = best.L.shape
        last: Evaluation | None = None

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            nonlocal last
            last = self.evaluate(flat.reshape(shape))
            return last.loss, 2 * (last.laplacian_v.T @ self.points).ravel()

        def record(flat: NDArray[np.float64]) -> None:
            assert last is not None
            new = flat.reshape(shape).copy()
            best.history["objective"].append(last.loss)
            best.history["step"].append(float(np.linalg.norm(new - best.L)))
            best.history["active"].append(last.n_active)
            best.history["seconds"].append(perf_counter() - began)
            best.L = new

        return optimize.minimize(
            objective,
            best.L.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=record,
            options={"maxiter": max_iter, "ftol": tol, "gtol": 0.0, "maxcor": 20},
        )
