"""Measures what the engine costs, against a baseline of plain sockets, and prints one table.

`python -m benches.bench [--quick] [--rounds N] [--only CASE]`, after `cargo build --release`. Floor
and engine run in turn, so that whatever else the machine does meets both; costs are CPU time, never
time on the wall. A missed target is printed; only counts that do not agree fail (exit code 1).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benches import machine, table
from benches.agents import AGENT_CASES
from benches.cases import CASES, Case, Scale
from benches.controller import CONTROLLER_CASES
from benches.populations import POPULATION_CASES
from benches.programs import ProgramError, Programs
from benches.protocols import PROTOCOL_CASES
from benches.table import Row
from benches.variants import VARIANT_CASES

ROOT = Path(__file__).parent.parent
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
FULL = Scale(seconds=3.0, blast_messages=10_000_000, blast_seconds=2.0)
ALL_CASES = (
    *CASES,
    *VARIANT_CASES,
    *POPULATION_CASES,
    *AGENT_CASES,
    *CONTROLLER_CASES,
    *PROTOCOL_CASES,
)
QUICK = Scale(seconds=2.0, blast_messages=5_000_000, blast_seconds=1.0)


def main(arguments: Sequence[str]) -> int:
    """Runs the cases asked for; returns the exit code."""
    options = _parse(arguments)
    programs = Programs(options.programs)
    if missing := programs.missing():
        print(f"error: not built: {', '.join(missing)} in {options.programs}", file=sys.stderr)
        print(
            "hint: make bench builds them",
            file=sys.stderr,
        )
        return 2
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or (2 if options.quick else 5)
    print(machine.describe())
    other_work = machine.OtherWork()
    print(f"{rounds} rounds, payloads of 100 bytes, loopback; median (least–most)\n", flush=True)
    rows = []
    try:
        for case in ALL_CASES:
            if not options.only or case.name in options.only:
                rows.append(_measure(case, programs, scale, rounds))
    except ProgramError as error:
        print(f"error: {case.name}: {error}", file=sys.stderr)
        return 1
    print("\n".join(table.lines(rows)))
    if late := [text for row in rows if (text := row.lateness())]:
        print(f"\nlateness of the engine's sends, 99th percentile: {', '.join(late)}")
    if missed := [row.case.name for row in rows if not row.is_met]:
        print(f"missed: {', '.join(missed)}")
    print(f"{len(rows) - len(missed)} of {len(rows)} targets are met")
    print(f"other work took {other_work.share():.0%} of the machine meanwhile")
    wrong = [f"{row.case.name}: {text}" for row in rows for text in row.wrong]
    for text in wrong:
        print(f"wrong: {text}")
    return 1 if wrong else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 short rounds")
    parser.add_argument("--rounds", type=_positive, help="pairs of runs of each case (default 5)")
    names = [case.name for case in ALL_CASES]
    parser.add_argument("--only", action="append", choices=names, help="this case; repeatable")
    parser.add_argument("--programs", type=Path, default=BUILT, help="where they were built")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed are 1 and more")
    return int(text)


def _measure(case: Case, programs: Programs, scale: Scale, rounds: int) -> Row:
    row = Row(case)
    rounds = min(rounds, case.rounds_max or rounds)
    for number in range(rounds):
        if sys.stderr.isatty():
            print(f"\r{case.name}: round {number + 1}/{rounds}   ", end="\r", file=sys.stderr)
        if case.reference is not None:
            row.reference.append(case.reference(programs, scale))
        row.engine.append(case.engine(programs, scale))
    return row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
