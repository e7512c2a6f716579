"""Model files that are safe to open.

:func:`save` writes a fitted chain, from raw table to neighbours, into one file; :func:`load` gives
it back, bit for bit; :func:`describe` tells what is in a file without loading it.

**Whom do you have to trust?** To open a file: nobody. A model file holds names of classes, plain
values and arrays of numbers or text, never code and never a pickle. Only classes on the list below
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
import inspect
import io
import json
import math
import os
import platform
import re
import stat
import struct
import sys
import uuid
import warnings
import zipfile
from collections import UserList
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from nearfar.base import Estimator, Learner, LinearLearner, all_learners
from nearfar.base.kernel_coordinates import KernelCoordinates
from nearfar.base.mapping import ThroughLearner
from nearfar.discriminant.moda import MODA
from nearfar.distributions.bag_of_words import BagOfWords
from nearfar.distributions.euclidean_embedding import EuclideanEmbedding
from nearfar.distributions.laplacian_embedding import LaplacianEmbedding
from nearfar.distributions.objects import OverDistributions
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.distributions.spectral_clusters import SpectralClusters
from nearfar.extras import require
from nearfar.large_margin.energy import EnergyClassifier
from nearfar.local.mvem import MVEMClassifier
from nearfar.mahalanobis.kernel_lmnn import KernelLMNN
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.multi_metric_lmnn import MultiMetricLMNN
from nearfar.mahalanobis.multi_pass_lmnn import MultiPassLMNN
from nearfar.manifold.classical_mds import ClassicalMDS
from nearfar.manifold.graph_embedding import _Embedding
from nearfar.manifold.spectral_clustering import SpectralClustering
from nearfar.neighbors.knn import KNNClassifier
from nearfar.neighbors.minimum_mahalanobis import MinimumMahalanobisClassifier
from nearfar.notices import warn
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.neighbor_graph import NeighborGraph
from nearfar.summaries.second_moment import SecondMoment
from nearfar.summaries.supervision import Chunklets, Pairs, Triplets

__all__ = ["ModelFileError", "describe", "load", "save"]

#: The number of the file format. A change that older versions cannot read raises it.
FORMAT = 1

# What may be in a file, by public name; all learners of the rooms come on top. A type added here
# must keep no function, must not index memory unchecked, and may need a line in _CHECKS.
_NEARFAR_TYPES = (
    "nearfar.AugmentedSpectralClustering",
    "nearfar.Chunklets",
    "nearfar.ClassStatistics",
    "nearfar.EnergyClassifier",
    "nearfar.Gaussians",
    "nearfar.KNNClassifier",
    "nearfar.MVEMClassifier",
    "nearfar.MinimumMahalanobisClassifier",
    "nearfar.MultiMetricLMNN",
    "nearfar.NeighborGraph",
    "nearfar.Pairs",
    "nearfar.SetKNeighborsClassifier",
    "nearfar.SetSpectralClustering",
    "nearfar.SpectralClustering",
    "nearfar.Triplets",
    "nearfar.summaries.second_moment.SecondMoment",
)
_SKLEARN_TYPES = (
    "sklearn.compose.ColumnTransformer",
    "sklearn.decomposition.PCA",
    "sklearn.decomposition.TruncatedSVD",
    "sklearn.impute.MissingIndicator",
    "sklearn.impute.SimpleImputer",
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing.FunctionTransformer",  # "passthrough" in a ColumnTransformer
    "sklearn.preprocessing.MaxAbsScaler",
    "sklearn.preprocessing.MinMaxScaler",
    "sklearn.preprocessing.Normalizer",
    "sklearn.preprocessing.OneHotEncoder",
    "sklearn.preprocessing.OrdinalEncoder",
    "sklearn.preprocessing.RobustScaler",
    "sklearn.preprocessing.StandardScaler",
)
_NUMPY_SCALARS = tuple(
    f"numpy.{name}"
    for name in (
        *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "str_", "bytes_"),
    )
)
_PYTHON_SCALARS = ("builtins.bool", "builtins.float", "builtins.int", "builtins.str")
_KEY_TYPES = ("builtins.int", "builtins.str")
_PLAIN = (type(None), bool, int, float, str)

# The kinds of nodes that a schema may have: the type names of each, and its keys besides the three
# that all have; None stands for the classes above. Those of skops that import functions or call
# methods are not among them.
_NODES: dict[str, tuple[tuple[str, ...] | None, frozenset[str]]] = {
    "ObjectNode": (None, frozenset({"content"})),
    "DictNode": (("builtins.dict",), frozenset({"content", "key_types"})),
    "ListNode": (("builtins.list",), frozenset({"content"})),
    "TupleNode": (("builtins.tuple",), frozenset({"content"})),
    "JsonNode": (("builtins.str",), frozenset({"content", "is_json"})),
    "SliceNode": (("builtins.slice",), frozenset({"content"})),
    "TypeNode": ((*_PYTHON_SCALARS, *_NUMPY_SCALARS, "numpy.object_"), frozenset()),
    "DTypeNode": (("numpy.dtype",), frozenset({"content"})),
    "NdArrayNode": (("numpy.ndarray", *_NUMPY_SCALARS), frozenset({"type"})),
    "RandomStateNode": (("numpy.random.RandomState",), frozenset({"content"})),
    # A call of the class, which checks what it gets.
    "ConstructorFromReduceNode": (("nearfar.NeighborGraph",), frozenset({"content"})),
}
_CONTENTS = {
    "DTypeNode": "NdArrayNode",
    "RandomStateNode": "DictNode",
    "ConstructorFromReduceNode": "TupleNode",
}
_COMMON_KEYS = frozenset({"__class__", "__module__", "__loader__"})
_PROTOCOL = 2  # of skops, since its version 0.10

# Sizes. Nothing is compressed, so that no file unpacks to more than itself.
_MAX_BYTES = 2**31 - 1  # what a zip archive without 64-bit extensions holds
_MAX_INFORMATION = 2**20
_MAX_DIRECTORY = 2**22
_MAX_SCHEMA = 2**24
_MAX_NODES = 200_000
_MAX_DEPTH = 64
_MAX_EMPTY = 2**24  # bytes that an array without elements would take if each zero were a one
_MAX_JOBS = 256
_ITEM_SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}}
# The one way NumPy writes the header of a plain array.
_HEADER = re.compile(
    rb"\{'descr': '([<>|])([biufUS])(\d{1,9})', 'fortran_order': (?:False|True), "
    rb"'shape': \(((?:\d{1,12}, ?){0,32}(?:\d{1,12})?)\), \} *\n"
)

_OWN_CLASS = (
    "If it is a class of your own, which you know and trust, pass trusted=[ThatClass] to save and "
    "to load."
)


class ModelFileError(ValueError):
    """A file that is no sound model file, or a model that cannot become one.

    Examples
    --------
    >>> from nearfar.persistence import ModelFileError, load
    >>> try:
    ...     load("no_such_file.nf")
    ... except ModelFileError as error:
    ...     print(error)
    no_such_file.nf: there is no such file.
    """


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
    types = _known_types(trusted)
    target = Path(path)
    _check_free(target, force)
    if type(model) not in types.values() or not hasattr(model, "get_params"):
        raise ModelFileError(f"{_full_name(type(model))} is not a model that can be saved. {_HINT}")
    try:
        parts = list(_walk(model, types, type(model).__name__))
        _check_parts(parts)
        information = _information(parts, types, _checked_notes(metadata))
        written = skops.dumps(model)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{type(model).__name__} cannot be saved: {_told(error)}") from error
    draft = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(draft, "xb") as file:
            _write(file, information, written, types)
        del written
        try:
            read, _ = _load(draft, types, _MAX_BYTES)
            _check_same(model, read, types)
        except Exception as error:
            reason = str(error) if isinstance(error, ModelFileError) else _told(error)
            raise ModelFileError(f"{_NOT_BACK}: {reason}") from error
        _check_free(target, force)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def load(
    path: str | os.PathLike[str], *, trusted: Sequence[type] = (), max_bytes: int = _MAX_BYTES
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
    types = _known_types(trusted)
    with _clear_errors(path):
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
    with _clear_errors(path), _opened(target, _MAX_BYTES) as file, _archive(file) as archive:
        says = _read_information(archive)
        says["bytes"] = target.stat().st_size
    return says


# ---------------------------------------------------------------------- what may be in a file


_NOT_BACK = "the model would not come back from a file as it is"
_HINT = (
    "A file takes nearfar's learners and classifiers, scikit-learn's Pipeline, ColumnTransformer, "
    f"imputers, encoders and scalers, numbers, text and arrays. {_OWN_CLASS}"
)


@cache
def _listed_types() -> dict[str, type]:
    names = [*_NEARFAR_TYPES, *_SKLEARN_TYPES, *(f"nearfar.{name}" for name in all_learners())]
    places = {name: _split(name) for name in names}
    return {name: getattr(importlib.import_module(at), last) for name, (at, last) in places.items()}


def _known_types(trusted: Sequence[type]) -> dict[str, type]:
    """Classes by the name they have in files."""
    types = dict(_listed_types())
    for own in trusted:
        if not isinstance(own, type):
            raise TypeError(f"trusted takes classes, not names or objects; got {own!r}.")
        name = _full_name(own)
        if getattr(sys.modules.get(own.__module__), own.__qualname__, None) is not own:
            raise ValueError(
                f"trusted: {name} cannot be imported by its name; define it at the top of a module."
            )
        if own not in types.values():
            types[name] = own
    return types


def _split(name: str) -> tuple[str, str]:
    module, _, last = name.rpartition(".")
    return module, last


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    """Something out of a file, short and without control characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _told(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"[:300]
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _below(where: str, key: Any) -> str:
    """The place of an attribute or item; names out of a file may be anything."""
    name = isinstance(key, str) and key.isidentifier() and len(key) <= 80
    return f"{where}.{key}" if name else f"{where}[{_shown(key)}]"


@contextmanager
def _clear_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong with a file becomes one kind of error that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except Exception as error:
        raise ModelFileError(
            f"{path}: damaged, or made by another program ({_told(error)})."
        ) from error


# ---------------------------------------------------------------------- models as parts


def _walk(item: Any, types: dict[str, type], where: str, depth: int = 1) -> Iterator[Any]:
    """The parts of a model that are more than a plain value, each with its place in the model."""
    if depth > _MAX_DEPTH:
        raise ModelFileError(f"{where}: nested too deeply, or within itself.")
    yield where, item
    for key, value in _inner(item, types, where):
        if type(value) not in _PLAIN:
            yield from _walk(value, types, _below(where, key), depth + 1)


def _inner(item: Any, types: dict[str, type], where: str = "") -> Iterable[tuple[Any, Any]]:
    """What a part consists of, by key; raises at what a file cannot hold."""
    kind = type(item)
    if kind is dict:
        odd = [key for key in item if type(key) not in (str, int)]
        if odd:
            raise ModelFileError(f"{where} has the key {odd[0]!r}; keys must be text or integers.")
        return item.items()
    if kind in (list, tuple):
        return enumerate(item)
    if _is_columns(item):
        return enumerate(item.data)
    if kind is slice:
        return [("start", item.start), ("stop", item.stop), ("step", item.step)]
    if kind is np.random.RandomState:
        return [("state", item.get_state(legacy=False))]
    if kind in types.values():
        state = item.__getstate__()
        if state is not None and not isinstance(state, dict):
            raise ModelFileError(f"{where}: the state of a {kind.__name__} must be a dict.")
        return (state or {}).items()
    if kind is np.ndarray and item.dtype == object and item.ndim:
        return enumerate(item.ravel().tolist())
    if kind is np.ndarray or isinstance(item, np.generic):
        if not _is_plain(item.dtype):
            raise ModelFileError(f"{where} is an array of {item.dtype}, which no file can hold.")
    elif not isinstance(item, np.dtype) and not (isinstance(item, type) and _scalar_name(item)):
        what = f"{_shown(item.__name__)}, a" if hasattr(item, "__name__") else "a"
        raise ModelFileError(f"{where} is {what} {_full_name(kind)}. {_HINT}")
    return ()


def _is_columns(item: Any) -> bool:
    """Whether it is the list of columns with a warning attached, of scikit-learn up to 1.8."""
    return isinstance(item, UserList) and type(item).__module__.startswith("sklearn.compose.")


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "US" or dtype.itemsize in _ITEM_SIZES.get(dtype.kind, ())


def _scalar_name(kind: type) -> str | None:
    """The name of a type of numbers or text in a file; NumPy 2 renamed its booleans."""
    name = "numpy.bool_" if kind is np.bool_ else _full_name(kind)
    return name if name in (_NODES["TypeNode"][0] or ()) else None


def _check_same(model: Any, read: Any, types: dict[str, type]) -> None:
    """Raise unless what was read equals what was written, part by part."""
    name = type(model).__name__
    pairs = zip_longest(_walk(model, types, name), _walk(read, types, name), fillvalue=("", None))
    for (where, a), (other, b) in pairs:
        if not _equal(a, b, types):
            raise ModelFileError(f"{where or other} differs.")


def _equal(a: Any, b: Any, types: dict[str, type]) -> bool:
    """Whether two parts and the plain values in them are the same."""
    if type(a) is not type(b) and not _is_columns(a):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype != object:
            return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, np.generic | np.dtype | type):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    mine, theirs = list(_inner(a, types)), list(_inner(b, types))
    return len(mine) == len(theirs) and all(
        key == other and _same_value(x, y)
        for (key, x), (other, y) in zip(mine, theirs, strict=True)
    )


