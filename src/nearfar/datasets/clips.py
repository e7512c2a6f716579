"""Reader for a folder of clips. Each clip becomes a set of motion vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.datasets.folders import find_members, get_labels, sort_naturally
from nearfar.datasets.motion import MOTION_OPTIONS, motion_histograms
from nearfar.extras import import_optional
from nearfar.parameters import boolean, check_parameter, integer, none
from nearfar.summaries.sets import Sets

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
VIDEOS = (".avi", ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".ogv", ".gif")
ARRAYS = (".npy",)


def read_clips(
    folder: str | os.PathLike[str],
    *,
    bins: int = 4,
    blocks: tuple[int, int] = (3, 3),
    threshold: float | Literal["otsu", "mean"] = "otsu",
    magnitude: bool = False,
    normalize: Literal["frame"] | None = None,
    vectors_per_set: int | None = None,
    cuboids: bool = False,
    shrink: int = 1,
    n_jobs: int | None = None,
) -> Sets:
    """Read the clips in a folder as sets of motion histograms, one set per clip.

    A clip is a video (read with imageio and PyAV, ``pip install nearfar[video]``), a subfolder of
    images with one image per frame, or an ``.npy`` file of shape (t, height, width) or (t, height,
    width, 3). Clips may be at any depth. The first-level subfolder is the label of a clip. If all
    clips are directly in the folder, they have no labels.

    Sets are ordered by name, with numbers in names compared by value (frame9 before frame10).
    Hidden files are skipped. Files with unsupported extensions are skipped with a warning.

    Parameters
    ----------
    folder : path
        Folder of the clips.
    bins, blocks, threshold, magnitude, normalize
        Parameters of :func:`~nearfar.datasets.motion_histograms`, which computes one vector per
        pair of consecutive frames.
    vectors_per_set : int, default=None
        Approximate number of vectors per set. Each clip is split into sets of nearly equal size.
        None keeps each clip as one set.
    cuboids : bool, default=False
        If True, each block of a clip becomes a separate set with ``bins`` features.
    shrink : int, default=1
        Factor by which the resolution is reduced. Squares of shrink × shrink pixels are averaged.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Returns
    -------
    Sets
        The name of a set is the path of its file or subfolder relative to the folder. If clips are
        split, "[start:stop]" is appended. For cuboids, "(row,column)" of the block is appended.

    Raises
    ------
    ValueError
        If a clip cannot be read, has fewer than two frames, or has no label although other clips
        have one. The message names the clip.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nearfar.datasets import make_moving_shapes, read_clips
    >>> folder = Path(tempfile.mkdtemp())
    >>> clips, y = make_moving_shapes(2, random_state=0)
    >>> for k, (clip, label) in enumerate(zip(clips, y)):
    ...     (folder / label).mkdir(exist_ok=True)
    ...     np.save(folder / label / f"clip{k}.npy", clip)
    >>> sets = read_clips(folder)
    >>> sets
    Sets(n_sets=8, n_features=36, n_vectors=152, sizes from 19 to 19, with labels, names)
    >>> str(sets.names[0]), str(sets.labels[0])
    ('bounce/clip6.npy', 'bounce')
    """
    motion = {
        "bins": bins,
        "blocks": blocks,
        "threshold": threshold,
        "magnitude": magnitude,
        "normalize": normalize,
    }
    for name, value in motion.items():
        check_parameter("read_clips", name, value, MOTION_OPTIONS[name])
    check_parameter("read_clips", "vectors_per_set", vectors_per_set, [none, integer(2)])
    check_parameter("read_clips", "cuboids", cuboids, [boolean])
    check_parameter("read_clips", "shrink", shrink, [integer(1)])
    clips = find_members(folder, VIDEOS + ARRAYS, "clips", _is_clip)
    labels = get_labels(clips, "clips")

    def read(member: Any) -> NDArray[np.float64]:
        try:
            return motion_histograms(read_clip(member.path, shrink), **motion)  # type: ignore[arg-type]
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"Clip {member.name!r}: {error}") from error

    arrays, names, owners = [], [], []
    vectors = map_in_order(read, clips, resolve_n_threads(n_jobs))
    for k, (member, rows) in enumerate(zip(clips, vectors, strict=True)):
        for name, piece in _split_clip(rows, vectors_per_set, blocks if cuboids else None):
            arrays.append(piece)
            names.append(member.name + name)
            owners.append(k)
    return Sets.from_list(arrays, None if labels is None else labels[owners], names)


def read_clip(path: Path, shrink: int = 1) -> NDArray[Any]:
    """Return the frames of a video, a folder of images or an .npy file, reduced by `shrink`.

    Frames are reduced one at a time to save memory.
    """
    if path.suffix.lower() in ARRAYS and path.is_file():
        return _shrink_frames(np.asarray(np.load(path, allow_pickle=False)), shrink)
    import_optional("imageio", "video")
    imageio = import_optional("imageio.v3", "video")
    if path.is_dir():
        frames = _read_image_frames(path, imageio)
    elif path.suffix.lower() == ".gif":
        frames = iter(imageio.imread(path, index=None, plugin="pillow", mode="L"))
    else:
        import_optional("av", "video")
        frames = imageio.imiter(path, plugin="pyav", format="gray")
    reduced = [_shrink_frames(np.asarray(frame)[None], shrink)[0] for frame in frames]
    if not reduced:
        raise ValueError("it has no frames.")
    return np.stack(reduced)


def _read_image_frames(folder: Path, imageio: Any) -> Iterator[NDArray[Any]]:
    shape = None
    for file in _list_images(folder):
        try:
            image = np.asarray(imageio.imread(file, mode="L"))
        except Exception as error:
            raise ValueError(f"{file.name} cannot be read as an image: {error}") from error
        shape = shape or image.shape
        if image.shape != shape:
            raise ValueError(
                f"{file.name} has {image.shape[0]}×{image.shape[1]} pixels, but the first frame "
                f"has {shape[0]}×{shape[1]}."
            )
        yield image


def _is_clip(folder: Path) -> bool:
    return bool(_list_images(folder))


def _list_images(folder: Path) -> list[Path]:
    return sort_naturally(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGES and not path.name.startswith(".") and path.is_file()
    )


def _shrink_frames(frames: NDArray[Any], factor: int) -> NDArray[Any]:
    """Replace each square of `factor` × `factor` pixels with its mean.

    Incomplete squares at the border are dropped.
    """
    if factor == 1:
        return frames
    if frames.ndim not in (3, 4):
        raise ValueError(
            f"frames have shape {frames.shape}; expected (t, height, width), or (t, height, width, "
            "3) for color."
        )
    t, height, width = frames.shape[0], frames.shape[1] // factor, frames.shape[2] // factor
    cropped = frames[:, : height * factor, : width * factor]
    squares = cropped.reshape(t, height, factor, width, factor, *frames.shape[3:])
    return np.asarray(squares.mean(axis=(2, 4), dtype=np.float32))


def _split_clip(
    rows: NDArray[np.float64], per_set: int | None, blocks: tuple[int, int] | None
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield a name suffix and the vectors for each set of one clip."""
    pieces = [rows] if per_set is None else cut_evenly(rows, per_set)
    start = 0
    for piece in pieces:
        name = "" if per_set is None else f"[{start}:{start + len(piece)}]"
        start += len(piece)
        if blocks is None:
            yield name, piece
            continue
        bins = piece.shape[1] // (blocks[0] * blocks[1])
        for k in range(blocks[0] * blocks[1]):
            position = f"({k // blocks[1]},{k % blocks[1]})"
            yield name + position, piece[:, k * bins : (k + 1) * bins]


def cut_evenly(rows: NDArray[np.float64], length: int) -> list[NDArray[np.float64]]:
    """Split rows into consecutive parts of about `length` rows. Sizes differ by at most one.

    >>> [len(run) for run in cut_evenly(np.zeros((59, 2)), 10)]
    [10, 10, 10, 10, 10, 9]
    """
    return np.array_split(rows, max(1, round(len(rows) / length)))
