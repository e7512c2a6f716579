"""Large margin nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL, OnAxes
from nearfar.large_margin.held_out import WATCH_EVERY, Watch, mean_errors
from nearfar.large_margin.impostors import check_class_sizes, check_targets
from nearfar.large_margin.problem import GivenTriplets, duality_gap
from nearfar.mahalanobis.lmnn_defaults import (
    LOOKS,
    MOST_OF_NOTHING,
    Choice,
    check_combination,
    decided,
    n_directions,
    splits_of,
)
from nearfar.mahalanobis.lmnn_run import Run, SubgradientRun, reduced
from nearfar.mahalanobis.starts import STARTS, has_few_rows
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.summaries.supervision import Triplets

# The tolerance of passes that only choose the targets of the next.
_ROUGH = 1e-4


class LMNN(OnAxes):
    r"""Large margin nearest neighbours: pull a point's neighbours in, push other classes out.

    For each point i the k nearest points j of its class are its targets. LMNN minimises over the
    linear map L, with :math:`D_{ij} = \|L(x_i - x_j)\|^2`,

    .. math::
        \varepsilon(L) = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l \in I_i} [1 + D_{ij} - D_{il}]_+ .

    In the work [1]_ the impostors :math:`I_i` are all points of other classes and the targets are
    fixed before training: ``LMNN(n_impostors=None, n_passes=1, validation_fraction=0.0)`` is that
    problem. Fewer errors are made, as a rule, where only the three nearest points of other classes
    count and the targets are chosen once more by the metric learned: that is the default. Where
    rows are few for the features it is stopped early besides; where they are many, the plain
    distance stays if by it their nearest others label fewer of them wrongly. What was decided can
    be seen in ``n_impostors_``, ``n_passes_`` and ``validation_fraction_``; the evidence is in the
    guide.

    In :math:`M = L^T L` the problem is convex. It is solved over L by L-BFGS in whitened
    coordinates, so that the units of the features do not matter to the solver, with hinges that
    are rounded at first and sharpened on the way, over a working set of impostors that is complete
    at the end. A square map that has lost rank is checked for a direction of descent in M before
    it is accepted. ``dual_bound_`` is a proven lower bound on what any map could reach, and
    ``duality_gap_`` how far above it the solution is.

    Use it with labels when nearest neighbours are what you want: it makes no assumption about the
    shape of classes, only about their neighbourhoods. The first targets are chosen by the Euclidean
    distance of the data as given, so scale features of different units first.

    Cost: O(n² r) for each of a few full impostor searches, in blocks, r being the rows of L;
    O(a r + n p r) for each of the evaluations in between, a being the number of active impostor
    pairs. No n×n array.

    Parameters
    ----------
    n_neighbors : int, default=3
        Targets of each point; classes with fewer points give fewer.
    push_weight : float in (0, 1], default=0.5
        The weight μ of the push term; with 0 the best map would be zero.
    n_impostors : int, None or "auto", default="auto"
        How many impostors count: of each point so many, the nearest; None is all, as in the work
        [1]_. Where classes overlap, points deep in another class weigh less the fewer count, and
        there are fewer errors as a rule. The problem stays convex, and the bound is for it. Where
        nearly all of them are nearer than the targets the best map is zero, and a warning says so.
        "auto" is 3; where the best map would be hardly better than none, 10, then all. Of no effect
        on given triplets.
    n_passes : int or "auto", default="auto"
        How many passes: the targets of the first are chosen by the rows, those of the next by the
        metric learned so far, from which it starts. "auto" is 2; it is 1 where targets are given
        and beyond 20,000 rows. With rows held out it is the most: a pass that makes no fewer errors
        does not count and is the last. By "auto", where "auto" holds none out as rows are many for
        a square map, passes are weighed: the plain distance, one pass and two, by how many rows (of
        5,000 at most) their nearest others label wrongly. The fewest win, of equals the last.
    n_components : int or None, default=None
        Dimension of the output: the rows of L; None learns a square map.
    n_principal : int, "auto" or None, default=None
        Principal components that are kept before anything is whitened: the map is learned along
        these axes, as behind :class:`PCA`, and ``components_`` is a map of X all the same. None is
        all. "auto" is None up to 128 features and 64 beyond, or as many as the map has rows. They
        depend on the units of the features.
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
        Steps at most: of each pass.
    tol : float, default=1e-6
        Stops when an iteration lowers the objective by less than this share. Rounded hinges are
        sharpened until they count for less than 100 times it. Passes that only choose targets stop
        at 1e-4; maps of 10,000 entries and more, of fewer rows than columns, at ten times it.
    validation_fraction : float in [0, 0.9] or "auto", default="auto"
        Share of the rows held out: by class, to stop early. Their k-NN error is looked at every 10
        iterations, and the map with the fewest is kept. "auto" is 0.2 where there are fewer than
        15 points for each row of a full map, which has no more than they have directions, else 0;
        up to 500 points each is held out once, in five parts, and up to 2,500 so many parts that
        500 are; iterations (30 a pass at most) then are those with the fewest errors on average.
    patience : int, default=3
        So many looks without fewer errors end the fit. Of no effect where several parts are held
        out in turn.
    refit : bool, default=True
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
        ε at the solution, over all impostors that count; of the last pass.
    dual_bound_ : float
        No square map has a lower ε than this; with ``structure="diagonal"`` no diagonal one.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``; 0 is proof of the optimum.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Row numbers of the targets of the last pass, nearest first; -1 where a class has too few
        points, and for rows held out. Not there after a fit with triplets.
    n_impostors_ : int or None
        How many impostors of each point counted; None for all.
    n_passes_ : int
        How many passes were made, and counted; 0 where the map stayed as it was given.
    validation_fraction_ : float
        Share of the rows held out to stop early; 0 where it went to the end.
    n_active_ : int
        Hinges that are positive at the solution.
    n_principal_ : int or None
        What "auto" was, or what was given.
    n_iter_ : int
        Iterations, of all passes.
    history_ : dict of lists
        "objective", "step", "active" and "seconds" of each iteration, pass after pass. This
        objective is what the solver sees: with rounded hinges, over the impostors listed so far,
        and at first over a sample of centres.
    validation_errors_ : list of float
        k-NN errors of the rows held out, look by look and pass after pass; empty without.
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
    >>> lmnn = LMNN(n_impostors=None, n_passes=1, validation_fraction=0.0).fit(X, y)
    >>> bool(lmnn.duality_gap_ < 0.05)
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "triplets"))
    settings = ({"n_neighbors": 1},)
    renamed_values: ClassVar = {"solver": {"projected-subgradient": "projected_subgradient"}}
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "push_weight": [real(0, 1, open_low=True)],
        "n_impostors": [none, integer(1), one_of("auto")],
        "n_passes": [integer(1), one_of("auto")],
        "n_components": [none, integer(1)],
        "n_principal": N_PRINCIPAL,
        "reduction": [one_of("learned", "pca", "truncate")],
        "structure": [one_of("full", "diagonal")],
        "init": STARTS,
        "solver": [one_of("lbfgs", "projected_subgradient")],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "validation_fraction": [real(0, 0.9), one_of("auto")],
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
        n_impostors: int | Literal["auto"] | None = "auto",
        n_passes: int | Literal["auto"] = "auto",
        n_components: int | None = None,
        n_principal: int | Literal["auto"] | None = None,
        reduction: Literal["learned", "pca", "truncate"] = "learned",
        structure: Literal["full", "diagonal"] = "full",
        init: str | ArrayLike = "auto",
        solver: Literal["lbfgs", "projected_subgradient"] = "lbfgs",
        max_iter: int = 1000,
        tol: float = 1e-6,
        validation_fraction: float | Literal["auto"] = "auto",
        patience: int = 3,
        refit: bool = True,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_impostors = n_impostors
        self.n_passes = n_passes
        self.n_components = n_components
        self.n_principal = n_principal
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
        check_combination(self, supervision, target_neighbors)
        if self._fitted_on_axes(
            rows, start_from, y, target_neighbors=target_neighbors, supervision=supervision
        ):
            return self
        if supervision is not None:
            return self._fit_triplets(rows, supervision, start_from)
        self.classes_, codes = self._check_labels(y, len(rows))
        directions = n_directions(rows)
        choice = decided(self, codes, directions, given=target_neighbors is not None)
        targets = None
        if target_neighbors is None:
            check_class_sizes(codes, self.classes_, self.n_neighbors, "LMNN")
        else:
            targets = check_targets(target_neighbors, codes)
            if choice.validation_fraction > 0:
                raise ValueError("target_neighbors cannot be given with validation_fraction.")
        self.validation_fraction_ = choice.validation_fraction
        for n_impostors in choice.impostors:
            self.n_impostors_ = n_impostors
            if not self._fit_labels(rows, codes, directions, targets, choice, start_from):
                return self
        warn(
            f"With n_impostors={self.n_impostors} the best map is all but zero: of most points "
            "so many impostors are nearer than the targets. Let more of them count.",
        )
        return self

    def _fit_labels(
        self,
        rows: Floats,
        codes: Indices,
        directions: int,
        targets: Indices | None,
        choice: Choice,
        start_from: Floats | None,
    ) -> bool:
        """With so many impostors, to the end or stopped in time; True where the map vanished."""
        trained = np.arange(len(rows))
        limits = [self.max_iter] * choice.n_passes
        if self.solver == "projected_subgradient":
            return self._learn(SubgradientRun(self, rows, codes), trained, limits, targets)
        if choice.validation_fraction == 0:
            run = Run(self, rows, codes, start_from)
            vanished = self._learn(run, trained, limits, targets)
            if choice.weigh and not vanished:
                self._weigh(run, trained)
            return vanished
        n_trained = (1 - choice.validation_fraction) * len(rows)
        few = has_few_rows(n_trained, len(self.classes_), directions)
        splits = splits_of(codes, choice, self.random_state)
        runs = [
            Run(self, rows[some], codes[some], start_from, early=True, few=few)
            for some, _ in splits
        ]
        unseen = [(rows[held], codes[held]) for _, held in splits]
        limits = self._best_limits(runs, unseen, choice.n_passes)
        if not self.refit:
            self.n_passes_ = sum(limit > 0 for limit in limits)
            return self._certify(runs[0], splits[0][0], len(rows))
        run = Run(self, rows, codes, None, early=True, few=few)
        return self._learn(run, trained, limits)

    def _best_limits(
        self, runs: list[Run], unseen: list[tuple[Floats, Indices]], n_passes: int
    ) -> list[int]:
        """Iterations of each pass that serve rows held out best: of some splits, on average.

        The runs are left there. A pass that brings nothing does not count and is the last.
        """
        alone = len(runs) == 1
        limits: list[int] = []
        cut_off = False
        for _ in range(n_passes):
            watches, before = [], [(run.L, run.problem) for run in runs]
            for run, rows in zip(runs, unseen, strict=True):
                run.begin()
                watches.append(run.watch(rows, self.patience if alone else LOOKS + 1))
                limit = self.max_iter if alone else min(self.max_iter, LOOKS * WATCH_EVERY)
                ended = self._descend(run, limit, self.tol, watches[-1])
                cut_off |= limit == self.max_iter and not ended
            errors = mean_errors(watches)
            best = int(np.argmin(errors))
            cut_off &= best == len(errors) - 1  # errors that had risen again ended it in time
            self.validation_errors_ += errors
            if best == 0 and limits:
                for run, (L, problem) in zip(runs, before, strict=True):
                    run.progress.L, run.problem = L, problem
                break
            limits.append(best * WATCH_EVERY)
            for run, watch in zip(runs, watches, strict=True):
                run.progress.L = watch.maps[min(best, len(watch.maps) - 1)]
            if best == 0 or errors[best] == 0:
                break  # the same targets again, or nothing to gain
        if cut_off:
            warn_of_limit("LMNN", self.max_iter)
        self._keep(runs[0])
        return limits

    # Learning

    def _learn(
        self, run: Run, trained: Indices, limits: Sequence[int], targets: Indices | None = None
    ) -> bool:
        """Pass after pass, each with its limit of iterations; True where the map vanished."""
        for number, limit in enumerate(limits):
            run.begin(targets if number == 0 else None)
            # What only chooses targets need not be exact.
            tol = self.tol if number == len(limits) - 1 else max(self.tol, _ROUGH)
            converged = self._descend(run, limit, tol)
        if not converged and limits[-1] == self.max_iter:
            warn_of_limit(run.called, self.max_iter)
        self.n_passes_ = sum(limit > 0 for limit in limits)
        return self._certify(run, trained, len(trained))

    def _weigh(self, run: Run, trained: Indices) -> None:
        """Go back to one pass, or to the plain distance, where the rows err less by it."""
        maps = [*run.ends, run.L]
        errors = [run.errors(), *map(run.errors, maps)]
        best = min(range(len(errors)), key=lambda passes: (errors[passes], -passes))
        if best == len(maps):
            return
        self.n_passes_ = best
        run.begin(run.first_targets)
        if best == 0:
            self.components_ = run.keep_plain()
        else:
            run.progress.L = maps[0]
            if not self._descend(run, self.max_iter, self.tol):
                warn_of_limit(run.called, self.max_iter)
        self._certify(run, trained, len(trained))

    def _fit_triplets(self, rows: Floats, triplets: Triplets, start_from: Floats | None) -> Self:
        triplets.check_n_samples(len(rows))
        if len(triplets.indices) == 0:
            raise ValueError("There are no triplets to learn from.")
        self.n_impostors_, self.n_passes_, self.validation_fraction_ = None, 1, 0.0
        run = Run(self, rows, np.zeros(len(rows), dtype=np.intp), start_from)
        run.problem = GivenTriplets(
            run.points, triplets.indices, self.push_weight, structure=self.structure
        )
        if not self._descend(run, self.max_iter, self.tol):
            warn_of_limit("LMNN", self.max_iter)
        self._certify(run)
        return self

    def _descend(self, run: Run, limit: int, tol: float, watch: Watch | None = None) -> bool:
        try:
            return run.descend(limit, tol, watch)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            if watch is not None and watch.best is not None:
                run.progress.L = watch.best
            self._keep(run)

    def _keep(self, run: Run) -> None:
        self.mean_, self.components_ = run.mean, run.components(run.L)
        self.history_, self.n_iter_ = run.progress.history, run.progress.n_iter

    def _certify(self, run: Run, trained: Indices | None = None, n_samples: int = 0) -> bool:
        """What the map costs, and at least must cost; True where the best is all but zero."""
        problem, L = run.problem, run.L
        assert problem is not None
        if problem.targets is not problem.all_targets:
            problem.use_centers(None)
        if not problem.is_complete(L):
            problem.search(L)
        self.dual_bound_ = problem.dual_bound(L)
        if self.n_components is not None and self.reduction != "learned":
            L = reduced(self, problem, L, run.white)
            self.components_ = run.components(L)
            problem.search(L)
        final = problem.objective(L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.duality_gap_ = duality_gap(self.dual_bound_, self.objective_)
        if trained is not None:
            targets = problem.all_targets
            self.target_neighbors_ = np.full((n_samples, targets.shape[1]), -1, dtype=np.intp)
            self.target_neighbors_[trained] = np.where(targets >= 0, trained[targets], -1)
        # Impostors by "auto" become more before the map is quite zero.
        share = MOST_OF_NOTHING if self.n_impostors == "auto" else 0.9999
        return problem.nearest is not None and final.loss >= share * problem.loss_of_nothing()
