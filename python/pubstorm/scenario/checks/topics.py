"""Topic filters and topics that are templates."""

from __future__ import annotations

import re

VARIABLE = re.compile(r"\{[^{}]*\}")


def covers(topic_filter: str, topic: str) -> bool:
    """Returns True if a filter matches a topic for each client, where both are templates."""
    levels, names = _levels(topic_filter), _levels(topic)
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names) or level not in {"+", names[place]}:
            return False
    return len(levels) == len(names)


def may_match(topic_filter: str, topic: str) -> bool:
    """Returns False if a filter matches the topic of no client, where both are templates. A shared
    filter is the one behind its group."""
    levels, names = _levels(topic_filter), _levels(topic)
    if levels[0] == "$share":
        levels = levels[2:]
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names):
            return False
        is_open = level == "+" or VARIABLE.search(level) or VARIABLE.search(names[place])
        if not is_open and level != names[place]:
            return False
    return len(levels) == len(names)


def _levels(topic: str) -> list[str]:
    """Returns the levels of a template; a variable may contain a slash."""
    return [
        level.replace("\0", "/")
        for level in VARIABLE.sub(lambda found: found[0].replace("/", "\0"), topic).split("/")
    ]
