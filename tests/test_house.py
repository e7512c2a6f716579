"""The house: what each room may know, and that every name means one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class Facts(NamedTuple):
    """What the tests below ask of a module."""

    imports: list[ast.Import | ast.ImportFrom]  # at its head or in a function
    modules: list[str]  # of the application, named by strings
    targets: list[str]  # what it defines
    questions: list[int]  # lines that ask whether the data are sets


@cache  # reading the whole library takes seconds
def facts(name: str) -> Facts:
    tree = ast.parse(MODULES[name].read_text("utf-8"))
    found = Facts([], [], list(defined(tree)), [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("nearfar.app"):
                found.modules.append(node.value)
        elif asks_for_sets(node):
            found.questions.append(node.lineno)
    return found


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of a module's classes, functions and values."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def imports_of(name: str) -> set[str]:
    """Modules of ours that a module imports."""
    found = set()
    for node in facts(name).imports:
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
    for name in LIBRARY.keys() - {"nearfar.__main__"}:
        assert not facts(name).modules, name


def test_no_two_modules_of_one_name():
    places = defaultdict(list)
    for name in LIBRARY:
        if not name.startswith("nearfar.contract."):
            places[name.rpartition(".")[2]].append(name)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_public_things_of_one_name():
    places = defaultdict(set)
    for name in LIBRARY:
        for target in facts(name).targets:
            if not target.startswith("_"):
                places[target].add(name)
    assert not {name: sorted(where) for name, where in places.items() if len(where) > 1}


def test_no_private_name_is_borrowed():
    borrowed = [
        f"{name} imports {node.module}.{alias.name}"
        for name in LIBRARY
        for node in facts(name).imports
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
        for node in facts(name).imports
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
        return bool({"sets", "has_sets", "is_sets"} & set(named))
    return False


def test_only_kinds_and_the_reader_ask_whether_the_data_are_sets():
    # Who else asked would have to be told of each kind to come. What is named after sets knows
    # nothing else.
    app = [name for name in MODULES if name.startswith("nearfar.app.")]
    allowed = ("nearfar.app.compare.kinds.", "nearfar.app.embed.kinds.", "nearfar.app.tables.")
    found = [
        f"{name}:{line}"
        for name in app
        if not name.startswith((*allowed, "nearfar.app.compare.set_"))
        for line in facts(name).questions
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
        "1 if file.has_sets else 2",
    ],
)
def test_a_question_for_sets_is_seen(line):
    assert any(asks_for_sets(node) for node in ast.walk(ast.parse(line)))
