"""Repeats tests beside a busy machine: two busy loops and a build of everything by cargo; or, with
--stalls, beside moments in which nothing else has a processor.

    scripts/steady.py --times 30                     the tests of tests/steady.txt, 30 times
    scripts/steady.py --times 2 --stalls tests/system     some tests, 2 times, beside stalls

Each round is one run of pytest, and one line of target/tests/steady.jsonl. A proof that was stopped
continues with the next round. Exit code 1: a test failed; target/tests/steady has the output."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "target" / "tests" / "steady"
JOURNAL = FOLDER.with_suffix(".jsonl")
LISTED = ROOT / "tests" / "steady.txt"
STALLS = ROOT / "scripts" / "stalls.py"
LOOPS = 2
GRACE_S = 60.0
"""Time that tests have to end after SIGINT."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
PASSED = re.compile(r"(\d+) passed")
BUILD = """
while :; do
    cargo build --quiet --locked --profile ci --workspace --target-dir "$0" || exit
    rm -rf "$0"
done
"""


@dataclass(frozen=True)
class Round:
    """One run of pytest beside the busy machine."""

    name: str
    passed: int
    failed: list[str]
    seconds: int


def main() -> int:
    """Plays the rounds that are missing, and prints how often each test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=30, help="rounds in all (default 30)")
    parser.add_argument("--workers", type=int, default=4, help="test processes (default 4)")
    parser.add_argument("--stalls", action="store_true", help="take processors away for moments")
    parser.add_argument("tests", nargs="*", help="tests (default: those of tests/steady.txt)")
    given = parser.parse_args()
    tests = given.tests or [
        line for line in LISTED.read_text().splitlines() if line and not line.startswith("#")
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = (" ".join(given.tests) or LISTED.name) + " beside stalls" * given.stalls
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), busy_machine(stalls=given.stalls):
        for played in range(len(rounds(name)), given.times):
            play(name, played, tests, given.workers)
    return summed_up(name)


@contextlib.contextmanager
def busy_machine(*, stalls: bool) -> Iterator[None]:
    """Keeps the processors busy, with processes of its own that end with it. They and the tests are
    one session, since Linux shares the processors among sessions first (autogroup)."""
    commands = [[sys.executable, "-c", "while True: pass"]] * LOOPS
    commands.append(["sh", "-c", BUILD, str(ROOT / "target" / "steady-build")])
    commands = [[sys.executable, str(STALLS)]] if stalls else commands
    busy = [
        subprocess.Popen(command, cwd=ROOT, process_group=0, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        yield
    finally:
        for process in busy:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(ROOT / "target" / "steady-build", ignore_errors=True)


def play(name: str, number: int, tests: Sequence[str], workers: int) -> None:
    """Plays one round, and appends its result to the journal."""
    pytest = [str(Path(sys.executable).with_name("pytest")), "-q", "--no-loadscope-reorder"]
    words = [*pytest, f"--numprocesses={workers}", "--dist=loadgroup", *tests]
    begin_s = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    try:
        output, _ = process.communicate()
    except KeyboardInterrupt:
        # Its tests end what they have started, if they have the time.
        os.killpg(process.pid, signal.SIGINT)
        end_s = time.monotonic() + GRACE_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end_s:
                process.poll()
                os.killpg(process.pid, 0)  # Its workers may outlive pytest itself.
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGKILL)
        raise
    passed, failed = PASSED.search(output), FAILED.findall(output)
    if process.returncode:
        (FOLDER / f"{time.strftime('%H%M%S')}-{number}.log").write_text(output)
        failed = failed or [f"pytest itself, with exit code {process.returncode}"]
    line = json.dumps(
        asdict(
            Round(
                name=name,
                passed=int(passed[1]) if passed else 0,
                failed=failed,
                seconds=round(time.monotonic() - begin_s),
            )
        )
    )
    with JOURNAL.open("a") as journal:
        journal.write(line + "\n")
    print(f"round {number + 1}: {line}", flush=True)


def rounds(name: str) -> list[Round]:
    """Returns the rounds that the journal has."""
    lines = JOURNAL.read_text().splitlines() if JOURNAL.exists() else []
    played = [Round(**json.loads(line)) for line in lines]
    return [each for each in played if each.name == name]


def summed_up(name: str) -> int:
    """Prints rounds, passed tests and failures. Returns 1 if a test failed."""
    played = rounds(name)
    failures = Counter(test for each in played for test in each.failed)
    passed = sum(each.passed for each in played)
    print(f"{name}: {len(played)} rounds, {passed} passed, {sum(failures.values())} failed")
    for test, count in failures.most_common():
        print(f"{count:4} × {test}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
