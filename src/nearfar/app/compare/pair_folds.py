"""The work of one method on one fold of pairs: tune inside, fit, rank the held-out pairs.

A pair is known by its number, those that are alike first. Folds are of pairs no two of which, one
to train on and one to test, have a row in common. What a method learns from are the rows of its
training pairs, and the rows of which nothing is said.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import signature
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from nearfar.app.compare.column_shares import column_shares
from nearfar.app.compare.fold_rows import FoldRows
from nearfar.app.compare.folds import (
    Choice,
    history_of,
    one_line,
    some_of,
    texts_of,
)
from nearfar.app.compare.methods import Method, Setting
from nearfar.app.compare.pair_splits import inner_pair_splits
from nearfar.app.compare.splits import Tuning
from nearfar.app.compare.through import map_through
from nearfar.arrays import Indices, Matrix
from nearfar.base import LinearLearner
from nearfar.blocks import split_rows
from nearfar.evaluation.measures import Measure
from nearfar.neighbors.pair_classifier import Strategy, derive_supervision, find_best_threshold
from nearfar.summaries.supervision import Pairs, Supervision

MEASURE = Measure(
    "AUC of held-out pairs",
    "roc_auc",
    "AUC of held-out pairs: the chance that of two held-out pairs, one alike and one different, "
    "the alike one is nearer; 50% is what a distance reaches that knows nothing.",
)
#: One kind may outnumber the other so many times before the threshold weighs them alike.
UNLIKE = 3.0


@dataclass
class PairProblem(FoldRows):
    """Rows, and which pairs of them are alike or different."""

    X: Any
    pairs: Pairs
    prepare: Any
    #: For each output of a fitted ``prepare``, the raw column it comes from; None if one to one.
    origins: Callable[[Any], list[int]] | None = None
    n_columns: int = 0
    #: A number for each row, the same for copies of one another; None where there are none.
    same: Indices | None = None
    measure: Measure = MEASURE
    noun: str = "pair"
    pilot_rows: int = 4000
    least_rows: int = 1000
    tunes_k: bool = False
    drawn_by: str = "of each kind"
    far_power: float = 1.0  # no neighbors are searched
    #: The two rows of each pair, and whether they are alike (1) or different (0).
    ends: Indices = field(init=False)
    codes: Indices = field(init=False)
    #: Rows in no pair.
    free: Indices = field(init=False)
    # What rows have beside, and pairs have not.
    groups: None = None
    time: None = None
    n_test_rows: int = 0

    def __post_init__(self) -> None:
        alike, different = self.pairs.similar, self.pairs.dissimilar
        self.ends = np.vstack([alike, different])
        self.codes = np.repeat(np.array([1, 0], np.intp), [len(alike), len(different)])
        self.free = np.setdiff1d(np.arange(self.pairs.n_samples), self.ends)

    @property
    def strategy(self) -> Strategy:
        """By what a threshold is calibrated: accuracy, or F1 where one kind is rare."""
        counts = np.bincount(self.codes, minlength=2)
        return "f_beta" if counts.max() > UNLIKE * counts.min() else "accuracy"

    def known(self, numbers: Indices) -> tuple[Indices, Pairs]:
        """Rows of some pairs and rows in none, and these pairs in their numbers."""
        return restricted(self.ends, self.codes, numbers, self.free)

    # What a worker asks for: see Work.

    def run_fold(self, method: Method, **task: Any) -> dict[str, Any]:
        """:func:`run_pair_fold`."""
        return run_pair_fold(self, method, **task)

    def pilot(self, method: Method, **task: Any) -> float:
        """:func:`pilot`."""
        return pilot(self, method, **task)

    def warm_up(self) -> None:
        """Do once, with the plainest method, what all do."""
        few = np.concatenate([np.flatnonzero(self.codes == kind)[:10] for kind in (0, 1)])
        with suppress(Exception):  # it is not asked for anything
            judged(self, Setting("", "passthrough", "passthrough"), few, few)

    def share_in(self, folder: str) -> None:
        """Nothing is shared."""


def restricted(
    ends: Indices, codes: Indices, numbers: Indices, free: Indices
) -> tuple[Indices, Pairs]:
    """Rows of some pairs and rows in none, and these pairs in the numbers of these rows.

    >>> ends, codes = np.array([[5, 2], [2, 9], [0, 1]]), np.array([1, 0, 1])
    >>> rows, pairs = restricted(ends, codes, np.array([0, 1]), np.array([7]))
    >>> rows.tolist(), pairs.similar.tolist(), pairs.dissimilar.tolist()
    ([2, 5, 7, 9], [[1, 0]], [[0, 3]])
    """
    chosen, kinds = ends[numbers], codes[numbers]
    rows = np.union1d(chosen, free)
    places = np.searchsorted(rows, chosen)
    # What was to become of pairs said both ways was decided when they were read.
    pairs = Pairs(places[kinds == 1], places[kinds == 0], n_samples=len(rows), conflicts="keep")
    return rows, pairs


# What tells a learner of pairs


def contradictions(pairs: Pairs) -> Indices:
    """Pairs that are different, of two rows that alike pairs join: being alike is not passed on.

    >>> contradictions(Pairs([[0, 1], [1, 2]], [[0, 2], [0, 3]], n_samples=4)).tolist()
    [[0, 2]]
    """
    members = _joined(pairs)[pairs.dissimilar]
    return pairs.dissimilar[members[:, 0] == members[:, 1]]


def _joined(pairs: Pairs) -> Indices:
    """The number of the group of each row."""
    ends, n = pairs.similar, pairs.n_samples
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.intp)


def fit_to_pairs(chain: Pipeline, rows: Any, pairs: Pairs) -> Pipeline:
    """Fit all steps, the learner with what it can be told by the pairs."""
    name, last = "", chain
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name += f"{step}__"
    guide = None if chain.steps[-1][0] != "learner" else told_by(last, pairs)
    if guide is None:
        return chain.fit(rows)
    with config_context(enable_metadata_routing=False):
        return chain.fit(rows, **{f"{name}supervision": guide})


def told_by(learner: Any, pairs: Pairs) -> Supervision | None:
    """What pairs tell a learner; None where it is told nothing.

    One of another make is told, if its ``fit`` takes ``supervision``.
    """
    if isinstance(learner, str):
        return None
    if hasattr(learner, "learner_tags"):
        return derive_supervision(learner, pairs)
    return pairs if "supervision" in signature(learner.fit).parameters else None


def pair_distances(chain: Pipeline | None, rows: Any, ends: Indices) -> Matrix:
    """Distances of pairs of rows, given by their places among these."""
    points = rows if chain is None else map_through(chain[:-1], rows)
    last = None if chain is None else chain.steps[-1][1]
    own = hasattr(last, "pair_distance") and not isinstance(last, LinearLearner)
    if last is not None and not own:
        points = map_through(chain[-1:], points)  # type: ignore[index]
    points = np.asarray(points)
    if points.ndim != 2:
        raise ValueError(f"transform gave an array of shape {points.shape}; it must be 2-d.")
    found = np.empty(len(ends))
    for block in split_rows(len(ends), 16 * points.shape[1]):
        if own:
            found[block] = last.pair_distance(points[ends[block]])  # type: ignore[union-attr]
            continue
        one, other = (points[ends[block, side]].astype(np.float64) for side in (0, 1))
        found[block] = np.linalg.norm(one - other, axis=1)
    if not np.isfinite(found).all():
        raise ValueError("the distances of some pairs are NaN or infinite.")
    return found


# A fold


@dataclass
class Judged:
    """Distances of held-out pairs by one setting, and those of the pairs it was fitted to."""

    distances: Matrix
    fitted: Matrix
    chain: Pipeline | None
    rows: Any
    fit_seconds: float
    predict_seconds: float
    caught: list[str]


def judged(problem: PairProblem, setting: Setting, train: Indices, test: Indices) -> Judged:
    """Fit one setting to training pairs, and measure held-out pairs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = perf_counter()
        steps = setting.steps(problem.first_step)
        chain = Pipeline(steps) if steps else None
        numbers, pairs = problem.known(train)
        rows = problem.inputs(numbers)
        if chain is not None:
            fit_to_pairs(chain, rows, pairs)
        fitted = perf_counter()
        held, places = np.unique(problem.ends[test], return_inverse=True)
        distances = pair_distances(chain, problem.inputs(held), places.reshape(-1, 2))
        measured = perf_counter()
        own = pair_distances(chain, rows, np.searchsorted(numbers, problem.ends[train]))
    told = [w for w in caught if issubclass(w.category, ConvergenceWarning | RuntimeWarning)]
    texts = texts_of(told)
    return Judged(distances, own, chain, rows, fitted - began, measured - fitted, texts)


