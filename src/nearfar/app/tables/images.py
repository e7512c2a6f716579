"""Rows that are images, as small PNG pictures; the standard library writes them."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.table import Table

LARGEST = 32  # pixels on the longer side


def has_images(table: Table) -> bool:
    """Return True if each row of the table is an image, or has one."""
    return table.images is not None or table.image_shape is not None


def images_of_rows(
    table: Table, X: NDArray[Any], chosen: Sequence[int] | NDArray[np.intp], most_bytes: int
) -> list[str]:
    """Return images of the chosen rows as data URIs, up to ``most_bytes`` bytes in total.

    ``X`` holds the rows of the table, followed by those of a test file if there is one.
    """
    if table.images is not None:
        return pictures(table.images[chosen], table.images.shape[1:], most_bytes)
    assert table.image_shape is not None
    return pictures(X[chosen], table.image_shape, most_bytes)


def pictures(
    rows: NDArray[Any], shape: Sequence[int], most_bytes: int, largest: int = LARGEST
) -> list[str]:
    """The first rows as data URIs, as many as fit into so many bytes.

    Grey values, or colours where the last of three sizes is 3; other channels are averaged. All
    rows share one scale from dark to light.

    >>> import numpy as np
    >>> found = pictures(np.arange(8.0).reshape(2, 4), (2, 2), 10_000)
    >>> len(found), found[0][:22]
    (2, 'data:image/png;base64,')
    """
    images = np.asarray(rows, dtype=np.float64).reshape(len(rows), *shape)
    if images.ndim == 4 and images.shape[3] != 3:
        images = images.mean(axis=3)
    known = images[np.isfinite(images)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    # Halves first: the span of huge numbers may itself be too large.
    span = high / 2 - low / 2
    images = (images / 2 - low / 2) * (255 / span if span > 0 else 0.0)
    found: list[str] = []
    used = 0
    for image in images:
        found.append(data_uri(image, largest) or "")
        used += len(found[-1])
        if used > most_bytes:
            return found[:-1]
    return found


def data_uri(pixels: Any, largest: int = LARGEST) -> str | None:
    """A picture of grey values (h × w) or colours (h × w × 3) from 0 to 255, or None.

    Larger pictures are made smaller: each pixel becomes the mean of a square.

    >>> data_uri([[0, 255], [255, 0]])[:26]
    'data:image/png;base64,iVBO'
    >>> data_uri("no picture") is None
    True
    """
    try:
        array = np.asarray(pixels, dtype=float)
    except (TypeError, ValueError):
        return None
    if array.ndim not in (2, 3) or 0 in array.shape or (array.ndim == 3 and array.shape[2] != 3):
        return None
    step = -(-max(array.shape[:2]) // largest)
    array = _means(_means(np.nan_to_num(array), step, 0), step, 1)
    image = np.clip(np.rint(array), 0, 255).astype(np.uint8)
    height, width = image.shape[:2]
    # Each line starts with a zero: "no filter".
    lines = np.zeros((height, image[0].size + 1), np.uint8)
    lines[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if image.ndim == 3 else 0, 0, 0, 0)
    content = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def _means(array: NDArray[np.float64], step: int, axis: int) -> NDArray[np.float64]:
    """Means of so many neighbours along an axis; the last may be of fewer."""
    starts = np.arange(0, array.shape[axis], step)
    sizes = np.diff([*starts, array.shape[axis]])
    sums = np.add.reduceat(array, starts, axis=axis)
    return sums / np.expand_dims(sizes, tuple(i for i in range(array.ndim) if i != axis))


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum
