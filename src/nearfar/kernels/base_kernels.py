"""BaseKernels: kernels of rows, specified by name and computed in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.kernel_coordinates import compute_gamma, convert_to_gamma
from nearfar.blocks import split_rows
from nearfar.kernels.kernel_set import KernelSet
from nearfar.parameters import AllowedValues, integer, real
from nearfar.state import Sizes, State, check_that, flag, floats, strings, unsigned

#: Options of each kernel, with the allowed values of each option.
OPTIONS: dict[str, dict[str, AllowedValues]] = {
    "linear": {},
    "poly": {"gamma": real(0, open_low=True), "degree": integer(1), "coef0": real(0)},
    "rbf": {"gamma": real(0, open_low=True)},
    "laplacian": {"gamma": real(0, open_low=True)},
    "cosine": {},
}
# Values of gamma for the RBF kernels in the set "auto", as multiples of 1 / (median squared
# distance).
_RBF_SCALES = tuple(2.0**power for power in range(-3, 4))
# Maximum number of rows that are used to compute the median distance.
_MAX_MEDIAN_ROWS = 1000
# Number of floats per block, chosen so that a few blocks fit into the CPU cache.
_BLOCK_FLOATS = 1 << 16


class _KernelSpec(NamedTuple):
    """Specification of one kernel.

    If ``gamma`` is None, the kernel uses the default gamma multiplied by ``times``.
    """

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
        Entry (i, j) is 1 if kernel i uses feature j, and 0 if it does not.

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
        specs = parse_kernels(kernels, X.shape[1], feature_names)
        with np.errstate(over="ignore", invalid="ignore"):
            self.mean = X.mean(axis=0)
            default_gammas = _DefaultGammas(X - self.mean)
            self.gammas = np.array(
                [
                    spec.times * default_gammas.get_gamma(spec)
                    if spec.gamma is None
                    else spec.gamma
                    for spec in specs
                ]
            )
        self.kinds = np.array([spec.kind for spec in specs])
        self.degrees = np.array([float(spec.degree) for spec in specs])
        self.coefs = np.array([spec.coef0 for spec in specs])
        self.columns = np.zeros((len(specs), X.shape[1]), dtype=np.uint8)
        for i, spec in enumerate(specs):
            self.columns[i, list(spec.columns)] = 1
        self.unit_diagonal = unit_diagonal
        self.names = np.array([self._make_name(i, feature_names) for i in range(len(specs))])

    def __len__(self) -> int:
        return len(self.kinds)

    def _check_state(self, sizes: Sizes) -> None:
        check_that(set(self.kinds.tolist()) <= OPTIONS.keys(), "kinds must be names of kernels.")
        check_that((self.degrees == np.round(self.degrees)).all(), "degrees must be integers.")
        check_that(self.columns.any(axis=1).all(), "each kernel must use at least one column.")
        check_that(sizes["m"] > 0, "there must be at least one kernel.")

    def values(self, i: int, X: Matrix, Z: Matrix) -> Matrix:
        """Return the values of kernel i between the rows of X and Z."""
        return self.compute_weighted_sum(np.eye(len(self))[i], X, Z)

    def compute_weighted_sum(self, weights: Vector, X: Matrix, Z: Matrix) -> Matrix:
        """Return the weighted sum of the kernels between the rows of X and Z."""
        K = np.zeros((len(X), len(Z)))
        used = np.flatnonzero(weights).tolist()
        first, second = _Points(self, X), _Points(self, Z)
        for block in split_rows(len(X), 32 * len(Z), max_rows=max(1, _BLOCK_FLOATS // len(Z))):
            block_kernels = _BlockKernels(self, first, block, second)
            for i in used:
                K[block] += weights[i] * block_kernels.values(i)
        return K

    def build_kernel_set(self, rows: Matrix) -> KernelSet:
        """Return the kernel matrices of the rows as a KernelSet, which computes them in blocks."""
        return RowKernels(self, rows)

    def diagonal(self, i: int, squares: Vector) -> Vector:
        """Return k(x, x) of kernel i for each point x, given the squared norms of the points."""
        if self.unit_diagonal:
            return (self._compute_diagonal(i, squares) > 0).astype(float)
        return self._compute_diagonal(i, squares)

    def _compute_diagonal(self, i: int, squares: Vector) -> Vector:
        if self.kinds[i] == "linear":
            return squares
        if self.kinds[i] == "poly":
            with np.errstate(over="ignore"):
                powers = np.asarray((self.gammas[i] * squares + self.coefs[i]) ** self.degrees[i])
            if not np.isfinite(powers).all():
                raise ValueError(
                    f"kernels[{i}] ({self.names[i]}) overflows, because its columns of X are too "
                    "large. Rescale X."
                )
            return powers
        if self.kinds[i] == "cosine":
            return (squares > 0).astype(float)
        return np.ones_like(squares)

    def _make_name(self, i: int, feature_names: Sequence[str] | None) -> str:
        kind = str(self.kinds[i])
        name = f"poly {self.degrees[i]:.0f}" if kind == "poly" else kind
        if kind in ("rbf", "laplacian"):
            name += f" {self.gammas[i]:.3g}"
        columns = np.flatnonzero(self.columns[i]).tolist()
        if len(columns) == self.columns.shape[1] and (len(columns) > 1 or feature_names is None):
            return name
        if len(columns) > 3:
            return f"{name} of {len(columns)} features"
        column_names = [
            f"x{k}" if feature_names is None else str(feature_names[k]) for k in columns
        ]
        return f"{name} of {', '.join(column_names)}"


def parse_kernels(
    kernels: Any, n_features: int, feature_names: Sequence[str] | None = None
) -> list[_KernelSpec]:
    """Return the specifications of the kernels.

    Raises a ValueError with the index of the kernel if a kernel is not valid.
    """
    all_columns = tuple(range(n_features))
    if isinstance(kernels, str) and kernels == "auto":
        linear = [_KernelSpec("linear", all_columns, None, 1.0, 1, 0.0)]
        polys = [_KernelSpec("poly", all_columns, None, 1.0, degree, 1.0) for degree in (2, 3)]
        return (
            linear
            + polys
            + [_KernelSpec("rbf", all_columns, None, times, 1, 0.0) for times in _RBF_SCALES]
        )
    if isinstance(kernels, str) and kernels == "features":
        return [_KernelSpec("rbf", (k,), None, 1.0, 1, 0.0) for k in all_columns]
    if isinstance(kernels, str) and kernels in OPTIONS:
        kernels = [kernels]
    if not isinstance(kernels, list | tuple) or not kernels:
        raise ValueError(
            'kernels must be "auto", "features" or a list of kernels with names from '
            f"{', '.join(OPTIONS)}; got {_describe(kernels)}."
        )
    return [_parse(item, i, n_features, feature_names) for i, item in enumerate(kernels)]


def _parse(item: Any, i: int, n_features: int, feature_names: Sequence[str] | None) -> _KernelSpec:
    name, options = (item, {}) if isinstance(item, str) else _split_pair(item, i)
    if name not in OPTIONS:
        raise ValueError(
            f"kernels[{i}]: unknown kernel {_describe(name)}; expected one of {', '.join(OPTIONS)}."
        )
    allowed_options = OPTIONS[name]
    for key, value in options.items():
        if key == "columns":
            continue
        if key not in allowed_options:
            raise ValueError(
                f"kernels[{i}]: unknown option {_describe(key)} of {name}; expected one of "
                f"{', '.join([*allowed_options, 'columns'])}."
            )
        if not allowed_options[key].accepts(value):
            raise ValueError(
                f"kernels[{i}]: {key} must be {allowed_options[key].description}; got "
                f"{_describe(value)}."
            )
    columns = _parse_columns(options.get("columns"), i, n_features, feature_names)
    gamma = float(options["gamma"]) if "gamma" in options else None
    degree, coef0 = int(options.get("degree", 3)), float(options.get("coef0", 1.0))
    return _KernelSpec(name, columns, gamma, 1.0, degree, coef0)


def _split_pair(item: Any, i: int) -> tuple[Any, Mapping[str, Any]]:
    if (
        isinstance(item, list | tuple)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], Mapping)
    ):
        return item[0], item[1]
    matrices = " For matrices, use nearfar.kernels.margin_weights or alignment_weights."
    raise ValueError(
        f"kernels[{i}] must be the name of a kernel, or a pair of a name and a dict of options; "
        f"got {_describe(item)}.{matrices if isinstance(item, np.ndarray) else ''}"
    )


def _parse_columns(
    columns: Any, i: int, n_features: int, feature_names: Sequence[str] | None
) -> tuple[int, ...]:
    if columns is None:
        return tuple(range(n_features))
    if isinstance(columns, str | int | np.integer):
        columns = [columns]
    requested = list(columns) if isinstance(columns, Sequence | np.ndarray | range) else []
    positions: dict[str, int] = {}
    if feature_names is not None:
        positions = {str(name): k for k, name in enumerate(feature_names)}
    indices = []
    for column in requested:
        if isinstance(column, str):
            if column not in positions:
                hint = (
                    "X has no feature names"
                    if not positions
                    else f"X has {', '.join(list(positions)[:5])}"
                )
                raise ValueError(
                    f"kernels[{i}]: unknown column {column!r}; {hint}"
                    f"{', ...' if len(positions) > 5 else ''}."
                )
            indices.append(positions[column])
        elif (
            isinstance(column, int | np.integer)
            and not isinstance(column, bool)
            and 0 <= column < n_features
        ):
            indices.append(int(column))
        else:
            raise ValueError(
                f"kernels[{i}]: columns must be names, or indices from 0 to {n_features - 1}; got "
                f"{_describe(column)}."
            )
    if not indices:
        raise ValueError(
            f"kernels[{i}]: columns must list at least one column; got {_describe(columns)}."
        )
    return tuple(sorted(set(indices)))


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _DefaultGammas:
    """Default values of gamma, computed once per kernel type and set of columns."""

    def __init__(self, rows: Matrix) -> None:
        self.rows = rows
        self.sample = rows[
            np.linspace(0, len(rows) - 1, min(len(rows), _MAX_MEDIAN_ROWS)).astype(np.intp)
        ]
        self.cache: dict[tuple[str, tuple[int, ...]], float] = {}

    def get_gamma(self, spec: _KernelSpec) -> float:
        if (spec.kind, spec.columns) not in self.cache:
            self.cache[spec.kind, spec.columns] = self._compute_gamma(spec.kind, list(spec.columns))
        return self.cache[spec.kind, spec.columns]

    def _compute_gamma(self, kind: str, columns: list[int]) -> float:
        if kind != "rbf":
            return compute_gamma(self.rows[:, columns], kind)
        squares = cdist(self.sample[:, columns], self.sample[:, columns], "sqeuclidean")
        nonzero = squares[squares > 0]
        return convert_to_gamma(float(np.median(nonzero)) if nonzero.size else 0.0)


class _Points:
    """Centered rows and, for each kernel, their squared norms in the columns of the kernel."""

    def __init__(self, base: BaseKernels, rows: Matrix) -> None:
        self.base, self.rows = base, rows - base.mean
        self._selections: dict[bytes, tuple[Matrix, Vector]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def select_columns(self, i: int) -> tuple[Matrix, Vector]:
        """Return the rows, restricted to the columns of kernel i, and their squared norms."""
        columns = self.base.columns[i]
        key = columns.tobytes()
        if key not in self._selections:
            rows = self.rows if columns.all() else np.ascontiguousarray(self.rows[:, columns > 0])
            self._selections[key] = rows, np.einsum("ij,ij->i", rows, rows)
        return self._selections[key]


class _BlockKernels:
    """Kernel values between a block of points and other points.

    Kernels share intermediate results, such as squared distances.
    """

    def __init__(
        self,
        base: BaseKernels,
        points: _Points,
        block: slice,
        second_points: _Points,
        distances: Mapping[bytes, Matrix] | None = None,
    ) -> None:
        self.base, self.points, self.block, self.second_points = base, points, block, second_points
        self._distances = {key: D[block] for key, D in (distances or {}).items()}
        self._products: dict[bytes, Matrix] = {}
        self._last: tuple[bytes, float, Matrix] | None = None

    def values(self, i: int) -> Matrix:
        """Return the values of kernel i. The array must not be modified."""
        base, kind = self.base, self.base.kinds[i]
        rows, squares = (item[self.block] for item in self.points.select_columns(i))
        second_rows, second_squares = self.second_points.select_columns(i)
        if kind == "rbf":
            return self._compute_rbf(i)
        if kind == "laplacian":
            return np.asarray(np.exp(-base.gammas[i] * cdist(rows, second_rows, "cityblock")))
        K = self._compute_product(i)
        if kind == "poly":
            linear_part = base.gammas[i] * K + base.coefs[i]
            K = linear_part.copy()
            for _ in range(int(base.degrees[i]) - 1):
                K *= linear_part
        if kind == "cosine" or base.unit_diagonal:
            # "cosine" is the linear kernel scaled to unit diagonal.
            compute_diagonal = (
                (lambda s: s) if kind == "cosine" else (lambda s: base._compute_diagonal(i, s))
            )
            K = (
                K
                * _compute_inverse_root(compute_diagonal(squares))[:, None]
                * _compute_inverse_root(compute_diagonal(second_squares))
            )
        return K

    def _compute_rbf(self, i: int) -> Matrix:
        key, gamma = self.base.columns[i].tobytes(), float(self.base.gammas[i])
        if self._last is not None and self._last[0] == key and gamma == 2 * self._last[1]:
            K = np.square(self._last[2])  # This is ten times faster than computing exp.
        else:
            K = -gamma * self.compute_squared(i)
            np.exp(K, out=K)
        self._last = key, gamma, K
        return K

    def compute_squared(self, i: int) -> Matrix:
        """Return the squared distances, computed from the columns of kernel i."""
        key = self.base.columns[i].tobytes()
        if key not in self._distances:
            squares, second_squares = (
                self.points.select_columns(i)[1][self.block],
                self.second_points.select_columns(i)[1],
            )
            D = -2 * self._compute_product(i)
            D += second_squares
            D += squares[:, None]
            self._distances[key] = np.maximum(D, 0, out=D)
        return self._distances[key]

    def _compute_product(self, i: int) -> Matrix:
        key = self.base.columns[i].tobytes()
        if key not in self._products:
            self._products[key] = (
                self.points.select_columns(i)[0][self.block]
                @ self.second_points.select_columns(i)[0].T
            )
        return self._products[key]


def _compute_inverse_root(values: Vector) -> Vector:
    positive = values > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, values, 1.0)), 0.0)


class RowKernels(KernelSet):
    """Kernel matrices of the training rows, one per base kernel.

    If several RBF kernels use the same columns, one matrix is stored: the squared distances in the
    columns that most RBF kernels use.
    """

    def __init__(self, base: BaseKernels, rows: Matrix) -> None:
        self.base, self.points = base, _Points(base, rows)
        self.n_kernels, self.n_points = len(base), len(rows)
        self._cached_block: tuple[slice, _BlockKernels] | None = None
        self._distances: dict[bytes, Matrix] = {}
        rbf_columns = [base.columns[i].tobytes() for i in np.flatnonzero(base.kinds == "rbf")]
        if rbf_columns and rbf_columns.count(shared := max(rbf_columns, key=rbf_columns.count)) > 1:
            rbf_index: Indices = np.flatnonzero(base.kinds == "rbf")[[rbf_columns.index(shared)]]
            D = np.empty((len(rows), len(rows)))
            for block in self.blocks():
                D[block] = _BlockKernels(base, self.points, block, self.points).compute_squared(
                    int(rbf_index[0])
                )
            self._distances[shared] = D
        for i, trace in enumerate(self.traces):
            if not (np.isfinite(trace) and trace > 0):
                raise ValueError(
                    f"kernels[{i}] ({base.names[i]}) has trace {trace:g}: its columns "
                    + ("of X do not vary." if trace == 0 else "of X are too large. Rescale X.")
                )

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        if self._cached_block is None or self._cached_block[0] != block:
            block_kernels = _BlockKernels(
                self.base, self.points, block, self.points, self._distances
            )
            self._cached_block = block, block_kernels
        return self._cached_block[1].values(i)

    def diagonals(self) -> Matrix:
        """Return the diagonals of the kernels without computing other entries."""
        return np.array(
            [self.base.diagonal(i, self.points.select_columns(i)[1]) for i in range(self.n_kernels)]
        )
