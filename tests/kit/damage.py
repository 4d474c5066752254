"""Damage to run directories: files that are cut off, missing, no files, or hold values that no run
writes. A seed gives the same damage each time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pubstorm.errors import PubstormError
from pubstorm.web.now import VerdictSoFar
from pubstorm.web.watch import Surroundings, Watch
from tests.kit.bounded import CONTROL, bounded, called
from tests.kit.example_datasheet import write_datasheet, write_datasheets
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import write_search
from tests.kit.example_series import write_series
from tests.kit.recorded import unpack

FILES = (
    *("result.json", "plan.json", "start.json", "events.jsonl", "snapshots.jsonl", "samples.csv"),
    *("scenario.yaml", "series.json", "search.json", "comparison.json", "profile/folded.txt"),
    *("datasheet.json", "datasheets.json"),
)
BIG = 10**18
SCRIPT = "<script>alert(1)</script>"
LEAVES: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**53, BIG, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, -BIG, -(2**63)),
    *(10**400, 0.5, -0.5, 5e-324, 1e18, 1e300, 1e308, -1e308, math.inf, -math.inf, math.nan),
    *("", "x", "\x00", "\ud7ff", "\ud800", "\x1b[2J", "\u202e", "x" * 140_000, "x" * 300, "1e309"),
    *("../../etc/passwd", "/etc/passwd", SCRIPT, "</script><img src=x onerror=alert(1)>"),
    *("2026-13-45T99:99:99", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59+00:00"),
    *(None, True, [], {}, [[]], {"": 0}),
)
CELLS = (
    *("", "nan", "inf", "-inf", "1e308", "-1e308", "1.7976931348623157e308", "5e-324", "-0", "x"),
    *("9" * 400, "0x10", "\x00", '"', '"open', 'a"b', ",", "1e18", "-1", "host", "population"),
    *("\ufffd", "\x1b[2J", "\u202e", "\r", SCRIPT, "x" * 140_000),
)
BYTES = (b"\xff\xfe", b"\x00" * 9, b"[" * 2000, b"\r", b"{}", b"null", b"[]", b"\n\n", b'"')
CONTENTS = (
    *(b"", b"\x00" * 1000, b"[" * 100_000, b"{}", b"null", b"\xff\xfe", b"\n" * 1000, b"[1e999]"),
    *(b"9" * 5000, b'{"a":' * 3000, b"NaN", b'"' * 999),
)
LINKS = ("/etc/passwd", "nowhere", "loop", "/dev/null", "/dev/zero", "/proc/self/environ", ".")


MARKS = (SCRIPT, "<img src=x onerror", "root:x:0")
"""Texts that no page may hold: they come from a value, or from a file of the host."""


def survive(seed: int, count: int, scratch: Path) -> None:
    """Damages many runs, and gives each to one reader after the other. Raises AssertionError and
    whatever else a reader raises; its notes say which folder and words it was."""
    chance = random.Random(seed)
    runs = _runs(scratch / "runs")
    for number in range(count):
        folder = damaged(chance, chance.choice(runs), scratch / "damaged")
        name = [*READERS][number % len(READERS)]
        try:
            READERS[name](folder, runs[0])
        except BaseException as error:
            kept = folder.rename(scratch / f"kept-{seed}-{number}")
            error.add_note(f"{name} of {kept}, number {number} of seed {seed}")
            raise


def _runs(folder: Path) -> list[Path]:
    """Makes runs to damage: those of ten that were recorded, which are small, and one of each
    experiment."""
    for name in ("qos", "controller-killed", "zeromq", "broker-killed"):
        unpack(name, folder / name)
    write_run(folder / "example", Shape(duration_s=5))
    for name, write in (("series", write_series), ("search", write_search)):
        (folder / name).mkdir()
        write(folder / name)
    write_datasheet(folder / "sheet")
    write_datasheets(folder / "sheets")
    return sorted(folder.iterdir())


def _report(folder: Path, _other: Path) -> None:
    called("report", str(folder))
    for file in ("report.html", "report.md", "junit.xml"):
        path = folder / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert CONTROL.search(text) is None
        assert file != "report.html" or [mark for mark in MARKS if mark in text] == []


def _page(folder: Path, _other: Path) -> None:
    with bounded(), contextlib.suppress(PubstormError):
        watch = Watch(folder, Surroundings())
        while watch.poll():
            pass
        json.dumps([watch.whole(), watch.news()], allow_nan=False).encode()
        VerdictSoFar(folder).evaluate()


def _exported(form: str, folder: Path, _other: Path) -> None:
    called("export", str(folder), "--to", form)


def _compare(folder: Path, other: Path) -> None:
    called("history", str(folder), str(other), "--html", str(folder / "history.html"))
    called("compare", str(folder), str(other))
    sheets = str(folder), str(other.with_name("sheet"))
    called("datasheet", "compare", *sheets, "--out", str(folder / "sheets"))


READERS: Mapping[str, Callable[[Path, Path], None]] = {
    "report": _report,
    "page": _page,
    "compare": _compare,
    **{f"export to {form}": partial(_exported, form) for form in ("csv", "json", "hdr")},
}


def damaged(chance: random.Random, run: Path, folder: Path) -> Path:
    """Puts a damaged copy of a run into a folder, which it returns."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder)
    if chance.random() < 0.3:
        (folder / "result.json").unlink(missing_ok=True)
    files = [file for file in FILES if (folder / file).is_file()]
    for file in chance.sample(files, min(chance.choice((1, 1, 2)), len(files))):
        path = folder / file
        match chance.random():
            case n if n < 0.1:
                _replace(path, chance)
            case n if n < 0.2:
                path.write_bytes(chance.choice(CONTENTS))
            case _:
                with contextlib.suppress(ValueError, RecursionError):
                    path.write_bytes(spoiled(path.read_bytes(), file, chance))
    return folder


