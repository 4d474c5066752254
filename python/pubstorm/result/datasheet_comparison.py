"""Compares data sheets: a row for each figure, a column for each broker, and the pairs of brokers
whose figures differ by more than noise, drift and the number of pairs explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, variance
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pubstorm.contract import Moment, Number, Probability, Value
from pubstorm.quantities import Unit, bytes_text, counted, share_text, span_text
from pubstorm.result.datasheet import (
    SECTIONS,
    Better,
    Datasheet,
    Identity,
    Section,
    SheetCell,
    SheetFigure,
)
from pubstorm.result.interval import (
    CONFIDENCE,
    DEGREES_MAX,
    Difference,
    Estimate,
    of_parts,
    t_quantile,
    two_sided,
)

PairOutcome = Literal["higher", "lower", "no difference", "inside the drift", "not known"]
UNKNOWN_DEGREES = 4.0
"""Degrees of freedom of an interval of an unknown number of values."""
RELATIVE_MAX = 1e6
"""Largest spread of passes: of means near zero, any share is large."""
NO_CELL, NO_FIGURE = "the sheet has no such cell", "the sheet has no such figure"


class SheetColumn(Value):
    """One broker with its terms, and its passes."""

    name: str
    """Name of the column: as much of broker, version and settings as makes it unique."""
    identity: Identity
    """The broker and its terms, of the first pass."""
    sheets: tuple[str, ...]
    """Folders of its sheets, in the order of playing."""
    turns: tuple[int, ...]
    """Place of each pass in the order of all passes, from 1."""
    plan: str
    """The plan of the sheets."""
    for_s: Number
    """Time that each sheet was given, in seconds."""
    drift: Number | None = None
    """Largest spread of the anchor figure in a pass; null: it was not measured."""
    repeated: int = 0
    """Figures that several passes have, each with its error."""
    agreeing: int = 0
    """Those of them whose intervals overlap in all passes."""


class SheetPair(Value):
    """Two columns of a row."""

    first: int
    """Place of a column, from 0."""
    second: int
    """Place of another one."""
    outcome: PairOutcome
    """The second against the first; inside the drift: the anchor figure moved by as much."""
    difference: Number
    """The second less the first, in the unit of the row."""


class SheetRow(Value):
    """One figure of all brokers."""

    section: Section
    """Section that shows it."""
    cell: str
    """Name of the cell."""
    title: str
    """Description of the load."""
    figure: str
    """Name of the figure."""
    better: Better = ""
    """Direction in which it is better."""
    unit: Unit = ""
    """Unit of the figure."""
    figures: tuple[SheetFigure, ...]
    """One for each column: the mean of its passes; without a figure, the remarks are the reason."""
    pairs: tuple[SheetPair, ...] = ()
    """All pairs of columns that have the figure."""

    @property
    def beaten(self) -> frozenset[int]:
        """Places of the columns that another column is better than."""
        worse = "lower" if self.better == "more" else "higher"
        found = {
            pair.second if pair.outcome == worse else pair.first
            for pair in self.pairs
            if pair.outcome in ("higher", "lower")
        }
        return frozenset(found if self.better else ())

    @property
    def best(self) -> tuple[int, ...]:
        """Places of the columns that no other is better than, among those whose figure has an
        error and is no bound. Empty if no direction is better, or if no two could be compared."""
        if not self.better or all(pair.outcome == "not known" for pair in self.pairs):
            return ()
        known = (n for n, each in enumerate(self.figures) if has_error(each) and not each.is_bound)
        return tuple(n for n in known if n not in self.beaten)

    @property
    def differs(self) -> bool:
        """True if two columns differ."""
        words = {each.word for each in self.figures if each.word}
        return len(words) > 1 or any(p.outcome in ("higher", "lower") for p in self.pairs)


def has_error(figure: SheetFigure) -> bool:
    """Returns True if the error of a figure is known: it was not found just once."""
    found = figure.estimate
    return found is not None and not (found.bound == "none" and found.low == found.high)


class SheetComparison(Value):
    """Data sheets of several brokers, side by side."""

    FORMAT: ClassVar[int] = 1

    format: Literal[1] = 1
    """Version of this format."""
    run_directory: str
    """Folder that the comparison was written to; empty: none."""
    started: Moment
    """Start of the first sheet, ISO 8601 with offset."""
    confidence: Probability = CONFIDENCE
    """Probability that a row of equal brokers has no pair with a difference."""
    columns: Annotated[tuple[SheetColumn, ...], Field(min_length=1)]
    """The brokers."""
    unequal: tuple[str, ...] = ()
    """Terms that are not equal for all, a sentence each."""
    rows: tuple[SheetRow, ...] = ()
    """The figures in the order of the sheets."""

    @model_validator(mode="after")
    def _has_whole_rows(self) -> Self:
        """Raises ValueError if a row has another number of figures than there are columns."""
        count = len(self.columns)
        for row in self.rows:
            ends = [place for pair in row.pairs for place in (pair.first, pair.second)]
            if len(row.figures) != count or any(not 0 <= place < count for place in ends):
                text = f"found {len(row.figures)} figures of {row.title}, allowed are {count}"
                raise ValueError(f"{text}, one for each column, with pairs of them")
        return self

    def to_json(self) -> str:
        """Returns the text of the stored file."""
        return self.model_dump_json(indent=2) + "\n"


def compare_sheets(sheets: Sequence[Datasheet], run_directory: str = "") -> SheetComparison:
    """Compares sheets. Sheets of the same broker, version and settings are passes of one column.
    There must be at least one sheet."""
    ordered = sorted(sheets, key=lambda sheet: sheet.started)
    groups: dict[tuple[object, ...], list[Datasheet]] = {}
    for sheet in sheets:
        groups.setdefault(_identity(sheet), []).append(sheet)
    passes = [sorted(group, key=ordered.index) for group in groups.values()]
    columns = tuple(
        _column(name, group, ordered) for name, group in zip(_names(passes), passes, strict=True)
    )
    return SheetComparison(
        run_directory=run_directory,
        started=ordered[0].started,
        columns=columns,
        unequal=tuple(_unequal(columns)),
        rows=tuple(_rows(passes, [column.drift or 0.0 for column in columns])),
    )


def _identity(sheet: Datasheet) -> tuple[object, ...]:
    who = sheet.identity
    return who.broker, who.version, who.protocol, who.settings, who.cpus, who.memory_bytes


def _names(passes: Sequence[Sequence[Datasheet]]) -> list[str]:
    """Returns a name for each column: the broker, with its version and a number if needed, and with
    the protocol where protocols differ."""
    who, names = [group[0].identity for group in passes], list[str]()
    are_mixed = len({each.protocol for each in who}) > 1
    brokers = [each.named(each.broker, always=are_mixed) for each in who]
    full = [each.named(f"{each.broker} {each.version}".strip(), always=are_mixed) for each in who]
    for place, (broker, name) in enumerate(zip(brokers, full, strict=True)):
        short = broker if brokers.count(broker) == 1 else name
        is_unique = short == broker or full.count(name) == 1
        names.append(short if is_unique else f"{name} ({full[: place + 1].count(name)})")
    return names


def _column(name: str, group: Sequence[Datasheet], ordered: Sequence[Datasheet]) -> SheetColumn:
    first = group[0]
    repeated = [found for found in _repeated(group) if len(found) > 1]
    drifts = [sheet.drift.spread for sheet in group if sheet.drift is not None]
    return SheetColumn(
        name=name,
        identity=first.identity,
        sheets=tuple(sheet.run_directory for sheet in group),
        turns=tuple(ordered.index(sheet) + 1 for sheet in group),
        plan=first.plan,
        for_s=first.for_s,
        drift=max(drifts, default=None),
        repeated=len(repeated),
        agreeing=sum(
            max(each.low for each in found) <= min(each.high for each in found)
            for found in repeated
        ),
    )


def _repeated(group: Sequence[Datasheet]) -> Iterator[list[Estimate]]:
    """Yields for each figure of the first pass what the passes found, as far as its error is
    known."""
    for cell, figure in group[0].figures:
        found = [_figure((cell.section, cell.name, figure.name), sheet) for sheet in group]
        yield [each.estimate for each in found if has_error(each) and each.estimate is not None]


def _unequal(columns: Sequence[SheetColumn]) -> Iterator[str]:
    """Yields the terms that differ between brokers, a sentence each."""
    for term in terms(columns[0]):
        by_value: dict[str, list[str]] = {}
        for column in columns:
            by_value.setdefault(terms(column)[term], []).append(column.name)
        if len(by_value) > 1:
            parts = (f"{value} for {', '.join(names)}" for value, names in by_value.items())
            yield f"{term}: {'; '.join(parts)}"
    places = {fmean(column.turns) for column in columns}
    if len(places) > 1:
        order = sorted((turn, column.name) for column in columns for turn in column.turns)
        yield f"place in time: the order of passes is {', '.join(name for _, name in order)}"


def terms(column: SheetColumn) -> dict[str, str]:
    """Returns the terms of a column that must be equal for a fair comparison, in words."""
    who, machine = column.identity, column.identity.environment
    memory = "all" if who.memory_bytes is None else bytes_text(who.memory_bytes)
    found = {
        "protocol": who.protocol,
        "processors": ", ".join(map(str, who.cpus)) or "all",
        "memory": memory,
        "figures of memory": "with garbage" if who.garbage else "without garbage",
        "plan": column.plan,
        "time of a sheet": span_text(column.for_s),
        "passes": str(len(column.sheets)),
    }
    of_host = {
        "host": "" if machine is None else f"{machine.host}, {machine.cores} × {machine.cpu_model}",
        "kernel": "" if machine is None else machine.kernel,
        "Pubstorm": "" if machine is None else machine.pubstorm,
    }
    return found | {name: value or "not known" for name, value in of_host.items()}


Key = tuple[Section, str, str]
"""Section, cell and figure of a row."""


def _rows(passes: Sequence[Sequence[Datasheet]], drifts: Sequence[float]) -> Iterator[SheetRow]:
    found: dict[Key, SheetCell] = {}
    for sheet in (sheet for group in passes for sheet in group):
        for cell, figure in sheet.figures:
            # The anchor that was measured again shows the drift, and is no figure of its own.
            if cell.name not in sheet.anchored_again:
                found.setdefault((cell.section, cell.name, figure.name), cell)
    cells = [*dict.fromkeys(name for _, name, _ in found)]
    sections = [*SECTIONS]
    for key in sorted(found, key=lambda each: (sections.index(each[0]), cells.index(each[1]))):
        means = [_mean(key, group) for group in passes]
        spread = Spread.of(means)
        columns = [_with_error(each, spread) for each in means]
        known = [each.figure for each in columns if each.figure.estimate or each.figure.word]
        if not known:
            continue
        estimate = next((each.estimate for each in known if each.estimate is not None), None)
        better: Better = next((each.better for each in known if each.better), "")
        yield SheetRow(
            section=key[0],
            cell=key[1],
            title=found[key].title,
            figure=key[2],
            better=better,
            unit="" if estimate is None else estimate.unit,
            figures=tuple(each.figure for each in columns),
            pairs=tuple(_pairs(columns, better, drifts)),
        )


Part = tuple[float, float]
"""A squared standard error with its degrees of freedom."""


@dataclass(frozen=True, slots=True)
class SheetMean:
    """The mean of the passes of a column."""

    figure: SheetFigure
    """The figure as it is shown."""
    passes: tuple[Estimate, ...] = ()
    """The figures of the passes; empty for words and bounds."""
    value: float = 0.0
    """The mean, of brackets that of their middles."""
    own: tuple[Part, ...] | None = None
    """Squared errors of the passes themselves, of the mean; None: not known."""
    of_pass: Part = (0.0, DEGREES_MAX)
    """Squared error of the mean by the spread between passes, which all columns share."""

    @property
    def middles(self) -> list[float]:
        """The value of each pass; of a bracket its middle."""
        return [
            (each.low + each.high) / 2 if each.bound == "none" else float(each.value)
            for each in self.passes
        ]

    @property
    def is_exact(self) -> bool:
        """True if the figure has no error, as a limit of a broker has none."""
        parts = (*(self.own or ()), self.of_pass)
        return self.own is not None and not any(s for s, _ in parts) and not self.figure.is_bound


def _mean(key: Key, group: Sequence[Datasheet]) -> SheetMean:
    """Returns the mean of passes, with no error yet."""
    found = [_figure(key, sheet) for sheet in group]
    pairs = [(each, each.estimate) for each in found if each.estimate is not None]
    pairs = [(each, estimate) for each, estimate in pairs if estimate.unit == pairs[0][1].unit]
    if not pairs:
        first = next((each for each in found if each.word), found[0])
        words = dict.fromkeys(each.word for each in found if each.word)
        return SheetMean(first.model_copy(update={"word": "; ".join(words)}))
    first, _ = pairs[0]
    played = sum(_was_played(key, sheet) for sheet in group)
    if len(pairs) < played:
        text = f"{len(pairs)} of {played} passes"
        first = first.model_copy(update={"remarks": (*first.remarks, text)})
    bounds = [
        each
        for each, estimate in pairs
        if each.is_bound and (each.better or estimate.bound == "at_least")
    ]
    if bounds:
        return _bound(first, bounds)
    mean = SheetMean(first, tuple(estimate for _, estimate in pairs))
    return replace(mean, value=fmean(mean.middles))


def _figure(key: Key, sheet: Datasheet) -> SheetFigure:
    """Returns the figure of a sheet; without one, its remarks are the reason."""
    wanted, cell = key[2], _cell(key, sheet)
    if cell is None:
        return SheetFigure(name=wanted, remarks=(NO_CELL,))
    found = next((each for each in cell.figures if each.name == wanted), None)
    if found is not None:
        return found
    why = cell.why.partition(": it needs about")[0]
    return SheetFigure(
        name=wanted, remarks=(why or (NO_FIGURE if cell.was_played else cell.state),)
    )


def _cell(key: Key, sheet: Datasheet) -> SheetCell | None:
    """Returns the cell of a figure, if the sheet has it."""
    return next((c for c in sheet.cells if (c.section, c.name) == key[:2]), None)


def _was_played(key: Key, sheet: Datasheet) -> bool:
    """Returns True if the sheet played the cell of a figure."""
    cell = _cell(key, sheet)
    return cell is not None and cell.was_played


def _bound(first: SheetFigure, bounds: Sequence[SheetFigure]) -> SheetMean:
    """Returns the bound that every pass has reached."""
    reached = [each.estimate for each in bounds if each.estimate is not None]
    choose = max if first.better == "less" else min
    at = choose(reached, key=lambda each: each.value)
    estimate = at.model_copy(update={"low": at.value, "high": at.value, "bound": "at_least"})
    limit = bounds[0].limited_by
    figure = first.model_copy(update={"estimate": estimate, "limited_by": limit})
    return SheetMean(figure, value=at.value, own=())


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread between the passes of all columns of a row, which few passes of each show only
    together."""

    relative: float
    """Variance of a pass, as a share of the squared mean."""
    degrees: float
    """Degrees of freedom; 0: no column has two passes."""

    @classmethod
    def of(cls, columns: Sequence[SheetMean]) -> Spread:
        """Returns the spread of columns with means other than zero."""
        several = [each for each in columns if len(each.passes) > 1 and each.value**2]
        degrees = sum(len(each.passes) - 1 for each in several)
        shares = (
            (len(each.passes) - 1) * variance(each.middles) / each.value**2 for each in several
        )
        return cls(min(math.fsum(shares) / degrees, RELATIVE_MAX) if degrees else 0.0, degrees)


