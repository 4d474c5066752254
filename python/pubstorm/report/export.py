"""Tables of stored results as files for other programs: CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Literal

from pubstorm.errors import UsageError
from pubstorm.output import without_controls
from pubstorm.report.data import DataTable

Form = Literal["csv", "json", "parquet"]


def csv_bytes(table: DataTable) -> bytes:
    """The table with a line of headings. Lines end with a line feed, and None is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(str(cell).lower() if isinstance(cell, bool) else cell for cell in row)
    return without_controls(stream.getvalue()).encode(errors="replace")


def json_bytes(table: DataTable) -> bytes:
    """An array with an object for each row, one on a line."""
    return f"{_json(table)}\n".encode()


def parquet_bytes(table: DataTable) -> bytes:
    """The table in the format of Apache Parquet. Raises UsageError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        hint = "pip install 'pubstorm[parquet]'"
        raise UsageError("Parquet needs pyarrow, which is not installed", hint) from None
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), stream)
    return stream.getvalue()


FORMS: Mapping[Form, Callable[[DataTable], bytes]] = {
    "csv": csv_bytes,
    "json": json_bytes,
    "parquet": parquet_bytes,
}
"""Writers by the ends of file names."""


def json_object(tables: Mapping[str, DataTable]) -> bytes:
    """One object with an array for each table."""
    arrays = (f"{json.dumps(name)}: {_json(table)}" for name, table in tables.items())
    return ("{" + ",\n".join(arrays) + "}\n").encode()


def _json(table: DataTable) -> str:
    rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    text = "[" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]"
    return without_controls(text)
