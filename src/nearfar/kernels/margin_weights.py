"""Kernel weights that maximize the margin of the weighted sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import DirectionKernels, Kernels, KernelSet, make_kernel_set
from nearfar.kernels.leading_directions import find_leading_directions
from nearfar.kernels.margin_program import MarginProgram
from nearfar.kernels.margin_value import (
    check_margin_parameters,
    compute_primal_value,
    encode_one_vs_rest,
)
from nearfar.kernels.signed_program import SignedProgram
from nearfar.notices import warn
from nearfar.parameters import check_parameter, integer, none, one_of, real
from nearfar.solvers.level_method import StepReport, run_level_method
from nearfar.solvers.norm_ball import run_norm_ball_method

MarginMode = Literal["nonneg", "signed", "free", "rank_one"]


@dataclass(frozen=True)
class MarginWeights:
    r"""Result of :func:`margin_weights`: kernel weights, their objective value and its bound.

    Attributes
    ----------
    weights : ndarray of shape (n_kernels,) or None
        Weights of the kernels as they were passed, before any scaling. With
        ``kernel_family="rank_one"``, these are the weights of the directions. None with "free".
    value : float
        Primal objective at ``weights``, which is an upper bound on the margin functional.
    bound : float
        Lower bound on the margin functional for any choice of weights.
    gap : float
        Relative gap ``(value - bound) / value``.
    alpha : ndarray of shape (n_labeled,), or (n_classes, n_labeled) for more than two classes
        Feasible dual variables that prove ``bound``. With more than two classes, row k
        belongs to the SVM of class k against the rest.
    intercept : float, or ndarray of shape (n_classes,)
        Intercepts of the SVMs with the kernel ``kernel`` and the dual variables ``alpha``.
    history : list of dict
        Dicts with ``value``, ``bound``, ``gap`` and ``seconds``, one per round of support vector
        machines.
    directions : ndarray of shape (n, n_directions) or None
        Eigenvectors whose outer products are weighted. None unless ``kernel_family="rank_one"``.
    psd_cuts : ndarray of shape (n, k) or None
        With ``kernel_family="signed"``, vectors u that complete the proof of ``bound``. With
        :math:`S = \sum u u^T`, :math:`\alpha^T G(K_i)\alpha + \langle S, K_i \rangle` is nearly the
        same multiple of the trace for all kernels.
    """

    weights: Vector | None
    value: float
    bound: float
    alpha: Matrix
    intercept: Any
    history: list[dict[str, Any]] = field(repr=False)
    directions: Matrix | None = field(default=None, repr=False)
    psd_cuts: Matrix | None = field(default=None, repr=False)
    _kernels: KernelSet | Matrix | None = field(default=None, repr=False)
    #: KeyboardInterrupt that stopped the rounds, or None.
    _interrupt: KeyboardInterrupt | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """Difference between ``value`` and ``bound``, divided by ``value``."""
        return (self.value - self.bound) / abs(self.value)

    @cached_property
    def kernel(self) -> Matrix:
        """Learned kernel of all points, computed on first use."""
        if isinstance(self._kernels, KernelSet):
            assert self.weights is not None
            return self._kernels.compute_weighted_sum(self.weights)
        return np.asarray(self._kernels)


def margin_weights(
    kernels: Kernels | KernelSet | None,
    y: ArrayLike,
    *,
    C: float | None = 1.0,
    dual_ridge: float = 0.0,
    trace: float | None = None,
    kernel_family: MarginMode = "nonneg",
    norm: float = 1.0,
    n_directions: int | None = None,
    n_points: int | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    report: StepReport | None = None,
) -> MarginWeights:
    r"""Return kernel weights that maximize the margin of an SVM on the weighted sum of kernels.

    The weights μ solve

    .. math:: \min_\mu\; w_{C,\tau}\Bigl(\sum_i \mu_i K_i\Bigr), \qquad
        \sum_i \mu_i\, \mathrm{tr}\, K_i = c,

    where w is the functional of :func:`margin_value` on the labeled points, which are the first
    points. The trace includes all points. Modes:

    * "nonneg": :math:`\mu \ge 0`.
    * "signed": any μ for which the weighted sum is positive semi-definite. The weights can be large
      and cancel each other, and each step computes an eigendecomposition.
    * "rank_one": the kernels are :math:`v_i v_i^T`, where :math:`v_i` are the leading eigenvectors
      of one kernel.
    * "free": any positive semi-definite matrix. It learns nothing, see Notes.

    Use it to select kernels or views from the training rows alone. Narrow kernels separate any
    rows, so evaluate the result on other rows, and compare it with :func:`alignment_weights`.

    Parameters
    ----------
    kernels : sequence of (n, n) arrays, (m, n, n) array, function of an index, or None
        Base kernels. A function is called with the indices 0, 1, ... and returns one kernel per
        call. It must have a length, or raise IndexError after the last kernel.
        ``kernel_family="rank_one"`` needs exactly one kernel, and "free" needs None.
    y : array-like of shape (n_labeled,)
        Labels of the first points. The number of labels can be less than the number of points. With
        more than two classes, the margin functionals of all one-vs-rest problems are added.
    C : float, default=1.0
        Upper limit for the dual variables. ``C=None`` with ``dual_ridge=0`` requires a hard margin.
    dual_ridge : float, default=0.0
        Ridge τ added to the kernel in the SVM dual. With ``C=None`` it gives the squared hinge
        loss, :math:`\min |w|^2 + \tfrac1\tau\sum\xi^2`.
    trace : float, default=None
        Trace c of the learned kernel if ``norm`` is 1. None uses the number of points.
    kernel_family : {"nonneg", "signed", "free", "rank_one"}, default="nonneg"
        Set of weights or matrices over which to optimize, as listed above.
    norm : float, default=1.0
        Norm p of the constraint. With p > 1, which needs ``kernel_family="nonneg"``, the constraint
        is :math:`\|(\mu_i \mathrm{tr} K_i)_i\|_p = c`. No weight is then exactly 0, and with a
        large p the products :math:`\mu_i \mathrm{tr} K_i` are nearly equal.
    n_directions : int, default=None
        Number of eigenvectors with ``kernel_family="rank_one"``. None uses all eigenvectors whose
        eigenvalues are not rounding errors, but at most 100.
    n_points : int, default=None
        Total number of points with ``kernel_family="free"``. None uses the number of labeled
        points.
    tol : float, default=1e-3
        Relative gap at which the iteration stops.
    max_iter : int, default=200
        Maximum number of rounds of support vector machines.
    report : callable, default=None
        Function that is called with each entry of ``history``. If the function raises
        KeyboardInterrupt, the rounds stop.

    Returns
    -------
    MarginWeights
        Result with ``weights``, ``value``, ``bound``, ``gap``, ``alpha``, ``intercept`` and
        ``kernel``.

    Notes
    -----
    For fixed dual variables α, the functional is affine in μ, so each SVM that is solved gives a
    linear lower bound of it. The minimum over μ of the largest of these is a lower bound on the
    optimum. A convex combination of the α proves it on its own,

    .. math:: 2 e^T\alpha - \tau|\alpha|^2 - c \max_i \alpha^T G(K_i)\alpha / \mathrm{tr} K_i,

    with the dual norm instead of the maximum for p > 1. The weights are the multipliers of this
    program, not its variables. The value is the primal objective of the SVM, so it does not depend
    on the tolerance of the SVM solver. Five to ten rounds reach a gap of 1e-3. Cost per round: one
    weighted sum of the kernels, one SVM, and one product of each kernel with a vector. Memory: the
    weighted sum, and the memory of the SVM.

    ``kernel_family="free"`` needs no solver. For a fixed α, the minimum of :math:`-\alpha^T G(K)
    \alpha` over :math:`K \succeq 0, \mathrm{tr} K = c` is :math:`-c|\alpha|^2`, at :math:`K =
    c\,zz^T/|z|^2` with :math:`z = y\alpha`. It remains to solve :math:`\max 2e^T\alpha - (\tau +
    c)|\alpha|^2` over the box and :math:`y^T\alpha = 0`. By symmetry, α is constant within each
    class. With :math:`S = n_+\alpha_+ = n_-\alpha_-`, the objective is the parabola :math:`4S -
    (\tau + c) S^2 (1/n_+ + 1/n_-)`, for :math:`S \le C\min(n_+, n_-)`. **This family learns
    nothing**: K repeats the labels and is zero for all unlabeled points. Its value is a lower bound
    for all other families.

    References
    ----------
    .. [1] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004, section 4.
    .. [2] M. Kloft et al., "lp-norm multiple kernel learning", JMLR 12,
       2011.
    .. [3] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 5.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> from nearfar.kernels import margin_weights
    >>> X, y = load_iris(return_X_y=True)
    >>> kernels = [X @ X.T, rbf_kernel(X, gamma=0.1), rbf_kernel(X, gamma=1.0)]
    >>> result = margin_weights(kernels, y, C=10.0)
    >>> result.gap <= 1e-3
    True
    >>> float(round(result.weights @ [np.trace(K) for K in kernels], 6))
    150.0
    """
    _check_arguments(
        C, dual_ridge, trace, kernel_family, norm, n_directions, n_points, tol, max_iter
    )
    signs = encode_one_vs_rest(y)
    if kernel_family == "free":
        return _solve_free(kernels, signs, C, dual_ridge, trace, n_points)
    directions = None
    if kernel_family == "rank_one":
        directions = find_leading_directions(kernels, signs.shape[1], n_directions)[1]
        base: KernelSet = DirectionKernels(directions)
    else:
        base = make_kernel_set(kernels, signs.shape[1])  # type: ignore[arg-type]
    total = float(base.n_points if trace is None else trace)
    program = (SignedProgram if kernel_family == "signed" else MarginProgram)(
        base, signs, C, dual_ridge, total, tol, norm
    )
    if norm > 1:
        solution = run_norm_ball_method(
            program, norm, base.n_kernels, tol=tol, max_iter=max_iter, report=report
        )
    else:
        solution = run_level_method(
            program.evaluate,
            program.certify,
            np.full(base.n_kernels, 1 / base.n_kernels),
            limits=program.limits,
            tol=tol,
            max_iter=max_iter,
            report=report,
        )
    weights = program.scale * solution.point
    result = MarginWeights(
        weights,
        solution.value,
        program.bound,
        np.empty(0),
        None,
        solution.history,
        directions,
        program.compute_psd_cuts(),
        base,
        solution.interrupt,
    )
    if result.gap > tol and solution.interrupt is None:
        warn(
            f"margin_weights stopped after {len(solution.history)} rounds, at a gap of "
            f"{result.gap:.2g}, above tol={tol:g}. Increase max_iter or tol.",
            ConvergenceWarning,
        )
    return _add_dual_variables(result, program.compute_alpha(), signs, C, dual_ridge)


def _add_dual_variables(
    result: MarginWeights, alpha: Matrix, signs: Matrix, C: float | None, dual_ridge: float
) -> MarginWeights:
    """Return the result with the dual variables that prove the bound, and their intercepts."""
    from dataclasses import replace

    n = signs.shape[1]
    kernel = result.kernel
    values = [
        compute_primal_value(f, float(f @ (y * a)), y, C, dual_ridge)
        for a, y, f in zip(alpha, signs, (kernel[:n, :n] @ (signs * alpha).T).T, strict=True)
    ]
    intercepts = np.array([b for _, b in values])
    is_binary = len(signs) == 1
    complete = replace(
        result,
        alpha=alpha[0] if is_binary else alpha,
        intercept=float(intercepts[0]) if is_binary else intercepts,
        # At the optimum, rounding errors can put the bound above the value.
        value=max(min(result.value, float(sum(value for value, _ in values))), result.bound),
    )
    complete.__dict__["kernel"] = kernel
    return complete


def _solve_free(
    kernels: object,
    signs: Matrix,
    C: float | None,
    dual_ridge: float,
    trace: float | None,
    n_points: int | None,
) -> MarginWeights:
    """Return the closed-form solution over all positive semi-definite matrices."""
    if kernels is not None:
        raise ValueError(
            'kernel_family="free" optimizes over all matrices, so kernels must be None.'
        )
    if len(signs) > 1:
        raise ValueError(
            f'kernel_family="free" needs two classes; y has {len(signs)}. Use ideal_kernel(y) '
            "instead, which also depends only on the labels."
        )
    y = signs[0]
    n = len(y) if n_points is None else n_points
    if n < len(y):
        raise ValueError(f"n_points must be at least the number of labels in y, {len(y)}; got {n}.")
    c = float(n if trace is None else trace)
    n_positive, n_negative = int((y > 0).sum()), int((y < 0).sum())
    S = 2 / ((dual_ridge + c) * (1 / n_positive + 1 / n_negative))
    S = S if C is None else min(S, C * min(n_positive, n_negative))
    alpha = np.where(y > 0, S / n_positive, S / n_negative)
    z = np.zeros(n)
    z[: len(y)] = y * alpha
    squared = float(z @ z)
    bound = 4 * S - (dual_ridge + c) * squared
    # With K = c zz'/|z|², the decision function is c z at the points, with squared norm c |z|².
    value, intercept = compute_primal_value(c * z[: len(y)], c * squared, y, C, dual_ridge)
    step = {"value": value, "bound": bound, "gap": (value - bound) / value, "seconds": 0.0}
    kernel = np.outer(z, z) * (c / squared)
    return MarginWeights(None, value, bound, alpha, intercept, [step], _kernels=kernel)


def _check_arguments(
    C: float | None,
    dual_ridge: float,
    trace: float | None,
    kernel_family: str,
    norm: float,
    n_directions: int | None,
    n_points: int | None,
    tol: float,
    max_iter: int,
) -> None:
    owner = "margin_weights"
    check_margin_parameters(owner, C, dual_ridge)
    check_parameter(owner, "trace", trace, [none, real(0, 1e100, open_low=True)])
    check_parameter(
        owner, "kernel_family", kernel_family, [one_of("nonneg", "signed", "free", "rank_one")]
    )
    check_parameter(owner, "norm", norm, [real(1)])
    check_parameter(owner, "n_directions", n_directions, [none, integer(1)])
    check_parameter(owner, "n_points", n_points, [none, integer(1)])
    check_parameter(owner, "tol", tol, [real(0, open_low=True)])
    check_parameter(owner, "max_iter", max_iter, [integer(1)])
    for name, value, default, required_family in (
        ("norm", norm, 1.0, "nonneg"),
        ("n_directions", n_directions, None, "rank_one"),
        ("n_points", n_points, None, "free"),
    ):
        if value != default and kernel_family != required_family:
            raise ValueError(
                f'{name} can be set only with kernel_family="{required_family}"; got '
                f"kernel_family={kernel_family!r}."
            )
