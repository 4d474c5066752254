"""Checks sweeps, their variants and tables, and searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import CONDITIONS, unknown
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.recovery import check_recovery
from pubstorm.scenario.series import Sweep, TableColumn, Variation

NOT_SEARCHED = ("search", "sweep", "table", *CONDITIONS, "name", "description")
"""Keys that no load grows with."""


STEPS_MAX = 1000
FIXED_IN_SWEEP = ("sweep", "table", "tables")


def check_series(
    sweep: Sweep, tables: Mapping[str, Mapping[str, TableColumn]]
) -> Iterator[Finding]:
    """Yields what is wrong with the steps of a sweep, its variants, and the tables over it."""
    yield from _check_sweep(sweep)
    yield from _check_tables(tables, sweep)


def check_search(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of a search whose values are right by themselves."""
    search = scenario.search
    if search is None:
        return
    try:
        span = search.span
    except UnfitError as unfit:
        yield ("search", "to"), str(unfit), unfit.hint
        return
    if span.low <= 0:
        yield ("search", "from"), f"found {search.from_}, allowed is more than nothing", None
    if span.high <= span.low:
        message = f"found {search.to}, allowed is more than from, which is {search.from_}"
        yield ("search", "to"), message, None
    path = ("search", "vary")
    if search.vary.partition(".")[0] in NOT_SEARCHED or "=" in search.vary:
        message = f"found {describe(search.vary)}, allowed is the path of a value of the load"
        yield path, message, "such as populations.device.clients"
    if scenario.sweep is not None:
        varied = {p for variation in scenario.sweep.variations() for p in variation.values}
        if search.vary in varied:
            yield path, f"found {search.vary}, which the sweep varies too", "vary another value"
    yield from check_recovery(scenario)
    if not scenario.thresholds:
        message = "found a search without thresholds, needed is at least one"
        hint = "they say what it means that a value holds, such as device.lost == 0"
        yield ("search",), message, hint


def _check_sweep(sweep: Sweep) -> Iterator[Finding]:
    path: Path = ("sweep",)
    if sweep.vary and sweep.steps:
        yield path, "found vary and steps, needed is one of them", None
        return
    if not (sweep.vary or sweep.steps or sweep.variants):
        yield path, "found neither vary nor steps, needed is one of them, or variants", None
        return
    wrong = [*_check_variants(sweep)]
    yield from wrong
    if wrong:
        return
    steps = sweep.size * sweep.repeat
    if steps > STEPS_MAX:
        yield path, f"found {steps} steps with repeats, allowed are {STEPS_MAX}", None
        return
    variations = sweep.variations()
    places = {name: place for v in variations for name, place in v.places.items()}
    for name, place in places.items():
        if name.partition(".")[0] in FIXED_IN_SWEEP:
            message = f"found {describe(name)}, allowed are the other keys of a scenario"
            yield place, message, f"{', '.join(FIXED_IN_SWEEP)} belong to the whole series"
    allowed = [v.label for v in variations] + [str(n) for n in range(1, len(variations) + 1)]
    for note in sweep.notes:
        if note not in allowed:
            close = get_close_matches(note, allowed, n=1)
            message = f"found {describe(note)}, allowed are labels and numbers of the steps"
            hint = f"did you mean {describe(close[0])}?" if close else _first_label(variations)
            yield (*path, "notes", note), message, hint


def _first_label(variations: Sequence[Variation]) -> str:
    label = variations[0].label
    return f"the first step is {describe(label)}; --set sweep.notes={{}} leaves the notes out"


def _check_variants(sweep: Sweep) -> Iterator[Finding]:
    """Yields variants without a proper name, unknown ones to play, and values that the steps vary
    too."""
    for name in sweep.variants:
        if not name.strip() or len(name) > NAME_CHARS_MAX:
            message = f"found the name {describe(name)}, allowed are 1 to {NAME_CHARS_MAX}"
            yield ("sweep", "variants", name), f"{message} characters", None
    for number, name in enumerate(sweep.only):
        if name not in sweep.variants:
            yield ("sweep", "only", number), *unknown("variant", name, tuple(sweep.variants))
    for name, changed in sweep.variants.items():
        for path in changed:
            other = next((varied for varied in sweep.names if _meet(path, varied)), None)
            if other is not None:
                message = f"found {describe(path)}, which the steps vary as {describe(other)}"
                place = ("sweep", "variants", name, path)
                yield place, f"{message}, allowed are other values", None


def _meet(path: str, other: str) -> bool:
    """Returns True if one of two paths lies on or under the other."""
    steps = list(zip(path.split("."), other.split("."), strict=False))
    return all(one == two for one, two in steps)


NAME_CHARS_MAX = 64
"""Characters of a variant's name."""


def _check_tables(
    tables: Mapping[str, Mapping[str, TableColumn]], sweep: Sweep
) -> Iterator[Finding]:
    """Yields columns that name no variant where there are variants, or a wrong one."""
    for title, columns in tables.items():
        if not columns:
            yield ("tables", title), "found a table without columns, needed is one", None
        for heading, column in columns.items():
            yield from _check_column(("tables", title, heading), column, sweep)


def _check_column(place: tuple[str, ...], column: TableColumn, sweep: Sweep) -> Iterator[Finding]:
    is_of_step = column.shows_step(sweep.names)
    if column.variant is None:
        if sweep.variants and not is_of_step:
            message = f"found {describe(column.metric)} of no variant, needed is one of"
            hint = f"write {{variant: {next(iter(sweep.variants))}, metric: {column.metric}}}"
            yield place, f"{message} {', '.join(sweep.variants)}", hint
    elif is_of_step:
        message = f"found a variant for {describe(column.metric)}, allowed is none"
        yield place, message, "all variants of a step have the same"
    elif column.variant not in sweep.variants:
        yield (*place, "variant"), *unknown("variant", column.variant, tuple(sweep.variants))
