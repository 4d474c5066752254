"""`pubstorm monitor` over real connections: what it serves, to whom, and what a run reads of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pubstorm.host.keys.certificates import Authority, CertificateDates
from pubstorm.host.listening import address_of, listener_at
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.measure.monitors.profiling import StackProfile
from pubstorm.measure.monitors.remote import client
from pubstorm.measure.monitors.remote.client import Endpoint, RemotePerf, remote_monitors
from pubstorm.scenario.monitors import Process, Remote
from pubstorm.web import monitors, server
from pubstorm.web.monitors import LIMITS, LONG, HostPages
from pubstorm.web.server import Guard
from tests.kit import made
from tests.kit.perf import is_recording
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.system.monitors.conftest import BUSY, WAITING, ChildMaker, needs_perf, read

Serve = Callable[..., str]
TOKEN = "0123456789abcdef"
HOST = "Host: 127.0.0.1"


@contextlib.contextmanager
def serving(
    port: int = 0, token: str | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server; its address."""
    listener = listener_at(address_of(f"127.0.0.1:{port}", "", ""))
    url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    guard = Guard(frozenset({"127.0.0.1"}), token, tls, long=LONG)
    ended = threading.Event()

    async def serve() -> None:
        async with server.serving(HostPages().application(guard), LIMITS, tls, listener):
            while not ended.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        yield url
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers with a token and TLS, if wanted; their addresses."""
    with contextlib.ExitStack() as started:
        yield lambda *secrets: started.enter_context(serving(0, *secrets))


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """TLS of a server for 127.0.0.1; its authority is in ca.crt."""
    validity = CertificateDates.of_days(1)
    authority = Authority.new("test", validity)
    made = authority.server(["127.0.0.1"], validity)
    (tmp_path / "ca.crt").write_bytes(authority.credential.certificate)
    (tmp_path / "server.crt").write_bytes(made.certificate)
    (tmp_path / "server.key").write_bytes(made.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    return context


def remote(url: str, **keys: object) -> Remote:
    return Remote.model_validate({"url": url, **keys})


def problem(asked: Remote, page: str = "/host") -> str:
    endpoint = Endpoint(asked)
    try:
        with pytest.raises(MonitorError) as caught:
            endpoint.get(page)
    finally:
        endpoint.close()
    return str(caught.value)


def raw(url: str, sent: bytes) -> bytes:
    """Everything that the server answers to these bytes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    return received


