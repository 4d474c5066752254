"""Data of messages as it is: payloads from files, their encodings, and weights of sizes and
topics."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from backports import zstd
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.data import ROUND_MAX, Data, bins_of, round_of
from pubstorm.scenario.encodings import DataError

ROWS = 'id,value,open,note\nTH-1,20.5,true,"a ""b"""\nTH-2,-3,false,\n'
AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "value", "type": "double"},
        {"name": "open", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
READINGS = [
    {"id": "TH-1", "value": 20.5, "open": True, "note": 'a "b"'},
    {"id": "TH-2", "value": -3.0, "open": False, "note": None},
]


def descriptors() -> bytes:
    """A file of descriptors, as protoc writes it."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="plant.proto", package="plant", syntax="proto3")
    message = file.message_type.add(name="Reading")
    kinds = {"id": 9, "value": 1, "open": 8, "note": 9}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    written: bytes = files.SerializeToString()
    return written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "lines.txt").write_bytes(b"one\r\n\n\xff\x00\n")
    (tmp_path / "objects.txt").write_text("".join(json.dumps(each) + "\n" for each in READINGS))
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)))
    (tmp_path / "reading.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "plant.desc").write_bytes(descriptors())
    return tmp_path


def data(folder: Path, **keys: Any) -> Data:
    return Data.model_validate(keys, context=folder)


@pytest.mark.parametrize(
    ("keys", "records"),
    [
        ({"file": "picture.bin"}, [bytes(range(256))]),
        ({"lines": "lines.txt"}, [b"one", b"", b"\xff\x00"]),
        ({"rows": "rows.csv", "text": "{row.id}={row.value}"}, [b"TH-1=20.5", b"TH-2=-3"]),
        (
            {"rows": "rows.csv", "text": {"i": "{row.id}", "v": ["{row.value}", "{row.open}", 1]}},
            [b'{"i":"TH-1","v":[20.5,true,1]}', b'{"i":"TH-2","v":[-3,false,1]}'],
        ),
        (
            {"rows": "rows.csv", "text": {"n": "{row.note}", "{x": "v {row.value}"}},
            [rb'{"n":"a \"b\"","{x":"v 20.5"}', b'{"n":"","{x":"v -3"}'],
        ),
    ],
)
def test_a_file_has_these_payloads(folder: Path, keys: Any, records: list[bytes]) -> None:
    assert [*data(folder, **keys).records()] == records


@pytest.mark.parametrize(
    ("compress", "restored"),
    [("gzip", gzip.decompress), ("deflate", zlib.decompress), ("zstd", zstd.decompress)],
)
def test_a_compressed_payload_is_restored(
    folder: Path, compress: str, restored: Callable[[bytes], bytes]
) -> None:
    made = data(folder, lines="lines.txt", compress=compress).records()
    assert [restored(each) for each in made] == [b"one", b"", b"\xff\x00"]
    assert made == data(folder, lines="lines.txt", compress=compress).records(), "without a time"


@pytest.mark.parametrize("source", [{"rows": "rows.csv"}, {"lines": "objects.txt"}])
def test_a_schema_of_avro_reads_what_was_encoded(folder: Path, source: Any) -> None:
    made = data(folder, **source, avro="reading.avsc").records()
    schema = fastavro.parse_schema(AVRO)
    found = [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in made]
    assert found == READINGS


@pytest.mark.parametrize("source", [{"rows": "rows.csv"}, {"lines": "objects.txt"}])
def test_a_message_of_protobuf_is_parsed_again(folder: Path, source: Any) -> None:
    protobuf = {"descriptors": "plant.desc", "message": "plant.Reading"}
    made = data(folder, **source, protobuf=protobuf).records()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))
    found = [json_format.MessageToDict(kind.FromString(each)) for each in made]
    assert found == [
        {"id": "TH-1", "value": 20.5, "open": True, "note": 'a "b"'},
        {"id": "TH-2", "value": -3.0},
    ]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rows": "rows.csv", "avro": "rows.csv"}, "which is no schema of Avro"),
        ({"rows": "rows.csv", "avro": "other.avsc"}, "found id in row 1 of "),
        ({"lines": "lines.txt", "avro": "reading.avsc"}, "found no object of JSON in line 1 of "),
        ({"lines": "broken.txt", "avro": "reading.avsc"}, "which does not fit the schema: "),
        (
            {"rows": "rows.csv", "protobuf": {"descriptors": "plant.desc", "message": "R"}},
            "found the message R, allowed in ",
        ),
        (
            {"lines": "broken.txt", "protobuf": {"descriptors": "plant.desc", "message": "Q"}},
            "plant.Reading",
        ),
        (
            {
                "lines": "broken.txt",
                "protobuf": {"descriptors": "plant.desc", "message": "plant.Reading"},
            },
            "which is no plant.Reading: ",
        ),
        ({"lines": "many.txt"}, "found more payloads than 100,000"),
        ({"file": "large.bin"}, "it has more than 16,777,216 bytes"),
    ],
)
def test_data_that_cannot_be_encoded_is_refused(folder: Path, keys: Any, words: str) -> None:
    other = {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]}
    (folder / "other.avsc").write_text(json.dumps(other))
    (folder / "broken.txt").write_text('{"id": 1, "value": "x", "open": "perhaps", "note": []}\n')
    (folder / "many.txt").write_text("\n" * 100_001)
    with (folder / "large.bin").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    with pytest.raises(DataError) as error:
        data(folder, **keys).records()
    assert words in error.value.message


@pytest.mark.parametrize(
    ("keys", "library"),
    [({"avro": "reading.avsc"}, "fastavro"), ({"text": "x", "compress": "zstd"}, "backports.zstd")],
)
def test_a_library_that_is_not_installed_is_named(
    folder: Path, keys: Any, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    if library == "backports.zstd":
        monkeypatch.delattr("backports.zstd")
    with pytest.raises(DataError) as error:
        data(folder, rows="rows.csv", **keys).records()
    assert "[payloads]" in (error.value.hint or "")


@given(st.lists(st.floats(0.001, 1000) | st.integers(1, 100), min_size=1, max_size=50))
def test_a_round_has_the_proportions_of_the_weights(weights: list[float]) -> None:
    found = round_of(weights, len(weights))
    assert sum(found) <= ROUND_MAX
    for weight, messages in zip(weights, found, strict=True):
        share = weight / sum(weights)
        assert messages >= 1
        assert messages / sum(found) == pytest.approx(share, abs=2 * len(weights) / ROUND_MAX)


@pytest.mark.parametrize(
    ("weights", "values", "messages"),
    [
        ((60, 30, 10), 3, (6, 3, 1)),
        ((0.5, 0.25), 2, (2, 1)),
        ((7, 7), 2, (1, 1)),
        ((10**9, 1), 2, (ROUND_MAX - 3, 1)),
    ],
)
def test_a_round_is_as_short_as_its_weights_allow(
    weights: tuple[float, ...], values: int, messages: tuple[int, ...]
) -> None:
    assert round_of(weights, values) == messages


def test_weights_of_zipf_fall_with_the_rank() -> None:
    found = round_of(1.0, 1000)
    assert found[0] / found[9] == pytest.approx(10, rel=1e-3)
    assert found[0] / found[999] == pytest.approx(1000, rel=1e-2)


def test_bins_have_their_parts_of_the_draws() -> None:
    assert [*bins_of(((10, 1), (20, 0.5), (30, 0.5)))] == [
        (10, 2**31),
        (20, 3 * 2**30),
        (30, 2**32),
    ]
    assert [*bins_of(((10, 10**9), (20, 0.01)))] == [(10, 2**32)], "less than one draw"


def scenario(folder: Path, publication: str) -> Scenario:
    text = f"""
target: mqtt://localhost
populations: {{device: {{clients: 2, publications: [{publication}]}}}}
stages: [connect, publish: 1s]
"""
    return parse_scenario(text, str(folder / "s.yaml"))


def test_a_plan_has_topics_of_a_file_as_a_choice_with_weights(folder: Path) -> None:
    (folder / "topics.csv").write_text("weight,topic\n3,plant/a/temp\n1.5,yard\n")
    made = provisional_plan(scenario(folder, "{topic: {file: topics.csv}, rate: 1/s}"))
    publication = made.populations[0].publications[0]
    assert (publication.topic, publication.weights) == ("{plant/a/temp|yard}", (2, 1))


def test_topics_of_a_file_without_weights_take_turns(folder: Path) -> None:
    (folder / "topics.csv").write_text("topic\nplant/a/temp\nyard\n")
    text = "{topic: {file: topics.csv}, rate: 1/s, order: shuffled}"
    publication = provisional_plan(scenario(folder, text)).populations[0].publications[0]
    assert (publication.weights, publication.order) == ((), "shuffled")


def test_payloads_of_all_publications_together_have_a_limit(folder: Path) -> None:
    with (folder / "half.bin").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    one = "{topic: a, rate: 1/s, data: half.bin}"
    assert scenario(folder, one).populations["device"].flows[0].source is not None
    with pytest.raises(Exception, match="found 18,874,368 bytes of payloads from files up to here"):
        scenario(folder, f"{one}, {one}")
