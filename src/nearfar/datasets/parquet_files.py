"""Reader for Parquet: a file, or a folder of files that together are one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearfar.extras import import_optional

PARQUET = (".parquet", ".pq")


def is_parquet(path: Path) -> bool:
    """Return True if the path has a Parquet extension, or is a folder with such files."""
    return bool(parquet_parts(path))


def parquet_parts(path: Path) -> list[Path]:
    """Return the Parquet file, or those of a folder sorted by name, or an empty list."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in PARQUET else []
    found = [entry for entry in path.iterdir() if entry.is_file() and entry.name[0] not in "._"]
    return sorted((one for one in found if one.suffix.lower() in PARQUET), key=lambda p: p.name)


def read_schema(path: Path) -> Any:
    """Return the Arrow schema, or None if the file is damaged; `read_arrow` reports the error."""
    arrow, parquet = import_optional("pyarrow", "app"), import_optional("pyarrow.parquet", "app")
    try:
        return parquet.read_schema(parquet_parts(path)[0])
    except (OSError, arrow.ArrowException):
        return None


def read_arrow(path: Path) -> Any:
    """Return the Arrow table of a file, or of all files of a folder with the same columns."""
    arrow, parquet = import_optional("pyarrow", "app"), import_optional("pyarrow.parquet", "app")
    tables: list[Any] = []
    parts = parquet_parts(path)
    for part in parts:
        try:
            tables.append(parquet.read_table(part, partitioning=None))
        except (ValueError, OSError, TypeError, NotImplementedError, arrow.ArrowException) as error:
            raise ValueError(f"{part.name} is damaged or not a Parquet file: {error}") from error
        if tables[1:]:
            _refuse_unlike(tables[0].schema, tables[-1].schema, parts[0].name, part.name)
            # Concatenation needs the same column order and the same pandas metadata.
            tables[-1] = tables[-1].select(tables[0].column_names)
            tables[-1] = tables[-1].replace_schema_metadata(tables[0].schema.metadata)
    return tables[0] if len(tables) == 1 else _together(arrow, tables)


def _together(arrow: Any, tables: list[Any]) -> Any:
    """Concatenate the tables.

    If the index of the files is a row number, drop the pandas metadata, so that the rows are
    numbered from 0 again.
    """
    whole = arrow.concat_tables(tables)
    known = whole.schema.pandas_metadata or {}
    numbered = [one for one in known.get("index_columns", ()) if isinstance(one, dict)]
    return whole.replace_schema_metadata(None) if numbered else whole


def _refuse_unlike(first: Any, other: Any, first_name: str, name: str) -> None:
    for column in first.names:
        if column not in other.names:
            raise ValueError(
                f"{name} does not have the column '{column}', which {first_name} has. All files of "
                "a folder must have the same columns."
            )
        found, expected = other.field(column).type, first.field(column).type
        if found != expected:
            raise ValueError(
                f"{name}: column '{column}' has type {found}, but {expected} in {first_name}. "
                "All files of a folder must have the same column types."
            )
    more = [column for column in other.names if column not in first.names]
    if more:
        raise ValueError(
            f"{name} has a column '{more[0]}', which {first_name} does not have. All files of a "
            "folder must have the same columns."
        )


def is_list(kind: Any) -> bool:
    """Return True for an Arrow list type."""
    types = import_optional("pyarrow", "app").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_list_of_numbers(kind: Any) -> bool:
    """Return True for an Arrow type of lists of numbers."""
    types = import_optional("pyarrow", "app").types
    if not is_list(kind):
        return False
    of = kind.value_type
    return bool(types.is_floating(of) or types.is_integer(of))
