"""Folders of pictures: what is read of each, what is passed over, and what is refused."""

import os
import sys

import numpy as np
import pytest

from nearfar.datasets import load_images, pictures
from nearfar.datasets.pictures import contains_images, read_image

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)


def grey(height=6, width=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def write(path, pixels, mode=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)
    return pixels


@pytest.fixture
def folder(tmp_path):
    """Three classes; numbers in names, capitals, and a picture two levels down."""
    for k in range(3):
        write(tmp_path / "ann" / f"face{9 + k}.png", grey(seed=k))
        write(tmp_path / "bob" / f"{k}.PNG", grey(seed=10 + k))
    write(tmp_path / "cy" / "2024" / "summer" / "a.png", grey(seed=20))
    return tmp_path


def test_sub_folders_are_labels_and_the_order_is_that_of_names(folder):
    images, labels, names = load_images(folder)
    assert images.shape == (7, 6, 5) and images.dtype == np.uint8
    assert labels.tolist() == ["ann"] * 3 + ["bob"] * 3 + ["cy"]
    assert names[:3].tolist() == ["ann/face9.png", "ann/face10.png", "ann/face11.png"]
    assert names[-1] == "cy/2024/summer/a.png"
    np.testing.assert_array_equal(images[1], grey(seed=1))
    np.testing.assert_array_equal(load_images(folder, n_jobs=2).images, images)


def test_pictures_without_sub_folders_have_no_labels(tmp_path):
    write(tmp_path / "a.png", grey())
    assert load_images(tmp_path).labels is None


def test_hidden_files_and_other_kinds_are_passed_over(folder):
    (folder / "ann" / "._face9.png").write_bytes(b"resource fork")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.png").write_bytes(b"")
    (folder / "ann" / "Thumbs.db").write_bytes(b"x")
    (folder / "notes.txt").write_text("x")
    (folder / "nobody").mkdir()
    with pytest.warns(UserWarning) as caught:
        assert len(load_images(folder).images) == 7
    texts = sorted(str(one.message) for one in caught)
    assert len(texts) == 2
    assert "'nobody' in" in texts[0] and "has no images and is not used as a class" in texts[0]
    assert "2 files in" in texts[1] and "'ann/Thumbs.db', 'notes.txt'" in texts[1]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="there are no links")
def test_a_link_to_a_folder_above_is_not_followed_for_ever(folder):
    (folder / "ann" / "again").symlink_to(folder, target_is_directory=True)
    assert len(load_images(folder).images) == 7


@pytest.mark.parametrize("mode", ["RGB", "P", "L", "LA", "RGBA"])
def test_grey_pictures_are_grey_however_they_are_saved(tmp_path, mode):
    pixels = write(tmp_path / "a" / "x.png", grey(), mode)
    write(tmp_path / "a" / "y.png", grey(seed=1))
    images = load_images(tmp_path).images
    assert images.shape == (2, 6, 5)
    np.testing.assert_array_equal(images[0], pixels)


def test_one_picture_in_colour_makes_all_so(tmp_path):
    color = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    write(tmp_path / "a" / "x.png", color)
    plain = write(tmp_path / "b" / "y.png", grey())
    images = load_images(tmp_path).images
    assert images.shape == (2, 6, 5, 3)
    np.testing.assert_array_equal(images[0], color)
    np.testing.assert_array_equal(images[1], np.dstack([plain] * 3))
    assert load_images(tmp_path, (6, 5)).images.shape == (2, 6, 5)
    assert load_images(tmp_path, (6, 5, 1)).images.shape == (2, 6, 5)
    assert load_images(tmp_path, (4, 3, 3)).images.shape == (2, 4, 3, 3)


def test_a_palette_of_colours_is_read_as_colours(tmp_path):
    color = np.zeros((6, 5, 3), np.uint8)
    color[:3] = 255, 0, 0
    write(tmp_path / "x.png", color, "P")
    np.testing.assert_array_equal(load_images(tmp_path).images[0], color)


def test_what_is_transparent_lies_on_white(tmp_path):
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:2, :, 3] = 255
    write(tmp_path / "x.png", pixels)
    assert load_images(tmp_path).images[0].tolist() == [[0] * 4] * 2 + [[255] * 4] * 2
    # A colour of a palette, and a grey value, may be the transparent one.
    image = Image.fromarray(np.repeat([[0], [90]], 3, axis=1).astype(np.uint8))
    image.save(tmp_path / "x.png", transparency=0)
    assert load_images(tmp_path).images[0].tolist() == [[255] * 3, [90] * 3]


