"""``nearfar methods``: the lists, the cards, and that what they say is true."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine

import nearfar
from nearfar.app import cli
from nearfar.app.cli import main
from nearfar.app.cli import method_list as catalog
from nearfar.app.cli import methods as command
from nearfar.app.cli.method_list import SITUATIONS, find_methods, list_methods
from nearfar.app.compare import pair_methods, set_methods, value_methods
from nearfar.app.compare.methods import DEFAULT, OF_IMAGES, known_estimators
from nearfar.datasets import make_sets
from nearfar.words import format_method_name

METHODS = list_methods()
QUICK = ["--repeats", "1", "--tuning", "k", "--no-context", "--in-process"]
by_method = pytest.mark.parametrize("method", METHODS, ids=lambda one: f"{one.family}-{one.key}")


def run(capsys, *words):
    assert main(["methods", *words]) == 0
    return capsys.readouterr().out


def keys(out):
    """Keys of the lines of a list, and those that are marked."""
    lines = re.findall(r"^([* ]) ([a-z0-9][\w-]*)  +\S", out, re.M)
    return [key for _, key in lines], [key for star, key in lines if star == "*"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the commands of the cards name."""
    folder = tmp_path_factory.mktemp("cards")
    X, y = load_wine(return_X_y=True)
    rows = pd.DataFrame(X[:, :4], columns=list("abcd"))
    rows.to_csv(folder / "rows.csv", index=False)
    rows.assign(price=X[:, 12]).to_csv(folder / "table.csv", index=False)
    ends = np.random.default_rng(0).integers(len(X), size=(200, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    pairs = pd.DataFrame(ends, columns=["left", "right"])
    pairs.assign(same=(y[ends[:, 0]] == y[ends[:, 1]]).astype(int)).to_csv(
        folder / "pairs.csv", index=False
    )
    rng = np.random.default_rng(0)
    frames = [
        [f"u{u:02d}", "aeo"[u % 3], *rng.normal(u % 3, 1 + u % 3, 2)]
        for u in range(30)
        for _ in range(12)
    ]
    columns = ["utterance", "vowel", "f0", "f1"]
    pd.DataFrame(frames, columns=columns).to_csv(folder / "frames.csv", index=False)
    digits = load_digits()
    images = digits.images[:200, ::2, ::2]
    np.savez(folder / "digits.npz", X=images, y=digits.target[:200] % 3)
    return folder


# Lists


@pytest.mark.parametrize("columns", [80, 100])
def test_the_overview_fits_on_one_screen(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = run(capsys)
    lines = out.splitlines()
    assert len(lines) <= 26 and max(map(len, lines)) <= columns
    assert "…" not in out
    assert re.search(r"^  rows with class labels +lda, rca, lmnn$", out, re.M)
    assert re.search(r"^  images with class labels +lda, rca, lmnn, gtda$", out, re.M)
    assert re.search(
        r"^  similar and dissimilar pairs +mmc, logistic-metric, itml, rca$", out, re.M
    )
    assert f"All {len(METHODS)} methods" in out
    for family in {one.family for one in METHODS}:
        size = sum(one.family == family for one in METHODS)
        assert re.search(rf"^  {family} +{size}  \S", out, re.M)


def test_the_commands_of_the_overview_work(capsys):
    for line in re.findall(r"^  nearfar (methods [\w -]+?)  ", run(capsys), re.M):
        assert main(shlex.split(line)) == 0


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
@pytest.mark.parametrize("words", [[], ["--all"], ["--for", "labels"], ["lmnn"], ["margin"]])
def test_no_line_is_wider_than_the_terminal_or_100(capsys, monkeypatch, columns, words):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in run(capsys, *words).splitlines():
        assert len(line) <= min(columns, 100) or line.startswith("  nearfar compare")


def test_all_lists_every_method_once_and_no_tags(capsys):
    out = run(capsys, "--all")
    assert sorted(keys(out)[0]) == sorted([*(one.key for one in METHODS), *["method"] * 10])
    assert {format_method_name(name) for name in known_estimators()} <= set(keys(out)[0])
    assert set(set_methods.SET_METHODS) <= set(keys(out)[0])
    assert "[" not in out and "supervision" not in out
    assert f"{len(METHODS)} methods." in out


@pytest.mark.parametrize(
    ("situation", "default"),
    [
        ("labels", DEFAULT),
        ("pairs", (*pair_methods.DEFAULT, "RCA")),
        ("groups", ("RCA",)),
        ("number", value_methods.DEFAULT),
        ("sets", set_methods.DEFAULT),
        ("images", (*DEFAULT, OF_IMAGES)),
    ],
)
def test_what_compare_tries_is_marked(capsys, situation, default):
    out = run(capsys, "--for", situation)
    listed, marked = keys(out)
    standard = {one.key for one in METHODS if one.output == "distance"}
    assert set(marked) - standard == {format_method_name(name) for name in default}
    assert set(listed) == {one.key for one in METHODS if situation in one.situations}
    assert SITUATIONS[situation][0] in out and SITUATIONS[situation][1] in out


@pytest.mark.parametrize("n_rows", [60, 2_000, 8_000, 100_000])
def test_embeddings_that_compare_tries_are_marked_for_any_number_of_rows(n_rows):
    from nearfar.app.compare.embeddings import embedding_methods

    tried = {one.name for one in embedding_methods(n_train=n_rows)}
    assert tried <= set(catalog.default_methods()["nothing"])


def test_situations_are_those_of_the_tags():
    found = {one.key: set(one.situations) for one in METHODS}
    assert found["lda"] == {"labels", "images"} and found["itml"] == {"labels", "pairs"}
    assert found["rca"] == {"labels", "pairs", "groups", "images"}
    assert found["mlkr"] == {"number"} and found["isomap"] == {"nothing"}
    assert found["gtda"] == {"images"} and found["hellinger"] == {"sets"}
    assert all(set(one.default_for) <= set(one.situations) for one in METHODS)
    assert all(one.situations for one in METHODS)


def test_the_parser_and_the_families_know_all_there_is():
    assert tuple(SITUATIONS) == command._FOR and set(SITUATIONS) == set(command._NOTES)
    assert {one.family for one in METHODS} == set(catalog.FAMILIES)
    assert {one.result for one in METHODS} == set(command._HEADINGS)
    for words, option in SITUATIONS.values():
        assert words
        line = f"compare a.csv {option}".replace("HxW", "8x8")
        cli._parser().parse_args(line.split())


def test_a_learner_of_another_package_is_listed(capsys, monkeypatch):
    class WithinScale(nearfar.LDA):
        """Each feature divided by its spread."""

    WithinScale.__module__ = "ourdistances.scale"
    every = known_estimators() | {"WithinScale": WithinScale}
    monkeypatch.setattr(catalog, "known_estimators", lambda: every)
    out = run(capsys, "--all")
    assert out.index("package ourdistances") > out.index("\nstandard\n")
    assert re.search(r"^  within-scale  labels  Each feature divided by its spread$", out, re.M)
    assert "from ourdistances.scale import WithinScale" in run(capsys, "withinscale")
    assert re.search(r"^  package ourdistances +1 ", run(capsys), re.M)


# Queries


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("large margin", {"lmnn", "kernel-lmnn", "multi-metric-lmnn"}),
        ("eigenmaps", {"laplacian-eigenmaps", "hessian-lle"}),
        ("Laplacian", {"laplacian-eigenmaps", "laplacian-embedding"}),
        ("large_margin", {"energy-classifier"}),
    ],
)
def test_a_query_searches_names_summaries_and_families(query, expected):
    assert {one.key for one in find_methods(query, None)} == expected


def test_a_query_and_a_situation_select_both(capsys):
    assert {one.key for one in find_methods("kernel", "groups")} == {"kernel-rca"}
    assert keys(run(capsys, "kernel", "--for", "groups"))[0] == ["kernel-rca"]


@pytest.mark.parametrize("query", ["lmnn", "LMNN", "Lmnn"])
def test_a_name_prints_a_card(capsys, query):
    out = run(capsys, query)
    assert out.startswith("LMNN\n  Large margin nearest")
    for text in ("labels or triplets", "linear map", "n_neighbors=3", "Weinberger", "mahalanobis"):
        assert text in out
    assert "nearfar compare wine --methods lmnn" in out and "LMNN().fit(X, y)" in out
    assert "yes: nearfar compare tries it for labels, images" in out


def test_an_alias_prints_the_card_of_its_method(capsys):
    out = run(capsys, "scythe")
    assert out.startswith("FriedmanClassifier\n") and "scythe (variant='scythe')" in out
    assert "no: nearfar compare tries it only if you name it" in out


def test_a_name_of_two_methods_prints_both_cards(capsys):
    """For rows, mvem is MVEMClassifier; for sets, an embedding before it."""
    out = run(capsys, "mvem")
    assert re.search(r"^MVEMClassifier$", out, re.M) and re.search(r"^mvem$", out, re.M)
    assert run(capsys, "mvem", "--for", "sets") in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lmm"], "No method matches 'lmm'. Did you mean lmnn"),
        (["lmnn", "--for", "sets"], "No method for sets of vectors with labels matches 'lmnn'."),
        (["discriminant", "--for", "number"], "See: nearfar methods discriminant"),
        (["nonsense", "--for", "sets"], "No method matches 'nonsense'."),
    ],
)
def test_no_match_is_an_error_with_a_suggestion(capsys, words, message):
    assert main(["methods", *words]) == 2
    assert message in capsys.readouterr().err


