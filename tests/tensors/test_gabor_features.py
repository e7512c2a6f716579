"""Gabor functions compared with their formula, and features with direct convolution."""

import cmath
import math
import tracemalloc

import numpy as np
import pytest
from scipy.signal import convolve2d

from nearfar import GaborFeatures
from nearfar.tensors import gabor_bank
from nearfar.tensors import gabor_features as module

RNG = np.random.default_rng(0)


def psi(s, d, x, y, delta=2 * math.pi):
    """Evaluate the formula one number at a time."""
    k = math.pi / 2 / 2**s
    kx, ky = k * math.cos(math.pi * d / 8), k * math.sin(math.pi * d / 8)
    envelope = k / delta**2 * math.exp(-(k**2) * (x * x + y * y) / (2 * delta**2))
    return envelope * (cmath.exp(1j * (kx * x + ky * y)) - math.exp(-(delta**2) / 2))


def test_the_first_kernel_has_the_published_value_in_its_middle():
    assert gabor_bank()[0, 0, 32, 32] == pytest.approx(0.0397887, abs=5e-8)


def test_kernels_are_the_formula_with_y_downwards_and_zero_at_the_middle():
    bank = gabor_bank()
    assert bank.shape == (5, 8, 64, 64) and bank.dtype == np.complex128
    for s, d, row, column in RNG.integers((5, 8, 64, 64), size=(200, 4)).tolist():
        wanted = psi(s, d, x=column - 32, y=row - 32)
        assert bank[s, d, row, column] == pytest.approx(wanted, abs=1e-15)
    # Direction 0 oscillates along x, direction 4 along y: they are transposes.
    np.testing.assert_allclose(bank[:, 4], bank[:, 0].swapaxes(1, 2), atol=1e-15)


def test_power_one_gives_all_scales_one_energy_of_which_the_mask_holds_a_part():
    wide = gabor_bank(n_orientations=1, mask_size=501)[:, 0]
    norms = np.linalg.norm(wide, axis=(1, 2))
    np.testing.assert_allclose(norms, 0.282, atol=5e-4)
    held = np.linalg.norm(gabor_bank(n_orientations=1)[:, 0], axis=(1, 2)) ** 2 / norms**2
    np.testing.assert_allclose(100 * held, [100, 100, 99, 71, 27], atol=0.5)
    # With exponent 2 coarse scales have less energy, even more so on the mask.
    usual = np.linalg.norm(
        gabor_bank(n_orientations=1, mask_size=501, prefactor_power=2), axis=(2, 3)
    )
    np.testing.assert_allclose(usual[:, 0], usual[0, 0] / 2.0 ** np.arange(5), rtol=2e-3)
    on_mask = np.linalg.norm(gabor_bank(n_orientations=1, prefactor_power=2), axis=(2, 3))[:, 0]
    np.testing.assert_allclose(on_mask[[0, 4]], [0.443, 0.014], atol=6e-4)


def test_the_mask_makes_coarse_kernels_see_constants_unless_told_otherwise():
    def residue(bank):
        return (np.abs(bank.sum(axis=(2, 3))) / np.abs(bank).sum(axis=(2, 3))).max(axis=1)

    found = residue(gabor_bank())
    assert (found[:3] < 0.01).all() and found[3:].max() == pytest.approx(0.14, abs=0.01)
    assert (found[3:] > 0.01).all()
    assert residue(gabor_bank(remove_dc=True)).max() < 1e-14


