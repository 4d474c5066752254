"""Series that are played from the command line to their stored files, with runs that take no
time: steps, failures, early ends, interruptions, resumption, variants and tables."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest

from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.series import run_series
from pubstorm.play.display import Live
from pubstorm.play.one_run import interrupt_thread
from pubstorm.scenario import Scenario
from tests.pure.experiment.conftest import CLIENTS, LOAD, Player, end, refuse, resume_beside

ALL_CAME = "thresholds: [device.connected == 4]\n"


def scenario(sweep: str, thresholds: str = ALL_CAME) -> str:
    return f"{LOAD}{thresholds}sweep: {{pause: 0s, {sweep}}}\n"


def outcomes(series: dict[str, Any]) -> list[str | None]:
    return [step["status"] for step in series["steps"]]


def test_each_step_has_a_folder_a_command_and_its_repeats(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    assert player.run(scenario("vary: {seed: [1, 2]}, repeat: 2")) == 0
    series, (out, err) = player.stored("series.json"), capsys.readouterr()
    folders = [f"steps/0{n}-seed-{(n + 1) // 2}-{2 - n % 2}" for n in (1, 2, 3, 4)]
    assert [step["folder"] for step in series["steps"]] == folders
    assert (series["complete"], outcomes(series)) == (True, ["pass"] * 4)
    for step in series["steps"]:
        assert player.stored(f"{step['folder']}/result.json")["command"] == step["command"]
    assert "step 3 of 4: seed 2 (1 of 2)\n" in err
    assert series["text"] in out
    assert "seed 1: 2 repeats" in out


def test_a_failing_step_and_an_impossible_one_keep_their_evidence(player: Player) -> None:
    player.meanwhile = refuse(at=2)
    assert player.run(scenario(f"steps: [{{{CLIENTS}: 5}}, {{seed: 3}}, {{seed: 2}}]")) == 3
    series = player.stored("series.json")
    failed, impossible, _ = series["steps"]
    assert outcomes(series) == ["fail", None, "pass"]
    assert failed["evidence"][0] == "device.connected == 4: found 5"
    assert "broker-0" in impossible["problem"]
    assert series["complete"]


@pytest.mark.parametrize(
    ("condition", "sweep", "broken", "statuses"),
    [
        ("failed", f"{CLIENTS}: [4, 6, 4]", 0, ["pass", "fail", None]),
        ("device.connected > 4", f"{CLIENTS}: [4, 6, 4]", 0, ["pass", "fail", None]),
        ("invalid", "seed: [1, 2]", 1, [None, None]),
    ],
)
def test_a_series_stops_where_its_keys_say(
    player: Player, condition: str, sweep: str, broken: int, statuses: list[str | None]
) -> None:
    player.meanwhile = refuse(at=broken)
    assert player.run(scenario(f"vary: {{{sweep}}}, stop_when: ['{condition}']")) == (
        3 if broken else 1
    )
    series = player.stored("series.json")
    assert series["stopped"] == condition
    assert (series["complete"], outcomes(series)) == (True, statuses)


def test_a_step_that_does_not_fit_into_memory_is_not_run_and_no_failure(player: Player) -> None:
    sweep = f"vary: {{{CLIENTS}: [4, 1000M]}}, stop_when: [invalid]"
    assert player.run(scenario(sweep, thresholds="")) == 0
    series = player.stored("series.json")
    large = series["steps"][1]
    assert (series["complete"], series["stopped"]) == (True, None)
    assert outcomes(series) == ["pass", None]
    assert series["text"].endswith(f"clients 1000M not run: {large['unfit']}")
    assert not (player.out / large["folder"]).exists()


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_series_that_ended_in_a_step_is_resumed(
    player: Player, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    player.meanwhile = end(2, how)
    player.run_to_its_end(scenario("vary: {seed: [1, 2, 3]}"), how, capsys)
    before, first = player.stored("series.json"), player.out / "steps" / "01-seed-1"
    assert (outcomes(before)[::2], before["complete"]) == (["pass", None], False)
    assert before["interrupted"] is (how == "interrupted")
    kept = (first / "result.json").stat().st_mtime_ns

    assert player.resume() == 0
    resumed = capsys.readouterr().out
    after = player.stored("series.json")
    assert (outcomes(after), after["started"]) == (["pass"] * 3, before["started"])
    assert (first / "result.json").stat().st_mtime_ns == kept
    names = sorted(path.name for path in first.parent.iterdir())
    assert names == ["01-seed-1", "02-seed-2", "02-seed-2.broken-1", "03-seed-3"]
    assert player.resume() == 0
    assert (len(player.runs), capsys.readouterr().out) == (4, resumed)


def test_steps_that_another_version_has_played_are_not_played_again(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    player.meanwhile = end(2, "killed")
    player.run_to_its_end(scenario("vary: {seed: [1, 2]}"), "killed", capsys)
    first = player.out / "steps" / "01-seed-1"
    (first / "start.json").write_text("{}")
    before, names = player.stored("series.json"), sorted(first.parent.iterdir())
    assert player.resume() == 2
    assert f"{first} is stored in format 1, this version reads 2" in capsys.readouterr().err
    assert player.stored("series.json") == before
    assert sorted(first.parent.iterdir()) == names


def test_a_series_that_is_being_played_is_not_played_a_second_time(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    player.meanwhile = resume_beside(player, codes)
    assert player.run(scenario("vary: {seed: [1, 2]}")) == 0
    assert (codes, outcomes(player.stored("series.json"))) == ([2, 2], ["pass", "pass"])
    says = f"{player.out} is being played by pubstorm with pid {os.getpid()}"
    assert capsys.readouterr().err.count(says) == 2
    names = sorted(path.name for path in (player.out / "steps").iterdir())
    assert names == ["01-seed-1", "02-seed-2"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_series_whose_folder_is_moved_away_ends_and_is_resumed_where_it_is(
    player: Player, is_replaced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def meanwhile(number: int, _scenario: Scenario) -> bool:
        if number == 2:
            player.out.rename(player.folder / "moved")
            if is_replaced:
                player.out.mkdir()
        return False

    player.meanwhile = meanwhile
    assert player.run(scenario("vary: {seed: [1, 2, 3]}")) == 3
    assert f"error: cannot continue in {player.out}: " in capsys.readouterr().err
    assert len(player.runs) == 2
    assert not player.out.exists() or list(player.out.iterdir()) == []
    assert player.command("run", "--quiet", "--resume", player.folder / "moved") == 0
    assert len(player.runs) == 4, "the second step is played again"


def test_an_interrupt_in_the_pause_ends_the_series(tmp_path: Path, player: Player) -> None:
    class Impatient(Live):
        def step(self, text: str) -> None:
            if text == "pause of 1h":
                interrupt_thread(threading.get_ident())

    (tmp_path / "s.yaml").write_text(scenario("vary: {seed: [1, 2]}").replace("0s", "1h"))
    asked = Invocation(str(tmp_path / "s.yaml"))
    series = run_series(asked.load(), asked, player.out, Impatient())
    assert series.interrupted
    assert [step.status for step in series.steps] == ["pass", None]


def test_steps_can_name_their_targets(player: Player) -> None:
    text = scenario("vary: {target: ['mqtt://one', 'mqtt://other']}")
    text = text.replace("topology: {brokers: {broker: {kind: embedded}}}", "target: mqtt://one")
    assert player.run(text) == 0
    assert [run.target[0].host for run in player.runs] == ["one", "other"]
    assert player.stored("series.json")["text"] == "2 of 2 steps passed"


def test_a_folder_with_another_scenario_is_not_resumed(player: Player) -> None:
    assert player.run(scenario("vary: {seed: [1]}")) == 0
    path = player.out / "scenario.yaml"
    path.write_text(path.read_text().replace("seed: [1]", "seed: [1, 2]"))
    assert player.resume() == 2
    assert len(player.runs) == 1


def test_the_command_of_a_step_plays_it_alone(player: Player) -> None:
    assert player.run(scenario(f"vary: {{{CLIENTS}: [4, 5]}}, repeat: 1")) == 1
    _, *words = shlex.split(player.stored("series.json")["steps"][1]["command"])
    assert ["--set", "sweep=null", "--set", f"{CLIENTS}=5"] == words[-4:]
    assert player.command(*words, "--out", player.folder / "alone") == 1
    assert [run.populations["device"].clients for run in player.runs] == [4, 5, 5]


def test_a_series_with_variants_ends_them_one_by_one_and_fills_its_tables(player: Player) -> None:
    sweep = (
        f"vary: {{{CLIENTS}: [4, 6, 5]}}, stop_when: [failed], variants: {{strict: , "
        'easy: {"thresholds.0": device.connected >= 3}}'
    )
    columns = (
        "Clients: clients, strict: {variant: strict, metric: device.connected}, "
        "easy: {variant: easy, metric: device.connected}"
    )
    assert player.run(f"{scenario(sweep)}tables: {{Who came: {{{columns}}}}}\n") == 1
    series = player.stored("series.json")
    assert [(step["label"], step["status"]) for step in series["steps"]] == [
        ("clients 4, strict", "pass"),
        ("clients 4, easy", "pass"),
        ("clients 6, strict", "fail"),
        ("clients 6, easy", "pass"),
        ("clients 5, strict", None),
        ("clients 5, easy", "pass"),
    ]
    assert (series["complete"], series["stopped"]) == (True, "strict: failed")
    (table,) = series["tables"]
    values = [[cell["value"] for cell in row] for row in table["rows"]]
    assert values == [[4, 4, 4], [6, 6, 6], [5, None, 5]]
    assert player.resume() == 1
    assert player.stored("series.json")["tables"] == series["tables"]
