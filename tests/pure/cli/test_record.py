"""`pubstorm record`: tables, captures and messages of a subscription become population files, and
say what is not known. Hostile input gives errors, never a traceback."""

from __future__ import annotations

import contextlib
import random
import shutil
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm import cli
from pubstorm.cli.record.capture import observed_in, read_capture
from pubstorm.cli.record.comparison import curve_distance
from pubstorm.cli.record.fit import write_fitted
from pubstorm.cli.record.population import FACTS, SCENARIO, Observed, write_population
from pubstorm.cli.record.subscription import add_received
from pubstorm.cli.record.table import instant_ns, read_table
from pubstorm.contract.recorded import read_recorded, recorded_messages
from pubstorm.contract.template import RowsError
from pubstorm.errors import UsageError
from pubstorm.plan import provisional_plan
from pubstorm.scenario.load import load_scenario
from tests.kit.packets import Segment, connect, publish, segments, subscribe, write_pcap

T = TypeVar("T")
SECOND = 10**9
TARGET = "mqtt://localhost:1883"


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(["a", "b", "c{", "dev-1"]),
        st.sampled_from(["t", "x/dev-1/y", "x/{n}/y", "x//z", "a/b", "é/ü"]),
        st.integers(1, 2000),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=30)
@given(messages=MESSAGES)
def test_each_message_of_a_table_is_in_the_files_at_its_instant(
    messages: list[tuple[int, str, str, int, int, bool]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("table")
    lines = [f"{ms / 1000:.3f},{c},{t},{size},{q},{r}" for ms, c, t, size, q, r in messages]
    text = "\n".join(["time,client,topic,size,qos,retain", *lines])
    write_population(read_table(table(folder, text)), folder / "out", TARGET)
    start = min(message[0] for message in messages)
    wanted = sorted((ms - start, size, qos, retain) for ms, _, _, size, qos, retain in messages)
    files = sorted((folder / "out").glob("publishers*.csv"))
    found = [each for file in files for each in recorded_messages(str(file))]
    assert wanted == sorted(
        (each.after_ns // 10**6, each.bytes, each.qos, each.retain) for each in found
    )
    clients = {message[1] for message in messages}
    assert sum(read_recorded(str(file)).clients for file in files) == len(clients)
    scenario = load_scenario(folder / "out" / SCENARIO)
    flows = [flow for each in scenario.populations.values() for flow in each.flows]
    assert len(flows) == len({(qos, retain) for *_, qos, retain in messages})


def test_identities_become_numbers_and_topics_follow_them(tmp_path: Path) -> None:
    text = "time,client,topic,size\n0,secret-1,up/secret-1/x,40\n1,secret-2,up/secret-1/x,40\n"
    observed = read_table(table(tmp_path, f"{text}2,secret-1,to/secret-3,40\n"))
    # A client that neither publishes nor subscribes is in no population.
    observed.client("secret-3")
    write_population(observed, tmp_path / "out", TARGET)
    topics = [each.topic for each in recorded_messages(str(tmp_path / "out/publishers.csv"))]
    assert topics == ["up/publishers-{n}/x", "up/publishers-0/x", "to/other-0"]
    written = "".join(each.read_text() for each in (tmp_path / "out").iterdir())
    assert "secret" not in written


PAYLOADS = (b"", b"a", bytes(range(256)), b"x" * 5000)


def test_payloads_of_a_table_are_recorded_only_when_asked(tmp_path: Path) -> None:
    rows = [f"{n},c,t,{len(p)},{b64encode(p).decode()}" for n, p in enumerate(PAYLOADS)]
    path = table(tmp_path, "\n".join(["time,client,topic,size,payload", *rows]))
    for asked in (False, True):
        observed = read_table(path, payloads=asked)
        lines = write_population(observed, tmp_path / str(asked), TARGET)
        file = tmp_path / str(asked) / "publishers.csv"
        found = tuple(each.payload for each in recorded_messages(str(file)))
        assert found == (PAYLOADS if asked else (None,) * len(PAYLOADS))
        assert read_recorded(str(file)).has_payloads == asked
        assert any("as secret as the data" in line for line in lines) == asked
        plan = provisional_plan(load_scenario(tmp_path / str(asked) / SCENARIO))
        payload = plan.populations[0].publications[0].recorded
        assert payload is not None
        wanted = ("beside", max(map(len, PAYLOADS))) if asked else ("sizes", 5000)
        assert (payload.content, payload.max_bytes) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,client,topic,size\n0,c,t,1\n", "no column payload"),
        ("time,client,topic,size,payload\n0,c,t,2,eA==\n", "a payload of 1 bytes, needed are 2"),
        ("time,client,topic,size,payload\n0,c,t,1,eB==\n", "allowed is base64"),
        ("time,client,topic,size,payload\n0,c,t,1,e\n", "allowed is base64"),
    ],
)
def test_a_table_with_wrong_payloads_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RowsError, match=words):
        read_table(table(tmp_path, text), payloads=True)


