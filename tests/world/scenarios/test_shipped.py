"""Every ready scenario plays, scaled down, with the real engine and the real brokers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pubstorm.cli.run import KINDS
from pubstorm.quantities import count
from pubstorm.scenario.load import scenario_files
from tests.kit import program
from tests.kit.starved import passes

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

SCENARIOS = {path.stem: yaml.safe_load(path.read_text()) for path in scenario_files()}
OTHERS = {"mqtt5-features", "zmq-pubsub-scale", *(f"bench-{kind}" for kind in KINDS)}
"""Scenarios with tests of their own: below, of tests/world/brokers and of tests/system/cli."""
PLAYED = [name for name in SCENARIOS if name not in OTHERS]
SERIES = [name for name in PLAYED if "sweep" in SCENARIOS[name]]
SEARCHES = [name for name in PLAYED if "search" in SCENARIOS[name]]
RUNS = [name for name in PLAYED if name not in SERIES + SEARCHES]
# Scaled down, a run says nothing of speed: whatever a busy machine does to it is valid.
ANY_SPEED = ("validity.lateness_p99=1min", "validity.busy=100%")
CLIENTS_MAX = 100
"""Clients of the largest population, as played here."""
BROKERS_MAX = 5
FAULT_S = 4
"""Time from one fault to the next one, or to the end of the stage."""
SLOWER_THAN_2_PER_S = re.compile(r"1/(\d+ Hz|s)")
OF_TIME = re.compile(r"latency\.p99|round_trip\.p99")
"""Figures that are better on a faster machine."""
STEPS: dict[str, tuple[object, ...]] = {
    # Both at QoS 1, which bridges carry quickly.
    "mosquitto-bridges": (6, 8),
    "reconnect-storm": (0, 2),
    "mosquitto-variants": ("without TLS", "4000 clients, a ramp of 10 s"),
    "device-mobile": ("0.1M + 0.1M", "1M + 1M, 1 % live 1 to 5 min"),
}
"""Steps of a series that are played, by number or name. Default: the first two."""
SPECIAL: dict[str, tuple[str, ...]] = {
    "zmq-slow-subscribers": (
        "populations.feed.publications.0.rate=500/s",
        "thresholds=[subscriber.connected == 100%, subscriber.lost == 0]",
    ),
    # As long as the recording.
    "replay": ("stages.1.publish=14s",),
    # Messages that a stall held up are paced by acknowledgements: in one burst, they would
    # overflow every queue.
    "slow-subscriber": (
        "stages.1.publish=5s",
        "drain=2s",
        "populations.publisher.publications.0.window=1",
    ),
    # Clients that come with a change may leave with the next one before they are connected.
    "mosquitto-perturbation": ("thresholds.1=late.connected > 0",),
    "churn": (
        "populations.device.shares.brief.lifetime={from: 200ms, to: 500ms, offline: 200ms}",
        "thresholds=[device.connected >= 99%, device/rest.connected == 100%, "
        "device/brief.left > 0, device.disconnected == 0, backend.lost == 0]",
    ),
    # A broker that is killed loses what it has acknowledged since its last save, a second ago.
    "bridge-faults": ("defaults=off", "thresholds=[never_ready == 0, skipped == 0]", "drain=5s"),
    "mosquitto-fixed-rate": ("profile=null",),
    "mosquitto-bridges": (
        "thresholds=[uplink.connected.min@measured == 100%, lost == 0, duplicate == 0]",
    ),
    "reconnect-storm": (
        "thresholds=[never_ready == 0, clients_lost@death > 0, device.loss < 90%]",
    ),
    # Two embedded brokers that look up their clients in Redis.
    "device-mobile": (
        "snapshot_interval=200ms",
        "topology.services={redis: redis}",
        "topology.brokers.node={kind: embedded, count: 2, auth: redis}",
        "table.Redis CPU=redis.cpu@steady",
        "table.Redis memory=redis.rss_bytes@steady",
        "populations.backend.clients=2",
    ),
    "capacity": ("thresholds=[device.connected == 100%, backend.lost == 0]",),
}
"""Settings for a short run that no rule of `smaller` gives."""
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
NEEDS = {"rabbitmq-federation": ("rabbitmq-server",), "device-mobile": ("redis-server",)}
"""Programs that only some of them need."""


def named(names: Iterable[str]) -> list[ParameterSet]:
    """Returns parameters: each scenario is asked for by a change of its own file."""
    return [
        pytest.param(name, marks=pytest.mark.concerns(f"scenarios/{name}.yaml")) for name in names
    ]


def smaller(name: str) -> Iterator[str]:
    """Yields settings with which a scenario is played in seconds, by few clients: the scale, the
    lengths of stages, the rates of slow publishers, and limits of time."""
    data = SCENARIOS[name]
    steps = steps_of(name)
    clients = [count(each.get("clients", 1)) for each in data["populations"].values()]
    clients += [count(n) for step in steps for path, n in step.items() if path.endswith(".clients")]
    topology = data.get("topology", {}).get("brokers", {}).values()
    brokers = [each.get("count", 1) for each in topology]
    largest = max([number for number in brokers if number != "auto"], default=1)
    scale = min(1.0, CLIENTS_MAX / max(clients), BROKERS_MAX / largest)
    varies = data.get("search", {}).get("vary", "")
    if scale < 1 and not varies.endswith(".clients"):
        yield f"scale={scale:.6%}"
    for population, each in data["populations"].items():
        for number, flow in enumerate(each.get("publications", ())):
            path = f"populations.{population}.publications.{number}"
            if "interval" in flow:
                yield f"{path}.interval=500ms"
            elif SLOWER_THAN_2_PER_S.fullmatch(flow.get("rate", "")):
                yield f"{path}.rate=2/s"
    for number, stage in enumerate(data["stages"]):
        if isinstance(stage, dict):
            ((kind, value),) = stage.items()
            yield from shorter(f"stages.{number}.{kind}", kind, value)
    for number, threshold in enumerate(data.get("thresholds", [])):
        subject, _, _ = threshold.partition(" < ")
        if OF_TIME.search(subject):
            yield f"thresholds.{number}={subject} < 1min"
    if name in SEARCHES:
        least, most = span_of(varies)
        yield f"search={{vary: {varies}, from: {least}, to: {most}, repeat: 1}}"
    if steps:
        quick = {"steps": steps, "pause": "0s", "notes": {}, "repeat": 1}
        yield f"sweep={json.dumps(data['sweep'] | quick)}"


def span_of(varies: str) -> tuple[str, str]:
    """Returns the values between which a search is played."""
    if varies.endswith(".clients"):
        return "50", "100"
    return ("50/s", "100/s") if varies.endswith(".connect.rate") else ("5/s", "10/s")


def shorter(path: str, kind: str, value: Any) -> Iterator[str]:
    """Yields settings for a stage of seconds, with its changes one after the other."""
    value = value if isinstance(value, dict) else {"for": value} if value else {}
    if "over" in value:
        yield f"{path}.over=100ms"
    if kind not in {"publish", "hold"}:
        return
    faults, changes = value.get("faults", ()), value.get("changes", ())
    length_s = 1 if kind == "hold" else 2 + FAULT_S * len(faults) + len(changes)
    yield f"{path}.for={length_s}s" if len(value) > 1 else f"{path}={length_s}s"
    for number, fault in enumerate(faults):
        yield f"{path}.faults.{number}.at={1 + FAULT_S * number}s"
        if "for" in fault:
            yield f"{path}.faults.{number}.for=1s"
    for number, change in enumerate(changes):
        if change["at"] != "0s":
            yield f"{path}.changes.{number}.at={1 + number}s"
        if "over" in change:
            yield f"{path}.changes.{number}.over=500ms"


def publishes(name: str) -> bool:
    """Returns True if clients of a scenario publish."""
    return any("publications" in each for each in SCENARIOS[name]["populations"].values())


def steps_of(name: str) -> list[dict[str, Any]]:
    """Returns the steps of a series that are played."""
    chosen = STEPS.get(name, (0, 1))
    steps = SCENARIOS[name]["sweep"]["steps"] if name in SERIES else []
    return [step for n, step in enumerate(steps) if n in chosen or step.get("step") in chosen]


def play(name: str, folder: Path, *settings: str, file: str = "result.json") -> Any:
    """Runs a scenario; each run of it has to pass, or to be starved by its host."""
    overrides = [word for each in (*settings, *ANY_SPEED) for word in ("--set", each)]
    words = ("run", name, "--quiet", "--out", str(folder), *overrides)
    run = program.run(words, capture_output=True, text=True)
    assert (folder / file).exists(), run.stdout + run.stderr
    stored = read(folder / file)
    if file == "result.json":
        assert passes(run.returncode, stored), run.stdout + run.stderr
    return stored


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def step_passes(folder: Path, step: Mapping[str, Any]) -> bool:
    """Returns True if a step passed, or was starved by its host."""
    code = {"pass": 0, "fail": 1}.get(step["status"], 3)
    return passes(code, read(folder / step["folder"] / "result.json"))


def skip_without(*programs: str) -> None:
    """Skips a test that needs a program that is not here."""
    for name in programs:
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{name} is not installed (scripts/install-test-tools)")


@pytest.mark.slow("faults and slow subscribers take their time at any scale")
@pytest.mark.parametrize("name", named(RUNS))
def test_a_ready_scenario_passes_scaled_down(name: str, tmp_path: Path) -> None:
    result = play(name, tmp_path / "run", *smaller(name), *SPECIAL.get(name, ()))
    work = "sent_total" if publishes(name) else "connected_total"
    assert sum(population[work] for population in result["populations"].values()) > 0
    assert all(fault["repaired_at_s"] is not None for fault in result["faults"])
    assert (tmp_path / "run" / "scenario.yaml").read_text().count("# with --set") >= 2


@pytest.mark.slow("a series has several runs, some on RabbitMQ")
@pytest.mark.parametrize("name", named(SERIES))
def test_a_ready_series_passes_scaled_down(name: str, tmp_path: Path) -> None:
    skip_without(*NEEDS.get(name, ()))
    settings = (*smaller(name), *SPECIAL.get(name, ()))
    series = play(name, tmp_path / "series", *settings, file="series.json")
    assert series["complete"]
    assert len(series["steps"]) == min(2, len(steps_of(name) or "12"))
    for step in series["steps"]:
        assert len(step["cells"]) == len(series["columns"])
        assert step_passes(tmp_path / "series", step), step


@pytest.mark.parametrize("name", named(SEARCHES))
def test_a_ready_search_finds_its_answer_scaled_down(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "search"
    search = play(name, folder, *smaller(name), *SPECIAL.get(name, ()), file="search.json")
    assert search["complete"]
    trials = search["trials"]
    least, most = span_of(SCENARIOS[name]["search"]["vary"])
    assert [trial["written"] for trial in trials] == [least, most, most][: len(trials)]
    assert all(step_passes(folder, trial) for trial in trials)
    assert all(len(trial["cells"]) == len(search["columns"]) for trial in trials)
    if all(trial["status"] == "pass" for trial in trials):
        assert search["answer"]["best"]["bound"] == "at_least"
        assert search["answer"]["confirmed"]


@pytest.mark.slow("a cluster of nodes starts, for a fleet")
@pytest.mark.concerns("scenarios/device-mobile.yaml")
def test_pairs_of_a_fleet_meet_across_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    """Default load of `device-mobile`, with each pair at two nodes of RabbitMQ."""
    skip_without("rabbitmq-server")
    result = play(
        "device-mobile",
        tmp_path / "run",
        *smaller("device-mobile"),
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
@pytest.mark.concerns("scenarios/zmq-pubsub-scale.yaml")
def test_the_tables_of_publishers_at_scale_are_filled(tmp_path: Path) -> None:
    """Searches with a publisher in C++ and one in Python, up to a rate that all of them hold."""
    series = play("zmq-pubsub-scale", tmp_path / "series", *PUBSUB_SCALE, file="series.json")
    assert series["complete"]
    answers = {step["variant"]: answer_of(tmp_path / "series", step) for step in series["steps"]}
    assert [*answers] == ["cpp", "python", "python reconnecting"]
    tables = {table["title"]: table for table in series["tables"]}
    for language, variant, others in (
        ("CPP", "cpp", []),
        ("Python", "python", ["python reconnecting"]),
    ):
        table = tables[f"ZMQ - {language} Pub/Sub"]
        assert len(table["columns"]) == 4 + len(others)
        ((clients, most, aggregate, best, *more),) = table["rows"]
        assert (clients["value"], best["unit"]) == (10, "per_s")
        assert all(cell["estimate"]["value"] > 0 for cell in (most, aggregate))
        answer = answers[variant]
        assert (most["estimate"], best["estimate"]) == (answer["most"], answer["best"])
        assert [cell["estimate"] for cell in more] == [answers[each]["best"] for each in others]


def answer_of(folder: Path, step: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer of a stored search. If each of its trials passed, the answer is its
    largest value, as a lower bound."""
    search = read(folder / step["folder"] / "search.json")
    answer: dict[str, Any] = search["answer"]
    assert answer["best"]["value"] > 0
    if all(trial["status"] == "pass" for trial in search["trials"]):
        assert (answer["best"]["value"], answer["best"]["bound"]) == (200, "at_least")
    return answer
