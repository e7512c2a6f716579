"""The result of a comparison of embeddings."""

from __future__ import annotations

from typing import Any

from nearfar.app.compare.comparison import Comparison
from nearfar.words import format_points


class EmbeddingComparison(Comparison):
    """The result of :func:`nearfar.compare` without labels.

    ``answer``, ``verdict``, ``best``, ``table``, ``folds``, ``code``, ``to_html`` and ``to_json``
    are those of :class:`nearfar.app.compare.comparison.Comparison`. ``best`` is "pca" unless
    another method keeps clearly more neighbors. Numbers are fractions of neighbors kept: more is
    better.
    """

    _of_each_method = (
        "label role status kept interval difference difference_interval p_holm recommended "
        "kept_fitted trust continuity rank_trust picture_core picture_trust picture_continuity "
        "picture_fault gap folds_done fit_seconds peak_mb not_converged reason"
    )
    _of_each_fold = "kept kept_fitted trust continuity rank_trust gap fit_seconds peak_mb"
    _measured, _heads, _baseline = "kept", ("kept", "gain"), "PCA"
    _blocks = (("Embeddings", ("learner",)), ("Baselines", ("reference", "baseline")))

    def _others(self, method: dict[str, Any]) -> dict[str, str]:
        shares = {
            head: _percents(method.get(key))
            for head, key in (
                ("fitted", "kept_fitted"),
                ("trust", "trust"),
                ("contin.", "continuity"),
                ("ranks", "rank_trust"),
            )
        }
        known = {**super()._others(method), **shares, "gap": gap_text(method.get("gap"))}
        order = ("adj. p", "folds", "fitted", "trust", "contin.", "ranks", "gap", "fit s", "MB")
        return {head: known[head] for head in order}


def gap_text(gap: float | None) -> str:
    """Return a relative gap in percent with two digits.

    >>> gap_text(4e-7), gap_text(0.0123), gap_text(None)
    ('< 0.01%', '1.2%', '')
    """
    if gap is None:
        return ""
    return "< 0.01%" if gap < 1e-4 else f"{100 * gap:.2g}%"


def _percents(share: float | None) -> str:
    return "" if share is None else format_points(share)
