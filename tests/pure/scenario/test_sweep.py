"""The steps of a sweep: which there are, what they are called, and where problems are."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.experiment.invocation import Invocation
from pubstorm.scenario import Scenario, Sweep
from pubstorm.scenario.rewrite import parse_override
from pubstorm.scenario.series import written
from tests.pure.scenario import varied
from tests.pure.scenario.varied import CLIENTS, RATE, labels

THRESHOLDS = "thresholds: [device.lost == 0]"


def load(sweep: str, *overrides: str) -> Scenario:
    return varied.load(THRESHOLDS, f"sweep: {sweep}", overrides=overrides)


def test_one_path_makes_a_step_for_each_value() -> None:
    scenario = load("{vary: {populations.device.clients: [5, 2k]}}")
    steps = [step.scenario for step in scenario.steps]
    assert [step.populations["device"].clients for step in steps] == [5, 2000]
    assert [step.sweep for step in steps] == [None, None]
    assert scenario.populations["device"].clients == 10


def test_several_paths_make_a_grid_whose_last_path_varies_fastest() -> None:
    assert labels(vary={CLIENTS: [1, 2], RATE: ["1/s", "1/6 Hz"]}) == [
        "clients 1, rate 1/s",
        "clients 1, rate 1/6 Hz",
        "clients 2, rate 1/s",
        "clients 2, rate 1/6 Hz",
    ]


def test_steps_are_taken_one_by_one() -> None:
    steps = [{CLIENTS: 300, "stages.0.connect.parallelism": 100}, {}]
    assert labels(steps=steps) == ["clients 300, parallelism 100", "as written"]
    named = [{"step": "a few", CLIENTS: 300}, {CLIENTS: 2000}]
    assert labels(steps=named) == ["a few", "clients 2000"]


def test_a_label_has_as_many_words_as_distinguish_its_path() -> None:
    paths = {"populations.device.clients": [1], "populations.backend.clients": [2]}
    assert labels(vary=paths) == ["device clients 1, backend clients 2"]


def test_a_number_is_no_name_of_a_value() -> None:
    assert labels(vary={"thresholds.0": ["device.lost < 3"]}) == ["thresholds 0 device.lost < 3"]


def test_a_long_value_is_cut_in_a_label() -> None:
    (label,) = labels(vary={"topology.brokers.broker.binary": ["/opt/" + "b" * 60]})
    assert label == "binary /opt/" + "b" * 34 + "…"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (500, "500"),
        ("10k", "10k"),
        ("1/6 Hz", "1/6 Hz"),
        ("500", '"500"'),
        ("true", '"true"'),
        (" x", '" x"'),
        ("a: b", '"a: b"'),
        ("", '""'),
        (None, "null"),
        ({"mean": "500B"}, '{"mean": "500B"}'),
        (["é"], '["é"]'),
    ],
)
def test_a_value_is_written_so_that_it_reads_back_the_same(value: object, text: str) -> None:
    assert written(value) == text
    assert parse_override(f"a={text}").value == value


NAMED = f"""
  steps:
    - step: few boxes
    - {{step: "many boxes, 1/s", {CLIENTS}: 400, {RATE}: 1/s}}
