"""The house: what each room may know, and that every name means one thing."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import nearfar

SOURCE = Path(nearfar.__file__).parent
MODULES = {
    ".".join(("nearfar", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in SOURCE.rglob("*.py")
}
LIBRARY = {name: path for name, path in MODULES.items() if not name.startswith("nearfar.app")}


@cache  # reading the whole library takes seconds
def statements(name: str) -> list[ast.Import | ast.ImportFrom]:
    """What a module imports, at its head or in a function."""
    nodes = ast.walk(ast.parse(MODULES[name].read_text("utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports_of(name: str) -> set[str]:
    """Modules of ours that a module imports."""
    found = set()
    for node in statements(name):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {m if m in MODULES else node.module for m in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    # The package itself imports nothing: its public names resolve when they are asked for.
    return {other for other in found if other in MODULES and other not in (name, "nearfar")}


def test_no_cycle_lazy_imports_included():
    # A package's own __init__ gathers its modules; they import one another by their full names.
    graph = {name: imports_of(name) for name in MODULES}
    gathered = {n for n, path in MODULES.items() if path.name == "__init__.py"}
    done, open_ = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in open_, " -> ".join([*open_[open_.index(name) :], name])
        open_.append(name)
        for other in sorted(graph[name]):
            inside = other in gathered and name.startswith(f"{other}.")
            assert not inside, f"{name} imports its own package {other}"
            visit(other)
        open_.pop()
        done.add(name)

    for name in graph:
        visit(name)


def test_nothing_in_the_library_names_the_application():
    # Import-linter sees imports; this sees what is imported by a string.
    for name, path in LIBRARY.items():
        if name == "nearfar.__main__":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = isinstance(node, ast.Constant) and isinstance(node.value, str)
            assert not (named and node.value.startswith("nearfar.app")), f"{name}: {node.value}"


def test_no_two_modules_of_one_name():
    places = defaultdict(list)
    for name in LIBRARY:
        if not name.startswith("nearfar.contract."):
            places[name.rpartition(".")[2]].append(name)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_public_things_of_one_name():
    places = defaultdict(set)
    for name, path in LIBRARY.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = []
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                targets = [node.name]
            elif isinstance(node, ast.Assign):
                targets = [t.id for t in node.targets if isinstance(t, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                targets = [node.target.id]
            for target in targets:
                if not target.startswith("_"):
                    places[target].add(name)
    assert not {name: sorted(where) for name, where in places.items() if len(where) > 1}


def test_no_private_name_is_borrowed():
    borrowed = [
        f"{name} imports {node.module}.{alias.name}"
        for name in LIBRARY
        for node in statements(name)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearfar.")
        for alias in node.names
        # Base classes of a room that are no learners themselves begin with an underscore.
        if alias.name.startswith("_") and not alias.name[1:2].isupper()
    ]
    assert not borrowed


def test_no_module_imports_a_private_module_of_another_package():
    # What ruff's rule does not see: "import sklearn.utils._mask".
    private = [
        f"{name} imports {alias.name}"
        for name in MODULES
        for node in statements(name)
        if isinstance(node, ast.Import)
        for alias in node.names
        if "._" in alias.name and not alias.name.startswith("nearfar")
    ]
    assert not private


def asks_for_sets(node):
    """Whether a condition, or a key, asks if the data are sets."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "sets"
    if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "get" and node.args:
        return isinstance(node.args[0], ast.Constant) and node.args[0].value == "sets"
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "isinstance":
        return any(getattr(name, "id", None) == "Sets" for name in ast.walk(node.args[1]))
    if isinstance(node, ast.Compare):
        words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
        return bool({"set", "sets"} & {word for word in words if isinstance(word, str)})
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        named = [getattr(n, "attr", getattr(n, "id", None)) for n in ast.walk(node.test)]
        return bool({"sets", "holds_sets", "has_sets", "is_sets"} & set(named))
    return False


def test_only_kinds_and_the_reader_ask_whether_the_data_are_sets():
    # Who else asked would have to be told of each kind to come. What is named after sets knows
    # nothing else.
    app = {name: path for name, path in MODULES.items() if name.startswith("nearfar.app.")}
    allowed = ("nearfar.app.compare.kinds.", "nearfar.app.embed.kinds.", "nearfar.app.tables.")
    found = [
        f"{name}:{node.lineno}"
        for name, path in app.items()
        if not name.startswith((*allowed, "nearfar.app.compare.set_"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if asks_for_sets(node)
    ]
    assert not found
    for path in (SOURCE / "app").rglob("*.jinja"):
        assert not re.search(r"\bsets?\.|\{%-? *(el)?if[^%]*\bsets?\b", path.read_text("utf-8")), (
            path
        )


@pytest.mark.parametrize(
    "line",
    [
        'document["sets"]',
        'data.get("sets")',
        "isinstance(X, Sets)",
        'noun == "set"',
        "1 if file.holds_sets else 2",
    ],
)
def test_a_question_for_sets_is_seen(line):
    assert any(asks_for_sets(node) for node in ast.walk(ast.parse(line)))
