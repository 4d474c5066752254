"""`python -m pubstorm.fleet.kafka_agent`: one agent with consumers of librdkafka."""

from __future__ import annotations

import sys

from pubstorm.fleet.agents.frame import AgentError, AgentShard, AgentTally, Play
from pubstorm.fleet.agents.program import AgentKind, play_agent


def _play(part: AgentShard, tally: AgentTally) -> Play:
    from pubstorm.fleet.kafka_agent.consumers import Consumers

    return Consumers(part, tally)


KIND = AgentKind(
    module="pubstorm.fleet.kafka_agent",
    description="Plays consumers of Kafka with librdkafka.",
    make=_play,
    lacks=AgentError(
        "consumers of Kafka need confluent-kafka, which is not installed",
        'pip install "pubstorm[kafka]"',
    ),
)

if __name__ == "__main__":
    sys.exit(play_agent(KIND))
