"""Sweep and search as a scenario writes them: the steps with their names, and the values to look
between. It applies no value and tries none. The docstrings are the reference that users read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pubstorm.errors import REDACTED, has_reference, is_secret
from pubstorm.quantities import (
    KINDS,
    SECOND_NS,
    Notation,
    UnfitError,
    Unit,
    bits_per_s,
    count,
    duration_ns,
    factor,
    rate_per_s,
    size_bytes,
)
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import DocumentError, Finding, Path, read_document
from pubstorm.scenario.fields import (
    Amount,
    Confidence,
    Duration,
    Flag,
    GrowFactor,
    MetricName,
    Precision,
    Retries,
    SearchRepeat,
    SharePositive,
    SmallCount,
    StopLine,
    Text,
    text,
)


class TableColumn(Part):
    """A column of a table over a series: a metric of one variant, or what its steps vary."""

    SHORT_FOR: ClassVar[str | None] = "metric"

    metric: Text
    """A metric or word as in `table`, or what the steps vary: `clients`, or its whole path."""
    variant: Text | None = None
    """Variant that has the metric, if the sweep has variants."""

    def shows_step(self, paths: Iterable[str] | Mapping[str, str]) -> bool:
        """Returns True if the column shows a value that all variants of a step have in common: one
        that varies, or the step itself. `paths` are the paths that vary, with their names."""
        called = paths.values() if isinstance(paths, Mapping) else ()
        return self.metric == STEP or self.metric in {*paths, *called}


class Sweep(Part):
    """A series of steps: each is the scenario with some values changed. Give `vary` or `steps`, or
    `variants` alone."""

    vary: Mapping[str, Any] = Field(default_factory=dict)
    """Lists of values by path, such as `populations.device.clients: [500, 1000]`; several paths
    make a grid, the last one varying fastest."""
    steps: tuple[Mapping[str, Any], ...] = ()
    """Instead of `vary`: the steps one by one, each with its values by path. `step` gives a step a
    name of its own."""
    variants: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Named sets of values by path, such as `{fast: {populations.device.publications.0.rate:
    10/s}}`: each step is played once for each of them, in order. `{}` is a variant too."""
    only: tuple[Text, ...] = ()
    """Names of the variants that are played. Default: all."""
    repeat: SmallCount = 1
    """Repetitions of each step, one after the other."""
    broker: Literal["fresh", "same"] = "fresh"
    """`fresh`: each step has brokers of its own; `same`: all use those started for the first."""
    warm_up: Duration = 0
    """With `broker: same`: time for which the first step is played before it counts, for brokers
    that compile themselves while they run. It is played as whole runs, until this time has
    passed."""
    pause: Duration = 2 * SECOND_NS
    """Wait between two steps."""
    stop_when: tuple[StopLine, ...] = ()
    """Conditions that end the series after a step: `failed`, `invalid`, or a condition as in
    thresholds, such as `device.lost > 100`. With variants they end the variant of the step, and the
    others continue."""
    notes: Mapping[str, Text] = Field(default_factory=dict)
    """Free words for steps, by their label such as `clients 500` or their number, for the table."""

    @field_validator("vary", mode="before")
    @classmethod
    def check_vary(cls, value: object) -> object:
        """Keeps every path with a list of at least one value."""
        if value is None:
            return {}
        if isinstance(value, dict):
            for path, values in value.items():
                if not isinstance(values, list) or not values:
                    hint = None if isinstance(values, list | dict) else f"write [{values}]"
                    raise UnfitError(values, f"for {path} is a list of one or more values", hint)
        return value

    @field_validator("variants", mode="before")
    @classmethod
    def check_variants(cls, value: object) -> object:
        """Keeps every variant a mapping, with nothing written as an empty one."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return {name: {} if changed is None else changed for name, changed in value.items()}
        return value

    @field_validator("steps", mode="after")
    @classmethod
    def check_names(cls, steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Keeps every name a text of its own."""
        names = [text(step[NAME]) for step in steps if NAME in step]
        for number, name in enumerate(names):
            if not name or name in names[:number]:
                raise UnfitError(name, "is a name for each step that no other one has")
        return steps

    def rules(self) -> Iterator[Finding]:
        """Yields a warm-up of brokers that no other step uses."""
        yield from _cold(self)

    def variations(self) -> tuple[Variation, ...]:
        """Returns the changes of the steps, without repeats, in the order of playing."""
        bases = zip(self._changes(), self._places(), self._given(), strict=True)
        return tuple(
            _of_variant(base, name, self.variants[name]) if name is not None else base
            for values, places, given in bases
            for label in [given or _label(values, self.names)]
            for base in [Variation(values, places, label, label)]
            for name in self.played or (None,)
        )

    @property
    def played(self) -> tuple[str, ...]:
        """The variants that are played, in the order of the file."""
        return tuple(name for name in self.variants if not self.only or name in self.only)

    @property
    def names(self) -> dict[str, str]:
        """The name of each path that the steps vary, as labels have it."""
        return _names([path for change in self._changes() for path in change])

    @property
    def size(self) -> int:
        """Number of variations."""
        steps = prod(map(len, self.vary.values())) if self.vary else len(self._listed)
        return steps * max(1, len(self.played))

    @property
    def is_ladder(self) -> bool:
        """True if the load grows from each step to the next: every value that varies is a quantity
        that never falls. Then the steps up to one pass and those beyond fail. A grid of several
        paths has no such order, nor has a single step."""
        changes = self._changes()
        paths = {path for change in changes for path in change}
        rises = all(_rises([change.get(path) for change in changes]) for path in paths)
        differ = all(low != high for low, high in itertools.pairwise(changes))
        return len(changes) > 1 and rises and differ

    def _changes(self) -> list[Mapping[str, Any]]:
        if not self.vary:
            return [_values(step) for step in self._listed]
        grid = itertools.product(*self.vary.values())
        return [dict(zip(self.vary, values, strict=True)) for values in grid]

    def _given(self) -> list[str | None]:
        """The names of the steps; None where one is called by what it changes."""
        if self.vary:
            return [None] * prod(map(len, self.vary.values()))
        return [step.get(NAME) for step in self._listed]

    @property
    def _listed(self) -> tuple[Mapping[str, Any], ...]:
        """The steps one by one; where only variants are given, the scenario as it is written."""
        return self.steps or (({},) if self.variants else ())

    def _places(self) -> list[dict[str, Path]]:
        if not self.vary:
            return [
                {path: ("sweep", "steps", number, path) for path in _values(step)}
                for number, step in enumerate(self._listed)
            ]
        grid = itertools.product(*(range(len(values)) for values in self.vary.values()))
        return [
            {path: ("sweep", "vary", path, n) for path, n in zip(self.vary, place, strict=True)}
            for place in grid
        ]


