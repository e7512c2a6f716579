"""Class means and mode scatters of tensors, for multilinear subspace methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import check_finite_samples
from nearfar.labels import encode_labels
from nearfar.solvers.tensor_algebra import mode_scatter, moment_mode_scatter, project_stack
from nearfar.state import Sizes, State, check_that, choice, flag, none_or, object_of, shape_value
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.mode_sums import ModeSums

#: Maximum number of entries of a tensor for which storage="auto" stores the sums of products of all
#: pairs of entries. These sums take at most 128 MB.
FULL_SIZE = 4096

Factors = Sequence[Floats | None]


class ModeStatistics:
    r"""Class means of tensors and one scatter matrix per mode, computed in one pass.

    Let :math:`X_i` be tensors of classes c with means :math:`M_c` and :math:`n_c` samples, let M be
    the mean of all samples, and let :math:`U_j` be factors of shape :math:`d_j \times q_j` that
    project all modes except k. The scatter matrices of mode k are

    .. math::
        W_k = \sum_i T_{i(k)} T_{i(k)}^T, \quad T_i = (X_i - M_{c(i)}) \times_{j \ne k} U_j^T
        \qquad\text{and}\qquad
        B_k = \sum_c n_c T_{c(k)} T_{c(k)}^T, \quad T_c = (M_c - M) \times_{j \ne k} U_j^T ,

    where :math:`T_{(k)}` is the unfolding in mode k.

    Cost for tensors with p entries: one pass. The full second moment takes O(n p²) time and O(p²)
    memory; fewer than p samples are stored as they are. The scatters of the modes take O(n p Σ d_k)
    time and O(Σ d_k²) memory. Both also store the class means.

    Parameters
    ----------
    storage : {"auto", "full", "modes"}, default="auto"
        "full" stores the sums of products of all pairs of entries, and "modes" stores one scatter
        matrix per mode. "auto" uses "full" for tensors of at most 4,096 entries. See Notes.
    exact : bool, default=False
        Whether to multiply float32 samples in float64. This is slower, but the result is accurate
        to the precision of the samples even if entries are nearly collinear.

    Attributes
    ----------
    tensor_shape : tuple of int
        Shape of a sample, (d1, ..., dk). None before the first call of ``partial_fit``.
    classes : ndarray of shape (n_classes,)
        Distinct labels, sorted.
    weights, counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    means : ndarray of shape (n_classes, d1, ..., dk)
        Class means.
    mean : ndarray of shape (d1, ..., dk)
        Mean of all samples.

    See Also
    --------
    ClassStatistics : Statistics of vectors.

    Notes
    -----
    The scatter :math:`W_k` after an arbitrary projection can be computed only from the second
    moment of vec(X), which "full" stores. Iterative methods can then be fitted in batches with the
    same result as on all samples at once. "modes" stores :math:`W_k` without a projection, a matrix
    of shape :math:`d_k \times d_k` per mode, which is sufficient for non-iterative methods.
    :math:`B_k` is available with both.

    Samples in float64 are multiplied in float64. Samples in float32 are multiplied in float32
    blocks, which are summed in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import ModeStatistics
    >>> X = np.arange(24.0).reshape(4, 2, 3)
    >>> statistics = ModeStatistics().partial_fit(X[:3], ["a", "a", "b"]).partial_fit(X[3:], ["b"])
    >>> statistics
    ModeStatistics(full second moment: 2 classes, 4 samples of shape 2×3)
    >>> statistics.within_scatter(0)
    array([[108., 108.],
           [108., 108.]])
    >>> statistics.between_scatter(0, [None, np.ones((3, 1))])
    array([[1296., 1296.],
           [1296., 1296.]])
    """

    state: ClassVar = State(
        {
            "storage": choice("auto", "full", "modes"),
            "exact": flag,
            "tensor_shape": none_or(shape_value),
            "_rows": none_or(object_of(ClassStatistics, ModeSums)),
        },
        rows=0,
    )

    def __init__(self, *, storage: str = "auto", exact: bool = False) -> None:
        if storage not in ("auto", "full", "modes"):
            raise ValueError(f"storage must be 'auto', 'full' or 'modes'; got {storage!r}.")
        self.storage = storage
        self.exact = exact
        self.tensor_shape: tuple[int, ...] | None = None
        # Statistics of the flattened tensors.
        self._rows: ClassStatistics | None = None

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> ModeStatistics:
        """Add samples. Without ``y``, all samples belong to one class with label 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors to add. Types other than float64 and float32 are converted to float64. Rows of a
            2-dimensional array are tensors of order one.
        y : array-like of shape (n_samples,), optional
            Class labels. They may contain new classes.

        Returns
        -------
        ModeStatistics
            The object itself.
        """
        stack: Floats = check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            allow_nd=True,
            input_name="X",
        )
        if y is None:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(stack), dtype=np.intp)
        else:
            classes, codes = encode_labels(y)
        if len(codes) != len(stack):
            raise ValueError(
                f"X has {len(stack)} samples but y has {len(codes)} labels; they must match."
            )
        return self.add(stack, classes, codes)

    def add(self, X: Floats, classes: NDArray[Any], codes: NDArray[np.intp]) -> ModeStatistics:
        """Add samples like :meth:`partial_fit`, but with labels that are already encoded."""
        shape = tuple(int(d) for d in X.shape[1:])
        if self.tensor_shape is not None and shape != self.tensor_shape:
            raise ValueError(
                f"X holds tensors of shape {_format_shape(shape)}, but these statistics hold "
                f"tensors of shape {_format_shape(self.tensor_shape)}."
            )
        if not prod(shape):
            raise ValueError(
                f"X holds tensors of shape {_format_shape(shape)}, which have no entries."
            )
        rows = self._make_row_statistics(shape) if self._rows is None else self._rows
        flat = X.reshape(len(X), prod(shape))
        try:
            rows.add(flat, classes, codes)
        except ValueError:
            # Raise an error that names the sample with NaN or infinity, if there is one.
            check_finite_samples(flat)
            raise
        # Assign only after success, because rejected samples must not change the statistics.
        self._rows, self.tensor_shape = rows, shape
        return self

    def _make_row_statistics(self, shape: tuple[int, ...]) -> ClassStatistics:
        full = prod(shape) <= FULL_SIZE if self.storage == "auto" else self.storage == "full"
        if full:
            return ClassStatistics(pooled=True, exact=self.exact)
        return ModeSums(shape, exact=self.exact)

    def merge(self, other: ModeStatistics) -> ModeStatistics:
        """Return the statistics of both samples together, as a new object.

        Parameters
        ----------
        other : ModeStatistics
            Statistics of tensors of the same shape, with the same storage.

        Returns
        -------
        ModeStatistics
            The merged statistics. They share no memory with the two inputs.
        """
        if self._rows is not None and other._rows is not None:
            if self.tensor_shape != other.tensor_shape:
                raise ValueError(
                    "Statistics can be merged only if their tensors have the same shape; got "
                    f"{_format_shape(self.tensor_shape)} and {_format_shape(other.tensor_shape)}."
                )
            if self.is_full != other.is_full:
                raise ValueError(
                    "Statistics with storage='full' cannot be merged with statistics with "
                    "storage='modes'. Create both with the same storage."
                )
        first, second = (
            statistics._rows or ClassStatistics(pooled=True) for statistics in (self, other)
        )
        merged = ModeStatistics(storage=self.storage, exact=self.exact)
        if self._rows is not None or other._rows is not None:
            merged._rows = first.merge(second)
            merged.tensor_shape = self.tensor_shape or other.tensor_shape
        return merged

    @property
    def is_full(self) -> bool:
        """Whether sums of products of all entries are stored, so that ``factors`` can be used."""
        return not isinstance(self._checked_rows, ModeSums)

    @property
    def n_classes(self) -> int:
        """Number of classes seen."""
        return 0 if self._rows is None else self._rows.n_classes

    @property
    def classes(self) -> NDArray[Any]:
        """Distinct labels, sorted."""
        return self._checked_rows.classes

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of samples of each class."""
        return self._checked_rows.counts

    @property
    def weights(self) -> NDArray[np.float64]:
        """Number of samples of each class, as floats."""
        return self._checked_rows.weights

    @property
    def total_weight(self) -> float:
        """Total number of samples."""
        return self._checked_rows.total_weight

    @property
    def mean(self) -> Matrix:
        """Mean of all samples, of shape (d1, ..., dk)."""
        return self._checked_rows.mean.reshape(self._shape)

    @property
    def means(self) -> Matrix:
        """Class means, of shape (n_classes, d1, ..., dk)."""
        return self._checked_rows.means.reshape(-1, *self._shape)

    @property
    def precision(self) -> float:
        """Machine epsilon of the least precise dtype among the added samples."""
        return self._checked_rows.precision

    def variances(self) -> Matrix:
        """Return the variance of each entry over all samples, of shape (d1, ..., dk)."""
        return self._checked_rows.total_variances().reshape(self._shape)

    def within_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Return the within-class scatter of a mode, after projecting the other modes.

        Parameters
        ----------
        mode : int
            The mode, from 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            Projection matrix of each mode. None means that the mode is not projected. The entry for
            ``mode`` itself is ignored. Projections require ``is_full``.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        rows, (mode, factors) = self._checked_rows, self._check_mode(mode, factors)
        if isinstance(rows, ModeSums) and factors is not None:
            raise ValueError(
                "factors requires full statistics, but these statistics store only one scatter per "
                f"mode, because tensors of shape {_format_shape(self._shape)} have more than "
                f"{FULL_SIZE:,} entries or because storage='modes' was passed. Omit factors, or "
                "create the statistics with storage='full'."
            )
        read_matrix = (
            rows.make_mode_reader(mode)
            if isinstance(rows, ModeSums)
            else lambda moment: moment_mode_scatter(moment, self._shape, mode, factors)
        )
        return rows.read_within(read_matrix, self._make_row_function(mode, factors))

    def between_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Return the between-class scatter of a mode, after projecting the other modes.

        Parameters
        ----------
        mode : int
            The mode, from 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            Projection matrix of each mode. None means that the mode is not projected. The entry for
            ``mode`` itself is ignored.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        rows, (mode, factors) = self._checked_rows, self._check_mode(mode, factors)
        return self._make_row_function(mode, factors)(rows.between_factor())

    def total_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Return the scatter of all samples about their mean: within plus between scatter.

        Parameters
        ----------
        mode : int
            The mode, from 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            Projection matrix of each mode; see :meth:`within_scatter`.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        within = self.within_scatter(mode, factors)
        return within + self.between_scatter(mode, factors) if self.n_classes > 1 else within

    def _make_row_function(self, mode: int, factors: Factors | None) -> Callable[[Floats], Matrix]:
        """Return a function that computes the scatter of a mode from flattened tensors."""

        def scatter(rows: Floats) -> Matrix:
            stack = rows.reshape(-1, *self._shape)
            return mode_scatter(project_stack(stack, factors or (), skip=mode), mode)

        return scatter

    def _check_mode(self, mode: int, factors: Factors | None) -> tuple[int, Factors | None]:
        """Return the mode as a non-negative integer, and the projections of the other modes."""
        shape = self._shape
        if not -len(shape) <= mode < len(shape):
            raise ValueError(f"mode must be from {-len(shape)} to {len(shape) - 1}; got {mode}.")
        mode %= len(shape)
        if factors is None:
            return mode, None
        if len(factors) != len(shape):
            raise ValueError(
                f"factors must have one entry for each of the {len(shape)} modes; got "
                f"{len(factors)} entries."
            )
        projections = [
            None if U is None or k == mode else np.asarray(U) for k, U in enumerate(factors)
        ]
        for k, U in enumerate(projections):
            if U is not None and (U.ndim != 2 or U.shape[0] != shape[k]):
                raise ValueError(
                    f"factors[{k}] must have shape ({shape[k]}, q); got shape {U.shape}."
                )
        return mode, projections if any(U is not None for U in projections) else None

    @property
    def _checked_rows(self) -> ClassStatistics:
        if self._rows is None:
            raise ValueError("These statistics hold no samples yet; call partial_fit first.")
        return self._rows

    @property
    def _shape(self) -> tuple[int, ...]:
        assert self._checked_rows is not None
        return self.tensor_shape or ()

    def _check_state(self, sizes: Sizes) -> None:
        check_that(
            (self._rows is None) == (self.tensor_shape is None),
            "expected both sums and a tensor shape, or neither.",
        )
        if self._rows is not None:
            fits = self._rows.n_features == prod(self._shape)
            check_that(fits, "the size of the sums does not match the tensor shape.")
            if isinstance(self._rows, ModeSums):
                check_that(
                    self._rows.tensor_shape == self._shape,
                    "the tensor shape of the sums differs from tensor_shape.",
                )
            check_that(self._rows.pooled, "expected pooled sums.")

    def __repr__(self) -> str:
        if self._rows is None:
            return "ModeStatistics(no samples)"
        form = "full second moment" if self.is_full else "modes alone"
        return (
            f"ModeStatistics({form}: {self.n_classes} classes, {int(self.counts.sum())} samples of "
            f"shape {_format_shape(self._shape)})"
        )


def _format_shape(shape: Sequence[int] | None) -> str:
    return "×".join(str(d) for d in shape or ())
