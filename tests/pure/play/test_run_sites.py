"""A run and its site: it opens one, asks it for places, and closes it in every ending."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError, PubstormError
from pubstorm.fleet import Fleet, Slot
from pubstorm.fleet.local import LocalSlot
from pubstorm.fleet.provision import Placement, Provision
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.machine import OneHost
from pubstorm.host.preflight.needs import AgentHost
from pubstorm.plan import provisional_plan
from pubstorm.play import one_run
from pubstorm.play.display import Live
from pubstorm.play.one_run import RunOptions, run_scenario
from pubstorm.scenario import Scenario, parse_scenario

TEXT = """\
target: mqtt://127.0.0.1:1
clean_start: skip
monitors: {brokers: false}
populations:
  device:
    clients: 30k
    publications: [{topic: "data/{n}", rate: 1/s}]
stages: [connect: {rate: 100/s, timeout: 1s}, publish: 1s]
"""


class ElsewhereSlot(LocalSlot):
    """The place of an agent on another host."""

    @property
    def host(self) -> str:
        return f"10.0.0.{self.command.title[-1]}"


class Elsewhere:
    """Three hosts, on which nothing is ever started."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hangs = ""

    def hosts(self, label: str | None) -> Sequence[AgentHost]:  # noqa: ARG002
        return [AgentHost(f"10.0.0.{n}", "x86_64", 4, 5_000, 2**34) for n in range(3)]

    async def open(self) -> None:
        await self.called("open")

    def localised(self, plan: Plan) -> Plan:
        self.calls.append("localised")
        return plan

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        await self.called("place")
        return [ElsewhereSlot(command, Path("log")) for command in commands]

    async def place_programs(
        self, commands: Sequence[AgentCommand], addresses: Sequence[str]
    ) -> Sequence[Slot]:
        await self.called(f"place {', '.join(addresses)}")
        return [ElsewhereSlot(command, Path("log")) for command in commands]

    async def replace(self, agent: int) -> Slot:
        raise FleetError(f"there is no other host for agent {agent}")

    async def close(self) -> None:
        self.calls.append("close")

    async def called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.hangs:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()


def scenario(*overrides: str) -> Scenario:
    return parse_scenario(TEXT, "s.yaml", ("fleet.on=ray", *overrides))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """The site of every run."""
    made = Elsewhere()
    monkeypatch.setattr(one_run, "site_of", lambda *_: made)
    monkeypatch.setattr("pubstorm.fleet.programs.engine_path", lambda: Path("engine"))
    return made


def fails(tmp_path: Path, *overrides: str) -> PubstormError:
    """Plays a run that comes to no measurement."""
    with pytest.raises(PubstormError) as caught:
        run_scenario(scenario(*overrides), RunOptions(tmp_path / "run"), Live())
    return caught.value


@pytest.mark.parametrize(
    ("hangs", "calls"),
    [("open", ["open", "close"]), ("place", ["open", "localised", "place", "close"])],
)
def test_a_site_is_closed_where_its_run_is_interrupted_before_it_begins(
    site: Elsewhere, tmp_path: Path, hangs: str, calls: list[str]
) -> None:
    site.hangs = hangs
    error = fails(tmp_path)
    assert (error.message, error.exit_code) == ("interrupted before the first stage", 130)
    assert site.calls == calls


def test_an_interrupt_as_soon_as_the_folder_exists_leaves_no_reserve(
    site: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Interrupting(Live):
        def begin(self, _name: str, _folder: Path) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(PubstormError) as caught:
        run_scenario(scenario(), RunOptions(tmp_path / "run"), Interrupting())
    assert caught.value.exit_code == 130
    assert site.calls[-1:] in ([], ["close"])
    assert (tmp_path / "run" / "scenario.yaml").exists()
    assert not (tmp_path / "run" / ".reserve").exists()


def test_a_site_is_closed_where_there_is_no_room(site: Elsewhere, tmp_path: Path) -> None:
    assert "allowed are 3" in fails(tmp_path, "fleet.agents=4").message
    assert site.calls == ["open", "localised", "close"]


def test_a_site_that_does_not_open_is_closed(
    site: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "open", partial(site.replace, 0))
    assert fails(tmp_path).message == "there is no other host for agent 0"
    assert site.calls == ["close"]


def staffed(site: Elsewhere, read: Scenario, folder: Path) -> tuple[Fleet, list[str]]:
    placement = Placement(read, OneHost())
    provision = Provision(read, provisional_plan(read), site, placement, {})
    fleet = asyncio.run(provision.fleet(folder, lambda _: None))
    return fleet, provision.shortages()


def test_each_host_is_evaluated_by_its_own_agents(site: Elsewhere, tmp_path: Path) -> None:
    fleet, shortages = staffed(site, scenario(), tmp_path)
    assert fleet.hosts == {0: "10.0.0.0", 1: "10.0.0.1", 2: "10.0.0.2"}
    assert fleet.timeouts.beat_s == 1.0
    assert shortages == [
        f"10.0.0.{n} is short of open files of an agent: 10,200 of 5,000: "
        "ulimit -n 10200, or 7 agents: as many hosts, or --set fleet.spread=pack"
        for n in range(3)
    ]


def test_hosts_that_have_enough_are_short_of_nothing(site: Elsewhere, tmp_path: Path) -> None:
    _, shortages = staffed(site, scenario("populations.device.clients=3k"), tmp_path)
    assert shortages == []
