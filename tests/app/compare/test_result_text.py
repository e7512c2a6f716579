"""The text of a result: the blocks of its table, its notes, and the answer at the end."""

import copy
import io

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

from nearfar import LDA, Pairs, compare
from nearfar.app.compare.comparison import NARROW, Comparison, footnotes
from nearfar.app.compare.embedding_comparison import EmbeddingComparison
from nearfar.app.compare.pair_comparison import PairComparison
from nearfar.app.compare.value_comparison import ValueComparison
from nearfar.datasets import make_sets

QUICK = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False}
X, Y = load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def wine():
    methods = {"lda": LDA(), "mine, named at length": LDA(n_components=1)}
    return compare(X, Y, methods=methods, **QUICK | {"repeats": 2, "tuning": "full"})


def titles(result):
    return [title for title, _ in result.cells()[1]]


def test_methods_stand_in_three_blocks_by_error(wine):
    assert titles(wine) == [
        "Learned distances",
        "Standard distances",
        "Other classifiers (for context)",
    ]
    roles = ({"learner"}, {"reference", "baseline"}, {"context"})
    for (_, rows), role in zip(wine.cells()[1], roles, strict=True):
        errors = [method["error"] for method, _ in rows]
        assert errors == sorted(errors) and {method["role"] for method, _ in rows} == role
    labels = [cells[0] for _, rows in wine.cells()[1] for _, cells in rows]
    assert {"Raw Euclidean", "Cosine", "Best standard distance"} <= set(labels)
    assert "mine, named at length" in labels  # the user's own name is not capitalized
    assert len(labels) == len(wine.document["methods"])


def test_a_block_without_methods_is_left_out(wine):
    assert titles(compare(X, Y, methods="lda", context=False, **QUICK)) == [
        "Learned distances",
        "Standard distances",
    ]
    document = copy.deepcopy(wine.document)
    for method in document["methods"]:
        if method["role"] == "learner":
            method.update(status="failed", reason="no memory")
    broken = Comparison(document)
    assert "Learned distances" not in titles(broken)
    assert "lda failed after" in "".join(broken.failures()).lower()


@pytest.mark.parametrize("wide", [False, True])
def test_each_number_has_its_interval_and_the_head_says_so(wine, wide):
    head, blocks = wine.cells(wide=wide)
    assert head[:5] == ["method", "error (95% CI)", "gain (95% CI)", "adj. p", "folds"]
    assert head[5:] == (["fit s", "MB"] if wide else [])
    (row,) = [cells for _, rows in blocks for m, cells in rows if m["name"] == "raw"]
    entry = next(m for m in wine.document["methods"] if m["name"] == "raw")
    low, high = (100 * end for end in entry["interval"])
    assert row[1] == f"{100 * entry['error']:.1f} ({low:.1f} to {high:.1f})"
    assert row[2].startswith("−") and "-" not in row[2] and row[4] == "10/10"
    if not wide:
        assert max(len(line) for _, line in wine.table_lines()) <= NARROW


def test_labels_are_cut_only_as_far_as_80_characters_need(wine):
    document = copy.deepcopy(wine.document)
    document["methods"][0]["label"] = "x" * 100
    lines = [line for _, line in Comparison(document).table_lines()]
    assert max(map(len, lines)) == NARROW and any("xx.." in line for line in lines)
    assert "Standardized Euclidean" in "".join(lines)
    wide = [line for _, line in Comparison(document).table_lines(wide=True)]
    assert any("x" * 55 in line for line in wide)


def test_the_answer_is_the_last_paragraph_and_stands_nowhere_else(wine):
    text, summary = str(wine), wine.summary_text()
    assert text == f"{summary}\n\n{wine.answer}"
    assert wine.answer not in summary
    notes = summary.split("\n\n")[-1].splitlines()
    assert notes == [f"- {note}" for note in wine.notes()] and notes
    assert summary.startswith("data: 178 rows")
    short = wine.summary_text(data=False)
    assert short == summary.split("\n\n", 1)[1] and short.startswith("Error on held-out rows in")
    none = Comparison(wine.document | {"answer": wine.document["answer"] | {"notes": []}})
    assert not none.summary_text().splitlines()[-1].startswith("- ")


