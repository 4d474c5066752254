"""Plays the journals of a recorded run again through the code of the controller: the recorder takes
each snapshot as it did then, and its sums become the result."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pubstorm.contract import OF_LOAD, Sample
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.exports import Exports, Item, Samples
from pubstorm.exports import Run as Exported
from pubstorm.exports.tally import Tally
from pubstorm.fleet import SnapshotReceived
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly, limits_of
from pubstorm.measure.recorder import NoStore, Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.metrics.expressions import percentiles_in
from pubstorm.play.context import RunOutput
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.kept import Kept, kept_tracks, salvage
from pubstorm.play.record import record
from pubstorm.report import load_result
from pubstorm.report.stored import load_tracks
from pubstorm.result import RunResult
from pubstorm.result.samples import Tracks
from tests.kit.recorded import CONTROLLER_FILE, COUNTED_FILE, FAILURE, MEMORY, Memory


@dataclass
class Exporting(Exports):
    """Hands items to a tally in this thread."""

    run: Exported
    tally: Tally = field(default_factory=Tally)

    are_asked_for = True

    def take(self, item: Item) -> None:
        self.tally.take(self.run, item)

    def follow(self, events: Any, faults: Any) -> None:
        """Does nothing: the events come at the end."""


class Replay(NoStore):
    """A run whose journals are taken again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = Kept(folder)
        start, plan = self.kept.start, self.kept.plan
        self.memory = _memory(folder)
        self.tracks, problem = load_tracks(folder)
        assert problem is None, problem
        self.samples: list[Sample] = []
        """Samples that the recorder made of the snapshots."""
        run_log = RunLog(start.started_ns, start.started_unix_ns)
        exported = Exported(folder.name, "scenario", plan, run_log.started_ns, 10**18)
        self.exports = Exporting(exported)
        assignment = Assignment.among(plan, len(start.hellos))
        self.recorder = Recorder(plan, assignment, run_log, self, self.exports)
        self._monitored = _Monitored(self.tracks)
        self.halfway = self._take(folder)
        """Families of the exports after half of the snapshots."""
        self.recorder.finish()

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Keeps samples of the load."""
        self.samples.extend(samples)

    def _take(self, folder: Path) -> Sequence[Any]:
        lines = iter((folder / SNAPSHOTS_FILE).read_bytes().splitlines(keepends=True))
        calls = [json.loads(line) for line in (folder / COUNTED_FILE).read_bytes().splitlines()]
        halfway: Sequence[Any] = []
        for number, call in enumerate(calls):
            if "failure" in call:
                failure = FAILURE.validate_python(call["failure"])
                self.recorder.fail(failure, call["stage"])
                continue
            line = next(lines, None)
            if line is None or not line.endswith(b"\n"):
                break
            snapshot = Snapshot.model_validate_json(line)
            until_s = self.recorder.run_log.at_s(snapshot.to_ns)
            self.exports.take(self._monitored.until(until_s))
            received = SnapshotReceived(snapshot, line)
            self.recorder.take(received, call["stage"], early=call["early"])
            if number == len(calls) // 2:
                halfway = self.exports.tally.families()
        return halfway

    def result(self) -> RunResult | None:
        """Returns the result as the controller makes it; None if the controller was killed."""
        if self.memory is None:
            return None
        kept, memory = self.kept, self.memory
        assembly = Assembly(
            plan=kept.plan,
            hellos=memory.hellos,
            run_log=memory.run_log,
            sums=self.recorder.sums,
            timeline=self.recorder.timeline,
            limits=limits_of(kept.scenario),
            on=kept.start.on,
            hosts=memory.hosts,
            percentiles=percentiles_in(kept.scenario.source_text),
        )
        output = RunOutput(
            assembly=assembly,
            brokers=memory.brokers,
            services=memory.services,
            bridges=memory.bridges,
            tracks=kept_tracks(self.folder, self.kept.keeper()),
            monitored=memory.monitored,
            stale_state=memory.stale_state,
            warnings=memory.warnings,
            environment=kept.start.environment,
        )
        with contextlib.closing(RunDirectory(self.folder)) as directory:
            return record(kept.info(memory.run_log, directory, Live()), output)


def salvaged(folder: Path) -> RunResult:
    """Returns the result that journals alone give, as after the death of the controller."""
    salvage(folder, Live())
    return load_result(folder)


class _Monitored:
    """Samples of monitors, in the order of time."""

    def __init__(self, tracks: Tracks) -> None:
        self._samples = sorted(
            (
                Sample(source, metric, at_s, value, bool(held))
                for (source, metric), track in tracks.items()
                if source.kind not in OF_LOAD
                for at_s, value, held in zip(track.at_s, track.values, track.held, strict=True)
            ),
            key=lambda each: each.at_s,
        )

    def until(self, at_s: float) -> Samples:
        """Returns the samples up to an instant that were not returned before."""
        count = sum(each.at_s <= at_s for each in self._samples)
        found, self._samples = self._samples[:count], self._samples[count:]
        return Samples(found)


def _memory(folder: Path) -> Memory | None:
    path = folder / CONTROLLER_FILE
    return MEMORY.validate_json(path.read_bytes()) if path.exists() else None
