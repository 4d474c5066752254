"""Bridges in a scenario: what they ask of brokers, of one another and of populations, and what
becomes of them with another target."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.scenario import Scenario, parse_scenario

BASE = """\
topology:
  brokers:
    cloud: {kind: mosquitto, passwords: true}
    boxes: {kind: mosquitto, count: 3}
    more: {kind: mosquitto, count: 2}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics: [{topic: up/#, direction: out}]
populations:
  device: {clients: 3, at: boxes, subscriptions: [a]}
stages: [connect]
"""


def with_line(after: str, line: str) -> str:
    assert after in BASE
    return BASE.replace(after, f"{after}\n{line}")


def problems(text: str, target: str | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml", target=target)
    return [str(problem) for problem in caught.value.problems]


def test_bridges_between_brokers_of_the_run_are_taken() -> None:
    assert parse_scenario(BASE, "s.yaml").topology.bridges["uplink"].to == "cloud"


def test_the_example_of_the_guide_is_a_scenario() -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "bridges.md"
    example = guide.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert parse_scenario(example, "s.yaml").topology.brokers["boxes"].count == 100


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("from: boxes", "from: box", "bridges.uplink.from: found the unknown broker 'box'"),
        ("to: cloud", "to: clouds", "bridges.uplink.to: found the unknown broker 'clouds'"),
        ("to: cloud", "to: boxes", "to: found bridges from boxes to itself"),
        ("to: cloud", "to: more", "to: found bridges to more, which stands for 2 brokers"),
        ("to: cloud", "to: target", "to: found a bridge to target and no targets"),
        ("boxes: {kind: mosquitto,", "boxes: {kind: embedded,", "from boxes of kind embedded"),
        ("passwords: true", 'acl: ["topic read a"]', "cloud.acl: found acl without passwords"),
        ("topic: up/#", 'topic: "up/{1..3}"', "topics.0.topic: found a range in 'up/{1..3}'"),
        ("topic: up/#", 'topic: "up x/#"', "topics.0.topic: found 'up x/#'"),
        (", at: boxes", "", "populations.device: found no at"),
        ("at: boxes", "at: bo", "populations.device.at: found the unknown broker 'bo'"),
        ("at: boxes", "at: {brokers: boxes, first: 3}", "at.first: found first 3"),
        ("at: boxes", "at: {brokers: boxes, first: 1, count: 3}", "at.count: found 3 from number"),
        ("topology:", "topology:\n  joined: true", "joined: found joined and bridges"),
        ("topology:", "target: mqtt://other\ntopology:", "target: found a target and topology"),
    ],
)
def test_what_does_not_fit_is_a_problem_at_its_place(old: str, new: str, found: str) -> None:
    assert old in BASE
    assert any(found in problem for problem in problems(BASE.replace(old, new)))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("client_id: box", "client_id: found the same client id for some of 3 bridges"),
        ("keep_alive: 4s", "keep_alive: found 4s, allowed are 5s and more"),
        ("reconnect: {after: 1500ms}", "reconnect.after: found 1500ms, allowed are whole seconds"),
        ("settings: {topic: x}", "settings.topic: found topic in settings"),
        ("tls: {verify: false}", "tls: found tls for a broker that the run starts"),
    ],
)
def test_what_a_bridge_says_of_itself_is_checked(line: str, found: str) -> None:
    text = with_line("      to: cloud", f"      {line}")
    assert any(f"topology.bridges.uplink.{found}" in problem for problem in problems(text))


def test_a_main_broker_of_another_kind_would_send_messages_back() -> None:
    text = BASE.replace("cloud: {kind: mosquitto, passwords: true}", "cloud: embedded")
    parse_scenario(text, "s.yaml")
    found = problems(text.replace("direction: out", "direction: both"))
    assert "found both to a main broker of kind embedded" in found[0]


def test_a_chain_of_bridges_and_a_client_id_of_two_are_problems() -> None:
    topics = "topics: [{topic: a, direction: out}]"
    chain = f"    on: {{from: cloud, to: boxes, {topics}}}\n    twin: {{from: more, to: cloud, "
    chain += f'client_id: "uplink-{{n}}", {topics}}}'
    found = problems(with_line("topics: [{topic: up/#, direction: out}]", chain))
    assert any("on.from: found bridges from cloud, to which other" in text for text in found)
    assert any("twin.client_id: found the client id 'uplink-0' of bridge" in text for text in found)


def test_the_number_of_bridges_that_are_up_can_be_a_condition() -> None:
    thresholds = 'thresholds: ["uplink.connected.min == 3", "uplink.connected@connect == 3"]'
    assert parse_scenario(f"{BASE}{thresholds}\n", "s.yaml").thresholds
    for wrong in ("uplink.cpu < 1", "device.connected.min == 3", "cloud.connected == 3"):
        assert problems(f'{BASE}thresholds: ["{wrong}"]\n')


def test_a_name_is_of_a_bridge_or_of_something_else() -> None:
    assert "which is also a broker" in problems(BASE.replace("uplink", "boxes"))[0]


def test_another_target_takes_the_place_of_the_main_broker() -> None:
    text = with_line("populations:", "  app: {clients: 1, at: {brokers: cloud}}")
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
    text = BASE.replace("passwords: true", "").replace("to: cloud", "to: target")
    text = text.replace("      topics", "      tls: {psk: {file: keys.txt}}\n      topics")
    scenario = parse_scenario(f"target: mqtts://other\n{text}", str(tmp_path / "s.yaml"))
    tls = scenario.topology.bridges["uplink"].tls
    assert tls is not None and tls.psk is not None
    assert tls.psk.file == str(tmp_path / "keys.txt")
    for key in ("server_name: other", "ciphers: ALL"):
        changed = f"target: mqtts://other\n{text}".replace("tls: {", f"tls: {{{key}, ")
        assert "which mosquitto's bridges have no setting for" in problems(changed)[0]
