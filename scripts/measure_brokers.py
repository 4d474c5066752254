"""Makes a page of brokers side by side: two data sheets of each column on one processor, and their
comparison. The second pass has the opposite order, and other cells beside those that both have.
Sheets that are whole are kept in docs, half a sheet in target, so that the page can be made in
parts.

    python scripts/measure_brokers.py [--of PAGE] [--for 8min] [--passes 1,2] [--page] [COLUMN...]

The page `brokers` has a column for each recipe, and `protocols` one for each protocol of a broker
that speaks several. `--page` measures nothing: it writes the page again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.report.files import escaped
from pubstorm.report.stored import load_datasheet
from pubstorm.result.datasheet import Datasheet
from pubstorm.scenario.recipes import find_recipe, load_recipe, recipe_names

ROOT = Path(__file__).parents[1]
PROCESSOR = "0"
"""Processor of the brokers. Pubstorm has the others."""
SHEET = "datasheet.json"
AGAIN = "pairs-qos1-256B,memory-session"
"""Cells of both passes: how far they agree is the drift of the machine between them."""
MORE = (
    "latency-50,pairs-qos0-256B,fan-out-qos0-256B,fan-in-qos1-256B,pairs-qos2-256B,"
    "group-qos1-256B,pairs-qos1-4kB,fan-out-qos1-256B,latency-80"
)
FIRST = f"{AGAIN},connects-tcp,restart"
"""Cells of the first pass that all protocols have."""
PASSES = ("1", "2")
FULL = 0.9
"""Share of a processor from which it counts as full."""
PUBSTORM = (sys.executable, "-m", "pubstorm")
HEAD = """\
# {title}

