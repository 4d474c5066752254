"""The network that small brokers live in: what the link between them and their main broker is like.
The docstrings are the reference that users read. It does not know how a network is made.
"""

from __future__ import annotations

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Bandwidth, Duration, ShareBelowOne


class Network(Part):
    """A network namespace for the small brokers of a bridge. Its link to the main broker has these
    properties in each direction; without any it can only be unplugged."""

    delay: Duration = 0
    """How long each packet is on its way."""
    jitter: Duration = 0
    """By how much that varies, at most the delay; packets may overtake each other."""
    loss: ShareBelowOne = 0
    """Share of the packets that get lost, at random."""
    rate: Bandwidth | None = None
    """What the link carries, for all bridges together; packets queue for it."""

    @property
    def needs_netem(self) -> bool:
        """Whether the kernel's network emulator is needed; a rate alone does without."""
        return bool(self.delay or self.jitter or self.loss)
