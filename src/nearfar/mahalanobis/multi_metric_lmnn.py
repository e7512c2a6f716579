"""LMNN with one metric per region of the training points."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags, NeighborsClassifier
from nearfar.base.progress import get_reporter, open_channel
from nearfar.base.voter import vote
from nearfar.blocks import compute_squared_distances, limit_blas_for, resolve_n_threads, split_rows
from nearfar.large_margin.energy_costs import compute_center_costs, compute_impostor_costs
from nearfar.large_margin.held_out import Watch, hold_out
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.large_margin.many_metrics import ManyMetrics, compute_cell_target_distances
from nearfar.large_margin.problem import Progress, compute_duality_gap
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.over_lmnn import copy_published_lmnn
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


class MultiMetricLMNN(NeighborsClassifier):
    r"""Large margin nearest neighbors classifier with one metric per region of training points.

    The training points are divided into regions, by label or by k-means. The squared distance to a
    training point is measured by the metric of the region of that *training point*,

    .. math:: \hat D(x, x_j) = \|L^{g(j)} (x - x_j)\|^2 ,

    where g(j) is the region of :math:`x_j`. All maps are trained jointly on the loss of
    :class:`LMNN` with :math:`\hat D`, starting from the single map of LMNN. Maps trained separately
    would give distances that cannot be compared. Because :math:`\hat D` is not symmetric, there is
    no common space to transform into. This is therefore a classifier, which predicts by a vote of
    the nearest neighbors or by the lowest energy.

    Use it if the classes have different shapes and there are many points. It has as many
    parameters as LMNN times the number of regions, and overfits with many classes in many
    dimensions. For this reason 30% of the rows are held out for early stopping by default.

    Cost: that of LMNN, then O(n² r) per full impostor search and O(c n p r) per evaluation, with c
    regions and r rows per map. A query costs O(n r) after c maps.

    Parameters
    ----------
    estimator : LMNN, optional
        Settings of LMNN for the single map and for the solver. None means ``LMNN()``. Settings that
        are "auto" take the values of the thesis [1]_: all impostors, one pass, no early stopping.
    n_neighbors : int, optional
        Number of neighbors that vote. None uses the ``n_neighbors`` of the estimator, or all
        training points if there are fewer.
    partition : {"labels", "kmeans"} or array-like of int of shape (n_samples,), default="labels"
        How the training points are divided into regions: by class ("labels"), by k-means
        ("kmeans"), or by the given region number of each row.
    n_regions : int or None, default=None
        Number of regions for ``partition="kmeans"``. None uses the number of classes.
    rule : {"knn", "energy"}, default="knn"
        Prediction rule: "knn" is the vote of the nearest neighbors, "energy" predicts the class
        with the lowest energy.
    validation_fraction : float in [0, 0.9], default=0.3
        Fraction of the rows held out. These rows are used for early stopping. With 0, the fit runs
        to convergence.
    patience : int, default=10
        Stop after this many validation checks without improvement. There is one check every 10
        iterations.
    refit : bool, default=True
        After early stopping, fit all rows for the number of iterations that was best on the
        held-out rows. If False, keep the maps that were learned without the held-out rows.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for k-means and to select the held-out rows.

    Attributes
    ----------
    components_ : ndarray of shape (n_regions, n_components, n_features)
        The maps, one per region.
    regions_ : ndarray of shape (n_samples,)
        The region of each training row.
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
    renamed: ClassVar = {"cells": "partition", "n_cells": "n_regions", "cells_": "regions_"}
    state = State(
        {
            "_rows": table("n", "p"),
            "components_": floats("regions", "d", "p"),
            "mean_": floats("p"),
            "regions_": indices("n", below="regions"),
            "_targets": indices("n", "k", low=-1, below="n"),
            "_centroids": none_or(floats("regions", "p")),
            "estimator_": object_of(LMNN),
        },
        fitted="_rows",
        rows="_rows",
    )
    ties = "shrink"
    parameters: ClassVar = {
        "estimator": [none, object_with("fit", "transform", description="an LMNN")],
        "n_neighbors": [none, integer(1)],
        "partition": [one_of("labels", "kmeans"), array],
        "n_regions": [none, integer(1)],
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
        partition: str | ArrayLike = "labels",
        n_regions: int | None = None,
        rule: Literal["knn", "energy"] = "knn",
        validation_fraction: float = 0.3,
        patience: int = 10,
        refit: bool = True,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors  # type: ignore[assignment]
        self.partition = partition
        self.n_regions = n_regions
        self.rule = rule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn a single map for all rows, then the maps of all regions jointly.

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
        lmnn = copy_published_lmnn(self.estimator, self)
        if lmnn.structure != "full" or lmnn.solver != "lbfgs":
            raise ValueError(
                'MultiMetricLMNN needs an estimator with structure="full" and solver="lbfgs".'
            )
        if lmnn.n_pca_components is not None:
            raise ValueError(
                "MultiMetricLMNN does not support an estimator with n_pca_components; got "
                f"n_pca_components={lmnn.n_pca_components!r}. Put PCA before it in a pipeline "
                "instead."
            )
        if self.rule == "energy" and lmnn.n_impostors is not None:
            raise ValueError(
                'rule="energy" needs an estimator with n_impostors=None; got '
                f"n_impostors={lmnn.n_impostors}."
            )
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        self._check_neighbors(len(rows))
        regions = self._assign_regions(rows, codes)
        self.validation_errors_: list[float] = []
        open_channel(self, lmnn.verbose)
        try:
            if self.validation_fraction == 0:
                self.estimator_ = lmnn.fit(rows, codes)
                self._train_maps(rows, codes, regions)
            else:
                self._fit_with_early_stopping(lmnn, rows, codes, regions)
        finally:
            # Keep the maps found so far, even after Ctrl-C.
            if "components_" in vars(self):
                self._rows, self._codes = rows, codes
                self._targets = find_target_neighbors(rows, codes, lmnn.n_neighbors)
                self.regions_ = regions
        return self

    def _fit_with_early_stopping(
        self, lmnn: LMNN, rows: Floats, codes: Indices, regions: Indices
    ) -> None:
        """Choose the number of iterations on held-out rows, then fit all rows with this number."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        training, validation = hold_out(codes, self.validation_fraction, seed)
        # Classes and regions that would be held out completely stay in the training rows.
        is_covered = np.isin(codes[validation], codes[training]) & np.isin(
            regions[validation], regions[training]
        )
        training, validation = (
            np.sort(np.append(training, validation[~is_covered])),
            validation[is_covered],
        )
        uses_original = has_few_rows(len(training), len(self.classes_), rows.shape[1])
        if lmnn.validation_fraction != 0:
            # The single map uses the same held-out rows.
            lmnn.set_params(validation_fraction=self.validation_fraction, refit=False)
            lmnn.set_params(random_state=seed)
            self.estimator_ = lmnn.fit(rows, codes)
        else:
            self.estimator_ = lmnn.fit(rows[training], codes[training])
        validation_set = (rows[validation], codes[validation])
        best = self._train_maps(
            rows[training],
            codes[training],
            regions[training],
            validation_set,
            uses_original=uses_original,
        )
        if self.refit:
            self.estimator_ = clone(lmnn).set_params(refit=True).fit(rows, codes)
            self._train_maps(rows, codes, regions, max_iter=best, uses_original=uses_original)

    def _assign_regions(self, rows: Floats, codes: Indices) -> Indices:
        self._centroids: NDArray[Any] | None = None
        if not isinstance(self.partition, str):
            region_numbers = np.asarray(self.partition)
            if (
                region_numbers.shape != (len(rows),)
                or region_numbers.dtype.kind not in "iu"
                or region_numbers.min() < 0
            ):
                raise ValueError(
                    f"partition must contain one non-negative integer for each of the {len(rows)} "
                    f"rows; got shape {region_numbers.shape} and dtype {region_numbers.dtype}."
                )
            used_regions, regions = np.unique(region_numbers, return_inverse=True)
            self._centroids = np.stack(
                [rows[region_numbers == region].mean(axis=0) for region in used_regions]
            )
            return regions.astype(np.intp)
        if self.partition == "labels":
            return codes
        n_regions = len(self.classes_) if self.n_regions is None else self.n_regions
        if n_regions > len(rows):
            raise ValueError(f"n_regions={n_regions} is more than the {len(rows)} rows of X.")
        means = KMeans(n_regions, n_init=10, random_state=self.random_state).fit(rows)
        # Some regions may be empty if points coincide.
        used_regions, regions = np.unique(means.labels_, return_inverse=True)
        self._centroids = means.cluster_centers_[used_regions]
        return regions.astype(np.intp)

    def _train_maps(
        self,
        rows: Floats,
        codes: Indices,
        regions: Indices,
        validation_set: tuple[Floats, Indices] | None = None,
        *,
        max_iter: int | None = None,
        uses_original: bool = False,
    ) -> int:
        """Train all maps jointly. Return the best number of iterations on held-out rows."""
        lmnn = self.estimator_
        n_regions = int(regions.max()) + 1
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        white, points = (scale_uniformly if uses_original else whiten_rows)(rows, statistics)
        self.mean_ = statistics.mean.astype(rows.dtype)
        single = lmnn.components_.astype(np.float64) @ np.linalg.pinv(white.T)
        problem = ManyMetrics(
            points,
            codes,
            find_target_neighbors(rows, codes, lmnn.n_neighbors),
            regions,
            lmnn.push_weight,
            n_threads=resolve_n_threads(lmnn.n_jobs),
            nearest=lmnn.n_impostors_,
        )
        watch = None
        if validation_set is not None and len(validation_set[0]):
            queries = (validation_set[0] - statistics.mean).astype(np.float64) @ white
            watch = Watch(
                lambda L: _compute_knn_error(
                    L, points, codes, regions, queries, validation_set[1], lmnn.n_neighbors
                ),
                self.patience,
            )
        start = np.repeat(single[None], n_regions, axis=0)
        progress = Progress(start, watch=watch, report=get_reporter(self))
        if watch is not None:
            watch.check(progress.L)  # The initial single map may remain the best.
        limit = lmnn.max_iter if max_iter is None else max_iter
        converged = True
        try:
            if limit > 0:
                with limit_blas_for(2.0 * points.size * len(single)):
                    converged = problem.solve(progress, max_iter=limit, tol=lmnn.tol)
        finally:
            if watch is not None and watch.best_map is not None:
                progress.L = watch.best_map
            self.components_ = (progress.L @ white.T).astype(rows.dtype)
            self.history_, self.n_iter_ = progress.history, progress.n_iter
        if watch is not None:
            self.validation_errors_ = watch.errors
        problem.search(progress.L)
        final = problem.evaluate_exactly(progress.L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.dual_bound_ = problem.compute_dual_bound(progress.L)
        self.duality_gap_ = compute_duality_gap(self.dual_bound_, self.objective_)
        if not converged and max_iter is None:
            warn_not_converged("MultiMetricLMNN", lmnn.max_iter, "the max_iter of its estimator")
        return progress.n_iter if watch is None else watch.best_iteration

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        has_centroids = self._centroids is not None or sizes["regions"] == sizes["c"]
        check_that(has_centroids, "components_: there are regions without a centroid.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "regions_")

    @property
    def votes(self) -> bool:  # type: ignore[override]
        """Whether the neighbors vote. This is the case with ``rule="knn"``."""
        return self.rule == "knn"

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        points = self._center_points(self._rows)
        queries = points if X is None else self._center_points(self._check_X(X, reset=False))
        maps = self.components_.astype(np.float64)
        return _find_nearest(maps, points, self.regions_, queries, k, allows_itself=X is not None)

    def energies(self, X: ArrayLike) -> Matrix:
        """Return the energy of each point for each label. The lowest energy gives the prediction.

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
        return self._compute_energies(self._center_points(rows), self._find_regions(rows))

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

    def _center_points(self, rows: Floats) -> Matrix:
        return (rows - self.mean_).astype(np.float64)

    def _find_regions(self, rows: Floats) -> Indices | None:
        """Return the region of each new point, which is that of the nearest centroid.

        Return None if regions are classes: a point then belongs to the region of the assumed label.
        """
        if self._centroids is None:
            return None
        return kneighbors(self._centroids, rows, n_neighbors=1)[1][:, 0]

    def _compute_energies(self, queries: Matrix, query_regions: Indices | None) -> Matrix:
        order = np.argsort(self._codes, kind="stable")
        n_classes = len(self.classes_)
        edges = np.concatenate([[0], np.cumsum(np.bincount(self._codes, minlength=n_classes))])
        points, regions = self._center_points(self._rows)[order], self.regions_[order]
        maps = self.components_.astype(np.float64)
        mapped = [points @ L.T for L in maps]
        targets = self._targets[order]
        position = np.empty(len(order), dtype=np.intp)
        position[order] = np.arange(len(order))
        targets = np.where(targets >= 0, position[targets], -1)
        reach = 1.0 + compute_cell_target_distances(mapped, regions, targets)
        mu, k = self.estimator_.push_weight, min(self.estimator_.n_neighbors, len(self._rows))
        energies = np.empty((len(queries), n_classes))
        for block in split_rows(len(queries), 8 * (len(maps) + 4) * len(points), max_rows=1024):
            mapped_queries = [queries[block] @ L.T for L in maps]
            distances_by_region = [
                compute_squared_distances(a, Z) for a, Z in zip(mapped_queries, mapped, strict=True)
            ]
            distances = np.empty_like(distances_by_region[0])
            for region, region_distances in enumerate(distances_by_region):
                distances[:, regions == region] = region_distances[:, regions == region]
            energies[block] = compute_center_costs(distances, edges, k, mu)
            if query_regions is None:
                for c in range(n_classes):
                    costs = compute_impostor_costs(distances_by_region[c], edges, reach)
                    energies[block, c] += mu * (costs.sum(axis=1) - costs[:, c])
            else:
                own_distances = np.stack(distances_by_region)[
                    query_regions[block], np.arange(len(mapped_queries[0]))
                ]
                costs = compute_impostor_costs(own_distances, edges, reach)
                energies[block] += mu * (costs.sum(axis=1, keepdims=True) - costs)
        return energies


def _find_nearest(
    L: Matrix,
    points: Matrix,
    regions: Indices,
    queries: Matrix,
    k: int,
    *,
    allows_itself: bool = True,
) -> tuple[Matrix, Indices]:
    """Return the k nearest points of all regions, sorted by distance and then by row."""
    all_distances, all_rows = [], []
    for region, part in enumerate(L):
        members = np.flatnonzero(regions == region)
        if not len(members):
            continue
        n_requested = min(k if allows_itself else k + 1, len(members))
        distances, nearest = kneighbors(
            points[members] @ part.T, queries @ part.T, n_neighbors=n_requested
        )
        all_distances.append(distances)
        all_rows.append(members[nearest])
    distances, rows = np.hstack(all_distances), np.hstack(all_rows)
    if not allows_itself:
        distances = np.where(rows == np.arange(len(queries))[:, None], np.inf, distances)
    best = np.lexsort((rows, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, best, 1), np.take_along_axis(rows, best, 1)


def _compute_knn_error(
    L: Matrix,
    points: Matrix,
    codes: Indices,
    regions: Indices,
    queries: Matrix,
    truth: Indices,
    n_neighbors: int,
) -> float:
    _, nearest = _find_nearest(L, points, regions, queries, min(n_neighbors, len(points)))
    winners = vote(codes[nearest], int(codes.max()) + 1, "shrink")
    return float(np.mean(winners != truth))
