"""Linear learners of pairs, comparisons or chunklets, given or drawn from labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.notices import warn
from nearfar.parameters import Allowed, integer, none, random_state
from nearfar.summaries.pair_differences import differ
from nearfar.summaries.supervision import Pairs, Supervision

#: What the parameters of learners of pairs may be, by which pairs are drawn from labels.
PAIR_PARAMETERS: dict[str, list[Allowed]] = {
    "n_similar": [none, integer(1)],
    "n_dissimilar": [none, integer(1)],
    "random_state": [random_state],
}


class Scaled(NamedTuple):
    """Rows about their mean, in units of their deviation: what solvers see of X."""

    points: Matrix
    mean: Matrix
    unit: float  # the root of the mean variance of the features


def scaled(rows: Floats) -> Scaled:
    """Rows in float64, centred and over one number, so that neither offset nor unit matters.

    >>> import numpy as np
    >>> scaled(np.array([[0.0, 1e9], [2e-8, 1e9]])).points.round(3).tolist()
    [[-1.414, 0.0], [1.414, 0.0]]
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    points = rows.astype(np.float64) - mean
    # Squares overflow or vanish before the values do.
    largest = float(np.abs(points).max(initial=0.0))
    noise = 8 * np.finfo(rows.dtype).eps * np.abs(mean)
    constant = np.ptp(rows, axis=0) <= noise
    points[:, constant] = 0.0
    if not np.isfinite(largest):
        raise ValueError(
            "Some values of X are too large to be added up: rescale the features of X."
        )
    if constant.all():
        raise ValueError("Every feature of X is constant: there is no distance to learn.")
    unit = largest * float(np.sqrt(np.mean((points / largest) ** 2)))
    return Scaled(points / unit, mean, unit)


class GuidedLearner(LinearLearner):
    """A linear learner with ``fit(X, y=None, *, supervision=None)``.

    A subclass says the kind of ``guide`` it reads, writes `_drawn`, how it is drawn from labels,
    and `_learn`, which sets ``components_`` (by `_keep`) and whatever else was learned. Its tag
    ``learns_from`` names both.
    """

    #: The class of the supervision.
    guide: ClassVar[type[Supervision]] = Pairs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Learn the map from supervision, or from labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points; those of which the supervision says nothing too.
        y : array-like of shape (n_samples,), optional
            Labels, from which supervision is drawn; not read when it is given.
        supervision : Pairs, Triplets or Quadruplets, optional
            What is known of the rows of X; each learner says which kind it reads.

        Returns
        -------
        object
            Itself.
        """
        self._check_parameters()
        # Equal rows in another order of memory must give equal bits.
        rows = np.ascontiguousarray(self._check_X(X, reset=True, min_samples=2))
        self._learn(rows, self._guide(rows, y, supervision))
        return self

    def _guide(self, rows: Floats, y: ArrayLike | None, supervision: Any) -> Any:
        """The supervision given, or drawn from labels."""
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
                f"{name} requires y to be passed, but the target y is None; it learns from labels "
                f"y, or from {kind} given as supervision."
            )
        classes, codes = self._check_labels(y, len(rows))
        return self._drawn(classes[codes])

    @abstractmethod
    def _drawn(self, y: Any) -> Any:
        """Supervision drawn from labels that have been checked."""

    @abstractmethod
    def _learn(self, rows: Floats, guide: Any) -> None:
        """Set what is learned."""

    def _keep(self, L: Matrix, frame: Scaled, dtype: Any) -> None:
        """Keep a map of scaled points as one of X."""
        self.mean_ = frame.mean.astype(dtype)
        self.components_ = (L / frame.unit).astype(dtype)


class PairLearner(GuidedLearner):
    """A guided learner of pairs, with the parameters of `PAIR_PARAMETERS`."""

    #: Whether there is nothing to learn from pairs of one kind.
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
        """Pairs to learn from: similar ones, and those dissimilar ones that `differ` at all."""
        name, alike, unlike = type(self).__name__, pairs.similar, pairs.dissimilar
        if not len(alike) + len(unlike):
            raise ValueError(f"{name} learns from pairs; supervision has no pair at all.")
        for kind, given, other in (
            ("similar", alike, "a class has two points or more"),
            ("dissimilar", unlike, "there are two classes"),
        ):
            if self.needs_both and not len(given):
                raise ValueError(
                    f"{name} needs similar and dissimilar pairs; supervision has no {kind} pair "
                    f"({len(alike)} similar, {len(unlike)} dissimilar). Labels give some where "
                    f"{other}."
                )
        if len(alike) and not differ(points, alike, rounding).any():
            raise ValueError(
                f"Every similar pair of supervision has zero length ({len(alike)} pairs of equal "
                f"points): {name} cannot tell in which directions alike points differ."
            )
        apart = differ(points, unlike, rounding)
        if not apart.all():
            if not apart.any() and not len(alike):
                raise ValueError(
                    f"Every pair of supervision is dissimilar and has zero length: {name} has "
                    "nothing to learn from."
                )
            if not apart.any() and self.needs_both:
                raise ValueError(
                    f"Every dissimilar pair of supervision has zero length ({len(unlike)} pairs of "
                    "equal points), and no metric can part equal points."
                )
            warn(
                f"{np.count_nonzero(~apart)} of {len(unlike)} dissimilar pairs have zero length: "
                f"no metric can part equal points, and {name} leaves them out."
            )
        return alike, unlike[apart]
