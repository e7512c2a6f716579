"""Model files that are safe to open.

:func:`save` writes a fitted chain, from raw table to neighbours, into one file; :func:`load` gives
it back, bit for bit; :func:`describe` tells what is in a file without loading it.

**Whom do you have to trust?** To open a file: nobody. A model file holds names of classes, plain
values and arrays of numbers or text, never code and never a pickle. Only known classes
are loaded, whatever the file asks for; anything else raises a :class:`ModelFileError` that names
it. Every size that the file claims is compared with the bytes that are there before memory is
taken for it, and what was loaded is checked for sense before you get it.

To *believe* a model is another matter: nobody can tell from the file whether its numbers were
learned from honest data. And a class of your own that you pass as ``trusted`` is code you vouch
for: its ``__setstate__``, if it has one, gets what the file says.

A file is a zip archive, not compressed: ``nearfar.json`` says what it is, ``schema.json`` and the
``.npy`` files are in the format of skops, without its memory addresses and with the public names of
the classes. So the same model gives the same bytes, but for the date, and a file outlives a move of
a module.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import platform
import uuid
import warnings
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import sklearn
from sklearn.exceptions import InconsistentVersionWarning

from nearfar.extras import require
from nearfar.notices import warn
from nearfar.persistence.archive import (
    FORMAT,
    MAX_BYTES,
    MAX_INFORMATION,
    ModelFileError,
    check_members,
    clear_errors,
    open_archive,
    opened,
    read_information,
    shown,
    told,
    write_members,
)
from nearfar.persistence.model import bring_up_to_date, check_parts, check_same, training_rows, walk
from nearfar.persistence.schema import PROTOCOL, check_schema, compacted
from nearfar.persistence.types import HINT, Types, full_name, known_types

__all__ = ["ModelFileError", "check_savable", "describe", "load", "save"]

_NOT_BACK = "the model would not come back from a file as it is"


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    metadata: dict[str, Any] | None = None,
    trusted: Sequence[type] = (),
) -> None:
    """Write a model into a file that is safe to open.

    The model may be fitted or not: a learner, a classifier such as :class:`~nearfar.KNNClassifier`,
    a scikit-learn Pipeline of these and of the usual preprocessing. The file is read back and
    compared before it takes its place; when anything fails, no file is left and an old one stays
    as it was.

    Parameters
    ----------
    model : estimator
        What to write. It is not changed.
    path : str or path
        Where to; the usual suffix is ``.nf``.
    force : bool, default=False
        Overwrite a file that exists.
    metadata : dict, optional
        A few notes of your own, of JSON types, which :func:`describe` gives back.
    trusted : sequence of classes, default=()
        Classes of your own in the model. :func:`load` will ask for them again.

    Raises
    ------
    ModelFileError
        If the model holds something that a file cannot, for instance a function; the message says
        where.
    FileExistsError
        If the file exists and ``force`` is False.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import KNNClassifier, LDA
    >>> from nearfar.persistence import load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNClassifier(LDA()).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, Path(folder) / "iris.nf")
    ...     again = load(Path(folder) / "iris.nf")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    skops = require("skops.io", "app")
    types = known_types(trusted)
    target = Path(path)
    _check_free(target, force)
    parts = _checked_parts(model, types)
    try:
        information = _information(parts, types, _checked_notes(metadata))
        written = skops.dumps(model)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {told(error)}") from error
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(draft, "xb") as file:
            _write(file, information, written, types)
        del written
        try:
            read, _ = _load(draft, types, MAX_BYTES)
            check_same(model, read, types)
        except Exception as error:
            reason = str(error) if isinstance(error, ModelFileError) else told(error)
            raise ModelFileError(f"{_NOT_BACK}: {reason}") from error
        _check_free(target, force)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def check_savable(model: Any, *, trusted: Sequence[type] = ()) -> None:
    """Raise a ModelFileError unless :func:`save` would take all parts of a model.

    Nothing is written, and skops, which takes seconds to import, is not needed.
    """
    _checked_parts(model, known_types(trusted))


