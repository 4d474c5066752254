"""The topics of a plan: filters of its retained messages, and the topics on which it keeps messages
itself. Pure functions of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pubstorm.contract.offered_load import holds_stamp, template_of
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.protocol import PlannedPublication, RecordedPayload
from pubstorm.contract.recorded import kept_count, kept_templates, read_recorded
from pubstorm.contract.template import RECORDED, Template, Variable, VariableKind, run_tags

OWN_TOPICS_MAX = 200_000
"""Topics that are rendered to be recognised."""
RECORDED_FILTERS_MAX = 100
"""Recorded topics that have a filter each; of more, first levels have."""
SYS = "$SYS"
"""First level of the topics in which brokers report."""


def looked_at(plan: Plan) -> tuple[str, ...]:
    """Filters that hold all topics of the plan's publications and subscriptions, without those
    that lie within others. Left out are topics below `$SYS`: a broker keeps these itself."""
    filters = {wide for template in _templates(plan) for wide in _wildcards(template)}
    filters = {each for each in filters if each.partition("/")[0] != SYS}
    return tuple(sorted(f for f in filters if not any(g != f and _covers(g, f) for g in filters)))


@dataclass(frozen=True, slots=True)
class FirstPublisher:
    """The first client that publishes to a topic."""

    population: int
    """Index of its population."""
    client: int
    """Its index in the population."""
    stamps: bool
    """True if all messages of the topic have a stamp."""


@dataclass(frozen=True, slots=True)
class Own:
    """The topics and stamps that identify messages of this run on a broker."""

    run_tag: int
    publishers: dict[str, FirstPublisher]
    """Topics on which the run keeps messages."""
    is_complete: bool
    """True if these are all of them."""

    def has(self, topic: str, payload: bytes, before: dict[str, bytes] | None) -> bool:
        """True if this run published the message; `before` has the messages kept before the run.
        Without it, only a stamp shows whose the message is."""
        publisher = self.publishers.get(topic)
        if publisher is None:
            return False
        if self.run_tag in run_tags(payload):
            return True
        return before is not None and not publisher.stamps and before.get(topic) != payload


def own_topics(plan: Plan) -> Own:
    """The topics on which the plan's clients keep messages."""
    publishers: dict[str, FirstPublisher] = {}
    for topic, publisher in _publishers(plan):
        if len(publishers) >= OWN_TOPICS_MAX:
            return Own(plan.run_tag, publishers, is_complete=False)
        first = publishers.setdefault(topic, publisher)
        if first.stamps and not publisher.stamps:
            publishers[topic] = replace(first, stamps=False)
    return Own(plan.run_tag, publishers, is_complete=True)


def kept_topics(plan: Plan) -> int:
    """Returns the number of topics on which the plan's clients may keep messages: not more than
    that of their clients and topics together."""
    return sum(
        population.clients * template_of(population, topic).variants
        for population in plan.populations
        for topic, _ in _kept(population)
    ) + sum(
        kept_count(payload.file, population.clients)
        for population in plan.populations
        for _, payload in _recorded(population)
    )


def keeps_messages(plan: Plan) -> bool:
    """True if clients of the plan may leave retained messages."""
    return any(any(_kept(each)) or any(_recorded(each)) for each in plan.populations)


def _publishers(plan: Plan) -> Iterator[tuple[str, FirstPublisher]]:
    for index, population in enumerate(plan.populations):
        for topic, stamps in _kept(population):
            template = template_of(population, topic)
            for client in range(population.clients):
                publisher = FirstPublisher(index, client, stamps)
                for variant in range(template.variants):
                    yield template.text(population.first + client, variant), publisher
        for publication, payload in _recorded(population):
            offset = population.first - payload.first
            for source, client in kept_templates(payload.file, population.clients, offset):
                template = template_of(population, publication.topic.replace(RECORDED, source))
                publisher = FirstPublisher(index, client, stamps=True)
                yield template.text(population.first + client), publisher


def _kept(population: PlannedPopulation) -> Iterator[tuple[str, bool]]:
    """Topics with retained messages, and whether their payloads have a stamp."""
    for publication in population.publications:
        if not publication.retain or publication.recorded is not None:
            continue
        yield publication.topic, holds_stamp(publication)
    if population.will is not None and population.will.retain:
        yield population.will.topic, False


def _recorded(
    population: PlannedPopulation,
) -> Iterator[tuple[PlannedPublication, RecordedPayload]]:
    """Publications of recorded messages that the broker keeps."""
    for publication in population.publications:
        if publication.retain and publication.recorded is not None:
            yield publication, publication.recorded


def _templates(plan: Plan) -> Iterator[str]:
    for population in plan.populations:
        if not population.can.keeps_state:
            continue
        for publication in population.publications:
            if publication.recorded is None:
                yield publication.topic
            else:
                sources = {source for _, source in read_recorded(publication.recorded.file).kept}
                firsts = {source.partition("/")[0] + "/#" for source in sources}
                looked_for = sources if len(sources) <= RECORDED_FILTERS_MAX else firsts
                yield from (publication.topic.replace(RECORDED, each) for each in looked_for)
        yield from (subscription.filter for subscription in population.subscriptions)
        if population.will is not None:
            yield population.will.topic


def _wildcards(template: str) -> Iterator[str]:
    """Yields filters with a wildcard for each level that varies; of a shared filter, what it
    filters. One filter covers the options of a choice that have the same first level and the same
    number of levels."""
    parts = Template.parse(template).parts
    choice = next((p for p in parts if isinstance(p, Variable) and _has_levels(p)), None)
    for pattern in {"+"} if choice is None else _patterns(choice.words):
        texts = (
            part if isinstance(part, str) else pattern if part is choice else "+" for part in parts
        )
        levels = "".join(texts).split("/")
        levels = ["+" if "+" in level else level for level in levels]
        yield "/".join(levels[2:] if levels[0] == "$share" else levels)


def _has_levels(variable: Variable) -> bool:
    return variable.kind is VariableKind.CHOICE and any("/" in word for word in variable.words)


def _patterns(options: Sequence[str]) -> set[str]:
    """Returns the options of a choice with a wildcard for each level; the first level stays unless
    there are many."""
    split = [option.split("/") for option in options]
    firsts = {levels[0] for levels in split}
    is_many = len(firsts) > FIRST_LEVELS_MAX
    return {"/".join(["+" if is_many else levels[0], *["+"] * len(levels[1:])]) for levels in split}


FIRST_LEVELS_MAX = 100
"""First levels of the options of a choice that have filters of their own."""


def _covers(wide: str, narrow: str) -> bool:
    """True if every topic that `narrow` matches is matched by `wide`."""
    wides, narrows = wide.split("/"), narrow.split("/")
    for place, level in enumerate(wides):
        if level == "#":
            return not (place == 0 and narrows[0].startswith("$"))
        if place >= len(narrows) or (
            level != narrows[place] and (level != "+" or narrows[place] == "#")
        ):
            return False
    return len(wides) == len(narrows)
