"""Lines in files and pipes: what they hold, and what readers and disks can cost."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pubstorm.contract import Sample
from pubstorm.exports import Event, Samples
from pubstorm.exports.lines import WAITING_MAX, Lines, influx_line, json_line
from tests.kit import made
from tests.kit.made_run import a_run, interval

SAMPLES = Samples(
    [
        Sample(made.source("device"), "sent_per_s", 1.5, 100.0),
        Sample(made.source("device"), "latency_p99_us", 1.5, 2500.0),
        Sample(made.source("broker"), "cpu", 1.5, float("nan")),
        Sample(made.source("host"), "cpu", 1.5, 0.25),
    ]
)


def test_json_lines_have_samples_by_source_and_events(tmp_path: Path) -> None:
    lines, run = Lines("--json-lines", tmp_path / "out", json_line), a_run()
    for item in (interval(1), SAMPLES, Event(at_s=2.0, kind="fault", text="broker killed")):
        lines.take(run, item)
    lines.close()
    begins, device, host, fault = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert begins["event"] == "stage begins" and begins["fields"] == {"text": "publish"}
    assert begins["time"] == "2026-11-21T12:00:01.000000000Z"
    assert device["fields"] == {"sent_per_s": 100.0, "latency_p99_us": 2500.0}
    assert device["time"] == "2026-11-21T12:00:01.500000000Z"
    assert (device["source"], device["stage"], device["run"]) == ("device", "publish", run.name)
    assert host["source"] == "host", "a value that is no number is left out"
    assert (fault["event"], fault["fields"]) == ("fault", {"text": "broker killed"})


def test_points_of_influx_escape_what_has_a_meaning() -> None:
    tags = {"run": "a b", "source": "x,y=z\\", "stage": ""}
    fields: dict[str, float | str] = {"$SYS/a b": 1.0, "text": 'say "no" \\ \n'}
    assert influx_line("sample", 17, tags, fields) == (
        'pubstorm_sample,run=a\\ b,source=x\\,y\\=z\\_ $SYS/a\\ b=1.0,text="say \\"no\\" \\\\  " 17'
    )


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before\n")
    lines = Lines("--influx", path, influx_line)
    lines.take(a_run(), SAMPLES)
    lines.close()
    assert path.read_text().startswith("before\npubstorm_sample,run=20261123-s,")


def test_a_pipe_without_a_reader_keeps_lines_for_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines, run = Lines("--json-lines", path, json_line), a_run()
    lines.take(run, SAMPLES)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines.rest()
    assert os.read(reader, 65536).count(b"\n") == 2
    os.close(reader)
    lines.take(run, SAMPLES)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines.rest()
    found = os.read(reader, 65536).splitlines()
    assert [json.loads(line)["source"] for line in found] == ["device", "host"]
    os.close(reader)
    assert lines.dropped == 0
    lines.take(run, SAMPLES)
    lines.end()
    assert (lines.dropped, lines.problem) == (2, "no reader took them")
    lines.close()


def test_a_slow_reader_gets_whole_lines_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines, run = Lines("--json-lines", path, json_line), a_run()
    total = WAITING_MAX + 3000
    for number in range(total):
        lines.take(run, Samples([Sample(made.source("device"), "ready", float(number), 1.0)]))
    read = b""
    while data := _read(reader):
        read += data
        lines.rest()
    times = [json.loads(line)["time"] for line in read.splitlines()]
    assert times == sorted(times), "every line is whole and in order"
    assert len(times) + lines.dropped == total
    assert lines.dropped > 0
    lines.close()
    os.close(reader)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def test_a_full_disk_costs_lines_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    lines, run, write = Lines("--influx", path, influx_line), a_run(), os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: len(data) - 50])

    lines.take(run, Samples([Sample(made.source("device"), "ready", 1.0, 1.0)]))
    before = path.read_text()
    monkeypatch.setattr(os, "write", full)
    lines.take(run, SAMPLES)
    monkeypatch.undo()
    assert path.read_text() == before
    assert (lines.dropped, lines.problem) == (2, "No space left on device")
    lines.take(run, SAMPLES)
    assert path.read_text().startswith(before) and path.read_text().count("\n") == 3
    lines.close()
