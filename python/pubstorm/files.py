"""Files that come with Pubstorm, and those that others may have written. The latter are read only
if they are regular files, up to a size and from line to line: no FIFO, no device and no endless
file holds a reader up. What is no such file is an OSError, as a file that is missing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CONTENT_BYTES_MAX = 2**28
"""Largest file that is read as a whole."""
LINE_BYTES_MAX = 2**26
"""Longest line of a file that is read from line to line."""


def shipped(folder: str, pattern: str) -> dict[str, Path]:
    """Returns the files of a folder that comes with Pubstorm, by name without ending: of the
    package where it is installed, else of the sources."""
    here = Path(__file__)
    places = (here.parent / folder, here.parents[2] / folder)
    found = next(filter(None, (sorted(place.glob(pattern)) for place in places)), [])
    return {path.name.partition(".")[0]: path for path in found}


def opened(path: Path, *, follows_links: bool = False) -> BinaryIO:
    """Opens a regular file for reading. Raises OSError for anything else, and for a symbolic link
    unless `follows_links`: files that a user names may be links, those of a run are none."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        _check(path, path.stat() if follows_links else path.lstat())
    except ValueError as error:
        raise OSError(errno.EINVAL, f"it is no path: {error}", str(path)) from error
    descriptor = os.open(path, flags if follows_links else flags | os.O_NOFOLLOW)
    try:
        _check(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def content_of(
    path: Path, bytes_max: int = CONTENT_BYTES_MAX, *, follows_links: bool = False
) -> bytes:
    """Returns the content of a regular file. Raises OSError if it is larger than allowed."""
    with opened(path, follows_links=follows_links) as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes", str(path))
    return content


def text_of(path: Path, bytes_max: int = CONTENT_BYTES_MAX, *, follows_links: bool = False) -> str:
    """Returns the text of a regular file, in UTF-8, with line feeds at the ends of its lines.
    Raises OSError and UnicodeDecodeError."""
    text = content_of(path, bytes_max, follows_links=follows_links).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines_of(path: Path) -> Iterator[bytes]:
    """Yields the lines of a regular file, as `lines_in` does. Raises OSError."""
    with opened(path) as file:
        yield from lines_in(file)


def lines_in(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of an open file, each with its end; a longer one than allowed is left out.
    Raises OSError."""
    is_rest = False
    while line := file.readline(LINE_BYTES_MAX):
        is_part = len(line) == LINE_BYTES_MAX and not line.endswith(b"\n")
        if not (is_rest or is_part):
            yield line
        is_rest = is_part


def is_regular(path: Path) -> bool:
    """Returns True for a regular file that is no symbolic link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def lies_in(path: Path, folder: Path) -> bool:
    """Returns True if a path leads to a place in a folder: no link leads out of the folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def rewrite(path: Path, text: str) -> None:
    """Replaces the text of a regular file, which stays the same file. Raises OSError."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "wb") as file:
        _check(path, os.fstat(file.fileno()))
        file.truncate()
        file.write(text.encode())


def _check(path: Path, status: os.stat_result) -> None:
    """Raises OSError unless the status is that of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    found = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
    raise OSError(errno.EINVAL, f"it is {found}", str(path))
