"""Whole runs of `pubstorm bench`: its outcome as JSON, and the scenario that it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from pubstorm.cli.run import KINDS
from tests.kit import program
from tests.kit.starved import passes

SCHEMA = Path(__file__).parents[3] / "contract" / "conclusion.schema.json"
ANY_SPEED = ("--set", "validity.lateness_p99=1min", "--set", "validity.busy=100%")


def bench(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return program.run(("bench", *words), capture_output=True, text=True, cwd=cwd, timeout=120)


def test_json_is_all_that_stdout_has(tmp_path: Path) -> None:
    found = bench("pairs", "-c", "5", "--for", "1s", *ANY_SPEED, "--json", cwd=tmp_path)
    outcome = json.loads(found.stdout)
    jsonschema.validate(outcome, json.loads(SCHEMA.read_text()))
    result = json.loads((tmp_path / outcome["run_directory"] / "result.json").read_text())
    assert passes(found.returncode, result), found.stderr
    assert outcome["exit_code"] == found.returncode
    assert outcome["headline"] == result["verdict"]["headline"]
    assert outcome["populations"]["publisher"]["sent_total"] == 5
    assert "publish" in found.stderr


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"pairs"}))
def test_a_printed_scenario_of_each_kind_runs(kind: str, tmp_path: Path) -> None:
    words = ("-c", "20", "--for", "200ms", *ANY_SPEED, "--print")
    (tmp_path / "mine.yaml").write_text(bench(kind, *words, cwd=tmp_path).stdout)
    run = ("run", "mine.yaml", "--out", "run", "--no-report", "--quiet")
    found = program.run(run, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert passes(found.returncode, result), found.stderr


LIMITED = "topology.brokers.broker={kind: mosquitto, settings: {max_connections: 9}}"
QUICK = ("search.precision=100%", "populations.client.reconnect=never", "monitors.brokers=false")


def test_until_a_number_finds_the_connections_that_a_broker_takes(tmp_path: Path) -> None:
    settings = (LIMITED, *QUICK)
    words = (*ANY_SPEED, *(word for each in settings for word in ("--set", each)))
    bench("conn", "-c", "8", "--until", "16", "--for", "200ms", *words, "--out", "s", cwd=tmp_path)
    search = json.loads((tmp_path / "s" / "search.json").read_text())
    counted = [trial for trial in search["trials"] if trial["counted"]]
    assert counted, search["answer"]["text"]
    for trial in counted:
        outcome = ("pass", "none") if trial["value"] <= 9 else ("fail", "broker")
        assert (trial["status"], trial["limited_by"]) == outcome
    # A busy host takes trials away, and is the limit then.
    if len(counted) == len(search["trials"]):
        assert (search["answer"]["best"]["value"], search["answer"]["limited_by"]) == (8, "broker")
