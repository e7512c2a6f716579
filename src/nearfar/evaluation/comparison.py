"""The result of a comparison: what is asked of it, and how it shows itself."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any

from nearfar.evaluation.judgement import p_text, percent, points
from nearfar.extras import require

_COLUMNS = (
    "method",
    "error",
    "interval",
    "difference",
    "interval",
    "Holm p",
    "folds",
    "fit s",
    "MB",
)


class Comparison:
    """What :func:`nearfar.compare` found.

    Attributes
    ----------
    document : dict
        Everything, as plain data; what :meth:`to_json` writes.
    """

    def __init__(self, document: dict[str, Any], *, complete: bool = True) -> None:
        self.document = document
        #: Whether every method ended by itself; if not, a journal can go on.
        self.complete = complete

    @property
    def answer(self) -> str:
        """Use a learner, keep the plain distance, or cannot tell: in a sentence."""
        return str(self.document["answer"]["text"])

    @property
    def best(self) -> str:
        """Name of the method to use: the recommended learner, or "reference"."""
        return str(self.document["best"])

    @property
    def table(self) -> Any:
        """A pandas DataFrame with a row for each method; needs pandas."""
        pandas = require("pandas", "app")
        frame = pandas.DataFrame(self._rows())
        return frame.set_index("method")

    @property
    def folds(self) -> Any:
        """A pandas DataFrame with a row for each method and fold; needs pandas."""
        pandas = require("pandas", "app")
        folds = self.document["folds"]
        keys = ("error", "inner_error", "setting", "k", "fit_seconds", "tune_seconds", "peak_mb")
        return pandas.DataFrame(
            [
                {
                    "method": method["name"],
                    "repeat": folds[result["fold"]]["repeat"],
                    "fold": folds[result["fold"]]["fold"],
                    **{key: result[key] for key in keys},
                }
                for method in self.document["methods"]
                for result in method["results"]
            ]
        )

    @property
    def code(self) -> str:
        """Lines of scikit-learn that repeat the chosen pipeline."""
        return str(self.document["code"])

    def to_html(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the report, one self-contained file; needs jinja2.

        Parameters
        ----------
        path : str or path
            The file; it must not exist.
        force : bool, default=False
            Overwrite it if it does.
        """
        report = require("nearfar.report", "app")
        return Path(report.write(self.document, path, force=force))

    def to_json(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write every number: folds, errors, settings, seeds, versions.

        Parameters
        ----------
        path : str or path
            The file; it must not exist.
        force : bool, default=False
            Overwrite it if it does.
        """
        target = Path(path)
        if target.exists() and not force:
            raise FileExistsError(f"{target} exists; choose another name or pass force=True.")
        target.write_text(json.dumps(self.document, indent=1, allow_nan=False), encoding="utf-8")
        return target

    def _rows(self) -> list[dict[str, Any]]:
        keys = (
            "label",
            "role",
            "status",
            "error",
            "interval",
            "difference",
            "difference_interval",
            "p_holm",
            "recommended",
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

    def cells(self) -> list[tuple[dict[str, Any], list[str]]]:
        """The final table in words: each method's entry and its cells."""
        total = len(self.document["folds"])
        return [(method, _cells(method, total)) for method in self.document["methods"]]

    def __str__(self) -> str:
        data, protocol = self.document["data"], self.document["protocol"]
        lines = [data_line(data), *(f"Warning: {w['text']}" for w in self.document["warnings"])]
        lines += ["", f"{protocol['measure'].capitalize()} on held-out rows; {protocol['scheme']}."]
        rows = [list(_COLUMNS), *(cells for _, cells in self.cells())]
        lines += ["", *_aligned(rows), *footnotes(self.document)]
        lines += ["", *answer_lines(self.document)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        answer = self.document["answer"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in _COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for _, cells in self.cells()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in answer["notes"])
        warned = "".join(f"<li>{html.escape(w['text'])}</li>" for w in self.document["warnings"])
        return (
            f"<p><strong>{html.escape(answer['text'])}</strong></p><ul>{notes}</ul>"
            + (f"<p>Warnings</p><ul>{warned}</ul>" if warned else "")
            + f"<p>{html.escape(data_line(self.document['data']))}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def data_line(data: dict[str, Any]) -> str:
    """The data in one line."""
    counts = data["class_counts"]
    sizes = f"{min(counts):,} to {max(counts):,} rows each"
    text = (
        f"{data['name']}: {data['n_rows']:,} rows, {data['n_features']:,} features, "
        f"{len(counts):,} classes ({sizes})"
    )
    if data["test"]:
        text += f"; {data['test']['n_rows']:,} of the rows are the test set {data['test']['name']}"
    return text + "."


def answer_lines(document: dict[str, Any]) -> list[str]:
    """The answer and its notes."""
    answer = document["answer"]
    return [answer["text"], *(f"  - {note}" for note in answer["notes"])]


def footnotes(document: dict[str, Any]) -> list[str]:
    """What the marks in the table mean."""
    lines = []
    nested = document["nested"]
    if nested:
        chosen = ", ".join(f"{name} {count}×" for name, count in nested["chosen"].items())
        lines.append(
            f"Method chosen inside each training fold: {percent(nested['error'])} ({chosen})."
        )
    if any(method["not_converged"] for method in document["methods"]):
        lines.append("† did not converge in some folds.")
    if any(method["status"] == "unfinished" for method in document["methods"]):
        lines.append("… unfinished: fewer folds than planned.")
    return lines


def _cells(method: dict[str, Any], total: int) -> list[str]:
    marks = ("†" if method["not_converged"] else "") + (
        " …" if method["status"] == "unfinished" else ""
    )
    label = method["label"] + marks + (" (context)" if method["role"] == "context" else "")
    if method["recommended"]:
        label = "→ " + label
    if method["error"] is None:
        reason = method["reason"] or "no fold was done in time"
        return [label, f"{method['status']}: {reason}", *[""] * 7]
    interval, difference = method["interval"], method["difference_interval"]
    return [
        label,
        percent(method["error"]),
        "" if interval is None else f"{points(interval[0])} to {points(interval[1])}",
        "" if method["difference"] is None else points(method["difference"]),
        "" if difference is None else f"{points(difference[0])} to {points(difference[1])}",
        "" if method["p_holm"] is None else p_text(method["p_holm"]),
        f"{method['folds_done']}/{total}",
        "" if method["fit_seconds"] is None else f"{method['fit_seconds']:.2g}",
        "" if method["peak_mb"] is None else f"{method['peak_mb']:.0f}",
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    # A failed row's reason may be long: it does not widen the columns.
    widths = [
        max(len(row[i]) for row in rows if i == 0 or len(row[i]) <= 20) for i in range(len(rows[0]))
    ]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
