"""Checks the flows that programs beside the brokers carry: publication and subscribers exist, and
every name and every message can be followed."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.template import STAMP_BYTES, Template, VariableKind
from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.amqp import BUILT_IN, AmqpClients, routed_name
from pubstorm.scenario.amqp1 import address_name
from pubstorm.scenario.checks.populations import check_length
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.fields import VARIABLE, payload_texts, published_topic, subject
from pubstorm.scenario.flows import DeclaredFlow, Publication
from pubstorm.scenario.kafka import topic_of_kafka
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population

READERS = {
    "MQTT": published_topic,
    "NATS": subject,
    "Kafka": topic_of_kafka,
    "AMQP": routed_name,
    "AMQP 1.0": address_name,
}
"""Readers of names by the title of their protocol."""


def check_flows(scenario: Scenario) -> Iterator[Finding]:
    """Yields flows that cannot be followed."""
    for number, flow in enumerate(scenario.flows):
        path: Path = ("flows", number)
        names = list(scenario.populations)
        missing = [key for key in ("of", "at") if getattr(flow, key) not in names]
        for key in missing:
            yield (*path, key), *unknown("population", getattr(flow, key), names)
        if not missing:
            yield from _check_from(path, flow, scenario)
            yield from _check_to(path, flow, scenario)


def _check_from(path: Path, flow: DeclaredFlow, scenario: Scenario) -> Iterator[Finding]:
    """Yields a flow without a publication, and publications without stamps."""
    publisher = scenario.populations[flow.of]
    around, shares = scenario.around(publisher), publisher.differing.values()
    own = [*publisher.flows, *(each for share in shares for each in share.flows)]
    wanted, topics = scenario.names_of(flow)[0], [publisher.topic_of(each, around) for each in own]
    found = [each for each, topic in zip(own, topics, strict=True) if topic == wanted]
    if not found:
        yield (*path, "from"), *unknown(f"topic of {flow.of}", flow.from_, [*dict.fromkeys(topics)])
    variables = Template.parse(wanted)
    if variables.columns or variables.has(VariableKind.RECORDED):
        message = f"found {describe(flow.from_)}, allowed are {{n}}, ranges and choices"
        yield (*path, "from"), message, "the names of a flow follow from the number of the client"
    if not all(map(_has_stamp, found)):
        message = f"found messages of {flow.of} whose payload has no stamp, needed is one"
        hint = "write a size of 32B or more, or {stamp} into the payload: the ledger follows stamps"
        yield (*path, "from"), message, hint


def _has_stamp(publication: Publication) -> bool:
    """Returns True if each payload has a stamp, which programs of others may keep."""
    if publication.source is not None:
        return publication.source.stamp == "front"
    if publication.payload is None:
        return publication.size.bytes_min >= STAMP_BYTES
    texts = (text for _, text in payload_texts(publication.payload))
    return any(Template.parse(text).has(VariableKind.STAMP) for text in texts)


def _check_to(path: Path, flow: DeclaredFlow, scenario: Scenario) -> Iterator[Finding]:
    """Yields a name that is none at the subscribers, or that does not follow from the topic."""
    receiver, where = scenario.populations[flow.at], (*path, "to")
    if not receiver.can.has_broker or receiver.is_publisher:
        message = f"found {flow.at}, allowed are populations that connect to a broker"
        yield (*path, "at"), message, None
    elif receiver.can.title in READERS:
        try:
            READERS[receiver.can.title](flow.to)
        except UnfitError as unfit:
            message = f"found {describe(flow.to)}, allowed {unfit.allowed}"
            yield where, f"{message}, as {receiver.can.title} has it", unfit.hint
            return
    name, arrives = scenario.names_of(flow)
    if (most := receiver.can.text_bytes_max) is not None:
        yield from check_length(where, Template.parse(arrives), most)
    if isinstance(receiver, AmqpClients):
        yield from _check_exchange(where, flow, receiver, scenario)
    given = {str(each) for each in Template.parse(name).variables}
    for variable in Template.parse(arrives).variables:
        if str(variable) not in given:
            allowed = ", ".join(sorted(given)) or "none"
            message = f"found {variable}, allowed are the variables of from: {allowed}"
            yield where, message, "nothing says which value the program writes there"
    yield from _check_place(path, flow, scenario)


def _check_exchange(
    where: Path, flow: DeclaredFlow, receiver: AmqpClients, scenario: Scenario
) -> Iterator[Finding]:
    """Yields an exchange that no client declares, and a virtual host that does not follow."""
    around = scenario.around(receiver)
    host, exchange, _ = receiver.named(flow.to, around).split("/", 2)
    known = [*around.exchanges, *filter(None, BUILT_IN)]
    if exchange and exchange not in known and not around.is_at_target:
        yield where, *unknown("exchange", exchange, known)
    if VARIABLE.search(host) and flow.to.count("/") < 2:
        message = f"found {describe(flow.to)}, at clients in the virtual hosts {host}"
        hint = f"write {host}/{exchange}/KEY: its variables are those of from"
        yield where, f"{message}, needed is the virtual host in front", hint


def _check_place(path: Path, flow: DeclaredFlow, scenario: Scenario) -> Iterator[Finding]:
    """Yields subscribers at several brokers, and a name that the broker gives a message itself."""
    receiver, publisher = (scenario.populations[name] for name in (flow.at, flow.of))
    if scenario.topology.is_joined:
        return
    count = _targets(scenario, receiver)
    if count > 1:
        message = f"found {flow.at}, whose clients are at {count} brokers, needed is one broker"
        yield (*path, "at"), message, "write at: {brokers: NAME, first: 0, count: 1} there"
    is_same = (receiver.attached_to, count) == (publisher.attached_to, 1)
    names, own = receiver.can.names, publisher.can.names
    if is_same and names is not None and own is not None:
        name, arrives = scenario.names_of(flow)
        if names.twin(arrives) == own.twin(name):
            message = f"found {describe(flow.to)}, which the broker itself gives these messages"
            yield (*path, "to"), message, "leave the flow out"


def _targets(scenario: Scenario, population: Population) -> int:
    """Returns the number of targets of the clients of a population."""
    at, brokers = population.attached_to, scenario.topology.brokers
    targets = len(scenario.targets_of(population))
    if at is None:
        return targets + sum(broker.count for broker in brokers.values())
    broker = brokers.get(at.brokers)
    count = targets if broker is None else broker.count
    return at.count or max(count - at.first, 1)
