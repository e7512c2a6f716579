"""Crops of the most salient region of images."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.parameters import integer, one_of
from nearfar.tensors.saliency import most_salient
from nearfar.tensors.tensor_map import MAP_PARAMETERS, _TensorMap


class AttentionROI(_TensorMap):
    r"""Square crops of images around their most salient pixels.

    The crop of an image is centered at :math:`\arg\max_p S(p)`, where S is its
    :func:`~nearfar.tensors.saliency_map`. Crops of color images are converted to hue, saturation
    and value, and have the shape (size, size, 3). Crops of gray images have the shape (size, size).
    Labels are not used, so a crop may miss the object.

    Use it to convert photographs of single objects to small tensors of the same shape. ``fit``
    stores only the shape of the images.

    Cost: a few filters per image, O(h w).

    Parameters
    ----------
    size : int, default=64
        Side in pixels: of the square crop.
    color_space : {"hsv", "rgb"}, default="hsv"
        Color space of the crops of color images. Hue and saturation range from 0 to 1; hue is
        cyclic, and both 0 and 1 are red.
    border : {"shift", "edge"}, default="shift"
        Treatment of crops that extend beyond the image: "shift" moves them inside, "edge" repeats
        the pixels at the border. Images smaller than the crop are always padded by repetition.
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
    Images of dtype uint8 are divided by 255. Other values are not scaled.

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
        """Return the position of the crop of each image.

        Parameters
        ----------
        images : array-like of shape (n_images, height, width) or (n_images, height, width, 3)
            Images, in the same form as in ``transform``.

        Returns
        -------
        ndarray of int, shape (n_images, 4)
            Top, left, height and width in pixels of the part of the crop inside the image.
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
                "AttentionROI expects gray images of shape (height, width) or color images of "
                f"shape (height, width, 3); samples of X have shape {shape}. If X contains flat "
                "rows, set tensor_shape."
            )
        return self.size, self.size, *shape[2:]

    def _starts(self, T: Floats) -> NDArray[Any]:
        """Return the first row and column of each crop, which may lie outside the image."""
        sides = np.array(T.shape[1:3])
        starts = np.empty((len(T), 2), dtype=np.intp)
        for block in split_rows(len(T), 40 * T[0].size):
            starts[block] = np.stack(most_salient(T[block]), axis=1) - self.size // 2
        if self.border == "shift":
            starts = np.clip(starts, 0, np.maximum(sides - self.size, 0))
        # Images smaller than the crop are placed in its center.
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
    """Convert RGB to hue and saturation from 0 to 1, and value, the maximum of the channels."""
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