def test_payloads_of_a_capture_are_those_on_the_wire(tmp_path: Path) -> None:
    sent = [connect("c"), *(publish("t", each, qos=n % 2) for n, each in en(PAYLOADS))]
    path = write_pcap(tmp_path / "c.pcap", segments(SECOND, 1, sent, 700))
    for asked in (False, True):
        found = tuple(p for _, p in captured(path, payloads=asked).with_payloads())
        assert found == (PAYLOADS if asked else (None,) * len(PAYLOADS))


def test_a_model_has_no_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["record", "csv", "x.csv", "--out", str(tmp_path / "out"), "--fit", "--payloads"]
    assert cli.main(words) == 2
    assert "found --payloads with --fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "row",
    [
        "x,c,t,1",
        "-1,c,t,1",
        "nan,c,t,1",
        "1e300,c,t,1",
        "1,,t,1",
        "1,c,,1",
        "1,c,a/#,1",
        "1,c,t,-1",
        "1,c,t,1.5",
        "1,c,t,999999999999",
        "1,c,t",
        "1,c,t,1,2",
        "1969-12-31T00:00:00Z,c,t,1",
    ],
)
def test_a_wrong_row_of_a_table_is_named_with_its_line(row: str, tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="in line 3 of"):
        read_table(table(tmp_path, f"time,client,topic,size\n0,c,t,1\n{row}\n"))


def test_an_empty_retained_message_is_left_out_and_said(tmp_path: Path) -> None:
    text = "time,client,topic,size,retain\n0,c,t,40,true\n1,c,t,0,true\n2,c,t,0,false\n"
    observed = read_table(table(tmp_path, text))
    write_population(observed, tmp_path / "out", TARGET)
    found = [*recorded_messages(str(tmp_path / "out/publishers.csv"))]
    assert [(each.bytes, each.retain) for each in found] == [(40, True), (0, False)]
    assert any("empty retained" in sentence for sentence in observed.unknown)


def test_instants_are_seconds_or_dates() -> None:
    assert instant_ns("1.5") == 1_500_000_000
    assert instant_ns("2026-01-31T12:00:00.25Z") == 1_769_860_800_250_000_000
    assert instant_ns("2026-01-31T13:00:00+01:00") == instant_ns("2026-01-31 12:00:00")