"""


def test_an_override_reaches_a_key_with_dots_in_quotes() -> None:
    for quote in ('"', "'"):
        key = f"sweep.steps.1.{quote}{RATE}{quote}"
        (_, step) = load(NAMED, f"{key}=5/s").steps
        assert step.variation.values[RATE] == "5/s"
    added = load(NAMED, f'sweep.steps.0."{CLIENTS}"=7').steps[0]
    assert added.scenario.populations["device"].clients == 7
    assert places(NAMED, f"sweep.steps.1.{RATE}=5/s")
    with pytest.raises(ScenarioError) as caught:
        load(NAMED, f"sweep.steps.1.{RATE}=5/s")
    assert "in quotes" in (caught.value.problems[0].hint or "")


def test_a_named_step_shows_the_numbers_that_the_scale_changed() -> None:
    labels = [step.played.label for step in load(NAMED, "scale=10%").steps]
    assert labels == ["few boxes", "many boxes, 1/s (clients 40)"]
    assert [step.played.label for step in load(NAMED).steps] == ["few boxes", "many boxes, 1/s"]


@pytest.mark.parametrize(
    ("sweep", "is_ladder"),
    [
        ({"vary": {"a": [1]}}, False),
        ({"variants": {"fast": {"a": 1}}}, False),
        ({"vary": {CLIENTS: [500, "1k", 2000]}}, True),
        ({"vary": {CLIENTS: [500, 300]}}, False),
        ({"vary": {CLIENTS: [500, 500]}}, False),
        ({"vary": {"target": ["mqtt://a", "mqtt://b"]}}, False),
        ({"vary": {CLIENTS: [1, 2], RATE: ["1/s", "2/s"]}}, False),
        ({"steps": [{CLIENTS: 1, RATE: "1/6 Hz"}, {CLIENTS: 2, RATE: "1/s"}]}, True),
        ({"steps": [{CLIENTS: 2, RATE: "1/s"}, {CLIENTS: 2, RATE: "2/s"}]}, True),
        ({"steps": [{}, {CLIENTS: 2}]}, False),
    ],
)
def test_a_ladder_is_a_series_whose_load_only_grows(sweep: dict[str, Any], is_ladder: bool) -> None:
    assert Sweep.model_validate(sweep).is_ladder is is_ladder


def places(sweep: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(sweep, *overrides)
    return [f"{problem.place}: {problem.path}" for problem in caught.value.problems]


def test_every_step_is_checked_and_each_problem_names_the_value_that_brought_it() -> None:
    text = f"""
  vary:
    {CLIENTS}: [10, 10 apples]
    {RATE}: [1/s, fast]
    populations.devise.clients: [1]
"""
    assert places(text) == [
        f"s.yaml:6: sweep.vary.{CLIENTS}.1",
        f"s.yaml:7: sweep.vary.{RATE}.1",
        "s.yaml:8: sweep.vary.populations.devise.clients.0",
    ]


@pytest.mark.parametrize(
    ("override", "count"),
    [
        ("sweep.vary={populations.device.clients: [1, 2]}", 2),
        ("sweep={steps: [{seed: 2}], repeat: 2}", 1),
        ("sweep.repeat=3", 3),
        ("sweep=null", 0),
    ],
)
def test_the_command_line_changes_the_sweep_itself(override: str, count: int) -> None:
    assert len(load("{vary: {seed: [1, 2, 3]}}", override).steps) == count


def test_a_problem_of_a_sweep_from_the_command_line_names_its_setting() -> None:
    override = "sweep={vary: {populations.device.clients: [no]}}"
    assert places("{}", override) == [f"--set {override}: sweep.vary.{CLIENTS}.0"]


def test_a_step_outranks_a_setting_of_the_command_line() -> None:
    scenario = load("{vary: {populations.device.clients: [7]}}", "populations.device.clients=99")
    assert scenario.steps[0].scenario.populations["device"].clients == 7


def test_a_step_remembers_what_it_was_made_with() -> None:
    scenario = load("{vary: {populations.device.clients: [7]}}", "seed=2")
    noted = scenario.steps[0].scenario.source_text.splitlines()[-3:]
    assert noted == [
        "# with --set seed=2",
        "# with --set sweep=null",
        "# with --set populations.device.clients=7",
    ]


def test_the_command_of_a_step_plays_it_alone() -> None:
    asked = Invocation("s.yaml", ("seed=2", "sweep.repeat=2"), "mqtt://h")
    assert (
        asked.command() == "pubstorm run s.yaml --target mqtt://h --set seed=2 --set sweep.repeat=2"
    )
    command = asked.step_command("sweep=null", ["a.rate=1/6 Hz"])
    assert command == (
        "pubstorm run s.yaml --target mqtt://h --set seed=2 --set sweep=null --set 'a.rate=1/6 Hz'"
    )
