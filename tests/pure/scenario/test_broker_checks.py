"""Abilities of kinds of brokers, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.host.keys.clients import check_host_files
from pubstorm.plan import compile_plan, planned_targets, provisional_plan
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.base import hints_of
from pubstorm.scenario.fields import filled
from pubstorm.scenario.problems import shape_of
from pubstorm.scenario.topology import Command, ScenarioTopology
from pubstorm.topology import adapters
from pubstorm.topology.adapters import adapter_of
from tests.pure.scenario.bases import BROKER, changed


def read(broker: str, more: str = "seed: 1") -> Scenario:
    return parse_scenario(changed(BROKER, f"topology.brokers.b: {broker}, {more}"), "s.yaml")


def test_each_kind_of_a_scenario_has_an_adapter_that_states_its_needs() -> None:
    broker = shape_of(ScenarioTopology).below("brokers").below("")
    kinds = {kind.removeprefix("kind ") for kind in broker.kinds}
    folder = Path(adapters.__file__).parent
    assert kinds == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    for kind in kinds:
        adapter = adapter_of(kind)
        assert adapter.kind == kind and adapter.appetite.bytes > 0
        assert bool(adapter.appetite.pipes) == adapter.dies_with_us


def test_every_hint_is_about_a_key_that_a_kind_has() -> None:
    population = shape_of(Scenario).below("populations").below("")
    broker = shape_of(ScenarioTopology).below("brokers").below("")
    flows = (population.below(key).below(0) for key in ("subscriptions", "publications"))
    keys = {*broker.keys, *population.keys, *(key for flow in flows for key in flow.keys)}
    kinds = [*broker.parts.values(), *population.parts.values()]
    assert {key for kind in kinds for key in hints_of(kind)} <= keys


def test_the_nodes_of_a_cluster_are_one_space_of_topics() -> None:
    cluster = "{kind: rabbitmq, count: 2, cluster: true}"
    both = [read("{kind: rabbitmq, count: 2}"), read(cluster)]
    assert [provisional_plan(each).targets_joined for each in both] == [False, True]
    assert read(cluster, "topology.brokers.c: {kind: embedded}, topology.joined: true")


def test_words_of_a_command_are_filled_in() -> None:
    values = {"port": "1883", "folder": "/run/b"}
    assert filled("{folder}/{{x}}:{port}", values) == "/run/b/{x}:1883"
    assert filled("plain", values) == "plain"


def test_a_program_is_from_the_path_or_the_folder_of_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    broker = "topology.brokers.b: {kind: command, command: [PROGRAM, '{port}']}"
    text = changed(BROKER, broker)
    for program, expected in (("sh", "sh"), ("./my/broker", f"{tmp_path}/my/broker")):
        file.write_text(text.replace("PROGRAM", program))
        scenario = load_scenario(file)
        found = scenario.topology.brokers["b"]
        assert isinstance(found, Command) and found.command == (expected, "{port}")
        plan = compile_plan(scenario, planned_targets(scenario), run_tag=1)
        if program == "sh":
            check_host_files(scenario, plan)
        else:
            with pytest.raises(ScenarioError) as caught:
                check_host_files(scenario, plan)
            assert caught.value.problems[0].place == "topology.brokers.b.command.0"
