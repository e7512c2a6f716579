"""Gaussians: a mean and a covariance for each set of vectors, or for each neighborhood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.covariance import ledoit_wolf_shrinkage, oas
from sklearn.utils import check_array

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows
from nearfar.notices import warn
from nearfar.parameters import check_parameter, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.state import Sizes, State, check_that, floats, none_or, number, strings, table
from nearfar.summaries.immutable import Immutable
from nearfar.summaries.index_checks import check_indices
from nearfar.summaries.row_moments import compute_moments
from nearfar.summaries.sets import Sets, as_sets, check_index, convert_key, get_row_key
from nearfar.words import format_count

CovarianceShrinkage = float | Literal["ledoit_wolf", "oas"] | None
Storage = Literal["auto", "dense", "low_rank"]

#: Value of ridge="auto" for sets, as a multiple of the median variance of the sets. A set has few
#: vectors compared with the p(p+1)/2 entries of its covariance. With a smaller ridge, distances are
#: dominated by directions in which the few vectors of a set happen to vary little.
AUTO_RIDGE = 1.0
#: Value of ridge="auto" for neighborhoods, as a multiple of their median variance. It is smaller
#: than for sets, because all neighborhoods have the same number of points.
AUTO_LOCAL_RIDGE = 0.01
# Maximum number of vectors in a set whose covariance is computed with one matrix product. Larger
# sets are processed in blocks.
_MAX_PRODUCT_VECTORS = 1024
# Maximum relative difference between a covariance passed by the user and its transpose.
_MAX_ASYMMETRY = 1e-6
# A conditional variance is treated as a rounding error if it is below this tolerance times the
# variance of the feature times the number of features.
_MAX_ROUNDING = 16 * np.finfo(np.float64).eps
# A query is treated as a rounded copy of a training row if their distance is at most this fraction
# of the distance to the farthest neighbor. Rounding to float32 or to three digits stays below this
# limit.
_MAX_COPY_DISTANCE = 1e-2


class Gaussians(Immutable):
    r"""Stack of Gaussians :math:`N(\mu_i, \Sigma_i)`, for example one per set or neighborhood.

    Covariances are stored dense, or as :math:`\Sigma_i = \gamma_i I + Z_i Z_i^T` (low rank plus
    ridge), which is smaller if p is large and the factors :math:`Z_i` have few columns. The object
    is immutable and can be indexed like :class:`~nearfar.Sets`. Positive definiteness is not
    checked on construction, but when it is needed, as in :meth:`cholesky`.

    Parameters
    ----------
    means : array-like of shape (n, p)
        The means :math:`\mu_i`.
    covariances : array-like of shape (n, p, p), default=None
        The covariances. Alternatively, pass ``factors`` and ``ridge``.
    factors : array-like of shape (n, p, r), default=None
        The factors :math:`Z_i` of the covariances :math:`\gamma_i I + Z_i Z_i^T`.
    ridge : float or array-like of shape (n,), default=None
        The ridge :math:`\gamma_i > 0`. Required with ``factors``, and not allowed without them.
    names : array-like of shape (n,), default=None
        Name of each Gaussian, used in messages.

    Attributes
    ----------
    means : ndarray of shape (n, p)
        The means, read-only.
    factors, ridge : ndarray of shape (n, p, r) and (n,), or None
        The factors and ridges of the low-rank storage. None if the storage is dense.
    covariances : ndarray of shape (n, p, p)
        The covariances. For low-rank storage they are computed at each access.
    added_ridge : float or None
        The number that :meth:`from_sets` or :meth:`from_neighborhoods` added to every variance.
        Pass this number as ``ridge`` for new sets or points.
    names : ndarray or None
        The names, read-only.

    See Also
    --------
    nearfar.distributions.dissimilarity : Dissimilarities between Gaussians.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import Gaussians, Sets
    >>> sets = Sets.from_list([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 3.0], [1.0, 2.0]]])
    >>> gaussians = Gaussians.from_sets(sets, ridge=0.5)
    >>> gaussians
    Gaussians(n=2, n_features=2, dense)
    >>> gaussians.means
    array([[1., 0.],
           [1., 2.]])
    >>> gaussians.covariances[1]
    array([[0.5, 0. ],
           [0. , 1.5]])
    """

    means: Matrix
    factors: Matrix | None
    ridge: Matrix | None
    names: NDArray[np.str_] | None
    added_ridge: float | None

    state: ClassVar = State(
        {
            "means": table("n", "p"),
            "_covariances": none_or(floats("n", "p", "p")),
            "factors": none_or(floats("n", "p", "r")),
            "ridge": none_or(floats("n")),
            "names": none_or(strings("n")),
            "added_ridge": none_or(number()),
        }
    )

    def __init__(
        self,
        means: ArrayLike,
        covariances: ArrayLike | None = None,
        *,
        factors: ArrayLike | None = None,
        ridge: ArrayLike | None = None,
        names: ArrayLike | None = None,
    ) -> None:
        mu = _check_finite(means, "means", "(n, p)", 2)
        n, p = mu.shape
        if p == 0:
            raise ValueError("means have 0 features; at least one is required.")
        checked_names = None if names is None else np.asarray(names).astype(str)
        if checked_names is not None and checked_names.shape != (n,):
            raise ValueError(f"names must have shape ({n},); got {checked_names.shape}.")
        if (covariances is None) == (factors is None):
            raise ValueError("Pass either covariances, or factors and ridge.")
        if covariances is not None:
            if ridge is not None:
                raise ValueError(
                    "ridge cannot be used with covariances. Pass it with factors only."
                )
            S = _check_finite(covariances, "covariances", "(n, p, p)", 3)
            if S.shape != (n, p, p):
                raise ValueError(f"covariances must have shape {(n, p, p)}; got {S.shape}.")
            self._set(mu, _check_symmetric(S, checked_names), None, None, checked_names, None)
            return
        Z = _check_finite(factors, "factors", "(n, p, r)", 3)
        if Z.shape[:2] != (n, p):
            raise ValueError(f"factors must have shape ({n}, {p}, r); got {Z.shape}.")
        if Z.shape[2] == 0:
            Z = np.zeros((n, p, 1))
        if ridge is None:
            raise ValueError(
                "ridge is required with factors. Pass a number above 0, or one per Gaussian."
            )
        levels = np.asarray(ridge, dtype=np.float64)
        if levels.ndim > 1 or (levels.ndim == 1 and levels.shape != (n,)):
            raise ValueError(f"ridge must be a number or have shape ({n},); got {levels.shape}.")
        levels = np.array(np.broadcast_to(levels, (n,)))
        bad = ~(np.isfinite(levels) & (levels > 0))
        if bad.any():
            k = int(np.argmax(bad))
            raise ValueError(
                f"ridge must be above 0; the ridge of {_describe_gaussian(k, checked_names)} is "
                f"{levels[k]}."
            )
        self._set(mu, None, Z, levels, checked_names, None)

    def _set(
        self,
        means: Matrix,
        covariances: Matrix | None,
        factors: Matrix | None,
        ridge: Matrix | None,
        names: Any,
        added_ridge: float | None,
    ) -> None:
        fields = {"means": means, "_covariances": covariances, "factors": factors, "ridge": ridge}
        for name, value in {**fields, "names": names}.items():
            if value is not None:
                value = value.view()
                value.flags.writeable = False
            vars(self)[name] = value
        vars(self)["added_ridge"] = added_ridge

    @classmethod
    def _of(cls, *fields: Any) -> Self:
        """Create Gaussians from fields without checking them."""
        gaussians = cls.__new__(cls)
        gaussians._set(*fields)
        return gaussians

    def _check_state(self, _: Sizes) -> None:
        covariances, factors = vars(self)["_covariances"], self.factors
        check_that(
            (covariances is None) != (factors is None), "expected either covariances or factors."
        )
        check_that(factors is None or self.ridge is not None, "factors without a ridge.")
        check_that(
            vars(self).keys() == self.state.conditions.keys(),
            "expected only the fields of Gaussians.",
        )

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_sets(
        cls,
        sets: Any,
        ridge: float | Literal["auto"] = "auto",
        *,
        shrinkage: CovarianceShrinkage = None,
        ddof: int = 1,
        storage: Storage = "auto",
    ) -> Self:
        r"""Estimate the Gaussian of each set of vectors.

        .. math::
            \mu_i = \frac{1}{t_i} \sum_j x_j, \qquad
            \Sigma_i = \frac{1}{t_i - 1} \sum_j (x_j - \mu_i)(x_j - \mu_i)^T + \gamma I .

        Parameters
        ----------
        sets : Sets, or list of array-like of shape (t_i, p)
            The sets. A set of a single vector has the covariance :math:`\gamma I`.
        ridge : float or "auto", default="auto"
            :math:`\gamma`, in squared units of the data. "auto" is the median of the mean variances
            of the sets; see Notes. For new sets, pass the same number, which is stored in
            :attr:`added_ridge`.
        shrinkage : float from 0 to 1, "ledoit_wolf", "oas" or None, default=None
            Weight of :math:`(tr\,S_i/p)\,I` that is mixed into each covariance :math:`S_i` before
            the ridge is added. For "ledoit_wolf" and "oas", scikit-learn estimates one weight per
            set. The covariance of a single vector is not shrunk.
        ddof : int, default=1
            The scatter of a set of :math:`t_i` vectors is divided by :math:`t_i` minus ``ddof``,
            but at least by 1.
        storage : {"auto", "dense", "low_rank"}, default="auto"
            Storage of the covariances. "auto" uses "low_rank" if the ridge is not 0 and the largest
            set has at most 3p/8 + 1 vectors, which makes distances cheaper to compute.

        Returns
        -------
        Gaussians

        Raises
        ------
        ValueError
            If the ridge is 0 and a covariance is singular, because the set has too few vectors. The
            message names the first such set.

        Warns
        -----
        UserWarning
            If a number passed as ``ridge`` exceeds the median variance, so that all covariances are
            nearly equal.

        Notes
        -----
        If the ridge is much larger than the covariances, only the means of the sets matter. If it
        is too small, directions in which a small set hardly varies dominate the distances. "auto"
        is a good start if the features are scaled and the means are informative. To tune the ridge,
        try 0.01 to 10 times the value of "auto". Abou-Moustafa [1]_ uses 1 for all data.

        Cost: :math:`O(\sum t_i p^2)`, in float64.

        References
        ----------
        .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University,
           2011.

        Examples
        --------
        >>> from nearfar import Gaussians
        >>> Gaussians.from_sets([[[1.0, 2.0], [3.0, 4.0]]], ridge=0.0)
        Traceback (most recent call last):
        ...
        ValueError: Set 0 has 2 vectors of 2 features: its covariance is singular. Pass ...
        """
        _check_options(ridge, storage)
        check_parameter(
            "Gaussians.from_sets",
            "shrinkage",
            shrinkage,
            [none, real(0, 1), one_of("ledoit_wolf", "oas")],
        )
        check_parameter("Gaussians.from_sets", "ddof", ddof, [integer(0)])
        sets = as_sets(sets)
        n, p = sets.shape
        divisors = np.maximum(sets.sizes - ddof, 1)
        rank = min(int(sets.sizes.max()) - 1, p)
        is_low_rank = _uses_low_rank(storage, rank, p, ridge)
        means = np.empty((n, p))
        stack = np.zeros((n, p, max(rank, 1)) if is_low_rank else (n, p, p))
        for k, rows in enumerate(sets):
            moments = _compute_factored_moments(rows) if is_low_rank else _compute_moments(sets, k)
            means[k] = moments.mean
            stack[k, :, : moments.spread.shape[1]] = moments.spread
        _check_overflow(stack, means)
        stack /= (np.sqrt(divisors) if is_low_rank else divisors)[:, None, None]
        traces = _compute_traces(stack, is_low_rank)
        weights = _compute_shrinkage_weights(sets, shrinkage, traces)
        gamma = _choose_ridge(ridge, AUTO_RIDGE, traces / p, sets.X)
        if ridge != "auto" and gamma > np.median(traces) / p > 0:
            warn(
                f"ridge={gamma:g} exceeds the median variance of the sets, "
                f"{np.median(traces) / p:.3g}, so their covariances have little effect. Scale the "
                "data, or use ridge='auto'.",
                UserWarning,
            )
        levels = weights * traces / p + gamma
        if gamma == 0:
            _raise_if_singular(sets, levels)
        stack *= (np.sqrt(1 - weights) if is_low_rank else 1 - weights)[:, None, None]
        if is_low_rank:
            return cls._of(means, None, stack, levels, sets.names, gamma)
        stack[:, np.arange(p), np.arange(p)] += levels[:, None]
        return cls._of(means, stack, None, None, sets.names, gamma)

    @classmethod
    def from_neighborhoods(
        cls,
        X: ArrayLike,
        n_neighbors: int = 8,
        ridge: float | Literal["auto"] = "auto",
        center: Literal["mean", "point"] = "mean",
        *,
        queries: ArrayLike | None = None,
        match_training_points: bool = True,
        neighbors: ArrayLike | None = None,
        storage: Storage = "auto",
    ) -> Self:
        r"""Estimate one Gaussian per row from the neighborhood of the row (the augmented space).

        Let :math:`N_i` be the m nearest rows of row i, without the row itself. With
        ``center="point"``, the Gaussian of row i is

        .. math::
            \mu_i = x_i, \qquad
            A_i = \frac{1}{m-1} \sum_{j \in N_i} (x_j - x_i)(x_j - x_i)^T + \gamma I

        (deviations from the row, not from the mean of its neighbors). ``center="mean"``
        includes the row in its neighborhood,

        .. math::
            \hat\mu_i = \frac{1}{m+1} \sum_{j \in N_i \cup \{i\}} x_j, \qquad
            \hat\Sigma_i = \frac1m \sum_{j \in N_i \cup \{i\}} (x_j - \hat\mu_i)(x_j - \hat\mu_i)^T
            + \gamma I .

        Two rows have the same Gaussian with ``center="mean"`` if :math:`N_i \cup \{i\}` is the same
        for both.

        Parameters
        ----------
        X : array-like of shape (n, p)
            The data, dense and finite.
        n_neighbors : int, default=8
            The number m of neighbors. Ties are broken by row index.
        ridge : float or "auto", default="auto"
            :math:`\gamma`, in squared units of X. "auto" is 0.01 times the median of the mean
            variances of the neighborhoods. Abou-Moustafa [1]_ uses 1.
        center : {"mean", "point"}, default="mean"
            Center of each row's Gaussian: the mean of its neighborhood, or the row itself.
        queries : array-like of shape (n_queries, p), default=None
            New points, for which the nearest rows of X are found. None means the rows of X.
        match_training_points : bool, default=True
            Whether to treat a query that equals a row of X as this row. The row is then not its own
            neighbor, so the query gets the same Gaussian as the row. Rounded rows
            are recognized too, up to 0.01 times the distance of the farthest neighbor.
        neighbors : array-like of int of shape (n, m), default=None
            Row indices of the neighbors of each point, if they were found in another way (for
            example from labels). ``n_neighbors`` is then ignored.
        storage : {"auto", "dense", "low_rank"}, default="auto"
            Storage of the covariances. "auto" uses "low_rank" (rank m plus ridge) if the ridge is
            not 0 and m is at most 3p/8.

        Returns
        -------
        Gaussians

        Notes
        -----
        Cost: :math:`O(n^2 p)` in matrix products for the neighbor search, and :math:`O(n m p)` for
        factors or :math:`O(n m p^2)` for dense covariances.

        References
        ----------
        .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University,
           2011.

        Examples
        --------
        >>> from nearfar import Gaussians
        >>> X = [[0.0], [1.0], [3.0], [7.0]]
        >>> local = Gaussians.from_neighborhoods(X, n_neighbors=2, ridge=1.0, center="point")
        >>> local.means[0], local.covariances[0]
        (array([0.]), array([[11.]]))
        >>> smoothed = Gaussians.from_neighborhoods(X, n_neighbors=2, ridge=1.0)
        >>> smoothed.means[0].round(4), smoothed.covariances[0].round(4)
        (array([1.3333]), array([[3.3333]]))
        """
        owner = "Gaussians.from_neighborhoods"
        _check_options(ridge, storage)
        check_parameter(owner, "center", center, [one_of("mean", "point")])
        points = check_array(X, dtype=np.float64, input_name="X")
        if queries is None:
            centers = points
        else:
            centers = check_array(queries, dtype=np.float64, input_name="queries")
            if centers.shape[1] != points.shape[1]:
                raise ValueError(
                    f"queries have {format_count(centers.shape[1], 'feature')}, but X has "
                    f"{points.shape[1]}; they must match."
                )
        if neighbors is not None:
            near = check_indices(neighbors, "neighbors", len(points), np.shape(neighbors)[-1])
            if len(near) != len(centers):
                raise ValueError(
                    f"neighbors must have one row per point, {len(centers)}; got {len(near)} rows."
                )
        else:
            check_parameter(owner, "n_neighbors", n_neighbors, [integer(1)])
            near = _find_neighbors(
                points, None if queries is None else centers, n_neighbors, match_training_points
            )
        m = near.shape[1]
        if m < 1 or (center == "point" and m < 2):
            raise ValueError(
                f"n_neighbors must be at least {2 if center == 'point' else 1} for "
                f"center={center!r}; got {m}."
            )
        n, p = centers.shape
        is_low_rank = _uses_low_rank(storage, m, p, ridge)
        means, stack = np.array(centers), np.empty((n, p, m) if is_low_rank else (n, p, p))
        # The covariance of the m + 1 points of a neighborhood is F.T @ F, where F is this matrix
        # times their deviations from the row. The first column is omitted, because it belongs to
        # the row itself, whose deviation is 0.
        helmert = linalg.helmert(m + 1)[:, 1:] / np.sqrt(m)
        for block in split_rows(n, 8 * (3 * m * p + p * p)):
            spread = points[near[block]] - centers[block, None]
            if center == "mean":
                means[block] += spread.sum(axis=1) / (m + 1)
                spread = helmert @ spread
            else:
                spread /= np.sqrt(m - 1)
            transposed = spread.transpose(0, 2, 1)
            stack[block] = transposed if is_low_rank else transposed @ spread
        _check_overflow(stack, means)
        traces = _compute_traces(stack, is_low_rank)
        gamma = _choose_ridge(ridge, AUTO_LOCAL_RIDGE, traces / p, points)
        if is_low_rank:
            return cls._of(means, None, stack, np.full(n, gamma), None, gamma)
        stack[:, np.arange(p), np.arange(p)] += gamma
        return cls._of(means, stack, None, None, None, gamma)

    @classmethod
    def concatenate(cls, parts: Iterable[Gaussians]) -> Self:
        """Concatenate several ``Gaussians``.

        The result has low-rank storage if all parts have low-rank storage. Names are kept if all
        parts have names.

        Parameters
        ----------
        parts : iterable of Gaussians
            Gaussians with the same number of features.

        Returns
        -------
        Gaussians
        """
        gaussians_list = list(parts)
        if not gaussians_list:
            raise ValueError("parts is empty; pass at least one Gaussians object.")
        for k, part in enumerate(gaussians_list):
            if not isinstance(part, Gaussians):
                raise TypeError(f"parts[{k}] must be Gaussians; got {type(part).__name__}.")
            if part.n_features != gaussians_list[0].n_features:
                raise ValueError(
                    f"parts[{k}] has {format_count(part.n_features, 'feature')}, but parts[0] has "
                    f"{gaussians_list[0].n_features}; they must match."
                )
        means = np.concatenate([part.means for part in gaussians_list])
        names = [part.names for part in gaussians_list if part.names is not None]
        all_names = np.concatenate(names) if len(names) == len(gaussians_list) else None
        added_ridges = {part.added_ridge for part in gaussians_list}
        ridge = added_ridges.pop() if len(added_ridges) == 1 else None
        if all(part.is_low_rank for part in gaussians_list):
            max_rank = max(part.rank for part in gaussians_list)
            factors = np.zeros((*means.shape, max_rank))
            starts = np.cumsum([0] + [len(part) for part in gaussians_list])
            for start, part in zip(starts, gaussians_list, strict=False):
                assert part.factors is not None
                factors[start : start + len(part), :, : part.rank] = part.factors
            levels = np.concatenate(
                [part.ridge for part in gaussians_list if part.ridge is not None]
            )
            return cls._of(means, None, factors, levels, all_names, ridge)
        stack = np.concatenate([part.covariances for part in gaussians_list])
        return cls._of(means, stack, None, None, all_names, ridge)

    # ------------------------------------------------------------------ properties

    @property
    def is_low_rank(self) -> bool:
        """Whether the covariances are stored as factors and a ridge."""
        return self.factors is not None

    @property
    def rank(self) -> int:
        """Number of columns of the factors, or p if the covariances are dense."""
        return self.n_features if self.factors is None else int(self.factors.shape[2])

    @property
    def covariances(self) -> Matrix:
        """Covariances, of shape (n, p, p)."""
        if self.factors is None:
            dense: Matrix = vars(self)["_covariances"]
            return dense
        assert self.ridge is not None
        stack = np.matmul(self.factors, self.factors.transpose(0, 2, 1))
        diagonal = np.arange(self.n_features)
        stack[:, diagonal, diagonal] += self.ridge[:, None]
        return stack

    def cholesky(self) -> Matrix:
        """Return the lower Cholesky factors of the covariances, of shape (n, p, p).

        Raises
        ------
        ValueError
            If a covariance is not positive definite, or numerically singular: the conditional
            variance of a feature given the features before it is at the level of rounding errors.
            The message names the first such Gaussian.
        """
        stack = self.covariances
        try:
            factors = np.asarray(np.linalg.cholesky(stack))
        except np.linalg.LinAlgError:
            k = next(k for k, matrix in enumerate(stack) if not _is_definite(matrix))
            raise ValueError(
                f"The covariance of {_describe_gaussian(k, self.names)} is not positive definite, "
                "so distances from it are infinite. Use a larger ridge, or shrinkage."
            ) from None
        conditional_variances = np.square(np.diagonal(factors, axis1=1, axis2=2))
        rounding_errors = _MAX_ROUNDING * self.n_features * np.diagonal(stack, axis1=1, axis2=2)
        bad = (conditional_variances <= rounding_errors).any(axis=1)
        if bad.any():
            raise ValueError(
                f"The covariance of {_describe_gaussian(int(np.argmax(bad)), self.names)} is "
                "numerically singular. Use a larger ridge, or shrinkage."
            )
        return factors

    @property
    def n_features(self) -> int:
        """Number of features of the means."""
        return int(self.means.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Number of Gaussians and number of features."""
        return len(self), self.n_features

    def __len__(self) -> int:
        return len(self.means)

    def __iter__(self) -> Iterator[tuple[Matrix, Matrix]]:
        for k in range(len(self)):
            yield self[k]

    def __getitem__(self, key: Any) -> Any:
        key = get_row_key(key, "Gaussians")
        if isinstance(key, Integral) and not isinstance(key, bool):
            k = check_index(int(key), len(self))
            return self.means[k], self[k : k + 1].covariances[0]
        rows = key if isinstance(key, slice) else convert_key(key, len(self))
        arrays = (self.means, vars(self)["_covariances"], self.factors, self.ridge, self.names)
        return self._of(*(None if a is None else a[rows] for a in arrays), self.added_ridge)

    def __repr__(self) -> str:
        kind = f"rank={self.rank} plus ridge" if self.is_low_rank else "dense"
        return f"Gaussians(n={len(self)}, n_features={self.n_features}, {kind})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "Gaussians cannot be converted to a single array. Use .means and .covariances."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled arrays are writeable when loaded; _of makes them read-only again.
        arrays = (self.means, vars(self)["_covariances"], self.factors, self.ridge, self.names)
        return type(self)._of, (*arrays, self.added_ridge)


