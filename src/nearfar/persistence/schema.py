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
    check_array,
    format_value,
    join_place,
    read_json,
)
from nearfar.persistence.types import (
    NUMPY_SCALARS,
    PYTHON_SCALARS,
    SCALAR_TYPES,
    TRUST_HINT,
    Types,
    map_former_names,
    split_name,
)

_KEY_TYPES = ("builtins.int", "builtins.str")

# Allowed kinds of nodes. Each has a tuple of allowed type names, and a set of required keys in
# addition to _COMMON_KEYS. Instead of a tuple, None means all classes that may be loaded. Kinds
# that would make skops import functions or call methods are omitted on purpose.
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
# Kinds of nodes that contain exactly one other node, and the required kind of that node.
_CONTENTS = {
    "DTypeNode": "NdArrayNode",
    "RandomStateNode": "DictNode",
    "ConstructorFromReduceNode": "TupleNode",
}
_COMMON_KEYS = frozenset({"__class__", "__module__", "__loader__"})
PROTOCOL = 2  # skops has used this protocol number since version 0.10.


# ---------------------------------------------------------------------- functions for writing


def compact_node(
    node: dict[str, Any], public_names: dict[str, str], arrays: list[str]
) -> dict[str, Any]:
    """Return a skops node with public class names and without memory addresses.

    Lists of scalars become one node. The names of array files are appended to ``arrays``.
    """
    if node["__class__"] == "_RemainderColsList":
        node = node["content"]["content"]["data"]
    raw = f"{node['__module__']}.{node['__class__']}"
    module, name = split_name(public_names.get(raw, raw))
    result = {**node, "__module__": module, "__class__": name}
    result.pop("__id__", None)
    content = node.get("content")
    if isinstance(content, list):
        result["content"] = [compact_node(value, public_names, arrays) for value in content]
    elif node["__loader__"] == "DictNode":
        items = {
            key: compact_node(value, public_names, arrays) for key, value in node["content"].items()
        }
        keys = [compact_node(key, public_names, arrays) for key in node["key_types"]["content"]]
        kinds = make_node("ListNode", "builtins.list", content=keys)
        result |= {"content": items, "key_types": kinds}
    elif isinstance(content, dict) and "__loader__" in content:
        result["content"] = compact_node(content, public_names, arrays)
    if "shape" in node:
        result["shape"] = compact_node(node["shape"], public_names, arrays)
    if "file" in node:
        result["file"] = f"{len(arrays)}.npy"
        arrays.append(node["file"])
    if node["__loader__"] == "ListNode":
        values = result["content"]
        if all(value["__loader__"] == "JsonNode" for value in values):
            texts = [value["content"] for value in values]
            if not any(text.startswith("[") for text in texts):
                text = f"[{','.join(texts)}]"
                return make_node("JsonNode", "builtins.str", content=text, is_json=True)
    return result


