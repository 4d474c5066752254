"""Shares: populations as they are own, one for each share and one for the rest, and the names that
mean them. The active clients of each share make factors of the points of a rate profile, of the
scenario, a sine or a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, cos, isfinite, tau
from typing import NamedTuple

from pubstorm.contract.template import RowFile, read_rows
from pubstorm.errors import PubstormError
from pubstorm.quantities import SECOND_NS, PartOf, describe, rounded, write_count
from pubstorm.scenario.fields import CENTURY_NS
from pubstorm.scenario.kinds import MqttClients, MqttDifference
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, ShareKeys
from pubstorm.scenario.stages import EVERY, Change, Connect, Disconnect, RateProfile, Sine, Stage

REST = "rest"
"""Name of the clients that are in no share."""


@dataclass(frozen=True, slots=True)
class PopulationShare:
    """Clients that behave alike: a population, a share of one, or the rest of one."""

    whole: str
    """Name of the population."""
    share: str | None
    """Name of the share; None for a whole population."""
    population: Population
    """The population with the keys of the share, and with its number of clients and first
    number."""
    start: int
    """Index of its first client among those of the population."""

    @property
    def name(self) -> str:
        """Its name in expressions and results."""
        return self.whole if self.share is None else f"{self.whole}/{self.share}"

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self.population.clients


def shares_of(scenario: Scenario, whole: str | None = None) -> dict[str, PopulationShare]:
    """Returns the shares that have clients, by name, in the order of the scenario: those of a
    population, or of all."""
    names = scenario.populations if whole is None else (whole,)
    found = (each for name in names for each in _shares(name, scenario.populations[name]))
    return {each.name: each for each in found}


def share_sizes(population: Population) -> dict[str, int]:
    """Returns the clients of the rest and of each share. The bounds between shares are rounded, not
    their sizes, so that the sizes add up to the population."""
    parts = [share.part for share in population.differing.values()]
    # From the end, so that shares of nearly all leave nothing by chance of rounding.
    ends = list(accumulate(reversed(parts), initial=0.0))
    bounds = [population.clients - rounded(end * population.clients) for end in reversed(ends)]
    sizes = (upper - lower for lower, upper in pairwise([0, *bounds]))
    return dict(zip((REST, *population.differing), sizes, strict=True))


MEAN_NS_MAX = CENTURY_NS // 2
"""Longest mean time between two events of a client, since twice the mean is the longest time."""


def mean_stay_ns(scenario: Scenario, played: PopulationShare) -> int:
    """Returns the mean time that a client stays connected, so that clients go at the rate of their
    lifetime. It is 0 or less if clients would have to return sooner than `offline` allows."""
    lifetime = played.population.stay
    if lifetime is None or lifetime.rate is None:
        return 0
    return _mean_ns(scenario, played, "lifetime", lifetime.rate) - (lifetime.offline or 0)


def mean_subscribed_ns(scenario: Scenario, played: PopulationShare) -> int:
    """Returns the mean time that a client stays subscribed, so that clients unsubscribe at the rate
    of their flapping. It is 0 or less if `unsubscribed` is too long for the rate."""
    flapping = played.population.flaps
    if flapping is None or flapping.rate is None:
        return 0
    return _mean_ns(scenario, played, "flapping", flapping.rate) - flapping.unsubscribed


def _mean_ns(scenario: Scenario, played: PopulationShare, key: str, rate_per_s: float) -> int:
    """Returns the mean time between two events of a client with the rate under a key. The rate of a
    share counts its own clients, the rate of a population all of its clients."""
    whole = scenario.populations[played.whole]
    share = whole.differing.get(played.share or "")
    is_own = share is not None and key in share.model_fields_set
    clients = played.clients if is_own else whole.clients
    return round(clients / rate_per_s * SECOND_NS)


def meant_by(names: Mapping[str, PopulationShare], name: str) -> tuple[str, ...]:
    """Returns the shares that a name means: one, or all of a population; none if it is unknown."""
    if name in names:
        return (name,)
    return tuple(each for each, played in names.items() if played.whole == name)


def _shares(name: str, population: Population) -> Iterator[PopulationShare]:
    if not population.differing:
        yield PopulationShare(name, None, population, 0)
        return
    start = 0
    for share, clients in share_sizes(population).items():
        changed = {"clients": clients, "first": population.first + start, "shares": {}}
        own = population.model_copy(update=changed)
        if share != REST:
            own = _changed(own, population.differing[share])
        if clients:
            yield PopulationShare(name, share, own, start)
        start += clients


def _changed(population: Population, share: ShareKeys) -> Population:
    written = {name: getattr(share, name) for name in share.model_fields_set - {"part", "qos"}}
    says = {n: value for n, value in written.items() if value is not None or n in MAY_BE_NEVER}
    changed = population.model_copy(update=says)
    qos = share.qos if isinstance(share, MqttDifference) else None
    if qos is None or not isinstance(changed, MqttClients):
        return changed
    both = {
        "subscriptions": tuple(s.model_copy(update={"qos": qos}) for s in changed.subscriptions),
        "publications": tuple(p.model_copy(update={"qos": qos}) for p in changed.publications),
    }
    return changed.model_copy(update=both)


MAY_BE_NEVER = ("lifetime", "flapping", "reconnect")
"""Keys that a share can turn off with `never`."""


class PlannedClients:
    """The active clients as stages and changes go by: the first clients of each share. Numbers in
    percent add up without rounding: 50 % and 50 % of three clients are two and one."""

    def __init__(self, scenario: Scenario) -> None:
        self.shares = shares_of(scenario)
        self._part = dict.fromkeys(self.shares, 0.0)
        """The part of each share that is active."""

    def chosen(self, stage: Stage) -> tuple[str, ...]:
        """Returns the shares that take part in a stage."""
        if stage.populations is None:
            return tuple(self.shares)
        meant = {name for given in stage.populations for name in meant_by(self.shares, given)}
        return tuple(name for name in self.shares if name in meant)

    def count(self, names: Iterable[str]) -> int:
        """Returns the active clients of these shares."""
        return sum(rounded(self._part[n] * self.shares[n].clients) for n in names)

    def most(self, names: Iterable[str]) -> float:
        """Returns the largest active part of any of these shares."""
        return max(self._part[name] for name in names)

    def least(self, names: Iterable[str]) -> float:
        """Returns the smallest active part of any of these shares."""
        return min(self._part[name] for name in names)

    def enter(self, stage: Stage) -> None:
        """Connects or disconnects the clients of a stage."""
        step = stage.step
        for name in self.chosen(stage):
            if isinstance(step, Connect):
                wanted = self.part_of(name, wanted_of(step, self.shares[name]))
                self._part[name] = max(self._part[name], min(wanted, 1.0))
            elif isinstance(step, Disconnect):
                self._part[name] = 0.0

    def change(self, change: Change) -> dict[str, int]:
        """Makes a change as far as possible. Returns the number of clients that join, leave or
        migrate, for each share with such clients."""
        kind, amount = change.of_clients
        moved: dict[str, int] = {}
        for name in meant_by(self.shares, change.population) if amount is not None else ():
            there, part = self.count([name]), self.part_of(name, amount)
            if kind == "migrate":
                migrating = min(rounded(part * self.shares[name].clients), there)
                moved |= {name: migrating} if migrating else {}
                continue
            part = self._part[name] + (part if kind == "add" else -part)
            self._part[name] = min(max(part, 0.0), 1.0)
            if there != self.count([name]):
                moved[name] = abs(self.count([name]) - there)
        return moved

    def part_of(self, name: str, amount: int | PartOf | None) -> float:
        """Returns the part of a share that a number or a share of its clients is; None means
        all."""
        if amount is None:
            return 1.0
        return amount / self.shares[name].clients if isinstance(amount, int) else amount.share


def wanted_of(connect: Connect, played: PopulationShare) -> int | PartOf | None:
    """Returns the clients that a connect stage wants of a share; None if it wants all."""
    given: Mapping[str, int | PartOf] = connect.clients or {}
    return given.get(said_of(connect, played) or "")


def said_of(connect: Connect, played: PopulationShare) -> str | None:
    """Returns the key under which a connect stage has the clients of a share; None if it has
    none."""
    names = (played.name, played.whole, EVERY)
    return next((name for name in names if name in (connect.clients or {})), None)


SINE_POINTS = 64
"""Points of one period. Lines between them differ from a sine by up to 0.06 % of its height."""
POINTS_MAX = 100_000
FACTOR_MAX = 1e6
COLUMNS = ("rate", "factor")
"""Columns of a file beside `time`; a file has one of them."""


class RateProfileError(PubstormError):
    """A profile that gives no factors or clients: what was found, what is allowed, and a hint."""

    default_exit_code = 2


class Point(NamedTuple):
    """A time after the start of the stage, in nanoseconds, and a factor or a rate a second."""

    at_ns: int
    value: float


def rate_of(stage: Stage, planned: PlannedClients) -> float:
    """Messages a second of the active clients of a stage at its start, by the scenario's rates."""
    return sum(
        planned.count([name]) * (publication.rate_per_s or 0.0)
        for name in planned.chosen(stage)
        for publication in planned.shares[name].population.flows
    )


