"""Base classes of linear learners with pairs, comparisons or chunklets as supervision."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.labels import encode_labels
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, integer, none, random_state
from nearfar.summaries.pair_differences import mask_distinct_pairs
from nearfar.summaries.supervision import Pairs, Supervision

#: Allowed values of the parameters that control how pairs are drawn from labels.
PAIR_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_similar": [none, integer(1)],
    "n_dissimilar": [none, integer(1)],
    "random_state": [random_state],
}


class ScaledRows(NamedTuple):
    """Centered and scaled rows of X, as passed to the solvers."""

    points: Matrix
    mean: Matrix
    unit: float  # Square root of the mean variance of the features.


def scale_rows(rows: Floats) -> ScaledRows:
    """Center rows and divide them by one number, so that results do not depend on offset and unit.

    The number is the square root of the mean variance of the features. Results are in float64.

    >>> import numpy as np
    >>> scale_rows(np.array([[0.0, 1e9], [2e-8, 1e9]])).points.round(3).tolist()
    [[-1.414, 0.0], [1.414, 0.0]]
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    points = rows.astype(np.float64) - mean
    # Divide by the largest value before squaring, because squares may overflow or underflow.
    max_value = float(np.abs(points).max(initial=0.0))
    noise = 8 * np.finfo(rows.dtype).eps * np.abs(mean)
    is_constant = np.ptp(rows, axis=0) <= noise
    points[:, is_constant] = 0.0
    if not np.isfinite(max_value):
        raise ValueError(
            "Some values of X are so large that their sum overflows. Rescale the features of X."
        )
    if is_constant.all():
        raise ValueError("Every feature of X is constant, so no distance can be learned.")
    unit = max_value * float(np.sqrt(np.mean((points / max_value) ** 2)))
    return ScaledRows(points / unit, mean, unit)


def reject_index_pairs(learner: Any, X: Any, y: Any) -> None:
    """Raise if X looks like pairs of row indices with signs y, as for metric-learn.

    Index pairs are integers of shape (m, 2). Both columns have about the same range, which starts
    near zero and is not much larger than m, and no index is paired with itself.
    """
    pairs = np.asarray(X)
    # Small integer types hold pixels or codes, not row indices.
    is_index = pairs.dtype.kind in "iu" and pairs.dtype.itemsize >= 4
    if not is_index or pairs.shape[1] != 2 or len(pairs) < 4:
        return
    if "pairs" not in learner.learner_tags.supervision or encode_labels(y)[0].tolist() != [-1, 1]:
        return
    (_, low), (high, highest) = np.sort(pairs.min(axis=0)), np.sort(pairs.max(axis=0))
    has_one_range = pairs.min() >= 0 and 4 * low <= highest <= 2 * high
    if has_one_range and highest < 4 * len(pairs) and (pairs[:, 0] != pairs[:, 1]).all():
        name = type(learner).__name__
        raise ValueError(
            f"X looks like pairs of row indices: integers of shape {pairs.shape} with signs +1 and "
            f"-1 in y. {name} expects the rows of points as X. Pass the pairs as supervision: "
            f"{name}().fit(rows, supervision=Pairs(X[y == 1], X[y == -1], n_samples=len(rows))), "
            f"or fit PairClassifier({name}()) on rows[X] and y. If X contains two features, pass "
            "X.astype(float)."
        )