def spoiled(content: bytes, file: str, chance: random.Random) -> bytes:
    """A file with a few parts that are wrong."""
    if chance.random() < 0.1:
        return content[: chance.randrange(len(content))]
    if file.endswith((".yaml", ".txt")):
        at = chance.randrange(len(content))
        return content[:at] + chance.choice(BYTES) + content[at:]
    if file.endswith(".json"):
        return _spoiled_json(content, chance)
    lines = content.splitlines()
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.randrange(len(lines))
        match chance.random():
            case n if n < 0.05:
                del lines[at]
            case n if n < 0.15:
                lines.insert(chance.randrange(len(lines)), lines[at])
            case _ if lines[at]:
                with contextlib.suppress(ValueError, RecursionError):
                    lines[at] = _spoiled_line(lines[at], file, chance)
        if not lines:
            break
    return b"\n".join(lines) + b"\n"


def _spoiled_line(line: bytes, file: str, chance: random.Random) -> bytes:
    """A line with one part that is wrong."""
    if chance.random() < 0.15:
        at = chance.randrange(len(line) + 1)
        return line[:at] + chance.choice(BYTES) + line[at:]
    if file.endswith(".csv"):
        cells = line.split(b",")
        cells[chance.randrange(len(cells))] = chance.choice(CELLS).encode()
        return b",".join(cells)
    return _spoiled_json(line, chance)


def _spoiled_json(text: bytes, chance: random.Random) -> bytes:
    """A JSON document with one value replaced, left out, added or repeated."""
    document = json.loads(text)
    found = list(_places(document))
    if not found:
        return text
    *path, last = chance.choice(found)
    place = document
    for step in path:
        place = place[step]
    value, number = place[last], chance.random()
    if isinstance(place, dict) and number < 0.1:
        del place[last]
    elif isinstance(place, dict) and number < 0.15:
        place[chance.choice(("x", "<b>", "", "kind", "format"))] = chance.choice(LEAVES)
    elif isinstance(value, list) and number < 0.3:
        place[last] = value * chance.choice((2, 3, 50))
    else:
        place[last] = chance.choice(LEAVES)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value within one."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for step, part in inner:
        yield (*path, step)
        yield from _places(part, (*path, step))


def _replace(path: Path, chance: random.Random) -> None:
    """Puts something that is no file in the place of a file, or nothing."""
    path.unlink()
    match chance.randrange(5):
        case 0 | 1:
            path.symlink_to(chance.choice(LINKS))
        case 2:
            os.mkfifo(path)
        case 3:
            path.mkdir()
