"""A metric learned online from a stream of pairs (POLA)."""

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
from nearfar.state import State, floats, integer_value, number, optional
from nearfar.summaries.supervision import Pairs

# Maximum number of pairs whose losses are computed in one product.
_AHEAD = 1024
# Number of pairs without a loss after which one product for many pairs is faster.
_QUIET = 8
# Losses below this are rounding errors, for example of a pair that was just processed. The margin
# is 1.
_LOSS = 1e-12
# A negative eigenvalue smaller than this fraction of the trace is a rounding error.
_ROUNDING = 1e-14
# Minimum value of tol: smaller losses are rounding errors, because losses are differences from 1.
_NO_LOSS = 1e-12


class POLA(PairLearner):
    r"""Pseudo-metric online learning: a metric and a threshold, updated after every pair.

    The squared distance of a similar pair (s = 1) should be below the threshold b, and that of a
    dissimilar pair (s = −1) above it, both with a margin of 1. A pair with difference x has the
    loss :math:`\ell = [1 - s (b - x^T M x)]_+`. After each pair, :math:`(M, b)` is projected onto
    the nearest values without a loss on it, and then onto the valid metrics and thresholds:

    .. math::
        \alpha = \frac{\ell}{\|x\|^4 + 1}, \quad M \leftarrow M - s \alpha\, x x^T, \quad
        b \leftarrow b + s \alpha, \quad M \leftarrow M_+, \quad b \leftarrow \max(b, 1) .

    A similar pair leaves at most one negative eigenvalue in M, which is the only one computed. A
    dissimilar pair leaves none. Because both steps are projections, (M, b) comes closer to every
    metric without a loss on the pair. If some metric separates all pairs, the sum of squared losses
    is therefore bounded however long the stream is (``regret_bound_``).

    Use it for pairs that arrive one after the other and are not stored, or for more pairs than
    other methods can process. It never revisits a pair. For a fixed set of pairs, :class:`MMC` and
    :class:`LogisticMetric` find an optimum. The same pair may occur as similar and as dissimilar.

    Cost: O(p²) for a pair without a loss, done in blocks; O(p³) for a similar pair with a loss.

    Parameters
    ----------
    threshold_floor : float or None, default=1.0
        Minimum of b, which is also its initial value; 1 as published. None sets no minimum and
        starts at 1.
    max_epochs : int, default=1
        Maximum number of passes of ``fit`` over the pairs.
    tol : float, default=0.0
        Stop when no pair has a loss above this value. The losses decrease geometrically and may
        never reach zero. Used only if ``max_epochs`` is more than 1.
    scale : float or "auto", default="auto"
        Number by which points are divided. "auto" uses the root mean squared length of the pairs
        in the first batch, so that units do not matter. 1 is the algorithm as published.
    shuffle : bool, default=False
        If True, ``fit`` visits the pairs in a random order, different in each epoch. Otherwise
        similar and dissimilar pairs are interleaved in proportion, each kind in the given order.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw pairs from labels and to shuffle them.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        The linear map: the eigenvectors of M times the square roots of the eigenvalues, largest
        first. Rows beyond the rank of M are zero.
    mean_ : ndarray of shape (n_features,)
        Mean of the points of the first batch. It only improves the numerical accuracy.
    b_ : float
        Threshold on squared distances between similar and dissimilar pairs.
    scale_ : float
        Number by which points are divided.
    n_seen_ : int
        Number of pairs processed, over all epochs.
    n_updates_ : int
        Number of pairs with a loss.
    n_epochs_ : int
        Number of passes of the last ``fit`` over the pairs.
    cumulative_loss_ : float
        Sum of the squared losses, each measured before the update with its pair.
    regret_bound_ : float
        :math:`R (\|M\|_F^2 + (b - b_1)^2)`, where R is the largest :math:`\|x\|^4 + 1` and
        :math:`b_1` the initial threshold. If the learned metric has no loss on the pairs seen,
        ``cumulative_loss_`` cannot exceed this bound. If it does, the metric has losses on them.

    Notes
    -----
    Dissimilar pairs of zero length are left out with a warning. Nothing can be learned from similar
    pairs alone, because the initial zero metric has no loss on them.

    See Also
    --------
    KernelPOLA, LogisticMetric, MMC

    References
    ----------
    .. [1] S. Shalev-Shwartz, Y. Singer and A. Y. Ng, "Online and batch learning of pseudo-metrics",
       International Conference on Machine Learning, 2004.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007, section 2.2.2. It
       sets no minimum of b.

    Examples
    --------
    Only the first feature determines which pairs are similar. The pairs arrive in batches.

    >>> import numpy as np
    >>> from nearfar import POLA
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(500, 2, 3))
    >>> sign = np.where(abs(pairs[:, 0, 0] - pairs[:, 1, 0]) < 1, 1, -1)
    >>> pola = POLA()
    >>> for start in range(0, 500, 100):
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
            "n_seen_": integer_value(),
            "n_updates_": integer_value(),
            "n_epochs_": optional(integer_value()),
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

    # Learning from rows

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
            # After Ctrl-C too, the estimator keeps the current metric.
            self._take(online, rows.dtype)
        if not online.M.any():
            warn(
                "No pair had a loss, so the metric is still zero and all distances are zero. POLA "
                "needs dissimilar pairs to learn from."
            )
        if self.max_epochs > 1 and largest > enough:
            warn(
                f"POLA still has a loss of {largest:.2g} after max_epochs={self.max_epochs}. "
                "Increase max_epochs or tol. Possibly no metric separates all pairs.",
                ConvergenceWarning,
            )

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Pairs | None = None
    ) -> Self:
        """Process the pairs of more points once, similar and dissimilar pairs interleaved.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More points.
        y : array-like of shape (n_samples,), optional
            Labels, from which pairs are drawn. Not used if ``supervision`` is given.
        supervision : Pairs, optional
            Pairs of rows of this X.

        Returns
        -------
        POLA
            The fitted estimator.
        """
        first = not self.__sklearn_is_fitted__()
        self._check_parameters()
        rows = np.ascontiguousarray(self._check_X(X, reset=first, min_samples=2))
        differences, sign = self._differences(rows, self._guide(rows, y, supervision))
        return self._go_on(differences, sign, rows)

    def _differences(self, rows: Floats, pairs: Pairs) -> tuple[Matrix, Vector]:
        """Return the differences of the pairs and their signs, interleaved in proportion.

        The sign is +1 for similar and -1 for dissimilar pairs.
        """
        similar, dissimilar = self._usable(rows, pairs)
        every = np.vstack([similar, dissimilar])
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        order = _evenly(len(similar), len(dissimilar))
        left, right = every[order].T
        return rows[left].astype(np.float64) - rows[right], sign[order]

    # Learning from a stream

    def partial_fit_pairs(self, pairs: ArrayLike, sign: ArrayLike) -> Self:
        """Process pairs of points once, in their order.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        POLA
            The fitted estimator.
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
                f"sign must have shape ({len(points)},), one entry per pair; got {signs.shape}."
            )
        wrong = np.flatnonzero((signs != 1) & (signs != -1))
        if len(wrong):
            raise ValueError(f"sign must be +1 or -1; row {wrong[0]} is {signs[wrong[0]]!r}.")
        if first:
            self._forget()
            self.n_features_in_ = points.shape[2]
        differences = points[:, 0].astype(np.float64) - points[:, 1]
        equal = (signs == -1) & ~differences.any(axis=1)
        if equal.any():
            warn(
                f"{np.count_nonzero(equal)} of {np.count_nonzero(signs == -1)} dissimilar pairs "
                "have zero length. No metric separates equal points, and POLA leaves them out."
            )
        kept = ~equal
        return self._go_on(
            differences[kept],
            signs[kept].astype(np.float64),
            points.reshape(-1, points.shape[2]),
        )

    def _go_on(self, differences: Matrix, sign: Vector, rows: Floats) -> Self:
        """Process a batch, from scratch or from the current metric."""
        if self.__sklearn_is_fitted__():
            online, dtype = self._resumed(), self.components_.dtype
        else:
            online, dtype = self._begin(differences, rows), rows.dtype
        try:
            online.walk(differences / self.scale_, sign)
        finally:
            self._take(online, dtype)
        return self

    # State

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
    """The state (M, b) and statistics of the pairs. M is in Fortran order and changed in place."""

    M: Matrix
    b: float
    floor: float | None
    n_seen: int = 0
    n_updates: int = 0
    cumulative: float = 0.0
    widest: float = 1.0  # The largest |x|⁴ + 1.

    def __post_init__(self) -> None:
        self.trace = float(self.M.trace())

    def losses(self, X: Matrix, sign: Vector) -> Vector:
        """Return the losses of pairs with the differences X."""
        return np.maximum(
            1 - sign * (self.b - np.einsum("ij,ij->i", X @ self.M, X, optimize=False)), 0.0
        )

    def walk(self, X: Matrix, sign: Vector) -> None:
        """Process pairs in their order.

        If losses are rare, the losses of many pairs are computed in one product, up to the first
        pair with a loss. The block has about twice as many pairs as were needed the last time.
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
        """Project onto the (M, b) without this loss, then onto those with M ⪰ 0 and b ≥ floor.

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
        """Remove the single negative eigenvalue that M may have.

        It is not less than minus ``lowered``.
        """
        rounding = _ROUNDING * (abs(self.trace) + lowered)
        if 2 * lowered <= rounding:  # After many epochs a step can be negligible.
            return
        values, vectors, found, _, info = lapack.dsyevr(
            self.M, range="V", vl=-2 * lowered - 1e3 * rounding, vu=-rounding
        )
        if info or found > 1:
            # LAPACK fails on some clusters of equal eigenvalues.
            values, vectors = np.linalg.eigh(self.M)
            found = int(values[0] < -rounding)
        if found:
            v = vectors[:, 0]
            blas.dger(-values[0], v, v, a=self.M, overwrite_a=1)
            self.trace -= values[0]


def _evenly(n_similar: int, n_dissimilar: int) -> Indices:
    """Return the order that interleaves two kinds of pairs, listed one after the other.

    >>> _evenly(2, 4).tolist()
    [2, 0, 3, 4, 1, 5]
    """
    places = [(np.arange(n) + 0.5) / max(n, 1) for n in (n_similar, n_dissimilar)]
    return np.argsort(np.concatenate(places), kind="stable")


def _root_mean_square(differences: Matrix) -> float:
    """Return the root mean squared length, without overflow or underflow of the squares."""
    largest = float(np.abs(differences).max(initial=0.0))
    if largest == 0:
        raise ValueError("Every pair has zero length. Pass pairs of distinct points.")
    if not np.isfinite(largest):
        raise ValueError(
            "Differences between rows of X overflow because some values are too large. Rescale the "
            "features of X."
        )
    return largest * float(np.sqrt(np.mean(((differences / largest) ** 2).sum(axis=1))))