@settings(deadline=None, max_examples=100)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_a_hostile_file_is_an_error_and_no_traceback(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "f.csv"
    for head in (
        b"",
        b"time,client,topic,size\n",
        b"after_ns,client,topic,bytes,qos,retain\n",
        b"after_ns,client,topic,bytes,qos,retain\n0,0,t,1,0,false\n",
        b"time,client,topic,size,payload\n",
        b"after_ns,client,topic,bytes,qos,retain,payload\n0,0,t,1,0,false,eA==\n",
    ):
        path.write_bytes(head + content)
        for read in (
            lambda: read_table(path),
            lambda: read_table(path, payloads=True),
            lambda: read_recorded(str(path)),
        ):
            with contextlib.suppress(RowsError):
                read()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
MQTT_KEYS = st.sampled_from(
    ["hdrflags", "len", "topic_len", "topic", "msgid", "clientid", "ver", "kalive", "sub_qos"]
).map("mqtt_mqtt_{}".format)
VALUES = st.one_of(JSON, st.sampled_from(["0x30", "0x10", "0x82", "5", "4", "a/b", "-1", "9" * 30]))


@given(
    frames=st.lists(
        st.fixed_dictionaries(
            {
                "frame": st.just({"frame_frame_time_epoch": "1.5"}),
                "tcp": st.just({"tcp_tcp_stream": "1", "tcp_tcp_dstport": "1883"}),
                "mqtt": st.one_of(JSON, st.lists(st.dictionaries(MQTT_KEYS, VALUES), max_size=3)),
            }
        ),
        max_size=5,
    )
)
def test_hostile_frames_are_counted_and_no_traceback(frames: list[dict[str, Any]]) -> None:
    observed = observed_in(frames, [1883], Observed("a capture"))
    assert observed.unknown


def captured(path: Path, *, payloads: bool = False) -> Observed:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed (scripts/install-test-tools)")
    return read_capture(path, [1883], payloads=payloads)


def traffic() -> tuple[list[Segment], list[tuple[str, int, int, bool]]]:
    """Segments of two publishers and a subscriber, and the messages in them."""
    sizes = [1, 90, 5000, 40, 300, 20_000, 64]
    one = [connect("one", 5), *(publish(f"p/one/{n % 2}", b"x" * s, v5=True) for n, s in en(sizes))]
    two = [connect("two"), *(publish("p/two", b"y" * s, qos=1, flags=1) for s in sizes)]
    three = [connect("three"), subscribe([("p/+", 1), ("p/one/#", 0)])]
    found = segments(SECOND, 1, one, 1400) + segments(2 * SECOND, 2, two, 1400)
    found += segments(3 * SECOND, 3, three, 11)
    wanted = [(f"p/one/{n % 2}", s, 0, False) for n, s in en(sizes)]
    return found, wanted + [("p/two", s, 1, True) for s in sizes]


def en(values: Iterable[T]) -> list[tuple[int, T]]:
    return list(enumerate(values))


def kinds(observed: Observed) -> list[tuple[str, int, int, bool]]:
    return [(topic, size, qos, retain) for _, _, topic, size, qos, retain in observed.messages()]


@pytest.mark.parametrize("disorder", ["none", "retransmitted", "reordered"])
def test_a_capture_has_every_message_whatever_the_order_of_its_segments(
    disorder: str, tmp_path: Path
) -> None:
    found, wanted = traffic()
    if disorder == "retransmitted":
        found = [twice for each in found for twice in (each, each)]
    if disorder == "reordered":
        draw = random.Random(7)
        for at in range(1, len(found) - 1, 2):
            if found[at].client == found[at + 1].client and draw.random() < 0.7:
                found[at], found[at + 1] = found[at + 1], found[at]
    observed = captured(write_pcap(tmp_path / "c.pcap", found))
    assert sorted(kinds(observed)) == sorted(wanted)
    assert observed.clients["three"].filters == {"p/+": 1, "p/one/#": 0}
    assert [observed.clients[name].version for name in ("one", "two")] == ["5", "3.1.1"]
    assert not any("gap" in sentence for sentence in observed.unknown)


def test_a_gap_ends_what_is_known_of_a_direction_and_is_said(tmp_path: Path) -> None:
    found, wanted = traffic()
    of_one = [each for each in found if each.client == 1]
    # The segment within the message of 20,000 bytes.
    missing = of_one[8]
    kept = [each for each in found if each is not missing]
    observed = captured(write_pcap(tmp_path / "c.pcap", kept))
    assert sorted(kinds(observed)) == sorted(wanted[:5] + wanted[7:])
    assert any("1 connections have a gap" in each for each in observed.unknown)


def test_connections_that_began_before_the_capture_are_left_out_and_said(tmp_path: Path) -> None:
    late = segments(SECOND, 4, [publish("p", b"x" * 50), publish("p", b"x" * 50)], 1400)
    observed = captured(write_pcap(tmp_path / "c.pcap", [*traffic()[0], *late]))
    assert len(observed) == len(traffic()[1])
    assert any("began before the capture" in each for each in observed.unknown)


def test_a_message_that_is_sent_again_counts_once(tmp_path: Path) -> None:
    packets = [connect("c"), publish("p", b"x" * 50, 1), publish("p", b"x" * 50, 1, flags=8)]
    observed = captured(write_pcap(tmp_path / "c.pcap", segments(SECOND, 1, packets, 1400)))
    assert kinds(observed) == [("p", 50, 1, False)]


def test_a_file_that_is_no_capture_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    path.write_bytes(b"no capture")
    with pytest.raises(UsageError, match="which tshark cannot read"):
        captured(path)


def test_a_population_of_subscribers_has_a_row_for_each_client(tmp_path: Path) -> None:
    observed = Observed("a test")
    for name in ("a", "b", "c"):
        observed.client(name).filters = {f"cmd/{name}/#": 1, f"area/{ord(name) % 2}/+": 0}
    observed.add(0, ("z", "cmd/a/x"), 50, (0, False))
    write_population(observed, tmp_path / "out", TARGET)
    loaded = load_scenario(tmp_path / "out" / SCENARIO)
    filters = [each.filter for each in loaded.populations["subscribers"].filters]
    assert filters == ["area/{row.filter1_level2}/+", "cmd/subscribers-{n}/#"]
    assert [each.topic for each in recorded_messages(str(tmp_path / "out/publishers.csv"))] == [
        "cmd/subscribers-0/x"
    ]
    assert (tmp_path / "out" / FACTS).exists()


@pytest.mark.parametrize(("level", "clients"), [(None, 3), (2, 2), (9, 3)])
def test_publishers_of_a_subscription_are_modelled(level: int | None, clients: int) -> None:
    observed = Observed("a test")
    for topic in ("s/a/1", "s/a/2", "s/b/1"):
        add_received(observed, (5, topic, 40, 1, True), level)
    assert len(observed.clients) == clients


def test_a_fitted_model_has_the_rate_and_nothing_of_the_original(tmp_path: Path) -> None:
    draw, observed = random.Random(5), Observed("a test")
    for n in range(50):
        at = 0.0
        while (at := at + draw.expovariate(2.0)) < 100:
            names = f"id{n}", f"plant/id{n}/temp"
            observed.add(round(at * SECOND), names, 200, (1, False))
    observed.client("reader").filters = {"plant/#": 0}
    observed.client("reader").deliveries = 3 * len(observed)
    write_fitted(observed, tmp_path / "out", TARGET)
    text = (tmp_path / "out" / SCENARIO).read_text()
    assert "plant" not in text and "id7" not in text and "temp" not in text
    scenario = load_scenario(tmp_path / "out" / SCENARIO)
    models = [each for name, each in scenario.populations.items() if name != "subscribers"]
    offered = sum(each.clients * (each.flows[0].rate_per_s or 0) for each in models)
    assert offered == pytest.approx(len(observed) / 100, rel=0.02)
    assert {each.flows[0].level for each in models} == {1}
    assert "arrivals: poisson" in text
    assert scenario.populations["subscribers"].clients == 3


def test_the_distance_of_curves_is_that_of_their_shares() -> None:
    assert curve_distance([10, 10], [(1.0, 30.0), (2.0, 60.0)]) == pytest.approx(0.0)
    assert curve_distance([10, 10], [(1.0, 60.0), (2.0, 60.0)]) == pytest.approx(0.5)
    assert curve_distance([10, 10], []) == 1.0
    # The ten of the first second may all have come in its first half, or in its last.
    assert curve_distance([10, 10], [(0.5, 30.0), (2.0, 60.0)]) == 0.0
    assert curve_distance([10, 10], [(0.5, 45.0), (2.0, 60.0)]) == pytest.approx(0.25)
