"""Save and load models in files that are safe to open.

:func:`save` writes a fitted pipeline, from the raw table to the neighbors, to one file.
:func:`load` restores it bit for bit. :func:`describe` returns the metadata of a file without
loading the model.

**Security.** You can load a file from any source. A model file contains class names, Python
scalars and arrays of numbers or text. It never contains code or a pickle. Only classes on
nearfar's list, and those you pass as ``trusted``, are loaded; any other class raises a
:class:`ModelFileError` that names it. Every size stated in the file is compared with the number of
bytes present before memory is allocated. The loaded model is checked for consistency before it is
returned.

These checks do not show that a model is good: a file does not reveal whether its numbers were
learned from genuine data. If you pass a class of your own as ``trusted``, you vouch for its code:
its ``__setstate__``, if it has one, receives the state stored in the file.

**Format.** A file is an uncompressed zip archive. ``nearfar.json`` holds the metadata.
``schema.json`` and the ``.npy`` files are in the format of skops, without its memory addresses and
with the public names of the classes. Saving the same model twice therefore writes the same bytes,
except for the date, and a file remains readable when a class moves to another module.
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

from nearfar.extras import import_optional
from nearfar.notices import warn
from nearfar.persistence.archive import (
    FORMAT,
    MAX_BYTES,
    MAX_INFORMATION,
    ModelFileError,
    check_members,
    convert_errors,
    describe_error,
    format_value,
    open_archive,
    open_file,
    read_information,
    write_members,
)
from nearfar.persistence.model import (
    check_components,
    check_equal,
    count_training_rows,
    update_component,
    walk_components,
)
from nearfar.persistence.schema import PROTOCOL, check_schema, compact_node
from nearfar.persistence.types import HINT, Types, collect_types, get_full_name

__all__ = ["ModelFileError", "check_savable", "describe", "load", "save"]

_NOT_RESTORED = "the model cannot be saved because loading the file does not restore it"


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    metadata: dict[str, Any] | None = None,
    trusted: Sequence[type] = (),
) -> None:
    """Write a model to a file that is safe to open.

    The model may be a learner, a classifier such as :class:`~nearfar.KNNClassifier`, or a
    scikit-learn Pipeline of these with common preprocessing steps. It need not be fitted. The file
    is written under a temporary name, loaded and compared with the model, and only then renamed.
    If any step fails, no new file remains and an existing file is unchanged.

    Parameters
    ----------
    model : estimator
        Model to save. It is not modified.
    path : str or path
        File to write. The usual suffix is ``.nf``.
    force : bool, default=False
        Whether to overwrite an existing file.
    metadata : dict, optional
        Additional information to store in the file, as a dict of JSON types. :func:`describe`
        returns this dict.
    trusted : sequence of classes, default=()
        User-defined classes that the model contains. Pass the same classes to :func:`load`.

    Raises
    ------
    ModelFileError
        If the model contains an object that a file cannot store, for example a function. The
        message names the attribute.
    FileExistsError
        If the file exists and ``force`` is False.
    IsADirectoryError
        If ``path`` is a folder.
    FileNotFoundError
        If the folder of ``path`` does not exist.

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
    ...     loaded = load(Path(folder) / "iris.nf")
    >>> bool((loaded.predict(X) == model.predict(X)).all())
    True
    """
    skops = import_optional("skops.io", "app")
    types = collect_types(trusted)
    target = Path(path)
    _check_target(target, force)
    components = _collect_components(model, types)
    try:
        information = _collect_information(components, types, _check_metadata(metadata))
        dumped = skops.dumps(model)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{type(model).__name__} cannot be saved: {describe_error(error)}"
        ) from error
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(draft, "xb") as file:
            _write_archive(file, information, dumped, types)
        del dumped
        try:
            restored, _ = _load(draft, types, MAX_BYTES)
            check_equal(model, restored, types)
        except Exception as error:
            reason = str(error) if isinstance(error, ModelFileError) else describe_error(error)
            raise ModelFileError(f"{_NOT_RESTORED}: {reason}") from error
        _check_target(target, force)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def check_savable(model: Any, *, trusted: Sequence[type] = ()) -> None:
    """Raise a ModelFileError if :func:`save` cannot store all components of a model.

    This function writes no file and does not import skops, which takes seconds.
    """
    _collect_components(model, collect_types(trusted))


def load(
    path: str | os.PathLike[str], *, trusted: Sequence[type] = (), max_bytes: int = MAX_BYTES
) -> Any:
    """Load a model from a file, which may come from an untrusted source.

    The file cannot run code. Loading uses at most a few times the size of the file in memory, plus
    up to 300 MB for content other than arrays. The docstring of :mod:`nearfar.persistence`
    describes what is checked and what is not.

    Parameters
    ----------
    path : str or path
        File written by :func:`save`.
    trusted : sequence of classes, default=()
        User-defined classes that the file may contain. A class that is neither listed here nor
        supported by nearfar raises an error.
    max_bytes : int, default=2**31 - 1
        Maximum size of the file in bytes. The default is the limit of the file format.

    Returns
    -------
    estimator
        The saved model. Parameters added to nearfar after the file was written have their
        defaults.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, too large, or not a valid model file.

    Warns
    -----
    UserWarning
        If the file contains scikit-learn estimators saved with another version of scikit-learn.

    Examples
    --------
    A file in another format, here a pickle, is rejected before it is read:

    >>> import pickle, tempfile
    >>> from pathlib import Path
    >>> from nearfar.persistence import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.nf"
    ...     _ = path.write_bytes(pickle.dumps({"a": 1}))
    ...     load(path)
    Traceback (most recent call last):
    ...
    nearfar.persistence.ModelFileError: ...this is not a nearfar model file, or it is truncated.
    """
    import_optional("skops.io", "app")
    types = collect_types(trusted)
    with convert_errors(path):
        model, notice = _load(Path(path), types, max_bytes)
    if notice:
        warn(f"{path} {notice}")
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata of a model file, without loading the model.

    Parameters
    ----------
    path : str or path
        File written by :func:`save`.

    Returns
    -------
    dict
        - "format": number of the file format.
        - "model": name of the model's class.
        - "created": date and time in UTC, in ISO format.
        - "versions": versions of nearfar, Python and the libraries that wrote the file.
        - "training_rows": dict from the attribute path of each component that stores training rows
          to the number of these rows.
        - "holds_training_rows": whether the file contains rows of the training data, original or
          transformed.
        - "n_training_rows": the largest number in "training_rows", a lower bound for the number of
          distinct training rows in the file.
        - "metadata": the dict passed to :func:`save`.
        - "bytes": size of the file.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, or not a valid model file.

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
    ...     information = describe(path)
    >>> information["model"], information["n_training_rows"], information["metadata"]
    ('nearfar.KNNClassifier', 150, {'target': 'species'})
    >>> information["holds_training_rows"]
    True
    """
    target = Path(path)
    with convert_errors(path), open_file(target, MAX_BYTES) as file, open_archive(file) as archive:
        information = read_information(archive)
        information["bytes"] = target.stat().st_size
    return information


