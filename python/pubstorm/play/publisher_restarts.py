"""Stops publishers under test on purpose, and starts them again: each process says bye with all
that it has sent, and the next one on the same port continues its streams. What was scheduled in
between counts as skipped."""

from __future__ import annotations

import asyncio

from pubstorm.contract.commands import ApplyChange, EnterStage, Resume
from pubstorm.contract.plan import ChangeRate
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended
from pubstorm.plan.stages import PlannedFault
from pubstorm.play.context import RunContext


class PublisherRestarts:
    """The publishers of a run, as far as faults stop them. Publishers that end otherwise end the
    run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._ends: dict[int, asyncio.Future[None]] = {}
        """Ends that are expected, by agent; done once the run has taken note of them."""

    async def begin(self, fault: PlannedFault) -> tuple[str, ...]:
        """Stops its victims; done when all have said bye and ended."""
        loop, fleet = asyncio.get_running_loop(), self._run.fleet
        agents = self._agents(fault)
        gone = agents - fleet.alive
        ends = {agent: loop.create_future() for agent in agents - gone}
        self._ends |= ends
        await fleet.stop(fleet.timeouts.silence_s, to=ends)
        await asyncio.gather(*ends.values())
        return tuple(f"publisher {self._name(agent)} was gone before" for agent in sorted(gone))

    async def repair(self, fault: PlannedFault) -> tuple[str, ...]:
        """Starts its victims again; done when they listen and are in the present stage."""
        found = await asyncio.gather(*map(self._restart, sorted(self._agents(fault))))
        return tuple(problem for problem in found if problem is not None)

    def expects(self, ended: Ended) -> bool:
        """Returns True if an end is that of a fault, and takes the publisher out of the barriers.
        Without a bye its last messages are unknown, and the end is a failure."""
        end = self._ends.pop(ended.agent, None)
        if end is None or ended.how != "bye":
            return False
        run = self._run
        run.progress.fail(ended.agent)
        run.recorder.empty(ended.agent, run.clock(), run.progress.stage)
        if not end.done():
            end.set_result(None)
        return True

    async def _restart(self, agent: int) -> str | None:
        """Returns why a publisher could not be started again; None if it was."""
        run = self._run
        run.progress.begin_rejoin(agent)
        try:
            await run.fleet.replace(agent)
        except FleetError as error:
            hint = f" ({error.hint})" if error.hint else ""
            return f"publisher {self._name(agent)} did not start again: {error.message}{hint}"
        for command in self._to_the_present(agent):
            await run.fleet.command(command, to=[agent])
        run.progress.include(agent, 0)
        return None

    def _to_the_present(self, agent: int) -> list[Resume | EnterStage | ApplyChange]:
        """Returns the commands that bring a new process to where the run is."""
        run, progress = self._run, self._run.progress
        sums, stage = run.recorder.sums, progress.stage
        here, population = sums.agent([agent], [stage]), run.assignment.publishers[agent].population
        asked = [
            ApplyChange(at_ns=change.at_ns, population=population, action=change.action)
            for change in run.recorder.run_log.asked
            if change.stage == stage and change.population == population
            if isinstance(change.action, ChangeRate)
        ]
        resume = Resume(
            from_ns=run.clock() + run.fleet.timeouts.start_delay_ns,
            sent=sums.agent([agent]).sent_total,
            scheduled=here.sent_total + here.skipped_total,
        )
        return [resume, EnterStage(index=stage, at_ns=progress.entered_ns), *asked]

    def _agents(self, fault: PlannedFault) -> frozenset[int]:
        publishers = self._run.assignment.publishers
        return frozenset(agent for agent, each in publishers.items() if each.name in fault.victims)

    def _name(self, agent: int) -> str:
        return self._run.assignment.publishers[agent].name
