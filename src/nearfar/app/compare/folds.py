"""The work of one method on one fold: tune inside the training rows, fit again, predict.

Pure functions of data, method and fold; the same in a worker process and in this one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from nearfar.app.compare.column_shares import column_shares
from nearfar.app.compare.explaining import explain_chain, told
from nearfar.app.compare.fold_rows import FoldRows
from nearfar.app.compare.kernel_shares import kernels_of
from nearfar.app.compare.methods import Method, Setting
from nearfar.app.compare.plan import FAR_POWER
from nearfar.app.compare.shared_pairs import FoldPairs, Given, SharedPairs
from nearfar.app.compare.splits import INNER_SPLITS, Tuning, inner_splits
from nearfar.app.compare.tensor_pictures import tensors_of
from nearfar.app.compare.through import map_through
from nearfar.arrays import Indices
from nearfar.base import LocalExplanation
from nearfar.base.local_voter import LocalClassifier
from nearfar.base.voter import compute_vote_fractions, vote, vote_by_k
from nearfar.base.voter import find_nearest as nearest_columns
from nearfar.evaluation.measures import Measure
from nearfar.neighbors.knn import KNNClassifier
from nearfar.search.exact_search import kneighbors

MAX_K = 15
#: Neighbors kept for the report.
SHOWN_NEIGHBORS = 5
#: Rows on which each method is timed, at most.
PILOT_ROWS = 1000
#: Held-out rows of a local rule that the report explains, at most.
SHOWN_EXPLAINED = 24
#: Held-out points of a map, at most.
MAX_MAPPED = 1000


class Work(Protocol):
    """What is compared, as the processes of the methods see it."""

    #: What a row is called.
    noun: str
    #: Rows of the longest pilot, and the fewest to which a plan may cut them.
    pilot_rows: int
    least_rows: int
    #: Whether neighbors vote, so that there is a k to tune.
    tunes_k: bool
    #: By what rows are drawn, where there is not the time for all.
    drawn_by: str
    #: How the work grows far beyond the rows of a pilot, at least.
    far_power: float

    def run_fold(self, method: Method, **task: Any) -> dict[str, Any]:
        """Do one fold; what came of it as plain data, with an "error", the smaller the better."""

    def pilot(self, method: Method, **task: Any) -> float:
        """Seconds of one fit on some rows."""

    def warm_up(self) -> None:
        """Do once what all methods do."""

    def share_in(self, folder: str) -> None:
        """Leave in a folder what the processes of other methods can use, and use theirs."""


@dataclass
class Problem(FoldRows):
    """The data, prepared for comparison."""

    X: Any
    classes: NDArray[Any]
    codes: Indices
    prepare: Any
    measure: Measure
    groups: NDArray[Any] | None = None
    time: NDArray[Any] | None = None
    #: For each output of a fitted ``prepare``, the raw column it comes from; None if one to one.
    origins: Callable[[Any], list[int]] | None = None
    n_columns: int = 0
    #: What a row is called.
    noun: str = "row"
    #: Rows of the longest pilot, and the fewest to which a plan may cut them.
    pilot_rows: int = PILOT_ROWS
    least_rows: int = 2000
    tunes_k: bool = True
    drawn_by: str = "by class"
    #: The step that answers by neighbors, and how codes come of y in lines that repeat the run.
    voter: type = KNNClassifier
    codes_of_y: str = "np.unique({y}, return_inverse=True)[1]"
    #: Whether folds have the shares of the classes; if not, codes only say how rows are drawn.
    stratified: bool = True
    far_power: float = FAR_POWER
    #: The last so many rows are a fixed test set.
    n_test_rows: int = 0
    #: The noun for a method that is compared with the baseline.
    learned: str = "learned distance"
    #: What all methods do, done once before any is measured.
    plainest: Setting = field(default_factory=lambda: Setting("", "passthrough", "passthrough"))
    #: Whether what is kept of a fold may have pictures of rows.
    show_rows: bool = False
    #: Names of the columns, where rows have none.
    column_names: tuple[str, ...] = ()
    #: Of sets, the pairs that methods share.
    pairs: SharedPairs | None = None

    def labels(self, rows: Indices) -> NDArray[Any]:
        """Their labels, as the user gave them."""
        return np.asarray(self.classes[self.codes[rows]])

    def inside(self, tuning: Tuning, rows: Indices) -> list[tuple[Indices, Indices]]:
        """Splits of training rows for tuning."""
        guides = _guides(self, rows)
        return inner_splits(tuning, self.codes[rows], *guides, stratified=self.stratified)

    def answers(self, found: Any) -> NDArray[Any]:
        """What was predicted for some rows, as it is kept: codes."""
        return _codes_of(found, self.classes)

    def answers_by_k(self, neighbors: Indices) -> Answers:
        """What the first k neighbors of some rows say, given by their numbers, for each k."""
        voters, n_classes = self.codes[neighbors], len(self.classes)
        return Answers(
            vote_by_k(voters, n_classes),
            lambda column: compute_vote_fractions(voters[:, : column + 1], n_classes, "shrink"),
            voters,
        )

    def errors_by_k(self, predictions: Predictions, test: Indices) -> NDArray[np.float64]:
        """:func:`errors_by_k`."""
        return errors_by_k(self, predictions, test)

    # What a worker asks for: see Work.

    def run_fold(self, method: Method, **task: Any) -> dict[str, Any]:
        """:func:`run_fold`."""
        return run_fold(self, method, **task)

    def pilot(self, method: Method, **task: Any) -> float:
        """:func:`pilot`."""
        return pilot(self, method, **task)

    def warm_up(self) -> None:
        """:func:`warm_up`."""
        warm_up(self)

    def share_in(self, folder: str) -> None:
        """Pairs of sets."""
        if self.pairs is not None:
            self.pairs.share_in(folder)


class Answers(NamedTuple):
    """What neighbors say of rows: for each k, with the shares of votes, and who votes."""

    predicted: NDArray[Any]
    shares: Callable[[int], NDArray[np.float64]]
    voters: Indices | None


@dataclass
class Predictions:
    """Codes predicted for test rows by each k, or in one column by what does not vote.

    Where the target is a number, they are numbers.
    """

    codes: NDArray[Any]
    ks: list[int | None]
    shares: Callable[[int], NDArray[np.float64]]
    neighbors: Indices | None
    chain: Pipeline | None
    fit_seconds: float = 0.0
    predict_seconds: float = 0.0
    mapped: tuple[NDArray[Any], NDArray[Any]] | None = None
    #: Codes of the neighbors of each test row, nearest first.
    voters: Indices | None = None
    caught: list[str] = field(default_factory=list)
    #: Of the prediction, what the search for neighbors took.
    search_seconds: float | None = None


def predict_all_k(
    problem: Problem,
    setting: Setting,
    train: Indices,
    test: Indices,
    shared: FoldPairs | None = None,
) -> Predictions:
    """Fit one setting and predict with every k at once; ``shared`` is for sets."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if shared is None:
            given = Given(setting, problem.inputs(train), problem.inputs(test))
        else:
            given = shared.given(setting, train, test)
        result = _predicted(problem, given, train)
    result.caught = texts_of(
        [w for w in caught if issubclass(w.category, ConvergenceWarning | RuntimeWarning)]
    )
    return result


