"""The journals of a run: files that grow while it is played. Parts that are full are compressed,
and old parts are merged into minutes, and then into hours, so that their size has a bound. What is
merged has the form of the journal: sums of snapshots are snapshots."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import BinaryIO, Final, cast

from pydantic import ValidationError

from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.contract.sums import SnapshotSum
from pubstorm.files import lines_in, lines_of, opened
from pubstorm.output import name_of
from pubstorm.result.timeline.cells import Merging, ReadingCell
from pubstorm.result.timeline.lane import HOUR_NS, MINUTE_NS, Edges

FOLDER: Final = "journal"
"""Folder of the parts of journals that are full, in a run directory."""
STEPS: Final = ("", "minutes", "hours")
"""Steps of time of a part: own intervals, and cells into which they were merged."""
CELLS_NS: Final = {"minutes": MINUTE_NS, "hours": HOUR_NS}
LEVEL: Final = 1
"""Level of compression: a higher one takes twice the time for a tenth of the bytes."""
CHUNK_BYTES: Final = 2**20
"""Bytes of a growing file that are read at once, so that other work is not held up by a long
file."""
ROW_CHARS_MAX: Final = 2**16
"""Longest row of samples."""
POINT: Final = 6
"""Columns of a reading; the last point of a cell has those of the cell after them."""


@dataclass(frozen=True, order=True)
class JournalPart:
    """A part of a journal that is full."""

    first: int
    last: int
    """Its number, or those of the parts that were merged into it."""
    step: str
    path: Path = field(compare=False)

    @property
    def is_compressed(self) -> bool:
        """True if it is compressed."""
        return self.path.suffix == ".gz"

    @property
    def size(self) -> int:
        """Its bytes; 0 if it is gone."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0

    def opened(self) -> BinaryIO:
        """Opens it to be read, without its compression. Raises OSError."""
        stream = opened(self.path)
        if not self.is_compressed:
            return stream
        file = gzip.GzipFile(fileobj=stream, mode="rb")
        # The end of the one closes the other.
        file.myfileobj = cast(io.FileIO, stream)
        return cast(BinaryIO, file)


def parts(run_directory: Path, file: str) -> list[JournalPart]:
    """Returns the parts of a journal that are full, in the order of time. Left out are those that
    are merged or compressed already, and not removed yet."""
    found: list[JournalPart] = []
    for path in sorted((run_directory / FOLDER).glob(f"{Path(file).stem}-*")):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            found.append(
                JournalPart(int(name["first"]), int(name["last"]), name["step"] or "", path)
            )
    found.sort(key=lambda p: (p.first, -p.last, -STEPS.index(p.step), not p.is_compressed))
    kept: list[JournalPart] = []
    for part in found:
        if not kept or part.first > kept[-1].last:
            kept.append(part)
    return kept


def part_path(run_directory: Path, file: str, numbers: tuple[int, int], step: str = "") -> Path:
    """Returns the path of a part before it is compressed."""
    stem, _, ending = file.partition(".")
    first, last = numbers
    tag = f"-{step}" if step else ""
    return run_directory / FOLDER / f"{stem}-{first:08}-{last:08}{tag}.{ending}"


def journal_lines(run_directory: Path, file: str) -> Iterator[bytes]:
    """Yields the lines of a journal, the merged ones first. Raises OSError if a part or the file
    cannot be read."""
    for part in parts(run_directory, file):
        try:
            with part.opened() as stream:
                yield from lines_in(stream)
        except (EOFError, zlib.error) as error:
            raise OSError(f"{part.path.name} is damaged") from error
    yield from lines_of(run_directory / file)


def snapshots_in(lines: Iterable[bytes], populations: int | None = None) -> Iterator[Snapshot]:
    """Yields the snapshots of stored lines, of a plan with so many populations. The last line may
    be cut off. Lines that were damaged are left out."""
    for line in lines:
        with suppress(ValidationError):
            snapshot = Snapshot.model_validate_json(line)
            if populations is None or snapshot.fits(populations):
                yield snapshot


