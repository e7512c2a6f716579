"""LMNN with a metric of its own for each part of the training points."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nearfar.base import Checked
from nearfar.blocks import blas_for, effective_threads, row_blocks
from nearfar.mahalanobis.large_margin import (
    SLACK,
    LargeMargin,
    Progress,
    least_ratio,
    shrinkage_of,
    whitened,
)
from nearfar.mahalanobis.lmnn import LMNN, Watch, duality_gap, hold_out
from nearfar.neighbors.energy import centre_costs, impostor_costs
from nearfar.neighbors.impostors import find_impostors, pair_list
from nearfar.neighbors.knn import vote
from nearfar.parameters import array, having, integer, none, one_of, random_state, real
from nearfar.solvers.triplet_loss import (
    Evaluation,
    PairList,
    laplacian_dot,
    pair_distances,
    weigh_hinges,
)
from nearfar.summaries.class_statistics import ClassStatistics, Floats
from nearfar.summaries.exact_search import kneighbors

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


class MultiMetricLMNN(ClassifierMixin, Checked):
    r"""Large margin nearest neighbours with several metrics, one for each cell of training points.

    The training points are divided into cells, by label or by k-means. The squared distance to a
    training point is measured by the metric of *its* cell,

    .. math:: \hat D(x, x_j) = \|L^{g(j)} (x - x_j)\|^2 ,

    and all maps are trained together on the loss of :class:`LMNN` with :math:`\hat D`, starting
    from the single map of LMNN; trained apart, their distances could not be compared. As
    :math:`\hat D` is not symmetric there is no common space to map into: this is a classifier, by
    the vote of the neighbours or by the energy rule, both under the metric of the training point.

    Use it when classes have shapes of their own and points are plenty: there are as many
    parameters as in LMNN times the cells, and it overfits with many classes in many dimensions.
    That is why 30 % of the rows are held out by default, to stop in time.

    Cost: LMNN's, then O(n² r) for each full search and O(c n p r) for each evaluation, with c
    cells. Queries: O(n r) each, after c maps.

    Parameters
    ----------
    estimator : LMNN, optional
        Settings of the single map and of the solver; None is ``LMNN()``.
    cells : {"labels", "kmeans"} or array-like of int of shape (n_samples,), default="labels"
        The division of the training points.
    n_cells : int or None, default=None
        Cells of k-means; None is as many as classes.
    rule : {"knn", "energy"}, default="knn"
        How to predict.
    validation_fraction : float in [0, 0.9], default=0.3
        Share of rows held out to stop early.
    patience : int, default=10
        So many looks, one every 10 iterations, without fewer errors end the fit.
    random_state : int, RandomState or None, default=0
        For k-means and the rows held out; the default divides them alike every time.

    Attributes
    ----------
    components_ : ndarray of shape (n_cells, n_components, n_features)
        The maps.
    cells_ : ndarray of shape (n_training,)
        The cell of each row that was trained on.
    estimator_ : LMNN
        The single map it started from.
    objective_, dual_bound_, duality_gap_, n_active_, n_iter_, history_, validation_errors_
        As in LMNN, of all metrics together.
    classes_ : ndarray of shape (n_classes,)
        The labels.

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

    parameters: ClassVar = {
        "estimator": [none, having("fit", "transform", description="an LMNN")],
        "cells": [one_of("labels", "kmeans"), array],
        "n_cells": [none, integer(1)],
        "rule": [one_of("knn", "energy")],
        "validation_fraction": [real(0, 0.9)],
        "patience": [integer(1)],
        "random_state": [random_state],
    }

    def __init__(
        self,
        estimator: LMNN | None = None,
        cells: str | ArrayLike = "labels",
        n_cells: int | None = None,
        rule: Literal["knn", "energy"] = "knn",
        validation_fraction: float = 0.3,
        patience: int = 10,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.cells = cells
        self.n_cells = n_cells
        self.rule = rule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the single map, then all maps together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MultiMetricLMNN
            Itself.
        """
        self._check_parameters()
        if self.estimator is not None and not isinstance(self.estimator, LMNN):
            raise TypeError(f"estimator must be an LMNN; got {type(self.estimator).__name__}.")
        lmnn = LMNN() if self.estimator is None else clone(self.estimator)
        if lmnn.structure != "full" or lmnn.solver != "lbfgs":
            raise ValueError('MultiMetricLMNN needs structure="full" and solver="lbfgs".')
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        cells = self._divide(rows, codes)
        trained, held = np.arange(len(rows)), np.arange(0)
        if self.validation_fraction > 0:
            trained, held = hold_out(codes, self.validation_fraction, self.random_state)
            # No class and no cell is held out as a whole.
            seen = np.isin(codes[held], codes[trained]) & np.isin(cells[held], cells[trained])
            trained, held = np.sort(np.append(trained, held[~seen])), held[seen]
        unseen = (rows[held], codes[held])
        rows, codes, cells = rows[trained], codes[trained], cells[trained]
        self.estimator_ = lmnn.fit(rows, codes)
        self._train(rows, codes, cells, unseen)
        self._rows, self._codes, self.cells_ = rows, codes, cells
        self._targets = lmnn.target_neighbors_
        return self

    def _divide(self, rows: Floats, codes: Indices) -> Indices:
        self._centroids: NDArray[Any] | None = None
        if not isinstance(self.cells, str):
            given = np.asarray(self.cells)
            if given.shape != (len(rows),) or given.dtype.kind not in "iu" or given.min() < 0:
                raise ValueError(
                    f"cells must be a number from 0 for each of the {len(rows)} rows; got shape "
                    f"{given.shape} of {given.dtype}."
                )
            used, cells = np.unique(given, return_inverse=True)
            self._centroids = np.stack([rows[given == cell].mean(axis=0) for cell in used])
            return cells.astype(np.intp)
        if self.cells == "labels":
            return codes
        wanted = len(self.classes_) if self.n_cells is None else self.n_cells
        if wanted > len(rows):
            raise ValueError(f"n_cells={wanted} is more than the {len(rows)} rows.")
        means = KMeans(wanted, n_init=10, random_state=self.random_state).fit(rows)
        # Where points coincide some cells may be empty.
        used, cells = np.unique(means.labels_, return_inverse=True)
        self._centroids = means.cluster_centers_[used]
        return cells.astype(np.intp)

    def _train(
        self, rows: Floats, codes: Indices, cells: Indices, unseen: tuple[Floats, Indices]
    ) -> None:
        lmnn = self.estimator_
        n_cells = int(cells.max()) + 1
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        white, points = whitened(rows, statistics)
        self.mean_ = statistics.mean.astype(rows.dtype)
        single = lmnn.components_.astype(np.float64) @ np.linalg.pinv(white.T)
        problem = ManyMetrics(
            points,
            codes,
            lmnn.target_neighbors_,
            cells,
            lmnn.push_weight,
            n_threads=effective_threads(lmnn.n_jobs),
        )
        watch = None
        if len(unseen[0]):
            queries = (unseen[0] - statistics.mean).astype(np.float64) @ white
            watch = Watch(
                lambda L: _knn_error(L, points, codes, cells, queries, unseen[1], lmnn.n_neighbors),
                self.patience,
            )
        progress = Progress(np.repeat(single[None], n_cells, axis=0), watch=watch)
        if watch is not None:
            watch.look(progress.L)  # the single map may be the best there is
        try:
            with blas_for(2.0 * points.size * len(single)):
                converged = problem.solve(
                    progress, max_iter=lmnn.max_iter, tol=lmnn.tol, verbose=lmnn.verbose > 0
                )
        finally:
            if watch is not None and watch.best is not None:
                progress.L = watch.best
            self.components_ = (progress.L @ white.T).astype(rows.dtype)
            self.history_, self.n_iter_ = progress.history, progress.n_iter
        self.validation_errors_ = [] if watch is None else watch.errors
        problem.search(progress.L)
        final = problem.objective(progress.L)
        self.objective_, self.n_active_ = final.loss, final.n_active
        self.dual_bound_ = problem.dual_bound(progress.L)
        self.duality_gap_ = duality_gap(self.dual_bound_, self.objective_)
        if not converged:
            warnings.warn(
                f"MultiMetricLMNN did not converge in {lmnn.max_iter} iterations, the limit of its "
                "estimator; raise max_iter, or tol to be content with less.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_rows")

    # Rules

    def kneighbors(self, X: ArrayLike, n_neighbors: int | None = None) -> tuple[Matrix, Indices]:
        """Distances and training rows of the nearest points, by the metric of each training point.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Queries.
        n_neighbors : int, optional
            How many; None is that of the estimator, or all training points where they are fewer.

        Returns
        -------
        distances, indices : ndarray of shape (n_samples, n_neighbors)
            Rows of those trained on, which are all rows but those held out.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        k = self._n_voters() if n_neighbors is None else n_neighbors
        if not 1 <= k <= len(self._rows):
            raise ValueError(
                f"n_neighbors={k} must be from 1 to the {len(self._rows)} training points."
            )
        return _nearest(
            self.components_.astype(np.float64),
            self._placed(self._rows),
            self.cells_,
            self._placed(rows),
            k,
        )

    def energies(self, X: ArrayLike) -> Matrix:
        """The energy of each point under each label.

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
        """The label by the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Queries.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if self.rule == "energy":
            return np.asarray(self.classes_[self.energies(X).argmin(axis=1)])
        _, nearest = self.kneighbors(X)
        return np.asarray(self.classes_[vote(self._codes[nearest], len(self.classes_), "shrink")])

    def leave_one_out_error(self) -> float:
        """k-NN error on the rows trained on, each classified by all others."""
        check_is_fitted(self)
        points = self._placed(self._rows)
        k = min(self.estimator_.n_neighbors, len(points) - 1)
        _, nearest = _nearest(
            self.components_.astype(np.float64), points, self.cells_, points, k, itself=False
        )
        winners = vote(self._codes[nearest], len(self.classes_), "shrink")
        return float(np.mean(winners != self._codes))

    def _n_voters(self) -> int:
        return min(self.estimator_.n_neighbors, len(self._rows))

    def _placed(self, rows: Floats) -> Matrix:
        return (rows - self.mean_).astype(np.float64)

    def _cells_of(self, rows: Floats) -> Indices | None:
        """The cell of new points: that of the nearest centroid, or of the label in question."""
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
        reach = 1.0 + _target_distances(mapped, cells, targets)
        mu, k = self.estimator_.push_weight, self._n_voters()
        energies = np.empty((len(queries), n_classes))
        for block in row_blocks(len(queries), 32 * len(points), at_most=1024):
            asked = [queries[block] @ L.T for L in maps]
            under = [_squared(a, Z) for a, Z in zip(asked, mapped, strict=True)]
            distances = np.empty_like(under[0])
            for cell, part in enumerate(under):
                distances[:, cells == cell] = part[:, cells == cell]
            energies[block] = centre_costs(distances, edges, k, mu)
            if query_cells is None:
                for c in range(n_classes):
                    costs = impostor_costs(under[c], edges, reach)
                    energies[block, c] += mu * (costs.sum(axis=1) - costs[:, c])
            else:
                own = np.stack(under)[query_cells[block], np.arange(len(asked[0]))]
                costs = impostor_costs(own, edges, reach)
                energies[block] += mu * (costs.sum(axis=1, keepdims=True) - costs)
        return energies


class ManyMetrics(LargeMargin):
    """The large-margin loss with a map for each cell; L has shape (cells, rows, columns)."""

    def __init__(
        self,
        points: Matrix,
        codes: Indices,
        targets: Indices,
        cells: Indices,
        push_weight: float,
        *,
        n_threads: int = 1,
    ) -> None:
        super().__init__(points, codes, targets, push_weight, n_threads=n_threads)
        self.cells = cells
        self.members = [np.flatnonzero(cells == cell) for cell in range(int(cells.max()) + 1)]

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Any = None,
        points: Any = None,
    ) -> Evaluation:
        """The loss over the listed pairs; the gradient stands in for Lap(W) V."""
        found, mapped = self._weighed(L, smoothing, points)
        X = self.working if points is None else points
        gradient = np.empty(L.shape)
        for cell, W in enumerate(self._by_cell(found)):
            gradient[cell] = 2 * (laplacian_dot(W, mapped[cell]).T @ X)
        return Evaluation(found.loss, gradient, found.n_active, found.slopes)

    def _weighed(self, L: Matrix, smoothing: float | None, points: Any) -> Any:
        width = self.smoothing if smoothing is None else smoothing
        X = self.working if points is None else points
        mapped = [X @ part.T.astype(X.dtype) for part in L]
        reach = 1.0 + _target_distances(mapped, self.cells, self.targets)
        assert self.pairs is not None
        distances = _pair_distances(mapped, self.cells, self.pairs.centres, self.pairs.indices)
        found = weigh_hinges(
            reach, self.targets, self.pairs, distances, self.push_weight, width, X.dtype
        )
        return found, mapped

    def _by_cell(self, found: Any) -> list[sparse.csr_array]:
        """W with the columns of one cell after the other, the others empty."""
        W = (found.push + found.pull).tocoo()
        owner = self.cells[W.coords[1]]
        parts = []
        for cell in range(len(self.members)):
            mine = owner == cell
            rows, columns = W.coords[0][mine], W.coords[1][mine]
            parts.append(sparse.csr_array((W.data[mine], (rows, columns)), W.shape))
        return parts

    def gradient(self, laplacian_z: Any) -> Matrix:
        """As it is."""
        return np.asarray(laplacian_z)

    def rescaled(self, L: Matrix) -> Matrix:
        """As it is: the single map has its scale."""
        return L

    def _stages(self) -> list[int | None]:
        return [None]  # it starts from a good map

    def search(self, L: Matrix, *, keep: bool = False, coarse: bool = False) -> float:
        """List every pair with an active hinge, cell by cell of the impostor."""
        mapped = [self.points @ part.T for part in L]
        reach = 1.0 + _target_distances(mapped, self.cells, self.targets).max(axis=1)
        radius = np.maximum(SLACK * reach, reach + self.smoothing)
        before = self.evaluate(L).loss
        lists = []
        for Z, members in zip(mapped, self.members, strict=True):
            found = find_impostors(
                Z,
                self.codes,
                radius,
                max_pairs=10**8,
                n_threads=self.n_threads,
                among=members,
            )
            if found is None:
                raise ValueError(
                    "More than 100 million impostor pairs: the data are too large, or the single "
                    "map too poor, for several metrics."
                )
            lists.append((found.centres, found.indices))
        if keep and self.pairs is not None:
            lists.append((self.pairs.centres, self.pairs.indices))
        self.pairs: PairList | None = pair_list(lists, len(self.points))
        self._listed_at = (L, radius)
        after = self.evaluate(L).loss
        return (after - before) / after if after > 0 else 0.0

    def is_complete(self, L: Matrix) -> bool:
        """Whether the list surely holds every active pair under L, without a search."""
        if self._listed_at is None:
            return False
        before, radius = self._listed_at
        if np.array_equal(L, before):
            return True
        alpha = min(shrinkage_of(a, b) for a, b in zip(before, L, strict=True))
        mapped = [self.points @ part.T for part in L]
        reach = 1.0 + _target_distances(mapped, self.cells, self.targets).max(axis=1)
        centres = np.isfinite(reach)
        return bool(np.all(alpha * radius[centres] >= reach[centres] + self.smoothing / 2))

    def _escape(self, progress: Progress, tol: float) -> bool:
        return False

    def dual_bound(self, L: Matrix) -> float:
        """A lower bound on the least loss over all metrics, as for one.

        It is 0 where no point of some cell is a target: nothing is known to hold that metric back.
        """
        X = self.points
        best = self.bound
        pull = None
        for width in self.smoothing * np.array([1.0, 0.3, 3.0]):
            found, _ = self._weighed(L, width, X)
            S = [X.T @ laplacian_dot(W, X) for W in self._by_cell(found)]
            if pull is None:
                pull = self._pulls()
            lowest = min(least_ratio((s + s.T) / 2 - P, P) for s, P in zip(S, pull, strict=True))
            factor = 1.0 if lowest >= -1.0 else -1.0 / lowest
            best = max(best, factor * self.push_weight * found.slopes)
        return best

    def _pulls(self) -> list[Matrix]:
        rows, slots = np.nonzero(self.targets >= 0)
        columns = self.targets[rows, slots]
        weights = np.full(len(rows), 1 - self.push_weight)
        n = len(self.points)
        pulls = []
        for cell in range(len(self.members)):
            mine = self.cells[columns] == cell
            W = sparse.csr_array((weights[mine], (rows[mine], columns[mine])), (n, n))
            P = self.points.T @ laplacian_dot(W, self.points)
            pulls.append((P + P.T) / 2)
        return pulls


