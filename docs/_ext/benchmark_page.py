"""Directives of the page of benchmarks, which is made from the files of results as they are.

``.. benchmark-summary::`` is a picture of all; ``.. benchmark-results::`` has a section for each.
"""

from __future__ import annotations

from typing import Any

import benchmark_results
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Summary(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        bars = benchmark_results.summary(benchmark_results.documents())
        return [nodes.raw("", benchmark_results.picture("All", bars), format="html")]


class Results(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for document in benchmark_results.documents():
            self.env.note_dependency(str(benchmark_results.RESULTS / f"{document.name}.md"))
            section = nodes.section(ids=[f"benchmark-{document.name.replace('_', '-')}"])
            section += nodes.title(document.title, document.title)
            section += nodes.raw("", benchmark_results.html_of(document), format="html")
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("benchmark-summary", Summary)
    app.add_directive("benchmark-results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
