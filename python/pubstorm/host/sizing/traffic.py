"""The demand of a plan on all its engines at each moment: CPU time and bytes on the wire, while
clients connect, publish or are idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.contract.flows import FixedPayload, GaussianPayload, OpenPace, Publication
from pubstorm.contract.offered_load import FlapLoad, FlowLoad
from pubstorm.contract.plan import ConnectAction, Plan, Population, Stage
from pubstorm.contract.template import MessageFacts
from pubstorm.contract.texts import template_of
from pubstorm.host.costs import MICROSECONDS, Costs
from pubstorm.host.explain import offered_load
from pubstorm.host.sizing.wire import (
    Bytes,
    Layers,
    connection,
    message,
    ping,
    publish_bytes,
    requests,
)
from pubstorm.quantities import SECOND_NS

CONNECT_BYTES = 12
"""Bytes of a CONNECT without client identifier, user name and password."""
SOME_MESSAGE = MessageFacts(0, 1, MessageFacts.stream(0, 0), 1_700_000_000_000, bytes(32))
QOS2_COST = 2
"""A message of QoS 2 takes twice the packets of one of QoS 1."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The demand in every second of one span of the run."""

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
    """The demand of each span of the run at its largest load. A connect stage without a rate and
    closed loops have no demand: they run as fast as the broker allows."""
    for stage, load in zip(plan.stages, offered_load(plan).stages, strict=True):
        for phase in load.phases:
            found = _idle(plan, phase.name, phase.clients, costs, _busy(plan, phase.flows))
            if isinstance(stage.action, ConnectAction):
                found = found.plus(_connecting(plan, stage, stage.action.rate_per_s or 0, costs))
            for flow in phase.at_peak.flows:
                found = found.plus(_flow(plan, flow, costs))
            for flaps in phase.flaps:
                found = found.plus(_flaps(plan, flaps, costs))
            yield found


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
    active: Sequence[int],
    costs: Costs,
    busy: frozenset[str],
) -> Moment:
    """The demand of active clients without messages: keep-alives of populations that are not
    `busy`, and reconnects after session lifetimes."""
    found = Moment(name, 0, Bytes(0, 0), 0)
    for population, clients in zip(plan.populations, active, strict=True):
        if population.zmtp is not None:
            continue
        if population.keep_alive_s and population.name not in busy:
            rate = clients / population.keep_alive_s
            one = ping(_layers(plan, population))
            found = found.plus(Moment(name, rate * _seconds(costs.ping.value), one.times(rate), 0))
        life = population.lifetime
        if life is not None and life.offline_ns is not None:
            turn_ns = max(1, (life.min_ns + life.max_ns) / 2 + life.offline_ns)
            rate = clients * SECOND_NS / turn_ns
            found = found.plus(_arrivals(plan, population, rate, costs))
    return found


def _busy(plan: Plan, flows: Sequence[FlowLoad]) -> frozenset[str]:
    """Populations that send so often that they need no PINGREQ."""
    return frozenset(
        population.name
        for population, publication in (_sent_by(plan, flow) for flow in flows)
        if isinstance(publication.pace, OpenPace)
        and publication.pace.period_ns < population.keep_alive_s * SECOND_NS
    )


def _sent_by(plan: Plan, flow: FlowLoad) -> tuple[Population, Publication]:
    population = plan.populations[flow.population]
    return population, population.publications[flow.publication]


def _arrivals(plan: Plan, population: Population, rate_per_s: float, costs: Costs) -> Moment:
    """Connections a second of one population."""
    layers = _layers(plan, population)
    us = costs.connect.value + (costs.handshake.value if layers.tls else 0)
    subscribed = population.subscriptions
    if subscribed:
        us += costs.sent[1].value
    said = (population.client_id, population.username, population.password)
    connect = CONNECT_BYTES + sum(2 + len(_text(population, word)) for word in said if word)
    filters = [_text(population, each.filter) for each in subscribed]
    many = [template_of(population, each.filter).variants for each in subscribed]
    subscribe = 5 + sum(n * (3 + len(text)) for n, text in zip(many, filters, strict=True))
    wire = connection(connect, subscribe, sum(many), layers)
    return Moment(population.name, rate_per_s * _seconds(us), wire.times(rate_per_s), 0)


def _flow(plan: Plan, flow: FlowLoad, costs: Costs) -> Moment:
    """The messages of one publication, and their deliveries."""
    population, publication = _sent_by(plan, flow)
    delivered_per_s = sum(flow.delivered_per_s)
    if population.is_publisher:
        return Moment(population.name, 0, Bytes(0, 0), delivered_per_s)
    qos = publication.qos
    received_qos = min(qos, _highest_qos(plan))
    layers = _layers(plan, population)
    size = publish_bytes(
        len(_text(population, publication.topic)), _payload(population, publication)
    )
    out = message(size, qos, layers).times(flow.sent_per_s)
    into = message(size, received_qos, layers).turned().times(delivered_per_s)
    us = flow.sent_per_s * costs.sent[min(qos, 1)].value * _double(qos)
    us += delivered_per_s * costs.received[min(received_qos, 1)].value * _double(received_qos)
    both_per_s = flow.sent_per_s + delivered_per_s
    return Moment(population.name, _seconds(us), out.plus(into), both_per_s)


def _flaps(plan: Plan, flaps: FlapLoad, costs: Costs) -> Moment:
    """The requests of flapping clients, which take as long as messages of QoS 1."""
    population = plan.populations[flaps.population]
    sent = Bytes(flaps.sent_bytes_per_s, flaps.received_bytes_per_s)
    wire = requests(flaps.requests_per_s, sent, _layers(plan, population))
    us = flaps.requests_per_s * costs.sent[1].value
    return Moment(population.name, _seconds(us), wire, 0)


def _highest_qos(plan: Plan) -> int:
    """Of all subscriptions."""
    return max((each.qos for p in plan.populations for each in p.subscriptions), default=0)


def _double(qos: int) -> int:
    return QOS2_COST if qos == 2 else 1


def _payload(population: Population, publication: Publication) -> float:
    match publication.payload:
        case FixedPayload(bytes=size_bytes):
            return size_bytes
        case GaussianPayload(mean_bytes=mean_bytes):
            return mean_bytes
        case text:
            last = population.first + max(0, population.clients - 1)
            template = template_of(population, text.template)
            return len(template.message_text(last, 0, SOME_MESSAGE).encode())


def _text(population: Population, source: str) -> str:
    """A template as the population's last client has it, which has the longest number."""
    template = template_of(population, source)
    return template.text(population.first + max(0, population.clients - 1))


def _layers(plan: Plan, population: Population) -> Layers:
    targets = [plan.targets[index] for index in population.at.targets]
    return Layers(
        tls=any(target.tls for target in targets),
        websocket=any(target.websocket is not None for target in targets),
    )


def _seconds(us: float) -> float:
    return us / MICROSECONDS
