"""System topics of real brokers."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from pubstorm.contract.plan import PlannedTls
from pubstorm.contract.target import Target
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.measure.monitors.sys_topics import REPORT_METRIC, SysTopicsMonitor
from pubstorm.topology.observer import Login
from tests.kit import made
from tests.kit.serving import until
from tests.system.monitors.conftest import BrokerMaker, problem_of, read, read_until

ALL = ("$SYS/#",)
PAHO_LEAVES_SOCKETS = "ignore::pytest.PytestUnraisableExceptionWarning"
"""After a handshake that fails it leaves the socket to the garbage collector."""
SENT = "$SYS/messages/sent"


def test_a_broker_is_read_and_its_observer_counted(mosquitto: BrokerMaker) -> None:
    target = mosquitto()
    monitor = SysTopicsMonitor(made.source("broker-0"), target, ALL)
    monitor.start()
    found = read_until(
        monitor, "$SYS/clients/connected", "$SYS/messages/dropped", "$SYS/heap/current"
    )
    assert found["$SYS/messages/dropped"] == found["$SYS/publish/messages/dropped"] == 0
    assert read(monitor).keys() >= found.keys(), "what has not changed still holds"
    monitor.stop()
    observer = monitor.observer()
    assert (observer.name, observer.target, observer.topics) == ("broker-0", str(target), ALL)
    assert observer.received_total >= len(found) - 1
    assert observer.received_bytes >= observer.received_total
    assert observer.problem is None


def test_topics_that_are_forbidden_are_reported_at_the_end(
    mosquitto: BrokerMaker, tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text("topic readwrite up/#\n")
    target = mosquitto(acl_file=tmp_path / "acl")
    monitor = SysTopicsMonitor(made.source("broker-0"), target, ALL)
    monitor.start()
    until(lambda: "no number" in str(monitor.observer().problem))
    assert list(monitor.read()) == []
    with pytest.raises(MonitorError, match=r"published no number under \$SYS/#: allow"):
        monitor.stop()


def test_a_refused_login_is_reported(mosquitto: BrokerMaker) -> None:
    target = mosquitto(allow_anonymous=False)
    monitor = SysTopicsMonitor(made.source("broker-0"), target, ALL, Login("stranger", "knows"))
    monitor.start()
    text = problem_of(monitor)
    monitor.stop()
    assert f"{target} refuses the observer's login (not authorized): give username" in text
    assert monitor.observer().problem == text


def test_two_readings_of_real_reports_are_as_far_apart_as_the_reports(
    mosquitto: BrokerMaker,
) -> None:
    monitor = SysTopicsMonitor(made.source("broker-0"), mosquitto(sys_interval=1), ALL)
    monitor.start()
    news: dict[str, list[Reading]] = {}

    def reported_twice() -> bool:
        for reading in monitor.read():
            if not reading.held:
                news.setdefault(reading.metric, []).append(reading)
        return len(news.get(SENT, [])) > 1 and len(news.get("$SYS/uptime", [])) > 1

    until(reported_twice)
    monitor.stop()
    # The test reads the instant of a report, and each report has its own.
    for metric in (SENT, "$SYS/uptime"):
        instants = [reading.at_ns for reading in news[metric]]
        assert instants == sorted({*instants})
    assert REPORT_METRIC in news


def test_a_broker_that_is_away_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monitor = SysTopicsMonitor(made.source("redis"), Target(host="127.0.0.1", port=port), ALL)
    monitor.start()
    text = problem_of(monitor)
    monitor.stop()
    assert f"127.0.0.1:{port} cannot be reached by the observer" in text


@pytest.mark.filterwarnings(PAHO_LEAVES_SOCKETS)
def test_an_observer_of_a_broker_under_tls_verifies_it_as_clients_do(
    mosquitto: BrokerMaker, tmp_path: Path
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
        login = Login(tls=PlannedTls(ca=str(certificate), server_name=name))
        monitor = SysTopicsMonitor(made.source("broker-0"), target, ALL, login)
        monitor.start()
        if trusted:
            read_until(monitor, "$SYS/clients/connected")
        else:
            assert "cannot be reached by the observer: check address and TLS" in problem_of(monitor)
        monitor.stop()
