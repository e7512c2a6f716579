"""The result of a comparison: what is asked of it, and how it shows itself."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from nearfar.app.compare.chain import Chain
from nearfar.app.compare.kernel_shares import kernels_line
from nearfar.extras import require
from nearfar.words import p_text, percent, points, seconds_text

Row = tuple[dict[str, Any], list[str]]
#: Characters of a line that always fit.
NARROW = 80


class Comparison:
    """What :func:`nearfar.compare` found.

    Attributes
    ----------
    document : dict
        Everything, as plain data; what :meth:`to_json` writes.
    """

    # Keys of a method, and of its results, that the tables of pandas have.
    _of_each_method = (
        "label role status error interval difference difference_interval p_holm recommended "
        "folds_done fit_seconds peak_mb not_converged reason"
    )
    _of_each_fold = "error inner_error setting k fit_seconds tune_seconds peak_mb"
    # What ranks, the heads of the numbers with intervals, and the widest label that leaves room
    # for them in a narrow table.
    _measured, _heads, _label = "error", ("error %", "gain"), 24

    def __init__(self, document: dict[str, Any], *, complete: bool = True) -> None:
        self.document = document
        #: Whether every method ended by itself; if not, a journal can go on.
        self.complete = complete
        #: What is to be used, as most folds chose it; None where no fold was done.
        self.chain: Chain | None = None
        #: Who draws the document; a page is made above, never asked for from here.
        self.write_page: Callable[..., Path] | None = None

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
        return pandas.DataFrame(
            [
                {
                    "method": method["name"],
                    "repeat": folds[result["fold"]]["repeat"],
                    "fold": folds[result["fold"]]["fold"],
                    **{key: result[key] for key in self._of_each_fold.split()},
                }
                for method in self.document["methods"]
                for result in method["results"]
            ]
        )

    @property
    def code(self) -> str:
        """Lines of scikit-learn that repeat the chosen pipeline."""
        return str(self.document["code"])

    def pipeline(self) -> Pipeline:
        """The recommended chain, not yet fitted: preprocessing, scaling, learner, neighbours.

        Setting and k are those that most folds chose. Where the answer is to keep the plain
        distance, or that one cannot tell, it is the chain of the plain distance.
        """
        return self._chain().pipeline()

    def fit(self, X: Any, y: Any = None) -> Pipeline:
        """Fit the recommended chain, see :meth:`pipeline`, to all rows.

        Parameters
        ----------
        X : as in :func:`nearfar.compare`
            Rows with the columns that were compared.
        y : array-like of shape (n_samples,)
            Their labels; None for embeddings.

        Returns
        -------
        Pipeline
            Fitted; :func:`nearfar.save` writes it into a file. Of images it takes flat rows.
        """
        return self._chain().fit(X, y)

    def _chain(self) -> Chain:
        if self.chain is None:
            raise ValueError("There is no chain to use: not a single fold was done.")
        return self.chain

    def to_html(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the report, one self-contained file; needs jinja2.

        Parameters
        ----------
        path : str or path
            The file; it must not exist.
        force : bool, default=False
            Overwrite it if it does.
        """
        if self.write_page is None:
            raise RuntimeError("This result was made without a writer of pages; use to_json.")
        return self.write_page(self.document, path, force=force)

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
        columns = self._of_each_method.split()
        return [
            {"method": method["name"], **{key: method[key] for key in columns}}
            for method in self.document["methods"]
        ]

    def cells(self, *, wide: bool = True) -> tuple[list[str], list[Row]]:
        """The final table in words: its head, and the entry and cells of each method.

        Each number stands with its interval. What failed is not here: see :meth:`failures`. A
        narrow table fits into 80 columns; it has five, see :meth:`costs`.
        """
        level = f"[{100 * self.document['protocol']['confidence']:g} %]"
        rows = [
            (method, self._cells(method, 60 if wide else self._label))
            for method in self.document["methods"]
            if _has_numbers(method)
        ]
        head = ["method", *(f"{name} {level}" for name in self._heads), *self._others({})]
        many = len(head) if wide else 5
        return head[:many], [(method, cells[:many]) for method, cells in rows]

    def _cells(self, method: dict[str, Any], room: int) -> list[str]:
        marks = "*" * (method["role"] == "context") + "†" * bool(method["not_converged"])
        marks += " …" * (method["status"] == "unfinished")
        arrow = "→ " * bool(method["recommended"])
        return [
            arrow + cut_label(method["label"], room - len(arrow + marks)) + marks,
            with_interval(method[self._measured], method["interval"]),
            with_interval(method["gain"], method["gain_interval"]),
            *self._others(method).values(),
        ]

    def _others(self, method: dict[str, Any]) -> dict[str, str]:
        """Cells without intervals by their heads; of no method, the heads."""
        p, peak = method.get("p_holm"), method.get("peak_mb")
        return {
            "Holm p": "" if p is None else p_text(p).replace("< ", "<"),
            "folds": f"{method.get('folds_used')}/{len(self.document['folds'])}",
            "fit s": fit_seconds(method),
            "MB": "" if peak is None else f"{peak:.0f}",
        }

    def failures(self) -> list[str]:
        """A line for each method without numbers that count, with its reason."""
        total = len(self.document["folds"])
        return [_failure(m, total) for m in self.document["methods"] if not _has_numbers(m)]

    def costs(self) -> str:
        """Seconds and memory of the methods in one line."""
        parts = [
            f"{method['label']} {fit_seconds(method)} s"
            + (f", {method['peak_mb']:.0f} MB" if method["peak_mb"] is not None else "")
            for method in self.document["methods"]
            if method["role"] in ("reference", "learner") and _has_numbers(method)
        ]
        return f"One fit: {'; '.join(parts)}." if parts else ""

    def __str__(self) -> str:
        lines = [
            data_line(self.document["data"]),
            *(f"Warning: {w['text']}" for w in self.document["warnings"]),
        ]
        lines += ["", measured_line(self.document)]
        head, rows = self.cells(wide=False)
        lines += ["", *_aligned([head, *(cells for _, cells in rows)]), *self.failures()]
        lines += [line for line in (self.costs(), *footnotes(self.document)) if line]
        lines += ["", *answer_lines(self.document)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        answer = self.document["answer"]
        names, rows = self.cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for _, cells in rows
        )
        body += "".join(
            f"<tr><td colspan={len(names)}>{html.escape(line)}</td></tr>"
            for line in self.failures()
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
    what = f"{data.get('unit', 'row')}s"
    text = f"{data['name']}: {data['n_rows']:,} {what}{data.get('of', '')}"
    text += f", {data['n_features']:,} features"
    if counts:
        least, most = min(counts), max(counts)
        sizes = f"{f'{least:,} to ' * (least < most)}{most:,} {what} each"
        text += f", {len(counts):,} classes ({sizes})"
    text += f", {data['goal']}" if data.get("goal") else ""
    if data["test"]:
        text += (
            f"; {data['test']['n_rows']:,} of the {what} are the test set {data['test']['name']}"
        )
    return text + "."


def measured_line(document: dict[str, Any]) -> str:
    """What the numbers of the table are, and by which folds.

    >>> protocol = {"measure": "AUC of held-out pairs", "scheme": "5-fold"}
    >>> measured_line({"protocol": protocol, "data": {"unit": "pair"}})
    'AUC of held-out pairs; 5-fold.'
    """
    measure, noun = document["protocol"]["measure"], document["data"].get("unit", "row")
    where = "" if "held-out" in measure else f" on held-out {noun}s"
    return f"{measure[0].upper()}{measure[1:]}{where}; {document['protocol']['scheme']}."


def answer_lines(document: dict[str, Any]) -> list[str]:
    """The answer and its notes."""
    answer = document["answer"]
    return [answer["text"], *(f"  - {note}" for note in answer["notes"])]


def footnotes(document: dict[str, Any]) -> list[str]:
    """What stands below the table: the chosen method's error, and what the marks mean."""
    lines = []
    nested, methods = document["nested"], document["methods"]
    if nested:
        value = nested.get("auc", nested["error"])
        chosen = ", ".join(f"{name} {count}×" for name, count in nested["chosen"].items())
        lines.append(f"Method chosen inside each training fold: {percent(value)} ({chosen}).")
    lines += filter(None, [document["protocol"].get("units")])
    dear = [m for m in methods if (m.get("times_plain") or 0) > 0 and _has_numbers(m)]
    if dear:
        said = "; ".join(
            f"{method['label']} {times_text(method['times_plain'])}" for method in dear
        )
        lines.append(f"To predict, against plain k-NN: {said}.")
    kernels = document.get("kernels", {})
    lines += [
        kernels_line(method["label"], kernels[method["name"]])
        for method in methods
        if method["name"] in kernels and _has_numbers(method)
    ]
    marks = []
    if any(method["role"] == "context" for method in methods):
        marks.append("* no distance, for context")
    if any(method["not_converged"] for method in methods):
        marks.append("† did not converge in some folds")
    if any(method["status"] == "unfinished" for method in methods):
        marks.append("… unfinished: fewer folds than planned")
    return [*lines, "; ".join(marks) + "."] if marks else lines


def times_text(times: float) -> str:
    """How much longer something takes.

    >>> times_text(234.0), times_text(23.4), times_text(2.34), times_text(1.1)
    ('about 200 times as long', 'about 20 times as long', 'about twice as long', 'hardly longer')
    """
    # One digit: more would not be the same in the next run.
    rounded = float(f"{times:.0e}")
    if rounded < 2:
        return "hardly longer"
    return f"about {'twice' if rounded == 2 else f'{rounded:,.0f} times'} as long"


def _has_numbers(method: dict[str, Any]) -> bool:
    return method["error"] is not None and method["status"] != "failed"


def _failure(method: dict[str, Any], total: int) -> str:
    """Why there is nothing, or nothing that counts."""
    done = method["folds_done"]
    if method["status"] == "failed":
        after = f" after {done} of {total} folds" if done else ""
        return f"{method['label']} failed{after}: {method['reason'] or 'no reason is known'}"
    return f"{method['label']} {method['status']}: {method['reason'] or 'no fold done in time'}"


def cut_label(text: str, room: int) -> str:
    """A label that fits into its column."""
    return text if len(text) <= room else text[: room - 2] + ".."


def with_interval(value: float | None, interval: list[float] | None) -> str:
    """A share in percent with its interval in brackets."""
    if value is None:
        return ""
    if interval is None:
        return points(value)
    return f"{points(value)} [{points(interval[0])}, {points(interval[1])}]"


def fit_seconds(method: dict[str, Any]) -> str:
    """Median seconds of a fit, short.

    >>> [fit_seconds({"fit_seconds": seconds}) for seconds in (0.00004, 0.032, 1234.5, None)]
    ['< 0.001', '0.032', '1,234', '']
    """
    seconds = method.get("fit_seconds")
    return "" if seconds is None else seconds_text(seconds).removesuffix(" s")


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
