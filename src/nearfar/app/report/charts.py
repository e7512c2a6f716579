"""Charts as inline SVG.

Places along x are percentages and sizes along y are pixels, so that a chart fills any width while
its dots stay round and its text keeps its size. Colours come from classes in the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nearfar.app.report.markup import Markup, join, tag
from nearfar.app.report.words import MINUS

Interval = tuple[float, float]
MARGIN = 2.0  # percent kept free at both ends, so that no dot is cut


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` along the width of a chart."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """The place of a value; values outside go to the edge."""
        span = self.high - self.low
        share = 0.5 if span <= 0 else (value - self.low) / span
        return MARGIN + (100 - 2 * MARGIN) * min(max(share, 0.0), 1.0)

    def at(self, value: float) -> str:
        """The place as an attribute."""
        return f"{self.percent(value):.2f}%"

    def holds(self, value: float) -> bool:
        """Whether the value is on the scale."""
        return self.low <= value <= self.high

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values on the scale."""
        step = _round_step((self.high - self.low) / max(wanted, 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def difference_scale(values: Sequence[float], quantile: float = 0.5, factor: float = 4.0) -> Scale:
    """A scale around zero; values beyond ``factor`` times a quantile do not squeeze the others."""
    sizes = sorted(abs(value) for value in values)
    if not sizes or sizes[-1] == 0:
        return Scale(-0.01, 0.01)
    typical = sizes[min(int(quantile * len(sizes)), len(sizes) - 1)]
    limit = sizes[-1] if typical == 0 else min(sizes[-1], factor * typical)
    step = _round_step(limit / 4)
    limit = step * math.ceil(limit / step - 1e-9)
    return Scale(-limit, limit)


def figure(children: list[Markup], height: float, label: str, **attributes: str) -> Markup:
    """An SVG of full width with a label for those who do not see it."""
    return tag(
        "svg", *children, role="img", aria_label=label, width="100%", height=height, **attributes
    )


def axis(scale: Scale, wanted: int = 4, unit: str = "") -> Markup:
    """Ticks in points, to stand below or above rows that share a scale."""
    pieces = []
    for value in scale.ticks(wanted):
        x = scale.at(value)
        pieces.append(tag("line", class_="tick", x1=x, x2=x, y1=0, y2=4))
        text = "0" if value == 0 else _plain_points(value)
        pieces.append(tag("text", text + unit, class_="tick-text", x=x, y=16))
    return tag("svg", *pieces, class_="axis", width="100%", height=20, aria_hidden="true")


def forest(
    scale: Scale,
    value: float | None,
    ends: Interval | None,
    kind: str,
    label: str,
    threshold: float | None = None,
) -> Markup:
    """One gain with its interval; zero, and the gain that would count."""
    middle = 13.0
    # The lines reach beyond the chart; the cell cuts them, so that they join from row to row.
    pieces = [_vertical(scale, 0.0, "zero", -80, 106)]
    if threshold is not None and scale.holds(threshold):
        pieces.append(_vertical(scale, threshold, "threshold", -80, 106))
    if ends is not None:
        pieces.append(_whisker(scale, ends, middle, kind))
    if value is None:
        pass
    elif scale.holds(value):
        pieces.append(tag("circle", class_=f"mean {kind}", cx=scale.at(value), cy=middle, r=4))
    else:
        pieces.append(_arrow(right=value > scale.high, y=middle, kind=kind))
    return figure(pieces, 26, label, class_="forest")


@dataclass(frozen=True)
class Dot:
    """One fold in a strip."""

    value: float
    lane: int
    tip: str


def strip(
    scale: Scale,
    dots: Sequence[Dot],
    lanes: int,
    mean: float,
    ends: Interval | None,
    kind: str,
    label: str,
) -> Markup:
    """Gains of folds, one line of dots per repeat; above them the mean and its interval."""
    top, lane_height = 18.0, 11.0
    height = top + lanes * lane_height + 2
    pieces = [
        tag("line", class_="lane", x1="0", x2="100%", y1=y, y2=y)
        for y in (top + (lane + 0.5) * lane_height for lane in range(lanes))
    ]
    pieces.append(_vertical(scale, 0.0, "zero", 0, height))
    for dot in dots:
        y = top + (dot.lane + 0.5) * lane_height
        side = "better" if dot.value > 0 else "worse" if dot.value < 0 else "even"
        where = "" if scale.holds(dot.value) else " outside"
        pieces.append(
            tag(
                "circle",
                class_=f"fold {side}{where}",
                cx=scale.at(dot.value),
                cy=y,
                r=3.5,
                data_tip=dot.tip,
            )
        )
    if ends is not None:
        pieces.append(_whisker(scale, ends, 9.0, kind))
    diamond = tag("path", class_=f"mean {kind}", d="M0-6 6 0 0 6-6 0z")
    pieces.append(tag("svg", diamond, class_="spill", x=scale.at(mean), y=9))
    return figure(pieces, height, label, class_="strip")


def dumbbell(scale: Scale, before: float, after: float, label: str) -> Markup:
    """Two values joined: a ring for the first, a disc for the second."""
    kind = "better" if after < before else "worse" if after > before else "even"
    return figure(
        [
            tag("line", class_="lane", x1="0", x2="100%", y1=11, y2=11),
            tag(
                "line",
                class_=f"whisker {kind}",
                x1=scale.at(before),
                x2=scale.at(after),
                y1=11,
                y2=11,
            ),
            tag("circle", class_="before", cx=scale.at(before), cy=11, r=5),
            tag("circle", class_=f"mean {kind}", cx=scale.at(after), cy=11, r=4.5),
        ],
        22,
        label,
        class_="dumbbell",
    )


def bar(value: float, largest: float, label: str, ends: Interval | None = None) -> Markup:
    """A bar from zero, with whiskers from least to most."""
    width = 0.0 if largest <= 0 else 100 * value / largest
    pieces = [tag("rect", class_="bar", x="0", y=4, width=f"{width:.2f}%", height=12, rx=2)]
    if ends is not None and largest > 0:
        low, high = (f"{100 * end / largest:.2f}%" for end in ends)
        pieces.append(tag("line", class_="range", x1=low, x2=high, y1=10, y2=10))
        pieces += [tag("line", class_="range", x1=x, x2=x, y1=7, y2=13) for x in (low, high)]
    return figure(pieces, 20, label, class_="bars")


def stacked(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Shares of a whole, side by side."""
    total = sum(size for _, size in parts) or 1.0
    pieces, start = [], 0.0
    for kind, size in parts:
        width = 100 * size / total
        if width > 0:
            pieces.append(
                tag("rect", class_=kind, x=f"{start:.3f}%", width=f"{width:.3f}%", height=14)
            )
        start += width
    return figure(pieces, 14, label, class_="stacked")


def columns(counts: Sequence[float], label: str, *, rest: bool = False) -> Markup:
    """Upright bars side by side; with ``rest`` the last one is paler, for what was left over."""
    height, most = 40.0, max(counts, default=0.0) or 1.0
    width = 100 / max(len(counts), 6)
    pieces = []
    for i, size in enumerate(counts):
        tall = 0.0 if size <= 0 else max(1.0, height * size / most)
        name = "bar rest" if rest and i == len(counts) - 1 else "bar"
        place = {"x": f"{width * i:.2f}%", "width": f"{0.9 * width:.2f}%"}
        pieces.append(tag("rect", class_=name, y=height - tall, height=tall, **place))
    return figure(pieces, height, label, class_="columns-chart")


#: Heights of a mirrored histogram: each half, and the room for its axis.
_HALF, _AXIS = 78.0, 22.0


def mirrored(
    edges: Sequence[float],
    above: Sequence[float],
    below: Sequence[float],
    threshold: float,
    label: str,
) -> Markup:
    """Two histograms on one axis, one upwards and one downwards, as shares of their own kind.

    What lies on the wrong side of the threshold (above: beyond it, below: before it) stands out.
    """
    scale = Scale(edges[0], edges[-1])
    shares = [np.asarray(one, float) / max(1.0, float(sum(one))) for one in (above, below)]
    most = max(float(share.max(initial=0.0)) for share in shares) or 1.0
    middle, pieces = _HALF + 2, []
    for share, up in zip(shares, (True, False), strict=True):
        for start, end, size in zip(edges[:-1], edges[1:], share.tolist(), strict=True):
            # A bar that the threshold cuts is cut.
            cuts = [start, threshold, end] if start < threshold < end else [start, end]
            tall = 0.0 if size <= 0 else max(1.0, _HALF * size / most)
            for low, high in pairwise(cuts):
                near = (low + high) / 2 <= threshold
                name = f"{'alike' if up else 'different'}{'' if near == up else ' wrong'}"
                left, right = scale.percent(low), scale.percent(high)
                place = {"x": f"{left:.2f}%", "width": f"{max(0.1, right - left - 0.12):.2f}%"}
                y = middle - tall if up else middle
                if tall:
                    pieces.append(tag("rect", class_=name, y=y, height=tall, **place))
    foot = middle + _HALF
    pieces.append(tag("line", class_="zero", x1="0", x2="100%", y1=middle, y2=middle))
    if scale.holds(threshold):
        pieces.append(_vertical(scale, threshold, "cut", 0, foot + 2))
    for value in scale.ticks(5):
        x = scale.at(value)
        pieces.append(tag("line", class_="tick", x1=x, x2=x, y1=foot + 3, y2=foot + 7))
        pieces.append(tag("text", f"{value:.4g}", class_="tick-text", x=x, y=foot + 19))
    return figure(pieces, foot + _AXIS, label, class_="mirrored")


@dataclass(frozen=True)
class Curve:
    """A curve in a square of shares, and the point at which one works."""

    heights: Sequence[float]
    kind: str
    point: tuple[float, float] | None = None


def roc(curves: Sequence[Curve], label: str) -> Markup:
    """Curves from the lower left to the upper right of a square; the last are drawn on top."""
    low, high, side = 34.0, 300.0, 266.0
    pieces = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = {"x": low + side * share, "y": 10 + side * (1 - share)}
        ends = {"y1": at["y"], "y2": at["y"], "x1": low, "x2": high}
        pieces.append(tag("line", class_="lane", **ends))
        ends = {"x1": at["x"], "x2": at["x"], "y1": 10.0, "y2": 10 + side}
        pieces.append(tag("line", class_="lane", **ends))
        text = f"{100 * share:.0f}"
        pieces.append(tag("text", text, class_="tick-text end", x=low - 5, y=at["y"] + 4))
        pieces.append(tag("text", text, class_="tick-text", x=at["x"], y=10 + side + 15))
    ends = {"x1": low, "y1": 10 + side, "x2": high, "y2": 10.0}
    pieces.append(tag("line", class_="chance", **ends))
    for curve in curves:
        n = max(1, len(curve.heights) - 1)
        places = [(low, 10 + side)]
        places += [(low + side * i / n, 10 + side * (1 - h)) for i, h in enumerate(curve.heights)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        pieces.append(tag("polyline", class_=f"roc {curve.kind}", points=points))
    for curve in curves:
        if curve.point is not None:
            x, y = low + side * curve.point[0], 10 + side * (1 - curve.point[1])
            pieces.append(tag("circle", class_=f"roc-point {curve.kind}", cx=x, cy=y, r=4.5))
    return tag(
        "svg", *pieces, class_="roc-plot", viewBox="0 0 310 300", role="img", aria_label=label
    )


def diagonal(scale: Scale, pairs: Sequence[Sequence[float]], label: str) -> Markup:
    """Predicted over true values in a square with one scale on both axes."""
    low, side = 44.0, 256.0
    span = (scale.high - scale.low) or 1.0

    def place(value: float) -> float:
        return 6 + (side - 12) * (value - scale.low) / span

    pieces = []
    for value in scale.ticks(4):
        x, y, text = low + place(value), 10 + side - place(value), f"{value:.4g}"
        pieces.append(tag("line", class_="lane", x1=low, x2=low + side, y1=y, y2=y))
        pieces.append(tag("line", class_="lane", x1=x, x2=x, y1=10.0, y2=10 + side))
        pieces.append(tag("text", text, class_="tick-text end", x=low - 5, y=y + 4))
        pieces.append(tag("text", text, class_="tick-text", x=x, y=10 + side + 15))
    ends = {"x1": low, "y1": 10 + side, "x2": low + side, "y2": 10.0}
    pieces.append(tag("line", class_="chance", **ends))
    for true, said in pairs:
        x, y = round(low + place(true), 1), round(10 + side - place(said), 1)
        pieces.append(tag("circle", class_="said", cx=x, cy=y, r=2.4))
    return tag(
        "svg", *pieces, class_="roc-plot", viewBox="0 0 310 292", role="img", aria_label=label
    )


@dataclass(frozen=True)
class Mark:
    """A method in a plane: where it lies, and how it is drawn and called."""

    x: float
    y: float
    name: str
    kind: str
    tip: str
    front: bool


#: Height of a plane, where it begins and ends, and the width for which its labels are placed.
_PLANE, _TOP, _BOTTOM, _NARROW = 330.0, 52.0, 292.0, 310.0
_LINE, _LETTER = 13.0, 6.4


def plane(
    across: Scale, up: Scale, marks: Sequence[Mark], ticks: Sequence[tuple[float, str]], label: str
) -> Markup:
    """Methods by two numbers; those that none beats in both are joined."""

    def height(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (up.percent(value) - MARGIN) / (100 - 2 * MARGIN)

    pieces = []
    for value in up.ticks(5):
        y = height(value)
        pieces.append(tag("line", class_="lane", x1="0", x2="100%", y1=y, y2=y))
        text = f"{100 * value:.4g}%"
        pieces.append(tag("text", text, class_="tick-text start", x="0", y=y - 3))
    for value, text in ticks:
        x = across.at(value)
        pieces.append(tag("line", class_="lane", x1=x, x2=x, y1=_TOP, y2=_BOTTOM + 5))
        pieces.append(tag("text", text, class_="tick-text", x=x, y=_BOTTOM + 20))
    front = sorted((mark for mark in marks if mark.front), key=lambda mark: mark.x)
    for one, other in pairwise(front):
        ends = {"x1": across.at(one.x), "x2": across.at(other.x)}
        pieces.append(tag("line", class_="front", y1=height(one.y), y2=height(other.y), **ends))
    places = [(across.percent(mark.x), height(mark.y)) for mark in marks]
    for mark, (_, y) in zip(marks, places, strict=True):
        name = f"spot {mark.kind}{' on-front' if mark.front else ''}"
        at = {"cx": across.at(mark.x), "cy": y}
        pieces.append(tag("circle", class_=name, r=5, data_tip=mark.tip, **at))
    pieces += _labels(marks, places)
    return figure(pieces, _PLANE, label, class_="plane")


def _labels(marks: Sequence[Mark], places: Sequence[tuple[float, float]]) -> list[Markup]:
    """A name beside each mark, up or down from it where another one is."""
    dots = [(x * _NARROW / 100, y) for x, y in places]
    taken = [(x - 6, x + 6, y - 6, y + 6) for x, y in dots]
    pieces = []
    order = sorted(range(len(marks)), key=lambda i: (not marks[i].front, places[i][1]))
    for i in order:
        (x, y), wide = dots[i], _LETTER * len(marks[i].name)
        boxes = []
        for step in (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, -8, 8):
            base = y + 4 + step * _LINE
            starts = [x + 9, x - 9 - wide]
            if step:  # above or below, as far to one side as need be
                starts.append(min(max(x - wide / 2, 0.0), max(_NARROW - wide, 0.0)))
            boxes += [
                (low, low + wide, base - 10, base + 3)
                for low in starts
                if low >= 0 and low + wide <= _NARROW + 1 and 12 <= base <= _BOTTOM + 2
            ]
        free = (box for box in boxes if not any(_meet(box, other) for other in taken))
        found = next(free, boxes[0] if boxes else None)
        if found is None:  # its tip and the table name it
            continue
        taken.append(found)
        base, left = found[3] - 3, found[1] < x
        start = found[1] - x if left else found[0] - x
        name = f"spot-name{' end' if left else ''}{' on-front' if marks[i].front else ''}"
        pieces_here = [tag("text", marks[i].name, class_=name, x=start)]
        away = y - base  # from the name up or down to its mark
        if abs(away + 4) > 1:
            reach = min(max(0.0, found[0] - x + 4), found[1] - x - 4)
            ends = {"x1": 0.0, "x2": reach, "y1": away, "y2": 2.0 if away > 0 else -10.0}
            pieces_here.insert(0, tag("line", class_="leader", **ends))
        at = {"x": f"{places[i][0]:.2f}%", "y": base}
        pieces.append(tag("svg", *pieces_here, class_="spill", **at))
    return pieces


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    across = one[0] < other[1] and other[0] < one[1]
    return across and one[2] < other[3] and other[2] < one[3]


def sparkline(values: Sequence[float], label: str, most: int = 120) -> Markup:
    """A line through the values, the last one marked."""
    step = max(1, -(-len(values) // most))
    kept = [*values[:-1:step], values[-1]]
    low, high = min(kept), max(kept)
    span = (high - low) or 1.0
    places = [
        (100 * i / max(len(kept) - 1, 1), 44 - 40 * (value - low) / span)
        for i, value in enumerate(kept)
    ]
    line = tag("polyline", class_="curve", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    stretched = tag(
        "svg", line, viewBox="0 0 100 48", preserveAspectRatio="none", width="100%", height=48
    )
    end = tag("circle", class_="curve-end", cx="100%", cy=places[-1][1], r=3)
    return figure([stretched, end], 48, label, class_="sparkline")


# What follows the centre of a mark, in relative steps; the circle has an element of its own.
SHAPES = (
    "",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6 3.4 6.2h-6.8z",
    "m0-3.9 3.9 3.9-3.9 3.9-3.9-3.9z",
    "m0 3.6 3.4-6.2h-6.8z",
    "m-1.1-3.4h2.2v2.3h2.3v2.2h-2.3v2.3h-2.2v-2.3h-2.3v-2.2h2.3z",
)
COLORS = 10
#: The code of what has no colour of its own.
REST = -1


def marker(code: int, x: float, y: float, index: int | None = None, wrong: bool = False) -> Markup:
    """The mark of a class: its colour, and after ten classes another shape."""
    shape = "" if code == REST else SHAPES[code // COLORS % len(SHAPES)]
    name = "none" if code == REST else f"c{code % COLORS}"
    name += " wrong" if wrong else ""
    if not shape:
        return tag("circle", class_=name, cx=round(x, 1), cy=round(y, 1), r=3, data_i=index)
    return tag("path", class_=name, d=f"M{x:.1f} {y:.1f}{shape}", data_i=index)


def swatch(code: int) -> Markup:
    """The mark of a class for the legend."""
    mark = marker(code, 5, 5)
    size = {"viewBox": "0 0 10 10", "width": 14, "height": 14}
    return tag("svg", mark, class_="swatch", aria_hidden="true", **size)


def fitted(spots: NDArray[np.float64], size: float, edge: float = 10.0) -> NDArray[np.float64]:
    """Places in a square, y upwards; one unit on both axes, since distances are what it shows."""
    low, high = spots.min(axis=0), spots.max(axis=0)
    span = float((high - low).max()) or 1.0
    within = (spots - (low + high) / 2) / span * (size - 2 * edge)
    return np.asarray(size / 2 + within * [1, -1])


def scatter(marks: list[Markup], label: str, number: int, size: float) -> Markup:
    """A square map of marks; the larger its size, the smaller they look."""
    return tag(
        "svg",
        *marks,
        class_="map",
        viewBox=f"0 0 {size:g} {size:g}",
        role="img",
        tabindex=0,
        aria_label=label,
        data_map=number,
    )


def _vertical(scale: Scale, value: float, name: str, top: float, bottom: float) -> Markup:
    x = scale.at(value)
    return tag("line", class_=name, x1=x, x2=x, y1=top, y2=bottom)


def _whisker(scale: Scale, ends: Interval, y: float, kind: str) -> Markup:
    low, high = ends
    pieces = [
        tag("line", class_=f"whisker {kind}", x1=scale.at(low), x2=scale.at(high), y1=y, y2=y)
    ]
    for end in ends:
        if scale.holds(end):
            x = scale.at(end)
            pieces.append(tag("line", class_=f"cap {kind}", x1=x, x2=x, y1=y - 4, y2=y + 4))
    return join(pieces)


def _arrow(right: bool, y: float, kind: str) -> Markup:
    shape = "M0 0-9-6v12z" if right else "M0 0 9-6v12z"
    arrow = tag("path", class_=f"mean {kind}", d=shape)
    return tag("svg", arrow, class_="spill", x="99%" if right else "1%", y=y)


def _plain_points(value: float) -> str:
    return f"{100 * value:+.4g}".replace("-", MINUS)


def _round_step(size: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(size)) if size > 0 else 1.0
    return power * next(step for step in (1, 2, 2.5, 5, 10) if step * power >= size * (1 - 1e-9))
