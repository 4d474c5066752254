"""Series on the command line: what `check` and `run` say of them before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm import cli

SCENARIO = """\
target: mqtt://127.0.0.1:1883
populations:
  device: {clients: 2, publications: [{topic: a, rate: 1/s}]}
sweep:
  vary: {populations.device.clients: [20, 30k, 10]}
  repeat: 2
  stop_when: [failed, device.lost > 3]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    return tmp_path


def test_check_lists_the_steps_and_needs_what_the_largest_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["check", "s.yaml"])
    said = capsys.readouterr().out
    assert "  device: 20 clients, clean session" in said
    assert (
        """
sweep, the plan above is its first step; each step with the same target, 2 times each
  1. clients 20
  2. clients 30k
  3. clients 10
  ends early when failed
  ends early when device.lost > 3

needs, with """
        in said
    )
    assert "ports from a source address to a target: 10,000 of" in said
