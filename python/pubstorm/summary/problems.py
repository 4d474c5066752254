"""Problems by kind: everything that ended otherwise than hoped, over all populations, each kind
with its numerator and its reasons. The kinds are data. Pure arithmetic on what a run measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pubstorm.quantity import count_text
from pubstorm.result import PopulationResult, Problem
from pubstorm.snapshot import Reason

ENDS_A_CONNECTION = frozenset(
    {
        Reason.CLOSED_BY_BROKER,
        Reason.RESET_BY_BROKER,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.DISCONNECT_TIMEOUT,
    }
)
"""Reasons that only a connection that was there can end for."""
ENDS_EITHER = frozenset({Reason.PROTOCOL_ERROR, Reason.SOCKET_ERROR})
"""Reasons that an attempt and a connection can end for."""
REFUSES_A_FILTER = frozenset({Reason.SUBSCRIBE_REFUSED})
FAILS_AN_ATTEMPT = frozenset(Reason) - ENDS_A_CONNECTION - ENDS_EITHER - REFUSES_A_FILTER
"""Reasons that only an attempt can fail for."""


@dataclass(frozen=True)
class Kind:
    """A kind of problem."""

    name: str
    count: Callable[[PopulationResult], int]
    """How often a population had it."""
    of: Callable[[PopulationResult], int] | None
    """Out of how many; None: out of nothing that anybody counts."""
    words: str
    """What it says after its numbers."""
    certain: frozenset[Reason] = frozenset()
    """Reasons that can mean nothing else."""
    possible: frozenset[Reason] = frozenset()
    """Reasons that can mean another kind too."""


def problems(
    populations: Mapping[str, PopulationResult], unfollowed_total: int
) -> tuple[Problem, ...]:
    """Every kind that there was."""
    found = [problem for kind in KINDS if (problem := _of(kind, populations)) is not None]
    if unfollowed_total:
        received = sum(population.received_total for population in populations.values())
        words = f"{_out_of(unfollowed_total, received)} deliveries were not followed"
        name = "deliveries not followed"
        problem = Problem(kind=name, count=unfollowed_total, of=received, text=words)
        found.append(problem)
    return tuple(found)


def _of(kind: Kind, populations: Mapping[str, PopulationResult]) -> Problem | None:
    by_population = {name: kind.count(each) for name, each in populations.items()}
    count = sum(by_population.values())
    if not count:
        return None
    of = sum(map(kind.of, populations.values())) if kind.of is not None else None
    reasons = dict(sum((Counter(dict(_reasons(kind, p))) for p in populations.values()), Counter()))
    shown = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    peer = "broker" if any(p.version == "mqtt-3.1.1" for p in populations.values()) else "publisher"
    why = ", ".join(f"{count_text(n)} {reason_text(reason, peer)}" for reason, n in shown.items())
    return Problem(
        kind=kind.name,
        count=count,
        of=of,
        text=f"{_out_of(count, of)} {kind.words}" + (f": {why}" if why else ""),
        reasons=shown,
        populations={name: each for name, each in by_population.items() if each},
    )


def _reasons(kind: Kind, population: PopulationResult) -> Iterator[tuple[Reason, int]]:
    """The reasons of a population for a kind. What may be of another kind too is of this one as far
    as the certain ones leave room."""
    room = kind.count(population)
    for among in (kind.certain, kind.possible):
        for reason, count in sorted(population.outcomes.items()):
            if reason in among and min(count, room) > 0:
                yield reason, min(count, room)
                room -= min(count, room)


def reason_text(reason: Reason, peer: str = "broker") -> str:
    """A reason in words; `peer` is what the clients were connected to."""
    return str(reason).replace("_", " ").replace("broker", peer)


def _out_of(count: int, of: int | None) -> str:
    return count_text(count) if of is None else f"{count_text(count)} of {count_text(of)}"


def _asked(population: PopulationResult) -> int:
    """Most clients that were to be there at once, of those that tried to be."""
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


SENT, OWED, ATTEMPTS = (
    _total(name) for name in ("sent_total", "expected_total", "connect_attempts_total")
)
KINDS: tuple[Kind, ...] = (
    Kind("clients never ready", _never_ready, _asked, "clients were never ready"),
    Kind(
        "connections failed",
        _total("connect_failed_total"),
        ATTEMPTS,
        "connection attempts failed",
        certain=FAILS_AN_ATTEMPT,
        possible=ENDS_EITHER,
    ),
    Kind(
        "connections lost",
        _total("disconnected_total"),
        _total("connected_total"),
        "connections were lost",
        certain=ENDS_A_CONNECTION,
        possible=ENDS_EITHER,
    ),
    Kind(
        "subscribes refused",
        _total("subscribe_failed_total"),
        _both("subscribed_total", "subscribe_failed_total"),
        "filters were refused",
        certain=REFUSES_A_FILTER,
    ),
    Kind(
        "messages not sent",
        _total("skipped_total"),
        _both("sent_total", "skipped_total"),
        "messages due were not sent",
    ),
    Kind(
        "publishes unacknowledged",
        _total("in_flight"),
        SENT,
        "messages sent were not acknowledged when publishing ended",
    ),
    Kind(
        "publishes given up",
        _total("abandoned_total"),
        SENT,
        "messages sent were given up with their session",
    ),
    Kind(
        "publishes dropped unsent",
        _total("unsent_dropped_total"),
        SENT,
        "messages sent were dropped with their connection before the socket took them",
    ),
    Kind(
        "publishes sent again",
        _total("resent_total"),
        SENT,
        "messages sent were sent again after a reconnect",
    ),
    Kind("deliveries lost", _total("lost_total"), OWED, "deliveries owed were lost"),
    Kind(
        "duplicates",
        _total("duplicate_total"),
        None,
        "deliveries came of messages that their receivers already had",
    ),
    Kind(
        "out of order",
        _total("reordered_total"),
        _total("received_total"),
        "deliveries came out of order",
    ),
    Kind(
        "too late to tell",
        _total("stale_total"),
        None,
        "deliveries came too late to be told from duplicates",
    ),
    Kind("stalls", _total("stalled_total"), None, "times a subscriber stalled"),
)
