"""Searches on the command line: what `check` and `run` say of them before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm import cli

SCENARIO = """\
target: mqtt://127.0.0.1:1883
populations:
  device: {clients: 2, publications: [{topic: a, rate: 1/s, qos: 1}]}
stages: [{connect: {rate: 10/s}}, {publish: 30s}]
thresholds: [device.ack_latency.p99 < 50ms]
search:
  vary: populations.device.clients
  from: 20
  to: 10k
  figure: device.acked_per_s
  pause: 1s
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    return tmp_path


def test_check_says_what_is_searched_and_needs_what_the_largest_value_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["check", "s.yaml"])
    said = capsys.readouterr().out
    assert "  device: 20 clients, clean session" in said
    assert (
        """
search, the plan above is its first trial; each trial with the same target
  the largest populations.device.clients at which all thresholds pass,
  from 20 to 10000, times 2 from one to the next
  and on until device.acked_per_s grows by less than 2%
  looked for 3 times, to within 2%
"""
        in said
    )
    assert " trials of 33.0 s or more: " in said
    assert "ports from a source address to a target: 10,000 of" in said


def test_check_of_a_series_of_searches_describes_both(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = "sweep={vary: {populations.device.publications.0.rate: [1/s, 2/s]}}"
    cli.main(["check", "s.yaml", "--set", sweep])
    said = capsys.readouterr().out
    assert "  1. rate 1/s\n  2. rate 2/s\n" in said
    assert "  the largest populations.device.clients at which all thresholds pass," in said
    assert "  if all 2 steps are like the first: " in said


def test_values_that_cannot_be_played_are_reported_before_the_first_trial(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert cli.main(["run", "s.yaml", "--set", "search.to=10G"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: --set search.to=10G: search.to: with populations.device.clie")
    assert not (folder / "runs").exists()