def _with_error(column: SheetMean, spread: Spread) -> SheetMean:
    """Returns a mean with its error: that of its passes, and the spread between them, which is the
    common one if its own is smaller."""
    count = len(column.passes)
    errors = [_own_error(each) for each in column.passes]
    if not count or (count == 1 and errors[0][0] is None):
        return column
    own = tuple((s / count**2, degrees) for s, degrees in errors if s is not None)
    apart = variance(column.middles) if count > 1 else 0.0
    apart = max(apart, spread.relative * column.value**2)
    of_pass = (apart / count, spread.degrees or max(count - 1.0, 1.0))
    figure = column.figure
    if count > 1:
        mean = _with_interval(column.value, (*own, of_pass))
        estimate = Estimate(
            value=column.value,
            low=min(mean.low, *(each.low for each in column.passes)),
            high=max(mean.high, *(each.high for each in column.passes)),
            repeats=sum(each.repeats for each in column.passes),
            unit=column.passes[0].unit,
        )
        figure = figure.model_copy(update={"estimate": estimate})
    return replace(column, figure=figure, own=own, of_pass=of_pass)


def _with_interval(value: float, parts: Sequence[Part]) -> Difference:
    """Returns a value with the interval of its errors."""
    squared, degrees = zip(*parts, strict=True)
    return of_parts(value, squared, degrees, CONFIDENCE)


