"""Brokers that Pubstorm itself does not start: ejabberd, in Erlang, and Apache ActiveMQ Artemis, in
Java. Each serves MQTT 3.1.1 and 5, on TCP and on WebSocket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.ports import free_port, free_ports

READY_TIMEOUT_S = 180.0
POLL_S = 0.01
ARTEMIS = Path("/opt/apache-artemis-2.44.0")
EJABBERD = """
hosts: [localhost]
loglevel: warning
auth_method: [anonymous]
anonymous_protocol: login_anon
allow_multiple_connections: true
listen:
  - {{ip: 127.0.0.1, port: {tcp}, module: mod_mqtt, backlog: 128}}
  - ip: 127.0.0.1
    port: {ws}
    module: ejabberd_http
    backlog: 128
    request_handlers: {{/mqtt: mod_mqtt}}
modules:
  mod_mqtt: {{}}
"""
ARTEMIS_BROKER = """
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <persistence-enabled>false</persistence-enabled>
  <security-enabled>false</security-enabled>
  <mqtt-session-scan-interval>500</mqtt-session-scan-interval>
  <acceptors><acceptor name="mqtt">tcp://127.0.0.1:{port}?protocols=MQTT</acceptor></acceptors>
</core></configuration>
"""


@contextmanager
def ejabberd(folder: Path) -> Iterator[dict[str, str]]:
    """Starts ejabberd, which accepts any client with a user name and a password; yields the target
    of each transport."""
    found = [*Path("/usr/lib").glob("*/ejabberd-*")]
    if not found or shutil.which("erl") is None:
        pytest.skip("ejabberd is not installed (scripts/install-test-tools)")
    tcp, ws = free_ports(2)
    settings = folder / "ejabberd.yml"
    settings.write_text(EJABBERD.format(tcp=tcp, ws=ws))
    environment = {
        "ERL_LIBS": str(found[0].parent),
        "EJABBERD_CONFIG_PATH": str(settings),
        "EJABBERD_LOG_PATH": str(folder / "ejabberd.log"),
    }
    # Without a name the node starts no daemon of Erlang.
    command = ["erl", "-noinput", "-mnesia", "dir", f'"{folder / "mnesia"}"', "-s", "ejabberd"]
    with started(command, folder, environment, (tcp, ws)):
        yield {"tcp": f"mqtt://127.0.0.1:{tcp}", "websocket": f"ws://127.0.0.1:{ws}/mqtt"}


@contextmanager
def artemis(folder: Path) -> Iterator[dict[str, str]]:
    """Starts Artemis, which has both transports on one port; yields the target of each."""
    if not ARTEMIS.exists() or shutil.which("java") is None:
        pytest.skip(f"{ARTEMIS.name} is not installed (scripts/install-test-tools)")
    port = free_port()
    settings = folder / "etc" / "broker.xml"
    settings.parent.mkdir()
    settings.write_text(ARTEMIS_BROKER.format(port=port))
    program = "org.apache.activemq.artemis.core.server.embedded.Main"
    options = ["-Xmx256M", "-XX:-UsePerfData"]
    command = ["java", *options, "-cp", f"{ARTEMIS}/lib/*", program, str(folder)]
    with started(command, folder, {}, (port,)):
        yield {"tcp": f"mqtt://127.0.0.1:{port}", "websocket": f"ws://127.0.0.1:{port}/mqtt"}


@contextmanager
def started(
    command: list[str], folder: Path, environment: Mapping[str, str], ports: tuple[int, ...]
) -> Iterator[None]:
    """Runs a server in a folder until the context ends; yields when it listens on its ports."""
    log = folder / "output.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "HOME": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not all(listens(port) for port in ports):
            is_in_time = server.poll() is None and time.monotonic() < deadline_s
            assert is_in_time, f"{command[0]} does not start: {log.read_text()}"
            time.sleep(POLL_S)
        yield
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    """Returns True if a port of loopback accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