def _cold(experiment: Sweep | Search) -> Iterator[Finding]:
    if experiment.warm_up and experiment.broker == "fresh":
        message = "found warm_up with fresh brokers, needed is broker: same"
        yield ("warm_up",), message, "a run warms up only the brokers that it plays on"


@dataclass(frozen=True, slots=True)
class Variation:
    """The values of one step."""

    values: Mapping[str, Any]
    """By path of the scenario."""
    places: Mapping[str, Path]
    """Place of each value in the file."""
    label: str
    """The values in short, such as `clients 500`, and the variant: `clients 500, fast`."""
    base: str
    """The label without the variant."""
    variant: str | None = None
    """The name of the variant; None where the sweep has none."""

    @property
    def overrides(self) -> dict[str, str]:
        """Each as `PATH=VALUE` for `--set`, by path."""
        return {path: f"{path}={written(value)}" for path, value in self.values.items()}


def numbered(named: Variation, played: Variation) -> Variation:
    """Returns a step as it is played at a scale. The name that a user gave it stays, and the values
    that the scale changed follow: `100 boxes (clients 3)`."""
    changed = {path: v for path, v in played.values.items() if named.values.get(path) != v}
    if not changed or played.label != named.label:
        return played
    base = f"{played.base} ({_label(changed, _names(list(changed)))})"
    label = base if played.variant is None else f"{base}, {played.variant}"
    return replace(played, label=label, base=base)


def written(value: object) -> str:
    """A value as YAML on one line, plain where that reads back as the same."""
    if isinstance(value, str):
        try:
            if value.strip() == value and read_document(value).data == value:
                return value
        except DocumentError:
            pass
    return json.dumps(value, ensure_ascii=False)


def shown(path: str, value: object) -> str:
    """The same, and a mark for a secret."""
    text = written(value)
    return REDACTED if is_secret((path,)) and not has_reference(text) else text


def _of_variant(base: Variation, name: str, changed: Mapping[str, Any]) -> Variation:
    """A step as one variant plays it: its values come after those of the step."""
    places = {path: ("sweep", "variants", name, path) for path in changed}
    return Variation(
        {**base.values, **changed},
        {**base.places, **places},
        name if base.label == AS_WRITTEN else f"{base.label}, {name}",
        base.label,
        name,
    )


def _values(step: Mapping[str, Any]) -> Mapping[str, Any]:
    return {path: value for path, value in step.items() if path != NAME}


def _names(paths: Sequence[str]) -> dict[str, str]:
    """Returns for each path the fewest last words that distinguish it from the others. A number
    is no name."""
    names: dict[str, str] = {}
    for path in paths:
        words = path.split(".")
        for length in range(1, len(words) + 1):
            tail = words[-length:]
            others = (p.split(".")[-length:] for p in paths if p != path)
            if not tail[0].isdigit() and tail not in others:
                break
        names[path] = " ".join(tail)
    return names


