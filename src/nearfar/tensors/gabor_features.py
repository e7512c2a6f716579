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
from nearfar.tensors.tensor_map import TRANSFORMER_PARAMETERS, _TensorTransformer

SumOver = Literal["none", "orientations", "scales", "both"]

_BANK_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_scales": [integer(1, 64)],
    "n_orientations": [integer(1, 64)],
    "mask_size": [integer(1, 2048)],
    "max_frequency": [real(0, open_low=True)],
    "frequency_ratio": [real(0, open_low=True)],
    "envelope_width": [real(0, open_low=True)],
    "prefactor_power": [real()],
    "remove_dc": [boolean],
}
# Maximum size in bytes of the filter responses that are computed at once. They should fit into the
# processor's cache.
_BLOCK_BYTES = 2**24
# For each value of ``sum_over``, the axes of the filter bank along which kernels are summed.
_SUMMED_AXES: dict[str, tuple[int, ...]] = {
    "none": (),
    "orientations": (1,),
    "scales": (0,),
    "both": (0, 1),
}


class GaborFeatures(_TensorTransformer):
    r"""Magnitudes of the responses of images to a bank of Gabor filters.

    The response at pixel p is the convolution :math:`\sum_z I(p - z)\, \psi(z)`, where I is zero
    outside the image. A feature is the magnitude of a response. ``sum_over`` selects whether
    kernels are summed *before* the magnitude is taken, over the orientations d or the scales s of
    :func:`~nearfar.tensors.gabor_bank`:

    ============  ======================================  ==========================
    none          :math:`|I * \psi_{s,d}|`                (h, w, scales, orientations)
    orientations  :math:`|I * \sum_d \psi_{s,d}|`         (h, w, scales)
    scales        :math:`|I * \sum_s \psi_{s,d}|`         (h, w, orientations)
    both          :math:`|I * \sum_{s,d} \psi_{s,d}|`     (h, w)
    ============  ======================================  ==========================

    The magnitude of a sum is not the sum of magnitudes. Images with several channels, of shape
    (h, w, c), give tensors of shape (h, w, c, ...), with each channel processed separately.

    Use it before a tensor learner on images whose texture or outline is more informative than
    their brightness. In the gait recognition experiments of [1]_, Gabor features help most if the
    subjects carry something. ``fit`` stores only the shape of the images.

    Cost: one Fourier transform per kernel and image, :math:`O(hw \log hw)`, instead of
    :math:`O(hw\, m^2)` for a direct
    convolution with masks of m × m pixels. The Fourier transforms of the kernels are
    cached for images of the same shape. Images are processed in blocks, but ``sum_over="none"``
    returns 40 numbers per pixel with the default bank.

    Parameters
    ----------
    sum_over : {"none", "orientations", "scales", "both"}, default="none"
        Axes of the filter bank over which kernels are summed before the magnitude is taken.
    n_scales, n_orientations : int, default=5 and 8
        Number of scales and number of orientations of the filter bank.
    mask_size : int, default=64
        Side length in pixels of the square mask on which the Gabor functions are sampled.
    max_frequency : float, default=pi/2
        Largest frequency, in radians per pixel.
    frequency_ratio : float, default=2
        Ratio between the frequencies of consecutive scales.
    envelope_width : float, default=2*pi
        Width of the Gabor functions: standard deviation times frequency.
    prefactor_power : float, default=1
        Exponent of the frequency in the prefactor. The value 2, common in the literature, reduces
        the weight of coarse scales.
    remove_dc : bool, default=False
        Whether to make the response to constant images zero for all kernels. If False, the two
        coarsest scales on a mask of 64 pixels respond to constant images.
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. If False, it returns tensors.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).

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
       section 3.8.1.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import GaborFeatures
    >>> images = np.random.default_rng(0).random((3, 32, 22))
    >>> GaborFeatures("orientations", flatten=False).fit_transform(images).shape
    (3, 32, 22, 5)
    """

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    renamed_values: ClassVar = {
        "sum_over": {"full": "none", "D": "orientations", "S": "scales", "SD": "both"}
    }
    renamed: ClassVar = {
        "f": "frequency_ratio",
        "k_max": "max_frequency",
        "delta": "envelope_width",
        "kind": "sum_over",
        "size": "mask_size",
        "n_directions": "n_orientations",
    }
    parameters: ClassVar = {
        "sum_over": [one_of(*_SUMMED_AXES)],
        **_BANK_PARAMETERS,
        **TRANSFORMER_PARAMETERS,
    }

    def __init__(
        self,
        sum_over: SumOver = "none",
        *,
        n_scales: int = 5,
        n_orientations: int = 8,
        mask_size: int = 64,
        max_frequency: float = np.pi / 2,
        frequency_ratio: float = 2.0,
        envelope_width: float = 2 * np.pi,
        prefactor_power: float = 1,
        remove_dc: bool = False,
        flatten: bool = True,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.sum_over = sum_over
        self.n_scales = n_scales
        self.n_orientations = n_orientations
        self.mask_size = mask_size
        self.max_frequency = max_frequency
        self.frequency_ratio = frequency_ratio
        self.envelope_width = envelope_width
        self.prefactor_power = prefactor_power
        self.remove_dc = remove_dc
        self.flatten = flatten
        self.tensor_shape = tensor_shape

    def _get_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (2, 3):
            raise ValueError(
                "GaborFeatures expects images of shape (height, width) or (height, width, "
                f"channels); samples of X have shape {shape}. If X contains flat rows, set "
                "tensor_shape."
            )
        axes = (self.n_scales, self.n_orientations)
        summed_axes = _SUMMED_AXES[self.sum_over]
        return *shape, *(n for axis, n in enumerate(axes) if axis not in summed_axes)

    def _transform_tensors(self, T: Floats) -> Floats:
        shape = T.shape[1:3]
        spectra = _compute_spectra(
            self.sum_over, shape, T.dtype.char, *(getattr(self, name) for name in _BANK_PARAMETERS)
        )
        # Each channel is filtered as a separate image.
        images = T.reshape(*T.shape[:3], -1)
        n_channels, n_kernels = images.shape[3], len(spectra)
        magnitudes = np.empty((len(T), *shape, n_channels, n_kernels), T.dtype)
        max_images_per_block = max(1, _BLOCK_BYTES // spectra.nbytes)
        for block in split_rows(len(T), 2 * spectra.nbytes, max_rows=max_images_per_block):
            for channel in range(n_channels):
                responses = _filter_images(images[block, ..., channel], spectra)
                magnitudes[block, ..., channel, :] = np.moveaxis(np.abs(responses), 1, -1)
        return magnitudes.reshape(len(T), *self._get_output_shape(T.shape[1:]))


def gabor_bank(
    n_scales: int = 5,
    n_orientations: int = 8,
    mask_size: int = 64,
    max_frequency: float = np.pi / 2,
    frequency_ratio: float = 2.0,
    envelope_width: float = 2 * np.pi,
    prefactor_power: float = 1,
    remove_dc: bool = False,
) -> NDArray[np.complex128]:
    r"""Return Gabor functions of several scales and orientations, sampled on a square mask.

    .. math::
        \psi_{s,d}(z) = \frac{\|k\|^a}{\delta^2}\, e^{-\|k\|^2 \|z\|^2 / 2\delta^2}
        \left( e^{i k \cdot z} - e^{-\delta^2/2} \right), \qquad
        k = \frac{k_{max}}{f^s} (\cos\phi_d, \sin\phi_d),\ \phi_d = \pi d / n_{orientations}.

    With the exponent a = 1, all scales have the same energy on an unbounded mask. A mask of 64
    pixels contains 100, 100, 99, 71 and 27% of the energy of the five default scales, and the last
    two scales respond to constant images.

    Parameters
    ----------
    n_scales, n_orientations : int, default=5 and 8
        Number of scales and number of orientations.
    mask_size : int, default=64
        Side length of the mask in pixels. The origin z = 0 is at index ``mask_size // 2``.
    max_frequency : float, default=pi/2
        Largest frequency, in radians per pixel.
    frequency_ratio : float, default=2
        Ratio between the frequencies of consecutive scales.
    envelope_width : float, default=2*pi
        Width of the Gabor functions: standard deviation times frequency.
    prefactor_power : float, default=1
        Exponent a of the frequency in the prefactor. The value 2 is common in the literature.
    remove_dc : bool, default=False
        Whether to subtract a multiple of the envelope from each kernel, such that the response to
        constant images is zero.

    Returns
    -------
    ndarray of complex, shape (n_scales, n_orientations, mask_size, mask_size)
        The kernels. The last two axes are y (downward) and x.

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
    values = (
        n_scales,
        n_orientations,
        mask_size,
        max_frequency,
        frequency_ratio,
        envelope_width,
        prefactor_power,
        remove_dc,
    )
    for (name, allowed), value in zip(_BANK_PARAMETERS.items(), values, strict=True):
        check_parameter("gabor_bank", name, value, allowed)
    with np.errstate(all="ignore"):  # The kernels are checked below.
        kernels = _compute_kernels(*values)
    if not np.isfinite(kernels).all() or not kernels.any():
        raise ValueError(
            f"The Gabor kernels overflow or underflow with max_frequency={max_frequency:g}, "
            f"frequency_ratio={frequency_ratio:g}, envelope_width={envelope_width:g} and "
            f"prefactor_power={prefactor_power:g}. Use less extreme values."
        )
    return kernels


def _compute_kernels(
    n_scales: int,
    n_orientations: int,
    mask_size: int,
    max_frequency: float,
    frequency_ratio: float,
    envelope_width: float,
    prefactor_power: float,
    remove_dc: bool,
) -> NDArray[np.complex128]:
    """Return the kernels of `gabor_bank`, which may be infinite or NaN."""
    frequency = (
        float(max_frequency) / float(frequency_ratio) ** np.arange(n_scales)[:, None, None, None]
    )
    angle = np.pi * np.arange(n_orientations)[:, None, None] / n_orientations
    z = np.arange(mask_size) - mask_size // 2
    y, x = z[:, None], z[None, :]
    envelope_width = np.float64(envelope_width)
    envelope = np.exp(-(frequency**2) * (x**2 + y**2) / (2 * envelope_width**2))
    wave = np.exp(1j * frequency * (x * np.cos(angle) + y * np.sin(angle)))
    kernels = envelope * (wave - np.exp(-(envelope_width**2) / 2))
    if remove_dc:
        kernels -= envelope * (
            kernels.sum(axis=(2, 3), keepdims=True) / envelope.sum(axis=(2, 3), keepdims=True)
        )
    return np.asarray(frequency ** float(prefactor_power) / envelope_width**2 * kernels)


@lru_cache(maxsize=4)
def _compute_spectra(
    sum_over: SumOver, shape: tuple[int, int], dtype: str, *bank: Any
) -> NDArray[Any]:
    """Return the Fourier transforms of the kernels, padded for images of the given shape.

    Only responses inside the image are needed. For these, a circular convolution is equal to a
    convolution with zero padding if its period exceeds the image by at least half the mask.
    """
    kernels = gabor_bank(*bank).sum(axis=_SUMMED_AXES[sum_over])
    kernels = kernels.reshape(-1, *kernels.shape[-2:])
    center = kernels.shape[-1] // 2
    periods = []
    for axis, length in enumerate(shape, start=1):
        # Kernel values have no effect if their distance from the center exceeds the image length.
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


def _filter_images(images: Floats, spectra: NDArray[Any]) -> NDArray[Any]:
    """Convolve each image with each kernel. Return an array of shape (n, n_kernels, h, w)."""
    height, width = images.shape[1:]
    transforms = fft.fft2(images, s=spectra.shape[1:])
    products = transforms[:, None] * spectra
    # Crop the rows before the second inverse transform, which then has less work.
    rows = fft.ifft(products, axis=2, overwrite_x=True)[:, :, :height]
    return np.asarray(fft.ifft(rows, axis=3, overwrite_x=True)[..., :width])
