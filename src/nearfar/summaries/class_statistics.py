"""Class statistics: weight, mean and scatter of each class, accumulated in one pass."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array

from nearfar.arrays import Floats
from nearfar.labels import encode_labels
from nearfar.state import (
    Sizes,
    State,
    any_value,
    check_conditions,
    check_that,
    choice,
    flag,
    floats,
    indices,
    list_of,
    number,
    object_of,
    optional,
)
from nearfar.summaries.class_additions import ClassAdditions
from nearfar.summaries.second_moment import SecondMoment

# Minimum number of values in a batch of rows for which only sums are checked for NaN and infinity.
# In a smaller batch, every value is checked.
_MIN_UNCHECKED_SIZE = 2**17
# Maximum size, in bytes, of the sums that are used to detect NaN and infinity in a batch of rows.
# If the sums are larger, every value of the batch is checked.
_MAX_HELD_BYTES = 2**24
_OVERFLOW_MESSAGE = "Sums of the values of X overflow: rescale the features of X."


class ClassStatistics(ClassAdditions):
    r"""Weight, mean and scatter matrix of each class, computed in one pass over the data.

    For each class :math:`c` with rows :math:`x_i` of weight :math:`w_i`, the statistics are

    .. math::
        W_c = \sum_i w_i, \quad m_c = \tfrac1{W_c}\sum_i w_i x_i, \quad
        S_c = \sum_i w_i (x_i - m_c)(x_i - m_c)^T .

    The within, between and total scatter are computed from these statistics. The divisor, ridge and
    shrinkage of a covariance are arguments of :meth:`covariance`.

    Cost: one pass over X in O(n p²) time, without a copy of X. Memory is O(p²) per dense scatter,
    plus blocks of about a thousand rows.

    Parameters
    ----------
    pooled : bool, default=False
        Whether to store one scatter for all classes together instead of one per class. This is
        sufficient for LDA and RCA.
    storage : {"auto", "dense"}, default="auto"
        "auto" stores the rows themselves (*factored*) while there are fewer rows than features, and
        a dense p×p scatter matrix afterwards. "dense" always stores the matrix.
    exact : bool, default=False
        Whether to multiply float32 rows in float64. This takes twice the time, but the result is
        accurate to the precision of the rows even if features are nearly collinear.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Distinct labels, sorted.
    weights, counts : ndarray of shape (n_classes,)
        Sum of the sample weights and number of rows of each class.
    means : ndarray of shape (n_classes, n_features)
        Class means.

    Notes
    -----
    Moments are accumulated about a fixed row :math:`s_c` of each class, so that a large common
    offset of the data, or the order of the batches, does not reduce precision:
    :math:`Q_c = \sum_i w_i (x_i - s_c)(x_i - s_c)^T`, :math:`t_c = \sum_i w_i (x_i - s_c)`, and
    :math:`S_c = Q_c - t_c t_c^T / W_c`.

    Rows in float64 are multiplied in float64. Rows in float32 are centered and multiplied in
    float32 blocks, which are summed in float64.

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
            "_labels": list_of(any_value, "c"),
            "_shifts": floats("c", "p"),
            "_firsts": floats("c", "p"),
            "_counts": indices("c"),
            "_weights": floats("c"),
            "_seconds": list_of(object_of(SecondMoment, p="p"), "scatters"),
            "storage": choice("auto", "dense"),
            **dict.fromkeys(("pooled", "exact", "_rounded"), flag),
            "_precision": number(0),
            "_asked": optional(number(0)),
            "_bears": optional(flag),
        },
        rows=lambda self: self._count_stored_rows(),
    )

    def __init__(self, *, pooled: bool = False, storage: str = "auto", exact: bool = False) -> None:
        if storage not in ("auto", "dense"):
            raise ValueError(f"storage must be 'auto' or 'dense'; got {storage!r}.")
        self.pooled = pooled
        self.storage = storage
        self.exact = exact
        self._rounded = False
        # The arrays below list the classes in order of first appearance. Public arrays are sorted
        # by label.
        self._labels: list[Any] = []
        self._counts = np.zeros(0, dtype=np.int64)
        self._weights = np.zeros(0)
        self._shifts = np.zeros((0, 0))
        # Vector to be added to all shifts. It is nonzero only after `project`.
        self._origin: Floats | float = 0.0
        self._firsts = np.zeros((0, 0))
        self._seconds: list[SecondMoment] = []
        self._precision = float(np.finfo(np.float64).eps)

    def _check_state(self, sizes: Sizes) -> None:
        n = sizes["c"]
        if type(self._origin) is not float:
            check_conditions(vars(self), {"_origin": floats("p")}, sizes)
        fits = len(self._seconds) == (min(n, 1) if self.pooled else n)
        check_that(fits, "_seconds: expected one scatter per class.")
        slots = [batch for second in self._seconds for batch in second.slots]
        check_that(
            all((batch < n).all() for batch in slots), "_seconds: found rows without a class."
        )

    def _count_stored_rows(self) -> int:
        """Return the number of training rows that can be read from the statistics.

        These are the first row of each class, and all rows of small classes.
        """
        firsts = self.n_classes if self.pooled else 1
        return sum(second.n_rows or firsts for second in self._seconds)

    # ------------------------------------------------------------------ adding rows

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> ClassStatistics:
        """Add rows. Without ``y``, all rows belong to one class with label 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to add. Types other than float64 and float32 are converted to float64.
        y : array-like of shape (n_samples,), optional
            Class labels. They may contain new classes.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights. A row of integer weight k counts like k copies of the row.

        Returns
        -------
        ClassStatistics
            The object itself.
        """
        rows: Floats = check_array(
            X, dtype=[np.float64, np.float32], ensure_all_finite=False, input_name="X"
        )
        if y is None:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        else:
            classes, codes = encode_labels(y)
        if len(codes) != len(rows):
            raise ValueError(
                f"X has {len(rows)} rows but y has {len(codes)} labels; they must match."
            )
        weight = None if sample_weight is None else check_weight(sample_weight, len(rows))
        return self.add(rows, classes, codes, weight)

    def add(
        self,
        X: Floats,
        classes: NDArray[Any],
        codes: NDArray[np.intp],
        weight: NDArray[np.float64] | None = None,
        *,
        sparing: bool = False,
    ) -> ClassStatistics:
        """Add rows like :meth:`partial_fit`, but with labels that are already encoded.

        With ``sparing``, float32 rows are multiplied in float32 even if ``exact`` is True. This is
        done only if the earlier rows show that it loses no more digits than a single fit does.
        """
        if self._labels and X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but these statistics have {self.n_features}."
            )
        if weight is not None and (weight == 0).any():
            # Rows of weight zero are ignored: they are not counted and do not add a class.
            assert_all_finite(X, input_name="X")
            is_used = weight > 0
            X, codes, weight = X[is_used], codes[is_used], weight[is_used]
        if not len(X):
            return self
        self._include_origin()
        # NaN or infinity in X makes the sums NaN or infinite, so checking the sums saves a pass
        # over X. Sums need additional memory until they are checked, so large sums are not used for
        # this check.
        n_seconds = 1 if self.pooled else max(len(self._seconds), len(classes))
        state = 8 * n_seconds * self._make_second_moment(X.shape[1]).n_entries
        is_held_back = X.size >= _MIN_UNCHECKED_SIZE and state <= _MAX_HELD_BYTES
        if not is_held_back:
            _check_finite(X)
        is_float32 = X.dtype == np.float32 and weight is None
        sparing = sparing and self.exact and is_float32 and is_held_back and self._allows_float32()
        before = self._copy_state()
        counts = np.bincount(codes, minlength=len(classes))
        present = np.flatnonzero(counts)
        slots = np.full(len(classes), -1, dtype=np.intp)
        slots[present] = self._add_classes(classes[present].tolist(), X, codes, present)
        weights = counts if weight is None else np.bincount(codes, weight, len(classes))
        self._counts[slots[present]] += counts[present]
        self._weights[slots[present]] += weights[present]
        if (slots != np.arange(len(slots))).any():
            codes = slots[codes]
        self._precision = max(self._precision, float(np.finfo(X.dtype).eps))
        root = None if weight is None else np.sqrt(weight)
        if is_held_back:
            firsts, seconds = self._sum_rows(X, codes, root, exact=self.exact and not sparing)
            if sparing and not self._is_typical(seconds, len(X)):
                firsts, seconds = self._sum_rows(X, codes, root, exact=True)
            finite = bool(np.isfinite(firsts).all())
        else:
            for slots, (first, second) in self._iterate_moments(X, codes, root, exact=self.exact):
                self._firsts[slots] += first
                self._seconds[0 if self.pooled else int(slots[0])].add_block(second)
            finite = True
        if not (finite and np.isfinite(self._firsts).all()):
            vars(self).update(before)
            assert_all_finite(X, input_name="X")
            raise ValueError(_OVERFLOW_MESSAGE)
        if is_held_back:
            self._firsts += firsts
            for k, second in seconds.items():
                self._seconds[k].add_block(second)
        return self

    def _make_second_moment(self, n_features: int) -> SecondMoment:
        return SecondMoment(n_features, self.storage)

    def _copy_state(self) -> dict[str, Any]:
        """Return a copy of the state, to restore it after a failure. Dense sums are not copied."""
        return {
            name: value.copy() if isinstance(value, np.ndarray | list) else value
            for name, value in vars(self).items()
        } | {"_seconds": [second.snapshot() for second in self._seconds]}

    def _add_classes(
        self, labels: list[Any], X: Floats, codes: NDArray[np.intp], present: NDArray[np.intp]
    ) -> list[int]:
        """Add new classes, whose first rows become their shifts. Return the index of each label."""
        slots = {label: slot for slot, label in enumerate(self._labels)}
        new_labels = [k for k, label in enumerate(labels) if label not in slots]
        if new_labels:
            _check_common_order(self._labels + [labels[k] for k in new_labels])
            first_rows = X[_find_first_rows(codes, present[new_labels])].astype(np.float64)
            self._shifts = np.concatenate([self._shifts.reshape(-1, X.shape[1]), first_rows])
            self._firsts = np.concatenate([self._firsts.reshape(-1, X.shape[1]), 0.0 * first_rows])
            self._counts = np.concatenate([self._counts, np.zeros(len(new_labels), dtype=np.int64)])
            self._weights = np.concatenate([self._weights, np.zeros(len(new_labels))])
            for k in new_labels:
                slots[labels[k]] = len(self._labels)
                self._labels.append(labels[k])
                if not self.pooled or not self._seconds:
                    self._seconds.append(self._make_second_moment(X.shape[1]))
        return [slots[label] for label in labels]

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Return the statistics of both samples together, as a new object.

        Parameters
        ----------
        other : ClassStatistics
            Statistics with the same number of features and the same ``pooled``.

        Returns
        -------
        ClassStatistics
            The merged statistics. They share no memory with the two inputs.
        """
        if self.pooled != other.pooled:
            raise ValueError(
                "Pooled statistics can be merged with pooled statistics only. Create both with the "
                "same value of pooled."
            )
        if not other._labels:
            return deepcopy(self)
        if not self._labels:
            return deepcopy(other)
        if self.n_features != other.n_features:
            raise ValueError(
                "Statistics can be merged only if they have the same number of features; got "
                f"{self.n_features} and {other.n_features}."
            )
        merged, other = deepcopy(self), deepcopy(other)
        merged._include_origin()
        other._include_origin()
        slot_of = {label: slot for slot, label in enumerate(merged._labels)}
        slots = np.array([slot_of.get(label, -1) for label in other._labels])
        new = np.flatnonzero(slots < 0)
        slots[new] = len(merged._labels) + np.arange(len(new))
        merged._labels += [other._labels[k] for k in new]
        _check_common_order(merged._labels)
        empty = np.zeros((len(new), self.n_features))
        merged._shifts = np.concatenate([merged._shifts, other._shifts[new]])
        merged._firsts = np.concatenate([merged._firsts, empty])
        merged._weights = np.concatenate([merged._weights, np.zeros(len(new))])
        merged._counts = np.concatenate([merged._counts, np.zeros(len(new), dtype=np.int64)])

        # Convert the moments of `other` from its shifts s' to the shifts s of this object, with
        # x - s = (x - s') + delta.
        delta = other._shifts - merged._shifts[slots]
        if self.pooled:
            shifted = other._seconds[0].shift(delta, other._firsts, other._weights)
            merged._seconds[0].absorb(shifted, slots)
        else:
            merged._seconds += [self._make_second_moment(self.n_features) for _ in new]
            for k, slot in enumerate(slots):
                rows = slice(k, k + 1)
                shifted = other._seconds[k].shift(
                    delta[rows], other._firsts[rows], other._weights[rows]
                )
                merged._seconds[slot].absorb(shifted, np.full(len(slots), slot))
        merged._firsts[slots] += other._firsts + other._weights[:, None] * delta
        merged._weights[slots] += other._weights
        merged._counts[slots] += other._counts
        merged._precision = max(self._precision, other._precision)
        merged._rounded = self._rounded or other._rounded
        return merged

    # ------------------------------------------------------------------ derived statistics

    def project(self, B: ArrayLike) -> ClassStatistics:
        """Return the statistics of ``X @ B``, for a matrix B of shape (n_features, q)."""
        matrix = np.asarray(B, dtype=np.float64)
        image = ClassStatistics(pooled=self.pooled, storage=self.storage, exact=self.exact)
        image._labels = list(self._labels)
        image._counts, image._weights = self._counts.copy(), self._weights.copy()
        # Store the common offset separately, because adding it to the shifts would round them.
        image._shifts = (self._shifts - self._shifts[0]) @ matrix
        image._origin = (self._shifts[0] + self._origin) @ matrix
        image._firsts = self._firsts @ matrix
        image._seconds = [second.project(matrix) for second in self._seconds]
        image._precision, image._rounded = self._precision, self._rounded
        return image

    def select(self, keep: NDArray[np.bool_]) -> ClassStatistics:
        """Return the statistics of the selected classes.

        From pooled statistics, only classes with a single row can be removed.

        Parameters
        ----------
        keep : ndarray of bool of shape (n_classes,)
            Mask of the classes to keep, in the order of ``classes``.

        Returns
        -------
        ClassStatistics
            The statistics of these classes. They share no scatter with this object.
        """
        slots = np.sort(self._order[np.asarray(keep, dtype=bool)])
        dropped = np.setdiff1d(np.arange(self.n_classes), slots)
        if self.pooled and (self._counts[dropped] > 1).any():
            raise ValueError(
                "A pooled scatter cannot be split by class. Create the statistics with "
                "pooled=False."
            )
        selected = copy(self)
        selected._seconds = deepcopy(self._seconds)
        selected._labels = [self._labels[slot] for slot in slots]
        for name in ("_counts", "_weights", "_shifts", "_firsts"):
            setattr(selected, name, getattr(self, name)[slots])
        if not self.pooled:
            selected._seconds = [selected._seconds[slot] for slot in slots]
        for second in selected._seconds:
            second.renumber(slots, self.n_classes)
        return selected

    def _include_origin(self) -> None:
        """Add the common offset to the shifts, so that new rows can be added."""
        self._shifts, self._origin = self._shifts + self._origin, 0.0

    def __repr__(self) -> str:
        form = "pooled" if self.pooled else "by class"
        store = "factored" if self.is_factored else "dense"
        return (
            f"ClassStatistics({form}, {store}: {self.n_classes} classes, "
            f"{self.n_features} features, {int(self._counts.sum())} rows)"
        )


def _find_first_rows(codes: NDArray[np.intp], requested: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each class code, return the index of the first row. Every code must occur."""
    end = 4096
    while True:
        rows = np.full(int(codes.max()) + 1, len(codes), dtype=np.intp)
        # If a code occurs several times, NumPy keeps the last value assigned. Assign in reverse
        # order to keep the first row.
        rows[codes[:end][::-1]] = np.arange(min(end, len(codes)))[::-1]
        if (rows[requested] < len(codes)).all():
            return rows[requested]
        end *= 16


def check_weight(sample_weight: ArrayLike, n_samples: int) -> NDArray[np.float64]:
    """Return sample weights as a vector, after checking that they are finite and non-negative."""
    weight: NDArray[np.float64] = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected ({n_samples},): one weight per row "
            "of X."
        )
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(
            f"sample_weight must not be negative; the weight of row {row} is {weight[row]}."
        )
    return weight


def _check_finite(X: Floats) -> None:
    """Raise if X holds NaN or infinity, or values whose sums may overflow."""
    flat = X.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        # The sum of squares is finite unless X holds NaN, infinity or huge values. einsum uses one
        # thread, because BLAS threads would only wait for memory.
        if np.isfinite(np.einsum("i,i->", flat, flat)):
            return
    assert_all_finite(X, input_name="X")
    if max(X.max(), -X.min()) > np.finfo(np.float64).max / (4 * len(X)):
        raise ValueError(_OVERFLOW_MESSAGE)


def _check_common_order(labels: list[Any]) -> None:
    try:
        sorted(labels)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"y mixes labels of types {', '.join(kinds)}, which have no common order; "
            "convert them all to strings or all to numbers."
        ) from error
