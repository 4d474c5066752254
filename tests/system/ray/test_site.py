"""Agents on a Ray cluster of one node, with the fake agent and with real engines."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install pubstorm[ray]")

from pubstorm.contract.plan import Plan, PlannedTls
from pubstorm.errors import FleetError
from pubstorm.fleet import Slot, SlotLostError
from pubstorm.fleet.ray import RaySite
from pubstorm.fleet.site import AgentCommand, Site
from tests.kit.agents import PlanMaker
from tests.kit.agents import fake_engine as fake_engine
from tests.kit.agents import plan_named as plan_named
from tests.kit.ports import free_ports
from tests.kit.site_contract import (
    DEADLINE_S,
    SiteContract,
    commands,
    wait_until_gone,
    wait_until_none,
)
from tests.system.ray.conftest import CPUS, Node

pytestmark = pytest.mark.xdist_group("ray")


class TestRaySite(SiteContract):
    site_imports = "import os; from pubstorm.fleet.ray import RaySite"
    site_code = 'RaySite(os.environ["PUBSTORM_TEST_RAY"], "pack", folder)'

    @pytest.fixture(autouse=True)
    def cluster(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PUBSTORM_TEST_RAY", node.address)
        self.address = node.address

    def new_site(self, folder: Path) -> Site:
        return RaySite(self.address, "pack", folder)


TALKER = """#!/bin/sh
head -c 3000000 /dev/urandom | base64 -w 0
echo
for i in $(seq 2000); do echo "line $i"; done
echo "a word in the log" >&2
read word
echo "received $word"
stat -c %a . "$(find files -type f -name 'own-*' | head -n 1)" | xargs
find . -type f -printf '%f\\n' | sort | xargs
cat $(find files -name 'own-*' | sort) | xargs
env | grep -c -e ^RAY_ -e ^PYTHON
echo "$SECRET"
exit 7
"""
"""Says much, then what it finds in its folder and environment, and ends with an exit code."""


def talker(folder: Path) -> AgentCommand:
    program = folder / "talker"
    program.write_text(TALKER)
    program.chmod(0o700)
    return AgentCommand((str(program),), "talker", 1, {"SECRET": "of its own"})


def keys_of_two(plan: Plan, folder: Path) -> Plan:
    """The plan with a file that all clients share and one that each has for itself."""
    (folder / "shared").write_text("of all")
    for n in range(10):
        (folder / f"own-{n}").write_text(f"of client {n}\n")
    own = str(folder / "own-{n}")
    tls = PlannedTls(ca=str(folder / "shared"), certificate=own, key=own)
    population = plan.populations[0].model_copy(update={"tls": tls})
    return plan.model_copy(update={"populations": (population,)})


async def lines_of(slot: Slot, number: int) -> list[bytes]:
    async with asyncio.timeout(DEADLINE_S):
        return [await slot.line() for _ in range(number)]


@asynccontextmanager
async def opened(address: str, folder: Path) -> AsyncIterator[RaySite]:
    site = RaySite(address, "pack", folder)
    try:
        await site.open()
        yield site
    finally:
        await site.close()


def test_all_that_an_agent_says_comes_and_it_has_its_files(
    node: Node, tmp_path: Path, plan_named: PlanMaker
) -> None:
    """Also lines of many frames, more of them than are on their way at once."""

    async def play() -> None:
        async with opened(node.address, tmp_path) as site:
            site.localised(keys_of_two(plan_named("x"), tmp_path))
            talk = talker(tmp_path)
            slot, _ = await site.place([talk, talk])
            await slot.spawn()
            (long,) = await lines_of(slot, 1)
            assert len(base64.b64decode(long)) == 3_000_000
            numbered = await lines_of(slot, 2000)
            assert numbered == [f"line {n}\n".encode() for n in range(1, 2001)]
            await slot.send("a word\n")
            said = [line.decode().strip() for line in await lines_of(slot, 6)]
            own = range(0, 10, 2)
            assert said == [
                "received a word",
                "700 600",
                " ".join(f"own-{n}" for n in own),
                " ".join(f"of client {n}" for n in own),
                "0",
                "of its own",
            ]
            assert await slot.line() == b""
            assert await slot.wait() == 7
            assert slot.last_words() == "a word in the log"

    asyncio.run(play())
    wait_until_none(lambda: agents_in(node))


def test_a_worker_that_is_killed_takes_all_with_it_and_says_so(
    node: Node, tmp_path: Path, fake_engine: Path, plan_named: PlanMaker
) -> None:
    """The other agent and a program that cannot be started are reported apart."""
    program = tmp_path / "program"
    program.write_text("#!/does/not/exist\n")

    async def play() -> None:
        async with opened(node.address, tmp_path) as site:
            with pytest.raises(FleetError, match=f"found {CPUS} free processors for {CPUS + 1} "):
                await site.place(commands(fake_engine, *["well"] * (CPUS + 1)))
            broken = AgentCommand((str(program),), "agent 2", 1)
            slot, other, third = await site.place([*commands(fake_engine, "well", "well"), broken])
            with pytest.raises(
                FleetError, match=r"agent 2: cannot start the program in /.*No such"
            ):
                await third.spawn()
            for each in (slot, other):
                await each.spawn()
                await each.send(plan_named("site").to_line())
            pid = int((await lines_of(slot, 1))[0].split(b'"pid": ')[1].split(b",")[0])
            folder = Path(f"/proc/{pid}/cwd").resolve()
            assert folder in agents_in(node)
            os.kill(parent_of(pid), signal.SIGKILL)
            with pytest.raises(SlotLostError, match="the worker on its host died"):
                await lines_of(slot, 1)
            with pytest.raises(SlotLostError):
                await slot.wait()
            wait_until_gone([pid])
            wait_until_none(lambda: [each for each in agents_in(node) if each == folder])
            slot.kill()
            await slot.send("a word without a reader")
            assert await lines_of(other, 1)

    asyncio.run(play())
    wait_until_none(lambda: agents_in(node))


def agents_in(node: Node) -> list[Path]:
    """The folders of agents."""
    return list(node.temporary.glob("pubstorm-*"))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_cluster_that_is_not_there_is_reported_in_words(tmp_path: Path) -> None:
    async def play(address: str) -> None:
        async with opened(address, tmp_path):
            pass

    (port,) = free_ports(1)
    with pytest.raises(FleetError, match=f"cannot reach the Ray cluster 127.0.0.1:{port}"):
        asyncio.run(play(f"127.0.0.1:{port}"))
