"""The frame of the reproductions: results kept line by line, tables, verdicts."""

from __future__ import annotations

import argparse
import json
import os
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"


class Results:
    """Rows of results, each a line of a file: what is there need not be run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, at once."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)

    def select(self, **wanted: Any) -> list[dict[str, Any]]:
        """Rows that have these values."""
        items = wanted.items()
        return [row for row in self.rows if all(row.get(key) == value for key, value in items)]


def word(answer: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]) -> str:
    """What a classifier answers on a small problem, in eight letters: other answers, another word.

    It is a function of training rows, their labels, and rows to be labelled.
    """
    random = np.random.default_rng(19)
    y = random.integers(3, size=200)
    X = random.normal(size=(200, 6)) + 1.2 * np.eye(6)[y]
    X[:, 5] = np.round(X[:, 5])
    found = answer(X[:120], y[:120], X[120:])
    return f"{zlib.crc32(found.astype(np.int8).tobytes()):08x}"


class Renewal:
    """Which lines stand: those that are there, and with ``--renew`` have the word of today."""

    def __init__(self, renew: bool, word_of: Callable[..., str]) -> None:
        self.renew, self._word_of = renew, lru_cache(word_of)

    def stands(self, row: dict[str, Any] | None, *of: str) -> bool:
        """Whether the line of a result, or None, need not be run anew."""
        if row is None or not self.renew:
            return row is not None
        return bool(row.get("word") == self._word_of(*of))


def arguments(
    parser: argparse.ArgumentParser, page: str, *, data: bool, renew: bool = False
) -> argparse.Namespace:
    """Options that all reproductions have; ``--renew`` those that write words of their answers."""
    if renew:
        parser.add_argument(
            "--renew", action="store_true", help="run anew what answers otherwise now"
        )
    if data:
        place = os.environ.get("NEARFAR_DATA")
        parser.add_argument("--data", default=place, help="folder of the data")
    out = PAGES / page
    parser.add_argument("--out", type=Path, default=out, help="the page; results lie beside it")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if data and options.data is None and not options.page_only:
        parser.error("say where the data are: --data DIR, or NEARFAR_DATA")
    return options


def write_page(out: Path, title: str, lines: Sequence[str]) -> None:
    """The page, with notes of its own if there are any beside it."""
    notes = out.with_name(out.stem + "-notes.inc")
    text = "\n".join([title, "=" * len(title), "", *lines])
    out.write_text(text + ("\n" + notes.read_text() if notes.exists() else ""))
    print(f"The page is {out}.")


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A list table of reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *body):
        for at, cell in enumerate(row):
            lines.append(f"   {'* -' if at == 0 else '  -'} {cell}".rstrip())
    return [*lines, ""]


def section(title: str) -> list[str]:
    """A heading."""
    return [title, "-" * len(title), ""]


def verdict(ours: float, theirs: float, standard_error: float) -> str:
    """Whether an error rate is that of the work, within two standard errors of the difference."""
    if abs(ours - theirs) <= 2 * standard_error:
        return "as the thesis"
    return "better" if ours < theirs else "worse"


def counted(share: float, n: int) -> float:
    """Standard error of a share of n rows."""
    return float(np.sqrt(max(share * (1 - share), 1 / n) / n))
