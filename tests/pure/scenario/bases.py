"""Scenarios that tests change: `changed(SMALL, "populations.device.clients: 0")`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pubstorm.contract.plan import Plan
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.document import read_document

SMALL = """\
target: mqtt://localhost
populations:
  device:
    clients: 10
    subscriptions: ["a/{n}"]
    publications:
      - {topic: "a/{n}", rate: 1/s}
stages:
  - connect
  - publish: 10s
"""
BRIDGED = """\
topology:
  brokers:
    cloud: {kind: mosquitto, passwords: true}
    boxes: {kind: mosquitto, count: 3}
    more: {kind: mosquitto, count: 2}
  bridges: {uplink: {from: boxes, to: cloud, topics: [{topic: up/#, direction: out}]}}
populations: {device: {clients: 3, at: boxes, subscriptions: [a]}}
stages: [connect]
"""
BROKER = """\
topology: {brokers: {b: {kind: embedded}}}
populations:
  device: {clients: 2, publications: [{topic: a, rate: 1/s}], subscriptions: [{topic: a}]}
"""
MONITORED = """\
topology: {brokers: {main: {kind: mosquitto, count: 2}}}
monitors:
  sources:
    redis: {process: {name: redis-server}}
    stats: {sys: {url: "mqtt://localhost"}}
    node: {prometheus: {url: "http://localhost:9100/metrics"}}
populations:
  device: {clients: 10, publications: [{topic: a, rate: 1/s}]}
  backend: {clients: 1, subscriptions: [a]}
stages:
  - connect
  - publish: {name: steady, for: 10s, changes: [
      {at: 5s, population: device, remove: 5},
      {at: 7s, population: device, rate: 2, name: twice}]}
"""
NETWORKED = """\
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 3}}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics: [{topic: "up/#", direction: out}]
      network: {delay: 50ms, jitter: 5ms, loss: 1%, rate: 1MB/s}
populations: {device: {clients: 3, at: boxes, publications: [{topic: "up/{n}", rate: 1/s}]}}
stages: [connect, {publish: {for: 10s, faults: [{at: 2s, cut: uplink, how: unplug}]}}]
"""
TAKEOVER = """\
target: mqtt://broker
populations:
  device: {clients: 10, first: 5}
  thief: {clients: 4, takes_over: device}
  idle: {clients: 1}
stages: [connect]
"""
RETAINED = """\
target: mqtt://broker
populations:
  device: {clients: 10, version: 5, publications: [{topic: "t/{n}", rate: 1/s}]}
  observer:
    clients: 1
    version: 5
    subscriptions: [{topic: "t/+", retain_as_published: true}]
stages: [connect]
"""
ROUND_TRIP = """\
target: mqtt://broker
populations:
  device:
    clients: 10
    version: 5
    subscriptions: ["reply/{n}"]
    publications:
      - {topic: "request/{n}", request: true, rate: 1/s, response_topic: "reply/{n}"}
  backend: {clients: 1, version: 5, subscriptions: ["request/#"], responds: true}
"""
VARIED = """\
topology: {brokers: {broker: {kind: embedded}}}
populations: {device: {clients: 10, publications: [{topic: "a/{n}", rate: 1/s}]}}
"""
SERVED = """\
topology:
  services: {users: redis}
  brokers: {main: {kind: embedded, port: 2000, count: 2}}
populations:
  device: {clients: 2, username: "d{n}", password: p}
  backend: {clients: 1}
thresholds: [users.keys > 1, users.cpu < 90%, users.used_memory.max < 900MB]
stages: [connect]
"""
SIZED = """\
topology: {brokers: {broker: {kind: mosquitto, count: 4}}}
populations:
  backend:
    clients: 1
    scales: false
    publications: [{topic: "device/{0..99}/command", rate: 1/s}, {topic: "news/{0..99}", rate: 1/s}]
  device: {clients: 100, subscriptions: ["device/{n}/command", "news/#"]}
"""
WEBSOCKET = """\
topology: {brokers: {main: {kind: mosquitto, transport: websocket, tls: server}}}
populations: {device: {clients: 10}}
stages: [connect]
"""
CHANGING = """\
target: mqtt://localhost
populations:
  all: {clients: 1, subscriptions: ["#"]}
  device: {clients: 100, publications: [{topic: "d/{n}", rate: 1/s}]}
  late: {clients: 50, publications: [{topic: "l/{n}", rate: 2/s}]}
stages:
  - connect: {populations: [all, device]}
  - publish: {for: 60s, changes: []}
"""
FAULTY = """\
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 20}}
  bridges: {up: {from: boxes, to: cloud, topics: [{topic: "up/#", direction: out}]}}
