"""Kernel weights that maximize the alignment of the weighted sum with the labels."""

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
from nearfar.kernels.alignment import compute_target_factor
from nearfar.kernels.kernel_set import DirectionKernels, Kernels, KernelSet, make_kernel_set
from nearfar.kernels.leading_directions import find_leading_directions
from nearfar.kernels.psd_cone import Cone
from nearfar.notices import warn
from nearfar.parameters import boolean, check_parameter, integer, none, one_of, real

AlignmentMode = Literal["nonneg", "independent", "signed", "free", "rank_one"]
# In the Gram matrix of the scaled kernels, eigenvalues below this fraction of the largest
# eigenvalue are treated as zero.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class AlignmentWeights:
    r"""Result of :func:`alignment_weights`: kernel weights, their objective value and its bound.

    Attributes
    ----------
    weights : ndarray of shape (n_kernels,) or None
        Weights of the kernels as they were passed, before any scaling. With
        ``kernel_family="rank_one"``, these are the weights of the directions. None with "free".
    value : float
        Frobenius product :math:`\langle K, T \rangle_F` of the learned kernel and the target, over
        the labeled points. The kernel K of all points is scaled to Frobenius norm 1.
    bound : float
        Upper bound on ``value`` for any weights of the family. With
        ``kernel_family="independent"``, the weights are not optimized, and the bound for "nonneg"
        is returned.
    gap : float
        Relative gap ``(bound - value) / value``.
    alignment : float
        ``value`` divided by the Frobenius norm of the target. If all points are labeled, this is
        the alignment of the learned kernel with the target.
    directions : ndarray of shape (n, n_directions) or None
        Eigenvectors whose outer products are weighted. None unless ``kernel_family="rank_one"``.
    """

    weights: Vector | None
    value: float
    bound: float
    alignment: float
    directions: Matrix | None = field(default=None, repr=False)
    _kernels: KernelSet | Matrix | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """Difference between ``bound`` and ``value``, divided by ``value``."""
        return (self.bound - self.value) / abs(self.value)

    @cached_property
    def kernel(self) -> Matrix:
        """Learned kernel of all points, computed on first use."""
        if isinstance(self._kernels, KernelSet):
            assert self.weights is not None
            return self._kernels.compute_weighted_sum(self.weights)
        return np.asarray(self._kernels)


