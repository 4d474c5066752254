"""Turnout: how many clients of each division are to be there while stages and changes go by, always
its first ones. It counts as the scenario says, and knows nothing of what happens in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubstorm.scenario.divisions import Division, divisions_of, meant_by
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import EVERY, Change, Connect, Disconnect, Stage
from pubstorm.units import PartOf, rounded


class Turnout:
    """Who is there. What is written in percent adds up without rounding: 50 % and 50 % of three
    clients are two and one."""

    def __init__(self, scenario: Scenario) -> None:
        self.divisions = divisions_of(scenario)
        self._part = dict.fromkeys(self.divisions, 0.0)
        """The part of each division that is there."""

    def chosen(self, stage: Stage) -> tuple[str, ...]:
        """The divisions that take part in a stage."""
        if stage.populations is None:
            return tuple(self.divisions)
        meant = {name for given in stage.populations for name in meant_by(self.divisions, given)}
        return tuple(name for name in self.divisions if name in meant)

    def count(self, names: Iterable[str]) -> int:
        """Clients of these divisions that are there."""
        return sum(rounded(self._part[n] * self.divisions[n].clients) for n in names)

    def most(self, names: Iterable[str]) -> float:
        """The largest part of any of these divisions that is there."""
        return max(self._part[name] for name in names)

    def least(self, names: Iterable[str]) -> float:
        """The smallest part of any of these divisions that is there."""
        return min(self._part[name] for name in names)

    def enter(self, stage: Stage) -> None:
        """A stage brings up clients, or lets them go."""
        step = stage.step
        for name in self.chosen(stage):
            if isinstance(step, Connect):
                wanted = self.part_of(name, wanted_of(step, self.divisions[name]))
                self._part[name] = max(self._part[name], min(wanted, 1.0))
            elif isinstance(step, Disconnect):
                self._part[name] = 0.0

    def change(self, change: Change) -> dict[str, int]:
        """A change takes place, as far as it can: how many join or leave of each division that it
        means, without those of which it is nobody."""
        amount = change.add if change.add is not None else change.remove
        moved: dict[str, int] = {}
        for name in meant_by(self.divisions, change.population) if amount is not None else ():
            there, part = self.count([name]), self.part_of(name, amount)
            part = self._part[name] + (part if change.add is not None else -part)
            self._part[name] = min(max(part, 0.0), 1.0)
            if there != self.count([name]):
                moved[name] = abs(self.count([name]) - there)
        return moved

    def part_of(self, name: str, amount: int | PartOf | None) -> float:
        """The part of a division that a number or a share of its clients is; None: all."""
        if amount is None:
            return 1.0
        return amount / self.divisions[name].clients if isinstance(amount, int) else amount.share


def wanted_of(connect: Connect, division: Division) -> int | PartOf | None:
    """What a connect stage says of a division, of its population or of every one; None: all."""
    given: Mapping[str, int | PartOf] = connect.clients or {}
    return given.get(said_of(connect, division) or "")


def said_of(connect: Connect, division: Division) -> str | None:
    """The name under which a connect stage says how many clients of a division it brings up."""
    names = (division.name, division.whole, EVERY)
    return next((name for name in names if name in (connect.clients or {})), None)
