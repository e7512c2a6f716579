"""Per class: weight, mean and scatter sum. What every statistics method solves from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import blas_for, blas_threads, map_in_order
from nearfar.labels import encode_labels, label_array
from nearfar.state import (
    Sizes,
    State,
    anything,
    check_words,
    choice,
    flag,
    floats,
    indices,
    list_of,
    need,
    number,
    object_of,
)
from nearfar.summaries.row_moments import (
    Moments,
    mixed_moments,
    moments_about,
)
from nearfar.summaries.second_moment import SecondMoment

# Own threads pay while the products are too small for BLAS to thread well.
_THREADED_FEATURES = 256
_THREADED_SIZE = 2**18
_UNCHECKED_SIZE = 2**17
_HELD_BYTES = 2**24
_LOT = 16
_OVERFLOW = "Sums of the values of X overflow: rescale the features of X."
_TASK_ROWS = 32_768


class ClassStatistics:
    r"""Weights, means and scatter sums of the classes of a sample, built in one pass.

    For each class :math:`c` with rows :math:`x_i` of weight :math:`w_i` it knows

    .. math::
        W_c = \sum_i w_i, \quad m_c = \tfrac1{W_c}\sum_i w_i x_i, \quad
        S_c = \sum_i w_i (x_i - m_c)(x_i - m_c)^T ,

    and from them the within, between and total scatter. Divisors, ridge and shrinkage are chosen
    when a covariance is read, not when it is accumulated.

    Moments are kept about a fixed row of each class, so that neither a large common offset nor
    the order of the batches costs precision: :math:`Q_c = \sum_i w_i (x_i - s_c)(x_i - s_c)^T`,
    :math:`t_c = \sum_i w_i (x_i - s_c)`, hence :math:`S_c = Q_c - t_c t_c^T / W_c`.

    A scatter is stored as rows (*factored*) while it has fewer rows than features, and as a dense
    p×p matrix from then on. With ``pooled=True`` one scatter serves all classes, which is all that
    LDA or RCA need.

    Cost: one pass, O(n p²) time, O(p²) memory for each dense scatter, and blocks of about a
    thousand rows; never a copy of X. float64 input is multiplied in float64; float32 input is
    centred and multiplied in float32 blocks that are summed in float64.

    Parameters
    ----------
    pooled : bool, default=False
        Keep one scatter for all classes together instead of one for each class.
    storage : {"auto", "dense"}, default="auto"
        "dense" never keeps rows, however few they are.
    exact : bool, default=False
        Multiply float32 rows in float64 too: half as fast, and right to the last digit of the
        rows also where features are nearly collinear.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Distinct labels, sorted.
    weights, counts : ndarray of shape (n_classes,)
        Sum of sample weights, and number of rows, of each class.
    means : ndarray of shape (n_classes, n_features)
        Class means.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import ClassStatistics
    >>> X = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 1.0], [5.0, 3.0]])
    >>> statistics = ClassStatistics().partial_fit(X, ["a", "a", "b", "b"])
    >>> statistics.means
    array([[1., 0.],
           [5., 2.]])
    >>> statistics.within_scatter()
    array([[2., 0.],
           [0., 2.]])
    >>> more = ClassStatistics().partial_fit(X + 1, ["b", "b", "c", "c"])
    >>> statistics.merge(more).classes.tolist()
    ['a', 'b', 'c']
    """

    state: ClassVar = State(
        {
            "_labels": list_of(anything, "c"),
            "_shifts": floats("c", "p"),
            "_firsts": floats("c", "p"),
            "_counts": indices("c"),
            "_weights": floats("c"),
            "_seconds": list_of(object_of(SecondMoment, p="p"), "scatters"),
            "storage": choice("auto", "dense"),
            **dict.fromkeys(("pooled", "exact", "_rounded"), flag),
            "_precision": number(0),
        },
        rows=lambda self: self._n_readable_rows(),
    )

    def __init__(self, *, pooled: bool = False, storage: str = "auto", exact: bool = False) -> None:
        if storage not in ("auto", "dense"):
            raise ValueError(f"storage must be 'auto' or 'dense'; got {storage!r}.")
        self.pooled = pooled
        self.storage = storage
        self.exact = exact
        self._rounded = False
        # Everything below is in order of first appearance; public views are sorted by label.
        self._labels: list[Any] = []
        self._counts = np.zeros(0, dtype=np.int64)
        self._weights = np.zeros(0)
        self._shifts = np.zeros((0, 0))
        self._origin: Floats | float = 0.0  # of the shifts; not zero in projections only
        self._firsts = np.zeros((0, 0))
        self._seconds: list[SecondMoment] = []
        self._precision = float(np.finfo(np.float64).eps)

    def _check_state(self, sizes: Sizes) -> None:
        n = sizes["c"]
        if type(self._origin) is not float:
            check_words(vars(self), {"_origin": floats("p")}, sizes)
        fits = len(self._seconds) == (min(n, 1) if self.pooled else n)
        need(fits, "_seconds: there is not one scatter for each class.")
        slots = [batch for second in self._seconds for batch in second.slots]
        need(all((batch < n).all() for batch in slots), "_seconds: there are rows without a class.")

    def _n_readable_rows(self) -> int:
        """Moments are kept about the first row of each class, and rows as such while few."""
        firsts = self.n_classes if self.pooled else 1
        return sum(second.n_rows or firsts for second in self._seconds)

    # ------------------------------------------------------------------ accumulating

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> ClassStatistics:
        """Add rows. Without ``y`` all rows are of one class, labelled 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; float64 and float32 are used as they are.
        y : array-like of shape (n_samples,), optional
            Labels. New classes may appear at any time.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights; an integer weight equals so many copies of the row.

        Returns
        -------
        ClassStatistics
            Itself.
        """
        rows: Floats = check_array(
            X, dtype=[np.float64, np.float32], ensure_all_finite=False, input_name="X"
        )
        if y is None:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        else:
            classes, codes = encode_labels(y)
        if len(codes) != len(rows):
            raise ValueError(f"X has {len(rows)} rows but y has {len(codes)} labels.")
        weight = None if sample_weight is None else check_weight(sample_weight, len(rows))
        return self.add(rows, classes, codes, weight)

    def add(
        self,
        X: Floats,
        classes: NDArray[Any],
        codes: NDArray[np.intp],
        weight: NDArray[np.float64] | None = None,
    ) -> ClassStatistics:
        """``partial_fit`` for arrays that were checked and encoded before."""
        if self._labels and X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but these statistics hold {self.n_features}."
            )
        if weight is not None and (weight == 0).any():
            # A row of weight zero is no row: it must neither open a class nor be counted.
            assert_all_finite(X, input_name="X")
            seen = weight > 0
            X, codes, weight = X[seen], codes[seen], weight[seen]
        if not len(X):
            return self
        self._drop_origin()
        # The sums tell of NaN and infinity without a pass of their own if they are added only once
        # they are known to be finite; to hold them back is worth while for a state of modest size.
        n_seconds = 1 if self.pooled else max(len(self._seconds), len(classes))
        state = 8 * n_seconds * self._new_second(X.shape[1]).n_entries
        held_back = X.size >= _UNCHECKED_SIZE and state <= _HELD_BYTES
        if not held_back:
            _check_finite(X)
        before = self._without_sums()
        present = np.flatnonzero(np.bincount(codes, minlength=len(classes)))
        slots = np.full(len(classes), -1, dtype=np.intp)
        slots[present] = self._open_classes(classes[present].tolist(), X, codes, present)
        codes = slots[codes]
        self._precision = max(self._precision, float(np.finfo(X.dtype).eps))
        self._counts += np.bincount(codes, minlength=self.n_classes)
        self._weights += np.bincount(codes, weights=weight, minlength=self.n_classes)
        if held_back:
            firsts, seconds = np.zeros_like(self._firsts), dict[int, NDArray[np.float64]]()
        for slots, (first, second) in self._moments(
            X, codes, None if weight is None else np.sqrt(weight)
        ):
            k = 0 if self.pooled else int(slots[0])
            if not held_back:
                self._firsts[slots] += first
                self._seconds[k].add_block(second)
                continue
            firsts[slots] += first
            if k in seconds:
                seconds[k] += second
            else:
                seconds[k] = second
        if not np.isfinite(self._firsts).all() or (held_back and not np.isfinite(firsts).all()):
            vars(self).update(before)
            assert_all_finite(X, input_name="X")
            raise ValueError(_OVERFLOW)
        if held_back:
            self._firsts += firsts
            for k, second in seconds.items():
                self._seconds[k].add_block(second)
        return self

    def _new_second(self, n_features: int) -> SecondMoment:
        return SecondMoment(n_features, self.storage)

    def _without_sums(self) -> dict[str, Any]:
        """The state, to go back to; dense sums are shared."""
        return {
            name: value.copy() if isinstance(value, np.ndarray | list) else value
            for name, value in vars(self).items()
        } | {"_seconds": [second.snapshot() for second in self._seconds]}

    def _open_classes(
        self, labels: list[Any], X: Floats, codes: NDArray[np.intp], present: NDArray[np.intp]
    ) -> list[int]:
        """Slots of the labels; a new class is opened about its first row."""
        known = {label: slot for slot, label in enumerate(self._labels)}
        fresh = [k for k, label in enumerate(labels) if label not in known]
        if fresh:
            _check_common_order(self._labels + [labels[k] for k in fresh])
            first_row = np.empty(int(present.max()) + 1, dtype=np.intp)
            # Of repeated indices the last assignment holds: backwards, that is the first row.
            first_row[codes[::-1]] = np.arange(len(X) - 1, -1, -1)
            new = X[first_row[present[fresh]]].astype(np.float64)
            self._shifts = np.concatenate([self._shifts.reshape(-1, X.shape[1]), new])
            self._firsts = np.concatenate([self._firsts.reshape(-1, X.shape[1]), 0.0 * new])
            self._counts = np.concatenate([self._counts, np.zeros(len(fresh), dtype=np.int64)])
            self._weights = np.concatenate([self._weights, np.zeros(len(fresh))])
            for k in fresh:
                known[labels[k]] = len(self._labels)
                self._labels.append(labels[k])
                if not self.pooled or not self._seconds:
                    self._seconds.append(self._new_second(X.shape[1]))
        return [known[label] for label in labels]

    def _moments(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None
    ) -> Iterator[tuple[NDArray[np.intp], Moments]]:
        """Classes, and the sums of their rows, task by task; few rows are kept."""
        # Radix sort of small integers; the rows of a class keep their order.
        small = codes.astype(np.uint16) if self.n_classes < 2**16 else codes
        order = np.argsort(small, kind="stable")
        sizes = np.bincount(codes, minlength=self.n_classes)
        edges = np.concatenate([[0], np.cumsum(sizes)])
        mixed = order[:0]
        own = sizes > 0
        second = self._seconds[0]  # which all are like
        if self.pooled:
            if self._keep_rows(0, X, order, codes, root):
                return
            # Classes of few rows share blocks; the others have blocks of their own.
            own = sizes >= second.block_rows(X)
            mixed = order[~own[codes[order]]]
        slots = np.flatnonzero(own).tolist()
        groups = [(slot, order[edges[slot] : edges[slot + 1]]) for slot in slots]
        if not self.pooled:
            kept = {s for s, rows in groups if self._keep_rows(s, X, rows, codes, root)}
            groups = [(slot, rows) for slot, rows in groups if slot not in kept]

        how: Any = {"second": second, "exact": self.exact}

        def moments(
            tasks: list[tuple[int, NDArray[np.intp]]],
        ) -> list[tuple[NDArray[np.intp], Moments]]:
            return [
                mixed_moments(X, rows, codes, self._shifts, root, **how)
                if slot < 0
                else (np.array([slot]), moments_about(X, rows, self._shifts[slot], root, **how))
                for slot, rows in tasks
            ]

        # Enough tasks for some threads; how many there are decides on none of the sums.
        size = min(max(second.block_rows(X), -(-len(X) // 8)), _TASK_ROWS)
        tasks = [(slot, part) for slot, rows in groups for part in _parts(rows, size)]
        tasks += [(-1, part) for part in _parts(mixed, size)]
        narrow = X.dtype == np.float32 and root is None and not self.exact
        self._rounded = self._rounded or (narrow and bool(tasks))
        lots = list(_lots(tasks, size))
        threads = _threads(X, len(lots))
        # Own threads limit BLAS themselves.
        flops = np.inf if threads > 1 else 2.0 * second.block_rows(X) * X.shape[1] ** 2
        with blas_for(flops):
            for found in map_in_order(moments, lots, threads):
                yield from found

    def _keep_rows(
        self,
        k: int,
        X: Floats,
        rows: NDArray[np.intp],
        codes: NDArray[np.intp],
        root: Floats | None,
    ) -> bool:
        """Keep the rows as they are if they are few; else make ready for products."""
        second = self._seconds[k]
        if not second.keeps_rows(len(rows)):
            second.make_dense()
            return False
        deviations = X[rows] - self._shifts[codes[rows]]
        roots = np.ones(len(rows)) if root is None else root[rows]
        second.append(deviations, roots, codes[rows])
        if len(rows):  # sorted by class
            starts = np.flatnonzero(np.diff(codes[rows], prepend=-1))
            weighed = deviations if root is None else (roots**2)[:, None] * deviations
            self._firsts[codes[rows][starts]] += np.add.reduceat(weighed, starts)
        return True

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both samples together, as a new object.

        Parameters
        ----------
        other : ClassStatistics
            Of the same number of features and the same ``pooled``.

        Returns
        -------
        ClassStatistics
            Independent of both.
        """
        if self.pooled != other.pooled:
            raise ValueError("Pooled statistics merge with pooled ones only.")
        if not other._labels:
            return deepcopy(self)
        if not self._labels:
            return deepcopy(other)
        if self.n_features != other.n_features:
            raise ValueError(
                f"Statistics of {self.n_features} and of {other.n_features} features do not merge."
            )
        merged, other = deepcopy(self), deepcopy(other)
        merged._drop_origin()
        other._drop_origin()
        known = {label: slot for slot, label in enumerate(merged._labels)}
        slots = np.array([known.get(label, -1) for label in other._labels])
        fresh = np.flatnonzero(slots < 0)
        slots[fresh] = len(merged._labels) + np.arange(len(fresh))
        merged._labels += [other._labels[k] for k in fresh]
        _check_common_order(merged._labels)
        empty = np.zeros((len(fresh), self.n_features))
        merged._shifts = np.concatenate([merged._shifts, other._shifts[fresh]])
        merged._firsts = np.concatenate([merged._firsts, empty])
        merged._weights = np.concatenate([merged._weights, np.zeros(len(fresh))])
        merged._counts = np.concatenate([merged._counts, np.zeros(len(fresh), dtype=np.int64)])

        # Other's moments about our shifts: x - s = (x - s') + delta.
        delta = other._shifts - merged._shifts[slots]
        if self.pooled:
            moved = other._seconds[0].moved(delta, other._firsts, other._weights)
            merged._seconds[0].absorb(moved, slots)
        else:
            merged._seconds += [self._new_second(self.n_features) for _ in fresh]
            for k, slot in enumerate(slots):
                rows = slice(k, k + 1)
                moved = other._seconds[k].moved(
                    delta[rows], other._firsts[rows], other._weights[rows]
                )
                merged._seconds[slot].absorb(moved, np.full(len(slots), slot))
        merged._firsts[slots] += other._firsts + other._weights[:, None] * delta
        merged._weights[slots] += other._weights
        merged._counts[slots] += other._counts
        merged._precision = max(self._precision, other._precision)
        merged._rounded = self._rounded or other._rounded
        return merged

    # ------------------------------------------------------------------ reading

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._shifts.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes seen."""
        return len(self._labels)

    @property
    def classes(self) -> NDArray[Any]:
        """Distinct labels, sorted."""
        return label_array(self._labels)[self._order]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of rows of each class."""
        return self._counts[self._order]

    @property
    def weights(self) -> NDArray[np.float64]:
        """Sum of the sample weights of each class."""
        return self._weights[self._order]

    @property
    def means(self) -> NDArray[np.float64]:
        """Class means, (n_classes, n_features)."""
        return (self._shifts + self._firsts / self._weights[:, None])[self._order] + self._origin

    @property
    def total_weight(self) -> float:
        """Sum of all sample weights."""
        return float(self._weights.sum())

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all rows."""
        self._need_rows()
        reference = self._shifts[0]
        deviation = self._weights @ (self._shifts - reference) + self._firsts.sum(axis=0)
        return reference + deviation / self.total_weight + self._origin

    @property
    def is_factored(self) -> bool:
        """Whether every scatter is still kept as rows."""
        return all(second.dense is None for second in self._seconds)

    @property
    def precision(self) -> float:
        """Machine epsilon of the coarsest dtype that was accumulated."""
        return self._precision

    @property
    def is_rounded(self) -> bool:
        """Whether products of float32 rows were rounded to float32."""
        return self._rounded

    def is_ill_conditioned(self) -> bool:
        """Whether rounded products leave fewer than some two digits of the within covariance."""
        if not self._rounded:
            return False
        with blas_for(10.0 * self.n_features**3):
            within = self.within_scatter()
            scale = np.sqrt(np.maximum(within.diagonal(), 0))
            used = self.varying_features() & (scale > 0)
            correlation = within[np.ix_(used, used)] / np.outer(scale[used], scale[used])
            return bool(used.any() and np.linalg.eigvalsh(correlation)[0] < 1e-4)

    @property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(label_array(self._labels), kind="stable")

    def scatter(self, label: Any) -> NDArray[np.float64]:
        """Scatter sum of one class."""
        slot = self._slot(label)
        return self._seconds[slot].scatter(self._firsts[[slot]], self._weights[[slot]])

    def covariance(
        self,
        label: Any = None,
        *,
        ddof: float = 0,
        ridge: float = 0.0,
        shrinkage: float = 0.0,
    ) -> NDArray[np.float64]:
        r"""Covariance of one class, or the pooled within-class covariance.

        .. math:: \Sigma = (1-g)\,S/(W - d) + (g\,\mathrm{tr}(S)/((W-d)\,p) + r) I

        Parameters
        ----------
        label : optional
            The class; None for the pooled within-class covariance.
        ddof : float, default=0
            Taken off the weight of each class in the divisor: 0 for maximum likelihood, 1 for the
            unbiased estimate.
        ridge : float, default=0
            Added to the diagonal.
        shrinkage : float in [0, 1], default=0
            Towards the multiple of the identity with the same trace.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        if label is None:
            scatter, weight = self.within_scatter(), self.total_weight
            divisor = weight - ddof * self.n_classes
        else:
            scatter, weight = self.scatter(label), float(self._weights[self._slot(label)])
            divisor = weight - ddof
        _check_divisor(divisor, weight, ddof)
        covariance = scatter / divisor
        level = shrinkage * np.trace(covariance) / self.n_features + ridge
        covariance *= 1 - shrinkage
        covariance.flat[:: self.n_features + 1] += level
        return covariance

    def sigma_dot(
        self, B: ArrayLike, *, ddof: float = 0, ridge: float = 0.0, shrinkage: float = 0.0
    ) -> NDArray[np.float64]:
        """Covariance of every class times a thin matrix, without p×p where factored.

        Parameters
        ----------
        B : array-like of shape (n_features, q)
            The thin matrix.
        ddof, ridge, shrinkage : float
            As in :meth:`covariance`.

        Returns
        -------
        ndarray of shape (n_classes, n_features, q)
        """
        self._need_classes()
        thin = np.asarray(B, dtype=np.float64)
        products = np.empty((self.n_classes, *thin.shape))
        for k, slot in enumerate(self._order):
            second, weight = self._seconds[slot], float(self._weights[slot])
            _check_divisor(weight - ddof, weight, ddof)
            first, mass = self._firsts[[slot]], self._weights[[slot]]
            divisor = weight - ddof
            level = shrinkage * second.trace(first, mass) / (divisor * self.n_features) + ridge
            products[k] = second.dot(thin, first, mass) * ((1 - shrinkage) / divisor) + level * thin
        return products

    def scatter_traces(self) -> NDArray[np.float64]:
        """Trace of the scatter sum of each class."""
        self._need_classes()
        return np.array(
            [
                self._seconds[slot].trace(self._firsts[[slot]], self._weights[[slot]])
                for slot in self._order
            ]
        )

    def within_scatter(self) -> NDArray[np.float64]:
        """Sum over classes of the scatter about the class mean."""
        self._need_rows()
        if self.pooled:
            return self._seconds[0].scatter(self._firsts, self._weights)
        total = np.zeros((self.n_features, self.n_features))
        for slot, second in enumerate(self._seconds):
            total += second.scatter(self._firsts[[slot]], self._weights[[slot]])
        return total

    def read_within(
        self, of_matrix: Callable[[Matrix], NDArray[Any]], of_rows: Callable[[Matrix], NDArray[Any]]
    ) -> Matrix:
        """A linear function of a pooled within scatter, which is not formed.

        Parameters
        ----------
        of_matrix : callable
            The function of a p×p matrix.
        of_rows : callable
            The function of ``H.T @ H``, for rows H.

        Returns
        -------
        ndarray
            What the function has of ``within_scatter()``.
        """
        self._need_rows()
        (second,) = self._seconds
        return second.read(of_matrix, of_rows, self._firsts, self._weights)

    def within_dot(self, B: ArrayLike) -> NDArray[np.float64]:
        """Within scatter times a thin matrix, without p×p where factored."""
        thin = np.asarray(B, dtype=np.float64)
        if self.pooled:
            return self._seconds[0].dot(thin, self._firsts, self._weights)
        product = np.zeros_like(thin)
        for slot, second in enumerate(self._seconds):
            product += second.dot(thin, self._firsts[[slot]], self._weights[[slot]])
        return product

    def within_factor(self) -> NDArray[np.float64]:
        """Rows H with ``H.T @ H`` the within scatter; only while factored."""
        if not self.is_factored:
            raise ValueError("These statistics are dense: their rows are no longer known.")
        means = self._firsts / self._weights[:, None]
        return np.concatenate([second.factor(means) for second in self._seconds])

    def between_factor(self) -> NDArray[np.float64]:
        """Rows ``sqrt(W_c) (m_c - m)``; ``H.T @ H`` is the between scatter."""
        return self._between_rows()[self._order]

    def _between_rows(self) -> NDArray[np.float64]:
        """The same in the order of the slots: there may be a hundred thousand."""
        self._need_rows()
        # Differences to one class's shift first: they are small and exact, the means are not.
        deviations = self._firsts / self._weights[:, None]
        deviations += self._shifts - self._shifts[0]
        deviations -= self._weights @ deviations / self.total_weight
        deviations *= np.sqrt(self._weights)[:, None]
        return deviations

    def between_scatter(self) -> NDArray[np.float64]:
        """Scatter of the class means, weighted by class."""
        factor = self._between_rows()
        return factor.T @ factor

    def total_scatter(self) -> NDArray[np.float64]:
        """Scatter of all rows about their mean: within plus between."""
        return self.within_scatter() + self.between_scatter()

    def total_factor(self) -> NDArray[np.float64]:
        """Rows H with ``H.T @ H`` the total scatter; only while factored."""
        return np.concatenate([self.within_factor(), self.between_factor()])

    def total_variances(self) -> NDArray[np.float64]:
        """Diagonal of the total scatter over the weight: the variance of each feature."""
        within = np.zeros(self.n_features)
        if self.pooled:
            within += self._seconds[0].diagonal(self._firsts, self._weights)
        else:
            for slot, second in enumerate(self._seconds):
                within += second.diagonal(self._firsts[[slot]], self._weights[[slot]])
        between = self._between_rows()
        diagonal = np.maximum(within, 0) + np.einsum("ij,ij->j", between, between)
        return diagonal / self.total_weight

    def varying_features(self, variances: Floats | None = None) -> NDArray[np.bool_]:
        """Which features vary by more than the rounding of their values.

        ``variances`` are those of `total_variances`, where they are known.
        """
        deviation = np.sqrt(self.total_variances() if variances is None else variances)
        means = self._shifts + self._firsts / self._weights[:, None] + self._origin
        return deviation > 16 * self._precision * np.maximum(means.max(axis=0), -means.min(axis=0))

    def project(self, B: ArrayLike) -> ClassStatistics:
        """The statistics of ``X @ B``, for a matrix B of shape (n_features, q)."""
        matrix = np.asarray(B, dtype=np.float64)
        image = ClassStatistics(pooled=self.pooled, storage=self.storage, exact=self.exact)
        image._labels = list(self._labels)
        image._counts, image._weights = self._counts.copy(), self._weights.copy()
        # A common offset would cost digits of the differences: it is kept apart.
        image._shifts = (self._shifts - self._shifts[0]) @ matrix
        image._origin = (self._shifts[0] + self._origin) @ matrix
        image._firsts = self._firsts @ matrix
        image._seconds = [second.project(matrix) for second in self._seconds]
        image._precision, image._rounded = self._precision, self._rounded
        return image

    def select(self, keep: NDArray[np.bool_]) -> ClassStatistics:
        """The statistics of some classes only; of pooled ones, classes without scatter may go.

        Parameters
        ----------
        keep : ndarray of bool of shape (n_classes,)
            In the order of ``classes``.

        Returns
        -------
        ClassStatistics
            Independent of this one.
        """
        slots = np.sort(self._order[np.asarray(keep, dtype=bool)])
        dropped = np.setdiff1d(np.arange(self.n_classes), slots)
        if self.pooled and (self._counts[dropped] > 1).any():
            raise ValueError("A pooled scatter cannot be split by class.")
        chosen = copy(self)
        chosen._seconds = deepcopy(self._seconds)
        chosen._labels = [self._labels[slot] for slot in slots]
        for name in ("_counts", "_weights", "_shifts", "_firsts"):
            setattr(chosen, name, getattr(self, name)[slots])
        if not self.pooled:
            chosen._seconds = [chosen._seconds[slot] for slot in slots]
        for second in chosen._seconds:
            second.renumber(slots, self.n_classes)
        return chosen

    def _drop_origin(self) -> None:
        """Shifts in the coordinates of the rows, for what is added to them."""
        self._shifts, self._origin = self._shifts + self._origin, 0.0

    def _slot(self, label: Any) -> int:
        self._need_classes()
        for slot, known in enumerate(self._labels):
            if known == label:
                return slot
        raise KeyError(f"No class {label!r}; the classes are {self.classes.tolist()}.")

    def _need_rows(self) -> None:
        if not self._labels:
            raise ValueError("These statistics hold no rows yet; call partial_fit first.")

    def _need_classes(self) -> None:
        if self.pooled:
            raise ValueError("Pooled statistics hold no covariance of a single class.")

    def __repr__(self) -> str:
        form = "pooled" if self.pooled else "by class"
        store = "factored" if self.is_factored else "dense"
        return (
            f"ClassStatistics({form}, {store}: {self.n_classes} classes, "
            f"{self.n_features} features, {int(self._counts.sum())} rows)"
        )


