"""The result of a comparison of sets of vectors."""

from __future__ import annotations

from nearfar.app.compare.comparison import Comparison


class SetComparison(Comparison):
    """The result of :func:`nearfar.compare` for sets of vectors."""

    # Most methods for sets do not learn a distance: they use a given one between sets.
    _blocks = (
        ("Methods for sets", ("learner",)),
        ("Standard distances (between means)", ("reference", "baseline")),
        Comparison._blocks[2],
    )
