"""Large margin nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.progress import report_of
from nearfar.base.voter import vote
from nearfar.blocks import blas_for, effective_threads
from nearfar.large_margin.held_out import Watch, hold_out
from nearfar.large_margin.impostors import check_targets, chosen_targets
from nearfar.large_margin.problem import (
    GivenTriplets,
    LargeMargin,
    Progress,
    duality_gap,
)
from nearfar.large_margin.projected_subgradient import projected_subgradient
from nearfar.mahalanobis.starts import (
    STARTS,
    Spread,
    check_start,
    has_few_rows,
    in_coordinates,
    spread_of,
    start_map,
)
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import descending_eigh
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.supervision import Triplets
from nearfar.summaries.whitening import unscaled, whitened

#: What relatives of LMNN have of the one they fitted.
TAKEN_OVER = ("target_neighbors_", "objective_", "dual_bound_", "duality_gap_")
#: With fewer rows for each feature than this, a full map overfits unless it is stopped early.
FEW_ROWS = 20


class LMNN(LinearLearner):
    r"""Large margin nearest neighbours: pull a point's neighbours in, push other classes out.

    For each point i the k nearest points j of its class are its targets, fixed before training.
    LMNN minimises over the linear map L, with :math:`D_{ij} = \|L(x_i - x_j)\|^2`,

    .. math::
        \varepsilon(L) = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l: y_l \ne y_i} [1 + D_{ij} - D_{il}]_+ .

    In :math:`M = L^T L` the problem is convex. It is solved over L by L-BFGS in whitened
    coordinates, so that the units of the features do not matter to the solver, with hinges that
    are rounded at first and sharpened on the way, over a working set of impostors that is complete
    at the end. A square map that has lost rank is checked for a direction of descent in M before
    it is accepted. ``dual_bound_`` is a proven lower bound on what any map could reach, and
    ``duality_gap_`` how far above it the solution is.

    Use it with labels when nearest neighbours are what you want: it makes no assumption about the
    shape of classes, only about their neighbourhoods. The targets are chosen by the Euclidean
    distance of the data as given, so scale features of different units first. With few points a
    class and many features it overfits; ``validation_fraction`` stops it in time.

    Cost: O(n² r) for each of a few full impostor searches, in blocks, r being the rows of L;
    O(a r + n p r) for each of the evaluations in between, a being the number of active impostor
    pairs. No n×n array.

    Parameters
    ----------
    n_neighbors : int, default=3
        Targets of each point; classes with fewer points give fewer.
    push_weight : float in (0, 1], default=0.5
        The weight μ of the push term; with 0 the best map would be zero.
    n_impostors : int or None, default=None
        Count only so many impostors of each point, the nearest; None counts all, as the work [1]_
        does. Where classes overlap, points deep in another class then weigh less, and there are
        fewer errors as a rule. The problem stays convex, and the bound is for it. Where nearly all
        of them are nearer than the targets the best map is zero, and a warning says so. Of no
        effect on given triplets, nor on the energy rule, which counts all impostors.
    n_components : int or None, default=None
        Dimension of the output: the rows of L; None learns a square map.
    reduction : {"learned", "pca", "truncate"}, default="learned"
        How to come to ``n_components`` rows: optimise the rectangle itself, which is no longer a
        convex problem; or learn a square map and keep the principal axes of the mapped data, or
        the leading eigenvectors of M. Of no effect on a square map.
    structure : {"full", "diagonal"}, default="full"
        "diagonal" learns one factor a feature, on the features as they are.
    init : str or array of shape (n_components, n_features), default="auto"
        Where to start: "identity" is the Euclidean distance, "pca" the standardised principal axes,
        "lda" the directions in which class means differ, "within" all directions, whitened by the
        within-class covariance, "random" random numbers. "auto" is "within" where there are three
        times as many rows as features and "pca" where there are fewer; with
        ``validation_fraction`` it is "identity", so that stopping early means staying close to the
        plain distance. (For the same reason the descent then is in plain coordinates where rows
        are few.)
    solver : {"lbfgs", "projected_subgradient"}, default="lbfgs"
        The second is the algorithm of the work [1]_, for comparison: it stalls where features
        have different scales.
    max_iter : int, default=1000
        Steps at most: over all rounds.
    tol : float, default=1e-6
        Stops when an iteration lowers the objective by less than this share. Rounded hinges are
        sharpened until they count for less than 100 times it.
    validation_fraction : float in [0, 1), default=0
        Share of the rows held out: by class, to stop early. Their k-NN error is looked at every 10
        iterations, and the map with the fewest is kept.
    patience : int, default=10
        So many looks without fewer errors end the fit.
    refit : bool, default=False
        Fit all rows again for as many iterations as early stopping found best.
    warm_start : bool, default=False
        Start from the last fit: from its map, if there was one of the same shape.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the rows held out, and a random start; the default gives the same
        every time. The solver draws nothing.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They search for impostors.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        ε at the solution, over all impostors.
    dual_bound_ : float
        No square map has a lower ε than this; with ``structure="diagonal"`` no diagonal one.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``; 0 is proof of the optimum.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Row numbers of the targets, nearest first; -1 where a class has too few points, and for
        rows held out. Not there after a fit with triplets.
    n_active_ : int
        Hinges that are positive at the solution.
    n_iter_ : int
        Iterations.
    history_ : dict of lists
        "objective", "step", "active" and "seconds" of each iteration. This objective is what the
        solver sees: with rounded hinges, over the impostors listed so far, and at first over a
        sample of centres.
    validation_errors_ : list of float
        k-NN errors of the rows held out, look by look; empty without.
    classes_ : ndarray of shape (n_classes,)
        The labels; not there after a fit with triplets.

    Notes
    -----
    Without a single impostor the pull shrinks the map until the margin is met: the optimum is where
    the nearest other classes come within the margin. Points of a class of one have no targets; they
    are impostors to others all the same. In float32 data the solution is as good as float32 lets
    it be, some 1e-6.

    See Also
    --------
    MultiPassLMNN, MultiMetricLMNN, KernelLMNN, EnergyClassifier

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
    >>> bool(LMNN().fit(X, y).duality_gap_ < 0.05)
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "triplets"))
    settings = ({"n_neighbors": 1},)
    renamed_values: ClassVar = {"solver": {"projected-subgradient": "projected_subgradient"}}
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "push_weight": [real(0, 1, open_low=True)],
        "n_impostors": [none, integer(1)],
        "n_components": [none, integer(1)],
        "reduction": [one_of("learned", "pca", "truncate")],
        "structure": [one_of("full", "diagonal")],
        "init": STARTS,
        "solver": [one_of("lbfgs", "projected_subgradient")],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "validation_fraction": [real(0, 0.9)],
        "patience": [integer(1)],
        "refit": [boolean],
        "warm_start": [boolean],
        "random_state": [random_state],
        "n_jobs": [none, integer(1), integer(high=-1)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        push_weight: float = 0.5,
        n_impostors: int | None = None,
        n_components: int | None = None,
        reduction: Literal["learned", "pca", "truncate"] = "learned",
        structure: Literal["full", "diagonal"] = "full",
        init: str | ArrayLike = "auto",
        solver: Literal["lbfgs", "projected_subgradient"] = "lbfgs",
        max_iter: int = 1000,
        tol: float = 1e-6,
        validation_fraction: float = 0.0,
        patience: int = 10,
        refit: bool = False,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_impostors = n_impostors
        self.n_components = n_components
        self.reduction = reduction
        self.structure = structure
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def settings_for(cls, n_rows: int, n_features: int) -> Sequence[dict[str, Any]]:
        """The defaults; but stopped early first where rows are few for the p² numbers of a map."""
        if n_rows >= FEW_ROWS * n_features:
            return super().settings_for(n_rows, n_features)
        stopped = {"n_impostors": 3, "validation_fraction": 0.2, "patience": 3, "refit": True}
        return (stopped, {})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        target_neighbors: ArrayLike | None = None,
        supervision: Triplets | None = None,
    ) -> Self:
        """Learn the map from labelled points, or from triplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels; not read when triplets are given.
        target_neighbors : array-like of int of shape (n_samples, k), optional
            Row numbers of each point's targets, of its own class; -1 for none. None takes the
            ``n_neighbors`` nearest.
        supervision : Triplets, optional
            (centre, target, impostor): exactly these hinges make the push term, and each pair of
            centre and target among them is pulled. No impostor is searched for.

        Returns
        -------
        LMNN
            Itself.
        """
        start_from = self.__dict__.get("components_") if self.warm_start else None
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        self.validation_errors_: list[float] = []
        self._check_combination(supervision, target_neighbors)
        if supervision is not None:
            return self._fit_triplets(rows, supervision, start_from)
        classes, codes = self._check_labels(y, len(rows))
        trained = np.arange(len(rows))
        held = trained[:0]
        if self.validation_fraction > 0:
            trained, held = hold_out(codes, self.validation_fraction, self.random_state)
        if target_neighbors is None:
            targets = self._choose_targets(rows[trained], codes[trained], classes)
        else:
            targets = check_targets(target_neighbors, codes)[trained]
            if len(held):
                raise ValueError("target_neighbors cannot be given with validation_fraction.")
        held_rows = (rows[held], codes[held]) if len(held) else None
        plain = len(held) > 0 and has_few_rows(len(trained), len(classes), rows.shape[1])
        self._learn(rows[trained], codes[trained], targets, held_rows, start_from, plain=plain)
        if len(held) and self.refit:
            trained = np.arange(len(rows))
            targets = self._choose_targets(rows, codes, classes)
            self._learn(rows, codes, targets, None, None, self._best_iteration, plain=plain)
        self.classes_ = classes
        self.target_neighbors_ = np.full((len(rows), targets.shape[1]), -1, dtype=np.intp)
        self.target_neighbors_[trained] = np.where(targets >= 0, trained[targets], -1)
        return self

    def _check_combination(self, supervision: Any, target_neighbors: Any) -> None:
        if self.structure == "diagonal" and self.n_components is not None:
            raise ValueError('structure="diagonal" keeps every feature; leave n_components out.')
        if self.solver == "projected_subgradient":
            learned = self.n_components is not None and self.reduction == "learned"
            for unfit, what in (
                (self.structure == "diagonal", 'structure="diagonal"'),
                (learned, 'n_components with reduction="learned"'),
                (supervision is not None, "triplets"),
                (self.validation_fraction > 0, "early stopping (validation_fraction)"),
            ):
                if unfit:
                    raise ValueError(f'solver="projected_subgradient" does not do {what}.')
        if supervision is None:
            return
        if not isinstance(supervision, Triplets):
            raise ValueError(
                "LMNN learns from labels or triplets: supervision must be Triplets; got "
                f"{type(supervision).__name__}."
            )
        if target_neighbors is not None or self.validation_fraction > 0:
            raise ValueError("With triplets there are no target_neighbors and nothing is held out.")

    # Supervision

    def _choose_targets(
        self, rows: Floats, codes: Indices, classes: NDArray[Any]
    ) -> NDArray[np.intp]:
        return chosen_targets(rows, codes, classes, self.n_neighbors, "LMNN")

    # Learning

    def _learn(
        self,
        rows: Floats,
        codes: Indices,
        targets: Indices,
        held: tuple[Floats, Indices] | None,
        start_from: Floats | None,
        max_iter: int | None = None,
        *,
        plain: bool = False,
    ) -> None:
        if self.solver == "projected_subgradient":
            self._learn_by_subgradients(rows, codes, targets)
            return
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        white, points = self._coordinates(rows, statistics, plain)
        problem = LargeMargin(
            points,
            codes,
            targets,
            self.push_weight,
            n_threads=effective_threads(self.n_jobs),
            structure=self.structure,
            nearest=self.n_impostors,
        )
        watch = None
        if held is not None:
            unseen = (held[0] - self.mean_).astype(np.float64)
            unseen = unseen * white if white.ndim == 1 else unseen @ white
            watch = Watch(
                partial(_knn_error, problem, codes, unseen, held[1], self.n_neighbors),
                self.patience,
            )
        self._solve(problem, white, self._start(statistics, white, start_from), watch, max_iter)

    def _fit_triplets(self, rows: Floats, triplets: Triplets, start_from: Floats | None) -> Self:
        triplets.check_n_samples(len(rows))
        if len(triplets.indices) == 0:
            raise ValueError("There are no triplets to learn from.")
        codes = np.zeros(len(rows), dtype=np.intp)
        statistics = ClassStatistics(pooled=True, exact=True).add(rows, np.arange(1), codes)
        white, points = self._coordinates(rows, statistics, False)
        problem = GivenTriplets(
            points, triplets.indices, self.push_weight, structure=self.structure
        )
        self._solve(problem, white, self._start(statistics, white, start_from), None, None)
        return self

    def _coordinates(
        self, rows: Floats, statistics: ClassStatistics, plain: bool
    ) -> tuple[Matrix, NDArray[np.float64]]:
        """A map to coordinates for the solver (factors, for a diagonal structure), and the points.

        They are white unless they should be ``plain``.
        """
        self.mean_ = statistics.mean.astype(rows.dtype)
        if self.structure == "full":
            return (unscaled if plain else whitened)(rows, statistics)
        centered = (rows - self.mean_).astype(np.float64)
        spread = centered.std(axis=0)
        factors = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        return factors, centered * factors

    def _solve(
        self,
        problem: LargeMargin,
        white: Matrix,
        start: Matrix,
        watch: Watch | None,
        max_iter: int | None,
    ) -> None:
        if watch is not None or max_iter == 0:
            start = problem.rescaled(start)  # it may be the best there is
        progress = Progress(start, watch=watch, report=report_of(self))
        if watch is not None:
            watch.look(start)
        limit = self.max_iter if max_iter is None else max_iter
        converged = True
        try:
            if limit > 0:
                with blas_for(2.0 * problem.points.size * len(start)):
                    converged = problem.solve(progress, max_iter=limit, tol=self.tol)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            if watch is not None and watch.best is not None:
                progress.L = watch.best
            self._keep(progress, white)
        if watch is not None:
            self.validation_errors_ = watch.errors
            self._best_iteration = watch.best_iteration
        if watch is not None or limit == 0:
            problem.search(progress.L)
        self.dual_bound_ = problem.dual_bound(progress.L)
        L = progress.L
        if self.n_components is not None and self.reduction != "learned":
            L = self._reduced(problem, L, white)
            self.components_ = (L @ white.T).astype(self.mean_.dtype)
            problem.search(L)
        final = problem.objective(L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.duality_gap_ = duality_gap(self.dual_bound_, self.objective_)
        if self.n_impostors is not None and final.loss >= (1 - 1e-4) * problem.loss_of_nothing():
            warn(
                f"With n_impostors={self.n_impostors} the best map is all but zero: of most points "
                "so many impostors are nearer than the targets. Let more of them count.",
            )
        if not converged and max_iter is None:
            warn_of_limit("LMNN", self.max_iter)

    def _keep(self, progress: Progress, white: Matrix) -> None:
        if self.structure == "diagonal":
            components = np.diag(progress.L * white)
        else:
            components = progress.L @ white.T
        self.components_ = components.astype(self.mean_.dtype)
        self.history_ = progress.history
        self.n_iter_ = progress.n_iter

    def _reduced(self, problem: LargeMargin, L: Matrix, white: Matrix) -> Matrix:
        """The square map cut to ``n_components`` rows: U'L for some orthonormal columns U."""
        assert self.n_components is not None
        if self.reduction == "pca":
            Z = problem.mapped(L, problem.points)
            Z = Z - Z.mean(axis=0)
            spread = Z.T @ Z
        else:  # with A = L white' and M = A'A, the leading left singular vectors of A
            spread = L @ white.T @ white @ L.T
        _, axes = descending_eigh(spread, min(self.n_components, len(L)))
        cut = axes.T @ L
        # Rows beyond the rank of the data stay zero.
        return np.vstack([cut, np.zeros((self.n_components - len(cut), L.shape[1]))])

    def _learn_by_subgradients(self, rows: Floats, codes: Indices, targets: Indices) -> None:
        self.mean_ = rows.mean(axis=0).astype(rows.dtype)
        points = (rows - self.mean_).astype(np.float64)
        found = projected_subgradient(
            points, codes, targets, self.push_weight, max_iter=self.max_iter, tol=self.tol
        )
        problem = LargeMargin(points, codes, targets, self.push_weight)
        L = found.L
        problem.search(L)
        self.dual_bound_ = problem.dual_bound(L)
        if self.n_components is not None:
            L = self._reduced(problem, L, np.eye(L.shape[1]))
            problem.search(L)
        final = problem.objective(L)
        self.components_ = L.astype(rows.dtype)
        self.history_, self.n_iter_ = found.history, len(found.history["objective"])
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.duality_gap_ = duality_gap(self.dual_bound_, self.objective_)
        if not found.converged:
            warn(
                f"The projected subgradient did not converge in {self.max_iter} iterations.",
                ConvergenceWarning,
            )

    # Where to start

    def _start(
        self, statistics: ClassStatistics, white: Matrix, start_from: Floats | None
    ) -> Matrix:
        """The first L in whitened coordinates."""
        p = statistics.n_features
        size = None if self.reduction != "learned" else self.n_components
        if self.n_components is not None and self.n_components > p:
            raise ValueError(
                f"n_components={self.n_components} is more than the {p} features of X."
            )
        init = self.init
        if start_from is not None and start_from.shape == (p if size is None else size, p):
            init = start_from
        spread = spread_of(statistics)
        if self.structure == "diagonal":
            return self._diagonal_start(init, spread, white)
        few = has_few_rows(statistics.total_weight, statistics.n_classes, white.shape[1])
        auto = "identity" if self.validation_fraction > 0 else "pca" if few else "within"
        start = start_map(init, spread, size, auto=auto, random_state=self.random_state)
        return in_coordinates(start, white, square=size is None)

    def _diagonal_start(self, init: str | ArrayLike, spread: Spread, white: Matrix) -> Matrix:
        """One factor for each standardised feature."""
        used = white > 0
        if not isinstance(init, str) or init == "random":
            given = start_map(init, spread, None, auto="", random_state=self.random_state)
            start = np.where(used, np.diag(given) / np.where(used, white, 1.0), 0.0)
            check_start(start)
            return start
        if init == "lda":
            raise ValueError('init="lda" is no start of structure="diagonal"; use "within".')
        start = used.astype(np.float64)
        if init == "identity" or (init == "auto" and self.validation_fraction > 0):
            start[used] = 1 / white[used]
        elif init != "pca":
            assert spread.within is not None
            within = np.diag(spread.within) * white**2
            # A feature that is constant within classes gets a large factor, not an infinite one.
            start[used] = 1 / np.sqrt(np.maximum(within[used], 1e-4))
        return start


class OverLMNN:
    """A learner that fits LMNN to something: what it has of it, for the energy rule too."""

    estimator: LMNN | None

    @property
    def n_neighbors(self) -> int:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).n_neighbors

    @property
    def push_weight(self) -> float:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).push_weight

    def _take_over(self, lmnn: LMNN) -> None:
        for name in TAKEN_OVER:
            setattr(self, name, getattr(lmnn, name))


def lmnn_of(estimator: LMNN | None) -> LMNN:
    """A copy of the LMNN that a relative of it was given; with None, one of the defaults."""
    if estimator is None:
        return LMNN()
    if not isinstance(estimator, LMNN):
        raise TypeError(f"estimator must be an LMNN; got {type(estimator).__name__}.")
    return clone(estimator)


def _knn_error(
    problem: LargeMargin,
    codes: Indices,
    unseen: Matrix,
    truth: Indices,
    n_neighbors: int,
    L: Matrix,
) -> float:
    points, queries = problem.mapped(L, problem.points), problem.mapped(L, unseen)
    _, nearest = kneighbors(points, queries, n_neighbors=min(n_neighbors, len(points)))
    winners = vote(codes[nearest], int(codes.max()) + 1, "shrink")
    return float(np.mean(winners != truth))
