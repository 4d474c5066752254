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

from pubstorm.host.keys.authority import Authority, Validity
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.measure.monitors.perf import Profile
from pubstorm.measure.monitors.remote import client, server
from pubstorm.measure.monitors.remote.client import Endpoint, RemotePerf, remote_monitors
from pubstorm.measure.monitors.remote.server import MonitorServer
from pubstorm.scenario.monitors import Process, Remote
from tests.kit import made
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.system.monitors.conftest import BUSY, WAITING, ChildMaker, needs_perf, read

Serve = Callable[..., str]
TOKEN = "0123456789abcdef"


@contextlib.contextmanager
def serving(
    port: int = 0, token: str | None = None, context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server; its address."""
    made = MonitorServer(("127.0.0.1", port), socket.AF_INET, token, context)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{made.server_address[1]}"
    finally:
        made.end()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers with a token and TLS, if wanted; their addresses."""
    with contextlib.ExitStack() as started:
        yield lambda *secrets: started.enter_context(serving(0, *secrets))


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """TLS of a server for 127.0.0.1; its authority is in ca.crt."""
    validity = Validity.of_days(1)
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


def has_child(name: str) -> bool:
    """True if a child of this process has this name; a child may end while it is looked at."""
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.name() == name:
                return True
    return False


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
    begin = (
        "from pubstorm.measure.monitors.remote.server import MonitorServer as Server; import sys"
    )
    start = "Server(('127.0.0.1', 0), 2, None, None); print('pyroute2.netlink.diag' in sys.modules)"
    words = [sys.executable, "-c", f"{begin}; {start}"]
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
        answer = raw(url, f"GET {page} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 401 "), page
        assert b"pubstorm_" not in answer


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST /host HTTP/1.1\r\n\r\n", b" 501 "),
        (b"DELETE /process?pid=1 HTTP/1.1\r\n\r\n", b" 501 "),
        (b"GET /host HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"a request has no content"),
        (b"GET /host HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", b" 431 "),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b""),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", b"400 Bad request"),
        (b"GET /process HTTP/1.0\r\n\r\n", b"allowed is one of pid, port, name, as in /process"),
        (b"GET /process?pid=x HTTP/1.0\r\n\r\n", b"pid: Value error, found 'x'"),
        (b"GET /process?pid=1&at=2 HTTP/1.0\r\n\r\n", b" 400 "),
        (b"GET /process?" + b"a=1&" * 9 + b" HTTP/1.0\r\n\r\n", b" 400 "),
        (b"GET /profile?pid=1&for=2h HTTP/1.0\r\n\r\n", b"a profile takes at most 3600 s"),
        (b"GET /profile?pid=1&frequency=0 HTTP/1.0\r\n\r\n", b"frequency: "),
        (b"GET /etc/passwd HTTP/1.0\r\n\r\n", b"allowed are /host, /process, /profile"),
    ],
)
def test_a_request_that_is_not_for_reading_is_refused(
    serve: Serve, sent: bytes, answer: bytes
) -> None:
    url = serve()
    assert answer in raw(url, sent)
    assert b" 200 " in raw(url, b"GET /host HTTP/1.0\r\n\r\n")


def test_a_connection_asks_for_a_limited_number_of_processes(serve: Serve) -> None:
    host, port = serve().removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    statuses = []
    for number in range(server.MONITORS_MAX + 2):
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
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 4)
    url = serve(TOKEN)
    port = int(url.rpartition(":")[2])
    host = host_at(url, token=TOKEN)
    assert "load1" in read(host)
    slow = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(3)]
    for each in slow:
        each.sendall(b"GET /host HTTP/1.1\r\nX: ")
    # There is no place for one more, and those who have one are served.
    assert raw(url, b"") == b""
    assert "load1" in read(host)
    for each in slow:
        assert has_ended(each)
        each.close()
    until(lambda: b" 401 " in raw(url, b"GET /host HTTP/1.1\r\n\r\n"))
    assert "load1" in read(host)
    host.stop()


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


def recorded(perf: RemotePerf, process: Process, meanwhile: Callable[[], object]) -> Profile:
    async def run() -> Profile:
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
    before_s = times().user
    try:
        profile = recorded(
            perf, Process(pid=busy.pid), lambda: until(lambda: times().user > before_s + 0.5)
        )
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
    until(lambda: has_child("perf"))
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
    return f"GET /profile?pid={pid}&for=10ms HTTP/1.0\r\n\r\n".encode()
