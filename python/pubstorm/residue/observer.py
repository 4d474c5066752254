"""A small client of its own that looks at one broker and takes messages away: paho, driven step by
step, with a deadline for everything. It knows no plan but the identity it is to use."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pubstorm.plan import Population, Target, Tls, client_tls, template_of
from pubstorm.polling import step
from pubstorm.template import Template

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

QUIET_S = 0.15
"""How long after the last retained message no further one is waited for."""
RETAINED_MAX = 10_000
"""Retained messages that are taken in one look."""
CLEARED_PER_S = 5000
"""Retained messages cleared a second."""
ANSWER_S = 2.0
"""How long a broker may take to answer."""
KEEP_ALIVE_S = 5
"""Also how long paho waits for a TLS handshake."""
STEP_S = 0.02


class ObserverError(Exception):
    """What kept the observer from looking."""


class Deadline:
    """When a step has to be over; another thread may bring it forward to now."""

    def __init__(self, budget_s: float) -> None:
        self._until_s = time.monotonic() + budget_s

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._until_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the step has to end."""
        return self.left_s == 0

    def give_up(self) -> None:
        """Ends the step now."""
        self._until_s = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an observer is: user, password and TLS of a client of the plan."""

    username: str | None
    password: str | None
    tls: Tls | None
    """With the paths of this client's certificate and key."""

    @classmethod
    def of(cls, population: Population, client: int = 0) -> Identity:
        """The identity of a client of a population."""
        number = population.first + client
        username, password = (
            None if template is None else template_of(population, template).text(number)
            for template in (population.username, population.password)
        )
        tls = client_tls(population, number)
        if tls is not None:
            tls = tls.model_copy(update=_files(tls, number))
        return cls(username, password, tls)

    @classmethod
    def numbered(
        cls, username: str | None, password: str | None, tls: Tls | None, number: int
    ) -> Identity:
        """The identity that these templates give to a number."""
        if tls is not None:
            tls = tls.model_copy(update=_files(tls, number))
        return cls(_rendered(username, number), _rendered(password, number), tls)


@dataclass(slots=True)
class Look:
    """What a look at some filters has found."""

    retained: dict[str, bytes] = field(default_factory=dict)
    """Retained messages by topic."""
    denied: set[str] = field(default_factory=set)
    """Filters that the broker refused."""
    truncated: bool = False
    """Whether there may be more."""


class Observer:
    """One connection to one target. Use it in a `with` block; raises ObserverError."""

    def __init__(
        self, target: Target, identity: Identity, client_id: str, deadline: Deadline, *, clean: bool
    ) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self._target = target
        self._deadline = deadline
        self._connected: ReasonCode | None = None
        self._granted: Sequence[ReasonCode] | None = None
        self._look = Look()
        self._last_s = 0.0
        self.session_present = False
        # Without acknowledgements a session that is looked at keeps what is queued in it.
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=clean,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if identity.username is not None:
            self._client.username_pw_set(identity.username, identity.password)
        self._tls = _context(target, identity) if target.tls else None
        if self._tls is not None:
            self._client.tls_set_context(self._tls)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def __enter__(self) -> Self:
        self._client.connect_timeout = max(STEP_S, min(ANSWER_S, self._deadline.left_s))
        try:
            self._client.connect(self._target.host, self._target.port, KEEP_ALIVE_S)
        except (OSError, ValueError) as error:
            if self._tls is not None and self._tls.wrapped is not None:
                # paho leaves a socket open whose handshake has failed.
                self._tls.wrapped.close()
            raise ObserverError(f"cannot connect: {error}") from error
        self._wait_for(lambda: self._connected is not None)
        if self._connected is None:
            raise ObserverError("the broker did not answer")
        if self._connected.is_failure:
            raise ObserverError(f"the broker refused the connection: {self._connected}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.disconnect()
        step(self._client, STEP_S)

    def look(self, filters: Sequence[str]) -> Look:
        """Retained messages under the filters."""
        self._look, self._granted = Look(), None
        self._client.subscribe([(text, 0) for text in filters])
        self._wait_for(lambda: self._granted is not None)
        if self._granted is None:
            raise ObserverError("the broker did not answer a subscription")
        pairs = zip(filters, self._granted, strict=False)
        self._look.denied = {text for text, code in pairs if code.is_failure}
        self._last_s = time.monotonic()
        while not (self._is_quiet() or self._is_full() or self._deadline.is_over):
            self._step()
        self._client.unsubscribe(list(filters))
        self._look.truncated = not self._is_quiet()
        return self._look

    def clear(self, topics: Iterable[str]) -> None:
        """Clears the retained messages of these topics, at a bounded rate."""
        started_s = time.monotonic()
        for count, topic in enumerate(topics):
            self._client.publish(topic, b"", qos=0, retain=True)
            due_s = started_s + count / CLEARED_PER_S
            while self._client.want_write() or time.monotonic() < due_s:
                self._step()
                if self._deadline.is_over:
                    return

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last_s >= QUIET_S

    def _is_full(self) -> bool:
        return len(self._look.retained) >= RETAINED_MAX

    def _wait_for(self, answer: Callable[[], bool]) -> None:
        until_s = time.monotonic() + min(ANSWER_S, self._deadline.left_s)
        while not answer() and time.monotonic() < until_s:
            self._step()

    def _step(self) -> None:
        from paho.mqtt.enums import MQTTErrorCode

        code = step(self._client, STEP_S)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS and self._connected is None:
            raise ObserverError("the broker closed the connection")
        if code not in {MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_CONN_REFUSED}:
            raise ObserverError(f"the connection was lost: {code.name}")

    def _on_connect(
        self,
        _client: Client,
        _data: Any,
        flags: ConnectFlags,
        code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self._connected = code
        self.session_present = flags.session_present

    def _on_subscribe(
        self,
        _client: Client,
        _data: Any,
        _id: int,
        codes: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._granted = codes

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.retain and message.payload:
            self._look.retained[message.topic] = bytes(message.payload)
            self._last_s = time.monotonic()


def _files(tls: Tls, number: int) -> dict[str, str | None]:
    return {name: _rendered(getattr(tls, name), number) for name in ("certificate", "key")}


def _rendered(template: str | None, number: int) -> str | None:
    return None if template is None else Template.parse(template).text(number)


def _context(target: Target, identity: Identity) -> _NamedContext:
    """A context with the authorities, the certificate and the name of the plan's client."""
    tls = identity.tls or Tls()
    if tls.psk is not None:
        raise ObserverError("Python's TLS cannot use pre-shared keys")
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = tls.server_name or target.host
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    try:
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif tls.ca is not None:
            context.load_verify_locations(tls.ca)
        else:
            context.load_default_certs()
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
        if tls.ciphers is not None:
            context.set_ciphers(tls.ciphers)
    except OSError as error:
        raise ObserverError(f"cannot use the keys of the scenario: {error}") from error
    return context


class _NamedContext(ssl.SSLContext):
    """Verifies the name that the plan says, whatever host is connected to."""

    name = ""
    wrapped: ssl.SSLSocket | None = None

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """A socket that expects the name; also kept here."""
        options["server_hostname"] = self.name
        self.wrapped = super().wrap_socket(*arguments, **options)
        return self.wrapped


_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
