"""Explanations of nearest-neighbor predictions: which features and neighbors decided."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.relevance import (
    RELEVANCE_TOLERANCE,
    count_deciding,
    describe_metric,
    describe_vote,
    select_named_features,
    sort_descending,
)
from nearfar.base.voter import vote
from nearfar.extras import import_optional


class LocalExplanation:
    r"""Explanation of nearest-neighbor predictions: feature relevances, neighbors and distances.

    The *relevance* of a feature at a row is its fraction of the trace of :math:`S M S`. M is the
    metric at this row, and S is the diagonal matrix of the standard deviations of the training
    rows. The relevance thus measures the squared length of a step of one standard deviation along
    the feature.

    The *contribution* of a feature to the distance between the row :math:`x_0` and a neighbor x is
    :math:`(x - x_0)_j [M (x - x_0)]_j`. The contributions sum to the squared distance. If M has
    off-diagonal entries, a contribution can be negative.

    The ``explain`` method of a classifier returns this object.

    Parameters
    ----------
    relevance : array-like of shape (n_rows, n_features)
        Relevance of each feature at each row. Each row sums to one.
    contributions : array-like of shape (n_rows, k, n_features)
        Contribution of each feature to the squared distance between the row and each neighbor.
    neighbors : array-like of int, shape (n_rows, k)
        Indices of the training rows that vote, nearest first.
    distances : array-like of shape (n_rows, k)
        Distances from each row to its neighbors.
    neighbor_labels : array-like of shape (n_rows, k)
        Labels of the neighbors of each row.
    labels : array-like of shape (n_rows,)
        Predicted labels, which must be the winners of the vote.
    feature_names : sequence of str
        Names of the features.
    overall : array-like of shape (n_features,), optional
        Mean relevance over all training rows, for comparison.
    ties : {"shrink", "first"}, default="shrink"
        How ties in the vote were resolved: "shrink" reduced k, and "first" selected the first
        class.
    is_global : bool, default=False
        Whether the metric is the same at every row.

    Attributes
    ----------
    relevance, contributions, neighbors, distances, neighbor_labels, labels, overall : ndarray
        The arguments as arrays. ``overall`` can be None.
    feature_names : list of str
        Names of the features.

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
        is_global: bool = False,
    ) -> None:
        self.relevance = _check_numbers("relevance", relevance, (None, None))
        q, p = self.relevance.shape
        self.contributions = _check_numbers("contributions", contributions, (q, None, p))
        k = self.contributions.shape[1]
        self.neighbors = _check_shape("neighbors", np.asarray(neighbors), (q, k)).astype(np.intp)
        self.distances = _check_numbers("distances", distances, (q, k))
        self.neighbor_labels = _check_shape("neighbor_labels", np.asarray(neighbor_labels), (q, k))
        self.labels = _check_shape("labels", np.asarray(labels), (q,))
        self.feature_names = [str(name) for name in feature_names]
        if len(self.feature_names) != p:
            raise ValueError(
                f"feature_names must have one name per feature ({p}); got "
                f"{len(self.feature_names)} names."
            )
        self.overall = None if overall is None else _check_numbers("overall", overall, (p,))
        _check_fractions("relevance", self.relevance)
        if self.overall is not None:
            _check_fractions("overall", self.overall[None])
        self.is_global = is_global
        self._ties = ties
        self._check_vote()

    def _check_vote(self) -> None:
        """Check that ``labels`` are the winners of the vote, and store the votes."""
        classes, codes = np.unique(self.neighbor_labels, return_inverse=True)
        codes = codes.reshape(self.neighbor_labels.shape).astype(np.intp)
        winners = classes[vote(codes, len(classes), self._ties)] if codes.size else self.labels
        mismatched = np.flatnonzero(winners != self.labels)
        if len(mismatched):
            row = mismatched[0]
            raise ValueError(
                f"labels must be the winners of the vote among neighbor_labels: row {row} has "
                f"the label {_format_label(self.labels[row])}, but its neighbors vote for "
                f"{_format_label(winners[row])}."
            )
        self._classes, self._codes = classes, codes

    def __len__(self) -> int:
        return len(self.relevance)

    def __repr__(self) -> str:
        q, k, p = self.contributions.shape
        return f"LocalExplanation(n_rows={q}, n_neighbors={k}, n_features={p})"

    def __str__(self) -> str:
        sentences = [self.sentence(row) for row in range(min(len(self), 10))]
        n_more = len(self) - len(sentences)
        return "\n".join(sentences + [f"and {n_more:,} more rows"] * (n_more > 0))

    def top(self, row: int, n: int = 5) -> list[tuple[str, float]]:
        """Return the most relevant features at a row.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.
        n : int, default=5
            Maximum number of features. Features with equal relevance keep their original order.

        Returns
        -------
        list of (str, float)
            Feature names and relevances, in descending order of relevance.
        """
        relevance = self.relevance[self._check_row(row)]
        return [
            (self.feature_names[j], float(relevance[j]))
            for j in sort_descending(relevance)[: max(n, 0)]
        ]

    def by_class(self) -> dict[Any, Vector]:
        """Return the mean relevance of the features for each predicted label.

        Returns
        -------
        dict of ndarray of shape (n_features,)
            Mean relevance by label. Labels that were not predicted for any row are missing.
        """
        labels, codes = np.unique(self.labels, return_inverse=True)
        return {
            label: self.relevance[codes == code].mean(axis=0)
            for code, label in enumerate(labels.tolist())
        }

    def to_frame(self) -> Any:
        """Return the explanation as a data frame with one line per row, neighbor and feature.

        Returns
        -------
        pandas.DataFrame
            Columns row, label, neighbor, neighbor_label, distance, feature, relevance, overall (if
            known) and contribution. Requires pandas: ``pip install 'nearfar[app]'``.
        """
        pandas = import_optional("pandas", "app")
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

    def merge_features(
        self, names: Sequence[str], relevance: ArrayLike | None = None
    ) -> LocalExplanation:
        """Return a copy with renamed features, in which features with the same name are merged.

        Relevances and contributions of merged features are added. Use it to merge the one-hot
        columns of a categorical feature.

        Parameters
        ----------
        names : sequence of str
            A name for each feature.
        relevance : array-like of shape (n_rows, n_names), optional
            Relevances of the merged features. If passed, they replace the sums, and ``overall`` of
            the result is None.

        Returns
        -------
        LocalExplanation
        """
        if len(names) != len(self.feature_names):
            raise ValueError(
                f"names must have one name per feature ({len(self.feature_names)}); got "
                f"{len(names)} names."
            )
        distinct = list(dict.fromkeys(str(name) for name in names))
        positions = {name: i for i, name in enumerate(distinct)}
        membership = np.zeros((len(names), len(distinct)))
        membership[np.arange(len(names)), [positions[str(name)] for name in names]] = 1.0
        merged_relevance, merged_overall = self.relevance @ membership, None
        if relevance is not None:
            merged_relevance = _check_numbers("relevance", relevance, (len(self), len(distinct)))
            _check_fractions("relevance", merged_relevance)
        elif self.overall is not None:
            merged_overall = self.overall @ membership
        return self._copy_with(
            relevance=merged_relevance,
            contributions=self.contributions @ membership,
            feature_names=distinct,
            overall=merged_overall,
        )

    def rename_labels(self, names: Mapping[Any, str]) -> LocalExplanation:
        """Return a copy with renamed labels.

        Parameters
        ----------
        names : mapping
            New name of each label. The names must be distinct. Labels without a new name do not
            change.

        Returns
        -------
        LocalExplanation
        """

        def rename(labels: NDArray[Any]) -> NDArray[Any]:
            renamed = [names.get(label, label) for label in labels.ravel().tolist()]
            return np.array(renamed).reshape(labels.shape)

        if len({names.get(label, label) for label in self._classes.tolist()}) < len(self._classes):
            raise ValueError(f"names must not give two labels the same name; got {dict(names)}.")
        # Keep the class codes, because ties were resolved by the order of the original labels.
        return self._copy_with(
            neighbor_labels=rename(self.neighbor_labels),
            labels=rename(self.labels),
            _classes=rename(self._classes),
        )

    def with_overall(self, overall: ArrayLike) -> LocalExplanation:
        """Return a copy with a different ``overall``, the mean relevance used for comparison.

        Parameters
        ----------
        overall : array-like of shape (n_features,)
            Mean relevance of each feature. The values must sum to one.

        Returns
        -------
        LocalExplanation
        """
        fractions = _check_numbers("overall", overall, (len(self.feature_names),))
        _check_fractions("overall", fractions[None])
        return self._copy_with(overall=fractions)

    def _copy_with(self, **changes: Any) -> LocalExplanation:
        updated = copy(self)
        vars(updated).update(changes)
        return updated

    def sentence(self, row: int, name: str | None = None) -> str:
        """Return a sentence with the result of the vote and the most relevant features at a row.

        The sentence covers the smallest set of features that carries at least half of the metric.
        Features as relevant as the least relevant one in the set are included. The first three
        features are named. If the set contains all features (and these are more than three), or if
        all features are equally relevant, the sentence states this instead.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.
        name : str, optional
            Name of the row in the sentence. None uses its index, for example "row 3".

        Returns
        -------
        str
        """
        vote, metric = self.describe(row)
        label = _format_label(self.labels[row])
        return f"{name or f'row {operator.index(row)}'} is {label} {vote}; {metric}"

    def describe(self, row: int) -> tuple[str, str]:
        """Return the two parts of ``sentence``: the result of the vote and the relevant features.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.

        Returns
        -------
        (str, str)
        """
        row = self._check_row(row)
        winner = int(np.flatnonzero(self._classes == self.labels[row])[0])
        vote_text = describe_vote(self._codes[row], winner, len(self._classes), self._ties)
        relevance, names = self.relevance[row], self.feature_names
        return vote_text, describe_metric(relevance, names, self.overall, self.is_global)

    def plot(self, row: int, n: int = 10, *, axes: Any = None) -> Any:
        """Plot the feature relevances at a row and the contributions to its neighbors' distances.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.
        n : int, default=10
            Number of features to show. All other features share one bar.
        axes : pair of matplotlib axes, optional
            Axes to draw on. The default is a new figure.

        Returns
        -------
        pair of matplotlib axes
            Axes of the relevances and of the distances. Requires matplotlib:
            ``pip install 'nearfar[plot]'``.
        """
        row = self._check_row(row)
        colors, figures = (
            import_optional("matplotlib", "plot"),
            import_optional("matplotlib.figure", "plot"),
        )
        if axes is None:
            figure = figures.Figure(figsize=(9, 4), layout="constrained")
            axes = figure.subplots(1, 2)
            figure.suptitle(self.sentence(row), fontsize="medium", wrap=True)
        names, summary = self.summarize_features(row, n)
        positions = np.arange(len(names))[::-1]
        palette = [*colors.colormaps["tab10"].colors, "0.7"]
        shades = [palette[min(j, 10)] for j in range(len(names))]
        axes[0].barh(positions, summary["relevance"], color=shades, label="here")
        if self.overall is not None and not self.is_global:
            axes[0].plot(
                summary["overall"], positions, "|", color="black", ms=12, label="over all rows"
            )
            axes[0].legend(fontsize="small", loc="lower right")
        axes[0].set_yticks(positions, names)
        axes[0].set_xlabel("share of the metric")
        neighbor_positions = np.arange(len(self.neighbors[row]))[::-1]
        above, below = np.zeros(len(neighbor_positions)), np.zeros(len(neighbor_positions))
        for j, contributions in enumerate(summary["contributions"].T):
            start = np.where(contributions < 0, below, above)
            axes[1].barh(neighbor_positions, contributions, left=start, color=shades[j])
            above, below = (
                above + np.maximum(contributions, 0),
                below + np.minimum(contributions, 0),
            )
        pairs = zip(self.neighbors[row], self.neighbor_labels[row], strict=True)
        axes[1].set_yticks(neighbor_positions, [f"{number} ({label})" for number, label in pairs])
        axes[1].set_xlabel("squared distance, by feature")
        return axes

    def summarize_features(self, row: int, n: int = 10) -> tuple[list[str], dict[str, Any]]:
        """Return the leading features of a row, and the sum of the others, for tables and plots.

        Features are ranked by the larger of two fractions: their fraction of the metric and their
        fraction of the distances to the neighbors. The features that ``sentence`` names are always
        included.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.
        n : int, default=10
            Number of leading features. If only one other feature remains, it is listed, too.

        Returns
        -------
        names : list of str
            Feature names. All remaining features are one entry at the end, for example "3 others".
        values : dict
            "relevance" and "overall" (None if unknown) of shape (len(names),), and
            "contributions" of shape (k, len(names)).
        """
        row = self._check_row(row)
        order = self._order_features(row, n)
        head, remaining = (order, order[:0]) if len(order) <= n + 1 else (order[:n], order[n:])
        names = [self.feature_names[j] for j in head] + [f"{len(remaining)} others"] * bool(
            len(remaining)
        )

        def gather(values: NDArray[np.float64]) -> NDArray[np.float64]:
            remainder = values[..., remaining].sum(axis=-1, keepdims=True)
            return np.concatenate(
                [values[..., head], *([remainder] if len(remaining) else [])], axis=-1
            )

        return names, {
            "relevance": gather(self.relevance[row]),
            "overall": None if self.overall is None else gather(self.overall),
            "contributions": gather(self.contributions[row]),
        }

    def _order_features(self, row: int, n: int) -> Indices:
        """Return the n leading features and then all others, each group sorted by relevance."""
        sizes = np.abs(self.contributions[row])
        sums = sizes.sum(axis=1, keepdims=True)
        distance_fractions = (sizes / np.where(sums > 0, sums, 1.0)).mean(axis=0)
        relevance = self.relevance[row]
        importance = np.maximum(relevance, distance_fractions)
        # The features that `sentence` names are always among the leading ones.
        importance[select_named_features(relevance)] = 2.0
        leading, order = sort_descending(importance)[:n], sort_descending(relevance)
        is_leading = np.isin(order, leading)
        return np.concatenate([order[is_leading], order[~is_leading]])

    def count_deciding(self, row: int) -> int:
        """Return the number of neighbors that decided the vote: fewer than k if a tie reduced k.

        Parameters
        ----------
        row : int
            Index of the row among the explained rows, counted from 0.

        Returns
        -------
        int
        """
        return count_deciding(self._codes[self._check_row(row)], len(self._classes), self._ties)

    def _check_row(self, row: int) -> int:
        index = operator.index(row)
        if not 0 <= index < len(self):
            raise ValueError(f"row={index} must be from 0 to {len(self) - 1}.")
        return index


