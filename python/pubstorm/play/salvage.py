"""The result of a run whose controller stored none, since it was killed or its disk was full: made
from the start, the snapshots and the samples in the run directory, and marked invalid."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.errors import UsageError
from pubstorm.files import lines_of
from pubstorm.measure.run_log import stored_event
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.kept import Kept, kept_tracks
from pubstorm.play.record import record
from pubstorm.result.journal import journal_lines, snapshots_in
from pubstorm.result.samples import EVENTS_FILE
from pubstorm.topology.started import is_alive

REASON = "no result was stored: the controller was killed, or could not write any more"


def salvage(path: Path, live: Live) -> None:
    """Stores the result of the run in a folder. Raises StoredRunError if too little was kept, and
    UsageError if the run has not ended."""
    kept = Kept(path)
    if is_alive(kept.start.process):
        hint = "its result comes at its end; Ctrl-C there ends it with what it has measured"
        raise UsageError(f"the run in {path} is active (pid {kept.start.process.pid})", hint)
    with contextlib.suppress(OSError):
        for line in lines_of(path / EVENTS_FILE):
            kept.note(stored_event(line))
    with contextlib.suppress(OSError):
        for snapshot in snapshots_in(journal_lines(path, SNAPSHOTS_FILE)):
            kept.add(snapshot)
    run_log = kept.run_log()
    run_log.interrupted = run_log.ended_early = True
    run_log.endings = {hello.agent: "ended with its controller" for hello in kept.start.hellos}
    run_log.note("interrupt", REASON, run_log.ended_ns)
    with RunDirectory(path) as directory:
        info = kept.info(run_log, directory, live)
        record(info, kept.output(run_log, kept_tracks(path, kept.keeper())))
