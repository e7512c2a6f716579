"""Weights of kernels by the alignment of their sum with the labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.alignment import target_factor
from nearfar.kernels.kernel_set import DirectionKernels, Kernels, KernelSet, kernel_set
from nearfar.kernels.leading_directions import leading_directions
from nearfar.kernels.psd_cone import Cone
from nearfar.notices import warn
from nearfar.parameters import boolean, check_parameter, integer, none, one_of, real

AlignmentMode = Literal["nonneg", "independent", "signed", "free", "rank_one"]
# Eigenvalues of the products of unit kernels below this are rounding.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class AlignmentWeights:
    r"""Weights whose sum of kernels has norm 1, and its product with the target.

    Attributes
    ----------
    weights : ndarray of shape (n_kernels,) or None
        Of the kernels as given, or of the directions; None for mode "free".
    value : float
        The product :math:`\langle K, T \rangle_F` with the target on the labelled points, for K of
        Frobenius norm 1 over all points.
    bound : float
        No weights of the mode have more; for "independent", which maximises nothing, those of
        "nonneg".
    gap : float
        ``(bound - value) / value``.
    alignment : float
        ``value`` over the norm of the target: with all points labelled, the alignment.
    directions : ndarray of shape (n, n_directions) or None
        For mode "rank_one", the eigenvectors of which the kernels are made.
    """

    weights: Vector | None
    value: float
    bound: float
    alignment: float
    directions: Matrix | None = field(default=None, repr=False)
    _kernels: KernelSet | Matrix | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """How far the value may be from the largest one, relative to it."""
        return (self.bound - self.value) / abs(self.value)

    @cached_property
    def kernel(self) -> Matrix:
        """The learned kernel, of all points; made when first asked for."""
        if isinstance(self._kernels, KernelSet):
            assert self.weights is not None
            return self._kernels.weighted(self.weights)
        return np.asarray(self._kernels)


def alignment_weights(
    kernels: Kernels | KernelSet | None,
    y: ArrayLike,
    *,
    mode: AlignmentMode = "nonneg",
    centered: bool = True,
    n_directions: int | None = None,
    n_points: int | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
) -> AlignmentWeights:
    r"""The combination of kernels most aligned with the labels,

    .. math:: \max_\mu\; b^T\mu, \qquad \mu^T Q \mu \le 1, \qquad
        b_i = \langle K_i, T \rangle_F,\; Q_{ij} = \langle K_i, K_j \rangle_F,

    with :func:`target_kernel` T on the labelled points, which are the first ones, and Q over all
    points. Modes:

    * "nonneg": :math:`\mu \ge 0`, by one non-negative least squares problem.
    * "independent": no program; each kernel, brought to norm 1, weighs as much as it is aligned.
    * "signed": any μ whose sum is positive semi-definite.
    * "rank_one": the kernels are :math:`v_i v_i^T`, of the leading eigenvectors of one kernel
      (centred, if ``centered``); :math:`\mu_i \propto v_i^T T v_i`.
    * "free": any positive semi-definite matrix, which is T over its norm: it repeats the labels
      and is zero for points without one.

    Use it first: it needs one pass over the kernels, no C, and takes any number of classes.

    Parameters
    ----------
    kernels : sequence of (n, n) arrays, (m, n, n) array, function of an index, or None
        The base kernels. A function is called with 0, 1, ... until it raises IndexError, or up to
        its length if it has one; it is called for each some m/3 times. "rank_one" takes one
        kernel, "free" none.
    y : array-like of shape (n_labelled,)
        Labels of the first points, all or fewer.
    mode : {"nonneg", "independent", "signed", "free", "rank_one"}, default="nonneg"
        As above.
    centered : bool, default=True
        Whether kernels and target are centred first (the kernels over all points, the target over
        the labelled ones). Otherwise a constant kernel is aligned with classes of unequal size.
    n_directions : int, default=None
        For "rank_one", how many eigenvectors; by default all that are not rounding, at most 100.
    n_points : int, default=None
        For "free", the number of all points; by default that of the labelled ones.
    tol : float, default=1e-6
        For "signed", the gap at which to stop.
    max_iter : int, default=200
        For "signed", most rounds, of an eigendecomposition each.

    Returns
    -------
    AlignmentWeights
        With ``weights``, ``value``, ``bound``, ``gap``, ``alignment``, ``kernel``.

    Notes
    -----
    Cost: :math:`O(m^2 n^2)` for Q, in one product of blocks of rows of all kernels. Entries are
    centred before they are multiplied; the shorter way by sums of rows loses its digits on wide
    kernels.

    References
    ----------
    .. [1] N. Cristianini et al., "On kernel-target alignment",
       NIPS 2001.
    .. [2] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012: "align" is mode "independent", "alignf" is "nonneg".
    .. [3] L. Yang, "Distance Metric Learning: A Comprehensive Survey", 2006,
       section 6.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> from nearfar.kernels import alignment_weights
    >>> X, y = load_iris(return_X_y=True)
    >>> kernels = [X @ X.T, rbf_kernel(X, gamma=0.1), rbf_kernel(X, gamma=1.0)]
    >>> found = alignment_weights(kernels, y)
    >>> bool((found.weights >= 0).all())
    True
    >>> round(found.alignment, 3)
    0.789
    """
    owner = "alignment_weights"
    modes = one_of("nonneg", "independent", "signed", "free", "rank_one")
    check_parameter(owner, "mode", mode, [modes])
    check_parameter(owner, "centered", centered, [boolean])
    check_parameter(owner, "n_directions", n_directions, [none, integer(1)])
    check_parameter(owner, "n_points", n_points, [none, integer(1)])
    check_parameter(owner, "tol", tol, [real(0, open_low=True)])
    check_parameter(owner, "max_iter", max_iter, [integer(1)])
    for name, given, wanted in (
        ("n_directions", n_directions, "rank_one"),
        ("n_points", n_points, "free"),
    ):
        if given is not None and mode != wanted:
            raise ValueError(f'{name} is for mode="{wanted}" alone; mode is {mode!r}.')
    F = target_factor(y, centered)
    target = float(np.sqrt(np.sum((F.T @ F) ** 2)))
    if mode == "free":
        return _free(kernels, F, target, n_points)
    if mode == "rank_one":
        V = leading_directions(kernels, len(F), n_directions, centered=centered)[1]
        base: KernelSet = DirectionKernels(V)
        products = _Products(base.forms(F).sum(axis=1), np.eye(V.shape[1]))
        refuse_unaligned(products.b)
        x = np.maximum(products.b, 0) / np.linalg.norm(np.maximum(products.b, 0))
        bound = float(products.b @ x)
    else:
        V = None
        base = kernel_set(kernels, len(F))  # type: ignore[arg-type]
        products = _unit_products(base, F, centered)
        refuse_unaligned(products.b)
        x, bound = _nonneg(products)
        if mode == "independent":
            x = np.maximum(products.b, 0)
        elif mode == "signed":
            x, bound = _signed(base, products, x, tol, max_iter)
    x = x / np.sqrt(x @ products.Q @ x)
    value = float(products.b @ x)
    bound = max(bound, value)  # rounding
    return AlignmentWeights(x * products.scale, value, bound, value / target, V, base)


def refuse_unaligned(b: Vector) -> None:
    """Raise if no kernel has anything of the target."""
    if not b.max() > 0:
        raise ValueError(
            "kernels: none is aligned with y (the largest product with the target kernel is "
            f"{b.max():.3g}); no weights would make them so."
        )


class _Products(NamedTuple):
    """Of kernels times their scale: with the target, and with one another."""

    b: Vector
    Q: Matrix
    scale: float | Vector = 1.0


def _unit_products(base: KernelSet, F: Matrix, centered: bool) -> _Products:
    """Products of the kernels at norm 1; a kernel of which centring leaves nothing is at 0."""
    Q = base.grams(centered)
    lengths = np.sqrt(np.diag(Q))
    # Centring a constant kernel leaves rounding: some 1e-16 of its trace.
    nothing = lengths <= 1e-12 * base.traces
    scale = np.where(nothing, 0.0, 1 / np.where(nothing, 1.0, lengths))
    return _Products(base.forms(F).sum(axis=1) * scale, Q * np.outer(scale, scale), scale)


def _nonneg(products: _Products) -> tuple[Vector, float]:
    """Weights that are not negative, and a bound that they prove to be the best."""
    R, root = _factor(products.Q)
    goal = root @ products.b
    x = nnls(R, goal)[0]
    x = x / np.sqrt(x @ products.Q @ x)
    # For every v >= b and weights x of norm 1, b x <= v x <= the norm of v.
    v = np.maximum(products.b, (products.b @ x) * (products.Q @ x))
    return x, max(float(np.linalg.norm(root @ v)), float(products.b @ x))


def _signed(
    base: KernelSet, products: _Products, start: Vector, tol: float, max_iter: int
) -> tuple[Vector, float]:
    """Weights of any sign in the cone, by cuts that eigenvectors give."""
    assert isinstance(products.scale, np.ndarray)
    cone = Cone(base, products.scale)
    root = _factor(products.Q)[1]
    free = root @ products.b
    center = np.full(len(start), 1 / len(start))
    best, value, bound = start, float(products.b @ start), np.inf
    cuts = np.empty((0, len(start)))
    for _ in range(max_iter):
        # The nearest point, of the cone that the cuts leave, to the best without any: in the
        # coordinates R x, where products with Q are plain.
        A = cuts @ root.T
        z = free + A.T @ nnls(A.T, -free)[0] if len(A) else free
        bound = min(bound, float(np.linalg.norm(z)))
        point, new, _ = cone.drawn_back(root.T @ z, center)
        reached = float(products.b @ point / np.sqrt(point @ products.Q @ point))
        if reached > value:
            best, value = point, reached
        if bound - value <= tol * value or not len(new):
            break
        cuts = np.vstack([cuts, new])
    else:
        warn(
            f"alignment_weights stopped after {max_iter} rounds, at a gap of "
            f"{(bound - value) / value:.2g} and not {tol:g}; raise max_iter, or tol to be content "
            "with less.",
            ConvergenceWarning,
        )
    return best, bound


def _factor(Q: Matrix) -> tuple[Matrix, Matrix]:
    """R and its pseudo-inverse's transpose, with Q = R'R; kernels may depend on one another."""
    values, V = linalg.eigh(Q)
    good = values > _ROUNDING * values[-1]
    roots = np.sqrt(values[good])[:, None]
    return roots * V[:, good].T, V[:, good].T / roots


def _free(kernels: object, F: Matrix, target: float, n_points: int | None) -> AlignmentWeights:
    if kernels is not None:
        raise ValueError('mode="free" chooses among all matrices; kernels must be None.')
    n = len(F) if n_points is None else n_points
    if n < len(F):
        raise ValueError(f"n_points must be at least the {len(F)} labels of y; got {n}.")
    kernel = np.zeros((n, n))
    kernel[: len(F), : len(F)] = (F @ F.T) / target
    return AlignmentWeights(None, target, target, 1.0, _kernels=kernel)
