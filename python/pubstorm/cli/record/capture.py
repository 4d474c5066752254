"""Reads clients and messages of MQTT from a capture of packets. Wireshark's `tshark` puts the
segments of TCP in order and decodes MQTT. After a gap, the rest of that direction of a connection
is unknown, not guessed. A segment that the capture has cut is such a gap."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pubstorm.cli.record.population import Observed, ObservedSession
from pubstorm.contract import U16_MAX
from pubstorm.errors import BinaryError, UsageError
from pubstorm.quantities import write_count

FIELDS = (
    *("frame.time_epoch", "frame.cap_len", "frame.len", "tcp.stream", "tcp.dstport", "tcp.len"),
    *("tcp.seq", "tcp.ack", "tcp.flags.syn", "mqtt.hdrflags", "mqtt.len", "mqtt.topic_len"),
    *("mqtt.topic", "mqtt.msgid", "mqtt.property_len", "mqtt.property.topic_alias", "mqtt.ver"),
    *("mqtt.clientid", "mqtt.kalive", "mqtt.conflag.cleansess", "mqtt.sub.qos"),
    *("mqtt.subscription_options_qos", "tcp.flags.fin", "tcp.flags.reset"),
)
"""Fields of Wireshark that are read. User names and passwords are none of them."""
PAYLOAD = "mqtt.msg"
"""Field of the payload, which is read only if payloads are recorded."""
LAYERS = (
    *("frame", "tcp", "tcp.flags", "mqtt", "mqtt.conflags"),
    *("mqtt.properties", "mqtt.subscription_options", "_ws.expert", "_ws.malformed"),
)
FILTER = (
    "tcp.port in {{{}}} and (mqtt or tcp.len > 0 or tcp.flags.syn == 1 or tcp.flags.fin == 1"
    " or tcp.flags.reset == 1 or tcp.analysis.ack_lost_segment)"
)
"""Frames of these ports that carry or end something, or acknowledge a segment that is missing."""
CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT = 1, 3, 8, 10, 14
END_FLAGS = ("tcp.flags.fin", "tcp.flags.reset")
"""Flags of the last segment of a direction, or of a connection."""
TRUE = frozenset({"True", "true", "1"})
OF_BROKER = "$SYS"
"""First level of topics that the broker publishes itself."""
CHANGE_LATER = "Unsubscriptions are not played: filters stay until the end."
LEFT_OUT = "wills, properties and payloads"
VERSIONS = {"3": "3.1", "4": "3.1.1", "5": "5"}
EPOCH_DIGITS = 9
LINES_MAX = 2**24
"""Characters of the longest line of tshark that is read."""


@dataclass
class _Direction:
    """One direction of a connection."""

    next: int | None = None
    """Place of the first byte that the capture does not have; None before a segment."""
    later: list[tuple[int, int]] = field(default_factory=list)
    """Start and end of bytes after that."""
    acknowledged: int = 0
    """Place up to which the other side has acknowledged bytes."""
    cut: bool = False
    """True since the capture has a segment without its end: no later packet has a known start."""
    aliases: dict[int, str] = field(default_factory=dict)
    """Topics by their aliases."""

    @property
    def gap(self) -> bool:
        """True if segments are missing, or the end of one."""
        return self.cut or bool(self.later) or self.acknowledged > (self.next or 0)

    def add(self, start: int, end: int) -> None:
        """Adds the bytes of a segment."""
        self.next = start if self.next is None else self.next
        if self.later and self.later[-1][1] == start:
            start = self.later.pop()[0]
        self.later.append((start, end))
        if start > self.next:
            return
        self.later.sort()
        while self.later and self.later[0][0] <= self.next:
            self.next = max(self.next, self.later.pop(0)[1])

    def acknowledge(self, place: int) -> None:
        """Notes an acknowledgement of all bytes before a place."""
        self.next = place if self.next is None else self.next
        self.acknowledged = max(self.acknowledged, place)


@dataclass
class _Connection:
    """A connection of MQTT."""

    identity: str | None = None
    """Client identifier; None if the capture has no CONNECT."""
    version: str = "3.1.1"
    to_server: _Direction = field(default_factory=_Direction)
    to_client: _Direction = field(default_factory=_Direction)
    session: ObservedSession | None = None
    """Session that the CONNECT began; None without one."""
    sent: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Topics and sizes of the last messages, by packet identifier."""