def ranking_error(codes: Indices, distances: Matrix) -> float:
    """One minus the area under the curve: how often a different pair is nearer than an alike one.

    >>> round(ranking_error(np.array([1, 1, 0, 0]), np.array([1.0, 3.0, 2.0, 4.0])), 2)
    0.25
    """
    ranks = rankdata(distances)
    n_alike = int((codes == 1).sum())
    # Of each alike pair, the different ones that are nearer; ties count half.
    nearer = ranks[codes == 1].sum() - n_alike * (n_alike + 1) / 2
    return float(nearer / (n_alike * (len(codes) - n_alike)))


def tune(problem: PairProblem, method: Method, train: Indices, tuning: Tuning) -> Choice:
    """The setting with the highest area on splits inside the training pairs."""
    settings = method.tried(tuning)
    inside = inner_pair_splits(tuning, problem.ends[train], problem.codes[train], problem.same)
    if not inside:
        return Choice(settings[0], None, None, ())
    caught: set[str] = set()
    best: tuple[float, Setting] | None = None
    failures: list[tuple[Setting, Exception]] = []
    for setting in method.settings:
        if tuning == "k" and best is not None:
            break  # the first that works
        try:
            errors = []
            for part, held in inside:
                found = judged(problem, setting, train[part], train[held])
                errors.append(ranking_error(problem.codes[train[held]], found.distances))
                caught.update(found.caught)
        except Exception as error:  # one setting that cannot be used leaves the others
            failures.append((setting, error))
            continue
        if best is None or np.mean(errors) < best[0]:
            best = (float(np.mean(errors)), setting)
    if best is None:
        raise failures[0][1]
    notes = [
        f"Setting {one.label!r} failed: {one_line(type(error), error)}" for one, error in failures
    ]
    return Choice(best[1], None, best[0], (*notes, *sorted(caught)))


