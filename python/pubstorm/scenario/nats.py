"""Clients of NATS, and the checks of their durable consumers. The docstrings are the reference for
users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from pubstorm.contract.capabilities import ProtocolName
from pubstorm.contract.protocol import NatsProtocol, PlannedConsumer
from pubstorm.contract.template import CLIENT, Template
from pubstorm.quantities import write_duration
from pubstorm.scenario.addresses import ProxyProtocol
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.fields import ClientText, Flag, Name
from pubstorm.scenario.flows import NatsPublication, NatsSubscription
from pubstorm.scenario.populations import OptionalFlapping, RunParts, ShareKeys, Simulated


class NatsDifference(ShareKeys):
    """Clients of a population that differ in some keys: those written here replace those of the
    population. A plain share such as `10%` changes nothing, and is measured by itself."""

    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again, or `never`."""
    subscriptions: tuple[NatsSubscription, ...] | None = None
    """Subscriptions of each client."""
    publications: tuple[NatsPublication, ...] | None = None
    """Publications of each client in publish stages."""


class NatsClients(Simulated):
    """Clients of NATS that behave alike, except for what its shares change. They connect to a
    target `nats://HOST`, or with `protocol: nats` to brokers of kind `nats` that the run starts."""

    SPEAKS: ClassVar[ProtocolName] = "nats"
    HINTS: ClassVar[Mapping[str, str]] = {
        "qos": "write stream: NAME, then JetStream acknowledges each message",
        "retain": "NATS keeps no last message",
        "session": "write stream: NAME at subscriptions: durable consumers keep messages",
        "client_id": "clients have the name of their population and a number",
        "user_properties": "write headers",
        "end": "a client of NATS closes its connection without a word",
        "version": "only MQTT has versions",
    }
    ELSEWHERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("echo", "token", "nkey", "jwt"), "write protocol: nats"
    )

    protocol: Literal["nats"] = "nats"
    """`nats`: clients use the port of NATS' own protocol. Not needed with a target `nats://HOST`.
    Without it, clients of a broker that the run starts speak MQTT."""
    echo: Flag = True
    """The server sends a client its own messages."""
    token: ClientText | None = None
    """Token of the login; `${env:NAME}` or `${file:PATH}` keep it out of the scenario."""
    nkey: ClientText | None = None
    """Seed of the user's nkey (`SU...`), with which clients sign; `${env:NAME}` or `${file:PATH}`
    keep it out of the scenario."""
    jwt: ClientText | None = None
    """JSON Web Token of the user with that nkey; `${env:NAME}` or `${file:PATH}` keep it out of the
    scenario."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    proxy_protocol: ProxyProtocol | None = None
    """Header of the PROXY protocol, with an invented source address for each client. Default: no
    header."""
    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again. Default: they stay
    subscribed."""
    subscriptions: tuple[NatsSubscription, ...] = ()
    """Subscriptions of each client."""
    publications: tuple[NatsPublication, ...] = ()
    """Publications of each client in publish stages."""
    shares: Mapping[Name, NatsDifference] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""

    def rules(self) -> Iterator[Finding]:
        """Yields a token without the key that signs."""
        if self.jwt is not None and self.nkey is None:
            yield ("jwt",), "found jwt without nkey, needed is the key that signs", None

    def options(self, name: str, around: RunParts, /) -> NatsProtocol:
        """Returns the options of the clients in the plan, with the streams that they create."""
        named = {each.stream for each in self.subscriptions}
        named |= {each.stream for each in self.publications}
        return NatsProtocol(
            client_name=name,
            echo=self.echo,
            token=self.token,
            seed=self.nkey,
            jwt=self.jwt,
            streams=tuple(
                stream.planned(name) for name, stream in around.streams.items() if name in named
            ),
            consumers=tuple(
                PlannedConsumer(stream=each.stream, ack_wait_ns=each.ack_wait)
                for each in self.subscriptions
                if each.stream is not None
            ),
        )

    @property
    def keeps_session(self) -> bool:
        """True if the server keeps durable consumers."""
        return any(each.stream is not None for each in self.subscriptions)

    def named_stores(self) -> Iterator[tuple[Path, str, str]]:
        """Yields the streams of its flows, those of shares too, each with its place."""
        for path, part in self._parts():
            for key in ("subscriptions", "publications"):
                for number, each in enumerate(getattr(part, key) or ()):
                    if each.stream is not None:
                        yield (*path, key, number, "stream"), "stream", each.stream

    def rules_within(self, around: RunParts, /) -> Iterator[Finding]:
        """Yields subscriptions with a stream beside others without, flapping with a stream,
        deliveries that come again only after the drain, and groups with several subjects."""
        for path, part in self._parts():
            subscriptions = part.subscriptions or ()
            durable = [each for each in subscriptions if each.stream is not None]
            if durable and len(durable) < len(subscriptions):
                message = f"found a stream at {len(durable)} of {len(subscriptions)} subscriptions"
                hint = "write a population for each kind of subscription"
                yield (*path, "subscriptions"), f"{message}, allowed is all or none", hint
            played = self.subscriptions if part.subscriptions is None else subscriptions
            if (durable and self.flapping) or (part.flapping and any(p.stream for p in played)):
                message = "found flapping with a stream, allowed is one of them"
                hint = "a durable consumer keeps the messages of a client that is not subscribed"
                yield (*path, "flapping"), message, hint
            for number, each in enumerate(subscriptions):
                if each.stream is not None and each.ack_wait >= around.drain_ns:
                    message = f"found {write_duration(each.ack_wait)}, allowed is less than the "
                    message += f"drain of {write_duration(around.drain_ns)}"
                    hint = "a message that comes again after the drain would count as lost"
                    yield (*path, "subscriptions", number, "ack_wait"), message, hint
                if each.stream is not None and each.group is not None:
                    where = (*path, "subscriptions", number, "group")
                    yield from self._rules_of_group(where, each, around)

    def _rules_of_group(
        self, where: Path, own: NatsSubscription, around: RunParts
    ) -> Iterator[Finding]:
        """Yields a queue group whose members would give its one durable consumer several
        subjects."""
        hint = "members of a group share a durable consumer, which is called as the group"
        group, subject = Template.parse(own.group or ""), Template.parse(own.topic)
        if subject.has(*CLIENT) and not group.has(*CLIENT):
            message = f"found {own.topic} in the group {own.group} of the stream {own.stream}"
            yield where, f"{message}, allowed is one subject for all members", hint
        for name, other in around.populations.items():
            if not isinstance(other, NatsClients) or not self.is_near(other):
                continue
            theirs = (each for _, part in other._parts() for each in part.subscriptions or ())
            same = [e for e in theirs if (e.stream, e.group) == (own.stream, own.group)]
            if any((e.topic, e.ack_wait) != (own.topic, own.ack_wait) for e in same):
                message = f"found the group {own.group} of the stream {own.stream}, which {name} "
                message += "has with another subject or ack_wait, allowed are the same ones"
                yield where, message, hint

    def _parts(self) -> Iterator[tuple[Path, NatsClients | NatsDifference]]:
        yield (), self
        for name, share in self.shares.items():
            yield ("shares", name), share
