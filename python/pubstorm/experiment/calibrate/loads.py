"""The loads of a calibration, as scenarios. The loads are steady, open-loop and moderate, as in a
run, with a write for each message. CPU time then gives the limit of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.plan import compile_plan
from pubstorm.scenario import parse_scenario

PAYLOAD_BYTES = 100
CLIENTS = 500
"""Clients that send, or receive."""
RATE_PER_S = 40_000
"""Messages sent, or received, in all."""


@dataclass(frozen=True, slots=True)
class CalibrationLoad:
    """One load, whose target is yet to be started."""

    text: str
    """The scenario."""
    stage: int
    """The stage that is measured."""
    peer: Literal["sink", "broker"] = "sink"
    """Whom the engine talks to: the null sink, or the embedded broker where one has to be asked
    for a QoS."""

    def plan(self, port: int) -> Plan:
        """The plan against the peer at a port of the loopback address."""
        scenario = parse_scenario(self.text, "calibrate")
        target = Target(host="127.0.0.1", port=port)
        return compile_plan(scenario, (target,), run_tag=0)


def sending(qos: int, seconds: float) -> CalibrationLoad:
    """Clients that send at a rate."""
    publication = f"{{topic: 'c/{{n}}', rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B"
    return _load(
        f"  c: {{clients: {CLIENTS}, publications: [{publication}, qos: {qos}}}]}}",
        "connect, publish: " + _milliseconds(seconds),
    )


def receiving(qos: int, seconds: float) -> CalibrationLoad:
    """One client whose messages go to all others. The sink hands on at QoS 0 only."""
    message = f"topic: c, rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B, qos: {qos}"
    return _load(
        f"  c: {{clients: {CLIENTS}, subscriptions: [{{topic: c, qos: {qos}}}]}}\n"
        f"  from: {{clients: 1, publications: [{{{message}}}]}}",
        "connect, publish: " + _milliseconds(seconds),
        "broker" if qos else "sink",
    )


def idle(clients: int) -> CalibrationLoad:
    """Clients that connect and do nothing."""
    text = f"  c: {{clients: {clients}}}"
    return _load(text, "connect: {parallelism: 500}, hold: 1s")


def pinging(clients: int, seconds: float) -> CalibrationLoad:
    """Clients that do nothing but keep their connections alive, as often as they may; they come
    within a second, so that their keep-alives are spread over one."""
    text = f"  c: {{clients: {clients}, keep_alive: 1s}}"
    hold = _milliseconds(seconds + 1)
    return _load(text, f"connect: {{rate: {clients}/s}}, hold: {hold}")


def _load(
    populations: str, stages: str, peer: Literal["sink", "broker"] = "sink"
) -> CalibrationLoad:
    text = (
        "target: mqtt://127.0.0.1\n"
        f"populations:\n{populations}\nstages: [{stages}]\n"
        "snapshot_interval: 250ms\ndrain: 1s\n"
    )
    return CalibrationLoad(text, stage=1, peer=peer)


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
