"""CONTRIBUTING.md, followed to the letter: each kind of estimator in one file and one line."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.contract import KINDS
from nearfar.words import format_method_name

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)]
# What the guide leaves out of its short examples: imports, and the docstring that it shows once.
IMPORTS = '''"""A file of the guide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Learner, LearnerTags, NeighborsClassifier, TensorEstimator
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.base.voter import VOTE_PARAMETERS
from nearfar.state import State, table
from nearfar.summaries.sets import as_sets


'''
DOCSTRING = '''    r"""An example, :math:`y = f(x)`.

    Cost: little.

    Parameters
    ----------
    As in the guide.

    Attributes
    ----------
    As in the guide.

    References
    ----------
    .. [1] CONTRIBUTING.md.

    Examples
    --------
    >>> 1 + 1
    2
    """

'''
FILES = {
    "FisherWeights": "mahalanobis/fisher_weights.py",
    "LocalScale": "local/local_scale.py",
    "MeanNeighbors": "distributions/mean_neighbors.py",
    "ModeMeans": "tensors/mode_means.py",
}
INPUT = {"MeanNeighbors": "sets", "ModeMeans": "tensors"}


def code_of(name):
    block = next(block for block in BLOCKS if f"class {name}(" in block)
    if block.startswith('"""'):
        return block
    head, _, body = block.partition("\n")
    return f"{IMPORTS}{head}\n{DOCSTRING}{body}"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package with the four files and four lines, and the tests and pages that find them."""
    folder = tmp_path_factory.mktemp("copy")
    no_caches = shutil.ignore_patterns("__pycache__")
    package = folder / "nearfar"
    # With its caches, or every process would compile the whole package.
    shutil.copytree(Path(nearfar.__file__).parent, package)
    line = re.search(r"`(from \.(\w+)\.(\w+) import (\w+) as \w+)`", GUIDE)
    assert FILES[line[4]] == f"{line[2]}/{line[3]}.py"
    with open(package / "__init__.pyi", "a") as stub:
        for name, file in FILES.items():
            assert file in GUIDE or name == line[4]
            (package / file).write_text(code_of(name), "utf-8")
            module = file.removesuffix(".py").replace("/", ".")
            stub.write(f"from .{module} import {name} as {name}\n")
    tests = folder / "tests"
    (tests / "contract").mkdir(parents=True)
    for name in (
        "conftest",
        "expected_failures",
        "near_twins",
        "quick",
        "test_package",
        "warm_processes",
    ):
        shutil.copy(ROOT / "tests" / f"{name}.py", tests)
    shutil.copy(ROOT / "tests" / "lengthy.txt", tests)
    shutil.copy(ROOT / "tests" / "contract" / "test_common.py", tests / "contract")
    shutil.copytree(ROOT / "docs" / "_ext", folder / "docs" / "_ext", ignore=no_caches)
    (folder / "pytest.ini").write_text(
        "[pytest]\npythonpath = tests\n"
        "markers =\n  browser\n  process\n  twins\n  lengthy\n  slow\n"
    )
    return folder


def python(copy, code):
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(copy)},
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]
    return run.stdout


QUICK = "--repeats 1 --tuning k --no-context --in-process --out a.html --force"
MARK = "---- next"
SAVE = """
X, y = KINDS[{input!r}].data()
fitted = nearfar.{name}().fit(X, y)
nearfar.save(fitted, "model.nf", force=True)
loaded = nearfar.load("model.nf")
np.testing.assert_array_equal(compute_output(loaded, X), compute_output(fitted, X))
print("{name} came back")
"""


@pytest.fixture(scope="module")
def printed(copy):
    """What one process prints that tests, lists, compares, saves and documents them."""
    modules = [copy / "nearfar" / file for file in FILES.values()]
    which = " or ".join([*FILES, "stub", *(module.stem for module in modules)])
    words = ["-v", "-p", "no:cacheprovider", "--doctest-modules", "-k", which]
    words += [*map(str, modules), "tests"]
    lines = [
        "import sys",
        "import pytest",
        f"assert pytest.main({words}) == 0",
        f"print({MARK!r})",
        "import numpy as np, nearfar",
        "from nearfar.app.cli import main",
        "from nearfar.contract import KINDS, compute_output",
        "assert main(['methods', '--all']) == 0",
        f"print({MARK!r})",
    ]
    for number, name in enumerate(FILES):
        samples, y = KINDS[INPUT.get(name, "vectors")].data()
        file = copy / f"{number}.npz"
        if isinstance(samples, nearfar.Sets):
            nearfar.Sets(samples.X, samples.offsets, labels=y).save(file)
        else:
            np.savez(file, X=samples, y=y)
        words = ["compare", file.name, "--methods", name.lower(), *QUICK.split()]
        lines.append(f"assert main({words}) == 0")
    lines.append(f"print({MARK!r})")
    lines += [SAVE.format(name=name, input=INPUT.get(name, "vectors")) for name in FILES]
    lines.append(f"print({MARK!r})")
    lines += ["sys.path.insert(0, 'docs/_ext')", "import estimator_lists"]
    lines.append("print(estimator_lists.reference_text())")
    parts = python(copy, "\n".join(lines)).split(f"{MARK}\n")
    return dict(zip(("tests", "methods", "compare", "save", "pages"), parts, strict=True))


def test_the_common_tests_find_them(printed):
    out = printed["tests"]
    for name, file in FILES.items():
        for contract in "scikit_learn", "nearfar":
            assert f"test_{contract}_contract[{name}] PASSED" in out, name
        assert re.search(rf"{file}::\S+{name} PASSED", out), name
    assert "test_stub_names_every_learner_and_summary_of_the_rooms PASSED" in out


@pytest.mark.parametrize("name", FILES)
def test_list_comparison_model_files_and_pages_know_them(printed, name):
    assert re.search(rf"^  {format_method_name(name)} ", printed["methods"], re.M)
    assert re.search(rf"^\W*{name}\b.*\d", printed["compare"], re.M)
    assert f"{name} came back\n" in printed["save"]
    assert re.search(rf"^   {name}$", printed["pages"], re.M)


def test_the_guide_is_short():
    prose = re.sub(r"```python\n.*?```", "", GUIDE, flags=re.DOTALL)
    recipe = prose.partition("## Add a method")[2]
    assert 0 < len(recipe.split()) < 700 and len(prose.split()) < 1000
    assert len(GUIDE.splitlines()) < 240