def run_pair_fold(
    problem: PairProblem,
    method: Method,
    train: Indices,
    test: Indices,
    tuning: Tuning,
    *,
    details: bool = False,
    draw: bool = False,
    fixed: tuple[str, int | None] | None = None,
) -> dict[str, Any]:
    """Tune, fit and measure; a plain dictionary of what came of it.

    Parameters are those of :func:`nearfar.app.compare.folds.run_fold`. The threshold is calibrated
    on the training pairs. Distances are kept over the median of those of the training pairs, so
    that folds, each with a map of its own, can be laid over one another.
    """
    began = perf_counter()
    if fixed is None:
        choice = tune(problem, method, train, tuning)
    else:
        setting = next(one for one in method.settings if one.label == fixed[0])
        choice = Choice(setting, None, None, ())
    tuned = perf_counter() - began
    final = judged(problem, choice.setting, train, test)
    codes = problem.codes[test]
    threshold = find_best_threshold(final.fitted, problem.codes[train] == 1, problem.strategy)
    unit = float(np.median(final.fitted)) or 1.0
    rates = error_rates(final.distances, codes, threshold)
    result: dict[str, Any] = {
        "error": ranking_error(codes, final.distances),
        "inner_error": choice.error,
        "setting": choice.setting.label,
        "k": None,
        "tune_seconds": tuned,
        "fit_seconds": final.fit_seconds,
        "predict_seconds": final.predict_seconds,
        "warnings": list(dict.fromkeys([*choice.caught, *final.caught]))[:5],
        "weights": column_shares(final.chain, final.rows, problem.origins, problem.n_columns),
        "threshold": threshold / unit,
        **rates,
    }
    if details:
        result["distances"] = [float(f"{d:.6g}") for d in final.distances / unit]
    if draw:
        result["history"] = history_of(final.chain)
    return result


def error_rates(distances: Matrix, codes: Indices, threshold: float) -> dict[str, float | None]:
    """Shares of alike pairs called different, and of different pairs called alike.

    >>> error_rates(np.array([1.0, 3.0, 2.0, 4.0]), np.array([1, 1, 0, 0]), 2.5)
    {'missed': 0.5, 'false_alike': 0.5}
    """
    near: NDArray[np.bool_] = distances <= threshold
    alike = codes == 1
    return {
        "missed": float(np.mean(~near[alike])) if alike.any() else None,
        "false_alike": float(np.mean(near[~alike])) if (~alike).any() else None,
    }


def pilot(problem: PairProblem, method: Method, train: Indices, test: Indices, size: int) -> float:
    """Seconds of one fit and measurement with so many pairs, by the first setting that works."""
    some = some_of(train, size)
    if len(np.unique(problem.codes[some])) < 2:
        some = train
    asked = test[: max(1, len(test) * len(some) // len(train))]
    failures = []
    for setting in method.settings:
        began = perf_counter()
        try:
            judged(problem, setting, some, asked)
        except Exception as error:
            failures.append(error)
        else:
            return perf_counter() - began
    raise failures[0]
