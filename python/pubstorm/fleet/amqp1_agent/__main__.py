"""`python -m pubstorm.fleet.amqp1_agent`: one agent with receivers of Qpid Proton."""

from __future__ import annotations

import sys

from pubstorm.fleet.agents.frame import AgentError, AgentShard, AgentTally, Play
from pubstorm.fleet.agents.program import AgentKind, play_agent


def _play(part: AgentShard, tally: AgentTally) -> Play:
    from pubstorm.fleet.amqp1_agent.clients import Amqp1Clients

    return Amqp1Clients(part, tally)


KIND = AgentKind(
    module="pubstorm.fleet.amqp1_agent",
    description="Plays receivers of AMQP 1.0 with Qpid Proton.",
    make=_play,
    lacks=AgentError(
        "receivers of AMQP 1.0 need python-qpid-proton, which is not installed",
        'pip install "pubstorm[amqp1]"',
    ),
)

if __name__ == "__main__":
    sys.exit(play_agent(KIND))
