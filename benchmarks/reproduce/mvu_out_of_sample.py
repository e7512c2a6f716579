"""New points in maximum variance unfolding: the consistency of figure 3.23 of the thesis.

    python benchmarks/reproduce/mvu_out_of_sample.py

X falls at random into A and B of equal size and C. The ratio compares how well two views of C agree
that come from placing it into MVU of A and of B, with how well those agree that come from MVU of
A ∪ C and of B ∪ C; alignment by rotation and reflection after centring. The thesis gives bars only,
without numbers or sizes: what it says in words is beside ours.

Deviations: sizes of A, B and C are ours; fives are those of scikit-learn's digits (8×8 pixels) and
not of MNIST; a rendered figure that turns stands for the teapot; Frey faces are left out.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from frame import Results, arguments, section, table, write_page
from sklearn.datasets import load_digits, make_swiss_roll

from nearfar import MVU
from nearfar.evaluation import procrustes_error

METHODS = ("lle", "sdp", "sdp-refined")  # as the records have them
N_TRIALS = 10
WORDS = {
    "Swiss roll": "all far above 1; lle lowest; refinement helps",
    "digits, fives": "below 2; lle lowest",
    "turning figure": "below 1 (teapots); lle lowest",
}


def turning_figure(n: int = 400, side: int = 24) -> np.ndarray:
    """Images of an asymmetric figure at n angles of a full turn."""
    ticks = (np.arange(side) - (side - 1) / 2) / side * 2.2
    x, y = np.meshgrid(ticks, ticks)
    images = []
    for angle in np.linspace(0, 2 * np.pi, n, endpoint=False):
        u = np.cos(angle) * x + np.sin(angle) * y
        v = -np.sin(angle) * x + np.cos(angle) * y
        body = np.exp(-(((u**2 + (1.3 * v) ** 2) / 0.25) ** 2))
        spout = 0.8 * np.exp(-((u - 0.75) ** 2 / 0.06 + (v - 0.1) ** 2 / 0.01))
        handle = 0.6 * np.exp(-((np.hypot(u + 0.7, v) - 0.2) ** 2) / 0.004)
        images.append((body + spout + handle).ravel())
    return np.array(images)


def data() -> dict[str, tuple[np.ndarray, int, int]]:
    """Rows, size of C, output dimension."""
    X, digit = load_digits(return_X_y=True)
    return {
        "Swiss roll": (make_swiss_roll(1000, noise=0.05, random_state=1)[0], 200, 2),
        "digits, fives": (X[digit == 5], 40, 5),
        "turning figure": (turning_figure(), 80, 2),
    }


def trial(X: np.ndarray, held_out: int, r: int, seed: int) -> dict[str, float]:
    order = np.random.RandomState(seed).permutation(len(X))
    half = (len(X) - held_out) // 2
    C, A, B = np.split(order[: held_out + 2 * half], [held_out, held_out + half])

    def unfolded(rows: np.ndarray) -> MVU:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solver = "low_rank" if len(rows) > 400 else "interior_point"
            return MVU(r, n_neighbors=4, constraints="inequality", solver=solver).fit(X[rows])

    present = [unfolded(np.append(part, C)).embedding_[half:] for part in (A, B)]
    fitted = procrustes_error(*present, relative=False)
    maps = [unfolded(part) for part in (A, B)]
    ratios = {}
    for method in METHODS:
        choice = method.replace("-", "_")
        placed = [mvu.set_params(out_of_sample=choice).transform(X[C]) for mvu in maps]
        ratios[method] = procrustes_error(*placed, relative=False) / fitted
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    options = arguments(parser, "mvu-out-of-sample.rst", data=False)
    results = Results(options.out.with_suffix(".jsonl"))
    for name, (X, held_out, r) in data().items():
        for seed in range(0 if options.page_only else N_TRIALS):
            if results.select(data=name, seed=seed):
                continue
            started = time.perf_counter()
            ratios = trial(X, held_out, r, seed)
            seconds = round(time.perf_counter() - started, 2)
            row = {"data": name, "n": len(X), "held_out": held_out, "r": r, "seed": seed}
            results.add(row | {"ratios": ratios, "seconds": seconds})
    lines = (__doc__ or "").split("\n\n", 2)[2].splitlines()
    lines += ["", *section("Ratios"), "Harmonic mean of 10 trials, and its range.", ""]
    body = []
    for name in data():
        rows = results.select(data=name)
        cells = []
        for method in METHODS:
            values = np.array([row["ratios"][method] for row in rows])
            mean = 1 / np.mean(1 / values)
            cells.append(f"{mean:.2f} ({values.min():.2f} to {values.max():.2f})")
        body.append([name, *cells, WORDS[name]])
    lines += table(["data", *METHODS, "thesis, in words"], body)
    write_page(options.out, "New points in maximum variance unfolding", lines)


if __name__ == "__main__":
    main()
