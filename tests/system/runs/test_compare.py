"""`pubstorm compare`: scenarios that are played in turn, and stored runs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "t/{n}", rate: 20/s, size: 100B}]
  backend:
    clients: 1
    subscriptions: ["t/#"]
stages: [connect, publish: 1s]
snapshot_interval: 200ms
validity: {lateness_p99: 1min, busy: 100%}
"""
FIGURES = ("--figure", "backend.received", "--figure", "backend.clients")
TWICE = "populations.device.publications.0.rate=40/s"


def compare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pubstorm", "compare", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "comparison.json").read_text())
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison whose candidate sends twice as much, with a condition that it fulfils."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "s.yaml").write_text(SCENARIO)
    done = compare(
        folder,
        *("s.yaml", "--repeat", "2", "--candidate-set", TWICE, "--out", "out", *FIGURES),
        *("--fail-if", "backend.received higher by 50%"),
    )
    assert done.returncode == 1, done.stderr + done.stdout
    assert "different: backend.received" in done.stdout
    return folder


def test_both_sides_are_played_in_turn(played: Path) -> None:
    folders = sorted(path.name for path in (played / "out" / "runs").iterdir())
    assert folders == ["01-baseline", "02-candidate", "03-candidate", "04-baseline"]
    found = stored(played / "out")
    assert found["baseline"]["runs"] == ["runs/01-baseline", "runs/04-baseline"]
    assert f"scenario: +# with --set {TWICE}" in found["unlike"]
    received = found["figures"][0]
    assert received["outcome"] == "different"
    assert received["difference"] == pytest.approx(1.0, abs=0.2), "twice as much is 100 % more"
    clients = found["figures"][1]
    assert (clients["outcome"], clients["difference"]) == ("equal", 0)


def test_every_report_file_is_made(played: Path) -> None:
    names = {path.name for path in (played / "out").iterdir()}
    assert names >= {"comparison.json", "junit.xml", "report.html", "report.md"}
    assert "is so" in (played / "out" / "junit.xml").read_text()
    page = (played / "out" / "report.html").read_text()
    assert 'href="runs/01-baseline/report.html"' in page
    again = subprocess.run(
        [sys.executable, "-m", "pubstorm", "report", "out"],
        cwd=played,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "different: backend.received" in again.stdout


def test_stored_runs_are_compared_again(played: Path) -> None:
    sides = [sorted(map(str, (played / "out" / "runs").glob(f"*-{s}"))) for s in ("b*", "c*")]
    words = ["--baseline", *sides[0], "--candidate", *sides[1], *FIGURES]
    done = compare(played, *words, "--fail-if", "backend.received lower by 10%")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "different: backend.received" in done.stdout
    assert "is not so" in done.stdout


def test_one_run_of_each_side_decides_nothing(played: Path) -> None:
    runs = [f"out/runs/{name}" for name in ("01-baseline", "02-candidate")]
    done = compare(played, *runs, *FIGURES, "--fail-if", "backend.received higher by 50%")
    assert done.returncode == 3
    assert "that needs 2 runs of each side" in done.stdout
    assert compare(played, *runs, *FIGURES).returncode == 0, "nothing was asked"


def test_invalid_runs_are_refused(played: Path) -> None:
    broken = played / "invalid"
    shutil.copytree(played / "out" / "runs" / "01-baseline", broken, dirs_exist_ok=True)
    result = json.loads((broken / "result.json").read_text())
    result["verdict"] |= {"status": "invalid", "evidence": ["the host was too slow"]}
    (broken / "result.json").write_text(json.dumps(result))
    done = compare(played, "invalid", "out/runs/02-candidate")
    assert done.returncode == 2
    assert "the run is invalid: the host was too slow" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_comparison_keeps_what_it_measured(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    command = ["compare", "s.yaml", "s.yaml", "--repeat", "9", "--out", "out"]
    playing = subprocess.Popen(
        [sys.executable, "-m", "pubstorm", *command],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert playing.stderr is not None
    for line in playing.stderr:
        if line.startswith("run 3 of 18"):
            break
    playing.send_signal(signal.SIGINT)
    _, _ = playing.communicate(timeout=120)
    assert playing.returncode == 130
    found = stored(tmp_path / "out")
    assert found["interrupted"]
    assert found["baseline"]["runs"], "the runs before the signal are compared"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "found no A and no --baseline"),
        (["a"], "found no B and no --candidate"),
        (["a", "b"], "cannot read"),
        (["a", "b", "--baseline", "c"], "found both A and --baseline"),
        (["s.yaml", "--repeat", "2"], "both sides would be the same"),
        (["--repeat", "2"], "found no A"),
        (["s.yaml", "s.yaml", "--repeat", "0"], "range"),
        (["a", "b", "--set", "seed=2"], "give --repeat N too"),
        (["a", "b", "--fail-if", "latency.p99 bad"], "worse|lower|higher by SHARE"),
        (["a", "b", "--figure", "latency"], "latency.p99"),
        (["nothing", "s.yaml", "--repeat", "2"], "nothing"),
        (["s.yaml", "s.yaml", "--repeat", "2", "--figure", "bakend.lost"], "did you mean backend"),
        (["s.yaml", "s.yaml", "--repeat", "2", "--figure", "latency.p99@pub"], "publish"),
        (["s.yaml", "s.yaml", "--repeat", "2", "--fail-if", "x.lost higher by 1%"], "of the base"),
        (["capacity", "capacity", "--repeat", "2"], "has a sweep or a search"),
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = compare(tmp_path, *words)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
