"""Configuration of bridges for small brokers, and logins at the main one: texts of files, and
passwords that mosquitto takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.topology import Bridge, ScenarioTopology
from pubstorm.topology.adapters.mosquitto import hashed
from pubstorm.topology.bridge_lines import BridgeAccess, bridge_lines, tls_words
from pubstorm.topology.credentials import RunKeys, acl_text

BRIDGE = {
    "from": "boxes",
    "to": "cloud",
    "topics": [
        {"topic": "up/#", "direction": "out", "qos": 1, "remote_prefix": "box/{n}/"},
        {"topic": "both/{n}", "direction": "both", "local_prefix": "in/"},
    ],
}
SCENARIO = """\
topology:
  brokers:
    cloud: {kind: mosquitto, passwords: true, acl: ["topic read public"]}
    boxes: {kind: mosquitto, count: 2}
  bridges:
    uplink: {from: boxes, to: cloud, topics: [{topic: a, direction: out}]}
populations:
  app: {clients: 3, at: cloud, subscriptions: [a]}
  own: {clients: 2, at: cloud, username: "u-{n}", password: "p-{n}", subscriptions: [a]}
  box: {clients: 2, at: boxes, subscriptions: [a]}
stages: [connect]
"""


def bridge(**keys: object) -> Bridge:
    return Bridge.model_validate({**BRIDGE, **keys})


def test_the_lines_of_a_bridge_are_those_of_its_number() -> None:
    access = BridgeAccess("127.0.0.1", 1884, "me", "secret", {"bridge_cafile": "/ca.crt"})
    assert bridge_lines("uplink", bridge(), 7, access).splitlines() == [
        "",
        "connection uplink-7",
        "address 127.0.0.1:1884",
        "remote_clientid uplink-7",
        "local_clientid local.uplink-7",
        "bridge_protocol_version mqttv311",
        "cleansession false",
        "start_type automatic",
        "keepalive_interval 60",
        "restart_timeout 5 30",
        "notifications true",
        "notification_topic pubstorm/bridge/uplink/7",
        "try_private true",
        "remote_username me",
        "remote_password secret",
        "bridge_cafile /ca.crt",
        'topic up/# out 1 "" box/7/',
        'topic both/7 both 0 in/ ""',
    ]


def test_settings_of_the_scenario_win() -> None:
    changed = bridge(
        settings={"restart_timeout": 3, "bridge_max_packet_size": 100},
        notifications=False,
        client_id="box {n}",
        reconnect={"after": "40s"},
    )
    lines = bridge_lines("uplink", changed, 7, BridgeAccess("::1", 1884)).splitlines()
    assert {"restart_timeout 3", "bridge_max_packet_size 100", "address ::1:1884"} <= set(lines)
    assert {"notifications false", "remote_clientid box 7"} <= set(lines)
    assert not any(line.startswith(("notification_topic", "remote_username")) for line in lines)


def test_tls_to_a_target_is_what_the_scenario_says() -> None:
    tls = Tls(ca="/ca", certificate="/{n}.crt", key="/{n}.key", verify=False, min_version="1.3")
    assert tls_words(tls, 4) == {
        "bridge_tls_version": "tlsv1.3",
        "bridge_cafile": "/ca",
        "bridge_certfile": "/4.crt",
        "bridge_keyfile": "/4.key",
        "bridge_insecure": True,
    }
    assert {"bridge_cafile", "bridge_capath"} & set(tls_words(Tls(), 4))


def test_a_hash_is_what_mosquitto_makes_of_the_password(tmp_path: Path) -> None:
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("mosquitto_passwd is not installed")
    file = tmp_path / "passwords"
    subprocess.run([tool, "-c", "-b", file, "alice", "secret"], check=True, capture_output=True)
    theirs = file.read_text().strip().partition(":")[2].split("$")
    ours = hashed("secret").split("$")
    assert ours[:3] == theirs[:3]
    assert [len(part) for part in ours] == [len(part) for part in theirs]
    assert hashed("secret").split("$")[3] != ours[3]


def test_everybody_who_is_trusted_may_do_everything() -> None:
    lines = acl_text(["pattern read a"], ["app"], ["pubstorm/bridge/uplink/+"]).decode()
    assert lines.splitlines() == [
        "pattern read a",
        "pattern write pubstorm/bridge/uplink/+",
        "user app",
        "topic readwrite #",
        "topic read $SYS/#",
    ]


def test_logins_are_made_for_those_that_meet_a_broker_with_passwords(tmp_path: Path) -> None:
    scenario = parse_scenario(SCENARIO, "s.yaml")
    keys = RunKeys(scenario.topology, tmp_path / "keys")
    plan = provisional_plan(scenario)
    keys.make(plan, plan)
    app, own, box = keys.equip(plan).populations
    assert (app.username, own.username, own.password) == ("app", "u-{n}", "p-{n}")
    assert app.password
    assert box.username is None
    users = [line.partition(":")[0] for line in read(tmp_path, "cloud.passwords")]
    assert sorted(users) == ["app", "pubstorm-observer", "u-0", "u-1", "uplink-0", "uplink-1"]
    assert "user uplink-0" not in read(tmp_path, "cloud.acl")
    assert read(tmp_path, "cloud.acl")[0] == "topic read public"
    keys.discard()
    assert not (tmp_path / "keys").exists()


def test_nothing_is_made_where_no_password_is_required(tmp_path: Path) -> None:
    keys = RunKeys(
        ScenarioTopology.model_validate({"brokers": {"a": "mosquitto"}}), tmp_path / "keys"
    )
    plan = provisional_plan(parse_scenario(SCENARIO, "s.yaml"))
    keys.make(plan)
    assert keys.equip(plan) == plan
    assert not (tmp_path / "keys").exists()


def read(folder: Path, file: str) -> list[str]:
    return (folder / "keys" / file).read_text().splitlines()
