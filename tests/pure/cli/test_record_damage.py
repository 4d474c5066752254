"""Captures with damage, recorded by `pubstorm record`: segments that are lost, doubled, late or
cut, files that end early, and flipped bits. A message that is recorded was sent, and what is
missing is said. No damage gives a traceback."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubstorm.cli.record.capture import read_capture
from pubstorm.cli.record.population import SCENARIO, Observed, write_population
from pubstorm.contract.recorded import read_recorded
from pubstorm.errors import PubstormError
from pubstorm.scenario.load import load_scenario
from tests.kit.packets import DISCONNECT, Segment, connect, publish, segments, subscribe, write_pcap

SECOND = 10**9
TARGET = "mqtt://localhost:1883"
Kind = tuple[str, int, int, bool]
SIZES = (0, 3, 40, 150, 900, 33)
LOOKS_LIKE_MESSAGES = publish("no/topic", b"1")
"""Content of payloads: a reader that has lost the start of a packet finds messages in it."""
needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed (scripts/install-test-tools)"
)


def content(size: int) -> bytes:
    return (LOOKS_LIKE_MESSAGES * size)[:size]


def connection(client: int, most: int) -> list[Segment]:
    """Segments of a client whose connection begins and ends in the capture."""
    v5 = client % 2 == 1
    messages = [publish(f"p/{client}", content(size), qos=client % 2, v5=v5) for size in SIZES]
    sent = [connect(f"c{client}", 5 if v5 else 4), subscribe([(f"to/{client}", 1)])]
    sent = [*(sent if not v5 else sent[:1]), *messages, DISCONNECT]
    found = segments(client * SECOND, client, sent, most)
    last = found[-1]
    end = Segment(last.at_ns + 1000, client, last.offset + len(last.data), b"", ends=True)
    return [*found, end]


def traffic(most: int) -> tuple[list[Segment], list[Kind]]:
    """Returns segments of at most so many bytes, and the messages in them."""
    found = [each for client in (1, 2) for each in connection(client, most)]
    kinds = [(f"p/{client}", size, client % 2, False) for client in (1, 2) for size in SIZES]
    return found, kinds


def recorded(observed: Observed) -> list[Kind]:
    return [(topic, size, qos, retain) for _, _, topic, size, qos, retain in observed.messages()]


def assert_known(observed: Observed, sent: list[Kind]) -> None:
    """Holds that recorded messages were sent, that missing ones are said, and that the files of
    the rest can be played."""
    missing = Counter(sent)
    missing.subtract(recorded(observed))
    assert min(missing.values()) >= 0, missing
    words = " ".join(observed.unknown)
    is_said = any(each in words for each in ("gap", "cannot be read", "first part", "began before"))
    assert is_said == (missing.total() > 0), (missing, words)


def assert_plays(observed: Observed, folder: Path) -> None:
    lines = write_population(observed, folder, TARGET)
    assert load_scenario(folder / SCENARIO).populations
    others = ("-sessions.csv", "-filters.csv")
    files = [each for each in folder.glob("publishers*.csv") if not each.name.endswith(others)]
    assert sum(read_recorded(str(file)).messages for file in files) == len(observed)
    assert all(f"not known: {each}" in lines for each in observed.unknown)


@needs_tshark
@settings(deadline=None, max_examples=8)
@example(most=17, damage=[("lost", 2), ("doubled", 0), ("later", 2)])
@given(
    most=st.sampled_from([17, 90, 400, 1400]),
    damage=st.lists(
        st.tuples(st.sampled_from(["lost", "doubled", "later"]), st.integers(0, 10**6)),
        max_size=4,
    ),
)
def test_segments_that_are_lost_doubled_or_late(
    most: int, damage: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found, sent = traffic(most)
    for kind, draw in damage:
        at = draw % (len(found) - 1)
        # The ends stay: without a later segment, a capture shows no loss.
        if kind == "lost" and not found[at].ends:
            del found[at]
        elif kind == "doubled":
            found.insert(at + 1, found[at])
        elif kind == "later" and not found[at].ends and not found[at + 1].ends:
            found[at], found[at + 1] = found[at + 1], found[at]
    folder = tmp_path_factory.mktemp("damage")
    observed = read_capture(write_pcap(folder / "c.pcap", found), [1883])
    assert_known(observed, sent)
    if len(observed):
        assert_plays(observed, folder / "out")


@needs_tshark
@settings(deadline=None, max_examples=8)
@given(most=st.sampled_from([90, 400, 1400]), length=st.integers(54, 1500))
def test_segments_that_the_capture_has_cut(
    most: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No byte of a payload is taken for the start of a packet."""
    folder = tmp_path_factory.mktemp("cut")
    found, sent = traffic(most)
    whole = write_pcap(folder / "whole.pcap", found)
    subprocess.run(["editcap", "-s", str(length), whole, folder / "c.pcap"], check=True)
    observed = read_capture(folder / "c.pcap", [1883])
    assert_known(observed, sent)
    longest = max(len(each.data) for each in found)
    is_said = any("shorter than they were on the wire" in each for each in observed.unknown)
    assert is_said == (length < 54 + longest)


