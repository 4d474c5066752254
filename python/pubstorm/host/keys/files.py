"""Files of keys: only the owner reads private ones, no file is overwritten without a request, and
no file is incomplete."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import KeysError
from pubstorm.files import content_of

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644
FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is to be written."""

    path: Path
    content: bytes
    private: bool = True
    """True if only its owner may read it."""


def write_files(files: Sequence[NewFile], *, force: bool = False) -> None:
    """Writes all of them, or raises KeysError: none if one exists already, unless `force`."""
    twice = [path for path, times in Counter(file.path for file in files).items() if times > 1]
    if twice:
        raise KeysError(f"{twice[0]} would be written twice", "each client needs its own: use {n}")
    there = [] if force else [file.path for file in files if os.path.lexists(file.path)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise KeysError(f"{there[0]}{more} would be overwritten", "use --force to replace keys")
    for folder in dict.fromkeys(file.path.parent for file in files):
        _make_folder(folder)
    for file in files:
        _write(file)


def read_file(path: str | Path) -> bytes:
    """The content of a file. Raises KeysError if it cannot be read."""
    try:
        return content_of(Path(path), follows_links=True)
    except FileNotFoundError as error:
        raise KeysError(f"found no file {path}", PATH_HINT) from error
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}", PATH_HINT) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise KeysError(f"cannot make the folder {folder}: {error.strerror}") from error


def _write(file: NewFile) -> None:
    mode = PRIVATE_MODE if file.private else PUBLIC_MODE
    temporary = file.path.with_name(f".{file.path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
        temporary.replace(file.path)
    except OSError as error:
        raise KeysError(f"cannot write {file.path}: {error.strerror}") from error


PATH_HINT = "a relative path is from the folder of the scenario file; pubstorm keys makes keys"
