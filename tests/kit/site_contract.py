"""Guarantees of every site for its agents, with the fake agent as real processes.

Each kind of site inherits these tests and defines how it is opened."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pubstorm.contract.commands import EnterStage, Hello, Stop
from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended, Fleet, FleetEvent, SnapshotReceived, Timeouts
from pubstorm.fleet.site import AgentCommand, Site
from tests.kit.agents import PlanMaker

BEATS = Timeouts(silence_s=30, beat_s=0.2, lost_s=2.5)
"""Beats fast enough that a test of silence is short."""
DEADLINE_S = 60
"""A test that waits for so long for anything has failed."""
LEASE_S = 2
LEASE = ("--lease", str(LEASE_S))


@dataclass
class Stage:
    """A fleet that is up, and what came of it."""

    fleet: Fleet
    hellos: tuple[Hello, ...]
    seen: list[FleetEvent]
    queue: asyncio.Queue[FleetEvent]

    async def ending(self) -> Ended:
        """The next last event."""
        while not isinstance(event := await self.queue.get(), Ended):
            pass
        return event

    async def snapshot(self) -> SnapshotReceived:
        """The next snapshot, before which no agent has ended."""
        event = await self.queue.get()
        assert isinstance(event, SnapshotReceived), event
        return event


Script = Callable[[Stage], Awaitable[None]]
Playing = Callable[..., list[FleetEvent]]


def commands(engine: Path, agents: int, *options: str) -> list[AgentCommand]:
    """Fake engines."""
    return [
        AgentCommand((str(engine), "--shard", f"{n}/{agents}", *options), f"agent {n}", agents)
        for n in range(agents)
    ]


def endings(events: Sequence[FleetEvent]) -> list[Ended]:
    """The last events of incarnations, checked that nothing comes of one after its last."""
    found: dict[int, Ended] = {}
    for event in events:
        agent = event.agent if isinstance(event, Ended) else event.snapshot.agent
        before = found.get(agent)
        if isinstance(event, Ended):
            assert before is None or before.incarnation < event.incarnation, event
            found[agent] = event
        else:
            # A new incarnation begins with its snapshot 0.
            assert before is None or event.snapshot.sequence == 0, event
            found.pop(agent, None)
    return [event for event in events if isinstance(event, Ended)]


def is_there(pid: int) -> bool:
    """True if a process runs. A zombie does not run."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False


def wait_until_gone(pids: Sequence[int]) -> None:
    """Waits until none of these processes runs."""
    limit_s = time.monotonic() + DEADLINE_S
    while left := [pid for pid in pids if is_there(pid)]:
        assert time.monotonic() < limit_s, f"{left} are still there"
        time.sleep(0.02)


