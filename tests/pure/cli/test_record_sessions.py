"""Recorded sessions: a table and a capture have the instants at which clients connect and
disconnect, the files hold them, and a plan plays them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.cli.record.capture import read_capture
from pubstorm.cli.record.population import SCENARIO, Observed, write_population
from pubstorm.cli.record.table import read_table
from pubstorm.contract.plan import PlannedLifetime
from pubstorm.contract.recorded import RecordedMessage, write_recorded
from pubstorm.contract.sessions import (
    RecordedSession,
    SessionsRecording,
    read_sessions,
    recorded_sessions,
    write_sessions,
)
from pubstorm.contract.template import RowsError
from pubstorm.errors import ScenarioError
from pubstorm.fleet.site import FOLDER, PlanFiles
from pubstorm.plan.compile import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.load import load_scenario
from tests.kit.packets import DISCONNECT, Segment, connect, publish, segments, write_pcap

SECOND = 10**9
TARGET = "mqtt://localhost:1883"
TABLE = """time,client,topic,size,event
0,a,t,40,
5,b,,,connect
5,b,t,40,message
7,a,t,40,
8,b,t,40,
8,b,,,disconnect
6,a,,,connect
2,a,,,disconnect
9,a,t,40,
"""


def written(observed: Observed, folder: Path) -> dict[str, list[RecordedSession]]:
    write_population(observed, folder / "out", TARGET)
    load_scenario(folder / "out" / SCENARIO)
    files = (folder / "out").glob("*-sessions.csv")
    return {each.name: [*recorded_sessions(str(each))] for each in files}


def test_a_table_has_the_instants_of_its_events(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    found = written(read_table(path), tmp_path)
    assert found == {
        "publishers-sessions.csv": [
            RecordedSession(0, 0, 2 * SECOND + 1),
            RecordedSession(0, 6 * SECOND, None),
            RecordedSession(1, 5 * SECOND, 8 * SECOND + 1),
        ]
    }


@pytest.mark.parametrize("row", ["1,a,t,,connect", "1,a,,5,disconnect", "1,,,,connect", "1,a,,,x"])
def test_a_wrong_event_of_a_table_is_named_with_its_line(row: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"time,client,topic,size,event\n{row}\n")
    with pytest.raises(RowsError, match="in line 2 of"):
        read_table(path)


def test_a_capture_has_the_instants_of_sessions(tmp_path: Path) -> None:
    """One connection ends with DISCONNECT, one with FIN, and one is taken over by another one of
    the same client. The last one lasts."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed (scripts/install-test-tools)")
    message = publish("p", b"x" * 50)
    leaves = [connect("a"), message, DISCONNECT]
    ends = [connect("b"), message]
    length = sum(map(len, ends))
    found = [
        *segments(SECOND, 1, [connect("z"), message], 1400),
        *segments(2 * SECOND, 2, leaves, 1400),
        *segments(3 * SECOND, 3, ends, 1400),
        Segment(4 * SECOND, 3, length, b"", ends=True),
        *segments(5 * SECOND, 4, ends, 1400),
        *segments(6 * SECOND, 5, ends, 1400),
        Segment(7 * SECOND, 4, length, b"", ends=True),
        *segments(8 * SECOND, 6, [connect("z2"), message], 1400),
    ]
    observed = read_capture(write_pcap(tmp_path / "c.pcap", found), [1883])
    assert not any("gap" in each for each in observed.unknown)
    assert any(each.startswith("1 connections ended without") for each in observed.unknown)
    (rows,) = written(observed, tmp_path).values()
    assert [*observed.clients] == ["z", "a", "b", "z2"]
    assert rows == [
        RecordedSession(0, 0, None),
        RecordedSession(1, SECOND, SECOND + 1),
        RecordedSession(2, 2 * SECOND, 3 * SECOND + 1),
        RecordedSession(2, 4 * SECOND, 5 * SECOND),
        RecordedSession(2, 5 * SECOND, None),
        RecordedSession(3, 7 * SECOND, None),
    ]


def test_a_recording_in_which_all_clients_stay_has_no_sessions(tmp_path: Path) -> None:
    observed = Observed("a test")
    observed.client("a").connect(5)
    observed.add(10, ("a", "t"), 40, (0, False))
    observed.client("a").disconnect(11)
    assert written(observed, tmp_path) == {}


MOVES = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.booleans()), max_size=20)


