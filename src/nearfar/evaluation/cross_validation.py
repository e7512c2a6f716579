"""Cross-validation that restricts index-based supervision to the rows of each fold."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from nearfar.neighbors.knn import KNNClassifier
from nearfar.summaries.supervision import Chunklets, Supervision


def cross_validate(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    supervision: Supervision | ArrayLike | None = None,
    groups: ArrayLike | None = None,
    cv: Any = None,
    scoring: Any = None,
    n_jobs: int | None = None,
    return_estimator: bool = False,
) -> dict[str, Any]:
    """Cross-validate an estimator whose supervision refers to rows by index.

    In each fold, the supervision is restricted to the training rows.

    scikit-learn's own ``cross_validate`` passes index-based supervision to every fold unchanged,
    although its indices no longer match the rows of the fold. This function passes
    ``supervision.restrict(train_rows)`` to ``fit`` instead.

    Parameters
    ----------
    estimator : learner, classifier or Pipeline
        The estimator to evaluate. A learner without ``predict`` is wrapped in a
        :class:`~nearfar.KNNClassifier`. A Pipeline must route ``supervision`` to its steps; see
        Notes.
    X : array-like of shape (n_samples, n_features)
        The data.
    y : array-like of shape (n_samples,), optional
        Labels, used for scoring. They are also passed to ``fit``.
    supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like of int, optional
        Supervision that is restricted to the training rows of each fold and passed to ``fit``. An
        integer vector is read as the labels of :class:`~nearfar.Chunklets`.
    groups : array-like of shape (n_samples,), optional
        Group of each row, used only if ``cv`` splits by groups.
    cv : int, splitter or iterable, optional
        Splitting strategy, as in scikit-learn. None means 5 folds, which are stratified if ``y``
        contains classes.
    scoring : str, callable, list or dict, optional
        Scorers, as in scikit-learn. None uses the ``score`` method of the estimator.
    n_jobs : int, optional
        Number of folds that are processed in parallel. None means 1 and -1 means all cores.
    return_estimator : bool, default=False
        Whether to return the fitted estimators as well.

    Returns
    -------
    dict
        Arrays ``test_score`` (or ``test_<name>`` for several scorers), ``fit_time`` and
        ``score_time`` (in seconds), with one entry per fold, and the list ``estimator`` if
        ``return_estimator=True``.

    Notes
    -----
    In a Pipeline, call ``set_fit_request(supervision=True)`` on the step that learns from
    supervision and ``set_fit_request(supervision=False)`` on a ``KNNClassifier`` after it.
    Metadata routing is enabled during ``fit`` when ``supervision`` is given.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import RCA, Chunklets, evaluation
    >>> X, y = load_wine(return_X_y=True)
    >>> chunklets = Chunklets.from_labels(y, n_chunklets=20, chunklet_size=4, random_state=0)
    >>> result = evaluation.cross_validate(RCA(), X, y, supervision=chunklets)
    >>> bool(result["test_score"].mean() > 0.9)
    True
    """
    if not hasattr(estimator, "predict"):
        estimator = KNNClassifier(estimator)
    n_samples = len(X)  # type: ignore[arg-type]
    if supervision is not None and not hasattr(supervision, "restrict"):
        supervision = Chunklets(np.asarray(supervision))
    if supervision is not None:
        supervision.check_n_samples(n_samples)  # type: ignore[union-attr]
    splitter = check_cv(cv, y, classifier=y is not None)
    folds = list(splitter.split(X, y, groups))
    scorer = check_scoring(estimator, scoring=scoring)
    results = Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_score)(estimator, X, y, supervision, train, test, scorer)
        for train, test in folds
    )
    columns: dict[str, Any] = {
        name: np.array([scores[name] for scores, _ in results]) for name in results[0][0]
    }
    if return_estimator:
        columns["estimator"] = [fitted for _, fitted in results]
    return columns


def _fit_and_score(
    estimator: Any,
    X: Any,
    y: Any,
    supervision: Any,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    scorer: Any,
) -> tuple[dict[str, float], Any]:
    fit_arguments = {} if supervision is None else {"supervision": supervision.restrict(train)}
    start = perf_counter()
    with config_context(enable_metadata_routing=True) if fit_arguments else nullcontext():
        fitted = clone(estimator).fit(
            _select_rows(X, train), _select_rows(y, train), **fit_arguments
        )
    fit_time = perf_counter() - start
    scores = scorer(fitted, _select_rows(X, test), _select_rows(y, test))
    if not isinstance(scores, dict):
        scores = {"score": scores}
    results = {f"test_{name}": float(score) for name, score in scores.items()}
    score_time = perf_counter() - start - fit_time
    return results | {"fit_time": fit_time, "score_time": score_time}, fitted


def _select_rows(data: Any, rows: NDArray[np.intp]) -> Any:
    if data is None:
        return None
    return data.iloc[rows] if hasattr(data, "iloc") else np.asarray(data)[rows]
