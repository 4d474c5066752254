"""The program of an agent in Python: it reads the plan, plays its share, and ends with its parent.
Each failure is a line of the contract with a hint."""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from pubstorm.contract.commands import Failure
from pubstorm.contract.plan import Plan
from pubstorm.errors import PubstormError
from pubstorm.fleet.agents.frame import (
    Agent,
    AgentError,
    AgentShard,
    AgentTally,
    Pipes,
    Play,
    parse_place,
)

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1
"""Largest delay of a wake-up by which the kernel may save energy. The kernel's default is 50 us."""


@dataclass(frozen=True)
class AgentKind:
    """A program of agents."""

    module: str
    """Module that starts it."""
    description: str
    """Clients that it plays, as a sentence."""
    make: Callable[[AgentShard, AgentTally], Play]
    """Makes what it plays."""
    errors: tuple[type[Exception], ...] = ()
    """Errors of its library."""
    lacks: AgentError | None = None
    """The failure if its library, which `make` imports, is not installed."""

    def made(self, part: AgentShard, tally: AgentTally) -> Play:
        """Makes what it plays. Raises AgentError if its library is not installed."""
        try:
            return self.make(part, tally)
        except ImportError as error:
            raise self.lacks or error from error


def play_agent(kind: AgentKind) -> int:
    """Plays the part that the command line names; the exit code."""
    place = parse_place(sys.argv[1:], kind.module, kind.description)
    pipes = Pipes()
    failures: tuple[type[Exception], ...] = (OSError, *kind.errors)
    try:
        _settle_in()
        part = AgentShard(Plan.model_validate_json(pipes.plan_line()), place)
        tally = AgentTally(part)
        Agent(part, pipes, tally).run(kind.made(part, tally))
    except ValidationError as error:
        text = f"the plan is not valid: {error.errors()[0]['msg']}"
        hint = "a plan is made by the pubstorm of the same version"
        pipes.say(Failure(message=text, hint=hint))
        return 1
    except AgentError as error:
        pipes.say(Failure(message=error.message, hint=error.hint))
        return 1
    except PubstormError as error:
        pipes.say(Failure(message=error.message, hint=error.hint or ""))
        return 1
    except failures as error:
        pipes.say(Failure(message=str(error), hint="see the limits that `pubstorm check` names"))
        return 1
    return 0


def _settle_in() -> None:
    """Ends with its parent, may open as many descriptors as the host allows, wakes on time."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
