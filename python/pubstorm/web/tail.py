"""Reads files that another process appends to: complete lines, in the order of writing."""

from __future__ import annotations

from pathlib import Path

CHUNK_BYTES = 2**20
"""Bytes that are read at once, so that other work is not held up by a long file."""


class Tail:
    """The lines of a file that were not read yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Returns the next complete lines, without their ends; none if there is no file. A line
        that is not complete is kept for later."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read(CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
