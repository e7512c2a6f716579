"""Corrected intervals, Holm's p-values and verdicts, compared with formulas and simulations."""

import numpy as np
import pytest
from scipy import stats

from nearfar.app.compare.judgement import gain_that_matters, judge, sentence
from nearfar.app.compare.wording import Wording
from nearfar.evaluation.inference import (
    Estimate,
    adjust_p_values,
    estimate_from_folds,
    estimate_from_rows,
    estimate_required_rows,
)
from nearfar.words import format_p_value, format_points, format_seconds


def test_the_corrected_variance_is_that_of_nadeau_and_bengio():
    differences = np.random.default_rng(0).normal(0.01, 0.02, 25)
    found = estimate_from_folds(differences, test_ratio=0.25)
    # t of equation (8) of Bouckaert and Frank, "Evaluating the replicability ...", 2004.
    t = differences.mean() / np.sqrt((1 / 25 + 20 / 80) * differences.var(ddof=1))
    assert found.mean / found.standard_error == pytest.approx(t, rel=1e-12)
    assert found.degrees == 24
    assert found.compute_p_value() == pytest.approx(stats.t.cdf(t, 24), rel=1e-12)
    low, high = found.interval(0.95)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, 24) * found.standard_error)


def test_the_uncorrected_interval_would_be_half_as_long():
    # The classic mistake is to treat 25 folds as 25 independent measurements.
    differences = np.random.default_rng(1).normal(0, 1, 25)
    naive = stats.sem(differences)
    assert estimate_from_folds(differences, 0.25).standard_error > 2.6 * naive


@pytest.mark.parametrize("values", [[], [0.1]])
def test_one_fold_gives_no_interval(values):
    found = estimate_from_folds(values, 0.25)
    assert found.interval() == (-np.inf, np.inf)
    assert found.compute_p_value() == 1.0


def test_equal_errors_in_every_fold_are_no_gain():
    found = estimate_from_folds(np.zeros(25), 0.25)
    assert found.interval() == (0.0, 0.0)
    assert found.compute_p_value() == 1.0


def test_equal_gains_in_a_few_small_folds_are_no_certainty():
    # A gain of one row in ten in each of five folds occurs by chance with probability 1/32.
    gains = np.full(5, -0.1)
    assert estimate_from_folds(gains, 0.25, resolution=0.1).interval()[1] > 0
    assert estimate_from_folds(3 * gains, 0.25, resolution=0.1).interval()[1] < 0
    # If the folds differ by more than a row, the lower limit has no effect.
    spread = np.random.default_rng(0).normal(0, 0.05, 25)
    floored = estimate_from_folds(spread, 0.25, resolution=0.001)
    assert floored == estimate_from_folds(spread, 0.25)


def test_rows_of_a_large_test_file_give_the_ordinary_t_interval():
    wrong = np.random.default_rng(0).random(20_000) < 0.2
    found = estimate_from_rows(wrong)
    low, high = stats.ttest_1samp(wrong.astype(float), 0).confidence_interval(0.95)
    assert found.interval() == pytest.approx((low, high), abs=1e-5)


@pytest.mark.parametrize("n_rows", [100, 1000])
def test_paired_rows_agree_with_the_exact_test_of_mcnemar(n_rows):
    for better in range(1, 25):
        for worse in range(better):
            rows = np.zeros(n_rows)
            rows[:better], rows[better : better + worse] = -1, 1
            exact = stats.binomtest(better, better + worse, 0.5).pvalue
            if estimate_from_rows(rows).interval()[1] < 0:
                assert exact < 0.065, (better, worse)
            else:
                assert exact > 0.035, (better, worse)


def test_a_test_file_without_any_error_is_no_certainty():
    assert estimate_from_rows(np.zeros(20)).interval()[1] > 0.05
    classes = np.repeat([0, 1], 10)
    assert estimate_from_rows(np.zeros(20), classes).interval()[1] > 0.05


def test_balanced_rows_have_the_variance_of_the_mean_of_class_means():
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1], [3000, 300])
    truth = np.array([0.1, 0.4])
    means = []
    errors = []
    for _ in range(3000):
        wrong = rng.random(3300) < truth[strata]
        found = estimate_from_rows(wrong, strata)
        means.append(found.mean)
        errors.append(found.standard_error)
    assert np.mean(means) == pytest.approx(0.25, abs=0.005)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.05)


