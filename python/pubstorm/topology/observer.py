"""Observers: MQTT clients beside those of a run. One class holds the connection, its login and its
TLS; another follows topics in a thread and connects again when a connection ends.

An observer waits by `poll`. paho itself waits by `select`, which takes no descriptor from 1024 on,
and a process that watches a thousand brokers has none left below."""

from __future__ import annotations

import select
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pubstorm import result
from pubstorm.contract.offered_load import OF_ONE_CLIENT, client_tls, template_of
from pubstorm.contract.plan import PlannedPopulation, PlannedTls
from pubstorm.contract.protocol import Mqtt
from pubstorm.contract.target import Target
from pubstorm.contract.template import Template
from pubstorm.topology.proxy_header import ProxyVersion, announcing

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import MQTTErrorCode

OK, REFUSED = 0, 5
"""Codes of paho: success, and a connection that the broker refuses."""
CONNECT_TIMEOUT_S = 3.0


class ObserverError(Exception):
    """An observer cannot connect: the text says what was found, and what to do."""


@dataclass(frozen=True)
class Login:
    """User, password, TLS and headers of an observer."""

    username: str | None = None
    password: str | None = None
    tls: PlannedTls | None = None
    """With the paths of the observer's certificate and key; None if the target is not under TLS."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the request that opens a WebSocket: names and values."""
    proxy: ProxyVersion | None = None
    """Version of the header of the PROXY protocol; None if the target demands none."""

    @classmethod
    def of(cls, population: PlannedPopulation, client: int = 0) -> Login:
        """Returns the login of a client of a population. An observer does not authenticate with
        SCRAM, and never sends a password that clients do not send."""
        number = population.first + client
        is_sent = not (isinstance(population.protocol, Mqtt) and population.protocol.uses_scram)
        username, password = (
            template_of(population, template).text(number) if template and is_sent else None
            for template in (population.username, population.password)
        )
        headers = tuple(
            (header.name, template_of(population, header.value).text(number))
            for header in population.headers
        )
        tls = _numbered(client_tls(population, number), number)
        proxied = population.proxy_protocol
        return cls(username, password, tls, headers, None if proxied is None else proxied.version)

    @classmethod
    def numbered(
        cls, username: str | None, password: str | None, tls: PlannedTls | None, number: int
    ) -> Login:
        """Returns the login that these templates give to a number."""
        return cls(_rendered(username, number), _rendered(password, number), _numbered(tls, number))


ANONYMOUS = Login()


