"""What can be seen of an embedding: whether it is a dot, and whether neighbors can be made out.

Ranks of distances do not see a dot: however small it is, the order inside may be right. A reader
sees the whole width at once, so each place is blurred by what can be told apart on a page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Matrix
from nearfar.evaluation.quality import rank_trustworthiness
from nearfar.words import format_percent

#: Rows that the middle of a picture has.
CENTRAL = 0.95
#: A middle of less of the width is a dot.
DOT = 0.05
#: What can be told apart on a page, as a share of the width.
RESOLUTION = 0.01
# Widths that a dot is said to have, from the smallest that it fits.
_SAID = (0.001, 0.01, 0.02, DOT)


def picture_quality(
    inputs: Matrix, points: Matrix, others: Matrix, n_neighbors: int
) -> dict[str, Any]:
    """How good the picture of some rows is, as plain data.

    Cost: ranks among the rows, O(n²), and a median of all places.

    Parameters
    ----------
    inputs, points : array of shape (n_samples, ...)
        Rows, and where they were placed.
    others : array of shape (n_others, n_components)
        Places of all rows, which decide the width.
    n_neighbors : int
        Neighbors of each row for the ranks.

    Returns
    -------
    dict
        "picture_core", the width of what the central 95% of the rows use, as a share of the whole;
        "picture_dot", None or, of a dot, the share of the rows in it and its width;
        "picture_trust" and "picture_continuity", by ranks, with places blurred by 1% of the width,
        None where rows are too few: 0.5 is chance, and 1 is the best.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> picture_quality(X, X, X, 5)["picture_dot"] is None
    True
    >>> far = np.concatenate([X[1:], [[50000.0, 0.0]]])
    >>> picture_quality(far, far, far, 5)["picture_dot"]
    [0.995, 0.001]
    """
    size = float(np.abs(others).max()) or 1.0
    places, shown = others / size, points / size
    width = float(np.ptp(places, axis=0).max())
    # Twice the distance from the middle, along the axis where it is largest.
    reach = 2.0 * np.abs(places - np.median(places, axis=0)).max(axis=1) / (width or 1.0)
    core = float(np.quantile(reach, CENTRAL, method="inverted_cdf"))
    found: dict[str, Any] = {"picture_core": min(1.0, core), "picture_dot": None}
    if core < DOT:
        said = next(each for each in _SAID if core <= each) if width > 0 else 0.0
        found["picture_dot"] = [float(np.mean(reach <= said)), said]
    blur = np.random.default_rng(0).uniform(-0.5, 0.5, size=shown.shape)
    seen = shown + RESOLUTION * (width or 1.0) * blur
    enough = 2 * n_neighbors < len(inputs)
    return found | {
        "picture_trust": rank_trustworthiness(inputs, seen, n_neighbors) if enough else None,
        "picture_continuity": rank_trustworthiness(seen, inputs, n_neighbors) if enough else None,
    }


def dot_words(dot: list[float]) -> str:
    """Return a description of a picture that is a dot.

    >>> dot_words([0.98, 0.01])
    'its picture is a dot with outliers: 98% of the rows lie within 1% of its width'
    >>> dot_words([1.0, 0.0])
    'its picture is one dot: all rows lie at one place'
    """
    share, width = dot
    if width == 0:
        return "its picture is one dot: all rows lie at one place"
    rows = format_percent(min(share, 0.999)).replace(".0%", "%")
    return (
        f"its picture is a dot with outliers: {rows} of the rows lie within {100 * width:g}% of "
        "its width"
    )
