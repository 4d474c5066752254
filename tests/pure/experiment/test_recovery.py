"""The recovery test of a search's answer: its load, the phases that say how the load came back, and
searches of a model that comes back after a known time."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.experiment.search.answer import returned
from pubstorm.quantities import SECOND_NS
from pubstorm.report import load_search
from pubstorm.report.data import csv_bytes, data_table
from pubstorm.report.of_experiments import search_document
from pubstorm.result import Phase, PhaseStatus
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.load import FOUND, varied
from pubstorm.scenario.recovery import AGAIN, BEYOND, recovery_settings
from pubstorm.scenario.stages import Publish
from tests.kit.measured import phase
from tests.pure.experiment.conftest import CLIENTS, LOAD, Player, end

LONG = LOAD.replace("publish: 1s", "publish: 10s")
RATE = "populations.device.publications.0.rate"
LIMIT = "thresholds: [device.connected <= 11, lost == 0]\n"
SEARCH = (
    f"search: {{vary: {CLIENTS}, from: 4, to: 20, precision: 20%, repeat: 1, recovery: true}}\n"
)
HELD, COLLAPSED = PhaseStatus.HELD, PhaseStatus.COLLAPSED
RECOVERED, NEVER = PhaseStatus.RECOVERED, PhaseStatus.NEVER_RECOVERED


def parts(*outcomes: PhaseStatus | tuple[PhaseStatus, float]) -> list[Phase]:
    """The phases of a recovery test: its answer, the value beyond, and the answer again."""
    names = ("publish", BEYOND, AGAIN)
    return [
        phase(
            name=name,
            duration_s=10,
            status=outcome[0] if isinstance(outcome, tuple) else outcome,
            recovered_after_s=outcome[1] if isinstance(outcome, tuple) else None,
            evidence=("some fact",),
        )
        for name, outcome in zip(names, outcomes, strict=False)
    ]


@pytest.mark.parametrize(
    ("phases", "found"),
    [
        (parts(HELD, HELD, HELD), ("no collapse", None)),
        (parts(HELD, COLLAPSED, (RECOVERED, 3.2)), ("came back", 3.2)),
        (parts(HELD, COLLAPSED, NEVER), ("never", None)),
        (parts(HELD, (COLLAPSED, 2.0), HELD), ("under overload", None)),
        (parts(HELD, HELD, (COLLAPSED, 1.5)), ("came back", 1.5)),
        (parts(HELD, HELD, COLLAPSED), ("never", None)),
        ([phase(name="publish", stage="warm"), *parts(HELD, HELD, NEVER)], ("never", None)),
        (
            parts(HELD, COLLAPSED, PhaseStatus.UNKNOWN),
            f"phase {AGAIN} is inconclusive: some fact",
        ),
        (
            parts(COLLAPSED, NEVER, NEVER),
            "the answer was not carried before the load rose",
        ),
        (parts(HELD, COLLAPSED), "the run ended before the load was the answer again"),
        ([], "the run ended before the load was the answer again"),
    ],
)
def test_the_phases_say_how_the_load_came_back(
    phases: list[Phase], found: tuple[str, float | None] | str
) -> None:
    assert returned(phases) == found


def recovering(search: str, text: str = LONG, value: float = 10, beyond: float = 12) -> Scenario:
    """The scenario of a recovery test."""
    scenario = parse_scenario(f"{text}{LIMIT}search: {search}\n", "s.yaml")
    return varied(scenario, FOUND, *recovery_settings(scenario, value, beyond))


def test_a_rate_rises_and_falls_within_a_stage() -> None:
    scenario = recovering(f"{{vary: {RATE}, from: 1/s, to: 1k/s, recovery: true}}")
    publish = scenario.stages[1].step
    assert isinstance(publish, Publish)
    assert scenario.populations["device"].flows[0].rate == 10
    assert publish.duration == 30 * SECOND_NS
    assert [(c.at, c.population, c.rate, c.phase) for c in publish.changes] == [
        (10 * SECOND_NS, "device", 1.2, BEYOND),
        (20 * SECOND_NS, "device", 1.0, AGAIN),
    ]


def test_clients_join_and_leave_within_a_stage() -> None:
    scenario = recovering(f"{{vary: {CLIENTS}, from: 4, to: 20, recovery: true}}")
    connect, publish = scenario.stages[0].connect, scenario.stages[1].step
    assert isinstance(publish, Publish)
    assert connect is not None
    assert (scenario.populations["device"].clients, connect.clients) == (12, {"device": 10})
    assert [(c.add, c.remove) for c in publish.changes] == [(2, None), (None, 2)]


TWO = 'publications: [{topic: "b", rate: 1/s}, {topic: "a/{n}", rate: 10/s, qos: 1}]'


@pytest.mark.parametrize(
    ("vary", "change", "words"),
    [
        ("populations.device.publications.0.size, from: 1kB, to: 1MB", ("", ""), "changes under"),
        ("stages.0.connect.rate, from: 1/s, to: 1k/s", ("[connect", "[{connect: 9/s}"), "under"),
        (f"{CLIENTS}, from: 1, to: 9", ("{publish: 10s}", "{hold: 10s}"), "without a publish"),
        (f"{CLIENTS}, from: 1, to: 9", ("publish: 10s", "publish: 9s"), "10 snapshot intervals"),
        (
            f"{RATE}, from: 1/s, to: 9/s",
            (
                "publish: 10s",
                "publish: {for: 10s, changes: [{at: 1s, population: device, rate: 2}]}",
            ),
            "which has changes",
        ),
        (f"{CLIENTS}, from: 1, to: 9", ("clients: 4", "clients: 4\n    lifetime: 9s"), "lifetime"),
        (
            f"{RATE}, from: 1/s, to: 9/s",
            ('publications: [{topic: "a/{n}", rate: 10/s, qos: 1}]', TWO),
            "one of 2 publications",
        ),
        (
            f"{CLIENTS}, from: 2, to: 9",
            ("[connect", "[{connect: {clients: {device: 50%}}}"),
            "without a connect stage of all",
        ),
    ],
)
def test_a_search_without_a_recovery_test_says_why(
    vary: str, change: tuple[str, str], words: str
) -> None:
    text = LONG.replace(*change).replace("connect: 9/s", "connect: {rate: 9/s}")
    assert not change[0] or text != LONG
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"{text}{LIMIT}search: {{vary: {vary}, recovery: true}}\n", "s.yaml")
    (problem,) = caught.value.problems
    assert (problem.path, words in problem.message) == ("search.recovery", True), problem
    assert problem.hint


def came_back(status: PhaseStatus, after_s: float | None = None) -> Any:
    """The model of a broker: the phases of each run of a recovery test."""

    def phases(scenario: Scenario) -> tuple[Phase, ...]:
        (publish,) = (each.step for each in scenario.stages if isinstance(each.step, Publish))
        outcomes = (HELD, COLLAPSED, (status, after_s) if after_s is not None else status)
        return tuple(parts(*outcomes)) if publish.changes else ()

    return phases


@pytest.mark.parametrize(
    ("status", "after_s", "words", "short"),
    [
        (
            RECOVERED,
            3.2,
            "after 10.0 s at 13 it came back by itself after 3.2 s",
            "after 3.2 s",
        ),
        (NEVER, None, "after 10.0 s at 13 it did not come back within 10.0 s", "not in 10.0 s"),
    ],
)
def test_a_search_says_after_what_time_its_load_came_back(
    player: Player, status: PhaseStatus, after_s: float | None, words: str, short: str
) -> None:
    player.phases = came_back(status, after_s)
    assert player.run(f"{LONG}{LIMIT}{SEARCH}", report=True) == 0
    search = player.stored("search.json")
    (test,) = search["recovery"]
    answer = search["answer"]
    assert answer["recovery"] == test
    assert (test["phase"], test["value"], test["beyond"], test["after_s"]) == (
        "recover",
        answer["confirmed_at"],
        13,
        after_s,
    )
    assert test["number"] == len(search["trials"]) + 1 == len(player.runs)
    assert answer["text"].endswith(words)
    stored = load_search(player.out)
    document = search_document(stored)
    figures = {figure.name: figure.value for figure in document.key_figures}
    assert figures["recovery"] == short
    assert f"recovery: {words}" in document.output
    page = (player.out / "report.html").read_text()
    assert words in page
    assert words in (player.out / "report.md").read_text()
    rows = list(
        csv.DictReader(io.StringIO(csv_bytes(data_table(stored, player.out, "trials")).decode()))
    )
    assert rows[-1]["beyond"] == "13.0"
    assert rows[-1]["after_s"] == ("" if after_s is None else str(after_s))
    # The verdicts of other trials stand as they are without the test.
    assert answer["best_trial"] == len(search["trials"])


def test_a_recovery_test_that_ended_in_its_midst_is_played_again(
    player: Player, capsys: pytest.CaptureFixture[str]
) -> None:
    player.phases = came_back(RECOVERED, 1.0)
    assert player.run(f"{LONG}{LIMIT}{SEARCH}") == 0
    whole, runs = player.stored("search.json"), len(player.runs)
    player.out.rename(player.folder / "before")
    player.meanwhile = end(2 * runs, "interrupted")
    player.run_to_its_end(f"{LONG}{LIMIT}{SEARCH}", "interrupted", capsys)
    assert player.stored("search.json")["recovery"] == []
    assert "recovery" not in player.stored("search.json")["answer"]["text"]
    assert player.resume() == 0
    again = player.stored("search.json")
    assert again["recovery"][0]["after_s"] == 1.0
    assert again["answer"]["text"] == whole["answer"]["text"]


def test_a_search_whose_largest_value_passes_says_that_there_was_no_test(player: Player) -> None:
    assert player.run(f"{LONG}{LIMIT.replace('<= 11', '<= 99')}{SEARCH}") == 0
    search = player.stored("search.json")
    assert search["recovery"] == []
    assert search["answer"]["text"].endswith("no recovery test, as no larger value failed")
