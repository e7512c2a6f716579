"""n_pca_components: equals a fit after PCA, and components_ is a map of X."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from nearfar import LMNN, MCML, MLKR, NCA, MultiMetricLMNN

PUBLISHED = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
LEARNERS = [
    LMNN(**PUBLISHED, tol=1e-9),
    LMNN(),
    LMNN(n_components=2, **PUBLISHED, tol=1e-9),
    NCA(n_components=2, max_iter=15),
    MCML(n_components=2, max_iter=15),
    MLKR(n_components=2, max_iter=15),
]


def rows(n=60, p=7, seed=0):
    """Return three classes in some directions, each direction with a different variance."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    means = rng.normal(size=(3, p))
    return (means[y] + rng.normal(size=(n, p))) * np.linspace(2, 0.5, p), y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: str(learner)[:14])
def test_it_is_the_learner_behind_a_pca(learner):
    X, y = rows()
    pca = PCA(4).fit(X)
    behind = learner.fit(pca.transform(X), y)
    M = pca.components_.T @ behind.get_mahalanobis_matrix() @ pca.components_
    objective = behind.objective_
    learner.set_params(n_pca_components=4).fit(X, y)
    assert learner.components_.shape == (learner.n_components or 4, 7)
    assert learner.n_pca_components_ == 4
    assert learner.objective_ == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, atol=1e-3 * np.abs(M).max())
    np.testing.assert_allclose(learner.transform(X).mean(axis=0), 0, atol=1e-9)
    learner.set_params(n_pca_components=None)


def test_all_axes_are_no_restriction():
    X, y = rows()
    free = LMNN(**PUBLISHED, tol=1e-9).fit(X, y)
    axes = LMNN(**PUBLISHED, tol=1e-9, n_pca_components=7).fit(X, y)
    assert free.n_pca_components_ is None
    assert axes.objective_ == pytest.approx(free.objective_, rel=1e-5)
    assert axes.objective_ > free.dual_bound_
    M = free.get_mahalanobis_matrix()
    np.testing.assert_allclose(axes.get_mahalanobis_matrix(), M, atol=0.02 * np.abs(M).max())


@pytest.mark.parametrize("settings", [PUBLISHED, PUBLISHED | {"n_components": 2}, {}])
def test_rows_of_low_rank_are_as_good_in_more_columns(settings):
    X, y = rows()
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 7)))
    plain = LMNN(**settings).fit(X, y)
    wide = LMNN(**settings).fit(X @ Q.T + 3.0, y)
    assert wide.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    # Compare the maps on the span of the rows, outside of which the map is zero.
    M = plain.get_mahalanobis_matrix()
    there = wide.get_mahalanobis_matrix()
    np.testing.assert_allclose(Q.T @ there @ Q, M, atol=1e-4 * np.abs(M).max())
    np.testing.assert_allclose(there, Q @ Q.T @ there @ Q @ Q.T, atol=1e-9 * np.abs(M).max())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_auto_is_none_until_there_are_many_columns():
    X, y = rows(60, 128)
    assert NCA(n_pca_components="auto", max_iter=1).fit(X, y).n_pca_components_ is None
    X, y = rows(60, 129)
    assert NCA(n_pca_components="auto", max_iter=1).fit(X, y).n_pca_components_ == 29
    found = NCA(n_components=40, n_pca_components="auto", max_iter=1).fit(X, y)
    assert found.n_pca_components_ == 40 and found.components_.shape == (40, 129)
    X, y = rows(150, 129)
    assert NCA(n_pca_components="auto", max_iter=1).fit(X, y).n_pca_components_ == 64
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(200, 7)))
    narrow, y = rows()
    assert NCA(n_pca_components="auto", max_iter=1).fit(narrow @ Q.T, y).n_pca_components_ == 7


def test_starts_are_maps_of_x():
    X, y = rows()
    settled = LMNN(**PUBLISHED, n_pca_components=4).fit(X, y)
    given = LMNN(**PUBLISHED, n_pca_components=4, init=settled.components_).fit(X, y)
    assert given.n_iter_ < 0.7 * settled.n_iter_
    again = LMNN(**PUBLISHED, n_pca_components=4, warm_start=True).fit(X, y).fit(X, y)
    assert again.n_iter_ < 0.7 * settled.n_iter_
    for other in given, again:
        assert other.objective_ == pytest.approx(settled.objective_, rel=1e-4)


def test_single_precision_in_is_single_precision_out():
    X, y = rows()
    found = LMNN(**PUBLISHED, n_pca_components=4).fit(X.astype(np.float32), y)
    assert found.components_.dtype == found.mean_.dtype == np.float32


def test_an_interrupted_fit_leaves_a_map_of_x(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    X, y = rows()
    learner = LMNN(**PUBLISHED, n_pca_components=4)
    monkeypatch.setattr(LMNN, "_certify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, y)
    assert learner.transform(X).shape == (60, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_pca_components": 0}, "n_pca_components"),
        ({"n_pca_components": "all"}, "n_pca_components"),
        (
            {"n_pca_components": 8},
            "n_pca_components=8 is more than the 7 directions in which X varies",
        ),
        (
            {"n_pca_components": 2, "n_components": 3},
            "n_components=3 is larger than n_pca_components=2",
        ),
        ({"n_pca_components": 2, "structure": "diagonal"}, "Omit n_pca_components"),
        ({"n_pca_components": 2, "init": np.eye(2)}, r"7 features; got shape \(2, 2\)"),
    ],
)
def test_bad_values_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        LMNN(**settings).fit(*rows())


def test_several_metrics_take_a_pca_before_them_instead():
    with pytest.raises(ValueError, match="got n_pca_components=3"):
        MultiMetricLMNN(LMNN(n_pca_components=3)).fit(*rows())
