"""The energy rule against the loss it is made of."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfar import LDA, LMNN, PCA, EnergyClassifier, KNNClassifier

# Hand-made: class 0 at 0 and 1, class 1 at 3 and 5, one target each.
LINE = np.array([[0.0], [1.0], [3.0], [5.0]])
LINE_Y = np.array([0, 0, 1, 1])


def loss(Z, y, targets, mu, m=None):
    """The large-margin loss from its definition, target by target; of m impostors or of all."""
    value = 0.0
    for i, row in enumerate(targets):
        squared = ((Z - Z[i]) ** 2).sum(axis=1)
        for j in row:
            if j >= 0:
                hinges = np.maximum(0, 1 + squared[j] - np.sort(squared[y != y[i]])[:m])
                value += (1 - mu) * squared[j] + mu * hinges.sum()
    return value


def increments(Z, y, targets, query, k, mu, labels, m=None):
    """What a query adds to the loss under each label, the old targets being kept."""
    before = loss(Z, y, targets, mu, m)
    squared = ((Z - query) ** 2).sum(axis=1)
    found = []
    for label in labels:
        members = np.flatnonzero(y == label)
        if not len(members):
            found.append(np.inf)
            continue
        nearest = members[np.argsort(squared[members], kind="stable")[:k]]
        new = [*[list(row) for row in targets], list(nearest)]
        found.append(loss(np.vstack([Z, query]), np.append(y, label), new, mu, m) - before)
    return found


def three_terms(Z, y, targets, query, k, mu, labels):
    """The three sums of the rule, (3, n_classes), from their definition."""
    squared = ((Z - query) ** 2).sum(axis=1)
    terms = np.zeros((3, len(labels)))
    for c, label in enumerate(labels):
        other = np.flatnonzero(y != label)
        nearest = np.sort(squared[y == label])[:k]
        terms[0, c] = (1 - mu) * nearest.sum()
        terms[1, c] = mu * np.maximum(0, 1 + nearest[:, None] - squared[other]).sum()
        for i in other:
            for j in targets[i][targets[i] >= 0]:
                hinge = 1 + ((Z[i] - Z[j]) ** 2).sum() - squared[i]
                terms[2, c] += mu * max(0, hinge)
    return terms


def problem(seed, sizes=(14, 9, 12), p=3, spread=0.8):
    """Overlapping classes at the scale of the margin, in random order; and ten queries."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centers = rng.normal(size=(len(sizes), p))
    X = centers[y] + spread * rng.normal(size=(len(y), p))
    return X, y, rng.normal(scale=1.2, size=(10, p))


def brute_energies(rule, Z, y, queries):
    targets, k, mu = rule.target_neighbors_, rule.n_neighbors_, rule.push_weight_
    rest = (k, mu, rule.classes_, rule.n_impostors_)
    return np.array([increments(Z, y, targets, query, *rest) for query in queries])