def test_holm_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(6) ** 3
        found = adjust_p_values(p)
        order = np.argsort(p)
        running = 0.0
        for rank, index in enumerate(order):
            running = max(running, min(1.0, (6 - rank) * p[index]))
            assert found[index] == pytest.approx(running)
    assert len(adjust_p_values([])) == 0


def test_rows_to_decide_follow_the_square_root():
    seen = Estimate(-0.01, 0.01, 24)
    needed = estimate_required_rows(seen, 400)
    shrunk = Estimate(-0.01, 0.01 * np.sqrt(400 / needed), 24)
    assert shrunk.interval()[1] == pytest.approx(0, abs=2e-4)
    assert shrunk.interval()[1] <= 0
    assert estimate_required_rows(Estimate(0.0, 0.01, 24), 400) == np.inf


def verdict(reference, learners, **options):
    errors = {name: np.mean(values) for name, values in learners.items()}
    differences = {
        name: estimate_from_folds(np.asarray(values) - reference, 0.25)
        for name, values in learners.items()
    }
    return judge(float(np.mean(reference)), errors, differences, **options)


def noisy(mean, seed, spread=0.01):
    values = np.random.default_rng(seed).normal(0, spread, 25)
    return mean + values - values.mean()


def test_a_clear_and_large_gain_is_recommended():
    found = verdict(noisy(0.20, 0), {"a": noisy(0.15, 1), "b": noisy(0.17, 2)})
    assert (found.verdict, found.method) == ("use", "a")
    assert all(c.recommended for c in found.comparands.values())


def test_a_clear_gain_below_min_gain_keeps_the_standard_distance():
    learners = {"a": noisy(0.195, 1, 0.001)}
    reference = noisy(0.20, 0, 0.001)
    found = verdict(reference, learners)
    assert found.comparands["a"].difference.interval()[1] < 0  # shown, but small
    assert found.verdict == "keep"
    assert verdict(reference, learners, min_gain=0.01).verdict == "use"


def test_a_gain_within_noise_is_inconclusive():
    found = verdict(noisy(0.20, 0, 0.05), {"a": noisy(0.18, 1, 0.05)})
    assert (found.verdict, found.method) == ("inconclusive", "a")


def test_a_learner_that_is_surely_no_better_keeps_the_standard_distance():
    found = verdict(noisy(0.20, 0), {"a": noisy(0.22, 1)})
    assert found.verdict == "keep"


def test_what_is_not_seen_to_be_better_may_still_be():
    found = verdict(noisy(0.20, 0, 0.05), {"a": noisy(0.22, 1, 0.05)})
    assert found.verdict == "inconclusive"
    text = words(found)
    assert text == (
        "Inconclusive: raw Euclidean has 20.0% error and no learned distance is clearly better "
        "(A: 22.0%), but a gain of up to 4.0 points is not excluded, and 1.0 would matter. You "
        "have 500 rows. For now, keep raw Euclidean."
    )
    # One of two is excluded, the other not.
    both = verdict(noisy(0.20, 0), {"a": noisy(0.22, 1), "b": noisy(0.24, 2, 0.3)})
    assert (both.verdict, both.method) == ("inconclusive", "b")
    # Two folds from -23 to 20 points exclude nothing.
    few = verdict(np.array([0.30, 0.31]), {"a": np.array([0.31, 0.33])})
    assert few.verdict == "inconclusive" and "two folds cannot settle it" in words(few)


def test_a_gain_of_less_than_a_point_matters_to_nobody():
    reference, learner = noisy(0.04, 0, 0.003), noisy(0.037, 1, 0.003)
    found = verdict(reference, {"a": learner}, min_gain=0.1)
    assert found.comparands["a"].most > 0.1 * 0.04  # more than that share
    assert found.verdict == "keep"
    assert gain_that_matters(0.04, 0.1) == 0.01


def test_among_a_few_learners_holm_asks_for_a_confirmation():
    reference = noisy(0.20, 0, 0.02)
    one = {"a": noisy(0.1706, 1, 0.02)}
    others = {f"b{i}": noisy(0.21, 2 + i, 0.02) for i in range(2)}
    alone, among = verdict(reference, one), verdict(reference, one | others)
    assert (alone.verdict, among.verdict) == ("use", "use")
    assert alone.comparands["a"].p_holm < 0.05 < among.comparands["a"].p_holm
    assert "Confirm it" not in words(alone)
    confirm = (
        "Confirm it on new rows: 3 learned distances were tried, and the adjusted p exceeds 0.05."
    )
    assert confirm in words(among)
    # With a fixed test set that is not enough.
    assert verdict(reference, one | others, strict=True).verdict == "inconclusive"