def texts_of(caught: list[warnings.WarningMessage]) -> list[str]:
    """Warnings, each text once and on one line."""
    return sorted({one_line(warning.category, warning.message) for warning in caught})


def one_line(kind: type, text: Any) -> str:
    """What was raised or warned of."""
    return f"{kind.__name__}: {' '.join(str(text).split())[:300]}"


def _predicted(problem: Problem, given: Given, train: Indices) -> Predictions:
    began = perf_counter()
    setting, known, new = given.setting, given.known, given.new
    largest, fit_seconds = min(MAX_K, len(train)), 0.0
    mapped = chain = by_k = searched = None
    once = 0.0
    if given.distances is not None:
        nearest = nearest_columns(given.distances, largest)[1]
    else:
        steps = setting.steps(problem.first_step)
        labels = problem.labels(train)
        chain = Pipeline(steps) if steps else None
        if chain is not None and setting.neighbors:
            chain.set_params(learner__n_neighbors=largest)
        if not setting.votes:
            assert chain is not None
            chain.fit(known, labels)
            fit_seconds = perf_counter() - began
            answers = chain[-1].predict(map_through(chain[:-1], new))
            return Predictions(
                problem.answers(answers)[:, None],
                [None],
                lambda _: _probabilities(chain, problem, new),
                None,
                chain,
                given.fit_seconds + fit_seconds,
                given.predict_seconds + perf_counter() - began - fit_seconds,
            )
        if setting.neighbors:
            assert chain is not None
            chain.fit(known, labels)
            fit_seconds = perf_counter() - began
            queries = map_through(chain[:-1], new)
            asked = perf_counter()
            nearest = chain[-1].kneighbors(queries)[1]
            searched = perf_counter() - asked
            if not chain[-1].nested:
                once = perf_counter() - began - fit_seconds
                by_k = chain[-1].kneighbors_by_k(queries, largest)
        else:
            # As a Pipeline does: what is embedded in fitting is not embedded again.
            points = _points(known if chain is None else chain.fit_transform(known, labels))
            fit_seconds = perf_counter() - began
            queries = _points(new if chain is None else map_through(chain, new))
            asked = perf_counter()
            _, nearest = kneighbors(points, queries, n_neighbors=largest)
            searched = perf_counter() - asked
            mapped = (points, queries)
    found = problem.answers_by_k(train[nearest])
    predict_seconds = perf_counter() - began - fit_seconds
    if by_k is not None:
        found, predict_seconds = _not_nested(problem, [train[one] for one in by_k], found), once
    return Predictions(
        found.predicted,
        list(range(1, largest + 1)),
        found.shares,
        train[nearest[:, :SHOWN_NEIGHBORS]],
        chain,
        given.fit_seconds + fit_seconds,
        given.predict_seconds + predict_seconds,
        mapped,
        found.voters,
        search_seconds=searched,
    )


