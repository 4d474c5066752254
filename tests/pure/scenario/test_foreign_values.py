"""Values of foreign files and addresses in scenarios: each is taken for what it says, or refused in
words. No value gives a traceback, and none becomes another value."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.target import parse_sources, parse_target
from pubstorm.errors import PubstormError
from pubstorm.plan import provisional_plan
from pubstorm.quantities import UnfitError
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.encodings import DataError, avro_encoder, protobuf_encoder

WORDS = st.sampled_from(
    [
        *("", "0", "-7", "+7", " 5", "1_000", "٣", "1.50", "1e3", "1e300", "1e400", "nan", "NaN"),
        *("Infinity", "inf", "true", "True", "no", "00", "7f", "7F0", "YWI=", "YW==", "ONE", "2"),
        *("2147483648", "-2147483649", "9223372036854775808", "9" * 5000, "a b", "\0", "é"),
    ]
)
TEXTS = st.one_of(WORDS, st.text(max_size=6))
SCALARS = st.one_of(
    *(WORDS, st.none(), st.booleans(), st.integers(), st.integers(-3, 3), st.floats(), st.text()),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, 1e300, -1e39]),
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2)
)
AVRO_KINDS = ("int", "long", "float", "double", "boolean", "string", "bytes", "null")
PROTO_KINDS = {"int32": 5, "int64": 3, "uint32": 13, "float": 2, "double": 1, "bool": 8} | {
    "string": 9,
    "bytes": 12,
    "enum": 14,
}


def is_same(kind: str, given: Any, found: Any) -> bool:
    """Returns True if a value of a kind is the one that was given."""
    if kind in {"float", "double"}:
        number = float(given)
        if not math.isfinite(number) or not math.isfinite(found):
            return repr(number) == repr(found)
        return bool(found == pytest.approx(number, rel=1e-6, abs=1e-37))
    if kind == "bytes":
        return bool(found == bytes.fromhex(given))
    if kind in {"boolean", "bool"} and isinstance(given, str):
        given = {"true": True, "false": False}[given]
    if isinstance(given, str) and kind not in {"string", "null"}:
        # Digits of ASCII and a point have one meaning.
        assert given.isascii() and "_" not in given and given == given.strip()
        given = Decimal(given)
    return bool(found == given and isinstance(found, bool) == isinstance(given, bool))


@pytest.mark.parametrize("kind", AVRO_KINDS)
@given(value=st.one_of(TEXTS, JSON))
def test_a_value_for_avro_is_read_as_what_it_is(kind: str, value: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", kind]}]}
    if kind == "null":
        schema["fields"] = [{"name": "a", "type": "null"}]
    try:
        encoded = avro_encoder("s.avsc", json.dumps(schema).encode())({"a": value}, "row 1 of f")
    except DataError as error:
        assert "row 1 of f" in error.message
        return
    read: Any = fastavro.schemaless_reader(io.BytesIO(encoded), fastavro.parse_schema(schema), None)
    if read["a"] is None:
        assert value is None or value == ""
    else:
        assert is_same(kind, value, read["a"])


@given(
    schema=st.one_of(
        st.binary(max_size=20),
        JSON.map(lambda each: json.dumps(each).encode()),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["record", "enum", "array"]), "name": JSON, "fields": JSON}
        ).map(lambda each: json.dumps(each).encode()),
    ),
    values=st.dictionaries(TEXTS, JSON, max_size=2),
)
def test_any_schema_of_avro_is_one_or_refused(schema: bytes, values: dict[str, Any]) -> None:
    try:
        avro_encoder("s.avsc", schema)(values, "row 1")
    except DataError as error:
        assert error.message.startswith("found ")


def descriptors(kind: int) -> bytes:
    """A file of descriptors of a message with one field."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="p.proto", package="p", syntax="proto3")
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE")):
        enum.value.add(name=name, number=number)
    field = file.message_type.add(name="R").field.add(name="a", number=1, type=kind, label=1)
    if kind == PROTO_KINDS["enum"]:
        field.type_name = ".p.E"
    written: bytes = files.SerializeToString()
    return written


def decoded(described: bytes, encoded: bytes) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.R"))
    return message.FromString(encoded).a


@pytest.mark.parametrize("kind", PROTO_KINDS)
@given(value=st.one_of(TEXTS, JSON))
def test_a_value_for_protobuf_is_read_as_what_it_is(kind: str, value: Any) -> None:
    described = descriptors(PROTO_KINDS[kind])
    try:
        encoded = protobuf_encoder("p.desc", described, "p.R")({"a": value}, "row 1 of f")
    except DataError as error:
        assert "row 1 of f" in error.message
        return
    found = decoded(described, encoded)
    if value is None or kind == "bytes":
        # The text of bytes is that of JSON: base64, with letters of both alphabets.
        assert not found or all(each.isascii() and each not in " \0" for each in value)
    elif kind == "enum" and value in {"ZERO", "ONE"}:
        assert found == ["ZERO", "ONE"].index(value)
    else:
        assert is_same(kind, value, found)


