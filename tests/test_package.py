"""The package as a whole: what it imports, what it exports, what it asks for."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar import base

SOURCE = Path(nearfar.__file__).parent
# The rooms of methods and summaries are all but these.
NO_METHODS = {
    *("app", "base", "contract", "datasets", "evaluation", "persistence", "search", "solvers"),
}
ROOMS = sorted(
    path.name
    for path in SOURCE.iterdir()
    if (path / "__init__.py").exists() and path.name not in NO_METHODS
)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_import_loads_no_heavy_package():
    loaded = run(
        "import sys, nearfar; print(*[m for m in ('sklearn', 'scipy', 'pandas', 'numpy')"
        " if m in sys.modules])"
    )
    assert loaded.strip() == ""


def test_import_takes_little_time():
    # Beside that of numpy, for which a user waits anyhow: a ratio, as machines differ.
    code = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"
    ours, theirs = (
        min(float(run(code.format(name))) for _ in range(3)) for name in ("nearfar", "numpy")
    )
    assert ours < theirs


def test_stub_names_every_learner_and_summary_of_the_rooms():
    stub = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse((SOURCE / "__init__.pyi").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    public = set()
    for room in ROOMS:
        for module in pkgutil.walk_packages([str(SOURCE / room)], f"nearfar.{room}."):
            path = module.name.removeprefix("nearfar.")
            if path.endswith("._kernels"):  # needs numba, and names nothing that is public
                continue
            for name, item in vars(importlib.import_module(f"nearfar.{path}")).items():
                documented = isinstance(item, type) and ">>>" in (inspect.getdoc(item) or "")
                if documented and item.__module__ == f"nearfar.{path}" and name[0] != "_":
                    public.add((path, name))
    stub_classes = {entry for entry in stub if entry[0].partition(".")[0] in ROOMS}
    assert stub_classes == public


@pytest.mark.parametrize("name", nearfar.__all__)
def test_every_public_name_resolves(name):
    assert getattr(nearfar, name) is not None


@pytest.mark.parametrize("name", sorted(base.all_estimators()))
def test_estimators_document_equation_cost_reference_and_example(name):
    doc = inspect.getdoc(base.all_estimators()[name])
    wanted = ["Attributes\n", "Examples\n", ">>>", "Cost:", ":math:"]
    if name != "Euclidean":  # the identity is nobody's
        wanted += ["References\n", "Parameters\n"]
    assert not [part for part in wanted if part not in doc]


def test_registry_is_exactly_the_estimators_of_the_stub():
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    named = {
        alias.name: node.module
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    classes = {
        name: getattr(importlib.import_module(f"nearfar.{module}"), name)
        for name, module in named.items()
    }
    fitted = {n for n, c in classes.items() if isinstance(c, type) and hasattr(c, "fit")}
    assert fitted == set(base.all_estimators())


def test_package_data_is_shipped():
    assert (SOURCE / "py.typed").exists()
    assert (SOURCE / "contract" / "bad_input.toml").exists()
