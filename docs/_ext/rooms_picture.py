"""The picture of the rooms, drawn from the layers that import-linter enforces.

``python docs/_ext/rooms_picture.py`` writes ``docs/_static/rooms.svg``. What is in the picture is
what is on disk; what a room is for is the first line of its docstring. A test fails when the file
is out of date.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "_static" / "rooms.svg"
SOURCE = ROOT / "src" / "nearfar"

WIDTH, MARGIN, GAP, PAD = 800, 20, 6, 16
LEFT = MARGIN + 34  # the arrow stands to the left of the rooms
ROW, LEAF, LINE, WORDS = 34, 28, 16, 148
COLORS = {
    "application": ("#f3e9dc", "#b98b50"),
    "uses": ("#e6eef7", "#6c93bd"),
    "methods": ("#dcebdd", "#5f9a66"),
    "foundation": ("#eceaf4", "#8a80b4"),
    "leaf": ("#f2f2f2", "#a5a5a5"),
}
NOTES = {
    "nearfar.app": "each imports only what stands below it",
    "nearfar": "each imports only what stands below it, and nothing from its side",
}
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#222}"
    ".name{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "font-weight:600}"
    ".words{font-size:12.5px;fill:#444}"
    ".half{font-size:16px;font-weight:600}.note{font-size:12px;fill:#555}"
)


def layers(container: str) -> list[list[str]]:
    """Layers of "nearfar" or "nearfar.app", highest first: those names that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if container in c.get("containers", ())]
    found = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    there = [[name for name in names if _file(container, name)] for names in found]
    return [names for names in there if names and names != ["__main__"]]


def is_room(container: str, name: str) -> bool:
    """Whether it is a folder, not a single file."""
    return (_folder(container) / name / "__init__.py").exists()


def words(container: str, name: str) -> str:
    """The first line of a docstring, without marks."""
    file = _file(container, name)
    assert file is not None
    doc = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return doc.partition("\n")[0].replace("``", "").rstrip(" .,")


def _folder(container: str) -> Path:
    return SOURCE.joinpath(*container.split(".")[1:])


def _file(container: str, name: str) -> Path | None:
    folder = _folder(container)
    places = (folder / name / "__init__.py", folder / f"{name}.py")
    return next((place for place in places if place.exists()), None)


def picture() -> str:
    """The drawing."""
    parts: list[str] = []
    application = layers("nearfar.app")
    library = [names for names in layers("nearfar") if names != ["app"]]
    y = _half(parts, MARGIN, "The application", "nearfar.app", application)
    parts.append(_arrow(WIDTH / 2, y + 3, y + 27))
    parts.append(
        f'<text class="note" x="{WIDTH / 2 + 14}" y="{y + 20}">'
        "imports the library, never the other way</text>"
    )
    y = _half(parts, y + 30, "The library", "nearfar", library)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + MARGIN}" '
        f'width="{WIDTH}" height="{y + MARGIN}" role="img">'
        "<title>The rooms of nearfar: each imports only what stands below it</title>"
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#777"/></marker></defs>'
        f"<style>{STYLE}</style>"
        f'<rect width="{WIDTH}" height="{y + MARGIN}" rx="10" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _half(
    parts: list[str], top: float, title: str, container: str, floors: list[list[str]]
) -> float:
    """Draw a half; returns where it ends."""
    y = top + 44
    rooms: list[str] = []
    for names in floors:
        width = (WIDTH - MARGIN - PAD - LEFT - GAP * (len(names) - 1)) / len(names)
        height = _height(container, names, width)
        for k, name in enumerate(names):
            kind = _kind(container, name, floors)
            rooms.append(_box(container, name, LEFT + k * (width + GAP), y, width, height, kind))
        y += height + GAP
    end = y + PAD - GAP
    fill, line = ("#fdfaf6", "#d9c3a3") if container.endswith("app") else ("#fafbfd", "#c3cfdd")
    parts.append(
        f'<rect x="{MARGIN - 8}" y="{top}" width="{WIDTH - 2 * MARGIN + 16}" '
        f'height="{end - top}" rx="10" fill="{fill}" stroke="{line}"/>'
        f'<text class="half" x="{LEFT}" y="{top + 28}">{title}</text>'
        f'<text class="note" x="{WIDTH - MARGIN - PAD}" y="{top + 28}" text-anchor="end">'
        f"{NOTES[container]}</text>"
    )
    parts.append(_arrow(MARGIN + 13, top + 48, end - 12))
    parts.extend(rooms)
    return end


def _height(container: str, names: list[str], width: float) -> float:
    if len(names) == 1:
        n_lines = len(_wrapped(words(container, names[0]), width - WORDS))
        return (ROW if is_room(container, names[0]) else LEAF) + LINE * (n_lines - 1)
    if not any(is_room(container, name) for name in names):
        return LEAF
    return 38 + LINE * max(len(_wrapped(words(container, name), width)) for name in names)


def _wrapped(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, int((width - 18) / 6.4))


def _lines(text: str, x: float, y: float, width: float) -> str:
    return "".join(
        f'<text class="words" x="{x:.1f}" y="{y + k * LINE:.1f}">{escape(piece)}</text>'
        for k, piece in enumerate(_wrapped(text, width))
    )


def _kind(container: str, name: str, floors: list[list[str]]) -> str:
    if not is_room(container, name) and name != "persistence":
        return "leaf"
    if container == "nearfar.app":
        return "application"
    methods = next(k for k, names in enumerate(floors) if "discriminant" in names)
    floor = next(k for k, names in enumerate(floors) if name in names)
    base = next(k for k, names in enumerate(floors) if "contract" in names)
    return "uses" if floor < methods else "methods" if floor < base else "foundation"


def _box(
    container: str, name: str, x: float, y: float, width: float, height: float, kind: str
) -> str:
    fill, line = COLORS[kind]
    room = is_room(container, name)
    label = name if room else f"{name}.py"
    said = words(container, name)
    box = (
        f'<g class="{"room" if room else "module"}"><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5" fill="{fill}" stroke="{line}"/>'
    )
    size = min(14.0 if room else 12.5, (width - 16) / (0.61 * len(label)))
    name_at = f'<text class="name" font-size="{size:.1f}" x="{x + 10:.1f}"'
    if width > WIDTH / 2:
        y += (ROW if room else LEAF) / 2 + 5
        text = f'{name_at} y="{y:.1f}">{label}</text>'
        return f"{box}{text}{_lines(said, x + WORDS, y - 0.5, width - WORDS)}</g>"
    # One of several: words below, if there is room for them.
    small = height <= LEAF
    text = f'{name_at} y="{y + (height / 2 + 5 if small else 22):.1f}">{label}</text>'
    return f"{box}{text}{'' if small else _lines(said, x + 10, y + 42, width)}</g>"


def _arrow(x: float, start: float, end: float) -> str:
    return (
        f'<line x1="{x}" y1="{start}" x2="{x}" y2="{end}" stroke="#777" stroke-width="1.4" '
        'marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
