"""Traps in the data: what would make a comparison meaningless or too good to be true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from nearfar.app.tables.columns import MIN_ROWS_FOR_ID, Columns
from nearfar.extras import import_optional
from nearfar.labels import encode_labels
from nearfar.words import join_names

Folds = Iterable[tuple[NDArray[np.intp], NDArray[np.intp]]]

# Numbers with at most so many different values are classes without further questions.
_FEW = 20
_TELLING = 0.99
_TELLING_ROWS = 2000
# Columns tried with a tree after the quick look; further ones would be named in no warning.
_TELLING_TRIED = 30


@dataclass(frozen=True)
class Trap:
    """A warning: its kind, and a text that names rows, columns or classes and what to do."""

    kind: str
    text: str


def check_target(
    y: Any, name: str = "target", *, noun: str = "row"
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the classes and the code of each row, or refuse what cannot be compared.

    Refused are: one class only; every row its own label, or nearly so; dates; numbers with
    fractions; and whole numbers of more than 20 different values that look like amounts. They do

    - when more than a tenth of the values come only once (house prices), or
    - when the values run on without many gaps and either start elsewhere than at 0 or 1, with
      counts no more even than chance would make them (ages from 18 to 90), or have counts that
      rise and fall smoothly along the values (ages from 0 to 80).

    So 200 people numbered 0 to 199, or from 1 or with gaps, with several rows each, are classes.
    Numbers as text are always classes.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    name : str, default="target"
        What to call them in errors.
    noun : str, default="row"
        What a row is called.

    Returns
    -------
    classes : ndarray
        The sorted distinct labels.
    codes : ndarray of shape (n_samples,)
        The index of each row's label.

    Examples
    --------
    >>> classes, codes = check_target(["cat", "dog", "cat", "dog"])
    >>> classes.tolist(), codes.tolist()
    (['cat', 'dog'], [0, 1, 0, 1])
    """
    values = np.asarray(y)
    if values.dtype.kind in "mM" or (values.size and hasattr(values.flat[0], "isoformat")):
        raise ValueError(f"The target '{name}' holds dates, but classes are needed.")
    numbers = _plain_numbers(values)
    if numbers is not None and np.any(fractions := numbers != np.floor(numbers)):
        row = int(np.argmax(fractions))
        raise ValueError(_continuous(name, f"{noun} {row} has {numbers[row]:g}", noun))
    classes, codes = encode_labels(y, name=f"target '{name}'")
    counts = np.bincount(codes)
    n, k = len(codes), len(classes)
    if k == 1:
        raise ValueError(
            f"The target '{name}' has one class only, {classes[0]!s:.60}; at least two are needed."
        )
    if numbers is not None and k > _FEW and _are_amounts(classes.astype(np.float64), counts):
        low, high = classes[0], classes[-1]
        raise ValueError(
            _continuous(
                name,
                f"{k:,} different numbers from {low:,.0f} to {high:,.0f} in {n:,} {noun}s",
                noun,
            )
            + " If they only name classes, pass them as text (y.astype(str))."
        )
    if k == n:
        raise ValueError(
            f"The target '{name}': every {noun} has its own label, so nothing can be learned "
            f"from one {noun} for another. Is it an ID? Name the column of the classes."
        )
    if np.sum(counts > 1) < 2 or k > max(5, n / 2):
        raise ValueError(
            f"The target '{name}' has {k:,} different labels in {n:,} {noun}s, "
            f"{np.sum(counts == 1):,} of them in one {noun} only; classes need several {noun}s "
            "each."
        )
    return classes, codes