def _own_error(estimate: Estimate) -> tuple[float | None, float]:
    """Returns the squared standard error of one sheet, with its degrees of freedom; None if one
    value was found once. Each value of a bracket is as probable as any other."""
    width = estimate.high - estimate.low
    if estimate.bound == "none":
        return (width**2 / 12 if width else None), DEGREES_MAX
    if estimate.repeats > 1:
        degrees = min(estimate.repeats - 1, DEGREES_MAX)
        return (width / 2 / t_quantile(CONFIDENCE, degrees)) ** 2, degrees
    return (width / 2 / t_quantile(CONFIDENCE, DEGREES_MAX)) ** 2, UNKNOWN_DEGREES


def _pairs(
    columns: Sequence[SheetMean], better: Better, drifts: Sequence[float]
) -> Iterator[SheetPair]:
    """Yields the pairs of columns that have the figure, in the unit of the first of them."""
    units = [
        None if each.figure.estimate is None else each.figure.estimate.unit for each in columns
    ]
    unit = next((each for each in units if each is not None), None)
    places = [n for n, each in enumerate(units) if each is not None and each == unit]
    pairs = [*combinations(places, 2)]
    chances = {pair: _chance(columns[pair[0]], columns[pair[1]], better) for pair in pairs}
    shown = holm({pair: p for pair, p in chances.items() if p is not None}, 1 - CONFIDENCE)
    for pair in pairs:
        first, second = (columns[n] for n in pair)
        drift = max(drifts[n] for n in pair) * max(abs(first.value), abs(second.value))
        change = second.value - first.value
        is_exact = first.is_exact and second.is_exact
        outcome: PairOutcome = "higher" if change > 0 else "lower"
        if chances[pair] is None:
            outcome = "not known"
        elif not is_exact and change and abs(change) <= drift:
            outcome = "inside the drift"
        elif pair not in shown:
            is_open = first.figure.is_bound or second.figure.is_bound
            outcome = "not known" if is_open else "no difference"
        yield SheetPair(first=pair[0], second=pair[1], outcome=outcome, difference=change)


