"""Gaussians: a mean and a covariance for each set of vectors, or for each neighbourhood."""

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
from nearfar.blocks import row_blocks
from nearfar.notices import warn
from nearfar.parameters import check_parameter, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.state import Sizes, State, floats, need, none_or, number, table, texts
from nearfar.summaries.immutable import Immutable
from nearfar.summaries.index_checks import check_indices
from nearfar.summaries.row_moments import moments_about
from nearfar.summaries.sets import Sets, as_sets, checked_index, chosen_rows, first_axis
from nearfar.words import count

CovarianceShrinkage = float | Literal["ledoit_wolf", "oas"] | None
Storage = Literal["auto", "dense", "low_rank"]

#: The ridge "auto", as a share of the typical variance, of sets. They have few vectors beside their
#: p(p+1)/2 covariances; with less, directions rule that a set hardly moves in, by chance.
AUTO_RIDGE = 1.0
#: The same of neighbourhoods, all of one size and near one another.
AUTO_LOCAL_RIDGE = 0.01
# Sets of so many vectors are one block of their moments anyway.
_SMALL = 1024
# Covariances may differ from their transposes by so much, relatively.
_ASYMMETRY = 1e-6
# What rounding leaves of a variance that is none, relatively and for each feature. (Of variances
# that are 1e-15 of others, the most that can be told from it, there is a hundred times as much.)
_LOST = 16 * np.finfo(np.float64).eps


