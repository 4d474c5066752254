"""Checks the keys of MQTT 5 against the version and one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients, MqttPublication, MqttSubscription

CONNECT = (
    "session_expiry",
    "receive_maximum",
    "maximum_packet_size",
    "topic_aliases",
    "user_properties",
)
SUBSCRIPTION = ("no_local", "retain_handling", "identifier")
PUBLICATION = (
    "expiry",
    "content_type",
    "payload_format",
    "response_topic",
    "correlation_data",
    "user_properties",
    "topic_alias",
)


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
        for path, subscriptions in _subscriptions(population):
            yield from _check_no_local((*within, *path), subscriptions)


def _check_version(within: Path, population: MqttClients) -> Iterator[Finding]:
    yield from _check_keys(within, population, CONNECT, population.version)
    for path, part in _parts(population):
        keys = PUBLICATION if isinstance(part, MqttPublication) else SUBSCRIPTION
        yield from _check_keys((*within, *path), part, keys, population.version)


def _check_keys(within: Path, part: Part, keys: Sequence[str], version: str) -> Iterator[Finding]:
    for key in keys:
        if key in part.model_fields_set:
            message = f"found {key} with version {version}, allowed is {key} with version 5"
            yield (*within, key), message, "write version: 5 in the population"


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
    for name, share in population.shares.items():
        own = enumerate(share.publications or ())
        yield from ((("shares", name, "publications", n), each) for n, each in own)