@dataclass
class _Counts:
    """Packets that make no message."""

    resent: int = 0
    without_connect: int = 0
    without_topic: int = 0
    unsubscribed: int = 0
    malformed: int = 0
    of_broker: int = 0
    without_disconnect: int = 0
    retained: int = 0
    cut: int = 0


def read_capture(path: Path, ports: Sequence[int], *, payloads: bool = False) -> Observed:
    """Returns the clients and messages of a capture of servers at these ports. Raises BinaryError
    without tshark, and UsageError for a file that is no capture."""
    observed = Observed(f"the capture {path.name}", keeps_payloads=payloads)
    return observed_in(_frames(path, ports, payloads=payloads), ports, observed)


def observed_in(
    frames: Iterable[Mapping[str, Any]], ports: Sequence[int], observed: Observed
) -> Observed:
    """Adds the clients and messages in decoded frames, as tshark writes them."""
    reader = _CaptureReader(observed, ports)
    for layers in _until_failure(frames, reader.observed.unknown):
        reader.take(layers)
    reader.end()
    return reader.observed


class _CaptureReader:
    """Follows the connections of a capture."""

    def __init__(self, observed: Observed, ports: Sequence[int]) -> None:
        self.observed = observed
        self._ports = {str(port) for port in ports}
        self._connections: dict[str, _Connection] = {}
        self._counts = _Counts()

    def take(self, layers: Mapping[str, Any]) -> None:
        """Takes a frame."""
        tcp = _one(layers.get("tcp"))
        stream = _text(tcp, "tcp.stream")
        if not stream:
            return
        connection = self._connections.setdefault(stream, _Connection())
        is_to_server = _text(tcp, "tcp.dstport") in self._ports
        directions = [connection.to_server, connection.to_client]
        own, other = directions if is_to_server else directions[::-1]
        self._place(tcp, own, other)
        packets = self._whole(layers, own)
        at_ns = _epoch_ns(_text(_one(layers.get("frame")), "frame.time_epoch"))
        for packet in packets:
            try:
                self._packet(packet, connection, is_to_server, at_ns)
            except (ValueError, LookupError):
                self._counts.malformed += 1
        self._counts.malformed += "_ws.malformed" in layers or "_ws_malformed" in layers
        is_end = any(_text(tcp, flag) in TRUE for flag in END_FLAGS)
        if is_end and connection.session is not None and connection.session.until_ns is None:
            self._counts.without_disconnect += 1
            connection.session.end(at_ns)

    @staticmethod
    def _place(tcp: Mapping[str, Any], own: _Direction, other: _Direction) -> None:
        """Notes the bytes of a segment, and those that it acknowledges."""
        texts = [_text(tcp, name) for name in ("tcp.seq", "tcp.len", "tcp.ack")]
        start, length, acknowledged = (int(each) if each.isdecimal() else 0 for each in texts)
        # Each of both flags takes the place of a byte.
        flags = [_text(tcp, name) in TRUE for name in ("tcp.flags.syn", "tcp.flags.fin")]
        if end := length + sum(flags):
            own.add(start, start + end)
        if acknowledged:
            other.acknowledge(acknowledged)

    def _whole(self, layers: Mapping[str, Any], own: _Direction) -> list[Mapping[str, Any]]:
        """Returns the packets of a frame whose bytes the capture has. In a segment without its end,
        the last packet may be read from too few bytes; later ones have no known start."""
        packets = [each for each in _all(layers.get("mqtt")) if isinstance(each, Mapping)]
        frame, tcp = _one(layers.get("frame")), _one(layers.get("tcp"))
        lengths = [_text(frame, name) for name in ("frame.cap_len", "frame.len")]
        is_cut = lengths[0] != lengths[1] and _text(tcp, "tcp.len") != "0"
        self._counts.cut += is_cut
        packets = [] if own.cut else packets[:-1] if is_cut else packets
        own.cut = own.cut or is_cut
        return packets

    def _packet(
        self, packet: Mapping[str, Any], connection: _Connection, is_to_server: bool, at_ns: int
    ) -> None:
        flags = int(_text(packet, "mqtt.hdrflags"), 16)
        kind = flags >> 4
        if kind == CONNECT and is_to_server:
            self._connect(packet, connection, at_ns)
        elif kind == PUBLISH:
            self._publish(packet, connection, (flags, is_to_server), at_ns)
        elif kind == SUBSCRIBE and is_to_server and connection.identity is not None:
            client = self.observed.client(connection.identity)
            qos = _texts(packet, "mqtt.subscription_options_qos") or _texts(packet, "mqtt.sub.qos")
            topics, lengths = _texts(packet, "mqtt.topic"), _texts(packet, "mqtt.topic_len")
            if lengths != [str(len(topic.encode())) for topic in topics]:
                raise ValueError("a filter with bytes that are not UTF-8")
            for number, topic in enumerate(topics):
                if topic.startswith(OF_BROKER):
                    self._counts.of_broker += 1
                    continue
                client.filters[topic] = int(qos[number], 0) if len(qos) == len(topics) else 0
        elif kind == UNSUBSCRIBE:
            self._counts.unsubscribed += 1
        elif kind == DISCONNECT and connection.session is not None:
            connection.session.end(at_ns)

    def _connect(self, packet: Mapping[str, Any], connection: _Connection, at_ns: int) -> None:
        version, keep_alive_s = VERSIONS[_text(packet, "mqtt.ver")], _text(packet, "mqtt.kalive")
        identity = _text(packet, "mqtt.clientid") or f"\0{len(self._connections)}"
        is_known = identity in self.observed.clients
        client = self.observed.client(identity)
        client.connections += is_known
        client.version = connection.version = version
        client.keep_alive_s = min(int(keep_alive_s), U16_MAX)
        client.is_clean = _text(packet, "mqtt.conflag.cleansess") in TRUE
        connection.identity = identity
        connection.session = client.connect(at_ns)

    def _publish(
        self,
        packet: Mapping[str, Any],
        connection: _Connection,
        header: tuple[int, bool],
        at_ns: int,
    ) -> None:
        flags, is_to_server = header
        if connection.identity is None:
            self._counts.without_connect += 1
            return
        if not is_to_server:
            # Topics of the broker have no publisher among the clients.
            if _text(packet, "mqtt.topic").startswith(OF_BROKER):
                return
            # With this flag, a message was retained before its subscription.
            if flags & 1:
                self._counts.retained += 1
                return
            self.observed.client(connection.identity).deliveries += 1
            return
        qos, topic = flags >> 1 & 3, _text(packet, "mqtt.topic")
        topic_bytes = int(_text(packet, "mqtt.topic_len"))
        if topic_bytes != len(topic.encode()):
            raise ValueError("a topic with bytes that are not UTF-8")
        size = int(_text(packet, "mqtt.len")) - 2 - topic_bytes - (2 if qos else 0)
        if connection.version == "5":
            properties = int(_text(packet, "mqtt.property_len") or 0)
            size -= properties + _varint_bytes(properties)
        if alias := _text(packet, "mqtt.property.topic_alias"):
            if topic_bytes:
                connection.to_server.aliases[int(alias)] = topic
            topic = connection.to_server.aliases.get(int(alias), "")
        if not topic or set(topic) & {"+", "#", "\0"}:
            self._counts.without_topic += 1
            return
        if size < 0 or qos > 2:
            raise ValueError("a length that does not fit")
        number = int(_text(packet, "mqtt.msgid") or 0)
        if flags & 8 and connection.sent.get(number) == (topic, size):
            self._counts.resent += 1
            return
        connection.sent[number] = (topic, size)
        payload: int | bytes = size
        if self.observed.keeps_payloads:
            payload = bytes.fromhex(_text(packet, PAYLOAD).replace(":", ""))
            if len(payload) != size:
                raise ValueError("a payload of another length")
        names = connection.identity, topic
        self.observed.add(at_ns, names, payload, (qos, bool(flags & 1)))

    def end(self) -> None:
        """Says what the capture does not know."""
        unknown, counts = self.observed.unknown, self._counts
        for direction, words in (
            ("to_server", "to the broker: messages"),
            ("to_client", "to the client: deliveries"),
        ):
            gaps = sum(getattr(each, direction).gap for each in self._connections.values())
            if gaps:
                unknown.append(
                    f"{write_count(gaps)} connections have a gap, in which packets are missing, in "
                    f"the direction {words} after the gap are unknown."
                )
                self.observed.deliveries_known = False
        if counts.cut:
            unknown.append(
                f"{write_count(counts.cut)} packets are shorter than they were on the wire: "
                "capture whole packets, without a snapshot length."
            )
        for count, words in (
            (counts.without_connect, "messages are of connections that began before the capture"),
            (counts.without_topic, "messages have a topic alias that the capture does not explain"),
            (counts.malformed, "packets cannot be read"),
            (counts.of_broker, "subscriptions to topics below $SYS have no publisher"),
        ):
            if count:
                unknown.append(f"{write_count(count)} {words}: they are left out.")
        if counts.resent:
            unknown.append(f"{write_count(counts.resent)} messages sent again count once.")
        if counts.retained:
            unknown.append(
                f"{write_count(counts.retained)} deliveries of retained messages are no "
                "deliveries of the recorded messages: they are not counted."
            )
        if counts.unsubscribed:
            unknown.append(CHANGE_LATER)
        if counts.without_disconnect:
            unknown.append(
                f"{write_count(counts.without_disconnect)} connections ended without DISCONNECT: "
                "they are played with one."
            )
        left_out = "wills and properties" if self.observed.keeps_payloads else LEFT_OUT
        unknown.append(f"User names, passwords, {left_out} are not recorded.")