# JSON


def test_json_has_the_same_selection(capsys):
    everything = json.loads(run(capsys, "--json"))
    assert [one["key"] for one in everything] == [one.key for one in METHODS]
    (lmnn,) = json.loads(run(capsys, "lmnn", "--json"))
    assert lmnn in everything
    parameters = lmnn.pop("parameters")
    assert parameters == nearfar.LMNN().get_params()
    assert lmnn.pop("summary").startswith("Large margin nearest")
    assert lmnn == {
        "key": "lmnn",
        "class": "LMNN",
        "aliases": [],
        "family": "mahalanobis",
        "supervision": ["labels", "triplets"],
        "input": "vectors",
        "output": "map",
        "linear": True,
        "for": ["labels", "pairs", "images"],
        "default_for": ["labels", "images"],
    }
    sets = json.loads(run(capsys, "--for", "sets", "--json"))
    assert {"hellinger", "emd", "mean-raw"} <= {one["key"] for one in sets}
    assert all("sets" in one["for"] for one in sets)


# What the cards say


@by_method
def test_every_card_is_complete(capsys, monkeypatch, method):
    monkeypatch.setenv("COLUMNS", "100")
    out = command._card(method)
    assert out in run(capsys, method.key)
    assert method.summary.split()[0] in out and "`" not in out and ":math:" not in out
    for line in method.command_lines():
        assert f"  {line}\n" in f"{out}\n"
        cli._parser().parse_args(shlex.split(line)[1:])
    for line in method.python_lines():
        assert f"  {line}\n" in f"{out}\n"
    assert ("Parameters" in out) == bool(method.parameters)
    assert ("Reference" in out) == bool(method.reference)


