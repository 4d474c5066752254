"""The headroom of a run: its distance to the calibrated ceilings of its generator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.host.calibration import Calibration, Fingerprint, find
from pubstorm.measure.assemble import Assembly
from pubstorm.result import Environment, Headroom
from pubstorm.result.timeline.rows import Row

MIN_SPAN_SHARE = 0.5
"""Share of the snapshot interval below which a span is too short for a rate."""
QOS2_COST = 2
"""A message of QoS 2 takes twice the packets of one of QoS 1."""


def headroom_of(assembly: Assembly, environment: Environment) -> tuple[Headroom | None, str]:
    """Returns the headroom of a run by this host's calibration, or the reason why there is none.
    Returns neither if the host was never calibrated."""
    if not environment.engine:
        return None, ""
    calibration, word = find(Fingerprint.of(environment))
    if calibration is None:
        return None, word
    if any(each.mqtt is None for each in assembly.plan.populations):
        return None, "the calibration was made with MQTT and says nothing of this run's headroom"
    if any(target.tls for target in assembly.plan.targets):
        return None, "the calibration was made without TLS and says nothing of this run's headroom"
    clients = [sum(hello.clients) for hello in assembly.hellos]
    rows = assembly.timeline.rows()
    return shares_of_ceilings(assembly.plan, rows, clients, calibration), ""


def shares_of_ceilings(
    plan: Plan, rows: Iterable[Row], clients: Sequence[int], calibration: Calibration
) -> Headroom:
    """The largest shares of the ceilings that an agent reached; `clients` are those of each."""
    long_enough_ns = MIN_SPAN_SHARE * plan.snapshot_interval_ns
    shares = (_share(plan, row, calibration) for row in rows if row.length_ns >= long_enough_ns)
    return Headroom(
        rate=round(max(shares, default=0.0), 4),
        clients=round(max(clients, default=0) / max(1, calibration.clients), 4),
        calibrated=calibration.calibrated,
    )


def _share(plan: Plan, row: Row, calibration: Calibration) -> float:
    """CPU seconds that the messages of a row take by the calibration, for each second."""
    cpu_s = 0.0
    for index, population in enumerate(plan.populations):
        cpu_s += row.count("sent", [index]) * _sending_cpu_s(population, calibration)
        cpu_s += row.count("received", [index]) / calibration.received.median
    return cpu_s * 1e9 / row.length_ns


def _sending_cpu_s(population: PlannedPopulation, calibration: Calibration) -> float:
    """CPU seconds for a message of the population's highest QoS."""
    match max((publication.qos for publication in population.publications), default=0):
        case 0:
            return 1 / calibration.sent_qos0.median
        case 1:
            return 1 / calibration.sent_qos1.median
        case _:
            return QOS2_COST / calibration.sent_qos1.median
