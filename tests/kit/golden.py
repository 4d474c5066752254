"""Golden files: texts that tests compare with whole, and write anew if UPDATE_GOLDEN=1."""

from __future__ import annotations

import difflib
import lzma
import os
from pathlib import Path


def agree(path: Path, text: str) -> None:
    """Holds that a text is that of a golden file, which is packed if its name ends with `.xz`; a
    difference fails with a diff. In CI, no file is written."""
    is_packed = path.suffix == ".xz"
    stored = path.read_bytes() if path.exists() else b""
    before = lzma.decompress(stored) if is_packed and stored else stored
    if before == text.encode():
        return
    if os.environ.get("UPDATE_GOLDEN") == "1" and not os.environ.get("CI"):
        path.write_bytes(lzma.compress(text.encode()) if is_packed else text.encode())
        return
    lines = (before.decode().splitlines(keepends=True), text.splitlines(keepends=True))
    diff = difflib.unified_diff(*lines, fromfile=path.name, tofile="now")
    raise AssertionError(f"{''.join(diff)}\nUPDATE_GOLDEN=1 stores it anew")