`make {command}` made this page with [`pubstorm datasheet`](how-to/datasheet.md).
Each broker had one processor of a machine with two, and Pubstorm the other one. A broker was
started from [its recipe](how-to/datasheet.md#recipes), on equal terms: state in memory, no limit of
queues, no delay of small packets, no log of single clients. A sheet had {minutes} minutes. The
first pass measured the cells of a short sheet, the second one capacity and latency in the opposite
order of columns. Both measured the capacity at QoS 1 and the memory of a session.

{sheets} sheets were made on {dates}, with Pubstorm at commit {commits}. `docs/{name}` of the
sources holds them.

These are the figures of one machine. They name no winner: read those that your use needs, and
measure on yours. {spread}

![Cards and plots of the comparison](images/{name}.png)

## Limits

The largest rate of the first pass, the share of the broker's processor, and the reason for which
more failed:

{limits}

{closing}
"""


@dataclass(frozen=True)
class Page:
    """A page, the words that only it has, and its columns."""

    name: str
    """Name of its folder of sheets, its picture and itself."""
    title: str
    command: str
    """Target and values for `make`."""
    spread: str
    """The agreement of the passes, in a sentence or two."""
    closing: str
    columns: Mapping[str, tuple[str, ...]]
    """Arguments of `pubstorm datasheet` by the name of the column."""
    first: tuple[str, ...] = ()
    """Arguments of the first pass. Default: the first cells of the plan. The second pass has
    capacity and latency."""

    @property
    def kept(self) -> Path:
        """Folder of the sheets that are whole."""
        return ROOT / "docs" / self.name

    @property
    def played(self) -> Path:
        """Folder of the sheets in the making."""
        return ROOT / "target" / self.name


def pages() -> dict[str, Page]:
    """Returns all pages by name."""
    tried = [name for name in recipe_names() if load_recipe(find_recipe(name)).untried is None]
    brokers = Page(
        name="brokers",
        title="Brokers, side by side",
        command="brokers",
        spread="""\
The machine is shared with others: some brokers carried up to 1.7 times as much in
their second pass, with less CPU for each message. The intervals of figures that both passes have
contain this spread; those of one pass alone do not.""",
        closing="""\
RabbitMQ writes messages of QoS 1 to the disk, and so does NATS. The sheet of the first pass of
RabbitMQ was ended by hand, as its connects took minutes. The limits of NATS were found
after the others, when one trial no longer changed the next one.""",
        columns={name: (name,) for name in tried},
    )
    protocols = Page(
        name="protocols",
        title="Protocols of one broker, side by side",
        command="brokers OF=protocols",
        spread="""\
The machine is shared with others. Three sheets of the first pass were played again after the second
one, with a minute more, so that all of them have a restart.""",
        closing="""\
The [words of MQTT](how-to/datasheet.md#other-protocols) have other meanings in the other protocols.
RabbitMQ writes messages of QoS 1 of MQTT to the disk, and NATS writes them into files of JetStream.
In their own protocols both keep them in memory.""",
        columns={
            f"{broker}-{protocol}": (broker, "--protocol", protocol)
            for broker, own in (("rabbitmq", "amqp"), ("nats", "nats"))
            for protocol in (own, "mqtt")
        },
        first=("--only", FIRST),
    )
    return {page.name: page for page in (brokers, protocols)}


def main() -> int:
    """Plays the sheets that are missing, and writes the page."""
    known = pages()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("columns", nargs="*")
    parser.add_argument("--of", choices=known, default="brokers")
    parser.add_argument("--for", dest="length", default="8min")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    page = known[asked.of]
    names = asked.columns or list(page.columns)
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {int(PROCESSOR)})
    for number in () if asked.page else asked.passes.split(","):
        for name in names if int(number) % 2 else reversed(names):
            measure(page, name, number, asked.length)
    folders = sorted(path.parent for path in page.kept.glob(f"*/{SHEET}"))
    if len(folders) > 1:
        publish(page, folders)
    return 0


def measure(page: Page, name: str, number: str, length: str) -> None:
    """Plays a sheet, or the rest of it, and keeps it when it is whole."""
    stem = f"{name}-{number}"
    kept, folder = page.kept / stem / SHEET, page.played / stem
    if kept.exists():
        return
    words = ["run", "--resume", str(folder)]
    if not (folder / SHEET).exists():
        shutil.rmtree(folder, ignore_errors=True)
        cells = page.first if number == "1" else ("--only", f"{AGAIN},{MORE}")
        words = ["datasheet", *page.columns[name], "--for", length, *cells]
        words += ["--cpus", PROCESSOR, "--out", str(folder)]
    done = subprocess.run((*PUBSTORM, *words, "--quiet"), check=False)
    if done.returncode not in {0, 3} or not json.loads((folder / SHEET).read_text())["complete"]:
        raise SystemExit(done.returncode)
    kept.parent.mkdir(parents=True, exist_ok=True)
    # The folder of the sheet is one of the sources, not of this machine.
    kept.write_text((folder / SHEET).read_text().replace(f"{ROOT}/", ""))


def publish(page: Page, folders: Iterable[Path]) -> None:
    """Writes the page and its picture from sheets."""
    out, picture = page.played / "comparison", ROOT / "docs" / "images" / f"{page.name}.png"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run((*PUBSTORM, "datasheet", "compare", *folders, "--out", out), check=True)
    subprocess.run(
        (ROOT / "scripts" / "screenshot", out, picture, "light", "1400", "2000"), check=True
    )
    sheets = [load_datasheet(folder) for folder in folders]
    _, _, tables = (out / "report.md").read_text().partition("\n")
    (ROOT / "docs" / f"{page.name}.md").write_text(head(page, sheets) + tables)


def head(page: Page, sheets: Sequence[Datasheet]) -> str:
    """Returns the head of a page."""
    machines = [sheet.identity.environment for sheet in sheets]
    return HEAD.format(
        name=page.name,
        title=page.title,
        command=page.command,
        spread=page.spread,
        closing=page.closing,
        minutes=listed(f"{sheet.for_s / 60:g}" for sheet in sheets),
        sheets=len(sheets),
        dates=listed(sheet.started[:10] for sheet in sheets),
        commits=listed(((machine and machine.git_commit) or "unknown")[:8] for machine in machines),
        limits="\n".join(f"- {line}" for line in limits(sheets)),
    )


def listed(words: Iterable[str]) -> str:
    """Returns different words, in order."""
    return ", ".join(sorted({*words}))


def limits(sheets: Sequence[Datasheet]) -> Iterator[str]:
    """Yields a sentence for each broker, about the first search of its first pass: the rate, the
    share of its processor, and the reason why more failed."""
    said, is_mixed = set(), len({sheet.identity.protocol for sheet in sheets}) > 1
    for sheet in sheets:
        who = sheet.identity
        name = escaped(who.named(f"{who.broker} {who.version}".strip(), always=is_mixed))
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
    # Ctrl-C ends the run, which removes its brokers, and then this script by the run's exit code.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.exit(main())
