"""A run of Pubstorm is recorded as packets, and played again on another broker: with as many
clients, and with three times as many. Each test looks at another side of the three runs."""

from __future__ import annotations

import random
import re
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm import cli
from pubstorm.cli.record.capture import read_capture
from pubstorm.cli.record.population import SCENARIO, Observed, write_population
from pubstorm.cli.record.subscription import RecordedSubscription, record_subscription
from pubstorm.contract.recorded import recorded_messages
from pubstorm.contract.sessions import read_sessions
from pubstorm.contract.target import parse_target
from pubstorm.contract.template import STAMP_BYTES
from pubstorm.errors import UsageError
from tests.kit.packets import pcap_bytes, read_pcap
from tests.kit.runs import MosquittoMaker, Play, RunMaker
from tests.system.runs.dissector import Recording, recorded
from tests.system.runs.underway import counted, end_stage, until_seen

pytestmark = pytest.mark.xdist_group("replay")

CLIENTS, READERS = 12, 2
PAUSE_S = 0.05
"""Time between messages to a subscriber that records."""
RECORDED = """
target: {url}
seed: 5
clean_start: skip
populations:
  device:
    clients: 12
    keep_alive: 50s
    subscriptions: [{{topic: "cmd/device-{{n}}/#", qos: 1}}]
    publications:
      - {{topic: "up/device-{{n}}/{{temp|state}}", rate: 8/s, arrivals: poisson, qos: 1,
         size: {{mean: 300B, spread: 0.5}}}}
      - {{topic: "kept/device-{{n}}", rate: 1/s, qos: 0, retain: true, size: 20kB}}
  backend:
    version: 5
    clients: 2
    subscriptions: [{{topic: "up/#", qos: 1}}, {{topic: "kept/+", qos: 0}}]
    publications: [{{topic: "cmd/device-{{0..11}}/on", rate: 6/s, qos: 1, size: 64B}}]
stages: [connect, publish: 4s, disconnect]
"""


BRIEF_CLIENTS = 5
BRIEF = """
target: {url}
seed: 6
clean_start: skip
populations:
  brief:
    clients: 5
    lifetime: {{from: 3500ms, to: 4s, offline: 3500ms}}
    publications: [{{topic: "up/{{n}}", rate: 8/s, arrivals: poisson, qos: 0, size: 80B}}]
  reader:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 10min, disconnect]
"""
"""Two sessions of each client, longer than a stall of the host, as is the time between: a broker
that is late drops the old connection of a client that has returned. With QoS 0, no acknowledgement
comes for a client that has left, whose reset would lose what the broker has not read."""


@dataclass(frozen=True)
class Runs:
    """The recorded run and its replays, and the folder of the recording."""

    original: dict[str, Any]
    once: dict[str, Any]
    thrice: dict[str, Any]
    folder: Path
    packets: Recording


@pytest.fixture(scope="module")
def runs(shared_run: Play, shared_mosquitto: MosquittoMaker, shared_folder: Path) -> Runs:
    broker = shared_mosquitto()
    with recorded(broker.port, shared_folder) as packets:
        code, original = shared_run(RECORDED.format(url=broker.url))
    assert code == 0, original["verdict"]
    folder = shared_folder / "recording"
    results: list[dict[str, Any]] = [original]
    observed = read_capture(packets.file, [broker.port])
    for scale in (1, 3):
        other = shared_mosquitto()
        if scale == 1:
            write_population(observed, folder, other.url)
        # Each agent reads the messages of its own clients.
        words = [f"target={other.url}", f"scale={scale}", f"fleet.agents={scale}"]
        words = [word for each in words for word in ("--set", each)]
        code, result = shared_run(folder / SCENARIO, *words)
        assert code == 0, result["verdict"]
        results.append(result)
    original, once, thrice = results
    return Runs(original, once, thrice, folder, packets)


def totals(result: dict[str, Any], name: str) -> int:
    return sum(each[name] for each in result["populations"].values())


def test_both_ledgers_agree(runs: Runs) -> None:
    for name in ("sent_total", "acked_total", "received_total", "expected_total"):
        assert totals(runs.once, name) == totals(runs.original, name) > 0, name
    for result in (runs.once, runs.thrice):
        for name in ("lost_total", "duplicate_total", "reordered_total", "skipped_total"):
            assert totals(result, name) == 0, name


def test_sizes_and_topics_are_those_of_the_recording(runs: Runs) -> None:
    files = sorted(runs.folder.glob("publishers*.csv"))
    files = [each for each in files if "filters" not in each.name]
    messages = [each for file in files for each in recorded_messages(str(file))]
    assert len(messages) == totals(runs.original, "sent_total")
    kept = [each for each in messages if each.retain]
    assert {each.bytes for each in kept} == {20_000}
    ends = {each.topic.split("/")[0] for each in messages}
    assert ends == {"up", "kept", "cmd"}
    written = "".join(each.read_text() for each in runs.folder.iterdir())
    assert "device-" not in written and "backend-" not in written


