"""Guarantees of every site for its agents, with the fake agent as real processes.

Each kind of site inherits these tests and defines how it is opened. What a fleet does wherever its
agents are is played in virtual time, in tests/pure/fleet."""

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
from typing import Any

import pytest

from pubstorm.contract.commands import EnterStage, Hello
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended, Fleet, FleetEvent, SnapshotReceived, Timeouts
from pubstorm.fleet.site import AgentCommand, Site
from tests.kit.agents import PlanMaker

BEATS = Timeouts(silence_s=600, beat_s=0.2, lost_s=60)
"""No healthy agent of a busy host is lost."""
DEADLINE_S = 120
"""A test that waits for so long for anything has failed."""


@dataclass
class Stage:
    """A fleet that is up, and what came of it."""

    fleet: Fleet
    hellos: tuple[Hello, ...]
    queue: asyncio.Queue[FleetEvent]

    async def ending(self) -> tuple[int, int, str]:
        """Agent, incarnation and manner of the next last event, which names its agent."""
        while not isinstance(event := await self.queue.get(), Ended):
            pass
        assert event.text.startswith(f"agent {event.agent}")
        return event.agent, event.incarnation, event.how

    async def snapshot(self) -> tuple[int, int, int | None]:
        """Agent, number and stage of the next snapshot, before which no agent has ended."""
        event = await self.queue.get()
        assert isinstance(event, SnapshotReceived), event
        return event.snapshot.agent, event.snapshot.sequence, event.snapshot.stage


Script = Callable[[Stage], Awaitable[None]]
Playing = Callable[..., list[Ended]]


