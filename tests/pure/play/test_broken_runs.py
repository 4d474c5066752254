"""Broken run directories: whatever is in a file, in a number of an agent, of a broker or of an
exporter, a run has a result, and reading it raises nothing but errors in words."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError
from rich.console import Console

from pubstorm import output
from pubstorm.cli.options import Exporting
from pubstorm.cli.outcome import Output
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import PubstormError
from pubstorm.measure import summary
from pubstorm.measure.run_log import StageEntered
from pubstorm.play import kept as salvaging
from pubstorm.play import record as recording
from pubstorm.play.context import RunInfo, RunOutput
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.kept import Kept, salvage
from pubstorm.report import RESULT_FILE, load_result, render_directory, write_reports
from pubstorm.report.data import data_table, tables_of
from pubstorm.result import RunResult, Status
from pubstorm.web.watch import Surroundings, Watch
from tests.kit import damage
from tests.kit.bounded import bounded
from tests.kit.damage import BIG, spoiled
from tests.kit.recorded import unpack

JOURNALS = ("snapshots.jsonl", "samples.csv", "events.jsonl")
"""Files that grow during a run. Their content is foreign: it comes from agents, brokers and
exporters."""
HEADS = ("start.json", "plan.json", "scenario.yaml", RESULT_FILE)
"""Files that the controller writes as a whole."""
RUNS = ("controller-killed", "broker-killed")
SEEDS = 6
"""Seeds of each run and kind of file."""


class Stored:
    """The files of a recorded run."""

    def __init__(self, name: str, folder: Path) -> None:
        unpack(name, folder)
        read = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.files = {file: read[file] for file in (*JOURNALS, *HEADS) if file in read}

    def put(self, folder: Path, changes: Mapping[str, bytes]) -> None:
        """Puts the files into a folder, some of them changed."""
        for path in folder.iterdir():
            path.unlink()
        for file, content in {**self.files, **changes}.items():
            (folder / file).write_bytes(content)


@pytest.fixture(scope="module", params=RUNS)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored(request.param, tmp_path_factory.mktemp("recorded"))


def evaluated(folder: Path) -> RunResult:
    """The result of a run without one, and every reader of it."""
    with contextlib.suppress(FileNotFoundError):
        (folder / RESULT_FILE).unlink()
    salvage(folder, Live())
    return read(folder)


def read(folder: Path) -> RunResult:
    """A stored result, read by everything that reads one."""
    result = load_result(folder)
    render_directory(folder, Console(file=io.StringIO(), width=120))
    for table in tables_of(result):
        with contextlib.suppress(PubstormError):
            json.dumps(data_table(result, folder, table), allow_nan=False)
    return result


def problems(folder: Path) -> list[str]:
    """Returns the files that `pubstorm report` could not make for a reason without words."""
    found = write_reports(folder, _nowhere)
    return [each for each in found if "Error: " in each]


def _nowhere(_file: str, _text: str) -> None:
    """Drops a file."""


def watch(folder: Path) -> None:
    """Shows a run on the live page."""
    page = Watch(folder, Surroundings())
    while page.poll():
        pass
    json.dumps(page.whole(), allow_nan=False)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_run_with_broken_journals_has_a_result(stored: Stored, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"journals {seed}")
    files = [file for file in JOURNALS if file in stored.files]
    changed = chance.sample(files, chance.choice((1, 1, 1, 2)))
    stored.put(tmp_path, {f: spoiled(stored.files[f], f, chance) for f in changed})
    watch(tmp_path)
    result = evaluated(tmp_path)
    assert json.loads(result.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert [each.text for each in result.events if each.kind == "summary"] == []
    assert problems(tmp_path) == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_run_with_a_broken_file_is_an_error_in_words(
    stored: Stored, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"heads {seed}")
    file = chance.choice([file for file in HEADS if file in stored.files])
    stored.put(tmp_path, {file: spoiled(stored.files[file], file, chance)})
    for reader in (read, watch, evaluated):
        with contextlib.suppress(PubstormError):
            reader(tmp_path)


@pytest.mark.slow("reads two hundred run directories, of which the world reads 5,000")
def test_readers_of_damaged_runs_have_words(tmp_path: Path) -> None:
    damage.survive(0, 200, tmp_path)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored("controller-killed", tmp_path_factory.mktemp("killed"))


def with_line(stored: Stored, folder: Path, file: str, line: str) -> None:
    """Puts a run into a folder, with a further line in one of its journals."""
    stored.put(folder, {file: stored.files[file] + line.encode() + b"\n"})


CHANGE = (
    '{"kind": "applied_change", "change": {"stage": %d, "at_ns": 1, "name": "more",'
    ' "population": %d, "action": {"kind": "add", "clients": 1, "over_ns": 0}}}'
)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("samples.csv", f"1.0,host,host,{'x' * 140_000},1,"),
        ("samples.csv", "1.0,endpoint,x,limit,1.7976931348623157e308,"),
        ("samples.csv", "nan,endpoint,x,limit,1,"),
        ("events.jsonl", CHANGE % (1, 99)),
        ("events.jsonl", CHANGE % (99, 0)),
        ("events.jsonl", '{"at_s": NaN, "kind": "broker", "text": "it died"}'),
        ("events.jsonl", '{"at_s": 1e308, "kind": "broker", "text": "it died"}'),
        ("events.jsonl", '{"kind": "enter", "at_s": Infinity, "stage": 0}'),
    ],
    ids=lambda value: value[:40],
)
def test_a_line_that_cannot_be_is_left_out(
    killed: Stored, file: str, line: str, tmp_path: Path
) -> None:
    killed.put(tmp_path, {})
    plain = evaluated(tmp_path)
    with_line(killed, tmp_path, file, line)
    watch(tmp_path)
    assert evaluated(tmp_path) == plain


@pytest.mark.parametrize(
    "bucket", ["[4864, 1]", f"[{BIG}, 1]", "[-1, 1]", f"[3, {BIG}]", "[3, -1]"]
)
def test_a_histogram_has_no_bucket_that_cannot_be(bucket: str) -> None:
    with pytest.raises(ValidationError):
        Histogram.model_validate_json(f'{{"count": 1, "buckets": [{bucket}]}}')
    largest = Histogram.of([2**70])
    assert Histogram.model_validate_json(largest.model_dump_json().replace(str(2**70), "1"))


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("start.json", "started_ns"),
        ("snapshots.jsonl", "target"),
        ("snapshots.jsonl", "received_total"),
        ("events.jsonl", "factor"),
    ],
)
def test_a_number_beyond_its_range_costs_no_result(
    file: str, key: str, killed: Stored, tmp_path: Path
) -> None:
    content, largest = killed.files[file].decode(), str(2**63 - 1)
    text = re.sub(rf'("{key}": ?)[0-9.]+', rf"\g<1>{largest}", content, count=1)
    assert largest in text
    killed.put(tmp_path, {file: text.encode()})
    with bounded():
        result = evaluated(tmp_path)
    assert [each.text for each in result.events if each.kind == "summary"] == []


def test_sums_beyond_the_contract_are_the_largest(killed: Stored, tmp_path: Path) -> None:
    text = killed.files["snapshots.jsonl"].decode()
    text = re.sub(r'("packets_sent_total": ?)\d+', rf"\g<1>{2**64 - 1}", text)
    killed.put(tmp_path, {"snapshots.jsonl": text.encode()})
    result = evaluated(tmp_path)
    assert {p.packets_sent_total for p in result.populations.values()} == {2**64 - 1}


PARTS: dict[str, tuple[ModuleType, str]] = {
    "memory": (summary, "memory_models"),
    "monitors": (recording, "watched"),
    "phases": (recording, "phases"),
    "the verdict": (recording, "evaluate_run"),
    "the table": (recording, "cells"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_result_that_fails_costs_no_other(
    part: str, killed: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OverflowError("intermediate overflow in fsum")

    monkeypatch.setattr(*PARTS[part], fail)
    killed.put(tmp_path, {})
    result = evaluated(tmp_path)
    text = f"{part} could not be made: OverflowError: intermediate overflow in fsum"
    if part == "the table":
        assert text in [event.text for event in result.events]
    else:
        assert (text in result.verdict.evidence, result.verdict.status) == (True, Status.INVALID)
    assert sum(p.sent_total for p in result.populations.values()) > 0
    assert problems(tmp_path) == []


def test_a_run_that_is_not_stored_does_not_pass(
    killed: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed.put(tmp_path, {})
    plain = evaluated(tmp_path)
    passed = plain.verdict.model_copy(update={"status": Status.PASS, "headline": "All is well."})
    result = plain.model_copy(update={"verdict": passed, "interrupted": False})
    brief = Output(None, False, False, False, 10**9, Exporting(None, None, None, None), None)
    assert brief.conclude(result) == 0
    assert "PASS" in capsys.readouterr().out
    (tmp_path / RESULT_FILE).unlink()
    for form in (brief, replace(brief, json=True)):
        assert form.conclude(result) == 3
        shown = " ".join(capsys.readouterr().out.split())
        assert "Invalid: the run is not stored: found no result.json" in shown
        assert "PASS " not in shown and '"status": "pass"' not in shown


@pytest.mark.parametrize(("status", "code"), [(Status.PASS, 2), (Status.FAIL, 1)])
def test_a_document_that_is_lost_is_no_pass(
    status: Status, code: int, killed: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CI job would read an empty document."""
    killed.put(tmp_path, {})
    plain = evaluated(tmp_path)
    verdict = plain.verdict.model_copy(update={"status": status})
    result = plain.model_copy(update={"verdict": verdict, "interrupted": False})
    form = Output(None, False, False, True, 10**9, Exporting(None, None, None, None), None)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(output, "_DESCRIPTORS", (full.fileno(), 2))
        monkeypatch.setattr(sys, "stdout", sys.stdout)
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        output.guard()
        assert form.conclude(result) == code