def is_low_rank_cheaper(rank: int, n_features: int) -> bool:
    """Return True if distances are cheaper to compute with low-rank than with dense covariances.

    >>> is_low_rank_cheaper(8, 30), is_low_rank_cheaper(8, 18)
    (True, False)
    """
    return 8 * rank <= 3 * n_features


# ---------------------------------------------------------------------- moments of sets


class _Moments(NamedTuple):
    mean: Matrix
    spread: Matrix  # scatter (p, p), or F (p, r) such that F @ F.T is the scatter


def _compute_moments(sets: Sets, k: int) -> _Moments:
    start, stop = sets.offsets[k], sets.offsets[k + 1]
    rows = sets.X[start:stop]
    shift = rows.mean(axis=0, dtype=np.float64)
    if len(rows) <= _MAX_PRODUCT_VECTORS:
        centered = np.subtract(rows, shift, dtype=np.float64)
        first, second = np.ones(len(rows)) @ centered, centered.T @ centered
    else:
        sums, second = compute_moments(sets.X, np.arange(start, stop), shift, None, exact=True)
        first = sums[0]
    offset = first / len(rows)
    return _Moments(shift + offset, second - np.outer(first, offset))


def _compute_factored_moments(rows: NDArray[np.floating[Any]]) -> _Moments:
    mean = rows.mean(axis=0, dtype=np.float64)
    t, p = rows.shape
    if t == 1:
        return _Moments(mean, np.zeros((p, 0)))
    centered = rows - mean
    # The Helmert matrix maps equal rows to zero, so rounding errors of the mean have no effect.
    spread = linalg.helmert(t) @ centered if t <= p else linalg.qr(centered, mode="r")[0][:p]
    return _Moments(mean, spread.T)