populations:
  device: {clients: 10, at: cloud, publications: [{topic: "d/{n}", rate: 1/s}]}
stages:
  - connect
  - publish: {for: 60s, name: load, faults: []}
  - hold: {for: 60s, faults: []}
"""
RATED = """\
target: mqtt://localhost
populations:
  device: {clients: 100, publications: [{topic: "d/{n}", rate: 2/s}]}
  sensor: {clients: 50, publications: [{topic: "s/{n}", rate: 4/s}]}
  backend: {clients: 1, subscriptions: ["#"]}
stages:
  - connect: {clients: {device: 100%, sensor: 50%, backend: 1}}
  - publish: {for: 10s}
"""
SHARED = """\
target: mqtt://localhost
populations:
  backend: {clients: 1, subscriptions: [up/#]}
  device:
    clients: 1000
    first: 5
    username: "user{n}"
    subscriptions: ["down/{n}"]
    publications: [{topic: "up/{n}", rate: 1/s}]
    shares:
      brief: {part: 1%, lifetime: {from: 1min, to: 5min, offline: 30s}}
      sure: {part: 20%, qos: 1, keep_alive: 5min}
      slow: {part: 10%, read_rate: 2/s, reconnect: never, subscriptions: [down/all],
        tcp_acks: delayed}
stages:
  - connect: {populations: [backend]}
  - connect: {populations: [device], clients: 50%}
  - connect: {populations: [device]}
  - publish: {for: 60s, changes: []}
"""
FEED = """\
populations:
  feed: {clients: 1, publisher: libzmq, publications: [{topic: "", size: 32B, rate: 10k/s}]}
  subscriber: {clients: 1000, at: feed, subscriptions: [""]}
"""
ROWS = """\
target: mqtt://localhost
populations:
  device:
    clients: 3
    first: 10
    rows: data.csv
    client_id: "{row.serial}"
    subscriptions: ["down/{row.site}/#"]
    publications:
      - topic: "up/{row.serial}"
        rate: 1/s
        payload: {id: "{row.serial}", t: "{random 20.0..30.0}", note: "{row.note}"}
"""
TABLE = 'serial,site,note\ns-1,north,"a ""b"", c"\ns-2,south,plain\ns-3,north,x/y\n'
"""The file `data.csv` beside a scenario."""


@cache
def changed(text: str, changes: str) -> str:
    """Returns a scenario with other values: `PATH: VALUE, PATH: null`. Null removes a path."""
    data = read_document(text).data
    written = read_document(f"{{{changes}}}").data
    assert isinstance(data, dict) and isinstance(written, dict)
    for path, value in written.items():
        *parents, last = (int(step) if step.isdecimal() else step for step in path.split("."))
        place: Any = data
        for step in parents:
            place = place[step] if isinstance(place, list) else place.setdefault(step, {})
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return json.dumps(data, indent=0) + "\n"


def plan_of(text: str, *overrides: str) -> Plan:
    """Returns the plan of a scenario."""
    scenario = parse_scenario(text, "s.yaml", overrides)
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


SPARKPLUG = """\
target: mqtt://localhost
populations:
  plant: {clients: 10, sparkplug: {group: g}, publications: [{rate: 1/s}]}
  scada: {clients: 1, sparkplug: {host: scada}}
stages: [connect, publish: 10s]
"""