def _same_value(x: Any, y: Any) -> bool:
    if type(x) not in _PLAIN:  # a part of its own, or not the same
        return type(y) not in _PLAIN
    return type(x) is type(y) and bool(x == y or (x != x and y != y))


def _training_rows(parts: list[tuple[str, Any]]) -> dict[str, int]:
    """Where a model keeps rows it was trained on, and how many."""
    rows = {}
    for where, part in parts:
        if isinstance(part, ThroughLearner | MVEMClassifier) and "_points" in vars(part):
            rows[where] = len(vars(part)["_points"])
        elif isinstance(part, _Embedding | SpectralClustering) and "_points" in vars(part):
            rows[where] = len(part._points)
        elif isinstance(part, OverDistributions) and "_n_objects" in vars(part):
            # One Gaussian a set or point; that of a set of one vector is the vector.
            rows[where] = part._n_objects
        elif isinstance(part, MultiMetricLMNN) and "_rows" in vars(part):
            rows[where] = len(part._rows)
        elif isinstance(part, ClassStatistics) and part.n_classes:
            # Moments are kept about the first row of each class, and rows as such while few.
            kept = [second.n_rows for second in part._seconds]
            firsts = part.n_classes if part.pooled else 1
            rows[where] = sum(n or firsts for n in kept)
        elif isinstance(part, SetEmbedding):
            continue  # its inner embedding has them
        elif isinstance(part, Learner) and part.learner_tags.reads == "instances":
            arrays = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
            if "n_features_in_" in vars(part):
                rows[where] = max([1, *(len(array) for array in arrays if array.ndim > 1)])
    return rows