@settings(deadline=None, max_examples=50)
@given(moves=MOVES)
def test_any_events_become_sessions_that_can_be_played(
    moves: list[tuple[int, str, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Clients that send have a session at each of their messages' instants or none that is
    known."""
    folder = tmp_path_factory.mktemp("moves")
    rows = [f"{at},{name},,,{'connect' if on else 'disconnect'}" for at, name, on in moves]
    messages = [f"{at},{name},t,40,message" for at, name in zip((2, 4, 6), "abc", strict=True)]
    path = folder / "t.csv"
    path.write_text("\n".join(["time,client,topic,size,event", *rows, *messages]))
    for name, found in written(read_table(path), folder).items():
        facts = read_sessions(str(folder / "out" / name))
        assert facts.clients == 3 and facts.sessions == len(found)


def session_files(folder: Path, sessions: list[RecordedSession]) -> tuple[Path, Path]:
    messages, path = folder / "device.csv", folder / "device-sessions.csv"
    with messages.open("w") as file:
        write_recorded(file, [RecordedMessage(n, n, "t/{n}", 40, 0, False) for n in range(2)])
    with path.open("w") as file:
        write_sessions(file, sessions)
    return messages, path


SCENARIO_TEXT = """
target: mqtt://localhost
populations:
  device:
    clients: 5
    first: 10
    lifetime: {lifetime}
    publications: [{{topic: "{{recorded}}", replay: {messages}}}]
stages: [connect, publish: 5s]
"""
SESSIONS = [
    RecordedSession(0, 0, 3 * SECOND),
    RecordedSession(1, 2 * SECOND, None),
    RecordedSession(0, 4 * SECOND, 5 * SECOND),
]


def test_a_plan_has_the_sessions_and_their_means(tmp_path: Path) -> None:
    messages, path = session_files(tmp_path, SESSIONS)
    lifetime = f"{{replay: {path}, shift: 0s}}"
    text = SCENARIO_TEXT.format(lifetime=lifetime, messages=messages)
    plan = provisional_plan(parse_scenario(text, "s.yaml"))
    recorded = SessionsRecording(file=str(path), first=10, clients=2, shift_ns=0)
    assert plan.populations[0].lifetime == PlannedLifetime(
        min_ns=2 * SECOND, max_ns=2 * SECOND, offline_ns=SECOND, recorded=recorded
    )
    files = PlanFiles(plan)
    moved = files.plan.populations[0].lifetime
    assert moved is not None and moved.recorded is not None
    assert moved.recorded.file == FOLDER + str(path)
    assert files.of(0, 3)[moved.recorded.file] == path


@pytest.mark.parametrize(
    ("lifetime", "found"),
    [
        ("{replay: S, from: 1s}", "found from and replay"),
        ("{replay: S, offline: 1s}", "found to or offline with replay"),
        ("{from: 1s, shift: 1s}", "found shift without replay"),
        ("{offline: 1s}", "none of from, rate and replay"),
        ("{replay: nowhere.csv}", "which cannot be read"),
    ],
)
def test_times_that_do_not_go_with_recorded_sessions_are_refused(
    lifetime: str, found: str, tmp_path: Path
) -> None:
    messages, path = session_files(tmp_path, SESSIONS)
    text = SCENARIO_TEXT.format(lifetime=lifetime.replace(": S", f": {path}"), messages=messages)
    with pytest.raises(ScenarioError) as error:
        parse_scenario(text, "s.yaml")
    assert found in str(error.value)


def test_sessions_and_messages_have_the_same_clients(tmp_path: Path) -> None:
    messages, path = session_files(tmp_path, SESSIONS[:1])
    text = SCENARIO_TEXT.format(lifetime=f"{{replay: {path}}}", messages=messages)
    with pytest.raises(ScenarioError, match="needed are as many in both"):
        parse_scenario(text, "s.yaml")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("0,5,9\n0,8,12", "the order of time"),
        ("0,5,\n0,8,12", "one without an end"),
        ("0,5,5", "a later end"),
        ("0,5", "2 values"),
        ("1,5,6", "without gaps"),
        ("x,5,6", "client 'x'"),
        ("", "found no sessions"),
    ],
)
def test_a_wrong_file_of_sessions_is_refused(rows: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"client,from_ns,until_ns\n{rows}")
    with pytest.raises(RowsError, match=found):
        read_sessions(str(path))


@settings(deadline=None, max_examples=100)
@given(content=st.one_of(st.binary(max_size=200), st.from_regex(r"([0-9,]{0,9}\n){0,9}")))
def test_a_hostile_file_of_sessions_is_an_error_and_no_traceback(
    content: bytes | str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "s.csv"
    rest = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(b"client,from_ns,until_ns\n" + rest)
    try:
        assert read_sessions(str(path)).clients > 0
    except RowsError as error:
        assert error.message
