"""Records the traffic of ports on loopback, and has Wireshark's dissector decode it: an
implementation of MQTT and WebSocket that shares nothing with Pubstorm."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

READY_TIMEOUT_S = 60.0
POLL_S = 0.01
MARK = b"the end of this recording"
BUFFER_MIB = "64"
FIELDS = ("tcp.stream", "tcp.dstport", "mqtt.msgtype", "mqtt.clientid")
ON_WEBSOCKET = 'DissectorTable.get("ws.protocol"):add("mqtt", Dissector.get("mqtt"))'
"""Lua for versions of tshark that look for MQTT on TCP only."""
MALFORMED = (
    'tcp and (_ws.malformed or _ws.expert.group == "Malformed" or _ws.expert.group == "Protocol")'
)
"""The mark is a packet of UDP, in which tshark may see any protocol."""
PUBLISH = "3"


@dataclass
class Recording:
    """Traffic of a port, on disk when its context has ended."""

    port: int
    file: Path
    decode_as: str = "mqtt"
    """Protocol on top of TCP: `mqtt`, `http`, whose connections become WebSocket, or `tls`."""
    key_log: Path | None = None
    """File with the keys of connections under TLS, which have MQTT in them."""

    def malformed(self) -> list[str]:
        """Returns a line for each frame that the dissector marks."""
        return self.dissected("-Y", MALFORMED)

    def packets(self) -> dict[str, Traffic]:
        """Returns the packets of MQTT of each client, by its identifier."""
        names: dict[str, str] = {}
        found: dict[str, Traffic] = {}
        columns = [word for name in FIELDS for word in ("-e", name)]
        for line in self.dissected("-Y", "mqtt", "-T", "fields", *columns):
            stream, port, types, client = line.split("\t")
            traffic = found.setdefault(names.setdefault(stream, client), Traffic())
            direction = traffic.sent if int(port) == self.port else traffic.received
            direction.update(types.split(","))
        return found

    def dissected(self, *arguments: str) -> list[str]:
        """Returns the lines that tshark writes about the recording."""
        decode = f"tcp.port=={self.port},{self.decode_as}"
        in_order = ("-o", "tcp.reassemble_out_of_order:TRUE")
        script = self.file.with_suffix(".lua")
        script.write_text(ON_WEBSOCKET)
        words = ("-X", f"lua_script:{script}", "-d", decode, *in_order, *arguments)
        if self.key_log is not None:
            within = ("-d", f"tls.port=={self.port},mqtt")
            words = (*words, "-o", f"tls.keylog_file:{self.key_log}", *within)
        command = ["tshark", "-2", "-r", str(self.file), *words]
        tshark = subprocess.run(command, capture_output=True, text=True, check=False)
        assert tshark.returncode == 0, tshark.stderr
        return tshark.stdout.splitlines()


@dataclass
class Traffic:
    """Packets of one client by type, as the standard numbers them."""

    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)


def assert_decoded(
    recording: Recording,
    results: list[dict[str, Any]],
    others: Mapping[str, str] = MappingProxyType({}),
    names: Iterable[str] = (),
) -> None:
    """Holds that the dissector finds the packets that runs have counted. `others` has populations
    whose client identifiers do not begin with their name, by the first letters of these. `names`
    are the populations that are looked at. Default: all."""
    assert recording.malformed() == []
    of_clients = recording.packets()
    owners = {client: owner(client, others) for client in of_clients}
    for name in names or results[0]["populations"]:
        traffic = [each for client, each in of_clients.items() if owners[client] == name]
        counts = [result["populations"][name] for result in results]
        sent = sum(each.sent.total() for each in traffic)
        received = sum(each.received.total() for each in traffic)
        assert sent == sum(count["packets_sent_total"] for count in counts)
        assert received == sum(count["packets_received_total"] for count in counts)
        published = sum(each.sent[PUBLISH] for each in traffic)
        assert published == sum(count["sent_total"] for count in counts)
        assert sent > 0


def owner(client: str, others: Mapping[str, str]) -> str:
    """Returns the population of a client identifier."""
    found = (name for start, name in others.items() if start and client.startswith(start))
    return next(found, others.get(client, client.rpartition("-")[0]))


def not_recordable() -> str | None:
    """Returns the reason why no traffic can be recorded here; None if it can."""
    if shutil.which("tshark") is None or shutil.which("dumpcap") is None:
        return "tshark is not installed (scripts/install-test-tools)"
    return None if os.geteuid() == 0 else "recording packets needs root"


@contextmanager
def recorded(port: int, folder: Path, decode_as: str = "mqtt") -> Iterator[Recording]:
    """Records all packets from and to a port of loopback, while the context is open."""
    if reason := not_recordable():
        pytest.skip(reason)
    file, log = folder / f"port-{port}.pcapng", folder / f"port-{port}.log"
    command = ["dumpcap", "-q", "-i", "lo", "-f", f"port {port}", "-B", BUFFER_MIB, "-w", str(file)]
    with log.open("wb") as output:
        dumpcap = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(dumpcap, log, b"File: ")
        yield Recording(port, file, decode_as)
        # Behind a packet that the file has, no earlier one is missing.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mark:
            mark.sendto(MARK, ("127.0.0.1", port))
        wait_until(dumpcap, file, MARK)
        dumpcap.send_signal(signal.SIGINT)
        dumpcap.wait(READY_TIMEOUT_S)
        assert "/0 (pcap:0/dumpcap:0/" in log.read_text(), f"packets are missing: {log.read_text()}"
    finally:
        dumpcap.kill()
        dumpcap.wait()


def wait_until(dumpcap: subprocess.Popen[bytes], file: Path, words: bytes) -> None:
    """Waits until a file that dumpcap writes has these bytes."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not (file.exists() and words in file.read_bytes()):
        is_in_time = dumpcap.poll() is None and time.monotonic() < deadline_s
        assert is_in_time, f"dumpcap has not written {words!r} to {file.name}"
        time.sleep(POLL_S)
