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
from tests.pure.experiment.conftest import (
    CLIENTS,
    LOAD,
    Killed,
    Player,
    end,
    playing,
    resume_beside,
)

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
    assert f"scenario: only the second has: with --set {TWICE}" in found["unlike"]
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


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_comparison_that_ended_in_a_run_is_resumed(
    player: Player, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    player.meanwhile = end(3, how)
    player.spread = 1
    file = player.folder / "s.yaml"
    file.write_text(LOAD)
    words = ("--repeat", "2", "--candidate-set", TWICE, "--out", player.out)
    command = ("compare", file, *words, *FIGURES, *HIGHER)
    if how == "killed":
        with pytest.raises(Killed):
            player.command(*command)
        assert player.command("report", player.out) == 2
        assert "pubstorm run --resume continues it" in capsys.readouterr().err
    else:
        assert player.command(*command) == 130
        assert f"pubstorm run --resume {player.out}" in capsys.readouterr().out
    first = (player.out / "runs" / "01-baseline" / "result.json").stat().st_mtime_ns
    file.unlink()

    assert player.resume() == 1, "its condition is fulfilled"
    assert (player.out / "runs" / "01-baseline" / "result.json").stat().st_mtime_ns == first
    clients = [each.populations["device"].clients for each in player.runs]
    assert clients == [4, 8, 8, 8, 4], "the third run is played again"
    names = sorted(path.name for path in (player.out / "runs").iterdir())
    assert names == [
        *("01-baseline", "02-candidate", "03-candidate", "03-candidate.broken-1", "04-baseline")
    ]
    found = player.stored("comparison.json")
    assert (found["interrupted"], found["figures"][0]["outcome"]) == (False, "different")
    assert found["candidate"]["runs"] == ["runs/02-candidate", "runs/03-candidate"]
    resumed = capsys.readouterr().out
    assert (player.resume(), len(player.runs), capsys.readouterr().out) == (1, 5, resumed)


def test_a_comparison_of_searches_is_resumed_within_a_search(player: Player) -> None:
    player.meanwhile = end(3, "killed")
    file = player.folder / "s.yaml"
    file.write_text(LOAD + SEARCH.replace("LIMIT", "20"))
    with pytest.raises(Killed):
        player.command("compare", file, file, "--repeat", "1", "--out", player.out)
    assert player.resume() == 0
    (best,) = player.stored("comparison.json")["figures"]
    assert (best["baseline"], best["candidate"]) == ([20], [20])
    trials = sorted(path.name for path in (player.out / "runs/01-baseline/trials").iterdir())
    assert len([name for name in trials if "broken" in name]) == 1
    assert len(player.runs) == len([*player.out.glob("runs/*/trials/*")])


def test_a_comparison_that_is_being_played_is_not_played_a_second_time(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    player.meanwhile = resume_beside(player, codes)
    file = player.folder / "s.yaml"
    file.write_text(LOAD)
    assert player.command("compare", file, file, "--repeat", "1", "--out", player.out) == 0
    assert codes == [2, 2]
    assert f"{player.out} is being played by pubstorm with pid" in capsys.readouterr().err


def test_a_run_that_needs_more_memory_than_the_host_has_is_left_out(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = iter(["it needs 2 GB", None, "it needs 2 GB", "it needs 2 GB"])
    monkeypatch.setattr("pubstorm.experiment.player.unfit_here", lambda _scenario: next(needs))
    file = player.folder / "s.yaml"
    file.write_text(LOAD)
    assert player.command("compare", file, file, "--repeat", "2", "--out", player.out) == 0
    found = player.stored("comparison.json")
    assert found["baseline"]["left_out"] == [f"run {n}: not run: it needs 2 GB" for n in (1, 4)]
    assert found["candidate"]["runs"] == ["runs/02-candidate"]
    assert len(player.runs) == 1


@pytest.mark.parametrize("content", ["", "{}", '{"baseline": 1}'])
def test_a_comparison_whose_question_is_broken_is_refused(
    player: Player, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    player.out.mkdir()
    (player.out / "asked.json").write_text(content)
    assert player.resume() == 2
    assert "asked.json is not as Pubstorm has written it" in capsys.readouterr().err


LADDER = f"sweep: {{pause: 0s, vary: {{{CLIENTS}: [2, 4, 8]}}}}\n"
SEARCH = (
    f"thresholds: [device.connected <= LIMIT, lost == 0]\n"
    f"search: {{vary: {CLIENTS}, from: 4, to: 80, precision: 5%}}\n"
)


def kept(player: Player, name: str, text: str) -> Path:
    """Plays a scenario into a folder of a name."""
    player.run(text)
    return player.out.rename(player.folder / name)


def test_series_are_compared_step_by_step(player: Player) -> None:
    """The steps of a ladder are no repeats of each other: each has a row, and the row of all steps
    pairs them."""
    more = LOAD.replace("clients: 1,", "clients: 3,")
    longer = LADDER.replace("[2, 4, 8]", "[2, 4, 8, 16]")
    one, other = kept(player, "one", LOAD + LADDER), kept(player, "other", more + longer)
    figure = ("--figure", "device.sent", "--fail-if", "device.sent higher by 50%")
    assert player.command("compare", one, other, "--out", player.out, *figure) == 0
    found = player.stored("comparison.json")
    rows = {row["step"]: row for row in found["figures"]}
    assert list(rows) == ["all steps", "clients 2", "clients 4", "clients 8"]
    assert (rows["all steps"]["pairs"], rows["all steps"]["outcome"]) == (3, "equal")
    assert {rows[f"clients {n}"]["outcome"] for n in (2, 4, 8)} == {"not known"}
    assert rows["clients 4"]["means"] == [40, 40]
    assert "clients 16" in found["candidate"]["left_out"][0]


def test_searches_are_compared_answer_by_answer(player: Player) -> None:
    folders = [
        kept(player, f"{limit}-{n}", LOAD + SEARCH.replace("LIMIT", str(limit + n)))
        for limit in (20, 40)
        for n in range(2)
    ]
    sides: list[str | Path] = ["--baseline", *folders[:2], "--candidate", *folders[2:]]
    words = [*sides, "--fail-if", "search.best worse by 10%", "--out", player.out]
    assert player.command("compare", *words) == 0
    (best,) = player.stored("comparison.json")["figures"]
    assert (best["figure"], best["outcome"]) == ("search.best", "better")
    assert best["baseline"] == [20, 21]
    assert (player.out / "report.html").exists()
    assert player.command("compare", folders[2], folders[0]) == 0, "each has an interval of its own"
    assert player.command("compare", folders[0], folders[0].parent / "s.yaml") == 2


def test_a_sweep_is_played_in_turn_step_by_step(player: Player) -> None:
    file = player.folder / "s.yaml"
    file.write_text(LOAD + LADDER)
    words = ("--repeat", "2", "--out", player.out, "--figure", "device.sent")
    assert player.command("compare", file, file, *words) == 0
    clients = [each.populations["device"].clients for each in player.runs]
    assert clients == [2] * 4 + [4] * 4 + [8] * 4
    rows = player.stored("comparison.json")["figures"]
    assert [row["step"] for row in rows] == ["all steps", "clients 2", "clients 4", "clients 8"]
    assert [len(row["baseline"]) for row in rows] == [6, 2, 2, 2]


def test_a_search_is_played_in_turn(player: Player) -> None:
    file = player.folder / "s.yaml"
    file.write_text(LOAD + SEARCH.replace("LIMIT", "20"))
    words = ("--repeat", "2", "--out", player.out)
    assert player.command("compare", file, file, *words) == 0
    (best,) = player.stored("comparison.json")["figures"]
    assert (best["figure"], best["baseline"], best["outcome"]) == ("search.best", [20, 20], "equal")


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
        (["s.yaml", "connection-ladder", "--repeat", "2"], "both sides need the same steps"),
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