@needs_tshark
@settings(deadline=None, max_examples=8)
@given(
    until=st.floats(0, 1), flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), max_size=3)
)
def test_files_that_end_early_and_flipped_bits(
    until: float, flips: list[tuple[float, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("file")
    found, sent = traffic(1400)
    path = write_pcap(folder / "c.pcap", found)
    damaged = bytearray(path.read_bytes())
    for share, bit in flips:
        damaged[int(share * (len(damaged) - 1))] ^= 1 << bit
    path.write_bytes(damaged[: round(until * len(damaged))])
    with contextlib.suppress(PubstormError):
        observed = read_capture(path, [1883])
        if not flips:
            missing = Counter(sent)
            missing.subtract(recorded(observed))
            assert min(missing.values()) >= 0, missing
        if len(observed):
            assert_plays(observed, folder / "out")


@needs_tshark
def test_the_part_of_a_file_before_its_end_is_recorded(tmp_path: Path) -> None:
    found, sent = traffic(1400)
    path = write_pcap(tmp_path / "c.pcap", found)
    path.write_bytes(path.read_bytes()[:-30])
    observed = read_capture(path, [1883])
    assert recorded(observed) == sent
    assert any("Only the first part was read" in each for each in observed.unknown)


@needs_tshark
def test_deliveries_are_unknown_after_a_gap(tmp_path: Path) -> None:
    """A mean of deliveries of a message would count what is missing as not delivered."""
    found, _ = traffic(1400)
    back = segments(3 * SECOND, 1, [publish("p/1", content(40)) for _ in range(9)], 30, False)
    observed = read_capture(write_pcap(tmp_path / "a.pcap", [*found, *back]), [1883])
    assert observed.deliveries_known and observed.clients["c1"].deliveries == 9
    missing = [*back[:4], *back[5:]]
    observed = read_capture(write_pcap(tmp_path / "b.pcap", [*found, *missing]), [1883])
    assert not observed.deliveries_known
    assert any("deliveries after the gap are unknown" in each for each in observed.unknown)


@needs_tshark
@pytest.mark.parametrize("topic", [b"a/\xff/b", b"a/\xed\xa0\x80"])
def test_a_topic_that_is_not_utf_8_is_left_out_and_said(topic: bytes, tmp_path: Path) -> None:
    """Wireshark replaces such bytes: the topic would be another one."""
    wrong = bytes([0x30, len(topic) + 3, 0, len(topic)]) + topic + b"x"
    found = segments(SECOND, 1, [connect("c"), wrong, publish("a/b", b"x")], 1400)
    found = [replace(each, ends=False) for each in found]
    observed = read_capture(write_pcap(tmp_path / "c.pcap", found), [1883])
    assert recorded(observed) == [("a/b", 1, 0, False)]
    assert any("1 packets cannot be read" in each for each in observed.unknown)