def test_three_times_the_clients_send_three_times_the_messages(runs: Runs) -> None:
    clients = sum(each["clients"] for each in runs.thrice["populations"].values())
    assert clients == 3 * (CLIENTS + READERS)
    assert totals(runs.thrice, "sent_total") == 3 * totals(runs.original, "sent_total")
    assert totals(runs.thrice, "received_total") == totals(runs.thrice, "expected_total")


@pytest.mark.parametrize(("name", "apart"), [("once", 25), ("thrice", 40)])
def test_the_comparison_shows_equal_messages_and_curves(
    runs: Runs, name: str, apart: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result: dict[str, Any] = getattr(runs, name)
    assert cli.main(["record", "compare", result["run_directory"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    messages = [line for line in lines if line.startswith("  messages")]
    assert messages and all(line.endswith("+0.0%") for line in messages), lines
    curves = [line.split()[-1] for line in lines if "both curves" in line]
    assert len(curves) == len(messages)
    # Readings are of a whole second, and further clients are up to 1 s later, in a run of 4 s. All
    # messages at once would be 75 % apart.
    assert all(float(each.rstrip("%")) < apart for each in curves), lines
    fan_out = next(line for line in lines if "deliveries of a message" in line)
    assert name != "once" or fan_out.endswith("+0.0%"), lines


def damaged(packets: Recording, folder: Path) -> Path:
    """Returns the capture with a segment to the broker lost and another one without its end, one
    segment in ten twice and one in ten late, and without its last part."""
    whole, path = folder / "whole.pcap", folder / "damaged.pcap"
    subprocess.run(["editcap", "-F", "pcap", packets.file, whole], check=True)
    header, frames = read_pcap(whole.read_bytes())
    publishes = packets.dissected(
        *("-Y", f"mqtt.msgtype == 3 && tcp.dstport == {packets.port}"),
        *("-T", "fields", "-e", "frame.number", "-e", "tcp.stream"),
    )
    by_stream = {stream: int(number) - 1 for number, stream in map(str.split, publishes[::-1])}
    # The first message of one client, and of another one.
    lost, cut = sorted(by_stream.values())[:2]
    frames[cut] = replace(frames[cut], data=frames[cut].data[:-20])
    del frames[lost]
    for at in range(20, len(frames) - 1, 10):
        if at != cut:
            frames[at], frames[at + 1] = frames[at + 1], frames[at]
    twice = [each for n, each in enumerate(frames) for each in [each] * (1 + (n % 10 == 5))]
    content = pcap_bytes(header, twice)
    path.write_bytes(content[: len(content) * 9 // 10])
    return path


@pytest.mark.slow("a run of a recording of 4 s, after the three that all tests share")
def test_a_damaged_capture_is_played_as_far_as_it_is_known(
    runs: Runs,
    shared_run: Play,
    shared_mosquitto: MosquittoMaker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Recorded messages were sent, missing ones are said, and the replay has the same messages over
    the same time."""
    port = runs.packets.port
    sent, found = (
        Counter(each[1:] for each in read_capture(file, [port]).messages())
        for file in (runs.packets.file, damaged(runs.packets, tmp_path))
    )
    assert found < sent and found.total() > sent.total() / 2
    observed, other = read_capture(tmp_path / "damaged.pcap", [port]), shared_mosquitto()
    words = " ".join(observed.unknown)
    assert "2 connections have a gap" in words and "the first part was read" in words
    assert "1 packets are shorter" in words
    write_population(observed, tmp_path / "out", other.url)
    code, played = shared_run(tmp_path / "out" / SCENARIO)
    assert code == 0, played["verdict"]
    assert totals(played, "sent_total") == found.total()
    assert totals(played, "received_total") == totals(played, "expected_total") > 0
    assert totals(played, "lost_total") == totals(played, "duplicate_total") == 0
    assert cli.main(["record", "compare", played["run_directory"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    messages = [line for line in lines if line.startswith("  messages")]
    assert messages and all(line.endswith("+0.0%") for line in messages), lines
    curves = [line.split()[-1] for line in lines if "both curves" in line]
    assert len(curves) == len(messages)
    assert all(float(each.rstrip("%")) < 25 for each in curves), lines
    fan_out = next(line for line in lines if "deliveries of a message" in line)
    assert "unknown" in fan_out, lines


@pytest.mark.slow("three runs of a recording of 12 s: two long sessions of each client")
def test_recorded_sessions_are_played_at_their_instants(
    shared_start: RunMaker, shared_run: Play, shared_mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    """A replay has each session of the recording, and each of its messages within them."""
    broker = shared_mosquitto()
    with recorded(broker.port, tmp_path) as packets:
        run, ended = shared_start(BRIEF.format(url=broker.url)), 2 * BRIEF_CLIENTS
        until_seen(run, lambda: counted(run.directory, "brief", "left_total") >= ended)
        end_stage(run.directory)
        code, original = run.finish(), run.result()
    assert code == 0, original["verdict"]
    other, folder = shared_mosquitto(), tmp_path / "recording"
    write_population(read_capture(packets.file, [broker.port]), folder, other.url)
    (file,) = folder.glob("*-sessions.csv")
    sessions = read_sessions(str(file))
    assert sessions.clients == BRIEF_CLIENTS and sessions.ended > BRIEF_CLIENTS
    for scale in (1, 2):
        words = ["--set", f"target={other.url}", "--set", f"scale={scale}"]
        code, played = shared_run(folder / SCENARIO, *words, "--set", f"fleet.agents={scale}")
        assert code == 0, played["verdict"]
        counters = played["populations"][file.name.removesuffix("-sessions.csv")]
        assert counters["connected_total"] == scale * sessions.sessions
        assert counters["left_total"] == scale * sessions.ended
        sent, received = (totals(played, name) for name in ("sent_total", "received_total"))
        assert sent == scale * totals(original, "sent_total") > 0
        assert received == scale * sent
        assert totals(played, "skipped_total") == totals(played, "lost_total") == 0


@pytest.mark.slow("three runs of a recording of 2 s")
def test_recorded_payloads_are_played_as_they_were(
    shared_run: Play, shared_mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    """Clients of another program send bytes of any kind, and receive the replay."""
    broker, draw = shared_mosquitto(), random.Random(3)
    sent = [draw.randbytes(draw.choice([0, 1, 20, 32, 300, 5000])) for _ in range(40)]
    with recorded(broker.port, tmp_path) as packets:
        clients = [mqtt.Client(CallbackAPIVersion.VERSION2) for _ in range(2)]
        for client in clients:
            client.connect("127.0.0.1", broker.port)
            client.loop_start()
        for n, payload in enumerate(sent):
            clients[n % 2].publish(f"from/{n % 2}", payload, qos=1).wait_for_publish(30)
        for client in clients:
            client.disconnect()
            client.loop_stop()
    observed = read_capture(packets.file, [broker.port], payloads=True)
    other, folder = shared_mosquitto(), tmp_path / "recording"
    write_population(observed, folder, other.url)
    assert not any("payloads" in each for each in observed.unknown)
    written = (folder / SCENARIO).read_text()
    watcher = "populations:\n  watcher: {clients: 1, version: 5, subscriptions: [from/#]}\n"
    watched = written.replace("populations:\n", watcher)
    replay, front = 'replay: "?publishers.csv"?', "replay: {file: publishers.csv, stamp: front}"
    for name, text, before in (
        ("plain", written, 0),
        ("front", re.sub(replay, front, watched), STAMP_BYTES),
        ("beside", watched.replace("  publishers:\n", "  publishers:\n    version: 5\n"), 0),
    ):
        scenario = folder / f"{name}.yaml"
        scenario.write_text(text)
        received, subscribed = list[bytes](), threading.Event()
        reader = mqtt.Client(CallbackAPIVersion.VERSION2)
        reader.on_message = lambda *args, to=received: to.append(args[-1].payload)
        reader.on_subscribe = lambda *_, event=subscribed: event.set()
        reader.connect("127.0.0.1", other.port)
        reader.loop_start()
        reader.subscribe("from/#", qos=1)
        assert subscribed.wait(30)
        code, played = shared_run(scenario, "--set", "clean_start=skip")
        assert code == 0, played["verdict"]
        reader.disconnect()
        reader.loop_stop()
        assert Counter(each[before:] for each in received) == Counter(sent)
        assert all(len(each) >= before for each in received)
        assert totals(played, "sent_total") == len(sent)
        if name != "plain":
            found = played["populations"]["watcher"]
            assert found["received_total"] == found["latency_us"]["intended"]["count"] == len(sent)


def test_a_subscription_records_what_arrives(shared_mosquitto: MosquittoMaker) -> None:
    """The RETAIN flag is that of the publisher, and level 2 of a topic names its client."""
    broker, found = shared_mosquitto(), list[Observed]()
    wanted = RecordedSubscription(filters=["up/#"], seconds=2.0, level=2)

    def listen() -> None:
        found.append(record_subscription(parse_target(broker.url), wanted))

    listener, client = threading.Thread(target=listen), mqtt.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    listener.start()
    while listener.is_alive():
        for name in ("one", "two"):
            client.publish(f"up/{name}/temp", b"x" * 40, qos=1, retain=name == "two")
        listener.join(PAUSE_S)
    client.disconnect()
    client.loop_stop()
    kinds = {message[1:] for message in found[0].messages()}
    assert kinds == {("one", "up/one/temp", 40, 1, False), ("two", "up/two/temp", 40, 1, True)}
    assert any("Publishers are unknown" in sentence for sentence in found[0].unknown)


def test_a_subscription_at_no_broker_is_an_error(unused_port: int) -> None:
    target = parse_target(f"mqtt://127.0.0.1:{unused_port}")
    with pytest.raises(UsageError, match="found no broker at"):
        record_subscription(target, RecordedSubscription(filters=["#"], seconds=1.0))
