"""The level method on functions whose minimum is known."""

import numpy as np
import pytest

from nearfar.solvers.level_method import Answer, run_level_method


def run(A, b, start, limits=None, cuts=None, tol=1e-6):
    """The largest of planes b - A x over the simplex, or a cone; one plane an answer."""
    asked = []

    def oracle(x):
        outside = np.empty((0, len(x))) if cuts is None else cuts[cuts @ x < -1e-12]
        # Back to the start, which is allowed.
        share = max((-(h @ x) / (h @ start - h @ x) for h in outside), default=0.0)
        point = (1 - share) * x + share * start
        k = int(np.argmax(b - A @ point))
        asked.append(point)
        return Answer(point, float((b - A @ point)[k]), b[k], A[k], outside)

    def certify(multipliers, model):
        if limits is None:
            return float(multipliers.planes @ model.intercepts) - float(
                (multipliers.planes @ model.slopes).max()
            )
        slope = multipliers.planes @ model.slopes + multipliers.allowed @ model.allowed
        off = np.abs(slope - multipliers.total) @ limits
        return float(multipliers.planes @ model.intercepts) - multipliers.total - off

    return run_level_method(oracle, certify, start, limits=limits, tol=tol), asked


@pytest.mark.parametrize("seed", range(4))
def test_a_game_is_solved_with_a_proof(seed):
    from scipy.optimize import linprog

    random = np.random.default_rng(seed)
    A, b = random.uniform(0, 1, (30, 6)), np.full(30, 5.0)
    found, asked = run(A, b, np.full(6, 1 / 6))
    wanted = linprog(
        np.append(np.zeros(6), 1.0),
        A_ub=np.column_stack([-A, -np.ones(30)]),
        b_ub=-b,
        A_eq=[[1.0] * 6 + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * 6 + [(None, None)],
    ).fun
    assert found.value == pytest.approx(wanted, rel=1e-5)
    assert found.bound <= wanted * (1 + 1e-9)
    assert len(asked) < 60
    for point in asked:
        assert point.min() >= 0 and point.sum() == pytest.approx(1)


def test_weights_of_any_sign_stay_where_they_are_allowed():
    # |x_1 - 3| + 1 falls up to x_1 = 3; 2 x_1 - x_2 <= 2 x_2 allows x_1 <= 3/5 alone.
    A, b = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([4.0, -2.0])
    cuts = np.array([[-2.0, 3.0]])
    found, asked = run(A, b, np.array([0.5, 0.5]), np.array([50.0, 50.0]), cuts)
    assert found.point == pytest.approx([0.6, 0.4], abs=1e-4)
    assert found.value == pytest.approx(3.4, rel=1e-5)
    assert all((cuts @ point >= -1e-9).all() for point in asked)
