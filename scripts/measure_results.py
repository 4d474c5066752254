"""Plays the rows of docs/results*.md again, and writes their tables. A row is the part of a page
between two comments, of which the first has the command and the tables of report.md:

    <!-- make: pubstorm run connection-ladder --set stages.1.publish=20s | Steps -->
    <!-- made -->

    python scripts/measure_results.py [--since 2026-11-28] [SCENARIO...]

Rows that were played since a day, by default today, stay as they are: what was interrupted
continues. Each page lists the days of its rows. Runs stay in target/results."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("results*.md"))
PLAYED = ROOT / "target" / "results"
ROW = re.compile(
    r"<!-- make: (?P<command>pubstorm run (?P<scenario>\S+).*?) \| (?P<titles>.+?) -->\n"
    r"(?P<body>.*?)<!-- made -->\n",
    re.S,
)
DATES = re.compile(r"<!-- dates -->\n.*?<!-- end -->\n", re.S)
PLAYED_ON = re.compile(r"^Played on (\d{4}-\d\d-\d\d)", re.M)
NEVER = "never"
VERDICTS = {0, 1, 3}
"""Exit codes of runs that were measured: pass, fail and invalid."""


def main() -> int:
    """Plays the rows that are older than asked for. A page is written after each of its rows."""
    today = datetime.now(UTC).date().isoformat()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--since", default=today, help="a day; default: today")
    asked = parser.parse_args()
    for page in PAGES:
        for number, row in enumerate(ROW.finditer(page.read_text())):
            wanted = not asked.scenarios or row["scenario"] in asked.scenarios
            if wanted and (day_of(row) == NEVER or day_of(row) < asked.since):
                body = measured(row["command"], row["titles"].split(", "), today)
                page.write_text(replaced(page.read_text(), number, body))
    return 0


def day_of(row: re.Match[str]) -> str:
    """Returns the day on which a row was played, as in `2026-11-28`, or `never`."""
    found = PLAYED_ON.search(row["body"])
    return found[1] if found else NEVER


def measured(command: str, titles: Sequence[str], today: str) -> str:
    """Plays a row, and returns its text. Ends the script where nothing was measured."""
    words = shlex.split(command)[1:]
    folder = PLAYED / re.sub(r"[^\w.-]+", "-", " ".join(words[1:]))[:100]
    shutil.rmtree(folder, ignore_errors=True)
    played = (sys.executable, "-m", "pubstorm", *words, "--quiet", "--out", str(folder))
    done = subprocess.run(played, check=False)
    if done.returncode not in VERDICTS:
        raise SystemExit(done.returncode)
    commit = subprocess.run(
        ("git", "rev-parse", "--short=8", "HEAD"), cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    report = (folder / "report.md").read_text()
    made = f"Played on {today} at commit {commit.strip()}: `{command}`"
    found = report.split("\n\n")[1]
    return "\n" + "\n\n".join((made, found, *tables_in(report, titles))) + "\n\n"


def tables_in(report: str, titles: Sequence[str]) -> Iterator[str]:
    """Yields the tables below some headings of a report in Markdown. Raises KeyError where a
    heading is missing."""
    parts = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", report, re.M | re.S))
    for title in titles:
        yield parts[title].strip()


def replaced(page: str, number: int, body: str) -> str:
    """Returns the page with another text of a row, and the days of all rows."""
    row = [*ROW.finditer(page)][number]
    page = page[: row.start("body")] + body + page[row.end("body") :]
    days = "".join(
        f"| {each['scenario']} | {day_of(each)} | `{each['command']}` |\n"
        for each in ROW.finditer(page)
    )
    table = f"| row | played on | command |\n|---|---|---|\n{days}"
    return DATES.sub(lambda _: f"<!-- dates -->\n\n{table}\n<!-- end -->\n", page)


if __name__ == "__main__":
    # Ctrl-C ends the run, which removes its brokers, and then this script by the run's exit code.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.exit(main())
