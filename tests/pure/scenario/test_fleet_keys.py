"""The keys of `fleet`, and the option `--on`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pubstorm.cli import main
from pubstorm.errors import FleetError, UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.fleet.choice import site_of, timeouts_of
from pubstorm.fleet.incarnation import Timeouts
from pubstorm.fleet.local import LocalSite
from pubstorm.fleet.programs import EngineGroup, group_commands, populations_by_hosts
from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario, parse_scenario
from tests.pure.scenario.bases import BROKER, FEED, SMALL, changed

REAL = "populations.subscriber.subscriber=libzmq"
FEED_AT = "populations.feed.hosts=pub"
SUBSCRIBER_AT = "populations.subscriber.hosts=load"


def scenario(text: str, *overrides: str) -> Scenario:
    return parse_scenario(text, "s.yaml", overrides)


def test_engines_of_mqtt_run_anywhere_and_may_be_lost() -> None:
    for on in ("local", "ray", "ray://10.0.0.1:6379"):
        for policy in ("fail", "continue", "replace"):
            read = scenario(SMALL, f"fleet.on={on}", f"fleet.on_agent_failure={policy}")
            assert (read.fleet.on, read.fleet.on_agent_failure) == (on, policy)


def test_programs_that_are_no_engines_are_placed_like_servers() -> None:
    read = scenario(FEED, REAL, "fleet.on=ray", FEED_AT, SUBSCRIBER_AT)
    assert read.server_labels == {"pub"}
    assert scenario(FEED, REAL, "fleet.on=ray").server_labels == set()
    assert scenario(FEED, REAL, FEED_AT).fleet.on == "local"
    python = "populations.feed.publisher.kind=pyzmq"
    assert scenario(FEED, REAL, "fleet.on=ray", python, SUBSCRIBER_AT).fleet.on == "ray"


def test_populations_are_played_on_hosts_of_their_own() -> None:
    read = scenario(SMALL, "fleet.on=ray", "populations.device.hosts=far")
    assert (read.engine_labels, read.server_labels) == (frozenset({"far"}), frozenset())
    assert populations_by_hosts(read, provisional_plan(read)) == {"far": (0,)}
    here = scenario(SMALL, "populations.device.hosts=far")
    assert populations_by_hosts(here, provisional_plan(here)) == {None: (0,)}
    same = scenario(SMALL, "fleet.on=ray", "fleet.hosts=far", "populations.device.hosts=far")
    assert same.engine_labels == set()
    assert populations_by_hosts(same, provisional_plan(same)) == {None: (0,)}


def test_shares_are_with_their_population_and_programs_with_no_engine() -> None:
    slow = "{slow: {part: 50%, read_rate: 1/s}}"
    more = f"  more: {{clients: 9, at: feed, subscriptions: [''], hosts: far, shares: {slow}}}\n"
    read = scenario(FEED + more, REAL, "fleet.on=ray")
    assert populations_by_hosts(read, provisional_plan(read)) == {"far": (2, 3)}
    programs = scenario(FEED, REAL, "fleet.on=ray")
    assert populations_by_hosts(programs, provisional_plan(programs)) == {None: ()}


def test_engines_of_a_group_play_shares_of_its_populations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubstorm.fleet.programs.engine_path", lambda: Path("engine"))
    alone = group_commands([EngineGroup("far", (0, 1), 2)])
    assert [each.words for each in alone] == [
        ("engine", "--shard", "0/2"),
        ("engine", "--shard", "1/2"),
    ]
    assert {each.hosts for each in alone} == {"far"}
    commands = group_commands([EngineGroup(None, (0, 2), 1), EngineGroup("far", (1,), 2)])
    assert [" ".join(each.words[1:]) for each in commands] == [
        "--shard 0/1 --agent 0/3 --populations 0,2",
        "--shard 0/2 --agent 1/3 --populations 1",
        "--shard 1/2 --agent 2/3 --populations 1",
    ]
    assert [(c.title, c.agents, c.hosts, c.share) for c in commands] == [
        ("agent 0", 3, None, (0, 1)),
        ("agent 1", 3, "far", (0, 2)),
        ("agent 2", 3, "far", (1, 2)),
    ]


def test_servers_are_placed_by_labels_or_addresses() -> None:
    text = changed(BROKER, "topology.brokers.b: {kind: mosquitto, hosts: broker}")
    read = parse_scenario(text, "s.yaml", ["fleet.on=ray", "fleet.hosts=10.0.0.7"])
    assert read.fleet.hosts == "10.0.0.7"
    assert read.topology.labels == {"broker"}


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
    read = scenario(SMALL)
    assert isinstance(site_of(read, tmp_path), LocalSite)
    assert timeouts_of(read.fleet, provisional_plan(read)) == Timeouts()


def test_agents_elsewhere_get_beats_and_a_longer_time_out() -> None:
    read = scenario(SMALL, "fleet.on=ray")
    found = timeouts_of(read.fleet, provisional_plan(read))
    assert found == Timeouts(beat_s=1.0, start_delay_s=0.5, connect_delay_s=0.5)


def test_seldom_snapshots_are_no_silence() -> None:
    read = scenario(SMALL, "snapshot_interval=20s")
    assert timeouts_of(read.fleet, provisional_plan(read)).silence_s == 60


def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("pubstorm.fleet.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    read = scenario(SMALL, "fleet.on=ray")
    with pytest.raises(FleetError) as caught:
        site_of(read, tmp_path)
    assert "pip install 'WHEEL[ray]'" in (caught.value.hint or "")