def check_weight(sample_weight: ArrayLike, n_samples: int) -> NDArray[np.float64]:
    """Sample weights as a vector: one finite, non-negative number for each row."""
    weight: NDArray[np.float64] = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected ({n_samples},): one weight for each "
            "row of X."
        )
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(f"sample_weight must not be negative; row {row} is {weight[row]}.")
    return weight


def _check_finite(X: Floats) -> None:
    """No NaN, no infinity, and no values whose sums might overflow."""
    flat = X.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        # One pass that tells of all three. On one thread: those of BLAS would wait for memory.
        if np.isfinite(np.einsum("i,i->", flat, flat)):
            return
    assert_all_finite(X, input_name="X")
    if max(X.max(), -X.min()) > np.finfo(np.float64).max / (4 * len(X)):
        raise ValueError(_OVERFLOW)


def _check_common_order(labels: list[Any]) -> None:
    try:
        sorted(labels)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"y mixes labels of types {', '.join(kinds)}, which have no common order; "
            "make them all strings or all numbers."
        ) from error


def _check_divisor(divisor: float, weight: float, ddof: float) -> None:
    if divisor <= 0:
        raise ValueError(f"ddof={ddof} leaves nothing of a weight of {weight:g}; use ddof=0.")


def _parts(rows: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _lots(
    tasks: list[tuple[int, NDArray[np.intp]]], size: int
) -> Iterator[list[tuple[int, NDArray[np.intp]]]]:
    """Small tasks together: to hand over one takes as long as the sums of a hundred rows."""
    lot: list[tuple[int, NDArray[np.intp]]] = []
    rows = 0
    for task in tasks:
        lot.append(task)
        rows += len(task[1])
        if rows >= size or len(lot) == _LOT:
            yield lot
            lot, rows = [], 0
    if lot:
        yield lot


def _threads(X: Floats, n_tasks: int) -> int:
    if X.shape[1] > _THREADED_FEATURES or X.size < _THREADED_SIZE:
        return 1
    return min(n_tasks, blas_threads())
