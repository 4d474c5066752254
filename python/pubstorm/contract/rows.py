"""Files of rows: comma-separated values with a line of headings, one row for each client. Each
state of a file is read once.
"""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from pubstorm.errors import PubstormError
from pubstorm.files import opened


class RowsError(PubstormError):
    """A file that cannot be taken: what was found, what is allowed, and a hint."""

    default_exit_code = 2


@dataclass(frozen=True, eq=False)
class RowFile:
    """Content of a file. Values are equal only if they are the same object."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The values of each column."""
        return dict(zip(self.headings, zip(*self.rows, strict=True), strict=True))

    def longest(self, column: str) -> int:
        """Returns the bytes of the longest value in a column."""
        return max(len(value.encode()) for value in self.columns[column])

    @cached_property
    def digest(self) -> str:
        """A name for what it has."""
        made = hashlib.sha256()
        for row in (self.headings, *self.rows):
            made.update(repr(row).encode())
        return made.hexdigest()


@dataclass(frozen=True)
class RowTable:
    """The rows of a file, each for a client's number."""

    file: RowFile
    first: int
    """The number that has the first row; beyond the last row the first comes again."""

    def value(self, column: str, n: int) -> str:
        """Returns the value of row `n` in a column; raises KeyError if there is no such column."""
        return self.file.columns[column][(n - self.first) % len(self.file.rows)]


def read_rows(path: str) -> RowFile:
    """The rows of a file; raises RowsError."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read(path: str, _changed_ns: int, _size_bytes: int) -> RowFile:
    rows: list[tuple[str, ...]] = []
    try:
        with (
            opened(Path(path), follows_links=True) as content,
            io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file, strict=True)
            headings = next((tuple(row) for row in reader if row), ())
            for row in reader:
                if row and len(row) != len(headings):
                    found = f"found {len(row)} values in line {reader.line_num} of {path}"
                    message = f"{found}, allowed are {len(headings)} as in its first line"
                    raise RowsError(message, "a value with a comma needs double quotes")
                if row:
                    rows.append(tuple(row))
    except UnicodeDecodeError:
        raise RowsError(f"found bytes in {path} that are not UTF-8", SAVE_HINT) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    except csv.Error as error:
        message = f"found no comma-separated values in line {reader.line_num} of {path}: {error}"
        raise RowsError(message, SAVE_HINT) from None
    twice = {heading for heading in headings if headings.count(heading) > 1}
    if twice:
        message = f"found the heading {min(twice)!r} more than once in {path}"
        raise RowsError(message, "columns have different names")
    if not rows:
        message = (
            f"found no rows in {path}, allowed is a line of headings, then a row for each client"
        )
        raise RowsError(message)
    return RowFile(headings, tuple(rows))


def _unreadable(path: str, error: OSError | ValueError) -> RowsError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    message = f"found {path}, which cannot be read: {reason}"
    return RowsError(message, "a relative path is from the folder of the scenario file")


SAVE_HINT = "save the table as CSV in UTF-8"