def _check_target(target: Path, force: bool) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder. Pass the path of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist. Create it first.")
    if not force and target.exists():
        raise FileExistsError(f"{target} already exists. Pass force=True to overwrite it.")


def _collect_components(model: Any, types: Types) -> list[tuple[str, Any]]:
    """Return the attribute path and value of each component. Raises if one cannot be saved."""
    if type(model) not in types.values() or not hasattr(model, "get_params"):
        raise ModelFileError(
            f"{get_full_name(type(model))} is not a model that can be saved. {HINT}"
        )
    try:
        components = list(walk_components(model, types, type(model).__name__))
        check_components(components)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{type(model).__name__} cannot be saved: {describe_error(error)}"
        ) from error
    return components


def _check_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    metadata_dict = {} if metadata is None else metadata
    try:
        text = json.dumps(metadata_dict, allow_nan=False)
        is_unchanged = isinstance(metadata_dict, dict) and json.loads(text) == metadata_dict
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            "metadata must be a dict of JSON types, but converting it failed: "
            f"{describe_error(error)}"
        ) from error
    if not is_unchanged:
        raise ModelFileError(
            "metadata must be a dict that is unchanged after conversion to JSON and back. Use only "
            "str keys, and lists instead of tuples."
        )
    if len(text) > MAX_INFORMATION // 2:
        raise ModelFileError(
            f"metadata takes {len(text)} bytes as JSON; at most {MAX_INFORMATION // 2} are allowed."
        )
    return metadata_dict


