"""Keeps what is the same in the pages of all runs, between commands: Plotly, packed, and templates,
compiled. What cannot be kept is made again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def kept(name: str) -> bytes | None:
    """Returns the content of this name; None if there is none, or if it is another user's, whose
    code is not to run here."""
    with suppress(OSError, RuntimeError), (_folder() / name).open("rb") as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            return file.read()
    return None


def keep(name: str, content: bytes) -> None:
    """Keeps a content, unless its folder cannot be written. Another command sees all or nothing."""
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            fresh = Path(file.name)
            try:
                file.write(content)
                file.flush()
                fresh.replace(folder / name)
            except OSError:
                fresh.unlink()


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pubstorm")