def _chance(first: SheetMean, second: SheetMean, better: Better) -> float | None:
    """Returns the probability of a difference of at least this size between equal brokers; None if
    an error is not known, or if both are bounds. A bound can only be better than another figure."""
    if first.own is None or second.own is None:
        return None
    bounds = [each for each in (first, second) if each.figure.is_bound]
    change = second.value - first.value
    if bounds:
        if len(bounds) > 1 or not better or not _is_beyond(first, second, better):
            return None
    elif not change:
        return 1.0
    passes = zip(first.of_pass, second.of_pass, strict=True)
    (spread_first, spread_second), degrees = passes
    of_pass = (spread_first + spread_second, min(degrees))
    found = _with_interval(change, (*first.own, *second.own, of_pass))
    if not found.error:
        return 0.0
    return 1 - two_sided(abs(change) / found.error, math.floor(min(found.degrees, DEGREES_MAX)))


def _is_beyond(first: SheetMean, second: SheetMean, better: Better) -> bool:
    """Returns True if the bound among two figures is better than the far end of the other one."""
    bound, other = (first, second) if first.figure.is_bound else (second, first)
    assert other.figure.estimate is not None, "pairs have figures"
    if better == "less":
        return bound.value < other.figure.estimate.low
    return bound.value > other.figure.estimate.high


