"""Standardization of tensors."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Floats, Vector
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.parameters import one_of
from nearfar.state import State, floats
from nearfar.tensors.tensor_map import TRANSFORMER_PARAMETERS, _TensorTransformer


class TensorStandardizer(_TensorTransformer):
    r"""Standardization of tensors to zero mean and unit variance, per entry or as a whole.

    .. math:: X'_j = (X_j - m_j) / s_j \quad\text{or}\quad X'_j = (X_j - m) / s ,

    where :math:`m_j` and :math:`s_j` are the mean and the standard deviation of entry j over the
    samples, and m and s are those of all numbers together. Constant entries are only centered.

    Use it before a tensor learner that is regularized, or if the channels have different units,
    such as hue and brightness. For images of one channel, "all" keeps the structure common to the
    entries of a mode. "entry" destroys this structure: it scales the noise of dark corners to the
    level of all other pixels.

    Cost: two passes of O(n prod(d)).

    Parameters
    ----------
    scope : {"entry", "all"}, default="entry"
        "entry" standardizes each entry of the tensors separately. "all" uses one mean and one
        standard deviation for all entries.
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. If False, it returns tensors.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of each entry. ``transform`` subtracts the mean, and then
        divides by the standard deviation. The scale of constant entries is 1.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    GaborFeatures, AttentionROI

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.5.
       The experiments there do not scale the data.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import TensorStandardizer
    >>> X = np.arange(24.0).reshape(4, 3, 2)
    >>> TensorStandardizer(flatten=False).fit_transform(X)[:, 0, 0].round(3)
    array([-1.342, -0.447,  0.447,  1.342])
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    renamed: ClassVar = {"per": "scope"}
    parameters: ClassVar = {"scope": [one_of("entry", "all")], **TRANSFORMER_PARAMETERS}
    state = State({"mean_": floats("p"), "scale_": floats("p", above=0)}, fitted="scale_")
    min_samples = 2

    mean_: Vector
    scale_: Vector

    def __init__(
        self,
        scope: Literal["entry", "all"] = "entry",
        *,
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.scope = scope
        self.flatten = flatten
        self.tensor_shape = tensor_shape

    def _get_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def _learn(self, T: Floats) -> None:
        rows = T.reshape(len(T), -1)
        # Subtract the first sample, so that a large common offset causes no loss of precision.
        start = rows[0].astype(np.float64)
        sums, squares = np.zeros((2, len(start)))
        for block in split_rows(len(rows), 8 * len(start)):
            deviations = np.subtract(rows[block], start, order="C")
            sums += deviations.sum(axis=0)
        mean = start + sums / len(rows)
        if self.scope == "all":
            mean = np.full_like(mean, mean.mean())
        # Divide by the largest value, because squares of huge or tiny numbers overflow or
        # underflow.
        unit = float(np.abs(rows).max()) or 1.0
        for block in split_rows(len(rows), 8 * len(start)):
            deviations = np.subtract(rows[block], mean, order="C") / unit
            squares += np.einsum("ij,ij->j", deviations, deviations)
        if self.scope == "all":
            squares = np.full_like(squares, squares.mean())
        scale = unit * np.sqrt(squares / len(rows))
        # If the standard deviation is this small, the entry is constant except for rounding errors.
        is_constant = scale <= 10 * np.finfo(rows.dtype).eps * np.abs(mean)
        self.mean_, self.scale_ = mean, np.where(is_constant, 1.0, scale)

    def _transform_tensors(self, T: Floats) -> Floats:
        shape = T.shape[1:]
        mean, scale = (v.reshape(shape).astype(T.dtype) for v in (self.mean_, self.scale_))
        return np.asarray((T - mean) / scale)
