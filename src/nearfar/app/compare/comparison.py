"""The result of a comparison, as objects, tables and text."""

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
from nearfar.app.compare.methods import title_of
from nearfar.extras import import_optional
from nearfar.words import (
    capitalize_first,
    format_p_value,
    format_percent,
    format_points,
    format_seconds,
)

#: The document's entry of a method, and its cells in the table.
Row = tuple[dict[str, Any], list[str]]
#: A heading of the table, and the rows below it.
Block = tuple[str, list[Row]]
#: Number of characters of a line that fits every terminal.
NARROW = 80


class Comparison:
    """The result of :func:`nearfar.compare`.

    Attributes
    ----------
    document : dict
        The complete result as plain data, which :meth:`to_json` writes.
    """

    # Columns of `table` and of `folds`.
    _of_each_method = (
        "label role status error interval difference difference_interval p_holm recommended "
        "folds_done fit_seconds peak_mb not_converged reason"
    )
    _of_each_fold = "error inner_error setting k fit_seconds tune_seconds peak_mb"
    # The key of the measure, the heads of the columns with intervals, and the baseline's name.
    _measured, _heads, _baseline = "error", ("error", "gain"), "the baseline"
    # Headings of the table, with the roles of the methods below each.
    _blocks: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("Learned distances", ("learner",)),
        ("Standard distances", ("reference", "baseline")),
        ("Other classifiers (for context)", ("context",)),
    )

    def __init__(self, document: dict[str, Any], *, complete: bool = True) -> None:
        self.document = document
        #: False if a method did not finish and the journal can be resumed.
        self.complete = complete
        #: The pipeline to use, as most folds selected it; None if no fold was completed.
        self.chain: Chain | None = None
        #: The function that writes the report; the caller sets it.
        self.write_page: Callable[..., Path] | None = None

    @property
    def answer(self) -> str:
        """The answer as text, which begins with "Use", "Keep" or "Inconclusive"."""
        return str(self.document["answer"]["text"])

    @property
    def verdict(self) -> str:
        """The verdict: "use" (a learner), "keep" (the standard distance) or "inconclusive"."""
        return str(self.document["answer"]["verdict"])

    @property
    def best(self) -> str:
        """Name of the method to use: the recommended learner, or "reference" (the baseline)."""
        return str(self.document["best"])

    @property
    def table(self) -> Any:
        """A pandas DataFrame with one row per method; needs pandas."""
        pandas = import_optional("pandas", "app")
        frame = pandas.DataFrame(self._rows())
        return frame.set_index("method")

    @property
    def folds(self) -> Any:
        """A pandas DataFrame with one row per method and fold; needs pandas."""
        pandas = import_optional("pandas", "app")
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
        """Python code that rebuilds the selected pipeline with scikit-learn."""
        return str(self.document["code"])

    def pipeline(self) -> Pipeline:
        """Return the recommended pipeline, unfitted: preprocessing, scaling, learner, neighbors.

        Setting and k are those that most folds selected. If the verdict is "keep" or
        "inconclusive", it is the pipeline of the standard distance.
        """
        return self._chain().pipeline()

    def fit(self, X: Any, y: Any = None) -> Pipeline:
        """Fit the recommended pipeline, see :meth:`pipeline`, to all rows.

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
            raise ValueError("There is no pipeline to use: no fold was completed.")
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

    def cells(self, *, wide: bool = True) -> tuple[list[str], list[Block]]:
        """Return the table as text: its head, and blocks of methods sorted by error.

        Methods without numbers are not included: see :meth:`failures`. A narrow table has five
        columns and fits into 80 characters; :meth:`costs` reports the other numbers.
        """
        level = f"({100 * self.document['protocol']['confidence']:g}% CI)"
        head = ["method", *(f"{name} {level}" for name in self._heads), *self._others({})]
        n_columns = len(head) if wide else 5
        methods = [method for method in self.document["methods"] if _has_numbers(method)]
        numbers = [self._numbers(method)[: n_columns - 1] for method in methods]
        widths = [max(map(len, column)) for column in zip(head[1:n_columns], *numbers, strict=True)]
        # Columns are at least one character apart.
        room = 60 if wide else NARROW - sum(widths) - len(widths)
        rows = [
            (method, [self._first_cell(method, room), *cells])
            for method, cells in zip(methods, numbers, strict=True)
        ]
        blocks = [
            (title, [row for row in rows if row[0]["role"] in roles])
            for title, roles in self._blocks
        ]
        return head[:n_columns], [block for block in blocks if block[1]]

    def _first_cell(self, method: dict[str, Any], room: int) -> str:
        marks = "†" * bool(method["not_converged"]) + " …" * (method["status"] == "unfinished")
        arrow = "→ " * bool(method["recommended"])
        label = title_of(method["label"], method["role"])
        return arrow + cut_label(label, room - len(arrow + marks)) + marks

    def _numbers(self, method: dict[str, Any]) -> list[str]:
        return [
            with_interval(method[self._measured], method["interval"]),
            with_interval(method["gain"], method["gain_interval"]),
            *self._others(method).values(),
        ]

    def _others(self, method: dict[str, Any]) -> dict[str, str]:
        """Return the cells without intervals by head; for an empty entry, the keys matter only."""
        p, peak = method.get("p_holm"), method.get("peak_mb")
        return {
            "adj. p": "" if p is None else format_p_value(p).replace("< ", "<"),
            "folds": f"{method.get('folds_used')}/{len(self.document['folds'])}",
            "fit s": fit_seconds(method),
            "MB": "" if peak is None else f"{peak:.0f}",
        }

    def table_lines(self, *, wide: bool = False) -> list[tuple[dict[str, Any] | None, str]]:
        """Return the lines of the table, each with the entry of its method.

        The head has no entry (None), and neither have the headings and empty lines of blocks.
        """
        head, blocks = self.cells(wide=wide)
        every = [head, *(cells for _, rows in blocks for _, cells in rows)]
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        fits = wide or sum(widths) + 2 * (len(widths) - 1) <= NARROW
        gap = " " * (2 if fits else 1)
        lines: list[tuple[dict[str, Any] | None, str]] = [(None, _aligned(head, widths, gap))]
        for title, rows in blocks:
            lines += [(None, ""), (None, title)]
            lines += [(method, _aligned(cells, widths, gap)) for method, cells in rows]
        return lines

    def failures(self) -> list[str]:
        """Return a line for each method without valid numbers, with the reason."""
        total = len(self.document["folds"])
        return [_failure(m, total) for m in self.document["methods"] if not _has_numbers(m)]

    def costs(self) -> str:
        """Return one line with the fit time and the memory of the methods."""
        parts = [
            f"{method['label']} {fit_seconds(method)} s"
            + (f" ({method['peak_mb']:.0f} MB)" if method["peak_mb"] is not None else "")
            for method in self.document["methods"]
            if method["role"] in ("reference", "learner") and _has_numbers(method)
        ]
        what = "Fit time (peak memory)" if any("MB" in part for part in parts) else "Fit time"
        return f"{what}: {', '.join(parts)}." if parts else ""

    def measured_line(self) -> str:
        """Return what the numbers of the table are, in which units, and by which folds."""
        protocol, noun = self.document["protocol"], self.document["data"].get("unit", "row")
        measure = capitalize_first(protocol["measure"])
        where = "" if "held-out" in measure else f" on held-out {noun}s"
        gain = f"gain over {self._baseline} in percentage points"
        return f"{measure}{where} in percent, {gain}. {capitalize_first(protocol['scheme'])}."

    def notes(self) -> list[str]:
        """Return the notes that belong to the answer."""
        return [str(note) for note in self.document["answer"]["notes"]]

    def summary_text(self, *, data: bool = True) -> str:
        """Return everything except the answer: data, warnings, table, footnotes and notes.

        Parameters
        ----------
        data : bool, default=True
            Include the description of the data and the warnings about them.
        """
        lines = []
        if data:
            lines = [
                data_line(self.document["data"]),
                *(f"Warning: {w['text']}" for w in self.document["warnings"]),
                "",
            ]
        lines += [self.measured_line(), ""]
        lines += [line for _, line in self.table_lines()]
        below = [*self.failures(), self.costs(), *footnotes(self.document)]
        lines += ["", *(line for line in below if line)] if any(below) else []
        lines += ["", *(f"- {note}" for note in self.notes())] if self.notes() else []
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.summary_text()}\n\n{self.answer}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names, blocks = self.cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = ""
        for title, rows in blocks:
            body += f"<tr><th colspan={len(names)}>{html.escape(title)}</th></tr>"
            for _, cells in rows:
                row = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
                body += f"<tr>{row}</tr>"
        body += "".join(
            f"<tr><td colspan={len(names)}>{html.escape(line)}</td></tr>"
            for line in self.failures()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes())
        warned = "".join(f"<li>{html.escape(w['text'])}</li>" for w in self.document["warnings"])
        return (
            f"<p><strong>{html.escape(self.answer)}</strong></p><ul>{notes}</ul>"
            + (f"<p>Warnings</p><ul>{warned}</ul>" if warned else "")
            + f"<p>{html.escape(data_line(self.document['data']))} "
            f"{html.escape(self.measured_line())}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def data_line(data: dict[str, Any]) -> str:
    """Return a description of the data in one line."""
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


def footnotes(document: dict[str, Any]) -> list[str]:
    """Return the lines below the table: the error of the selected method, costs and marks."""
    lines = []
    nested, methods = document["nested"], document["methods"]
    if any(method["p_holm"] is not None for method in methods):
        lines.append("adj. p: one-sided p of the gain, adjusted for the number of methods (Holm).")
    if nested:
        value = nested.get("auc", nested["error"])
        chosen = ", ".join(f"{name} {count}×" for name, count in nested["chosen"].items())
        lines.append(
            f"Method selected within each training fold: {format_percent(value)} ({chosen})."
        )
    lines += filter(None, [document["protocol"].get("units")])
    slower = [m for m in methods if (m.get("times_plain") or 0) > 0 and _has_numbers(m)]
    if slower:
        times = ", ".join(
            f"{method['label']} {times_text(method['times_plain'])}" for method in slower
        )
        lines.append(f"Prediction time relative to standard k-NN: {times}.")
    kernels = document.get("kernels", {})
    lines += [
        kernels_line(method["label"], kernels[method["name"]])
        for method in methods
        if method["name"] in kernels and _has_numbers(method)
    ]
    if any(method["not_converged"] for method in methods):
        lines.append("† did not converge in some folds.")
    if any(method["status"] == "unfinished" for method in methods):
        lines.append("… unfinished: fewer folds than planned.")
    return lines


def times_text(times: float) -> str:
    """Return how much longer something takes, with one digit.

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
    """Return why a method has no valid numbers."""
    done, label = method["folds_done"], title_of(method["label"], method["role"])
    if method["status"] == "failed":
        after = f" after {done} of {total} folds" if done else ""
        return f"{label} failed{after}: {method['reason'] or 'unknown reason'}"
    return f"{label} {method['status']}: {method['reason'] or 'no fold was completed in time'}"


