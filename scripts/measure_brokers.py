"""Makes docs/brokers.md: two data sheets of each broker on one processor, and their comparison. The
second pass has the opposite order, and other cells beside those that both have. Sheets that are
whole are kept in docs/brokers, half a sheet in target/brokers, so that the page can be made in
parts.

    python scripts/measure_brokers.py [--for 8min] [--passes 1,2] [--page] [RECIPE...]

`--page` measures nothing: it writes the page again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pubstorm.report.files import escaped
from pubstorm.report.stored import load_datasheet
from pubstorm.result.datasheet import Datasheet
from pubstorm.scenario.recipes import find_recipe, load_recipe, recipe_names

ROOT = Path(__file__).parents[1]
PROCESSOR = "0"
"""Processor of the brokers. Pubstorm has the others."""
KEPT = ROOT / "docs" / "brokers"
PLAYED = ROOT / "target" / "brokers"
PAGE = ROOT / "docs" / "brokers.md"
PICTURE = ROOT / "docs" / "images" / "brokers.png"
SHEET = "datasheet.json"
AGAIN = "pairs-qos1-256B,memory-session"
"""Cells of both passes: how far they agree is the drift of the machine between them."""
MORE = (
    "latency-50,pairs-qos0-256B,fan-out-qos0-256B,fan-in-qos1-256B,pairs-qos2-256B,"
    "group-qos1-256B,pairs-qos1-4kB,fan-out-qos1-256B,latency-80"
)
PASSES = {"1": (), "2": ("--only", f"{AGAIN},{MORE}")}
"""Cells of each pass: the first ones of the plan, then capacity and latency."""
FULL = 0.9
"""Share of a processor from which it counts as full."""
PUBSTORM = (sys.executable, "-m", "pubstorm")
HEAD = """\
# Brokers, side by side

`make brokers` made this page with [`pubstorm datasheet`](how-to/datasheet.md). Each broker had one
processor of a machine with two, and Pubstorm the other one. A broker was started from
[its recipe](how-to/datasheet.md#recipes), on equal terms: state in memory, no limit of queues, no
delay of small packets, no log of single clients. A sheet had {minutes} minutes. The first pass
measured the cells of a short sheet, the second one capacity and latency in the opposite order of
brokers. Both measured the capacity at QoS 1 and the memory of a session.

{sheets} sheets were made on {dates}, with Pubstorm at commit {commits}. `docs/brokers` of the
sources holds them.

These are the figures of one machine. They name no winner: read those that your use needs, and
measure on yours. The machine is shared with others: some brokers carried up to 1.7 times as much in
their second pass, with less CPU for each message. The intervals of figures that both passes have
contain this spread; those of one pass alone do not.

![Cards and plots of the comparison](images/brokers.png)

## Limits

The largest rate of the first pass, the share of the broker's processor, and the reason for which
more failed:

{limits}

RabbitMQ writes messages of QoS 1 to the disk, and so does NATS. The sheet of the first pass of
RabbitMQ was ended by hand, as its connects took minutes. The limits of NATS were found
after the others, when one trial no longer changed the next one.
"""


def main() -> int:
    """Plays the sheets that are missing, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--for", dest="length", default="8min")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    tried = [name for name in recipe_names() if load_recipe(find_recipe(name)).untried is None]
    names = asked.recipes or tried
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {int(PROCESSOR)})
    for number in () if asked.page else asked.passes.split(","):
        for name in names if int(number) % 2 else reversed(names):
            measure(name, number, asked.length)
    folders = sorted(path.parent for path in KEPT.glob(f"*/{SHEET}"))
    if len(folders) > 1:
        publish(folders)
    return 0


def measure(name: str, number: str, length: str) -> None:
    """Plays a sheet, or the rest of it, and keeps it when it is whole."""
    stem = f"{name}-{number}"
    kept, folder = KEPT / stem / SHEET, PLAYED / stem
    if kept.exists():
        return
    words = ["run", "--resume", str(folder)]
    if not (folder / SHEET).exists():
        shutil.rmtree(folder, ignore_errors=True)
        words = ["datasheet", name, "--for", length, *PASSES[number]]
        words += ["--cpus", PROCESSOR, "--out", str(folder)]
    done = subprocess.run((*PUBSTORM, *words, "--quiet"), check=False)
    if done.returncode not in {0, 3} or not json.loads((folder / SHEET).read_text())["complete"]:
        raise SystemExit(done.returncode)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / SHEET, kept)


def publish(folders: Iterable[Path]) -> None:
    """Writes the page and its picture from sheets."""
    out = PLAYED / "comparison"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run((*PUBSTORM, "datasheet", "compare", *folders, "--out", out), check=True)
    subprocess.run(
        (ROOT / "scripts" / "screenshot", out, PICTURE, "light", "1400", "2000"), check=True
    )
    sheets = [load_datasheet(folder) for folder in folders]
    _, _, tables = (out / "report.md").read_text().partition("\n")
    PAGE.write_text(head(sheets) + tables)


def head(sheets: list[Datasheet]) -> str:
    """Returns the head of the page."""
    machines = [sheet.identity.environment for sheet in sheets]
    return HEAD.format(
        minutes=listed(f"{sheet.for_s / 60:g}" for sheet in sheets),
        sheets=len(sheets),
        dates=listed(sheet.started[:10] for sheet in sheets),
        commits=listed(((machine and machine.git_commit) or "unknown")[:8] for machine in machines),
        limits="\n".join(f"- {line}" for line in limits(sheets)),
    )


def listed(words: Iterable[str]) -> str:
    """Returns different words, in order."""
    return ", ".join(sorted({*words}))


def limits(sheets: Iterable[Datasheet]) -> Iterator[str]:
    """Yields a sentence for each broker, about the first search of its first pass: the rate, the
    share of its processor, and the reason why more failed."""
    said = set()
    for sheet in sheets:
        name = escaped(sheet.name_of_broker)
        cell = next((cell for cell in sheet.cells if cell.answer is not None), None)
        if name in said or cell is None or not cell.evidence:
            continue
        said.add(name)
        rate, cpu, *_ = cell.figures
        busy = ""
        if rate.estimate is not None and cpu.estimate is not None:
            share = rate.estimate.value * cpu.estimate.value / 1e6
            busy = f", its processor {'full' if share >= FULL else f'{100 * share:.0f} % busy'}"
        _, fails, more = cell.evidence[0].partition(" fails, ")
        why = f"more failed, {more.partition('; played again')[0]}" if fails else cell.evidence[0]
        yield f"{name}: {rate.text} ({escaped(cell.title)}){busy}; {escaped(why)}"


if __name__ == "__main__":
    sys.exit(main())