@pytest.mark.parametrize("mu", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(("k", "m"), [(1, None), (3, None), (1, 1), (3, 3), (2, 20)])
@pytest.mark.parametrize("seed", range(3))
def test_energy_is_what_the_point_adds_to_the_loss(mu, k, m, seed):
    X, y, queries = problem(seed)
    rule = EnergyClassifier(n_neighbors=k, push_weight=mu, n_impostors=m).fit(X, y)
    wanted = brute_energies(rule, X, y, queries)
    np.testing.assert_allclose(rule.energies(queries), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sizes", [(9, 2, 8), (1, 9, 9), (2, 1, 3), (1, 1, 1), (7, 1), (6,), (1,)])
@pytest.mark.filterwarnings("ignore:Class ")
@pytest.mark.parametrize("m", [None, 2])
def test_energy_of_classes_with_too_few_points(sizes, m):
    X, y, queries = problem(3, sizes)
    rule = EnergyClassifier(n_neighbors=3, n_impostors=m).fit(X, y)
    energies = rule.energies(queries)
    wanted = brute_energies(rule, X, y, queries)
    np.testing.assert_allclose(energies, wanted, rtol=1e-10, atol=1e-10)
    assert energies.shape == (10, len(sizes))


@pytest.mark.parametrize("after_pca", [False, True])
def test_around_lmnn_it_takes_targets_k_and_weight_of_the_learner(after_pca):
    X, y, queries = problem(4)
    X, queries = X * [1, 10, 0.1], queries * [1, 10, 0.1]
    learner = LMNN(n_neighbors=2, push_weight=0.3)
    rule = EnergyClassifier(make_pipeline(PCA(), learner) if after_pca else learner).fit(X, y)
    fitted = rule.estimator_[-1] if after_pca else rule.estimator_
    assert (rule.n_neighbors_, rule.push_weight_, rule.n_impostors_) == (2, 0.3, 3)
    np.testing.assert_array_equal(rule.target_neighbors_, fitted.target_neighbors_)
    Z, mapped = rule.estimator_.transform(X), rule.estimator_.transform(queries)
    np.testing.assert_allclose(
        rule.energies(queries), brute_energies(rule, Z, y, mapped), rtol=1e-9, atol=1e-10
    )
    # The rule's own parameters come first, and leave the targets alone.
    own = EnergyClassifier(learner, n_neighbors=4, push_weight=0.9).fit(X, y)
    assert (own.n_neighbors_, own.push_weight_) == (4, 0.9)
    assert own.target_neighbors_.shape == (len(X), 2)


def test_targets_of_training_are_not_chosen_again_after_the_map():
    X, y, queries = problem(5)
    X, queries = X * [1, 10, 0.1], queries * [1, 10, 0.1]
    of_the_work = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
    learner = LMNN(n_neighbors=2, **of_the_work).fit(X, y)
    again = EnergyClassifier(n_neighbors=2).fit(learner.transform(X), y)
    # The mistake to catch would show: the map has changed who is near.
    assert (again.target_neighbors_ != learner.target_neighbors_).any()
    kept = EnergyClassifier(LMNN(n_neighbors=2, **of_the_work)).fit(X, y).energies(queries)
    assert np.abs(kept - again.energies(learner.transform(queries))).max() > 1e-3


def test_a_query_never_becomes_a_target():
    # The query at 3.1 is nearer to 3 than its target at 5; under label 0 the hinge of (3, 5) is
    # 1 + 4 - 0.01, as it would not be with the query as target of 3.
    rule = EnergyClassifier(n_neighbors=1).fit(LINE, LINE_Y)
    targets, mu = rule.target_neighbors_, 0.5
    terms = three_terms(LINE, LINE_Y, targets, np.array([3.1]), 1, mu, [0, 1])
    assert terms[2, 0] == pytest.approx(mu * ((1 + 4 - 0.01) + (1 + 4 - 1.9**2)))
    np.testing.assert_allclose(rule.energies([[3.1]])[0], terms.sum(axis=0))


def test_energies_by_hand():
    # Query 2, targets 0-1 and 3-5. Label 0: pull 1; push [1+1-1]+[1+1-9] = 1; in the way of 3:
    # 1+4-1 = 4, of 5: 1+4-9 < 0. Label 1: pull 1; push [1+1-4]+[1+1-1] = 1; in the way of 0:
    # 1+1-4 < 0, of 1: 1+1-1 = 1.
    rule = EnergyClassifier(n_neighbors=1).fit(LINE, LINE_Y)
    np.testing.assert_allclose(rule.energies([[2.0]]), [[0.5 * (1 + 1 + 4), 0.5 * (1 + 1 + 1)]])
    assert rule.predict([[2.0]])[0] == 1
    # Plain distances in place of squares would give other numbers: at 2.5 the pull to label 0
    # alone is 0.5 * 2.25, not 0.5 * 1.5.
    wanted = increments(LINE, LINE_Y, rule.target_neighbors_, np.array([2.5]), 1, 0.5, [0, 1])
    np.testing.assert_allclose(rule.energies([[2.5]])[0], wanted)
    rooted = three_terms(np.sqrt(LINE), LINE_Y, rule.target_neighbors_, 2.5**0.5, 1, 0.5, [0, 1])
    assert np.abs(rooted.sum(axis=0) - wanted).min() > 0.1


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_no_term_can_be_left_out(dropped):
    X, y, queries = problem(6)
    rule = EnergyClassifier().fit(X, y)
    energies = rule.energies(queries)
    terms = np.stack(
        [three_terms(X, y, rule.target_neighbors_, q, 3, 0.5, [0, 1, 2]) for q in queries]
    )
    np.testing.assert_allclose(energies, terms.sum(axis=1), rtol=1e-10)
    without = terms.sum(axis=1) - terms[:, dropped]
    assert (np.abs(energies - without) > 0.1).any(axis=1).mean() > 0.5


def test_the_third_term_decides():
    # Nearer to class 0, whose points lie close together, but in the way of class 1.
    X, y = np.array([[-1.0], [-1.1], [1.1], [3.1]]), np.array([0, 0, 1, 1])
    rule = EnergyClassifier(n_neighbors=1).fit(X, y)
    terms = three_terms(X, y, rule.target_neighbors_, np.zeros(1), 1, 0.5, [0, 1])
    assert terms[:2].sum(axis=0).argmin() == 0
    assert rule.predict([[0.0]])[0] == 1


def left_out(Z, y, targets, t):
    """The training set without t: points, labels, targets, where t was one dropped."""
    rest = np.delete(np.arange(len(Z)), t)
    renumber = np.full(len(Z) + 1, -1)  # the last entry serves -1
    renumber[rest] = np.arange(len(rest))
    return Z[rest], y[rest], renumber[targets[rest]]


@pytest.mark.parametrize("sizes", [(14, 9, 12), (9, 2, 8), (1, 9, 3), (2, 2), (1, 1), (5,)])
@pytest.mark.filterwarnings("ignore:Class ")
@pytest.mark.parametrize("m", [None, 1, 4])
def test_leave_one_out_equals_taking_each_point_away(sizes, m):
    X, y, _ = problem(7, sizes)
    rule = EnergyClassifier(n_neighbors=2, n_impostors=m).fit(X, y)
    wanted = []
    for t in range(len(X)):
        Z, labels, targets = left_out(X, y, rule.target_neighbors_, t)
        wanted.append(increments(Z, labels, targets, X[t], 2, 0.5, rule.classes_, m))
    wanted = np.array(wanted)
    found = np.empty_like(wanted)
    found[rule._order] = rule._compute_leave_one_out_energies()
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    assert rule.leave_one_out_error() == pytest.approx(np.mean(wanted.argmin(axis=1) != y))


def test_leave_one_out_is_more_than_scoring_the_training_points():
    X, y, _ = problem(8)
    rule = EnergyClassifier(n_neighbors=1).fit(X, y)
    assert rule.leave_one_out_error() > 1 - rule.score(X, y)
    # A target that was left out must not count: with it, energies would be larger.
    with_target = rule.energies(X)[rule._order]
    assert np.abs(with_target - rule._compute_leave_one_out_energies()).max() > 0.5


def test_a_point_alone_in_its_class_is_an_error_when_left_out():
    X = np.array([[0.0], [0.1], [5.0]])
    with pytest.warns(UserWarning, match=r"Class 1 has 1 points, fewer than n_neighbors=2"):
        rule = EnergyClassifier(n_neighbors=2).fit(X, [0, 0, 1])
    assert rule.leave_one_out_error() == pytest.approx(1 / 3)
    with pytest.warns(UserWarning, match="fewer"):
        alone = EnergyClassifier().fit([[0.0]], [0])
    assert alone.predict([[3.0]]).tolist() == [0]
    with pytest.raises(ValueError, match="at least 2 training points"):
        alone.leave_one_out_error()


def test_without_impostors_no_training_point_is_mistaken():
    X, y = make_blobs(60, 2, centers=3, cluster_std=0.2, random_state=0)
    rule = EnergyClassifier().fit(X, y)
    assert loss(X, y, rule.target_neighbors_, 1.0) == 0
    assert rule.leave_one_out_error() == 0
    assert KNNClassifier().fit(X, y).leave_one_out_error() == 0


def test_equal_energies_go_to_the_smaller_label():
    X, y = np.array([[-2.0], [-1], [1], [2]]), np.array(["b", "b", "a", "a"])
    rule = EnergyClassifier(n_neighbors=1).fit(X, y)
    energies = rule.energies([[0.0]])[0]
    assert energies[0] == energies[1]
    assert rule.predict([[0.0]])[0] == "a"
    assert rule.decision_function([[0.0]])[0] == 0


def test_decision_function_is_the_negative_energy():
    X, y, queries = problem(9)
    rule = EnergyClassifier().fit(X, y)
    np.testing.assert_array_equal(rule.decision_function(queries), -rule.energies(queries))
    winners = rule.classes_[rule.decision_function(queries).argmax(axis=1)]
    np.testing.assert_array_equal(rule.predict(queries), winners)
    # Two classes give one number, positive for the second.
    rule = EnergyClassifier().fit(X[y < 2], y[y < 2])
    decision, energies = rule.decision_function(queries), rule.energies(queries)
    np.testing.assert_array_equal(decision, -(energies[:, 1] - energies[:, 0]))
    np.testing.assert_array_equal(rule.predict(queries) == 1, decision > 0)
    # One class has one column.
    rule = EnergyClassifier().fit(X[y < 1], y[y < 1])
    assert rule.decision_function(queries).shape == (10, 1)
    assert set(rule.predict(queries)) == {0}


def test_the_rule_depends_on_the_scale_of_the_space():
    X, y, queries = problem(10)
    queries = np.vstack([queries, X])
    predicted = [EnergyClassifier().fit(s * X, y).predict(s * queries) for s in (0.1, 1, 10)]
    assert (predicted[0] != predicted[1]).any()
    assert (predicted[1] != predicted[2]).any()


@pytest.mark.slow
def test_it_beats_the_vote_of_neighbours_on_wine_as_it_comes():
    X, y = load_wine(return_X_y=True)
    learner = LMNN(tol=1e-5)
    assert cross_val_score(EnergyClassifier(learner), X, y).mean() > 0.97
    # Without a learned scale, distances are far above the margin.
    assert cross_val_score(EnergyClassifier(), X, y).mean() < 0.8


def test_last_step_of_a_pipeline():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LDA(), EnergyClassifier())
    assert cross_val_score(pipeline, X, y).mean() > 0.95
    pipeline.fit(X, y)
    Z = pipeline[:-1].transform(X)
    np.testing.assert_array_equal(
        pipeline[-1].target_neighbors_, EnergyClassifier().fit(Z, y).target_neighbors_
    )
    np.testing.assert_allclose(
        pipeline[-1].energies(Z[::30]), brute_energies(pipeline[-1], Z, y, Z[::30]), rtol=1e-10
    )
    search = GridSearchCV(EnergyClassifier(PCA()), {"push_weight": [0.1, 0.9]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9


@pytest.mark.slow
@parametrize_with_checks([EnergyClassifier(LDA(), n_neighbors=2)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_learner_given_is_not_touched_and_parameters_survive_cloning():
    X, y, _ = problem(11)
    rule = EnergyClassifier(LDA(), n_neighbors=2, push_weight=0.2, n_jobs=2)
    rule.fit(X, y)
    assert not hasattr(rule.estimator, "statistics_")
    again = clone(rule)
    assert not hasattr(again, "classes_")
    assert again.get_params()["push_weight"] == 0.2
    assert again.get_params()["n_neighbors"] == 2


def test_float32_is_measured_in_float64():
    X, y, queries = problem(12)
    single, few = X.astype(np.float32), queries.astype(np.float32)
    energies = EnergyClassifier().fit(single, y).energies(few)
    assert energies.dtype == np.float64
    double = EnergyClassifier().fit(single.astype(float), y).energies(few.astype(float))
    np.testing.assert_allclose(energies, double, rtol=1e-12)


@pytest.mark.parametrize("offset", [1e4, -1e6])
def test_a_common_offset_changes_nothing(offset):
    X, y, queries = problem(13)
    X, queries = np.round(X, 3), np.round(queries, 3)
    wanted = EnergyClassifier().fit(X, y).energies(queries)
    found = EnergyClassifier().fit(X + offset, y).energies(queries + offset)
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:Class ")
def test_one_far_point_costs_the_others_no_digits():
    X, y, queries = problem(14)
    wanted = EnergyClassifier().fit(X, y).energies(queries)
    # Alone in its class it has no targets and adds nothing to the energies of other labels.
    far = EnergyClassifier().fit(np.vstack([X, [1e6, 1e6, 1e6]]), [*y, 9]).energies(queries)
    np.testing.assert_allclose(far[:, :3], wanted, rtol=1e-10)


def test_blocks_and_threads_change_nothing():
    X, y, _ = problem(15, sizes=(150, 90, 120))
    queries = np.random.default_rng(0).normal(size=(500, 3))
    rule = EnergyClassifier().fit(X, y)
    wanted, error = rule.energies(queries), rule.leave_one_out_error()
    with config_context(working_memory=0.02):
        np.testing.assert_allclose(rule.energies(queries), wanted, rtol=1e-10)
        assert rule.leave_one_out_error() == error
        threaded = clone(rule).set_params(n_jobs=2).fit(X, y)
        np.testing.assert_allclose(threaded.energies(queries), wanted, rtol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_memory_stays_in_blocks(scale):
    # At the small scale nothing is out of reach and no pair is pruned.
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=(4000, 4)), rng.integers(0, 3, 4000)
    queries = scale * rng.normal(size=(600, 4))
    rule = EnergyClassifier().fit(X, y)
    with config_context(working_memory=4):
        tracemalloc.start()
        rule.energies(queries)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 12 * 2**20 < 8 * len(X) * len(queries)


def test_many_queries_and_one():
    X, y, queries = problem(16)
    rule = EnergyClassifier().fit(X, y)
    one_by_one = np.vstack([rule.energies(query[None]) for query in queries])
    np.testing.assert_allclose(one_by_one, rule.energies(queries), rtol=1e-10)


def test_identical_points_of_different_classes():
    X = np.repeat([[0.0, 0.0], [1.0, 0.0]], 4, axis=0)
    y = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    rule = EnergyClassifier(n_neighbors=1).fit(X, y)
    np.testing.assert_allclose(rule.energies(X), brute_energies(rule, X, y, X), atol=1e-12)
    np.testing.assert_allclose(np.ptp(rule.energies(X), axis=1), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (EnergyClassifier(n_neighbors=0), "n_neighbors must be None, or an integer of at least 1"),
        (EnergyClassifier(push_weight=1.5), "push_weight must be None, or a number from 0 to 1"),
        (EnergyClassifier(n_jobs=0), "n_jobs must be"),
        (EnergyClassifier(estimator=3), "estimator must be None, or a learner with fit and transf"),
    ],
)
def test_errors_name_the_parameter(rule, message):
    with pytest.raises(ValueError, match=message):
        rule.fit(LINE, LINE_Y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0], [np.nan]], "NaN"),
        ([[0.0, 1.0]], "1 features"),
        ([0.0, 1.0], "2D array"),
        ([[1e200]], "X: .*1e\\+200.* overflow"),
    ],
)
def test_bad_queries_are_refused(X, message):
    rule = EnergyClassifier(n_neighbors=1).fit(LINE, LINE_Y)
    with pytest.raises(ValueError, match=message):
        rule.energies(X)