def factors_of(profile: RateProfile, duration_ns: int, rate_per_s: float) -> tuple[Point, ...]:
    """Returns the factors of the planned rate over time. Raises RateProfileError, or RowsError
    for a file that cannot be read."""
    if profile.sine is not None:
        points, are_rates = _sine(profile.sine, duration_ns), False
    elif profile.csv is not None:
        points, column = replayed(read_rows(profile.csv), profile.csv, COLUMNS)
        are_rates = column == "rate"
    else:
        are_rates = any(point.rate is not None for point in profile.points)
        points = [
            Point(point.at, (point.rate if are_rates else point.factor) or 0.0)
            for point in profile.points
        ]
    if are_rates and not rate_per_s:
        hint = "no client with a rate is active at the start of the stage"
        raise RateProfileError("found rates, allowed are factors", hint)
    if len(points) > POINTS_MAX:
        more = "" if profile.csv else "more than "
        found = f"{more}{write_count(POINTS_MAX if more else len(points))} points"
        message = f"found {found}, allowed are {write_count(POINTS_MAX)}"
        raise RateProfileError(message, "a sine with a longer period has fewer")
    scale = profile.factor / (rate_per_s if are_rates else 1.0)
    made = tuple(Point(at_ns, value * scale) for at_ns, value in points)
    largest = max(point.value for point in made)
    if largest > FACTOR_MAX:
        message = f"found {largest:.6g} times the rate, allowed is up to {FACTOR_MAX:.0f} times"
        raise RateProfileError(message)
    return made