def _pair_distances(
    mapped: list[Any], cells: Indices, first: NDArray[Any], second: NDArray[Any]
) -> Matrix:
    """Squared distances by the metric of the second point of each pair."""
    distances = np.empty(len(first))
    owner = cells[second]
    for cell, Z in enumerate(mapped):
        mine = np.flatnonzero(owner == cell)
        distances[mine] = pair_distances(Z, first[mine], second[mine])
    return distances


def _target_distances(mapped: list[Any], cells: Indices, targets: Indices) -> Matrix:
    """Squared distances to the targets by their metric, (n, k); -inf where there is none."""
    distances = np.full(targets.shape, -np.inf)
    rows, slots = np.nonzero(targets >= 0)
    distances[rows, slots] = _pair_distances(mapped, cells, rows, targets[rows, slots])
    return distances


def _squared(queries: Matrix, points: Matrix) -> Matrix:
    """Squared distances of all pairs."""
    distances = queries @ points.T
    distances *= -2
    distances += np.einsum("ij,ij->i", points, points)
    distances += np.einsum("ij,ij->i", queries, queries)[:, None]
    return np.maximum(distances, 0.0, out=distances)


def _nearest(
    L: Matrix, points: Matrix, cells: Indices, queries: Matrix, k: int, *, itself: bool = True
) -> tuple[Matrix, Indices]:
    """The k nearest points, cell by cell and merged; by (distance, row)."""
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
