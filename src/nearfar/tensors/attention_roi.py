"""The part of an image that draws the eye."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import LearnerTags
from nearfar.blocks import row_blocks
from nearfar.parameters import integer, one_of
from nearfar.tensors.saliency import most_salient
from nearfar.tensors.tensor_map import MAP_PARAMETERS, _TensorMap


class AttentionROI(_TensorMap):
    r"""The square of each image about the pixel that stands out most.

    That is :math:`\arg\max_p S(p)` for the map S of a model of attention,
    :func:`~nearfar.tensors.saliency_map`. The square is cut out and, of colour images, converted to
    hue, saturation and value: a tensor of shape (size, size, 3). Grey images stay grey, (size,
    size). Wrong squares are kept: nobody looks at labels here.

    Use it to bring photographs with one object in them to tensors of one small size. It learns
    nothing.

    Cost: a few filters for each image, O(h w).

    Parameters
    ----------
    size : int, default=64
        Side in pixels: of the square.
    color_space : {"hsv", "rgb"}, default="hsv"
        What colour images become. Hue and saturation are from 0 to 1; hue runs round and begins
        again at red.
    border : {"shift", "edge"}, default="shift"
        What is done with a square that leaves the image: it is moved inside, or what is outside
        repeats the pixels at the edge. Images smaller than the square are always repeated, evenly
        on both sides.
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. False returns tensors.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).

    Attributes
    ----------
    tensor_shape_ : tuple of int
        Shape of an image.

    See Also
    --------
    TensorStandardizer, GaborFeatures, nearfar.tensors.saliency_map

    Notes
    -----
    Images of type uint8 are divided by 255; other numbers are taken as they are.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 4.5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import AttentionROI
    >>> images = np.zeros((1, 128, 160, 3), dtype=np.uint8)
    >>> images[0, 60:68, 92:100] = [255, 0, 0]
    >>> roi = AttentionROI(32, flatten=False).fit(images)
    >>> roi.locate(images)
    array([[48, 80, 32, 32]])
    >>> roi.transform(images)[0, 16, 16]
    array([0., 1., 1.])
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    parameters: ClassVar = {
        "size": [integer(1, 4096)],
        "color_space": [one_of("hsv", "rgb")],
        "border": [one_of("shift", "edge")],
        **MAP_PARAMETERS,
    }

    def __init__(
        self,
        size: int = 64,
        *,
        color_space: Literal["hsv", "rgb"] = "hsv",
        border: Literal["shift", "edge"] = "shift",
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.size = size
        self.color_space = color_space
        self.border = border
        self.flatten = flatten
        self.tensor_shape = tensor_shape

    def locate(self, images: ArrayLike) -> NDArray[np.intp]:
        """Where the square of each image lies: the part of it that is in the image.

        Parameters
        ----------
        images : array-like of shape (n_images, height, width) or (n_images, height, width, 3)
            As in ``transform``.

        Returns
        -------
        ndarray of int, shape (n_images, 4)
            Top, left, height and width in pixels.
        """
        check_is_fitted(self)
        T = self._tensors(images)
        limits = np.array(T.shape[1:3])
        starts = self._starts(T)
        first = np.clip(starts, 0, limits - 1)
        last = np.clip(starts + self.size, 1, limits)
        return np.hstack([first, last - first]).astype(np.intp)

    def _tensors(self, X: ArrayLike) -> Floats:
        T = super()._tensors(X)
        return T / 255 if getattr(X, "dtype", None) == np.uint8 else T

    def _shape_out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (2, 3) or shape[2:] not in ((), (3,)):
            raise ValueError(
                "AttentionROI takes grey images of shape (height, width) or colour images of shape "
                f"(height, width, 3); samples of X have shape {shape}. For flat rows give "
                "tensor_shape."
            )
        return self.size, self.size, *shape[2:]

    def _starts(self, T: Floats) -> NDArray[Any]:
        """First row and column of each square, which may lie outside."""
        sides = np.array(T.shape[1:3])
        starts = np.empty((len(T), 2), dtype=np.intp)
        for block in row_blocks(len(T), 40 * T[0].size):
            starts[block] = np.stack(most_salient(T[block]), axis=1) - self.size // 2
        if self.border == "shift":
            starts = np.clip(starts, 0, np.maximum(sides - self.size, 0))
        # Smaller images lie in the middle of their square.
        return np.where(sides < self.size, -((self.size - sides) // 2), starts)

    def _mapped(self, T: Floats) -> Floats:
        starts, steps = self._starts(T), np.arange(self.size)
        rows = np.clip(starts[:, :1] + steps, 0, T.shape[1] - 1)
        columns = np.clip(starts[:, 1:] + steps, 0, T.shape[2] - 1)
        samples = np.arange(len(T))[:, None, None]
        squares = np.asarray(T[samples, rows[:, :, None], columns[:, None, :]])
        is_color = squares.ndim == 4 and self.color_space == "hsv"
        return hsv_of_rgb(squares) if is_color else squares


def hsv_of_rgb(colors: Floats) -> Floats:
    """Hue and saturation from 0 to 1, and the largest of red, green and blue."""
    value, least = colors.max(axis=-1), colors.min(axis=-1)
    chroma = value - least
    gray = chroma <= 0
    r, g, b = np.moveaxis(colors, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sixth = np.select(
            [value == r, value == g],
            [(g - b) / chroma % 6, (b - r) / chroma + 2],
            (r - g) / chroma + 4,
        )
        saturation = np.where(value > 0, chroma / value, 0)
    hue = np.where(gray, 0, sixth / 6)
    return np.stack([hue, saturation, value], axis=-1).astype(colors.dtype, copy=False)
