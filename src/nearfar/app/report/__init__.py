"""Pages of HTML, each one file that needs no network: of a comparison, and of an embedding."""

from nearfar.app.report.embedding import write_embedding_document
from nearfar.app.report.html import render, write

__all__ = ["render", "write", "write_embedding_document"]
