"""How a link of a bridge stands: what the proxy between a small broker and its main one does with
what comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LinkState:
    """What a link does with connections and bytes."""

    mode: Literal["pass", "close", "stall"] = "pass"
    """`pass`: bytes pass. `close`: connections are reset and new ones refused. `stall`: nothing
    passes, and nobody is told."""
    delay_ns: int = 0
    """How much later everything is handed on in each direction, in nanoseconds; for `pass`."""