def _sine(sine: Sine, duration_ns: int) -> list[Point]:
    count = min(ceil(duration_ns * SINE_POINTS / sine.period) + 1, POINTS_MAX + 1)
    height = (sine.high - sine.low) / 2

    def point(number: int) -> Point:
        part = 1 - cos(tau * (number % SINE_POINTS) / SINE_POINTS)
        return Point(round(number * sine.period / SINE_POINTS), sine.low + height * part)

    return [point(number) for number in range(count)]


def replayed(file: RowFile, path: str, allowed: Sequence[str]) -> tuple[list[Point], str]:
    """Returns the points of a file and the name of their column, one of those that are allowed.
    Raises RateProfileError."""
    columns = [name for name in allowed if name in file.headings]
    if "time" not in file.headings or len(columns) != 1:
        found = f"found the columns {', '.join(file.headings)} in {path}"
        raise RateProfileError(f"{found}, allowed are time and one of {' and '.join(allowed)}")
    points = list(_rows(file, columns[0], path))
    for before, after in pairwise(points):
        if after.at_ns < before.at_ns:
            times = f"{after.at_ns / SECOND_NS:g} s after {before.at_ns / SECOND_NS:g} s"
            raise RateProfileError(f"found {times} in {path}, allowed are times in order")
    start_ns = points[0].at_ns
    return [Point(at_ns - start_ns, value) for at_ns, value in points], columns[0]


def _rows(file: RowFile, column: str, path: str) -> Iterator[Point]:
    cells = zip(file.columns["time"], file.columns[column], strict=True)
    for number, (time, value) in enumerate(cells, 1):
        at_s, amount = _number(time), _number(value)
        if at_s is None or amount is None or amount < 0:
            found = f"found {describe(time)} and {describe(value)} in row {number} of {path}"
            raise RateProfileError(f"{found}, allowed are seconds, and a {column} of 0 or more")
        yield Point(round(at_s * SECOND_NS), amount)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