def test_among_many_learners_holm_decides():
    reference = noisy(0.20, 0, 0.02)
    one = {"a": noisy(0.164, 1, 0.02)}
    others = {f"b{i}": noisy(0.21, 2 + i, 0.02) for i in range(9)}
    assert verdict(reference, one).verdict == "use"
    among = verdict(reference, one | others)
    assert (among.verdict, among.method) == ("inconclusive", "a")
    assert among.comparands["a"].stands_out and not among.comparands["a"].recommended
    text = words(among)
    assert (
        "one of 10 learned distances tried, and its adjusted p is 0." in text
        and "includes zero" not in text
    )


def test_two_folds_are_too_few_to_recommend():
    found = verdict(np.array([0.30, 0.31]), {"a": np.array([0.10, 0.11])})
    assert found.comparands["a"].difference.interval()[1] < 0
    assert found.verdict == "inconclusive" and "two folds cannot settle it" in words(found)


def test_without_an_interval_or_a_learner_nothing_is_claimed():
    assert verdict(np.array([0.2]), {"a": np.array([0.0])}).verdict == "inconclusive"
    assert verdict(noisy(0.2, 0), {}).verdict == "inconclusive"


def test_no_error_to_remove_keeps_the_standard_distance():
    assert verdict(np.zeros(25), {"a": np.zeros(25)}).verdict == "keep"


def words(found, **changes):
    options = {
        "labels": {"a": "A"},
        "reference_label": "raw Euclidean",
        "say": Wording("error"),
        "n_rows": 500,
        "fit_seconds": {"a": 0.25},
        "n_train": 400,
        "min_gain": 0.05,
        "nested_error": 0.16,
    }
    return sentence(found, **options | changes)


def test_the_sentence_to_use_gives_gain_interval_cost_and_nested_error():
    text = words(verdict(noisy(0.20, 0), {"a": noisy(0.15, 1)}))
    assert text == (
        "Use A: 15.0% error vs 20.0% for the best standard distance, a gain of 5.0 points (95% CI "
        "3.5 to 6.5, adjusted p < 0.001). Expect about 16.0% on new data: this is the error when "
        "the method itself is selected within each training fold. Fit time: 0.25 s on 400 rows."
    )
    # Without the nested error and the time of a fit, the text does not mention them.
    found = verdict(noisy(0.20, 0), {"a": noisy(0.15, 1)})
    short = words(found, nested_error=None, fit_seconds={})
    assert "Expect" not in short and "Fit time" not in short


def test_the_inconclusive_sentence_gives_interval_and_rows():
    text = words(verdict(noisy(0.20, 0, 0.05), {"a": noisy(0.18, 1, 0.05)}))
    assert text == (
        "Inconclusive: A has 2.0 points less error than raw Euclidean (18.0% vs 20.0%), but the "
        "95% CI (−5.3 to 9.3) includes zero. If the difference is real, about 6,700 rows would "
        "settle it; you have 500. For now, keep raw Euclidean."
    )


def test_the_sentence_to_keep_names_the_best_learner():
    worse = words(verdict(noisy(0.20, 0), {"a": noisy(0.22, 1)}))
    assert worse.startswith("Keep raw Euclidean (20.0% error): ")
    assert "no learned distance is better, and the best, A, has 22.0% (2.0 points more)." in worse
    same = words(verdict(noisy(0.20, 0), {"a": noisy(0.20, 0)}))
    assert "the best, A, has 20.0% (the same)." in same and "0.0 points" not in same
    little = words(verdict(noisy(0.20, 0, 0.001), {"a": noisy(0.195, 1, 0.001)}))
    assert little == (
        "Keep raw Euclidean (20.0% error): the best learned distance, A, gains only 0.5 points. A "
        "gain of more than 0.6 points is excluded (one-sided 95% CI). A gain of 1.0 points would "
        "matter."
    )
    assert "Any gain is excluded (one-sided 95% CI)." in worse and "Any gain" not in little


def test_the_sentence_says_on_what_it_was_measured():
    found = verdict(noisy(0.20, 0), {"a": noisy(0.15, 1)})
    text = words(found, n_rows=8000, n_all=100_000, untuned=True, folds=(5, 25))
    assert (
        " Measured on 8,000 of 100,000 rows, in 5 of 25 folds, with every method at its first "
        "setting." in text
    )
    assert "vs 20.0% for raw Euclidean" in text
    plain = words(found, n_rows=8000, n_all=8000, folds=(25, 25))
    assert not any(part in plain for part in ("Measured", "8,000", "folds", "first setting"))


