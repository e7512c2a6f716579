"""The guide and the reference name every estimator, and are made of the registry."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import nearfar
from nearfar import all_estimators

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import benchmark_results  # noqa: E402
import estimator_lists  # noqa: E402


def names_in(text: str) -> set[str]:
    """Classes that a page links to."""
    return {
        name.split(".")[-1].lstrip("~")
        for name in re.findall(r":class:`[^`<]*?<?(~?[\w.]+)>?`", text)
    }


def test_each_estimator_is_in_one_row_of_the_table():
    taken = Counter(name for row in estimator_lists.rows() for name in row.take)
    assert taken == Counter(list(all_estimators()))


def test_each_estimator_is_in_one_section_of_the_reference():
    listed = Counter(re.findall(r"^   (\w+)$", estimator_lists.reference_text(), re.M))
    assert listed == Counter(list(all_estimators()))


def test_every_other_public_name_is_in_the_reference():
    index = (DOCS / "api" / "index.rst").read_text("utf-8")
    others = set(nearfar.__all__) - set(all_estimators())
    listed = re.findall(r"^   (\w+)$|^\.\. automodule:: nearfar\.(\w+)$", index, re.M)
    assert others and not others - {name for pair in listed for name in pair}


@pytest.mark.parametrize("name", sorted(all_estimators()))
def test_the_page_of_an_estimator_speaks_of_it(name):
    page = estimator_lists.page_of(all_estimators()[name])
    assert name in names_in((DOCS / "guide" / f"{page}.rst").read_text("utf-8"))


@pytest.mark.parametrize(
    ("names", "sections"),
    [
        ("ShortFukunagaClassifier ConformalSVC", "section 3.1.2"),
        ("LPP", "section 4.3"),
        ("ClassicalMDS Isomap LaplacianEigenmaps", "new points in section 4.5"),
        ("MDS ClassicalMDS RandomProjection", "2007, section 3.1.2"),
        ("GaborFeatures GaitRecognizer", "section 3.8"),
        ("LFMSVMClassifier", "minus the median"),
    ],
)
def test_docstrings_cite_the_sections_that_describe_the_method(names, sections):
    for name in names.split():
        assert sections in " ".join(str(getattr(nearfar, name).__doc__).split())


def test_projections_and_the_search_that_abandons_pairs_early_are_in_the_reference():
    reference = (DOCS / "api" / "index.rst").read_text("utf-8")
    for name in ("gradient_alternating_projection", "project_psd", "early_abandon_kneighbors"):
        assert name in reference


def test_docstrings_hold_nothing_that_breaks_a_page():
    found = []
    for path in (DOCS.parent / "src").rglob("*.py"):
        text = path.read_text("utf-8")
        # The page's formulas know \\cdots and \\ldots; a reference on a line of its own that begins
        # with an initial is taken for an item of a list.
        alone = re.findall(r"^( *)\.\. \[\d\] [A-Z]\. .*\n(?!\1   +\S)", text, re.M)
        formulas = re.findall(r":math:`[^`]*`|\.\. math::.*", text)
        # Nor do they know a style that begins amid a formula.
        if alone or "\\textstyle" in text or any("\\dots" in f or "…" in f for f in formulas):
            found.append(path.name)
    assert not found


def test_lists_of_estimators_are_not_typed():
    index = (DOCS / "api" / "index.rst").read_text("utf-8")
    assert not set(re.findall(r"^   (\w+)$", index, re.M)) & set(all_estimators())
    assert ".. estimator-reference::" in index
    assert ".. estimator-table::" in (DOCS / "guide" / "index.rst").read_text("utf-8")


def test_every_page_of_the_guide_is_in_its_contents():
    index = (DOCS / "guide" / "index.rst").read_text("utf-8")
    contents = set(re.findall(r"^   ([\w-]+)$", index.partition(".. toctree::")[2], re.M))
    assert contents == {path.stem for path in (DOCS / "guide").glob("*.rst")} - {"index"}


def test_tests_that_pages_name_exist():
    files = {path.name: path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py")}
    for page in DOCS.rglob("*.rst"):
        for name, _, test in re.findall(r"``(test_\w+\.py)(::(\w+))?``", page.read_text("utf-8")):
            assert f"def {test}" in files.get(name, ""), f"{page.name}: {name}::{test}"


OF_METRIC_LEARN = """
balance_param basis batch_size beta chunk_size convergence_threshold convergence_tol diagonal
diagonal_c embedding_type gamma init k k_genuine k_impostor learn_rate max_iter max_proj min_iter
n_basis n_chunks n_components n_constraints n_neighbors num_chunks num_constraints output_iter
partial_labels preprocessor prior random_state regularization sparsity_param tol verbose weights
calibrate_threshold chunks classes_ decision_function fit fit_transform generate_knntriplets
get_mahalanobis_matrix get_metric get_params pair_distance pair_score positive_negative_pairs
predict score score_pairs set_output set_params set_threshold transform
"""


def interpreter_with(package):
    """One that can import a package: this one, or that of the peer's own environment."""
    peers = os.environ.get("NEARFAR_PEERS", "")
    python = Path(peers, package.replace("_", "-"), "bin", "python")
    if peers and python.exists():
        return python
    pytest.importorskip(package)
    return Path(sys.executable)


