"""`pubstorm compare` from the command line to its stored files, with runs that take no time, and
command lines that are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubstorm import cli
from tests.pure.experiment.conftest import CLIENTS, LOAD, Player, end, playing

pytestmark = pytest.mark.xdist_group("played_comparison")

FIGURES = ("--figure", "backend.received", "--figure", "backend.clients")
TWICE = f"{CLIENTS}=8"
HIGHER = ("--fail-if", "backend.received higher by 50%")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """A comparison whose candidate sends twice as much, with a condition that it fulfils."""
    with playing(tmp_path_factory.mktemp("compare")) as player:
        player.spread = 1
        (player.folder / "s.yaml").write_text(LOAD)
        words = ("--repeat", "2", "--candidate-set", TWICE, "--out", player.out)
        assert player.command("compare", player.folder / "s.yaml", *words, *FIGURES, *HIGHER) == 1
        yield player


def of(player: Player, *names: str) -> tuple[str, ...]:
    """The folders of runs."""
    return tuple(str(player.out / "runs" / name) for name in names)


def test_both_sides_are_played_in_turn(played: Player) -> None:
    folders = sorted(path.name for path in (played.out / "runs").iterdir())
    assert folders == ["01-baseline", "02-candidate", "03-candidate", "04-baseline"]
    found = played.stored("comparison.json")
    assert found["baseline"]["runs"] == ["runs/01-baseline", "runs/04-baseline"]
    assert f"scenario: +# with --set {TWICE}" in found["unlike"]
    received, clients = found["figures"]
    assert received["outcome"] == "different"
    assert received["difference"] == pytest.approx(1.0, abs=0.2), "twice as much is 100 % more"
    assert (clients["outcome"], clients["difference"]) == ("equal", 0)


def test_every_report_file_is_made(played: Player, capsys: pytest.CaptureFixture[str]) -> None:
    names = {path.name for path in played.out.iterdir()}
    assert names >= {"comparison.json", "junit.xml", "report.html", "report.md"}
    assert played.command("report", played.out) == 0
    assert "different: backend.received" in capsys.readouterr().out


def test_stored_runs_are_compared_again(played: Player, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = of(played, "01-baseline", "04-baseline"), of(played, "02-candidate")
    words = ("--baseline", *before, "--candidate", *after, *of(played, "03-candidate"), *FIGURES)
    assert played.command("compare", *words, "--fail-if", "backend.received lower by 10%") == 0
    assert "different: backend.received" in capsys.readouterr().out


def test_one_run_of_each_side_decides_nothing(played: Player) -> None:
    runs = of(played, "01-baseline", "02-candidate")
    assert played.command("compare", *runs, *FIGURES, *HIGHER) == 3
    assert played.command("compare", *runs, *FIGURES) == 0, "nothing was asked"


def test_invalid_runs_are_refused(played: Player, capsys: pytest.CaptureFixture[str]) -> None:
    broken = played.folder / "invalid"
    shutil.copytree(played.out / "runs" / "01-baseline", broken)
    result = json.loads((broken / "result.json").read_text())
    result["verdict"] |= {"status": "invalid", "evidence": ["the host was too slow"]}
    (broken / "result.json").write_text(json.dumps(result))
    assert played.command("compare", broken, *of(played, "02-candidate")) == 2
    assert "the host was too slow" in capsys.readouterr().err


def test_an_interrupted_comparison_keeps_what_it_measured(player: Player) -> None:
    player.meanwhile = end(3, "interrupted")
    file = player.folder / "s.yaml"
    file.write_text(LOAD)
    assert player.command("compare", file, file, "--repeat", "9", "--out", player.out) == 130
    found = player.stored("comparison.json")
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
def test_wrong_words_are_refused(
    tmp_path: Path,
    words: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(LOAD)
    assert cli.main(["compare", *words]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
