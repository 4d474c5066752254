"""Scenarios from stdin: the same errors, run directory and stored text as of a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit import program

RESULT = "result.json"
SCENARIO = """\
topology: {brokers: {main: {kind: embedded}}}
populations:
  device: {clients: 3, rows: rows.csv, publications: [{topic: "{row.name}", rate: 5/s}]}
stages: [connect, publish: 200ms]
validity: {lateness_p99: 1min, busy: 100%}
"""


def pubstorm(*words: str, text: bytes, cwd: Path) -> subprocess.CompletedProcess[str]:
    found = program.run(words, input=text, capture_output=True, cwd=cwd, timeout=180)
    out, err = found.stdout.decode(), found.stderr.decode()
    return subprocess.CompletedProcess(found.args, found.returncode, out, err)


def test_a_series_from_stdin_finds_files_and_continues_from_what_it_stored(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name\na\nb\nc\n")
    varied = {"vary": {"populations.device.clients": [1, 2]}, "pause": "0s"}
    text = SCENARIO + yaml.safe_dump({"sweep": varied})
    words = ("run", "-", "--quiet", "--no-report", "--out", "series")
    first = pubstorm(*words, text=text.encode(), cwd=tmp_path)
    stored = json.loads((tmp_path / "series/series.json").read_text())
    assert (stored["name"], len(stored["steps"])) == ("stdin", 2), first.stderr
    assert (tmp_path / "series/scenario.yaml").read_text() == text
    result = json.loads((tmp_path / "series" / stored["steps"][1]["folder"] / RESULT).read_text())
    assert result["populations"]["device"]["sent_total"] == 2
    again = pubstorm("run", "--resume", "series", text=b"", cwd=tmp_path)
    assert again.returncode == first.returncode, again.stderr
    assert again.stderr.count("played before") == 2


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("check", b"", "stdin:1: found an empty file"),
        ("check", b"a: 1\n\xff", "stdin:2: found bytes that are not UTF-8"),
        ("run", SCENARIO.replace("clients: 3", "clients: x").encode(), "stdin:3: populations.dev"),
        ("check", b"#" * 2**21, "stdin: found more than 1 MiB"),
    ],
    ids=["empty", "binary", "wrong", "large"],
)
def test_mistakes_are_named_with_their_line(
    command: str, text: bytes, message: str, tmp_path: Path
) -> None:
    found = pubstorm(command, "-", text=text, cwd=tmp_path)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_a_stdin_that_is_closed_is_empty(tmp_path: Path) -> None:
    line = f"{sys.executable} -m pubstorm check - <&-"
    found = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert (found.returncode, "found an empty file" in found.stderr) == (2, True)
