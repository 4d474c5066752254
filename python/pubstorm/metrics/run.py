"""The metrics of a run as a whole, of its phases and of its faults."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.metrics.metric import Owner, RunMetric

RUN: frozenset[Owner] = frozenset({"run"})
PHASE: frozenset[Owner] = frozenset({"phase"})
FAULT: frozenset[Owner] = frozenset({"fault"})

BACK_STATISTICS: Mapping[str, str] = {
    "first": "Until the first of the lost ones was back.",
    "most": "Until 99 % of those before the fault were connected again.",
    "all": "Until all of them were connected again.",
}
_BACK = tuple(BACK_STATISTICS)
ENGINES = "engines"
"""Subject of the memory of all agents together."""

OF_RUN: tuple[RunMetric, ...] = (
    RunMetric(
        "bytes_per_connection",
        RUN,
        "derived",
        "bytes",
        "Memory that each connection adds to a broker, or to the kernel with the subject `host`. "
        "Caches that the kernel can reclaim do not count.",
        at="memory",
        subject="memory",
        better="lower",
    ),
    RunMetric(
        "balance",
        RUN,
        "derived",
        "share",
        "Connections of the fullest target of a name, divided by the mean of all its targets: 1 or "
        "100 % is even.",
        at="balance",
        subject="broker",
    ),
    RunMetric(
        "arrivals_per_s",
        RUN,
        "derived",
        "per_s",
        "Messages received a second in publish stages, until the last message of a stage. It "
        "includes what queues deliver in the drain.",
        at="stages.arrivals_per_s",
        span="any stage",
        stage_kind="publish",
        weight="arrived_s",
        better="higher",
    ),
    RunMetric(
        "connects_per_s",
        RUN,
        "derived",
        "per_s",
        "Connections accepted a second in connect stages.",
        at="stages.connects_per_s",
        span="any stage",
        stage_kind="connect",
        weight="duration_s",
        better="higher",
    ),
    RunMetric(
        "disconnects_per_s",
        RUN,
        "derived",
        "per_s",
        "Clients a second that were connected before disconnect stages and not after them.",
        at="stages.disconnects_per_s",
        span="any stage",
        stage_kind="disconnect",
        weight="duration_s",
        better="higher",
    ),
    RunMetric(
        "connected_after",
        RUN,
        "gauge",
        "",
        "Clients of all populations that were connected when a stage ended.",
        at="stages.connected",
        span="stage",
        of_a_size=True,
    ),
    *(
        RunMetric(
            f"peak_qos{level}_per_s",
            RUN,
            "derived",
            "per_s",
            f"Largest rate of deliveries of QoS {level} in an interval of the run.",
            at=f"peaks.{level}",
        )
        for level in range(3)
    ),
    RunMetric(
        "took",
        RUN,
        "derived",
        "s",
        "Duration of a stage, with its drain.",
        at="stages.duration_s",
        span="stage",
    ),
)
OF_PHASES: tuple[RunMetric, ...] = (
    RunMetric(
        "recovery",
        PHASE,
        "derived",
        "s",
        "Time from the start of a phase, so from the fault or change that begins it, until the "
        "load was carried again and the queue was gone. 0 if the load was carried all the time, "
        "without an outage.",
        at="phases",
        span="phase",
        better="lower",
    ),
)
OF_FAULTS: tuple[RunMetric, ...] = (
    RunMetric(
        "clients_lost",
        FAULT,
        "derived",
        "",
        "Clients connected before the fault, less the lowest number.",
        at="clients",
        span="fault",
        better="lower",
    ),
    RunMetric(
        "clients_back",
        FAULT,
        "derived",
        "s",
        "Time from the repair until clients were back.",
        at="clients",
        statistics=_BACK,
        span="fault",
        better="lower",
    ),
    RunMetric(
        "bridges_lost",
        FAULT,
        "derived",
        "",
        "Bridges up before the fault, less the lowest number.",
        at="bridges",
        span="fault",
        better="lower",
    ),
    RunMetric(
        "bridges_back",
        FAULT,
        "derived",
        "s",
        "Time from the repair until bridges were back.",
        at="bridges",
        statistics=_BACK,
        span="fault",
        better="lower",
    ),
    RunMetric(
        "backlog_peak",
        FAULT,
        "gauge",
        "",
        "Largest number of messages scheduled and not yet received or acknowledged.",
        at="backlog_peak",
        span="fault",
        better="lower",
    ),
    RunMetric(
        "drained",
        FAULT,
        "derived",
        "s",
        "Time from the repair until the backlog was gone.",
        at="drained_s",
        span="fault",
        better="lower",
    ),
)
