"""Stamps of payloads, as `crates/plan/src/record/stamp.rs` has them: 32 bytes at the start of
a payload, or as text anywhere in a payload of text. This module only separates messages of a run
from other messages.
"""

from __future__ import annotations

import base64
import re


def run_tags(payload: bytes) -> set[int]:
    """The run tags that a payload may carry: of its first bytes, and of a stamp in its text."""
    tags = set()
    if len(payload) >= STAMP_BYTES:
        tags.add(int.from_bytes(payload[:4], "little"))
    if stamp := stamp_in_text(payload):
        tags.add(int.from_bytes(stamp[:4], "little"))
    return tags


def stamp_in_text(payload: bytes) -> bytes | None:
    """The 32 bytes of the first stamp in a payload of text; None: it has none."""
    found = _TEXT.search(payload)
    return None if found is None else base64.urlsafe_b64decode(found[1] + b"=")


def stamp_text(stamp: bytes) -> str:
    """A stamp of 32 bytes as text."""
    return MARKER + base64.urlsafe_b64encode(stamp).decode().rstrip("=")


STAMP_BYTES = 32
MARKER = "~pst~"
_TEXT = re.compile(MARKER.encode() + rb"([A-Za-z0-9_-]{43})")
