"""Publications that no subscriber receives and filters that no publication matches, from sampled
messages and clients of a plan. The first and the last of each range are among the samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pubstorm.offered import receivers
from pubstorm.offered.matching import Matching
from pubstorm.plan import (
    ZMTP,
    AddClients,
    Plan,
    Population,
    Presence,
    PublishAction,
    rows_of,
    template_of,
)
from pubstorm.template import TemplateError

SAMPLES = 64
"""Messages of a publication, and filters of a subscription, that are looked at."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A publication or subscription with topics that lead nowhere."""

    population: int
    """Index of the population."""
    key: Literal["publications", "subscriptions"]
    number: int
    """Number of it within the population."""
    example: str
    """A topic without subscriber, or a filter without publication."""
    share: float
    """Share of the sampled topics or filters that are unmatched, above 0 and up to 1."""


def unmatched(plan: Plan) -> Iterator[Unmatched]:
    """All that the clients of a plan publish or subscribe to in vain."""
    plan = _with_all_that_connect(plan)
    publishing = _publishing(plan)
    if not publishing:
        return
    # Without any subscription, publishing is all that a plan wants.
    subscribes = any(population.subscriptions for population in plan.populations)
    for index, population in enumerate(plan.populations):
        if population.clients and index in publishing and subscribes:
            yield from _unreceived(plan, index, population)
        if population.clients and population.version != ZMTP and not plan.bridges:
            yield from _unpublished(plan, index, population, publishing)


def never_connected(plan: Plan) -> list[int]:
    """Indices of the populations that no stage connects."""
    most = _most_present(plan)
    return [index for index, clients in enumerate(most) if not clients]


def _most_present(plan: Plan) -> list[int]:
    """Most clients of each population that stages and changes bring up."""
    presence = Presence(plan)
    most = list(presence.counts)
    for stage in plan.stages:
        presence.enter(stage)
        most = list(map(max, most, presence.counts))
        changes = stage.action.changes if isinstance(stage.action, PublishAction) else ()
        for change in changes:
            presence.change(change.population, change.action)
            if isinstance(change.action, AddClients):
                most = list(map(max, most, presence.counts))
    return most


def _with_all_that_connect(plan: Plan) -> Plan:
    """The plan without the clients that no stage connects."""
    pairs = zip(plan.populations, _most_present(plan), strict=True)
    there = tuple(each.model_copy(update={"clients": clients}) for each, clients in pairs)
    return plan.model_copy(update={"populations": there})


def _publishing(plan: Plan) -> frozenset[int]:
    """Populations that publish in some stage."""
    chosen: set[int] = set()
    for stage in plan.stages:
        if isinstance(stage.action, PublishAction):
            chosen.update(stage.populations, (each.population for each in stage.action.changes))
    return frozenset(p for p in chosen if plan.populations[p].publications)


def _unreceived(plan: Plan, index: int, population: Population) -> Iterator[Unmatched]:
    for number, publication in enumerate(population.publications):
        sample = list(_topics(population, publication.topic))
        lost = [topic for client, topic in sample if not receivers(plan, index, client, topic)]
        if lost:
            share = len(lost) / len(sample)
            yield Unmatched(index, "publications", number, lost[-1], share)


def _unpublished(
    plan: Plan, index: int, population: Population, publishing: frozenset[int]
) -> Iterator[Unmatched]:
    publications = [
        (publisher, publication)
        for p in sorted(publishing)
        if (publisher := plan.populations[p]).version != ZMTP
        for publication in publisher.publications
    ]
    wills = [each for each in plan.populations if each.clients and each.will is not None]
    for number, subscription in enumerate(population.subscriptions):
        sample = [text for _, text in _topics(population, subscription.filter)]
        silent = [
            text
            for text in sample
            if not _is_of_broker(text)
            and not any(_publishes(each, topic.topic, text) for each, topic in publications)
            and not any(_publishes(each, each.will.topic, text) for each in wills if each.will)
        ]
        if silent:
            share = len(silent) / len(sample)
            yield Unmatched(index, "subscriptions", number, silent[-1], share)


def _topics(population: Population, source: str) -> Iterator[tuple[int, str]]:
    """Up to `SAMPLES` clients, each with a text that a template has for it."""
    template = template_of(population, source)
    total = population.clients * template.variants
    for place in _spread(total):
        client, variant = place % population.clients, place // population.clients
        yield client, template.text(population.first + client, variant)


def _spread(count: int) -> Sequence[int]:
    """Up to `SAMPLES` indices below `count`, with the first and the last."""
    if count <= SAMPLES:
        return range(count)
    return [place * (count - 1) // (SAMPLES - 1) for place in range(SAMPLES)]


def _publishes(population: Population, topic: str, wanted: str) -> bool:
    """Returns True if a filter matches a value of a topic template, for any client."""
    texts = _without_group(wanted).split("/")
    try:
        levels = template_of(population, topic).levels()
    except TemplateError:
        # A level with two variables can be almost anything.
        return True
    if texts[-1] == "#":
        texts = texts[:-1]
        if len(levels) < len(texts):
            return False
        levels = levels[: len(texts)]
    if len(levels) != len(texts):
        return False
    kept = [pair for pair in zip(levels, texts, strict=True) if pair[1] != "+"]
    numbers = range(population.first, population.first + population.clients)
    if not kept:
        return True
    reduced = "/".join(text for _, text in kept)
    matching = Matching([level for level, _ in kept], reduced, numbers, rows_of(population))
    return matching.count() > 0


def _without_group(wanted: str) -> str:
    """A filter without the group of a shared subscription."""
    return wanted.split("/", 2)[2] if wanted.startswith("$share/") else wanted


def _is_of_broker(wanted: str) -> bool:
    """Returns True if a filter is for topics that the broker itself publishes."""
    return wanted.startswith("$") and not wanted.startswith("$share/")
