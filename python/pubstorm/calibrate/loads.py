"""The loads of a calibration, as scenarios: steady, open-loop and moderate, so that an engine does
what it does in a run, with a write for each message, and its CPU time tells what it could do."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.plan import Plan, Target, compile_plan
from pubstorm.scenario import parse_scenario

PAYLOAD_BYTES = 100
CLIENTS = 500
"""Clients that send, or receive."""
RATE_PER_S = 40_000
"""Messages sent, or received, in all."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load, whose target is yet to be started."""

    text: str
    """The scenario."""
    stage: int
    """The stage that is measured."""

    def plan(self, port: int) -> Plan:
        """The plan against the peer at a port of the loopback address."""
        scenario = parse_scenario(self.text, "calibrate")
        target = Target(host="127.0.0.1", port=port)
        return compile_plan(scenario, (target,), run_tag=0)


def sending(qos: int, seconds: float) -> Load:
    """Clients that send at a rate."""
    publication = f"{{topic: 'c/{{n}}', rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B"
    return _load(
        f"  c: {{clients: {CLIENTS}, publications: [{publication}, qos: {qos}}}]}}",
        "connect, publish: " + _milliseconds(seconds),
    )


def receiving(seconds: float) -> Load:
    """One client whose messages go to all others."""
    publication = f"{{topic: c, rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B}}"
    return _load(
        f"  c: {{clients: {CLIENTS}, subscriptions: [c]}}\n"
        f"  from: {{clients: 1, publications: [{publication}]}}",
        "connect, publish: " + _milliseconds(seconds),
    )


def idle(clients: int) -> Load:
    """Clients that connect and do nothing."""
    text = f"  c: {{clients: {clients}}}"
    return _load(text, "connect: {parallelism: 500}, hold: 1s")


def _load(populations: str, stages: str) -> Load:
    text = (
        "target: mqtt://127.0.0.1\n"
        f"populations:\n{populations}\nstages: [{stages}]\n"
        "snapshot_interval: 250ms\ndrain: 1s\n"
    )
    return Load(text, stage=1)


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