def _not_nested(problem: Problem, by_k: list[Indices], most: Answers) -> Answers:
    """Answers by neighbors that were found for each k anew."""
    each = [problem.answers_by_k(neighbors) for neighbors in by_k]
    return Answers(
        np.stack([one.predicted[:, -1] for one in each], axis=1),
        lambda column: each[column].shares(column),
        None,
    )


def errors_by_k(problem: Problem, predictions: Predictions, test: Indices) -> NDArray[np.float64]:
    """The error for each k."""
    true = problem.codes[test]
    # A scorer of one's own may look at the rows.
    X = None if problem.measure.is_mean_over_rows else problem.rows(test)
    return np.array(
        [
            problem.measure.compute_error(
                problem.classes,
                true,
                predictions.codes[:, column],
                lambda column=column: predictions.shares(column),  # type: ignore[misc]
                X,
            )
            for column in range(predictions.codes.shape[1])
        ]
    )


def plain_vote_error(
    problem: Problem, predictions: Predictions, test: Indices, k: int | None
) -> float | None:
    """The error if of classes with as many votes the first won, as in scikit-learn."""
    if predictions.voters is None or k is None:
        return None
    voters, n_classes = predictions.voters[:, :k], len(problem.classes)
    X = None if problem.measure.is_mean_over_rows else problem.rows(test)
    return float(
        problem.measure.compute_error(
            problem.classes,
            problem.codes[test],
            vote(voters, n_classes, "first"),
            lambda: compute_vote_fractions(voters, n_classes, "first"),
            X,
        )
    )


@dataclass(frozen=True)
class Choice:
    """What tuning chose, and its error inside the training rows."""

    setting: Setting
    k: int | None
    error: float | None
    caught: tuple[str, ...]


