"""Files about the project agree with one another."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_workflow_runs_what_we_run_on_every_supported_python():
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    (matrix,) = re.findall(r"python: \[(.*)\]", WORKFLOW)
    assert re.findall(r"3\.\d+", matrix) == supported
    assert f'python-version: "{supported[0]}"' in WORKFLOW  # that of the oldest dependencies
    assert PROJECT["requires-python"] == f">={supported[0]}"
    assert "run: .ci/run" in WORKFLOW and "run: make test-oldest" in WORKFLOW
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()


def test_hooks_are_the_linters_of_make_test():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    hooked = set(re.findall(r"^ +name: (.+)$", hooks, re.M))
    assert "-j 2 checks tests;" in MAKEFILE.partition("\ntest: ")[2].partition("\n\n")[0]
    recipe = MAKEFILE.partition("\nchecks: ")[2].partition("\n\n")[0]
    run = re.findall(r"\$\(BIN\)/([\w-]+(?: (?:check|format))?)", recipe)
    assert hooked == set(run)


def test_oldest_versions_are_the_lower_bounds():
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["app"]]
    bounds = dict(re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line).groups() for line in wanted)
    tested = dict(re.findall(r"([\w-]+)==([\d.]+)", MAKEFILE.partition("OLDEST := ")[2]))
    for name in tested.keys() & bounds.keys():
        assert f"{tested[name]}.".startswith(f"{bounds[name]}."), name


def test_security_says_how_to_report():
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text("utf-8")
