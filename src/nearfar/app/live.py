"""Progress and results in a terminal with color, as a table that fills. Needs rich."""

from __future__ import annotations

from math import log
from time import monotonic
from typing import Any

from nearfar.app.compare.comparison import NARROW, Comparison, footnotes
from nearfar.app.progress import FitProgress, Progress, step_words
from nearfar.extras import import_optional

_VERDICT_STYLE = {"use": "bold green", "keep": "bold cyan", "inconclusive": "bold yellow"}


class LiveProgress(Progress):
    """A live table: a row for each method with its bar and its error so far."""

    every = 0.25

    def __init__(self, budget: float | None) -> None:
        self._console = import_optional("rich.console", "app").Console(stderr=True)
        self._live: Any = None
        self._budget, self._began = budget, monotonic()
        self._rows: dict[str, dict[str, Any]] = {}
        self._n_folds = 0

    def say(self, line: str) -> None:
        """Print the line above the table."""
        style = "yellow" if line.startswith("Warning") else None
        self._console.print(line, style=style, highlight=False, markup=False)

    def begin(self, methods: list[tuple[str, str, str]], n_folds: int) -> None:
        """Start the table."""
        self._n_folds = n_folds
        self._rows = {
            name: {"label": label, "role": role, "done": 0, "error": None, "state": ""}
            for name, label, role in methods
        }
        live = import_optional("rich.live", "app")
        self._live = live.Live(
            self._table(), console=self._console, refresh_per_second=4, transient=True
        )
        self._live.start()

    def more(self, n_folds: int) -> None:
        """Lengthen the bars."""
        self._n_folds = n_folds

    def working(self, method: str) -> None:
        """Mark the method as running."""
        if method in self._rows:
            self._rows[method]["state"] = "running"
            self._show()

    def fold_done(self, method: str, n_done: int, error: float) -> None:
        """Move its bar."""
        if method in self._rows:
            row = self._rows[method]
            row["done"], row["error"], row["state"] = n_done, error, ""
            self._show()

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """Say how it ended."""
        if method in self._rows:
            self._rows[method]["state"] = status if reason is None else f"{status}: {reason[:60]}"
            self._show()

    def tick(self) -> None:
        """Keep the clock going."""
        self._show()

    def close(self) -> None:
        """Take the table away: the final one follows."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Any:
        table = import_optional("rich.table", "app").Table(box=None, pad_edge=False)
        bar = import_optional("rich.progress_bar", "app").ProgressBar
        spent = monotonic() - self._began
        limit = "" if self._budget is None else f" of {self._budget:g}"
        table.add_column(f"{spent:.0f}{limit} s")
        table.add_column("folds", min_width=20)
        table.add_column("")
        table.add_column(self.measure, justify="right")
        table.add_column("", no_wrap=True, overflow="ellipsis")
        for row in self._rows.values():
            error = "" if row["error"] is None else f"{100 * row['error']:.1f}%"
            style = "red" if row["state"].startswith("failed") else "dim"
            label = _plain(row["label"])
            label = label if row["role"] == "learner" else f"[dim]{label}[/dim]"
            table.add_row(
                label,
                bar(total=max(1, self._n_folds), completed=row["done"], width=20),
                f"{row['done']}/{self._n_folds}",
                error,
                f"[{style}]{_plain(row['state'])}[/{style}]",
            )
        return table


class LiveFit(FitProgress):
    """A bar that fills as the gap closes, with gap and residual beside it."""

    def __init__(self) -> None:
        self._console = import_optional("rich.console", "app").Console(stderr=True)
        self._live: Any = None
        self._label, self._words, self._share = "", "", 0.0
        self._tol: float | None = None
        self._began = monotonic()

    def say(self, line: str) -> None:
        """Print the line above the bar."""
        self._console.print(line, highlight=False, markup=False)

    def begin(self, label: str, n_rows: int, tol: float | None, noun: str = "row") -> None:
        """Start the bar."""
        self._label, self._tol, self._began = label, tol, monotonic()
        live = import_optional("rich.live", "app")
        self._live = live.Live(
            get_renderable=self._line, console=self._console, refresh_per_second=4, transient=True
        )
        self._live.start()

    def step(self, row: dict[str, Any]) -> None:
        """Move the bar: to its end at a gap of ``tol``, on a scale of powers of ten."""
        self._words = step_words(row)
        share = 0.0
        if "of" in row:
            share = row["n_iter"] / max(1, row["of"])
        elif 0 < row["gap"] < 1 and self._tol is not None and self._tol < 1:
            share = log(row["gap"]) / log(self._tol)
        elif row["gap"] <= 0:
            share = 1.0
        self._share = min(1.0, share)

    def close(self) -> None:
        """Take the bar away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self) -> Any:
        grid = import_optional("rich.table", "app").Table.grid(padding=(0, 2))
        bar = import_optional("rich.progress_bar", "app").ProgressBar
        known = bool(self._words)
        grid.add_row(
            f"[bold]{_plain(self._label)}[/bold]",
            bar(total=1.0 if known else None, completed=self._share, pulse=not known, width=28),
            f"{monotonic() - self._began:.0f} s",
            f"[dim]{_plain(self._words)}[/dim]",
        )
        return grid


def show(comparison: Comparison, console: Any = None) -> None:
    """Print the table, its footnotes and the notes, in color. The answer follows separately."""
    console = _console() if console is None else console

    def line(text: str, style: str | None = None, *, soft: bool = False) -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=soft)

    wide = console.width > NARROW + 20
    line(f"\n{comparison.measured_line()}\n")
    for number, (method, text) in enumerate(comparison.table_lines(wide=wide)):
        line(text, _line_style(method, is_head=number == 0), soft=True)
    line("")
    for text in comparison.failures():
        line(text, "red")
    for text in (*([] if wide else [comparison.costs()]), *footnotes(comparison.document)):
        line(text, "dim")
    if comparison.notes():
        line("")
    for text in comparison.notes():
        line(f"- {text}")


def show_answer(comparison: Comparison, console: Any = None) -> None:
    """Print the answer in the color of its verdict."""
    console = _console() if console is None else console
    style = _VERDICT_STYLE[comparison.verdict]
    console.print(comparison.answer, style=style, highlight=False, markup=False)


def _console() -> Any:
    return import_optional("rich.console", "app").Console()


def _line_style(method: dict[str, Any] | None, *, is_head: bool) -> str | None:
    """Return the style of a line of the table: of its head, of a heading, or of a method."""
    if method is None:
        return "bold" if is_head else "italic"
    if method["recommended"]:
        return "bold green"
    return {"reference": "bold", "context": "dim", "baseline": "dim"}.get(method["role"])


def _plain(text: str) -> str:
    escape: Any = import_optional("rich.markup", "app").escape
    return str(escape(text))
