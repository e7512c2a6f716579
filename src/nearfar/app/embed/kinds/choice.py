"""The kinds by their names."""

from __future__ import annotations

from nearfar.app.embed.kinds.kind import Kind
from nearfar.app.embed.kinds.rows import Rows
from nearfar.app.embed.kinds.sets import SetsOfVectors

KINDS: dict[str, Kind] = {kind.noun: kind for kind in (Rows(), SetsOfVectors())}


def kind_of(noun: str) -> Kind:
    """The kind of data by what one of them is called.

    >>> kind_of("set").method
    'set-embedding'
    """
    return KINDS[noun]