def direct(image, kernel):
    """Return the sum over z of I(p - z) psi(z), with zero padding, as in the definition."""
    height, width = image.shape
    size = len(kernel)
    response = np.zeros(image.shape, dtype=complex)
    for p0, p1 in np.ndindex(height, width):
        for z0, z1 in np.ndindex(size, size):
            q0, q1 = p0 - (z0 - size // 2), p1 - (z1 - size // 2)
            if 0 <= q0 < height and 0 <= q1 < width:
                response[p0, p1] += image[q0, q1] * kernel[z0, z1]
    return response


@pytest.mark.parametrize("shape", [(9, 7), (3, 12), (1, 5)])
@pytest.mark.parametrize("size", [8, 5])
def test_features_are_the_magnitudes_of_direct_convolution(shape, size):
    image = RNG.normal(size=shape)
    settings = {"n_scales": 2, "n_orientations": 3, "mask_size": size}
    bank = gabor_bank(**settings)
    found = GaborFeatures(**settings, flatten=False).fit_transform(image[None])[0]
    assert found.shape == (*shape, 2, 3)
    for s, d in np.ndindex(2, 3):
        np.testing.assert_allclose(found[..., s, d], np.abs(direct(image, bank[s, d])), atol=1e-13)


@pytest.mark.parametrize(
    ("sum_over", "axes"),
    [("none", ()), ("orientations", (1,)), ("scales", (0,)), ("both", (0, 1))],
)
def test_kernels_are_summed_before_the_magnitude(sum_over, axes):
    image = RNG.random((20, 14))
    settings = {"n_scales": 3, "n_orientations": 4, "mask_size": 24}
    bank = gabor_bank(**settings)
    # Full convolution, cropped to the image.
    responses = np.array([[convolve2d(image, kernel) for kernel in scale] for scale in bank])
    responses = responses[..., 12 : 12 + 20, 12 : 12 + 14]
    wanted = np.moveaxis(np.abs(responses.sum(axis=axes)), (-2, -1), (0, 1))
    found = GaborFeatures(sum_over, **settings, flatten=False).fit_transform(image[None])[0]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    if axes:
        magnitudes = np.moveaxis(np.abs(responses).sum(axis=axes), (-2, -1), (0, 1))
        assert np.abs(found - magnitudes).max() > 0.3 * found.max()


def test_channels_are_images_of_their_own():
    colors = RNG.random((2, 12, 10, 3))
    gabor = GaborFeatures("orientations", mask_size=16, flatten=False).fit(colors)
    found = gabor.transform(colors)
    assert found.shape == (2, 12, 10, 3, 5)
    one = GaborFeatures("orientations", mask_size=16, flatten=False).fit_transform(colors[..., 1])
    np.testing.assert_allclose(found[..., 1, :], one, atol=1e-13)


def test_float32_is_accurate_and_stays():
    images = RNG.random((3, 30, 22))
    wanted = GaborFeatures().fit_transform(images)
    found = GaborFeatures().fit_transform(images.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-6 * wanted.max())


def test_spectra_are_made_once_for_images_of_one_size():
    module._compute_spectra.cache_clear()
    gabor = GaborFeatures("scales").fit(np.ones((2, 20, 15)))
    for _ in range(3):
        gabor.transform(np.ones((2, 20, 15)))
    GaborFeatures("scales").fit_transform(np.ones((1, 20, 15)))
    info = module._compute_spectra.cache_info()
    assert info.misses == 1 and info.hits == 3


def test_memory_beyond_the_result_is_bounded():
    images = np.ones((40, 32, 22), dtype=np.float32)
    gabor = GaborFeatures().fit(images)
    gabor.transform(images[:1])
    tracemalloc.start()
    try:
        found = gabor.transform(images)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    beyond = peak - found.nbytes
    # All responses at once would be 40 × 40 × 64 × 54 × 8 bytes = 44 MB, twice.
    assert beyond < 40e6, beyond


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mask_size": 0}, "mask_size must be an integer"),
        ({"frequency_ratio": 0.0}, "frequency_ratio must be a number above 0"),
        ({"max_frequency": np.nan}, "max_frequency"),
        ({"n_scales": 2.5}, "n_scales"),
    ],
)
def test_bad_banks_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        gabor_bank(**settings)
    with pytest.raises(ValueError, match=words):
        GaborFeatures(**settings).fit(np.ones((2, 4, 4)))


def test_what_is_no_image_is_refused():
    with pytest.raises(ValueError, match="expects images of shape"):
        GaborFeatures().fit(np.ones((3, 4, 4, 2, 2)))
    with pytest.raises(ValueError, match="expects images of shape.*tensor_shape"):
        GaborFeatures().fit(np.ones((3, 16)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("envelope_width", 1e-300),
        ("envelope_width", 1e300),
        ("frequency_ratio", 1e-300),
        ("max_frequency", 1e300),
        ("prefactor_power", 10**9),
    ],
)
def test_parameters_that_overflow_are_named(name, value):
    with pytest.raises(ValueError, match=f"overflow.*{name}="):
        gabor_bank(**{name: value})
