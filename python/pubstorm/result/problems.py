"""Problems: counted failures of populations by kind, with their reasons. Results store those of all
populations; findings name those of some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pubstorm.contract.snapshot import Answer, Reason
from pubstorm.quantities import count_text
from pubstorm.result.populations import PopulationResult
from pubstorm.result.summary import Problem

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


@dataclass(frozen=True)
class Kind:
    """A kind of problem."""

    name: str
    count: Callable[[PopulationResult], int]
    """Returns the number of a population."""
    of: Callable[[PopulationResult], int] | None
    """Returns the number of all; None if nothing counts them."""
    words: str
    """Words after the numbers."""
    certain: frozenset[Reason] = frozenset()
    """Reasons of this kind only."""
    possible: frozenset[Reason] = frozenset()
    """Reasons of this and another kind."""
    answers: str | None = None
    """First word of the reason codes of MQTT 5 of this kind; None if it has none."""

    def names(self, reason: Reason | Answer) -> bool:
        """Returns True for a reason of this kind only."""
        if isinstance(reason, Reason):
            return reason in self.certain
        return reason.partition("_")[0] == self.answers


def problems(
    populations: Mapping[str, PopulationResult], unfollowed_total: int
) -> tuple[Problem, ...]:
    """Returns the problems of all kinds that occurred."""
    found = [problem for kind in KINDS if (problem := problem_of(kind, populations)) is not None]
    if unfollowed_total:
        received = sum(population.received_total for population in populations.values())
        words = f"{_out_of(unfollowed_total, received)} deliveries were not followed"
        name = "deliveries not followed"
        problem = Problem(kind=name, count=unfollowed_total, of=received, text=words)
        found.append(problem)
    return tuple(found)


def problem_of(kind: Kind, populations: Mapping[str, PopulationResult]) -> Problem | None:
    """Returns the problem of one kind, over some populations; None if there was none."""
    by_population = {name: kind.count(each) for name, each in populations.items()}
    count = sum(by_population.values())
    if not count:
        return None
    of = sum(map(kind.of, populations.values())) if kind.of is not None else None
    reasons = sum((Counter(dict(_reasons(kind, p))) for p in populations.values()), Counter())
    why = reasons_text(reasons, populations.values())
    return Problem(
        kind=kind.name,
        count=count,
        of=of,
        text=f"{_out_of(count, of)} {kind.words}" + (f": {why}" if why else ""),
        reasons=dict(reasons.most_common()),
        populations={name: each for name, each in by_population.items() if each},
    )


def reasons_text(counts: Counter[Reason | Answer], populations: Iterable[PopulationResult]) -> str:
    """Returns reasons with their counts, the most frequent first: `12 connect refused`."""
    peer = "broker" if any(p.version != "zmtp-3.1" for p in populations) else "publisher"
    words = ((n, str(r).replace("_", " ").replace("broker", peer)) for r, n in counts.most_common())
    return ", ".join(f"{count_text(n)} {word}" for n, word in words if n)


def _reasons(kind: Kind, population: PopulationResult) -> Iterator[tuple[Reason | Answer, int]]:
    """Yields the reasons of a population for a kind. Reasons of several kinds fill the number that
    the reasons of this kind only leave."""
    room = kind.count(population)
    for is_meant in (kind.names, kind.possible.__contains__):
        for reason, count in sorted(population.outcomes.items()):
            if is_meant(reason) and min(count, room) > 0:
                yield reason, min(count, room)
                room -= min(count, room)


def _out_of(count: int, of: int | None) -> str:
    return count_text(count) if of is None else f"{count_text(count)} of {count_text(of)}"


def _asked(population: PopulationResult) -> int:
    """Returns the clients that should be connected at once, if any tried to connect."""
    return population.asked if population.connect_attempts_total else 0


def _never_ready(population: PopulationResult) -> int:
    return population.never_ready if population.connect_attempts_total else 0


def _total(name: str) -> Callable[[PopulationResult], int]:
    def total(population: PopulationResult) -> int:
        found = getattr(population, name)
        assert isinstance(found, int), "it is a count"
        return found

    return total


def _both(one: str, other: str) -> Callable[[PopulationResult], int]:
    return lambda population: _total(one)(population) + _total(other)(population)


SENT, EXPECTED, ATTEMPTS = (
    _total(name) for name in ("sent_total", "expected_total", "connect_attempts_total")
)
CONNECTIONS_FAILED = Kind(
    "connections failed",
    _total("connect_failed_total"),
    ATTEMPTS,
    "connection attempts failed",
    certain=FAILS_AN_ATTEMPT,
    possible=ENDS_EITHER,
    answers="connect",
)
CONNECTIONS_LOST = Kind(
    "connections lost",
    _total("disconnected_total"),
    _total("connected_total"),
    "connections were lost",
    certain=ENDS_A_CONNECTION,
    possible=ENDS_EITHER,
    answers="disconnect",
)
FILTERS_REFUSED = Kind(
    "subscribes refused",
    _total("subscribe_failed_total"),
    _both("subscribed_total", "subscribe_failed_total"),
    "filters were refused",
    certain=REFUSES_A_FILTER,
    answers="subscribe",
)
REMOVALS_REFUSED = Kind(
    "unsubscribes refused",
    _total("unsubscribe_failed_total"),
    _both("unsubscribed_total", "unsubscribe_failed_total"),
    "filters were not removed",
    answers="unsubscribe",
)
MESSAGES_REFUSED = Kind(
    "publishes refused",
    _total("rejected_total"),
    SENT,
    "messages sent were refused",
    answers="publish",
)
UNACKNOWLEDGED = Kind(
    "publishes unacknowledged",
    _total("in_flight"),
    SENT,
    "messages sent were not acknowledged when publishing ended",
)
GIVEN_UP = Kind(
    "publishes given up",
    _total("abandoned_total"),
    SENT,
    "messages sent were given up with their session",
)
DROPPED_UNSENT = Kind(
    "publishes dropped unsent",
    _total("unsent_dropped_total"),
    SENT,
    "messages sent were dropped with their connection before the socket took them",
)
SENT_AGAIN = Kind(
    "publishes sent again",
    _total("resent_total"),
    SENT,
    "messages sent were sent again after a reconnect",
)
KINDS: tuple[Kind, ...] = (
    Kind("clients never ready", _never_ready, _asked, "clients were never ready"),
    CONNECTIONS_FAILED,
    CONNECTIONS_LOST,
    FILTERS_REFUSED,
    REMOVALS_REFUSED,
    MESSAGES_REFUSED,
    Kind(
        "messages not sent",
        _total("skipped_total"),
        _both("sent_total", "skipped_total"),
        "scheduled messages were not sent",
        certain=LEAVES_A_MESSAGE_OUT,
    ),
    UNACKNOWLEDGED,
    GIVEN_UP,
    DROPPED_UNSENT,
    SENT_AGAIN,
    Kind("deliveries lost", _total("lost_total"), EXPECTED, "expected deliveries were lost"),
    Kind(
        "duplicates",
        _total("duplicate_total"),
        None,
        "deliveries were duplicates",
    ),
    Kind(
        "out of order",
        _total("reordered_total"),
        _total("received_total"),
        "deliveries came out of order",
    ),
    Kind(
        "too late to check",
        _total("stale_total"),
        None,
        "deliveries came too late to separate from duplicates",
    ),
    Kind(
        "expired",
        _total("expired_received_total"),
        None,
        "deliveries were messages that had expired",
    ),
    Kind("stalls", _total("stalled_total"), None, "times a subscriber stalled"),
)