def tune(
    problem: Problem,
    method: Method,
    train: Indices,
    tuning: Tuning,
    shared: FoldPairs | None = None,
    k: int | None = None,
) -> Choice:
    """The setting and k with the lowest error on splits inside the training rows.

    Of sets, with ``shared``, scale and ridge are those of all training sets, or of all sets, in
    every split. Where ``k`` is given, the setting with the lowest error at that k, or at the most
    that is tried.
    """
    settings = method.tried(tuning)
    inside = problem.inside(tuning, train)
    # Too few rows to split, or nothing to choose; a learner's error is asked for all the same.
    idle = len(settings) == 1 and not settings[0].votes and method.role == "context"
    if not inside or idle:
        return Choice(settings[0], (k or 1) if settings[0].votes else None, None, ())
    caught: set[str] = set()
    best: tuple[float, Setting, int | None] | None = None
    failures: list[tuple[Setting, Exception]] = []
    for setting in method.settings:
        if tuning == "k" and best is not None:
            break  # the first that works
        try:
            means, ks = _inner_scores(problem, setting, train, inside, caught, shared)
        except Exception as error:  # one setting that cannot be used leaves the others
            failures.append((setting, error))
            continue
        column = int(means.argmax()) if k is None else min(k, len(means)) - 1
        # As GridSearchCV: the highest mean, the first of equals.
        if best is None or means[column] > best[0]:
            best = (float(means[column]), setting, ks[column])
    if best is None:
        raise failures[0][1]
    notes = [
        f"Setting {one.label!r} failed: {one_line(type(error), error)}" for one, error in failures
    ]
    voters = best[2] if k is None or best[2] is None else k
    return Choice(best[1], voters, 1.0 - best[0], (*notes, *sorted(caught)))


def _inner_scores(
    problem: Problem,
    setting: Setting,
    train: Indices,
    inside: list[tuple[Indices, Indices]],
    caught: set[str],
    shared: FoldPairs | None,
) -> tuple[NDArray[np.float64], list[int | None]]:
    """Mean score of a setting for each k, and these k."""
    scores, ks = [], []
    for part, held in inside:
        predictions = predict_all_k(problem, setting, train[part], train[held], shared)
        scores.append(1.0 - problem.errors_by_k(predictions, train[held]))
        ks.append(predictions.ks)
        caught.update(predictions.caught)
    width = min(len(row) for row in scores)
    return np.average(np.array([row[:width] for row in scores]), axis=0), ks[0]


def run_fold(
    problem: Problem,
    method: Method,
    train: Indices,
    test: Indices,
    tuning: Tuning,
    *,
    details: bool = False,
    draw: bool = False,
    fixed: tuple[str, int | None] | None = None,
    common_units: bool = False,
) -> dict[str, Any]:
    """Tune, fit and predict; a plain dictionary of what came of it.

    Parameters
    ----------
    tuning : {"full", "holdout", "k"}
        Three folds inside the training rows and all settings; one split and all settings; one
        split and the first setting. k is always tuned.
    details : bool
        Keep neighbors too.
    draw : bool
        Keep a map of held-out points, the history of the fit, and pictures of a map of tensors.
    fixed : (str, int or None), optional
        A setting by its label, and k: nothing is tuned.
    common_units : bool
        Of sets, whether scale and ridge are those of all sets of the folds.
    """
    began = perf_counter()
    shared = None
    if problem.pairs is not None:
        splits = INNER_SPLITS[tuning]
        shared = problem.pairs.fold(train, test, method.settings, splits, common_units)
    if fixed is None:
        choice = tune(problem, method, train, tuning, shared)
    else:
        setting = next(one for one in method.settings if one.label == fixed[0])
        choice = Choice(setting, fixed[1], None, ())
    tuned = perf_counter() - began
    if shared is not None:  # as if all had been done for this method alone
        tuned += sum(shared.charged.values()) - shared.passed
    final = predict_all_k(problem, choice.setting, train, test, shared)
    column = 0 if choice.k is None else min(choice.k, final.codes.shape[1]) - 1
    errors = problem.errors_by_k(final, test)
    result: dict[str, Any] = {
        "error": float(errors[column]),
        "error_plain_vote": plain_vote_error(problem, final, test, final.ks[column]),
        "inner_error": choice.error,
        "setting": choice.setting.label,
        "k": final.ks[column],
        "tune_seconds": tuned,
        "fit_seconds": final.fit_seconds,
        "predict_seconds": final.predict_seconds,
        "search_seconds": final.search_seconds,
        "warnings": list(dict.fromkeys([*choice.caught, *final.caught]))[:5],
        "weights": column_shares(
            final.chain, problem.inputs(train), problem.origins, problem.n_columns
        ),
    }
    result["kernels"] = kernels_of(final.chain)
    result["predicted"] = final.codes[:, column].tolist()
    if details and final.neighbors is not None:
        result["neighbors"] = final.neighbors.tolist()
    if draw:
        result["map"] = _flat_map(final)
        result["history"] = history_of(final.chain)
        result["tensors"] = tensors_of(
            final.chain, problem.inputs(test), test, show_rows=problem.show_rows
        )
        result["local"] = local_of(problem, final.chain, train, test, final.ks[column])
    return result


