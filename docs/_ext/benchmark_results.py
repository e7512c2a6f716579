"""The tables of ``benchmarks/results`` as the page of benchmarks shows them: pictures of ratios.

Nothing here is typed: what the page says is read from the Markdown files that the benchmarks write.
A file that compares times has an entry in ``COMPARED``; the others are shown as tables only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape
from math import ceil, exp, floor, log, log10
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
Row = dict[str, str]

WIDTH, LABELS, ROW, TOP, RIGHT = 800, 400, 19, 30, 60
FASTER, SLOWER = "#0072B2", "#D55E00"
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "font-size:12px;fill:#222}.scale{fill:#555;font-size:11px}"
)


class Document(NamedTuple):
    """A file of results: its name, title, what it says before its tables, and these."""

    name: str
    title: str
    notes: list[str]
    tables: list[list[Row]]


class Compared(NamedTuple):
    """How a table compares times: the column, and what a row is called."""

    #: Of the peer's time over ours, or with ``inverse`` of ours over the peer's. With ``ours``, of
    #: seconds, which are divided by those of the row of the same work that ``ours`` knows.
    column: str
    work: tuple[str, ...]
    who: str
    inverse: bool = False
    #: Rows that are ours, or of other work, for a scale: by how their names begin.
    besides: tuple[str, ...] = ("nearfar",)
    ours: Callable[[Row], bool] | None = None


def is_nearfar(who: str) -> Callable[[Row], bool]:
    """Whether a row is that of nearfar at its defaults."""
    return lambda row: row[who] == "nearfar"


COMPARED = {
    "foundation": Compared("nearfar / peer", ("case", "threads"), "peer", inverse=True),
    "lmnn": Compared("wall s", ("case",), "contender", ours=is_nearfar("contender")),
    "nca": Compared(
        "CPU s",
        ("case",),
        "contender",
        besides=("nearfar", "brute search"),
        ours=is_nearfar("contender"),
    ),
    "pairs": Compared("CPU / ours", ("case",), "contender"),
    "peers": Compared("CPU / ours", ("method",), "who"),
    "spectral": Compared("times faster", ("nearfar", "data"), "scikit-learn"),
    "manifold": Compared(
        "wall s", ("n", "edges"), "contender", ours=lambda row: row["contender"].startswith("`")
    ),
    "distributions": Compared("times faster", ("work", "threads"), "beside"),
    "tensors": Compared("ours is faster by", ("case",), "contender"),
    "tensor_classifiers": Compared("ours is faster by", ("case",), "contender"),
    "kernels": Compared("of ours", ("case",), "who", besides=("sum + SVC",)),
    "gabor": Compared("times ours", (), "call", besides=("`GaborFeatures",)),
    "local": Compared("times faster", ("work",), ""),
}


class Ratio(NamedTuple):
    """How many times as long a peer takes: the mean over some runs, and the extremes."""

    label: str
    mean: float
    least: float
    most: float
    n_runs: int


def documents() -> list[Document]:
    """All files of results: first those that compare, in the order above."""
    names = sorted(path.stem for path in RESULTS.glob("*.md"))
    first = [name for name in COMPARED if name in names]
    return [read(name) for name in [*first, *(name for name in names if name not in first)]]


def read(name: str) -> Document:
    """One file."""
    title, notes, tables = "", [], list[list[Row]]()
    head: list[str] = []
    for line in (RESULTS / f"{name}.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("# ") and not title:
            title = line[2:]
        elif not line.startswith("|"):
            head = []
            notes += [line] if line else []
        elif set(line) <= set("|-: "):
            continue
        elif not head:
            head = cells
            tables.append([])
        else:
            cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
            tables[-1].append(dict(zip(head, cells, strict=True)))
    return Document(name, title, notes, tables)


def ratios(document: Document) -> list[Ratio]:
    """What a file compares, in its order; ratios of one name are averaged geometrically."""
    how = COMPARED.get(document.name)
    found: dict[str, list[float]] = {}
    for table in document.tables if how else []:
        assert how is not None
        ours = {}
        if how.ours is not None:
            for row in table:
                if how.ours(row) and _number(row[how.column]):
                    ours.setdefault(_work(row, how), _number(row[how.column]))
        for row in table:
            who = row.get(how.who, "")
            if row.get(how.column) == "1":  # ours
                continue
            value = _number(row.get(how.column, ""))
            if how.ours is not None:
                mine = ours.get(_work(row, how))
                value = value / mine if value and mine and not how.ours(row) else None
            if not value or who.startswith(how.besides):
                continue
            label = ": ".join(filter(None, [_work(row, how), who])).replace("`", "")
            found.setdefault(label, []).append(1 / value if how.inverse else value)
    return [
        Ratio(label, exp(sum(map(log, many)) / len(many)), min(many), max(many), len(many))
        for label, many in found.items()
    ]


def _work(row: Row, how: Compared) -> str:
    parts = [row[name] if len(name) > 2 else f"{name} = {row[name]}" for name in how.work]
    if "threads" in how.work:
        parts[how.work.index("threads")] += " threads"
    return ", ".join(parts)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


# ---------------------------------------------------------------------- what is shown


def picture(title: str, found: list[Ratio]) -> str:
    """Bars from 1, on a scale of powers of ten: to the right where nearfar is faster."""
    low = floor(min(0.0, *(log10(one.least) for one in found)) * 2) / 2
    high = ceil(max(0.5, *(log10(one.most) for one in found)) * 2) / 2
    height = TOP + ROW * len(found) + 8

    def at(value: float) -> float:
        return LABELS + (log10(value) - low) / (high - low) * (WIDTH - LABELS - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="100%" style="max-width:{WIDTH}px;background:#fff" role="img">'
        f"<title>{escape(title)}: how many times as long the others take</title>"
        f"<style>{STYLE}</style>"
    ]
    for power in range(ceil(low), floor(high) + 1):
        x = at(10.0**power)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 4}" '
            f'stroke="{"#222" if power == 0 else "#ddd"}"/>'
            f'<text class="scale" x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">'
            f"{10.0**power:g}×</text>"
        )
    for k, one in enumerate(found):
        y = TOP + ROW * k
        left, right = sorted((at(1.0), at(one.mean)))
        color = FASTER if one.mean >= 1 else SLOWER
        runs = f", {one.n_runs} runs from {one.least:.3g} to {one.most:.3g}" * (one.n_runs > 1)
        parts.append(
            f"<g><title>{escape(one.label)}: {one.mean:.3g}{runs}</title>"
            f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(_short(one.label))}'
            f'</text><rect x="{left:.1f}" y="{y + 3}" width="{max(right - left, 1):.1f}" '
            f'height="{ROW - 7}" fill="{color}"/>'
        )
        if one.n_runs > 1:
            parts.append(
                f'<line x1="{at(one.least):.1f}" x2="{at(one.most):.1f}" y1="{y + ROW / 2 - 0.5}" '
                f'y2="{y + ROW / 2 - 0.5}" stroke="#222"/>'
            )
        parts.append(
            f'<text class="scale" x="{max(right, at(one.most)) + 5:.1f}" y="{y + 13}">'
            f"{_said(one.mean)}</text></g>"
        )
    return "".join([*parts, "</svg>"])


def _short(label: str) -> str:
    """With both ends: the work stands first, who does it last."""
    return label if len(label) <= 58 else f"{label[:34]}…{label[-23:]}"


def _said(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def summary(found: Iterable[Document]) -> list[Ratio]:
    """All that a file compares, as one bar."""
    bars = []
    for document in found:
        many = [one.mean for one in ratios(document)]
        if many:
            mean = exp(sum(map(log, many)) / len(many))
            bars.append(Ratio(document.title, mean, min(many), max(many), len(many)))
    return bars


def html_of(document: Document) -> str:
    """What a file says, its picture and its tables, as HTML."""
    parts, points = [], list[str]()
    for line in [*document.notes, ""]:
        if line.startswith("- "):
            points.append(f"<li>{_inline(line[2:])}</li>")
            continue
        if points:
            parts.append(f"<ul>{''.join(points)}</ul>")
            points = []
        if line:
            parts.append(f"<p>{_inline(line.lstrip('# '))}</p>")
    parts.append(f"<p>Made again by <code>{escape(command(document))}</code>.</p>")
    found = ratios(document)
    parts += [picture(document.title, found)] if found else []
    parts += [path.read_text("utf-8") for path in _drawn(document.name)]
    for table in document.tables:
        head = "".join(f"<th>{_inline(name)}</th>" for name in table[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row.values()) + "</tr>"
            for row in table
        )
        parts.append(
            f"<details><summary>All {len(table)} rows</summary><div style='overflow-x:auto'>"
            f"<table class='table'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            "</div></details>"
        )
    return "\n".join(parts)


def command(document: Document) -> str:
    """What makes the results again: as the file says, or the script that its name begins with."""
    said = re.search(r"`(python benchmarks/[^`]*)`", " ".join(document.notes))
    if said:
        return said.group(1)
    scripts = {path.stem: path.name for path in RESULTS.parent.glob("*.py")}
    named = [stem for stem in scripts if document.name.startswith(stem)]
    named = named or [
        stem
        for stem in scripts
        if document.name in (RESULTS.parent / scripts[stem]).read_text("utf-8")
    ]
    return f"python benchmarks/{scripts[max(named, key=len)]}"


def _drawn(name: str) -> list[Path]:
    """Pictures that a benchmark itself has drawn."""
    taken = {path.stem for path in RESULTS.glob("*.md")} - {name}
    return [path for path in sorted(RESULTS.glob(f"{name}*.svg")) if path.stem not in taken]


def _inline(text: str) -> str:
    """Text with code between backticks."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))