def alignment_weights(
    kernels: Kernels | KernelSet | None,
    y: ArrayLike,
    *,
    kernel_family: AlignmentMode = "nonneg",
    centered: bool = True,
    n_directions: int | None = None,
    n_points: int | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
) -> AlignmentWeights:
    r"""Return kernel weights that maximize the alignment of the weighted sum with the labels.

    The weights μ solve

    .. math:: \max_\mu\; b^T\mu, \qquad \mu^T Q \mu \le 1, \qquad
        b_i = \langle K_i, T \rangle_F,\; Q_{ij} = \langle K_i, K_j \rangle_F,

    where T is the :func:`target_kernel` of the labeled points, which are the first points, and Q
    includes all points. Modes:

    * "nonneg": :math:`\mu \ge 0`, solved as one non-negative least squares problem.
    * "independent": without optimization, each kernel, scaled to norm 1, is weighted by its own
      alignment.
    * "signed": any μ for which the weighted sum is positive semi-definite.
    * "rank_one": the kernels are :math:`v_i v_i^T`, where :math:`v_i` are the leading eigenvectors
      of one kernel (centered if ``centered=True``). The weights are
      :math:`\mu_i \propto v_i^T T v_i`.
    * "free": any positive semi-definite matrix. The solution is T divided by its norm: it repeats
      the labels and is zero for unlabeled points.

    Try this function first: it needs one pass over the kernels, has no parameter C, and supports
    any number of classes.

    Parameters
    ----------
    kernels : sequence of (n, n) arrays, (m, n, n) array, function of an index, or None
        Base kernels. A function is called with the indices 0, 1, ... and returns one kernel per
        call. It must have a length, or raise IndexError after the last kernel. With m kernels, the
        function is called about m/3 times for each kernel. ``kernel_family="rank_one"`` needs
        exactly one kernel, and "free" needs None.
    y : array-like of shape (n_labeled,)
        Labels of the first points. The number of labels can be less than the number of points.
    kernel_family : {"nonneg", "independent", "signed", "free", "rank_one"}, default="nonneg"
        Set of weights or matrices over which to optimize, as listed above.
    centered : bool, default=True
        Center the kernels (over all points) and the target (over the labeled points) first. Without
        centering, even a constant kernel is aligned with the labels if the classes have unequal
        sizes.
    n_directions : int, default=None
        Number of eigenvectors with ``kernel_family="rank_one"``. None uses all eigenvectors whose
        eigenvalues are not rounding errors, but at most 100.
    n_points : int, default=None
        Total number of points with ``kernel_family="free"``. None uses the number of labeled
        points.
    tol : float, default=1e-6
        Relative gap at which the iteration stops. Used only with ``kernel_family="signed"``.
    max_iter : int, default=200
        Maximum number of rounds with ``kernel_family="signed"``. Each round computes an
        eigendecomposition.

    Returns
    -------
    AlignmentWeights
        Result with ``weights``, ``value``, ``bound``, ``gap``, ``alignment`` and ``kernel``.

    Notes
    -----
    Cost: :math:`O(m^2 n^2)` for Q, as matrix products over blocks of rows of all kernels. Entries
    are centered before they are multiplied. The faster formula with row sums loses all significant
    digits for wide kernels.

    References
    ----------
    .. [1] N. Cristianini et al., "On kernel-target alignment",
       NIPS 2001.
    .. [2] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012: "align" is ``kernel_family="independent"``, "alignf" is
       "nonneg".
    .. [3] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 6.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> from nearfar.kernels import alignment_weights
    >>> X, y = load_iris(return_X_y=True)
    >>> kernels = [X @ X.T, rbf_kernel(X, gamma=0.1), rbf_kernel(X, gamma=1.0)]
    >>> result = alignment_weights(kernels, y)
    >>> bool((result.weights >= 0).all())
    True
    >>> round(result.alignment, 3)
    0.789
    """
    owner = "alignment_weights"
    families = one_of("nonneg", "independent", "signed", "free", "rank_one")
    check_parameter(owner, "kernel_family", kernel_family, [families])
    check_parameter(owner, "centered", centered, [boolean])
    check_parameter(owner, "n_directions", n_directions, [none, integer(1)])
    check_parameter(owner, "n_points", n_points, [none, integer(1)])
    check_parameter(owner, "tol", tol, [real(0, open_low=True)])
    check_parameter(owner, "max_iter", max_iter, [integer(1)])
    for name, setting, required_family in (
        ("n_directions", n_directions, "rank_one"),
        ("n_points", n_points, "free"),
    ):
        if setting is not None and kernel_family != required_family:
            raise ValueError(
                f'{name} can be set only with kernel_family="{required_family}"; got '
                f"kernel_family={kernel_family!r}."
            )
    F = compute_target_factor(y, centered)
    target = float(np.sqrt(np.sum((F.T @ F) ** 2)))
    if kernel_family == "free":
        return _solve_free(kernels, F, target, n_points)
    if kernel_family == "rank_one":
        V = find_leading_directions(kernels, len(F), n_directions, centered=centered)[1]
        base: KernelSet = DirectionKernels(V)
        products = _Products(base.compute_forms(F).sum(axis=1), np.eye(V.shape[1]))
        check_aligned(products.b)
        x = np.maximum(products.b, 0) / np.linalg.norm(np.maximum(products.b, 0))
        bound = float(products.b @ x)
    else:
        V = None
        base = make_kernel_set(kernels, len(F))  # type: ignore[arg-type]
        products = _compute_unit_products(base, F, centered)
        check_aligned(products.b)
        x, bound = _solve_nonneg(products)
        if kernel_family == "independent":
            x = np.maximum(products.b, 0)
        elif kernel_family == "signed":
            x, bound = _solve_signed(base, products, x, tol, max_iter)
    x = x / np.sqrt(x @ products.Q @ x)
    value = float(products.b @ x)
    bound = max(bound, value)  # Rounding errors can put the bound below the value.
    return AlignmentWeights(x * products.scale, value, bound, value / target, V, base)


def check_aligned(b: Vector) -> None:
    """Raise if no kernel has a positive product with the target."""
    if not b.max() > 0:
        raise ValueError(
            "kernels: no kernel is aligned with y (the largest product with the target kernel is "
            f"{b.max():.3g}), so no weighted sum is aligned either. Use other kernels."
        )