def local_of(
    problem: Problem, chain: Pipeline | None, train: Indices, test: Indices, k: int | None
) -> dict[str, Any] | None:
    """Which features matter where, of a fitted rule with a metric for each row; else None.

    The mean share of each column over held-out rows, and by predicted class; and some rows, with
    their voters and what the columns did to their distances.
    """
    if chain is None or k is None or not isinstance(chain[-1], LocalClassifier):
        return None
    voter = copy(chain[-1])
    voter.n_neighbors = k
    some = test[shown_rows(len(test))]
    own = Pipeline([*chain.steps[:-1], ("learner", voter)])
    why = explain_chain(own, problem.inputs(some), problem.column_names, overall=False)
    mean = why.relevance.mean(axis=0)
    why = why.with_overall(mean)
    codes = problem.answers(why.labels)
    chosen = _rows_to_explain(codes, problem.codes[some]) if problem.show_rows else []
    found = why.by_class()
    return {
        "k": k,
        "features": why.feature_names,
        "overall": mean.tolist(),
        "n_rows": len(some),
        "classes": [
            {"code": int(code), "n": int((codes == code).sum()), "shares": shares.tolist()}
            for code, shares in zip(problem.answers(list(found)), found.values(), strict=True)
        ],
        "rows": [_explained_row(why, i, int(some[i]), codes, train) for i in chosen],
    }


