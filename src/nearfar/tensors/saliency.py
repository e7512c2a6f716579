"""Saliency maps of images: the model of Itti, Koch and Niebur."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from nearfar.arrays import Floats, Matrix
from nearfar.tensors.gabor_features import gabor_bank

# Pyramid levels of the center, and the number of levels by which the surround is coarser.
_CENTERS, _COARSER = (2, 3, 4), (3, 4)
_N_LEVELS = 9
# Pyramid level at which the maps are summed.
_LEVEL = 4
# Ranges of a map up to this are rounding errors. Images are scaled to a maximum of 1.
_NOTHING = 1e-9


def saliency_map(image: ArrayLike) -> Matrix:
    r"""Return the saliency map of an image: how much each pixel differs from its surroundings.

    The model builds image pyramids, in which each level has half the size of the previous one, for
    intensity, color (red minus green, blue minus yellow) and the strength of edges in four
    directions. The feature maps are the absolute differences between level c and the coarser level
    c + 3 or c + 4, for c = 2, 3, 4. There are 6 maps of intensity, 12 of color and 24 of direction.

    Each map is scaled to [0, 1] and multiplied by :math:`(1 - \bar m)^2`, where :math:`\bar m` is
    the mean of its other local maxima. This favors maps with a single peak. Within 32 pixels of
    the border, the maps are attenuated, because the filters extend beyond the image there. The
    maps of each kind are summed at level 4 and normalized again. The result is their average.

    Parameters
    ----------
    image : array-like of shape (height, width) or (height, width, 3)
        Gray image, or image with red, green and blue channels, in any unit.

    Returns
    -------
    ndarray of shape (height, width)
        Saliency, interpolated between the pixels of level 4, which are 16 pixels apart. It is zero
        everywhere if no pixel stands out.

    See Also
    --------
    nearfar.AttentionROI : Square crops around the largest value.

    References
    ----------
    .. [1] L. Itti, C. Koch, E. Niebur, "A Model of Saliency-Based Visual Attention for Rapid Scene
       Analysis", PAMI 1998.
    .. [2] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 4.5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import saliency_map
    >>> image = np.zeros((128, 160))
    >>> image[60:68, 92:100] = 1
    >>> found = saliency_map(image)
    >>> [int(place) for place in np.unravel_index(found.argmax(), found.shape)]
    [64, 96]
    """
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ValueError(
            f"image must have shape (height, width) or (height, width, 3); got {pixels.shape}."
        )
    if not np.isfinite(pixels).all():
        raise ValueError("image contains NaN or infinity.")
    return _enlarged(coarse_saliency(pixels[None]), pixels.shape[:2], 2**_LEVEL)[0]


def most_salient(images: Floats) -> tuple[Matrix, Matrix]:
    """Return the rows and columns of the most salient pixels, or of the centers if there is none.

    There is none if the whole map is zero.
    """
    maps = coarse_saliency(images.astype(np.float64))
    flat = maps.reshape(len(maps), -1)
    rows, columns = np.divmod(flat.argmax(axis=1), maps.shape[2])
    dull = flat.max(axis=1) <= 0
    height, width = images.shape[1:3]
    rows = np.where(dull, height // 2, 2**_LEVEL * rows)
    columns = np.where(dull, width // 2, 2**_LEVEL * columns)
    return np.minimum(rows, height - 1), np.minimum(columns, width - 1)


def coarse_saliency(images: Matrix) -> Matrix:
    """Return the maps at level 4 of a stack of images of shape (n, h, w) or (n, h, w, 3)."""
    spread = tuple(range(1, images.ndim))
    largest = np.abs(images).max(axis=spread, keepdims=True)
    images = images / np.where(largest > 0, largest, 1)
    if images.ndim == 3:
        intensity, colors = images, []
    else:
        intensity, colors = images.mean(axis=3), _opponents(images)
    gray = _pyramid(intensity)
    intense = [_surround(gray)]
    colorful = [_surround(_pyramid(color)) for color in colors]
    edges = [_surround([_edges(level, kernel) for level in gray]) for kernel in _kernels()]
    shape = gray[_LEVEL].shape
    maps = [
        _normalized(_summed(intense, shape)),
        _normalized(_summed(colorful, shape)),
        _normalized(sum((_normalized(_summed([d], shape)) for d in edges), np.zeros(shape))),
    ]
    return np.asarray(sum(maps) / 3)


def _opponents(images: Matrix) -> list[Matrix]:
    """Return red minus green and blue minus yellow, or zero for dark pixels."""
    intensity = images.mean(axis=3, keepdims=True)
    bright = intensity > intensity.max(axis=(1, 2), keepdims=True) / 10
    bright &= intensity > 0
    r, g, b = np.moveaxis(np.where(bright, images / np.where(bright, intensity, 1), 0), 3, 0)
    red = np.maximum(r - (g + b) / 2, 0)
    green = np.maximum(g - (r + b) / 2, 0)
    blue = np.maximum(b - (r + g) / 2, 0)
    yellow = np.maximum((r + g) / 2 - np.abs(r - g) / 2 - b, 0)
    return [red - green, blue - yellow]


def _pyramid(images: Matrix) -> list[Matrix]:
    """Return the levels: each contains every second pixel of the smoothed previous one."""
    levels = [images]
    for _ in range(_N_LEVELS - 1):
        levels.append(_reduced(levels[-1]))
    return levels


def _reduced(images: Matrix) -> Matrix:
    for axis in (1, 2):
        binomial = np.array([1, 4, 6, 4, 1]) / 16
        images = ndimage.convolve1d(images, binomial, axis=axis, mode="reflect")
    return np.asarray(images[:, ::2, ::2])


@cache
def _kernels() -> tuple[Matrix, ...]:
    """Return edge filters: real and imaginary parts of Gabor functions, one pair per direction.

    The wavelength is four pixels.
    """
    bank = gabor_bank(1, 4, mask_size=9, envelope_width=np.pi, remove_dc=True)[0]
    return tuple(np.stack([kernel.real, kernel.imag]) for kernel in bank)


def _edges(images: Matrix, kernel: Matrix) -> Matrix:
    parts = [ndimage.convolve(images, part[None], mode="reflect") for part in kernel]
    return np.hypot(*parts)


def _surround(levels: list[Matrix]) -> list[Matrix]:
    """Return the absolute differences of centers and surrounds, at the levels of the centers."""
    found = []
    for center in _CENTERS:
        for coarser in _COARSER:
            shape = levels[center].shape[1:]
            around = _enlarged(levels[center + coarser], shape, 2**coarser)
            found.append(np.abs(levels[center] - around) * _inside(shape, 2 ** (_LEVEL - center)))
    return found


def _inside(shape: tuple[int, ...], unit: int) -> Matrix:
    """Return weights that decrease within two pixels (of level 4) of the border."""
    ramps = []
    for n in shape:
        places = np.arange(n) + 0.5
        ramps.append(np.minimum(np.minimum(places, n - places) / (2 * unit), 1))
    return np.multiply.outer(*ramps)


def _enlarged(images: Matrix, shape: tuple[int, ...], factor: int) -> Matrix:
    """Enlarge images by linear interpolation, such that pixel i becomes ``factor * i``."""
    weights = []
    for fine, coarse in zip(shape, images.shape[1:], strict=True):
        place = np.minimum(np.arange(fine) / factor, coarse - 1)
        weights.append(np.maximum(1 - np.abs(place[:, None] - np.arange(coarse)), 0))
    return np.asarray(weights[0] @ images @ weights[1].T)


def _summed(kinds: list[list[Matrix]], shape: tuple[int, ...]) -> Matrix:
    """Return the sum of the normalized maps, reduced to level 4."""
    total = np.zeros(shape)
    for maps in kinds:
        for at, one in enumerate(maps):
            one = _normalized(one)
            for _ in range(_LEVEL - _CENTERS[at // len(_COARSER)]):
                one = _reduced(one)
            total += one
    return total


def _normalized(maps: Matrix) -> Matrix:
    """Scale maps to [0, 1], and decrease those with other high peaks."""
    low = maps.min(axis=(1, 2), keepdims=True)
    reach = maps.max(axis=(1, 2), keepdims=True) - low
    flat = reach <= _NOTHING
    scaled = np.where(flat, 0, (maps - low) / np.where(flat, 1, reach))
    peaks = (ndimage.maximum_filter(scaled, size=(1, 3, 3), mode="reflect") == scaled) & (
        (scaled > 0) & (scaled < 1)
    )
    n_others = peaks.sum(axis=(1, 2), keepdims=True)
    others = np.where(peaks, scaled, 0).sum(axis=(1, 2), keepdims=True) / np.maximum(n_others, 1)
    return np.asarray(scaled * (1 - others) ** 2)
