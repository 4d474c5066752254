"""The controls of the page: what a person can ask the run for now, and the way to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pubstorm.contract.plan import ChangeRate, DisconnectAction, HoldAction, Plan, PublishAction
from pubstorm.errors import PubstormError
from pubstorm.measure.run_log import StageEntered, StoredChange, StoredFault
from pubstorm.plan.faults import faulty_bridges
from pubstorm.play.asked_faults import KINDS, Breakable
from pubstorm.play.changes import members_of, publishing
from pubstorm.play.control_socket import ask
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import Scenario

WORDS_CHARS_MAX = 300
"""Longest request."""


class Controls:
    """The controls of one run."""

    def __init__(self, plan: Plan, scenario: Scenario) -> None:
        self._plan = plan
        breakable = Breakable(scenario.topology, faulty_bridges(scenario))
        self._groups = {kind: names for kind in KINDS if (names := breakable.groups(kind))}
        self._factors: dict[tuple[int, int], float] = {}
        """Times the planned rate, by stage and population."""
        self._broken: dict[tuple[int, str], bool] = {}
        """True for a fault that is in effect and can be repaired, by stage and name."""

    def note(self, stored: StoredChange | StoredFault) -> None:
        """Takes a change or a fault."""
        if isinstance(stored, StoredFault):
            fault = stored.fault
            can_repair = fault.repaired_ns is None and fault.planned.lasts_ns is not None
            self._broken[fault.stage, fault.name] = can_repair
        elif isinstance(stored.change.action, ChangeRate):
            place = stored.change.stage, stored.change.population
            self._factors[place] = stored.change.action.factor

    def offer(self, entered: StageEntered, at_s: float) -> dict[str, Any]:
        """Returns what can be asked for at an instant of a stage."""
        stage = self._plan.stages[entered.stage]
        action, left_s = stage.action, 0.0
        if isinstance(action, PublishAction | HoldAction):
            left_s = entered.at_s + action.duration_ns / SECOND_NS - at_s
        loads = isinstance(action, PublishAction) and left_s > 0
        members = members_of(self._plan, stage) if loads else {}
        return {
            "rates": [
                {"name": name, "factor": self._factors.get((entered.stage, members[name][0]), 1.0)}
                for name in (publishing(self._plan, stage) if loads else ())
            ],
            "clients": [name for name, each in members.items() if self._are_simulated(each)],
            "faults": self._groups if left_s > 0 else {},
            "broken": [
                name for (at, name), is_on in self._broken.items() if is_on and at == entered.stage
            ],
            "end": not isinstance(action, DisconnectAction),
        }

    def _are_simulated(self, indices: tuple[int, ...]) -> bool:
        """True if clients of populations can join and leave."""
        return all(self._plan.populations[index].player == "engine" for index in indices)


def request(folder: Path, words: object) -> tuple[bool, str]:
    """Asks the run in a folder, and returns True with its answer, or False with its reason."""
    if not isinstance(words, str) or not words.isprintable() or len(words) > WORDS_CHARS_MAX:
        return False, f"found no request: words in one line, of {WORDS_CHARS_MAX} characters"
    try:
        return True, ask(folder, words)
    except PubstormError as error:
        return False, error.message if error.hint is None else f"{error.message}: {error.hint}"
