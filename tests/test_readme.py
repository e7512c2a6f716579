"""The README: its commands work, and its numbers are those that were measured."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from nearfar import all_estimators
from nearfar.app import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
#: The README in one line, for sentences that are wrapped.
TEXT = " ".join(README.split())
DEMO = dict(re.findall(r"^\$ (nearfar .*)\n((?:(?!\$|```).*\n)+)", README, re.M))


def test_make_demo_runs_the_commands_of_the_readme():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (shared,) = re.findall(r"^DEMO := (.*)$", makefile, re.M)
    recipe = makefile.partition("\ndemo: ")[2].partition("\n\n")[0].replace("$(DEMO)", shared)
    assert re.findall(r"\$\(BIN\)/(nearfar .*)", recipe) == list(DEMO) and len(DEMO) == 3


def test_the_demo_has_a_fixed_protocol():
    for command in DEMO:
        assert "--repeats" in command and "--time-budget" not in command


@pytest.mark.parametrize("verdict", ["Use", "Keep", "Inconclusive:"])
def test_the_demo_shows_each_verdict_once(verdict):
    assert sum(answer.startswith(verdict) for answer in DEMO.values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", DEMO)
def test_the_commands_of_the_demo_give_the_answers_shown(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert cli.main(shlex.split(command)[1:]) == 0
    shown = " ".join(DEMO[command].split())
    assert shown.endswith(" ...")
    assert capsys.readouterr().out.startswith(shown.removesuffix(" ..."))


@pytest.mark.parametrize("line", re.findall(r"`(nearfar \w+ [^`]+)`", README))
def test_the_command_line_accepts_every_command_in_the_text(line):
    options = cli._parser().parse_args(shlex.split(line)[1:])
    assert callable(options.run)


def test_the_number_of_estimators_that_pass_scikit_learns_checks():
    (number,) = re.findall(r"All (\d+) estimators for vectors pass scikit-learn's own checks", TEXT)
    assert int(number) == len(all_estimators(input="vectors"))
    from expected_failures import EXPECTED_FAILURES

    assert not EXPECTED_FAILURES.keys() & all_estimators(input="vectors").keys()


def test_the_times_are_those_of_the_benchmark():
    results = json.loads((ROOT / "benchmarks" / "results" / "lmnn.json").read_text("utf-8"))

    def entry(case, contender):
        (found,) = (one for one in results[case] if one["contender"] == contender)
        return found

    ours, tuned = entry("digits", "nearfar"), entry("digits", "PyLMNN, 200 iterations")
    slow, default = entry("digits", "metric-learn"), "nearfar, 3 nearest impostors, two passes"
    assert "n_impostors=None" in ours["call"]
    assert (
        f"takes {ours['wall s']} s on digits (1,797 × 64, two cores). In older environments, "
        f"PyLMNN takes {tuned['wall s']} s and ends {100 * (tuned['objective / ours'] - 1):.0f}% "
        f"above our objective, metric-learn takes {slow['wall s']:.1f} s and ends "
        f"{100 * (slow['objective / ours'] - 1):.0f}% above."
    ) in TEXT
    large, peer = entry("make_classification", "nearfar"), entry("make_classification", "PyLMNN")
    nearest = entry("make_classification", default)
    assert "n_impostors=3, n_passes=2" in nearest["call"]
    assert (
        f"nearfar takes {large['wall s']:.1f} s ({large['error %']:.1f}% error), PyLMNN "
        f"{peer['wall s']:.1f} s ({peer['error %']:.1f}%)."
    ) in TEXT
    assert f"{nearest['wall s']:.1f} s and {nearest['error %']:.1f}% on these rows." in TEXT


def test_links_lead_to_files_and_become_absolute_in_the_package():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).exists(), link
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook, text = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"], README
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    found = re.findall(r"\]\(([^)]+)\)", text)
    assert len(found) == len(links)
    base = settings["project"]["urls"]["Repository"]
    raw = base.replace("github.com", "raw.githubusercontent.com")
    for link, absolute in zip(links, found, strict=True):
        is_image = link.endswith(".png")
        assert absolute == f"{raw}/main/{link}" if is_image else f"{base}/blob/main/{link}"


@pytest.mark.parametrize(
    "word",
    ["metric learning", "Mahalanobis", "k-NN", "cosine", "similarity search", "embeddings"]
    + ["deduplication", "scikit-learn"],
)
def test_the_words_people_search_for_are_there(word):
    assert word.lower() in TEXT.lower()


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 110