def _label(values: Mapping[str, Any], names: Mapping[str, str]) -> str:
    parts = (f"{names[path]} {_short(shown(path, value))}" for path, value in values.items())
    return ", ".join(parts) or AS_WRITTEN


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _rises(values: Sequence[object]) -> bool:
    """Returns True if the values are quantities of one kind, none smaller than the one before."""
    for read in KINDS:
        try:
            numbers = [read(value) for value in values]
        except UnfitError:
            continue
        return all(low <= high for low, high in itertools.pairwise(numbers))
    return False


NAME = STEP = "step"
"""The key of a step that names it, and the column that shows its name without the variant."""
AS_WRITTEN = "as written"
"""The label of a step that changes nothing."""
VALUE_CHARS_MAX = 40
"""Characters of a value in a label."""


class Search(Part):
    """Looks for the largest value at which the scenario passes: raises it until the scenario fails,
    then narrows from both sides. Each value is played as a run of its own, a trial."""

    vary: Text
    """Path of the value, as for `--set`: `populations.device.publications.0.rate`, or
    `populations.device.clients`. The load must grow with it."""
    from_: Amount = Field(alias="from")
    """The first value. If the scenario fails there, the search goes down to a thousandth of it."""
    to: Amount
    """Largest value."""
    grow: GrowFactor = 2.0
    """Factor from one value to the next while it grows."""
    figure: MetricName | None = None
    """A metric whose largest value the search finds too, such as `backend.received_per_s`: the
    search goes beyond the first value that fails, until the metric grows no more. Default: none."""
    growth: SharePositive = 0.02
    """The figure grows no more if it grows by less than this share from one value to the next."""
    precision: Precision = 0.02
    """Distance between a value that passes and one that fails, as a share of the value."""
    repeat: SearchRepeat = 3
    """Searches of the answer, for its confidence interval."""
    retries: Retries = 2
    """Repetitions of an invalid trial: no measurement, an invalid run, or a failure of the load
    generator or this host."""
    confidence: Confidence = 0.95
    """Confidence of the intervals."""
    broker: Literal["fresh", "same"] = "fresh"
    """`fresh`: each trial has brokers of its own; `same`: all use those started for the first."""
    warm_up: Duration = 0
    """With `broker: same`: time for which the first value is played before it counts, as in
    `sweep`."""
    pause: Duration = 0
    """Wait between two trials."""
    recovery: Flag = False
    """After the answer is confirmed, one more trial on the same brokers: the load is the answer,
    then the first value beyond that failed, then the answer again, each as long as the publish
    stage. It says whether and when the load was carried again. Default: false, as it takes three
    times as long as a trial, and `vary` must be a rate or a number of clients."""

    def rules(self) -> Iterator[Finding]:
        """Yields a warm-up of brokers that no other trial uses."""
        yield from _cold(self)

    @property
    def span(self) -> SearchSpan:
        """Its values as numbers; raises UnfitError where there is no kind that both are of."""
        return span_of(self.from_, self.to)


@dataclass(frozen=True, slots=True)
class Measure:
    """A kind of numbers: its parser and its unit."""

    parse: Callable[[object], int | float]
    unit: Unit = ""
    """Unit for people."""
    per_unit: float = 1.0
    """Size of that unit in the parser's unit."""

    @property
    def kind(self) -> Notation:
        """The written form of the numbers."""
        return KINDS[self.parse]

    @property
    def is_whole(self) -> bool:
        """True if there are whole numbers only."""
        return self.parse in {count, size_bytes}

    def written(self, number: float) -> str:
        """A number as the scenario has it."""
        if self.is_whole:
            return self.kind.write(number) if self.parse is not count else str(round(number))
        return self.kind.write(number)


@dataclass(frozen=True, slots=True)
class SearchSpan:
    """The values that a search may try, in the unit of their parser."""

    measure: Measure
    low: float
    high: float


def span_of(low: object, high: object) -> SearchSpan:
    """The span from one written value to another; raises UnfitError."""
    for measure in MEASURES:
        try:
            return SearchSpan(measure, float(measure.parse(low)), float(measure.parse(high)))
        except UnfitError:
            continue
    raise UnfitError(high, f"is a quantity of the same kind as from: {low}")


MEASURES = (
    Measure(count),
    Measure(size_bytes, "bytes"),
    Measure(duration_ns, "us", 1000),
    Measure(rate_per_s, "per_s"),
    Measure(bits_per_s, "bytes_per_s", 8),
    Measure(factor),
)
"""Kinds of quantities that can be searched; a share is a factor."""
