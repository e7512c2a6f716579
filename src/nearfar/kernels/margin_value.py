"""The margin functional of a kernel, which decreases as the margin grows."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import as_kernel
from nearfar.labels import encode_labels
from nearfar.parameters import check_parameter, none, real
from nearfar.solvers.squared_hinge import solve_squared_hinge

# The convex hulls of two classes are treated as intersecting if their distance is below this
# fraction of the root mean square norm of the rows.
_MIN_HULL_DISTANCE = 1e-6
# Ridges, as fractions of the mean kernel diagonal. With decreasing ridge, the solution converges to
# the hard-margin solution.
_RIDGES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)


def margin_value(
    K: ArrayLike, y: ArrayLike, C: float | None = None, dual_ridge: float = 0.0
) -> float:
    r"""Return the margin functional of a kernel.

    The margin functional is defined as

    .. math:: w_{C,\tau}(K) = \max_\alpha\; 2 e^T\alpha - \alpha^T (G(K) + \tau I)\alpha,
        \qquad 0 \le \alpha \le C,\; y^T\alpha = 0,\; G(K)_{ij} = y_i y_j K_{ij}.

    - With ``C=None`` and τ = 0, it is :math:`1/\gamma^2`, where the margin γ is half the distance
      between the convex hulls of the classes.
    - With C and τ = 0, it is :math:`\min |w|^2 + 2C\sum\xi`, twice the dual objective of
      ``SVC(C)``.
    - With ``C=None`` and :math:`\tau = 1/c`, it is :math:`\min |w|^2 + c\sum\xi^2`.

    As a maximum of functions that are affine in K, the functional is convex in K. For s > 0,
    :math:`w_{C,\tau}(sK) = w_{sC,\tau/s}(K)/s`.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix of the labeled points, symmetric and positive semi-definite.
    y : array-like of shape (n,)
        Class labels. With more than two classes, the values of all one-vs-rest problems are added.
    C : float, default=None
        Upper limit for the dual variables α. ``C=None`` with ``dual_ridge=0`` requires that K
        separates the classes (hard margin). ``C=None`` with ``dual_ridge`` above 0 gives the
        squared hinge loss.
    dual_ridge : float, default=0.0
        Ridge τ that is added to the diagonal of G(K).

    Returns
    -------
    float

    Notes
    -----
    With C, the problem is solved by scikit-learn's ``SVC``. Without C, it is solved by Newton's
    method on the rows with a positive loss. The result is the primal objective. It is an upper
    bound on the functional and, up to rounding, within 1e-6 of it.

    References
    ----------
    .. [1] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 5.3.
    .. [2] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004, section 4.

    Examples
    --------
    Two points at distance 2 have the margin 1:

    >>> from nearfar.kernels import margin_value
    >>> margin_value([[0.0, 0.0], [0.0, 4.0]], ["left", "right"])
    1.0
    """
    check_margin_parameters("margin_value", C, dual_ridge)
    one_vs_rest_labels = encode_one_vs_rest(y)
    kernel = as_kernel(K).copy() if C and dual_ridge else as_kernel(K)
    if len(kernel) != one_vs_rest_labels.shape[1]:
        raise ValueError(
            f"y must have one label per point of K; got {one_vs_rest_labels.shape[1]} labels and "
            f"{len(kernel)} points."
        )
    solutions = [
        solve_margin(kernel, labels, C, dual_ridge, tol=1e-6) for labels in one_vs_rest_labels
    ]
    check_separable(solutions)
    return float(sum(solution.value for solution in solutions))


class MarginSolution(NamedTuple):
    """Solution of a support vector machine with one kernel.

    Attributes
    ----------
    alpha : ndarray of shape (n,)
        Feasible dual variables.
    intercept : float
        Intercept with the lowest primal objective for these dual variables.
    value, bound : float
        Primal objective of :math:`w = \\sum \\alpha_i y_i \\phi_i`, and dual objective. The
        margin functional is between them, even if the solver did not converge.
    """

    alpha: Vector
    intercept: float
    value: float
    bound: float


def solve_margin(
    K: Matrix,
    y: Vector,
    C: float | None,
    dual_ridge: float,
    *,
    tol: float = 1e-3,
    start: MarginSolution | None = None,
) -> MarginSolution:
    """Return the solution of the SVM with one kernel and labels 1 and -1.

    If a hard margin does not exist, the value is infinite. ``start`` is the solution for a similar
    kernel. With both C and dual_ridge, the diagonal of K is changed during the call and restored.
    """
    if C is None and dual_ridge == 0:
        return _solve_hard_margin(K, y, start)
    if C is None:
        warm_start = None if start is None else (y * start.alpha, start.intercept)
        beta = solve_squared_hinge(K, y, dual_ridge, warm_start).beta
    else:
        beta = _fit_svm(K, y, C, dual_ridge, tol)
    alpha = _make_feasible(y * beta, y, C)
    decision_values = K @ (y * alpha)
    squared_norm = float(decision_values @ (y * alpha))
    value, intercept = compute_primal_value(decision_values, squared_norm, y, C, dual_ridge)
    bound = 2 * float(alpha.sum()) - squared_norm - dual_ridge * float(alpha @ alpha)
    return MarginSolution(alpha, intercept, value, bound)


def compute_primal_value(
    f: Vector, squared_norm: float, y: Vector, C: float | None, dual_ridge: float
) -> tuple[float, float]:
    r"""Return the primal objective of a decision function, and the intercept that minimizes it.

    Parameters
    ----------
    f : ndarray of shape (n,)
        Decision function at the points, without intercept.
    squared_norm : float
        Squared norm of the decision function.
    y, C, dual_ridge
        Labels and parameters of the problem. The loss of a slack s is the maximum of
        :math:`2as - \tau a^2` over :math:`0 \le a \le C`: a hinge, a squared hinge, or a function
        that is first quadratic and then linear.

    Returns
    -------
    value, intercept : float
    """
    if C is None and dual_ridge == 0:
        min_positive, max_negative = f[y > 0].min(), f[y < 0].max()
        margin = float(min_positive - max_negative) / 2
        return (squared_norm / margin**2 if margin > 0 else np.inf), -float(
            min_positive + max_negative
        ) / 2
    if dual_ridge == 0:
        # As a function of the intercept, the sum of hinge losses is piecewise linear with
        # breakpoints at y - f. It decreases until the number of passed breakpoints equals the
        # number of rows of class 1.
        breakpoints = np.sort(y - f)
        n_positive = int((y > 0).sum())
        b = float(breakpoints[n_positive - 1] + breakpoints[n_positive]) / 2
        slack = 1 - y * (f + b)
        return squared_norm + 2 * float(C or 0.0) * float(np.maximum(slack, 0).sum()), b
    b = _find_balanced_intercept(f, y, C, dual_ridge)
    slack = 1 - y * (f + b)
    a = np.clip(slack / dual_ridge, 0, C)
    return squared_norm + float(a @ (2 * slack - dual_ridge * a)), b


def _find_balanced_intercept(f: Vector, y: Vector, C: float | None, dual_ridge: float) -> float:
    """Return the intercept for which the dual variables of both classes have equal sums.

    The difference of the sums decreases with the intercept and is linear between breakpoints.
    """

    def compute_difference(b: float) -> float:
        return float(y @ np.clip((1 - y * (f + b)) / dual_ridge, 0, C))

    zero_slack_intercepts = y - f
    breakpoints = np.sort(
        zero_slack_intercepts
        if C is None
        else np.concatenate([zero_slack_intercepts, zero_slack_intercepts - y * (dual_ridge * C)])
    )
    low, high = 0, len(breakpoints) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if compute_difference(breakpoints[middle]) > 0 else (low, middle)
    low_difference, high_difference = (
        compute_difference(breakpoints[low]),
        compute_difference(breakpoints[high]),
    )
    fraction = (
        low_difference / (low_difference - high_difference)
        if low_difference > high_difference
        else 0.5
    )
    return float(breakpoints[low] + fraction * (breakpoints[high] - breakpoints[low]))


def encode_one_vs_rest(y: ArrayLike) -> Matrix:
    """Return one row per class, with labels 1 for the class and -1 for the rest.

    For two classes there is one row, in which the second class is 1.
    """
    classes, codes = encode_labels(y)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; all labels are {classes.tolist()[0]!r}.")
    class_codes = [1] if len(classes) == 2 else range(len(classes))
    return np.array([np.where(codes == k, 1.0, -1.0) for k in class_codes])


def check_margin_parameters(caller_name: str, C: float | None, dual_ridge: float) -> None:
    """Raise if C or dual_ridge is not valid."""
    check_parameter(caller_name, "C", C, [none, real(0, open_low=True)])
    check_parameter(caller_name, "dual_ridge", dual_ridge, [real(0, 1e100)])


def check_separable(solutions: list[MarginSolution]) -> None:
    """Raise if a hard margin does not exist."""
    if not all(np.isfinite(solution.value) for solution in solutions):
        raise ValueError(
            "C=None with dual_ridge=0 requires a hard margin, but the kernel does not separate the "
            "classes of y: their convex hulls intersect. Set C, or set dual_ridge above 0."
        )


def _fit_svm(K: Matrix, y: Vector, C: float, dual_ridge: float, tol: float) -> Vector:
    """Return the coefficients of an SVM with an upper limit C for the dual variables."""
    n = len(y)
    # The tolerance applies to gradients, which are of order 1. The number of iterations is limited
    # as in libsvm.
    svc = SVC(C=C, kernel="precomputed", tol=tol, max_iter=max(1_000_000, 100 * n), random_state=0)
    diagonal = K.diagonal().copy()
    try:
        if dual_ridge:
            K.flat[:: n + 1] += dual_ridge
        # The kernel was already checked. Checking it again takes longer than fitting a small SVM.
        skip_checks = config_context(assume_finite=True, skip_parameter_validation=True)
        with warnings.catch_warnings(), skip_checks:
            # The warning is not needed, because the gap between value and bound shows whether the
            # SVM converged.
            warnings.simplefilter("ignore", ConvergenceWarning)
            svc.fit(K, y)
    finally:
        if dual_ridge:
            K.flat[:: n + 1] = diagonal
    beta = np.zeros(n)
    beta[svc.support_] = svc.dual_coef_[0]
    return beta


def _solve_hard_margin(K: Matrix, y: Vector, start: MarginSolution | None) -> MarginSolution:
    """Return the hard-margin solution, computed as the limit of solutions with decreasing ridge.

    Each solution minimizes the squared hinge loss. After rescaling, it gives a primal value and
    a dual bound.
    """
    mean_diagonal = float(np.trace(K)) / len(K)
    hinge_solution: tuple[Vector, float] | None = None
    if start is not None:
        hinge_solution = y * start.alpha, start.intercept
    best, min_value = MarginSolution(np.zeros(len(y)), 0.0, np.inf, -np.inf), np.inf
    for ridge in _RIDGES if start is None else _RIDGES[2:]:
        hinge_solution = solve_squared_hinge(K, y, ridge * mean_diagonal, hinge_solution)
        alpha = _make_feasible(y * hinge_solution[0], y, None)
        decision_values = K @ (y * alpha)
        squared_norm, alpha_sum = float(decision_values @ (y * alpha)), float(alpha.sum())
        if squared_norm <= (_MIN_HULL_DISTANCE * alpha_sum / 2) ** 2 * mean_diagonal:
            # The nearest points of the two convex hulls coincide.
            return MarginSolution(alpha, hinge_solution[1], np.inf, np.inf)
        value, intercept = compute_primal_value(decision_values, squared_norm, y, None, 0.0)
        scale, min_value = alpha_sum / squared_norm, min(value, min_value)
        if alpha_sum * scale > best.bound:
            best = MarginSolution(scale * alpha, scale * intercept, min_value, alpha_sum * scale)
        if min_value - best.bound <= 1e-9 * min_value:
            break
    return best._replace(value=min_value)


def _make_feasible(alpha: Vector, y: Vector, C: float | None) -> Vector:
    """Clip the dual variables to their limits, and make their sums in both classes equal."""
    alpha = np.clip(alpha, 0, C)
    positive_sum, negative_sum = float(alpha[y > 0].sum()), float(alpha[y < 0].sum())
    if positive_sum > negative_sum > 0:
        alpha[y > 0] *= negative_sum / positive_sum
    elif negative_sum > positive_sum > 0:
        alpha[y < 0] *= positive_sum / negative_sum
    elif positive_sum != negative_sum:
        alpha[:] = 0.0
    return alpha
