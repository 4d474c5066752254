"""How a link of a bridge stands: what the proxy between a small broker and its main one does with
what comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LinkState:
    """What a link does."""

    kind: Literal["pass", "close", "stall", "delay"] = "pass"
    """Lets all through; closes its connections and refuses new ones; lets nothing through; lets
    all through later."""
    delay_ns: int = 0
    """How much later, in each direction."""
