"""Optima of small unfolding problems by a general conic solver, which shares no code with ours.

``python tests/mvu_oracle.py`` solves them anew and writes ``tests/data/mvu_optima.json``; it takes
some minutes. The status of each is asserted.
"""

import json
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np

STORED = Path(__file__).parent / "data" / "mvu_optima.json"
N_NEIGHBORS = 4
# Name: features of the data, constraints, sign of the trace, price of slack, angle edges.
PROBLEMS = {
    "inequality": (3, "inequality", 1, 1.0, True),
    "inequality without angles": (3, "inequality", 1, 1.0, False),
    "equality": (8, "equality", 1, 1.0, True),
    "l1": (3, "l1", 1, 20.0, True),
    "squared": (3, "squared", 1, 99.0, True),
    "minimum": (8, "equality", -1, 1.0, True),
    "minimum with squared slack": (3, "squared", -1, 9.0, True),
}


def data(n_features, n=60):
    """A rolled sheet with noise in all features."""
    random = np.random.RandomState(2)
    angle = 1.5 * np.pi * (1 + random.uniform(size=n))
    roll = np.column_stack(
        [angle * np.cos(angle), 5 * random.uniform(size=n), angle * np.sin(angle)]
    )
    X = np.zeros((n, n_features))
    X[:, :3] = roll
    return X + 0.3 * random.standard_normal(X.shape)


def edges(X, angles):
    """Pairs within a point and its neighbours, squared lengths over their mean, and the mean."""
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    pairs = set()
    for i in range(len(X)):
        near = [int(j) for j in np.argsort(squared[i], kind="stable") if j != i][:N_NEIGHBORS]
        some = combinations([i, *near], 2) if angles else [(i, j) for j in near]
        pairs |= {(min(pair), max(pair)) for pair in some}
    pairs = np.array(sorted(pairs))
    lengths = squared[pairs[:, 0], pairs[:, 1]]
    return pairs, lengths / lengths.mean(), float(lengths.mean())


def optimum(name):
    """The objective in units of the mean squared length, and the status."""
    import cvxpy as cp

    n_features, constraints, sign, price, angles = PROBLEMS[name]
    X = data(n_features)
    pairs, D, _ = edges(X, angles)
    n = len(X)
    # Centred Gram matrices have no interior; written in a basis of centred vectors they have.
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    rows = basis[pairs[:, 0]] - basis[pairs[:, 1]]
    quadratic = np.einsum("ea,eb->eab", rows, rows).reshape(len(pairs), -1)
    if constraints == "equality":  # its dual, as the solver fails on the problem itself
        w = cp.Variable(len(D))
        S = cp.reshape(quadratic.T @ w, (n - 1, n - 1), order="C") - sign * np.eye(n - 1)
        problem = cp.Problem(cp.Minimize(w @ D), [(S + S.T) / 2 >> 0])
    else:
        K = cp.Variable((n - 1, n - 1), PSD=True)
        slack = quadratic @ cp.vec(K, order="C") - D
        cost, held = 0, []
        if constraints == "inequality":
            held = [slack <= 0]
        else:
            cost = price * (cp.norm1(slack) if constraints == "l1" else cp.sum_squares(slack))
        problem = cp.Problem(cp.Maximize(sign * cp.trace(K) - cost), held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "inaccurate"; the status says so too
        problem.solve(solver="CLARABEL")
    return float(problem.value), problem.status


if __name__ == "__main__":
    found = {}
    for name in PROBLEMS:
        value, status = optimum(name)
        print(name, value, status, flush=True)
        found[name] = {"value": value, "status": status}
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_text(json.dumps(found, indent=1) + "\n")