def holm(chances: Mapping[tuple[int, int], float], allowed: float) -> frozenset[tuple[int, int]]:
    """Returns the pairs that differ though some of all pairs differ by chance with a probability of
    `allowed` at most: Holm, Scandinavian Journal of Statistics 6 (1979)."""
    shown = []
    ordered: Iterable[tuple[tuple[int, int], float]] = sorted(
        chances.items(), key=lambda each: each[1]
    )
    for number, (pair, chance) in enumerate(ordered):
        if chance > allowed / (len(chances) - number):
            break
        shown.append(pair)
    return frozenset(shown)


def outcome_text(row: SheetRow, names: Sequence[str]) -> str:
    """Returns the outcome of a row in words."""
    words = [each.word for each in row.figures if each.word]
    if words:
        return "differs" if row.differs else "the same"
    if not row.pairs:
        return "nothing to compare"
    open_ones = [n for n, each in enumerate(row.figures) if each.estimate and each.is_bound]
    parts = []
    if not row.better:
        parts.append("differs" if row.differs else "no difference")
    elif row.best:
        best = ", ".join(names[n] for n in row.best)
        are_alike = len(row.best) > 1
        parts.append(
            "no difference"
            if are_alike and not row.beaten
            else f"best: {best}{', no difference between them' if are_alike else ''}"
        )
    beaten = {n: [names[m] for m in sorted(row.beaten) if _beats(row, n, m)] for n in open_ones}
    parts += [f"{names[n]} is better than {', '.join(m)}" for n, m in beaten.items() if m]
    if row.better and (may_be := [names[n] for n, than in beaten.items() if not than]):
        parts.append(f"may be better: {', '.join(may_be)}")
    return "; ".join(parts) or "not known"


def _beats(row: SheetRow, better: int, worse: int) -> bool:
    """Returns True if a column is better than another one."""
    sign = "higher" if row.better == "more" else "lower"
    other = "lower" if sign == "higher" else "higher"
    return any(
        (pair.first, pair.second, pair.outcome) in ((worse, better, sign), (better, worse, other))
        for pair in row.pairs
    )


def drift_text(column: SheetColumn) -> str:
    """Returns the drift of the anchor figure of a column, in words."""
    return "not measured" if column.drift is None else share_text(round(column.drift, 4))


def agreement_text(column: SheetColumn) -> str:
    """Returns how many figures of the passes of a column agree, in words; empty for one pass."""
    figures = counted(column.repeated, "figure")
    return f"{column.agreeing} of {figures}" if len(column.sheets) > 1 else ""