# ---------------------------------------------------------------------- writing


def _check_free(target: Path, force: bool) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is no folder; make it first.")
    if not force and target.exists():
        raise FileExistsError(f"{target} exists; pass force=True to overwrite it.")


def _checked_notes(metadata: dict[str, Any] | None) -> dict[str, Any]:
    notes = {} if metadata is None else metadata
    try:
        text = json.dumps(notes, allow_nan=False)
        same = isinstance(notes, dict) and json.loads(text) == notes
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"metadata must be a dict of JSON types: {_told(error)}") from error
    if not same:
        raise ModelFileError(
            "metadata must be a dict that JSON gives back as it is: text keys, lists, no tuples."
        )
    if len(text) > _MAX_INFORMATION // 2:
        raise ModelFileError(f"metadata takes {len(text)} bytes; {_MAX_INFORMATION // 2} fit.")
    return notes


def _information(
    parts: list[tuple[str, Any]], types: dict[str, type], notes: dict[str, Any]
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
        "training_rows": _training_rows(parts),
        "metadata": notes,
    }


def _write(
    file: BinaryIO, information: dict[str, Any], written: bytes, types: dict[str, type]
) -> None:
    """The archive of skops again, in the form described at the head of this module."""
    source = zipfile.ZipFile(io.BytesIO(written))
    arrays: list[str] = []
    public = {_full_name(kind): name for name, kind in types.items()}
    public |= {"numpy.bool": "numpy.bool_"}
    public |= {"numpy.random.mtrand.RandomState": "numpy.random.RandomState"}
    schema = _compact(json.loads(source.read("schema.json")), public, arrays)
    schema["protocol"] = _PROTOCOL
    schema["_skops_version"] = information["versions"]["skops"]
    members = {"nearfar.json": json.dumps(information).encode()}
    members["schema.json"] = json.dumps(schema, separators=(",", ":")).encode()
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data)
            for k, name in enumerate(arrays):
                archive.writestr(zipfile.ZipInfo(f"{k}.npy"), source.read(name))
    except zipfile.LargeZipFile as error:
        raise ModelFileError("the model takes more than the 2 GiB that a file can hold.") from error


def _compact(node: dict[str, Any], public: dict[str, str], arrays: list[str]) -> dict[str, Any]:
    """A node of skops with public names and without addresses; lists of plain values in one."""
    if node["__class__"] == "_RemainderColsList":
        node = node["content"]["content"]["data"]
    raw = f"{node['__module__']}.{node['__class__']}"
    module, name = _split(public.get(raw, raw))
    compact = {**node, "__module__": module, "__class__": name}
    compact.pop("__id__", None)
    content = node.get("content")
    if isinstance(content, list):
        compact["content"] = [_compact(value, public, arrays) for value in content]
    elif node["__loader__"] == "DictNode":
        inner = {key: _compact(value, public, arrays) for key, value in node["content"].items()}
        keys = [_compact(key, public, arrays) for key in node["key_types"]["content"]]
        kinds = _node("ListNode", "builtins.list", content=keys)
        compact |= {"content": inner, "key_types": kinds}
    elif isinstance(content, dict) and "__loader__" in content:
        compact["content"] = _compact(content, public, arrays)
    if "shape" in node:
        compact["shape"] = _compact(node["shape"], public, arrays)
    if "file" in node:
        compact["file"] = f"{len(arrays)}.npy"
        arrays.append(node["file"])
    if node["__loader__"] == "ListNode":
        values = compact["content"]
        if all(value["__loader__"] == "JsonNode" for value in values):
            texts = [value["content"] for value in values]
            if not any(text.startswith("[") for text in texts):
                text = f"[{','.join(texts)}]"
                return _node("JsonNode", "builtins.str", content=text, is_json=True)
    return compact


def _node(loader: str, name: str, **fields: Any) -> dict[str, Any]:
    module, last = _split(name)
    return {"__class__": last, "__module__": module, "__loader__": loader, **fields}


# ---------------------------------------------------------------------- reading


def _load(path: Path, types: dict[str, type], max_bytes: int) -> tuple[Any, str | None]:
    """The model, and what to warn of."""
    skops = require("skops.io", "app")
    with _opened(path, max_bytes) as file:
        # Once, so that what is checked is what is loaded.
        data = file.read(min(max_bytes, _MAX_BYTES))
    with _archive(io.BytesIO(data)) as archive:
        says = _read_information(archive)
        _check_members(archive, len(data))
        names = _check_schema(archive, types)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.loads(data, trusted=sorted(names))
    theirs, ours = says["versions"].get("scikit-learn"), _sklearn_version()
    parts = list(_walk(model, types, "model"))
    for _, part in parts:
        _bring_up_to_date(part, theirs != ours)
    _check_parts(parts)
    if theirs == ours or not any(name.startswith("sklearn.") for name in names):
        return model, None
    return model, (
        f"was saved with scikit-learn {_shown(theirs)} and is read with {ours}. Its parts of "
        "scikit-learn may work differently, or not at all: compare a few predictions, or fit and "
        "save it again."
    )


def _sklearn_version() -> str:
    return str(importlib.import_module("sklearn").__version__)


