"""One self-contained HTML file from the document of a comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nearfar.app.report.answer import answer_view
from nearfar.app.report.board import cost_view, leaderboard_view
from nearfar.app.report.classes import classes_view
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.data import data_view, protocol_view
from nearfar.app.report.embeddings import embeddings_view
from nearfar.app.report.groups import groups_view
from nearfar.app.report.kernels import kernels_view
from nearfar.app.report.local import local_view
from nearfar.app.report.maps import maps_view
from nearfar.app.report.neighbors import neighbors_view
from nearfar.app.report.page import frame, render_page, write_page
from nearfar.app.report.paired import paired_view
from nearfar.app.report.pairs import pairs_view
from nearfar.app.report.picture import kind_picture
from nearfar.app.report.tensors import tensors_view
from nearfar.app.report.values import values_view
from nearfar.app.report.weights import weights_view


def render(document: dict[str, Any]) -> str:
    """Draw the report of a comparison.

    The page needs no network: style, script, charts and pictures are inside, and a content
    security policy forbids it to load anything. It stays under 5 MB whatever the data: at most
    5,000 points, 25 classes, 20 features and 12 sampled rows are drawn, and long texts are cut.

    Parameters
    ----------
    document : dict
        What a comparison produced (``nearfar compare --json``), format 1. Where it holds
        nothing for a section, the section says so. When ``document["rows"]`` is None, no value
        or picture of any row is shown.

    Returns
    -------
    str
        The page.

    Examples
    --------
    >>> page = render({"format": 1, "answer": {"verdict": "keep", "text": "Keep <Euclidean>."}})
    >>> "Keep &lt;Euclidean&gt;." in page
    True
    """
    comparison = Comparison(document)
    if comparison["kind"] == "embeddings":
        template, view = "embeddings.html.jinja", embeddings_view(comparison)
    elif comparison["kind"] == "pairs":
        template, view = "pairs.html.jinja", pairs_view(comparison)
    elif comparison["kind"] == "values":
        template, view = "values.html.jinja", values_view(comparison)
    else:
        template, view = "report.html.jinja", _report(comparison)
    style, script = ["report.css"], ["report.js"]
    if comparison["local"]:
        style = [*style, "explanation.css"]
    if comparison["picture"]:
        style, script = [*style, "embedding.css"], [*script, "embedding.js", "ellipses.js"]
    around = frame(
        comparison.data["name"], comparison["created"], comparison["versions"], "compare", "answer"
    )
    return render_page(template, around | view, style=style, script=script)


def write(document: dict[str, Any], path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the report to a file.

    The page goes to a temporary file first, so that a reader never sees half of it.

    Parameters
    ----------
    document : dict
        What a comparison produced.
    path : path-like
        Where the report goes.
    force : bool, default=False
        Replace a file that is there. Otherwise that raises ``FileExistsError``.

    Returns
    -------
    Path
        Where the report is.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> write({"format": 1}, Path(folder.name) / "report.html").name
    'report.html'
    >>> folder.cleanup()
    """
    return write_page(lambda: render(document), path, force=force, example="report.html")


def _report(comparison: Comparison) -> dict[str, Any]:
    """Everything the template of labelled data asks for."""
    picture = kind_picture(comparison)
    return {
        "noun": comparison.noun,
        "answer": answer_view(comparison),
        "data": data_view(comparison),
        "leaderboard": leaderboard_view(comparison),
        "paired": paired_view(comparison),
        "neighbors": neighbors_view(comparison),
        "classes": classes_view(comparison),
        "groups": groups_view(comparison),
        "maps": {} if picture else maps_view(comparison),
        "picture": picture,
        "tensors": tensors_view(comparison),
        "local": local_view(comparison),
        "kernels": kernels_view(comparison),
        "weights": weights_view(comparison),
        "cost": cost_view(comparison),
        "protocol": protocol_view(comparison),
    }
