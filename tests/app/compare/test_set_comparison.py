"""``compare`` on sets of vectors: what is compared, and that nothing of the test side is used."""

import io
import re
import warnings
from contextlib import redirect_stdout
from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from nearfar import BagOfWords, Gaussians, SetEmbedding, SetKNeighborsClassifier, Sets, compare
from nearfar.app.compare import set_methods
from nearfar.app.compare.folds import Problem, predict_all_k, run_fold
from nearfar.app.compare.kinds import sets as module
from nearfar.app.compare.question import Question
from nearfar.app.compare.set_pictures import (
    ellipses_of,
    picture_of_sets,
    plane_words,
    principal_plane,
)
from nearfar.app.compare.shared_pairs import FoldPairs
from nearfar.datasets import make_sets
from nearfar.distributions import dissimilarity
from nearfar.evaluation.measures import Measure

QUICK = {"cv": 3, "repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
# Enough for a verdict.
FIVE = QUICK | {"cv": 5}


@pytest.fixture(scope="module")
def sets():
    made = make_sets(12, 3, 3, sizes=(8, 20), means=0.6, random_state=0)
    return Sets(made.X, made.offsets, made.labels, [f"u{i}" for i in range(36)])


def errors_of(result):
    return {method["name"]: method["error"] for method in result.document["methods"]}


# ---------------------------------------------------------------------- leakage


def test_a_speaker_on_both_sides_would_show():
    """Speakers are easily known and have one label each: only leakage tells the label."""
    random = np.random.default_rng(0)
    places = 20 * random.normal(size=(12, 3))
    speaker = np.repeat(np.arange(12), 5)
    y = (speaker % 2).astype(int)
    sets = Sets.from_list([places[s] + random.normal(size=(15, 3)) for s in speaker])
    methods = ["bhattacharyya_riemann", "set-embedding", "bag-of-words"]
    apart = errors_of(compare(sets, y, groups=speaker, methods=methods, **FIVE))
    mixed = errors_of(compare(sets, y, methods=methods, **FIVE))
    assert all(error <= 0.15 for error in mixed.values()), mixed
    assert all(error >= 0.3 for error in apart.values()), apart


def test_labels_that_mean_nothing_are_guessed_at_random():
    made = make_sets(60, 1, 3, sizes=(6, 12), random_state=0)
    y = np.random.default_rng(1).permutation(np.arange(60) % 2)
    methods = ["riemann", "hellinger", "embedding-svm", "bag-of-words"]
    result = compare(made, y, methods=methods, **(QUICK | {"tuning": "holdout"}))
    assert all(0.3 <= error <= 0.7 for error in errors_of(result).values())


def test_what_is_learned_is_learned_from_training_sets_alone(sets, monkeypatch):
    """Neither the ridge, nor the scaling, nor the words of a codebook see a set of the other side;
    inside a fold the speakers that choose k and ridge are not those that vote."""
    seen = []
    given = FoldPairs.given

    def watched_given(self, setting, train, test):
        seen.append((sets.names[train].tolist(), sets.names[test].tolist()))
        return given(self, setting, train, test)

    auto = []
    made = Gaussians.from_sets.__func__

    def watched_ridge(cls, given, ridge="auto", **options):
        if ridge == "auto":
            auto.append(set(given.names.tolist()))
        return made(cls, given, ridge, **options)

    monkeypatch.setattr(FoldPairs, "given", watched_given)
    monkeypatch.setattr(Gaussians, "from_sets", classmethod(watched_ridge))
    monkeypatch.setattr(module, "picture_of_sets", lambda *_, **__: {})
    words = []
    codebook = BagOfWords.fit

    def watched_words(self, X, y=None):
        words.append(set(X.names.tolist()))
        return codebook(self, X, y)

    monkeypatch.setattr(BagOfWords, "fit", watched_words)
    groups = np.arange(36) % 9
    speaker = {f"u{i}": i % 9 for i in range(36)}
    chosen = ["riemann", "set-embedding", "bag-of-words"]
    options = QUICK | {"tuning": "holdout"}
    result = compare(sets, sets.labels, groups=groups, methods=chosen, **options)
    assert len(seen) > 20
    for trained, tested in seen:
        assert not {speaker[name] for name in trained} & {speaker[name] for name in tested}
    every = {f"u{i}" for i in range(36)}
    sides = [every - {f"u{row}" for row in fold["test"]} for fold in result.document["folds"]]
    for known in [*auto, *words]:
        assert any(known <= side for side in sides)
    # The ridge of a fold is found once for each scaling, whatever the method and the split inside.
    assert len(auto) == 3 * 2 and len(words) >= 10


def test_the_ridge_and_k_are_chosen_inside_the_training_sets(sets):
    """Other labels on the test side change neither what is chosen nor the error inside."""
    train, test = np.arange(0, 36, 2), np.arange(1, 36, 2)
    chosen = []
    for seed in (0, 1):
        codes = sets.labels.astype(np.intp).copy()
        codes[test] = np.random.default_rng(seed).permutation(codes[test])
        problem = Problem(
            sets, np.arange(3), codes, "passthrough", Measure("error", "accuracy", "")
        )
        method = set_methods.set_learners("riemann")[0]
        found = run_fold(problem, method, train, test, "full")
        chosen.append((found["setting"], found["k"], found["inner_error"]))
        assert len(method.settings) == 4
    assert chosen[0] == chosen[1]


# ---------------------------------------------------------------------- what is compared


def test_neighbors_vote_as_the_classifier_of_sets_does(sets):
    train, test = np.arange(0, 36, 2), np.arange(1, 36, 2)
    codes = sets.labels.astype(np.intp)
    problem = Problem(sets, np.arange(3), codes, "passthrough", Measure("error", "accuracy", ""))
    setting = set_methods.set_learners("jeffreys")[0].settings[1]
    found = predict_all_k(problem, setting, train, test)
    for k in (1, 3, 4, 7):
        knn = SetKNeighborsClassifier(k, metric="jeffreys", standardize=True, ridge=0.01)
        expected = knn.fit(sets[train], codes[train]).predict(sets[test])
        assert found.codes[:, k - 1].tolist() == expected.tolist()
        shares = knn.predict_proba(sets[test])
        assert np.allclose(found.shares(k - 1), shares)


def test_classes_that_differ_in_spread_only_are_told_apart_by_dissimilarities_only():
    made = make_sets(20, 2, 2, sizes=(25, 40), means=0.0, covariances=1.2, random_state=3)
    result = compare(made, **(QUICK | {"repeats": 3}), methods=["riemann", "bhattacharyya"])
    errors = errors_of(result)
    assert errors["reference"] > 0.4 and errors["riemann"] < 0.15
    assert result.document["answer"]["verdict"] == "use"
    assert result.best in ("riemann", "bhattacharyya")
    assert result.document["picture"]["metric"] == result.best


@pytest.mark.parametrize(
    ("name", "by_group"),
    [("embedding-svm", True), pytest.param("riemann", False, marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore")
def test_the_lines_repeat_the_error(name, by_group):
    sizes = (20, 30) if by_group else (25, 40)
    n = 30 if by_group else 20
    made = make_sets(n, 2, 2, sizes=sizes, means=0.0, covariances=1.2, random_state=3)
    groups = np.arange(60) // 2 if by_group else None
    options = FIVE | {"tuning": "holdout"}
    knn = partial(SetKNeighborsClassifier, metric="riemann")
    # Two of the four settings that the name stands for.
    methods = name if by_group else {name: [knn(standardize=True, ridge=0.1), knn()]}
    result = compare(made, made.labels, groups=groups, methods=methods, **options)
    assert result.best == name
    said = io.StringIO()
    with redirect_stdout(said):
        exec(result.code, {"X": made, "y": made.labels, "groups": groups})
    assert float(said.getvalue()) == pytest.approx(errors_of(result)[name], abs=1e-12)


class Largest(ClassifierMixin, BaseEstimator):
    """By the number of vectors."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.middle_ = np.median(X.sizes)
        return self

    def predict(self, X):
        return self.classes_[(X.sizes > self.middle_).astype(int)]


def test_estimators_of_ones_own_are_compared():
    random = np.random.default_rng(0)
    y = np.arange(30) % 2
    sets = Sets.from_list([random.normal(size=(5 + 5 * label, 2)) for label in y])
    methods = {
        "largest": Largest(),
        "mine": [SetEmbedding(3), SetEmbedding(4)],
        "svm": make_pipeline(SetEmbedding(3), SVC()),
        "knn": SetKNeighborsClassifier(metric="hellinger"),
    }
    result = compare(sets, y, methods=methods, **FIVE)
    assert errors_of(result)["largest"] == 0 and result.best == "largest"
    assert {"mine", "svm", "knn"} <= set(errors_of(result))
    ks = [r["k"] for m in result.document["methods"] if m["name"] == "knn" for r in m["results"]]
    assert all(isinstance(k, int) for k in ks)
    # No dissimilarity belongs to it: the picture takes d_BR.
    assert result.document["picture"]["metric"] == "bhattacharyya_riemann"
    assert result.document["picture"]["method"] is None


def test_worker_processes_give_the_same_numbers(sets):
    alone = compare(sets, methods="hellinger", **QUICK)
    apart = compare(sets, methods="hellinger", **(QUICK | {"isolate": True}))
    assert errors_of(alone) == errors_of(apart)
    peaks = [m["peak_mb"] for m in apart.document["methods"] if m["role"] == "learner"]
    assert all(peak is not None and peak < 200 for peak in peaks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": None, "plain": True}, "the sets have no labels"),
        ({"groups": [1, 2]}, "X has 36 sets, but groups has 2"),
        ({"methods": "lda"}, "LDA takes vectors, and these are sets"),
        ({"methods": []}, "methods is empty"),
        ({"methods": {"majority": Largest()}}, "which a baseline has"),
        ({"methods": {"many": [Largest()] * 5}}, "has 5 settings; give 1 to 4"),
        ({"scale": "unit"}, "auto, none or standard"),
        ({"drop": ["f0"]}, "Sets.from_frame"),
        ({"y": ["a"] * 36}, "one class only"),
    ],
)
def test_bad_input_is_refused_by_name(sets, options, message):
    given = Sets(sets.X, sets.offsets) if options.pop("plain", False) else sets
    with pytest.raises(ValueError, match=message):
        compare(given, **(QUICK | options))


def test_scale_fixes_the_standardising(sets):
    for scale, expected in (("none", {False}), ("standard", {True})):
        for method in set_methods.set_learners("riemann,embedding-svm,bag-of-words", scale):
            found = [
                value
                for setting in method.settings
                for key, value in setting.estimator.get_params().items()
                if key.endswith(("standardize", "bagofwords__scale"))
            ]
            assert set(found) == expected, method.name
    both = {s.estimator.standardize for s in set_methods.set_learners("riemann")[0].settings}
    assert both == {True, False}


def test_every_named_method_runs(sets):
    names = [name for name, method in set_methods.SET_METHODS.items() if method.needs is None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = compare(sets, methods="distributions", **QUICK)
    done = {m["name"]: m["status"] for m in result.document["methods"]}
    assert {done[name] for name in names} == {"done"}
    errors = errors_of(result)
    assert all(errors[name] < 0.4 for name in names), errors


@pytest.mark.parametrize(
    ("name", "package"), [("emd", "ot"), pytest.param("dtw", "tslearn", marks=pytest.mark.slow)]
)
def test_distances_of_vectors_run_where_their_package_is(name, package, sets, monkeypatch):
    pytest.importorskip(package)
    result = compare(sets[::2], methods=name, **QUICK)
    assert errors_of(result)[name] < 0.5
    assert result.best == "reference" or "VectorDistanceNeighbors" in result.code


def test_a_missing_package_is_named_at_once(sets, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ot", None)
    with pytest.raises(ImportError, match=r"nearfar\[ot\]"):
        compare(sets, methods="emd", **QUICK)


def test_copies_of_sets_and_short_sets_are_warned_of(sets):
    doubled = Sets.concatenate([sets, sets])
    doubled = Sets(doubled.X, doubled.offsets, doubled.labels)
    result = compare(doubled, methods="hellinger", **QUICK)
    (copies,) = [w["text"] for w in result.document["warnings"] if w["kind"] == "duplicates"]
    assert "tested sets have an exact copy among their training sets (sets " in copies
    assert re.search(r"\(sets \d+ = \d+, ", copies)
    # By their names, unless these are to be kept out.
    named = Sets(doubled.X, doubled.offsets, doubled.labels, [f"u{i}" for i in range(72)])
    for show_rows, words in ((True, r"\(sets u\d+ = u\d+, "), (False, r"\(sets \d+ = \d+, ")):
        kind = module.SetKind(Question(named, show_rows=show_rows))
        kind.read()
        kind.prepare()
        (copies,) = kind.warnings(kind.splits(1))
        assert re.search(words, copies.text)
    short = make_sets(10, 2, 6, sizes=(2, 4), random_state=0)
    result = compare(short, methods="hellinger", **QUICK)
    assert any("no more vectors than the 6" in w["text"] for w in result.document["warnings"])


# ---------------------------------------------------------------------- the picture


def test_ellipses_are_the_gaussians_in_the_plane(sets):
    gaussians = Gaussians.from_sets(sets, 0.3)
    D = dissimilarity(gaussians, metric="hellinger")
    found = ellipses_of(gaussians, sets, D)
    # The covariance of projected vectors, by numpy.
    values, vectors = np.linalg.eigh(np.cov(sets.X.T))
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    centre = sets.X.mean(axis=0)
    for k in (0, 17):
        flat = (sets[k] - centre) @ axes
        S = np.cov(flat.T) + 0.3 * np.eye(2)
        expected = [*flat.mean(axis=0), S[0, 0], S[0, 1], S[1, 1]]
        assert found["ellipses"][k] == pytest.approx(expected, abs=1e-9)
        others = np.delete(np.arange(36), k)
        near = others[np.argsort(D[k, others], kind="stable")[:5]]
        assert found["neighbors"][k].tolist() == near.tolist()
        assert found["dissimilarities"][k] == pytest.approx(D[k, near])
    assert found["plane"] == pytest.approx(values[::-1][:2] / values.sum())
    assert "hold" in plane_words(found["plane"], False)


def test_ellipses_of_low_rank_storage_are_the_same():
    wide = make_sets(5, 2, 40, sizes=(4, 6), random_state=0)
    pair = [Gaussians.from_sets(wide, 0.2, storage=way) for way in ("dense", "low_rank")]
    assert pair[1].factors is not None
    D = dissimilarity(pair[0])
    dense, thin = (ellipses_of(one, wide, D)["ellipses"] for one in pair)
    assert thin == pytest.approx(dense, abs=1e-8)


def test_one_feature_and_one_place_have_a_plane():
    for rows in (np.arange(5.0)[:, None], np.zeros((4, 3))):
        axes, shares = principal_plane(rows)
        assert np.isfinite(axes).all() and np.isfinite(shares).all() and shares.sum() <= 1 + 1e-12
    thin = make_sets(6, 2, 1, random_state=0)
    picture = picture_of_sets(thin, None)
    assert np.isfinite(np.array(picture["coordinates"])).all()
    assert np.array(picture["ellipses"])[:, [1, 3, 4]] == pytest.approx(0, abs=1e-12)


def test_many_sets_are_drawn_in_part(monkeypatch):
    monkeypatch.setattr("nearfar.app.compare.set_pictures._MOST_SETS", 20)
    monkeypatch.setattr("nearfar.app.compare.set_pictures._FEW_SETS", 20)
    made = make_sets(20, 3, 2, random_state=0)
    picture = picture_of_sets(made, None, seed=1)
    assert len(picture["rows"]) == len(picture["ellipses"]) == 20 and picture["n_rows"] == 60
    assert picture["rows"] == picture_of_sets(made, None, seed=1)["rows"]
    assert np.max(picture["neighbors"]) < 20
    hidden = picture_of_sets(made, None, seed=1, show_rows=False)
    assert hidden["ellipses"] is None and hidden["names"] is None


def test_a_picture_that_fails_leaves_the_comparison(sets, monkeypatch):
    def fail(*_, **__):
        raise ValueError("too far apart")

    monkeypatch.setattr(module, "picture_of_sets", fail)
    result = compare(sets, methods="hellinger", **QUICK)
    assert result.document["picture"] is None
    assert any("could not be drawn: too far" in w["text"] for w in result.document["warnings"])
    pytest.importorskip("jinja2")
    from nearfar.app.report import render

    assert "There is no map" in render(result.document)


def test_the_page_of_a_learner_fitted_in_python(sets, tmp_path):
    pytest.importorskip("jinja2")
    from nearfar.app.embed import write_embedding

    learner = SetEmbedding(3, metric="jeffreys", standardize=True).fit(sets)
    chain = make_pipeline(learner, SVC()).fit(sets, sets.labels)
    for one, given in ((learner, {"color": sets.labels}), (chain, {})):
        page = write_embedding(one, sets, tmp_path / "p.html", name="mine", force=True, **given)
        text = page.read_text("utf-8")
        assert "SetEmbedding drew 36 sets in 3 dimensions" in text
        assert "Jeffreys&#39; divergence" in text and "all standardized vectors" in text
    with pytest.raises(ValueError, match="fitted to 36"):
        write_embedding(learner, sets[:10], tmp_path / "q.html")
    with pytest.raises(ValueError, match="color has 3 values for 36 sets"):
        write_embedding(learner, sets, tmp_path / "q.html", color=[1, 2, 3])
    with pytest.raises(ValueError, match="no SetEmbedding"):
        write_embedding(SetKNeighborsClassifier(), sets, tmp_path / "q.html")
