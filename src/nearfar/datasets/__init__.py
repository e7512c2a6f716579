"""Embedded sets and readers for tables, arrays and their labels."""

from nearfar.datasets.tables import EMBEDDED, Table, read_table

__all__ = ["EMBEDDED", "Table", "read_table"]
