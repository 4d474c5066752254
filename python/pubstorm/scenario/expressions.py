"""Checks the names in the metric expressions of a scenario: subjects, their metrics, stages and
phases. Limits of thresholds that count clients or bridges: in percent of all of them, or as numbers
that can be reached."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, floor

from pubstorm.contract import HOST, HOST_OF, OTHER_HOST, TARGET_BROKER, split_member
from pubstorm.contract.target import TARGET
from pubstorm.errors import meant
from pubstorm.metrics import OF_POPULATIONS, SHOWN, names_of
from pubstorm.metrics.expressions import (
    Expression,
    Threshold,
    check_population_metric,
    check_reading,
    parse_expression,
    parse_threshold,
)
from pubstorm.metrics.metric import SpanKind
from pubstorm.metrics.monitors import CLOCK_BOUND, SYS_PREFIX
from pubstorm.metrics.run import ENGINES
from pubstorm.quantities import ROUNDING_DIGITS, UnfitError, describe, rounded, write_count
from pubstorm.result.figures.table import (
    RESULT_WORDS,
    SEARCH_WORDS,
    STEP_WORDS,
    asked_trials,
    is_metric,
    shows_search,
)
from pubstorm.scenario.document import At, Finding, Path
from pubstorm.scenario.faults import Fault
from pubstorm.scenario.fields import STOP_WORDS
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.monitors import MONITORABLE, TOGETHER_ABOVE
from pubstorm.scenario.shares import REST, meant_by, shares_of

CONDITIONS = ("thresholds", "abort_when")
"""Keys of a scenario that hold lists of conditions."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that an expression may begin with."""

    metrics: tuple[str, ...] | None = None
    """The metrics of a monitor, beside those of `$SYS`; None: any metric."""
    is_population: bool = False
    """True if the subject has the metrics of a population. Publishers have those of a process
    too."""
    is_group: bool = False
    """True if its members have numbers, such as `broker-0`."""
    is_broker: bool = False
    is_on_a_host: bool = False
    """True if the figures of its host can be asked for, as of `broker.host`."""


Subjects = Mapping[str, Subject]


def check_expressions(root: At) -> Iterator[Finding]:
    """Subjects and metrics, of the file as it stands."""
    subjects = subjects_of(root)
    for key in CONDITIONS:
        for line in root[key].entries():
            yield from _check_condition(line, subjects)
    for rule in root["sweep"]["stop_when"].entries():
        if rule.data not in STOP_WORDS:
            yield from _check_condition(rule, subjects)
    figure = root["search"]["figure"]
    if isinstance(figure.data, str):
        with suppress(UnfitError):
            yield from _check(figure.path, parse_expression(figure.data), subjects)
    for column in root["table"].entries():
        yield from _check_column(column, subjects)
        yield from _check_search_word(column, root)
    yield from _check_columns(root, None)


def check_spans(scenario: Scenario) -> Iterator[Finding]:
    """Stages and phases that expressions name, once every value is right by itself."""
    for path, expression in (*_expressions(scenario), *_of_columns(scenario, None)):
        yield from _check_span(path, expression, scenario)


def check_expression(root: At, scenario: Scenario, expression: Expression) -> Iterator[Finding]:
    """Yields the problems of an expression about a scenario, which was read from `root`."""
    wrong = [*_check((), expression, subjects_of(root))]
    yield from wrong or _check_span((), expression, scenario)


def check_variant_columns(root: At, scenario: Scenario, variant: str) -> Iterator[Finding]:
    """Yields the problems of columns that tables over a sweep take from a variant. `root` and
    `scenario` are one of its steps."""
    wrong = [*_check_columns(root, variant)]
    yield from wrong
    if not wrong:
        for path, expression in _of_columns(scenario, variant):
            yield from _check_span(path, expression, scenario)


def _check_columns(root: At, variant: str | None) -> Iterator[Finding]:
    """Subjects and metrics of the columns that tables take from a variant, or from no one."""
    subjects = subjects_of(root)
    for table in root["tables"].entries():
        for column in table.entries():
            asked = column["metric"] if isinstance(column.data, dict) else column
            if column["variant"].data == variant and not _is_varied(asked.data, root):
                yield from _check_column(asked, subjects)
                yield from _check_search_word(asked, root)


