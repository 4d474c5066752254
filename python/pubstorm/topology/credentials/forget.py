"""Keys and passwords that a run has left in the folder of its topology, deleted for good: those in
files of their own, and those in configurations of small brokers."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from pubstorm.files import lies_in, rewrite, text_of

KEYS = "keys"
"""Folder of keys and passwords, in that of the topology."""
SECRET_WORDS = ("bridge_psk", "remote_password")
"""Words before a secret in mosquitto.conf."""
DELETED = "# deleted at the end of the run"


def forget_secrets(folder: Path) -> int:
    """Deletes them, and says how many files had some. May be called twice."""
    configurations = folder.glob("*/mosquitto.conf")
    found = sum(_forget_in(path) for path in configurations if lies_in(path, folder))
    keys = folder / KEYS
    if lies_in(keys, folder) and keys.is_dir():
        found += sum(path.is_file() for path in keys.rglob("*"))
        shutil.rmtree(keys, ignore_errors=True)
    return found


def _forget_in(path: Path) -> bool:
    """Takes secrets out of a configuration; whether there were any."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = text_of(path).splitlines()
        kept = [_without_secret(line) for line in lines]
        if kept != lines:
            rewrite(path, "\n".join(kept) + "\n")
            return True
    return False


def _without_secret(line: str) -> str:
    word = line.partition(" ")[0]
    return f"{DELETED}: {word}" if word in SECRET_WORDS else line
