"""What a run was played against where it was no broker: processes with one PUB socket of ZeroMQ. It
knows no message."""

from __future__ import annotations

from typing import Literal

from pubstorm.result.measures import Latency
from pubstorm.value import Value


class PublisherResult(Value):
    """A publisher under test: one process with one PUB socket."""

    name: str
    """Its name: that of its population, with a number where that has several clients."""
    population: str
    """The population that it is a client of."""
    kind: Literal["libzmq", "pyzmq", "command"]
    """What program it is: of libzmq, of pyzmq, or any other."""
    library: str = ""
    """Library and version that it states, such as `libzmq 4.3.5`; empty: it states none."""
    pid: int
    """Process id."""
    address: str
    """Where it listens, `host:port`."""
    high_water_mark: int
    """Messages that it queues for one subscriber at most, before it drops the next; 0: no limit."""
    io_threads: int = 1
    """Threads of libzmq that do input and output."""
    security: Literal["null", "plain", "curve"] = "null"
    """Mechanism that its subscribers must speak."""
    burst: int = 1
    """How many messages are due at once."""
    sent_total: int = 0
    """Messages that it gave to its socket; those that the socket dropped are among them."""
    skipped_total: int = 0
    """Messages due and not sent."""
    lateness_us: Latency = Latency()
    """In publish stages: how late it gave messages to its socket."""
    busy_share: float = 0.0
    """Share of the publishing time that its loop was not waiting."""
    ending: str = ""
    """How it ended: `bye`, or what happened to it."""

    @property
    def due_total(self) -> int:
        """Messages that were due, or that a closed loop sent."""
        return self.sent_total + self.skipped_total
