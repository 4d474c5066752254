"""Checks requests and answers: that answers can come, and that they come back to the client that
requests them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pubstorm.contract.template import Template, VariableKind
from pubstorm.scenario.checks.topics import covers
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.flows import MqttPublication, MqttSubscription
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients


def check_round_trips(scenario: Scenario) -> Iterator[Finding]:
    """Yields requests without a way back, and populations that can receive no request."""
    for name, population in scenario.populations.items():
        if not isinstance(population, MqttClients) or population.version != "5":
            continue
        within: Path = ("populations", name)
        shares = population.shares.values()
        written = [population.subscriptions, *(share.subscriptions for share in shares)]
        if population.responds is not None and not any(written):
            message = "found responds without subscriptions, needed is a subscription"
            yield (*within, "responds"), message, "subscribe to the topics of the requests"
        yield from _check_requests(
            scenario, within, population.publications, population.subscriptions
        )
        for share_name, share in population.shares.items():
            if share.publications is None and share.subscriptions is None:
                continue
            own = share.subscriptions
            path: Path = (*within, "shares", share_name)
            yield from _check_requests(
                scenario,
                path if share.publications is not None else within,
                population.publications if share.publications is None else share.publications,
                population.subscriptions if own is None else own,
            )


def _check_requests(
    scenario: Scenario,
    within: Path,
    publications: Iterable[MqttPublication],
    subscriptions: Iterable[MqttSubscription],
) -> Iterator[Finding]:
    for number, publication in enumerate(publications):
        if publication.request:
            path = (*within, "publications", number)
            yield from _check_request(path, publication)
            yield from _check_way_back(path, publication, subscriptions)
            if scenario.topology.bridges:
                message = "found request: true with bridges, allowed is a request without bridges"
                hint = "connect both populations to one broker, in a scenario without bridges"
                yield (*path, "request"), message, hint


def _check_request(path: Path, publication: MqttPublication) -> Iterator[Finding]:
    if publication.response_topic is None:
        message = "found request: true without response_topic, needed is one"
        yield (*path, "request"), message, 'for example response_topic: "reply/{n}"'
    if publication.correlation_data is not None:
        message = "found correlation_data with request: true, which has the stamp there"
        yield (*path, "correlation_data"), message, "leave correlation_data out"
    if publication.retain:
        message = "found retain: true with request: true, allowed is false"
        yield (*path, "retain"), message, "a retained message is not answered"


def _check_way_back(
    path: Path, publication: MqttPublication, subscriptions: Iterable[MqttSubscription]
) -> Iterator[Finding]:
    topic = publication.response_topic
    if topic is None:
        return
    if any(
        v.kind in {VariableKind.RANGE, VariableKind.CHOICE} for v in Template.parse(topic).variables
    ):
        message = f"found {topic!r} with request: true, allowed is a topic without range and choice"
        yield (*path, "response_topic"), message, 'for example response_topic: "reply/{n}"'
    elif topic == publication.topic:
        message = f"found {topic!r}, the topic of the requests, allowed is another one"
        yield (*path, "response_topic"), message, 'for example response_topic: "reply/{n}"'
    elif not any(covers(subscription.topic, topic) for subscription in subscriptions):
        message = (
            f"found {topic!r}, which no subscription of the population matches: answers would not "
            "come back"
        )
        hint = f"add {topic!r} to its subscriptions, outside of shared groups"
        yield (*path, "response_topic"), message, hint
