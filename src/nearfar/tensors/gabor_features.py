"""Gabor functions, and the magnitudes of their responses to images."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from nearfar.arrays import Floats
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.parameters import AllowedValues, boolean, check_parameter, integer, one_of, real
from nearfar.tensors.tensor_map import MAP_PARAMETERS, _TensorMap

Summed = Literal["full", "D", "S", "SD"]

_BANK: dict[str, list[AllowedValues]] = {
    "n_scales": [integer(1, 64)],
    "n_directions": [integer(1, 64)],
    "size": [integer(1, 2048)],
    "k_max": [real(0, open_low=True)],
    "f": [real(0, open_low=True)],
    "delta": [real(0, open_low=True)],
    "prefactor_power": [real()],
    "remove_dc": [boolean],
}
# Maximum size in bytes of the responses that are computed at once, so that they stay in cache.
_BLOCK_BYTES = 2**24
# Axes of the bank over which kernels are summed.
_SUMMED: dict[str, tuple[int, ...]] = {"full": (), "D": (1,), "S": (0,), "SD": (0, 1)}


class GaborFeatures(_TensorMap):
    r"""Magnitudes of the responses of images to a bank of Gabor filters.

    The response at pixel p is the convolution :math:`\sum_z I(p - z)\, \psi(z)`, where I is zero
    outside the image. A feature is the magnitude of a response. ``kind`` selects whether kernels
    are summed *before* that, over the directions d or the scales s of
    :func:`~nearfar.tensors.gabor_bank`:

    ====  =========================================================  ====================
    full  :math:`|I * \psi_{s,d}|`                                   (h, w, scales, directions)
    D     :math:`|I * \sum_d \psi_{s,d}|`                            (h, w, scales)
    S     :math:`|I * \sum_s \psi_{s,d}|`                            (h, w, directions)
    SD    :math:`|I * \sum_{s,d} \psi_{s,d}|`                        (h, w)
    ====  =========================================================  ====================

    The magnitude of a sum is not the sum of magnitudes. Images with several channels, of shape
    (h, w, c), give tensors of shape (h, w, c, ...), with each channel processed separately.

    Use it before a tensor learner on images whose texture or outline is more informative than
    their brightness. In the gait recognition experiments of [1]_, it helps most if the subjects
    carry something. ``fit`` stores only the shape of the images.

    Cost: one Fourier transform per kernel and image, :math:`O(hw \log hw)`, instead of
    :math:`O(hw\, size^2)` for a direct convolution. The Fourier transforms of the kernels are
    cached for images of the same shape. Images are processed in blocks, but "full" returns 40
    numbers per pixel with the default bank.

    Parameters
    ----------
    kind : {"full", "D", "S", "SD"}, default="full"
        Sum of kernels before the magnitude: none ("full"), over directions ("D"), over scales
        ("S"), or over both ("SD").
    n_scales, n_directions : int, default=5 and 8
        Number of scales and of directions of the filter bank.
    size : int, default=64
        Side in pixels: of the square mask on which the Gabor functions are sampled.
    k_max : float, default=pi/2
        Largest frequency, in radians per pixel.
    f : float, default=2
        Ratio between the frequencies of consecutive scales.
    delta : float, default=2*pi
        Width of the Gabor functions: standard deviation times frequency.
    prefactor_power : float, default=1
        Exponent of the frequency in the prefactor. The value 2, common in the literature, reduces
        the weight of coarse scales.
    remove_dc : bool, default=False
        Whether to make the response to constant images zero for all kernels. If False, the two
        coarsest scales on a mask of 64 pixels respond to constant images.
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
    GaitRecognizer, nearfar.tensors.gabor_bank

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 3.7.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import GaborFeatures
    >>> images = np.random.default_rng(0).random((3, 32, 22))
    >>> GaborFeatures("D", flatten=False).fit_transform(images).shape
    (3, 32, 22, 5)
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    parameters: ClassVar = {"kind": [one_of(*_SUMMED)], **_BANK, **MAP_PARAMETERS}

    def __init__(
        self,
        kind: Summed = "full",
        *,
        n_scales: int = 5,
        n_directions: int = 8,
        size: int = 64,
        k_max: float = np.pi / 2,
        f: float = 2.0,
        delta: float = 2 * np.pi,
        prefactor_power: float = 1,
        remove_dc: bool = False,
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.kind = kind
        self.n_scales = n_scales
        self.n_directions = n_directions
        self.size = size
        self.k_max = k_max
        self.f = f
        self.delta = delta
        self.prefactor_power = prefactor_power
        self.remove_dc = remove_dc
        self.flatten = flatten
        self.tensor_shape = tensor_shape

    def _shape_out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (2, 3):
            raise ValueError(
                "GaborFeatures expects images of shape (height, width) or (height, width, "
                f"channels); samples of X have shape {shape}. If X contains flat rows, set "
                "tensor_shape."
            )
        axes = (self.n_scales, self.n_directions)
        summed = _SUMMED[self.kind]
        return *shape, *(n for axis, n in enumerate(axes) if axis not in summed)

    def _mapped(self, T: Floats) -> Floats:
        shape = T.shape[1:3]
        spectra = _spectra(self.kind, shape, T.dtype.char, *(getattr(self, name) for name in _BANK))
        # Each channel is filtered as a separate image.
        images = T.reshape(*T.shape[:3], -1)
        n_channels, n_kernels = images.shape[3], len(spectra)
        magnitudes = np.empty((len(T), *shape, n_channels, n_kernels), T.dtype)
        few = max(1, _BLOCK_BYTES // spectra.nbytes)
        for block in split_rows(len(T), 2 * spectra.nbytes, max_rows=few):
            for channel in range(n_channels):
                responses = _responses(images[block, ..., channel], spectra)
                magnitudes[block, ..., channel, :] = np.moveaxis(np.abs(responses), 1, -1)
        return magnitudes.reshape(len(T), *self._shape_out(T.shape[1:]))


def gabor_bank(
    n_scales: int = 5,
    n_directions: int = 8,
    size: int = 64,
    k_max: float = np.pi / 2,
    f: float = 2.0,
    delta: float = 2 * np.pi,
    prefactor_power: float = 1,
    remove_dc: bool = False,
) -> NDArray[np.complex128]:
    r"""Return Gabor functions of several scales and directions, sampled on a square mask.

    .. math::
        \psi_{s,d}(z) = \frac{\|k\|^a}{\delta^2}\, e^{-\|k\|^2 \|z\|^2 / 2\delta^2}
        \left( e^{i k \cdot z} - e^{-\delta^2/2} \right), \qquad
        k = \frac{k_{max}}{f^s} (\cos\phi_d, \sin\phi_d),\ \phi_d = \pi d / n_{directions}.

    With the exponent a = 1, all scales have the same energy on an unbounded mask. A mask of 64
    pixels contains 100, 100, 99, 71 and 27% of the energy of the five default scales, and the last
    two scales respond to constant images.

    Parameters
    ----------
    n_scales, n_directions : int, default=5 and 8
        Number of scales and of directions.
    size : int, default=64
        Side of the mask in pixels. The origin z = 0 is at index ``size // 2``.
    k_max : float, default=pi/2
        Largest frequency, in radians per pixel.
    f : float, default=2
        Ratio between the frequencies of consecutive scales.
    delta : float, default=2*pi
        Width: standard deviation times frequency.
    prefactor_power : float, default=1
        The exponent a. The value 2 is common in the literature.
    remove_dc : bool, default=False
        Whether to subtract a multiple of the envelope from each kernel, such that the response to
        constant images is zero.

    Returns
    -------
    ndarray of complex, shape (n_scales, n_directions, size, size)
        The kernels. Their first axis is y, downward, the second is x.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       equation (3.43).

    Examples
    --------
    >>> from nearfar.tensors import gabor_bank
    >>> bank = gabor_bank()
    >>> bank.shape, float(bank[0, 0, 32, 32].real.round(7))
    ((5, 8, 64, 64), 0.0397887)
    """
    given = (n_scales, n_directions, size, k_max, f, delta, prefactor_power, remove_dc)
    for (name, allowed), value in zip(_BANK.items(), given, strict=True):
        check_parameter("gabor_bank", name, value, allowed)
    frequency = float(k_max) / float(f) ** np.arange(n_scales)[:, None, None, None]
    angle = np.pi * np.arange(n_directions)[:, None, None] / n_directions
    z = np.arange(size) - size // 2
    y, x = z[:, None], z[None, :]
    delta = float(delta)
    envelope = np.exp(-(frequency**2) * (x**2 + y**2) / (2 * delta**2))
    wave = np.exp(1j * frequency * (x * np.cos(angle) + y * np.sin(angle)))
    kernels = envelope * (wave - np.exp(-(delta**2) / 2))
    if remove_dc:
        kernels -= envelope * (
            kernels.sum(axis=(2, 3), keepdims=True) / envelope.sum(axis=(2, 3), keepdims=True)
        )
    return np.asarray(frequency ** float(prefactor_power) / delta**2 * kernels)


@lru_cache(maxsize=4)
def _spectra(kind: Summed, shape: tuple[int, int], dtype: str, *bank: Any) -> NDArray[Any]:
    """Return Fourier transforms (n_kernels, N1, N2) of the summed kernels for an image shape.

    Only responses inside the image are needed. There, a circular convolution is equal to one with
    zero padding if its period exceeds the image by at least half the mask.
    """
    kernels = gabor_bank(*bank).sum(axis=_SUMMED[kind])
    kernels = kernels.reshape(-1, *kernels.shape[-2:])
    center = kernels.shape[-1] // 2
    periods = []
    for axis, length in enumerate(shape, start=1):
        # Crop the parts of the kernel that are farther from its center than the image is long.
        reach = min(center, length - 1)
        low, high = center - reach, min(center + reach + 1, kernels.shape[axis])
        kernels = kernels.take(range(low, high), axis=axis)
        period = fft.next_fast_len(length + reach)
        padding = [(0, 0)] * 3
        padding[axis] = (0, period - kernels.shape[axis])
        kernels = np.roll(np.pad(kernels, padding), -reach, axis=axis)
        periods.append(period)
    spectra = fft.fft2(kernels).astype(np.result_type(dtype, np.complex64))
    spectra.setflags(write=False)
    return spectra


def _responses(images: Floats, spectra: NDArray[Any]) -> NDArray[Any]:
    """Return the convolutions (n, n_kernels, h, w) of images with kernels."""
    height, width = images.shape[1:]
    transforms = fft.fft2(images, s=spectra.shape[1:])
    products = transforms[:, None] * spectra
    # Invert along one axis and crop to the image, then along the other: this saves transforms.
    rows = fft.ifft(products, axis=2, overwrite_x=True)[:, :, :height]
    return np.asarray(fft.ifft(rows, axis=3, overwrite_x=True)[..., :width])