def _compute_traces(stack: Matrix, is_low_rank: bool) -> Matrix:
    if is_low_rank:
        return np.asarray(np.einsum("kij,kij->k", stack, stack))
    return np.trace(stack, axis1=1, axis2=2)


def _compute_shrinkage_weights(
    sets: Sets, shrinkage: CovarianceShrinkage, traces: Matrix
) -> Matrix:
    """Return the shrinkage weight of each set."""
    if shrinkage is None:
        return np.zeros(len(sets))
    is_shrunk = (sets.sizes > 1) & (traces > 0)
    if isinstance(shrinkage, str):
        estimate = ledoit_wolf_shrinkage if shrinkage == "ledoit_wolf" else _estimate_oas_weight
        weights = (
            estimate(rows) if shrinks else 0 for rows, shrinks in zip(sets, is_shrunk, strict=True)
        )
        return np.fromiter(weights, np.float64, len(sets))
    return np.where(is_shrunk, float(shrinkage), 0.0)


def _estimate_oas_weight(rows: NDArray[np.floating[Any]]) -> float:
    return float(oas(rows)[1])


def _choose_ridge(
    ridge: float | str, factor: float, variances: Matrix, X: NDArray[np.floating[Any]]
) -> float:
    if not isinstance(ridge, str):
        return float(ridge)
    # If every set has a single vector, the sets have no variance. Use the variance of X then, or 1
    # if X does not vary.
    typical = float(np.median(variances)) or float(variances.mean())
    typical = typical or float(X.var(axis=0, dtype=np.float64).mean())
    return factor * typical or 1.0


