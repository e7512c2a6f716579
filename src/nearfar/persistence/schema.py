"""Reading and writing of a model file's schema.

The schema is a tree of skops nodes. Only the node kinds and types listed here are allowed.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from typing import Any

from nearfar.persistence.archive import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_SCHEMA,
    ModelFileError,
    below,
    check_array,
    read_json,
    shown,
)
from nearfar.persistence.types import (
    NUMPY_SCALARS,
    OWN_CLASS,
    PLAIN,
    PYTHON_SCALARS,
    Types,
    former_names,
    split,
)

_KEY_TYPES = ("builtins.int", "builtins.str")

# Allowed node kinds, each with its allowed type names and its keys in addition to _COMMON_KEYS.
# None stands for the classes that may be loaded. The kinds of skops that import functions or call
# methods are left out on purpose.
NODES: dict[str, tuple[tuple[str, ...] | None, frozenset[str]]] = {
    "ObjectNode": (None, frozenset({"content"})),
    "DictNode": (("builtins.dict",), frozenset({"content", "key_types"})),
    "ListNode": (("builtins.list",), frozenset({"content"})),
    "TupleNode": (("builtins.tuple",), frozenset({"content"})),
    "JsonNode": (("builtins.str",), frozenset({"content", "is_json"})),
    "SliceNode": (("builtins.slice",), frozenset({"content"})),
    "TypeNode": ((*PYTHON_SCALARS, *NUMPY_SCALARS, "numpy.object_"), frozenset()),
    "DTypeNode": (("numpy.dtype",), frozenset({"content"})),
    "NdArrayNode": (("numpy.ndarray", *NUMPY_SCALARS), frozenset({"type"})),
    "RandomStateNode": (("numpy.random.RandomState",), frozenset({"content"})),
    "ConstructorFromReduceNode": (None, frozenset({"content"})),
}
# Node kinds whose content must be one node of a given kind.
_CONTENTS = {
    "DTypeNode": "NdArrayNode",
    "RandomStateNode": "DictNode",
    "ConstructorFromReduceNode": "TupleNode",
}
_COMMON_KEYS = frozenset({"__class__", "__module__", "__loader__"})
PROTOCOL = 2  # Protocol number of skops since version 0.10.


# ---------------------------------------------------------------------- writing


def compacted(node: dict[str, Any], public: dict[str, str], arrays: list[str]) -> dict[str, Any]:
    """Return a skops node with public class names and without memory addresses.

    Lists of scalars become one node. The names of array files are appended to ``arrays``.
    """
    if node["__class__"] == "_RemainderColsList":
        node = node["content"]["content"]["data"]
    raw = f"{node['__module__']}.{node['__class__']}"
    module, name = split(public.get(raw, raw))
    compact = {**node, "__module__": module, "__class__": name}
    compact.pop("__id__", None)
    content = node.get("content")
    if isinstance(content, list):
        compact["content"] = [compacted(value, public, arrays) for value in content]
    elif node["__loader__"] == "DictNode":
        inner = {key: compacted(value, public, arrays) for key, value in node["content"].items()}
        keys = [compacted(key, public, arrays) for key in node["key_types"]["content"]]
        kinds = make_node("ListNode", "builtins.list", content=keys)
        compact |= {"content": inner, "key_types": kinds}
    elif isinstance(content, dict) and "__loader__" in content:
        compact["content"] = compacted(content, public, arrays)
    if "shape" in node:
        compact["shape"] = compacted(node["shape"], public, arrays)
    if "file" in node:
        compact["file"] = f"{len(arrays)}.npy"
        arrays.append(node["file"])
    if node["__loader__"] == "ListNode":
        values = compact["content"]
        if all(value["__loader__"] == "JsonNode" for value in values):
            texts = [value["content"] for value in values]
            if not any(text.startswith("[") for text in texts):
                text = f"[{','.join(texts)}]"
                return make_node("JsonNode", "builtins.str", content=text, is_json=True)
    return compact


def make_node(loader: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return a node in the form that skops writes."""
    module, last = split(name)
    return {"__class__": last, "__module__": module, "__loader__": loader, **fields}