def has_ended(connection: socket.socket) -> bool:
    """True once the server has ended a connection, also one of which it has not read everything."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def host_at(url: str, **keys: object) -> Monitor:
    """The monitor of a host whose processes are not looked at."""
    (host,) = remote_monitors(made.source("cloud"), remote(url, **keys))
    return host


def test_process_and_host_are_read_as_on_this_machine(serve: Serve, child: ChildMaker) -> None:
    busy = child(BUSY)
    process, host = remote_monitors(
        made.source("cloud"), remote(serve(), process={"pid": busy.pid})
    )
    assert (process.source.name, host.source.name) == ("cloud", "host-cloud")
    process.start()
    host.start()
    until(lambda: read(process)["cpu_user"] > 0.2)
    found = read(process)
    assert found["processes"] == found["threads"] == 1
    assert found["rss_bytes"] > found["private_bytes"] > 0
    until(lambda: read(host).get("cpu", 0) > 0)
    assert read(host)["processors"] == os.cpu_count()
    process.stop()
    host.stop()


def test_a_reading_lies_between_question_and_answer(serve: Serve) -> None:
    host = host_at(serve())
    asked_ns = time.monotonic_ns()
    readings = [*host.read()]
    answered_ns = time.monotonic_ns()
    host.stop()
    (at_ns,) = {reading.at_ns for reading in readings}
    (bound_us,) = (each.value for each in readings if each.metric == "clock_bound_us")
    bound_ns = bound_us * 1000
    assert asked_ns <= at_ns - bound_ns <= at_ns + bound_ns <= answered_ns + 1


def test_a_process_that_is_missing_or_ends_is_a_problem(serve: Serve, child: ChildMaker) -> None:
    url, waiting = serve(), child(WAITING)
    gone, found = (
        next(remote_monitors(made.source("cloud"), remote(url, process=wanted)))
        for wanted in ({"name": "no-such-program"}, {"pid": waiting.pid})
    )
    with pytest.raises(MonitorError, match=rf"{url} reports: found no process with the name no-su"):
        gone.start()
    found.start()
    waiting.kill()
    waiting.wait()
    with pytest.raises(MonitorError, match=f"process {waiting.pid} has ended"):
        read(found)
    gone.stop()
    found.stop()


def test_connections_of_a_process_of_another_host_are_read(serve: Serve) -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)) as listener,
        socket.create_connection(("127.0.0.1", port)) as client,
        listener.accept()[0],
    ):
        client.sendall(bytes(300))
        wanted = remote(serve(), process={"port": port})
        monitor = next(remote_monitors(made.source("cloud"), wanted))
        monitor.start()
        found = read(monitor)
        monitor.stop()
    assert (found["tcp_connections"], found["tcp_unread_bytes"]) == (1, 300)


def test_a_server_has_loaded_what_its_first_answer_needs() -> None:
    begin = "from pubstorm.web.monitors import HostPages; import sys; HostPages()"
    words = [sys.executable, "-c", f"{begin}; print('pyroute2.netlink.diag' in sys.modules)"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


def test_a_server_that_starts_again_is_read_again() -> None:
    port = free_port()
    with serving(port) as url:
        host = host_at(url)
        host.start()
    with pytest.raises(MonitorError, match="cannot be reached"):
        read(host)
    with serving(port):
        assert "load1" in read(host)
    with serving(port):
        # The connection broke between two readings, which is no problem.
        assert "load1" in read(host)
    host.stop()


def test_tls_and_token_are_checked_on_both_sides(
    serve: Serve, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    ca, missing, empty = (str(tmp_path / f"{name}.crt") for name in ("ca", "none", "empty"))
    Path(empty).touch()
    url = serve(TOKEN, tls)
    host = host_at(url, token=TOKEN, ca=ca)
    assert "load1" in read(host)
    host.stop()
    refused = "refuses the token (401): compare it with the --token-file"
    another_name = "give its authority as ca, and a name that it has"
    no_file = "none.crt cannot be read (No such file or directory): give a PEM file"
    for asked, words in (
        (remote(url, ca=ca), "needs a token (401)"),
        (remote(url, ca=ca, token="x" * 16), refused),
        (remote(url, token=TOKEN), "certificate of https://127.0.0.1"),
        (remote(url.replace("127.0.0.1", "localhost"), token=TOKEN, ca=ca), another_name),
        (remote(url, ca=missing), no_file),
        (remote(url, ca=empty), "cannot be read"),
        (remote(url.replace("https:", "http:")), "127.0.0.1"),
        (remote(serve().replace("http:", "https:"), ca=ca), "does not speak TLS"),
    ):
        assert words in problem(asked)


def test_nothing_is_read_without_the_token(serve: Serve, child: ChildMaker) -> None:
    url = serve(TOKEN)
    for page in ("/host", f"/process?pid={child(WAITING).pid}", "/profile?pid=1", "/other"):
        answer = raw(url, f"GET {page} HTTP/1.1\r\n{HOST}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 401 "), page
        assert b"pubstorm_" not in answer


@pytest.mark.parametrize(
    ("line", "header", "answer"),
    [
        ("POST /host", "", " 403 "),
        ("DELETE /process?pid=1", "", " 403 "),
        ("GET /host", "Content-Length: 3\r\n\r\nabc", "a request has no content"),
        ("GET /host", "Transfer-Encoding: chunked\r\n\r\n0", "a request has no content"),
        ("GET /host", "X: " + "a" * 9000, " 431 "),
        ("GET /" + "a" * 9000, "", " 431 "),
        ("\x16\x03\x01\x00", "", " 400 "),
        ("GET /process", "", "allowed is one of pid, port, name, as in /process"),
        ("GET /process?pid=x", "", "pid: Value error, found 'x'"),
        ("GET /process?pid=1&at=2", "", " 400 "),
        ("GET /process?" + "a=1&" * 9, "", " 400 "),
        ("GET /profile?pid=1&for=2h", "", "a profile takes at most 3600 s"),
        ("GET /profile?pid=1&frequency=0", "", "frequency: "),
        ("GET /etc/passwd", "", "allowed are /host, /process, /profile"),
        ("GET /host", "Host: evil.example", " 400 "),
    ],
)
def test_a_request_that_is_not_for_reading_is_refused(
    serve: Serve, line: str, header: str, answer: str
) -> None:
    url = serve()
    sent = f"{line} HTTP/1.0\r\n{HOST}\r\n{header}\r\n\r\n".replace("\r\n\r\n\r\n", "\r\n\r\n")
    assert answer in raw(url, sent.encode()).decode()
    assert b" 200 " in raw(url, f"GET /host HTTP/1.0\r\n{HOST}\r\n\r\n".encode())


@pytest.mark.parametrize("host", ["", "Host: evil.example", "Host: 127.0.0.1.evil.example:80"])
def test_a_strange_name_is_refused(serve: Serve, host: str) -> None:
    asked = f"GET /host HTTP/1.0\r\n{host}".rstrip() + "\r\n\r\n"
    assert b" 421 " in raw(serve(), asked.encode())


def test_a_connection_asks_for_a_limited_number_of_processes(serve: Serve) -> None:
    host, port = serve().removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    statuses = []
    for number in range(monitors.MONITORS_MAX + 2):
        connection.request("GET", f"/process?name=none-{number}")
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    assert statuses[0] == 200
    assert statuses[-1] == 400


def test_slow_and_idle_clients_end_and_others_are_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 2.0)
    monkeypatch.setattr(server, "STRANGERS_MAX", 4)
    url = serve(TOKEN)
    port = int(url.rpartition(":")[2])
    host = host_at(url, token=TOKEN)
    assert "load1" in read(host)
    slow = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(5)]
    for each in slow:
        with contextlib.suppress(ConnectionError):
            each.sendall(b"GET /host HTTP/1.1\r\nX: ")
    # Each place is taken: the next one takes that of the first.
    assert has_ended(slow[0])
    new = host_at(url, token=TOKEN)
    assert "load1" in read(new)
    assert "load1" in read(host)
    for each in slow:
        assert has_ended(each)
        each.close()
    for known in (new, host):
        assert "load1" in read(known)
        known.stop()


def test_no_more_connections_have_the_token_than_allowed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.system.monitors.test_remote.LIMITS", server.ConnectionLimits(2, 60))
    url = serve(TOKEN)
    hosts = [host_at(url, token=TOKEN) for _ in range(2)]
    assert all("load1" in read(each) for each in hosts)
    assert "as many connections as allowed are open" in problem(remote(url, token=TOKEN))
    hosts[0].stop()
    until(lambda: b" 503 " not in raw(url, with_token("/host")))
    hosts[1].stop()


def test_clients_that_break_off_leave_the_server_as_it_was(
    serve: Serve, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    url = serve(None, tls)
    port = int(url.rpartition(":")[2])
    for sent in (b"", b"\x16", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100):
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(sent)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    host = host_at(url, ca=str(tmp_path / "ca.crt"))
    assert "load1" in read(host)
    host.stop()


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>up"])
def test_an_answer_of_another_program_is_a_problem(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        host = host_at(f"http://127.0.0.1:{listener.getsockname()[1]}")
        if said.startswith(b"SSH"):
            with pytest.raises(MonitorError, match="does not answer as pubstorm monitor does"):
                host.start()
        else:
            assert read(host).keys() == {"clock_bound_us"}
        host.stop()
        thread.join()


def recorded(perf: RemotePerf, process: Process, meanwhile: Callable[[], object]) -> StackProfile:
    async def run() -> StackProfile:
        await perf.prepare()
        await perf.start(process)
        await asyncio.to_thread(meanwhile)
        await perf.stop()
        return await perf.profile()

    return asyncio.run(run())


def test_a_process_is_profiled_until_the_client_ends_it(
    serve: Serve, child: ChildMaker, tmp_path: Path
) -> None:
    needs_perf()
    busy = child(BUSY)
    perf = RemotePerf(remote(serve()), tmp_path / "profile", 199, 3600 * 10**9)
    times = psutil.Process(busy.pid).cpu_times

    def work() -> None:
        until(lambda: is_recording(os.getpid()))
        before_s = times().user
        until(lambda: times().user > before_s + 0.5)

    try:
        profile = recorded(perf, Process(pid=busy.pid), work)
    except MonitorError as error:
        if "not allowed" in str(error):
            pytest.skip(str(error))
        raise
    assert profile.samples_total == sum(profile.functions.values()) > 0
    assert perf.event in {"cycles", "cpu-clock"}
    assert (tmp_path / "profile" / "folded.txt").read_text() == profile.folded()


def test_a_second_profile_is_refused_and_a_client_that_has_gone_ends_the_first(
    serve: Serve, child: ChildMaker
) -> None:
    needs_perf()
    url, busy = serve(), child(BUSY)
    first = Endpoint(remote(url))
    first.ask(f"/profile?pid={busy.pid}&for=1h")
    until(lambda: is_recording(os.getpid()))
    assert b"only one at a time" in raw(url, short_profile(busy.pid))
    first.close()
    until(lambda: b"only one at a time" not in raw(url, short_profile(busy.pid)))


def test_a_profile_that_cannot_be_made_says_why(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for url, words in (
        (serve(), "perf is not installed: apt-get install linux-perf"),
        (f"http://127.0.0.1:{free_port()}", "cannot be reached"),
    ):
        perf = RemotePerf(remote(url), tmp_path / "profile", 99, 10**9)
        with pytest.raises(MonitorError, match=words):
            recorded(perf, Process(pid=os.getpid()), lambda: None)


def test_an_answer_that_never_ends_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BYTES_MAX", 10)
    assert "more than" in problem(remote(serve()))


def short_profile(pid: int) -> bytes:
    return f"GET /profile?pid={pid}&for=10ms HTTP/1.0\r\n{HOST}\r\n\r\n".encode()


def with_token(page: str) -> bytes:
    lines = (f"GET {page} HTTP/1.0", HOST, f"Authorization: Bearer {TOKEN}", "", "")
    return "\r\n".join(lines).encode()