def _uses_low_rank(storage: Storage, rank: int, p: int, ridge: float | str) -> bool:
    if storage == "auto":
        return ridge != 0 and is_low_rank_cheaper(rank, p)
    if storage == "low_rank" and ridge == 0:
        raise ValueError('storage="low_rank" needs a ridge above 0; got 0.')
    return storage == "low_rank"


def _raise_if_singular(sets: Sets, levels: Matrix) -> None:
    is_singular = (sets.sizes <= sets.n_features) & (levels == 0)
    if is_singular.any():
        k = int(np.argmax(is_singular))
        raise ValueError(
            f"{sets.describe(k)} has {format_count(int(sets.sizes[k]), 'vector')} of "
            f"{format_count(sets.n_features, 'feature')}: its covariance is singular. Pass "
            'ridge="auto" or a number above 0.'
        )


def _find_neighbors(
    points: Matrix, queries: Matrix | None, n_neighbors: int, match_training_points: bool
) -> NDArray[np.intp]:
    if queries is None:
        return kneighbors(points, n_neighbors=n_neighbors)[1]
    if not match_training_points:
        return kneighbors(points, queries, n_neighbors=n_neighbors)[1]
    if n_neighbors >= len(points):
        raise ValueError(
            f"n_neighbors must be less than the {format_count(len(points), 'row')} of X; got "
            f"{n_neighbors}."
        )
    distances, near = kneighbors(points, queries, n_neighbors=n_neighbors + 1)
    # If several rows equal the query, any of them can be removed, because they are the same point.
    return np.where(is_copy(distances)[:, None], near[:, 1:], near[:, :-1])


