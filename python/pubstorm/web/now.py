"""The state of a run at one instant, in words: stage, key figures, populations, thresholds, and the
verdict on a run that is not over, by the code of the verdict at its end. It takes a small share of
one core at most, so that a long run is evaluated less often."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pubstorm.contract import Sample, Source, StoredSource
from pubstorm.contract.plan import ConnectAction, Plan
from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.measure.recorder import is_summed_up
from pubstorm.measure.run_log import StageEntered, stored_event
from pubstorm.metrics import OF_POPULATIONS, columns_of
from pubstorm.metrics.expressions import Threshold
from pubstorm.metrics.metric import Metric, ReportColumn, in_words
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.display.summary import stage_time
from pubstorm.play.kept import Kept
from pubstorm.play.record import measured_of
from pubstorm.quantities import (
    SECOND_NS,
    Unit,
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.of_run import key_figures
from pubstorm.result import (
    FaultResult,
    Measured,
    PopulationResult,
    RunResult,
    Status,
    ThresholdOutcome,
    Verdict,
)
from pubstorm.result.figures import number_at
from pubstorm.result.journal import Tail, snapshots_in
from pubstorm.result.samples import (
    EVENTS_FILE,
    SAMPLES_FILE,
    Sources,
)
from pubstorm.result.summary import KINDS
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario.defaults import conditions_of

STALE_S = 4.0
"""Age at which a reading is no longer the present value, beside the interval of snapshots."""
FIGURES = 6
"""Key figures of a run."""
WRITTEN: Mapping[Unit, Callable[[float], str]] = {
    "": count_text,
    "per_s": rate_text,
    "us": duration_text,
}
"""Writes the figures of populations, by their unit."""
BUSY = 0.7
"""Busy share from which the figure is a warning."""


class Latest:
    """The latest reading of each metric of each source."""

    def __init__(self) -> None:
        self.at_s = 0.0
        """Latest instant of a reading."""
        self.values: dict[tuple[Source, str], tuple[float, float]] = {}
        """Instant and value by source and metric."""
        self.kinds: dict[str, list[Source]] = {}
        """Sources of each kind."""

    def add(self, kind: str, sample: Sample) -> None:
        """Takes a reading."""
        self.at_s = max(self.at_s, sample.at_s)
        self.values[sample.source, sample.metric] = (sample.at_s, sample.value)
        sources = self.kinds.setdefault(kind, [])
        if sample.source not in sources:
            sources.append(sample.source)

    def value(self, source: Source, metric: str, since_s: float = 0.0) -> float | None:
        """The value of a metric; None if it was not read since an instant."""
        at_s, value = self.values.get((source, metric), (-math.inf, 0.0))
        return value if at_s >= since_s else None

    def of(self, kind: str, metric: str, since_s: float) -> dict[Source, float]:
        """The values of a metric by source."""
        found = {each: self.value(each, metric, since_s) for each in self.kinds.get(kind, ())}
        return {source: value for source, value in found.items() if value is not None}


@dataclass(frozen=True)
class RunState:
    """A run at one instant."""

    plan: Plan | None
    """None before the run has started."""
    stage: StageEntered | None
    at_s: float
    verdict: Verdict | None
    evaluated_s: float | None
    result: RunResult | None
    is_alive: bool


def shown(moment: RunState, latest: Latest, after_s: float) -> dict[str, Any]:
    """Returns what the page shows. `after_s` is the time that further runs take."""
    plan, result, verdict = moment.plan, moment.result, moment.verdict
    if result is not None:
        found = key_figures(result)[:FIGURES]
        figures = [_figure(f.name, f.value, f.note, str(f.status or "")) for f in found]
        table = _results(result)
    elif plan is not None:
        figures, table = list(_figures(plan, latest)), _populations(plan, latest)
    else:
        figures, table = [], {"heads": [], "populations": []}
    return {
        "state": _state(moment),
        "at": round(moment.at_s, 1),
        "elapsed": span_text(moment.at_s),
        "seen": round(latest.at_s, 1),
        **_progress(moment, latest, after_s),
        "verdict": _verdict(moment),
        "figures": figures,
        **table,
        "thresholds": [_threshold(each) for each in verdict.thresholds] if verdict else [],
        "evaluated": None if moment.evaluated_s is None else round(moment.evaluated_s, 1),
        "evidence": list(verdict.evidence[:5]) if verdict else [],
    }


def _state(moment: RunState) -> str:
    if moment.result is not None:
        return "over"
    if not moment.is_alive:
        return "gone"
    return "running" if moment.stage is not None else "starting"


def _progress(moment: RunState, latest: Latest, after_s: float) -> dict[str, Any]:
    """The headline, with the stage and the share of it that is done."""
    result, plan, stage = moment.result, moment.plan, moment.stage
    if result is not None:
        return {"sentence": result.verdict.headline, "stage": None}
    if not moment.is_alive:
        text = "The controller ended without a result; pubstorm report makes one of what was kept."
        return {"sentence": text, "stage": None}
    if plan is None or stage is None:
        return {"sentence": "The run is starting.", "stage": None}
    populations = (plan.populations[index] for index in plan.stages[stage.stage].populations)
    connected = (latest.value(_population(each.name), "connected") for each in populations)
    time = stage_time(plan, stage.stage, moment.at_s - stage.at_s, sum(filter(None, connected)))
    if time.left_s is None:
        how = f"{share_text(round(time.connected_share, 2))} of the clients are connected"
    elif time.left_s > 0:
        how = f"{span_text(time.left_s)} left"
    else:
        how = "its time is over, messages in flight are waited for"
    number = f"{time.number} of {time.stages}"
    return {
        "sentence": f"Stage {time.name}, {number}: {how}; {time.left_text(after_s)}.",
        "stage": {"name": time.name, "number": number, "share": round(time.share, 3)},
    }


def _population(name: str) -> Source:
    return Source.single("population", name)


def _since_s(plan: Plan, latest: Latest) -> float:
    """Instant since which a reading is a present one."""
    return latest.at_s - STALE_S - 2 * plan.snapshot_interval_ns / SECOND_NS


def _figures(plan: Plan, latest: Latest) -> Iterator[dict[str, Any]]:
    since_s = _since_s(plan, latest)
    total = partial(_total, latest, since_s)
    due, received = total("due_per_s"), total("received_per_s")
    scheduled_of = latest.of("population", "due_per_s", since_s)
    rates = latest.of("population", "sent_per_s", since_s)
    # Answers, and messages of closed loops, are part of no schedule.
    sent = sum(rate for source, rate in rates.items() if not due or source in scheduled_of)
    foreign = total("foreign_per_s")
    receives = any(each.subscriptions for each in plan.populations)
    scheduled = f" of {rate_text(due)} /s scheduled" if due else ""
    if foreign and not received:
        yield _figure("foreign messages", f"{rate_text(foreign)} /s", "of other programs")
    elif receives:
        note = f"{rate_text(sent)} /s sent{scheduled}"
        note += f"; {rate_text(foreign)} /s of other programs" if foreign else ""
        yield _figure("messages received", f"{rate_text(received)} /s", note)
    else:
        yield _figure("messages sent", f"{rate_text(sent)} /s", scheduled.strip())
    yield _latency(plan, latest, since_s)
    yield _clients(plan, latest, since_s)
    if receives:
        missing = total("missing")
        note = "passed over in a stream and not filled"
        yield _figure("missing so far", count_text(missing), note, "fail" if missing else "")
    yield from _broker(latest, since_s)
    yield from _generator(latest, since_s)


def _total(latest: Latest, since_s: float, metric: str) -> float:
    return sum(latest.of("population", metric, since_s).values())


def _figure(name: str, value: str, note: str, status: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "note": note, "status": status}


def _latency(plan: Plan, latest: Latest, since_s: float) -> dict[str, str]:
    """The round trips of a plan with requests; the latency of others."""
    requests = any(each.request for p in plan.populations for each in p.publications)
    metric = "round_trip" if requests else "latency"
    name = f"{in_words(metric)} p99"
    p99 = latest.of("population", f"{metric}_p99_us", since_s)
    if not p99:
        return _figure(name, "–", f"nothing was {'answered' if requests else 'delivered'} just now")
    worst = max(p99, key=p99.__getitem__)
    median = latest.value(worst, f"{metric}_p50_us", since_s) or 0.0
    of = f", {worst.name}" if len(p99) > 1 else ""
    return _figure(name, duration_text(p99[worst]), f"median {duration_text(median)}{of}")


def _clients(plan: Plan, latest: Latest, since_s: float) -> dict[str, str]:
    connected, ready = _total(latest, since_s, "connected"), _total(latest, since_s, "ready")
    note = f"of {count_text(plan.clients)} planned; {count_text(ready)} ready"
    return _figure("clients connected", count_text(connected), note)


def _broker(latest: Latest, since_s: float) -> Iterator[dict[str, str]]:
    cpu = latest.of("watched", "cpu", since_s)
    if not cpu:
        return
    busiest = max(cpu, key=cpu.__getitem__)
    memory = latest.value(busiest, "rss_bytes", since_s)
    note = "of one core" + (f"; memory {bytes_text(memory)}" if memory is not None else "")
    yield _figure(f"CPU of {busiest.name}", share_text(round(cpu[busiest], 3)), note)


def _generator(latest: Latest, since_s: float) -> Iterator[dict[str, str]]:
    busy = max(latest.of("agent", "busy", since_s).values(), default=None)
    if busy is None:
        return
    late = max(latest.of("agent", "lateness_p99_us", since_s).values(), default=None)
    note = "nothing was sent just now" if late is None else f"late p99 {duration_text(late)}"
    status = "invalid" if busy >= BUSY else ""
    yield _figure("generator busy", share_text(round(busy, 3)), note, status)


def _populations(plan: Plan, latest: Latest) -> dict[str, Any]:
    """The populations of a run that is played, by their latest readings."""
    since_s, clients = _since_s(plan, latest), dict[str, int]()
    for each in plan.populations:
        name = each.whole or each.name
        clients[name] = clients.get(name, 0) + each.clients

    def value(name: str, metric: Metric, statistic: str) -> float | None:
        return latest.value(_population(name), metric.sample(statistic), since_s)

    return _table(columns_of("live"), clients, value)


def _results(result: RunResult) -> dict[str, Any]:
    """The populations of a run that is over: most clients, rates while steady, losses."""
    whole = {name: each for name, each in result.populations.items() if "/" not in name}
    shown = {**whole, **result.wholes}

    def value(name: str, metric: Metric, statistic: str) -> float | None:
        return _number(shown[name], metric, statistic)

    return _table(
        columns_of("live end"), {name: each.clients for name, each in shown.items()}, value
    )


def _table(
    columns: Sequence[tuple[Metric, ReportColumn]],
    clients: Mapping[str, int],
    value: Callable[[str, Metric, str], float | None],
) -> dict[str, Any]:
    """Returns heads and rows of a table of the populations with their clients. A column without any
    value is left out if the registry says so."""
    kept = [
        (head, metric, {name: value(name, metric, statistic) for name in clients})
        for metric, column in columns
        for head, statistic in column.named(metric.name)
        if column.when == "always" or any(value(name, metric, statistic) for name in clients)
    ]
    return {
        "heads": [head for head, _, _ in kept],
        "populations": [
            {
                "name": name,
                "cells": [_cell(metric, values[name], count) for _, metric, values in kept],
            }
            for name, count in clients.items()
        ],
    }


def _number(population: PopulationResult, metric: Metric, statistic: str) -> float | None:
    """Returns a figure of a population. The latency is that of acknowledgements if there were no
    deliveries, as while the run is played."""
    path = (*metric.path, *filter(None, (statistic,)))
    found = number_at(population, path)
    if found is None and metric.name == "latency":
        return number_at(population, (*OF_POPULATIONS["ack_latency"].path, statistic))
    return found


def _cell(metric: Metric, value: float | None, clients: int) -> str:
    text = "–" if value is None else WRITTEN[metric.unit or ""](value)
    return f"{text} / {count_text(clients)}" if metric.of_a_size else text


def _threshold(outcome: ThresholdOutcome) -> dict[str, str]:
    status = "pass" if outcome.passed else "fail" if outcome.missed else "invalid"
    if outcome.found is None:
        status = ""
    return {"text": outcome.label, "found": outcome.text, "status": status}


def _verdict(moment: RunState) -> dict[str, str] | None:
    verdict = moment.verdict
    if verdict is None:
        return None
    words = {Status.PASS: "passes", Status.FAIL: "fails", Status.INVALID: "is invalid"}
    if moment.result is not None:
        limited = "" if verdict.limited_by == "none" else f"limited by {verdict.limited_by}"
        return {"status": str(verdict.status), "word": str(verdict.status), "more": limited}
    known = [each for each in verdict.thresholds if each.found is not None]
    met = sum(each.passed for each in known)
    more = f"{met} of {len(verdict.thresholds)} thresholds are met"
    is_open = verdict.status is Status.FAIL or not known
    if is_open and met == len(known) < len(verdict.thresholds):
        # Nothing fails yet but thresholds without a value.
        return {"status": "none", "word": "no verdict yet", "more": more}
    return {"status": str(verdict.status), "word": f"{words[verdict.status]} so far", "more": more}


PAUSE_S = 5.0
"""Shortest time between two evaluations."""
SHARE = 1 / 300
"""Largest share of one core for evaluations, on average."""


class VerdictSoFar:
    """The verdict so far."""

    def __init__(self, path: Path) -> None:
        """Raises StoredRunError if start, plan or scenario cannot be read."""
        self._next_s = 0.0
        self._begin(path)

    def _begin(self, path: Path) -> None:
        self._kept = Kept(path)
        self._snapshots = Tail(path, SNAPSHOTS_FILE)
        self._samples = Tail(path, SAMPLES_FILE)
        self._events = Tail(path, EVENTS_FILE)
        self._readings = self._kept.keeper()
        self._sources: Sources = {}

    @property
    def is_due(self) -> bool:
        """True if the time of the next evaluation has come."""
        return time.monotonic() >= self._next_s

    def evaluate(self) -> Verdict | None:
        """Evaluates what the run has stored so far; None before its first stage."""
        began_s, cpu_s = time.monotonic(), time.thread_time()
        try:
            self._read()
            if self._snapshots.is_torn or self._samples.is_torn:
                # Lines that were merged meanwhile are read again from the start.
                self._begin(self._kept.path)
                self._read()
            return self._verdict()
        finally:
            took_s = time.thread_time() - cpu_s
            self._next_s = began_s + max(PAUSE_S, took_s / SHARE)

    def _read(self) -> None:
        while lines := self._snapshots.lines():
            for snapshot in snapshots_in(lines, len(self._kept.plan.populations)):
                self._kept.add(snapshot)
        while lines := self._samples.lines():
            # The events have each source before its first sample.
            self._read_events()
            texts = (line.decode(errors="replace") for line in lines)
            self._readings.read(texts, self._sources, is_summed_up)
        self._read_events()

    def _read_events(self) -> None:
        while lines := self._events.lines():
            for line in lines:
                stored = stored_event(line)
                if isinstance(stored, StoredSource):
                    source = stored.source
                    self._sources[source.kind, source.name] = source
                self._kept.note(stored)

    def _verdict(self) -> Verdict | None:
        kept = self._kept
        run_log = kept.run_log()
        if not run_log.spans:
            return None
        run_log.endings = {hello.agent: "bye" for hello in kept.start.hellos}
        info = kept.info(run_log, RunDirectory(kept.path), Live())
        measured = measured_of(
            info, kept.output(run_log, self._readings.tracks), kept.start.environment
        )
        is_present = not run_log.spans[-1].settled
        if is_present:
            # Nothing is lost before the end of the stage, which is no finding.
            present = measured.stages[-1].model_copy(update={"excluded": ()})
            measured = measured.model_copy(update={"stages": (*measured.stages[:-1], present)})
        conditions = conditions_of(kept.scenario)
        if not is_present:
            found = evaluate_run(measured, conditions)
            outcomes = tuple(_not_yet(each, ()) for each in found.thresholds)
            return found.model_copy(update={"thresholds": outcomes})
        is_connecting = isinstance(kept.plan.stages[run_log.spans[-1].index].action, ConnectAction)
        if is_connecting:
            measured = _without_waiting(measured)
        # Messages are in flight as long as clients publish.
        later = {
            each.source
            for each in conditions
            if each.is_of_the_end or (is_connecting and each.is_of_connects)
        }
        now = [each for each in conditions if each.source not in later]
        found = evaluate_run(measured, now)
        known = iter(found.thresholds)
        thresholds = [_open(each) if each.source in later else next(known) for each in conditions]
        open_faults = [f for f in measured.faults if f.stage == measured.stages[-1].name]
        changes = {
            "evidence": _so_far(found, open_faults),
            "thresholds": tuple(_not_yet(each, open_faults) for each in thresholds),
        }
        return found.model_copy(update=changes)


def _without_waiting(measured: Measured) -> Measured:
    """Returns measurements in which clients that still connect were not requested yet."""
    populations = {
        name: population.model_copy(update={"asked_max": population.asked - population.never_ready})
        for name, population in measured.populations.items()
    }
    return measured.model_copy(update={"populations": populations})


def _open(threshold: Threshold) -> ThresholdOutcome:
    """Returns the outcome of a threshold without a value so far."""
    stage = "connecting" if threshold.is_of_connects else "publishing"
    asked = threshold.expression
    return ThresholdOutcome(
        expression=threshold.source,
        figure=str(asked),
        metric=asked.metric,
        found=None,
        passed=False,
        text=f"evaluated when {stage} has ended",
        default=threshold.is_default,
    )


def _not_yet(outcome: ThresholdOutcome, faults: Sequence[FaultResult]) -> ThresholdOutcome:
    """Returns an outcome without a value as open, if it is about a part of the run. `faults` are
    those of the present stage, which may still end."""
    _, _, span = outcome.figure.partition("@")
    if not span or outcome.found is not None:
        return outcome
    text = f"no value of {span} so far"
    fault = next((each for each in faults if each.name == span), None)
    if fault is not None:
        lasting = "the fault" if fault.repaired_at_s is None else f"stage {fault.stage}"
        text = f"no value so far, since {lasting} continues"
    return outcome.model_copy(update={"text": text})


def _so_far(verdict: Verdict, faults: Sequence[FaultResult]) -> tuple[str, ...]:
    """Returns the evidence without messages in flight, since publishing continues, and with faults
    of the present stage as they are so far."""
    words = KINDS["in_flight"].failures.words
    shown = [each for each in verdict.evidence if words not in each]
    for fault in faults:
        start = f"{fault.name} at {span_text(fault.at_s)}: "
        for n, text in enumerate(shown):
            if text.startswith(start):
                facts = text.removeprefix(start).replace(" in the stage", " so far")
                shown[n] = start + facts.replace("not repaired", "the fault continues", 1)
    return tuple(shown)
