"""Reader for Parquet: a file, or a folder of files that together are one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearfar.extras import import_optional

PARQUET = (".parquet", ".pq")


def is_parquet(path: Path) -> bool:
    """Return True for a Parquet file, or for a folder that contains Parquet files."""
    return bool(list_parquet_files(path))


def list_parquet_files(path: Path) -> list[Path]:
    """Return a list of Parquet files: the file itself, or the files in a folder, sorted by name."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in PARQUET else []
    entries = [entry for entry in path.iterdir() if entry.is_file() and entry.name[0] not in "._"]
    return sorted(
        (entry for entry in entries if entry.suffix.lower() in PARQUET), key=lambda p: p.name
    )


def read_schema(path: Path) -> Any:
    """Return the Arrow schema, or None if the file is damaged.

    `read_arrow` raises an error for a damaged file.
    """
    arrow, parquet = import_optional("pyarrow", "app"), import_optional("pyarrow.parquet", "app")
    try:
        return parquet.read_schema(list_parquet_files(path)[0])
    except (OSError, arrow.ArrowException):
        return None


def read_arrow(path: Path) -> Any:
    """Read a file, or all files in a folder, as one Arrow table.

    All files in a folder must have the same columns.
    """
    arrow, parquet = import_optional("pyarrow", "app"), import_optional("pyarrow.parquet", "app")
    tables: list[Any] = []
    files = list_parquet_files(path)
    for file in files:
        try:
            tables.append(parquet.read_table(file, partitioning=None))
        except (ValueError, OSError, TypeError, NotImplementedError, arrow.ArrowException) as error:
            raise ValueError(f"{file.name} is damaged or not a Parquet file: {error}") from error
        if tables[1:]:
            _check_same_columns(tables[0].schema, tables[-1].schema, files[0].name, file.name)
            # Concatenation needs the same column order and the same pandas metadata.
            tables[-1] = tables[-1].select(tables[0].column_names)
            tables[-1] = tables[-1].replace_schema_metadata(tables[0].schema.metadata)
    return tables[0] if len(tables) == 1 else _concatenate(arrow, tables)


def _concatenate(arrow: Any, tables: list[Any]) -> Any:
    """Concatenate the tables.

    If the index of the files is a row number, drop the pandas metadata, so that the rows are
    numbered from 0 again.
    """
    table = arrow.concat_tables(tables)
    metadata = table.schema.pandas_metadata or {}
    row_number_columns = [
        column for column in metadata.get("index_columns", ()) if isinstance(column, dict)
    ]
    return table.replace_schema_metadata(None) if row_number_columns else table


def _check_same_columns(expected: Any, schema: Any, expected_name: str, name: str) -> None:
    for column in expected.names:
        if column not in schema.names:
            raise ValueError(
                f"{name} does not have the column '{column}', which {expected_name} has. All files "
                "of a folder must have the same columns."
            )
        actual_type, expected_type = schema.field(column).type, expected.field(column).type
        if actual_type != expected_type:
            raise ValueError(
                f"{name}: column '{column}' has type {actual_type}, but {expected_type} in "
                f"{expected_name}. All files of a folder must have the same column types."
            )
    additional = [column for column in schema.names if column not in expected.names]
    if additional:
        raise ValueError(
            f"{name} has a column '{additional[0]}', which {expected_name} does not have. All "
            "files of a folder must have the same columns."
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
    item_type = kind.value_type
    return bool(types.is_floating(item_type) or types.is_integer(item_type))