def test_units_stand_above_the_table(wine):
    assert wine.measured_line() == (
        "Error on held-out rows in percent, gain over the baseline in percentage points. "
        "2 × 5-fold, stratified, shuffled, seed 0."
    )


def test_adjusted_p_is_explained_only_where_there_is_one(wine):
    said = "adj. p: one-sided p of the gain, adjusted for the number of methods (Holm)."
    assert said in footnotes(wine.document)
    document = copy.deepcopy(wine.document)
    for method in document["methods"]:
        method["p_holm"] = None
    assert said not in footnotes(document)


def test_the_baseline_is_named_with_its_folds(wine):
    chosen = [
        result["baseline"]
        for method in wine.document["methods"]
        if method["name"] == "reference"
        for result in method["results"]
    ]
    assert set(chosen) == {"standardized"}
    assert (
        "Baseline: the best standard distance, selected within each training fold (standardized "
        "Euclidean in 10 of 10)." in wine.notes()
    )


def test_other_tasks_have_other_blocks_and_the_same_verdicts():
    rows, target = load_diabetes(return_X_y=True)
    values = compare(rows[:150], target[:150], task="regression", methods="pca", **QUICK)
    assert type(values) is ValueComparison
    assert titles(values)[-1] == "Other regressors (for context)"
    assert values.measured_line().startswith("Relative RMSE on held-out rows in percent, gain")
    unlabeled = compare(X, methods="isomap", **QUICK | {"tuning": None})
    assert type(unlabeled) is EmbeddingComparison
    assert titles(unlabeled) == ["Embeddings", "Baselines"]
    assert "gain over PCA in percentage points" in unlabeled.measured_line()
    judged = Pairs.from_labels(Y, n_similar=300, n_dissimilar=300, random_state=0)
    pairs = compare(X, supervision=judged, methods="rca", **QUICK)
    assert type(pairs) is PairComparison
    assert titles(pairs) == ["Learned distances", "Standard distances"]
    assert pairs.cells()[0][1] == "AUC (95% CI)"
    for result in (values, unlabeled, pairs):
        assert result.verdict == result.document["answer"]["verdict"]
        assert result.verdict in ("use", "keep", "inconclusive")
        assert result.answer.lower().startswith(result.verdict)
        assert str(result).endswith(f"\n\n{result.answer}")


def test_of_sets_the_standard_distances_are_those_of_means():
    sets = make_sets(10, 3, 3, sizes=(8, 20), random_state=0)
    result = compare(sets, methods="jeffreys", context=False, **QUICK)
    assert titles(result) == ["Methods for sets", "Standard distances (between means)"]
    assert "Raw means" in str(result) and "learned distance" not in str(result)


@pytest.mark.parametrize(
    ("verdict", "color"), [("use", "32"), ("keep", "36"), ("inconclusive", "33")]
)
def test_on_a_terminal_the_answer_has_the_color_of_its_verdict(wine, verdict, color):
    console = pytest.importorskip("rich.console")
    from nearfar.app.live import show, show_answer

    answer = wine.document["answer"] | {"verdict": verdict}
    result = Comparison(wine.document | {"answer": answer})
    file = io.StringIO()
    terminal = console.Console(file=file, force_terminal=True, width=100)
    show(result, terminal)
    table = file.getvalue()
    assert "Learned distances" in table and f"- {wine.notes()[0][:40]}" in table
    assert wine.answer[:40] not in table
    show_answer(result, terminal)
    shown = file.getvalue()[len(table) :]
    assert shown.startswith(f"\x1b[1;{color}m{wine.answer[:40]}")


def test_numbers_of_the_table_are_those_of_the_document(wine):
    for _, rows in wine.cells()[1]:
        for method, cells in rows:
            assert float(cells[1].split(" ")[0]) == pytest.approx(100 * method["error"], abs=0.051)
            if method["gain"] is not None:
                gain = float(cells[2].split(" ")[0].replace("−", "-"))
                assert gain == pytest.approx(100 * method["gain"], abs=0.051)
                assert np.sign(gain) in (0, np.sign(method["gain"]))
