"""ZeroMQ's side of populations: the publishers that a run starts to test them, and who plays the
subscribers. The docstrings are the reference that users read. It knows no population.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import HighWaterMark, PortNumber, SmallCount, Text, one_of

KINDS = ("libzmq", "pyzmq", "command")
"""Kinds of publishers."""
SUBSCRIBERS = ("simulated", "libzmq", "pyzmq")
"""Who can play a subscriber."""
SECURITIES = ("none", "plain", "curve")
"""Mechanisms of a connection."""
DEFAULT_HIGH_WATER_MARK = 1000
"""What libzmq has by itself."""


Security = Annotated[Literal["none", "plain", "curve"], BeforeValidator(one_of(*SECURITIES))]
SubscriberKind = Annotated[
    Literal["simulated", "libzmq", "pyzmq"], BeforeValidator(one_of(*SUBSCRIBERS))
]


class Publisher(Part):
    """Processes with one ZeroMQ PUB socket each, started by the run: what is under test. A plain
    text is the kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"

    kind: Annotated[Literal["libzmq", "pyzmq", "command"], BeforeValidator(one_of(*KINDS))]
    """`libzmq` comes with Pubstorm and is its C++ library behind a thin program; `pyzmq` is the
    same in Python; `command` is any other program that speaks the contract of agents."""
    high_water_mark: HighWaterMark = DEFAULT_HIGH_WATER_MARK
    """Messages that it queues for one subscriber at most (ZMQ_SNDHWM); it drops the next ones
    without a word. 0: no limit, and its memory grows instead."""
    io_threads: SmallCount = 1
    """Threads of libzmq that write to sockets."""
    port: PortNumber | None = None
    """Port of the first of them; the others count up from it. Default: free ports."""
    command: tuple[Text, ...] = ()
    """For kind `command`: the program and its arguments, with `{host}`, `{port}` and `{folder}` in
    them; `{{` and `}}` are braces. The options of an agent come after them."""
    security: Security = "none"
    """`plain`: it takes subscribers with the `username` and `password` of its population alone;
    `curve`: connections are encrypted, with keys that the run makes."""