def merged_lines(file: str, lines: Iterable[bytes], step: str, merging: Merging) -> Iterator[bytes]:
    """Yields the lines of a journal, merged into cells of a step."""
    if file == SNAPSHOTS_FILE:
        for snapshot in merged_snapshots(snapshots_in(lines), merging.edges, CELLS_NS[step]):
            yield snapshot.model_dump_json(by_alias=True).encode() + b"\n"
    else:
        yield from _merged_samples(lines, CELLS_NS[step], merging)


def merged_snapshots(
    snapshots: Iterable[Snapshot], edges: Edges, cell_ns: int
) -> Iterator[Snapshot]:
    """Yields sums of snapshots of each agent: those that follow each other in a stage and in a
    cell, without an edge between them."""
    growing: dict[int, SnapshotSum] = {}
    for snapshot in snapshots:
        known = growing.get(snapshot.agent)
        if known is not None and _follows(known, snapshot, edges, cell_ns):
            known.add(snapshot)
            continue
        if known is not None:
            yield known.value()
        growing[snapshot.agent] = SnapshotSum(snapshot)
    for known in growing.values():
        yield known.value()


def _follows(known: SnapshotSum, snapshot: Snapshot, edges: Edges, cell_ns: int) -> bool:
    span = snapshot.from_ns, snapshot.to_ns
    if known.last.stage != snapshot.stage or known.last.to_ns != snapshot.from_ns:
        return False
    return span[0] < span[1] and edges.may_merge(known.span_ns, span, cell_ns)


@dataclass(slots=True)
class _Growing:
    """The readings of one track in a cell that is not complete."""

    place: tuple[int, int]
    cells: list[ReadingCell] = field(default_factory=list)
    at_s: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    held: array[int] = field(default_factory=lambda: array("b"))

    def add(self, row: list[str]) -> None:
        """Adds a reading, and the cell whose last point it is. Raises ValueError if one is
        damaged."""
        at_s, *_, value, held = row[:POINT]
        cell = cell_of(row[POINT:])
        self.at_s.append(float(at_s))
        self.values.append(float(value))
        self.held.append(held != "")
        if cell is not None and cell[0] == len(self.at_s):
            _, count, total, amount, late = cell
            points = self.at_s[:], self.values[:], self.held[:]
            self.cells.append(ReadingCell(*points, count, total, amount, late))
            for readings in (self.at_s, self.values, self.held):
                del readings[:]

    def lines(self, names: tuple[str, ...], interval_s: float) -> Iterator[str]:
        """Yields the lines of all readings as one cell."""
        cells = self.cells
        if self.at_s:
            cells = [*cells, ReadingCell.of((self.at_s, self.values, self.held), interval_s)]
        if not cells:
            return
        cell = reduce(lambda one, following: one.merged_with(following, interval_s), cells)
        own = list(zip(cell.at_s, cell.values, cell.held, strict=True))
        late = " ".join(f"{length}:{number}" for length, number in sorted(cell.late.items()))
        sums = [str(len(own)), str(cell.count), repr(cell.total), repr(cell.amount), late]
        for place, (at_s, value, held) in enumerate(own, 1):
            row = [f"{at_s:.3f}", *names, format(value, ".15g"), "1" if held else ""]
            yield row_line([*row, *(sums if place == len(own) else [])])


CellSums = tuple[int, int, float, float, Counter[int]]
"""Number of points of a cell, and its sums: readings, values, growth, and long steps."""


def cell_of(columns: list[str]) -> CellSums | None:
    """Returns the number of points of a cell and its sums; None without columns of a cell. Raises
    ValueError if they are damaged."""
    if not columns:
        return None
    points, count, total, amount, late = columns
    lengths = (each.split(":") for each in late.split())
    steps = Counter({int(length): int(number) for length, number in lengths})
    return int(points), int(count), float(total), float(amount), steps