class ConstraintLearner(LinearLearner):
    """Linear learner that is fitted to labels or to other supervision.

    A subclass sets ``supervision_class``, the class of the supervision it accepts. It implements
    ``_draw_supervision``, which draws this supervision from labels, and ``_learn``, which sets
    ``components_`` (with ``_keep``) and the other fitted attributes. Its tag ``supervision`` names
    both sources.
    """

    #: The class of supervision that the learner accepts.
    supervision_class: ClassVar[type[Supervision]] = Pairs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Learn the map from supervision or from labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points, including those that do not occur in the supervision.
        y : array-like of shape (n_samples,), optional
            Labels from which the supervision is drawn. Ignored if ``supervision`` is passed.
        supervision : Pairs, Triplets or Quadruplets, optional
            Pairs or comparisons of rows of X. The class depends on the learner.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        # Use one memory order, so that equal rows give bitwise equal results.
        rows = np.ascontiguousarray(self._check_X(X, reset=True, min_samples=2))
        if supervision is None and y is not None:
            reject_index_pairs(self, X, y)
        self._learn(rows, self._get_supervision(rows, y, supervision))
        return self

    def _get_supervision(self, rows: Floats, y: ArrayLike | None, supervision: Any) -> Any:
        """Return the passed supervision. If it is None, draw supervision from the labels."""
        name, accepted = type(self).__name__, self.supervision_class.__name__
        if supervision is not None:
            if not isinstance(supervision, self.supervision_class):
                raise ValueError(
                    f"{name} learns from {' or '.join(self.learner_tags.supervision)}: supervision "
                    f"must be {accepted}; got {type(supervision).__name__}."
                )
            supervision.check_n_samples(len(rows))
            return supervision
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None. Pass labels as y, or "
                f"pass {accepted} as supervision."
            )
        classes, codes = self._check_labels(y, len(rows))
        return self._draw_supervision(classes[codes])

    @abstractmethod
    def _draw_supervision(self, y: Any) -> Any:
        """Draw the supervision from checked labels."""

    @abstractmethod
    def _learn(self, rows: Floats, supervision: Any) -> None:
        """Learn from the rows and the supervision, and set the fitted attributes."""

    def _keep(self, L: Matrix, frame: ScaledRows, dtype: Any) -> None:
        """Convert the learned map from scaled points to the units of X, and store the result."""
        self.mean_ = frame.mean.astype(dtype)
        self.components_ = (L / frame.unit).astype(dtype)


class PairLearner(ConstraintLearner):
    """Linear learner with similar and dissimilar pairs as supervision.

    It has the parameters `PAIR_PARAMETERS`.
    """

    #: Whether the learner needs both similar and dissimilar pairs.
    needs_both_kinds: ClassVar[bool] = True

    n_similar: int | None
    n_dissimilar: int | None
    random_state: int | np.random.RandomState | None

    def _draw_supervision(self, y: Any) -> Pairs:
        return Pairs.from_labels(
            y,
            n_similar=self.n_similar,
            n_dissimilar=self.n_dissimilar,
            random_state=self.random_state,
        )

    def _select_usable_pairs(
        self, points: Floats, pairs: Pairs, rounding: float = 0.0
    ) -> tuple[Indices, Indices]:
        """Return the similar pairs, and the dissimilar pairs that do not have zero length."""
        name, similar, dissimilar = type(self).__name__, pairs.similar, pairs.dissimilar
        if not len(similar) + len(dissimilar):
            raise ValueError(f"{name} learns from pairs, but supervision contains no pairs.")
        for kind, pairs_of_kind, requirement in (
            ("similar", similar, "a class with at least two points"),
            ("dissimilar", dissimilar, "at least two classes"),
        ):
            if self.needs_both_kinds and not len(pairs_of_kind):
                raise ValueError(
                    f"{name} needs similar and dissimilar pairs; supervision has no {kind} pair "
                    f"({len(similar)} similar, {len(dissimilar)} dissimilar). To draw {kind} pairs "
                    f"from labels, y must have {requirement}."
                )
        if len(similar) and not mask_distinct_pairs(points, similar, rounding).any():
            raise ValueError(
                f"Every similar pair in supervision has zero length ({len(similar)} pairs of equal "
                f"points). {name} needs similar pairs of points that differ."
            )
        has_length = mask_distinct_pairs(points, dissimilar, rounding)
        if not has_length.all():
            if not has_length.any() and not len(similar):
                raise ValueError(
                    f"Every pair in supervision is dissimilar and has zero length. {name} needs "
                    "pairs of points that differ."
                )
            if not has_length.any() and self.needs_both_kinds:
                raise ValueError(
                    "Every dissimilar pair in supervision has zero length "
                    f"({len(dissimilar)} pairs of equal points). No metric can separate equal "
                    "points."
                )
            warn(
                f"{np.count_nonzero(~has_length)} of {len(dissimilar)} dissimilar pairs have zero "
                f"length. {name} ignores them, because no metric can separate equal points."
            )
        return similar, dissimilar[has_length]