def test_a_result_that_no_disk_takes_is_invalid(
    killed: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed.put(tmp_path, {})
    results: list[RunResult] = []

    def refused(_: RunDirectory, file: str, __: str | bytes) -> str | None:
        return "No space left on device" if file == RESULT_FILE else None

    def kept(info: RunInfo, output: RunOutput) -> RunResult:
        results.append(recording.record(info, output))
        return results[0]

    monkeypatch.setattr(RunDirectory, "write", refused)
    monkeypatch.setattr(salvaging, "record", kept)
    (tmp_path / RESULT_FILE).unlink(missing_ok=True)
    salvage(tmp_path, Live())
    assert results[0].verdict.headline == (
        "Invalid: the run is not stored: No space left on device."
    )
    assert results[0].verdict.status is Status.INVALID


@pytest.mark.parametrize("by_user", [False, True])
def test_a_run_without_a_result_knows_which_stages_the_user_ended(
    tmp_path: Path, *, by_user: bool
) -> None:
    kept = Kept(unpack("controller-killed", tmp_path))
    for line in (tmp_path / "snapshots.jsonl").read_bytes().splitlines():
        kept.add(Snapshot.model_validate_json(line))
    kept.note(StageEntered(at_s=0.0, stage=0))
    kept.note(StageEntered(at_s=1.0, stage=1, by_user=by_user))
    assert [span.by_user for span in kept.run_log().spans[:2]] == [by_user, False]