def test_bad_training_sets_are_refused_and_leave_no_fit():
    rule = EnergyClassifier(n_neighbors=1)
    for X, y, message in [
        ([[0.0], [np.nan], [1], [2]], LINE_Y, "NaN"),
        (LINE, LINE_Y[:3], "inconsistent"),
        (LINE, [0.1, 0.2, 0.3, 0.45], "continuous"),
        (LINE * [[1], [1], [1], [1e300]], LINE_Y, "overflow"),
    ]:
        rule.fit(LINE, LINE_Y)
        with pytest.raises(ValueError, match=message):
            rule.fit(X, y)
        with pytest.raises(NotFittedError):
            rule.energies(LINE)
    with pytest.raises(TypeError, match="sparse"):
        EnergyClassifier(OneHotEncoder()).fit(LINE, LINE_Y)
    with pytest.raises(ValueError, match="supervision is passed to estimator"):
        rule.fit(LINE, LINE_Y, supervision=LINE_Y)


class WithTargets(TransformerMixin, BaseEstimator):
    """A learner of somebody else that has targets."""

    def __init__(self, targets=None):
        self.targets = targets

    def fit(self, X, y=None):
        self.target_neighbors_ = np.asarray(self.targets)
        return self

    def transform(self, X):
        return np.asarray(X)


