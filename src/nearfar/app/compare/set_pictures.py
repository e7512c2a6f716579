"""What a page shows of sets: where each lies, its ellipse, and those of the sets nearest to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base.voter import find_nearest
from nearfar.distributions.euclidean_embedding import EuclideanEmbedding
from nearfar.distributions.held_pairs import compute_pairwise
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import Sets
from nearfar.words import format_count, format_percent

#: Neighbors of a set whose ellipses are shown beside its own.
SHOWN_NEIGHBORS = 5
# Sets drawn by a comparison at most, and the seconds that all their pairs may take, roughly.
_MOST_SETS, _FEW_SETS, _SECONDS = 1000, 150, 15.0
# Vectors from which the plane is found at most.
_PLANE_VECTORS = 20_000
_DEFAULT: dict[str, Any] = {"metric": "bhattacharyya_riemann", "ridge": "auto", "standardize": True}
_METRICS = {
    "kl": "the Kullback-Leibler divergence, the mean of both ways",
    "jeffreys": "Jeffreys' divergence",
    "bhattacharyya": "the Bhattacharyya distance",
    "hellinger": "the Hellinger distance",
    "riemann": "the Riemannian distance of covariances",
    "jeffreys_riemann": "d_JR (Jeffreys and Riemann)",
    "bhattacharyya_riemann": "d_BR (Bhattacharyya and Riemann)",
    "mean": "the distance of the means alone",
}


def picture_of_sets(
    sets: Sets,
    chosen: dict[str, Any] | None,
    seed: int = 0,
    method: str = "",
    *,
    show_rows: bool = True,
    n_jobs: int = 1,
) -> dict[str, Any]:
    """A picture of all sets, or of a random choice of many, by their dissimilarities.

    Parameters
    ----------
    sets : Sets
        All sets of a comparison; labels are not looked at.
    chosen : dict or None
        "metric", "ridge", "shrinkage" and "standardize" of the method whose dissimilarity is shown;
        None is d_BR on standardized features.
    seed : int
        Of the choice.
    method : str
        What the method is called.
    show_rows : bool
        Whether names and ellipses may be shown, or places only.
    n_jobs : int
        Threads for the dissimilarities; -1 is all cores.

    Returns
    -------
    dict
        "rows" drawn, their "coordinates", "sizes" and "neighbors" (places among the rows drawn),
        "names", what else :func:`ellipses_of` returns, as plain data, and the words of the page.
    """
    options = _DEFAULT if chosen is None else chosen
    told = None if chosen is None else method
    vectors = sets
    if options["standardize"]:
        spread = np.asarray(sets.X, np.float64).std(axis=0)
        vectors = Sets(sets.X / np.where(spread > 0, spread, 1.0), sets.offsets)
    most = _affordable(vectors, options["metric"])
    rows = np.arange(len(sets))
    if len(sets) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(sets), most, replace=False))
    shrinkage = options.get("shrinkage")
    gaussians = Gaussians.from_sets(vectors[rows], options["ridge"], shrinkage=shrinkage)
    D = symmetric_pairs(gaussians, options["metric"], n_jobs)
    places = EuclideanEmbedding(min(2, len(rows) - 1), metric="precomputed").fit(D).embedding_
    if places.shape[1] == 1:
        places = np.column_stack([places, np.zeros(len(places))])
    found = ellipses_of(gaussians, vectors, D)
    return {
        "title": "The sets",
        "short": "Sets",
        "method": told,
        "rule": _rule(options, told, len(rows), len(sets)),
        "rows": rows.tolist(),
        "n_rows": len(sets),
        "metric": options["metric"],
        "standardized": bool(options["standardize"]),
        "coordinates": _short(places),
        "names": None if sets.names is None or not show_rows else sets.names[rows].tolist(),
        "sizes": sets.sizes[rows].tolist(),
        "plane": found["plane"],
        "ellipses": _short(found["ellipses"]) if show_rows else None,
        "neighbors": found["neighbors"].tolist(),
        "dissimilarities": _short(found["dissimilarities"]),
        "words": panel_words(options["metric"], found["plane"], options["standardize"]),
    }


def _rule(options: dict[str, Any], method: str | None, drawn: int, total: int) -> str:
    """How to read the picture, which may be by the dissimilarity of a method."""
    units = " of standardized vectors" if options["standardize"] else ""
    whose = f", the dissimilarity of {method}" if method else ""
    rule = (
        "Each mark is a set, placed so that distances in the picture are near to "
        f"{metric_words(options['metric'])}{units}{whose}. Labels colour it and place nothing; no "
        "error of this report was measured on it."
    )
    few = f" A random {drawn:,} of {format_count(total, 'set')} are drawn."
    return rule + few * (drawn < total)


def panel_words(metric: str, plane: list[float], standardized: bool) -> dict[str, str]:
    """What is said of the ellipses: their plane, the dissimilarity, and what a set is made of."""
    rule = plane_words(plane, bool(standardized))
    return {"rule": rule, "metric": metric_words(metric), "parts": "vectors"}


def metric_words(metric: str) -> str:
    """A dissimilarity by name."""
    name = metric.removeprefix("sqrt_")
    words = _METRICS.get(name, metric)
    return f"the root of {words}" if name != metric else words


def plane_words(shares: list[float], standardized: bool) -> str:
    """What plane the ellipses lie in."""
    units = "standardized " if standardized else ""
    return (
        "Ellipses are those of the sets' Gaussians, at two standard deviations, ridge included, in "
        f"the plane of the first two principal directions of all {units}vectors, which hold "
        f"{format_percent(sum(shares))} of their variance."
    )


def ellipses_of(gaussians: Gaussians, vectors: Sets, D: Matrix) -> dict[str, Any]:
    """The Gaussian of each set in one plane, and its nearest neighbors.

    Parameters
    ----------
    gaussians : Gaussians
        Of n sets.
    vectors : Sets
        What the plane is found from: all vectors, in the units of the Gaussians.
    D : ndarray of shape (n, n)
        Their dissimilarities.

    Returns
    -------
    dict
        "ellipses" of shape (n, 5): both coordinates of the mean, the variance along the first
        direction, the covariance, and the variance along the second; "neighbors" and
        "dissimilarities" of shape (n, k), nearest first and without the set itself; "plane", the
        shares of the variance of all vectors along its two directions.
    """
    axes, shares = principal_plane(np.asarray(vectors.X, np.float64))
    center = np.asarray(vectors.X, np.float64).mean(axis=0)
    flat = np.empty((len(gaussians), 5))
    flat[:, :2] = (gaussians.means - center) @ axes
    if gaussians.factors is not None:
        assert gaussians.ridge is not None
        thin = np.einsum("npr,pk->nkr", gaussians.factors, axes)
        covariances = thin @ thin.transpose(0, 2, 1)
        covariances += gaussians.ridge[:, None, None] * (axes.T @ axes)
    else:
        covariances = axes.T @ gaussians.covariances @ axes
    flat[:, 2], flat[:, 3] = covariances[:, 0, 0], covariances[:, 0, 1]
    flat[:, 4] = covariances[:, 1, 1]
    others = D.copy()
    np.fill_diagonal(others, np.inf)
    k = min(SHOWN_NEIGHBORS, len(D) - 1)
    distances, neighbors = find_nearest(others, k)
    return {
        "ellipses": flat,
        "neighbors": neighbors,
        "dissimilarities": distances,
        "plane": [float(share) for share in shares],
    }


def principal_plane(rows: Matrix) -> tuple[Matrix, Matrix]:
    """The first two principal directions of vectors, as columns, and their shares of variance.

    Of vectors with one feature the second direction is zero.
    """
    sample = rows[:: max(1, len(rows) // _PLANE_VECTORS)]
    centered = sample - sample.mean(axis=0)
    _, values, directions = np.linalg.svd(centered, full_matrices=False)
    axes = np.zeros((rows.shape[1], 2))
    shares = np.zeros(2)
    kept = min(2, len(directions))
    axes[:, :kept] = directions[:kept].T
    # Signs by the largest entry, so that pictures do not flip from run to run.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    total = float((values**2).sum())
    if total > 0:
        shares[:kept] = values[:kept] ** 2 / total
    return axes * np.where(signs == 0, 1.0, signs), shares


def symmetric_pairs(gaussians: Gaussians, metric: str, n_jobs: int) -> Matrix:
    """Dissimilarities of all pairs; of one that is not symmetric, the mean of both ways."""
    D = compute_pairwise(gaussians, metric, n_jobs)
    return np.asarray((D + D.T) / 2) if metric.endswith("kl") else D


def _affordable(sets: Sets, metric: str) -> int:
    """How many sets can be compared in pairs within a few seconds."""
    q = min(sets.n_features, 2 * int(sets.sizes.max()))
    pair = 5e-6 + (3e-9 if "riemann" in metric else 3e-10) * q**3
    return int(np.clip(np.sqrt(2 * _SECONDS / pair), _FEW_SETS, _MOST_SETS))


def _short(values: Any) -> list[Any]:
    """Numbers with five digits that count: finer than a screen."""
    array = np.asarray(values, np.float64)
    return [[float(f"{value:.5g}") for value in row] for row in array.tolist()]
