"""Reader for a folder of images, in which each subfolder is a class."""

from __future__ import annotations

import os
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.datasets.clips import IMAGES
from nearfar.datasets.folders import Member, find_members, get_labels
from nearfar.datasets.table import drop_single_channel
from nearfar.extras import import_optional
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, check_parameter, none
from nearfar.words import join_names

#: Maximum number of pixels of all images together. A larger number is almost certainly a mistake.
MAX_PIXELS = 2**30
# EXIF tag of the camera orientation.
_ORIENTATION = 0x0112
# Camera orientations that swap height and width.
_ROTATED = (5, 6, 7, 8)


class Images(NamedTuple):
    """Images, their labels and their file names."""

    #: uint8 array of shape (n, height, width), or (n, height, width, 3) for color images.
    images: NDArray[np.uint8]
    #: First-level subfolder of each image, or None if the folder has no subfolders.
    labels: NDArray[np.str_] | None
    #: Path of each file, relative to the folder.
    names: NDArray[np.str_]


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) in (2, 3)
        and all(isinstance(n, int | np.integer) and n >= 1 for n in value)
        and (len(value) == 2 or value[2] in (1, 3))
    )


_SIZE = AllowedValues(_is_size, "(height, width), (height, width, 1) or (height, width, 3)")


def load_images(
    folder: str | os.PathLike[str],
    shape: tuple[int, ...] | None = None,
    *,
    n_jobs: int | None = None,
) -> Images:
    """Read the images in a folder into one array, with the first-level subfolders as labels.

    PNG, JPEG, BMP, TIFF, PGM, PPM and WebP files are read with Pillow (``pip install
    nearfar[image]``). Images may be at any depth; labels and order are those of
    :func:`~nearfar.datasets.read_clips`. Photographs are rotated according to their EXIF
    orientation, transparent pixels become white, and 16-bit values are scaled to 8 bits.

    Parameters
    ----------
    folder : path
        Folder of the images.
    shape : tuple of int, optional
        (height, width) for gray or (height, width, 3) for color images. Every image is resized to
        this shape, ignoring the aspect ratio. None requires that all images have the same size.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Returns
    -------
    images : ndarray of uint8, shape (n, height, width) or (n, height, width, 3)
        Values from 0 to 255. If `shape` is None, the array has three channels if any image has
        color.
    labels : ndarray of shape (n,) or None
        First-level subfolder of each image. None if no subfolder contains images.
    names : ndarray of shape (n,)
        Path of each file, relative to the folder.

    Raises
    ------
    ValueError
        If an image cannot be read, has a different size, or has no label although other images
        have one. The message names the image.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_digits
    >>> from nearfar.datasets import load_images
    >>> folder = Path(tempfile.mkdtemp())
    >>> digits = load_digits()
    >>> for k in range(20):  # a PGM file is a line of text followed by the pixels
    ...     place = folder / f"digit {digits.target[k]}"
    ...     place.mkdir(exist_ok=True)
    ...     pixels = (15 * digits.images[k]).astype("uint8")
    ...     _ = (place / f"{k}.pgm").write_bytes(b"P5 8 8 255 " + pixels.tobytes())
    >>> images, labels, names = load_images(folder)  # doctest: +SKIP
    >>> images.shape, labels[0], names[0]  # doctest: +SKIP
    ((20, 8, 8), np.str_('digit 0'), np.str_('digit 0/0.pgm'))
    """
    check_parameter("load_images", "shape", shape, [none, _SIZE])
    size = None if shape is None else drop_single_channel(tuple(int(n) for n in shape))
    image_files = find_members(folder, IMAGES, "images")
    labels = get_labels(image_files, "images")
    import_optional("PIL", "image")
    if size is None:
        _check_sizes(image_files)
    _warn_empty_folders(Path(folder), image_files)

    def read(member: Member) -> NDArray[np.uint8]:
        try:
            return read_image(member.path, size)
        except Exception as error:
            raise _make_read_error(member, error) from error

    images = list(map_in_order(read, image_files, resolve_n_threads(n_jobs)))
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else _convert_to_rgb(image) for image in images]
    return Images(np.stack(images), labels, np.array([member.name for member in image_files]))


