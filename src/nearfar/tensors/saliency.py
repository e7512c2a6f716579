"""Saliency maps of images: the model of Itti, Koch and Niebur."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from nearfar.arrays import Floats, Matrix
from nearfar.tensors.gabor_features import gabor_bank

# Pyramid levels that are used as centers.
_CENTER_LEVELS = (2, 3, 4)
# Numbers of levels by which a surround is coarser than its center.
_SURROUND_OFFSETS = (3, 4)
_N_LEVELS = 9
# Pyramid level at which the maps are summed.
_SUM_LEVEL = 4
# Maximum range of values in a map that is treated as constant. Smaller differences are rounding
# errors, because images are scaled to a maximum of 1.
_MAX_ROUNDING_RANGE = 1e-9


def saliency_map(image: ArrayLike) -> Matrix:
    r"""Return the saliency map of an image: how much each pixel differs from its surroundings.

    The model builds image pyramids, in which each level has half the size of the previous one, for
    intensity, color (red minus green, blue minus yellow) and the strength of edges in four
    directions. The feature maps are the absolute differences between level c and the coarser level
    c + 3 or c + 4, for c = 2, 3, 4. There are 6 maps of intensity, 12 of color and 24 of direction.

    Each map is scaled to [0, 1] and multiplied by :math:`(1 - \bar m)^2`, where :math:`\bar m` is
    the mean of its local maxima below 1. This favors maps with a single peak. Within 32 pixels of
    the border, the maps are attenuated, because the filters extend beyond the image. The maps of
    each kind are summed at level 4 and normalized again. The result is their average.

    Parameters
    ----------
    image : array-like of shape (height, width) or (height, width, 3)
        Gray image, or image with red, green and blue channels, in any unit.

    Returns
    -------
    ndarray of shape (height, width)
        Saliency of each pixel, interpolated between the pixels of level 4, which are 16 pixels
        apart. The map is zero if no pixel stands out.

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
    >>> saliency = saliency_map(image)
    >>> [int(i) for i in np.unravel_index(saliency.argmax(), saliency.shape)]
    [64, 96]
    """
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ValueError(
            f"image must have shape (height, width) or (height, width, 3); got {pixels.shape}."
        )
    if not np.isfinite(pixels).all():
        raise ValueError("image contains NaN or infinity.")
    return _enlarge(compute_coarse_saliency(pixels[None]), pixels.shape[:2], 2**_SUM_LEVEL)[0]


def find_most_salient_pixels(images: Floats) -> tuple[Matrix, Matrix]:
    """Return the row and the column of the most salient pixel of each image.

    If the saliency map of an image is zero everywhere, return the center of the image.
    """
    maps = compute_coarse_saliency(images.astype(np.float64))
    flat = maps.reshape(len(maps), -1)
    rows, columns = np.divmod(flat.argmax(axis=1), maps.shape[2])
    has_no_peak = flat.max(axis=1) <= 0
    height, width = images.shape[1:3]
    rows = np.where(has_no_peak, height // 2, 2**_SUM_LEVEL * rows)
    columns = np.where(has_no_peak, width // 2, 2**_SUM_LEVEL * columns)
    return np.minimum(rows, height - 1), np.minimum(columns, width - 1)


def compute_coarse_saliency(images: Matrix) -> Matrix:
    """Return the saliency map of each gray or color image in a stack, at pyramid level 4."""
    image_axes = tuple(range(1, images.ndim))
    largest = np.abs(images).max(axis=image_axes, keepdims=True)
    images = images / np.where(largest > 0, largest, 1)
    if images.ndim == 3:
        intensity, colors = images, []
    else:
        intensity, colors = images.mean(axis=3), _compute_color_opponents(images)
    gray = _build_pyramid(intensity)
    intensity_maps = [_compute_center_surround(gray)]
    color_maps = [_compute_center_surround(_build_pyramid(color)) for color in colors]
    edge_maps = [
        _compute_center_surround([_compute_edge_strength(level, kernel) for level in gray])
        for kernel in _make_edge_kernels()
    ]
    shape = gray[_SUM_LEVEL].shape
    maps = [
        _normalize(_sum_maps(intensity_maps, shape)),
        _normalize(_sum_maps(color_maps, shape)),
        _normalize(
            sum(
                (_normalize(_sum_maps([group], shape)) for group in edge_maps),
                np.zeros(shape),
            )
        ),
    ]
    return np.asarray(sum(maps) / 3)


def _compute_color_opponents(images: Matrix) -> list[Matrix]:
    """Return the channels red minus green and blue minus yellow, with zeros for dark pixels."""
    intensity = images.mean(axis=3, keepdims=True)
    is_bright = intensity > intensity.max(axis=(1, 2), keepdims=True) / 10
    is_bright &= intensity > 0
    r, g, b = np.moveaxis(np.where(is_bright, images / np.where(is_bright, intensity, 1), 0), 3, 0)
    red = np.maximum(r - (g + b) / 2, 0)
    green = np.maximum(g - (r + b) / 2, 0)
    blue = np.maximum(b - (r + g) / 2, 0)
    yellow = np.maximum((r + g) / 2 - np.abs(r - g) / 2 - b, 0)
    return [red - green, blue - yellow]


def _build_pyramid(images: Matrix) -> list[Matrix]:
    """Return image pyramids. Each level has every second pixel of the smoothed previous level."""
    levels = [images]
    for _ in range(_N_LEVELS - 1):
        levels.append(_halve_images(levels[-1]))
    return levels


def _halve_images(images: Matrix) -> Matrix:
    for axis in (1, 2):
        binomial = np.array([1, 4, 6, 4, 1]) / 16
        images = ndimage.convolve1d(images, binomial, axis=axis, mode="reflect")
    return np.asarray(images[:, ::2, ::2])


@cache
def _make_edge_kernels() -> tuple[Matrix, ...]:
    """Return one edge filter per direction: the real and imaginary parts of a Gabor function.

    The wavelength is four pixels.
    """
    bank = gabor_bank(1, 4, mask_size=9, envelope_width=np.pi, remove_dc=True)[0]
    return tuple(np.stack([kernel.real, kernel.imag]) for kernel in bank)


def _compute_edge_strength(images: Matrix, kernel: Matrix) -> Matrix:
    responses = [ndimage.convolve(images, component[None], mode="reflect") for component in kernel]
    return np.hypot(*responses)


def _compute_center_surround(levels: list[Matrix]) -> list[Matrix]:
    """Return the absolute differences between fine (center) and coarse (surround) levels."""
    differences = []
    for center_level in _CENTER_LEVELS:
        for offset in _SURROUND_OFFSETS:
            shape = levels[center_level].shape[1:]
            surround = _enlarge(levels[center_level + offset], shape, 2**offset)
            differences.append(
                np.abs(levels[center_level] - surround)
                * _compute_border_weights(shape, 2 ** (_SUM_LEVEL - center_level))
            )
    return differences


def _compute_border_weights(shape: tuple[int, ...], unit: int) -> Matrix:
    """Return weights that decrease toward the border, over a width of two pixels of level 4."""
    ramps = []
    for n in shape:
        centers = np.arange(n) + 0.5
        ramps.append(np.minimum(np.minimum(centers, n - centers) / (2 * unit), 1))
    return np.multiply.outer(*ramps)


def _enlarge(images: Matrix, shape: tuple[int, ...], factor: int) -> Matrix:
    """Enlarge images by linear interpolation, such that pixel i moves to ``factor * i``."""
    weights = []
    for fine, coarse in zip(shape, images.shape[1:], strict=True):
        positions = np.minimum(np.arange(fine) / factor, coarse - 1)
        weights.append(np.maximum(1 - np.abs(positions[:, None] - np.arange(coarse)), 0))
    return np.asarray(weights[0] @ images @ weights[1].T)


def _sum_maps(map_groups: list[list[Matrix]], shape: tuple[int, ...]) -> Matrix:
    """Normalize the maps, reduce them to pyramid level 4, and return their sum."""
    total = np.zeros(shape)
    for maps in map_groups:
        for index, saliency in enumerate(maps):
            saliency = _normalize(saliency)
            for _ in range(_SUM_LEVEL - _CENTER_LEVELS[index // len(_SURROUND_OFFSETS)]):
                saliency = _halve_images(saliency)
            total += saliency
    return total


def _normalize(maps: Matrix) -> Matrix:
    """Scale each map to [0, 1], and decrease the values of maps with several high peaks."""
    low = maps.min(axis=(1, 2), keepdims=True)
    value_range = maps.max(axis=(1, 2), keepdims=True) - low
    is_flat = value_range <= _MAX_ROUNDING_RANGE
    scaled = np.where(is_flat, 0, (maps - low) / np.where(is_flat, 1, value_range))
    is_peak = (ndimage.maximum_filter(scaled, size=(1, 3, 3), mode="reflect") == scaled) & (
        (scaled > 0) & (scaled < 1)
    )
    n_peaks = is_peak.sum(axis=(1, 2), keepdims=True)
    mean_peak = np.where(is_peak, scaled, 0).sum(axis=(1, 2), keepdims=True) / np.maximum(
        n_peaks, 1
    )
    return np.asarray(scaled * (1 - mean_peak) ** 2)
