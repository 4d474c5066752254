"""A fitted model of an observation, where the original must not leave: for each kind of clients the
number of clients, the rate, the sizes and the shape of the topics. No recorded topic, instant or
client is in it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    mean_rate,
    milliseconds,
)
from pubstorm.cli.record.population import SCENARIO, Observed
from pubstorm.contract.template import STAMP_BYTES
from pubstorm.errors import UsageError
from pubstorm.quantities import SECOND_NS

MODELS_MAX = 20
"""Populations of a model: clients whose rates are alike to a power of two."""
SPREAD_MAX = 0.99
POISSON_MIN = 0.5
"""Coefficient of variation of the times between messages from which arrivals are Poisson."""
SIZES_WITHIN = 4
"""Standard deviations that stay above the size of a stamp."""


@dataclass
class _Fitted:
    """The messages of one client with one QoS and RETAIN flag."""

    count: int = 0
    last_ns: int = 0
    gaps: int = 0
    gap_sum: float = 0.0
    gap_squares: float = 0.0
    size_sum: float = 0.0
    size_squares: float = 0.0
    topics: set[str] = field(default_factory=set)

    def add(self, at_ns: int, topic: str, size_bytes: int) -> None:
        """Counts a message."""
        if self.count:
            gap = (at_ns - self.last_ns) / SECOND_NS
            self.gaps += 1
            self.gap_sum += gap
            self.gap_squares += gap * gap
        self.count += 1
        self.last_ns = at_ns
        size = max(size_bytes, STAMP_BYTES)
        self.size_sum += size
        self.size_squares += size * size
        self.topics.add(topic)


def write_fitted(observed: Observed, folder: Path, target: str) -> list[str]:
    """Writes the scenario of a model into a new folder, and returns lines about it. Raises
    UsageError."""
    if not len(observed):
        raise UsageError(f"found no messages in {observed.source}")
    publishers: dict[tuple[str, int, bool], _Fitted] = defaultdict(_Fitted)
    start_ns = None
    for at_ns, identity, topic, size_bytes, qos, retain in observed.messages():
        start_ns = at_ns if start_ns is None else start_ns
        publishers[identity, qos, retain].add(at_ns, topic, size_bytes)
    span_s = max((observed.end_ns - (start_ns or 0)) / SECOND_NS, 1.0)
    scenario = ImportedScenario(comments=[f"# A model fitted to {observed.source}."])
    scenario.comments += [f"# {sentence}" for sentence in observed.unknown]
    scenario.clients = list(_models(publishers, span_s, target))
    scenario.clients += _subscribers(observed, scenario, target)
    for clients in scenario.clients:
        clients.length = milliseconds(math.ceil(span_s * 1000))
    try:
        folder.mkdir(parents=True)
        text = "\n".join(scenario.lines()) + "\n"
        (folder / SCENARIO).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"found {folder}, which cannot be made: {error.strerror}"
        raise UsageError(message, "name a folder that does not exist yet") from None
    names = ", ".join(clients.name for clients in scenario.clients)
    return [
        f"a model of {len(observed)} messages: {names}",
        f"play it: pubstorm run {folder / SCENARIO}",
    ]


def _subscribers(
    observed: Observed, scenario: ImportedScenario, target: str
) -> Iterator[ImportedClients]:
    """Yields subscribers that give each message the recorded deliveries, in the mean and rounded:
    each of them receives all messages."""
    deliveries = sum(client.deliveries for client in observed.clients.values())
    count = round(deliveries / len(observed))
    if not count:
        scenario.comments.append("# No subscribers: deliveries are unknown, or rare.")
        return
    mean = f"{deliveries / len(observed):.2f}"
    scenario.comments.append(f"# A message had {mean} deliveries in the mean; here {count}.")
    filters: list[Keys] = [{"topic": "model/#"}]
    yield ImportedClients("subscribers", [target], {"clients": count}, filters)


def _models(
    publishers: dict[tuple[str, int, bool], _Fitted], span_s: float, target: str
) -> Iterator[ImportedClients]:
    """Yields populations of publishers whose rates are alike."""
    groups: dict[tuple[int, int, bool], list[_Fitted]] = defaultdict(list)
    for (_, qos, retain), publisher in publishers.items():
        magnitude = round(math.log2(publisher.count / span_s))
        groups[magnitude, qos, retain].append(publisher)
    ordered = sorted(groups.items(), key=lambda item: -sum(p.count for p in item[1]))
    if len(ordered) > MODELS_MAX:
        # The rest has a place in the last model, so that the total rate stays the same.
        for _, others in ordered[MODELS_MAX:]:
            ordered[MODELS_MAX - 1][1].extend(others)
    for number, ((_, qos, retain), own) in enumerate(ordered[:MODELS_MAX], start=1):
        name = f"publishers{number}"
        messages = sum(publisher.count for publisher in own)
        publication: Keys = {
            "topic": _topic(name, own),
            "rate": mean_rate(messages, span_s * len(own)),
            "size": _size(own),
            "qos": qos,
        }
        if retain:
            publication["retain"] = True
        if _are_poisson(own):
            publication["arrivals"] = Plain("poisson")
        keys: Keys = {"clients": len(own)}
        yield ImportedClients(name, [target], keys, publications=[publication])


def _topic(name: str, own: list[_Fitted]) -> str:
    """Returns a topic of the commonest depth, with the mean number of topics of a client."""
    depths = Counter(topic.count("/") + 1 for publisher in own for topic in publisher.topics)
    depth = max(depths, key=lambda depth: (depths[depth], -depth))
    count = max(1, round(sum(len(publisher.topics) for publisher in own) / len(own)))
    inner = "level/" * max(0, depth - 4)
    return f"model/{name}/{{n}}/{inner}{{1..{min(count, 65_536)}}}"


def _size(own: list[_Fitted]) -> object:
    count = sum(publisher.count for publisher in own)
    mean = sum(publisher.size_sum for publisher in own) / count
    square = sum(publisher.size_squares for publisher in own) / count
    deviation = math.sqrt(max(0.0, square - mean * mean))
    # Smaller payloads would carry no stamp.
    spread = min(deviation, max(0.0, mean - STAMP_BYTES) / SIZES_WITHIN) / mean
    size = Plain(f"{round(mean)}B")
    return size if spread < 0.01 else {"mean": size, "spread": Plain(f"{spread:.2f}")}


def _are_poisson(own: list[_Fitted]) -> bool:
    gaps = sum(publisher.gaps for publisher in own)
    if gaps == 0:
        return False
    mean = sum(publisher.gap_sum for publisher in own) / gaps
    square = sum(publisher.gap_squares for publisher in own) / gaps
    return mean > 0 and math.sqrt(max(0.0, square - mean * mean)) / mean >= POISSON_MIN