def load(
    path: str | os.PathLike[str], *, trusted: Sequence[type] = (), max_bytes: int = MAX_BYTES
) -> Any:
    """Read a model from a file, whoever made it.

    The file cannot run code, and takes memory of a few times its own size at most, besides up to
    300 MB for what is no array; the head of this module says what that does and does not promise.

    Parameters
    ----------
    path : str or path
        A file that :func:`save` wrote.
    trusted : sequence of classes, default=()
        Classes of your own that may be in the file. Other classes outside nearfar's list raise.
    max_bytes : int, default=2**31 - 1
        The largest file to read; the default is the largest there can be.

    Returns
    -------
    estimator
        As it was saved. Parameters that are younger than the file have their defaults.

    Raises
    ------
    ModelFileError
        Whatever is wrong with the file.

    Warns
    -----
    UserWarning
        If parts of scikit-learn were saved by another version of it.

    Examples
    --------
    A file of another kind, here a pickle, is not even looked into:

    >>> import pickle, tempfile
    >>> from pathlib import Path
    >>> from nearfar.persistence import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.nf"
    ...     _ = path.write_bytes(pickle.dumps({"a": 1}))
    ...     load(path)
    Traceback (most recent call last):
    ...
    nearfar.persistence.ModelFileError: ...model.nf: not a nearfar model file, or cut short.
    """
    require("skops.io", "app")
    types = known_types(trusted)
    with clear_errors(path):
        model, notice = _load(Path(path), types, max_bytes)
    if notice:
        warn(f"{path} {notice}")
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says of itself, without loading the model.

    Parameters
    ----------
    path : str or path
        A file that :func:`save` wrote.

    Returns
    -------
    dict
        "format", the number of the file format; "model", the class; "created", a date in UTC;
        "versions" of nearfar, Python and the libraries that wrote it; "holds_training_rows",
        whether rows of the training data can be read from the file, as they are or mapped;
        "n_training_rows", how many at least; "training_rows", where in the model; "metadata", the
        notes given to :func:`save`; "bytes", the size of the file.

    Raises
    ------
    ModelFileError
        Whatever is wrong with the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import KNNClassifier
    >>> from nearfar.persistence import describe, save
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "iris.nf"
    ...     save(KNNClassifier().fit(X, y), path, metadata={"target": "species"})
    ...     says = describe(path)
    >>> says["model"], says["holds_training_rows"], says["n_training_rows"], says["metadata"]
    ('nearfar.KNNClassifier', True, 150, {'target': 'species'})
    """
    target = Path(path)
    with clear_errors(path), opened(target, MAX_BYTES) as file, open_archive(file) as archive:
        says = read_information(archive)
        says["bytes"] = target.stat().st_size
    return says


def _check_free(target: Path, force: bool) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is no folder; make it first.")
    if not force and target.exists():
        raise FileExistsError(f"{target} exists; pass force=True to overwrite it.")


def _checked_parts(model: Any, types: Types) -> list[tuple[str, Any]]:
    """What a model consists of, each part with its place, if a file takes them all."""
    if type(model) not in types.values() or not hasattr(model, "get_params"):
        raise ModelFileError(f"{full_name(type(model))} is not a model that can be saved. {HINT}")
    try:
        parts = list(walk(model, types, type(model).__name__))
        check_parts(parts)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {told(error)}") from error
    return parts


def _checked_notes(metadata: dict[str, Any] | None) -> dict[str, Any]:
    notes = {} if metadata is None else metadata
    try:
        text = json.dumps(notes, allow_nan=False)
        same = isinstance(notes, dict) and json.loads(text) == notes
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"metadata must be a dict of JSON types: {told(error)}") from error
    if not same:
        raise ModelFileError(
            "metadata must be a dict that JSON gives back as it is: text keys, lists, no tuples."
        )
    if len(text) > MAX_INFORMATION // 2:
        raise ModelFileError(f"metadata takes {len(text)} bytes; {MAX_INFORMATION // 2} fit.")
    return notes


def _information(
    parts: list[tuple[str, Any]], types: Types, notes: dict[str, Any]
) -> dict[str, Any]:
    names = {kind: name for name, kind in types.items()}
    modules = {"nearfar": "nearfar", "numpy": "numpy", "scipy": "scipy"}
    modules |= {"scikit-learn": "sklearn", "skops": "skops"}
    versions = {name: importlib.import_module(at).__version__ for name, at in modules.items()}
    return {
        "program": "nearfar",
        "format": FORMAT,
        "model": names[type(parts[0][1])],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
        "training_rows": training_rows(parts),
        "metadata": notes,
    }


def _write(file: BinaryIO, information: dict[str, Any], written: bytes, types: Types) -> None:
    """The archive of skops again, in the form described at the head of this module."""
    source = zipfile.ZipFile(io.BytesIO(written))
    arrays: list[str] = []
    public = {full_name(kind): name for name, kind in types.items()}
    public |= {"numpy.bool": "numpy.bool_"}
    public |= {"numpy.random.mtrand.RandomState": "numpy.random.RandomState"}
    schema = compacted(json.loads(source.read("schema.json")), public, arrays)
    schema["protocol"] = PROTOCOL
    schema["_skops_version"] = information["versions"]["skops"]
    members = {"nearfar.json": json.dumps(information).encode()}
    members["schema.json"] = json.dumps(schema, separators=(",", ":")).encode()
    stored = ((f"{k}.npy", source.read(name)) for k, name in enumerate(arrays))
    write_members(file, chain(members.items(), stored))


def _load(path: Path, types: Types, max_bytes: int) -> tuple[Any, str | None]:
    """The model, and what to warn of."""
    skops = require("skops.io", "app")
    with opened(path, max_bytes) as file:
        # Once, so that what is checked is what is loaded.
        data = file.read(min(max_bytes, MAX_BYTES))
    with open_archive(io.BytesIO(data)) as archive:
        says = read_information(archive)
        check_members(archive, len(data))
        names, renamed = check_schema(archive, types)
        if renamed is not None:
            rest = set(archive.namelist()) - {"schema.json"}
            members = chain([("schema.json", renamed)], ((n, archive.read(n)) for n in rest))
            write_members(buffer := io.BytesIO(), members)
            data = buffer.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.loads(data, trusted=sorted(names))
    theirs, ours = says["versions"].get("scikit-learn"), sklearn.__version__
    parts = list(walk(model, types, "model"))
    for _, part in parts:
        bring_up_to_date(part, theirs != ours)
    check_parts(parts)
    if theirs == ours or not any(name.startswith("sklearn.") for name in names):
        return model, None
    return model, (
        f"was saved with scikit-learn {shown(theirs)} and is read with {ours}. Its parts of "
        "scikit-learn may work differently, or not at all: compare a few predictions, or fit and "
        "save it again."
    )
