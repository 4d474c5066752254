"""What a run found, as it is stored in `result.json`. Durations of messages are in microseconds,
spans in seconds; counters end in `_total`."""

from pubstorm.result.faults import FaultResult, Recovery
from pubstorm.result.machinery import (
    AgentResult,
    BridgeResult,
    BrokerResult,
    BrokerVersion,
    Environment,
    FleetResult,
    Headroom,
    ServiceResult,
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
from pubstorm.result.monitors import (
    MonitorProblem,
    Observer,
    ProfiledSymbol,
    ProfileResult,
    Residue,
    Statistics,
    Watched,
)
from pubstorm.result.phases import Phase, PhasePopulation, PhaseStatus
from pubstorm.result.populations import (
    FlowResult,
    PopulationResult,
    StageFlow,
    StagePopulation,
    StageResult,
)
from pubstorm.result.series import Series, SeriesStep

__all__ = [
    "AgentResult",
    "BridgeResult",
    "BrokerResult",
    "BrokerVersion",
    "Environment",
    "Event",
    "FaultResult",
    "FleetResult",
    "FlowResult",
    "Headroom",
    "HistogramPair",
    "Latency",
    "LatencyPair",
    "LimitedBy",
    "Measured",
    "MonitorProblem",
    "Observer",
    "Phase",
    "PhasePopulation",
    "PhaseStatus",
    "PopulationResult",
    "ProfileResult",
    "ProfiledSymbol",
    "Rates",
    "Recovery",
    "Residue",
    "Result",
    "Series",
    "SeriesStep",
    "ServiceResult",
    "StageFlow",
    "StagePopulation",
    "StageResult",
    "Statistics",
    "Status",
    "ThresholdOutcome",
    "ValidityLimits",
    "Verdict",
    "Watched",
]