def _collect_information(
    components: list[tuple[str, Any]], types: Types, metadata: dict[str, Any]
) -> dict[str, Any]:
    names = {kind: name for name, kind in types.items()}
    modules = {"nearfar": "nearfar", "numpy": "numpy", "scipy": "scipy"}
    modules |= {"scikit-learn": "sklearn", "skops": "skops"}
    versions = {
        name: importlib.import_module(module).__version__ for name, module in modules.items()
    }
    return {
        "program": "nearfar",
        "format": FORMAT,
        "model": names[type(components[0][1])],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
        "training_rows": count_training_rows(components),
        "metadata": metadata,
    }


def _write_archive(
    file: BinaryIO, information: dict[str, Any], dumped: bytes, types: Types
) -> None:
    """Convert an archive written by skops to a nearfar model file, and write the file."""
    source = zipfile.ZipFile(io.BytesIO(dumped))
    arrays: list[str] = []
    public_names = {get_full_name(kind): name for name, kind in types.items()}
    public_names |= {"numpy.bool": "numpy.bool_"}
    public_names |= {"numpy.random.mtrand.RandomState": "numpy.random.RandomState"}
    schema = compact_node(json.loads(source.read("schema.json")), public_names, arrays)
    schema["protocol"] = PROTOCOL
    schema["_skops_version"] = information["versions"]["skops"]
    members = {"nearfar.json": json.dumps(information).encode()}
    members["schema.json"] = json.dumps(schema, separators=(",", ":")).encode()
    array_members = ((f"{k}.npy", source.read(name)) for k, name in enumerate(arrays))
    write_members(file, chain(members.items(), array_members))


def _load(path: Path, types: Types, max_bytes: int) -> tuple[Any, str | None]:
    """Load a model. Return the model, and a warning message or None."""
    skops = import_optional("skops.io", "app")
    with open_file(path, max_bytes) as file:
        # Read the file only once, because it could change between the checks and the loading.
        data = file.read(min(max_bytes, MAX_BYTES))
    with open_archive(io.BytesIO(data)) as archive:
        information = read_information(archive)
        check_members(archive, len(data))
        names, new_schema = check_schema(archive, types)
        if new_schema is not None:
            other_members = set(archive.namelist()) - {"schema.json"}
            members = chain(
                [("schema.json", new_schema)], ((n, archive.read(n)) for n in other_members)
            )
            write_members(buffer := io.BytesIO(), members)
            data = buffer.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.loads(data, trusted=sorted(names))
    saved_version, installed_version = (
        information["versions"].get("scikit-learn"),
        sklearn.__version__,
    )
    components = list(walk_components(model, types, "model"))
    for _, component in components:
        update_component(component, saved_version != installed_version)
    check_components(components)
    if saved_version == installed_version or not any(name.startswith("sklearn.") for name in names):
        return model, None
    return model, (
        f"was saved with scikit-learn {format_value(saved_version)}, but scikit-learn "
        f"{installed_version} is installed. The scikit-learn estimators in the file may give other "
        "results or fail. Compare a few predictions, or fit and save the model again."
    )