class MqttObserver:
    """A connection to one target, which is driven step by step."""

    def __init__(
        self, target: Target, login: Login, *, client_id: str = "", clean: bool = True
    ) -> None:
        self.target = target
        self._login = login
        self._client_id = client_id
        self._clean = clean
        self._tls: _NamedContext | None = None

    @cached_property
    def client(self) -> Client:
        """The client; raises ObserverError if its TLS files cannot be used."""
        # 4 MB that a run without an observer does not need.
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        login = self._login
        kind = Client if login.proxy is None else announcing(Client, login.proxy)
        # Without acknowledgements a session that is looked at keeps what is queued in it.
        client = kind(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=self._clean,
            reconnect_on_failure=False,
            manual_ack=not self._clean,
            transport="tcp" if self.target.websocket is None else "websockets",
        )
        if self.target.websocket is not None:
            client.ws_set_options(path=self.target.websocket, headers=dict(login.headers))
        if login.username is not None:
            client.username_pw_set(login.username, login.password)
        if login.tls is not None:
            self._tls = tls_context(login.tls)
            if self.target.addresses and self._tls.server_name is None:
                self._tls.server_name = self.target.host
            client.tls_set_context(self._tls)
        client.on_connect = lambda _c, _d, flags, code, _p: self.on_connected(
            str(code) if code.is_failure else None, flags.session_present
        )
        client.on_disconnect = lambda _c, _d, _f, code, _p: self.on_disconnected(code.is_failure)
        client.on_subscribe = lambda _c, _d, _i, codes, _p: self.on_granted(
            [not code.is_failure for code in codes]
        )
        client.on_unsubscribe = lambda _c, _d, number, _codes, _p: self.on_unsubscribed(number)
        client.on_message = lambda _c, _d, message: self.on_message(
            message.topic, bytes(message.payload), message.retain
        )
        return client

    def connect(self, keep_alive_s: int, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Sends CONNECT; raises ObserverError if the target cannot be reached."""
        if self.target.quic:
            raise ObserverError("observers connect over TCP, and this target has QUIC")
        self.client.connect_timeout = timeout_s
        try:
            self.client.connect(self.target.reachable_at, self.target.port, keep_alive_s)
        except (OSError, ValueError) as error:
            if self._tls is not None and self._tls.wrapped is not None:
                # paho leaves a socket open whose handshake has failed.
                self._tls.wrapped.close()
            raise ObserverError(f"cannot connect: {error}") from error

    def step(self, wait_s: float) -> MQTTErrorCode:
        """Waits at most `wait_s`, reads and writes what there is, and sends pings. Any code but
        success means that the connection is over."""
        from paho.mqtt.enums import MQTTErrorCode

        connection = self.client.socket()
        if connection is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        # TLS may have taken from the socket what is not read yet.
        pending = getattr(connection, "pending", None)
        holds_more = pending is not None and pending() > 0
        writes = select.POLLOUT if self.client.want_write() else 0
        poller = select.poll()
        poller.register(connection, select.POLLIN | writes)
        happened = dict(poller.poll(0 if holds_more else wait_s * 1000))
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        if holds_more or any(bits & ~select.POLLOUT for bits in happened.values()):
            code = self.client.loop_read()
        if code == OK and self.client.want_write():
            code = self.client.loop_write()
        return self.client.loop_misc() if code == OK else code

    def on_connected(self, refusal: str | None, session_present: bool) -> None:
        """Takes the answer to CONNECT; `refusal` is None if the target accepts."""

    def on_disconnected(self, is_failure: bool) -> None:
        """Takes the end of a connection."""

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Takes the answer to SUBSCRIBE, for each filter."""

    def on_unsubscribed(self, number: int) -> None:
        """Takes the answer to UNSUBSCRIBE, with the packet's identifier."""

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Takes a message."""


class Follower(MqttObserver):
    """An observer that follows topics in a thread of its own, until it is stopped."""

    hint = ""
    """Words after a refused login."""
    keep_alive_s = 60
    wait_s = 0.25
    """Longest wait for a message before the thread looks whether it has to end."""
    retry_s: tuple[float, float] = (0.05, 0.05)
    """Shortest and longest wait between two attempts to connect. It doubles after each attempt
    without a subscription."""

    def __init__(self, name: str, target: Target, topics: Mapping[str, int], login: Login) -> None:
        """`topics`: filters, each with its QoS."""
        super().__init__(target, login)
        self.name = name
        self.topics = topics
        self.problem: str | None = None
        """The reason why the observer knows too little; None if there is none."""
        self.subscriptions = 0
        """Subscriptions so far that the target has answered."""
        self.received_total = self.received_bytes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"observer {name}", daemon=True)

    def start(self) -> None:
        """Begins to connect, and continues until it is stopped; raises ObserverError if the TLS
        files cannot be used."""
        assert self.client is not None, "it is made here, so that a wrong file is an error now"
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection and the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CONNECT_TIMEOUT_S + self.wait_s)

    def observer(self) -> result.ObserverTraffic:
        """Returns the observer for the result."""
        return result.ObserverTraffic(
            name=self.name,
            target=str(self.target),
            topics=tuple(self.topics),
            received_total=self.received_total,
            received_bytes=self.received_bytes,
            problem=self.problem,
        )

    def note(self, text: str) -> None:
        """Takes a problem."""
        self.problem = text

    def on_connected(self, refusal: str | None, session_present: bool) -> None:  # noqa: ARG002
        """Subscribes."""
        if refusal is None:
            self.client.subscribe([*self.topics.items()])
        else:
            text = f"{self.target} refuses the observer's login ({refusal.lower()})"
            self.note(text + self.hint)

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Notes which subscriptions are refused."""
        self.subscriptions += 1
        pairs = zip(self.topics, granted, strict=False)
        refused = [topic for topic, is_granted in pairs if not is_granted]
        if refused:
            text = f"{self.target} refuses the observer's subscription to {', '.join(refused)}"
            self.note(f"{text}: allow its user to read it")

    def _follow(self) -> None:
        wait_s = self.retry_s[0]
        while not self._stopping.is_set():
            before = self.subscriptions
            try:
                self.connect(self.keep_alive_s)
            except ObserverError:
                self.note(f"{self.target} cannot be reached by the observer: check address and TLS")
            while not self._stopping.is_set() and self.step(self.wait_s) == OK:
                pass
            self.client.disconnect()
            self.on_away()
            has_come = self.subscriptions != before
            wait_s = self.retry_s[0] if has_come else min(2 * wait_s, self.retry_s[1])
            self._stopping.wait(wait_s)

    def on_away(self) -> None:
        """Takes that there is no connection until the next attempt."""


def tls_context(tls: PlannedTls) -> _NamedContext:
    """Returns the TLS of an observer, as clients have it; raises ObserverError if it cannot."""
    if tls.psk is not None:
        text = "an observer cannot use pre-shared keys, which Python's ssl module does not offer"
        raise ObserverError(f"{text}: name a listener without TLS under monitors.sources")
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = tls.server_name
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
        else:
            context.load_default_certs()
        if tls.ciphers is not None:
            context.set_ciphers(tls.ciphers)
        if tls.certificate is not None:
            # Without a passphrase, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(tls.certificate, tls.key, tls.passphrase or "")
        if tls.alpn:
            context.set_alpn_protocols(tls.alpn)
    except OSError as error:
        raise ObserverError(f"the observer's TLS files cannot be used: {error}") from error
    return context


class _NamedContext(ssl.SSLContext):
    """A context that expects a certificate of a given name."""

    server_name: str | None = None
    wrapped: ssl.SSLSocket | None = None
    """The latest socket."""

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Wraps a socket as usual, with the given name instead of the host."""
        if self.server_name is not None:
            options["server_hostname"] = self.server_name
        self.wrapped = super().wrap_socket(*args, **options)
        return self.wrapped


def _numbered(tls: PlannedTls | None, number: int) -> PlannedTls | None:
    """Returns TLS with the certificate and the key of a number."""
    if tls is None:
        return None
    return tls.model_copy(
        update={name: _rendered(getattr(tls, name), number) for name in OF_ONE_CLIENT}
    )


def _rendered(template: str | None, number: int) -> str | None:
    return None if template is None else Template.parse(template).text(number)


_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