# ---------------------------------------------------------------------- reading


def check_schema(archive: zipfile.ZipFile, types: Types) -> tuple[set[str], bytes | None]:
    """Raise a ModelFileError if the schema contains anything that :func:`save` does not write.

    Return the set of type names in the schema, and the schema with current class names, or None if
    no class was renamed.
    """
    schema = read_json(archive, "schema.json", MAX_SCHEMA)
    root = dict(schema) if isinstance(schema, dict) else {}
    if root.pop("protocol", None) != PROTOCOL or type(root.pop("_skops_version", None)) is not str:
        raise ModelFileError("schema.json: its protocol is not that of skops 0.10 or later.")
    if root.get("__loader__") != "ObjectNode":
        raise ModelFileError("schema.json: it does not contain a model.")
    names: set[str] = set()
    former, renamed = former_names(types), False
    left = {name for name in archive.namelist() if name.endswith(".npy")}
    stack = [(root, "model", 1)]
    count = 0
    # skops recurses. This loop does not, so it can check depth and number of nodes beforehand.
    while stack:
        node, where, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ModelFileError(
                f"{where}: the schema has more than {MAX_DEPTH} levels or {MAX_NODES} nodes."
            )
        name = _type_name(node, where)
        if name in former and node["__loader__"] == "ObjectNode":
            name, renamed = former[name], True
            node["__module__"], node["__class__"] = split(name)
        _check_node(node, name, where, types)
        names.add(name)
        for place, child in _children(node, where, archive, left):
            stack.append((child, place, depth + 1))
    if left:
        raise ModelFileError(f"{min(left)} is not used by any part of the model.")
    if not renamed:
        return names, None
    return names, json.dumps({**schema, **root}).encode()


def _type_name(node: Any, where: str) -> str:
    if not isinstance(node, dict):
        raise ModelFileError(f"{where}: expected a node, got {shown(node)}.")
    loader, module, last = (node.get(key) for key in ("__loader__", "__module__", "__class__"))
    if not all(isinstance(text, str) for text in (loader, module, last)):
        raise ModelFileError(f"{where}: the node has no kind or type.")
    return f"{module}.{last}"


def _check_node(node: dict[str, Any], name: str, where: str, types: Types) -> None:
    """Raise a ModelFileError if the kind, type or keys of a node are not allowed."""
    loader = node["__loader__"]
    if loader not in NODES:
        raise ModelFileError(
            f"{where}: {shown(name)} is stored as {shown(loader)}, which is not on nearfar's list "
            "of node kinds. The file was not written by nearfar, or it was tampered with."
        )
    allowed, keys = NODES[loader]
    listed = name in (types if allowed is None else allowed)
    if loader == "ConstructorFromReduceNode":
        # skops calls the class, so the class must check its arguments.
        listed = listed and "__reduce__" in vars(types[name])
    if not listed:
        raise ModelFileError(
            f"{where}: the type {shown(name)} is not on nearfar's list of types that may be "
            f"loaded as {loader}. {OWN_CLASS}"
        )
    if loader == "NdArrayNode":
        stored = node.get("type") == "numpy"
        keys |= {"file"} if stored else {"content", "shape"}
    if node.keys() != keys | _COMMON_KEYS:
        raise ModelFileError(f"{where}: the {loader} has unexpected keys {shown(sorted(node))}.")


