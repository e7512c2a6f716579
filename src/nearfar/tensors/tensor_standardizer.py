"""Standardised tensors."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Floats, Vector
from nearfar.base import LearnerTags
from nearfar.blocks import row_blocks
from nearfar.parameters import one_of
from nearfar.state import State, floats
from nearfar.tensors.tensor_map import MAP_PARAMETERS, _TensorMap


class TensorStandardizer(_TensorMap):
    r"""Tensors with mean zero and deviation one, entry by entry or as a whole.

    .. math:: X'_j = (X_j - m_j) / s_j \quad\text{or}\quad X'_j = (X_j - m) / s ,

    with the mean :math:`m_j` and the standard deviation :math:`s_j` of each entry j over the
    samples, or those of all numbers together. What does not vary is only centred.

    Use it before a tensor learner whose answer depends on units: those with a penalty, or samples
    whose channels are no alike (hue and brightness). For images of one kind "all" keeps what the
    modes have in common, which "entry" destroys: it raises the noise of dark corners to the level
    of everything else.

    Cost: two passes of O(n prod(d)).

    Parameters
    ----------
    per : {"entry", "all"}, default="entry"
        Whether each entry of the tensors has a mean and a deviation of its own.
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. False returns tensors.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        What is subtracted from flat rows, and what they are divided by then.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    GaborFeatures, AttentionROI

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.5
       (which scales nothing).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import TensorStandardizer
    >>> X = np.arange(24.0).reshape(4, 3, 2)
    >>> TensorStandardizer(flatten=False).fit_transform(X)[:, 0, 0].round(3)
    array([-1.342, -0.447,  0.447,  1.342])
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    parameters: ClassVar = {"per": [one_of("entry", "all")], **MAP_PARAMETERS}
    state = State({"mean_": floats("p"), "scale_": floats("p", above=0)}, fitted="scale_")
    min_samples = 2

    mean_: Vector
    scale_: Vector

    def __init__(
        self,
        per: Literal["entry", "all"] = "entry",
        *,
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.per = per
        self.flatten = flatten
        self.tensor_shape = tensor_shape

    def _shape_out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def _learn(self, T: Floats) -> None:
        rows = T.reshape(len(T), -1)
        # About the first sample: a large common offset costs no digits.
        start = rows[0].astype(np.float64)
        sums, squares = np.zeros((2, len(start)))
        for block in row_blocks(len(rows), 8 * len(start)):
            part = np.subtract(rows[block], start, order="C")
            sums += part.sum(axis=0)
        mean = start + sums / len(rows)
        if self.per == "all":
            mean = np.full_like(mean, mean.mean())
        unit = float(np.abs(rows).max()) or 1.0  # squares of huge or tiny numbers are none
        for block in row_blocks(len(rows), 8 * len(start)):
            part = np.subtract(rows[block], mean, order="C") / unit
            squares += np.einsum("ij,ij->j", part, part)
        if self.per == "all":
            squares = np.full_like(squares, squares.mean())
        scale = unit * np.sqrt(squares / len(rows))
        # Rounding of a constant is no variance.
        constant = scale <= 10 * np.finfo(rows.dtype).eps * np.abs(mean)
        self.mean_, self.scale_ = mean, np.where(constant, 1.0, scale)

    def _mapped(self, T: Floats) -> Floats:
        shape = T.shape[1:]
        mean, scale = (v.reshape(shape).astype(T.dtype) for v in (self.mean_, self.scale_))
        return np.asarray((T - mean) / scale)
