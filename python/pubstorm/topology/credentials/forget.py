"""Keys and passwords that a run has left in the folder of its topology, deleted for good: those in
files of their own, and those in configurations of small brokers."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

KEYS = "keys"
"""Folder of keys and passwords, in that of the topology."""
SECRET_WORDS = ("bridge_psk", "remote_password")
"""Words before a secret in mosquitto.conf."""
DELETED = "# deleted at the end of the run"


def forget_secrets(folder: Path) -> int:
    """Deletes them, and says how many files had some. May be called twice."""
    found = sum(map(_forget_in, folder.glob("*/mosquitto.conf")))
    keys = folder / KEYS
    if keys.exists():
        found += sum(path.is_file() for path in keys.rglob("*"))
        shutil.rmtree(keys, ignore_errors=True)
    return found


def _forget_in(path: Path) -> bool:
    """Takes secrets out of a configuration; whether there were any."""
    with contextlib.suppress(OSError):
        lines = path.read_text().splitlines()
        kept = [_without_secret(line) for line in lines]
        if kept != lines:
            path.write_text("\n".join(kept) + "\n")
            return True
    return False


def _without_secret(line: str) -> str:
    word = line.partition(" ")[0]
    return f"{DELETED}: {word}" if word in SECRET_WORDS else line
