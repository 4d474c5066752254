"""`pubstorm compare` with real runs. Its words and its stored files are in
`tests/pure/experiment/test_played_comparison.py`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit import program

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "t/{n}", rate: 20/s, size: 100B}]
  backend:
    clients: 1
    subscriptions: ["t/#"]
stages: [connect, publish: 500ms]
thresholds: [lost == 0]
validity: {lateness_p99: 1min, busy: 100%}
"""
TWICE = "populations.device.publications.0.rate=40/s"


def test_runs_of_both_sides_are_compared(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    words = ("--repeat", "2", "--candidate-set", TWICE, "--out", "out")
    conditions = ("--figure", "backend.received", "--fail-if", "backend.received higher by 50%")
    line = ("compare", "s.yaml", *words, *conditions)
    done = program.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done.stderr + done.stdout
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert found["figures"][0]["outcome"] == "different"
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'href="runs/01-baseline/report.html"' in page
