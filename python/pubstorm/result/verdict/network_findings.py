"""Findings about the path between clients and brokers, from TCP's own account at its ends. Each
rule is a row: a condition, the culprit, and the words. The first that applies to an end decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pubstorm.contract import HOST
from pubstorm.quantities import bytes_text, duration_text, share_text
from pubstorm.result import Measured
from pubstorm.result.machinery import too_busy
from pubstorm.result.verdict.culprit import EvidenceKind, Uncarried
from pubstorm.result.verdict.findings import Finding
from pubstorm.result.verdict.link_findings import is_full
from pubstorm.result.verdict.watched_findings import starved_by_hosts

STANDING_BYTES, STANDING_S = 32 << 10, 0.1
"""Bytes in a queue, in the mean under load, and the time in which so many pass, from which they
stand there: less is on its way."""
CLOSED_SHARE = 0.5
"""Share of the unsent bytes from which a full window of the peer is the reason."""
RESENT_SHARE, RESENT_MIN_PER_S = 0.005, 1.0
"""Segments that TCP sent again, as a share and a second, from which the network loses some."""
WAITED_US = 250_000
"""Round trip above the shortest from which it waited in a queue of the network. Peers that have
nothing to send acknowledge up to 200 ms late."""
STARVED_SHARE = 0.1
"""Share of the intervals of agents from which a lack of processors explains slow subscribers."""
FAR_US = 2000
"""Shortest round trip from which the network is far."""
FAR_FACTOR = 2
"""Ratio of a latency to the shortest round trip up to which the network is most of it."""
QUICK_SHARE = 0.25
"""Share of the clients' wait up to which the broker answered quickly."""
STEADY_SHARE = 0.5
"""Shortest wait of clients, as a share of the median, from which the path delays all messages."""
SLOW_ANSWER_US = 20_000
"""Wait of clients from which the ticks of the kernel are exact enough to say where it was."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of connections, under load: a broker's, or that of the clients on this host."""

    name: str
    figures: Mapping[str, float]
    """Means of readings, by their metrics without the first word, such as `unsent_bytes`."""
    readers: str
    """State of the subscribers: `busy`, `starved`, `slow` on purpose, `linked` by links that are
    full, or empty."""
    is_clients: bool = False
    peer_unread_bytes: float | None = None
    """Bytes that the brokers had not read, for the clients' end; None if that is not known."""

    def __getitem__(self, figure: str) -> float:
        """Returns a figure; 0 if it was not read."""
        return self.figures.get(figure, 0.0)

    @property
    def is_proxy(self) -> bool:
        """True if it passes its connections on."""
        return self["onward_connections"] > 0

    @property
    def answer_us(self) -> float | None:
        """Time until it, or what is behind a proxy, answered; None if no answer was seen."""
        return self.figures.get("onward_answer_us" if self.is_proxy else "answer_us")

    @property
    def stands(self) -> bool:
        """True if bytes stood unsent."""
        return _stand(self["unsent_bytes"], self["acked_bytes_per_s"])

    @property
    def is_unread(self) -> bool:
        """True if bytes waited for the program at this end."""
        return _stand(self["unread_bytes"], self["received_bytes_per_s"])

    @property
    def is_peer_unread(self) -> bool:
        """True if brokers had bytes to read: then they, and not the path, filled their windows."""
        return (self.peer_unread_bytes or 0.0) >= STANDING_BYTES

    @property
    def is_onward_unread(self) -> bool:
        """True if a proxy left bytes for its clients unread."""
        return self.is_proxy and _stand(self["onward_unread_bytes"], self["acked_bytes_per_s"])

    @property
    def is_onward_unsent(self) -> bool:
        """True if bytes of a proxy waited for what is behind it."""
        return self.is_proxy and _stand(self["onward_unsent_bytes"], self["received_bytes_per_s"])

    @property
    def is_closed(self) -> bool:
        """True if the windows of its peers held the unsent bytes up."""
        return self["unsent_closed_bytes"] >= CLOSED_SHARE * self["unsent_bytes"]

    @property
    def resends(self) -> bool:
        """True if TCP sent segments again, more than now and then."""
        least = max(RESENT_SHARE * self["segments_per_s"], RESENT_MIN_PER_S)
        return self["resent_per_s"] >= least

    @property
    def words(self) -> Mapping[str, str]:
        """Its figures in words."""
        sent = self["segments_per_s"]
        return {
            "name": self.name,
            "unread": bytes_text(self["unread_bytes"]),
            "unsent": bytes_text(self["unsent_bytes"]),
            "onward_unread": bytes_text(self["onward_unread_bytes"]),
            "onward_unsent": bytes_text(self["onward_unsent_bytes"]),
            "resent": share_text(round(self["resent_per_s"] / sent if sent else 0.0, 4)),
            "rtt": duration_text(self["rtt_us"]),
            "least": duration_text(self["least_rtt_us"]),
        }


