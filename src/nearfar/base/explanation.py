"""Which features mattered for a row, and which neighbours: an explanation of a local vote."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.relevance import (
    SHARES_EQUAL,
    descending,
    metric_words,
    n_deciding,
    named_features,
    vote_words,
)
from nearfar.base.voter import vote
from nearfar.extras import require


class LocalExplanation:
    r"""What made the labels of some rows: the metric at each, its voters, and their distances.

    The *relevance* of a feature at a row is its share of the diagonal of :math:`S M S`, where M is
    the metric there and S has the deviations of the training rows: what a step of one deviation
    along that feature costs. The *contribution* of a feature to the distance of a voter x from the
    row :math:`x_0` is :math:`(x - x_0)_j [M (x - x_0)]_j`; over the features they add up to the
    squared distance. Where features go together in M, one may be negative.

    ``explain`` of a classifier makes it.

    Parameters
    ----------
    relevance : array-like of shape (n_rows, n_features)
        Shares of the metric; each row sums to one.
    contributions : array-like of shape (n_rows, k, n_features)
        Parts of the squared distance of each voter.
    neighbors : array-like of int, shape (n_rows, k)
        Numbers of the training rows that vote, nearest first.
    distances : array-like of shape (n_rows, k)
        How far they are.
    neighbor_labels : array-like of shape (n_rows, k)
        Their labels.
    labels : array-like of shape (n_rows,)
        The labels that won the vote.
    feature_names : sequence of str
        What the features are called.
    overall : array-like of shape (n_features,), optional
        Mean relevance over all training rows, to hold against.
    ties : {"shrink", "first"}, default="shrink"
        How ties in the vote were settled.
    one_metric : bool, default=False
        Whether the metric is the same at every row.

    Attributes
    ----------
    relevance, contributions, neighbors, distances, neighbor_labels, labels, overall : ndarray
        As given; ``overall`` may be None.
    feature_names : list of str
        As given.

    See Also
    --------
    nearfar.KNNClassifier

    Examples
    --------
    >>> from nearfar.base import LocalExplanation
    >>> why = LocalExplanation(
    ...     relevance=[[0.6, 0.3, 0.1]],
    ...     contributions=[[[0.3, 0.1, 0.0], [0.2, 0.2, 0.1], [0.5, 0.3, 0.1]]],
    ...     neighbors=[[4, 0, 7]],
    ...     distances=[[0.4**0.5, 0.5**0.5, 0.9**0.5]],
    ...     neighbor_labels=[["b", "b", "a"]],
    ...     labels=["b"],
    ...     feature_names=["hue", "ash", "proline"],
    ...     overall=[0.2, 0.3, 0.5],
    ... )
    >>> print(why.sentence(0))
    row 0 is 'b' by 2 of 3; hue carries 60% of the metric here, against 20% over all rows
    >>> why.top(0, 2)
    [('hue', 0.6), ('ash', 0.3)]
    """

    relevance: Matrix
    contributions: NDArray[np.float64]
    neighbors: Indices
    distances: Matrix
    neighbor_labels: NDArray[Any]
    labels: NDArray[Any]
    feature_names: list[str]
    overall: Vector | None

    def __init__(
        self,
        *,
        relevance: ArrayLike,
        contributions: ArrayLike,
        neighbors: ArrayLike,
        distances: ArrayLike,
        neighbor_labels: ArrayLike,
        labels: ArrayLike,
        feature_names: Sequence[str],
        overall: ArrayLike | None = None,
        ties: str = "shrink",
        one_metric: bool = False,
    ) -> None:
        self.relevance = _numbers("relevance", relevance, (None, None))
        q, p = self.relevance.shape
        self.contributions = _numbers("contributions", contributions, (q, None, p))
        k = self.contributions.shape[1]
        self.neighbors = _shaped("neighbors", np.asarray(neighbors), (q, k)).astype(np.intp)
        self.distances = _numbers("distances", distances, (q, k))
        self.neighbor_labels = _shaped("neighbor_labels", np.asarray(neighbor_labels), (q, k))
        self.labels = _shaped("labels", np.asarray(labels), (q,))
        self.feature_names = [str(name) for name in feature_names]
        if len(self.feature_names) != p:
            raise ValueError(f"feature_names has {len(self.feature_names)} names of {p} features.")
        self.overall = None if overall is None else _numbers("overall", overall, (p,))
        _check_shares("relevance", self.relevance)
        if self.overall is not None:
            _check_shares("overall", self.overall[None])
        self.one_metric = one_metric
        self._ties = ties
        self._check_vote()

    def _check_vote(self) -> None:
        """Keep how the vote went; labels that did not win it would make all sentences false."""
        classes, codes = np.unique(self.neighbor_labels, return_inverse=True)
        codes = codes.reshape(self.neighbor_labels.shape).astype(np.intp)
        won = classes[vote(codes, len(classes), self._ties)] if codes.size else self.labels
        wrong = np.flatnonzero(won != self.labels)
        if len(wrong):
            row = wrong[0]
            raise ValueError(
                f"labels must be what neighbor_labels vote for: row {row} has "
                f"{_said(self.labels[row])}, and its neighbours vote for {_said(won[row])}."
            )
        self._classes, self._codes = classes, codes

    def __len__(self) -> int:
        return len(self.relevance)

    def __repr__(self) -> str:
        q, k, p = self.contributions.shape
        return f"LocalExplanation(n_rows={q}, n_neighbors={k}, n_features={p})"

    def __str__(self) -> str:
        said = [self.sentence(row) for row in range(min(len(self), 10))]
        more = len(self) - len(said)
        return "\n".join(said + [f"and {more:,} more rows"] * (more > 0))

    # ---------------------------------------------------------------------- what users ask

    def top(self, row: int, n: int = 5) -> list[tuple[str, float]]:
        """The features of most relevance at a row, and their shares of the metric.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.
        n : int, default=5
            How many features; of equal ones the first come first.

        Returns
        -------
        list of (str, float)
        """
        shares = self.relevance[self._row(row)]
        return [(self.feature_names[j], float(shares[j])) for j in descending(shares)[: max(n, 0)]]

    def by_class(self) -> dict[Any, Vector]:
        """Mean relevance of the rows of each predicted label.

        Returns
        -------
        dict of ndarray of shape (n_features,)
            By label; one that was predicted for no row is not there.
        """
        found, codes = np.unique(self.labels, return_inverse=True)
        return {
            label: self.relevance[codes == code].mean(axis=0)
            for code, label in enumerate(found.tolist())
        }

    def to_frame(self) -> Any:
        """Everything as a table, a line for each row, voter and feature.

        Returns
        -------
        pandas.DataFrame
            Columns row, label, neighbor, neighbor_label, distance, feature, relevance, overall (if
            it is known) and contribution. Needs pandas: ``pip install 'nearfar[app]'``.
        """
        pandas = require("pandas", "app")
        q, k, p = self.contributions.shape
        columns = {
            "row": np.repeat(np.arange(q), k * p),
            "label": np.repeat(self.labels, k * p),
            "neighbor": np.repeat(self.neighbors.ravel(), p),
            "neighbor_label": np.repeat(self.neighbor_labels.ravel(), p),
            "distance": np.repeat(self.distances.ravel(), p),
            "feature": np.tile(np.array(self.feature_names, dtype=object), q * k),
            "relevance": np.repeat(self.relevance, k, axis=0).ravel(),
        }
        if self.overall is not None:
            columns["overall"] = np.tile(self.overall, q * k)
        return pandas.DataFrame(columns | {"contribution": self.contributions.ravel()})

    def merged(self, names: Sequence[str], relevance: ArrayLike | None = None) -> LocalExplanation:
        """The same by other names; features of one name become one, their shares added.

        So the columns that a category became are one feature again.

        Parameters
        ----------
        names : sequence of str
            A name for each feature.
        relevance : array-like of shape (n_rows, n_names), optional
            Shares of the features that are then, where sums do not do justice to them; ``overall``
            is not known then.

        Returns
        -------
        LocalExplanation
        """
        if len(names) != len(self.feature_names):
            raise ValueError(f"names has {len(names)} names of {len(self.feature_names)} features.")
        distinct = list(dict.fromkeys(str(name) for name in names))
        place = {name: i for i, name in enumerate(distinct)}
        sums = np.zeros((len(names), len(distinct)))
        sums[np.arange(len(names)), [place[str(name)] for name in names]] = 1.0
        shares, overall = self.relevance @ sums, None
        if relevance is not None:
            shares = _numbers("relevance", relevance, (len(self), len(distinct)))
            _check_shares("relevance", shares)
        elif self.overall is not None:
            overall = self.overall @ sums
        return self._changed(
            relevance=shares,
            contributions=self.contributions @ sums,
            feature_names=distinct,
            overall=overall,
        )

    def labelled(self, names: Mapping[Any, str]) -> LocalExplanation:
        """The same with other names for the labels.

        Parameters
        ----------
        names : mapping
            A name for each label, no two alike; those that are missing stay.

        Returns
        -------
        LocalExplanation
        """

        def named(labels: NDArray[Any]) -> NDArray[Any]:
            found = [names.get(label, label) for label in labels.ravel().tolist()]
            return np.array(found).reshape(labels.shape)

        if len({names.get(label, label) for label in self._classes.tolist()}) < len(self._classes):
            raise ValueError(f"names must be different; got {dict(names)}.")
        # The vote was settled by the labels as they were, and by their order.
        return self._changed(
            neighbor_labels=named(self.neighbor_labels),
            labels=named(self.labels),
            _classes=named(self._classes),
        )

    def against(self, overall: ArrayLike) -> LocalExplanation:
        """The same, held against another mean relevance.

        Parameters
        ----------
        overall : array-like of shape (n_features,)
            Shares that sum to one.

        Returns
        -------
        LocalExplanation
        """
        shares = _numbers("overall", overall, (len(self.feature_names),))
        _check_shares("overall", shares[None])
        return self._changed(overall=shares)

    def _changed(self, **changes: Any) -> LocalExplanation:
        changed = copy(self)
        vars(changed).update(changes)
        return changed

    def sentence(self, row: int, called: str | None = None) -> str:
        """How the vote went, and which features carry the metric here.

        It tells of the fewest features that carry at least half of the metric (and of those as
        relevant as the last of them), the first three by name. Where these are all features, more
        than three, or all count alike, it says so.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.
        called : str, optional
            What the row is called, "row 3" for the row of number 3 if not given.

        Returns
        -------
        str
        """
        vote, metric = self.words(row)
        label = _said(self.labels[row])
        return f"{called or f'row {operator.index(row)}'} is {label} {vote}; {metric}"

    def words(self, row: int) -> tuple[str, str]:
        """The two parts of the sentence: how the vote went, and what carries the metric.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.

        Returns
        -------
        (str, str)
        """
        row = self._row(row)
        winner = int(np.flatnonzero(self._classes == self.labels[row])[0])
        voted = vote_words(self._codes[row], winner, len(self._classes), self._ties)
        shares, names = self.relevance[row], self.feature_names
        return voted, metric_words(shares, names, self.overall, self.one_metric)

    def plot(self, row: int, n: int = 10, *, axes: Any = None) -> Any:
        """Draw the metric at a row, and the distances of its voters by feature.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.
        n : int, default=10
            How many features are shown; the others are one bar.
        axes : pair of matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        pair of matplotlib axes
            Of the relevance, and of the voters. Needs matplotlib: ``pip install 'nearfar[plot]'``.
        """
        row = self._row(row)
        colors, figures = require("matplotlib", "plot"), require("matplotlib.figure", "plot")
        if axes is None:
            figure = figures.Figure(figsize=(9, 4), layout="constrained")
            axes = figure.subplots(1, 2)
            figure.suptitle(self.sentence(row), fontsize="medium", wrap=True)
        names, parts = self.parts(row, n)
        places = np.arange(len(names))[::-1]
        palette = [*colors.colormaps["tab10"].colors, "0.7"]
        shades = [palette[min(j, 10)] for j in range(len(names))]
        axes[0].barh(places, parts["relevance"], color=shades, label="here")
        if self.overall is not None and not self.one_metric:
            axes[0].plot(parts["overall"], places, "|", color="black", ms=12, label="over all rows")
            axes[0].legend(fontsize="small", loc="lower right")
        axes[0].set_yticks(places, names)
        axes[0].set_xlabel("share of the metric")
        voters = np.arange(len(self.neighbors[row]))[::-1]
        above, below = np.zeros(len(voters)), np.zeros(len(voters))
        for j, part in enumerate(parts["contributions"].T):
            start = np.where(part < 0, below, above)
            axes[1].barh(voters, part, left=start, color=shades[j])
            above, below = above + np.maximum(part, 0), below + np.minimum(part, 0)
        pairs = zip(self.neighbors[row], self.neighbor_labels[row], strict=True)
        axes[1].set_yticks(voters, [f"{number} ({label})" for number, label in pairs])
        axes[1].set_xlabel("squared distance, by feature")
        return axes

    def parts(self, row: int, n: int = 10) -> tuple[list[str], dict[str, Any]]:
        """The leading features of a row, and all others as one, for tables and pictures.

        Those lead that have the largest share of the metric, or of the distances of the voters; the
        features that ``sentence`` names are among them.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.
        n : int, default=10
            How many features; a single one more is shown itself.

        Returns
        -------
        names : list of str
            The last is "3 others" where features are left.
        parts : dict
            "relevance" and "overall" (None if not known), of as many numbers, and "contributions"
            of shape (k, as many).
        """
        row = self._row(row)
        order = self._mattering(row, n)
        head, rest = (order, order[:0]) if len(order) <= n + 1 else (order[:n], order[n:])
        names = [self.feature_names[j] for j in head] + [f"{len(rest)} others"] * bool(len(rest))

        def gathered(values: NDArray[np.float64]) -> NDArray[np.float64]:
            others = values[..., rest].sum(axis=-1, keepdims=True)
            return np.concatenate([values[..., head], *([others] if len(rest) else [])], axis=-1)

        return names, {
            "relevance": gathered(self.relevance[row]),
            "overall": None if self.overall is None else gathered(self.overall),
            "contributions": gathered(self.contributions[row]),
        }

    def _mattering(self, row: int, n: int) -> Indices:
        """Features by their relevance; among the first n, some that make the distances."""
        parts = np.abs(self.contributions[row])
        sums = parts.sum(axis=1, keepdims=True)
        of_distances = (parts / np.where(sums > 0, sums, 1.0)).mean(axis=0)
        shares = self.relevance[row]
        mattering = np.maximum(shares, of_distances)
        mattering[named_features(shares)] = 2.0  # they are spoken of
        leading, order = descending(mattering)[:n], descending(shares)
        first = np.isin(order, leading)
        return np.concatenate([order[first], order[~first]])

    def n_deciding(self, row: int) -> int:
        """How many voters decided: fewer than all, where a tie made k smaller.

        Parameters
        ----------
        row : int
            Number of the row among those explained, from 0.

        Returns
        -------
        int
        """
        return n_deciding(self._codes[self._row(row)], len(self._classes), self._ties)

    def _row(self, row: int) -> int:
        number = operator.index(row)
        if not 0 <= number < len(self):
            raise ValueError(f"row={number} must be from 0 to {len(self) - 1}.")
        return number


def _shaped(name: str, values: NDArray[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
    fits = values.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, values.shape, strict=True)
    )
    if not fits:
        wanted = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise ValueError(f"{name} must have shape {wanted}; got {values.shape}.")
    return values


def _numbers(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> NDArray[np.float64]:
    found = _shaped(name, np.asarray(values, dtype=np.float64), shape)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite; it has NaN or infinity.")
    return found


def _check_shares(name: str, shares: Matrix) -> None:
    wrong = (shares.min(axis=1, initial=0.0) < -SHARES_EQUAL) | (abs(shares.sum(axis=1) - 1) > 1e-6)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{name} must be shares from 0 to 1 that sum to one; row {row} sums to "
            f"{shares[row].sum():.6g}, its smallest is {shares[row].min(initial=0.0):.6g}."
        )


def _said(label: Any) -> str:
    """A label as Python writes it."""
    return repr(label.item() if isinstance(label, np.generic) else label)
