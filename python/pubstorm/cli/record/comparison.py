"""Compares a stored run with the recorded messages that it played: messages, rates over time, sizes
and fan-out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from pathlib import Path

from pubstorm.cli.record.population import FACTS
from pubstorm.contract import Source
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.recorded import by_second, read_recorded
from pubstorm.contract.sessions import read_sessions
from pubstorm.errors import StoredRunError
from pubstorm.files import text_of
from pubstorm.play.directory import PLAN_FILE
from pubstorm.report.stored import load_result, load_tracks
from pubstorm.result import RunResult
from pubstorm.result.samples import Tracks


def played_against_recorded(run_dir: Path) -> Iterator[str]:
    """Yields the lines of the comparison. Raises StoredRunError for a run that played no recorded
    messages, and RowsError if their file is gone."""
    result = load_result(run_dir)
    try:
        plan = Plan.model_validate_json(text_of(run_dir / PLAN_FILE))
    except (OSError, ValueError) as error:
        raise StoredRunError(f"found no plan in {run_dir}: {error}") from None
    replayed = [each for each in plan.populations if _is_replayed(each)]
    if not replayed:
        hint = "a population with replay: FILE plays recorded messages"
        raise StoredRunError(f"found no recorded messages in the run {run_dir}", hint)
    tracks, problem = load_tracks(run_dir)
    yield f"{'':<34}{'recorded':>14}{'played':>14}{'difference':>12}"
    for population in replayed:
        yield from _population(population, result, tracks)
    yield from _fan_out(replayed, result)
    if problem is not None:
        yield f"rates over time are unknown: {problem}"


def _is_replayed(population: PlannedPopulation) -> bool:
    """Returns True for clients that play recorded messages or sessions."""
    lifetime = population.lifetime
    plays_sessions = lifetime is not None and lifetime.recorded is not None
    return plays_sessions or any(each.recorded for each in population.publications)


def _population(population: PlannedPopulation, result: RunResult, tracks: Tracks) -> Iterator[str]:
    own = result.populations[population.name]
    messages = size_sum = raised = 0
    files = {p.recorded.file for p in population.publications if p.recorded is not None}
    seconds, clients = Counter[int](), 1
    for publication in population.publications:
        if publication.recorded is not None:
            file = read_recorded(publication.recorded.file)
            kind = file.kind(publication.qos, publication.retain)
            messages, clients = messages + kind.messages, file.clients
            if publication.recorded.content == "sizes":
                size_sum, raised = size_sum + kind.bytes_sum, raised + kind.raised
            else:
                size_sum += kind.recorded_sum
    for path in files:
        seconds.update(read_recorded(path).seconds)
    recorded = None if population.lifetime is None else population.lifetime.recorded
    clients = clients if recorded is None else recorded.clients
    rounds = population.clients / clients
    yield f"{population.name}: {population.clients:,} clients play {clients:,} recorded ones"
    if recorded is not None:
        sessions = read_sessions(recorded.file).sessions
        yield _line("sessions", sessions * rounds, own.connected_total)
    if not files:
        return
    yield _line("messages", messages * rounds, own.sent_total)
    yield from (
        f"  {count:,} messages {words}"
        for count, words in (
            (own.skipped_total, "skipped"),
            (own.rejected_total, "rejected by the broker"),
            (own.abandoned_total, "given up with their connection"),
        )
        if count
    )
    yield f"  {'mean size as played, in bytes':<46}{size_sum / max(messages, 1):>14,.2f}"
    if raised:
        yield f"  {raised:,} recorded messages are smaller than a stamp of 32 bytes"
    readings = _readings(population.of, result, tracks)
    if readings:
        apart = curve_distance(by_second(seconds), readings)
        yield f"  {'largest distance of both curves over time':<60}{apart:>12.1%}"


def _readings(name: str, result: RunResult, tracks: Tracks) -> list[tuple[float, float]]:
    """Returns the messages sent until each reading, in seconds after the start of publishing."""
    start_s = next((each.start_s for each in result.stages if each.kind == "publish"), None)
    track = tracks.get((Source.single("population", name), "sent_per_s"))
    if track is None or start_s is None:
        return []
    readings, sent, before_s = list[tuple[float, float]](), 0.0, 0.0
    for at_s, per_s in zip(track.at_s, track.values, strict=True):
        sent += per_s * (at_s - before_s)
        before_s = at_s
        if at_s >= start_s:
            readings.append((at_s - start_s, sent))
    return readings


def curve_distance(seconds: Sequence[int], readings: Sequence[tuple[float, float]]) -> float:
    """Returns the distance between the shares of messages that are recorded, and played, until an
    instant (Kolmogorov and Smirnov), as large as it is at least. `seconds` are the recorded
    messages of each second, `readings` instants with the messages played until then."""
    sums = [0, *accumulate(seconds)]
    played = readings[-1][1] if readings else 0.0
    if not sums[-1] or not played:
        return 0.0 if sums[-1] == played else 1.0

    def apart(at_s: float, sent: float) -> float:
        # Within a second, the instants of the recorded messages are not known.
        first, last = (min(place, len(seconds)) for place in (int(at_s), ceil(at_s)))
        share = sent / played
        return max(sums[first] / sums[-1] - share, share - sums[last] / sums[-1], 0.0)

    return max(apart(at_s, sent) for at_s, sent in readings)


def _fan_out(replayed: Sequence[PlannedPopulation], result: RunResult) -> Iterator[str]:
    names = {each.name for each in replayed}
    files = (p.recorded.file for each in replayed for p in each.publications if p.recorded)
    facts = _facts(next(files, ""))
    sent = sum(result.populations[name].sent_total for name in names)
    received = sum(flow.received_total for flow in result.flows if flow.source in names)
    lost = sum(flow.lost_total for flow in result.flows if flow.source in names)
    played = received / sent if sent else 0.0
    if facts.get("deliveries"):
        recorded = facts["deliveries"] / max(1.0, facts.get("messages", 1.0))
        yield _line("deliveries of a message", recorded, played)
    else:
        yield f"{'deliveries of a message':<34}{'unknown':>14}{played:>14,.2f}"
    yield f"{'deliveries lost':<48}{lost:>14,}"


def _facts(file: str) -> Mapping[str, float]:
    """Returns the numbers that the recorder stored beside a file; none if there are none."""
    try:
        facts = json.loads(text_of(Path(file).parent / FACTS))
    except (OSError, ValueError):
        return {}
    if not isinstance(facts, dict):
        return {}
    return {key: float(value) for key, value in facts.items() if isinstance(value, int | float)}


def _line(name: str, recorded: float, played: float) -> str:
    apart = f"{(played - recorded) / recorded:+.1%}" if recorded else ""
    return f"  {name:<32}{recorded:>14,.2f}{played:>14,.2f}{apart:>12}"
