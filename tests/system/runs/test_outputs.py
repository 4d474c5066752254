"""Runs whose terminal or whose readers go away: the result is what it is with them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

SCENARIO = """
monitors: {host: false}
topology: {brokers: {ours: {kind: embedded}}}
populations:
  device:
    clients: 5
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
stages: [connect, publish: 500ms]
validity: {lateness_p99: 1min, busy: 100%}
"""
TIMEOUT_S = 180.0


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    words = [sys.executable, "-m", "pubstorm", "run", str(tmp_path / "scenario.yaml")]
    return [*words, "--out", str(tmp_path / "run")]


def result_of(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_text())
    return found


@pytest.mark.parametrize("line", ['"$@" 2>&1 | head -1', '"$@" >&- 2>/dev/full'])
def test_outputs_that_take_nothing_change_no_result(
    line: str, command: list[str], tmp_path: Path
) -> None:
    keeping = line.replace('"$@"', '{ "$@"; echo $? >code; }')
    subprocess.run(
        ["bash", "-c", keeping, "bash", *command],
        stdout=subprocess.DEVNULL,
        check=False,
        cwd=tmp_path,
        timeout=TIMEOUT_S,
    )
    assert (tmp_path / "code").read_text() == "0\n"
    result = result_of(tmp_path)
    assert result["verdict"]["status"] == "pass"
    assert result["populations"]["device"]["acked_total"] == 50
    assert {"report.html", "junit.xml"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_terminal_that_is_closed_ends_the_run_with_its_result(
    command: list[str], tmp_path: Path
) -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(
        [*command, "--set", "stages.1.publish=1h"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    seen = b""
    while b"2/2" not in seen:
        seen += os.read(master, 65536)
    os.close(master)
    try:
        assert process.wait(TIMEOUT_S) == 130
    finally:
        process.kill()
    result = result_of(tmp_path)
    assert result["interrupted"]
    assert "interrupted by SIGHUP" in "\n".join(result["verdict"]["evidence"])
    assert result["populations"]["device"]["sent_total"] > 0
