"""The demand of a plan on all its agents at each moment, while clients connect, publish or are
idle: CPU time and bytes on the wire. Each packet has a segment of its own, of TCP over IPv4 and
Ethernet, as the counters of an interface count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.offered_load import FlapLoad, FlowLoad, OfferedLoad, Opening, PhaseLoad
from pubstorm.contract.plan import ConnectAction, Plan, PlannedPopulation, PlannedStage
from pubstorm.contract.protocol import OpenPace, PlannedPublication
from pubstorm.host.binaries import offered_load
from pubstorm.host.calibration import MICROSECONDS, Costs
from pubstorm.quantities import SECOND_NS

SEGMENT = 66
"""Headers of Ethernet (14), IPv4 (20) and TCP with time stamps (32): also what an acknowledgement
takes."""
HANDSHAKE_SEGMENT = 74
"""A SYN and its answer, with more options."""
PAYLOAD_MAX = 1448
"""Payload of a segment if a packet of the network has 1500 bytes."""
ACK, PING = 4, 2
"""PUBACK, PUBREC, PUBREL, PUBCOMP and CONNACK; PINGREQ and PINGRESP."""
QUIC_PACKET, QUIC_HANDSHAKE = 30, (2_600, 4_000)
"""Bytes that QUIC adds to a packet, with headers of UDP for those of TCP [RFC 9000, 17.3]; bytes
that a client sends and receives for the handshake, in datagrams of 1,200 bytes."""
TLS_RECORD = 22
"""Bytes that TLS 1.3 adds to a packet."""
FRAME = 8
"""Bytes that WebSocket adds to a packet at most, up to 64 KiB."""
UPGRADE = (240, 160)
"""Bytes of the request that opens a WebSocket, and of the answer."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that a client sends and receives."""

    out: float
    into: float

    def times(self, number: float) -> Bytes:
        """So many of them."""
        return Bytes(self.out * number, self.into * number)

    def plus(self, other: Bytes) -> Bytes:
        """Both."""
        return Bytes(self.out + other.out, self.into + other.into)

    def turned(self) -> Bytes:
        """The same from the other end."""
        return Bytes(self.into, self.out)


@dataclass(frozen=True, slots=True)
class Layers:
    """Protocols between IP and MQTT, besides TCP."""

    tls: bool = False
    websocket: bool = False
    quic: bool = False

    @property
    def packet(self) -> int:
        """Bytes that they add to a packet."""
        return self.quic * QUIC_PACKET + self.tls * TLS_RECORD + self.websocket * FRAME

    @property
    def opening(self) -> Bytes:
        """Bytes of their handshakes."""
        tls = Bytes(*TLS_HANDSHAKE).times(self.tls)
        segments = Bytes(UPGRADE[0] + SEGMENT, UPGRADE[1] + SEGMENT)
        quic = Bytes(*QUIC_HANDSHAKE).times(self.quic)
        return tls.plus(quic).plus(segments.times(self.websocket))


PLAIN = Layers()
"""MQTT directly over TCP."""
TLS_HANDSHAKE = (1_000, 4_000)
"""Bytes that a client sends and receives; a high estimate, for certificates."""


def message(publish: float, qos: int, layers: Layers = PLAIN) -> Bytes:
    """Bytes of a message and all answers to it, at the sending end; `publish`: its PUBLISH."""
    size = publish + layers.packet
    segments = ceil(size / PAYLOAD_MAX)
    alone = Bytes(size + SEGMENT * segments, SEGMENT * ceil(segments / 2))
    answer = SEGMENT + ACK + layers.packet
    match qos:
        case 0:
            return alone
        case 1:
            # The PUBACK carries TCP's acknowledgement, and has one of its own.
            return Bytes(alone.out + SEGMENT, answer)
        case _:
            return Bytes(alone.out + answer + SEGMENT, 2 * answer)


def ping(layers: Layers = PLAIN) -> Bytes:
    """A keep-alive: PINGREQ, PINGRESP and TCP's acknowledgement of that."""
    size = PING + SEGMENT + layers.packet
    return Bytes(size + SEGMENT, size)


def requests(number: float, sent: Bytes, layers: Layers = PLAIN) -> Bytes:
    """Bytes of `number` requests with an answer each, `sent` bytes of MQTT in all. The answer
    carries TCP's acknowledgement, and has one of its own."""
    each = Bytes(2 * SEGMENT + layers.packet, SEGMENT + layers.packet)
    return each.times(number).plus(sent)


def connection(opening: Opening, layers: Layers = PLAIN) -> Bytes:
    """Bytes of a connection from SYN to SUBACK, or to CONNACK without filters."""
    added = layers.packet
    out = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + opening.connect_bytes + added + SEGMENT
    # A new connection is acknowledged at once, before the CONNACK.
    into = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + ACK + added
    if opening.subscribe_bytes:
        out += SEGMENT + opening.subscribe_bytes + added + SEGMENT
        into += SEGMENT + opening.suback_bytes + added
    return Bytes(out, into).plus(layers.opening)


