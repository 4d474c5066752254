"""Where a scenario has its engines run: what is refused there, and the option for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pubstorm.cli import main
from pubstorm.errors import FleetError, ScenarioError, UsageError
from pubstorm.fleet.choice import patience_of, site_of
from pubstorm.fleet.local import LocalSite
from pubstorm.fleet.patience import Patience
from pubstorm.invocation import Invocation
from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario, parse_scenario

MQTT = """\
target: mqtt://broker.example
populations:
  device:
    clients: 10
    publications: [{topic: "data/{n}", rate: 1/s}]
"""
ZEROMQ = """\
populations:
  feed:
    clients: 1
    publisher: libzmq
    publications: [{topic: "", size: 32B, rate: 10/s}]
  reader:
    clients: 10
    at: feed
    subscriber: libzmq
    subscriptions: [""]
"""
BRIDGED = """\
topology:
  brokers:
    main: {kind: mosquitto}
    small: {kind: mosquitto, count: 2}
  bridges:
    uplink:
      from: small
      to: main
      topics: [{topic: "#", direction: both}]
      network: {delay: 10ms}
populations:
  device:
    clients: 10
    at: small
    publications: [{topic: "data/{n}", rate: 1/s}]
  backend: {clients: 1, at: main, subscriptions: ["data/#"]}
"""
STAGES = "stages: [connect: {rate: 100/s}, publish: 1s]\n"


def scenario(text: str, *overrides: str) -> Scenario:
    return parse_scenario(text + STAGES, "s.yaml", overrides)


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        scenario(text, *overrides)
    return [f"{each.path}: {each.message} | {each.hint}" for each in caught.value.problems]


def test_engines_of_mqtt_run_anywhere_and_may_be_lost() -> None:
    for on in ("local", "ray", "ray://10.0.0.1:6379"):
        for policy in ("fail", "continue", "replace"):
            read = scenario(MQTT, f"fleet.on={on}", f"fleet.on_agent_loss={policy}")
            assert (read.fleet.on, read.fleet.on_agent_loss) == (on, policy)


def test_programs_that_are_no_engines_stay_on_this_host() -> None:
    assert problems(ZEROMQ, "fleet.on=ray") == [
        "populations.feed.publisher: found a publisher that the run starts with fleet.on ray, "
        "allowed is what engines play | start the publisher by itself, and write "
        "target: zmq://HOST:PORT",
        "populations.reader.subscriber: found subscribers of libzmq with fleet.on ray, "
        "allowed is what engines play | write subscriber: simulated",
    ]


def test_subscribers_of_a_publisher_elsewhere_run_anywhere() -> None:
    populations = 'populations:\n  reader: {clients: 5, subscriptions: [""]}\n'
    text = f"target: zmq://publisher.example:5556\n{populations}stages: [connect: {{}}, hold: 1s]\n"
    read = parse_scenario(text, "s.yaml", ["fleet.on=ray"])
    assert read.fleet.on == "ray"


@pytest.mark.parametrize("policy", ["continue", "replace"])
def test_nobody_else_plays_such_programs(policy: str) -> None:
    assert problems(ZEROMQ, f"fleet.on_agent_loss={policy}") == [
        f"fleet.on_agent_loss: found {policy} with programs that are no engines, allowed is fail | "
        "nobody else can play publishers and real sockets of ZeroMQ"
    ]


def test_each_agent_may_connect_at_least_one_client_at_a_time() -> None:
    limit = "stages.0.connect.parallelism=3"
    assert scenario(MQTT, "fleet.agents=3", limit).fleet.agents == 3
    assert problems(MQTT, "fleet.agents=4", limit) == [
        "stages.0.connect.parallelism: found 3 with fleet.agents 4, allowed is 4 or more | "
        "each agent connects one client at a time, or more"
    ]


def test_clients_in_a_network_of_this_host_are_not_played_elsewhere() -> None:
    assert scenario(BRIDGED).fleet.on == "local"
    assert problems(BRIDGED, "fleet.on=ray") == [
        "populations.device.at: found clients at small with fleet.on ray, allowed are brokers that "
        "other hosts reach | leave network out of topology.bridges.uplink, or run on local"
    ]


@pytest.mark.parametrize("command", ["run", "check"])
def test_the_option_is_short_for_the_key(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Invocation] = []

    def load(invocation: Invocation) -> None:
        asked.append(invocation)
        raise UsageError("loaded")

    monkeypatch.setattr(Invocation, "load", load)
    assert main([command, "s.yaml", "--on", "ray://h:6379", "--set", "seed=2"]) == 2
    assert capsys.readouterr().err == "error: loaded\n"
    assert asked == [Invocation("s.yaml", ("seed=2", "fleet.on=ray://h:6379"))]
    words = "pubstorm run s.yaml --set seed=2 --set fleet.on=ray://h:6379"
    assert asked[0].command() == words


def test_agents_of_this_host_get_no_beats(tmp_path: Path) -> None:
    read = scenario(MQTT)
    assert isinstance(site_of(read.fleet, tmp_path), LocalSite)
    assert patience_of(read.fleet, provisional_plan(read)) == Patience()


def test_agents_elsewhere_get_beats_and_more_time_to_hear() -> None:
    read = scenario(MQTT, "fleet.on=ray")
    found = patience_of(read.fleet, provisional_plan(read))
    assert found == Patience(beat_s=1.0, start_delay_s=0.5, connect_delay_s=0.5)


def test_seldom_snapshots_are_no_silence() -> None:
    read = scenario(MQTT, "snapshot_interval=20s")
    assert patience_of(read.fleet, provisional_plan(read)).silence_s == 60


def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("pubstorm.fleet.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FleetError, match="the package ray is not installed") as caught:
        site_of(scenario(MQTT, "fleet.on=ray").fleet, tmp_path)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("with its extra: pip install 'WHEEL[ray]'")
