"""What a plan asks of all its engines together at each moment: CPU time and bytes on the wire,
while clients connect, while they publish and while they are idle. It knows no host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.offered import FlowLoad, deliveries, stage_load
from pubstorm.plan import (
    ZMTP,
    ConnectAction,
    FixedPayload,
    GaussianPayload,
    OpenPace,
    Plan,
    Population,
    Presence,
    PublishAction,
    Stage,
    template_of,
)
from pubstorm.sizes.costs import MICROSECONDS, Costs
from pubstorm.sizes.wire import (
    Bytes,
    connection,
    message,
    ping,
    publish_bytes,
)
from pubstorm.template import MessageFacts

SECOND_NS = 10**9
CONNECT_BYTES = 12
"""A CONNECT without what a client says of itself."""
SOME_MESSAGE = MessageFacts(0, 1, MessageFacts.stream(0, 0), 1_700_000_000_000, bytes(32))
QOS2_COST = 2
"""A message of QoS 2 takes twice the packets of one of QoS 1."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is asked for in every second of one span of the run."""

    name: str
    cpu_s: float
    """CPU time of engines: processors that are busy."""
    wire: Bytes
    messages_per_s: float
    """Messages sent and delivered."""

    def plus(self, other: Moment) -> Moment:
        """Both at once, under this name."""
        return Moment(
            self.name,
            self.cpu_s + other.cpu_s,
            self.wire.plus(other.wire),
            self.messages_per_s + other.messages_per_s,
        )


def moments(plan: Plan, costs: Costs) -> Iterator[Moment]:
    """Every span of the run in which the same goes on. A connect stage without a rate asks for
    nothing: it goes as fast as it can. Closed loops count nothing, since their rate is the
    broker's."""
    for stage in plan.stages:
        presence = Presence.before(plan, stage).counts
        match stage.action:
            case ConnectAction(rate_per_s=rate_per_s):
                there = _idle(plan, stage.name, presence, costs)
                yield there.plus(_connecting(plan, stage, rate_per_s or 0, costs))
            case PublishAction():
                for phase in stage_load(plan, stage).phases:
                    busy = _busy(phase.flows)
                    found = _idle(plan, phase.name, phase.clients, costs, busy)
                    for flow in phase.flows:
                        found = found.plus(_flow(plan, flow, costs))
                    yield found
            case _:
                yield _idle(plan, stage.name, presence, costs)


def ledger_pairs(plan: Plan) -> float:
    """Streams, each counted for each of its receivers."""
    return sum(
        population.clients
        * template_of(population, publication.topic).variants
        * deliveries(plan, population, publication)
        for population in plan.populations
        for publication in population.publications
        if population.clients and not population.is_publisher
    )


def _connecting(plan: Plan, stage: Stage, rate_per_s: float, costs: Costs) -> Moment:
    """Connections at a rate, of the stage's populations in equal shares."""
    among = [plan.populations[index] for index in stage.populations]
    clients = sum(population.clients for population in among)
    found = Moment(stage.name, 0, Bytes(0, 0), 0)
    for population in among:
        share = population.clients / clients if clients else 0
        found = found.plus(_arrivals(plan, population, rate_per_s * share, costs))
    return found


def _idle(
    plan: Plan,
    name: str,
    presence: Sequence[int],
    costs: Costs,
    busy: frozenset[str] = frozenset(),
) -> Moment:
    """What those that are there ask for beside messages: keep-alives of those that are not `busy`,
    and the connections of those that come back."""
    found = Moment(name, 0, Bytes(0, 0), 0)
    for population, clients in zip(plan.populations, presence, strict=True):
        if population.version == ZMTP:
            continue
        if population.keep_alive_s and population.name not in busy:
            rate = clients / population.keep_alive_s
            one = ping(tls=_has_tls(plan, population))
            found = found.plus(Moment(name, rate * _seconds(costs.ping.value), one.times(rate), 0))
        life = population.lifetime
        if life is not None and life.again_ns is not None:
            turn_ns = max(1, (life.min_ns + life.max_ns) / 2 + life.again_ns)
            rate = clients * SECOND_NS / turn_ns
            found = found.plus(_arrivals(plan, population, rate, costs))
    return found


def _busy(flows: Sequence[FlowLoad]) -> frozenset[str]:
    """Populations that send so often that they need no PINGREQ."""
    return frozenset(
        flow.population.name
        for flow in flows
        if isinstance(flow.publication.pace, OpenPace)
        and flow.publication.pace.period_ns < flow.population.keep_alive_s * SECOND_NS
    )


def _arrivals(plan: Plan, population: Population, rate_per_s: float, costs: Costs) -> Moment:
    """Connections a second of one population."""
    tls = _has_tls(plan, population)
    us = costs.connect.value + (costs.handshake.value if tls else 0)
    subscribed = population.subscriptions
    if subscribed:
        us += costs.sent[1].value
    said = (population.client_id, population.username, population.password)
    connect = CONNECT_BYTES + sum(2 + len(_text(population, word)) for word in said if word)
    filters = [_text(population, each.filter) for each in subscribed]
    many = [template_of(population, each.filter).variants for each in subscribed]
    subscribe = 5 + sum(n * (3 + len(text)) for n, text in zip(many, filters, strict=True))
    wire = connection(connect, subscribe, sum(many), tls=tls)
    return Moment(population.name, rate_per_s * _seconds(us), wire.times(rate_per_s), 0)


def _flow(plan: Plan, flow: FlowLoad, costs: Costs) -> Moment:
    """The messages of one publication, and their deliveries."""
    population, publication = flow.population, flow.publication
    if population.is_publisher:
        return Moment(population.name, 0, Bytes(0, 0), flow.delivered_per_s)
    qos = publication.qos
    received_qos = min(qos, _highest_qos(plan))
    tls = _has_tls(plan, population)
    size = publish_bytes(len(_text(population, publication.topic)), _payload(flow))
    out = message(size, qos, tls=tls).times(flow.sent_per_s)
    into = message(size, received_qos, tls=tls).turned().times(flow.delivered_per_s)
    us = flow.sent_per_s * costs.sent[min(qos, 1)].value * _double(qos)
    us += flow.delivered_per_s * costs.received[min(received_qos, 1)].value * _double(received_qos)
    both_per_s = flow.sent_per_s + flow.delivered_per_s
    return Moment(population.name, _seconds(us), out.plus(into), both_per_s)


def _highest_qos(plan: Plan) -> int:
    """Of all subscriptions."""
    return max((each.qos for p in plan.populations for each in p.subscriptions), default=0)


def _double(qos: int) -> int:
    return QOS2_COST if qos == 2 else 1


def _payload(flow: FlowLoad) -> float:
    match flow.publication.payload:
        case FixedPayload(bytes=size_bytes):
            return size_bytes
        case GaussianPayload(mean_bytes=mean_bytes):
            return mean_bytes
        case text:
            last = flow.population.first + max(0, flow.population.clients - 1)
            template = template_of(flow.population, text.template)
            return len(template.message_text(last, 0, SOME_MESSAGE).encode())


def _text(population: Population, source: str) -> str:
    """A template as the population's last client has it, which has the longest number."""
    template = template_of(population, source)
    return template.text(population.first + max(0, population.clients - 1))


def _has_tls(plan: Plan, population: Population) -> bool:
    return any(plan.targets[index].tls for index in population.at.targets)


def _seconds(us: float) -> float:
    return us / MICROSECONDS
