"""Other hosts and their processes in the verdict."""

from __future__ import annotations

import pytest

from pubstorm.result import Watched
from pubstorm.result.verdict import evaluate_run
from tests.kit.example_zeromq import constant
from tests.kit.measured import MeasuredMaker


@pytest.mark.parametrize(
    ("monitors", "limit", "evidence"),
    [
        (
            [constant("host-cloud", "cpu", 0.97)],
            "host",
            "host cloud's processors were busy for 97 % of the time under load",
        ),
        (
            [constant("host-cloud", "cpu", 0.97), constant("cloud", "cpu", 0.99)],
            "broker",
            "host cloud's processors were busy for 97 % of the time under load",
        ),
        (
            [constant("host-cloud", "cpu_steal", 0.2)],
            "host",
            "the hypervisor gave 20 % of host cloud's time to others under load",
        ),
        (
            [
                constant("host-cloud", "memory_available_bytes", 1e9),
                constant("host-cloud", "memory_used_bytes", 99e9),
            ],
            "host",
            "host cloud had 1.00 GB of 100 GB memory left",
        ),
        ([constant("host-cloud", "memory_available_bytes", 50e9)], "none", None),
        (
            [
                constant("host-cloud", "conntrack", 99),
                constant("host-cloud", "conntrack_max", 100),
            ],
            "host",
            "the firewall of host cloud followed 99 of at most 100 connections: raise "
            "net.netfilter.nf_conntrack_max",
        ),
        # A process is compared with the processors of its own host.
        (
            [
                constant("cloud", "cpu", 2),
                constant("cloud", "threads", 64),
                constant("host-cloud", "processors", 16),
            ],
            "none",
            None,
        ),
        (
            [
                constant("cloud", "cpu", 15.84),
                constant("cloud", "threads", 64),
                constant("host-cloud", "processors", 16),
            ],
            "broker",
            "cloud used 99 % of 16 cores under load",
        ),
    ],
)
def test_another_host_at_its_limit_is_reported(
    monitors: list[Watched], limit: str, evidence: str | None, measured: MeasuredMaker
) -> None:
    verdict = evaluate_run(measured(monitors=tuple(monitors)), [])
    assert (str(verdict.status), str(verdict.limited_by)) == ("pass", limit)
    assert (evidence in verdict.evidence) if evidence else not verdict.evidence
