"""BaseKernels: kernels of rows, specified by name and computed in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.kernel_coordinates import gamma_of, natural_gamma
from nearfar.blocks import split_rows
from nearfar.kernels.kernel_set import KernelSet
from nearfar.parameters import AllowedValues, integer, real
from nearfar.state import Sizes, State, check_that, flag, floats, strings, unsigned

#: Options of each kernel, with their allowed values.
OPTIONS: dict[str, dict[str, AllowedValues]] = {
    "linear": {},
    "poly": {"gamma": real(0, open_low=True), "degree": integer(1), "coef0": real(0)},
    "rbf": {"gamma": real(0, open_low=True)},
    "laplacian": {"gamma": real(0, open_low=True)},
    "cosine": {},
}
# Scales of the RBF kernels of "auto", in units of 1 over the median squared distance.
_WIDTHS = tuple(2.0**power for power in range(-3, 4))
# Upper limit for the number of rows from which medians are computed.
_SOME = 1000
# Number of floats per block, chosen so that a few blocks fit into the CPU cache.
_IN_CACHE = 1 << 16


class _One(NamedTuple):
    """Specification of one kernel. If gamma is None, it is ``times`` its default value."""

    kind: str
    columns: tuple[int, ...]
    gamma: float | None
    times: float
    degree: int
    coef0: float


class BaseKernels:
    r"""Set of kernels between rows, specified by names and options.

    ========================  =======================================  =========================
    Name                      Kernel                                   Options
    ========================  =======================================  =========================
    "linear"                  :math:`x^T z`                            none
    "poly"                    :math:`(\gamma x^T z + c_0)^d`           gamma, degree, coef0
    "cosine"                  :math:`x^T z / |x||z|`                   none
    "rbf"                     :math:`e^{-\gamma |x-z|^2}`              gamma
    "laplacian"               :math:`e^{-\gamma |x-z|_1}`              gamma
    ========================  =======================================  =========================

    All rows are centered by the mean of the training rows, so that the kernels do not depend on the
    origin.

    Parameters
    ----------
    kernels : "auto", "features" or sequence
        Set of kernels; see Notes. A sequence contains names, such as "rbf", and pairs of a name and
        options, such as ``("rbf", {"gamma": 0.1, "columns": [0, 1]})``.
    rows : array-like of shape (n_samples, n_features)
        Training rows. They determine the mean and the default values of gamma.
    feature_names : sequence of str, optional
        Names of the columns.
    unit_diagonal : bool, default=False
        Scale the kernels to unit diagonal, :math:`k(x, z) / \sqrt{k(x, x)\, k(z, z)}`.

    Attributes
    ----------
    names : ndarray of shape (n_kernels,)
        Names of the kernels.
    kinds, gammas, degrees, coefs : ndarray of shape (n_kernels,)
        Type and options of each kernel.
    columns : ndarray of shape (n_kernels, n_features)
        1 for the features that a kernel uses, else 0.

    Notes
    -----
    ``kernels`` can be

    - "auto": "linear", "poly" of degree 2 and 3, and "rbf" with seven widths around the median
      distance between rows;
    - "features": one "rbf" per feature;
    - a sequence. In addition to the options of the table, ``columns`` selects features by index or
      name, so that each view of the data can have its own kernels.

    The default of ``gamma``, which removes the scale of X, is 1 over

    - the median squared distance between rows for "rbf";
    - the sum of the variances of the columns for "poly";
    - the sum of the standard deviations of the columns for "laplacian".

    ``degree`` is 3 and ``coef0`` is 1 by default.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar.kernels import BaseKernels
    >>> X, _ = load_iris(return_X_y=True)
    >>> base = BaseKernels(["linear", ("rbf", {"gamma": 0.5, "columns": [2, 3]})], X)
    >>> base.names.tolist()
    ['linear', 'rbf 0.5 of x2, x3']
    >>> base.values(1, X[:2], X).shape
    (2, 150)
    """

    state = State(
        {
            "names": strings("m"),
            "kinds": strings("m"),
            "gammas": floats("m", above=0),
            "degrees": floats("m", above=0),
            "coefs": floats("m"),
            "columns": unsigned("m", "p"),
            "mean": floats("p"),
            "unit_diagonal": flag,
        }
    )

    def __init__(
        self,
        kernels: Any,
        rows: ArrayLike,
        feature_names: Sequence[str] | None = None,
        unit_diagonal: bool = False,
    ) -> None:
        X = np.asarray(rows, dtype=np.float64)
        asked = parse_kernels(kernels, X.shape[1], feature_names)
        with np.errstate(over="ignore", invalid="ignore"):
            self.mean = X.mean(axis=0)
            natural = _NaturalWidths(X - self.mean)
            self.gammas = np.array(
                [
                    one.times * natural.gamma(one) if one.gamma is None else one.gamma
                    for one in asked
                ]
            )
        self.kinds = np.array([one.kind for one in asked])
        self.degrees = np.array([float(one.degree) for one in asked])
        self.coefs = np.array([one.coef0 for one in asked])
        self.columns = np.zeros((len(asked), X.shape[1]), dtype=np.uint8)
        for i, one in enumerate(asked):
            self.columns[i, list(one.columns)] = 1
        self.unit_diagonal = unit_diagonal
        self.names = np.array([self._name(i, feature_names) for i in range(len(asked))])

    def __len__(self) -> int:
        return len(self.kinds)

    def _check_state(self, sizes: Sizes) -> None:
        check_that(set(self.kinds.tolist()) <= OPTIONS.keys(), "kinds must be names of kernels.")
        check_that((self.degrees == np.round(self.degrees)).all(), "degrees must be integers.")
        check_that(self.columns.any(axis=1).all(), "each kernel must use at least one column.")
        check_that(sizes["m"] > 0, "there must be at least one kernel.")

    def values(self, i: int, X: Matrix, Z: Matrix) -> Matrix:
        """Return the values of kernel i between the rows of X and Z."""
        return self.weighted(np.eye(len(self))[i], X, Z)

    def weighted(self, weights: Vector, X: Matrix, Z: Matrix) -> Matrix:
        """Return the weighted sum of the kernels between the rows of X and Z."""
        K = np.zeros((len(X), len(Z)))
        used = np.flatnonzero(weights).tolist()
        first, second = _Points(self, X), _Points(self, Z)
        for block in split_rows(len(X), 32 * len(Z), max_rows=max(1, _IN_CACHE // len(Z))):
            between = _Between(self, first, block, second)
            for i in used:
                K[block] += weights[i] * between.values(i)
        return K

    def over(self, rows: Matrix) -> KernelSet:
        """Return the kernels among rows as a KernelSet, which computes them block by block."""
        return RowKernels(self, rows)

    def diagonal(self, i: int, squares: Vector) -> Vector:
        """Return the values of kernel i of points with themselves, from their squared norms."""
        if self.unit_diagonal:
            return (self._own(i, squares) > 0).astype(float)
        return self._own(i, squares)

    def _own(self, i: int, squares: Vector) -> Vector:
        if self.kinds[i] == "linear":
            return squares
        if self.kinds[i] == "poly":
            return np.asarray((self.gammas[i] * squares + self.coefs[i]) ** self.degrees[i])
        if self.kinds[i] == "cosine":
            return (squares > 0).astype(float)
        return np.ones_like(squares)

    def _name(self, i: int, feature_names: Sequence[str] | None) -> str:
        kind = str(self.kinds[i])
        name = f"poly {self.degrees[i]:.0f}" if kind == "poly" else kind
        if kind in ("rbf", "laplacian"):
            name += f" {self.gammas[i]:.3g}"
        read = np.flatnonzero(self.columns[i]).tolist()
        if len(read) == self.columns.shape[1] and (len(read) > 1 or feature_names is None):
            return name
        if len(read) > 3:
            return f"{name} of {len(read)} features"
        called = [f"x{k}" if feature_names is None else str(feature_names[k]) for k in read]
        return f"{name} of {', '.join(called)}"


# ---------------------------------------------------------------------- parsing


def parse_kernels(
    kernels: Any, n_features: int, feature_names: Sequence[str] | None = None
) -> list[_One]:
    """Return the specified kernels. Raises ValueError that names the kernel that is not valid."""
    every = tuple(range(n_features))
    if isinstance(kernels, str) and kernels == "auto":
        plain = [_One("linear", every, None, 1.0, 1, 0.0)]
        polys = [_One("poly", every, None, 1.0, degree, 1.0) for degree in (2, 3)]
        return plain + polys + [_One("rbf", every, None, times, 1, 0.0) for times in _WIDTHS]
    if isinstance(kernels, str) and kernels == "features":
        return [_One("rbf", (k,), None, 1.0, 1, 0.0) for k in every]
    if isinstance(kernels, str) and kernels in OPTIONS:
        kernels = [kernels]
    if not isinstance(kernels, list | tuple) or not kernels:
        raise ValueError(
            'kernels must be "auto", "features" or a list of kernels, whose names are '
            f"{', '.join(OPTIONS)}; got {_shown(kernels)}."
        )
    return [_parse(one, i, n_features, feature_names) for i, one in enumerate(kernels)]


def _parse(one: Any, i: int, n_features: int, feature_names: Sequence[str] | None) -> _One:
    name, options = (one, {}) if isinstance(one, str) else _pair(one, i)
    if name not in OPTIONS:
        raise ValueError(
            f"kernels[{i}]: unknown kernel {_shown(name)}; expected one of {', '.join(OPTIONS)}."
        )
    known = OPTIONS[name]
    for key, value in options.items():
        if key == "columns":
            continue
        if key not in known:
            raise ValueError(
                f"kernels[{i}]: unknown option {_shown(key)} of {name}; expected one of "
                f"{', '.join([*known, 'columns'])}."
            )
        if not known[key].accepts(value):
            raise ValueError(
                f"kernels[{i}]: {key} must be {known[key].description}; got {_shown(value)}."
            )
    columns = _columns(options.get("columns"), i, n_features, feature_names)
    gamma = float(options["gamma"]) if "gamma" in options else None
    degree, coef0 = int(options.get("degree", 3)), float(options.get("coef0", 1.0))
    return _One(name, columns, gamma, 1.0, degree, coef0)


def _pair(one: Any, i: int) -> tuple[Any, Mapping[str, Any]]:
    if (
        isinstance(one, list | tuple)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], Mapping)
    ):
        return one[0], one[1]
    matrices = " For matrices, use nearfar.kernels.margin_weights or alignment_weights."
    raise ValueError(
        f"kernels[{i}] must be the name of a kernel, or a pair of a name and a dict of options; "
        f"got {_shown(one)}.{matrices if isinstance(one, np.ndarray) else ''}"
    )


def _columns(
    columns: Any, i: int, n_features: int, feature_names: Sequence[str] | None
) -> tuple[int, ...]:
    if columns is None:
        return tuple(range(n_features))
    if isinstance(columns, str | int | np.integer):
        columns = [columns]
    listed = list(columns) if isinstance(columns, Sequence | np.ndarray | range) else []
    places: dict[str, int] = {}
    if feature_names is not None:
        places = {str(name): k for k, name in enumerate(feature_names)}
    found = []
    for column in listed:
        if isinstance(column, str):
            if column not in places:
                known = (
                    "X has no feature names"
                    if not places
                    else f"X has {', '.join(list(places)[:5])}"
                )
                raise ValueError(
                    f"kernels[{i}]: unknown column {column!r}; {known}"
                    f"{', ...' if len(places) > 5 else ''}."
                )
            found.append(places[column])
        elif (
            isinstance(column, int | np.integer)
            and not isinstance(column, bool)
            and 0 <= column < n_features
        ):
            found.append(int(column))
        else:
            raise ValueError(
                f"kernels[{i}]: columns must be names, or indices from 0 to {n_features - 1}; got "
                f"{_shown(column)}."
            )
    if not found:
        raise ValueError(
            f"kernels[{i}]: columns must list at least one column; got {_shown(columns)}."
        )
    return tuple(sorted(set(found)))


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _NaturalWidths:
    """Default values of gamma, computed once per kernel type and set of columns."""

    def __init__(self, rows: Matrix) -> None:
        self.rows = rows
        self.some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _SOME)).astype(np.intp)]
        self.known: dict[tuple[str, tuple[int, ...]], float] = {}

    def gamma(self, one: _One) -> float:
        if (one.kind, one.columns) not in self.known:
            self.known[one.kind, one.columns] = self._gamma(one.kind, list(one.columns))
        return self.known[one.kind, one.columns]

    def _gamma(self, kind: str, columns: list[int]) -> float:
        if kind != "rbf":
            return natural_gamma(self.rows[:, columns], kind)
        squares = cdist(self.some[:, columns], self.some[:, columns], "sqeuclidean")
        apart = squares[squares > 0]
        return gamma_of(float(np.median(apart)) if apart.size else 0.0)


# ---------------------------------------------------------------------- values


class _Points:
    """Centered rows: the columns that each kernel uses, and their squared norms."""

    def __init__(self, base: BaseKernels, rows: Matrix) -> None:
        self.base, self.rows = base, rows - base.mean
        self._parts: dict[bytes, tuple[Matrix, Vector]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, i: int) -> tuple[Matrix, Vector]:
        """Return the columns of the rows that kernel i uses, and their squared norms."""
        read = self.base.columns[i]
        key = read.tobytes()
        if key not in self._parts:
            rows = self.rows if read.all() else np.ascontiguousarray(self.rows[:, read > 0])
            self._parts[key] = rows, np.einsum("ij,ij->i", rows, rows)
        return self._parts[key]


class _Between:
    """Kernels between a block of points and other points, with shared intermediate results."""

    def __init__(
        self,
        base: BaseKernels,
        points: _Points,
        block: slice,
        others: _Points,
        distances: Mapping[bytes, Matrix] | None = None,
    ) -> None:
        self.base, self.points, self.block, self.others = base, points, block, others
        self._distances = {key: D[block] for key, D in (distances or {}).items()}
        self._products: dict[bytes, Matrix] = {}
        self._last: tuple[bytes, float, Matrix] | None = None

    def values(self, i: int) -> Matrix:
        """Return kernel i. The array must not be modified."""
        base, kind = self.base, self.base.kinds[i]
        rows, squares = (part[self.block] for part in self.points.part(i))
        others, other_squares = self.others.part(i)
        if kind == "rbf":
            return self._rbf(i)
        if kind == "laplacian":
            return np.asarray(np.exp(-base.gammas[i] * cdist(rows, others, "cityblock")))
        K = self._product(i)
        if kind == "poly":
            level = base.gammas[i] * K + base.coefs[i]
            K = level.copy()
            for _ in range(int(base.degrees[i]) - 1):
                K *= level
        if kind == "cosine" or base.unit_diagonal:
            # The diagonal of "cosine" is 1; its scale is that of the linear kernel.
            own = (lambda s: s) if kind == "cosine" else (lambda s: base._own(i, s))
            K = K * _inverse_root(own(squares))[:, None] * _inverse_root(own(other_squares))
        return K

    def _rbf(self, i: int) -> Matrix:
        key, gamma = self.base.columns[i].tobytes(), float(self.base.gammas[i])
        if self._last is not None and self._last[0] == key and gamma == 2 * self._last[1]:
            K = np.square(self._last[2])  # ten times faster than the exponential
        else:
            K = -gamma * self.squared(i)
            np.exp(K, out=K)
        self._last = key, gamma, K
        return K

    def squared(self, i: int) -> Matrix:
        """Return squared distances in the columns of kernel i."""
        key = self.base.columns[i].tobytes()
        if key not in self._distances:
            squares, others = self.points.part(i)[1][self.block], self.others.part(i)[1]
            D = -2 * self._product(i)
            D += others
            D += squares[:, None]
            self._distances[key] = np.maximum(D, 0, out=D)
        return self._distances[key]

    def _product(self, i: int) -> Matrix:
        key = self.base.columns[i].tobytes()
        if key not in self._products:
            self._products[key] = self.points.part(i)[0][self.block] @ self.others.part(i)[0].T
        return self._products[key]


def _inverse_root(values: Vector) -> Vector:
    positive = values > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, values, 1.0)), 0.0)


class RowKernels(KernelSet):
    """Base kernels among training rows.

    Only one matrix is stored: the squared distances in the columns that most RBF kernels use.
    """

    def __init__(self, base: BaseKernels, rows: Matrix) -> None:
        self.base, self.points = base, _Points(base, rows)
        self.n_kernels, self.n_points = len(base), len(rows)
        self._block: tuple[slice, _Between] | None = None
        self._distances: dict[bytes, Matrix] = {}
        widths = [base.columns[i].tobytes() for i in np.flatnonzero(base.kinds == "rbf")]
        if widths and widths.count(shared := max(widths, key=widths.count)) > 1:
            first: Indices = np.flatnonzero(base.kinds == "rbf")[[widths.index(shared)]]
            D = np.empty((len(rows), len(rows)))
            for block in self.blocks():
                D[block] = _Between(base, self.points, block, self.points).squared(int(first[0]))
            self._distances[shared] = D
        for i, trace in enumerate(self.traces):
            if not (np.isfinite(trace) and trace > 0):
                raise ValueError(
                    f"kernels[{i}] ({base.names[i]}) has trace {trace:g}: its columns "
                    + ("do not vary." if trace == 0 else "are too large. Rescale them.")
                )

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        if self._block is None or self._block[0] != block:
            between = _Between(self.base, self.points, block, self.points, self._distances)
            self._block = block, between
        return self._block[1].values(i)

    def diagonals(self) -> Matrix:
        """Return the diagonals of the kernels without computing the kernels."""
        return np.array(
            [self.base.diagonal(i, self.points.part(i)[1]) for i in range(self.n_kernels)]
        )
