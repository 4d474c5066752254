"""The table of provoked situations in docs/explanation/verdict.md. `make verdicts` plays them, and
writes it: `python -m tests.kit.verdict_table`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORED = ROOT / "target" / "tests" / "verdicts.jsonl"
PAGE = ROOT / "docs" / "explanation" / "verdict.md"
BEGIN, END = "<!-- situations: written by make verdicts -->", "<!-- end of situations -->"
MACHINES = ("quiet", "busy")
HEAD = ("situation", "quiet", "beside two busy loops", "what it said")


@dataclass(frozen=True)
class Row:
    """The words of one verdict."""

    situation: str
    machine: str
    """One of `MACHINES`."""
    outcome: str
    """Status and limit, or `skipped` with the reason."""
    sentence: str = ""
    """The headline."""


def store(row: Row) -> None:
    """Keeps a row for the table, if `make verdicts` has begun one."""
    if STORED.exists():
        with STORED.open("a") as stored:
            stored.write(json.dumps(asdict(row)) + "\n")


def lines(rows: list[Row]) -> Iterator[str]:
    """Yields the lines of the table. The headline is that of the quiet machine."""
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for name in dict.fromkeys(row.situation for row in rows):
        of = {row.machine: row for row in rows if row.situation == name}
        quiet, busy = (of.get(machine, Row(name, machine, "not played")) for machine in MACHINES)
        yield f"| {name} | {quiet.outcome} | {busy.outcome} | {quiet.sentence} |"


def write() -> None:
    """Replaces the table of the page."""
    rows = [Row(**json.loads(line)) for line in STORED.read_text().splitlines()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join((f"{before}{BEGIN}", "", *lines(rows), "", f"{END}{after}")))


if __name__ == "__main__":
    write()
