"""CONTRIBUTING.md, followed to the letter: its learner in one file and one line."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nearfar

ROOT = Path(__file__).parents[1]


def test_learner_of_the_guide_passes_every_common_test(tmp_path):
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    code = textwrap.dedent(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1])
    line = re.search(r"`(from \.\w+\.(\w+) import (\w+) as \w+)`", guide)

    package = tmp_path / "nearfar"
    shutil.copytree(
        Path(nearfar.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "mahalanobis" / f"{line[2]}.py").write_text(code, "utf-8")
    with open(package / "__init__.pyi", "a") as stub:
        stub.write(line[1] + "\n")

    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("test_common.py", "test_package.py", "expected_failures.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    module = package / "mahalanobis" / f"{line[2]}.py"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--doctest-modules", str(module), str(tests)),
            *("-k", f"{line[3]} or stub or fisher"),
        ],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) > 60, run.stdout[-1000:]