def _stand(waiting_bytes: float, passed_per_s: float) -> bool:
    """Returns True if bytes in a queue stood there, by what passed the queue."""
    return waiting_bytes >= max(STANDING_BYTES, STANDING_S * passed_per_s)


@dataclass(frozen=True, slots=True)
class PathRule:
    """A rule about an end."""

    applies: Callable[[End], bool]
    because: EvidenceKind | None
    """Evidence that it is; None if another finding names the culprit, or none is known."""
    words: str


_UNSENT = "{name} had {unsent} unsent in the mean, for brokers whose receive windows were full"
_UNREAD = "{name} had {unread} unread in the mean"
_SLOW = "{name} had {unsent} unsent in the mean, for subscribers whose receive windows were full"
PATH_RULES: tuple[PathRule, ...] = (
    PathRule(
        lambda end: end.is_onward_unread,
        EvidenceKind.SLOW_PATH,
        "{name} is a proxy: it passes its connections on, and had not read {onward_unread}, in "
        "the mean, of what came from behind it for the clients",
    ),
    PathRule(
        lambda end: end.is_proxy and end.is_unread and not end.is_onward_unsent,
        EvidenceKind.SLOW_PATH,
        "{name} is a proxy: it passes its connections on, and had not read {unread} of the "
        "clients, in the mean, though what is behind it took what it sent",
    ),
    PathRule(
        lambda end: end.is_onward_unsent,
        EvidenceKind.UNREAD,
        "{name} is a proxy, and had {onward_unsent} unsent, in the mean, for the broker behind it",
    ),
    PathRule(
        lambda end: end.resends,
        EvidenceKind.SLOW_PATH,
        "TCP of {name} sent {resent} of its segments again: the network lost them",
    ),
    PathRule(
        lambda end: end.stands and not end.is_closed,
        EvidenceKind.SLOW_PATH,
        "{name} had {unsent} unsent in the mean, though the receive windows of the other ends were "
        "open: the network took no more; a round trip of TCP took {rtt}, {least} at least",
    ),
    PathRule(
        lambda end: end["rtt_us"] - end["least_rtt_us"] >= WAITED_US,
        EvidenceKind.SLOW_PATH,
        "a round trip of TCP of {name} took {rtt}, {least} at least: packets queued in the network",
    ),
    PathRule(
        lambda end: end.is_clients and end.stands and end.peer_unread_bytes is None,
        None,
        f"{_UNSENT}: the broker or the path; the connections at the broker were not read",
    ),
    PathRule(
        lambda end: end.is_clients and end.stands and end.is_peer_unread,
        EvidenceKind.UNREAD,
        f"{_UNSENT}, and the broker had the bytes of clients unread",
    ),
    PathRule(
        lambda end: end.is_clients and end.stands,
        EvidenceKind.SLOW_PATH,
        f"{_UNSENT}, though the broker had read what came: something between reads too slowly",
    ),
    PathRule(
        lambda end: end.is_clients and end.is_unread and end.readers == "slow",
        None,
        f"{_UNREAD}: subscribers read slowly on purpose",
    ),
    PathRule(
        lambda end: end.is_clients and end.is_unread and end.readers == "starved",
        EvidenceKind.STARVED_AGENTS,
        f"{_UNREAD}: the host gave agents no processor",
    ),
    PathRule(
        lambda end: end.is_clients and end.is_unread and end.readers == "busy",
        None,
        f"{_UNREAD}: agents were busy",
    ),
    PathRule(
        lambda end: end.is_clients and end.is_unread and end.readers == "linked",
        None,
        f"{_UNREAD}: the links of clients took no more",
    ),
    PathRule(
        lambda end: not end.is_clients and not end.is_proxy and end.is_unread,
        EvidenceKind.UNREAD,
        f"{_UNREAD}: clients sent more than it reads",
    ),
    PathRule(
        lambda end: end.stands and end.readers == "slow",
        None,
        f"{_SLOW}: they read slowly on purpose",
    ),
    PathRule(
        lambda end: end.stands and end.readers == "linked",
        None,
        f"{_SLOW}: their links took no more",
    ),
    PathRule(
        lambda end: end.stands and end.readers == "starved",
        EvidenceKind.STARVED_AGENTS,
        f"{_SLOW}: the host gave their agents no processor",
    ),
    PathRule(
        lambda end: end.stands and end.readers == "busy",
        None,
        f"{_SLOW}: their agents were busy",
    ),
    PathRule(
        lambda end: end.stands,
        EvidenceKind.SLOW_PATH,
        f"{_SLOW}, though their agents had time to read: something between reads too slowly, such "
        "as a proxy or a balancer",
    ),
)


