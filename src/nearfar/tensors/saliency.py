"""Where an image draws the eye: the model of Itti, Koch and Niebur."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from nearfar.arrays import Floats, Matrix
from nearfar.tensors.gabor_features import gabor_bank

# Levels of the centre, and how much coarser the surround is.
_CENTERS, _COARSER = (2, 3, 4), (3, 4)
_N_LEVELS = 9
# Where maps are summed.
_LEVEL = 4
# Of a whole image of size one: less than that is rounding.
_NOTHING = 1e-9


def saliency_map(image: ArrayLike) -> Matrix:
    r"""How much each pixel of an image stands out from what is around it.

    Intensity, colour (red against green, blue against yellow) and the strength of edges in four
    directions each make a pyramid, every level half as large as the one before. What differs
    between a level c and one that is coarser, c + 3 or c + 4, stands out there, for c = 2, 3, 4: 6
    maps of intensity, 12 of colour and 24 of direction. A map is scaled to [0, 1] and multiplied by
    :math:`(1 - \bar m)^2`, with :math:`\bar m` the mean of its other local maxima: one peak is
    worth more than many. Within 32 pixels of the border, which filters look past, maps are damped.
    The maps of each kind are summed at level 4, normalised again, and averaged.

    Parameters
    ----------
    image : array-like of shape (height, width) or (height, width, 3)
        Grey, or red, green and blue, in any unit.

    Returns
    -------
    ndarray of shape (height, width)
        Between the pixels of level 4, which are 16 pixels apart, by interpolation; all zero where
        nothing stands out.

    See Also
    --------
    nearfar.AttentionROI : The square about its largest value.

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
        raise ValueError("image holds NaN or infinity.")
    return _enlarged(coarse_saliency(pixels[None]), pixels.shape[:2], 2**_LEVEL)[0]


def most_salient(images: Floats) -> tuple[Matrix, Matrix]:
    """Row and column of the pixel that stands out most; the middle where none does."""
    maps = coarse_saliency(images.astype(np.float64))
    flat = maps.reshape(len(maps), -1)
    rows, columns = np.divmod(flat.argmax(axis=1), maps.shape[2])
    dull = flat.max(axis=1) <= 0
    height, width = images.shape[1:3]
    rows = np.where(dull, height // 2, 2**_LEVEL * rows)
    columns = np.where(dull, width // 2, 2**_LEVEL * columns)
    return np.minimum(rows, height - 1), np.minimum(columns, width - 1)


def coarse_saliency(images: Matrix) -> Matrix:
    """Maps at level 4 of a stack of images, (n, h, w) or (n, h, w, 3)."""
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
    """Red against green and blue against yellow, where it is not too dark for a colour."""
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
    """Levels, each smoothed and then every second pixel of the one before."""
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
    """Edge filters: real and imaginary parts of Gabor functions of four pixels, by direction."""
    bank = gabor_bank(1, 4, size=9, delta=np.pi, remove_dc=True)[0]
    return tuple(np.stack([kernel.real, kernel.imag]) for kernel in bank)


def _edges(images: Matrix, kernel: Matrix) -> Matrix:
    parts = [ndimage.convolve(images, part[None], mode="reflect") for part in kernel]
    return np.hypot(*parts)


def _surround(levels: list[Matrix]) -> list[Matrix]:
    """Absolute differences of centres and surrounds, at the levels of the centres."""
    found = []
    for center in _CENTERS:
        for coarser in _COARSER:
            shape = levels[center].shape[1:]
            around = _enlarged(levels[center + coarser], shape, 2**coarser)
            found.append(np.abs(levels[center] - around) * _inside(shape, 2 ** (_LEVEL - center)))
    return found


def _inside(shape: tuple[int, ...], unit: int) -> Matrix:
    """Weights that fall towards the border, within two pixels of level 4: filters look past it."""
    ramps = []
    for n in shape:
        places = np.arange(n) + 0.5
        ramps.append(np.minimum(np.minimum(places, n - places) / (2 * unit), 1))
    return np.multiply.outer(*ramps)


def _enlarged(images: Matrix, shape: tuple[int, ...], factor: int) -> Matrix:
    """By linear interpolation; pixel i becomes pixel ``factor * i``."""
    weights = []
    for fine, coarse in zip(shape, images.shape[1:], strict=True):
        place = np.minimum(np.arange(fine) / factor, coarse - 1)
        weights.append(np.maximum(1 - np.abs(place[:, None] - np.arange(coarse)), 0))
    return np.asarray(weights[0] @ images @ weights[1].T)


def _summed(kinds: list[list[Matrix]], shape: tuple[int, ...]) -> Matrix:
    """Normalised maps, all brought to level 4."""
    total = np.zeros(shape)
    for maps in kinds:
        for at, one in enumerate(maps):
            one = _normalized(one)
            for _ in range(_LEVEL - _CENTERS[at // len(_COARSER)]):
                one = _reduced(one)
            total += one
    return total


def _normalized(maps: Matrix) -> Matrix:
    """Scaled to [0, 1], and less the more other peaks are as high."""
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
