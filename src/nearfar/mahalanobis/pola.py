"""A metric learned online, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import LearnerTags, PairLearner
from nearfar.base.guided import PAIR_PARAMETERS
from nearfar.notices import warn
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.state import State, floats, number, optional, whole
from nearfar.summaries.supervision import Pairs

# Pairs looked at in one product, at most.
_AHEAD = 1024
# After so many without a loss one product of many is faster than one for each.
_QUIET = 8
# The margin is 1; a loss below this is rounding, as of a pair that was just learned.
_LOSS = 1e-12
# A least eigenvalue below zero by less than this share of the trace is rounding.
_ROUNDING = 1e-14
# Losses are differences from one: what a pair just met leaves behind is no loss.
_NO_LOSS = 1e-12


class POLA(PairLearner):
    r"""Pseudo-metric online learning: a metric and a threshold, brought up to date at each pair.

    A pair with difference x, s = 1 for alike and −1 for different, should have its squared distance
    below or above the threshold b with a margin of 1. Its loss is
    :math:`\ell = [1 - s (b - x^T M x)]_+`, and the pair :math:`(M, b)` moves to the nearest one
    without a loss, then to the nearest metric:

    .. math::
        \alpha = \frac{\ell}{\|x\|^4 + 1}, \quad M \leftarrow M - s \alpha\, x x^T, \quad
        b \leftarrow b + s \alpha, \quad M \leftarrow M_+, \quad b \leftarrow \max(b, 1) .

    A pair of alike points leaves at most one negative eigenvalue, which is all that is computed;
    one of different points leaves none. Both steps are projections, so that (M, b) comes nearer to
    every metric that has no loss on the pair: on pairs that some metric tells apart the squared
    losses of the whole stream have a bound (``regret_bound_``), however long it is.

    Use it for pairs that come one after the other and are not kept, or for more pairs than
    another method can take; it never looks back. For a fixed set of pairs :class:`MMC` and
    :class:`LogisticMetric` find an optimum. A pair may be said both ways.

    Dissimilar pairs of zero length are left out, with a warning. Similar pairs alone teach nothing:
    the zero metric, from which it starts, has no loss on them.

    Cost: O(p²) for a pair without a loss, looked at in blocks; O(p³) for one of alike points with a
    loss.

    Parameters
    ----------
    threshold_floor : float or None, default=1.0
        The least b, as published, where learning starts; with None it is free and starts at 1.
    max_epochs : int, default=1
        Times that ``fit`` goes through the pairs at most.
    tol : float, default=0.0
        Stops when no pair has a loss above this. The losses fall geometrically and need not reach
        zero.
    scale : float or "auto", default="auto"
        What points are divided by: "auto" is the root of the mean squared length of the pairs in
        the first batch, so that units do not matter. With 1 it is the algorithm to the letter.
    shuffle : bool, default=False
        Whether ``fit`` takes the pairs in a random order, another each time. Otherwise similar and
        dissimilar ones alternate evenly, each kind in its order.
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels, their order; the default gives the same every
        time.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        The map: the eigenvectors of M times the roots of their eigenvalues, the longest first; rows
        of zeros where M has no more.
    mean_ : ndarray of shape (n_features,)
        Mean of the points of the first batch, which only keeps digits.
    b_ : float
        The threshold of squared distances between alike and different.
    scale_ : float
        What points are divided by.
    n_seen_ : int
        Pairs that came by, in all epochs.
    n_updates_ : int
        Pairs with a loss.
    n_epochs_ : int
        Times that the last ``fit`` went through the pairs.
    cumulative_loss_ : float
        The sum of the squared losses, each before its pair was learned.
    regret_bound_ : float
        :math:`R (\|M\|_F^2 + (b - b_1)^2)`, R the largest :math:`\|x\|^4 + 1`. Where the metric
        learned has no loss on what came by, ``cumulative_loss_`` cannot exceed it; where it does
        exceed it, the metric has losses on it.

    See Also
    --------
    KernelPOLA, LogisticMetric, MMC

    References
    ----------
    .. [1] S. Shalev-Shwartz, Y. Singer and A. Y. Ng, "Online and batch learning of pseudo-metrics",
       International Conference on Machine Learning, 2004.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007, section 2.2.2. It
       leaves b free.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import POLA
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(500, 2, 3))
    >>> sign = np.where(abs(pairs[:, 0, 0] - pairs[:, 1, 0]) < 1, 1, -1)  # only one feature matters
    >>> pola = POLA()
    >>> for start in range(0, 500, 100):  # as they come
    ...     part = slice(start, start + 100)
    ...     pola = pola.partial_fit_pairs(pairs[part], sign[part])
    >>> M = pola.get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 10 * max(M[1, 1], M[2, 2]))
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
    settings = ({"max_epochs": 10},)
    state = State(
        {
            "_metric": floats("p", "p"),
            "_widest": number(0),
            "b_": number(),
            "scale_": number(0, open_low=True),
            "n_seen_": whole(),
            "n_updates_": whole(),
            "n_epochs_": optional(whole()),
            "cumulative_loss_": number(0),
        }
    )
    parameters: ClassVar = {
        "threshold_floor": [none, real()],
        "max_epochs": [integer(1)],
        "tol": [real(0)],
        "scale": [real(0, open_low=True), one_of("auto")],
        "shuffle": [boolean],
        **PAIR_PARAMETERS,
    }
    needs_both = False

    def __init__(
        self,
        threshold_floor: float | None = 1.0,
        *,
        max_epochs: int = 1,
        tol: float = 0.0,
        scale: float | Literal["auto"] = "auto",
        shuffle: bool = False,
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.threshold_floor = threshold_floor
        self.max_epochs = max_epochs
        self.tol = tol
        self.scale = scale
        self.shuffle = shuffle
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.random_state = random_state

    # From rows

    def _learn(self, rows: Floats, guide: Pairs) -> None:
        differences, sign = self._differences(rows, guide)
        online = self._begin(differences, rows)
        differences /= self.scale_
        random = check_random_state(self.random_state)
        self.n_epochs_ = 0
        largest = np.inf
        enough = max(self.tol, _NO_LOSS)
        try:
            while self.n_epochs_ < self.max_epochs and largest > enough:
                self.n_epochs_ += 1
                order = random.permutation(len(sign)) if self.shuffle else slice(None)
                online.walk(differences[order], sign[order])
                if self.max_epochs > 1:
                    largest = float(online.losses(differences, sign).max())
        finally:
            # Also after Ctrl-C: what was learned so far is left on the learner.
            self._take(online, rows.dtype)
        if not online.M.any():
            warn(
                "No pair had a loss: the metric is still zero, and all points are one to it. POLA "
                "needs dissimilar pairs to begin."
            )
        if self.max_epochs > 1 and largest > enough:
            warn(
                f"POLA still has a loss of {largest:.2g} after max_epochs={self.max_epochs}; no "
                "metric may tell all pairs apart. Raise max_epochs, or tol to be content with "
                "less.",
                ConvergenceWarning,
            )

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Pairs | None = None
    ) -> Self:
        """Go once through the pairs of more points, similar and dissimilar ones alternating evenly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More points.
        y : array-like of shape (n_samples,), optional
            Labels, from which pairs are drawn; not read when pairs are given.
        supervision : Pairs, optional
            Pairs of rows of this X.

        Returns
        -------
        POLA
            Itself.
        """
        first = not self.__sklearn_is_fitted__()
        self._check_parameters()
        rows = np.ascontiguousarray(self._check_X(X, reset=first, min_samples=2))
        differences, sign = self._differences(rows, self._guide(rows, y, supervision))
        return self._go_on(differences, sign, rows)

    def _differences(self, rows: Floats, pairs: Pairs) -> tuple[Matrix, Vector]:
        """Of pairs of rows, with their signs, the two kinds alternating evenly."""
        similar, dissimilar = self._usable(rows, pairs)
        every = np.vstack([similar, dissimilar])
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        order = _evenly(len(similar), len(dissimilar))
        left, right = every[order].T
        return rows[left].astype(np.float64) - rows[right], sign[order]

    # From a stream

    def partial_fit_pairs(self, pairs: ArrayLike, sign: ArrayLike) -> Self:
        """Go once through pairs of points, in their order.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        POLA
            Itself.
        """
        first = not self.__sklearn_is_fitted__()
        self._check_parameters()
        points = check_array(
            pairs, dtype=[np.float64, np.float32], allow_nd=True, input_name="pairs"
        )
        p = getattr(self, "n_features_in_", "n_features")
        if points.ndim != 3 or points.shape[1] != 2 or (not first and points.shape[2] != p):
            raise ValueError(f"pairs must have shape (n_pairs, 2, {p}); got {points.shape}.")
        signs = np.asarray(sign)
        if signs.shape != (len(points),):
            raise ValueError(
                f"sign must have shape ({len(points)},), one entry for each pair; got "
                f"{signs.shape}."
            )
        wrong = np.flatnonzero((signs != 1) & (signs != -1))
        if len(wrong):
            raise ValueError(f"sign row {wrong[0]}: {signs[wrong[0]]!r} is neither +1 nor -1.")
        if first:
            self._forget()
            self.n_features_in_ = points.shape[2]
        differences = points[:, 0].astype(np.float64) - points[:, 1]
        equal = (signs == -1) & ~differences.any(axis=1)
        if equal.any():
            warn(
                f"{np.count_nonzero(equal)} of {np.count_nonzero(signs == -1)} dissimilar pairs "
                "have zero length: no metric can part equal points, and POLA leaves them out."
            )
        kept = ~equal
        return self._go_on(
            differences[kept],
            signs[kept].astype(np.float64),
            points.reshape(-1, points.shape[2]),
        )

    def _go_on(self, differences: Matrix, sign: Vector, rows: Floats) -> Self:
        """One pass, from the first batch or from what was learned."""
        if self.__sklearn_is_fitted__():
            online, dtype = self._resumed(), self.components_.dtype
        else:
            online, dtype = self._begin(differences, rows), rows.dtype
        try:
            online.walk(differences / self.scale_, sign)
        finally:
            self._take(online, dtype)
        return self

    # What is learned

    def _begin(self, differences: Matrix, rows: Floats) -> Online:
        self.mean_ = rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
        self.scale_ = _root_mean_square(differences) if self.scale == "auto" else float(self.scale)
        return Online(
            np.zeros((rows.shape[1], rows.shape[1]), order="F"),
            1.0 if self.threshold_floor is None else float(self.threshold_floor),
            self.threshold_floor,
        )

    def _resumed(self) -> Online:
        return Online(
            np.array(self._metric, order="F"),
            self.b_,
            self.threshold_floor,
            self.n_seen_,
            self.n_updates_,
            self.cumulative_loss_,
            self._widest,
        )

    def _take(self, online: Online, dtype: Any) -> None:
        M = (online.M + online.M.T) / 2
        self._metric = np.ascontiguousarray(M)
        self._widest = online.widest
        self.b_, self.n_seen_, self.n_updates_ = online.b, online.n_seen, online.n_updates
        self.cumulative_loss_ = online.cumulative
        values, axes = descending_eigh(M)
        L = np.sqrt(np.maximum(values, 0.0))[:, None] * fix_signs(axes.T)
        self.components_ = (L / self.scale_).astype(dtype)
        start = 1.0 if self.threshold_floor is None else self.threshold_floor
        self.regret_bound_ = float(online.widest * (np.vdot(M, M) + (online.b - start) ** 2))