def _paths(measured: Measured) -> Iterable[Finding]:
    """The first rule that applies to each end. It explains messages and deliveries, and no client
    that did not connect. What a broker left unread while a full host gave it no processor, the
    host has to explain."""
    missing, starved = Uncarried.of(measured), starved_by_hosts(measured)
    for end, rule in _applied(measured):
        waited = (
            max(starved.values(), default=0.0) if end.is_clients else starved.get(end.name, 0.0)
        )
        reach = missing.of_time(1.0 - (waited if rule.because is EvidenceKind.UNREAD else 0.0))
        because = None if rule.because is None else rule.because(reach)
        yield Finding(rule.words.format_map(end.words), because)


def _applied(measured: Measured) -> Iterator[tuple[End, PathRule]]:
    for end in ends(measured):
        rule = next((rule for rule in PATH_RULES if rule.applies(end)), None)
        if rule is not None:
            yield end, rule


def _latencies(measured: Measured) -> Iterable[Finding]:
    """The part of the latency that the path has."""
    for text in _on_the_path(measured):
        yield Finding(text)


def delays(measured: Measured) -> bool:
    """Returns True if the path explains a latency that was missed."""
    rules = (rule.because for _, rule in _applied(measured))
    return EvidenceKind.SLOW_PATH in rules or any(_on_the_path(measured))


def _on_the_path(measured: Measured) -> Iterator[str]:
    """Yields reasons, in words, for which latencies are mostly those of the path: the network is
    far, or the broker answered quickly and clients waited."""
    # A link of the scenario is no network.
    populations = [p for p in measured.populations.values() if not p.link_time_us.count]
    waited = [p.ack_latency_us.actual for p in populations if p.ack_latency_us.actual.count]
    came = [p.latency_us.actual for p in populations if p.latency_us.actual.count]
    for end in ends(measured):
        least_us, answer_us = end["least_rtt_us"], end.answer_us
        for p50 in (latency.p50 for latency in waited or came):
            if least_us >= FAR_US and p50 <= FAR_FACTOR * least_us:
                yield (
                    f"the network at {end.name} is far: a round trip of TCP took at least "
                    f"{duration_text(least_us)}, and half of the messages {duration_text(p50)}"
                )
                break
        # Processors that others have delay some messages, and a path delays all of them.
        for p50 in (latency.p50 for latency in waited if latency.min >= STEADY_SHARE * latency.p50):
            if answer_us is not None and p50 >= SLOW_ANSWER_US and answer_us <= QUICK_SHARE * p50:
                who = f"what is behind {end.name}, a proxy," if end.is_proxy else end.name
                yield (
                    f"{who} answered after {duration_text(answer_us)} at p50, and clients waited "
                    f"for {duration_text(p50)}: the path between took the rest"
                )
                break


def ends(measured: Measured) -> Iterator[End]:
    """Yields the ends of connections that were read: those of brokers first."""
    means: dict[str, dict[str, float]] = {}
    for each in measured.monitors:
        prefix, _, figure = each.metric.partition("_")
        if prefix == ("clients" if each.kind == "host" else "tcp") and each.load.count:
            means.setdefault(each.source, {})[figure] = each.load.mean
    readers = _readers(measured)
    clients = means.pop(HOST, None)
    brokers = [End(name, figures, readers) for name, figures in sorted(means.items())]
    yield from brokers
    if clients is not None:
        # A broker behind a proxy has not read what the proxy has unsent for it.
        unread = [e["onward_unsent_bytes" if e.is_proxy else "unread_bytes"] for e in brokers]
        yield End(
            "clients on this host",
            clients,
            readers,
            is_clients=True,
            peer_unread_bytes=sum(unread) if unread else None,
        )


def _readers(measured: Measured) -> str:
    fleet, populations = measured.fleet, measured.populations.values()
    if any(p.read_rate_per_s is not None for p in populations):
        return "slow"
    if any(map(is_full, populations)):
        return "linked"
    if fleet.starved_intervals_total > STARVED_SHARE * fleet.load_intervals_total:
        return "starved"
    return "busy" if too_busy(fleet.busy_intervals_total, fleet.load_intervals_total) else ""


NETWORK_RULES = (_paths, _latencies)
