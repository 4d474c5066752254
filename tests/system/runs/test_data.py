"""One run of data as it is, at a mosquitto: payloads from files, sizes from a histogram, and topics
with weights. Another client, of paho, receives the very bytes."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from pubstorm.contract.template import STAMP_BYTES
from tests.kit.runs import MosquittoMaker, Play
from tests.system.topology.clients import client

LINES = [b"one", b"", b"\xff\x00\xfe", b"four " * 2000]
PICTURE = bytes(range(256)) * 300
SIZES = {100: 60, 1000: 30, 10_000: 10}
TOPICS = {"plant/a/temp": 6, "plant/b": 3, "yard/gate/1/open": 1}
AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "id", "type": "string"}, {"name": "value", "type": "double"}],
}
READINGS = [{"id": "TH-1", "value": 20.5}, {"id": "TH-2", "value": -3.0}]
SCENARIO = """
target: {target}
drain: 5s
monitors: {{host: false}}
fleet: {{agents: 2}}
stages:
  - connect
  - publish: {{messages: 50/client}}
thresholds: [lost == 0, expected > 0, five.latency.p99 < 10min, three.latency.p99 < 10min]
populations:
  device:
    clients: 4
    version: 5
    publications:
      - {{topic: "picture/{{n}}", qos: 1, rate: 20/s, data: picture.bin}}
      - {{topic: "line/{{n}}", qos: 1, rate: 20/s, data: {{lines: lines.txt}}}}
      - topic: "zip/{{n}}"
        qos: 1
        rate: 20/s
        data: {{lines: lines.txt, order: shuffled, compress: gzip}}
      - {{topic: "avro/{{n}}", qos: 1, rate: 20/s, data: {{rows: rows.csv, avro: reading.avsc}}}}
      - {{topic: {{file: topics.csv}}, qos: 1, rate: 20/s, size: 100B}}
  old:
    clients: 2
    first: 10
    publications:
      - {{topic: "front/{{n}}", qos: 1, rate: 20/s, data: {{lines: lines.txt, stamp: front}}}}
      - topic: "size/{{n}}"
        qos: 1
        rate: 20/s
        size: {{histogram: {{100B: 60, 1kB: 30, 10kB: 10}}}}
  five: {{clients: 2, version: 5, subscriptions: [{{topic: "#", qos: 1}}]}}
  three:
    clients: 1
    subscriptions: [{{topic: "front/#", qos: 1}}, {{topic: "+/+/temp", qos: 1}}]
"""


@dataclass
class Seen:
    """The run, and the messages of another client."""

    code: int
    result: Mapping[str, Any]
    payloads: Mapping[str, list[bytes]]
    """Payloads by topic, in order."""

    def of(self, prefix: str) -> list[list[bytes]]:
        """Payloads of each topic with a prefix."""
        return [own for topic, own in self.payloads.items() if topic.startswith(f"{prefix}/")]


@pytest.fixture(scope="module")
def seen(shared_mosquitto: MosquittoMaker, shared_run: Play, shared_folder: Path) -> Seen:
    (shared_folder / "picture.bin").write_bytes(PICTURE)
    (shared_folder / "lines.txt").write_bytes(b"\n".join(LINES) + b"\n")
    (shared_folder / "rows.csv").write_text("id,value\nTH-1,20.5\nTH-2,-3\n")
    (shared_folder / "reading.avsc").write_text(json.dumps(AVRO))
    weights = "".join(f"{topic},{weight}\n" for topic, weight in TOPICS.items())
    (shared_folder / "topics.csv").write_text(f"topic,weight\n{weights}")
    broker = shared_mosquitto(max_queued_messages=0)
    with client(broker.port) as other:
        other.subscribe("#")
        code, result = shared_run(SCENARIO.format(target=broker.url))
        other.publish("end", b"")
        payloads: defaultdict[str, list[bytes]] = defaultdict(list)
        while (message := other.next())[0] != "end":
            payloads[message[0]].append(message[1])
    return Seen(code, result, payloads)


def test_no_delivery_is_lost_and_mqtt_5_has_latencies(seen: Seen) -> None:
    assert seen.code == 0
    sent = sum(map(len, seen.payloads.values()))
    flows = [each for each in seen.result["flows"] if each["to"] == "five"]
    assert sum(each["received_total"] for each in flows) == 2 * sent


def test_the_bytes_of_a_file_arrive(seen: Seen) -> None:
    assert len(seen.of("picture")) == 4
    assert {*seen.of("picture")[0]} == {PICTURE}


def test_lines_are_sent_in_turn(seen: Seen) -> None:
    for own in seen.of("line"):
        assert own == [LINES[k % len(LINES)] for k in range(len(own))]


def test_each_round_of_shuffled_lines_has_all_of_them_compressed(seen: Seen) -> None:
    for own in seen.of("zip"):
        restored = [gzip.decompress(each) for each in own]
        whole = len(restored) // len(LINES) * len(LINES)
        assert whole
        for start in range(0, whole, len(LINES)):
            assert sorted(restored[start : start + len(LINES)]) == sorted(LINES)
    assert len({tuple(own) for own in seen.of("zip")}) > 1, "clients have orders of their own"


def test_another_library_reads_avro(seen: Seen) -> None:
    schema = fastavro.parse_schema(AVRO)
    for own in seen.of("avro"):
        found = [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in own]
        assert found == [READINGS[k % 2] for k in range(len(own))]


def test_a_stamp_in_front_leaves_the_rest_as_it_is(seen: Seen) -> None:
    for own in seen.of("front"):
        assert [each[STAMP_BYTES:] for each in own] == [LINES[k % 4] for k in range(len(own))]


def test_sizes_are_those_of_the_histogram(seen: Seen) -> None:
    sizes = Counter(len(each) for own in seen.of("size") for each in own)
    assert {*sizes} == {*SIZES}
    assert sizes[100] > sizes[1000] > sizes[10_000]


def test_topics_have_their_weights_in_each_round_of_a_client(seen: Seen) -> None:
    counts = {topic: len(seen.payloads[topic]) for topic in TOPICS}
    messages = sum(counts.values())
    assert messages
    for topic, weight in TOPICS.items():
        # Four clients, each within one round of ten.
        assert counts[topic] == pytest.approx(messages * weight / 10, abs=4 * weight)
