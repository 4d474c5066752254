"""Options of clients of AMQP in a plan: of 0-9-1 with exchanges, queues and acknowledgements, of
1.0 with the sources of links."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pubstorm.contract import U16, U16_MAX, U32_MAX, Frozen, PositiveU62, Template
from pubstorm.contract.queue_limits import DROPPING, ONE_TAKER, QueueLimits
from pubstorm.quantities import SECOND_NS


class AmqpArgument(Frozen):
    """A further argument of an exchange or a queue."""

    name: str
    """Name, such as `x-max-length`."""
    value: Annotated[int, Field(ge=-(2**63), lt=2**63)] | str | bool
    """A number, a text or a flag."""


class AmqpExchange(Frozen):
    """An exchange."""

    name: str
    """Name."""
    type: Literal["topic", "direct", "fanout"]
    """Rule by which the exchange chooses queues."""
    durable: bool
    """True if the exchange survives a restart of the broker."""
    arguments: tuple[AmqpArgument, ...] = ()
    """Further arguments."""


class AmqpWord(Frozen):
    """Acknowledgements without further options."""

    kind: Literal["each", "none", "never"]
    """`each`: one for each delivery; `none`: needless; `never`: clients send none."""


class AmqpMultiple(Frozen):
    """One acknowledgement for several deliveries."""

    kind: Literal["multiple"] = "multiple"
    every: Annotated[int, Field(ge=1, le=U32_MAX)]
    """Number of deliveries."""


class AmqpLate(Frozen):
    """An acknowledgement for each delivery, later."""

    kind: Literal["late"] = "late"
    delay_ns: PositiveU62
    """Time from a delivery to its acknowledgement, in nanoseconds."""


AmqpAcknowledgement = AmqpWord | AmqpMultiple | AmqpLate


class AmqpQueue(Frozen):
    """The queue of a subscription."""

    name: Template
    """Template of the name; empty: the broker names it."""
    type: Literal["classic", "quorum", "stream"]
    """Type of the queue."""
    exists: bool = False
    """True if the queue exists already: clients neither declare nor bind it."""
    durable: bool
    """True if the queue survives a restart of the broker."""
    exclusive: bool
    """True if the queue belongs to one connection."""
    auto_delete: bool
    """True if the broker deletes the queue with its last consumer."""
    arguments: tuple[AmqpArgument, ...] = ()
    """Further arguments."""
    prefetch: U16 = 0
    """Most unacknowledged deliveries of a client; 0: no limit."""
    acknowledge: Annotated[AmqpAcknowledgement, Field(discriminator="kind")]
    """Acknowledgements of deliveries."""
    refused: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of first deliveries that clients refuse, so that they come again."""

    @property
    def limits(self) -> QueueLimits:
        """Limits of its deliveries."""
        given = {each.name: each.value for each in self.arguments if each.name in DROPPING}
        arguments = {name: value for name, value in given.items() if isinstance(value, int)}
        how = self.acknowledge
        if not self.prefetch:
            return QueueLimits(arguments=arguments)
        if isinstance(how, AmqpLate):
            takes_per_s = self.prefetch * SECOND_NS / how.delay_ns
            has_one = any(each.name == ONE_TAKER and each.value is True for each in self.arguments)
            # A name with a variable may name several queues, each with a consumer that takes.
            takers = 1 if has_one and self.name and "{" not in self.name else None
            return QueueLimits(takes_per_s=takes_per_s, takers=takers, arguments=arguments)
        takes_most = self.prefetch if how.kind == "never" else None
        return QueueLimits(takes_most=takes_most, arguments=arguments)


class AmqpProtocol(Frozen):
    """Options of clients of AMQP 0-9-1."""

    kind: Literal["amqp"] = "amqp"
    connection_name: Template
    """Template of the name under which the broker lists a connection."""
    virtual_host: Template
    """Template of the virtual host."""
    mechanism: Literal["plain", "external"] = "plain"
    """Login: user name and password, or the certificate of the client."""
    channels: Annotated[int, Field(ge=1, le=U16_MAX)] = 1
    """Channels of a connection, which publications and subscriptions have in turn."""
    exchanges: tuple[AmqpExchange, ...] = ()
    """Exchanges that each client declares, in this order."""
    queues: tuple[AmqpQueue, ...] = ()
    """Queues of the subscriptions, one for each in their order."""
    mandatory: tuple[bool, ...] = ()
    """True for publications whose messages the broker returns if no queue takes them."""
    persistent: tuple[bool, ...] = ()
    """True for publications whose messages a durable queue writes to the disk."""

    @property
    def keeps_session(self) -> bool:
        """True if queues keep the messages of clients that are away."""
        return any(q.type != "stream" and not (q.exclusive or q.auto_delete) for q in self.queues)

    @property
    def queue_limits(self) -> QueueLimits | None:
        """Limits of the deliveries of its queues; None if there are none."""
        return QueueLimits.lowest(queue.limits for queue in self.queues)

    @property
    def keeps_deliveries(self) -> bool:
        """True if the broker keeps deliveries of a queue, since clients never acknowledge them."""
        return any(q.acknowledge.kind == "never" for q in self.queues)

    @property
    def name(self) -> Literal["amqp"]:
        """Protocol, as results and reports name it."""
        return "amqp"

    def without_secrets(self) -> AmqpProtocol:
        """Returns the same: there are no secrets."""
        return self


class Amqp1Source(Frozen):
    """The source of a link of AMQP 1.0."""

    address: Template
    """Template of the address."""
    capability: Literal["queue", "topic"] | None = None
    """Kind of node that the client asks for: receivers share the messages of a queue, and each
    receives all of a topic; null: the broker chooses."""
    settled: bool = False
    """True if the broker settles deliveries as it sends them: at most once."""
    credit: Annotated[int, Field(ge=1, le=U32_MAX)]
    """Messages that the broker may send before the client has taken them."""


class Amqp1Protocol(Frozen):
    """Options of receivers of AMQP 1.0, which a program with Qpid Proton plays."""

    kind: Literal["amqp1"] = "amqp1"
    container_id: Template
    """Template of the container id, under which the broker lists a connection."""
    hostname: Template | None = None
    """Template of the hostname in Open; null: the host of the target."""
    mechanism: Literal["anonymous", "plain", "external"]
    """Login: none, user name and password, or the certificate of the client."""
    sources: tuple[Amqp1Source, ...] = ()
    """Sources of the links, one for each subscription in their order."""

    @property
    def keeps_session(self) -> bool:
        """False: a link ends with its connection."""
        return False

    @property
    def name(self) -> Literal["amqp1"]:
        """Protocol, as results and reports name it."""
        return "amqp1"

    def without_secrets(self) -> Amqp1Protocol:
        """Returns the same: there are no secrets."""
        return self
