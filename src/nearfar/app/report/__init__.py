"""Pages of HTML, each one file that needs no network: of a comparison, and of an embedding."""

from nearfar.app.report.embedding import write_embedding_document
from nearfar.app.report.html import render, rows_to_show, write

__all__ = ["render", "rows_to_show", "write", "write_embedding_document"]