def _check_shape(name: str, values: NDArray[Any], shape: tuple[int | None, ...]) -> NDArray[Any]:
    matches = values.ndim == len(shape) and all(
        expected in (None, size) for expected, size in zip(shape, values.shape, strict=True)
    )
    if not matches:
        expected = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise ValueError(f"{name} must have shape {expected}; got {values.shape}.")
    return values


def _check_numbers(
    name: str, values: ArrayLike, shape: tuple[int | None, ...]
) -> NDArray[np.float64]:
    numbers = _check_shape(name, np.asarray(values, dtype=np.float64), shape)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite; it contains NaN or infinity.")
    return numbers


def _check_fractions(name: str, fractions: Matrix) -> None:
    is_wrong = (fractions.min(axis=1, initial=0.0) < -RELEVANCE_TOLERANCE) | (
        abs(fractions.sum(axis=1) - 1) > 1e-6
    )
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise ValueError(
            f"{name} must be fractions from 0 to 1 that sum to one; row {row} sums to "
            f"{fractions[row].sum():.6g}, and its minimum is {fractions[row].min(initial=0.0):.6g}."
        )


def _format_label(label: Any) -> str:
    """Return the ``repr`` of a label, without the NumPy type."""
    return repr(label.item() if isinstance(label, np.generic) else label)
