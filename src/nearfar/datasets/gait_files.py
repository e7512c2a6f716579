"""Reader for a folder of silhouettes of walkers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.clips import IMAGES
from nearfar.datasets.folders import sort_naturally
from nearfar.extras import import_optional
from nearfar.words import join_names

Walk = NDArray[Any]


def load_gait(folder: str | os.PathLike[str]) -> tuple[list[Walk], NDArray[Any]]:
    """Read sequences of silhouettes from a folder, with the subject of each sequence.

    The folder contains one of:

    - images ``subject/sequence/frame.png``, read with Pillow (``pip install nearfar[image]``).
      Pixels above half of the brightness range belong to the walker.
    - ``.mat`` files with ``fea3D``, of shape (height, width, n_frames, n_walks), and ``gnd``, the
      subject of each walk. The USF HumanID silhouettes are distributed in this form, with half a
      gait cycle per walk.

    Subjects, sequences and frames are ordered by name, with numbers in names compared by value
    (frame9 before frame10). Hidden files are skipped.

    Parameters
    ----------
    folder : path
        Folder with one subfolder per subject, folder of ``.mat`` files, or one ``.mat`` file.

    Returns
    -------
    sequences : list of ndarrays of shape (n_frames_i, height, width)
        Frames of each sequence. Images are converted to the uint8 values 0 and 1. Sequences from
        ``.mat`` files contain the values of ``fea3D``.
    ids : ndarray of shape (n_sequences,)
        Subject of each sequence: the name of the subfolder or, for ``.mat`` files, the value of
        ``gnd``.

    Raises
    ------
    ValueError
        If a file cannot be read, or an image differs in size from the first frame of its sequence.
        The message names the file.

    See Also
    --------
    nearfar.GaitRecognizer : Identify subjects by their gait.
    nearfar.datasets.make_walkers : Generate synthetic sequences.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from scipy.io import savemat
    >>> from nearfar.datasets import load_gait, make_walkers
    >>> walks, ids, _ = make_walkers(2, 3, n_frames=12)
    >>> file = Path(tempfile.mkdtemp()) / "walks.mat"
    >>> savemat(file, {"fea3D": np.moveaxis(walks, (0, 1), (3, 2)), "gnd": ids[:, None]})
    >>> sequences, subjects = load_gait(file)
    >>> len(sequences), sequences[0].shape, subjects.tolist()
    (6, (12, 64, 44), [0, 0, 0, 1, 1, 1])
    """
    root = Path(folder)
    if root.is_file() and root.suffix.lower() == ".mat":
        return _read_mat(root)
    if not root.is_dir():
        problem = "is not a folder or a .mat file" if root.exists() else "does not exist"
        raise ValueError(f"{str(root)!r} {problem}.")
    files = sort_naturally(path for path in root.iterdir() if path.suffix.lower() == ".mat")
    if files:
        contents = [_read_mat(file) for file in files]
        walks = [walk for file_walks, _ in contents for walk in file_walks]
        return walks, np.concatenate([ids for _, ids in contents])
    return _read_images(root)


def _read_images(root: Path) -> tuple[list[Walk], NDArray[Any]]:
    image = import_optional("PIL.Image", "image")
    walks, ids = [], []
    for subject in _list_folders(root):
        misplaced = _list_images(subject)
        if misplaced:
            raise ValueError(
                f"{misplaced[0].relative_to(root).as_posix()!r} is not in the folder of a "
                "sequence. Expected frames as subject/sequence/frame.png."
            )
        for sequence in _list_folders(subject):
            files = _list_images(sequence)
            if not files:
                raise ValueError(
                    f"{sequence.relative_to(root).as_posix()!r} has no frames. Supported: "
                    f"{join_names(IMAGES, quoted=False)}."
                )
            walks.append(np.stack(_read_frames(files, root, image)))
            ids.append(subject.name)
    if not walks:
        raise ValueError(
            f"Found no silhouettes in {str(root)!r}. Expected frames as "
            "subject/sequence/frame.png, or .mat files with fea3D and gnd."
        )
    return walks, np.array(ids)


def _read_frames(files: list[Path], root: Path, image: Any) -> list[Walk]:
    frames: list[Walk] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        try:
            with image.open(file) as file_image:
                pixels = np.asarray(file_image.convert("L"))
        except Exception as error:
            raise ValueError(f"{name!r} cannot be read as an image: {error}") from error
        if frames and pixels.shape != frames[0].shape:
            raise ValueError(
                f"{name!r} has {pixels.shape[0]}×{pixels.shape[1]} pixels, but the first frame of "
                f"its sequence has {frames[0].shape[0]}×{frames[0].shape[1]}."
            )
        frames.append((pixels > 127).astype(np.uint8))
    return frames


def _read_mat(file: Path) -> tuple[list[Walk], NDArray[Any]]:
    from scipy.io import loadmat

    try:
        variables = loadmat(file, variable_names=["fea3D", "gnd"])
    except NotImplementedError as error:
        raise ValueError(
            f"{file.name!r} is a .mat file of version 7.3, which SciPy cannot read. Save it with "
            "-v7 in MATLAB."
        ) from error
    except Exception as error:
        raise ValueError(f"{file.name!r} cannot be read as a .mat file: {error}") from error
    missing = [name for name in ("fea3D", "gnd") if name not in variables]
    if missing:
        raise ValueError(f"{file.name!r} has no {join_names(missing, quoted=False)}.")
    tensors, ids = variables["fea3D"], variables["gnd"].ravel()
    if tensors.ndim != 4 or tensors.dtype.kind not in "biuf" or tensors.shape[3] != len(ids):
        raise ValueError(
            f"{file.name!r}: fea3D must contain numbers of shape (height, width, n_frames, "
            f"n_walks), and gnd one subject per walk. Got fea3D of {tensors.dtype} and shape "
            f"{tensors.shape}, and gnd of shape {variables['gnd'].shape}."
        )
    walks = np.ascontiguousarray(np.moveaxis(tensors, (3, 2), (0, 1)))
    return list(walks), ids


def _list_folders(folder: Path) -> list[Path]:
    return sort_naturally(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _list_images(folder: Path) -> list[Path]:
    return sort_naturally(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGES and path.is_file() and not path.name.startswith(".")
    )