def test_16_bits_are_scaled_and_not_cut(tmp_path):
    deep = (np.arange(30).reshape(6, 5) * 2184).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "x.png")
    found = load_images(tmp_path).images[0]
    np.testing.assert_array_equal(found, np.rint(deep / 257))
    assert found.max() < 255  # Pillow's convert("L") makes 255 of all but the first


def test_bits_are_black_and_white(tmp_path):
    write(tmp_path / "x.png", np.eye(4, dtype=np.uint8) * 255, "1")
    np.testing.assert_array_equal(load_images(tmp_path).images[0], np.eye(4) * 255)


def test_photographs_are_turned_as_the_camera_says(tmp_path):
    pixels = grey(8, 16)
    exif = Image.Exif()
    exif[0x0112] = 6  # its upper side is on the right
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    write(tmp_path / "b.png", grey(16, 8))
    images = load_images(tmp_path).images
    assert images.shape == (2, 16, 8)
    np.testing.assert_array_equal(images[0], np.rot90(pixels, -1))


def test_pictures_are_resized_to_a_shape(tmp_path):
    pixels = np.zeros((8, 8), np.uint8)
    pixels[:, 4:] = 200
    write(tmp_path / "a.png", pixels)
    write(tmp_path / "b.png", np.repeat(pixels, 4, axis=0))
    images = load_images(tmp_path, (4, 2)).images
    assert images.shape == (2, 4, 2)
    assert (images[:, :, 0] < 40).all() and (images[:, :, 1] > 160).all()


def test_other_sizes_are_named_with_the_commonest(folder):
    write(folder / "bob" / "wide.png", grey(6, 9))
    with pytest.raises(
        ValueError,
        match=r"Image 'bob/wide.png' has 6×9 .* 'ann/face9.png' has 6×5. Pass shape=\(6, 5\)",
    ):
        load_images(folder)
    assert load_images(folder, (6, 5)).images.shape == (8, 6, 5)


def test_pictures_that_would_not_fit_into_memory_are_refused(folder, monkeypatch):
    monkeypatch.setattr(pictures, "MAX_PIXELS", 200)
    with pytest.raises(
        ValueError, match="7 images of 6×5 pixels are 210 numbers, which is too many. Pass"
    ):
        load_images(folder)
    assert load_images(folder, (6, 5)).images.shape == (7, 6, 5)


@pytest.mark.parametrize("shape", [None, (4, 4)])
@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "the file is empty"), (b"no picture at all", "it is damaged or not an image")],
)
def test_a_picture_that_cannot_be_read_is_named(folder, shape, content, why):
    (folder / "bob" / "bad.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=f"Image 'bob/bad.jpg' cannot be read: {why}"):
        load_images(folder, shape)


def test_a_picture_that_is_cut_short_is_named(folder):
    path = folder / "ann" / "cut.png"
    write(path, RNG.integers(0, 256, (6, 5), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:-25])
    with pytest.raises(ValueError, match="Image 'ann/cut.png' cannot be read"):
        load_images(folder)


def test_floating_point_pictures_are_refused(tmp_path):
    Image.fromarray(np.ones((3, 3), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"'a.tif' cannot be read: .*8 or 16 bits"):
        load_images(tmp_path)


def test_a_picture_beside_the_classes_is_named(folder):
    write(folder / "cover.png", grey())
    with pytest.raises(ValueError, match="'cover.png' has no label"):
        load_images(folder)


def test_a_folder_without_pictures_is_said(tmp_path):
    (tmp_path / "ann").mkdir()
    assert not contains_images(tmp_path)
    with pytest.raises(ValueError, match="Found no images in"):
        load_images(tmp_path)
    with pytest.raises(ValueError, match="not a folder"):
        load_images(tmp_path / "none")


@pytest.mark.parametrize("shape", [(4,), (4, 4, 2), "4x4", (0, 4), (2.5, 3)])
def test_a_shape_that_is_none_is_refused(folder, shape):
    with pytest.raises(ValueError, match=r"load_images: shape must be None, or \(height, width\)"):
        load_images(folder, shape)


def test_one_picture_alone(tmp_path):
    pixels = write(tmp_path / "a.bmp", grey())
    np.testing.assert_array_equal(read_image(tmp_path / "a.bmp"), pixels)


def test_pillow_is_asked_for_by_its_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'nearfar\[image\]'"):
        load_images(folder)
