"""Checks that retained messages can be distinguished where their flag is that of the publisher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.contract.stamp import STAMP_BYTES
from pubstorm.contract.template import Template, VariableKind
from pubstorm.scenario.checks.topics import may_match
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.fields import payload_texts
from pubstorm.scenario.flows import MqttPublication
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients, MqttDifference


def check_retained(scenario: Scenario) -> Iterator[Finding]:
    """Yields retained messages without a stamp that subscriptions may receive as published: the
    ledger could not distinguish a forwarded message from a kept one."""
    parts = list(_parts(scenario))
    filters = [
        (path[1], subscription.topic)
        for path, _, part in parts
        for subscription in part.subscriptions or ()
        if subscription.retain_as_published
    ]
    if not filters:
        return
    for path, version, part in parts:
        for number, publication in enumerate(part.publications or ()):
            if publication.retain and not _has_stamp(publication, version):
                hint = "write {stamp} into the payload, a size of 32B, or version: 5 with a payload"
                where = (*path, "publications", number, "retain")
                yield from _check_flow(where, publication.topic, filters, hint)
        if part.will is not None and part.will.retain:
            hint = "leave retain out: a will has no stamp"
            yield from _check_flow((*path, "will", "retain"), part.will.topic, filters, hint)


def _check_flow(
    path: Path, topic: str, filters: Sequence[tuple[object, str]], hint: str
) -> Iterator[Finding]:
    receiver = next((name for name, wanted in filters if may_match(wanted, topic)), None)
    if receiver is not None:
        message = (
            f"found retain: true without a stamp in messages that {receiver} receives with "
            "retain_as_published, allowed are messages with a stamp"
        )
        yield path, message, hint


def _has_stamp(publication: MqttPublication, version: str) -> bool:
    """Returns True if clients of MQTT 5 receive each message with a stamp."""
    if publication.payload is None:
        size = publication.size
        return size.mean - 4 * round(size.mean * size.spread) >= STAMP_BYTES
    texts = (text for _, text in payload_texts(publication.payload))
    return version == "5" or any(Template.parse(text).has(VariableKind.STAMP) for text in texts)


def _parts(scenario: Scenario) -> Iterator[tuple[Path, str, MqttClients | MqttDifference]]:
    for name, population in scenario.populations.items():
        if isinstance(population, MqttClients):
            yield ("populations", name), population.version, population
            for share_name, share in population.shares.items():
                yield ("populations", name, "shares", share_name), population.version, share
