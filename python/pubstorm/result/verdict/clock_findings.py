"""Findings about the clocks of agents: deliveries that seem to arrive before they were sent, and
unanswered exchanges with the reference clock."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantities import count_text, counted, duration_text, span_text
from pubstorm.result import AgentResult, Measured, PublisherResult
from pubstorm.result.verdict.culprit import EvidenceKind
from pubstorm.result.verdict.findings import Finding, invalid

UNANSWERED_S = 3.0
"""Seconds without an answer of the reference clock from which there is a finding."""


def _negative(measured: Measured) -> Iterable[Finding]:
    """Deliveries that came before they were sent. What the bound explains is nothing; more means
    that a clock is wrong, and then no latency between hosts is worth anything."""
    bound_us = measured.fleet.clock_bound_us
    for flow in measured.flows:
        early = flow.histogram_ns.early
        if not early.count:
            continue
        total = counted(early.of, "delivery", "deliveries")
        text = (
            f"{flow.source} → {flow.to}: {count_text(early.count)} of {total} seem to "
            f"have come before they were sent, by up to {duration_text(early.most_us)}"
        )
        if early.most_us <= bound_us:
            yield Finding(
                f"{text}: the clocks are known to ± {duration_text(bound_us)}, so they count as 0"
            )
            continue
        known = f"more than the ± {duration_text(bound_us)} that the clocks are known to"
        why = known if bound_us else "though all agents are said to have one clock"
        reason = "a clock of the load generator is wrong"
        yield invalid(f"{text}, {why}: a clock is wrong", EvidenceKind.INEXACT, reason)


def _unanswered(measured: Measured) -> Iterable[Finding]:
    """Agents that had to continue without the reference clock, the longest time first."""
    agents = [(_name(agent), agent.clock) for agent in measured.fleet.agents]
    agents += [(_name(publisher), publisher.clock) for publisher in measured.publishers]
    known = [(name, clock) for name, clock in agents if clock is not None]
    alone = [(name, clock) for name, clock in known if clock.unanswered_s >= UNANSWERED_S]
    if not alone:
        return
    who, clock = max(alone, key=lambda each: each[1].unanswered_s)
    if len(alone) > 1:
        who = f"{count_text(len(alone))} of {counted(len(known), 'agent')}, such as {who},"
    yield Finding(
        f"{who} had no answer of the reference clock for {span_text(clock.unanswered_s)}; its time "
        f"was off by up to {duration_text(clock.bound_us)}: look whether UDP goes through to "
        "the host that the run was started on"
    )


def _name(agent: AgentResult | PublisherResult) -> str:
    name = f"agent {agent.agent}" if isinstance(agent, AgentResult) else f"publisher {agent.name}"
    return name + (f" on {agent.host}" if agent.host else "")


CLOCK_RULES = (_negative, _unanswered)
