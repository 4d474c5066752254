"""System topics of brokers: names and numbers of old and new versions, and the reports of which
values are news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pubstorm.contract.plan import PlannedPsk, PlannedTls
from pubstorm.measure.monitors import Reading
from pubstorm.measure.monitors.sys_topics import Reports, metric_name, number, with_aliases
from pubstorm.topology.observer import ObserverError, tls_context

OLD = {
    "version": "mosquitto version 1.2.3",
    "timestamp": "2014-05-20 12:23:45+0000",
    "uptime": "86 seconds",
    "clients/active": "3003",
    "clients/inactive": "0",
    "heap/current size": "4823952 bytes",
    "publish/messages/dropped": "12",
}
NEW = {
    "version": "mosquitto version 2.0.11",
    "uptime": "2 seconds",
    "clients/active": "1",
    "clients/connected": "2",
    "heap/current": "46760",
    "load/messages/received/1min": "1.97",
    "publish/messages/dropped": "0",
}


@pytest.mark.parametrize(
    ("dump", "figures"),
    [
        (
            OLD,
            {
                "uptime": 86,
                "clients/active": 3003,
                "clients/connected": 3003,
                "clients/inactive": 0,
                "clients/disconnected": 0,
                "heap/current size": 4823952,
                "heap/current": 4823952,
                "publish/messages/dropped": 12,
                "messages/dropped": 12,
            },
        ),
        (
            NEW,
            {
                "uptime": 2,
                "clients/active": 1,
                "clients/connected": 2,
                "heap/current": 46760,
                "load/messages/received/1min": 1.97,
                "publish/messages/dropped": 0,
                "messages/dropped": 0,
            },
        ),
    ],
)
def test_names_of_old_versions_are_there_under_the_new_ones_too(
    dump: dict[str, str], figures: dict[str, float]
) -> None:
    values = {metric_name(f"$SYS/broker/{name}"): number(dump[name].encode()) for name in dump}
    readings = [Reading(0, name, value) for name, value in values.items() if value is not None]
    found = {reading.metric: reading.value for reading in with_aliases(readings)}
    assert found == {f"$SYS/{name}": value for name, value in figures.items()}


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"123", 123),
        (b" -1.5\n", -1.5),
        (b".5", 0.5),
        (b"1e3", 1000),
        (b"86 seconds", 86),
        (b"", None),
        (b"on", None),
        (b"1 2", None),
        (b"2014-05-20 12:23:45", None),
        (b"nan", None),
        (b"1e999", None),
        (b"\xff\xfe", None),
        (b"1" * 100, None),
    ],
)
def test_only_numbers_count(payload: bytes, value: float | None) -> None:
    assert number(payload) == value


def test_only_the_prefix_of_mosquitto_is_shortened() -> None:
    assert metric_name("$SYS/broker/load/sockets/1min") == "$SYS/load/sockets/1min"
    assert metric_name("$SYS/brokers/emqx@a/uptime") == "$SYS/brokers/emqx@a/uptime"
    assert metric_name("site/power") == "site/power"


MS_NS = 10**6
FIRST = [(900, "news", 10), (1500, [(901, 10, False)])]
SCRIPTS = {
    "what is repeated between two reports is marked": [
        *FIRST,
        (2000, [(2000, 10, True)]),
        (2900, "news", 30),
        (3100, [(2901, 30, False)]),
    ],
    "a report confirms what has not changed": [
        *FIRST,
        (2900, "news", None),
        (3500, [(2900, 10, False)]),
        (4500, [(4500, 10, True)]),
    ],
    "a reading in the midst of a report repeats nothing as news": [
        *FIRST,
        (2990, "news", None),
        (3000, []),
        (3000, "news", 30),
        (4000, [(3001, 30, False)]),
    ],
    "topics that never pause hold no report up": [
        *FIRST,
        (2900, "news", None),
        (3999, "begun", None),
        (4000, [(2900, 10, False)]),
    ],
    "retained values say nothing of growth": [
        (100, "retained", 10),
        (500, [(101, 10, True)]),
        (900, "news", None),
        (1500, [(900, 10, False)]),
    ],
    "a lost connection ends what holds and keeps what was new": [
        (900, "news", 10),
        (950, "lost", None),
        (1000, [(901, 10, False)]),
        (2000, []),
        (2900, "retained", None),
        (3100, []),
    ],
}
OTHERS = [
    (0, "news", 10),
    (500, [(1, 10, False)]),
    (900, "news", None),
    (1500, [(1500, 10, True)]),
    (20_000, []),
]
"""Of brokers that report otherwise, a report confirms nothing, and their silence ends it."""


def play(script: Sequence[tuple[Any, ...]], prefix: str) -> None:
    """Gives reports, each its uptime and 1 ms later a value that has changed, and checks readings:
    instants in ms, values, and True if they are held."""
    reports, metric = Reports(), f"{prefix}/messages/sent"
    for at_ms, kind, *value in script:
        if isinstance(kind, list):
            readings = [each for each in reports.read(at_ms * MS_NS) if each.metric == metric]
            assert [(r.at_ns // MS_NS, r.value, r.held) for r in readings] == kind, at_ms
        elif kind == "lost":
            reports.lose()
        else:
            pairs = ((at_ms, f"{prefix}/uptime", 1.0), (at_ms + 1, metric, value[0]))
            for ms, name, found in pairs[: 1 if value[0] is None else 2]:
                reports.on_report(ms * MS_NS)
                if kind != "begun":
                    assert reports.take(Reading(ms * MS_NS, name, found, kind == "retained"))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_values_of_a_report_count_once(script: Sequence[tuple[Any, ...]]) -> None:
    play(script, "$SYS")


def test_brokers_that_report_otherwise_confirm_nothing() -> None:
    play(OTHERS, "site")


def test_what_an_observer_cannot_do_under_tls_is_reported() -> None:
    with pytest.raises(ObserverError, match="cannot use pre-shared keys"):
        tls_context(PlannedTls(psk=PlannedPsk(file="keys.psk", identity="{n}")))
    with pytest.raises(ObserverError, match="TLS files cannot be used"):
        tls_context(PlannedTls(ca="/nowhere/ca.crt"))
