"""Exports take what a run measures without delay, drop the oldest, and say what was lost. Where one
cannot begin, the command line is refused before anything is played."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.cli import outcome
from pubstorm.cli.options import Exporting
from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import UsageError
from pubstorm.exports import Event, Exports, FaultState, Item, Run
from pubstorm.exports.otlp import Collector
from tests.kit.made_run import SCENARIO, a_run, interval


class Slow:
    """An export that waits until it is released."""

    name, unit = "slow", ("record", "records")

    def __init__(self, *, released: bool = True) -> None:
        self.dropped = 0
        self.problem = ""
        self.released = threading.Event()
        if released:
            self.released.set()
        self.reached = threading.Event()
        self.taken: list[tuple[str, Item]] = []

    def take(self, run: Run, item: Item) -> None:
        self.reached.set()
        self.released.wait(60)
        self.taken.append((run.name, item))

    def rest(self) -> None:
        pass

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_the_oldest_items_are_dropped_and_counted() -> None:
    sink = Slow(released=False)
    exports = Exports([sink], queue_max=10)
    exports.begin(a_run())
    exports.take(interval(0))
    assert sink.reached.wait(60), "the first item is with the export"
    for second in range(1, 31):
        exports.take(interval(second))
    sink.released.set()
    (text,) = exports.end()
    assert text == "slow: 20 records did not arrive: it took them more slowly than they came"
    starts = [item.from_ns for _, item in sink.taken if isinstance(item, Snapshot)]
    assert len(starts) == 11 and starts == sorted(starts)
    assert starts[1:] == [interval(second).from_ns for second in range(21, 31)]
    assert exports.end() == [], "what was said is not said again"
    exports.close()


def test_an_export_that_fails_costs_its_item_only() -> None:
    class Broken(Slow):
        def take(self, run: Run, item: Item) -> None:
            if isinstance(item, Event):
                raise ValueError("no events here")
            super().take(run, item)

    sink = Broken()
    exports = Exports([sink])
    exports.begin(a_run())
    exports.take(Event(at_s=1, kind="stage", text="x"))
    exports.take(interval(1))
    assert exports.end() == ["slow: 1 record did not arrive: ValueError: no events here"]
    assert len(sink.taken) == 1
    exports.close()


def test_events_and_faults_are_handed_over_once() -> None:
    sink = Slow()
    exports = Exports([sink])
    exports.begin(a_run())
    events = [Event(at_s=1, kind="fault", text="one"), Event(at_s=2, kind="fault", text="two")]
    exports.follow(events[:1], [("cut", True)])
    exports.follow(events, [("cut", True)])
    exports.follow(events, [("cut", False)])
    exports.end()
    items = [item for _, item in sink.taken]
    assert items == [events[0], FaultState("cut", True), events[1], FaultState("cut", False)]
    exports.close()


def test_nothing_is_taken_outside_a_run() -> None:
    sink = Slow()
    exports = Exports([sink])
    exports.take(interval(0))
    exports.begin(a_run("first"))
    exports.take(interval(0))
    exports.end()
    exports.take(interval(1))
    exports.begin(a_run("second"))
    exports.take(interval(0))
    exports.end()
    assert [name for name, _ in sink.taken] == ["first", "second"]
    exports.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--prometheus", "127.0.0.1:{taken}"),
            "cannot listen on 127.0.0.1:{taken}: Address already in use",
        ),
        (("--prometheus", "9464"), "allowed is [HOST]:PORT"),
        (("--otlp", "localhost:4317"), "allowed is http[s]://HOST:PORT"),
        (("--influx", "missing/points"), "cannot open it: No such file"),
        (("--influx", "."), "File '.' is a directory"),
        (("--json-lines", "/dev/full/x"), "cannot open it: Not a directory"),
    ],
)
def test_an_export_that_cannot_begin_ends_before_the_run(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        asked = [word.format(taken=taken) for word in words]
        assert cli.main(["run", "s.yaml", "--out", "out", *asked]) == 2
    said = capsys.readouterr().err
    assert message.format(taken=taken) in said and "hint:" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:4317",
        "mqtt://localhost",
        "grpc://",
        "http:///x",
        "http://localhost:port",
        "grpc://localhost:99999",
        "http://[localhost",
    ],
)
def test_a_wrong_url_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"allowed is http\[s\]://HOST:PORT"):
        Collector(url)


def test_an_export_that_cannot_begin_ends_a_command_before_its_page_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def served(*_: object) -> None:
        pytest.fail("the page is served")

    monkeypatch.setattr(outcome, "shown_by", served)
    exporting = Exporting("nonsense", None, None, None)
    output = outcome.Output(None, True, False, False, outcome.PROGRESS_NS, exporting, None)
    with pytest.raises(UsageError, match="found --prometheus nonsense"), output.shown():
        pass