def _children(
    node: dict[str, Any], where: str, archive: zipfile.ZipFile, left: set[str]
) -> list[tuple[str, Any]]:
    """Check the content of a node, and return its child nodes with their places.

    The names of arrays that the node uses are removed from ``left``.
    """
    loader, content = node["__loader__"], node.get("content")
    if loader == "NdArrayNode":
        return _array_children(node, where, archive, left)
    if loader == "JsonNode":
        value = json.loads(content) if isinstance(content, str) else ()
        values = value if isinstance(value, list) else [value]
        if node["is_json"] is not True or not all(type(value) in PLAIN for value in values):
            raise ModelFileError(f"{where}: {shown(content)} is not a scalar or list of scalars.")
    elif loader in ("ListNode", "TupleNode"):
        if not isinstance(content, list):
            raise ModelFileError(
                f"{where}: the content of a {loader} must be a list; got {shown(content)}."
            )
        return [(f"{where}[{k}]", child) for k, child in enumerate(content)]
    elif loader == "DictNode":
        return _dict_children(node, where, _KEY_TYPES)
    elif loader == "ObjectNode":
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            _dict_children(content, where, ("builtins.str",))
        elif content != make_node("JsonNode", "builtins.str", content="null", is_json=True):
            raise ModelFileError(f"{where}: attributes must be a dict.")
        return [(where, content)]
    elif loader == "SliceNode":
        ends = content if isinstance(content, dict) else {}
        if ends.keys() != {"start", "stop", "step"} or not all(
            end is None or type(end) is int for end in ends.values()
        ):
            raise ModelFileError(f"{where}: {shown(content)} is not a slice.")
    elif loader in _CONTENTS:
        if not isinstance(content, dict) or content.get("__loader__") != _CONTENTS[loader]:
            raise ModelFileError(
                f"{where}: the content of a {loader} must be a {_CONTENTS[loader]}; "
                f"got {shown(content)}."
            )
        return [(where, content)]
    return []


def _dict_children(
    node: dict[str, Any], where: str, key_types: Sequence[str]
) -> list[tuple[str, Any]]:
    content, keys = node.get("content"), node.get("key_types")
    inner = keys.get("content") if isinstance(keys, dict) else None
    if not isinstance(content, dict) or not isinstance(inner, list) or len(inner) != len(content):
        raise ModelFileError(f"{where}: the keys and key types of a dict do not match.")
    for key in inner:
        if not isinstance(key, dict) or key.get("__loader__") != "TypeNode":
            raise ModelFileError(f"{where}: {shown(key)} is not the type of a key.")
        if f"{key.get('__module__')}.{key.get('__class__')}" not in key_types:
            raise ModelFileError(f"{where}: keys must be {' or '.join(key_types)}.")
    children = [(below(where, key), child) for key, child in content.items()]
    return [*children, (where, keys)]


def _array_children(
    node: dict[str, Any], where: str, archive: zipfile.ZipFile, left: set[str]
) -> list[tuple[str, Any]]:
    if node["type"] == "numpy":
        file = node["file"]
        if not isinstance(file, str) or file not in left:
            # skops would read an array again for each use and allocate its memory many times.
            raise ModelFileError(f"{where}: {shown(file)} is missing, or used twice.")
        left.remove(file)
        shape = check_array(archive, file)
        if shape and node["__class__"] != "ndarray":
            raise ModelFileError(f"{where}: a NumPy scalar must not have the shape {shape}.")
        return []
    content, shape = node["content"], node["shape"]
    if node["type"] != "json" or not isinstance(content, list) or not isinstance(shape, dict):
        raise ModelFileError(
            f"{where}: the array has an invalid content, shape or type {shown(node['type'])}."
        )
    if shape.get("__loader__") != "TupleNode" or node["__class__"] != "ndarray":
        raise ModelFileError(f"{where}: the array does not have a valid shape.")
    for child in content:
        # Arrays inside an object array would be converted to objects several times their size.
        kind = child.get("__loader__") if isinstance(child, dict) else None
        if kind not in ("JsonNode", "NdArrayNode") or child["__class__"] == "ndarray":
            raise ModelFileError(f"{where}: an array must not contain {shown(child)}.")
    return [(where, shape), *((f"{where}[{k}]", child) for k, child in enumerate(content))]
