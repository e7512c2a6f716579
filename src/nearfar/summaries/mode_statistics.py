"""Of tensors: class means, and scatters of each mode. What multilinear subspaces solve from."""

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
from nearfar.state import Sizes, State, choice, flag, need, none_or, object_of, shape_word
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.mode_sums import ModeSums

#: Entries of a tensor up to which the second moment of all of them is kept: 128 MB at most.
FULL_SIZE = 4096

Factors = Sequence[Floats | None]


class ModeStatistics:
    r"""Class means of tensors, and their scatters in each mode, built in one pass.

    For tensors :math:`X_i` of classes c with means :math:`M_c`, of :math:`n_c` samples, and the
    mean M of all, projected by factors :math:`U_j` of shape :math:`d_j \times q_j` in all modes but
    k, it tells

    .. math::
        W_k = \sum_i T_{i(k)} T_{i(k)}^T, \quad T_i = (X_i - M_{c(i)}) \times_{j \ne k} U_j^T
        \qquad\text{and}\qquad
        B_k = \sum_c n_c T_{c(k)} T_{c(k)}^T, \quad T_c = (M_c - M) \times_{j \ne k} U_j^T ,

    where :math:`T_{(k)}` is the unfolding in mode k. :math:`W_k` after any projection needs the
    second moment of vec(X), and nothing smaller suffices. It is kept while a tensor has no more
    than 4,096 entries: then batches tell what all samples at once tell. Beyond, one matrix
    :math:`d_k \times d_k` is kept for each mode: :math:`W_k` without a projection, which is what
    the non-iterative methods need. :math:`B_k` is known in either case.

    Cost, of tensors with p entries: one pass, O(n p²) time and O(p²) memory for the full moment,
    with samples kept as such while fewer than p; or O(n p Σ d_k) time and O(Σ d_k²) memory for the
    modes; and the class means. float64 input is multiplied in float64; float32 input in float32
    blocks that are summed in float64.

    Parameters
    ----------
    storage : {"auto", "full", "modes"}, default="auto"
        Keep the full second moment, or scatters of the modes alone; "auto" decides by the number
        of entries of a tensor.
    exact : bool, default=False
        Multiply float32 samples in float64 too: slower, and right to the last digit of the samples
        also where entries are nearly collinear.

    Attributes
    ----------
    tensor_shape : tuple of int
        Shape of a sample, (d1, ..., dk); None before the first.
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
    ClassStatistics : The same of vectors.

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
            "tensor_shape": none_or(shape_word),
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
        self._rows: ClassStatistics | None = None  # of vec(X)

    # ------------------------------------------------------------------ accumulating

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> ModeStatistics:
        """Add samples. Without ``y`` all are of one class, labelled 0.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors; float64 and float32 are used as they are. Rows are tensors of order one.
        y : array-like of shape (n_samples,), optional
            Labels. New classes may appear at any time.

        Returns
        -------
        ModeStatistics
            Itself.
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
            raise ValueError(f"X has {len(stack)} samples but y has {len(codes)} labels.")
        return self.add(stack, classes, codes)

    def add(self, X: Floats, classes: NDArray[Any], codes: NDArray[np.intp]) -> ModeStatistics:
        """``partial_fit`` for arrays that were checked and encoded before."""
        shape = tuple(int(d) for d in X.shape[1:])
        if self.tensor_shape is not None and shape != self.tensor_shape:
            raise ValueError(
                f"X holds tensors of shape {_times(shape)}, but these statistics are of shape "
                f"{_times(self.tensor_shape)}."
            )
        if not prod(shape):
            raise ValueError(f"X holds tensors of shape {_times(shape)}, without an entry.")
        rows = self._new_rows(shape) if self._rows is None else self._rows
        flat = X.reshape(len(X), prod(shape))
        try:
            rows.add(flat, classes, codes)
        except ValueError:
            check_finite_samples(flat)  # which says where
            raise
        # Only when all went well: samples that were refused must leave no trace.
        self._rows, self.tensor_shape = rows, shape
        return self

    def _new_rows(self, shape: tuple[int, ...]) -> ClassStatistics:
        full = prod(shape) <= FULL_SIZE if self.storage == "auto" else self.storage == "full"
        if full:
            return ClassStatistics(pooled=True, exact=self.exact)
        return ModeSums(shape, exact=self.exact)

    def merge(self, other: ModeStatistics) -> ModeStatistics:
        """The statistics of both samples together, as a new object.

        Parameters
        ----------
        other : ModeStatistics
            Of tensors of the same shape, in the same storage.

        Returns
        -------
        ModeStatistics
            Independent of both.
        """
        if self._rows is not None and other._rows is not None:
            if self.tensor_shape != other.tensor_shape:
                raise ValueError(
                    f"Statistics of tensors of shape {_times(self.tensor_shape)} and of "
                    f"{_times(other.tensor_shape)} do not merge."
                )
            if self.is_full != other.is_full:
                raise ValueError(
                    "Statistics with the full second moment do not merge with those of the modes "
                    "alone; make both with the same storage."
                )
        one, two = (part._rows or ClassStatistics(pooled=True) for part in (self, other))
        merged = ModeStatistics(storage=self.storage, exact=self.exact)
        if self._rows is not None or other._rows is not None:
            merged._rows = one.merge(two)
            merged.tensor_shape = self.tensor_shape or other.tensor_shape
        return merged

    # ------------------------------------------------------------------ reading

    @property
    def is_full(self) -> bool:
        """Whether the full second moment is kept, so that scatters after projections are known."""
        return not isinstance(self._some_rows, ModeSums)

    @property
    def n_classes(self) -> int:
        """Number of classes seen."""
        return 0 if self._rows is None else self._rows.n_classes

    @property
    def classes(self) -> NDArray[Any]:
        """Distinct labels, sorted."""
        return self._some_rows.classes

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of samples of each class."""
        return self._some_rows.counts

    @property
    def weights(self) -> NDArray[np.float64]:
        """The same as floats."""
        return self._some_rows.weights

    @property
    def total_weight(self) -> float:
        """Number of all samples."""
        return self._some_rows.total_weight

    @property
    def mean(self) -> Matrix:
        """Mean of all samples, (d1, ..., dk)."""
        return self._some_rows.mean.reshape(self._shape)

    @property
    def means(self) -> Matrix:
        """Class means, (n_classes, d1, ..., dk)."""
        return self._some_rows.means.reshape(-1, *self._shape)

    @property
    def precision(self) -> float:
        """Machine epsilon of the coarsest dtype that was accumulated."""
        return self._some_rows.precision

    def variances(self) -> Matrix:
        """Variance of each entry over all samples, (d1, ..., dk)."""
        return self._some_rows.total_variances().reshape(self._shape)

    def within_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Scatter about the class means in a mode, after a projection of the other modes.

        Parameters
        ----------
        mode : int
            From 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            One for each mode; that of ``mode`` is not read, and None leaves a mode as it is. Any
            but None needs the full second moment, as long as there is another mode than this.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        rows, (mode, factors) = self._some_rows, self._checked(mode, factors)
        if isinstance(rows, ModeSums) and factors is not None:
            raise ValueError(
                "These statistics hold scatters of the modes alone, and cannot tell what factors "
                f"leave of them: tensors of shape {_times(self._shape)} have more than "
                f"{FULL_SIZE:,} entries, or storage='modes' was asked for. Leave factors out, or "
                "make the statistics with storage='full'."
            )
        of_matrix = (
            rows.of_mode(mode)
            if isinstance(rows, ModeSums)
            else lambda moment: moment_mode_scatter(moment, self._shape, mode, factors)
        )
        return rows.read_within(of_matrix, self._of_rows(mode, factors))

    def between_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Scatter of the class means, weighted by class, after a projection of the other modes.

        Parameters
        ----------
        mode : int
            From 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            One for each mode; that of ``mode`` is not read, and None leaves a mode as it is.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        rows, (mode, factors) = self._some_rows, self._checked(mode, factors)
        return self._of_rows(mode, factors)(rows.between_factor())

    def total_scatter(self, mode: int, factors: Factors | None = None) -> Matrix:
        """Scatter of all samples about their mean: within plus between.

        Parameters
        ----------
        mode : int
            From 0.
        factors : sequence of ndarray of shape (d_j, q_j), optional
            As in :meth:`within_scatter`.

        Returns
        -------
        ndarray of shape (d_mode, d_mode)
        """
        within = self.within_scatter(mode, factors)
        return within + self.between_scatter(mode, factors) if self.n_classes > 1 else within

    def _of_rows(self, mode: int, factors: Factors | None) -> Callable[[Floats], Matrix]:
        """The scatter in a mode of vec(X) in rows."""

        def scatter(rows: Floats) -> Matrix:
            stack = rows.reshape(-1, *self._shape)
            return mode_scatter(project_stack(stack, factors or (), skip=mode), mode)

        return scatter

    def _checked(self, mode: int, factors: Factors | None) -> tuple[int, Factors | None]:
        """The mode from 0, and factors that do something; None where none do."""
        shape = self._shape
        if not -len(shape) <= mode < len(shape):
            raise ValueError(f"mode must be from 0 to {len(shape) - 1}; got {mode}.")
        mode %= len(shape)
        if factors is None:
            return mode, None
        if len(factors) != len(shape):
            raise ValueError(f"there are {len(shape)} modes, but {len(factors)} factors.")
        others = [None if U is None or k == mode else np.asarray(U) for k, U in enumerate(factors)]
        for k, U in enumerate(others):
            if U is not None and (U.ndim != 2 or U.shape[0] != shape[k]):
                raise ValueError(
                    f"factors[{k}] must have shape ({shape[k]}, q); it has shape {U.shape}."
                )
        return mode, others if any(U is not None for U in others) else None

    @property
    def _some_rows(self) -> ClassStatistics:
        if self._rows is None:
            raise ValueError("These statistics hold no samples yet; call partial_fit first.")
        return self._rows

    @property
    def _shape(self) -> tuple[int, ...]:
        assert self._some_rows is not None
        return self.tensor_shape or ()

    def _check_state(self, sizes: Sizes) -> None:
        need((self._rows is None) == (self.tensor_shape is None), "there are no sums, or no shape.")
        if self._rows is not None:
            fits = self._rows.n_features == prod(self._shape)
            need(fits, "the sums are not of tensors of this shape.")
            if isinstance(self._rows, ModeSums):
                need(self._rows.tensor_shape == self._shape, "the sums are of another shape.")
            need(self._rows.pooled, "the sums are not pooled.")

    def __repr__(self) -> str:
        if self._rows is None:
            return "ModeStatistics(no samples)"
        form = "full second moment" if self.is_full else "modes alone"
        return (
            f"ModeStatistics({form}: {self.n_classes} classes, {int(self.counts.sum())} samples of "
            f"shape {_times(self._shape)})"
        )


def _times(shape: Sequence[int] | None) -> str:
    return "×".join(str(d) for d in shape or ())
