"""Decides what limited a run. Each kind of evidence has a culprit and a directness. Each piece of
evidence has a reach: the share of what is missing that it explains. The longest reach decides.
Symptoms show what is missing and not why, so they explain what the others leave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from pubstorm.contract.queue_limits import OF_AGE, OF_LENGTH
from pubstorm.quantities import count_text, rate_text
from pubstorm.result import FlowResult, LimitedBy, Measured, Phase, PhaseStatus, PopulationResult

DECIMALS = 2
"""Decimals of a reach that count: directness decides between equal ones."""
BEHIND_MIN = 0.05
"""Smallest part of the messages due that a phase which collapsed lacks, whatever its means say."""
MIN_READ_SHARE = 0.8
"""Share of their read rate that slow subscribers must reach for it to be the reason of a loss."""
STATE = "state"
"""Mark of evidence that limits only a load that was not carried: a full processor loses nothing."""


class Directness(IntEnum):
    """Distance of evidence from the limit that it names."""

    SYMPTOM = 0
    """Load is missing where it should have come out."""
    CIRCUMSTANCE = 1
    """Something beside the load took a part of the time."""
    COUNT = 2
    """A component's own count of what it refused or dropped."""
    CAUSE = 3
    """The limit itself, measured where it sets in."""


class EvidenceKind(Enum):
    """Kinds of evidence: the words, the culprit and the directness. Of equal reach and directness,
    the first decides."""

    NO_RESOURCE = "the host ran out of a resource", LimitedBy.HOST, Directness.CAUSE
    NO_PROCESSOR = "the host gave agents too little time", LimitedBy.HOST, Directness.CAUSE
    NO_CONNECTION = "no client could connect", LimitedBy.TARGET, Directness.CAUSE
    STALE_STATE = "the target holds stale state", LimitedBy.TARGET, Directness.CAUSE
    AGENT_LOST = "an agent or a link failed", LimitedBy.GENERATOR, Directness.CAUSE
    TOO_SLOW = "agents were late or busy", LimitedBy.GENERATOR, Directness.CAUSE
    HELD = "agents published nothing for a time", LimitedBy.GENERATOR, Directness.CAUSE
    CANNOT_ENCODE = "agents could not write a packet", LimitedBy.GENERATOR, Directness.CAUSE
    INEXACT = "a threshold is undecided", LimitedBy.GENERATOR, Directness.CAUSE
    WINDOW = "the rate is that of full windows", LimitedBy.WINDOW, Directness.CAUSE
    SLOW_READERS = "subscribers read slowly on purpose", LimitedBy.SCENARIO, Directness.CAUSE
    QUEUE_LIMITS = "queues or consumers have limits", LimitedBy.SCENARIO, Directness.CAUSE
    SMALL_PACKETS = "clients accept small packets only", LimitedBy.SCENARIO, Directness.CAUSE
    OTHER_SETTINGS = "a name has other settings", LimitedBy.SCENARIO, Directness.CAUSE
    FULL_LINK = "links of clients were full", LimitedBy.LINK, Directness.CAUSE, STATE
    NO_FILES = "a broker was out of files", LimitedBy.BROKER, Directness.CAUSE
    EXITED = "a broker exited", LimitedBy.BROKER, Directness.CAUSE
    SERVICE_EXITED = "a service exited", LimitedBy.SERVICE, Directness.CAUSE
    NO_PATH = "the path to the broker was gone", LimitedBy.NETWORK, Directness.CAUSE
    SLOW_PATH = "the path took less than came", LimitedBy.NETWORK, Directness.CAUSE, STATE
    UNREAD = "a broker left bytes unread", LimitedBy.BROKER, Directness.CAUSE, STATE
    RECEIVE_MAXIMUM = "clients waited to send", LimitedBy.BROKER, Directness.CAUSE
    BLOCKED = "a broker blocked publishers", LimitedBy.BROKER, Directness.CAUSE
    QUEUED = "messages of a closed loop queued", LimitedBy.BROKER, Directness.CAUSE
    FULL_SOCKETS = "a closed loop filled the sockets", LimitedBy.BROKER, Directness.CAUSE
    QUOTA = "a quota held a broker", LimitedBy.BROKER, Directness.CAUSE, STATE
    FULL_BROKER = "a broker was full", LimitedBy.BROKER, Directness.CAUSE, STATE
    PUBLISHER_EXITED = "a publisher exited", LimitedBy.PUBLISHER, Directness.CAUSE
    FULL_THREAD = "a thread of a publisher was full", LimitedBy.PUBLISHER, Directness.CAUSE, STATE
    FIREWALL = "a firewall was full", LimitedBy.HOST, Directness.CAUSE, STATE
    STARVED_BROKER = "a full host starved a broker", LimitedBy.HOST, Directness.CAUSE, STATE
    NO_TIME = "an agent had no time to keep up", LimitedBy.HOST, Directness.CAUSE, STATE
    REFUSED = "a broker does not accept messages", LimitedBy.BROKER, Directness.COUNT
    DROPS = "a broker counts its drops", LimitedBy.BROKER, Directness.COUNT
    PUBLISHER_DROPS = "a publisher dropped messages", LimitedBy.PUBLISHER, Directness.COUNT
    STARVED_AGENTS = "a host starved agents", LimitedBy.HOST, Directness.CIRCUMSTANCE, STATE
    STOLEN = "a hypervisor took time", LimitedBy.HOST, Directness.CIRCUMSTANCE, STATE
    UNSEEN = "a full host's broker was not read", LimitedBy.UNKNOWN, Directness.SYMPTOM, STATE
    ON_THE_PATH = "a latency is that of the path", LimitedBy.NETWORK, Directness.CAUSE
    LINK_DELAY = "a latency is that of links", LimitedBy.LINK, Directness.CAUSE
    AT_BROKER = "load is missing behind the broker", LimitedBy.BROKER, Directness.SYMPTOM
    AT_PUBLISHER = "load is missing behind a publisher", LimitedBy.PUBLISHER, Directness.SYMPTOM
    UNEXPLAINED = "nothing shows why load is missing", LimitedBy.UNKNOWN, Directness.SYMPTOM

    def __init__(
        self, words: str, culprit: LimitedBy, directness: Directness, state: str = ""
    ) -> None:
        self.words = words
        self.culprit = culprit
        self.directness = directness
        self.is_state = bool(state)

    def __call__(self, reach: float = 1.0) -> Evidence:
        """Returns evidence of this kind that explains a share of what is missing."""
        return Evidence(self, reach)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact that names a culprit."""

    kind: EvidenceKind
    reach: float
    """Share of what is missing that it explains, 0 to 1."""


def limit(found: Iterable[Evidence]) -> LimitedBy:
    """Returns the culprit whose evidence reaches furthest; of equal reach the most direct, then the
    first kind. None if no evidence says that load is missing."""
    evidence = list(found)
    if all(each.kind.is_state for each in evidence):
        return LimitedBy.NONE
    longest: dict[LimitedBy, Evidence] = {}
    for each in evidence:
        culprit = each.kind.culprit
        if each.kind.directness is not Directness.SYMPTOM:
            longest[culprit] = max(longest.get(culprit, each), each, key=_rank)
    rest = max(1.0 - sum(each.reach for each in longest.values()), 0.0)
    symptoms = (e for e in evidence if e.kind.directness is Directness.SYMPTOM)
    ranked = [*longest.values(), *(Evidence(e.kind, rest * e.reach) for e in symptoms)]
    return max(ranked, key=_rank).kind.culprit


def _rank(evidence: Evidence) -> tuple[float, int, int]:
    kind = evidence.kind
    return round(evidence.reach, DECIMALS), kind.directness, -_PLACES[kind]


@dataclass(frozen=True, slots=True)
class Uncarried:
    """The load that was not carried, as shares of what was due. Stages with faults are left out."""

    deliveries: float = 0.0
    """Expected deliveries that were lost."""
    wills: float = 0.0
    """Those of them that are wills."""
    messages: float = 0.0
    """Messages due that were not sent; all of them where a phase collapsed."""
    behind: float = 0.0
    """Messages that did not come in the phase that collapsed, of those due in it; 0 without one."""
    clients: float = 0.0
    """Clients that were never ready."""
    expected: int = 0
    """Expected deliveries."""
    unsent: int = 0
    """Messages due that were left out. Others waited, and were sent after their time."""

    @classmethod
    def of(cls, measured: Measured) -> Uncarried:
        """The load that a run did not carry."""
        populations = measured.populations.values()
        broken = [s for s in measured.stages if any(s.holds(f.at_s) for f in measured.faults)]
        lost = sum(flow.lost_total for flow in measured.flows)
        lost -= sum(flow.lost_total for stage in broken for flow in stage.flows)
        wills = sum(f.wills_expected_total - f.wills_received_total for f in measured.flows)
        expected = sum(flow.expected_total for flow in measured.flows)
        skipped = sum(population.skipped_total for population in populations)
        due = skipped + sum(population.sent_total for population in populations)
        named = {stage.name for stage in broken}
        # Phases weigh what starved while they collapsed: it explains no more than its share.
        lasted = [p for p in measured.phases if p.status in _NOT_CARRIED and p.stage not in named]
        asked = sum(population.asked for population in populations)
        never_ready = sum(population.never_ready for population in populations)
        return cls(
            deliveries=max(_share(lost, expected), 0.0),
            wills=max(_share(min(wills, lost), expected), 0.0),
            messages=1.0 if lasted else _share(skipped, due),
            behind=max((_behind(phase, _share(expected, due)) for phase in lasted), default=0.0),
            clients=_share(never_ready, asked),
            expected=expected,
            unsent=skipped,
        )

    @property
    def whole(self) -> float:
        """All shares together."""
        return self.deliveries + self.messages + self.clients

    def of_lost(self, deliveries: int) -> float:
        """Returns the reach of what explains some lost deliveries."""
        return self._reach(_share(deliveries, self.expected))

    def of_clients(self, share: float) -> float:
        """Returns the reach of what befell a share of the clients: it explains no more than its
        size, and everything where nothing is missing."""
        if not self.whole:
            return 1.0
        return min(_share(share, max(self.deliveries, self.messages, self.clients)), 1.0)

    def of_unsent(self, messages: int) -> float:
        """Returns the reach of what explains some messages that were left out; if none was, of what
        explains those that waited."""
        part = messages / self.unsent if self.unsent else 1.0
        return self._reach(part * self.messages)

    def of_time(self, share: float) -> float:
        """Returns the reach of a share of the time in which something stood still: it explains no
        more than its size, no client, which can connect later, and no will, which the drain waits
        for. Where nothing is missing, the share itself."""
        if not self.whole:
            return share
        deliveries = self.deliveries - self.wills
        explained = min(_share(share, max(deliveries, self.messages)), 1.0)
        return self._reach(explained * (deliveries + self.messages))

    def of_wait(self, share: float) -> float:
        """Returns the reach of a share of the time in which a program under test had no processor.
        Phases have not weighed it. Of one that collapsed, it explains what did not come in it, as
        far as that is no more than its size."""
        return replace(self, messages=self.behind or self.messages).of_time(share)

    def _reach(self, share: float) -> float:
        return min(share / self.whole, 1.0) if self.whole else 1.0


def on_purpose(measured: Measured, flow: FlowResult) -> tuple[str, EvidenceKind] | None:
    """Returns why deliveries of a flow stay away by the scenario, in words for the end of a
    sentence, and the kind of evidence; None if no setting of it explains that."""
    receiver = measured.populations[flow.to]
    ready, rate_per_s = receiver.ready_max, receiver.read_rate_per_s
    if rate_per_s is not None and _takes_all(measured, receiver, ready * rate_per_s):
        rate = rate_text(rate_per_s)
        words = f"; {flow.to} reads slowly on purpose: {rate} a second at most"
        return words, EvidenceKind.SLOW_READERS
    limits = receiver.queue_limits
    if limits is None:
        return None
    words = ""
    if limits.takes_most is not None and receiver.received_total >= limits.takes_most:
        words = f"{flow.to} acknowledges none, and takes {count_text(limits.takes_most)} at most"
    elif _takes_all(measured, receiver, limits.taken_per_s(ready)):
        rate = rate_text(limits.takes_per_s or 0.0)
        words = f"{flow.to} acknowledges late on purpose: {rate} a second at most from each queue"
    elif given := [
        f"{name}: {value}"
        for name, value in limits.arguments.items()
        if (name != OF_AGE or value < 1000 * measured.duration_s)
        and (name != OF_LENGTH or value < receiver.expected_total)
    ]:
        words = f"queues of {flow.to} let messages go by {' and '.join(given)}"
    return (f"; {words}", EvidenceKind.QUEUE_LIMITS) if words else None


def _takes_all(measured: Measured, receiver: PopulationResult, limit_per_s: float | None) -> bool:
    """Returns True if subscribers take as many deliveries as is their limit together, and not
    fewer: on purpose. While its agent has no processor, a subscriber reads nothing, and does not
    make up for it."""
    if not limit_per_s:
        return False
    reading = 1.0 - measured.fleet.starved_share
    return receiver.rates.received_per_s >= MIN_READ_SHARE * reading * limit_per_s


def _behind(phase: Phase, deliveries: float) -> float:
    """Returns the share of the messages due in a phase that were not sent, were not acknowledged,
    or did not arrive. `deliveries`: those expected of each message."""
    due, expected = phase.due_per_s, deliveries * phase.due_per_s
    unsent, queued = _share(due - phase.sent_per_s, due), _share(phase.queue_growth_per_s, due)
    return max(unsent, queued, _share(expected - phase.received_per_s, expected), BEHIND_MIN)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


_NOT_CARRIED = (PhaseStatus.COLLAPSED, PhaseStatus.NEVER_RECOVERED)
_PLACES = {kind: place for place, kind in enumerate(EvidenceKind)}