@pytest.mark.parametrize(
    ("error", "start"), [(0.22, "Keep "), (0.195, "Inconclusive: until it is tuned, ")]
)
def test_untuned_the_standard_distance_with_the_lowest_error_is_kept(error, start):
    found = verdict(noisy(0.20, 0, 0.02), {"a": noisy(error, 1, 0.02)}, beats=set())
    text = words(found, untuned=True, plain=("cosine", 0.14))
    assert text.startswith(start) and "keep cosine (14.0% error): A has " in text.replace("K", "k")
    assert "and raw Euclidean, which is scaled in the same way, has 20.0%." in text
    # If the baseline is the best of them, the text names it.
    usual = words(found, untuned=True, plain=("raw Euclidean", 0.20))
    assert "keep raw Euclidean" in usual.replace("K", "k") and "scaled in the same way" not in usual


def test_untuned_a_learner_must_beat_every_standard_distance():
    reference, learner = noisy(0.20, 0), {"a": noisy(0.15, 1)}
    assert verdict(reference, learner, beats={"a"}).verdict == "use"
    found = verdict(reference, learner, beats=set())
    assert found.verdict == "inconclusive"
    text = words(found, untuned=True, plain=("cosine", 0.14))
    assert "not clearly better than cosine (14.0%)." in text and "For now, keep cosine." in text
    assert "adjusted p" not in text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (format_points, -0.0005, "−0.05"),
        (format_points, 0.0, "0.0"),
        (format_p_value, 0.05001, "0.0500"),
        (format_p_value, 1.0, "1.000"),
        (format_seconds, 0.0, "0 s"),
        (format_seconds, 61.4, "61 s"),
    ],
)
def test_numbers_in_words(function, value, text):
    assert function(value) == text


def simulated(rng, n_learners, gain=0.0, n_rows=500, base=0.20, shared=0.75):
    """Simulate errors in 5 × 5 folds of a baseline and learners with correlated errors.

    A row is misclassified if a Gaussian score exceeds a threshold. Scores are the sum of a term per
    row, a term per row and method, and a term that changes with the training fold.
    """
    row = rng.normal(size=n_rows)
    own = rng.normal(size=(n_learners + 1, n_rows))
    limits = stats.norm.ppf(1 - np.r_[base, base - gain, np.full(n_learners - 1, base)])
    errors = np.empty((n_learners + 1, 25))
    fold_of = np.empty(n_rows, int)
    for repeat in range(5):
        fold_of[rng.permutation(n_rows)] = np.arange(n_rows) % 5
        noise = rng.normal(size=own.shape)
        score = np.sqrt(shared) * row + np.sqrt(0.15) * own + np.sqrt(0.85 - shared) * noise
        wrong = score > limits[:, None]
        for fold in range(5):
            errors[:, 5 * repeat + fold] = wrong[:, fold_of == fold].mean(axis=1)
    return errors


def answered(errors):
    return verdict(errors[0], {f"l{i}": row for i, row in enumerate(errors[1:])}).verdict


def recommended(errors):
    return answered(errors) == "use"


@pytest.mark.parametrize("n_folds", [2, 5, 25])
def test_a_true_drop_from_20_to_15_percent_is_hardly_ever_answered_by_keep(n_folds):
    rng = np.random.default_rng(0)
    found = [answered(simulated(rng, 3, gain=0.05)[:, :n_folds]) for _ in range(300)]
    assert found.count("keep") <= 0.05 * len(found)


def test_without_a_difference_a_recommendation_is_rare():
    rng = np.random.default_rng(0)
    rate = np.mean([recommended(simulated(rng, 3)) for _ in range(600)])
    assert rate <= 0.05


def test_a_true_drop_from_20_to_15_percent_is_mostly_found():
    # Whole comparisons on simulated data are measured in test_compare_slow.py.
    rng = np.random.default_rng(0)
    rate = np.mean([recommended(simulated(rng, 3, gain=0.05)) for _ in range(300)])
    assert rate >= 0.70


def test_the_simulation_would_catch_folds_taken_for_independent():
    rng = np.random.default_rng(0)

    def naive(errors):
        return any(
            stats.ttest_rel(row, errors[0], alternative="less").pvalue < 0.05 / 3
            for row in errors[1:]
        )

    assert np.mean([naive(simulated(rng, 3)) for _ in range(300)]) > 0.10
