"""Bridges in a scenario: what they ask of brokers, of one another and of populations, and what
becomes of them with another target."""

from __future__ import annotations

from pathlib import Path

from pubstorm.scenario import Scenario, parse_scenario
from tests.pure.scenario.bases import BRIDGED, changed


def test_bridges_between_brokers_of_the_run_are_taken() -> None:
    assert parse_scenario(BRIDGED, "s.yaml").topology.bridges["uplink"].to == "cloud"


def test_the_example_of_the_guide_is_a_scenario() -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "bridges.md"
    example = guide.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert parse_scenario(example, "s.yaml").topology.brokers["boxes"].count == 100


def test_another_target_takes_the_place_of_the_main_broker() -> None:
    text = changed(BRIDGED, "populations.app: {clients: 1, at: {brokers: cloud}}")
    scenario = parse_scenario(text, "s.yaml", target="mqtt://other:1884")
    assert list(scenario.topology.brokers) == ["boxes", "more"]
    assert scenario.topology.bridges["uplink"].to == "target"
    assert at_of(scenario, "app") == "target"
    assert at_of(scenario, "device") == "boxes"
    assert [str(target) for target in scenario.target] == ["other:1884"]


def at_of(scenario: Scenario, population: str) -> str | None:
    at = scenario.populations[population].attached_to
    return None if at is None else at.brokers


def test_tls_to_a_target_has_paths_from_the_folder_of_the_file(tmp_path: Path) -> None:
    bridge = "topology.bridges.uplink.to: target, topology.bridges.uplink.tls: {psk: {file: a}}"
    changes = f"target: 'mqtts://other', topology.brokers.cloud: mosquitto, {bridge}"
    scenario = parse_scenario(changed(BRIDGED, changes), str(tmp_path / "s.yaml"))
    tls = scenario.topology.bridges["uplink"].tls
    assert tls is not None and tls.psk is not None
    assert tls.psk.file == str(tmp_path / "a")
