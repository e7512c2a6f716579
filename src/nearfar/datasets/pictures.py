"""Pictures in a folder as one array, each sub-folder a class."""

from __future__ import annotations

import os
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import effective_threads, map_in_order
from nearfar.datasets.clips import IMAGES
from nearfar.datasets.folders import Member, labels_of, members
from nearfar.datasets.table import without_single_channel
from nearfar.extras import require
from nearfar.notices import warn
from nearfar.parameters import Allowed, check_parameter, none
from nearfar.words import listed

#: Numbers of all pictures together; of more nobody asks on purpose.
MOST_NUMBERS = 2**30
# The tag of a photograph that says how the camera was held; these turn it on its side.
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)


class Images(NamedTuple):
    """Pictures, their labels and their names."""

    #: Of shape (n, height, width), or (n, height, width, 3) for colours, as uint8.
    images: NDArray[np.uint8]
    #: The sub-folder of the first level for each; None where there are no sub-folders.
    labels: NDArray[np.str_] | None
    #: The files, relative to the folder.
    names: NDArray[np.str_]


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) in (2, 3)
        and all(isinstance(n, int | np.integer) and n >= 1 for n in value)
        and (len(value) == 2 or value[2] in (1, 3))
    )


_SIZE = Allowed(_is_size, "(height, width), (height, width, 1) or (height, width, 3)")


def load_images(
    folder: str | os.PathLike[str],
    shape: tuple[int, ...] | None = None,
    *,
    n_jobs: int | None = None,
) -> Images:
    """Pictures in a folder as one array, the sub-folders of the first level being their labels.

    PNG, JPEG, BMP, TIFF, PGM, PPM and WebP files are read by Pillow (``pip install
    nearfar[image]``). They may lie at any depth; labels and order are those of
    :func:`~nearfar.datasets.read_clips`. Photographs are turned as the camera says, what is
    transparent is laid on white, and 16 bits become 8.

    Parameters
    ----------
    folder : path
        Of the pictures.
    shape : tuple of int, optional
        (height, width) for grey values or (height, width, 3) for colours: every picture is
        resized to it, whatever its proportions. None keeps the size, which must then be the same
        for all; they are grey if all are, and else all have colours.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores.

    Returns
    -------
    images : ndarray of shape (n, height, width) or (n, height, width, 3)
        From 0 to 255, as uint8.
    labels : ndarray of shape (n,) or None
        None where all pictures lie in the folder itself.
    names : ndarray of shape (n,)
        The files, relative to the folder.

    Raises
    ------
    ValueError
        Naming the picture that cannot be read, has another size, or has no label while others have
        one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_digits
    >>> from nearfar.datasets import load_images
    >>> folder = Path(tempfile.mkdtemp())
    >>> digits = load_digits()
    >>> for k in range(20):  # a PGM file is a line of text before its numbers
    ...     place = folder / f"digit {digits.target[k]}"
    ...     place.mkdir(exist_ok=True)
    ...     pixels = (15 * digits.images[k]).astype("uint8")
    ...     _ = (place / f"{k}.pgm").write_bytes(b"P5 8 8 255 " + pixels.tobytes())
    >>> images, labels, names = load_images(folder)  # doctest: +SKIP
    >>> images.shape, labels[0], names[0]  # doctest: +SKIP
    ((20, 8, 8), np.str_('digit 0'), np.str_('digit 0/0.pgm'))
    """
    check_parameter("load_images", "shape", shape, [none, _SIZE])
    size = None if shape is None else without_single_channel(tuple(int(n) for n in shape))
    found = members(folder, IMAGES, "pictures")
    labels = labels_of(found, "pictures")
    require("PIL", "image")
    if size is None:
        _check_sizes(found)
    _say_empty(Path(folder), found)

    def read(member: Member) -> NDArray[np.uint8]:
        try:
            return read_picture(member.path, size)
        except Exception as error:
            raise _cannot(member, error) from error

    images = list(map_in_order(read, found, effective_threads(n_jobs)))
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else _in_colors(image) for image in images]
    return Images(np.stack(images), labels, np.array([member.name for member in found]))


