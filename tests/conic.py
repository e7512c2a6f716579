"""Optima of convex programs by general solvers, which share no code with ours.

How far an interior point method comes before rounding stops it depends on the processor and the
versions installed. What counts as solved must not: gap and residuals are always at most 1e-8.
"""

import warnings

import cvxpy as cp

LIMITS = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
# As far as it comes, but no less than what is its own limit by default: "inaccurate" then says that
# it came so far, and no farther.
SETTINGS = dict.fromkeys(LIMITS, 1e-10) | {f"reduced_{limit}": 1e-8 for limit in LIMITS}


def solved(problem: cp.Problem) -> float:
    """The optimal value, by Clarabel or, where that ends too early, by SCS."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        try:
            problem.solve(solver=cp.CLARABEL, **SETTINGS)
        except cp.SolverError:  # which says that it made no progress
            pass
        else:
            if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                return float(problem.value)
    problem.solve(solver=cp.SCS, eps_abs=1e-9, eps_rel=1e-9, max_iters=200_000)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)
