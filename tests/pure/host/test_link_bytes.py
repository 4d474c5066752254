"""Bytes that wait in links of clients: what a load has in flight in the delay, up to the room of a
direction."""

from __future__ import annotations

import pytest

from pubstorm.host.preflight.links import links_bytes
from pubstorm.plan.compile import provisional_plan
from pubstorm.scenario import parse_scenario

SCENARIO = """
target: mqtt://localhost
populations:
  device:
    clients: 10
    link: {link}
    publications: [{{topic: "t/{{n}}", rate: 10/s, size: 10kB}}]
  reader: {{clients: 1, subscriptions: ["t/#"]}}
stages: [connect, publish: 5s]
"""
SENT_PER_S = 10 * 10 * 10_000
ROOM = 10 * 65_536


@pytest.mark.parametrize(
    ("link", "least"),
    [
        ("{delay: 100ms}", SENT_PER_S // 10),
        ("{delay: 100ms, jitter: 100ms}", SENT_PER_S // 5),
        ("{delay: 100ms, rate: 10Mbit/s}", SENT_PER_S // 10),
        # 10 devices of 800 kbit/s each do not pass 400 kbit/s: their buffers fill.
        ("{delay: 100ms, rate: 400kbit/s}", ROOM + 10 * 5_000),
        ("{delay: 10ms, changes: [{at: 1s, delay: 200ms}]}", SENT_PER_S // 5),
        # Without a rate, a direction holds 512 KiB.
        ("{delay: 60s}", 10 * 512 * 1024),
    ],
)
def test_a_link_holds_what_is_sent_in_its_delay(link: str, least: int) -> None:
    plan = provisional_plan(parse_scenario(SCENARIO.format(link=link), "s.yaml"))
    # Headers of packets come on top.
    assert least <= links_bytes(plan) < least * 1.01


def test_clients_without_links_have_no_bytes_in_them() -> None:
    text = SCENARIO.replace("    link: {link}\n", "").format()
    assert links_bytes(provisional_plan(parse_scenario(text, "s.yaml"))) == 0
