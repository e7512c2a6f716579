"""Base classes of linear learners with pairs, comparisons or chunklets as supervision."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.learner import LinearLearner
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


class Scaled(NamedTuple):
    """Centered and scaled rows of X, as passed to the solvers."""

    points: Matrix
    mean: Matrix
    unit: float  # Square root of the mean variance of the features.


def scaled(rows: Floats) -> Scaled:
    """Center rows and divide them by one number, so that offset and unit do not matter.

    The number is the square root of the mean variance of the features. Results are in float64.

    >>> import numpy as np
    >>> scaled(np.array([[0.0, 1e9], [2e-8, 1e9]])).points.round(3).tolist()
    [[-1.414, 0.0], [1.414, 0.0]]
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    points = rows.astype(np.float64) - mean
    # Divide by the largest value before squaring: squares overflow or underflow earlier.
    largest = float(np.abs(points).max(initial=0.0))
    noise = 8 * np.finfo(rows.dtype).eps * np.abs(mean)
    constant = np.ptp(rows, axis=0) <= noise
    points[:, constant] = 0.0
    if not np.isfinite(largest):
        raise ValueError(
            "Some values of X are so large that their sum overflows: rescale the features of X."
        )
    if constant.all():
        raise ValueError("Every feature of X is constant: there is no distance to learn.")
    unit = largest * float(np.sqrt(np.mean((points / largest) ** 2)))
    return Scaled(points / unit, mean, unit)


class GuidedLearner(LinearLearner):
    """Linear learner with ``fit(X, y=None, *, supervision=None)``.

    A subclass sets ``guide``, the class of the supervision it accepts. It implements ``_drawn``,
    which draws this supervision from labels, and ``_learn``, which sets ``components_`` (with
    ``_keep``) and the other fitted attributes. Its tag ``learns_from`` names both sources.
    """

    #: The class of the supervision.
    guide: ClassVar[type[Supervision]] = Pairs

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
        # Equal rows must give bitwise equal results, whatever their memory order.
        rows = np.ascontiguousarray(self._check_X(X, reset=True, min_samples=2))
        self._learn(rows, self._guide(rows, y, supervision))
        return self

    def _guide(self, rows: Floats, y: ArrayLike | None, supervision: Any) -> Any:
        """Return the supervision, drawn from the labels if it was not passed."""
        name, kind = type(self).__name__, self.guide.__name__
        if supervision is not None:
            if not isinstance(supervision, self.guide):
                raise ValueError(
                    f"{name} learns from {' or '.join(self.learner_tags.learns_from)}: supervision "
                    f"must be {kind}; got {type(supervision).__name__}."
                )
            supervision.check_n_samples(len(rows))
            return supervision
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None. Pass labels as y, or "
                f"pass {kind} as supervision."
            )
        classes, codes = self._check_labels(y, len(rows))
        return self._drawn(classes[codes])

    @abstractmethod
    def _drawn(self, y: Any) -> Any:
        """Draw the supervision from checked labels."""

    @abstractmethod
    def _learn(self, rows: Floats, guide: Any) -> None:
        """Learn from the rows and the supervision, and set the fitted attributes."""

    def _keep(self, L: Matrix, frame: Scaled, dtype: Any) -> None:
        """Convert a map of scaled points to a map of X, and store it."""
        self.mean_ = frame.mean.astype(dtype)
        self.components_ = (L / frame.unit).astype(dtype)


class PairLearner(GuidedLearner):
    """Linear learner from similar and dissimilar pairs, with the parameters `PAIR_PARAMETERS`."""

    #: Whether the learner needs both similar and dissimilar pairs.
    needs_both: ClassVar[bool] = True

    n_similar: int | None
    n_dissimilar: int | None
    random_state: int | np.random.RandomState | None

    def _drawn(self, y: Any) -> Pairs:
        return Pairs.from_labels(
            y,
            n_similar=self.n_similar,
            n_dissimilar=self.n_dissimilar,
            random_state=self.random_state,
        )

    def _usable(
        self, points: Floats, pairs: Pairs, rounding: float = 0.0
    ) -> tuple[Indices, Indices]:
        """Return the similar pairs, and the dissimilar pairs that do not have zero length."""
        name, alike, unlike = type(self).__name__, pairs.similar, pairs.dissimilar
        if not len(alike) + len(unlike):
            raise ValueError(f"{name} learns from pairs, but supervision contains no pairs.")
        for kind, given, other in (
            ("similar", alike, "a class with at least two points"),
            ("dissimilar", unlike, "at least two classes"),
        ):
            if self.needs_both and not len(given):
                raise ValueError(
                    f"{name} needs similar and dissimilar pairs; supervision has no {kind} pair "
                    f"({len(alike)} similar, {len(unlike)} dissimilar). To draw {kind} pairs from "
                    f"labels, y must have {other}."
                )
        if len(alike) and not mask_distinct_pairs(points, alike, rounding).any():
            raise ValueError(
                f"Every similar pair of supervision has zero length ({len(alike)} pairs of equal "
                f"points). {name} needs similar pairs of points that differ."
            )
        apart = mask_distinct_pairs(points, unlike, rounding)
        if not apart.all():
            if not apart.any() and not len(alike):
                raise ValueError(
                    f"Every pair of supervision is dissimilar and has zero length. {name} needs "
                    "pairs of points that differ."
                )
            if not apart.any() and self.needs_both:
                raise ValueError(
                    f"Every dissimilar pair of supervision has zero length ({len(unlike)} pairs of "
                    "equal points). No metric can separate equal points."
                )
            warn(
                f"{np.count_nonzero(~apart)} of {len(unlike)} dissimilar pairs have zero length. "
                f"{name} ignores them, because no metric can separate equal points."
            )
        return alike, unlike[apart]