class _Products(NamedTuple):
    """Frobenius products of the scaled kernels with the target (b) and with each other (Q)."""

    b: Vector
    Q: Matrix
    scale: float | Vector = 1.0


def _compute_unit_products(base: KernelSet, F: Matrix, centered: bool) -> _Products:
    """Scale each kernel to Frobenius norm 1, and return the products of the scaled kernels.

    A kernel that is constant up to rounding gets scale 0.
    """
    Q = base.compute_grams(centered)
    lengths = np.sqrt(np.diag(Q))
    # Centering a constant kernel leaves rounding errors of about 1e-16 times its trace.
    is_constant = lengths <= 1e-12 * base.traces
    scale = np.where(is_constant, 0.0, 1 / np.where(is_constant, 1.0, lengths))
    return _Products(base.compute_forms(F).sum(axis=1) * scale, Q * np.outer(scale, scale), scale)


def _solve_nonneg(products: _Products) -> tuple[Vector, float]:
    """Return the best nonnegative weights, and an upper bound on their objective."""
    R, root = _factorize(products.Q)
    goal = root @ products.b
    x = nnls(R, goal)[0]
    x = x / np.sqrt(x @ products.Q @ x)
    # For nonnegative weights x of norm 1 and every v >= b, b x <= v x <= |v|.
    v = np.maximum(products.b, (products.b @ x) * (products.Q @ x))
    return x, max(float(np.linalg.norm(root @ v)), float(products.b @ x))


def _solve_signed(
    base: KernelSet, products: _Products, start: Vector, tol: float, max_iter: int
) -> tuple[Vector, float]:
    """Return weights of any sign, and an upper bound on their objective.

    The weighted sum is positive semi-definite.

    This is a cutting plane method: each negative eigenvector gives a linear constraint.
    """
    assert isinstance(products.scale, np.ndarray)
    cone = Cone(base, products.scale)
    root = _factorize(products.Q)[1]
    free = root @ products.b
    center = np.full(len(start), 1 / len(start))
    best, value, bound = start, float(products.b @ start), np.inf
    cuts = np.empty((0, len(start)))
    for _ in range(max_iter):
        # Project the unconstrained optimum onto the cone that is defined by the cuts so far. In the
        # coordinates R x, the norm defined by Q is the Euclidean norm.
        A = cuts @ root.T
        z = free + A.T @ nnls(A.T, -free)[0] if len(A) else free
        bound = min(bound, float(np.linalg.norm(z)))
        point, new_cuts, _ = cone.move_into_cone(root.T @ z, center)
        point_value = float(products.b @ point / np.sqrt(point @ products.Q @ point))
        if point_value > value:
            best, value = point, point_value
        if bound - value <= tol * value or not len(new_cuts):
            break
        cuts = np.vstack([cuts, new_cuts])
    else:
        warn(
            f"alignment_weights stopped after {max_iter} rounds, at a gap of "
            f"{(bound - value) / value:.2g}, above tol={tol:g}. Increase max_iter or tol.",
            ConvergenceWarning,
        )
    return best, bound


def _factorize(Q: Matrix) -> tuple[Matrix, Matrix]:
    """Return a factor R of Q = R'R, and the transposed pseudo-inverse of R. Q can be singular."""
    if not np.isfinite(Q).all():
        raise ValueError(
            "kernels: the products of the kernel matrices overflow, because values of X are too "
            "large. Rescale X."
        )
    values, V = linalg.eigh(Q)
    is_significant = values > _ROUNDING * values[-1]
    roots = np.sqrt(values[is_significant])[:, None]
    return roots * V[:, is_significant].T, V[:, is_significant].T / roots


def _solve_free(
    kernels: object, F: Matrix, target: float, n_points: int | None
) -> AlignmentWeights:
    if kernels is not None:
        raise ValueError(
            'kernel_family="free" optimizes over all matrices, so kernels must be None.'
        )
    n = len(F) if n_points is None else n_points
    if n < len(F):
        raise ValueError(f"n_points must be at least the number of labels in y, {len(F)}; got {n}.")
    kernel = np.zeros((n, n))
    kernel[: len(F), : len(F)] = (F @ F.T) / target
    return AlignmentWeights(None, target, target, 1.0, _kernels=kernel)
