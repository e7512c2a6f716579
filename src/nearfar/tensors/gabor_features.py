"""Gabor functions, and what they answer to images."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from nearfar.arrays import Floats
from nearfar.base import LearnerTags
from nearfar.blocks import row_blocks
from nearfar.parameters import Allowed, boolean, check_parameter, integer, one_of, real
from nearfar.tensors.tensor_map import MAP_PARAMETERS, _TensorMap

Summed = Literal["full", "D", "S", "SD"]

_BANK: dict[str, list[Allowed]] = {
    "n_scales": [integer(1, 64)],
    "n_directions": [integer(1, 64)],
    "size": [integer(1, 2048)],
    "k_max": [real(0, open_low=True)],
    "f": [real(0, open_low=True)],
    "delta": [real(0, open_low=True)],
    "prefactor_power": [real()],
    "remove_dc": [boolean],
}
# Responses at once: what stays in cache.
_BLOCK_BYTES = 2**24
# Axes of the bank over which kernels are summed.
_SUMMED: dict[str, tuple[int, ...]] = {"full": (), "D": (1,), "S": (0,), "SD": (0, 1)}


class GaborFeatures(_TensorMap):
    r"""Magnitudes of what a bank of Gabor functions answers to each image.

    The response at pixel p is the convolution :math:`\sum_z I(p - z)\, \psi(z)`, with zero outside
    the image, and a feature is its magnitude. ``kind`` says which kernels are summed *before*
    that, over the directions d or the scales s of :func:`~nearfar.tensors.gabor_bank`:

    ====  =========================================================  ====================
    full  :math:`|I * \psi_{s,d}|`                                   (h, w, scales, directions)
    D     :math:`|I * \sum_d \psi_{s,d}|`                            (h, w, scales)
    S     :math:`|I * \sum_s \psi_{s,d}|`                            (h, w, directions)
    SD    :math:`|I * \sum_{s,d} \psi_{s,d}|`                        (h, w)
    ====  =========================================================  ====================

    A sum of magnitudes would be something else. Images of several channels, (h, w, c), give
    tensors (h, w, c, ...), each channel by itself.

    Use it before a tensor learner on images whose texture or outline matters more than their
    brightness: in the reference it helps most where walkers carry something. It learns nothing.

    Cost: a Fourier transform for each kernel and image, :math:`O(hw \log hw)`, instead of
    :math:`O(hw\, size^2)`; the spectra of kernels are kept for images of one size. Images go in
    blocks, but "full" gives 40 numbers for each pixel.

    Parameters
    ----------
    kind : {"full", "D", "S", "SD"}, default="full"
        Which kernels are summed before the magnitude is taken.
    n_scales, n_directions : int, default=5 and 8
        How many of each the bank has.
    size : int, default=64
        Side in pixels: of the mask on which Gabor functions are known.
    k_max : float, default=pi/2
        Largest frequency, in radians a pixel.
    f : float, default=2
        Factor between the frequencies of scales.
    delta : float, default=2*pi
        Width of the Gabor functions: standard deviation times frequency.
    prefactor_power : float, default=1
        Power of the frequency in front; 2 is usual elsewhere and damps coarse scales.
    remove_dc : bool, default=False
        Make all kernels blind to constant images; on a mask of 64 the two coarsest are not.
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
                "GaborFeatures takes images of shape (height, width) or (height, width, channels); "
                f"samples of X have shape {shape}. For flat rows give tensor_shape."
            )
        axes = (self.n_scales, self.n_directions)
        summed = _SUMMED[self.kind]
        return *shape, *(n for axis, n in enumerate(axes) if axis not in summed)

    def _mapped(self, T: Floats) -> Floats:
        shape = T.shape[1:3]
        spectra = _spectra(self.kind, shape, T.dtype.char, *(getattr(self, name) for name in _BANK))
        # One channel after another is an image of its own.
        images = T.reshape(*T.shape[:3], -1)
        n_channels, n_kernels = images.shape[3], len(spectra)
        magnitudes = np.empty((len(T), *shape, n_channels, n_kernels), T.dtype)
        few = max(1, _BLOCK_BYTES // spectra.nbytes)
        for block in row_blocks(len(T), 2 * spectra.nbytes, at_most=few):
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
    r"""Gabor functions of several scales and directions on a square mask.

    .. math::
        \psi_{s,d}(z) = \frac{\|k\|^a}{\delta^2}\, e^{-\|k\|^2 \|z\|^2 / 2\delta^2}
        \left( e^{i k \cdot z} - e^{-\delta^2/2} \right), \qquad
        k = \frac{k_{max}}{f^s} (\cos\phi_d, \sin\phi_d),\ \phi_d = \pi d / n_{directions}.

    With the power a = 1 all scales have the same energy on an unbounded mask; one of 64 pixels
    holds 100, 100, 99, 71 and 27 % of it, and the last two scales see constant images.

    Parameters
    ----------
    n_scales, n_directions : int, default=5 and 8
        How many.
    size : int, default=64
        Side of the mask in pixels; z = 0 is at ``size // 2``.
    k_max : float, default=pi/2
        Largest frequency, in radians a pixel.
    f : float, default=2
        Factor between the frequencies of scales.
    delta : float, default=2*pi
        Width: standard deviation times frequency.
    prefactor_power : float, default=1
        The power a; 2 is usual elsewhere.
    remove_dc : bool, default=False
        Subtract from each kernel as much of its envelope as makes it blind to constant images.

    Returns
    -------
    ndarray of complex, shape (n_scales, n_directions, size, size)
        The first axis of a kernel is y, downwards; the second x.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       (3.43).

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
    """Fourier transforms of the summed kernels for images of a shape, (n_kernels, N1, N2).

    Responses are wanted within the image only. There a circular convolution equals one with zeros
    outside as soon as its period exceeds the image by half a mask: what is wrong lies outside.
    """
    kernels = gabor_bank(*bank).sum(axis=_SUMMED[kind])
    kernels = kernels.reshape(-1, *kernels.shape[-2:])
    center = kernels.shape[-1] // 2
    periods = []
    for axis, length in enumerate(shape, start=1):
        # What lies further from the centre than the image is long never meets it.
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
    """Convolutions of images with kernels, (n, n_kernels, h, w)."""
    height, width = images.shape[1:]
    transforms = fft.fft2(images, s=spectra.shape[1:])
    products = transforms[:, None] * spectra
    # Back along one axis, of which the image is kept, then along the other.
    rows = fft.ifft(products, axis=2, overwrite_x=True)[:, :, :height]
    return np.asarray(fft.ifft(rows, axis=3, overwrite_x=True)[..., :width])
