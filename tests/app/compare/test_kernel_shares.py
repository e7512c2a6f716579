"""Learned kernels in a comparison: what they are made of, in words and as a picture."""

import json

import numpy as np
import pandas as pd
import pytest
import report_documents
from sklearn.datasets import load_wine
from sklearn.pipeline import Pipeline

from nearfar import (
    AlignmentKernelLearner,
    AverageKernelLearner,
    EasyMKL,
    KernelDA,
    MarginKernelLearner,
    MKLClassifier,
    compare,
    load,
)
from nearfar.app.cli import main
from nearfar.app.compare.comparison import footnotes
from nearfar.app.compare.kernel_shares import kernels_line, kernels_of, over_folds
from nearfar.app.compare.methods import learners
from nearfar.app.report import render
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.kernels import kernels_view

QUICK = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}


def frame():
    wine = load_wine(as_frame=True)
    rows = wine.data.iloc[::2, [0, 6, 9, 12]].reset_index(drop=True)
    return rows, np.array(["a", "b", "c"])[wine.target[::2]]


@pytest.fixture(scope="module")
def document():
    rows, labels = frame()
    views = ["linear", ("rbf", {"columns": [0, 1]}), ("rbf", {"columns": [2]})]
    tried = {
        "aligned": AlignmentKernelLearner(views),
        "machine": MKLClassifier(MarginKernelLearner(views)),
        "mkl-classifier": MKLClassifier(),
    }
    return compare(rows, labels, methods=tried, **QUICK).document


def test_the_room_is_a_family_with_classifiers_for_context():
    found = {one.name: one.role for one in learners("kernels")}
    assert found["alignment-kernel-learner"] == found["easy-mkl"] == "learner"
    assert found["mkl-classifier"] == found["conformal-svc"] == "context"


def test_shares_of_all_folds_are_kept_with_the_gap(document):
    found = document["kernels"]
    assert set(found) == {"aligned", "machine", "mkl-classifier"}
    assert found["machine"]["names"][2].endswith(" of x2")
    assert len(found["mkl-classifier"]["names"]) == 10
    for one in found.values():
        assert np.shape(one["shares"]) == (5, len(one["names"]))
        np.testing.assert_allclose(np.sum(one["shares"], axis=1), 1, atol=1e-3)
    assert 0 < found["machine"]["gap"] <= 1e-3
    json.dumps(document)
    assert "kernels" not in document["methods"][0]["results"][0]  # not twice


def test_below_the_table_kernels_stand_in_words(document):
    lines = [line for line in footnotes(document) if line.startswith("Kernels of ")]
    assert len(lines) == 3
    assert all("%" in line and " %" not in line and "optimum." in line for line in lines)


def test_the_page_draws_them(document):
    page = render(document)
    section = page.partition('id="kernels"')[2].partition("</section>")[0]
    assert section.count("<details") == 3
    assert section.count('class="row"') == 3 + 3 + 10
    assert "% of the optimum" in section
    assert '<a href="#kernels">Kernels</a>' in page
    assert 'id="kernels"' not in render(report_documents.wine())


def test_what_is_no_table_of_shares_is_not_drawn(document):
    for wrong in (None, {"names": ["a"], "shares": [["text"]]}, {"names": [], "shares": []}):
        assert kernels_view(Comparison(document | {"kernels": {"aligned": wrong}})) is None


def test_a_kernel_method_shows_the_kernel_that_it_learns():
    rows, labels = frame()
    chain = Pipeline([("learner", KernelDA(kernel=AlignmentKernelLearner(["linear", "rbf"])))])
    found = kernels_of(chain.fit(rows, labels))
    assert found["names"][0] == "linear" and sum(found["shares"]) == pytest.approx(1, abs=1e-3)
    assert kernels_of(Pipeline([("learner", KernelDA())]).fit(rows, labels)) is None


def test_folds_with_other_kernels_are_left_out():
    folds = [
        {"names": ["direction 0", "direction 1"], "shares": [0.5, 0.5], "gap": None},
        {"names": ["direction 0"], "shares": [1.0], "gap": 0.1},
    ]
    found = over_folds(folds)
    assert found["shares"] == [[0.5, 0.5]] and found["gap"] is None
    assert kernels_line("It", found) == "Kernels of It: direction 0 50%, direction 1 50%."


@pytest.mark.slow
def test_commands_take_the_room(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows, labels = frame()
    rows.assign(kind=labels).to_csv("t.csv", index=False)
    rows.to_csv("new.csv", index=False)
    for method in ("mkl-classifier", "margin-kernel-learner"):
        fit = ["fit", "t.csv", "--target", "kind", "--method", method, "--save", f"{method}.nf"]
        assert main(fit) == 0
        assert main(["predict", f"{method}.nf", "new.csv", "--out", f"{method}.csv"]) == 0
        said = pd.read_csv(f"{method}.csv")
        assert np.mean(said["label"] == labels) > 0.8
    assert main(["transform", "margin-kernel-learner.nf", "new.csv", "--out", "map.csv"]) == 0
    assert len(pd.read_csv("map.csv")) == len(rows)
    assert main(["neighbors", "margin-kernel-learner.nf", "new.csv", "--out", "near.csv"]) == 0
    capsys.readouterr()


def test_a_learner_may_be_named_as_a_parameter(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows, labels = frame()
    rows.assign(kind=labels).to_csv("t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "kind", "--force", "--save", "m.nf", "--scale", "standard"]
    assert main([*fit, "--method", "mkl", "--set", "estimator=easy-mkl"]) == 0
    assert isinstance(load("m.nf")["learner"].estimator_, EasyMKL)
    named = ["--method", "kernel-da", "-k", "3", "--set"]
    assert main([*fit, *named, "kernel=average-kernel-learner"]) == 0
    assert isinstance(load("m.nf")["learner"].kernel_, AverageKernelLearner)
    assert main([*fit, *named, "kernel=linear"]) == 0  # a text that it takes stays one
    assert load("m.nf")["learner"].kernel == "linear"
    for wrong in ("kernel=lda", "kernel=mars"):
        assert main([*fit, *named, wrong]) != 0
        assert "kernel must be" in capsys.readouterr().err