class SiteContract:
    """To inherit: `new_site` opens nothing yet; `site_code` is an expression that makes the same
    in another process, where `folder` is a Path."""

    site_imports = ""
    site_code = ""
    timeouts = BEATS

    def new_site(self, folder: Path) -> Site:
        """A site whose agents log into the folder."""
        raise AssertionError(f"each kind of site says how one is made for {folder}")

    @pytest.fixture
    def play(self, fake_engine: Path, plan_named: PlanMaker, tmp_path: Path) -> Playing:
        """Brings a fleet of fake agents up on the site, runs a script on it and closes it."""

        def play(
            name: str, agents: int, script: Script, *options: str, timeouts: Timeouts | None = None
        ) -> list[FleetEvent]:
            made = commands(fake_engine, agents, *options)
            limit = timeouts or self.timeouts
            return asyncio.run(self._play(tmp_path, made, plan_named(name), script, limit))

        return play

    async def _play(
        self,
        folder: Path,
        made: Sequence[AgentCommand],
        plan: Plan,
        script: Script,
        timeouts: Timeouts,
    ) -> list[FleetEvent]:
        # A site that hangs fails at the line that waits.
        async with asyncio.timeout(4 * DEADLINE_S):
            return await self._played(folder, made, plan, script, timeouts)

    async def _played(
        self,
        folder: Path,
        made: Sequence[AgentCommand],
        plan: Plan,
        script: Script,
        timeouts: Timeouts,
    ) -> list[FleetEvent]:
        seen: list[FleetEvent] = []
        queue: asyncio.Queue[FleetEvent] = asyncio.Queue()

        def emit(event: FleetEvent) -> None:
            seen.append(event)
            queue.put_nowait(event)

        site = self.new_site(folder)
        try:
            await site.open()
            fleet = Fleet(await site.place(made), emit, timeouts, site.replace)
            try:
                hellos = await fleet.up(site.localised(plan).to_line())
                stage = Stage(fleet, hellos, seen, queue)
                async with asyncio.timeout(DEADLINE_S):
                    await script(stage)
            finally:
                await fleet.close()
                await fleet.close()
        finally:
            await site.close()
            await site.close()
        return seen

    def test_agents_start_together_stream_in_order_and_say_bye(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            assert [hello.agent for hello in stage.hellos] == [0, 1]
            assert set(stage.fleet.hosts) == {0, 1}
            for index in range(3):
                await stage.fleet.command(EnterStage(index=index, at_ns=0))
                for _ in range(2):
                    await stage.snapshot()
            await stage.fleet.command(Stop())
            assert {(await stage.ending()).how for _ in range(2)} == {"bye"}
            assert not stage.fleet.alive

        events = play("well", 2, script)
        frames = [event for event in events if isinstance(event, SnapshotReceived)]
        for agent in range(2):
            own = [f.snapshot.sequence for f in frames if f.snapshot.agent == agent]
            assert own == [0, 1, 2]
        assert {ended.agent for ended in endings(events)} == {0, 1}

    def test_a_crash_is_one_last_event_that_names_the_agent(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            await stage.fleet.command(EnterStage(index=0, at_ns=0))
            ended = await stage.ending()
            assert (ended.agent, ended.how) == (1, "exited")
            assert stage.fleet.alive == {0}
            await stage.fleet.command(EnterStage(index=1, at_ns=0))

        ended = endings(play("crashes-alone", 2, script))
        assert sorted(each.agent for each in ended) == [0, 1]
        text = next(each.text for each in ended if each.agent == 1)
        assert text.startswith("agent 1")
        assert "was killed by signal 9" in text

    def test_an_agent_that_answers_no_beat_is_lost(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            await stage.fleet.command(EnterStage(index=0, at_ns=0))
            ended = await stage.ending()
            assert (ended.agent, ended.how) == (1, "lost")
            assert "has not answered for 2.5 s" in ended.text

        events = play("freezes", 2, script)
        assert [(e.agent, e.how) for e in endings(events)] == [(1, "lost"), (0, "exited")]

    def test_one_that_answers_beats_and_shows_nothing_is_silent(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            ended = await stage.ending()
            assert (ended.how, "sent no snapshot for 3 s" in ended.text) == ("silent", True)

        timeouts = Timeouts(silence_s=3, beat_s=0.2, lost_s=2.5)
        assert len(endings(play("falls-silent", 1, script, timeouts=timeouts))) == 1

    def test_beats_keep_a_lease_and_without_them_it_ends(self, play: Playing) -> None:
        async def kept(stage: Stage) -> None:
            await asyncio.sleep(1.5 * LEASE_S)
            await stage.fleet.command(EnterStage(index=0, at_ns=0))
            await stage.snapshot()
            await stage.fleet.command(Stop())
            assert (await stage.ending()).how == "bye"

        async def over(stage: Stage) -> None:
            assert (await stage.ending()).how == "exited"

        play("well", 1, kept, *LEASE)
        without = Timeouts(silence_s=30, beat_s=None)
        assert len(endings(play("well", 1, over, *LEASE, timeouts=without))) == 1

    def test_closing_ends_even_agents_that_receive_nothing(self, play: Playing) -> None:
        pids: list[int] = []

        async def script(stage: Stage) -> None:
            pids.extend(hello.pid for hello in stage.hellos)

        assert len(endings(play("falls-silent", 2, script))) == 2
        assert len(pids) == 2
        wait_until_gone(pids)

    def test_one_that_leaves_slowly_has_the_time_that_it_is_given(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            await stage.fleet.command(Stop())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await stage.queue.get()
            await stage.fleet.command(Stop())
            assert (await stage.ending()).how == "bye"

        timeouts = Timeouts(silence_s=0.5, beat_s=0.2, lost_s=2.5)
        play("leaves-slowly", 1, script, timeouts=timeouts)

    def test_a_replacement_is_a_new_incarnation_and_the_old_one_is_gone(
        self, play: Playing
    ) -> None:
        async def script(stage: Stage) -> None:
            old = stage.hellos[1]
            await stage.fleet.command(EnterStage(index=0, at_ns=0))
            ended = await stage.ending()
            assert (ended.agent, ended.incarnation) == (1, 0)
            hello = await stage.fleet.replace(1)
            assert (old.version, hello.version) == ("fake 0", "fake 1")
            assert stage.fleet.hellos[1] == hello
            assert stage.fleet.alive == {0, 1}
            wait_until_gone([old.pid])
            await stage.fleet.command(EnterStage(index=1, at_ns=0), to=[1])
            received = await stage.snapshot()
            while received.snapshot.agent != 1:
                received = await stage.snapshot()
            assert (received.snapshot.sequence, received.snapshot.stage) == (0, 1)
            os.kill(hello.pid, signal.SIGKILL)
            ended = await stage.ending()
            assert (ended.agent, ended.incarnation) == (1, 1)
            assert (await stage.fleet.replace(1)).version == "fake 2"
            await stage.fleet.command(Stop())
            assert [(await stage.ending()).how for _ in range(2)] == ["bye", "bye"]

        assert len(endings(play("crashes-once", 2, script))) == 4

    def test_an_agent_that_is_lost_is_replaced(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            await stage.fleet.command(EnterStage(index=0, at_ns=0))
            assert (await stage.ending()).how == "lost"
            assert (await stage.fleet.replace(1)).version == "fake 1"
            wait_until_gone([stage.hellos[1].pid])

        assert len(endings(play("freezes", 2, script, *LEASE))) == 3

    def test_a_replacement_that_does_not_come_up_says_why(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            os.kill(stage.hellos[0].pid, signal.SIGKILL)
            await stage.ending()
            with pytest.raises(FleetError, match="gave up: no such seed"):
                await stage.fleet.replace(0)
            assert not stage.fleet.alive

        assert len(endings(play("comes-back-badly", 1, script))) == 1

    def test_a_fleet_that_is_closed_replaces_no_agent(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            os.kill(stage.hellos[0].pid, signal.SIGKILL)
            await stage.ending()
            replacing = asyncio.create_task(stage.fleet.replace(0))
            await asyncio.sleep(0)
            await stage.fleet.close()
            with pytest.raises(FleetError):
                await replacing
            assert not stage.fleet.alive

        assert len(endings(play("well", 1, script))) == 1

    def test_an_agent_that_does_not_come_up_says_why_and_none_is_left(self, play: Playing) -> None:
        async def script(_stage: Stage) -> None:
            pytest.fail("the fleet is up")

        with pytest.raises(FleetError, match=r"agent [01].* exited with code 7") as caught:
            play("never-says-hello", 2, script)
        assert caught.value.hint == "cannot think of a greeting"

    def test_nothing_is_left_when_the_controller_is_killed(
        self, fake_engine: Path, plan_named: PlanMaker, tmp_path: Path
    ) -> None:
        (tmp_path / "plan").write_text(plan_named("well").to_line())
        words = [CONTROLLER.format(imports=self.site_imports, site=self.site_code)]
        controller = subprocess.Popen(
            [sys.executable, "-c", *words, str(fake_engine), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert controller.stdout is not None
        try:
            pids = [int(word) for word in controller.stdout.readline().split()]
            assert len(pids) == 2
            assert all(map(is_there, pids))
        finally:
            controller.kill()
            controller.wait()
            controller.stdout.close()
        wait_until_gone(pids)


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from pubstorm.fleet import Fleet
from tests.kit.site_contract import BEATS, LEASE, commands
{imports}

async def control(engine, folder):
    site = {site}
    await site.open()
    fleet = Fleet(await site.place(commands(engine, 2, *LEASE)), lambda event: None, BEATS)
    hellos = await fleet.up((folder / "plan").read_text())
    print(*(hello.pid for hello in hellos), flush=True)
    await asyncio.sleep(600)

asyncio.run(control(*map(Path, sys.argv[1:])))
"""
