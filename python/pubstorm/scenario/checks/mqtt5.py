"""Checks the keys of MQTT 5 against the version and one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pubstorm.contract.protocol import SCRAM, U32_MAX
from pubstorm.quantities import SECOND_NS, write_duration
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.flows import MqttPublication, MqttSubscription, Will
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients, MqttDifference

CONNECT = (
    "session_expiry",
    "receive_maximum",
    "maximum_packet_size",
    "topic_aliases",
    "user_properties",
    "responds",
    "authentication",
)
SUBSCRIPTION = ("no_local", "retain_as_published", "retain_handling", "identifier")
PUBLICATION = (
    "expiry",
    "content_type",
    "payload_format",
    "response_topic",
    "correlation_data",
    "user_properties",
    "topic_alias",
    "request",
)
WILL = ("delay", *(key for key in PUBLICATION if key != "topic_alias"))
STAMP = "pubstorm"
"""User property that has the stamp of a message whose payload has none."""
NO_END = U32_MAX * SECOND_NS
"""Session expiry of a session without end."""


def check_mqtt5(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, population in scenario.populations.items():
        if not isinstance(population, MqttClients):
            continue
        within: Path = ("populations", name)
        if population.version != "5":
            yield from _check_version(within, population)
        elif population.session == "persistent" and population.session_expiry == 0:
            message = "found session: persistent with session_expiry: 0s, needed is a longer one"
            yield (*within, "session_expiry"), message, "leave it out: then the session has no end"
        yield from _check_authentication(within, population)
        yield from _check_formats(within, population)
        yield from _check_stamp_name(within, population)
        for path, part in _endings(population):
            yield from _check_ending((*within, *path), part, population)
        for path, subscriptions in _subscriptions(population):
            yield from _check_no_local((*within, *path), subscriptions)


def _check_ending(
    path: Path, part: MqttClients | MqttDifference, population: MqttClients
) -> Iterator[Finding]:
    if part.end == "disconnect_with_will" and population.version != "5":
        message = (
            f"found disconnect_with_will with version {population.version}, allowed with it are "
            "disconnect, abort and vanish"
        )
        yield (*path, "end"), message, "write version: 5 in the population"
    will = part.will or population.will
    if population.version != "5" or will is None or will.delay is None:
        return
    if part.will is None and part.session is None:
        return
    session = part.session or population.session
    longest = population.session_expiry
    if longest is None:
        longest = NO_END if session == "persistent" else 0
    if will.delay > longest:
        message = (
            f"found a delay of {write_duration(will.delay)}, allowed is up to the session expiry "
            f"of {write_duration(longest)}: the broker publishes a will at the end of the session"
        )
        yield (*path, "will", "delay"), message, "write session_expiry in the population"


def _check_version(within: Path, population: MqttClients) -> Iterator[Finding]:
    yield from _check_keys(within, population, CONNECT, population.version)
    if population.password is not None and population.username is None:
        message = f"found password without username with version {population.version}"
        hint = "write username, or version: 5"
        yield (*within, "password"), f"{message}, needed are both", hint
    for path, part in _parts(population):
        keys = KEYS[type(part)]
        yield from _check_keys((*within, *path), part, keys, population.version)


def _check_keys(within: Path, part: Part, keys: Sequence[str], version: str) -> Iterator[Finding]:
    for key in keys:
        if key in part.model_fields_set:
            message = f"found {key} with version {version}, allowed is {key} with version 5"
            yield (*within, key), message, "write version: 5 in the population"


def _check_authentication(within: Path, population: MqttClients) -> Iterator[Finding]:
    authentication = population.authentication
    if authentication is None:
        return
    path, method, data = (*within, "authentication"), authentication.method, authentication.data
    if method != SCRAM:
        if data is None:
            message = f"found method {method} without data, allowed without data is {SCRAM}"
            yield (*path, "method"), message, "write data: TEXT, which CONNECT then has"
        return
    if data is not None:
        message = f"found data with method {SCRAM}, allowed are username and password"
        yield (*path, "data"), message, "write them in the population and leave data out"
    for key in ("username", "password"):
        if getattr(population, key) is None:
            message = f"found {SCRAM} without {key} of the population, needed are both"
            yield path, message, f"write {key}: TEXT in the population"


def _check_formats(within: Path, population: MqttClients) -> Iterator[Finding]:
    """Yields publications that call bytes a text; a broker may end such a connection."""
    for path, part in _parts(population):
        if not isinstance(part, MqttPublication) or part.payload is not None:
            continue
        if part.payload_format == "text":
            message = "found text without payload, allowed is bytes: data of a size is no UTF-8"
            hint = "write payload: TEXT in the publication, with {stamp} in it for latencies"
            yield (*within, *path, "payload_format"), message, hint


def _check_stamp_name(within: Path, population: MqttClients) -> Iterator[Finding]:
    """Yields user properties with the name of the stamp: receivers read them as stamps."""
    for path, part in _parts(population):
        if isinstance(part, (MqttPublication, Will)) and STAMP in part.user_properties:
            message = "found the name of the stamp, allowed is any other name"
            yield (*within, *path, "user_properties", STAMP), message, None


def _check_no_local(path: Path, subscriptions: Sequence[MqttSubscription]) -> Iterator[Finding]:
    own = [subscription.no_local for subscription in subscriptions]
    if any(own) and not all(own):
        message = (
            f"found no_local in {sum(own)} of {len(own)} subscriptions, allowed is all or none"
        )
        yield path, message, "put the others into a population of their own"
    for number, subscription in enumerate(subscriptions):
        if subscription.no_local and subscription.topic.startswith("$share/"):
            message = "found no_local in a shared subscription, allowed is false"
            yield (*path, number, "no_local"), message, "MQTT 5 forbids it [MQTT5-3.8.3-4]"


def _endings(population: MqttClients) -> Iterator[tuple[Path, MqttClients | MqttDifference]]:
    yield (), population
    yield from ((("shares", name), share) for name, share in population.shares.items())


def _subscriptions(
    population: MqttClients,
) -> Iterator[tuple[Path, tuple[MqttSubscription, ...]]]:
    yield ("subscriptions",), population.subscriptions
    for name, share in population.shares.items():
        yield ("shares", name, "subscriptions"), share.subscriptions or ()


def _parts(population: MqttClients) -> Iterator[tuple[Path, Part]]:
    for path, subscriptions in _subscriptions(population):
        yield from (((*path, n), each) for n, each in enumerate(subscriptions))
    yield from ((("publications", n), each) for n, each in enumerate(population.publications))
    for path, part in _endings(population):
        if part.will is not None:
            yield (*path, "will"), part.will
    for name, share in population.shares.items():
        own = enumerate(share.publications or ())
        yield from ((("shares", name, "publications", n), each) for n, each in own)


KEYS: Mapping[type[Part], Sequence[str]] = {
    MqttPublication: PUBLICATION,
    MqttSubscription: SUBSCRIPTION,
    Will: WILL,
}
"""Keys that only MQTT 5 has, by the part that has them."""