def _until_failure(
    frames: Iterable[Mapping[str, Any]], unknown: list[str]
) -> Iterator[Mapping[str, Any]]:
    """Yields the frames before a failure to read the capture, which becomes a sentence. Raises
    UsageError if there are none."""
    found = False
    try:
        for layers in frames:
            found = True
            yield layers
    except UsageError as error:
        if not found:
            raise
        unknown.append(f"Only the first part was read: {str(error).rstrip('.')}.")


def _frames(path: Path, ports: Sequence[int], *, payloads: bool) -> Iterator[Mapping[str, Any]]:
    """Yields the decoded frames of a capture."""
    program = shutil.which("tshark")
    if program is None:
        hint = "install tshark of Wireshark 4 (apt install tshark)"
        raise BinaryError("found no tshark, which reads captures", hint)
    if not path.is_file():
        raise UsageError(f"found no capture at {path}", "dumpcap and tcpdump write captures")
    decode = [word for port in ports for word in ("-d", f"tcp.port=={port},mqtt")]
    in_order = ("-o", "tcp.reassemble_out_of_order:TRUE", "-o", "mqtt.show_msg_as_text:FALSE")
    fields = (*FIELDS, PAYLOAD) if payloads else FIELDS
    names, wanted = " ".join((*LAYERS, *fields)), ", ".join(map(str, ports))
    command = [program, "-n", "-r", str(path), *decode, *in_order, "-Y", FILTER.format(wanted)]
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(
            [*command, "-T", "ek", "-j", names], stdout=subprocess.PIPE, stderr=said
        )
        assert running.stdout is not None
        try:
            lines = io.TextIOWrapper(running.stdout, encoding="utf-8", errors="replace")
            yield from _documents(lines, path)
        except BaseException:
            running.kill()
            raise
        finally:
            running.stdout.close()
            running.wait()
        if running.returncode != 0:
            said.seek(0)
            words = said.read(4000).decode(errors="replace").strip().splitlines()
            reason = words[-1] if words else f"exit code {running.returncode}"
            raise UsageError(f"found {path}, which tshark cannot read: {reason}")


