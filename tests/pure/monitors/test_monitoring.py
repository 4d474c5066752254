"""Reading of several monitors: on one time axis, and no monitor can stop the run."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import pytest

from pubstorm.contract import Sample, Source
from pubstorm.measure.monitors import Monitor, MonitorError, Reading, monitoring
from pubstorm.measure.monitors.monitoring import Monitored, Monitoring

MILLISECOND_NS = 10**6


class Counting:
    """Reports its number of reads."""

    def __init__(self, source: str = "it") -> None:
        self.source = Source.single("process", source)
        self.reads = 0
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def read(self) -> Iterable[Reading]:
        self.reads += 1
        yield Reading(time.monotonic_ns(), "reads", self.reads)
        self.also()

    def also(self) -> None:
        """Does the additional work of a subclass at each reading."""

    def stop(self) -> None:
        self.calls.append("stop")


class Failing(Counting):
    """Fails at each reading, after the value that it has yielded."""

    def __init__(self, error: Exception) -> None:
        super().__init__("broken")
        self._error = error

    def also(self) -> None:
        raise self._error


class Hanging(Counting):
    """Does not come back from its first reading until it is let go."""

    def __init__(self) -> None:
        super().__init__("stuck")
        self.released = threading.Event()

    def also(self) -> None:
        self.released.wait()


def watched(
    monitors: Sequence[Monitor], enough: Callable[[list[Sample]], bool]
) -> tuple[Monitored, list[Sample]]:
    """Watches until the samples are enough."""
    kept: list[Sample] = []
    warnings: list[str] = []

    async def run() -> Monitored:
        monitoring = Monitoring(monitors, MILLISECOND_NS, warnings.append)
        await monitoring.prepare()
        monitoring.begin(time.monotonic_ns(), kept.extend)
        while not enough(kept):
            await asyncio.sleep(0)
        await monitoring.end()
        return monitoring.found()

    return asyncio.run(run()), kept


def sampled(source: str, times: int) -> Callable[[list[Sample]], bool]:
    return lambda kept: sum(sample.source.name == source for sample in kept) >= times


def test_monitors_are_read_again_and_again_and_kept_on_one_axis() -> None:
    one, two = Counting("one"), Counting("two")
    found, kept = watched(
        (one, two), lambda kept: sampled("one", 3)(kept) and sampled("two", 3)(kept)
    )
    assert one.calls == two.calls == ["start", "stop"]
    for monitor in (one, two):
        own = [sample for sample in kept if sample.source == monitor.source]
        assert [sample.value for sample in own] == list(range(1, monitor.reads + 1))
        assert own == sorted(own, key=lambda sample: sample.at_s)
    assert found == Monitored()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MonitorError("the broker is away: start it"), "the broker is away: start it"),
        (KeyError("cpu"), "failed unexpectedly: KeyError: 'cpu'"),
    ],
)
def test_a_failure_is_reported_once_and_tried_again(error: Exception, text: str) -> None:
    monitor = Failing(error)
    found, kept = watched((monitor,), sampled("broken", 3))
    assert [(problem.source, problem.text) for problem in found.problems] == [("broken", text)]
    assert len(kept) == monitor.reads >= 3


class Stating(Counting):
    """Reports what others state, as numbers of the foreign kind."""

    def read(self) -> Iterable[Reading]:
        yield from super().read()
        for name, value in FOREIGN.items():
            yield Reading(time.monotonic_ns(), name, value)


FOREIGN = {"largest": 1.7976931348623157e308, "least": -1e308, "much": 1e18, "nan": math.nan}


def test_numbers_that_no_sum_can_hold_are_left_out_and_named() -> None:
    found, kept = watched((Stating(),), sampled("it", 3))
    assert {sample.metric for sample in kept} == {"reads"}
    texts = [f"{name} is left out where it is no number below 1e+18" for name in FOREIGN]
    assert [problem.text for problem in found.problems] == texts


class Hostile(Counting):
    """Reports metrics whose names are not for people."""

    def read(self) -> Iterable[Reading]:
        yield from super().read()
        for name in ("a\x1b[2J", "a\x9b", "b\u202e\r\n", "x" * 5000):
            yield Reading(time.monotonic_ns(), name, 1)


def test_names_of_metrics_are_for_people() -> None:
    found, kept = watched((Hostile(),), sampled("it", 4))
    names = {"reads", "a\\u001b[2J", "a\\u009b", "b\\u202e\\u000d\\u000a"}
    assert {sample.metric for sample in kept} == names
    texts = ["metrics with names of more than 4096 characters are left out"]
    assert [problem.text for problem in found.problems] == texts


def test_a_host_without_another_thread_costs_a_monitor_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "monitor two":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    one, two = Counting("one"), Counting("two")
    found, _ = watched((one, two), sampled("one", 2))
    assert [(p.source, p.text) for p in found.problems] == [
        ("two", "is not watched: can't start new thread")
    ]
    assert two.calls == []


def test_a_monitor_that_hangs_holds_up_neither_the_others_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitoring, "STOP_GRACE_S", 0.05)
    stuck, well = Hanging(), Counting("well")
    found, kept = watched((stuck, well), sampled("well", 5))
    stuck.released.set()
    assert {sample.source.name for sample in kept} == {"well"}
    assert [problem.source for problem in found.problems] == ["stuck"]
    assert "did not answer" in found.problems[0].text


def test_problems_without_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "PROBLEMS_MAX", 2)

    class Inventive(Counting):
        def also(self) -> None:
            raise MonitorError(f"problem {self.reads}")

    found, _ = watched((Inventive(),), sampled("it", 4))
    assert [problem.text for problem in found.problems] == ["problem 1", "problem 2"]