class Gaussians(Immutable):
    r"""A stack of Gaussians :math:`N(\mu_i, \Sigma_i)`, one for each set or neighbourhood.

    Covariances are kept dense, or as :math:`\Sigma_i = \gamma_i I + Z_i Z_i^T` with factors of few
    columns (low rank plus ridge), where p is large. The object is immutable and slices as
    :class:`~nearfar.Sets` does. Positive definiteness is checked when it is first needed.

    Parameters
    ----------
    means : array-like of shape (n, p)
        The means :math:`\mu_i`.
    covariances : array-like of shape (n, p, p), default=None
        The covariances; or else give ``factors`` and ``ridge``.
    factors : array-like of shape (n, p, r), default=None
        The factors :math:`Z_i`.
    ridge : float or array-like of shape (n,), default=None
        The ridge :math:`\gamma_i > 0` beside the factors.
    names : array-like of shape (n,), default=None
        A name for each, as text; messages use it.

    Attributes
    ----------
    means : ndarray of shape (n, p)
        As above, read-only.
    factors, ridge : ndarray of shape (n, p, r) and (n,), or None
        The low-rank storage, if it is that.
    covariances : ndarray of shape (n, p, p)
        The covariances; of the low-rank storage they are made whenever one asks.
    added_ridge : float or None
        The number that :meth:`from_sets` or :meth:`from_neighborhoods` added to every variance, to
        be given again for new sets or points.
    names : ndarray or None
        As above.

    See Also
    --------
    nearfar.distributions.dissimilarity : How far apart they are.

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
            "names": none_or(texts("n")),
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
        mu = _finite(means, "means", "(n, p)", 2)
        n, p = mu.shape
        if p == 0:
            raise ValueError("means have 0 features; at least one is needed.")
        called = None if names is None else np.asarray(names).astype(str)
        if called is not None and called.shape != (n,):
            raise ValueError(f"names must have shape ({n},); got {called.shape}.")
        if (covariances is None) == (factors is None):
            raise ValueError("Give either covariances, or factors and ridge.")
        if covariances is not None:
            if ridge is not None:
                raise ValueError("ridge goes with factors; covariances hold theirs already.")
            S = _finite(covariances, "covariances", "(n, p, p)", 3)
            if S.shape != (n, p, p):
                raise ValueError(f"covariances must have shape {(n, p, p)}; got {S.shape}.")
            self._set(mu, _symmetric(S, called), None, None, called, None)
            return
        Z = _finite(factors, "factors", "(n, p, r)", 3)
        if Z.shape[:2] != (n, p):
            raise ValueError(f"factors must have shape ({n}, {p}, r); got {Z.shape}.")
        if Z.shape[2] == 0:
            Z = np.zeros((n, p, 1))
        if ridge is None:
            raise ValueError("factors need a ridge: a number above 0, or one for each Gaussian.")
        levels = np.asarray(ridge, dtype=np.float64)
        if levels.ndim > 1 or (levels.ndim == 1 and levels.shape != (n,)):
            raise ValueError(f"ridge must be a number or have shape ({n},); got {levels.shape}.")
        levels = np.array(np.broadcast_to(levels, (n,)))
        bad = ~(np.isfinite(levels) & (levels > 0))
        if bad.any():
            k = int(np.argmax(bad))
            raise ValueError(f"ridge must be above 0; that of {_one(k, called)} is {levels[k]}.")
        self._set(mu, None, Z, levels, called, None)

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
        """Of parts that were checked before."""
        gaussians = cls.__new__(cls)
        gaussians._set(*fields)
        return gaussians

    def _check_state(self, _: Sizes) -> None:
        covariances, factors = vars(self)["_covariances"], self.factors
        need((covariances is None) != (factors is None), "either covariances or factors.")
        need(factors is None or self.ridge is not None, "factors without a ridge.")
        need(vars(self).keys() == self.state.words.keys(), "more than Gaussians consist of.")

    # ------------------------------------------------------------------ from data

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
        r"""The Gaussian of each set of vectors.

        .. math::
            \mu_i = \frac{1}{t_i} \sum_j x_j, \qquad
            \Sigma_i = \frac{1}{t_i - 1} \sum_j (x_j - \mu_i)(x_j - \mu_i)^T + \gamma I .

        Parameters
        ----------
        sets : Sets, or list of array-like of shape (t_i, p)
            The sets. One of a single vector has the covariance :math:`\gamma I`.
        ridge : float or "auto", default="auto"
            :math:`\gamma`, in squared units of the data: beside small covariances a large ridge
            leaves only the distance of the means (the works take 1 for everything), a small one
            lets directions rule that a short set hardly moves in. "auto" is the median over sets of
            the mean variance, a good start where features are scaled and means count; tune from
            0.01 to 10 times that. :attr:`added_ridge` then tells the number, which new sets should
            get too.
        shrinkage : float from 0 to 1, "ledoit_wolf", "oas" or None, default=None
            Mix so much of :math:`(tr\,S_i/p)\,I` into each covariance :math:`S_i` before the ridge
            is added; or the share that the estimators of scikit-learn find for each set. A set of
            one vector is left as it is.
        ddof : int, default=1
            The divisor is :math:`t_i` less this, and at least 1.
        storage : {"auto", "dense", "low_rank"}, default="auto"
            How to keep the covariances. "auto" is low rank where the largest set has so few vectors
            beside p that all work gets cheaper.

        Returns
        -------
        Gaussians

        Raises
        ------
        ValueError
            Naming the first set whose covariance is singular for too few vectors, if the ridge
            is 0.

        Warns
        -----
        UserWarning
            If a ridge that was given exceeds the median variance: then all covariances are alike.

        Notes
        -----
        Cost: each set is read once, :math:`O(\sum t_i p^2)`, in float64.

        Examples
        --------
        >>> from nearfar import Gaussians
        >>> Gaussians.from_sets([[[1.0, 2.0], [3.0, 4.0]]], ridge=0.0)
        Traceback (most recent call last):
        ...
        ValueError: Set 0 has 2 vectors of 2 features: its covariance is singular. Give ...
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
        thin = _is_thin(storage, rank, p, ridge)
        means = np.empty((n, p))
        stack = np.zeros((n, p, max(rank, 1)) if thin else (n, p, p))
        for k, rows in enumerate(sets):
            moments = _thin_moments(rows) if thin else _moments(sets, k)
            means[k] = moments.mean
            stack[k, :, : moments.spread.shape[1]] = moments.spread
        _check_overflow(stack, means)
        stack /= (np.sqrt(divisors) if thin else divisors)[:, None, None]
        traces = _traces(stack, thin)
        shares = _shrinkage_shares(sets, shrinkage, traces)
        gamma = _ridge_of(ridge, AUTO_RIDGE, traces / p, sets.X)
        if ridge != "auto" and gamma > np.median(traces) / p > 0:
            warn(
                f"ridge={gamma:g} exceeds the median variance of the sets, "
                f"{np.median(traces) / p:.3g}: their covariances hardly count. Scale the data, or "
                "use ridge='auto'.",
                UserWarning,
            )
        levels = shares * traces / p + gamma
        if gamma == 0:
            _refuse_singular(sets, levels)
        stack *= (np.sqrt(1 - shares) if thin else 1 - shares)[:, None, None]
        if thin:
            return cls._of(means, None, stack, levels, sets.names, gamma)
        stack[:, np.arange(p), np.arange(p)] += levels[:, None]
        return cls._of(means, stack, None, None, sets.names, gamma)

    @classmethod
    def from_neighborhoods(
        cls,
        X: ArrayLike,
        n_neighbors: int = 8,
        ridge: float | Literal["auto"] = "auto",
        form: Literal["smoothed", "raw"] = "smoothed",
        *,
        queries: ArrayLike | None = None,
        recognize: bool = True,
        neighbors: ArrayLike | None = None,
        storage: Storage = "auto",
    ) -> Self:
        r"""The Gaussian of the neighbourhood of each row: the points of the augmented space.

        With :math:`N_i` the m nearest rows, the row itself not counted, the raw form is

        .. math::
            \mu_i = x_i, \qquad
            A_i = \frac{1}{m-1} \sum_{j \in N_i} (x_j - x_i)(x_j - x_i)^T + \gamma I

        (about the row, not about the mean of its neighbours), and the smoothed one, in which the
        row joins its neighbours,

        .. math::
            \hat\mu_i = \frac{1}{m+1} \sum_{j \in N_i \cup \{i\}} x_j, \qquad
            \hat\Sigma_i = \frac1m \sum_{j \in N_i \cup \{i\}} (x_j - \hat\mu_i)(x_j - \hat\mu_i)^T
            + \gamma I .

        Two rows with the same closed neighbourhood have one and the same smoothed Gaussian.

        Parameters
        ----------
        X : array-like of shape (n, p)
            The rows, dense and finite.
        n_neighbors : int, default=8
            m. Of rows at the same distance those with the smaller index are taken.
        ridge : float or "auto", default="auto"
            :math:`\gamma`, in squared units of X; the works take 1. "auto" is 0.01 of the median
            over rows of the mean local variance.
        form : {"smoothed", "raw"}, default="smoothed"
            As above.
        queries : array-like of shape (n_queries, p), default=None
            New points, whose neighbours are sought among the rows of X. None means the rows of X.
        recognize : bool, default=True
            Take a query that equals a row of X for that row, which is not its own neighbour; so
            that rows of X give what they gave before.
        neighbors : array-like of int of shape (n, m), default=None
            Neighbours found otherwise (from labels, for instance), in place of ``n_neighbors``.
        storage : {"auto", "dense", "low_rank"}, default="auto"
            How to keep the covariances, of rank m and ridge.

        Returns
        -------
        Gaussians

        Notes
        -----
        Cost: the search, :math:`O(n^2 p)` in matrix products, and :math:`O(n m p)` for factors or
        :math:`O(n m p^2)` for covariances.

        Examples
        --------
        >>> from nearfar import Gaussians
        >>> X = [[0.0], [1.0], [3.0], [7.0]]
        >>> raw = Gaussians.from_neighborhoods(X, n_neighbors=2, ridge=1.0, form="raw")
        >>> raw.means[0], raw.covariances[0]
        (array([0.]), array([[11.]]))
        >>> smoothed = Gaussians.from_neighborhoods(X, n_neighbors=2, ridge=1.0)
        >>> smoothed.means[0].round(4), smoothed.covariances[0].round(4)
        (array([1.3333]), array([[3.3333]]))
        """
        owner = "Gaussians.from_neighborhoods"
        _check_options(ridge, storage)
        check_parameter(owner, "form", form, [one_of("smoothed", "raw")])
        points = check_array(X, dtype=np.float64, input_name="X")
        if queries is None:
            centers = points
        else:
            centers = check_array(queries, dtype=np.float64, input_name="queries")
            if centers.shape[1] != points.shape[1]:
                raise ValueError(
                    f"queries have {count(centers.shape[1], 'feature')}, but X has "
                    f"{points.shape[1]}."
                )
        if neighbors is not None:
            near = check_indices(neighbors, "neighbors", len(points), np.shape(neighbors)[-1])
            if len(near) != len(centers):
                raise ValueError(
                    f"neighbors must have a row for each of {len(centers)} points; got {len(near)}."
                )
        else:
            check_parameter(owner, "n_neighbors", n_neighbors, [integer(1)])
            near = _neighbors(points, None if queries is None else centers, n_neighbors, recognize)
        m = near.shape[1]
        if m < 1 or (form == "raw" and m < 2):
            raise ValueError(
                f"n_neighbors must be at least {2 if form == 'raw' else 1} for the {form} form, "
                f"whose divisor is n_neighbors{' - 1' * (form == 'raw')}; got {m}."
            )
        n, p = centers.shape
        thin = _is_thin(storage, m, p, ridge)
        means, stack = np.array(centers), np.empty((n, p, m) if thin else (n, p, p))
        # Rows of a neighbourhood times this: as many directions as there are neighbours.
        helmert = linalg.helmert(m + 1)[:, 1:] / np.sqrt(m)
        for block in row_blocks(n, 8 * (3 * m * p + p * p)):
            spread = points[near[block]] - centers[block, None]
            if form == "smoothed":
                means[block] += spread.sum(axis=1) / (m + 1)
                spread = helmert @ spread
            else:
                spread /= np.sqrt(m - 1)
            turned = spread.transpose(0, 2, 1)
            stack[block] = turned if thin else turned @ spread
        _check_overflow(stack, means)
        traces = _traces(stack, thin)
        gamma = _ridge_of(ridge, AUTO_LOCAL_RIDGE, traces / p, points)
        if thin:
            return cls._of(means, None, stack, np.full(n, gamma), None, gamma)
        stack[:, np.arange(p), np.arange(p)] += gamma
        return cls._of(means, stack, None, None, None, gamma)

    @classmethod
    def concatenate(cls, parts: Iterable[Gaussians]) -> Self:
        """The Gaussians of several, one after another.

        Of low rank if all are; names are kept if all have them.

        Parameters
        ----------
        parts : iterable of Gaussians
            Of one width.

        Returns
        -------
        Gaussians
        """
        given = list(parts)
        if not given:
            raise ValueError("There are no Gaussians to concatenate.")
        for k, part in enumerate(given):
            if not isinstance(part, Gaussians):
                raise TypeError(f"parts[{k}] must be Gaussians; got {type(part).__name__}.")
            if part.n_features != given[0].n_features:
                raise ValueError(
                    f"parts[{k}] has {count(part.n_features, 'feature')}, but parts[0] has "
                    f"{given[0].n_features}."
                )
        means = np.concatenate([part.means for part in given])
        names = [part.names for part in given if part.names is not None]
        called = np.concatenate(names) if len(names) == len(given) else None
        added = {part.added_ridge for part in given}
        ridge = added.pop() if len(added) == 1 else None
        if all(part.is_low_rank for part in given):
            widest = max(part.rank for part in given)
            factors = np.zeros((*means.shape, widest))
            starts = np.cumsum([0] + [len(part) for part in given])
            for start, part in zip(starts, given, strict=False):
                assert part.factors is not None
                factors[start : start + len(part), :, : part.rank] = part.factors
            levels = np.concatenate([part.ridge for part in given if part.ridge is not None])
            return cls._of(means, None, factors, levels, called, ridge)
        stack = np.concatenate([part.covariances for part in given])
        return cls._of(means, stack, None, None, called, ridge)

    # ------------------------------------------------------------------ what they are

    @property
    def is_low_rank(self) -> bool:
        """Whether covariances are kept as factors and a ridge."""
        return self.factors is not None

    @property
    def rank(self) -> int:
        """The columns of the factors; p, if covariances are dense."""
        return self.n_features if self.factors is None else int(self.factors.shape[2])

    @property
    def covariances(self) -> Matrix:
        """The covariances, of shape (n, p, p)."""
        if self.factors is None:
            dense: Matrix = vars(self)["_covariances"]
            return dense
        assert self.ridge is not None
        stack = np.matmul(self.factors, self.factors.transpose(0, 2, 1))
        diagonal = np.arange(self.n_features)
        stack[:, diagonal, diagonal] += self.ridge[:, None]
        return stack

    def cholesky(self) -> Matrix:
        """The lower Cholesky factors of the covariances, of shape (n, p, p).

        Raises
        ------
        ValueError
            Naming the first covariance that is not positive definite, or singular but for rounding:
            of a variance nothing is left when the features before it are known.
        """
        stack = self.covariances
        try:
            factors = np.asarray(np.linalg.cholesky(stack))
        except np.linalg.LinAlgError:
            k = next(k for k, matrix in enumerate(stack) if not _is_definite(matrix))
            raise ValueError(
                f"The covariance of {_one(k, self.names)} is not positive definite; distances "
                "from it are infinite. Give a larger ridge, or shrinkage."
            ) from None
        left = np.square(np.diagonal(factors, axis1=1, axis2=2))
        lost = _LOST * self.n_features * np.diagonal(stack, axis1=1, axis2=2)
        bad = (left <= lost).any(axis=1)
        if bad.any():
            raise ValueError(
                f"The covariance of {_one(int(np.argmax(bad)), self.names)} is singular but for "
                "rounding. Give a larger ridge, or shrinkage."
            )
        return factors

    @property
    def n_features(self) -> int:
        """The width of the means."""
        return int(self.means.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of Gaussians, and of features."""
        return len(self), self.n_features

    def __len__(self) -> int:
        return len(self.means)

    def __iter__(self) -> Iterator[tuple[Matrix, Matrix]]:
        for k in range(len(self)):
            yield self[k]

    def __getitem__(self, key: Any) -> Any:
        key = first_axis(key, "Gaussians")
        if isinstance(key, Integral) and not isinstance(key, bool):
            k = checked_index(int(key), len(self))
            return self.means[k], self[k : k + 1].covariances[0]
        chosen = key if isinstance(key, slice) else chosen_rows(key, len(self))
        arrays = (self.means, vars(self)["_covariances"], self.factors, self.ridge, self.names)
        return self._of(*(None if a is None else a[chosen] for a in arrays), self.added_ridge)

    def __repr__(self) -> str:
        kind = f"rank={self.rank} plus ridge" if self.is_low_rank else "dense"
        return f"Gaussians(n={len(self)}, n_features={self.n_features}, {kind})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("Gaussians are no single array: use .means and .covariances.")

    def __reduce__(self) -> tuple[Any, ...]:
        # Through a constructor: pickled arrays come back writeable.
        arrays = (self.means, vars(self)["_covariances"], self.factors, self.ridge, self.names)
        return type(self)._of, (*arrays, self.added_ridge)


def low_rank_pays(rank: int, n_features: int) -> bool:
    """Whether pairs of Gaussians of that rank cost less by their factors.

    >>> low_rank_pays(8, 30), low_rank_pays(8, 18)
    (True, False)
    """
    return 8 * rank <= 3 * n_features


# ---------------------------------------------------------------------- moments of sets


class _Moments(NamedTuple):
    mean: Matrix
    spread: Matrix  # scatter (p, p); or its factor (p, t - 1)


def _moments(sets: Sets, k: int) -> _Moments:
    start, stop = sets.offsets[k], sets.offsets[k + 1]
    rows = sets.X[start:stop]
    shift = rows.mean(axis=0, dtype=np.float64)
    if len(rows) <= _SMALL:
        centered = np.subtract(rows, shift, dtype=np.float64)
        first, second = np.ones(len(rows)) @ centered, centered.T @ centered
    else:
        sums, second = moments_about(sets.X, np.arange(start, stop), shift, None, exact=True)
        first = sums[0]
    rest = first / len(rows)
    return _Moments(shift + rest, second - np.outer(first, rest))


def _thin_moments(rows: NDArray[np.floating[Any]]) -> _Moments:
    mean = rows.mean(axis=0, dtype=np.float64)
    t, p = rows.shape
    if t == 1:
        return _Moments(mean, np.zeros((p, 0)))
    centered = rows - mean
    # t - 1 directions across the mean, which rounding left in the rows drops out of.
    spread = linalg.helmert(t) @ centered if t <= p else linalg.qr(centered, mode="r")[0][:p]
    return _Moments(mean, spread.T)


def _traces(stack: Matrix, thin: bool) -> Matrix:
    if thin:
        return np.asarray(np.einsum("kij,kij->k", stack, stack))
    return np.trace(stack, axis1=1, axis2=2)


def _shrinkage_shares(sets: Sets, shrinkage: CovarianceShrinkage, traces: Matrix) -> Matrix:
    """How much of the identity is mixed into the covariance of each set."""
    if shrinkage is None:
        return np.zeros(len(sets))
    spread = (sets.sizes > 1) & (traces > 0)
    if isinstance(shrinkage, str):
        estimate = ledoit_wolf_shrinkage if shrinkage == "ledoit_wolf" else _oas_share
        of_each = (estimate(rows) if yes else 0 for rows, yes in zip(sets, spread, strict=True))
        return np.fromiter(of_each, np.float64, len(sets))
    return np.where(spread, float(shrinkage), 0.0)


def _oas_share(rows: NDArray[np.floating[Any]]) -> float:
    return float(oas(rows)[1])


def _ridge_of(
    ridge: float | str, share: float, variances: Matrix, X: NDArray[np.floating[Any]]
) -> float:
    if not isinstance(ridge, str):
        return float(ridge)
    # Sets of single vectors have no variance of their own: then that of all, or anything.
    typical = float(np.median(variances)) or float(variances.mean())
    typical = typical or float(X.var(axis=0, dtype=np.float64).mean())
    return share * typical or 1.0


def _is_thin(storage: Storage, rank: int, p: int, ridge: float | str) -> bool:
    if storage == "auto":
        return ridge != 0 and low_rank_pays(rank, p)
    if storage == "low_rank" and ridge == 0:
        raise ValueError('storage="low_rank" needs a ridge above 0.')
    return storage == "low_rank"


def _refuse_singular(sets: Sets, levels: Matrix) -> None:
    few = (sets.sizes <= sets.n_features) & (levels == 0)
    if few.any():
        k = int(np.argmax(few))
        raise ValueError(
            f"{sets.called(k)} has {count(int(sets.sizes[k]), 'vector')} of "
            f"{count(sets.n_features, 'feature')}: its covariance is singular. Give "
            'ridge="auto" or a number above 0.'
        )


def _neighbors(
    points: Matrix, queries: Matrix | None, n_neighbors: int, recognize: bool
) -> NDArray[np.intp]:
    if queries is None:
        return kneighbors(points, n_neighbors=n_neighbors)[1]
    if not recognize:
        return kneighbors(points, queries, n_neighbors=n_neighbors)[1]
    if n_neighbors >= len(points):
        raise ValueError(
            f"n_neighbors must be below the {count(len(points), 'row')} of X; got {n_neighbors}."
        )
    distances, near = kneighbors(points, queries, n_neighbors=n_neighbors + 1)
    # Of rows equal to a query any one may stand for it: they are the same point.
    known = distances[:, 0] == 0
    return np.where(known[:, None], near[:, 1:], near[:, :-1])


# ---------------------------------------------------------------------- checks


def _check_options(ridge: Any, storage: Any) -> None:
    check_parameter("Gaussians", "ridge", ridge, [real(0), one_of("auto")])
    check_parameter("Gaussians", "storage", storage, [one_of("auto", "dense", "low_rank")])


def _check_overflow(stack: Matrix, means: Matrix) -> None:
    for values in (stack, means):
        if not np.isfinite(values).all():
            raise ValueError("Squares of the data overflow; divide the data by a constant.")


def _finite(values: Any, name: str, shape: str, ndim: int) -> Matrix:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers of shape {shape}.") from None
    if array.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
    bad = ~np.isfinite(array)
    if bad.any():
        where = np.unravel_index(np.argmax(bad), array.shape)
        raise ValueError(f"{name} must be finite; Gaussian {where[0]} has {array[where]}.")
    return array


def _is_definite(matrix: Matrix) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _symmetric(S: Matrix, names: NDArray[Any] | None) -> Matrix:
    turned = S.transpose(0, 2, 1)
    size = np.abs(S).max(axis=(1, 2), initial=0)
    bad = np.abs(S - turned).max(axis=(1, 2), initial=0) > _ASYMMETRY * size
    if bad.any():
        raise ValueError(
            f"The covariance of {_one(int(np.argmax(bad)), names)} is not symmetric; it must equal "
            "its transpose."
        )
    return (S + turned) / 2


def _one(k: int, names: NDArray[Any] | None) -> str:
    return f"Gaussian {k}" if names is None else f"Gaussian {k} ({str(names[k])!r})"