def telling_columns(X: Any, columns: Columns, codes: NDArray[np.intp], seed: int = 0) -> list[Trap]:
    """Columns that alone predict the target, like a copy of it.

    A decision tree on the single column, cross-validated on at most 2,000 rows, must have a
    balanced accuracy of 99%. Only columns in whose order the classes seldom change are tried.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The rows.
    columns : Columns
        The columns in use.
    codes : ndarray of shape (n_samples,)
        The class of each row.
    seed : int, default=0
        For the rows drawn and the folds.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.app.tables.columns import choose_columns
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 2
    >>> X = np.column_stack([rng.normal(size=60), y + rng.uniform(0, 0.1, 60)])
    >>> [trap.text[:49] for trap in telling_columns(X, choose_columns(X), y)]
    ["Column 'column 1' (100%) alone predicts the targe"]
    """
    rows = _draw(codes, seed)
    if len(rows) < MIN_ROWS_FOR_ID:
        return []
    values = coded_columns(X, columns, rows)
    codes = np.unique(codes[rows], return_inverse=True)[1]
    counts = np.bincount(codes)
    # Rows in the order of the column: a telling one changes class at few places.
    order = np.argsort(values, axis=0, kind="stable")
    ordered = codes[order]
    changes = np.sum(ordered[1:] != ordered[:-1], axis=0)
    by_chance = len(rows) * (1 - np.sum((counts / len(rows)) ** 2))
    likely = np.flatnonzero(changes <= 0.1 * by_chance + 2 * len(counts))
    likely = likely[np.argsort(changes[likely], kind="stable")][:_TELLING_TRIED]
    folds = StratifiedKFold(min(5, int(counts.min())), shuffle=True, random_state=seed)
    found = []
    for column in likely:
        tree = DecisionTreeClassifier(random_state=seed)
        feature = scaled_column(values[:, column])[:, None]
        accuracy = balanced_accuracy_score(codes, cross_val_predict(tree, feature, codes, cv=folds))
        if accuracy >= _TELLING:
            found.append((columns.names[column], accuracy))
    if not found:
        return []
    named = _first([f"'{name}' ({100 * accuracy:.3g}%)" for name, accuracy in found], 5)
    start = f"Column {named} alone predicts" if len(found) == 1 else f"Each of {named} predicts"
    text = (
        f"{start} the target (balanced accuracy of a decision tree on nothing else, "
        "cross-validated). What is a copy of the target, or not known for new rows, should be "
        f"left out: --drop '{found[0][0]}'."
    )
    return [Trap("telling column", text)]


def small_classes(
    classes: Sequence[Any], counts: Sequence[int], n_splits: int, *, noun: str = "row"
) -> list[Trap]:
    """Classes with fewer rows than there are folds.

    Parameters
    ----------
    classes : sequence of labels
        Their names.
    counts : sequence of int
        Rows of each class.
    n_splits : int
        Number of folds.
    noun : str, default="row"
        What a row is called.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> [trap.text[:49] for trap in small_classes(["a", "b"], [90, 3], 5)]
    ["Class 'b' (3 rows) has fewer rows than the 5 fold"]
    """
    small = [(c, int(m)) for c, m in zip(classes, counts, strict=True) if m < n_splits]
    if not small:
        return []
    named = _first([f"'{c}' ({m} {noun}{'s' * (m != 1)})" for c, m in small], 10)
    start, verb = ("Class", "has") if len(small) == 1 else (f"{len(small)} classes:", "have")
    text = (
        f"{start} {named} {verb} fewer {noun}s than the {n_splits} folds: some folds test none of "
        f"them, and their errors rest on very few {noun}s. Collect more, merge classes or leave "
        "them out."
    )
    return [Trap("small class", text)]


def untrained_classes(
    classes: Sequence[Any], codes: NDArray[np.intp], folds: Folds, *, noun: str = "row"
) -> list[Trap]:
    """Classes that are tested where none of their rows is trained on.

    Every method must get these rows wrong: a test file with a class of its own, or groups that are
    the classes.

    Parameters
    ----------
    classes : sequence of labels
        Their names.
    codes : ndarray of shape (n_samples,)
        The class of each row.
    folds : iterable of (train, test)
        Row numbers.
    noun : str, default="row"
        What a row is called.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> import numpy as np
    >>> folds = [(np.array([0, 1]), np.array([2, 3]))]
    >>> untrained_classes(["a", "b", "c"], np.array([0, 1, 2, 0]), folds)[0].text[:54]
    "Class 'c' is tested where no row of it is trained on ("
    """
    lost: Counter[int] = Counter()
    n_tested = 0
    for train, test in folds:
        n_tested += len(test)
        lost.update(codes[test][~np.isin(codes[test], codes[train])].tolist())
    if not lost:
        return []
    named = join_names([str(classes[code]) for code in sorted(lost)], limit=5)
    one = len(lost) == 1
    start, verb, them = ("Class", "is", "it") if one else ("Classes", "are", "them")
    text = (
        f"{start} {named} {verb} tested where no {noun} of {them} is trained on "
        f"({sum(lost.values()):,} of {n_tested:,} tests): every method is wrong there. Are the "
        "groups the classes, or is the test file of another kind?"
    )
    return [Trap("untrained class", text)]