def test_every_citation_has_a_year_and_ends_with_it():
    cited = [one for one in METHODS if one.estimator is not None and one.key != "euclidean"]
    for one in cited:
        assert re.search(r"\b(19|20)\d\d\b", one.reference) and one.reference.endswith(".")
        assert "It prints" not in one.reference


@pytest.mark.by_turns(12)
@by_method
def test_the_command_lines_work(folder, tmp_path, monkeypatch, capsys, method):
    monkeypatch.chdir(folder)
    if method.key in ("emd", "dtw"):
        pytest.importorskip("ot" if method.key == "emd" else "tslearn")
    for line in method.command_lines():
        words = [f"{w}.npz" if w == "digits" else w for w in shlex.split(line)[1:]]
        words = [str(tmp_path / w) if w == "model.nf" else w for w in words]
        if words[0] == "compare":
            words += [*QUICK, "--json", str(tmp_path / "a.json")]
        if words[0] in ("compare", "embed"):
            words += ["--out", str(tmp_path / "a.html"), "--force"]
        assert main(words) == 0
        if words[0] == "compare":
            document = json.loads((tmp_path / "a.json").read_text())
            done = {one["name"]: one["status"] for one in document["methods"]}
            assert done[method.key] == "done"
    capsys.readouterr()


@pytest.mark.by_turns(12)
@by_method
def test_the_python_lines_work(monkeypatch, method):
    X, y = load_wine(return_X_y=True)
    digits = load_digits()
    sets = make_sets(random_state=0)
    points = np.stack([X[:60], X[60:120]], axis=1)[:, :, :4]
    names = {
        "X": X[::3, :4],
        "y": X[::3, 12] if "number" in method.supervision else y[::3],
        "images": digits.images[:90, ::2, ::2],
        "sets": sets,
        "labels": sets.labels,
        "pairs": points,
        "signs": np.where(np.arange(60) % 2, 1, -1),
    }
    if method.input == "images":
        names["y"] = digits.target[:90] % 3
    if method.key in ("emd", "dtw"):
        pytest.importorskip("ot" if method.key == "emd" else "tslearn")
    if method.estimator is None:
        quick = {"repeats": 1, "tuning": "k", "context": False, "isolate": False, "verbose": False}
        compare = nearfar.compare
        monkeypatch.setattr(
            nearfar,
            "compare",
            lambda *data, **more: (
                compare(*data, **({"methods": "lda"} | more), **quick)
                if method.input == "vectors"
                else compare(*data, **({"methods": "riemann"} | more), **quick)
            ),
        )
    *imports, last = method.python_lines()
    exec("\n".join(imports), names)
    assert len(eval(last, names)) > 0
    used = set(re.findall(r"\b(X|y|images|sets|labels|pairs|signs)\b", last))
    assert used == set(
        re.findall(r"\b(X|y|images|sets|labels|pairs|signs):", method.python_names())
    )
