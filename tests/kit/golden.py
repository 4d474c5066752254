"""Golden files: texts that tests compare with whole, and write anew if UPDATE_GOLDEN=1."""

from __future__ import annotations

import difflib
import os
from pathlib import Path


def agree(path: Path, text: str) -> None:
    """Holds that a text is that of a golden file; a difference fails with a diff. In CI, no file is
    written."""
    if os.environ.get("UPDATE_GOLDEN") == "1" and not os.environ.get("CI"):
        path.write_text(text, encoding="utf-8")
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != stored:
        lines = (stored.splitlines(keepends=True), text.splitlines(keepends=True))
        diff = difflib.unified_diff(*lines, fromfile=path.name, tofile="now")
        raise AssertionError(f"{''.join(diff)}\nUPDATE_GOLDEN=1 stores it anew")
