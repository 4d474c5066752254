"""`python -m pubstorm.fleet.zmq_agent`: one agent of pyzmq."""

from __future__ import annotations

import sys

import zmq

from pubstorm.fleet.agents.frame import AgentShard, AgentTally, Play
from pubstorm.fleet.agents.program import AgentKind, play_agent
from pubstorm.fleet.zmq_agent.publisher import PublisherClient
from pubstorm.fleet.zmq_agent.sockets import check_security
from pubstorm.fleet.zmq_agent.subscribers import Subscribers


def _play(part: AgentShard, tally: AgentTally) -> Play:
    check_security(part)
    is_publisher = bool(part.population.publications)
    return PublisherClient(part, tally) if is_publisher else Subscribers(part, tally)


KIND = AgentKind(
    module="pubstorm.fleet.zmq_agent",
    description="Plays a publisher or subscribers of ZeroMQ with pyzmq.",
    make=_play,
    errors=(zmq.ZMQError,),
)

if __name__ == "__main__":
    sys.exit(play_agent(KIND))