@given(descriptors=st.binary(max_size=40), name=TEXTS, share=st.floats(0, 1))
def test_any_file_of_descriptors_is_one_or_refused(
    descriptors: bytes, name: str, share: float
) -> None:
    whole = globals()["descriptors"](PROTO_KINDS["enum"])
    for content in (descriptors, whole[: round(share * len(whole))] + descriptors):
        try:
            protobuf_encoder("p.desc", content, name)({"a": "1"}, "row 1")
        except DataError as error:
            assert error.message.startswith("found ")


def planned(folder: Path, publication: str) -> Any:
    text = f"""
target: mqtt://localhost
populations: {{device: {{clients: 2, publications: [{publication}]}}}}
stages: [connect, publish: 1s]
"""
    scenario = parse_scenario(text, str(folder / "s.yaml"))
    return provisional_plan(scenario).populations[0].publications[0]


def table(folder: Path, headings: str, rows: list[list[str]]) -> None:
    lines = [",".join(f'"{each}"' for each in row) for row in rows]
    path = folder / "table.csv"
    path.write_text("\n".join([headings, *lines]) + "\n", encoding="utf-8", errors="replace")


CELLS = st.one_of(WORDS, st.sampled_from(["10", "500B", "-1B", "1kB", "300MB", "0.5"]), st.text())
CLEAN = CELLS.map(lambda each: "".join(c for c in each if c not in '"\r\n' and c.isprintable()))


@given(rows=st.lists(st.lists(CLEAN, min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_file_of_sizes_is_a_histogram_or_refused(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    table(folder, "size,weight", rows)
    try:
        found = planned(folder, "{topic: a, rate: 1/s, size: {histogram: table.csv}}").payload.bins
    except PubstormError as error:
        assert "histogram" in str(error)
        return
    units = {"B": 1, "kB": 1000, "": 1}
    sizes = {}
    for size, weight in rows:
        number = size.rstrip("kB")
        sizes[int(Decimal(number) * units[size.removeprefix(number)])] = Decimal(weight.strip())
    assert len(found) <= len(sizes) == len(rows)
    shares = {
        bin_.bytes: bin_.end - before
        for bin_, before in zip(found, [0, *(b.end for b in found[:-1])], strict=True)
    }
    for size_bytes, share in sizes.items():
        assert shares.get(size_bytes, 0) / 2**32 == pytest.approx(
            float(share / sum(sizes.values())), abs=1e-9
        )


@given(rows=st.lists(st.lists(CLEAN, min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_file_of_topics_has_these_topics_or_is_refused(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("topics")
    rows = [[topic, weight] for topic, weight in rows]
    table(folder, "topic,weight", rows)
    try:
        found = planned(folder, "{topic: {file: table.csv}, rate: 1/s}")
    except PubstormError as error:
        assert "topic" in str(error)
        return
    assert found.topic == f"{{{'|'.join(topic for topic, _ in rows)}}}"
    weights = [Decimal(weight.strip()) for _, weight in rows]
    messages = found.weights or [1] * len(rows)
    for weight, count in zip(weights, messages, strict=True):
        share = float(weight / sum(weights))
        assert count / sum(messages) == pytest.approx(share, abs=1e-5)


ZONES = st.one_of(st.just(""), st.text("%25eth0.~_-/] ", max_size=8).map("%25{}".format))
ADDRESSES = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(network="fe80::/10").map(str),
    st.text("0:.af", max_size=9),
)
URLS = st.tuples(
    st.sampled_from(["mqtt", "mqtts", "ws", "wss", "quic", "zmq", "nats", "kafka", "amqp", "tcp"]),
    st.one_of(
        st.tuples(ADDRESSES, ZONES).map("[{0[0]}{0[1]}]".format), st.text("a9.-_:%é", max_size=9)
    ),
    st.one_of(st.just(""), st.integers(-1, 70_000).map(":{}".format)),
    st.one_of(st.just(""), st.text("/?ab%2F#{} é", max_size=6).map("/{}".format)),
).map("{0[0]}://{0[1]}{0[2]}{0[3]}".format)


@given(text=st.one_of(URLS, st.text(max_size=20)))
def test_an_address_is_written_as_it_was_read_or_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except UnfitError:
        return
    shown = str(target)
    assert parse_target(shown if "://" in shown else f"mqtt://{shown}") == target
    address, percent, zone = target.host.partition("%")
    assert not percent or (ip_address(address).is_link_local and f"%25{zone}]" in text)


@given(
    text=st.one_of(ADDRESSES, st.tuples(ADDRESSES, st.text("%eth0-. ", max_size=5)).map("".join))
)
def test_a_source_is_an_address_that_agents_can_use_or_refused(text: str) -> None:
    try:
        found = parse_sources(text)
    except UnfitError:
        return
    # The agents' type has no zone.
    assert found is not None and all("%" not in str(ip_address(each)) for each in found)
