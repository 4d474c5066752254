"""Topics and filters by the rules of their protocol: MQTT's have levels and wildcards, ZeroMQ's are
compared from their first byte on. It looks at a file as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pubstorm.scenario import fields
from pubstorm.scenario.at import At, Finding
from pubstorm.scenario.roles import mqtt_names
from pubstorm.units import UnfitError


def check_topics(root: At) -> Iterator[Finding]:
    """What MQTT refuses in the topics and filters of its populations."""
    names = mqtt_names(root)
    for population in root["populations"].named():
        if population.path[-1] not in names:
            continue
        for part in (population, *population["shares"].named()):
            for publication in part["publications"].entries():
                yield from _check(publication["topic"], fields.topic)
            for subscription in part["subscriptions"].entries():
                short = not isinstance(subscription.data, dict)
                yield from _check(
                    At(subscription.data, (*subscription.path, "topic"))
                    if short
                    else subscription["topic"],
                    fields.topic_filter,
                )


def _check(written: At, mqtt: Callable[[object], str]) -> Iterator[Finding]:
    """What is wrong by MQTT's rules alone; the rest is told by the type of the field."""
    try:
        fields.flow_topic(written.data)
    except UnfitError:
        return
    try:
        mqtt(written.data)
    except UnfitError as unfit:
        hint = EMPTY_HINT if written.data == "" else unfit.hint
        yield written.path, str(unfit), hint


EMPTY_HINT = "only ZeroMQ has empty ones: its subscribers say at: and a population of publishers"
