"""System topics of brokers: real ones, and the names of old and new versions."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm.contract.plan import Psk, Tls
from pubstorm.contract.target import Target
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.measure.monitors.sys_topics import (
    REPORT_METRIC,
    Reports,
    SysTopicsMonitor,
    metric_name,
    number,
    with_aliases,
)
from pubstorm.topology.observer import Login, ObserverError, tls_context

BrokerMaker = Callable[..., Target]
ReadUntil = Callable[..., dict[str, float]]
ProblemOf = Callable[[SysTopicsMonitor], str]
ALL = ("$SYS/#",)
PAHO_LEAVES_SOCKETS = "ignore::pytest.PytestUnraisableExceptionWarning"
"""After a handshake that fails it leaves the socket to the garbage collector."""
OLD = """\
$SYS/broker/version mosquitto version 1.2.3
$SYS/broker/timestamp 2014-05-20 12:23:45+0000
$SYS/broker/uptime 86 seconds
$SYS/broker/clients/active 3003
$SYS/broker/clients/inactive 0
$SYS/broker/clients/maximum 3003
$SYS/broker/heap/current size 4823952 bytes
$SYS/broker/heap/maximum size 5823952 bytes
$SYS/broker/load/messages/received/1min 59654.87
$SYS/broker/messages/stored 3046
$SYS/broker/publish/messages/dropped 12
"""
NEW = """\
$SYS/broker/version mosquitto version 2.0.11
$SYS/broker/uptime 2 seconds
$SYS/broker/clients/active 1
$SYS/broker/clients/connected 1
$SYS/broker/clients/disconnected 0
$SYS/broker/heap/current 46760
$SYS/broker/heap/maximum 47296
$SYS/broker/load/messages/received/1min 1.97
$SYS/broker/retained messages/count 53
$SYS/broker/publish/messages/dropped 0
"""


def figures(dump: str) -> dict[str, float]:
    """The figures of a dump as mosquitto_sub -v writes it."""
    readings = []
    for line in dump.splitlines():
        topic = next(t for t in TOPICS if line.startswith(f"{t} "))
        value = number(line.removeprefix(topic).encode())
        if value is not None:
            readings.append(Reading(0, metric_name(topic), value))
    return {reading.metric: reading.value for reading in with_aliases(readings)}


TOPICS = [
    f"$SYS/broker/{name}"
    for name in (
        "version",
        "timestamp",
        "uptime",
        "clients/active",
        "clients/inactive",
        "clients/maximum",
        "clients/connected",
        "clients/disconnected",
        "heap/current size",
        "heap/maximum size",
        "heap/current",
        "heap/maximum",
        "load/messages/received/1min",
        "messages/stored",
        "retained messages/count",
        "publish/messages/dropped",
    )
]


def test_names_of_old_versions_are_there_under_the_new_ones_too() -> None:
    found = figures(OLD)
    assert found["$SYS/heap/current"] == found["$SYS/heap/current size"] == 4823952
    assert found["$SYS/heap/maximum"] == 5823952
    assert found["$SYS/clients/connected"] == found["$SYS/clients/active"] == 3003
    assert found["$SYS/clients/disconnected"] == 0
    assert found["$SYS/messages/dropped"] == found["$SYS/publish/messages/dropped"] == 12
    assert found["$SYS/uptime"] == 86
    assert "$SYS/version" not in found
    assert "$SYS/timestamp" not in found


def test_names_of_new_versions_stay_as_they_are() -> None:
    found = figures(NEW)
    assert found["$SYS/heap/current"] == 46760
    assert found["$SYS/clients/connected"] == 1
    assert found["$SYS/messages/dropped"] == 0
    assert found["$SYS/retained messages/count"] == 53
    assert not [name for name in found if name.endswith(" size")]


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


def test_a_broker_is_read_and_its_observer_counted(
    mosquitto: BrokerMaker, read_until: ReadUntil
) -> None:
    target = mosquitto()
    monitor = SysTopicsMonitor("broker-0", target, ALL)
    monitor.start()
    found = read_until(
        monitor, "$SYS/clients/connected", "$SYS/messages/dropped", "$SYS/heap/current"
    )
    assert found["$SYS/messages/dropped"] == found["$SYS/publish/messages/dropped"] == 0
    again = {reading.metric for reading in monitor.read()}
    assert again >= found.keys(), "what has not changed still holds"
    monitor.stop()
    observer = monitor.observer()
    assert (observer.name, observer.target, observer.topics) == ("broker-0", str(target), ALL)
    assert observer.received_total >= len(found) - 1
    assert observer.received_bytes >= observer.received_total
    assert observer.problem is None


def test_topics_that_are_forbidden_are_reported_at_the_end(
    mosquitto: BrokerMaker, tmp_path: Path, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    (tmp_path / "acl").write_text("topic readwrite up/#\n")
    target = mosquitto(acl_file=tmp_path / "acl")
    monitor = SysTopicsMonitor("broker-0", target, ALL)
    monitor.start()
    eventually(lambda: "no number" in str(monitor.observer().problem))
    assert list(monitor.read()) == []
    with pytest.raises(MonitorError, match=r"published no number under \$SYS/#: allow"):
        monitor.stop()


def test_a_refused_login_is_reported(mosquitto: BrokerMaker, problem_of: ProblemOf) -> None:
    target = mosquitto(allow_anonymous=False)
    monitor = SysTopicsMonitor("broker-0", target, ALL, Login("stranger", "knows"))
    monitor.start()
    text = problem_of(monitor)
    monitor.stop()
    assert f"{target} refuses the observer's login (not authorized): give username" in text
    assert monitor.observer().problem == text


SENT = "$SYS/messages/sent"
MILLISECOND_NS = 10**6


def report(reports: Reports, at_ms: int, *, retained: bool = False, **values: float) -> None:
    """A report of mosquitto: its uptime, and what has changed."""
    for place, (name, value) in enumerate({"uptime": at_ms / 1000, **values}.items()):
        metric = SENT if name == "sent" else f"$SYS/{name}"
        at_ns = (at_ms + place) * MILLISECOND_NS
        reports.on_report(at_ns)
        assert reports.take(Reading(at_ns, metric, value, retained))


def read_at(reports: Reports, at_ms: int, metric: str = SENT) -> list[tuple[int, float, bool]]:
    return [
        (reading.at_ns // MILLISECOND_NS, reading.value, reading.held)
        for reading in reports.read(at_ms * MILLISECOND_NS)
        if reading.metric == metric
    ]


def test_what_is_repeated_between_two_reports_is_marked() -> None:
    reports = Reports()
    report(reports, 900, sent=10)
    assert read_at(reports, 1000) == [(901, 10, False)]
    assert read_at(reports, 2000) == [(2000, 10, True)]
    report(reports, 2900, sent=30)
    assert read_at(reports, 3100) == [(2901, 30, False)]


def test_a_report_confirms_what_has_not_changed() -> None:
    reports = Reports()
    report(reports, 900, sent=10)
    assert read_at(reports, 1500) == [(901, 10, False)]
    report(reports, 2900)
    assert read_at(reports, 3500) == [(2900, 10, False)]
    assert read_at(reports, 4500) == [(4500, 10, True)]


def test_a_reading_in_the_midst_of_a_report_repeats_nothing_as_news() -> None:
    reports = Reports()
    report(reports, 900, sent=10, other=5)
    assert read_at(reports, 1500) == [(901, 10, False)]
    report(reports, 2990)
    assert read_at(reports, 3000) == [], "the rest of the report may still come"
    reports.on_report(3001 * MILLISECOND_NS)
    reports.take(Reading(3001 * MILLISECOND_NS, SENT, 30))
    assert read_at(reports, 4000) == [(3001, 30, False)]


def test_topics_that_never_pause_hold_no_report_up() -> None:
    reports = Reports()
    report(reports, 900, sent=10)
    assert read_at(reports, 1500) == [(901, 10, False)]
    report(reports, 2900)
    reports.on_report(3999 * MILLISECOND_NS)
    assert read_at(reports, 4000) == [(2900, 10, False)]


def test_retained_values_say_nothing_of_growth() -> None:
    reports = Reports()
    report(reports, 100, retained=True, sent=10)
    assert read_at(reports, 500) == [(101, 10, True)]
    report(reports, 900)
    assert read_at(reports, 1500) == [(900, 10, False)]


def test_a_lost_connection_ends_what_holds_and_keeps_what_was_new() -> None:
    reports = Reports()
    report(reports, 900, sent=10)
    reports.lose()
    assert read_at(reports, 1000) == [(901, 10, False)]
    assert read_at(reports, 2000) == []
    report(reports, 2900, retained=True)
    assert read_at(reports, 3100) == [], "the broker may have begun anew"
    assert not reports.is_empty


def test_brokers_that_report_otherwise_confirm_nothing() -> None:
    reports = Reports()
    reports.on_report(0)
    reports.take(Reading(0, "site/power", 10))
    reports.take(Reading(0, "site/uptime", 10))
    assert read_at(reports, 500, "site/power") == [(0, 10, False)]
    reports.on_report(900 * MILLISECOND_NS)
    reports.take(Reading(900 * MILLISECOND_NS, "site/uptime", 11))
    assert read_at(reports, 1500, "site/power") == [(1500, 10, True)]
    assert read_at(reports, 20_000, "site/power") == [], "the broker has said nothing for long"


def test_two_readings_of_real_reports_are_as_far_apart_as_the_reports(
    mosquitto: BrokerMaker, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    monitor = SysTopicsMonitor("broker-0", mosquitto(sys_interval=1), ALL)
    monitor.start()
    news: dict[str, list[Reading]] = {}

    def reported_twice() -> bool:
        for reading in monitor.read():
            if not reading.held:
                news.setdefault(reading.metric, []).append(reading)
        return len(news.get(SENT, [])) > 1 and len(news.get("$SYS/uptime", [])) > 1

    eventually(reported_twice)
    monitor.stop()
    for metric in (SENT, "$SYS/uptime"):
        before, after = news[metric][:2]
        assert after.at_ns - before.at_ns > 500 * MILLISECOND_NS
    assert REPORT_METRIC in news


def test_a_broker_that_is_away_is_reported(problem_of: ProblemOf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monitor = SysTopicsMonitor("redis", Target(host="127.0.0.1", port=port), ALL)
    monitor.start()
    text = problem_of(monitor)
    monitor.stop()
    assert f"127.0.0.1:{port} cannot be reached by the observer" in text


@pytest.mark.filterwarnings(PAHO_LEAVES_SOCKETS)
def test_an_observer_of_a_broker_under_tls_verifies_it_as_clients_do(
    mosquitto: BrokerMaker, read_until: ReadUntil, problem_of: ProblemOf, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    options = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker")
    names = ("-addext", "subjectAltName=DNS:broker.test")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
    target = mosquitto(certfile=certificate, keyfile=key)
    for name, trusted in (("broker.test", True), (None, False)):
        login = Login(tls=Tls(ca=str(certificate), server_name=name))
        monitor = SysTopicsMonitor("broker-0", target, ALL, login)
        monitor.start()
        if trusted:
            read_until(monitor, "$SYS/clients/connected")
        else:
            assert "cannot be reached by the observer: check address and TLS" in problem_of(monitor)
        monitor.stop()


def test_what_an_observer_cannot_do_under_tls_is_reported() -> None:
    with pytest.raises(ObserverError, match="cannot use pre-shared keys"):
        tls_context(Tls(psk=Psk(file="keys.psk", identity="{n}")))
    with pytest.raises(ObserverError, match="TLS files cannot be used"):
        tls_context(Tls(ca="/nowhere/ca.crt"))