def cut_label(text: str, room: int) -> str:
    """Return a label that fits into its column."""
    return text if len(text) <= room else text[: room - 2] + ".."


def with_interval(value: float | None, interval: list[float] | None) -> str:
    """Return a fraction in percent with its interval in parentheses.

    >>> with_interval(-0.012, [-0.03, 0.006]), with_interval(0.039, None), with_interval(None, None)
    ('−1.2 (−3.0 to 0.6)', '3.9', '')
    """
    if value is None:
        return ""
    if interval is None:
        return format_points(value)
    return f"{format_points(value)} ({format_points(interval[0])} to {format_points(interval[1])})"


def fit_seconds(method: dict[str, Any]) -> str:
    """Return the median seconds of a fit without a unit.

    >>> [fit_seconds({"fit_seconds": seconds}) for seconds in (0.00004, 0.032, 1234.5, None)]
    ['< 0.001', '0.032', '1,234', '']
    """
    seconds = method.get("fit_seconds")
    return "" if seconds is None else format_seconds(seconds).removesuffix(" s")


def _aligned(cells: list[str], widths: list[int], gap: str) -> str:
    """Return a line of the table: the first cell to the left, numbers to the right."""
    padded = [cells[0].ljust(widths[0])]
    padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return gap.join(padded).rstrip()
