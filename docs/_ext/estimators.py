"""Directives that ask the registry when the pages are made.

``.. estimator-table::`` is "you have, you want, take, page"; ``.. estimator-reference::`` lists
estimators by what they give, with a page for each; ``.. public:: nearfar.evaluation`` does so for
the other names of a module.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import estimator_lists
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autosummary.generate import generate_autosummary_docs
from sphinx.util.docutils import SphinxDirective


class EstimatorTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(estimator_lists.table_text())


class EstimatorReference(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        text = estimator_lists.reference_text()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Public(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(_public_text(self.arguments[0]))


def _public_text(module: str) -> str:
    names = estimator_lists.autosummary(estimator_lists.public_names(module))
    return f".. currentmodule:: {module}\n\n{names}\n"


def write_pages(app: Sphinx) -> None:
    """A page for each name: autosummary itself finds only lists that are typed."""
    folder = Path(app.srcdir) / "api"
    modules = re.findall(r"^\.\. public:: (\S+)", (folder / "index.rst").read_text("utf-8"), re.M)
    text = "\n".join([estimator_lists.reference_text(), *map(_public_text, modules)])
    with tempfile.TemporaryDirectory() as temporary:
        lists = Path(temporary) / "lists.rst"
        lists.write_text(text.replace(":toctree: generated", f":toctree: {folder / 'generated'}"))
        generate_autosummary_docs([str(lists)], suffix=".rst", app=app)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("estimator-table", EstimatorTable)
    app.add_directive("estimator-reference", EstimatorReference)
    app.add_directive("public", Public)
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
