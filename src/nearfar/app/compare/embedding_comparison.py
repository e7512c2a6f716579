"""The result of a comparison of embeddings: the same questions, other columns."""

from __future__ import annotations

from typing import Any

from nearfar.app.compare.comparison import Comparison, Row, cut_label, fit_seconds, with_interval
from nearfar.words import p_text, points


class EmbeddingComparison(Comparison):
    """What :func:`nearfar.compare` found without labels.

    ``answer``, ``best``, ``table``, ``folds``, ``code``, ``to_html`` and ``to_json`` are those of
    :class:`nearfar.app.compare.comparison.Comparison`; ``best`` is "pca" unless another method
    keeps clearly more neighbours. Numbers are shares of neighbours kept: the higher, the better.
    """

    _of_each_fold = (
        "kept",
        "kept_fitted",
        "trust",
        "continuity",
        "rank_trust",
        "gap",
        "fit_seconds",
        "peak_mb",
    )

    def _rows(self) -> list[dict[str, Any]]:
        keys = (
            "label",
            "role",
            "status",
            "kept",
            "interval",
            "difference",
            "difference_interval",
            "p_holm",
            "recommended",
            "kept_fitted",
            "trust",
            "continuity",
            "rank_trust",
            "gap",
            "folds_done",
            "fit_seconds",
            "peak_mb",
            "not_converged",
            "reason",
        )
        return [
            {"method": method["name"], **{key: method[key] for key in keys}}
            for method in self.document["methods"]
        ]

    def cells(self, *, wide: bool = True) -> tuple[list[str], list[Row]]:
        """The final table in words: its head, and the entry and cells of each method."""
        protocol, total = self.document["protocol"], len(self.document["folds"])
        level = f"[{100 * protocol['confidence']:g} %]"
        head = ["method", f"kept % {level}", f"to PCA {level}", "fitted", "folds"]
        if wide:
            head += ["Holm p", "trust", "contin.", "ranks", "gap", "fit s", "MB"]
        rows = [
            (method, _cells(method, total, wide))
            for method in self.document["methods"]
            if method["kept"] is not None and method["status"] != "failed"
        ]
        return head, rows


def _cells(method: dict[str, Any], total: int, wide: bool) -> list[str]:
    marks = "†" * bool(method["not_converged"])
    marks += " …" * (method["status"] == "unfinished")
    arrow = "→ " * bool(method["recommended"])
    room = 60 if wide else 24
    cells = [
        arrow + cut_label(method["label"], room - len(arrow + marks)) + marks,
        with_interval(method["kept"], method["interval"]),
        with_interval(method["difference"], method["difference_interval"]),
        _percents(method["kept_fitted"]),
        f"{method['folds_done']}/{total}",
    ]
    if wide:
        peak = method["peak_mb"]
        p = method["p_holm"]
        cells += [
            "" if p is None else p_text(p).replace("< ", "<"),
            _percents(method["trust"]),
            _percents(method["continuity"]),
            _percents(method["rank_trust"]),
            gap_text(method["gap"]),
            fit_seconds(method),
            "" if peak is None else f"{peak:.0f}",
        ]
    return cells


def gap_text(gap: float | None) -> str:
    """A relative gap in percent, short.

    >>> gap_text(4e-7), gap_text(0.0123), gap_text(None)
    ('< 0.01 %', '1.2 %', '')
    """
    if gap is None:
        return ""
    return "< 0.01 %" if gap < 1e-4 else f"{100 * gap:.2g} %"


def _percents(share: float | None) -> str:
    return "" if share is None else points(share)