def is_copy(distances: Matrix) -> NDArray[np.bool_]:
    """Return True for each query whose nearest row is the query itself, up to rounding.

    ``distances`` contains the distances of the nearest rows of each query, ascending.
    """
    return np.asarray(distances[:, 0] <= _MAX_COPY_DISTANCE * distances[:, -1])


# ---------------------------------------------------------------------- checks


def _check_options(ridge: Any, storage: Any) -> None:
    check_parameter("Gaussians", "ridge", ridge, [real(0), one_of("auto")])
    check_parameter("Gaussians", "storage", storage, [one_of("auto", "dense", "low_rank")])


def _check_overflow(stack: Matrix, means: Matrix) -> None:
    for values in (stack, means):
        if not np.isfinite(values).all():
            raise ValueError("Squares of the data overflow. Divide the data by a constant.")


def _check_finite(values: Any, name: str, shape: str, ndim: int) -> Matrix:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers with shape {shape}.") from None
    if array.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
    bad = ~np.isfinite(array)
    if bad.any():
        position = np.unravel_index(np.argmax(bad), array.shape)
        raise ValueError(f"{name} must be finite; Gaussian {position[0]} has {array[position]}.")
    return array


def _is_definite(matrix: Matrix) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _check_symmetric(S: Matrix, names: NDArray[Any] | None) -> Matrix:
    transposed = S.transpose(0, 2, 1)
    size = np.abs(S).max(axis=(1, 2), initial=0)
    bad = np.abs(S - transposed).max(axis=(1, 2), initial=0) > _MAX_ASYMMETRY * size
    if bad.any():
        raise ValueError(
            f"The covariance of {_describe_gaussian(int(np.argmax(bad)), names)} is not symmetric; "
            "it must equal its transpose."
        )
    return (S + transposed) / 2


def _describe_gaussian(k: int, names: NDArray[Any] | None) -> str:
    return f"Gaussian {k}" if names is None else f"Gaussian {k} ({str(names[k])!r})"
