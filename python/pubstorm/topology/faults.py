"""Breaks brokers and bridges on purpose, and repairs them: signals for brokers, the links of a
proxy or network for bridges, and shell lines, with a time limit and a log, for brokers that the run
did not start. A fault that fails becomes words, and ends nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pubstorm.errors import TopologyError, without_credentials
from pubstorm.host.children import parent_death_prefix, signal_session
from pubstorm.host.machine import last_lines, open_log
from pubstorm.plan.stages import Commands, PlannedFault
from pubstorm.quantities import SECOND_NS, write_duration
from pubstorm.scenario.faults import tcp_address
from pubstorm.topology.bridges.links import LinkState
from pubstorm.topology.bridges.network import Networks
from pubstorm.topology.broker import BrokerProcess

SHELL = "/bin/sh"
PROBE_S = 0.1
"""Longest wait between two looks whether a fault is repaired."""
ATTEMPT_S = 1.0
"""Longest time for one connection."""
SHOWN = 80
"""Characters of a line that messages show."""
Problems = tuple[str, ...]
"""Failures, in words."""


class CommandFaults:
    """Begins faults by command, and repairs them."""

    def __init__(self, folder: Path | None, logs: Path) -> None:
        """`folder`: where commands run, None: that of Pubstorm;
        `logs`: where their output is kept."""
        self._folder = folder
        self._logs = logs

    async def begin(self, fault: PlannedFault) -> Problems:
        """Runs the command; done when it has ended."""
        return await self._run(fault, _of(fault).begin)

    async def undo(self, fault: PlannedFault) -> Problems:
        """Runs the command that undoes it, if there is one."""
        line = _of(fault).repair
        return () if line is None else await self._run(fault, line)

    async def repair(self, fault: PlannedFault) -> Problems:
        """Undoes it, and waits until its end shows."""
        condition = _of(fault).repaired_when
        problems = await self.undo(fault)
        if problems or condition is None:
            return problems
        return await self._wait(fault, condition)

    async def _wait(self, fault: PlannedFault, condition: str) -> Problems:
        """Waits until an address accepts a connection or a command exits with 0."""
        address = tcp_address(condition)
        limit_ns = _of(fault).timeout_ns
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_ns / SECOND_NS):
                if address is not None:
                    while not await _accepts(*address):
                        await asyncio.sleep(PROBE_S)
                else:
                    while await self._run(fault, condition):
                        await asyncio.sleep(PROBE_S)
            return ()
        within = f"within {write_duration(limit_ns)}"
        if address is not None:
            return (f"{address[0]} port {address[1]} accepted no connection {within}",)
        log = self._log(fault).name
        return (f"{_shown(condition)} did not exit with 0 {within}; see logs/{log}",)

    async def _run(self, fault: PlannedFault, line: str) -> Problems:
        """Runs a line once. Returns why it failed."""
        limit_ns, log = _of(fault).timeout_ns, self._log(fault)
        try:
            async with asyncio.timeout(limit_ns / SECOND_NS):
                code = await self._exit_code(fault, line)
        except TimeoutError:
            text = f"{_shown(line)} did not end within {write_duration(limit_ns)} and was killed"
            return (f"{text}; see logs/{log.name}",)
        except OSError as error:
            return (f"{_shown(line)} cannot be run: {error.strerror}",)
        if not code:
            return ()
        ended = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = last_lines(log, 1)
        words = "" if said.startswith("$ ") else f": {_shown(said)}"
        return (f"{_shown(line)} {ended}{words}; see logs/{log.name}",)

    async def _exit_code(self, fault: PlannedFault, line: str) -> int:
        """Runs a line in a session of its own, and kills the session if the wait is cancelled."""
        with open_log(self._log(fault)) as log:
            if log is not None:
                log.write(f"$ {without_credentials(line)}\n".encode())
                log.flush()
            process = await asyncio.create_subprocess_exec(
                *parent_death_prefix(),
                SHELL,
                "-c",
                line,
                cwd=self._folder,
                stdin=DEVNULL,
                stdout=DEVNULL if log is None else log,
                stderr=STDOUT,
                start_new_session=True,
            )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise

    def _log(self, fault: PlannedFault) -> Path:
        return self._logs / f"fault-{re.sub(r'[^A-Za-z0-9_-]+', '-', fault.name)[:60]}.log"


async def _end(process: Process) -> None:
    signal_session(process, signal.SIGKILL)
    await process.wait()


async def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ATTEMPT_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


def _of(fault: PlannedFault) -> Commands:
    assert fault.commands is not None, "a fault by command has commands"
    return fault.commands


def _shown(text: str) -> str:
    line = " ".join(without_credentials(text).split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


RESTARTS_AT_ONCE = 16
KILLED_TIMEOUT_S = 10.0
"""Longest time until the kernel has ended a killed process."""


class Brokers(Protocol):
    """The brokers of a run, as far as faults know them."""

    def broker(self, name: str) -> BrokerProcess:
        """The broker of this name."""

    def rotate(self, names: Sequence[str]) -> None:
        """Gives brokers a new certificate; raises TopologyError."""

    def expect(self, name: str, ending: bool) -> None:
        """Sets whether the end of a broker is intended, so that it does not count as a failure."""


class FaultLinks(Protocol):
    """The links of bridges that faults cut or delay."""

    async def set(self, name: str, numbers: Sequence[int], state: LinkState) -> None:
        """From now on links of the bridges of a name do this; raises TopologyError."""


class Faults:
    """Begins faults and repairs them."""

    def __init__(
        self,
        brokers: Brokers,
        links: FaultLinks,
        networks: Networks | None = None,
        commands: CommandFaults | None = None,
    ) -> None:
        self._brokers = brokers
        self._links = links
        self._commands = commands
        self._networks = networks
        self._broken: list[PlannedFault] = []

    async def begin(self, fault: PlannedFault) -> Problems:
        """Breaks all its victims at once; done when they are broken."""
        self._broken.append(fault)
        match fault.kind:
            case "stop":
                return await self._stop(fault.victims)
            case "kill":
                return await self._kill(fault.victims)
            case "freeze":
                return self._signal(fault.victims, signal.SIGSTOP)
            case "rotate":
                return self._rotate(fault.victims)
            case "cut" if fault.how == "unplug":
                return await self._plug(fault, is_in=False)
            case "cut" | "delay":
                return await self._set(fault, _broken_state(fault))
            case "command":
                return await self._by_command.begin(fault)

    async def repair(self, fault: PlannedFault) -> Problems:
        """Undoes it; done when brokers accept connections again, and bridges may connect."""
        match fault.kind:
            case "stop" | "kill":
                problems = await self._restart(fault.victims)
            case "freeze":
                problems = self._signal(fault.victims, signal.SIGCONT)
            case "rotate":
                problems = ()
            case "cut" if fault.how == "unplug":
                problems = await self._plug(fault, is_in=True)
            case "cut" | "delay":
                problems = await self._set(fault, LinkState())
            case "command":
                problems = await self._by_command.repair(fault)
        self._broken.remove(fault)
        return problems

    async def undo_commands(self) -> Problems:
        """Runs the commands that undo what is not repaired: nothing else restores brokers that the
        run did not start."""
        begun = [fault for fault in self._broken if fault.kind == "command"]
        self._broken = [fault for fault in self._broken if fault not in begun]
        problems = [await self._by_command.undo(fault) for fault in begun]
        return tuple(text for found in problems for text in found)

    @property
    def _by_command(self) -> CommandFaults:
        assert self._commands is not None, "a run with such faults has what plays them"
        return self._commands

    async def repair_all(self) -> Problems:
        """Undoes whatever is not repaired, also what was to last for ever."""
        problems = [await self.repair(fault) for fault in tuple(self._broken)]
        return tuple(text for found in problems for text in found)

    async def _stop(self, names: Sequence[str]) -> Problems:
        """Ends brokers with SIGTERM, so that each can write its state and close its connections."""
        brokers, gone = self._expect_ends(names, "stopped")

        async def stop(broker: BrokerProcess) -> None:
            if not await broker.stop():
                text = f"broker {broker.name} did not end within {broker.stop_grace_s:g} s"
                raise TopologyError(f"{text} of SIGTERM and was killed")

        return (*gone, *await _each(brokers, stop, at_once=len(brokers)))

    async def _kill(self, names: Sequence[str]) -> Problems:
        brokers, gone = self._expect_ends(names, "killed")
        for broker in brokers:
            broker.send(signal.SIGKILL)

        async def end(broker: BrokerProcess) -> None:
            try:
                async with asyncio.timeout(KILLED_TIMEOUT_S):
                    await broker.ending()
            except TimeoutError:
                text = f"broker {broker.name} did not end within {KILLED_TIMEOUT_S:.0f} s"
                raise TopologyError(f"{text} of SIGKILL") from None

        return (*gone, *await _each(brokers, end, at_once=len(brokers)))

    def _expect_ends(self, names: Sequence[str], done: str) -> tuple[list[BrokerProcess], Problems]:
        """The brokers whose ends are expected from here on, and a problem for each that was gone
        before it could be `done`."""
        brokers = [self._brokers.broker(name) for name in names]
        gone = [f"broker {b.name} was gone before it could be {done}" for b in brokers if b.gone()]
        for broker in brokers:
            self._brokers.expect(broker.name, True)
        return brokers, tuple(gone)

    async def _restart(self, names: Sequence[str]) -> Problems:
        async def restart(broker: BrokerProcess) -> None:
            if broker.gone():
                await broker.restart()
            self._brokers.expect(broker.name, False)

        brokers = [self._brokers.broker(name) for name in names]
        return await _each(brokers, restart, at_once=RESTARTS_AT_ONCE)

    def _signal(self, names: Sequence[str], number: signal.Signals) -> Problems:
        brokers = [self._brokers.broker(name) for name in names]
        for broker in brokers:
            broker.send(number)
        return tuple(
            f"broker {broker.name} is gone and takes no {number.name}"
            for broker in brokers
            if broker.gone()
        )

    def _rotate(self, names: Sequence[str]) -> Problems:
        try:
            self._brokers.rotate(names)
        except TopologyError as error:
            return (error.message,)
        return self._signal(names, signal.SIGHUP)

    async def _set(self, fault: PlannedFault, state: LinkState) -> Problems:
        try:
            await self._links.set(fault.group, fault.numbers, state)
        except TopologyError as error:
            return (f"bridges {fault.group}: {error.message}",)
        return ()

    async def _plug(self, fault: PlannedFault, *, is_in: bool) -> Problems:
        network = None if self._networks is None else self._networks.of_bridge(fault.group)
        if network is None:
            return (f"bridges {fault.group} have no network that could be unplugged",)
        try:
            await (network.plug() if is_in else network.unplug())
        except TopologyError as error:
            return (f"bridges {fault.group}: {error.message}",)
        return ()


def _broken_state(fault: PlannedFault) -> LinkState:
    if fault.kind == "delay":
        return LinkState("pass", fault.delay_ns)
    return LinkState("stall" if fault.how == "stall" else "close")


async def _each(
    brokers: Iterable[BrokerProcess],
    step: Callable[[BrokerProcess], Awaitable[None]],
    *,
    at_once: int,
) -> Problems:
    """Takes a step with every broker, so many at once; what went wrong with some."""
    places = asyncio.Semaphore(at_once)

    async def take(broker: BrokerProcess) -> str | None:
        async with places:
            try:
                await step(broker)
            except TopologyError as error:
                return error.message
        return None

    found = await asyncio.gather(*map(take, brokers))
    return tuple(text for text in found if text is not None)