def commands(engine: Path, *behaviours: str) -> list[AgentCommand]:
    """A fake engine of each behaviour."""
    agents = len(behaviours)
    return [
        AgentCommand(
            (str(engine), "--behaviour", behaviour, "--shard", f"{n}/{agents}"),
            f"agent {n}",
            agents,
        )
        for n, behaviour in enumerate(behaviours)
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


def wait_until_none(found: Callable[[], Sequence[object]]) -> None:
    """Waits until nothing is found any more."""
    limit_s = time.monotonic() + DEADLINE_S
    while left := found():
        assert time.monotonic() < limit_s, f"{left} are still there"
        time.sleep(0.02)


def wait_until_gone(pids: Sequence[int]) -> None:
    """Waits until none of these processes runs."""
    wait_until_none(lambda: [pid for pid in pids if is_there(pid)])


class SiteContract:
    """To inherit: `new_site` opens nothing yet; `site_code` is an expression that makes the same
    in another process, where `folder` is a Path."""

    site_imports = ""
    site_code = ""

    def new_site(self, folder: Path) -> Site:
        """A site whose agents log into the folder."""
        raise AssertionError(f"each kind of site says how one is made for {folder}")

    @pytest.fixture
    def play(self, fake_engine: Path, plan_named: PlanMaker, tmp_path: Path) -> Playing:
        """Brings a fleet of fake agents up on the site, runs a script on it, closes both twice, and
        returns the last events."""

        async def run(script: Script, behaviours: Sequence[str], timeouts: Timeouts) -> list[Ended]:
            seen: list[FleetEvent] = []
            queue: asyncio.Queue[FleetEvent] = asyncio.Queue()

            def emit(event: FleetEvent) -> None:
                seen.append(event)
                queue.put_nowait(event)

            site = self.new_site(tmp_path)
            try:
                await site.open()
                slots = await site.place(commands(fake_engine, *behaviours))
                fleet = Fleet(slots, emit, timeouts, site.replace)
                try:
                    hellos = await fleet.up(site.localised(plan_named("site")).to_line())
                    async with asyncio.timeout(DEADLINE_S):
                        await script(Stage(fleet, hellos, queue))
                finally:
                    await fleet.close()
                    await fleet.close()
            finally:
                await site.close()
                await site.close()
            return endings(seen)

        async def in_time(*given: Any) -> list[Ended]:
            # A site that hangs fails at the line that waits.
            async with asyncio.timeout(4 * DEADLINE_S):
                return await run(*given)

        return lambda script, *behaviours, timeouts=BEATS: asyncio.run(
            in_time(script, behaviours, timeouts)
        )

    def test_agents_stream_end_come_back_and_are_closed(self, play: Playing) -> None:
        """Agent 0 plays to its end, agent 1 crashes, agent 2 receives nothing."""
        pids: list[int] = []

        async def script(stage: Stage) -> None:
            fleet, olds = stage.fleet, stage.hellos
            assert [(each.agent, each.version) for each in olds] == [
                (n, "fake 0") for n in range(3)
            ]
            assert set(fleet.hosts) == {0, 1, 2}
            for agent in (0, 1):
                await fleet.command(EnterStage(index=0, at_ns=0), to=[agent])
                assert await stage.snapshot() == (agent, 0, 0)
            assert await stage.ending() == (1, 0, "exited")
            assert fleet.alive == {0, 2}

            hello = await fleet.replace(1)
            assert (hello.agent, hello.version) == (1, "fake 1")
            assert fleet.hellos[1] == hello
            assert fleet.alive == {0, 1, 2}
            wait_until_gone([olds[1].pid])
            for index in (1, 2):
                await fleet.command(EnterStage(index=index, at_ns=0), to=[0, 1])
                received = {await stage.snapshot() for _ in range(2)}
                assert received == {(0, index, index), (1, index - 1, index)}

            os.kill(hello.pid, signal.SIGKILL)
            assert await stage.ending() == (1, 1, "exited")
            with pytest.raises(FleetError, match=r"agent 1.* exited with code 7") as caught:
                await fleet.replace(1)
            assert caught.value.hint == "cannot think of a greeting"
            assert fleet.alive == {0, 2}

            await fleet.stop(600, to=[0])
            assert await stage.ending() == (0, 0, "bye")
            replacing = asyncio.create_task(fleet.replace(0))
            await asyncio.sleep(0)
            await fleet.close()
            with pytest.raises(FleetError):
                await replacing
            assert not fleet.alive
            pids.extend(each.pid for each in (*olds, hello))

        ended = play(script, "well", "crashes", "falls-silent")
        assert [(each.agent, each.incarnation) for each in ended] == [
            (1, 0),
            (1, 1),
            (0, 0),
            (2, 0),
        ]
        assert all("was killed by signal 9" in each.text for each in ended[:2])
        wait_until_gone(pids)

    def test_an_agent_that_stands_still_is_lost_and_replaced(self, play: Playing) -> None:
        async def script(stage: Stage) -> None:
            (old,) = stage.hellos
            os.kill(old.pid, signal.SIGSTOP)
            assert await stage.ending() == (0, 0, "lost")
            assert (await stage.fleet.replace(0)).version == "fake 1"
            wait_until_gone([old.pid])

        lost, _ = play(script, "well", timeouts=Timeouts(silence_s=600, beat_s=0.2, lost_s=0.5))
        assert "has not answered for 0.5 s" in lost.text

    def test_nothing_is_left_when_the_controller_is_killed(
        self, fake_engine: Path, plan_named: PlanMaker, tmp_path: Path
    ) -> None:
        (tmp_path / "plan").write_text(plan_named("site").to_line())
        program = CONTROLLER.format(imports=self.site_imports, site=self.site_code)
        controller = subprocess.Popen(
            [sys.executable, "-c", program, str(fake_engine), str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert controller.stdout is not None
        try:
            pid = int(controller.stdout.readline())
            assert is_there(pid)
        finally:
            controller.kill()
            controller.wait()
            controller.stdout.close()
        wait_until_gone([pid])


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from pubstorm.fleet import Fleet, Timeouts
from pubstorm.fleet.local import engine_command
{imports}

async def control(engine, folder):
    site = {site}
    await site.open()
    slots = await site.place([engine_command(engine, 0, 1)])
    fleet = Fleet(slots, lambda event: None, Timeouts(beat_s=0.2, lost_s=60))
    (hello,) = await fleet.up((folder / "plan").read_text())
    print(hello.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(control(*map(Path, sys.argv[1:])))
"""
