"""Where a message goes over bridges: every target that it reaches, and the topic that it has there,
by the rules of `crates/plan/src/fan_out/crossing.rs`. It knows no population.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pubstorm.offered.matching import Matching, filter_levels
from pubstorm.plan import Bridges, Plan, Route
from pubstorm.template import Template


@dataclass(frozen=True, slots=True)
class Place:
    """Targets at which a message arrives under one topic."""

    targets: range
    topic: str
    but: int | None = None
    """The one of the targets at which it does not."""
    path: tuple[tuple[int, int, bool], ...] = ()
    """What it has crossed: index of the bridges, number of the small broker, whether inwards."""

    def within(self, first: int, count: int) -> tuple[int, int]:
        """How many of `count` targets from `first` on it reaches, and the first of these."""
        low = max(self.targets.start, first)
        reached = max(0, min(self.targets.stop, first + count) - low)
        if self.but is None or not low <= self.but < low + reached:
            return reached, low
        return reached - 1, low + (self.but == low)


def reached(plan: Plan, target: int, topic: str) -> list[Place]:
    """Everywhere that a message published at `target` arrives, beginning there."""
    places = [Place(range(target, target + 1), topic)]
    known = {(target, topic)}
    for place in places:
        if len(place.targets) > 1:
            continue
        for index in range(len(plan.bridges)):
            for found in _crossed(plan, index, place):
                where = (found.targets.start, found.topic)
                if len(found.targets) > 1 or where not in known:
                    known.add(where)
                    places.append(found)
    return places


def _crossed(plan: Plan, index: int, place: Place) -> Iterator[Place]:
    """Where the bridges with this index take a message from a place of one target."""
    bridges, target = plan.bridges[index], place.targets.start
    inward = target == bridges.main
    number = target - bridges.first
    if any((over, way) == (index, inward) for over, _, way in place.path):
        return
    came = next((n for over, n, _ in place.path[-1:] if over == index), None)
    if inward:
        yield from _inward(plan, index, place, came)
    elif 0 <= number < bridges.count and number != came:
        for route in _routes(bridges, "out"):
            levels = filter_levels(route.local_prefix + route.filter)
            if Matching(levels, place.topic, range(number, number + 1)).count():
                prefixes = (route.local_prefix, route.remote_prefix)
                topic = _renamed(place.topic, number, *prefixes)
                path = (*place.path, (index, number, False))
                yield Place(range(bridges.main, bridges.main + 1), topic, path=path)
                return


def _inward(plan: Plan, index: int, place: Place, came: int | None) -> Iterator[Place]:
    bridges, taken = plan.bridges[index], set[int]()
    for route in _routes(bridges, "in"):
        levels = filter_levels(route.remote_prefix + route.filter)
        numbers = Matching(levels, place.topic, range(bridges.count)).numbers()
        alike = not Template.parse(route.local_prefix + route.remote_prefix).variables
        prefixes = (route.remote_prefix, route.local_prefix)
        if alike and not taken and len(numbers) == bridges.count and _is_last(plan, index):
            targets = range(bridges.first, bridges.first + bridges.count)
            but = None if came is None else bridges.first + came
            path = (*place.path, (index, 0, True))
            yield Place(targets, _renamed(place.topic, 0, *prefixes), but, path)
            return
        for number in numbers:
            if number != came and number not in taken:
                target = bridges.first + number
                topic = _renamed(place.topic, number, *prefixes)
                path = (*place.path, (index, number, True))
                yield Place(range(target, target + 1), topic, path=path)
        taken.update(numbers)


def _routes(bridges: Bridges, direction: str) -> list[Route]:
    """Those that carry this way; first those that rename."""
    routes = [route for route in bridges.routes if route.direction in {direction, "both"}]
    return sorted(routes, key=lambda route: not (route.local_prefix or route.remote_prefix))


def _renamed(topic: str, number: int, old: str, new: str) -> str:
    rest = topic.removeprefix(Template.parse(old).text(number))
    return Template.parse(new).text(number) + rest


def _is_last(plan: Plan, index: int) -> bool:
    """Whether no other bridge touches the small brokers."""
    small = plan.bridges[index]
    low, high = small.first, small.first + small.count
    others = (bridges for other, bridges in enumerate(plan.bridges) if other != index)
    return not any(
        low <= other.main < high or (other.first < high and low < other.first + other.count)
        for other in others
    )
