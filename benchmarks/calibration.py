"""How often ``compare`` recommends a learner: when it should not, and when it should.

    python benchmarks/calibration.py --runs 200 --jobs 2

Whole comparisons, 5 × 5 folds with full tuning unless asked otherwise (``--repeats``, ``--folds``,
``--tuning``, ``--rows``, ``--sample``), on simulated data of 500 rows:

* ``labels``: labels drawn at random, LDA and RCA: nothing can be learned;
* ``learners``: two Gaussian classes, about 20 % error, and three simulated learners that only
  jiggle the scales of features that say nothing: they are 0.1 points worse than the plain distance
  on average, and none is better;
* ``gain``: the same, but one of the three learners brings the true error from 20 to 15 %.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import numpy as np
from joblib import Parallel, delayed
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from nearfar.base import LearnerTags, LinearLearner

N_ROWS = 500
N_FEATURES = 52
# Chosen by true_errors: 20 % for the best plain distance (cosine) and 15 % for the learner.
NOISE = 50
SEPARATION = 1.085
GOOD_SCALE = 0.2


class Scales(LinearLearner):
    """A simulated learner: fixed scales of the features, nothing learned."""

    learner_tags = LearnerTags(reads="supervision", supervised=False)

    def __init__(self, seed=0, spread=0.15, noise_scale=1.0, n_noise=NOISE):
        self.seed, self.spread = seed, spread
        self.noise_scale, self.n_noise = noise_scale, n_noise

    def fit(self, X, y=None):
        X = self._check_X(X, reset=True)
        scales = np.ones(X.shape[1])
        # Only among features that say nothing, and as large as before: no true gain, hardly a loss.
        jiggled = np.exp(self.spread * np.random.default_rng(self.seed).normal(size=self.n_noise))
        scales[-self.n_noise :] = self.noise_scale * jiggled / np.sqrt(np.mean(jiggled**2))
        self.components_ = np.diag(scales)
        return self


def two_classes(rng, n_rows, n_noise, separation):
    """Two Gaussian classes that differ in the features before the last ``n_noise``."""
    y = rng.integers(0, 2, n_rows)
    X = rng.normal(size=(n_rows, N_FEATURES))
    signal = N_FEATURES - n_noise
    X[:, :signal] += (2 * y[:, None] - 1) * separation / np.sqrt(signal)
    return X, y


def one_run(scenario, seed, n_rows=N_ROWS, n_folds=None, **options):
    """What came of one comparison; of ``n_folds`` only the first are run."""
    from sklearn.model_selection import StratifiedKFold

    from nearfar import compare

    rng = np.random.default_rng([seed, 7])
    n_noise, separation = NOISE, SEPARATION
    if scenario == "labels":
        X, y = rng.normal(size=(n_rows, N_FEATURES)), rng.integers(0, 2, n_rows)
        methods = ["lda", "rca"]
    else:
        X, y = two_classes(rng, n_rows, n_noise, separation)
        good = partial(Scales, spread=0.0, noise_scale=GOOD_SCALE, n_noise=n_noise)
        # Cosine distance is the best plain one here: the simulated learners start from it.
        methods = {
            f"jiggle{i}": make_pipeline(Normalizer(), Scales(seed=10 * seed + i)) for i in range(3)
        }
        if scenario == "gain":
            methods["jiggle2"] = good()
    if n_folds is not None:
        folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)
        options = options | {"cv": list(folds)[:n_folds]}
    given = {"repeats": 5, "tuning": "full"} | options
    result = compare(
        X,
        y,
        methods=methods,
        scale="auto" if scenario == "labels" else "none",
        context=False,
        isolate=False,
        verbose=False,
        **given,
    )
    rows = {row["name"]: row for row in result.document["methods"]}
    return {
        "verdict": result.document["answer"]["verdict"],
        "used": result.document["answer"]["verdict"] == "use",
        "kept": result.document["answer"]["verdict"] == "keep",
        "holm": any(row["recommended"] and row["p_holm"] <= 0.05 for row in rows.values()),
        "reference": rows["reference"]["error"],
        "learner": rows["jiggle2"]["error"] if "jiggle2" in rows else np.nan,
        "rows": {
            name: [row["difference"], *row["difference_interval"], row["p"]]
            for name, row in rows.items()
            if row["role"] == "learner"
        },
    }


def true_errors(n_train=400, n_test=20000, draws=20):
    """Errors of k-NN at its best k on many test rows: raw, cosine, and with the good scales."""
    from nearfar import KNNClassifier

    found = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 99])
        X, y = two_classes(rng, n_train, NOISE, SEPARATION)
        T, t = two_classes(rng, n_test, NOISE, SEPARATION)
        good = Scales(spread=0.0, noise_scale=GOOD_SCALE, n_noise=NOISE)
        found.append(
            [
                min(
                    1 - KNNClassifier(learner, n_neighbors=k).fit(X, y).score(T, t)
                    for k in (9, 11, 13, 15)
                )
                for learner in (None, Normalizer(), good)
            ]
        )
    return np.mean(found, axis=0)


def rates(scenario, runs, jobs=1, start=0, **options):
    """Share of runs with a recommendation, and all runs' outcomes."""
    found = Parallel(n_jobs=jobs)(
        delayed(one_run)(scenario, seed, **options) for seed in range(start, start + runs)
    )
    return float(np.mean([run["used"] for run in found])), found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", help="where the outcomes of all runs go")
    parser.add_argument("--scenario", choices=("labels", "learners", "gain"))
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tuning", default="full")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--folds", type=int, help="only the first so many of five")
    options = parser.parse_args()
    asked = {"n_rows": options.rows, "repeats": options.repeats, "tuning": options.tuning}
    asked |= {"sample": options.sample} if options.sample else {}
    asked |= {"n_folds": options.folds} if options.folds else {}
    print("true errors, raw, cosine and with the good learner:", true_errors().round(4))
    for scenario in [options.scenario] if options.scenario else ["labels", "learners", "gain"]:
        rate, found = rates(scenario, options.runs, options.jobs, **asked)
        kept = float(np.mean([run["kept"] for run in found]))
        holm, reference, learner = (
            float(np.mean([run[key] for run in found])) for key in ("holm", "reference", "learner")
        )
        print(
            f"{scenario}: recommended in {rate:.1%} of {options.runs} runs (Holm's p below 5 % "
            f"in {holm:.1%}), plain distance kept in {kept:.1%}; mean error {reference:.3f} plain, "
            f"{learner:.3f} learner"
        )
        if options.json:
            with open(f"{options.json}-{scenario}.json", "w") as file:
                json.dump(found, file)
