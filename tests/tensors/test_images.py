"""Saliency maps, attention crops and standardized tensors."""

import colorsys

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from nearfar import AttentionROI, TensorStandardizer
from nearfar.tensors import saliency as module
from nearfar.tensors import saliency_map

RNG = np.random.default_rng(0)


def found_at(image):
    found = saliency_map(image)
    return np.unravel_index(found.argmax(), found.shape)


def test_a_bright_spot_a_colour_and_a_direction_stand_out():
    spot = 0.2 + 0.02 * RNG.random((160, 192))
    spot[96:104, 40:48] = 1
    assert np.abs(np.subtract(found_at(spot), (100, 44))).max() <= 12

    # One red disc among green ones of the same brightness.
    disc = np.hypot(*(np.mgrid[:32, :32] - 15.5)) < 8
    colors = np.full((160, 192, 3), 0.3)
    for i in range(5):
        for j in range(6):
            part = colors[32 * i : 32 * i + 32, 32 * j : 32 * j + 32]
            part[disc] = (0.9, 0, 0) if (i, j) == (3, 4) else (0, 0.9, 0)
    assert np.abs(np.subtract(found_at(colors), (112, 144))).max() <= 16

    # A patch of horizontal stripes among vertical ones.
    y, x = np.mgrid[:192, :224]
    patch = (np.abs(y - 80) < 24) & (np.abs(x - 144) < 24)
    stripes = np.sin(2 * np.pi * np.where(patch, y, x) / 16)
    assert np.abs(np.subtract(found_at(1 + stripes), (80, 144))).max() <= 24


def test_maps_have_the_size_of_the_image_and_do_not_depend_on_units():
    image = RNG.random((70, 50, 3))
    wanted = saliency_map(image)
    assert wanted.shape == (70, 50) and (wanted >= 0).all()
    for unit in (1e-8, 255.0, 1e8):
        np.testing.assert_allclose(saliency_map(unit * image), wanted, atol=1e-9)
    np.testing.assert_allclose(saliency_map(image[..., :1].repeat(3, axis=2)).shape, (70, 50))


@pytest.mark.parametrize("image", [np.zeros((40, 30)), np.full((64, 64, 3), 7.5), np.ones((1, 1))])
def test_nothing_stands_out_of_a_constant_image(image):
    assert (saliency_map(image) == 0).all()


def test_one_peak_is_worth_more_than_many():
    single, many = np.zeros((2, 1, 9, 9))
    single[0, 4, 4] = 3
    many[0, 1::3, 1::3] = 3
    many[0, 4, 4] = 3.3
    assert module._normalize(single).max() == 1
    scaled = many[0] / 3.3
    others = [scaled[i, j] for i in (1, 4, 7) for j in (1, 4, 7) if (i, j) != (4, 4)]
    assert module._normalize(many).max() == pytest.approx((1 - np.mean(others)) ** 2)


def test_pyramids_have_nine_levels_and_six_differences():
    levels = module._build_pyramid(RNG.random((1, 300, 200)))
    assert [level.shape[1:] for level in levels[:3]] == [(300, 200), (150, 100), (75, 50)]
    assert len(levels) == 9
    assert len(module._compute_center_surround(levels)) == 6
    # Linear interpolation keeps the position of each coarse pixel.
    coarse = RNG.random((1, 5, 4))
    fine = module._enlarge(coarse, (33, 25), 8)
    np.testing.assert_allclose(fine[:, ::8, ::8], coarse[:, :5, :4])
    np.testing.assert_allclose(fine[0, 4, 0], coarse[0, :2, 0].mean())


def test_the_map_of_one_image_is_that_of_a_stack():
    images = RNG.random((3, 48, 64, 3))
    stack = module.compute_coarse_saliency(images)
    for k in range(3):
        np.testing.assert_allclose(module.compute_coarse_saliency(images[k : k + 1])[0], stack[k])


@pytest.mark.parametrize("bad", [np.ones(5), np.ones((3, 4, 2)), np.ones((0, 4)), [[np.nan, 1]]])
def test_what_is_no_image_is_refused(bad):
    with pytest.raises(ValueError, match="image"):
        saliency_map(bad)


def spotted(places, shape=(128, 160)):
    images = np.zeros((len(places), *shape))
    for image, (row, column) in zip(images, places, strict=True):
        image[max(row - 4, 0) : row + 4, max(column - 4, 0) : column + 4] = 1
    return images


