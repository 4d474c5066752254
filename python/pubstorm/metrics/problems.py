"""The problems that metrics count, with their words and the reasons that explain them."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.contract.snapshot import Answer, Reason

ENDS_A_CONNECTION = frozenset(
    {
        Reason.CLOSED_BY_BROKER,
        Reason.RESET_BY_BROKER,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.DISCONNECT_TIMEOUT,
        Reason.SUBSCRIBE_TIMEOUT,
        Reason.UNSUBSCRIBE_TIMEOUT,
    }
)
"""Reasons that end an established connection only."""
ENDS_A_WEBSOCKET = frozenset(reason for reason in Reason if reason.startswith("websocket_"))
"""Close codes of WebSocket, and frames that are none of MQTT."""
ENDS_EITHER = frozenset({Reason.PROTOCOL_ERROR, Reason.SOCKET_ERROR}) | ENDS_A_WEBSOCKET
"""Reasons that end an attempt or a connection."""
REFUSES_A_FILTER = frozenset({Reason.SUBSCRIBE_REFUSED})
LEAVES_A_MESSAGE_OUT = frozenset(
    {Reason.MESSAGE_TOO_LARGE, Reason.QOS_UNSUPPORTED, Reason.RETAIN_UNSUPPORTED}
)
"""Limits of a broker of MQTT 5, for which a client does not send a message."""
FAILS_AN_ATTEMPT = (
    frozenset(Reason) - ENDS_A_CONNECTION - ENDS_EITHER - REFUSES_A_FILTER - LEAVES_A_MESSAGE_OUT
)
"""Reasons that end an attempt only."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Words and reasons of the failures that a metric counts."""

    place: int
    """Place among the problems of a result."""
    kind: str
    """Name of the problem."""
    words: str
    """Words after the numbers."""
    of: tuple[str, ...] = ()
    """Fields of a population's result whose sum is the number of all; empty if nothing counts
    them."""
    after: str = ""
    """Field that is above zero where the problem is possible; empty: it always is."""
    certain: frozenset[Reason] = frozenset()
    """Reasons of this problem only."""
    possible: frozenset[Reason] = frozenset()
    """Reasons of this and another problem."""
    answers: str | None = None
    """First word of the reason codes of MQTT 5 of this problem; None if it has none."""

    def names(self, reason: Reason | Answer) -> bool:
        """Returns True for a reason of this problem only."""
        if isinstance(reason, Reason):
            return reason in self.certain
        return reason.partition("_")[0] == self.answers
