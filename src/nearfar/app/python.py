"""The way in from Python, as ``cli`` is the one from the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from nearfar.app.compare.comparison import Comparison
from nearfar.app.compare.driver import answer
from nearfar.app.compare.methods import Scale, Then
from nearfar.app.compare.question import Question, Task
from nearfar.app.compare.splits import Tuning
from nearfar.app.progress import Progress, python_progress
from nearfar.app.report import write


def compare(
    X: Any,
    y: ArrayLike | None = None,
    *,
    task: Task | None = None,
    supervision: Any = None,
    methods: Any = None,
    without: Any = (),
    sample: int | Literal["auto"] | None = "auto",
    cv: Any = None,
    groups: ArrayLike | None = None,
    time: ArrayLike | None = None,
    test: tuple[Any, ArrayLike] | None = None,
    report_by: str | ArrayLike | None = None,
    scoring: Any = None,
    scale: Scale = "auto",
    then: Then = "auto",
    repeats: int | None = None,
    time_budget: float | None = None,
    tuning: Tuning | None = None,
    min_gain: float = 0.05,
    keep: Sequence[Any] | None = None,
    drop: Sequence[Any] | None = None,
    random_state: int = 0,
    context: bool = True,
    n_jobs: int | None = None,
    isolate: bool = True,
    journal: str | os.PathLike[str] | None = None,
    show_rows: bool = True,
    n_components: int = 2,
    color: Any = None,
    verbose: bool = True,
) -> Comparison:
    """Compare learned distances with the best standard distance and recommend one.

    Without labels, it compares embeddings by the neighbors of held-out rows that they keep. PCA is
    the baseline. See the guide, "Without labels".

    With pairs as ``supervision`` it needs no labels: distances are compared by the ROC AUC of
    held-out pairs, in folds that have no row on both sides. See the guide, "Pairs, groups and
    comparisons".

    With ``task="regression"``, y is a number to predict. Distances are compared by k-NN regression,
    and errors are relative RMSEs (:class:`nearfar.evaluation.measures.RelativeRMSE`; predicting the
    mean has 100%).

    For sets of vectors, it compares dissimilarities of their Gaussians, embeddings and bags of
    words with the distance between the means, the baseline. See the guide, "Sets of vectors".

    Every method is tested on the same held-out folds. k and a few settings are tuned within each
    training fold, for standard distances and learners alike. The *baseline* is the best of four
    standard distances (raw, standardized, cosine, whitened), selected within each training fold. A
    learner is recommended only if the corrected resampled confidence interval of its paired
    difference to the baseline excludes zero and the gain exceeds ``min_gain``. The p-value after
    Holm's adjustment over all learners is reported as well.

    Parameters
    ----------
    X : array-like, DataFrame or Sets
        Rows and features; images as (n, height, width) or (n, height, width, 3), and any tensors
        as (n, d1, ..., dk): learners of tensors take them as they are, others flat. In a DataFrame
        missing values are imputed and categories encoded inside each fold; identifiers, dates, free
        text and categories of hundreds of levels are left out, and said. Of ``Sets`` each set is
        what below is called a row.
    y : array-like of shape (n_samples,), optional
        Labels; a continuous target is refused, unless ``task`` is "regression". None compares
        embeddings; for ``Sets`` it takes their own labels.
    task : {"classification", "regression"}, optional
        What y is: classes, or a number to predict. It is never guessed; None is classes.
    supervision : Pairs, optional
        Pairs of rows judged alike or different, instead of labels, which are then not read.
    methods : mapping, sequence, str, learner or None
        ``{"lmnn": LMNN(), "mine": Mine()}``: learners, or classifiers, or lists of up to four of
        them as settings to tune; or learners and names of learners, as in ``[LMNN(), "rca"]``, or
        of a family, as in ``"discriminant"``; None is LDA, RCA and LMNN, and of images GTDA
        too. What cannot learn from the target is left out, and that is said. In regression
        learners of values, regressors and
        maps that read no target; None is MLKR. With pairs, learners that
        learn from them; None is MMC, LogisticMetric, ITML, and RCA where no pair contradicts that
        who is alike to one is alike to all that are alike to it. Without labels,
        embeddings with a ``transform`` for new rows; None chooses by the number of rows. For
        ``Sets``, the names that ``nearfar methods --for sets`` lists, or estimators that take
        ``Sets``.
    without : str or sequence of str, optional
        Names of learners and classifiers that are not to be compared.
    sample : int, "auto" or None, default="auto"
        Compare on so many rows, drawn by class and, if there are groups, with whole groups or
        with rows of each; None is all. "auto" is all, if a pilot says that these can be tested in
        the time given, and otherwise as many as can. The answer says how many. If time is left,
        the recommended learner and the standard distance are then fitted once to all rows.
    cv : int, splitter or iterable, optional
        Folds of your own: how many, a splitter of scikit-learn, or pairs of row numbers to train on
        and to test; None is repeated, shuffled, stratified 5-fold.
    groups : array-like of shape (n_samples,), optional
        Rows of one group are never both trained on and tested.
    time : array-like of shape (n_samples,), optional
        Numbers or dates: train on the past, test on what follows.
    test : (X, y), optional
        A fixed test set instead of folds.
    report_by : str or array-like of shape (n_samples,), optional
        Report errors by group: a column of X, which then is no feature, or a value for each row.
        Numbers of many different values are cut at their quartiles. A recommendation that makes a
        group clearly worse says so.
    scoring : str or callable, optional
        A scorer of scikit-learn whose best value is 1; None is the error, balanced when classes
        are unbalanced.
    scale : {"auto", "none", "standard", "unit"}, default="auto"
        Scaling before the learners; "auto" tunes it. Without labels it is also the scaling of
        what is measured, and "auto" standardizes columns of very unequal spread. For ``Sets``
        "standard" divides features by their standard deviations over all training vectors.
    then : {"auto", "lda", "none"}, default="auto"
        What follows a map of tensors, where there are labels: an LDA of what it keeps, shrunk by
        0.1, or nothing; "auto" tunes it.
    repeats : int, optional
        How often all rows are split anew; None is as many as the time allows, at most 5.
    time_budget : float, optional
        Seconds; then what still runs is killed. None is 120, or no limit when ``repeats`` is given.
        What does not fit is given up in this order: repeats, rows, tuning (for all alike), and
        last whole learners, the dearest first.
    tuning : {"full", "holdout", "k"}, optional
        How much is tried inside each training fold; None is as much as the time allows.
    min_gain : float, default=0.05
        Minimum gain for a recommendation, relative to the baseline's error.
    keep, drop : sequence of column names, optional
        Columns to use, or not, whatever they look like.
    random_state : int, default=0
        Seed of the folds.
    context : bool, default=True
        Add the majority class, logistic regression and gradient-boosted trees, for context; in
        regression the mean, ridge regression and trees; without labels, a random projection.
    n_jobs : int, optional
        Worker processes at once; None is one for each core.
    isolate : bool, default=True
        Each method in a process of its own with one BLAS thread: it can be killed, its memory is
        measured, and its crash is a row of the table. False runs all in this process.
    journal : path, optional
        Results are kept there as they come; if it exists, the comparison goes on from it.
    show_rows : bool, default=True
        Let the report show values of rows; False keeps them out of the result altogether.
    n_components : int, default=2
        Dimensions of the embeddings that are only named; without labels only.
    color : str or array-like of shape (n_samples,), optional
        What colours the pictures of the report: a column, which then is no feature, or values;
        without labels only.
    verbose : bool, default=True
        Print plan and progress to standard error.

    Returns
    -------
    Comparison
        With ``answer``, ``verdict``, ``best``, ``table``, ``folds``, ``code``, ``pipeline``,
        ``fit``, ``to_html`` and ``to_json``;
        without labels an :class:`nearfar.app.compare.embedding_comparison.EmbeddingComparison`,
        with pairs a :class:`nearfar.app.compare.pair_comparison.PairComparison`, in regression a
        :class:`nearfar.app.compare.value_comparison.ValueComparison`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LDA, compare
    >>> X, y = load_iris(return_X_y=True)
    >>> result = compare(X, y, methods={"lda": LDA()}, repeats=1, isolate=False, verbose=False)
    >>> result.verdict
    'inconclusive'
    >>> len(result.document["folds"])
    5
    >>> compare(X, methods="isomap", repeats=1, isolate=False, verbose=False).best
    'pca'
    """
    given = dict(locals())
    question = Question.of(given)
    progress = python_progress(question.budget) if verbose else Progress()
    result = answer(question, progress=progress)
    if journal is not None and result.complete:
        Path(journal).unlink(missing_ok=True)
    result.write_page = write
    result.document["next"] = _next(result, _given(question))
    return result


def _given(question: Question) -> str:
    """What the recommended chain is fitted to."""
    return "X, pairs" if question.of_pairs else "X" if question.y is None else "X, y"


def _next(result: Comparison, given: str) -> list[dict[str, str]]:
    """What to do with the answer."""
    if result.chain is None:
        return []
    chosen = result.chain.chosen
    words = f" ({chosen.words()})" if chosen.words() else ""
    noun = result.document["data"].get("unit", "row")
    steps = {
        f"Fit {chosen.method.label}{words} to all {noun}s": f"model = result.fit({given})",
        "Keep it in a file": "nearfar.save(model, 'model.nf')",
    }
    return [{"text": text, "command": command} for text, command in steps.items()]
