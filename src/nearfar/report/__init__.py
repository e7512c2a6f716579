"""The HTML report of a comparison: one file that needs no network."""

from nearfar.report.html import render, rows_to_show, write

__all__ = ["render", "rows_to_show", "write"]
