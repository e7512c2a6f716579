"""SVG elements whose attributes and texts are always escaped."""

from __future__ import annotations

import json
from html import escape
from typing import Any


class Markup(str):
    """A finished piece of HTML, which the template leaves as it is.

    >>> Markup("<b>").__html__()
    '<b>'
    """

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def tag(name: str, *children: str, **attributes: Any) -> Markup:
    """An element. An underscore in an attribute's name is a hyphen, one at its end is dropped.

    >>> print(tag("text", "a < b", x=1.50, data_tip='"'))
    <text x="1.5" data-tip="&quot;">a &lt; b</text>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(
        child if isinstance(child, Markup) else escape(child, quote=False) for child in children
    )
    return Markup(f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>")


def join(pieces: list[Markup]) -> Markup:
    """The pieces one after the other."""
    return Markup("".join(pieces))


def breakable(name: str) -> Markup:
    """A column's name, which a narrow place may break after an underscore or a slash.

    >>> print(breakable("malic_acid"))
    malic_<wbr>acid
    """
    return Markup(escape(name).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def script_json(value: Any) -> Markup:
    """JSON that is safe inside a script element, whatever its strings hold.

    >>> print(script_json({"name": "</script><!--"}))
    {"name":"\\u003c/script\\u003e\\u003c!--"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for bad in "<>&\u2028\u2029":
        text = text.replace(bad, f"\\u{ord(bad):04x}")
    return Markup(text)


def _value(value: Any) -> str:
    # Two decimals are finer than a screen.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