def _merged_samples(lines: Iterable[bytes], cell_ns: int, merging: Merging) -> Iterator[bytes]:
    growing: dict[tuple[str, ...], _Growing] = {}
    for row in rows(line.decode(errors="replace") for line in lines):
        names = tuple(row[1:4])
        with suppress(ValueError):
            place = merging.place(float(row[0]), cell_ns)
            known = growing.get(names)
            if known is None or known.place != place:
                if known is not None:
                    yield from map(str.encode, known.lines(names, merging.interval_s))
                known = growing[names] = _Growing(place)
            known.add(row)
    for names, known in growing.items():
        yield from map(str.encode, known.lines(names, merging.interval_s))


def rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields the rows of samples; lines that are no rows are left out. A row is one line, so a
    stray quote spoils no other row."""
    for line in lines:
        text = line.rstrip("\r\n")
        if len(text) > ROW_CHARS_MAX:
            continue
        row = text.split(",") if '"' not in text else _quoted(text)
        if len(row) >= POINT:
            yield row


def _quoted(text: str) -> list[str]:
    with suppress(csv.Error):
        return next(csv.reader((text,), strict=True), [])
    return []


def row_line(row: Iterable[str]) -> str:
    """Returns a row of samples as a line."""
    return ",".join(map(field_text, row)) + "\n"


def field_text(text: str) -> str:
    """Returns a text as a field of a row, in quotes where it needs them."""
    name = name_of(text)
    return '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name


class Tail:
    """The complete lines of a journal that were not read yet, in the order of writing."""

    def __init__(self, run_directory: Path, file: str) -> None:
        self.is_torn = False
        """True if lines that were read already were merged with others that were not: these are
        left out."""
        self._run_directory = run_directory
        self._file = file
        self._number = 1
        """Number of the part that is read, or that the growing file will have."""
        self._offset = 0
        self._part: BinaryIO | None = None
        """The part that is read; None: the growing file."""
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Returns the next complete lines, without their ends; none if there is no file. A line
        that is not complete is kept for later."""
        try:
            data = self._read()
        except (OSError, EOFError, zlib.error):
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def _read(self) -> bytes:
        """Returns what comes next, from as many parts as are at their end."""
        while True:
            if self._part is None:
                before = self._paths()
                try:
                    grown = self._grown()
                except FileNotFoundError:
                    # The file became a part meanwhile, or the part was compressed.
                    if self._paths() == before:
                        raise
                    continue
                if grown is not None:
                    return grown
            try:
                data = b"" if self._part is None else self._part.read(CHUNK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                data = b""
            if data:
                return data
            if self._part is not None:
                self._part.close()
                self._part, self._offset = None, 0
                self._number += 1

    def _paths(self) -> list[Path]:
        return [part.path for part in parts(self._run_directory, self._file)]

    def _grown(self) -> bytes | None:
        """Returns what is new in the growing file; None if a part comes first, which it opens."""
        path = self._run_directory / self._file
        stream = opened(path) if path.exists() else io.BytesIO()
        with stream:
            # A file that was opened before it became a part is read as a part.
            full = [p for p in parts(self._run_directory, self._file) if p.last >= self._number]
            if full and self._tears(full[0]):
                self.is_torn = True
                self._number, self._offset = full.pop(0).last + 1, 0
            if not full:
                stream.seek(self._offset)
                return stream.read(CHUNK_BYTES)
        self._number, self._part = full[0].last, full[0].opened()
        self._part.seek(self._offset)
        return None

    def _tears(self, part: JournalPart) -> bool:
        """True if a part has lines that were read, merged with others."""
        is_other = part.last > self._number or part.step != ""
        return part.first < self._number or (self._offset > 0 and is_other)


_NAME = re.compile(r"[a-z]+-(?P<first>\d+)-(?P<last>\d+)(-(?P<step>minutes|hours))?\.[a-z]+(\.gz)?")
