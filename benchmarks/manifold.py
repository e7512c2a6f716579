"""Maximum variance unfolding: against a conic solver where that still ends, and at scale.

``python benchmarks/manifold.py`` runs everything; ``--cases 2000,10000`` some of it. Every fit is a
process of its own. Rows of cases that were not run stay as they were in ``results/manifold.json``,
from which ``results/manifold.md`` is made. The rows of cvxpy need ``pip install cvxpy clarabel``;
n = 100 takes it over a minute and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

OURS, PEER = "nearfar", "cvxpy with Clarabel"


class Case(NamedTuple):
    """A row of the table."""

    n: int
    k: int
    repeat: int
    target: str
    learner: str = "MVU"
    options: dict[str, Any] = {}

    def make(self) -> Any:
        import nearfar

        return getattr(nearfar, self.learner)(n_neighbors=self.k, **self.options)

    def warm_up(self, X: Matrix) -> None:
        """Imports."""
        import nearfar

        getattr(nearfar, self.learner)(n_neighbors=3).fit(X[:20])


CASES = {
    "60": Case(60, 4, 3, "a twentieth of cvxpy's time, value within 1e-4"),
    "100": Case(100, 4, 3, "a twentieth of cvxpy's time, value within 1e-4"),
    "500": Case(500, 5, 3, "gap below 1e-3"),
    "1000": Case(1_000, 4, 3, "gap below 1e-3"),
    "2000": Case(2_000, 5, 3, "under 1 minute, gap at most 1 %"),
    "10000": Case(10_000, 6, 1, "under 15 minutes, gap at most 5 %, correlation at least 0.99"),
    "variational-20000": Case(20_000, 6, 1, "under 1 minute", "VariationalMVU"),
    "landmarks-30": Case(1_000, 6, 1, "under 1 minute", "LandmarkMVU", {"n_landmarks": 30}),
    "landmarks-60": Case(1_000, 6, 1, "under 1 minute", "LandmarkMVU", {"n_landmarks": 60}),
    "landmarks-100": Case(2_000, 8, 1, "under 1 minute", "LandmarkMVU", {"n_landmarks": 100}),
}
AGAINST_PEER = ("60", "100")


def swiss_roll(n: int) -> tuple[Matrix, Matrix]:
    """Points, and the true length along the roll."""
    from sklearn.datasets import make_swiss_roll

    X, angle = make_swiss_roll(n, noise=0.05, random_state=1)
    return X, (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2


def run_ours(case: str) -> dict[str, Any]:
    of = CASES[case]
    X, arc = swiss_roll(of.n)
    warnings.simplefilter("ignore")  # n=1000, k=4 has two parts, which are linked
    of.warm_up(X)
    walls, cpus = [], []
    for _ in range(of.repeat):
        start, start_cpu = time.perf_counter(), time.process_time()
        mvu = of.make().fit(X)
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - start_cpu)
    memory = megabytes_beyond(lambda: of.make().fit(X)) if of.n <= 2_000 else None
    return {
        "wall s": round(min(walls), 3),
        "CPU s": round(min(cpus), 3),
        "MB": memory and round(memory),
        "edges": len(mvu.edges_),
        "trace": mvu.trace_,
        "bound": mvu.dual_bound_,
        "gap": float(f"{mvu.duality_gap_:.1e}"),
        "basis gap": float(f"{mvu.basis_gap_:.1e}") if hasattr(mvu, "basis_gap_") else "-",
        "residual": float(f"{mvu.primal_residual_:.1e}"),
        "steps": mvu.n_iter_,
        "correlation": round(abs(float(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1])), 4),
    }


def run_memory(case: str) -> dict[str, Any]:
    """One fit alone, for its high-water mark; in a process of its own, like all."""
    of = CASES[case]
    X, _ = swiss_roll(of.n)
    warnings.simplefilter("ignore")
    of.warm_up(X)
    return {"MB": round(megabytes_beyond(lambda: of.make().fit(X)))}


def run_peer(case: str) -> dict[str, Any]:
    """The same edges given to cvxpy, the centring taken out, which is its best case."""
    import cvxpy as cp

    from nearfar import MVU

    n, k, *_ = CASES[case]
    X, _ = swiss_roll(n)
    pairs = MVU(n_neighbors=k).fit(X).edges_
    D = ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1)
    unit = float(D.mean())
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    rows = basis[pairs[:, 0]] - basis[pairs[:, 1]]
    found: dict[str, Any] = {}

    def solve() -> None:
        K = cp.Variable((n - 1, n - 1), PSD=True)
        quadratic = np.einsum("ea,eb->eab", rows, rows).reshape(len(pairs), -1)
        held = [quadratic @ cp.vec(K, order="C") <= D / unit]
        problem = cp.Problem(cp.Maximize(cp.trace(K)), held)
        start, start_cpu = time.perf_counter(), time.process_time()
        problem.solve(solver="CLARABEL")
        found["wall s"] = round(time.perf_counter() - start, 3)
        found["CPU s"] = round(time.process_time() - start_cpu, 3)
        found["trace"], found["status"] = float(problem.value) * unit, problem.status

    found["MB"] = round(megabytes_beyond(solve))
    return found | {"edges": len(pairs), "version": f"cvxpy {cp.__version__}"}


def write(results: dict[str, dict[str, Any]]) -> None:
    rows = []
    for case, of in CASES.items():
        options = {"n_neighbors": of.k} | of.options
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        for who in (OURS, PEER):
            row = results.get(case, {}).get(who)
            if row is None:
                continue
            trace = row["trace"]
            ours = results[case].get(OURS, {})
            rows.append(
                {
                    "n": of.n,
                    "edges": row["edges"],
                    "contender": PEER if who == PEER else f"`{of.learner}({named})`",
                    "threads": row.get("threads", 2),
                    "wall s": row["wall s"],
                    "CPU s": row["CPU s"],
                    "MB beyond the data": row.get("MB", "-"),
                    "trace / ours": f"{trace / ours['trace']:.7f}" if ours else "-",
                    "gap, proven": row.get("gap", "-"),
                    "gap in the basis": row.get("basis gap", "-"),
                    "residual": row.get("residual", row.get("status")),
                    "steps": row.get("steps", "-"),
                    "correlation": row.get("correlation", "-"),
                    "target": of.target if who == OURS else "-",
                }
            )
    notes = (
        "MVU and LandmarkMVU: inequalities, angle edges; VariationalMVU: its defaults. "
        "`make_swiss_roll(n, noise=0.05, random_state=1)`. Each alone in a fresh process, "
        "as many threads on both sides, the best of three (n from 10,000 on, landmarks, and cvxpy: "
        "one). The gap "
        "is that between the bound, which holds for all Gram matrices, and a feasible point; that "
        "in the basis compares with what combinations of the basis can reach. "
        "The residual is that of the solver before "
        "the repair, for cvxpy its status. The correlation is that of the first coordinate with "
        "the length along the roll; small rolls are too sparse to be unrolled by anybody. cvxpy: "
        '`Problem(Maximize(trace(K)), [A @ vec(K) <= D]).solve(solver="CLARABEL")` over centred K. '
        "Made by `python benchmarks/manifold.py`."
    )
    write_table(RESULTS / "manifold.md", "Maximum variance unfolding", notes, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peer", action="store_true", help="leave cvxpy out")
    options = parser.parse_args()
    wanted = options.cases.split(",") if options.cases else list(CASES)
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no case {sorted(unknown)}; there are {list(CASES)}")
    stored = RESULTS / "manifold.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for case in wanted:
        jobs = {OURS: "ours"}
        if case in AGAINST_PEER and not options.no_peer:
            jobs[PEER] = "peer"
        for who, job in jobs.items():
            row = in_fresh_process(__file__, f"run {job} {case}", options.threads)
            if who == OURS and row["MB"] is None:
                row |= in_fresh_process(__file__, f"run memory {case}", options.threads)
            row["threads"] = options.threads
            print(case, who, row, flush=True)
            results.setdefault(case, {})[who] = row
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(json.dumps(results, indent=1) + "\n")
    write(results)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("run "):  # from in_fresh_process
        _, what, name = sys.argv[1].split()
        job = {"ours": run_ours, "memory": run_memory, "peer": run_peer}[what]
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        print(json.dumps(job(name)))
    else:
        main()