def _rows_to_explain(predicted: Indices, true: Indices) -> list[int]:
    """Errors first, as they ask for it most, then rows of all classes in turn."""
    wrong = np.flatnonzero(predicted != true)[: SHOWN_EXPLAINED // 2].tolist()
    right = np.flatnonzero(predicted == true)
    place = np.zeros(len(right), dtype=np.intp)
    for code in np.unique(true[right]):
        own = np.flatnonzero(true[right] == code)
        place[own] = np.arange(len(own))
    in_turn = right[np.lexsort((right, true[right], place))].tolist()
    return [*wrong, *in_turn[: SHOWN_EXPLAINED - len(wrong)]]


def _explained_row(
    why: LocalExplanation, i: int, row: int, codes: Indices, train: Indices
) -> dict[str, Any]:
    found = told(why, i)
    for voter in found["voters"]:
        voter["row"] = int(train[voter["row"]])
    vote, metric = why.describe(i)
    return found | {"row": row, "predicted": int(codes[i]), "vote": vote, "metric": metric}


def pilot(problem: Problem, method: Method, train: Indices, test: Indices, size: int) -> float:
    """Seconds of one fit and prediction on so many rows, with the first setting that works.

    A method that shares is timed without what others did, and with one split inside, after which
    all other splits of that setting cost little.
    """
    some = some_of(train, size)
    if len(np.unique(problem.codes[some])) < 2:
        some = train
    asked = test[: max(1, len(test) * len(some) // len(train))]
    failures = []
    for setting in method.settings:
        shared, inside = None, []
        if problem.pairs is not None and method.shares is not None:
            shared = problem.pairs.alone(some, asked, [setting])
            inside = problem.inside("k", some)
        began = perf_counter()
        try:
            for part, held in inside:
                predict_all_k(problem, setting, some[part], some[held], shared)
            predict_all_k(problem, setting, some, asked, shared)
        except Exception as error:
            failures.append(error)
        else:
            return perf_counter() - began
    raise failures[0]


def some_of(rows: Indices, size: int) -> Indices:
    """A random choice of so many rows, or all."""
    random = np.random.default_rng(0)
    return rows if size >= len(rows) else np.sort(random.choice(rows, size, replace=False))


def warm_up(problem: Problem) -> None:
    """Do once, with the plainest method, what all do, so that its memory is no method's own."""
    few = np.arange(min(30, len(problem.codes)))
    with suppress(Exception):  # too few rows, say: it is not asked for anything
        predict_all_k(problem, problem.plainest, few, few)


def _guides(problem: Problem, rows: Indices) -> tuple[Any, Any]:
    return (
        None if problem.groups is None else problem.groups[rows],
        None if problem.time is None else problem.time[rows],
    )


def _points(mapped: Any) -> NDArray[np.floating[Any]]:
    points = np.asarray(mapped)
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float64)
    if points.ndim != 2:
        raise ValueError(f"transform gave an array of shape {points.shape}; it must be 2-d.")
    if not np.isfinite(points).all():
        raise ValueError("transform gave NaN or infinity.")
    return points


def _codes_of(labels: Any, classes: NDArray[Any]) -> Indices:
    labels = np.asarray(labels)
    codes = np.searchsorted(classes, labels)
    codes = np.minimum(codes, len(classes) - 1)
    if not (classes[codes] == labels).all():
        raise ValueError("predict gave labels that are not among the classes.")
    return codes.astype(np.intp)


def _probabilities(chain: Pipeline, problem: Problem, new: Any) -> NDArray[np.float64]:
    """Class probabilities with a column for every class of the data."""
    found = chain[-1].predict_proba(map_through(chain[:-1], new))
    shares = np.zeros((len(found), len(problem.classes)))
    shares[:, _codes_of(chain[-1].classes_, problem.classes)] = found
    return shares


def _flat_map(final: Predictions) -> dict[str, list[float]] | None:
    """Held-out points in the first two principal axes of the mapped training rows."""
    if final.mapped is None:
        return None
    points, queries = (part.astype(np.float64) for part in final.mapped)
    queries = queries[shown_rows(len(queries))]
    center = points.mean(axis=0)
    if points.shape[1] > 2:
        # Enough rows for two axes.
        sample = points[:: max(1, len(points) // 5000)]
        axes = np.linalg.svd(sample - center, full_matrices=False)[2][:2]
        # Signs by the largest entry, so that maps do not flip from run to run.
        axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
        flat = (queries - center) @ axes.T
    else:
        flat = queries - center
    if flat.shape[1] == 1:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    return {"x": flat[:, 0].tolist(), "y": flat[:, 1].tolist()}


def shown_rows(n_test: int) -> Indices:
    """Which of the test rows a map shows: all, or evenly chosen ones."""
    return np.linspace(0, n_test - 1, min(n_test, MAX_MAPPED)).astype(np.intp)


def history_of(chain: Pipeline | None) -> dict[str, list[float]] | None:
    """How the objective of a fitted learner went, as far as it tells."""
    learner = None if chain is None else chain.named_steps.get("learner")
    history = getattr(learner, "history_", None)
    if not isinstance(history, dict) or "objective" not in history:
        return None
    return {
        name: [float(value) for value in history[name]][:1000]
        for name in ("objective", "seconds")
        if name in history
    }