def make_node(loader: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return a node in the form that skops writes."""
    module, last = split_name(name)
    return {"__class__": last, "__module__": module, "__loader__": loader, **fields}


# ---------------------------------------------------------------------- functions for reading


def check_schema(archive: zipfile.ZipFile, types: Types) -> tuple[set[str], bytes | None]:
    """Raise a ModelFileError if the schema contains anything that :func:`save` does not write.

    Return the set of type names in the schema, and the schema with current class names, or None if
    no class was renamed.
    """
    schema = read_json(archive, "schema.json", MAX_SCHEMA)
    root = dict(schema) if isinstance(schema, dict) else {}
    if root.pop("protocol", None) != PROTOCOL or type(root.pop("_skops_version", None)) is not str:
        raise ModelFileError(
            f"schema.json: the protocol must be {PROTOCOL}, as in skops 0.10 or later."
        )
    if root.get("__loader__") != "ObjectNode":
        raise ModelFileError("schema.json does not contain a model.")
    names: set[str] = set()
    former_names, is_renamed = map_former_names(types), False
    unused_arrays = {name for name in archive.namelist() if name.endswith(".npy")}
    stack = [(root, "model", 1)]
    count = 0
    # skops reads nodes recursively. This loop checks the depth and number of nodes beforehand.
    while stack:
        node, place, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ModelFileError(
                f"{place}: the schema has more than {MAX_DEPTH} levels or {MAX_NODES} nodes."
            )
        name = _get_type_name(node, place)
        if name in former_names and node["__loader__"] == "ObjectNode":
            name, is_renamed = former_names[name], True
            node["__module__"], node["__class__"] = split_name(name)
        _check_node(node, name, place, types)
        names.add(name)
        for child_place, child in _list_children(node, place, archive, unused_arrays):
            stack.append((child, child_place, depth + 1))
    if unused_arrays:
        raise ModelFileError(f"{min(unused_arrays)} is not used by any component of the model.")
    if not is_renamed:
        return names, None
    return names, json.dumps({**schema, **root}).encode()


def _get_type_name(node: Any, place: str) -> str:
    if not isinstance(node, dict):
        raise ModelFileError(f"{place}: expected a node, got {format_value(node)}.")
    loader, module, last = (node.get(key) for key in ("__loader__", "__module__", "__class__"))
    if not all(isinstance(text, str) for text in (loader, module, last)):
        raise ModelFileError(f"{place}: the node has no kind or type.")
    return f"{module}.{last}"


def _check_node(node: dict[str, Any], name: str, place: str, types: Types) -> None:
    """Raise a ModelFileError if the kind, type or keys of a node are not allowed."""
    loader = node["__loader__"]
    if loader not in NODES:
        raise ModelFileError(
            f"{place}: {format_value(name)} is stored as {format_value(loader)}, which is not on "
            "nearfar's list of node kinds. The file was not written by nearfar, or it was "
            "tampered with."
        )
    allowed, keys = NODES[loader]
    is_listed = name in (types if allowed is None else allowed)
    if loader == "ConstructorFromReduceNode":
        # skops calls the class with arguments from the file, so the class must check its arguments.
        is_listed = is_listed and "__reduce__" in vars(types[name])
    if not is_listed:
        raise ModelFileError(
            f"{place}: the type {format_value(name)} is not on nearfar's list of types that may be "
            f"loaded as {loader}. {TRUST_HINT}"
        )
    if loader == "NdArrayNode":
        is_stored = node.get("type") == "numpy"
        keys |= {"file"} if is_stored else {"content", "shape"}
    if node.keys() != keys | _COMMON_KEYS:
        raise ModelFileError(
            f"{place}: the {loader} has unexpected keys {format_value(sorted(node))}."
        )


def _list_children(
    node: dict[str, Any], place: str, archive: zipfile.ZipFile, unused_arrays: set[str]
) -> list[tuple[str, Any]]:
    """Check the content of a node. Return each child node and its location in the schema.

    The names of arrays that the node uses are removed from ``unused_arrays``.
    """
    loader, content = node["__loader__"], node.get("content")
    if loader == "NdArrayNode":
        return _list_array_children(node, place, archive, unused_arrays)
    if loader == "JsonNode":
        value = json.loads(content) if isinstance(content, str) else ()
        values = value if isinstance(value, list) else [value]
        if node["is_json"] is not True or not all(type(value) in SCALAR_TYPES for value in values):
            raise ModelFileError(
                f"{place}: {format_value(content)} is not a scalar or list of scalars."
            )
    elif loader in ("ListNode", "TupleNode"):
        if not isinstance(content, list):
            raise ModelFileError(
                f"{place}: the content of a {loader} must be a list; got {format_value(content)}."
            )
        return [(f"{place}[{k}]", child) for k, child in enumerate(content)]
    elif loader == "DictNode":
        return _list_dict_children(node, place, _KEY_TYPES)
    elif loader == "ObjectNode":
        if isinstance(content, dict) and content.get("__loader__") == "DictNode":
            _list_dict_children(content, place, ("builtins.str",))
        elif content != make_node("JsonNode", "builtins.str", content="null", is_json=True):
            raise ModelFileError(f"{place}: attributes must be a dict.")
        return [(place, content)]
    elif loader == "SliceNode":
        ends = content if isinstance(content, dict) else {}
        if ends.keys() != {"start", "stop", "step"} or not all(
            end is None or type(end) is int for end in ends.values()
        ):
            raise ModelFileError(f"{place}: {format_value(content)} is not a slice.")
    elif loader in _CONTENTS:
        if not isinstance(content, dict) or content.get("__loader__") != _CONTENTS[loader]:
            raise ModelFileError(
                f"{place}: the content of a {loader} must be a {_CONTENTS[loader]}; "
                f"got {format_value(content)}."
            )
        return [(place, content)]
    return []


def _list_dict_children(
    node: dict[str, Any], place: str, key_types: Sequence[str]
) -> list[tuple[str, Any]]:
    content, keys = node.get("content"), node.get("key_types")
    type_nodes = keys.get("content") if isinstance(keys, dict) else None
    if (
        not isinstance(content, dict)
        or not isinstance(type_nodes, list)
        or len(type_nodes) != len(content)
    ):
        raise ModelFileError(f"{place}: the keys and key types of a dict do not match.")
    for key in type_nodes:
        if not isinstance(key, dict) or key.get("__loader__") != "TypeNode":
            raise ModelFileError(f"{place}: {format_value(key)} cannot be the key of a dict.")
        if f"{key.get('__module__')}.{key.get('__class__')}" not in key_types:
            raise ModelFileError(f"{place}: keys must be {' or '.join(key_types)}.")
    children = [(join_place(place, key), child) for key, child in content.items()]
    return [*children, (place, keys)]


def _list_array_children(
    node: dict[str, Any], place: str, archive: zipfile.ZipFile, unused_arrays: set[str]
) -> list[tuple[str, Any]]:
    if node["type"] == "numpy":
        file = node["file"]
        if not isinstance(file, str) or file not in unused_arrays:
            # If a file used one array many times, skops would allocate its memory each time.
            raise ModelFileError(f"{place}: {format_value(file)} is missing, or it is used twice.")
        unused_arrays.remove(file)
        shape = check_array(archive, file)
        if shape and node["__class__"] != "ndarray":
            raise ModelFileError(f"{place}: a NumPy scalar must not have the shape {shape}.")
        return []
    content, shape = node["content"], node["shape"]
    if node["type"] != "json" or not isinstance(content, list) or not isinstance(shape, dict):
        raise ModelFileError(
            f"{place}: the array has an invalid content, shape or type "
            f"{format_value(node['type'])}."
        )
    if shape.get("__loader__") != "TupleNode" or node["__class__"] != "ndarray":
        raise ModelFileError(f"{place}: the array does not have a valid shape.")
    for child in content:
        # skops would convert an inner array to Python objects, which need much more memory.
        kind = child.get("__loader__") if isinstance(child, dict) else None
        if kind not in ("JsonNode", "NdArrayNode") or child["__class__"] == "ndarray":
            raise ModelFileError(f"{place}: an array must not contain {format_value(child)}.")
    return [(place, shape), *((f"{place}[{k}]", child) for k, child in enumerate(content))]