def read_image(path: Path, shape: tuple[int, ...] | None = None) -> NDArray[np.uint8]:
    """Read one image as an array of shape (height, width), or (height, width, 3) for color.

    If `shape` is given, the image is resized and converted to gray or color accordingly.
    """
    Image, ImageOps = (
        import_optional("PIL.Image", "image"),
        import_optional("PIL.ImageOps", "image"),
    )
    with Image.open(path) as file_image:
        picture = _convert_to_8_bit(ImageOps.exif_transpose(file_image), Image)
    if shape is not None:
        picture = picture.convert("L" if len(shape) == 2 else "RGB")
        if picture.size != (shape[1], shape[0]):
            picture = picture.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
        return np.asarray(picture)
    pixels = np.asarray(picture)
    # Gray images are often saved with three equal channels.
    if pixels.ndim == 3 and (pixels == pixels[:, :, :1]).all():
        pixels = pixels[:, :, 0]
    return pixels


def contains_images(folder: Path) -> bool:
    """Return True if the folder or one of its subfolders has a file with an image extension."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(Path(name).suffix.lower() in IMAGES and name[0] != "." for name in files):
            return True
    return False


def _convert_to_8_bit(picture: Any, Image: Any) -> Any:
    """Return the image with 8-bit gray or RGB values."""
    if picture.mode.startswith("I"):  # Pillow's own conversion would clip values at 255.
        pixels = np.asarray(picture)
        if pixels.min() < 0 or pixels.max() > 65535:
            raise ValueError("its pixel values have more than 16 bits. Save it with 8 or 16 bits.")
        return Image.fromarray(np.rint(pixels / 257).astype(np.uint8))
    if picture.mode == "F":
        raise ValueError("it has floating-point pixel values. Save it with 8 or 16 bits.")
    if picture.mode in ("1", "L") and "transparency" not in picture.info:
        return picture.convert("L")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        foreground = picture.convert("RGBA")
        picture = Image.new("RGBA", foreground.size, "white")
        picture.alpha_composite(foreground)
    return picture.convert("RGB")


def _check_sizes(image_files: list[Member]) -> None:
    """Raise if the images differ in size, or if they have too many pixels in total."""
    sizes = [_read_size(member) for member in image_files]
    mismatch = next((k for k, size in enumerate(sizes) if size != sizes[0]), None)
    common_size = Counter(sizes).most_common(1)[0][0]
    if mismatch is not None:
        raise ValueError(
            f"Image {image_files[mismatch].name!r} has {_format_size(sizes[mismatch])} pixels "
            f"(height × width), but {image_files[0].name!r} has {_format_size(sizes[0])}. Pass "
            f"shape={common_size} to resize all to the most common size, or pass another shape."
        )
    if len(image_files) * prod(common_size) > MAX_PIXELS:
        raise ValueError(
            f"{len(image_files):,} images of {_format_size(common_size)} pixels are "
            f"{len(image_files) * prod(common_size):,} numbers, which is too many. Pass a smaller "
            f"shape, such as shape={_suggest_size(common_size)}, to resize them."
        )


def _read_size(member: Member) -> tuple[int, int]:
    """Return (height, width) from the header of the file."""
    Image = import_optional("PIL.Image", "image")
    try:
        with Image.open(member.path) as picture:
            width, height = picture.size
            is_rotated = picture.getexif().get(_ORIENTATION) in _ROTATED
    except Exception as error:
        raise _make_read_error(member, error) from error
    return (width, height) if is_rotated else (height, width)


def _make_read_error(member: Member, error: Exception) -> ValueError:
    if member.path.stat().st_size == 0:
        return ValueError(f"Image {member.name!r} cannot be read: the file is empty.")
    # Pillow's message would repeat the whole path.
    reason = "it is damaged or not an image." if "cannot identify" in str(error) else str(error)
    return ValueError(f"Image {member.name!r} cannot be read: {reason}")


def _warn_empty_folders(root: Path, image_files: list[Member]) -> None:
    """Warn about subfolders without images, which do not become classes."""
    labels = {member.label for member in image_files}
    empty = sorted(
        path.name
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in labels
    )
    if empty and labels != {None}:
        verb = "has no images and is not" if len(empty) == 1 else "have no images and are not"
        warn(f"{join_names(empty, 3)} in {str(root)!r} {verb} used as a class.")


def _convert_to_rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(image[:, :, None], 3, axis=2)


def _suggest_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return a size with the same aspect ratio and a longer side of 64 pixels.

    >>> _suggest_size((3000, 4000))
    (48, 64)
    """
    scale = 64 / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _format_size(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
