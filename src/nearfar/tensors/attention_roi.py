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
from nearfar.tensors.saliency import find_most_salient_pixels
from nearfar.tensors.tensor_map import TRANSFORMER_PARAMETERS, _TensorTransformer


class AttentionROI(_TensorTransformer):
    r"""Square crops of images around their most salient pixels.

    The crop of an image is centered at :math:`\arg\max_p S(p)`, where S is its
    :func:`~nearfar.tensors.saliency_map`. Crops of color images have the shape (crop_size,
    crop_size, 3) and are converted to hue, saturation and value by default. Crops of gray images
    have the shape (crop_size, crop_size). Labels are not used, so a crop may miss the object.

    Use it to convert photographs of single objects to small tensors of the same shape. ``fit``
    stores only the shape of the images.

    Cost: a few filters per image, O(h w).

    Parameters
    ----------
    crop_size : int, default=64
        Height and width of each crop in pixels.
    color_space : {"hsv", "rgb"}, default="hsv"
        Color space of the crops of color images. Hue and saturation range from 0 to 1; hue is
        cyclic, and both 0 and 1 are red.
    border : {"shift", "edge"}, default="shift"
        Treatment of crops that extend beyond the image: "shift" moves them inside, "edge" repeats
        the pixels at the border. Images smaller than the crop are always padded with repeated
        border pixels.
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. If False, it returns tensors.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last axis
        varies fastest).

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
    renamed: ClassVar = {"size": "crop_size"}
    parameters: ClassVar = {
        "crop_size": [integer(1, 4096)],
        "color_space": [one_of("hsv", "rgb")],
        "border": [one_of("shift", "edge")],
        **TRANSFORMER_PARAMETERS,
    }

    def __init__(
        self,
        crop_size: int = 64,
        *,
        color_space: Literal["hsv", "rgb"] = "hsv",
        border: Literal["shift", "edge"] = "shift",
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.crop_size = crop_size
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
        T = self._read_tensors(images)
        limits = np.array(T.shape[1:3])
        corners = self._locate_corners(T)
        first = np.clip(corners, 0, limits - 1)
        last = np.clip(corners + self.crop_size, 1, limits)
        return np.hstack([first, last - first]).astype(np.intp)

    def _read_tensors(self, X: ArrayLike) -> Floats:
        T = super()._read_tensors(X)
        return T / 255 if getattr(X, "dtype", None) == np.uint8 else T

    def _get_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (2, 3) or shape[2:] not in ((), (3,)):
            raise ValueError(
                "AttentionROI expects gray images of shape (height, width) or color images of "
                f"shape (height, width, 3); samples of X have shape {shape}. If X contains flat "
                "rows, set tensor_shape."
            )
        return self.crop_size, self.crop_size, *shape[2:]

    def _locate_corners(self, T: Floats) -> NDArray[Any]:
        """Return the top left corner of each crop. A corner may lie outside the image."""
        sides = np.array(T.shape[1:3])
        corners = np.empty((len(T), 2), dtype=np.intp)
        for block in split_rows(len(T), 40 * T[0].size):
            corners[block] = (
                np.stack(find_most_salient_pixels(T[block]), axis=1) - self.crop_size // 2
            )
        if self.border == "shift":
            corners = np.clip(corners, 0, np.maximum(sides - self.crop_size, 0))
        # An image smaller than the crop is placed in the center of the crop.
        return np.where(sides < self.crop_size, -((self.crop_size - sides) // 2), corners)

    def _transform_tensors(self, T: Floats) -> Floats:
        corners, steps = self._locate_corners(T), np.arange(self.crop_size)
        rows = np.clip(corners[:, :1] + steps, 0, T.shape[1] - 1)
        columns = np.clip(corners[:, 1:] + steps, 0, T.shape[2] - 1)
        samples = np.arange(len(T))[:, None, None]
        crops = np.asarray(T[samples, rows[:, :, None], columns[:, None, :]])
        is_color = crops.ndim == 4 and self.color_space == "hsv"
        return convert_rgb_to_hsv(crops) if is_color else crops


def convert_rgb_to_hsv(colors: Floats) -> Floats:
    """Convert RGB colors to HSV, with hue and saturation from 0 to 1.

    The value is the maximum of the three channels.
    """
    value, min_channel = colors.max(axis=-1), colors.min(axis=-1)
    chroma = value - min_channel
    is_gray = chroma <= 0
    r, g, b = np.moveaxis(colors, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        hue_sector = np.select(
            [value == r, value == g],
            [(g - b) / chroma % 6, (b - r) / chroma + 2],
            (r - g) / chroma + 4,
        )
        saturation = np.where(value > 0, chroma / value, 0)
    hue = np.where(is_gray, 0, hue_sector / 6)
    return np.stack([hue, saturation, value], axis=-1).astype(colors.dtype, copy=False)
