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
from nearfar.blocks import check_mask, check_range
from nearfar.notices import warn
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.state import State, floats, integer_value, number, optional
from nearfar.summaries.supervision import Pairs

# Maximum number of pairs whose losses are computed in one matrix product.
_MAX_BLOCK = 1024
# After this many consecutive pairs without a loss, the losses of a whole block of pairs are
# computed in one matrix product, which is faster if losses are rare.
_QUIET_PAIRS = 8
# Losses below this value are treated as rounding errors, because the margin is 1. A pair can have a
# loss this small right after its own update.
_MIN_LOSS = 1e-12
# Negative eigenvalues whose absolute value is below this fraction of the trace are treated as zero.
_ROUNDING = 1e-14
# Lower limit for ``tol``, because smaller losses are rounding errors.
_MIN_TOL = 1e-12


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
        Minimum and initial value of the threshold b. The published algorithm uses 1. None means no
        minimum and an initial value of 1.
    max_epochs : int, default=1
        Maximum number of passes of ``fit`` over the pairs.
    tol : float, default=0.0
        Stop when no pair has a loss above this value. The losses decrease geometrically and may
        never reach zero. Used only if ``max_epochs`` is more than 1.
    scale : float or "auto", default="auto"
        Number by which points are divided. "auto" uses the root mean squared length of the pairs in
        the first batch, so that the result does not depend on the unit of X. The value 1 gives the
        published algorithm.
    shuffle : bool, default=False
        If True, ``fit`` visits the pairs in a random order, different in each epoch. If False,
        similar and dissimilar pairs alternate in proportion to their numbers, each in the given
        order.
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
        Mean of the points of the first batch. Subtracting it only improves the numerical accuracy.
    b_ : float
        Threshold on the squared distance, which separates similar from dissimilar pairs.
    scale_ : float
        Number by which points are divided.
    n_seen_ : int
        Number of pairs processed, over all epochs.
    n_updates_ : int
        Number of updates, which equals the number of processed pairs with a loss.
    n_epochs_ : int
        Number of passes of the last ``fit`` over the pairs.
    cumulative_loss_ : float
        Sum of the squared losses. The loss of a pair is measured before the update with this pair.
    regret_bound_ : float
        :math:`R (\|M\|_F^2 + (b - b_1)^2)`, where R is the largest :math:`\|x\|^4 + 1` and
        :math:`b_1` the initial threshold. If the learned metric has no loss on the pairs seen,
        ``cumulative_loss_`` cannot exceed this bound. A larger ``cumulative_loss_`` proves that the
        metric has losses on these pairs.

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

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
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
    needs_both_kinds = False

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

    def _learn(self, rows: Floats, supervision: Pairs) -> None:
        differences, sign = self._compute_differences(rows, supervision)
        online = self._start_state(differences, rows)
        differences /= self.scale_
        random = check_random_state(self.random_state)
        self.n_epochs_ = 0
        max_loss = np.inf
        tolerance = max(self.tol, _MIN_TOL)
        try:
            while self.n_epochs_ < self.max_epochs and max_loss > tolerance:
                self.n_epochs_ += 1
                order = random.permutation(len(sign)) if self.shuffle else slice(None)
                online.process(differences[order], sign[order])
                if self.max_epochs > 1:
                    max_loss = float(online.compute_losses(differences, sign).max())
        finally:
            # The estimator keeps the current metric, also after Ctrl-C.
            self._store(online, rows.dtype)
        if not online.M.any():
            warn(
                "No pair had a loss, so the metric is still zero and all distances are zero. POLA "
                "needs dissimilar pairs to learn from."
            )
        if self.max_epochs > 1 and max_loss > tolerance:
            warn(
                f"POLA still has a loss of {max_loss:.2g} after max_epochs={self.max_epochs}. "
                "Increase max_epochs or tol. Possibly no metric separates all pairs.",
                ConvergenceWarning,
            )

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Pairs | None = None
    ) -> Self:
        """Process the pairs of a new batch once, alternating similar and dissimilar pairs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training points.
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
        differences, sign = self._compute_differences(
            rows, self._get_supervision(rows, y, supervision)
        )
        return self._process_batch(differences, sign, rows)

    def _compute_differences(self, rows: Floats, pairs: Pairs) -> tuple[Matrix, Vector]:
        """Return the differences and signs of alternating similar and dissimilar pairs.

        The sign is +1 for similar and -1 for dissimilar pairs.
        """
        similar, dissimilar = self._select_usable_pairs(rows, pairs)
        indices = np.vstack([similar, dissimilar])
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        order = _interleave(len(similar), len(dissimilar))
        first, second = indices[order].T
        return rows[first].astype(np.float64) - rows[second], sign[order]

    def partial_fit_pairs(self, pairs: ArrayLike, sign: ArrayLike) -> Self:
        """Process pairs of points once, in the given order.

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
        check_mask(pairs, "pairs")
        points = check_array(
            pairs, dtype=[np.float64, np.float32], allow_nd=True, input_name="pairs"
        )
        p = getattr(self, "n_features_in_", "n_features")
        if points.ndim != 3 or points.shape[1] != 2 or (not first and points.shape[2] != p):
            raise ValueError(f"pairs must have shape (n_pairs, 2, {p}); got {points.shape}.")
        check_range(points.reshape(-1, points.shape[2]), "pairs", small=first)
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
        is_equal = (signs == -1) & ~differences.any(axis=1)
        if is_equal.any():
            warn(
                f"{np.count_nonzero(is_equal)} of {np.count_nonzero(signs == -1)} dissimilar pairs "
                "have zero length. No metric separates equal points. These pairs are left out."
            )
        is_usable = ~is_equal
        return self._process_batch(
            differences[is_usable],
            signs[is_usable].astype(np.float64),
            points.reshape(-1, points.shape[2]),
        )

    def _process_batch(self, differences: Matrix, sign: Vector, rows: Floats) -> Self:
        """Process a batch of pairs, starting from scratch or from the current metric."""
        if self.__sklearn_is_fitted__():
            online, dtype = self._resume(), self.components_.dtype
        else:
            online, dtype = self._start_state(differences, rows), rows.dtype
        try:
            online.process(differences / self.scale_, sign)
        finally:
            self._store(online, dtype)
        return self

    def _start_state(self, differences: Matrix, rows: Floats) -> OnlineState:
        self.mean_ = rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
        self.scale_ = (
            _compute_root_mean_square(differences) if self.scale == "auto" else float(self.scale)
        )
        return OnlineState(
            np.zeros((rows.shape[1], rows.shape[1]), order="F"),
            1.0 if self.threshold_floor is None else float(self.threshold_floor),
            self.threshold_floor,
        )

    def _resume(self) -> OnlineState:
        return OnlineState(
            np.array(self._metric, order="F"),
            self.b_,
            self.threshold_floor,
            self.n_seen_,
            self.n_updates_,
            self.cumulative_loss_,
            self._widest,
        )

    def _store(self, online: OnlineState, dtype: Any) -> None:
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
class OnlineState:
    """Metric M, threshold b and statistics of the pairs processed so far.

    M is in Fortran order and is changed in place.
    """

    M: Matrix
    b: float
    floor: float | None
    n_seen: int = 0
    n_updates: int = 0
    cumulative: float = 0.0
    widest: float = 1.0  # Largest |x|⁴ + 1 over all differences x.

    def __post_init__(self) -> None:
        self.trace = float(self.M.trace())

    def compute_losses(self, X: Matrix, sign: Vector) -> Vector:
        """Return the losses of pairs with the differences X."""
        return np.maximum(
            1 - sign * (self.b - np.einsum("ij,ij->i", X @ self.M, X, optimize=False)), 0.0
        )

    def process(self, X: Matrix, sign: Vector) -> None:
        """Process the pairs in the given order.

        If losses are rare, the losses of many pairs are computed in one product, up to the first
        pair with a loss. The next block has about twice as many pairs as were used from the last
        block.
        """
        X = np.ascontiguousarray(X)
        squares = np.einsum("ij,ij->i", X, X).tolist()
        self.widest = max(self.widest, max(squares, default=0.0) ** 2 + 1)
        signs, n, n_before = sign.tolist(), len(X), self.n_seen
        position = quiet = 0
        while position < n:
            if quiet < _QUIET_PAIRS:
                x, s = X[position], signs[position]
                loss = 1 - s * (self.b - blas.ddot(x, blas.dsymv(1.0, self.M, x)))
                if loss > _MIN_LOSS:
                    self._step(x, s, loss, squares[position])
                    quiet = 0
                else:
                    quiet += 1
                position += 1
            else:
                block = slice(position, position + min(2 * quiet, _MAX_BLOCK))
                losses = self.compute_losses(X[block], sign[block])
                first = int((losses > _MIN_LOSS).argmax())
                if losses[first] > _MIN_LOSS:
                    position += first
                    self._step(
                        X[position], signs[position], float(losses[first]), squares[position]
                    )
                    position, quiet = position + 1, first
                else:
                    position, quiet = min(block.stop, n), quiet + len(losses)
            self.n_seen = n_before + position

    def _step(self, x: Vector, sign: float, loss: float, square: float) -> None:
        """Project (M, b) so that this pair has no loss, then project onto M ⪰ 0 and b ≥ floor.

        ``square`` is |x|².
        """
        alpha = loss / (square**2 + 1)
        self.n_updates += 1
        self.cumulative += loss * loss
        blas.dger(-sign * alpha, x, x, a=self.M, overwrite_a=1)
        self.trace -= sign * alpha * square
        if sign > 0:
            self._project_to_cone(alpha * square)
        self.b += sign * alpha
        if self.floor is not None and self.b < self.floor:
            self.b = self.floor

    def _project_to_cone(self, decrease: float) -> None:
        """Remove the single negative eigenvalue that M may have.

        The eigenvalue is at least ``-decrease``.
        """
        rounding = _ROUNDING * (abs(self.trace) + decrease)
        if 2 * decrease <= rounding:  # After many epochs a step can be negligible.
            return
        values, vectors, n_negative, _, info = lapack.dsyevr(
            self.M, range="V", vl=-2 * decrease - 1e3 * rounding, vu=-rounding
        )
        if info or n_negative > 1:
            # LAPACK fails on some clusters of equal eigenvalues.
            values, vectors = np.linalg.eigh(self.M)
            n_negative = int(values[0] < -rounding)
        if n_negative:
            v = vectors[:, 0]
            blas.dger(-values[0], v, v, a=self.M, overwrite_a=1)
            self.trace -= values[0]


def _interleave(n_similar: int, n_dissimilar: int) -> Indices:
    """Return an order in which similar and dissimilar pairs alternate in proportion.

    The indices of the similar pairs come first: 0 to ``n_similar - 1``.

    >>> _interleave(2, 4).tolist()
    [2, 0, 3, 4, 1, 5]
    """
    places = [(np.arange(n) + 0.5) / max(n, 1) for n in (n_similar, n_dissimilar)]
    return np.argsort(np.concatenate(places), kind="stable")


def _compute_root_mean_square(differences: Matrix) -> float:
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
