"""A plan with bridges and faults, in words."""

from __future__ import annotations

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

SCENARIO = """
topology:
  brokers:
    cloud: {kind: mosquitto, tls: psk}
    boxes: {kind: mosquitto, count: 1000}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics:
        - {topic: up/#, direction: out, qos: 1, remote_prefix: "box/{n}/"}
        - {topic: all/#, direction: both}
populations:
  app: {clients: 1, at: cloud, subscriptions: ["box/#"]}
  device:
    clients: 10
    at: {brokers: boxes, first: 100, count: 50, choice: random}
    publications: [{topic: up/x, rate: 1/s}]
  fake: {clients: 3, at: cloud, bridge: true}
stages:
  - connect
  - publish:
      for: 60s
      faults:
        - {at: 40s, kill: cloud, for: ever}
        - {at: 5s, cut: uplink, count: 100, how: stall, for: 10s}
        - {at: 20s, delay: uplink, by: 200ms, for: 10s}
"""


def words() -> list[str]:
    scenario = parse_scenario(SCENARIO, "s.yaml")
    return [line.strip() for line in plan_in_words(scenario, provisional_plan(scenario))]


def test_brokers_and_bridges_are_listed_by_their_names() -> None:
    found = words()
    assert (
        "targets      1,001 brokers: cloud (mosquitto under TLS), boxes (1,000 × mosquitto), "
        "started and stopped by the run"
    ) in found
    start = found.index(
        "bridges      1,000 bridges uplink: boxes -> cloud, mqttv311, persistent session, "
        "keep-alive 1min"
    )
    assert found[start + 1 : start + 3] == [
        "out up/# at QoS 1, box/{n}/up/# at cloud",
        "both all/# at QoS 0",
    ]


def test_a_population_says_where_it_connects_and_as_what() -> None:
    found = " ".join(words())
    assert "app: 1 client at cloud, clean session" in found
    assert "device: 10 clients at 50 of boxes from boxes-100 on, at random, clean" in found
    assert "fake: 3 clients at cloud, clean session, keep-alive 60s, connects as a bridge" in found


def test_faults_stand_in_their_stage_in_the_order_of_time() -> None:
    faults = [line for line in words() if line.startswith("at ")]
    assert faults == [
        "at 5s: cut 100 of uplink (nothing gets through), repaired after 10s",
        "at 20s: delay uplink by 200ms, repaired after 10s",
        "at 40s: kill cloud, not repaired in this run",
    ]


def test_services_and_their_users_are_listed() -> None:
    text = """
topology:
  services: {redis: redis, spare: {kind: redis, seed: false}}
  brokers: {main: {kind: embedded, auth: redis}}
populations:
  device: {clients: 10, username: "d{n}", password: p, subscriptions: ["a/{n}", "b/{1..3}"]}
stages: [connect]
"""
    scenario = parse_scenario(text, "s.yaml")
    found = list(plan_in_words(scenario, provisional_plan(scenario)))
    assert any("main (embedded with users from redis)" in line for line in found)
    assert "services     redis (redis), with users and rights of device: 50 rows" in found
    assert "services     spare (redis), without users" in found
