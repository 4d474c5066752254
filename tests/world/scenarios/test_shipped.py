"""Every ready scenario plays, scaled down, with the real engine and the real brokers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm.cli.bench import KINDS
from pubstorm.scenario.shipped import find_scenario, scenario_files
from tests.kit.starved import passes

# Scaled down, a run says nothing of speed: whatever a busy machine does to it is valid.
ANY_SPEED = ("validity.lateness_p99=1min", "validity.busy=100%")
QUICK = ("scale=10%", "stages.1.publish=2s")
SCALED = {
    "quickstart": QUICK,
    "mosquitto-quickstart": QUICK,
    "fan-out": ("scale=4%", "stages.1.publish=2s"),
    "zmq-quickstart": ("scale=20%", "stages.1.publish=2s"),
    "zmq-slow-subscribers": (
        "scale=20%",
        "populations.feed.publications.0.rate=500/s",
        "stages.1.publish.for=3s",
        "stages.2.hold.for=1s",
        "thresholds=[subscriber.connected == 100%, subscriber.lost == 0]",
    ),
    "ten-thousand": (
        "scale=2%",
        "populations.device.publications.0.interval=500ms",
        "stages.1.publish=2s",
    ),
    "slow-subscriber": ("stages.1.publish=5s", "drain=2s"),
    "mosquitto-perturbation": (
        "scale=1%",
        "populations.device.publications.0.rate=5/s",
        "populations.late.publications.0.rate=5/s",
        "stages.2.publish.for=5s",
        *(f"stages.2.publish.changes.{number}.at={number + 1}s" for number in range(4)),
        "stages.2.publish.changes.0.over=500ms",
        "stages.2.publish.changes.2.over=500ms",
    ),
    "tls-psk": (
        "scale=2%",
        "populations.device.publications.0.interval=500ms",
        "stages.1.publish=2s",
        "stages.2.hold=1s",
    ),
    "websocket": (
        "scale=5%",
        "populations.device.publications.0.rate=5/s",
        "stages.1.publish=2s",
    ),
    "shared-subscriptions": (
        "stages.1.publish.for=2s",
        "stages.2.publish.for=3s",
        "stages.2.publish.changes.0.at=1s",
    ),
    "request-response": (
        "scale=10%",
        "stages.1.publish=2s",
    ),
    "sixty-thousand": (
        "scale=1%",
        "populations.device.publications.0.interval=1s",
        "stages.1.publish=2s",
        "stages.2.hold=1s",
    ),
    "simulated-bridges": (
        "scale=1%",
        "populations.box.publications.0.interval=500ms",
        "stages.1.hold.for=1s",
        "stages.2.publish.for=2s",
    ),
    "churn": (
        "scale=0.1",
        "populations.device.shares.brief.lifetime={from: 200ms, to: 500ms, offline: 200ms}",
        "stages.2.hold.for=1s",
        "stages.4.publish.for=3s",
        "drain=2s",
        "thresholds=[device.connected >= 99%, device/rest.connected == 100%, "
        "device/brief.left > 0, device.disconnected == 0, backend.lost == 0]",
    ),
    "bridge-faults": (
        "scale=0.6%",
        "populations.box-once.publications.0.interval=200ms",
        "populations.box-least.publications.0.interval=200ms",
        "populations.backend.publications.0.rate=40/s",
        "stages.1.publish.for=22s",
        "drain=5s",
        # A box that is killed before it has saved its subscriptions drops what comes meanwhile.
        "stages.1.publish.faults=["
        "{at: 5s, kill: boxes, count: 300, for: 1s}, {at: 9s, cut: uplink, count: 300, for: 1s}, "
        "{at: 13s, kill: cloud, for: 1s}]",
        # A broker that is killed loses what it has acknowledged since its last save, a second ago.
        "defaults=off",
        "thresholds=[uplink.connected.first == 100%, uplink.connected.last == 100%, "
        "never_ready == 0, skipped == 0]",
        "table={back: bridges_back.most@kill cloud}",
    ),
}
# The third step holds its connections for half an hour.
MILLIONS = yaml.safe_load(find_scenario("million").read_text())["sweep"]["steps"]
SERIES = {
    "mosquitto-fixed-rate": (
        "populations.device.publications.0.rate=2/s",
        "stages.2.publish=1s",
        "profile=null",
        "sweep={vary: {populations.device.clients: [10, 20]}, pause: 0s}",
    ),
    "rabbitmq-federation": (
        "scale=1%",
        "populations.customer.publications.0.rate=2/s",
        "stages.2.hold.for=5s",
        "stages.3.publish.for=2s",
        "sweep.pause=0s",
    ),
    "connection-ladder": (
        "stages.1.publish=1s",
        "sweep={steps: ["
        "{populations.connection.clients: 10, stages.0.connect.parallelism: 5}, "
        "{populations.connection.clients: 20, stages.0.connect.parallelism: 10}], pause: 0s}",
    ),
    "million": (
        "scale=0.02%",
        "populations.device.publications.0.interval=5s",
        "stages.2.publish=2s",
        "stages.3.hold=1s",
        f"sweep.steps={json.dumps(MILLIONS[:2])}",
        "sweep.pause=0s",
    ),
    "mosquitto-bridges": (
        "scale=0.5%",
        "stages.1.publish.for=2s",
        "thresholds=[uplink.connected.min@measured == 100%, lost == 0, duplicate == 0]",
        "sweep={broker: same, pause: 0s, steps: [{populations.publisher.clients: 1000}, "
        "{populations.publisher.clients: 2000, "
        "populations.publisher.at: {brokers: boxes, choice: random}, "
        'populations.publisher.publications.0.topic: "up/{n}", '
        "populations.publisher.publications.0.rate: 100/s}]}",
    ),
    "bridges-literal": (
        "scale=2.5%",
        "stages.1.hold.for=1s",
        "stages.2.publish.for=2s",
        "sweep.pause=0s",
    ),
}
# Two of eight steps with 10 to 100 pairs, on two embedded brokers that look up their clients in
# Redis; tests of the command line compile all eight. What a step says of its intervals outranks
# this: few messages come in so short a time.
FLEET = (
    "scale=0.0001",
    "snapshot_interval=200ms",
    "stages.0.connect.over=100ms",
    *(f"stages.1.publish.changes.{number}.over=500ms" for number in (0, 1)),
    "stages.2.publish.changes.0.over=500ms",
    *(f"stages.{number}.publish.for={time}" for number, time in ((1, "1s"), (2, "1s"), (3, "3s"))),
    "stages.4.disconnect.over=100ms",
    "stages.5.hold.for=1s",
    "drain=1s",
)
STEPS = yaml.safe_load(find_scenario("device-mobile").read_text())["sweep"]["steps"]
VARIANTS = yaml.safe_load(find_scenario("mosquitto-variants").read_text())["sweep"]["steps"]
PLAIN_AND_FAST = ("without TLS", "4000 clients, a ramp of 10 s")
STORMS = yaml.safe_load(find_scenario("reconnect-storm").read_text())["sweep"]["steps"]
SERIES["reconnect-storm"] = (
    "scale=2%",
    "populations.device.publications.0.interval=500ms",
    "stages.1.publish.for=6s",
    "stages.1.publish.faults.0.at=1s",
    "stages.1.publish.faults.0.for=1s",
    "thresholds=[never_ready == 0, clients_lost@death > 0, device.loss < 90%]",
    f"sweep.steps={json.dumps([STORMS[0], STORMS[2]])}",
    "sweep.pause=0s",
)
SERIES["mosquitto-variants"] = (
    "scale=1%",
    "populations.device.publications.0.rate=2/s",
    "stages.1.publish.for=2s",
    "stages.1.publish.changes.0.over=500ms",
    "stages.2.publish.for=2s",
    f"sweep.steps={json.dumps([step for step in VARIANTS if step['step'] in PLAIN_AND_FAST])}",
    "sweep.pause=0s",
)
FIRST_AND_SHORT_LIVED = ("0.1M + 0.1M", "1M + 1M, 1 % live 1 to 5 min")
WITH_REDIS = (
    "topology.services={redis: redis}",
    "topology.brokers.node={kind: embedded, count: 2, auth: redis}",
    "table.Redis CPU=redis.cpu@steady",
    "table.Redis memory=redis.rss_bytes@steady",
)
SERIES["device-mobile"] = (
    *FLEET,
    *WITH_REDIS,
    "populations.backend.clients=2",
    f"sweep.steps={json.dumps([step for step in STEPS if step['step'] in FIRST_AND_SHORT_LIVED])}",
    "sweep.pause=0s",
)
# The tables of three of its nine variants, from rates that hold on any machine.
PUBSUB_SCALE = (
    "sweep.vary={populations.subscriber.clients: [10]}",
    "sweep.only=[cpp, python, python reconnecting]",
    "sweep.pause=0s",
    "search.from=100/s",
    "search.to=200/s",
    "search.repeat=1",
    "stages.1.publish=500ms",
    "thresholds=[subscriber.loss < 90%, subscriber.connected > 0]",
)
SEARCHES = {
    "capacity": (
        "scale=10%",
        "stages.2.publish=500ms",
        "search={vary: populations.device.publications.0.rate, from: 5/s, to: 10/s, repeat: 1}",
        "thresholds=[device.connected == 100%, backend.lost == 0]",
    ),
}
LADDERS = ("mosquitto-fixed-rate", "connection-ladder")
NEEDS = {"rabbitmq-federation": ("rabbitmq-server",), "device-mobile": ("redis-server",)}
"""Programs that only some of them need."""
STORED = ("series.json", "search.json", "result.json")


def at_any_speed(name: str) -> list[str]:
    """Settings with which latencies below a minute pass: no test asserts how fast a host is."""
    thresholds = yaml.safe_load(find_scenario(name).read_text()).get("thresholds", [])
    return [
        f"thresholds.{number}={subject} < 1min"
        for number, threshold in enumerate(thresholds)
        for subject, _, _ in [threshold.partition(" < ")]
        if subject.endswith("latency.p99")
    ]


def play(name: str, folder: Path, *settings: str) -> dict[str, Any]:
    """Runs a scenario scaled down; it has to pass, or to be starved by its host."""
    settings = settings or (SCALED | SERIES | SEARCHES)[name]
    settings = (*at_any_speed(name), *settings, *ANY_SPEED)
    overrides = [word for each in settings for word in ("--set", each)]
    command = [sys.executable, "-m", "pubstorm", "run", name, "--quiet", "--out", str(folder)]
    run = subprocess.run([*command, *overrides], capture_output=True, text=True, check=False)
    file = next((file for file in STORED if (folder / file).exists()), "")
    assert file, run.stdout + run.stderr
    stored: dict[str, Any] = json.loads((folder / file).read_text())
    is_run = file == "result.json"
    passed = passes(run.returncode, stored) if is_run else run.returncode == 0
    assert passed, run.stdout + run.stderr
    return stored


def skip_without(*programs: str) -> None:
    """Skips a test that needs a program that is not here."""
    for program in programs:
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{program} is not installed (scripts/install-test-tools)")


def test_every_ready_scenario_is_played() -> None:
    # Those of `pubstorm bench` are played by tests/cli/test_bench.py, and mqtt5-features by
    # tests/e2e/test_features_of_brokers.py.
    benches = {f"bench-{kind}" for kind in KINDS}
    played = {*SCALED, *SERIES, *SEARCHES, *benches, "mqtt5-features", "zmq-pubsub-scale"}
    assert {file.stem for file in scenario_files()} == played


@pytest.mark.slow("faults and slow subscribers take their time at any scale")
@pytest.mark.parametrize("name", SCALED)
def test_a_ready_scenario_passes_scaled_down(name: str, tmp_path: Path) -> None:
    result = play(name, tmp_path / "run")
    assert sum(population["sent_total"] for population in result["populations"].values()) > 0
    assert (tmp_path / "run" / "scenario.yaml").read_text().count("# with --set") >= 2


@pytest.mark.slow("a series has several runs, some on RabbitMQ")
@pytest.mark.parametrize("name", SERIES)
def test_a_ready_series_passes_scaled_down(name: str, tmp_path: Path) -> None:
    skip_without(*NEEDS.get(name, ()))
    series = play(name, tmp_path / "series")
    assert series["complete"]
    if name in LADDERS:
        assert series["text"].startswith("passed up to clients 20")
    assert {step["status"] for step in series["steps"]} == {"pass"}
    assert len(series["steps"]) == 2
    assert all(len(step["cells"]) == len(series["columns"]) for step in series["steps"])
    for step in series["steps"]:
        assert (tmp_path / "series" / step["folder"] / "result.json").exists()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_ready_search_finds_its_answer_scaled_down(name: str, tmp_path: Path) -> None:
    search = play(name, tmp_path / "search")
    assert search["complete"]
    assert [trial["written"] for trial in search["trials"]] == ["5/s", "10/s", "10/s"]
    assert search["answer"]["best"]["bound"] == "at_least"
    assert search["answer"]["confirmed"]
    assert all(len(trial["cells"]) == len(search["columns"]) for trial in search["trials"])


@pytest.mark.slow("a cluster of nodes starts, for a fleet")
def test_pairs_of_a_fleet_meet_across_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    """Default load of `device-mobile`, with each pair at two nodes of RabbitMQ."""
    skip_without("rabbitmq-server")
    quicker = [f"populations.{name}.publications.0.interval=1s" for name in ("mobile", "device")]
    result = play(
        "device-mobile",
        tmp_path / "run",
        *FLEET,
        *quicker,
        "sweep=null",
        "populations.mobile.at.shift=1",
        "populations.backend.subscriptions=[topic/#]",
        "populations.device.shares={acked: {part: 20%, qos: 1}}",
        "populations.mobile.shares={acked: {part: 20%, qos: 1}}",
    )
    connected = [target["connected_max"] for target in result["balance"]]
    assert [number in (100, 101) for number in connected] == [True, True]
    for name in ("mobile", "device"):
        for share in ("rest", "acked"):
            of_share = result["populations"][f"{name}/{share}"]
            assert of_share["received_total"] >= of_share["expected_total"] > 0


@pytest.mark.slow("three searches, each of several runs, with publishers in C++ and Python")
def test_the_tables_of_publishers_at_scale_are_filled(tmp_path: Path) -> None:
    """Searches with a publisher in C++ and one in Python, up to a rate that all of them hold."""
    series = play("zmq-pubsub-scale", tmp_path / "series", *PUBSUB_SCALE)
    assert series["complete"]
    played = [step["variant"] for step in series["steps"]]
    assert played == ["cpp", "python", "python reconnecting"]
    python, cpp = (
        next(table for table in series["tables"] if table["title"] == f"ZMQ - {name} Pub/Sub")
        for name in ("Python", "CPP")
    )
    assert python["columns"] == [
        "Client Count",
        "MaxRate at SUB With Drop",
        "Aggregate Max pps",
        "MaxRate at Sub (< 0.5% Drop)",
        "10% of clients Reconnecting",
    ]
    assert cpp["columns"][1:3] == python["columns"][1:3]
    folders = {step["variant"]: tmp_path / "series" / step["folder"] for step in series["steps"]}
    for variant, table in (("python", python), ("cpp", cpp)):
        ((clients, most, aggregate, best, *others),) = table["rows"]
        assert clients["value"] == 10
        assert all(cell["estimate"]["value"] > 0 for cell in (most, aggregate, best, *others))
        answer = answer_of(folders[variant])
        assert (most["estimate"], best["estimate"]) == (answer["most"], answer["best"])
        assert best["unit"] == "per_s"
    reconnecting = answer_of(folders["python reconnecting"])
    assert python["rows"][0][-1]["estimate"] == reconnecting["best"]


def answer_of(folder: Path) -> dict[str, Any]:
    """Returns the answer of a stored search. If each of its trials passed, the answer is its
    largest value, as a lower bound."""
    search = json.loads((folder / "search.json").read_text())
    answer: dict[str, Any] = search["answer"]
    if all(trial["status"] == "pass" for trial in search["trials"]):
        assert (answer["best"]["value"], answer["best"]["bound"]) == (200, "at_least")
    return answer
