"""Gabor features of images beside convolution by SciPy: time, memory, agreement.

``python benchmarks/gabor.py`` runs everything and writes ``results/gabor.md``; ``--short`` runs
small images once, to see that all works, and writes nothing. Every side is a process of its own,
with one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table
from numpy.typing import NDArray

from nearfar.tensors import GaborFeatures, gabor_bank

N, SHAPE = 100, (128, 88)
# SciPy's own convolutions are made of so few images, and their time is taken times N over it.
FEW = {"direct": 1, "fft": 5}
SIDES = {
    "ours": "GaborFeatures()",
    "direct": "signal.convolve2d, for each kernel",
    "fft": "signal.fftconvolve, for each kernel",
}


def images(n: int, short: bool) -> NDArray[np.float32]:
    shape = (24, 16) if short else SHAPE
    return np.random.default_rng(0).random((n, *shape), dtype=np.float32)


def by_scipy(side: str, X: NDArray[Any]) -> NDArray[Any]:
    from scipy import signal

    convolve = signal.convolve2d if side == "direct" else signal.fftconvolve
    height, width = X.shape[1:]
    kernels = gabor_bank().astype(np.complex64).reshape(-1, 64, 64)
    found = np.empty((*X.shape, len(kernels)), np.float32)
    for image, features in zip(X, found, strict=True):
        for k, kernel in enumerate(kernels):
            response = convolve(image, kernel)
            features[..., k] = np.abs(response[32 : 32 + height, 32 : 32 + width])
    return found


def measure(side: str, short: bool) -> dict[str, float]:
    few = 2 if short else FEW.get(side, N)
    X = images(few, short)
    gabor = GaborFeatures(flatten=False).fit(X)

    def work() -> NDArray[Any]:
        return gabor.transform(X) if side == "ours" else by_scipy(side, X)

    result = 40 * X.nbytes
    megabytes = megabytes_beyond(work) - result / 1e6
    seconds = []
    for _ in range(1 if side == "direct" else 3):
        start = time.process_time()
        found = work()
        seconds.append(time.process_time() - start)
    ours = gabor.transform(X).reshape(found.shape)
    difference = float(np.abs(found - ours).max() / ours.max())
    return {"CPU s": min(seconds) * N / few, "MB": megabytes, "difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small images, nothing written")
    short = parser.parse_args().short
    found = {}
    for side in SIDES:
        found[side] = in_fresh_process(__file__, json.dumps([side, short]), 1)
        print(side, found[side], flush=True)
    if short:
        return
    rows = [
        {
            "call": f"`{call}`",
            "CPU s": f"{found[side]['CPU s']:.2f}",
            "MB beyond images and result": f"{found[side]['MB']:.0f}",
            "times ours": f"{found[side]['CPU s'] / found['ours']['CPU s']:.0f}",
            "difference from ours": "-" if side == "ours" else f"{found[side]['difference']:.0e}",
        }
        for side, call in SIDES.items()
    ]
    notes = (
        f"{N} images of {SHAPE[0]}×{SHAPE[1]} pixels, float32, and 40 kernels of 64×64: 40 numbers "
        "for each pixel. One thread, CPU seconds, least of three runs (direct convolution one). "
        "SciPy's direct convolution is made of one image and its time taken a hundred times, "
        "fftconvolve of five. MB are the high-water mark of a fresh process above the images and "
        "the result. Asked for: ten times as fast as direct convolution. Made by "
        "`python benchmarks/gabor.py`."
    )
    write_table(RESULTS / "gabor.md", "Gabor features", notes, rows)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):  # from in_fresh_process
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
