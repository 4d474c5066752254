"""Searches that are played from the command line to their stored files, with runs that take no
time: answers, trials that count for nothing, interruptions, resumption, and series of searches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubstorm.errors import TopologyError
from pubstorm.scenario import Scenario
from tests.pure.experiment.conftest import CLIENTS, LOAD, Player, end

LIMIT = "thresholds: [device.connected <= 11, lost == 0]\n"
SEARCH = f"search: {{vary: {CLIENTS}, from: 4, to: 20, precision: 20%"


def written(search: dict[str, Any]) -> list[str]:
    return [trial["written"] for trial in search["trials"]]


def test_a_search_finds_the_value_at_which_a_threshold_breaks(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 2, figure: device.connected}}\n", report=True)
        == 0
    )
    search, (out, err) = player.stored("search.json"), capsys.readouterr()
    answer, trials = search["answer"], search["trials"]
    assert (answer["best"]["bound"], answer["best"]["repeats"]) == ("exact", 2)
    assert answer["best"]["value"] == pytest.approx(11, abs=1)
    assert (answer["most"]["value"], answer["most"]["bound"]) == (20, "at_least")
    assert search["complete"] and answer["confirmed"]
    assert written(search)[:4] == ["4", "8", "16", "20"]
    for trial in trials:
        assert trial["status"] == ("pass" if trial["value"] <= 11 else "fail")
        assert (player.out / trial["folder"] / "result.json").exists()
        assert not (player.out / trial["folder"] / "report.html").exists()
    assert "trial 1: 4 (growing)\n" in err
    assert answer["text"] in out


def test_a_trial_whose_result_was_stored_before_a_kill_is_not_played_again(player: Player) -> None:
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1}}\n") == 0
    search, runs = player.stored("search.json"), len(player.runs)
    killed = search | {"trials": search["trials"][:-1], "complete": False}
    (player.out / "search.json").write_text(json.dumps(killed))
    assert player.resume() == 0
    again = player.stored("search.json")
    assert (again["trials"], again["answer"]) == (search["trials"], search["answer"])
    assert len(player.runs) == runs


@pytest.mark.parametrize(
    ("experiment", "file"),
    [
        (f"{SEARCH}, repeat: 1, broker: same, warm_up: 3s}}\n", "search.json"),
        ("sweep: {steps: [{step: a}, {step: b}], broker: same, warm_up: 3s}\n", "series.json"),
    ],
)
def test_a_warm_up_is_played_first_and_does_not_count(
    player: Player, experiment: str, file: str
) -> None:
    assert player.run(f"{LOAD}{LIMIT}{experiment}") == 0
    stored = player.stored(file)
    counted = stored.get("trials") or stored["steps"]
    assert len(player.runs) == len(counted) + 3, "a run has one second"
    assert (player.out / "warm-up-3" / "result.json").exists()
    assert {scenario.populations["device"].clients for scenario in player.runs[:3]} == {4}


def test_a_warm_up_needs_brokers_that_last(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, warm_up: 3s}}\n") == 2
    assert "found warm_up with fresh brokers, needed is broker: same" in capsys.readouterr().err


def test_where_no_value_holds_it_ends_with_1(player: Player) -> None:
    assert player.run(f"{LOAD}{LIMIT.replace('<= 11', '< 1')}{SEARCH}, repeat: 1}}\n") == 1
    search = player.stored("search.json")
    assert search["answer"]["best"] is None
    assert search["trials"][-1]["value"] == 1


def test_where_nothing_can_be_counted_it_ends_with_3(player: Player) -> None:
    def never_starts(_number: int, _scenario: Scenario) -> bool:
        raise TopologyError("broker broker-0 exited")

    player.meanwhile = never_starts
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1, retries: 1}}\n") == 3
    trials = player.stored("search.json")["trials"]
    assert [(trial["written"], trial["attempt"]) for trial in trials[:2]] == [("4", 1), ("4", 2)]
    assert not any(trial["counted"] for trial in trials)
    assert "broker-0" in trials[0]["why"]


def test_where_only_the_host_is_a_limit_it_ends_with_4(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that does not start beyond a number of clients says nothing of what it carries."""

    def full(_number: int, scenario: Scenario) -> bool:
        if scenario.populations["device"].clients > 11:
            raise TopologyError("broker broker-0 exited")
        return False

    player.meanwhile = full
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1, retries: 0}}\n", report=True) == 4
    answer = player.stored("search.json")["answer"]
    assert (answer["best"]["bound"], answer["confirmed"]) == ("at_least", True)
    assert "OPEN  Not found: at least 11 clients" in capsys.readouterr().out
    assert 'failures="1"' in (player.out / "junit.xml").read_text()
    steps = "table: {step: step}\nsweep: {pause: 0s, steps: [{step: full}]}\n"
    player.out.rename(player.folder / "before")
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1, retries: 0}}\n{steps}") == 4
    assert player.stored("series.json")["steps"][0]["status"] == "open"


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_search_that_ended_in_a_trial_is_resumed(
    player: Player, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    player.meanwhile = end(3, how)
    player.run_to_its_end(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1}}\n", how, capsys)
    before = player.stored("search.json")
    assert (written(before), before["complete"]) == (["4", "8"], False)
    assert before["interrupted"] is (how == "interrupted")

    assert player.resume() == 0
    resumed, after = capsys.readouterr().out, player.stored("search.json")
    assert (after["trials"][:2], after["started"]) == (before["trials"], before["started"])
    assert after["answer"]["best"]["value"] == 11
    assert (player.out / "trials" / "003-16.broken-1").exists()
    played = len(player.runs)
    assert player.resume() == 0
    assert (len(player.runs), capsys.readouterr().out) == (played, resumed)


def test_a_folder_with_another_search_is_not_resumed(player: Player) -> None:
    player.meanwhile = end(2, "interrupted")
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}}}\n") == 130
    file = player.out / "scenario.yaml"
    file.write_text(file.read_text().replace("from: 4", "from: 5"))
    assert player.resume() == 2
    assert len(player.runs) == 2


def test_each_step_of_a_series_can_be_a_search(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "{step: step, best: search.best, n: search.trials, sent: device.sent, v: verdict}"
    steps = "{step: low, thresholds: [device.connected <= 5]}, "
    steps += "{step: none, thresholds: [device.connected == 0]}"
    sweep = f"table: {columns}\nsweep: {{pause: 0s, steps: [{steps}]}}\n"
    assert player.run(f"{LOAD}{LIMIT}{SEARCH}, repeat: 1}}\n{sweep}", report=True) == 1
    low, none = player.stored("series.json")["steps"]
    assert (low["status"], none["status"]) == ("pass", "fail")
    assert low["answer"]["best"]["value"] == low["cells"][1]["estimate"]["low"] == 5
    assert (low["cells"][0]["word"], low["cells"][3]["value"]) == ("low", 50)
    assert (none["cells"][1]["value"], none["cells"][1]["word"]) == (None, "")
    search = player.stored(f"{low['folder']}/search.json")
    assert search["answer"] == low["answer"]
    assert search["columns"] == ["sent", "v"]
    assert all(len(trial["cells"]) == 2 for trial in search["trials"])
    assert (player.out / low["folder"] / "report.html").exists()
    capsys.readouterr()
    assert player.command("report", player.out / low["folder"]) == 0
    assert search["answer"]["text"] in capsys.readouterr().out
    played = len(player.runs)
    assert player.resume() == 1
    assert len(player.runs) == played