@dataclass
class Online:
    """(M, b) and what came by. M is in Fortran order, and changed in place."""

    M: Matrix
    b: float
    floor: float | None
    n_seen: int = 0
    n_updates: int = 0
    cumulative: float = 0.0
    widest: float = 1.0  # the largest |x|⁴ + 1

    def __post_init__(self) -> None:
        self.trace = float(self.M.trace())

    def losses(self, X: Matrix, sign: Vector) -> Vector:
        """Those of pairs with such differences."""
        return np.maximum(
            1 - sign * (self.b - np.einsum("ij,ij->i", X @ self.M, X, optimize=False)), 0.0
        )

    def walk(self, X: Matrix, sign: Vector) -> None:
        """Go through pairs in their order.

        Where losses are rare, many pairs are looked at in one product up to the first that has one:
        about twice as many as were needed the last time.
        """
        X = np.ascontiguousarray(X)
        squares = np.einsum("ij,ij->i", X, X).tolist()
        self.widest = max(self.widest, max(squares, default=0.0) ** 2 + 1)
        signs, n, begun = sign.tolist(), len(X), self.n_seen
        at = quiet = 0
        while at < n:
            if quiet < _QUIET:
                x, s = X[at], signs[at]
                loss = 1 - s * (self.b - blas.ddot(x, blas.dsymv(1.0, self.M, x)))
                if loss > _LOSS:
                    self._step(x, s, loss, squares[at])
                    quiet = 0
                else:
                    quiet += 1
                at += 1
            else:
                part = slice(at, at + min(2 * quiet, _AHEAD))
                losses = self.losses(X[part], sign[part])
                first = int((losses > _LOSS).argmax())
                if losses[first] > _LOSS:
                    at += first
                    self._step(X[at], signs[at], float(losses[first]), squares[at])
                    at, quiet = at + 1, first
                else:
                    at, quiet = min(part.stop, n), quiet + len(losses)
            self.n_seen = begun + at

    def _step(self, x: Vector, sign: float, loss: float, square: float) -> None:
        """Project onto the pairs (M, b) without this loss, then onto those with M ⪰ 0, b ≥ floor.

        ``square`` is |x|².
        """
        alpha = loss / (square**2 + 1)
        self.n_updates += 1
        self.cumulative += loss * loss
        blas.dger(-sign * alpha, x, x, a=self.M, overwrite_a=1)
        self.trace -= sign * alpha * square
        if sign > 0:
            self._to_cone(alpha * square)
        self.b += sign * alpha
        if self.floor is not None and self.b < self.floor:
            self.b = self.floor

    def _to_cone(self, lowered: float) -> None:
        """Without the one negative eigenvalue that M may have, not below minus ``lowered``."""
        rounding = _ROUNDING * (abs(self.trace) + lowered)
        if 2 * lowered <= rounding:  # after many epochs a step may be next to nothing
            return
        values, vectors, found, _, info = lapack.dsyevr(
            self.M, range="V", vl=-2 * lowered - 1e3 * rounding, vu=-rounding
        )
        if info or found > 1:
            # It gives up on some clusters of equal eigenvalues.
            values, vectors = np.linalg.eigh(self.M)
            found = int(values[0] < -rounding)
        if found:
            v = vectors[:, 0]
            blas.dger(-values[0], v, v, a=self.M, overwrite_a=1)
            self.trace -= values[0]


def _evenly(n_similar: int, n_dissimilar: int) -> Indices:
    """The order in which two kinds, one listed after the other, alternate evenly.

    >>> _evenly(2, 4).tolist()
    [2, 0, 3, 4, 1, 5]
    """
    places = [(np.arange(n) + 0.5) / max(n, 1) for n in (n_similar, n_dissimilar)]
    return np.argsort(np.concatenate(places), kind="stable")


def _root_mean_square(differences: Matrix) -> float:
    """Of the lengths; squares overflow or vanish before the values do."""
    largest = float(np.abs(differences).max(initial=0.0))
    if largest == 0:
        raise ValueError("Every pair has zero length: there is no distance to learn.")
    if not np.isfinite(largest):
        raise ValueError(
            "Some values of X are too large to be subtracted: rescale the features of X."
        )
    return largest * float(np.sqrt(np.mean(((differences / largest) ** 2).sum(axis=1))))
