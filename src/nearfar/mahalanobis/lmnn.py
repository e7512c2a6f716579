"""Large margin nearest neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL, AxisLearner
from nearfar.large_margin.held_out import CHECK_INTERVAL, Watch, average_errors
from nearfar.large_margin.impostors import check_class_sizes, check_targets
from nearfar.large_margin.problem import FixedTriplets, compute_duality_gap
from nearfar.mahalanobis.lmnn_defaults import (
    MAX_CHECKS,
    NEAR_ZERO_LOSS,
    Choice,
    check_combination,
    count_directions,
    resolve_auto,
    split_for_validation,
)
from nearfar.mahalanobis.lmnn_run import Run, SubgradientRun, reduce_map_rows
from nearfar.mahalanobis.starts import STARTS, has_few_rows
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.summaries.supervision import Triplets

# Relative tolerance of every pass except the last. An earlier pass only chooses the targets of the
# next one, so it need not be exact.
_ROUGH_TOL = 1e-4


class LMNN(AxisLearner):
    r"""Large margin nearest neighbors: a linear map learned for k-nearest-neighbor classification.

    LMNN learns a linear map L under which the nearest neighbors of each point belong to its own
    class. The k nearest points j of the same class are the *targets* of point i, written
    :math:`j \leadsto i`. Points l of other classes are its *impostors*. With the squared distance
    :math:`D_{ij} = \|L(x_i - x_j)\|^2`, LMNN minimizes

    .. math::
        \varepsilon(L) = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l \in I_i} [1 + D_{ij} - D_{il}]_+ .

    The first term pulls the targets in. The second pushes away every impostor in :math:`I_i` that
    is not farther than a target by a margin of 1.

    The defaults differ from the thesis [1]_, where :math:`I_i` contains all points of other classes
    and the targets are fixed before training. By default, only the three nearest impostors per
    point count, and the targets are chosen a second time with the metric of the first pass, which
    usually gives fewer errors. With few rows for the number of features, the fit also stops early.
    With many rows, LMNN keeps the Euclidean distance if its leave-one-out error is lower.
    ``LMNN(n_impostors=None, n_passes=1, validation_fraction=0.0)`` is the problem of the thesis.

    The problem is convex in :math:`M = L^T L`. L-BFGS solves it over L in whitened coordinates, so
    the units of the features do not affect the solver. The hinges are smoothed, and the smoothing
    is reduced step by step. The solver works on a subset of the impostors and checks at the end
    that none is missing. A square map that has lost rank is accepted only if no direction in M
    lowers the loss. ``dual_bound_`` is a proven lower bound on the loss of any square map, and
    ``duality_gap_`` is the relative distance of the solution from it.

    Use it with labels if you want to classify by nearest neighbors. It makes no assumption about
    the shape of the classes, only about their neighborhoods. The first targets are the nearest
    rows by Euclidean distance, so scale features that have different units first.

    The defaults suit most data. Set ``n_neighbors`` to the k of the classifier. With hundreds of
    features, set ``n_components`` for a small output or ``n_pca_components="auto"`` for a faster
    fit. With thousands of features and few rows, or to interpret one weight per feature, set
    ``structure="diagonal"``. Change ``n_impostors``, ``n_passes`` and ``validation_fraction`` only
    to reproduce the thesis or to tune them by cross-validation. The remaining parameters control
    accuracy, time and repeated fits.

    Cost: O(n² r) for each of a few full impostor searches, done in blocks, for n rows of X and r
    rows of L; O(a r + n p r) per evaluation in between, for p features and a active impostor
    pairs. No n×n array is stored.

    Parameters
    ----------
    n_neighbors : int, default=3
        Number of targets per point. Use the k of the classifier or slightly more. If a class has at
        most ``n_neighbors`` points, its points have fewer targets and a warning is issued.
    push_weight : float in (0, 1], default=0.5
        Weight μ of the push term. Values close to 0 shrink the map. With values close to 1, targets
        are hardly pulled closer. The default is that of the thesis and a good first choice.
    n_impostors : int, None or "auto", default="auto"
        Number of nearest impostors per point that enter the loss. None uses all, as in [1]_.
        Smaller values reduce the influence of points deep inside another class. "auto" tries 3
        first, see Notes. Not used with triplets.
    n_passes : int or "auto", default="auto"
        Number of passes. A pass is a fit with fixed targets. Each later pass starts from the metric
        learned so far and uses it to choose its targets. With early stopping, ``n_passes`` is the
        maximum number. "auto" is 2 in most cases, see Notes.
    n_components : int or None, default=None
        Dimension of the output. None learns a square map. With many features, a map with few rows
        is learned faster and overfits less.
    n_pca_components : int, "auto" or None, default=None
        Number of principal components to project X onto before learning. ``components_`` still maps
        X itself. None uses all features. "auto" projects only if there are more than 128 features,
        see Notes. The components depend on the units of the features.
    reduction : {"learned", "pca", "truncate"}, default="learned"
        How ``n_components`` rows are obtained. "learned" optimizes the rectangular map, which is
        not convex, and is best for few components. The others learn a square map first. Then "pca"
        keeps the principal axes of the mapped data, and "truncate" keeps the leading eigenvectors
        of M.
    structure : {"full", "diagonal"}, default="full"
        Form of the map: "full" is any matrix, "diagonal" has one weight per feature. "diagonal"
        cannot be combined with ``n_components`` or ``n_pca_components``.
    init : str or array of shape (n_components, n_features), default="auto"
        Starting point: "identity" (Euclidean distance), "pca" (whitened principal axes), "lda"
        (directions that separate the class means), "within" (whitened by the within-class
        covariance) or "random". The optimum of a square map does not depend on ``init``. The rules
        of "auto" are in Notes.
    solver : {"lbfgs", "projected_subgradient"}, default="lbfgs"
        Optimization algorithm. "projected_subgradient" is the algorithm of the thesis [1]_, for
        comparison only. It stalls if the features have different scales.
    max_iter : int, default=1000
        Maximum number of iterations. The limit applies to each pass.
    tol : float, default=1e-6
        Stop when an iteration lowers the objective by less than this fraction. The smoothing of the
        hinges is reduced until it changes the objective by less than the fraction ``100 * tol``.
        See Notes for the exceptions.
    validation_fraction : float in [0, 0.9] or "auto", default="auto"
        Fraction of the rows held out. For early stopping, their k-NN error is checked every 10
        iterations, and the map with the lowest error is kept. With 0, the fit runs to convergence.
        "auto" uses 0.2 if there are few rows compared with the size of L, see Notes.
    patience : int, default=3
        Stop after this many validation checks without improvement. Not used if
        ``validation_fraction="auto"`` averages over several splits.
    refit : bool, default=True
        After early stopping, fit all rows for the number of iterations that was best on the
        held-out rows. If False, keep the map that was learned without the held-out rows.
    warm_start : bool, default=False
        If True, start from the previous fit. If its map has another shape, ``init`` is used.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to select the held-out rows and for
        ``init="random"``; the solver is deterministic.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads search for impostors and
        evaluate the loss.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        Loss ε at the solution of the last pass, summed over all impostors that enter the loss.
    dual_bound_ : float
        Lower bound on the loss ε. It holds for every square map, or for every diagonal map with
        ``structure="diagonal"``.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``. A value of 0 proves that the solution is optimal.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Row numbers of the targets in the last pass, nearest first. The value is -1 where a class
        has too few points and for held-out rows. Not set after a fit with triplets.
    n_impostors_ : int or None
        Number of impostors per point that entered the loss; None means all.
    n_passes_ : int
        Number of passes that contributed to the map; 0 if the initial distance was kept.
    validation_fraction_ : float
        Fraction of the rows held out for early stopping; 0 without early stopping.
    n_active_ : int
        Number of positive hinges at the solution.
    n_pca_components_ : int or None
        Number of principal components used; None if X was not projected.
    n_iter_ : int
        Number of iterations, summed over all passes.
    history_ : dict of lists
        Lists with one entry per iteration of all passes: "objective", "step", "active" and
        "seconds". The objective is that of the solver, with smoothed hinges. It is summed over the
        current subset of impostors, and at first over a sample of the points.
    validation_errors_ : list of float
        k-NN error on the held-out rows at each validation check of all passes. The list is empty
        without early stopping.
    classes_ : ndarray of shape (n_classes,)
        Class labels. Not set after a fit with triplets.

    Notes
    -----
    The table shows what "auto" means. There, n is the number of rows of X, d the rank of the
    centered X (at most ``n_features``), and r the number of rows of L: ``n_components`` if it is
    given and ``reduction="learned"``, otherwise d. For each parameter, the first condition that
    holds applies.

    =====================  ===============================================  ======================
    Parameter              Condition                                        Value
    =====================  ===============================================  ======================
    n_impostors            ``solver="projected_subgradient"``               None (all)
    n_impostors            otherwise                                        3, then 10, then None
    n_passes               targets are passed to ``fit``                    1
    n_passes               ``solver="projected_subgradient"``               1
    n_passes               n > 20,000                                       1
    n_passes               otherwise                                        2
    validation_fraction    targets are passed to ``fit``                    0
    validation_fraction    ``solver="projected_subgradient"``               0
    validation_fraction    ``structure="diagonal"``                         0
    validation_fraction    n < 15 r and 0.2 n >= max(5, n_classes)          0.2
    validation_fraction    otherwise                                        0
    init                   with early stopping                              "identity"
    init                   ``structure="diagonal"``                         "within"
    init                   n - n_classes < 3 d                              "pca"
    init                   otherwise                                        "within"
    n_pca_components       ``n_features`` <= 128                            None
    n_pca_components       otherwise                                        min(64, n // 2 - 1)
    =====================  ===============================================  ======================

    * ``n_impostors="auto"`` fits with 3 impostors per point. If the loss of the solution is at
      least 98% of the loss of the zero map, it fits again with 10, and then with all. With a fixed
      number, a warning is issued if the solution is close to the zero map, which happens if most
      points have this many impostors closer than their targets.
    * The Euclidean distance, one pass and two passes are compared by their leave-one-out k-NN error
      on up to 5,000 rows if ``n_passes`` and ``validation_fraction`` are both "auto", the table
      gives two passes, L is a square full map and n >= 15 d. The lowest error wins; ties go to more
      passes.
    * ``validation_fraction="auto"`` with ``refit=True`` averages over several splits. Each row is
      held out once (five splits) up to n = 500; up to n = 2,500 there are enough splits to hold
      out 500 rows in total; beyond that there is one split. With several splits a pass has at
      most 30 iterations, and the number of iterations with the lowest mean error is used.
    * With early stopping, a pass that does not lower the validation error is discarded and is the
      last one. If the number of training rows minus ``n_classes`` is less than 3 d, the solver
      works in the original instead of whitened coordinates, so that stopping early means staying
      close to the Euclidean distance.
    * ``n_pca_components="auto"`` is never less than ``n_components``.
    * With triplets there is one pass without early stopping.
    * ``tol`` has two exceptions. Without early stopping, passes before the last stop at 1e-4,
      because they only choose targets. Maps with at least 10,000 entries and fewer rows than
      columns, learned from at least 2,000 points, stop at ten times ``tol``.

    Without any impostors, the pull term shrinks the map until the nearest points of other classes
    come within the margin. A point that is alone in its class has no targets but is still an
    impostor of others. With float32 data the solution has a relative accuracy of about 1e-6. The
    experiments behind the rules of "auto" are in the user guide.

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

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "triplets"))
    renamed: ClassVar = {"n_principal": "n_pca_components", "n_principal_": "n_pca_components_"}
    settings = ({"n_neighbors": 1},)
    renamed_values: ClassVar = {"solver": {"projected-subgradient": "projected_subgradient"}}
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "push_weight": [real(0, 1, open_low=True)],
        "n_impostors": [none, integer(1), one_of("auto")],
        "n_passes": [integer(1), one_of("auto")],
        "n_components": [none, integer(1)],
        "n_pca_components": N_PRINCIPAL,
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
        n_pca_components: int | Literal["auto"] | None = None,
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
        self.n_pca_components = n_pca_components
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
        """Learn the map from labeled points or from triplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels. Not used if triplets are given.
        target_neighbors : array-like of int of shape (n_samples, k), optional
            Row numbers of each point's targets, which must be in its class. Unused entries are -1.
            None uses the ``n_neighbors`` nearest points of the class.
        supervision : Triplets, optional
            Triplets (center, target, impostor). The push term has one hinge per triplet, and the
            pull term contains each distinct pair (center, target) once. No impostors are searched.

        Returns
        -------
        LMNN
            The fitted estimator.
        """
        self._check_parameters()
        previous_map = self.__dict__.get("components_") if self.warm_start else None
        rows = self._check_X(X, reset=True, min_samples=2)
        self.validation_errors_: list[float] = []
        check_combination(self, supervision, target_neighbors)
        if self._fitted_on_axes(
            rows, previous_map, y, target_neighbors=target_neighbors, supervision=supervision
        ):
            return self
        if supervision is not None:
            return self._fit_triplets(rows, supervision, previous_map)
        self.classes_, codes = self._check_labels(y, len(rows))
        directions = count_directions(rows)
        choice = resolve_auto(self, codes, directions, has_targets=target_neighbors is not None)
        targets = None
        if target_neighbors is None:
            check_class_sizes(codes, self.classes_, self.n_neighbors, "LMNN")
        else:
            targets = check_targets(target_neighbors, codes)
            if choice.validation_fraction > 0:
                raise ValueError(
                    "target_neighbors cannot be combined with early stopping. Set "
                    "validation_fraction=0, or omit target_neighbors."
                )
        self.validation_fraction_ = choice.validation_fraction
        for n_impostors in choice.impostors:
            self.n_impostors_ = n_impostors
            if not self._fit_labels(rows, codes, directions, targets, choice, previous_map):
                return self
        warn(
            f"With n_impostors={self.n_impostors} the learned map is close to zero, because most "
            "points have this many impostors closer than their targets. Increase n_impostors.",
        )
        return self

    def _fit_labels(
        self,
        rows: Floats,
        codes: Indices,
        directions: int,
        targets: Indices | None,
        choice: Choice,
        previous_map: Floats | None,
    ) -> bool:
        """Fit with ``n_impostors_`` impostors. Return True if the learned map is close to zero."""
        training = np.arange(len(rows))
        limits = [self.max_iter] * choice.n_passes
        if self.solver == "projected_subgradient":
            return self._learn(SubgradientRun(self, rows, codes), training, limits, targets)
        if choice.validation_fraction == 0:
            run = Run(self, rows, codes, previous_map)
            is_near_zero = self._learn(run, training, limits, targets)
            if choice.compares_passes and not is_near_zero:
                self._compare_passes(run, training)
            return is_near_zero
        n_trained = (1 - choice.validation_fraction) * len(rows)
        has_few = has_few_rows(n_trained, len(self.classes_), directions)
        splits = split_for_validation(codes, choice, self.random_state)
        runs = [
            Run(self, rows[train], codes[train], previous_map, stops_early=True, has_few=has_few)
            for train, _ in splits
        ]
        validation_sets = [(rows[test], codes[test]) for _, test in splits]
        limits = self._find_best_limits(runs, validation_sets, choice.n_passes)
        if not self.refit:
            self.n_passes_ = sum(limit > 0 for limit in limits)
            return self._certify(runs[0], splits[0][0], len(rows))
        run = Run(self, rows, codes, None, stops_early=True, has_few=has_few)
        return self._learn(run, training, limits)

    def _find_best_limits(
        self, runs: list[Run], validation_sets: list[tuple[Floats, Indices]], n_passes: int
    ) -> list[int]:
        """Return the number of iterations per pass with the lowest mean validation error.

        Each run ends with the map of its best iteration. A pass that does not lower the error is
        discarded and is the last one.
        """
        has_one_split = len(runs) == 1
        limits: list[int] = []
        cut_off = False
        for _ in range(n_passes):
            watches, previous = [], [(run.L, run.problem) for run in runs]
            for run, rows in zip(runs, validation_sets, strict=True):
                run.begin_pass()
                watches.append(
                    run.make_watch(rows, self.patience if has_one_split else MAX_CHECKS + 1)
                )
                limit = (
                    self.max_iter
                    if has_one_split
                    else min(self.max_iter, MAX_CHECKS * CHECK_INTERVAL)
                )
                converged = self._descend(run, limit, self.tol, watches[-1])
                cut_off |= limit == self.max_iter and not converged
            errors = average_errors(watches)
            best = int(np.argmin(errors))
            # If the last error is not the lowest, the iteration limit did not stop the fit too
            # early.
            cut_off &= best == len(errors) - 1
            self.validation_errors_ += errors
            if best == 0 and limits:
                for run, (L, problem) in zip(runs, previous, strict=True):
                    run.progress.L, run.problem = L, problem
                break
            limits.append(best * CHECK_INTERVAL)
            for run, watch in zip(runs, watches, strict=True):
                run.progress.L = watch.maps[min(best, len(watch.maps) - 1)]
            if best == 0 or errors[best] == 0:
                break  # Another pass would have the same targets, or no errors are left.
        if cut_off:
            warn_not_converged("LMNN", self.max_iter)
        self._keep(runs[0])
        return limits

    def _learn(
        self, run: Run, training: Indices, limits: Sequence[int], targets: Indices | None = None
    ) -> bool:
        """Run one pass per iteration limit. Return True if the learned map is close to zero."""
        for index, limit in enumerate(limits):
            run.begin_pass(targets if index == 0 else None)
            # Only the last pass must be exact. Earlier passes only choose targets.
            tol = self.tol if index == len(limits) - 1 else max(self.tol, _ROUGH_TOL)
            converged = self._descend(run, limit, tol)
        if not converged and limits[-1] == self.max_iter:
            warn_not_converged(run.solver_name, self.max_iter)
        self.n_passes_ = sum(limit > 0 for limit in limits)
        return self._certify(run, training, len(training))

    def _compare_passes(self, run: Run, training: Indices) -> None:
        """Use the map of an earlier pass, or the Euclidean distance, if it makes fewer errors."""
        maps = [*run.ends, run.L]
        errors = [run.count_errors(), *map(run.count_errors, maps)]
        best = min(range(len(errors)), key=lambda passes: (errors[passes], -passes))
        if best == len(maps):
            return
        self.n_passes_ = best
        run.begin_pass(run.first_targets)
        if best == 0:
            self.components_ = run.set_euclidean()
        else:
            run.progress.L = maps[0]
            if not self._descend(run, self.max_iter, self.tol):
                warn_not_converged(run.solver_name, self.max_iter)
        self._certify(run, training, len(training))

    def _fit_triplets(self, rows: Floats, triplets: Triplets, previous_map: Floats | None) -> Self:
        triplets.check_n_samples(len(rows))
        if len(triplets.indices) == 0:
            raise ValueError("supervision contains no triplets. LMNN needs at least one.")
        self.n_impostors_, self.n_passes_, self.validation_fraction_ = None, 1, 0.0
        run = Run(self, rows, np.zeros(len(rows), dtype=np.intp), previous_map)
        run.problem = FixedTriplets(
            run.points, triplets.indices, self.push_weight, structure=self.structure
        )
        if not self._descend(run, self.max_iter, self.tol):
            warn_not_converged("LMNN", self.max_iter)
        self._certify(run)
        return self

    def _descend(self, run: Run, limit: int, tol: float, watch: Watch | None = None) -> bool:
        try:
            return run.descend(limit, tol, watch)
        finally:
            # The estimator keeps the best map found so far, also after Ctrl-C.
            if watch is not None and watch.best_map is not None:
                run.progress.L = watch.best_map
            self._keep(run)

    def _keep(self, run: Run) -> None:
        self.mean_, self.components_ = run.mean, run.to_components(run.L)
        self.history_, self.n_iter_ = run.progress.history, run.progress.n_iter

    def _certify(self, run: Run, training: Indices | None = None, n_samples: int = 0) -> bool:
        """Set the loss and its lower bound. Return True if the learned map is close to zero."""
        problem, L = run.problem, run.L
        assert problem is not None
        if problem.targets is not problem.all_targets:
            problem.use_centers(None)
        if not problem.is_complete(L):
            problem.search(L)
        self.dual_bound_ = problem.compute_dual_bound(L)
        if self.n_components is not None and self.reduction != "learned":
            L = reduce_map_rows(self, problem, L, run.white)
            self.components_ = run.to_components(L)
            problem.search(L)
        final = problem.evaluate_exactly(L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.duality_gap_ = compute_duality_gap(self.dual_bound_, self.objective_)
        if run.progress.n_iter == 0:
            # The evaluation that found nothing to improve counts as one iteration.
            run.progress.watch = None
            run.progress.note(run.L, final.loss, final.n_active)
            self.n_iter_ = run.progress.n_iter
        if training is not None:
            targets = problem.all_targets
            self.target_neighbors_ = np.full((n_samples, targets.shape[1]), -1, dtype=np.intp)
            self.target_neighbors_[training] = np.where(targets >= 0, training[targets], -1)
        # "auto" tries more impostors as soon as the map is close to zero.
        threshold = NEAR_ZERO_LOSS if self.n_impostors == "auto" else 0.9999
        return (
            problem.nearest is not None
            and final.loss >= threshold * problem.compute_zero_map_loss()
        )