@pytest.mark.parametrize("package", ["nearfar", "metric_learn"])
def test_the_script_of_the_page_on_moving_runs(package):
    script = DOCS / "guide" / "moving_from_metric_learn.py"
    words = [interpreter_with(package), script]
    words += ["--metric-learn"] * (package == "metric_learn")
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    errors = dict(re.findall(r"^(\w+): ([\d.]+)% errors$", run.stdout, re.M))
    assert errors.keys() == {"NCA", "LFDA", "ITML", "LSML"}
    assert all(float(e) < 10 for e in errors.values())


def test_the_page_on_moving_names_every_class_of_metric_learn():
    page = (DOCS / "guide" / "from-metric-learn.rst").read_text("utf-8")
    old = {"Constraints", "Covariance", "ITML", "LFDA", "LMNN", "LSML"}
    old |= {"MLKR", "MMC", "NCA", "RCA", "SCML", "SDML"}
    assert not [name for name in old if f"``{name}``" not in page]
    # Parameters and methods of all of them in 0.7.0, as ``inspect`` lists them.
    assert not [name for name in OF_METRIC_LEARN.split() if not re.search(rf"\b{name}\b", page)]
    public = set(all_estimators()) | {"Pairs", "Triplets", "Quadruplets", "Chunklets"}
    assert names_in(page) - {"PairKFold"} <= public


# ---------------------------------------------------------------------- the page of benchmarks


def test_the_page_of_benchmarks_shows_all_results_as_they_are():
    page = (DOCS / "benchmarks.rst").read_text("utf-8")
    assert ".. benchmark-summary::" in page and ".. benchmark-results::" in page
    assert "benchmarks" in (DOCS / "index.rst").read_text("utf-8")
    assert not re.search(r"\d", page.replace("right of 1 ", ""))  # no number is typed
    files = {path.stem for path in benchmark_results.RESULTS.glob("*.md")}
    shown = benchmark_results.documents()
    assert {document.name for document in shown} == files >= set(benchmark_results.COMPARED)
    for document in shown:
        text = (benchmark_results.RESULTS / f"{document.name}.md").read_text("utf-8")
        lines = [line for line in text.splitlines() if line.startswith("|")]
        # A head and a rule for each table.
        assert sum(map(len, document.tables)) == len(lines) - 2 * len(document.tables)
        html = benchmark_results.html_of(document)
        assert html.count("<tr>") == len(lines) - len(document.tables)
        assert "Python 3" in " ".join(document.notes), document.name
        script = benchmark_results.command(document).split()[1]
        assert (DOCS.parent / script).exists(), document.name


@pytest.mark.parametrize("name", benchmark_results.COMPARED)
def test_pictures_of_benchmarks_are_drawn_from_ratios(name):
    document = benchmark_results.read(name)
    found = benchmark_results.ratios(document)
    assert found and all(0 < one.least <= 1.001 * one.mean <= 1.01 * one.most for one in found)
    drawing = ElementTree.fromstring(benchmark_results.picture(document.title, found))
    bars = [part for part in drawing.iter() if part.tag.endswith("rect")]
    assert len(bars) == len(found)
    # Blue and to the right where the other side takes longer.
    one = drawing.find(".//{*}line[@stroke='#222']")
    for bar, ratio in zip(bars, found, strict=True):
        faster = bar.get("fill") == benchmark_results.FASTER
        assert faster == (ratio.mean >= 1)
        assert (float(bar.get("x")) >= float(one.get("x1")) - 0.1) == faster or ratio.mean == 1


def test_ratios_are_those_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_results, "RESULTS", tmp_path)
    (tmp_path / "lmnn.md").write_text(
        "# Some\n\nSaid `so`.\n\n| case | contender | wall s |\n|---|---|---|\n"
        "| a | nearfar | 2 |\n| a | mlpack | 5 |\n| a | nearfar, twice | 4 |\n| b | mlpack | 3 |\n"
    )
    (tmp_path / "peers.md").write_text(
        "# Others\n\n| set | method | who | CPU / ours |\n|---|---|---|---|\n"
        "| x | NCA | nearfar | 1 |\n| x | NCA | mlpack | 8 |\n| z | NCA | mlpack | 2 |\n"
    )
    (one,) = benchmark_results.ratios(benchmark_results.read("lmnn"))
    assert (one.label, one.mean) == ("a: mlpack", 2.5)
    (two,) = benchmark_results.ratios(benchmark_results.read("peers"))
    assert (two.label, two.n_runs, two.least, two.most) == ("NCA: mlpack", 2, 2, 8)
    assert two.mean == pytest.approx(4)
