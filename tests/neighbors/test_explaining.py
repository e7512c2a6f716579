"""Explanations of KNNClassifier: features and neighbors behind a label, with one metric."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

import nearfar
from nearfar import KNNClassifier

X, y = load_wine(return_X_y=True)
NEW, NEW_Y = X[::9], y[::9]
KNOWN = np.delete(X, np.s_[::9], axis=0)
KNOWN_Y = np.delete(y, np.s_[::9])


def by_hand(M, rows, queries, k):
    """Compute neighbors, contributions and relevances with loops."""
    found = []
    for x in queries:
        gaps = [row - x for row in rows]
        squares = [float(gap @ M @ gap) for gap in gaps]
        order = sorted(range(len(rows)), key=lambda i: (squares[i], i))[:k]
        parts = [[gaps[i][j] * (M[j] @ gaps[i]) for j in range(len(x))] for i in order]
        found.append((order, [squares[i] for i in order], parts))
    costs = np.array([M[j, j] * rows[:, j].var() for j in range(rows.shape[1])])
    return found, costs / costs.sum()


def agree(why, M, rows, queries, k, rtol=1e-8):
    found, shares = by_hand(M, rows, queries, k)
    np.testing.assert_allclose(why.relevance, [shares] * len(queries), rtol=rtol)
    np.testing.assert_allclose(why.overall, shares, rtol=rtol)
    for i, (order, squares, parts) in enumerate(found):
        assert why.neighbors[i].tolist() == order
        np.testing.assert_allclose(why.contributions[i], parts, rtol=rtol, atol=rtol * squares[-1])
        np.testing.assert_allclose(why.contributions[i].sum(axis=1), squares, rtol=rtol)
    np.testing.assert_allclose(why.distances**2, why.contributions.sum(axis=2), rtol=1e-6)


def test_the_plain_distance():
    knn = KNNClassifier(n_neighbors=5).fit(KNOWN, KNOWN_Y)
    why = knn.explain(NEW)
    agree(why, np.eye(13), KNOWN, NEW, 5)
    np.testing.assert_array_equal(why.labels, knn.predict(NEW))
    np.testing.assert_array_equal(why.neighbors, knn.kneighbors(NEW)[1])
    np.testing.assert_array_equal(why.neighbor_labels, KNOWN_Y[why.neighbors])
    assert why.feature_names[:2] == ["x0", "x1"]
    assert why.sentence(0).endswith(
        "x12 carries over 99% of the metric, which is the same for all rows"
    )


@pytest.mark.parametrize("name", ["LDA", "RCA", "NCA", "LFDA", "PCA"])
def test_a_linear_learner_in_the_units_of_the_features(name):
    learner = getattr(nearfar, name)()
    knn = KNNClassifier(learner, n_neighbors=4).fit(KNOWN, KNOWN_Y)
    L = knn.estimator_.components_
    agree(knn.explain(NEW), L.T @ L, KNOWN, NEW, 4, rtol=1e-6)


def test_scaling_inside_does_not_hide_the_features():
    chain = make_pipeline(StandardScaler(), nearfar.LDA())
    knn = KNNClassifier(chain, n_neighbors=3).fit(KNOWN, KNOWN_Y)
    L = knn.estimator_[1].components_ / KNOWN.std(axis=0)
    agree(knn.explain(NEW), L.T @ L, KNOWN, NEW, 3, rtol=1e-6)
    whitened = SklearnPCA(4, whiten=True)
    knn = KNNClassifier(whitened, n_neighbors=3).fit(KNOWN, KNOWN_Y)
    found = knn.estimator_
    L = found.components_ / np.sqrt(found.explained_variance_)[:, None]
    agree(knn.explain(NEW), L.T @ L, KNOWN, NEW, 3, rtol=1e-6)


def test_contributions_are_of_the_features_not_of_the_map():
    # The transformed differences alone cannot be attributed to p features if q < p.
    knn = KNNClassifier(nearfar.LDA(), n_neighbors=3).fit(KNOWN, KNOWN_Y)
    assert knn._points.shape[1] == 2
    assert knn.explain(NEW).contributions.shape == (len(NEW), 3, 13)


def test_names_come_from_the_table():
    wine = load_wine(as_frame=True)
    knn = KNNClassifier(nearfar.LDA(), n_neighbors=5).fit(wine.data, wine.target)
    why = knn.explain(wine.data[:2])
    assert why.feature_names == list(wine.data)
    first = why.top(0, 1)[0][0]
    assert first == list(wine.data)[int(why.overall.argmax())]
    assert why.sentence(0).startswith(f"row 0 is 0 by 5 of 5; {first}")


@pytest.mark.parametrize(
    "learner",
    [
        nearfar.KernelPCA(3),
        nearfar.Isomap(2),
        Normalizer(),
        make_pipeline(Normalizer(), nearfar.LDA()),
        make_pipeline(StandardScaler(), nearfar.KernelPCA(2)),
        FunctionTransformer(np.log1p),
        Nystroem(n_components=10),
    ],
)
def test_maps_that_are_not_linear_are_refused_with_what_would_do(learner):
    knn = KNNClassifier(learner).fit(KNOWN, KNOWN_Y)
    with pytest.raises(
        ValueError, match=r"needs a linear learner, but \w+ is not linear.*estimator=None"
    ):
        knn.explain(NEW)


def test_a_map_that_is_linear_but_of_another_house():
    knn = KNNClassifier(FunctionTransformer(lambda rows: rows[:, ::-1] * 2 + 1)).fit(KNOWN, KNOWN_Y)
    agree(knn.explain(NEW), 4 * np.eye(13), KNOWN, NEW, 3, rtol=1e-6)


def test_tables_with_words_and_old_models_say_what_is_missing():
    knn = KNNClassifier(nearfar.LDA()).fit(KNOWN, KNOWN_Y)
    del knn._rows
    with pytest.raises(ValueError, match="did not store them"):
        knn.explain(NEW)


def test_ties_are_told_as_they_were_settled():
    rows, labels = np.array([[0.0, 0], [1, 0], [3, 0], [4, 0]]), list("abba")
    for ties, words in (("shrink", "'b' by 2 of the nearest 3"), ("first", "'a' by 2 of 4")):
        knn = KNNClassifier(n_neighbors=4, ties=ties).fit(rows, labels)
        assert f" is {words}" in knn.explain([[0.1, 0.0]]).sentence(0)


def test_constant_columns_and_single_precision():
    rows = np.column_stack([KNOWN, np.full(len(KNOWN), 7.0)]).astype(np.float32)
    for learner in (None, nearfar.RCA(), make_pipeline(StandardScaler(), nearfar.RCA())):
        why = KNNClassifier(learner).fit(rows, KNOWN_Y).explain(rows[:3])
        assert why.relevance.dtype == np.float64
        np.testing.assert_allclose(why.relevance.sum(axis=1), 1.0)
        np.testing.assert_array_equal(why.relevance[:, -1], 0.0)
        assert np.isfinite(why.contributions).all()


def test_all_columns_constant():
    why = KNNClassifier(n_neighbors=1).fit(np.ones((4, 3)), list("abab")).explain(np.ones((1, 3)))
    np.testing.assert_allclose(why.relevance, 1 / 3)


def test_tensors_are_explained_by_flat_features():
    rows = np.random.default_rng(0).normal(size=(40, 3, 4))
    labels = np.arange(40) % 2
    knn = KNNClassifier(nearfar.GTDA()).fit(rows, labels)
    why = knn.explain(rows[:5])
    assert why.contributions.shape == (5, 3, 12)
    np.testing.assert_allclose(why.contributions.sum(axis=2), why.distances**2, atol=1e-8)


def test_not_fitted_and_wrong_rows():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        KNNClassifier().explain(NEW)
    with pytest.raises(ValueError, match="expecting 13 features"):
        KNNClassifier(nearfar.LDA()).fit(KNOWN, KNOWN_Y).explain(NEW[:, :5])


def test_files_hold_what_explains(tmp_path):
    pytest.importorskip("skops")
    knn = KNNClassifier(nearfar.LDA()).fit(KNOWN, KNOWN_Y)
    nearfar.save(knn, tmp_path / "model.nf")
    again = nearfar.load(tmp_path / "model.nf").explain(NEW)
    np.testing.assert_array_equal(again.contributions, knn.explain(NEW).contributions)
