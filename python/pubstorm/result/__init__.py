"""What a run found, as it is stored in `result.json`. Durations of messages are in microseconds,
spans in seconds; counters end in `_total`."""

from pubstorm.result.machinery import (
    AgentResult,
    BrokerResult,
    BrokerVersion,
    Environment,
    FleetResult,
)
from pubstorm.result.measures import HistogramPair, Latency, LatencyPair, Rates
from pubstorm.result.model import (
    Event,
    LimitedBy,
    Measured,
    Result,
    Status,
    ThresholdOutcome,
    ValidityLimits,
    Verdict,
)
from pubstorm.result.populations import FlowResult, PopulationResult, StagePopulation, StageResult

__all__ = [
    "AgentResult",
    "BrokerResult",
    "BrokerVersion",
    "Environment",
    "Event",
    "FleetResult",
    "FlowResult",
    "HistogramPair",
    "Latency",
    "LatencyPair",
    "LimitedBy",
    "Measured",
    "PopulationResult",
    "Rates",
    "Result",
    "StagePopulation",
    "StageResult",
    "Status",
    "ThresholdOutcome",
    "ValidityLimits",
    "Verdict",
]