@contextmanager
def _opened(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    if not path.exists():
        raise ModelFileError("there is no such file.")
    if not path.is_file():
        raise ModelFileError("not a file.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > min(max_bytes, _MAX_BYTES):
            raise ModelFileError(
                f"{size} bytes are more than max_bytes={min(max_bytes, _MAX_BYTES)} allows."
            )
        yield file


def _archive(file: BinaryIO) -> zipfile.ZipFile:
    """The zip archive, whose directory is looked at before it is read into memory."""
    head = file.read(4)
    file.seek(max(0, file.seek(0, os.SEEK_END) - 42))
    tail = file.read(42)
    locator, end = tail[:4], tail[-22:]
    # No comment and no 64-bit extension: then this end is the one that zipfile will use.
    plain = len(tail) == 42 and locator != b"PK\6\7" and end[20:] == b"\0\0"
    if head != b"PK\3\4" or end[:4] != b"PK\5\6" or not plain:
        raise ModelFileError("not a nearfar model file, or cut short.")
    if struct.unpack("<L", end[12:16])[0] > _MAX_DIRECTORY:
        raise ModelFileError("its directory is too large.")
    return zipfile.ZipFile(file)


def _read_information(archive: zipfile.ZipFile) -> dict[str, Any]:
    """What the file says of itself, if it is of a format that this version reads."""
    says = _read_json(archive, "nearfar.json", _MAX_INFORMATION)
    if not isinstance(says, dict) or says.get("program") != "nearfar":
        raise ModelFileError("not a nearfar model file.")
    number = says.get("format")
    if type(number) is not int or number < 1:
        raise ModelFileError(f"nearfar.json: the format must be a number; found {_shown(number)}.")
    if number > FORMAT:
        raise ModelFileError(
            f"a file of format {_shown(number)}, made by a newer nearfar; this version reads "
            f"formats up to {FORMAT}. Update nearfar."
        )
    wanted = {"model": str, "created": str, "versions": dict, "training_rows": dict}
    for key, kind in {**wanted, "metadata": dict}.items():
        if type(says.get(key)) is not kind:
            raise ModelFileError(f"nearfar.json: {key} is missing or no {kind.__name__}.")
    rows = says["training_rows"].values()
    if not all(type(n) is int and n >= 0 for n in rows):
        raise ModelFileError("nearfar.json: training_rows must be counts.")
    if not all(type(version) is str for version in says["versions"].values()):
        raise ModelFileError("nearfar.json: versions must be text.")
    keys = ("format", "model", "created", "versions", "training_rows", "metadata")
    # All rows are from one training set: those in two places are the same ones.
    known = {"holds_training_rows": any(rows), "n_training_rows": max(rows, default=0)}
    return {**{key: says[key] for key in keys}, **known}


def _read_json(archive: zipfile.ZipFile, name: str, limit: int) -> Any:
    if name not in archive.namelist():
        raise ModelFileError(f"not a nearfar model file: it has no {name}.")
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > limit:
        raise ModelFileError(f"{name} is too large, or compressed.")
    data = archive.read(name)
    if data.count(b"{") + data.count(b"[") > 4 * _MAX_NODES:
        raise ModelFileError(f"{name} has too many parts.")
    try:
        return json.loads(data)
    except RecursionError:
        raise ModelFileError(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise ModelFileError(f"{name} is no JSON: {_told(error)}") from error


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Only plain files of our own names, none twice, together no larger than the archive."""
    seen: set[str] = set()
    for member in archive.infolist():
        name = member.filename
        if not re.fullmatch(r"nearfar\.json|schema\.json|\d{1,6}\.npy", name):
            raise ModelFileError(f"it has a member {_shown(name)}, which no model file has.")
        if name in seen:
            raise ModelFileError(f"it has two members {name}.")
        seen.add(name)
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ModelFileError(f"its member {name} is no plain file.")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise ModelFileError(f"its member {name} is compressed or encrypted.")
        if member.file_size != member.compress_size:
            raise ModelFileError(f"its member {name} has two sizes.")
    if sum(member.file_size for member in archive.infolist()) > size:
        raise ModelFileError("its members claim more bytes than the file has.")


# ---------------------------------------------------------------------- the schema


def _check_schema(archive: zipfile.ZipFile, types: dict[str, type]) -> set[str]:
    """Raise at anything in the schema that :func:`save` does not write; the type names in it."""
    schema = _read_json(archive, "schema.json", _MAX_SCHEMA)
    root = dict(schema) if isinstance(schema, dict) else {}
    if root.pop("protocol", None) != _PROTOCOL or type(root.pop("_skops_version", None)) is not str:
        raise ModelFileError("schema.json: its protocol is not that of skops 0.10 or later.")
    if root.get("__loader__") != "ObjectNode":
        raise ModelFileError("schema.json: it holds no model.")
    names: set[str] = set()
    left = {name for name in archive.namelist() if name.endswith(".npy")}
    stack = [(root, "model", 1)]
    count = 0
    # A loop, not a recursion: depth and number are known before skops recurses.
    while stack:
        node, where, depth = stack.pop()
        count += 1
        if depth > _MAX_DEPTH or count > _MAX_NODES:
            raise ModelFileError(f"{where}: too deep or too many parts.")
        names.add(_check_node(node, where, types))
        for place, child in _children(node, where, archive, left):
            stack.append((child, place, depth + 1))
    if left:
        raise ModelFileError(f"no part of the model is {min(left)}.")
    return names


def _check_node(node: Any, where: str, types: dict[str, type]) -> str:
    """The type name of a node of an allowed kind, type and form."""
    if not isinstance(node, dict):
        raise ModelFileError(f"{where}: no node but {_shown(node)}.")
    loader, module, last = (node.get(key) for key in ("__loader__", "__module__", "__class__"))
    if not all(isinstance(text, str) for text in (loader, module, last)):
        raise ModelFileError(f"{where}: a node without a kind or type.")
    name = f"{module}.{last}"
    if loader not in _NODES:
        raise ModelFileError(
            f"{where}: {_shown(name)} as {_shown(loader)}, which is not on nearfar's list of what "
            "may be loaded. The file was made by another program, or to do harm."
        )
    allowed, keys = _NODES[str(loader)]
    if name not in (types if allowed is None else allowed):
        raise ModelFileError(
            f"{where}: the type {_shown(name)} is not on nearfar's list of types that may be "
            f"loaded as {loader}. {_OWN_CLASS}"
        )
    if loader == "NdArrayNode":
        stored = node.get("type") == "numpy"
        keys |= {"file"} if stored else {"content", "shape"}
    if node.keys() != keys | _COMMON_KEYS:
        raise ModelFileError(f"{where}: a {loader} with the keys {_shown(sorted(node))}.")
    return name


def _children(
    node: dict[str, Any], where: str, archive: zipfile.ZipFile, left: set[str]
) -> list[tuple[str, Any]]:
    """The nodes in a node, after a look at what is no node; arrays used are taken off ``left``."""
    loader, content = node["__loader__"], node.get("content")
    if loader == "NdArrayNode":
        return _array_children(node, where, archive, left)
    if loader == "JsonNode":
        value = json.loads(content) if isinstance(content, str) else ()
        values = value if isinstance(value, list) else [value]
        if node["is_json"] is not True or not all(type(value) in _PLAIN for value in values):
            raise ModelFileError(f"{where}: {_shown(content)} is no plain value.")
    elif loader in ("ListNode", "TupleNode"):
        if not isinstance(content, list):
            raise ModelFileError(f"{where}: a {loader} with {_shown(content)}.")
        return [(f"{where}[{k}]", child) for k, child in enumerate(content)]
    elif loader == "DictNode":
        return _dict_children(node, where, _KEY_TYPES)
    elif loader == "ObjectNode":
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            _dict_children(content, where, ("builtins.str",))
        elif content != _node("JsonNode", "builtins.str", content="null", is_json=True):
            raise ModelFileError(f"{where}: attributes must be a dict.")
        return [(where, content)]
    elif loader == "SliceNode":
        ends = content if isinstance(content, dict) else {}
        if ends.keys() != {"start", "stop", "step"} or not all(
            end is None or type(end) is int for end in ends.values()
        ):
            raise ModelFileError(f"{where}: {_shown(content)} is no slice.")
    elif loader in _CONTENTS:
        if not isinstance(content, dict) or content.get("__loader__") != _CONTENTS[loader]:
            raise ModelFileError(f"{where}: a {loader} with {_shown(content)}.")
        return [(where, content)]
    return []


def _dict_children(
    node: dict[str, Any], where: str, key_types: Sequence[str]
) -> list[tuple[str, Any]]:
    content, keys = node.get("content"), node.get("key_types")
    inner = keys.get("content") if isinstance(keys, dict) else None
    if not isinstance(content, dict) or not isinstance(inner, list) or len(inner) != len(content):
        raise ModelFileError(f"{where}: a dict without its keys.")
    for key in inner:
        if not isinstance(key, dict) or key.get("__loader__") != "TypeNode":
            raise ModelFileError(f"{where}: {_shown(key)} is no type of a key.")
        if f"{key.get('__module__')}.{key.get('__class__')}" not in key_types:
            raise ModelFileError(f"{where}: keys must be {' or '.join(key_types)}.")
    children = [(_below(where, key), child) for key, child in content.items()]
    return [*children, (where, keys)]


def _array_children(
    node: dict[str, Any], where: str, archive: zipfile.ZipFile, left: set[str]
) -> list[tuple[str, Any]]:
    if node["type"] == "numpy":
        file = node["file"]
        if not isinstance(file, str) or file not in left:
            # One array in many places would take its memory many times.
            raise ModelFileError(f"{where}: {_shown(file)} is missing, or in two places.")
        left.remove(file)
        shape = _check_array(archive, file)
        if shape and node["__class__"] != "ndarray":
            raise ModelFileError(f"{where}: a single number of shape {shape}.")
        return []
    content, shape = node["content"], node["shape"]
    if node["type"] != "json" or not isinstance(content, list) or not isinstance(shape, dict):
        raise ModelFileError(f"{where}: an array of type {_shown(node['type'])}.")
    if shape.get("__loader__") != "TupleNode" or node["__class__"] != "ndarray":
        raise ModelFileError(f"{where}: an array without a shape.")
    for child in content:
        # Arrays in an array of objects would become objects, of several times their size.
        kind = child.get("__loader__") if isinstance(child, dict) else None
        if kind not in ("JsonNode", "NdArrayNode") or child["__class__"] == "ndarray":
            raise ModelFileError(f"{where}: an array of {_shown(child)}.")
    return [(where, shape), *((f"{where}[{k}]", child) for k, child in enumerate(content))]


def _check_array(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape in the header of an array, which must fit the bytes that follow."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        start = file.read(10)
        length = struct.unpack("<H", start[8:])[0] if len(start) == 10 else 0
        # Version 1.0: the only one that NumPy needs for plain arrays.
        found = _HEADER.fullmatch(file.read(length)) if start[:8] == b"\x93NUMPY\1\0" else None
        if not found:
            raise ModelFileError(f"{name} is no array of numbers or text.")
        order, kind, width = found[1].decode(), found[2].decode(), int(found[3])
        shape = tuple(int(text) for text in found[4].decode().split(",") if text.strip())
        if kind not in "US" and width not in _ITEM_SIZES[kind]:
            raise ModelFileError(f"{name} has items of type {kind}{width}.")
        item = 4 * width if kind == "U" else width
        if size != 10 + length + item * math.prod(shape):
            raise ModelFileError(f"{name}: its shape {shape} does not fit its {size} bytes.")
        if max(1, item) * math.prod(max(1, n) for n in shape) > max(size, _MAX_EMPTY):
            raise ModelFileError(f"{name}: no array has the shape {shape}.")
        if kind in "bU":
            # NumPy takes booleans and letters as they come; other bytes are neither.
            unit = "u1" if kind == "b" else f"{order}u4"
            values = np.frombuffer(file.read(), dtype=unit)
            if values.size and values.max() > (1 if kind == "b" else 0x10FFFF):
                raise ModelFileError(f"{name}: there are no such booleans or letters.")
    return shape


# ---------------------------------------------------------------------- what was loaded


def _bring_up_to_date(part: Any, other_sklearn: bool) -> None:
    """Add what came with a later version than that of the file."""
    if type(part) in _listed_types().values() and isinstance(part, BaseEstimator):
        for name, parameter in inspect.signature(type(part)).parameters.items():
            if name not in vars(part) and parameter.default is not inspect.Parameter.empty:
                setattr(part, name, parameter.default)
    if other_sklearn and isinstance(part, SimpleImputer) and "_fit_dtype" in vars(part):
        # scikit-learn 1.6 had one for both.
        vars(part).setdefault("_fill_dtype", vars(part)["_fit_dtype"])


def _check_parts(parts: list[tuple[str, Any]]) -> None:
    """Raise unless the parts of a model make sense; some that do not would crash when used."""
    for where, part in reversed(parts):  # the inner ones first
        try:
            for kind, check in _CHECKS.items():
                if isinstance(part, kind):
                    check(part)
        except Exception as error:
            reason = str(error) if isinstance(error, ModelFileError) else _told(error)
            raise ModelFileError(f"{where}: {reason}") from error


def _need(condition: Any, otherwise: str) -> None:
    if not condition:
        raise ModelFileError(otherwise)


def _check_estimator(part: BaseEstimator) -> None:
    state, kind = vars(part), type(part)
    if kind in _listed_types().values():
        hidden = [name for name in state if hasattr(kind, name)]
        _need(not hidden, f"an attribute must not hide {hidden} of {kind.__name__}.")
    part.get_params(deep=False)  # raises if one is missing
    jobs, n = state.get("n_jobs"), state.get("n_features_in_")
    _need(
        jobs is None or (type(jobs) in (int, np.int64) and abs(jobs) <= _MAX_JOBS),
        f"n_jobs must be None or an integer up to {_MAX_JOBS}; found {_shown(jobs)}.",
    )
    _need(n is None or (type(n) is int and 0 <= n < 2**31), "n_features_in_ must be a count.")


def _is_array(value: Any, kinds: str, *shape: int | None) -> bool:
    """Whether it is an array of such numbers and such a shape; None stands for any length."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        return False
    return value.ndim == len(shape) and all(
        n in (None, m) for n, m in zip(shape, value.shape, strict=True)
    )


def _check_linear(part: LinearLearner) -> None:
    # Through vars: a statistics learner would solve when asked for what it has not learned yet.
    state = vars(part)
    n = state.get("n_features_in_")
    if "components_" in state:
        _need(_is_array(state["components_"], "f", None, n), "components_ do not fit.")
    if "mean_" in state:
        _need(_is_array(state["mean_"], "f", n), "mean_ does not fit.")
    if "_dtype" in state:
        _need(state["_dtype"] in (np.float32, np.float64), "no such dtype.")
    if "_learned" in state:
        _need({*state["_learned"], "statistics_"} <= state.keys(), "what it learned is missing.")
    if "statistics_" in state:
        statistics = state["statistics_"]
        _need(isinstance(statistics, ClassStatistics), "statistics_ are none.")
        _need(statistics.n_features in (0, n), "statistics_ do not fit.")


def _check_knn(part: KNNClassifier) -> None:
    state = vars(part)
    if "_points" not in state:
        return
    n_points = len(_checked_table(state.get("_points"), None))
    n_classes = len(_checked_classes(state))
    _need(_is_index(state.get("_codes"), (n_points,)), _NO_LABELS)
    _need(_is_index(state["_codes"], (n_points,), n_classes), "labels without a class.")
    _need(
        0 < part.n_neighbors <= n_points,
        f"n_neighbors={part.n_neighbors} of {n_points} training points.",
    )
    _check_mapped(state, state["_points"].shape[1])


def _check_energy(part: EnergyClassifier) -> None:
    state = vars(part)
    if "_points" not in state:
        return
    n_points, n_out = _checked_table(state.get("_points"), None).shape
    edges, targets = state.get("_edges"), state.get("target_neighbors_")
    n_classes = len(_checked_classes(state))
    _need(_is_array(state.get("_centre"), "f", n_out), "no centre of the training points.")
    _need(_is_index(state.get("_order"), (n_points,), n_points), "no order of the points.")
    _need(len(np.unique(state["_order"])) == n_points, "an order that names points twice.")
    _need(_is_array(edges, "i", n_classes + 1), "not the points of each class.")
    assert isinstance(edges, np.ndarray)
    rising = edges[0] == 0 and edges[-1] == n_points and (edges[1:] > edges[:-1]).all()
    _need(rising, "classes that do not share the points out.")
    _need(_is_index(targets, (n_points, None), n_points, -1), "targets that are no points.")
    # How far targets reach is minus infinity where there are none.
    assert isinstance(targets, np.ndarray)
    _need(_is_array(state.get("_reach"), "f", *targets.shape), "not the reach of each target.")
    k, weight = state.get("n_neighbors_"), state.get("push_weight_")
    _need(type(k) is int and 1 <= k <= n_points, "n_neighbors_ must be a count of points.")
    _need(type(weight) is float and 0 <= weight <= 1, "push_weight_ must be from 0 to 1.")
    _check_mapped(state, n_out)


def _check_minimum_mahalanobis(part: MinimumMahalanobisClassifier) -> None:
    state = vars(part)
    if "means_" not in state:
        return
    n_classes, means = len(_checked_classes(state)), state["means_"]
    _need(_is_array(means, "f", n_classes, None), "not one mean for each class.")
    width = means.shape[1]
    _need(_is_array(state.get("_factors"), "f", n_classes, width, None), "no covariances.")
    for name in ("_log_dets", "_log_priors"):
        _need(_is_array(state.get(name), "f", n_classes), f"not {name} for each class.")
    _check_mapped(state, width)


def _check_mapped(state: Mapping[str, Any], width: int) -> None:
    """A classifier's learner, and whether points of so many dimensions come from it."""
    _need("estimator_" in state, "the learner is missing.")
    learner = state["estimator_"]
    _need(learner is None or hasattr(type(learner), "transform"), "the learner is none.")
    if learner is None:
        _need(state.get("n_features_in_") == width, "the training points do not fit.")
        return
    name = "coefficients_" if isinstance(learner, KernelCoordinates) else "components_"
    if isinstance(learner, LinearLearner | KernelCoordinates) and name in vars(learner):
        fits = width == len(vars(learner)[name])
        _need(fits, "the training points do not fit the learner.")


_NO_LABELS = "there is not one label for each training point."


def _checked_table(points: Any, n_features: int | None) -> NDArray[Any]:
    fits = _is_array(points, "f", None, n_features) and len(points) > 0
    _need(fits, "the training points are no table of numbers.")
    assert isinstance(points, np.ndarray)
    return points


def _checked_classes(state: Mapping[str, Any]) -> NDArray[Any]:
    classes = state.get("classes_")
    fits = isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) > 0
    _need(fits, "there are no classes.")
    assert isinstance(classes, np.ndarray)
    return classes


def _is_index(
    value: Any, shape: tuple[int | None, ...], stop: int | None = None, start: int = 0
) -> bool:
    """Whether it is an array of such a shape with integers from ``start`` up to below ``stop``."""
    if not _is_array(value, "i", *shape):
        return False
    return stop is None or bool(((value >= start) & (value < stop)).all())


def _check_multi_pass(part: MultiPassLMNN) -> None:
    passes = vars(part).get("passes_", [])
    fits = isinstance(passes, list) and all(isinstance(lmnn, LMNN) for lmnn in passes)
    _need(fits, "passes_ are no list of LMNN.")
    _need(vars(part).get("n_passes_", 0) == len(passes), "n_passes_ does not count passes_.")


def _check_multi_metric(part: MultiMetricLMNN) -> None:
    state = vars(part)
    if "_rows" not in state:
        return
    n = state.get("n_features_in_")
    n_points = len(_checked_table(state["_rows"], n))
    maps, centroids = state.get("components_"), state.get("_centroids")
    n_classes = len(_checked_classes(state))
    _need(_is_array(maps, "f", None, None, n), "components_ do not fit.")
    n_cells = len(state["components_"])
    _need(_is_array(state.get("mean_"), "f", n), "mean_ does not fit.")
    _need(_is_index(state.get("_codes"), (n_points,), n_classes), _NO_LABELS)
    _need(_is_index(state.get("cells_"), (n_points,), n_cells), "cells_ without a map.")
    _need(_is_index(state.get("_targets"), (n_points, None), n_points, -1), "no targets.")
    of_labels = centroids is None and n_cells == n_classes
    _need(of_labels or _is_array(centroids, "f", n_cells, n), "cells without a centre.")
    _need(isinstance(state.get("estimator_"), LMNN), "the single map is no LMNN.")


def _check_kernel(part: KernelCoordinates) -> None:
    state = vars(part)
    _need(isinstance(part.kernel, str), "a kernel must be named: a file holds no function.")
    if "_basis" not in state:
        return
    n, basis = state.get("n_features_in_"), state["_basis"]
    _need(_is_array(basis, "f", None, None), "no directions in the kernel's space.")
    n_points, n_directions = basis.shape
    given = part.kernel == "precomputed"
    if given:
        _need(state.get("_rows") is None and n == n_points, "the kernel does not fit.")
    else:
        _need(len(_checked_table(state.get("_rows"), n)) == n_points, "not one row a direction.")
    gamma = state.get("_gamma")
    plain = type(gamma) is float and 0 < gamma < math.inf
    _need(plain or (given and gamma is None), "no gamma.")
    _need(_is_array(state.get("_means"), "f", n_points), "no means of the kernel.")
    _need(type(state.get("_mean")) is float, "no mean of the kernel.")
    _need(_is_array(state.get("coefficients_"), "f", None, n_points), "no coefficients.")
    if hasattr(part, "estimator"):
        learner = state.get("estimator_")
        fits = isinstance(learner, LMNN if isinstance(part, KernelLMNN) else LinearLearner)
        fits = fits and _is_array(
            vars(learner).get("components_"), "f", len(state["coefficients_"]), n_directions
        )
        _need(fits, "the map in the kernel's space does not fit.")


def _check_embedding(part: _Embedding) -> None:
    state = vars(part)
    if "embedding_" not in state:
        return
    n = len(_checked_table(state.get("_points"), state.get("n_features_in_")))
    places, graph = state.get("_places"), state.get("_graph")
    _need(_is_array(places, "f", n, None), "not one place for each training row.")
    assert isinstance(places, np.ndarray)
    q = places.shape[1]
    _need(_is_array(state["embedding_"], "f", None, q), "embedding_ does not fit.")
    listed = state.get("_listed", 1)
    _need(type(listed) is int and 1 <= listed <= n, "no number of neighbours.")
    if graph is not None:
        _need(isinstance(graph, NeighborGraph) and graph.n_samples == n, "the graph does not fit.")
    parts = state.get("_labels")
    _need(parts is None or _is_index(parts, (n,), n), "not one part for each training row.")
    if "landmarks_" in state:
        _need(_is_index(state["landmarks_"], (None,), n), "landmarks that are no rows.")
    if "_axes" in state:
        rows = len(state.get("landmarks_", places))
        _need(_is_array(state["_axes"], "f", rows, q), "not one axis for each component.")
        _need(_is_array(state.get("_shift"), "f", q), "no shift.")
    for name in ("_reach", "_sums", "_means"):
        fits = state.get(name) is None or _is_array(state[name], "f", n)
        _need(fits, f"not {name} for each training row.")


def _check_classical_mds(part: ClassicalMDS) -> None:
    state = vars(part)
    if "embedding_" not in state:
        return
    n, axes = state.get("n_features_in_"), state.get("_axes")
    _need(_is_array(axes, "f", n, None), "no axes.")
    assert isinstance(axes, np.ndarray)
    _need(_is_array(state.get("_means"), "f", n), "no means.")
    _need(_is_array(state["embedding_"], "f", None, axes.shape[1]), "embedding_ does not fit.")


def _check_spectral_clustering(part: SpectralClustering) -> None:
    state = vars(part)
    if "labels_" not in state:
        return
    n = len(_checked_table(state.get("_points"), state.get("n_features_in_")))
    centres = state.get("cluster_centers_")
    _need(_is_array(centres, "f", None, None), "no centres of clusters.")
    assert isinstance(centres, np.ndarray)
    q = centres.shape[1]
    _need(_is_index(state["labels_"], (None,), len(centres)), "labels without a cluster.")
    _need(_is_array(state.get("_vectors"), "f", n, q), "not one place for each training row.")
    _need(_is_array(state.get("eigenvalues_"), "f", q), "no eigenvalues.")
    for name in ("_reach", "_roots"):
        _need(_is_array(state.get(name), "f", n), f"not {name} for each training row.")
    listed = state.get("_listed")
    _need(type(listed) is int and 1 <= listed <= n, "no number of neighbours.")


def _check_gaussians(part: Gaussians) -> None:
    state = vars(part)
    names = {"means", "_covariances", "factors", "ridge", "names", "added_ridge"}
    _need(state.keys() == names, "not what Gaussians consist of.")
    n, p = _checked_table(state["means"], None).shape
    if state["factors"] is None:
        _need(_is_array(state["_covariances"], "f", n, p, p), "not a covariance for each mean.")
    else:
        _need(state["_covariances"] is None, "covariances beside factors.")
        _need(_is_array(state["factors"], "f", n, p, None), "not a factor for each mean.")
        _need(_is_array(state["ridge"], "f", n), "not a ridge for each mean.")
    _need(state["names"] is None or _is_array(state["names"], "U", n), "names do not fit.")
    _need(type(state["added_ridge"]) in (float, type(None)), "a ridge that is no number.")


def _check_over_distributions(part: OverDistributions) -> None:
    state = vars(part)
    if "_kind" not in state:
        return
    kind, n, p = state["_kind"], state.get("_n_objects"), state.get("n_features_in_")
    _need(kind in ("gaussians", "sets", "points", "precomputed"), "no such kind of objects.")
    _need(type(n) is int and n > 0 and type(p) is int, "no number of objects.")
    assert isinstance(n, int) and isinstance(p, int)
    if kind == "precomputed":
        _need(p == n, "not one dissimilarity for each training object.")
        return
    gaussians = state.get("gaussians_")
    _need(isinstance(gaussians, Gaussians) and gaussians.shape == (n, p), "no Gaussians that fit.")
    assert isinstance(gaussians, Gaussians)
    _need(_is_array(state.get("_prints"), "u", n, 2), "not one fingerprint for each object.")
    _need(_is_index(state.get("_firsts"), (n,), n), "equal objects that are none.")
    if kind != "gaussians":
        _need(gaussians.added_ridge is not None, "no ridge for new objects.")
        if part.standardize:
            _check_scale(state, p)
    if kind == "points":
        _need(_is_array(state.get("_points"), "f", n, p), "not the training points.")


def _check_euclidean_embedding(part: EuclideanEmbedding) -> None:
    state = vars(part)
    if "embedding_" not in state:
        return
    n = _check_places(state)
    _need(_is_array(state.get("_means"), "f", n), "not a mean for each object.")
    _need(_is_number(state.get("shift_")) and state["shift_"] >= 0, "no shift.")
    _need(_is_number(state.get("negative_mass_")), "no share of negative eigenvalues.")


def _check_laplacian_embedding(part: LaplacianEmbedding) -> None:
    state = vars(part)
    if "embedding_" not in state:
        return
    n = _check_places(state)
    for name in ("_reach", "degrees_"):
        _need(_is_array(state.get(name), "f", n), f"not {name} for each object.")
    _need(_is_number(state.get("width_")) and state["width_"] > 0, "no width.")


def _check_places(state: Mapping[str, Any]) -> int:
    """The number of objects of an embedding of distributions."""
    n = state.get("_n_objects")
    _need(type(n) is int and "_kind" in state, "no training objects.")
    _need(_is_array(state["embedding_"], "f", n, None), "not one place for each object.")
    q = state["embedding_"].shape[1]
    _need(_is_array(state.get("_axes"), "f", n, q), "not one axis for each component.")
    _need(_is_array(state.get("eigenvalues_"), "f", q), "no eigenvalues.")
    return int(n or 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _check_set_embedding(part: SetEmbedding) -> None:
    if "embedder_" in vars(part):
        inner = part.embedder_
        _need(isinstance(inner, EuclideanEmbedding | LaplacianEmbedding), "no embedding.")
        _need("embedding_" in vars(inner), "an embedding that was not fitted.")


def _check_bag_of_words(part: BagOfWords) -> None:
    state = vars(part)
    if "words_" not in state:
        return
    p = _checked_table(state["words_"], state.get("n_features_in_")).shape[1]
    _check_scale(state, p)


def _check_scale(state: Mapping[str, Any], n_features: int) -> None:
    scale = state.get("scale_")
    _need(_is_array(scale, "f", n_features), "no scale for each feature.")
    _need(np.all(np.asarray(scale) > 0), "a scale that is not positive.")


def _check_spectral_clusters(part: SpectralClusters) -> None:
    state = vars(part)
    if "labels_" not in state:
        return
    inner, centres = state.get("laplacian_"), state.get("cluster_centers_")
    _need(isinstance(inner, LaplacianEmbedding), "no embedding.")
    assert isinstance(inner, LaplacianEmbedding)
    _need("embedding_" in vars(inner), "an embedding that was not fitted.")
    n, q = inner.embedding_.shape
    _need(_is_array(centres, "f", None, q), "no centres of clusters.")
    assert isinstance(centres, np.ndarray)
    _need(_is_index(state["labels_"], (n,), len(centres)), "labels without a cluster.")


def _check_set_neighbors(part: SetKNeighborsClassifier) -> None:
    state = vars(part)
    if "classes_" not in state:
        return
    n, n_classes = state.get("_n_objects", 0), len(_checked_classes(state))
    _need("_kind" in state, "no training sets.")
    _need(_is_index(state.get("_codes"), (n,), n_classes), "labels without a class.")
    _need(0 < part.n_neighbors <= n, f"n_neighbors={part.n_neighbors} of {n} training sets.")


def _check_mvem(part: MVEMClassifier) -> None:
    state = vars(part)
    if "classes_" not in state:
        return
    n, p = _checked_table(state.get("_points"), state.get("n_features_in_")).shape
    n_classes = len(_checked_classes(state))
    _need(_is_index(state.get("_codes"), (n,), n_classes), "labels without a class.")
    _need(0 < part.n_neighbors <= n, f"n_neighbors={part.n_neighbors} of {n} training points.")
    size, gaussians = state.get("neighborhood_"), state.get("_gaussians")
    _need(type(size) is int and 0 < size < n, "no size of neighbourhoods.")
    _need(_is_number(state.get("ridge_")) and state["ridge_"] >= 0, "no ridge.")
    if part.symmetric:
        fits = isinstance(gaussians, Gaussians) and gaussians.shape == (n, p)
        _need(fits, "no Gaussians that fit.")
    else:
        _need(gaussians is None, "Gaussians beside one-sided distances.")


def _check_moda(part: MODA) -> None:
    state = vars(part)
    if "_owners" not in state:
        return
    owners, statistics = state["_owners"], state.get("statistics_")
    _need(isinstance(owners, np.ndarray) and owners.ndim == 1, "no classes of the clusters.")
    known = isinstance(statistics, ClassStatistics) and all(
        type(label) is int and 0 <= label < len(owners) for label in statistics._labels
    )
    _need(known, "clusters without a class.")


def _check_statistics(part: ClassStatistics) -> None:
    labels, seconds, shifts = part._labels, part._seconds, part._shifts
    _need(isinstance(labels, list) and isinstance(seconds, list), "no lists of classes.")
    n, k = len(labels), np.shape(shifts)[-1]
    _need(_is_array(shifts, "f", n, k) and _is_array(part._firsts, "f", n, k), "no moments.")
    _need(_is_array(part._counts, "i", n) and _is_array(part._weights, "f", n), "no weights.")
    _need(type(part._origin) is float or _is_array(part._origin, "f", k), "no origin.")
    _need(part.storage in ("auto", "dense"), "no such storage.")
    flags = (part.pooled, part.exact, part._rounded)
    _need(all(type(flag) is bool for flag in flags), "flags must be booleans.")
    _need(type(part._precision) is float, "no precision.")
    _need(len(seconds) == (min(n, 1) if part.pooled else n), "not one scatter for each class.")
    for second in seconds:
        _need(isinstance(second, SecondMoment) and second.n_features == k, "no scatter.")
        _need(second.dense is None or _is_array(second.dense, "f", k, k), "no scatter matrix.")
        for rows, roots, slots in zip(second.rows, second.roots, second.slots, strict=True):
            m = len(rows)
            _need(_is_array(rows, "f", m, k) and _is_array(roots, "f", m), "no rows.")
            _need(_is_array(slots, "i", m), "no classes of rows.")
            _need(not m or (slots.min() >= 0 and slots.max() < n), "rows without a class.")


def _check_one_hot(part: OneHotEncoder) -> None:
    # scikit-learn builds a sparse matrix whose column numbers nobody compares with its width: here
    # the numbers of all categories are found as its transform does.
    state = vars(part)
    if "categories_" not in state:
        return
    categories, widths = state["categories_"], state.get("_n_features_outs")
    drops, grouped = state.get("_drop_idx_after_grouping"), state.get("_infrequent_enabled")
    _need(isinstance(categories, list) and isinstance(widths, list), "no lists of categories.")
    assert isinstance(widths, list)
    n = len(categories)
    _need(len(widths) == n == state.get("n_features_in_", n), "categories do not fit.")
    _need(drops is None or np.shape(drops) == (n,), "categories to drop do not fit.")
    _need(type(grouped) is bool, "no groups of categories.")
    for i, (names, width) in enumerate(zip(categories, widths, strict=True)):
        _need(isinstance(names, np.ndarray) and names.ndim == 1, "no list of categories.")
        _need(_is_ordered(names), "categories are not in order.")
        codes = np.arange(len(names))
        if grouped:
            rare, places = state["_infrequent_indices"][i], state["_default_to_infrequent_mappings"]
            if rare is not None:
                codes = np.append(codes, rare[0])
            if places[i] is not None:
                codes = np.take(places[i], codes)
        if drops is not None and drops[i] is not None:
            codes = codes[codes != drops[i]]
            codes = codes - (codes > drops[i])
        found = np.unique(codes)
        _need(found.dtype.kind == "i" and type(width) is int, "categories without numbers.")
        fits = found.size == width and (not width or (found[0] == 0 and found[-1] == width - 1))
        _need(fits, "categories beyond their number.")


def _is_ordered(names: NDArray[Any]) -> bool:
    """Whether categories are words, or ascend with missing ones last, as a binary search needs."""
    known = [name for name in names.tolist() if name is not None and name == name]
    if known != names.tolist()[: len(known)]:
        return False
    if names.dtype == object and all(isinstance(name, str) for name in known):
        return True
    return all(a < b for a, b in pairwise(known))


def _check_pipeline(part: Pipeline) -> None:
    # A cache folder is read with pickle: a file must not name one.
    _need(part.memory is None, "memory must be None: a file cannot name a cache folder.")
    steps = part.steps
    _need(isinstance(steps, list), "steps are no list.")
    for step in steps:
        _need(type(step) is tuple and len(step) == 2 and type(step[0]) is str, "a step is none.")


def _check_function(part: FunctionTransformer) -> None:
    plain = part.func is None and part.inverse_func is None
    _need(plain, "a FunctionTransformer can be in a file without functions only.")


def _check_random(part: np.random.RandomState) -> None:
    state: Any = part.get_state(legacy=False)
    # NumPy reads its table of 624 numbers at this place, wherever it is.
    known = state["bit_generator"] == "MT19937" and 0 <= state["state"]["pos"] <= 624
    _need(known, "a RandomState that is none; use an integer as random_state.")


def _check_pairs(part: Pairs) -> None:
    Pairs(part.similar, part.dissimilar, n_samples=part.n_samples)


def _check_triplets(part: Triplets) -> None:
    Triplets(part.indices, n_samples=part.n_samples)


def _check_chunklets(part: Chunklets) -> None:
    _need(Chunklets(part.labels).n_samples == part.n_samples, "n_samples does not fit.")


def _check_graph(part: NeighborGraph) -> None:
    NeighborGraph(part.indptr, part.indices, part.distances, part.is_exact)


_CHECKS: dict[type, Any] = {
    BaseEstimator: _check_estimator,
    Estimator: lambda part: part._check_parameters(),
    LinearLearner: _check_linear,
    MultiPassLMNN: _check_multi_pass,
    MultiMetricLMNN: _check_multi_metric,
    KernelCoordinates: _check_kernel,
    _Embedding: _check_embedding,
    ClassicalMDS: _check_classical_mds,
    SpectralClustering: _check_spectral_clustering,
    MODA: _check_moda,
    Gaussians: _check_gaussians,
    OverDistributions: _check_over_distributions,
    EuclideanEmbedding: _check_euclidean_embedding,
    LaplacianEmbedding: _check_laplacian_embedding,
    SetEmbedding: _check_set_embedding,
    BagOfWords: _check_bag_of_words,
    SpectralClusters: _check_spectral_clusters,
    SetKNeighborsClassifier: _check_set_neighbors,
    MVEMClassifier: _check_mvem,
    KNNClassifier: _check_knn,
    EnergyClassifier: _check_energy,
    MinimumMahalanobisClassifier: _check_minimum_mahalanobis,
    ClassStatistics: _check_statistics,
    Pairs: _check_pairs,
    Triplets: _check_triplets,
    Chunklets: _check_chunklets,
    NeighborGraph: _check_graph,
    Pipeline: _check_pipeline,
    FunctionTransformer: _check_function,
    OneHotEncoder: _check_one_hot,
    np.random.RandomState: _check_random,
}
