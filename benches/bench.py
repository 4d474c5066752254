"""Measures what the engine costs, against a floor of plain sockets, and prints one table.

`python -m benches.bench [--quick] [--rounds N] [--only CASE]`, after `cargo build --release`. Floor
and engine run in turn, so that whatever else the machine does meets both; costs are CPU time, never
time on the wall. A missed target is printed; only counts that do not agree fail (exit code 1).
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benches.cases import BYTES, CASES, Case, Sample, Scale
from benches.programs import ProgramError, Programs

ROOT = Path(__file__).parent.parent
FULL = Scale(seconds=5.0, blast_messages=20_000_000, blast_seconds=3.0)
QUICK = Scale(seconds=2.0, blast_messages=5_000_000, blast_seconds=1.0)
HEADER = ("case", "load", "unit", "reference", "cost", "engine", "ratio", "target", "")


@dataclass
class Row:
    """All rounds of a case."""

    case: Case
    reference: list[Sample] = field(default_factory=list)
    engine: list[Sample] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Engine over reference, pair by pair."""
        pairs = zip(self.reference, self.engine, strict=True) if self.reference else ()
        return [engine.cost / reference.cost for reference, engine in pairs]

    @property
    def is_met(self) -> bool:
        """Whether the median keeps to the target."""
        target = self.case.target
        values = self.ratios if target.relative else [sample.cost for sample in self.engine]
        return statistics.median(values) <= target.limit

    @property
    def wrong(self) -> list[str]:
        """Counts that did not agree, in any round."""
        return [text for sample in self.reference + self.engine for text in sample.wrong]

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        case = self.case
        digits = 0 if case.unit == BYTES else 2
        return (
            case.name,
            case.load,
            case.unit,
            case.reference_name if self.reference else "–",
            _spread([sample.cost for sample in self.reference], digits),
            _spread([sample.cost for sample in self.engine], digits),
            _spread(self.ratios, 2),
            str(case.target),
            "WRONG" if self.wrong else "met" if self.is_met else "missed",
        )

    def lateness(self) -> str | None:
        """How late the engine was, where that has a meaning."""
        values = [s.lateness_us for s in self.engine if s.lateness_us is not None]
        return f"{self.case.name} {statistics.median(values):.0f} µs" if values else None


def main(arguments: Sequence[str]) -> int:
    """Runs the cases asked for; returns the exit code."""
    options = _parse(arguments)
    programs = Programs(options.programs)
    if missing := programs.missing():
        print(f"error: not built: {', '.join(missing)} in {options.programs}", file=sys.stderr)
        print("hint: cargo build --release -p pubstorm-engine -p pubstorm-floor", file=sys.stderr)
        return 2
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or (2 if options.quick else 5)
    print(_machine())
    print(f"{rounds} rounds, payloads of 100 bytes, loopback; median (least–most)\n", flush=True)
    rows = []
    try:
        for case in CASES:
            if not options.only or case.name in options.only:
                rows.append(_measure(case, programs, scale, rounds))
    except ProgramError as error:
        print(f"error: {case.name}: {error}", file=sys.stderr)
        return 1
    _print_table([HEADER, *(row.cells() for row in rows)])
    if late := [text for row in rows if (text := row.lateness())]:
        print(f"\nlateness of the engine's sends, 99th percentile: {', '.join(late)}")
    wrong = [f"{row.case.name}: {text}" for row in rows for text in row.wrong]
    for text in wrong:
        print(f"wrong: {text}")
    return 1 if wrong else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 short rounds")
    parser.add_argument("--rounds", type=int, help="pairs of runs of each case (default 5)")
    names = [case.name for case in CASES]
    parser.add_argument("--only", action="append", choices=names, help="this case; repeatable")
    parser.add_argument(
        "--programs", type=Path, default=ROOT / "target" / "release", help="where they were built"
    )
    return parser.parse_args(arguments)


def _measure(case: Case, programs: Programs, scale: Scale, rounds: int) -> Row:
    row = Row(case)
    for number in range(rounds):
        if sys.stderr.isatty():
            print(f"\r{case.name}: round {number + 1}/{rounds}   ", end="\r", file=sys.stderr)
        if case.reference is not None:
            row.reference.append(case.reference(programs, scale))
        row.engine.append(case.engine(programs, scale))
    return row


def _machine() -> str:
    """One line on what was measured on, and whether it had other work."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    model = next(models, "unknown processor")
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{model}, {cores} cores, Linux {platform.release()}, load {load:.2f} at the start"


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Prints a table that is Markdown too."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = tuple("-" * width for width in widths)
    for row in (rows[0], rule, *rows[1:]):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