def _check_span(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    stages = [stage.name for stage in scenario.stages]
    phases = [phase for stage in scenario.stages for phase in stage.phases]
    names = (*scenario.populations, *shares_of(scenario))
    yield from _check_together(path, expression, scenario)
    subject = expression.subject or ""
    if "/" in subject and subject not in names:
        yield path, *unknown("population", subject, names)
    if expression.wants("broker"):
        yield from _check_balance(path, expression, scenario)
    span = expression.span
    if span is None:
        return
    if (stages.count(span) or phases.count(span)) > 1:
        message = f"found the span {describe(span)}, which is the name of several"
        yield path, f"{message}, needed is a name that only one has", "give each a name"
    elif span not in (*stages, *phases):
        yield path, *unknown("span", span, (*stages, *phases))
    elif expression.is_of_fault:
        yield from _check_fault(path, expression, scenario)
    elif expression.is_of_phase:
        yield from _check_phase(path, expression, scenario)
    else:
        yield from _check_kept(path, expression, scenario)


def check_subject_names(root: At) -> Iterator[Finding]:
    """Finds names that expressions could not distinguish."""
    taken = dict.fromkeys(RESERVED, "word of the monitors")
    for noun, entries in (
        ("target", root[TARGET].named()),
        ("broker", root["topology"]["brokers"].entries()),
        ("service", root["topology"]["services"].entries()),
        ("bridge", root["topology"]["bridges"].entries()),
        ("source", root["monitors"]["sources"].entries()),
        ("population", root["populations"].entries()),
    ):
        for entry in entries:
            name = _name(entry)
            if name in taken:
                message = f"found the {noun} {describe(name)}, which is also a {taken[name]}"
                hint = f"rename it: {name}.cpu could mean either"
                if (noun, taken[name]) == ("source", "target"):
                    hint = f"write {name}-0 for a source of the first target of that name"
                yield entry.path, f"{message}, allowed is a name of its own", hint
            if name.startswith(OTHER_HOST):
                message = f"found the {noun} {describe(name)}, allowed is another beginning"
                yield entry.path, message, f"names with {OTHER_HOST} are of other hosts"
            taken.setdefault(name, noun)


def population_names(root: At) -> list[str]:
    """Returns the names of populations and their shares, such as `device` and `device/short`."""
    names = []
    for population in root["populations"].entries():
        shares = [_name(share) for share in population["shares"].named()]
        names.append(_name(population))
        names += [f"{_name(population)}/{share}" for share in ([REST, *shares] if shares else ())]
    return names


def subjects_of(root: At) -> Subjects:
    """Everything that an expression may begin with."""
    subjects = dict.fromkeys(population_names(root), Subject(is_population=True))
    for population in root["populations"].named():
        if "publisher" in population:
            many = population["clients"].data != 1
            process = Subject(
                names_of("publisher"), is_population=True, is_group=many, is_on_a_host=True
            )
            subjects[_name(population)] = process
    monitors = root["monitors"]
    if monitors["host"].data is not False:
        subjects[HOST] = Subject(names_of("host"))
    if monitors["brokers"].data is not False:
        broker = Subject(names_of("broker"), is_group=True, is_broker=True, is_on_a_host=True)
        subjects |= dict.fromkeys(_broker_names(root), broker)
        service = Subject(names_of("service"), is_on_a_host=True)
        subjects |= {_name(each): service for each in root["topology"]["services"].entries()}
    subjects["agent"] = Subject(names_of("agent"), is_group=True)
    for bridge in root["topology"]["bridges"].entries():
        subjects[_name(bridge)] = Subject(names_of("bridge"))
    for source in monitors["sources"].entries():
        metrics = next((each.METRICS for key, each in MONITORABLE.items() if key in source), None)
        if "remote" not in source or "process" in source["remote"]:
            there = "remote" in source or "process" in source
            subjects[_name(source)] = Subject(metrics, is_on_a_host=there)
        if "remote" in source:
            own = (*names_of("host"), CLOCK_BOUND.name)
            subjects[f"{OTHER_HOST}{_name(source)}"] = Subject(own)
    return subjects


def unknown(noun: str, name: str, names: Collection[str]) -> tuple[str, str]:
    """Message and hint for a name that is not there."""
    allowed = ", ".join(names) or f"none, since there are no {noun}s"
    hint = meant(name, names, f"there are {allowed}")
    return f"found the unknown {noun} {describe(name)}, allowed are {allowed}", hint


def _check_condition(line: At, subjects: Subjects) -> Iterator[Finding]:
    """Checks a condition against the subjects; the type of the field has checked its syntax."""
    if isinstance(line.data, str):
        with suppress(UnfitError):
            yield from _check(line.path, parse_threshold(line.data).expression, subjects)


def _is_varied(word: object, root: At) -> bool:
    """Returns True if a column of a table over a sweep may show a value that the sweep varies, by
    its path or the end of the path."""
    sweep = root["sweep"]
    steps = (sweep["vary"], *sweep["steps"].entries())
    paths = [str(each.path[-1]) for step in steps for each in step.named()]
    return isinstance(word, str) and any(
        path == word or path.endswith(f".{word.replace(' ', '.')}") for path in paths
    )


def _check_column(column: At, subjects: Subjects) -> Iterator[Finding]:
    if not isinstance(column.data, str):
        return
    _, asked = asked_trials(column.data)
    if not is_metric(asked):
        return
    try:
        yield from _check(column.path, parse_expression(asked), subjects)
    except UnfitError as unfit:
        words = ", ".join((*RESULT_WORDS, *STEP_WORDS, *SEARCH_WORDS))
        yield column.path, f"{unfit}, or one of {words}", unfit.hint


def _check_search_word(column: At, root: At) -> Iterator[Finding]:
    """Yields a column that shows the result of a search in a scenario without one."""
    if not isinstance(column.data, str) or "search" in root:
        return
    point, _ = asked_trials(column.data)
    if point is not None or shows_search(column.data):
        message = f"found {describe(column.data)} in a scenario without a search"
        yield column.path, f"{message}, needed is the key search", None


def _check(path: Path, expression: Expression, subjects: Subjects) -> Iterator[Finding]:
    name = expression.subject
    if name is None:
        return
    if expression.is_of_run:
        if expression.wants("memory"):
            yield from _check_memory(path, expression, subjects)
        return
    subject = _subject(name, subjects)
    if subject is None:
        populations = [n for n, each in subjects.items() if each.is_population]
        if expression.metric in OF_POPULATIONS:
            yield path, *unknown("population", name, populations)
        else:
            yield path, *unknown("subject", name, tuple(subjects))
        return
    try:
        is_process = subject.metrics is not None and (
            name not in subjects or expression.metric not in OF_POPULATIONS
        )
        if subject.is_population and not is_process:
            check_population_metric(expression)
        else:
            check_reading(expression, subject.metrics)
    except UnfitError as unfit:
        yield path, str(unfit), unfit.hint


def _subject(name: str, subjects: Subjects) -> Subject | None:
    """Returns the subject of a name, of which a number or `.host` can be the end."""
    whole = name.removesuffix(HOST_OF)
    found = subjects.get(whole) or subjects.get(_group(whole, subjects))
    if whole == name:
        return found
    return subjects.get(HOST) if found is not None and found.is_on_a_host else None


def _check_memory(path: Path, expression: Expression, subjects: Subjects) -> Iterator[Finding]:
    """Checks that memory by connections is asked of a broker or the host."""
    brokers = [name for name, each in subjects.items() if each.is_broker]
    allowed = [*brokers, *(("host",) if "host" in subjects else ())]
    name = _group(expression.subject or "", subjects)
    if name not in allowed:
        yield path, *unknown("subject", name, allowed)


def _check_balance(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    """Yields a balance of something that is no group of targets."""
    names = (*scenario.target_sizes, *scenario.topology.brokers)
    if expression.subject is not None and expression.subject not in names:
        yield path, *unknown("subject", expression.subject, names)


def _check_together(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    """Yields figures of single brokers that are watched together, and of their `$SYS`."""
    name = expression.subject or ""
    brokers = scenario.topology.brokers
    group = name if name in brokers else split_member(name)[0]
    if group not in brokers or brokers[group].count <= TOGETHER_ABOVE:
        return
    why = f"{brokers[group].count} brokers {group} are watched together, without $SYS"
    if name != group:
        yield path, f"found {describe(name)}, allowed is {group}", why
    elif expression.metric.startswith(SYS_PREFIX):
        metrics = ", ".join(names_of("broker"))
        yield path, f"found {describe(expression.metric)}, allowed are {metrics}", why


def _check_fault(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    """Yields a metric of faults whose span is no fault."""
    faults = [name for s in scenario.stages for name, h in s.happenings if isinstance(h, Fault)]
    if expression.span not in faults:
        yield path, *unknown("fault", str(expression.span), faults)


def _check_phase(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    """Yields a metric of phases whose span is none, such as a connect stage."""
    publishing = [stage for stage in scenario.stages if stage.publish is not None]
    allowed = [name for stage in publishing for name in (stage.name, *stage.phases)]
    if expression.span not in allowed:
        yield path, *unknown("phase", str(expression.span), allowed)


def _check_kept(path: Path, expression: Expression, scenario: Scenario) -> Iterator[Finding]:
    """Yields a metric of a population that is not kept for its span."""
    if expression.is_of_run:
        if expression.span not in {stage.name for stage in scenario.stages}:
            names = [stage.name for stage in scenario.stages]
            yield path, *unknown("stage", str(expression.span), names)
        return
    whole = (expression.subject or "").partition("/")[0]
    is_monitor = expression.subject is not None and whole not in scenario.populations
    metric = OF_POPULATIONS.get(expression.metric)
    kind: SpanKind = (
        "stage" if expression.span in {stage.name for stage in scenario.stages} else "phase"
    )
    if is_monitor or metric is None:
        return
    quiet = {name for stage in scenario.stages if stage.hold is not None for name in stage.phases}
    if kind == "phase" and expression.span in quiet:
        message = f"found the span {describe(expression.span)} of a hold stage, allowed are for it"
        hint = "nothing is published in it, and so it is no phase"
        yield path, f"{message} {', '.join(names_of('fault'))} and those of monitors", hint
        return
    if kind in metric.spans:
        return
    kept = [name for name in SHOWN if kind in OF_POPULATIONS[name].spans]
    message = f"found {describe(expression.metric)}, allowed for a single {kind} are"
    yield path, f"{message} {', '.join(kept)}", None


def asked_of(scenario: Scenario, metrics: str) -> set[str]:
    """Returns the subjects of which the scenario asks for metrics with a beginning."""
    columns = (column.metric for table in scenario.tables.values() for column in table.values())
    expressions = [each for _, each in _expressions(scenario)]
    for _, asked in map(asked_trials, columns):
        # A column can show a value that the sweep varies, which is no expression.
        with suppress(UnfitError):
            expressions.append(parse_expression(asked))
    return {each.subject or "" for each in expressions if each.metric.startswith(metrics)}


def _expressions(scenario: Scenario) -> Iterator[tuple[Path, Expression]]:
    for path, threshold in _conditions(scenario):
        yield path, threshold.expression
    for n, line in enumerate(scenario.sweep.stop_when if scenario.sweep is not None else ()):
        if isinstance(line, Threshold):
            yield ("sweep", "stop_when", n), line.expression
    if scenario.search is not None and scenario.search.figure is not None:
        yield ("search", "figure"), scenario.search.figure
    for heading, column in scenario.table.items():
        _, asked = asked_trials(column)
        if is_metric(asked):
            yield ("table", heading), parse_expression(asked)


def _conditions(scenario: Scenario) -> Iterator[tuple[Path, Threshold]]:
    for key in CONDITIONS:
        yield from (((key, n), each) for n, each in enumerate(getattr(scenario, key)))


def _of_columns(scenario: Scenario, variant: str | None) -> Iterator[tuple[Path, Expression]]:
    """Yields the expressions that tables over a sweep take from a variant, or from none."""
    paths = {} if scenario.sweep is None else scenario.sweep.names
    for title, table in scenario.tables.items():
        for heading, column in table.items():
            _, asked = asked_trials(column.metric)
            if column.variant != variant or column.shows_step(paths) or not is_metric(asked):
                continue
            yield ("tables", title, heading), parse_expression(asked)


def _group(name: str, subjects: Subjects) -> str:
    """The group of a numbered broker or agent; itself where it is no such name."""
    group, number = split_member(name)
    subject = subjects.get(group)
    numbered = subject is not None and subject.is_group and number is not None
    return group if numbered else name


def _broker_names(root: At) -> tuple[str, ...]:
    """Names of the brokers that are watched: those that the run starts, and those of targets."""
    brokers = tuple(_name(entry) for entry in root["topology"]["brokers"].entries())
    named = tuple(_name(entry) for entry in root[TARGET].named())
    given = (TARGET_BROKER,) if TARGET in root or not brokers else ()
    return (*(named or given), *brokers)


def _name(entry: At) -> str:
    return str(entry.path[-1])


RESERVED = (HOST, "agent", ENGINES)


def check_limits(scenario: Scenario) -> Iterator[Finding]:
    """Yields limits that cannot be reached, and counts that do not follow the scale."""
    for path, threshold in _conditions(scenario):
        if threshold.expression.unit != "":
            continue
        if threshold.expression.figure.of_a_size:
            yield from _check_size(path, threshold, scenario)
        elif scenario.scale != 1 and _asks_for_some(threshold):
            message = (
                f"found a count in {threshold.source!r}, and a scale, which does not change it"
            )
            hint = "ask for a rate or a share, or leave the scale out"
            yield path, f"{message}, allowed are limits that hold at any size", hint


def with_limits(scenario: Scenario) -> Scenario:
    """The scenario with a number for each limit in percent of clients or bridges."""
    changed: dict[str, object] = {
        key: tuple(_in_numbers(threshold, scenario) for threshold in getattr(scenario, key))
        for key in CONDITIONS
    }
    if scenario.sweep is not None:
        rules = (
            _in_numbers(rule, scenario) if isinstance(rule, Threshold) else rule
            for rule in scenario.sweep.stop_when
        )
        changed["sweep"] = scenario.sweep.model_copy(update={"stop_when": tuple(rules)})
    return scenario.model_copy(update=changed)


def _check_size(path: Path, threshold: Threshold, scenario: Scenario) -> Iterator[Finding]:
    size = _size(scenario, threshold.expression.subject)
    if size is None:
        if threshold.is_part:
            message = f"found a limit in percent in {threshold.source!r}, allowed is a number"
            yield path, message, "only populations and bridges have a number of their own"
        return
    if threshold.is_part or threshold.value == 0:
        return
    name = threshold.expression.subject or "the populations"
    limit, there = write_count(threshold.value), write_count(size)
    if _asks_for_some(threshold) and threshold.value + (threshold.op == ">") > size:
        message = f"found {limit}, but {name} can have {there}, allowed is up to {there}"
        yield path, message, f"write {_share_hint(threshold)}: it follows the size"
    elif scenario.scale != 1:
        message = f"found {limit} of {there}, and a scale, which does not change that number"
        hint = f"write {_share_hint(threshold)}: it follows the scale"
        yield path, f"{message}, allowed with a scale is a limit in percent", hint


def _share_hint(threshold: Threshold) -> str:
    return f"{threshold.expression} {threshold.op} 100%"


def _asks_for_some(threshold: Threshold) -> bool:
    """Returns True if only a count above 0 meets the threshold."""
    figure = threshold.expression.figure
    is_of_clients = figure.of_a_size or (figure.kind == "counter" and "population" in figure.of)
    return is_of_clients and threshold.value > 0 and threshold.op in {"==", ">=", ">"}


def _in_numbers(threshold: Threshold, scenario: Scenario) -> Threshold:
    size = _size(scenario, threshold.expression.subject)
    if not threshold.is_part or size is None:
        return threshold
    exact = round(threshold.value * size, ROUNDING_DIGITS)
    match threshold.op:
        case ">=" | "<":
            value = ceil(exact)
        case "<=" | ">":
            value = floor(exact)
        case _:
            value = rounded(exact)
    source = f"{threshold.expression} {threshold.op} {write_count(value)}"
    return replace(threshold, value=value, source=source, is_part=False)


def _size(scenario: Scenario, subject: str | None) -> int | None:
    """Returns the number of clients or bridges of a name; None if it has none."""
    shares = shares_of(scenario)
    if subject is None:
        return sum(share.clients for share in shares.values())
    bridge = scenario.topology.bridges.get(subject)
    if bridge is not None:
        brokers = scenario.topology.brokers.get(bridge.from_)
        return None if brokers is None else brokers.count
    meant = meant_by(shares, subject)
    return sum(shares[name].clients for name in meant) if meant else None