def _documents(lines: IO[str], path: Path) -> Iterator[Mapping[str, Any]]:
    while line := lines.readline(LINES_MAX):
        try:
            document = json.loads(line)
        except ValueError:
            raise UsageError(f"found output of tshark about {path} that is no JSON") from None
        if "layers" in document:
            yield document["layers"]


def _all(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _one(value: object) -> Mapping[str, Any]:
    first: object = next(iter(_all(value)), {})
    return first if isinstance(first, Mapping) else {}


def _texts(layer: Mapping[str, Any], name: str) -> list[str]:
    """Returns the values of a field, whose key repeats the name of its protocol."""
    protocol = name.partition(".")[0]
    values = _all(layer.get(f"{protocol}_{name.replace('.', '_')}"))
    return [str(each) for each in values if isinstance(each, str | bool | int)]


def _text(layer: Mapping[str, Any], name: str) -> str:
    return next(iter(_texts(layer, name)), "")


def _epoch_ns(text: str) -> int:
    """Returns an instant of tshark in nanoseconds, without a rounding; 0 for one before 1970."""
    whole, _, rest = text.partition(".")
    return max(0, int((whole or "0") + rest[:EPOCH_DIGITS].ljust(EPOCH_DIGITS, "0")))


def _varint_bytes(value: int) -> int:
    return 1 if value < 128 else 2 if value < 16_384 else 3 if value < 2_097_152 else 4
