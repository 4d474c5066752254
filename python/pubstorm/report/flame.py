"""Folded stacks as the tree of a flame graph: who called whom, and in how many samples. It draws
nothing."""

from __future__ import annotations

from typing import Any

SHARE_MIN = 0.0005
"""Frames in less than this share of the samples are too narrow to be seen and left out."""
DEPTH_MAX = 200
"""Deeper frames are left out."""


class _Frame:
    """A function as called from one place."""

    __slots__ = ("calls", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.calls: dict[str, _Frame] = {}


def flame_tree(folded: str) -> dict[str, Any] | None:
    """The tree of `a;b;c count` lines, as JSON: name, samples, and the frames called, the largest
    first. Lines of another form are left out; None where nothing remains."""
    root = _Frame()
    for line in folded.splitlines():
        stack, _, written = line.rpartition(" ")
        if not stack or not (written.isascii() and written.isdecimal()) or not int(written):
            continue
        samples, frame = int(written), root
        root.samples += samples
        for name in stack.split(";")[:DEPTH_MAX]:
            frame = frame.calls.setdefault(name, _Frame())
            frame.samples += samples
    return _as_json("all", root, root.samples * SHARE_MIN) if root.samples else None


def _as_json(name: str, frame: _Frame, least: float) -> dict[str, Any]:
    shown = [call for call in frame.calls.items() if call[1].samples >= least]
    shown.sort(key=lambda call: -call[1].samples)
    calls = [_as_json(name, call, least) for name, call in shown]
    return {"n": name, "v": frame.samples, **({"c": calls} if calls else {})}