def read_picture(path: Path, shape: tuple[int, ...] | None = None) -> NDArray[np.uint8]:
    """One picture of shape (height, width), or (height, width, 3) if it has colours.

    With a shape it is resized to it, in grey or in colours as the shape says.
    """
    Image, ImageOps = require("PIL.Image", "image"), require("PIL.ImageOps", "image")
    with Image.open(path) as opened:
        picture = _plain(ImageOps.exif_transpose(opened), Image)
    if shape is not None:
        picture = picture.convert("L" if len(shape) == 2 else "RGB")
        if picture.size != (shape[1], shape[0]):
            picture = picture.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
        return np.asarray(picture)
    pixels = np.asarray(picture)
    # Grey pictures are often saved as three equal channels.
    if pixels.ndim == 3 and (pixels == pixels[:, :, :1]).all():
        pixels = pixels[:, :, 0]
    return pixels


def has_pictures(folder: Path) -> bool:
    """Whether a folder, or one in it, has a file that ends like a picture."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(Path(name).suffix.lower() in IMAGES and name[0] != "." for name in files):
            return True
    return False


def _plain(picture: Any, Image: Any) -> Any:
    """Grey values or colours of 8 bits."""
    if picture.mode.startswith("I"):  # Pillow's own conversion would cut at 255
        pixels = np.asarray(picture)
        if pixels.min() < 0 or pixels.max() > 65535:
            raise ValueError("its numbers have more than 16 bits.")
        return Image.fromarray(np.rint(pixels / 257).astype(np.uint8))
    if picture.mode == "F":
        raise ValueError("it holds floating-point numbers; save it with 8 or 16 bits.")
    if picture.mode in ("1", "L") and "transparency" not in picture.info:
        return picture.convert("L")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        above = picture.convert("RGBA")
        picture = Image.new("RGBA", above.size, "white")
        picture.alpha_composite(above)
    return picture.convert("RGB")


def _check_sizes(found: list[Member]) -> None:
    """Refuse pictures of several sizes, or of more numbers than there is room for."""
    sizes = [_size_of(member) for member in found]
    other = next((k for k, size in enumerate(sizes) if size != sizes[0]), None)
    often = Counter(sizes).most_common(1)[0][0]
    if other is not None:
        raise ValueError(
            f"Picture {found[other].name!r} has {_by(sizes[other])} pixels (height × width), but "
            f"{found[0].name!r} has {_by(sizes[0])}. Give shape={often} to resize all to the "
            "size that most have, or another shape."
        )
    if len(found) * prod(often) > MOST_NUMBERS:
        raise ValueError(
            f"{len(found):,} pictures of {_by(often)} pixels are {len(found) * prod(often):,} "
            f"numbers. Give a smaller shape, such as shape={_smaller(often)}, to resize them."
        )


def _size_of(member: Member) -> tuple[int, int]:
    """Height and width, by the head of the file."""
    Image = require("PIL.Image", "image")
    try:
        with Image.open(member.path) as picture:
            width, height = picture.size
            turned = picture.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
    except Exception as error:
        raise _cannot(member, error) from error
    return (width, height) if turned else (height, width)


def _cannot(member: Member, error: Exception) -> ValueError:
    if member.path.stat().st_size == 0:
        return ValueError(f"Picture {member.name!r} cannot be read: the file is empty.")
    # Pillow names the whole path once more.
    why = "it is damaged or no picture." if "cannot identify" in str(error) else str(error)
    return ValueError(f"Picture {member.name!r} cannot be read: {why}")


def _say_empty(root: Path, found: list[Member]) -> None:
    """Warn of sub-folders that look like classes and have no pictures."""
    known = {member.label for member in found}
    empty = sorted(
        path.name
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in known
    )
    if empty and known != {None}:
        have = "has no pictures and is" if len(empty) == 1 else "have no pictures and are"
        warn(f"{listed(empty, 3)} in {str(root)!r} {have} no class.")


def _in_colors(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(image[:, :, None], 3, axis=2)


def _smaller(size: tuple[int, int]) -> tuple[int, int]:
    """A size of the same proportions whose longer side has 64 pixels.

    >>> _smaller((3000, 4000))
    (48, 64)
    """
    scale = 64 / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
