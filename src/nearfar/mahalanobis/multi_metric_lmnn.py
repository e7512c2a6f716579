"""LMNN with one metric per cell of the training points."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags, NeighborVoter
from nearfar.base.progress import open_channel, report_of
from nearfar.base.voter import vote
from nearfar.blocks import compute_squared_distances, limit_blas_for, resolve_n_threads, split_rows
from nearfar.large_margin.energy_costs import center_costs, impostor_costs
from nearfar.large_margin.held_out import Watch, hold_out
from nearfar.large_margin.impostors import target_neighbors
from nearfar.large_margin.many_metrics import ManyMetrics, cell_target_distances
from nearfar.large_margin.problem import Progress, duality_gap
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.over_lmnn import lmnn_of_the_work
from nearfar.mahalanobis.starts import has_few_rows
from nearfar.notices import warn_not_converged
from nearfar.parameters import (
    array,
    boolean,
    integer,
    none,
    object_with,
    one_of,
    random_state,
    real,
)
from nearfar.search.exact_search import kneighbors
from nearfar.state import Sizes, State, check_that, floats, indices, none_or, object_of, table
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import scale_uniformly, whiten_rows


class MultiMetricLMNN(NeighborVoter):
    r"""Large margin nearest neighbors classifier with one metric per cell of training points.

    The training points are divided into cells, by label or by k-means. The squared distance to a
    training point is measured by the metric of the cell of that *training point*,

    .. math:: \hat D(x, x_j) = \|L^{g(j)} (x - x_j)\|^2 ,

    where g(j) is the cell of :math:`x_j`. All maps are trained jointly on the loss of
    :class:`LMNN` with :math:`\hat D`, starting from the single map of LMNN. Maps trained separately
    would give distances that cannot be compared. Because :math:`\hat D` is not symmetric, there is
    no common space to transform into. This is therefore a classifier, which predicts by a vote of
    the nearest neighbors or by the lowest energy.

    Use it if the classes have different shapes and there are many points. It has as many
    parameters as LMNN times the number of cells, and overfits with many classes in many dimensions.
    For this reason 30% of the rows are held out for early stopping by default.

    Cost: that of LMNN, then O(n² r) per full impostor search and O(c n p r) per evaluation, with c
    cells and r rows per map. A query costs O(n r) after c maps.

    Parameters
    ----------
    estimator : LMNN, optional
        Settings of the single map and of the solver. None means ``LMNN()``. Settings that are
        "auto" follow the thesis [1]_: all impostors, one pass, no early stopping of its own.
    n_neighbors : int, optional
        Number of neighbors that vote. None uses the ``n_neighbors`` of the estimator, or all
        training points if there are fewer.
    cells : {"labels", "kmeans"} or array-like of int of shape (n_samples,), default="labels"
        How the training points are divided into cells, or the cell number of each row.
    n_cells : int or None, default=None
        Number of cells for ``cells="kmeans"``. None uses the number of classes.
    rule : {"knn", "energy"}, default="knn"
        Prediction rule: vote of the nearest neighbors, or the class with the lowest energy.
    validation_fraction : float in [0, 0.9], default=0.3
        Fraction of the rows held out. They are used for early stopping. 0 fits to convergence.
    patience : int, default=10
        Stop after this many validation checks without improvement. There is one check every 10
        iterations.
    refit : bool, default=True
        After early stopping, fit all rows for the number of iterations that was best on the
        held-out rows. With False, the maps remain those of the other rows.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for k-means and to select the held-out rows.

    Attributes
    ----------
    components_ : ndarray of shape (n_cells, n_components, n_features)
        The maps, one per cell.
    cells_ : ndarray of shape (n_samples,)
        The cell of each training row.
    estimator_ : LMNN
        The fitted LMNN with the single map.
    objective_, dual_bound_, duality_gap_, n_active_, n_iter_, history_, validation_errors_
        As in :class:`LMNN`, for all maps together.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    See Also
    --------
    LMNN, MultiPassLMNN, EnergyClassifier

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.1.8.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import MultiMetricLMNN
    >>> X, y = load_wine(return_X_y=True)
    >>> clf = MultiMetricLMNN().fit(X[::2], y[::2])
    >>> clf.components_.shape
    (3, 13, 13)
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier")
    state = State(
        {
            "_rows": table("n", "p"),
            "components_": floats("cells", "d", "p"),
            "mean_": floats("p"),
            "cells_": indices("n", below="cells"),
            "_targets": indices("n", "k", low=-1, below="n"),
            "_centroids": none_or(floats("cells", "p")),
            "estimator_": object_of(LMNN),
        },
        fitted="_rows",
        rows="_rows",
    )
    ties = "shrink"
    parameters: ClassVar = {
        "estimator": [none, object_with("fit", "transform", description="an LMNN")],
        "n_neighbors": [none, integer(1)],
        "cells": [one_of("labels", "kmeans"), array],
        "n_cells": [none, integer(1)],
        "rule": [one_of("knn", "energy")],
        "validation_fraction": [real(0, 0.9)],
        "patience": [integer(1)],
        "refit": [boolean],
        "random_state": [random_state],
    }

    def __init__(
        self,
        estimator: LMNN | None = None,
        n_neighbors: int | None = None,
        *,
        cells: str | ArrayLike = "labels",
        n_cells: int | None = None,
        rule: Literal["knn", "energy"] = "knn",
        validation_fraction: float = 0.3,
        patience: int = 10,
        refit: bool = True,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors  # type: ignore[assignment]
        self.cells = cells
        self.n_cells = n_cells
        self.rule = rule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the single map, then one map per cell jointly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MultiMetricLMNN
            The fitted estimator.
        """
        self._check_parameters()
        lmnn = lmnn_of_the_work(self.estimator, self)
        if lmnn.structure != "full" or lmnn.solver != "lbfgs":
            raise ValueError(
                'MultiMetricLMNN needs an estimator with structure="full" and solver="lbfgs".'
            )
        if lmnn.n_principal is not None:
            raise ValueError(
                "MultiMetricLMNN does not support an estimator with n_principal; got "
                f"n_principal={lmnn.n_principal!r}. Put PCA before it in a pipeline instead."
            )
        if self.rule == "energy" and lmnn.n_impostors is not None:
            raise ValueError(
                'rule="energy" needs an estimator with n_impostors=None; got '
                f"n_impostors={lmnn.n_impostors}."
            )
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        self._check_neighbors(len(rows))
        cells = self._divide(rows, codes)
        self.validation_errors_: list[float] = []
        open_channel(self, lmnn.verbose)
        try:
            if self.validation_fraction == 0:
                self.estimator_ = lmnn.fit(rows, codes)
                self._train(rows, codes, cells)
            else:
                self._fit_in_time(lmnn, rows, codes, cells)
        finally:
            # After Ctrl-C too, keep the maps found so far, if there are any.
            if "components_" in vars(self):
                self._rows, self._codes = rows, codes
                self._targets = target_neighbors(rows, codes, lmnn.n_neighbors)
                self.cells_ = cells
        return self

    def _fit_in_time(self, lmnn: LMNN, rows: Floats, codes: Indices, cells: Indices) -> None:
        """Stop early by the error on held-out rows, then fit all rows for as many iterations."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        trained, held = hold_out(codes, self.validation_fraction, seed)
        # Classes and cells that would be held out completely stay in the training rows.
        seen = np.isin(codes[held], codes[trained]) & np.isin(cells[held], cells[trained])
        trained, held = np.sort(np.append(trained, held[~seen])), held[seen]
        plain = has_few_rows(len(trained), len(self.classes_), rows.shape[1])
        if lmnn.validation_fraction != 0:
            # The single map uses the same held-out rows.
            lmnn.set_params(validation_fraction=self.validation_fraction, refit=False)
            lmnn.set_params(random_state=seed)
            self.estimator_ = lmnn.fit(rows, codes)
        else:
            self.estimator_ = lmnn.fit(rows[trained], codes[trained])
        unseen = (rows[held], codes[held])
        best = self._train(rows[trained], codes[trained], cells[trained], unseen, plain=plain)
        if self.refit:
            self.estimator_ = clone(lmnn).set_params(refit=True).fit(rows, codes)
            self._train(rows, codes, cells, max_iter=best, plain=plain)

    def _divide(self, rows: Floats, codes: Indices) -> Indices:
        self._centroids: NDArray[Any] | None = None
        if not isinstance(self.cells, str):
            given = np.asarray(self.cells)
            if given.shape != (len(rows),) or given.dtype.kind not in "iu" or given.min() < 0:
                raise ValueError(
                    f"cells must contain one non-negative integer for each of the {len(rows)} "
                    f"rows; got shape {given.shape} and dtype {given.dtype}."
                )
            used, cells = np.unique(given, return_inverse=True)
            self._centroids = np.stack([rows[given == cell].mean(axis=0) for cell in used])
            return cells.astype(np.intp)
        if self.cells == "labels":
            return codes
        wanted = len(self.classes_) if self.n_cells is None else self.n_cells
        if wanted > len(rows):
            raise ValueError(f"n_cells={wanted} is more than the {len(rows)} rows of X.")
        means = KMeans(wanted, n_init=10, random_state=self.random_state).fit(rows)
        # Some cells may be empty if points coincide.
        used, cells = np.unique(means.labels_, return_inverse=True)
        self._centroids = means.cluster_centers_[used]
        return cells.astype(np.intp)

    def _train(
        self,
        rows: Floats,
        codes: Indices,
        cells: Indices,
        unseen: tuple[Floats, Indices] | None = None,
        *,
        max_iter: int | None = None,
        plain: bool = False,
    ) -> int:
        """Train all maps jointly. Return the number of iterations that was best on unseen rows."""
        lmnn = self.estimator_
        n_cells = int(cells.max()) + 1
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        white, points = (scale_uniformly if plain else whiten_rows)(rows, statistics)
        self.mean_ = statistics.mean.astype(rows.dtype)
        single = lmnn.components_.astype(np.float64) @ np.linalg.pinv(white.T)
        problem = ManyMetrics(
            points,
            codes,
            target_neighbors(rows, codes, lmnn.n_neighbors),
            cells,
            lmnn.push_weight,
            n_threads=resolve_n_threads(lmnn.n_jobs),
            nearest=lmnn.n_impostors_,
        )
        watch = None
        if unseen is not None and len(unseen[0]):
            queries = (unseen[0] - statistics.mean).astype(np.float64) @ white
            watch = Watch(
                lambda L: _knn_error(L, points, codes, cells, queries, unseen[1], lmnn.n_neighbors),
                self.patience,
            )
        start = np.repeat(single[None], n_cells, axis=0)
        progress = Progress(start, watch=watch, report=report_of(self))
        if watch is not None:
            watch.look(progress.L)  # The single map may be the best one.
        limit = lmnn.max_iter if max_iter is None else max_iter
        converged = True
        try:
            if limit > 0:
                with limit_blas_for(2.0 * points.size * len(single)):
                    converged = problem.solve(progress, max_iter=limit, tol=lmnn.tol)
        finally:
            if watch is not None and watch.best is not None:
                progress.L = watch.best
            self.components_ = (progress.L @ white.T).astype(rows.dtype)
            self.history_, self.n_iter_ = progress.history, progress.n_iter
        if watch is not None:
            self.validation_errors_ = watch.errors
        problem.search(progress.L)
        final = problem.objective(progress.L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.dual_bound_ = problem.dual_bound(progress.L)
        self.duality_gap_ = duality_gap(self.dual_bound_, self.objective_)
        if not converged and max_iter is None:
            warn_not_converged("MultiMetricLMNN", lmnn.max_iter, "the max_iter of its estimator")
        return progress.n_iter if watch is None else watch.best_iteration

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        fits = self._centroids is not None or sizes["cells"] == sizes["c"]
        check_that(fits, "components_: there are cells without a centroid.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cells_")

    # Prediction

    @property
    def votes(self) -> bool:  # type: ignore[override]
        """True if the neighbors vote, that is with ``rule="knn"``."""
        return self.rule == "knn"

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        points = self._placed(self._rows)
        queries = points if X is None else self._placed(self._check_X(X, reset=False))
        maps = self.components_.astype(np.float64)
        return _nearest(maps, points, self.cells_, queries, k, itself=X is not None)

    def energies(self, X: ArrayLike) -> Matrix:
        """Return the energy of each point under each label; the lowest energy is the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._energies(self._placed(rows), self._cells_of(rows))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the label of each point by the ``rule``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Query points.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if self.rule == "energy":
            return np.asarray(self.classes_[self.energies(X).argmin(axis=1)])
        return super().predict(X)

    def _n_voters(self) -> int:
        if self.n_neighbors is not None:
            return self.n_neighbors
        return min(self.estimator_.n_neighbors, len(self._rows))

    def _placed(self, rows: Floats) -> Matrix:
        return (rows - self.mean_).astype(np.float64)

    def _cells_of(self, rows: Floats) -> Indices | None:
        """Return the cell of each new point by its nearest centroid.

        Return None if cells are classes: a point then belongs to the cell of the assumed label.
        """
        if self._centroids is None:
            return None
        return kneighbors(self._centroids, rows, n_neighbors=1)[1][:, 0]

    def _energies(self, queries: Matrix, query_cells: Indices | None) -> Matrix:
        order = np.argsort(self._codes, kind="stable")
        n_classes = len(self.classes_)
        edges = np.concatenate([[0], np.cumsum(np.bincount(self._codes, minlength=n_classes))])
        points, cells = self._placed(self._rows)[order], self.cells_[order]
        maps = self.components_.astype(np.float64)
        mapped = [points @ L.T for L in maps]
        targets = self._targets[order]
        place = np.empty(len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        targets = np.where(targets >= 0, place[targets], -1)
        reach = 1.0 + cell_target_distances(mapped, cells, targets)
        mu, k = self.estimator_.push_weight, min(self.estimator_.n_neighbors, len(self._rows))
        energies = np.empty((len(queries), n_classes))
        for block in split_rows(len(queries), 8 * (len(maps) + 4) * len(points), max_rows=1024):
            asked = [queries[block] @ L.T for L in maps]
            under = [compute_squared_distances(a, Z) for a, Z in zip(asked, mapped, strict=True)]
            distances = np.empty_like(under[0])
            for cell, part in enumerate(under):
                distances[:, cells == cell] = part[:, cells == cell]
            energies[block] = center_costs(distances, edges, k, mu)
            if query_cells is None:
                for c in range(n_classes):
                    costs = impostor_costs(under[c], edges, reach)
                    energies[block, c] += mu * (costs.sum(axis=1) - costs[:, c])
            else:
                own = np.stack(under)[query_cells[block], np.arange(len(asked[0]))]
                costs = impostor_costs(own, edges, reach)
                energies[block] += mu * (costs.sum(axis=1, keepdims=True) - costs)
        return energies


def _nearest(
    L: Matrix, points: Matrix, cells: Indices, queries: Matrix, k: int, *, itself: bool = True
) -> tuple[Matrix, Indices]:
    """Return the k nearest points, merged over the cells and sorted by (distance, row)."""
    found_distances, found_rows = [], []
    for cell, part in enumerate(L):
        members = np.flatnonzero(cells == cell)
        if not len(members):
            continue
        wanted = min(k if itself else k + 1, len(members))
        distances, nearest = kneighbors(
            points[members] @ part.T, queries @ part.T, n_neighbors=wanted
        )
        found_distances.append(distances)
        found_rows.append(members[nearest])
    distances, rows = np.hstack(found_distances), np.hstack(found_rows)
    if not itself:
        distances = np.where(rows == np.arange(len(queries))[:, None], np.inf, distances)
    best = np.lexsort((rows, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, best, 1), np.take_along_axis(rows, best, 1)


def _knn_error(
    L: Matrix,
    points: Matrix,
    codes: Indices,
    cells: Indices,
    queries: Matrix,
    truth: Indices,
    n_neighbors: int,
) -> float:
    _, nearest = _nearest(L, points, cells, queries, min(n_neighbors, len(points)))
    winners = vote(codes[nearest], int(codes.max()) + 1, "shrink")
    return float(np.mean(winners != truth))