QOS2_COST = 2
"""A message of QoS 2 takes twice the packets of one of QoS 1."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The demand in every second of one span of the run."""

    name: str
    cpu_s: float
    """CPU time of agents: processors that are busy."""
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
    demand = _Demand(plan, offered_load(plan), costs)
    for stage, load in zip(plan.stages, demand.load.stages, strict=True):
        for phase in load.phases:
            found = demand.idle(phase)
            if isinstance(stage.action, ConnectAction):
                found = found.plus(demand.connecting(stage, stage.action.rate_per_s or 0))
            for flow in phase.at_peak.flows:
                found = found.plus(demand.flow(flow))
            for flaps in phase.flaps:
                found = found.plus(demand.flaps(flaps))
            yield found


@dataclass(frozen=True, slots=True)
class _Demand:
    """The demand of parts of a plan."""

    plan: Plan
    load: OfferedLoad
    costs: Costs

    def connecting(self, stage: PlannedStage, rate_per_s: float) -> Moment:
        """Connections at a rate, of the stage's populations in equal shares."""
        clients = sum(self.plan.populations[index].clients for index in stage.populations)
        found = Moment(stage.name, 0, Bytes(0, 0), 0)
        for index in stage.populations:
            share = self.plan.populations[index].clients / clients if clients else 0
            found = found.plus(self.arrivals(index, rate_per_s * share))
        return found

    def idle(self, phase: PhaseLoad) -> Moment:
        """The demand of active clients without messages: keep-alives of populations that do not
        send often, and reconnects after session lifetimes."""
        found = Moment(phase.name, 0, Bytes(0, 0), 0)
        busy = {
            flow.population
            for flow in phase.flows
            for population, publication in [self.sent_by(flow)]
            if isinstance(publication.pace, OpenPace)
            and publication.pace.period_ns < population.keep_alive_s * SECOND_NS
        }
        for index, clients in enumerate(phase.clients):
            population = self.plan.populations[index]
            if not population.can.has_broker:
                continue
            if population.keep_alive_s and index not in busy:
                rate = clients / population.keep_alive_s
                layers = self.layers(population)
                us = self.costs.ping.value + layers.quic * self.costs.quic_packet.value
                wire = ping(layers).times(rate)
                found = found.plus(Moment("", rate * _seconds(us), wire, 0))
            life = population.lifetime
            if life is not None and life.offline_ns is not None:
                turn_ns = max(1, (life.min_ns + life.max_ns) / 2 + life.offline_ns)
                found = found.plus(self.arrivals(index, clients * SECOND_NS / turn_ns))
        return found

    def sent_by(self, flow: FlowLoad) -> tuple[PlannedPopulation, PlannedPublication]:
        """Returns the population and the publication of a flow."""
        population = self.plan.populations[flow.population]
        return population, population.publications[flow.publication]

    def arrivals(self, index: int, rate_per_s: float) -> Moment:
        """Connections a second of the population with this index."""
        population, opening = self.plan.populations[index], self.load.populations[index].opening
        layers, costs = self.layers(population), self.costs
        us = costs.connect.value + layers.tls * costs.handshake.value
        us += layers.quic * (costs.quic_handshake.value + costs.quic_packet.value)
        us += costs.sent[1].value if population.subscriptions else 0
        wire = Bytes(0, 0) if opening is None else connection(opening, layers).times(rate_per_s)
        return Moment(population.name, rate_per_s * _seconds(us), wire, 0)

    def flow(self, flow: FlowLoad) -> Moment:
        """The messages of one publication, and their deliveries."""
        population, publication = self.sent_by(flow)
        delivered_per_s = sum(flow.delivered_per_s)
        if population.is_publisher:
            return Moment(population.name, 0, Bytes(0, 0), delivered_per_s)
        qos, layers, costs = publication.qos, self.layers(population), self.costs
        each = (s.qos for p in self.plan.populations for s in p.subscriptions)
        received_qos = min(qos, max(each, default=0))
        load = self.load.populations[flow.population].publications[flow.publication]
        out = message(load.message_bytes, qos, layers).times(flow.sent_per_s)
        into = message(load.message_bytes, received_qos, layers).turned().times(delivered_per_s)
        added = layers.quic * costs.quic_packet.value
        us = flow.sent_per_s * (costs.sent[min(qos, 1)].value + added) * _packets(qos)
        received = costs.received[min(received_qos, 1)].value + added
        us += delivered_per_s * received * _packets(received_qos)
        both_per_s = flow.sent_per_s + delivered_per_s
        return Moment(population.name, _seconds(us), out.plus(into), both_per_s)

    def flaps(self, flaps: FlapLoad) -> Moment:
        """The requests of flapping clients, which take as long as messages of QoS 1."""
        population = self.plan.populations[flaps.population]
        sent = Bytes(flaps.sent_bytes_per_s, flaps.received_bytes_per_s)
        wire = requests(flaps.requests_per_s, sent, self.layers(population))
        us = flaps.requests_per_s * self.costs.sent[1].value
        return Moment(population.name, _seconds(us), wire, 0)

    def layers(self, population: PlannedPopulation) -> Layers:
        """Returns the protocols between TCP and that of a population."""
        targets = [self.plan.targets[index] for index in population.at.targets]
        return Layers(
            tls=any(target.tls and not target.quic for target in targets),
            websocket=any(target.websocket is not None for target in targets),
            quic=any(target.quic for target in targets),
        )


def _packets(qos: int) -> int:
    return QOS2_COST if qos == 2 else 1


def _seconds(us: float) -> float:
    return us / MICROSECONDS