def test_squares_lie_about_what_stands_out_and_are_moved_inside():
    images = spotted([(64, 80), (8, 8), (120, 152)])
    roi = AttentionROI(32, flatten=False).fit(images)
    where = roi.locate(images)
    assert where.dtype.kind == "i"
    assert where[0].tolist() == [48, 64, 32, 32]
    assert where[1].tolist() == [0, 0, 32, 32]
    assert (where[2, :2] + 32 <= (128, 160)).all()
    for image, (top, left, height, width), square in zip(
        images, where, roi.transform(images), strict=True
    ):
        np.testing.assert_array_equal(square, image[top : top + height, left : left + width])
        assert square.max() == 1, "what stands out is inside"


def test_squares_that_leave_the_image_may_repeat_its_edge():
    images = spotted([(0, 80)]) + np.linspace(0, 0.01, 160)
    roi = AttentionROI(32, border="edge", flatten=False).fit(images)
    ((top, left, height, width),) = roi.locate(images)
    assert (top, height, width) == (0, 16, 32)
    square = roi.transform(images)[0]
    np.testing.assert_array_equal(square[16:], images[0, :16, left : left + 32])
    np.testing.assert_array_equal(square[:16], np.tile(square[16], (16, 1)))


def test_smaller_images_lie_in_the_middle_of_their_square():
    images = RNG.random((2, 5, 40))
    roi = AttentionROI(16, flatten=False).fit(images)
    for image, square, (top, left, height, width) in zip(
        images, roi.transform(images), roi.locate(images), strict=True
    ):
        assert (top, height, width) == (0, 5, 16)
        part = image[:, left : left + 16]
        np.testing.assert_array_equal(square, np.pad(part, ((5, 6), (0, 0)), mode="edge"))


def test_colours_become_hue_saturation_and_value():
    images = RNG.random((2, 6, 5, 3))
    images[0, 0, 0] = 0.5  # gray
    images[0, 0, 1] = 0  # black
    images[0, 1] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 0]]
    found = AttentionROI(6, flatten=False).fit_transform(images)
    squares = AttentionROI(6, color_space="rgb", flatten=False).fit_transform(images)
    assert found.shape == (2, 6, 6, 3)
    for color, hsv in zip(squares.reshape(-1, 3), found.reshape(-1, 3), strict=True):
        np.testing.assert_allclose(hsv, colorsys.rgb_to_hsv(*color), atol=1e-12)


def test_bytes_are_brought_to_one():
    images = RNG.integers(0, 256, size=(2, 20, 20, 3)).astype(np.uint8)
    roi = AttentionROI(20).fit(images)
    np.testing.assert_allclose(roi.transform(images), roi.transform(images / 255))


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(ValueError, match="gray images .* or color images"):
        AttentionROI().fit(np.ones((2, 8, 8, 4)))


# ---------------------------------------------------------------------- standardized tensors


def test_entries_are_standardised_as_by_scikit_learn():
    X = RNG.normal(size=(20, 4, 3, 2)) * RNG.uniform(0.1, 9, size=(4, 3, 2)) + 50
    found = TensorStandardizer(flatten=False).fit(X)
    rows = StandardScaler().fit_transform(X.reshape(20, -1))
    np.testing.assert_allclose(found.transform(X).reshape(20, -1), rows, atol=1e-10)


def test_all_numbers_together_have_one_mean_and_deviation():
    X = np.random.default_rng(0).normal(size=(20, 4, 3)) + np.arange(3)
    found = TensorStandardizer("all", flatten=False).fit_transform(X)
    np.testing.assert_allclose(found, (X - X.mean()) / X.std())
    # Different means of the entries are kept.
    assert found.mean(axis=(0, 1))[2] > 0.2 > -0.2 > found.mean(axis=(0, 1))[0]


@pytest.mark.parametrize("per", ["entry", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_does_not_vary_is_only_centred(per, dtype):
    X = np.full((7, 3, 2), 0.1, dtype)
    assert np.abs(TensorStandardizer(per).fit_transform(X)).max() < 1e-6
    big = X * dtype(1e30)
    big[0] *= 2
    found = TensorStandardizer(per).fit_transform(big)
    assert np.isfinite(found).all() and found.std() == pytest.approx(1, rel=1e-3)