def id_like(X: NDArray[Any], feature_names: Sequence[str] | None = None) -> list[Trap]:
    """Columns of an array that hold a different whole number in every row.

    From 20 rows on. Where more than a third of the columns do (counts, say), only numbers without
    gaps such as 1, 2, 3, ... are named.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        The rows.
    feature_names : sequence of str, optional
        Names of the columns.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.column_stack([np.arange(30), np.arange(30) % 7])
    >>> [trap.text[:40] for trap in id_like(X, ["number", "size"])]
    ["Column 'number' holds a different whole "]
    """
    n, p = X.shape
    if n < MIN_ROWS_FOR_ID:
        return []
    # Few columns pass the look at the first rows, so that the rest is quick.
    suspects = [column for column in range(p) if _all_different(X[:100, column])]
    suspects = [column for column in suspects if _all_different(X[:, column])]
    if len(suspects) > max(1, p / 3):
        suspects = [column for column in suspects if np.ptp(X[:, column]) == n - 1]
    if not suspects:
        return []
    names = [f"column {c}" if feature_names is None else feature_names[c] for c in suspects]
    start, verb, it = ("Column", "holds", "it") if len(names) == 1 else ("Columns", "hold", "them")
    text = (
        f"{start} {join_names(names, limit=5)} {verb} a different whole number in every row, like "
        f"an ID. If so, leave {it} out: --drop '{names[0]}'."
    )
    return [Trap("id", text)]


def _first(named: list[str], most: int) -> str:
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


# Targets


def _plain_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Finite numbers as floats, or None for labels of another kind."""
    if values.dtype.kind == "O" and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values.ravel()
    ):
        values = values.astype(np.float64)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        return None  # encode_labels says what is wrong
    return values.astype(np.float64)


def _continuous(name: str, found: str, noun: str) -> str:
    start = f"The target '{name}' is continuous ({found}), but classes are needed."
    if noun == "row":  # of sets no numbers are predicted
        start += " To predict it, add --task regression (task='regression' in Python)."
    return (
        f"{start} Or name another column, or cut it into classes first, for instance with "
        "pandas.qcut."
    ).replace("needed. Or name", "needed. Name")


def _are_amounts(values: NDArray[np.float64], counts: NDArray[np.intp]) -> bool:
    """Whether whole numbers measure something; see ``check_target``."""
    if np.mean(counts == 1) > 0.1:
        return True
    step = np.gcd.reduce(np.diff(values).astype(np.int64))
    if len(values) < 0.8 * ((values[-1] - values[0]) / step + 1):
        return False
    if values[0] not in (0, 1) or step > 1:
        # Of random draws the variance of the counts would be about their mean.
        return bool(np.var(counts) > 0.5 * np.mean(counts))
    peak = np.argmax(counts) / len(counts)
    if not 0.05 < peak < 0.95 or np.ptp(counts) == 0:
        return False
    return bool(np.corrcoef(counts[1:], counts[:-1])[0, 1] > 0.6)


# Rows and columns


def frame_codes(frame: Any) -> NDArray[np.float64]:
    """Numbers as they are, and a number for each text; NaN or -1 for missing."""
    pd = import_optional("pandas", "app")
    codes = np.empty(frame.shape)
    plain = [isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in frame.dtypes]
    codes[:, plain] = frame.loc[:, plain].to_numpy(np.float64)
    for i in np.flatnonzero(~np.array(plain)):
        column = frame.iloc[:, i].astype(object)
        codes[:, i] = pd.factorize(column.where(column.isna(), column.astype(str)))[0]
    return codes


# Near copies


def _draw(codes: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """At most 2,000 rows, of classes with at least two, in an order that tells nothing."""
    rows = np.random.default_rng(seed).permutation(len(codes))[:_TELLING_ROWS]
    counts = np.bincount(codes[rows])
    rows = rows[counts[codes[rows]] >= 2]
    return rows if len(np.unique(codes[rows])) > 1 else rows[:0]


def coded_columns(X: Any, columns: Columns, rows: NDArray[np.intp]) -> NDArray[Any]:
    """The drawn rows of the columns in use, categories by number."""
    if columns.feature_names is not None:
        return np.asarray(X)[rows][:, list(columns.numeric)]
    return frame_codes(columns.select(X.iloc[rows]))


def _all_different(values: NDArray[Any]) -> bool:
    whole = bool(np.all(values == np.floor(values)))
    return whole and len(np.unique(values)) == len(values)


def scaled_column(values: NDArray[Any]) -> NDArray[np.float64]:
    """Scaled, since trees work in float32, with 2 for missing."""
    missing = np.isnan(values)
    if missing.all():
        return np.full(len(values), 2.0)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    scaled = (np.asarray(values, np.float64) - low) / max(high - low, np.finfo(float).tiny)
    return np.where(missing, 2.0, scaled)
