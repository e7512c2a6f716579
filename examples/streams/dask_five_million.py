"""
LDA of five million rows that nobody holds
==========================================

Class statistics are small, and those of two blocks of rows can be merged. So the rows may lie
anywhere: each block of a dask array or dataframe becomes its own statistics where it is, on a
thread, in another process or on another machine; only the statistics travel, and the eigenproblem
is solved here. The rows are never in one place.

Run it with ``pip install 'nearfar[dask]'`` and ``python
examples/streams/dask_five_million.py``; it takes ten to thirty seconds on two cores, and a few with
``--rows 200_000``.
"""

# %%
# 5,000,000×100 numbers, 4 GB, in blocks of 40 MB. Nothing is computed yet: dask notes how each
# block is to be made. With data of your own this is ``dask.array.from_zarr`` or
# ``dask.dataframe.read_parquet``.

import argparse
import time

import dask.array as da
import numpy as np
from dask.diagnostics import ProgressBar

from nearfar import LDA

parser = argparse.ArgumentParser(description="LDA of rows that dask makes block by block.")
parser.add_argument("--rows", type=int, default=5_000_000, help="how many")
parser.add_argument("--picture", help="a file to draw the last block into (needs matplotlib)")
options = parser.parse_args()

N_CLASSES, N_FEATURES, BLOCK = 10, 100, 50_000
shape = np.random.default_rng(0)
centers = 0.4 * shape.normal(size=(N_CLASSES, N_FEATURES))
mixing = shape.normal(size=(N_FEATURES, N_FEATURES)) + 8 * np.eye(N_FEATURES)


def place(noise, labels):
    """Points of a block: correlated noise around the centres of their classes."""
    return (noise + centers[labels[:, 0]]) @ mixing


rng = da.random.default_rng(1)
y = rng.integers(0, N_CLASSES, size=options.rows, chunks=BLOCK)
noise = rng.normal(size=(options.rows, N_FEATURES), chunks=(BLOCK, N_FEATURES))
X = da.map_blocks(place, noise, y[:, None], dtype=np.float64, chunks=noise.chunks)
print(f"{X.shape[0]:,} × {X.shape[1]} numbers, {X.nbytes / 1e9:.1f} GB in {X.npartitions} blocks")

# %%
# The fit. ``ProgressBar`` shows how many of dask's tasks are done. On a cluster nothing changes but
# one line before it: ``client = dask.distributed.Client("tcp://...")``, and its dashboard shows the
# progress. A worker may die meanwhile: what went with it is computed again, and no row is lost or
# counted twice.

began = time.perf_counter()
with ProgressBar():
    lda = LDA().fit(X, y)
print(f"{time.perf_counter() - began:.1f} s: {lda.statistics_}")

# %%
# What was asked of the data is right to the last row:

assert lda.statistics_.counts.sum() == options.rows
expected = centers @ mixing
error = np.abs(lda.statistics_.means - expected).max() / np.abs(expected).max()
print(f"class means are off the centres by {error:.1e} of the largest")

# %%
# The map goes to the blocks, too: lazily, and only those that are looked at are made. Here the
# nearest class mean is compared with the label in the last block.

Z = X.map_blocks(lda.transform, dtype=np.float64, chunks=(X.chunks[0], (len(lda.components_),)))
points, labels = da.compute(Z.blocks[-1], y.blocks[-1])
means = lda.transform(lda.statistics_.means)
squares = (means**2).sum(axis=1) - 2 * points @ means.T  # less what all classes have in common
print(f"{Z.shape[1]} dimensions, {np.mean(squares.argmin(axis=1) != labels):.2%} errors")

# %%
# The last block along the first two of these dimensions, one colour a class. The picture on the
# card of this example is of ``--rows 200_000``.

if options.picture:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 2.8), layout="constrained")
    ax = figure.subplots()
    ax.scatter(*points[:1500, :2].T, c=labels[:1500], cmap="tab10", s=5, linewidths=0)
    ax.set(xticks=[], yticks=[], xlabel="first dimension of LDA", ylabel="second")
    figure.savefig(options.picture, dpi=100)

# sphinx_gallery_thumbnail_path = '_static/dask_five_million.png'
