"""Plays lanes of make's targets side by side: `scripts/lanes.py "build test" "venv +build lint"`.

Each word of a lane is a target; `+target` waits until another lane has finished it. The first
failure ends all lanes, and its output comes last. The end is a timeline with CPU-seconds, which
target/tests/lanes.json keeps."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", "target"), "tests")
GRACE_S = 20.0
"""Time that a target has to end its own processes after SIGINT."""
BAR = 60
"""Columns of the timeline."""


@dataclass(frozen=True)
class Step:
    """One target that was made, with its times since the start, s, and its CPU-seconds."""

    lane: int
    target: str
    begin_s: float
    end_s: float
    cpu_s: float
    code: int


class Lanes:
    """Lanes that are under way, each in a thread of its own."""

    def __init__(self, lanes: Sequence[Sequence[str]]) -> None:
        self._lanes = lanes
        self._start_s = time.monotonic()
        self._changed = threading.Condition()
        self._steps: list[Step] = []
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._is_over = False

    def play(self) -> int:
        """Plays all lanes. Returns the exit code of the first target that failed, or 0."""
        threads = [
            threading.Thread(target=self._play_lane, args=(number, lane))
            for number, lane in enumerate(self._lanes)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._end_all()
            for thread in threads:
                thread.join()
            return 130
        print(timeline(self._steps), flush=True)
        (FOLDER / "lanes.json").write_text(json.dumps([asdict(step) for step in self._steps]))
        failed = [step for step in self._steps if step.code]
        if failed:
            print(log_of(failed[0].target).read_text(errors="replace"), end="")
            print(f"error: make {failed[0].target} failed", flush=True)
        return failed[0].code if failed else 0

    def _play_lane(self, number: int, lane: Sequence[str]) -> None:
        for word in lane:
            if word.startswith("+"):
                self._wait_for(word[1:])
            elif not self._is_over:
                self._make(number, word)

    def _wait_for(self, target: str) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or any(step.target == target for step in self._steps)
            )

    def _make(self, lane: int, target: str) -> None:
        begin_s = time.monotonic()
        with log_of(target).open("wb") as log:
            process = subprocess.Popen(
                ["make", "--no-print-directory", target],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running[lane] = process
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        step = Step(
            lane,
            target,
            round(begin_s - self._start_s, 1),
            round(time.monotonic() - self._start_s, 1),
            round(used.ru_utime + used.ru_stime, 1),
            process.returncode,
        )
        with self._changed:
            del self._running[lane]
            was_over = self._is_over
            if not was_over:
                self._steps.append(step)
                if step.code == 0:
                    print(log_of(target).read_text(errors="replace"), end="")
                print(f"--- make {target}: {step.end_s - step.begin_s:.0f} s", flush=True)
            self._changed.notify_all()
        if step.code and not was_over:
            self._end_all()

    def _end_all(self) -> None:
        with self._changed:
            self._is_over = True
            running = list(self._running.values())
            self._changed.notify_all()
        for number, pause_s in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, 0.0)):
            for process in running:
                if process.returncode is None:
                    os.killpg(process.pid, number)
            deadline_s = time.monotonic() + pause_s
            while any(p.returncode is None for p in running) and time.monotonic() < deadline_s:
                time.sleep(0.1)


def log_of(target: str) -> Path:
    """Returns the file with a target's output."""
    return FOLDER / f"{target.strip('.').replace('/', '-')}.log"


def timeline(steps: Sequence[Step]) -> str:
    """Returns a line for each target: lane, times, CPU-seconds and a bar."""
    total_s = max(0.1, *(step.end_s for step in steps))
    lines = [f"{'lane':4} {'target':20} {'from':>6} {'to':>6} {'CPU-s':>6}"]
    for step in sorted(steps, key=lambda step: (step.lane, step.begin_s)):
        begin, end = (round(BAR * at_s / total_s) for at_s in (step.begin_s, step.end_s))
        bar = " " * begin + "#" * max(1, end - begin)
        times = f"{step.begin_s:6.0f} {step.end_s:6.0f} {step.cpu_s:6.0f}"
        lines.append(f"{step.lane + 1:4} {step.target:20} {times}  {bar}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines.append(f"{total_s:.0f} s in all, {used.ru_utime + used.ru_stime:.0f} CPU-s")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Plays the lanes of a command line."""
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    return Lanes([word.split() for word in words]).play()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