def test_any_learner_with_targets_will_do_and_its_targets_are_checked():
    rule = EnergyClassifier(WithTargets([[1], [0], [-1], [2]]), n_neighbors=1).fit(LINE, LINE_Y)
    np.testing.assert_allclose(
        rule.energies([[2.0]])[0],
        increments(LINE, LINE_Y, rule.target_neighbors_, np.array([2.0]), 1, 0.5, [0, 1]),
    )
    for targets in ([[1], [0]], [1, 0, 3, 2], [[1], [0], [3], [4]], [[1], [0], [3], [-2]]):
        with pytest.raises(ValueError, match="target_neighbors_ of WithTargets must have one row"):
            EnergyClassifier(WithTargets(targets)).fit(LINE, LINE_Y)


def test_a_transformer_without_targets_leaves_them_to_the_rule():
    X, y, queries = problem(17)
    around = EnergyClassifier(FunctionTransformer(np.tanh)).fit(X, y)
    alone = EnergyClassifier().fit(np.tanh(X), y)
    np.testing.assert_array_equal(around.target_neighbors_, alone.target_neighbors_)
    np.testing.assert_array_equal(around.energies(queries), alone.energies(np.tanh(queries)))
    assert (around.n_neighbors_, around.push_weight_) == (3, 0.5)


def test_enough_points_give_no_warning():
    X, y, _ = problem(18, sizes=(3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EnergyClassifier(n_neighbors=3).fit(X, y)


def test_more_impostors_than_points_equal_all_points():
    X, y, queries = problem(3)
    many, all_points = (EnergyClassifier(n_impostors=m).fit(X, y) for m in (10**30, len(X)))
    np.testing.assert_array_equal(many.energies(queries), all_points.energies(queries))
    assert LMNN(n_impostors=10**30, max_iter=2).fit(X, y).components_.shape[1] == X.shape[1]
