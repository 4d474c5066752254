"""Exchanges and queues that clients of AMQP declare at a target that the run did not start. A look
before the run finds those that exist already, and these stay; the others are deleted after it. A
mark on the target, an exchange that is named after them, shows the next run that a killed one left
them."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from pubstorm.contract.amqp import AmqpProtocol
from pubstorm.contract.offered_load import clients_at, template_of
from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedTls
from pubstorm.contract.target import Target
from pubstorm.play.clean_start.observer import ANSWER_S, STEP_S, Deadline
from pubstorm.quantities import counted
from pubstorm.result import StaleState
from pubstorm.topology.observer import Login, ObserverError, tls_context

if TYPE_CHECKING:
    from pika import BlockingConnection

NAMES_MAX = 200_000
"""Names that are looked for and deleted at most."""
NAMES_PER_S, HOSTS_PER_S = 200, 20
"""Names and virtual hosts that a slow broker handles a second."""
LATE = "the broker did not answer in time"
MARK = "pubstorm.run."
"""Beginning of the name of a mark."""
GUEST = "guest"
"""User and password of a RabbitMQ that is newly installed."""
NOT_FOUND, LOCKED = 404, 405
"""Replies: there is no such name; another connection has the queue for itself."""

Kind = Literal["exchange", "queue"]
Declaration = tuple[Kind, str]
"""An exchange or a queue, by name."""
Kept = dict[str, set[Declaration]]
"""Names that existed before the run, by virtual host. One that was not looked at is missing."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names that the clients of a plan declare in one virtual host of a target."""

    host: str
    population: PlannedPopulation
    """Population of the first client that has the virtual host."""
    client: int
    """Its index in the population."""
    names: dict[Declaration, None] = field(default_factory=dict)
    """Exchanges, and queues that do not end with their connection, in order."""

    @property
    def mark(self) -> str:
        """Name of the exchange that says that exactly these names are a run's own."""
        digest = hashlib.sha256(repr(sorted(self.names)).encode()).hexdigest()
        return f"{MARK}{digest[:32]}"


def own_names(plan: Plan, target: int) -> list[OwnNames]:
    """Returns the names that a plan declares at a target, by virtual host."""
    found: dict[str, OwnNames] = {}
    total = 0
    for index, population in enumerate(plan.populations):
        amqp = population.protocol
        if not isinstance(amqp, AmqpProtocol):
            continue
        host_name = template_of(population, amqp.virtual_host)
        exchanges = [each.name for each in amqp.exchanges]
        made = [each for each in amqp.queues if each.name and not each.exists]
        lasting = [each.name for each in made if not each.exclusive]
        queues = [template_of(population, name) for name in lasting]
        for client in clients_at(plan, index, target) if exchanges or queues else ():
            number = population.first + client
            host = host_name.text(number)
            own = found.setdefault(host, OwnNames(host, population, client))
            own.names.update(dict.fromkeys(("exchange", name) for name in exchanges))
            own.names.update(dict.fromkeys(("queue", each.text(number)) for each in queues))
            total += len(exchanges) + len(queues)
            if total > NAMES_MAX:
                return [*found.values()]
    return [*found.values()]


def longest_s(plan: Plan, target: int) -> float:
    """Returns the longest time to look for the names that a plan declares at a target, or to delete
    them, beside that for a connection. 0 if there are none."""
    own = own_names(plan, target)
    return sum(len(each.names) for each in own) / NAMES_PER_S + len(own) / HOSTS_PER_S


@dataclass(slots=True)
class Existing:
    """Findings of a look before the run."""

    stale_state: list[StaleState] = field(default_factory=list)
    kept: Kept = field(default_factory=dict)
    """Names that are not the run's own."""


def look_at_names(plan: Plan, target: int, deadline: Deadline) -> Existing:
    """Returns the names of a plan that exist already. Those of a killed run are deleted; if there
    are none, marks the names as the run's own."""
    found, name = Existing(), str(plan.targets[target])
    cleared: list[Declaration] = []
    kept: list[Declaration] = []
    problem = ""
    for own in own_names(plan, target):
        try:
            with _Declarer(plan.targets[target], own, deadline) as broker:
                if broker.exists("exchange", own.mark):
                    cleared += [each for each in own.names if broker.exists(*each)]
                    broker.delete(own.names)
                existing = {each for each in own.names if broker.exists(*each)}
                if not existing:
                    broker.mark(own.mark)
        except ObserverError as error:
            problem = problem or f"virtual host {own.host}: {error}"
            continue
        found.kept[own.host] = existing
        kept += sorted(existing)
    for what, names, words in (
        ("declared", kept, "found {} from before, such as {}: the run keeps what it did not make"),
        ("cleared", cleared, "deleted {} that an earlier run had left, such as {}"),
    ):
        if names:
            text = words.format(_counted(names), names[0][1])
            found.stale_state.append(_stale(name, "before", what, len(names), text))
    if problem:
        found.stale_state.append(_stale(name, "before", "unknown", 0, problem))
    return found


def delete_names(
    plan: Plan, target: int, kept: Kept | None, deadline: Deadline
) -> list[StaleState]:
    """Deletes what a plan declared at a target, but for `kept`. None: only names whose mark is
    there, since a run before this process declared them."""
    name, deleted, problems = str(plan.targets[target]), list[Declaration](), list[str]()
    for own in own_names(plan, target):
        if kept is not None and own.host not in kept:
            problems.append(f"virtual host {own.host} was not looked at before the run")
            continue
        stays = set() if kept is None else kept[own.host]
        names = [each for each in own.names if each not in stays]
        try:
            with _Declarer(plan.targets[target], own, deadline) as broker:
                if kept is None and not broker.exists("exchange", own.mark):
                    continue
                deleted += [each for each in names if broker.exists(*each)]
                broker.delete([*names, ("exchange", own.mark)])
        except ObserverError as error:
            problems.append(f"virtual host {own.host}: {error}")
    found = []
    if deleted:
        text = f"deleted {_counted(deleted)} of this run"
        found.append(_stale(name, "after", "declared", len(deleted), text))
    if problems:
        text = f"exchanges and queues of this run may be left: {problems[0]}"
        found.append(_stale(name, "after", "unknown", 0, text))
    return found


def _counted(names: list[Declaration]) -> str:
    """Returns the number of exchanges and queues in words."""
    kinds = [kind for kind, _ in names]
    each = (counted(kinds.count(k), k) for k in ("exchange", "queue") if k in kinds)
    return " and ".join(each)


def _stale(target: str, when: str, what: str, total: int, text: str) -> StaleState:
    values = {"target": target, "when": when, "what": what, "total": total, "text": text}
    return StaleState.model_validate(values)


class _Declarer:
    """A connection to a virtual host. Use it in a `with` block; raises ObserverError."""

    def __init__(self, target: Target, own: OwnNames, deadline: Deadline) -> None:
        self._target = target
        self._own = own
        self._deadline = deadline

    def __enter__(self) -> Self:
        # 3 MB that a run without AMQP does not need.
        from pika.adapters.utils.connection_workflow import AMQPConnectorException
        from pika.exceptions import AMQPError

        # pika logs each refusal, which is an answer here.
        logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
        self._errors = (AMQPError, OSError)
        try:
            self._connection = self._opened()
            self._channel = self._connection.channel()
        except AMQPConnectorException as error:  # no AMQPError: pika has waited in vain
            raise ObserverError(LATE) from error
        except self._errors as error:
            raise ObserverError(_words(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._connection.close()
        except self._errors:
            return

    def exists(self, kind: Kind, name: str) -> bool:
        """Returns True if a name exists."""
        from pika.exceptions import ChannelClosedByBroker

        if self._deadline.is_over:
            raise ObserverError(LATE)
        declare = self._channel.queue_declare if kind == "queue" else self._channel.exchange_declare
        try:
            declare(name, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code not in {NOT_FOUND, LOCKED}:
                raise ObserverError(_words(error)) from error
            self._open_channel()
            return bool(error.reply_code == LOCKED)
        except self._errors as error:
            raise ObserverError(_words(error)) from error
        return True

    def mark(self, name: str) -> None:
        """Declares the exchange that marks names as a run's own."""
        try:
            self._channel.exchange_declare(name, "fanout", durable=True)
        except self._errors as error:
            raise ObserverError(_words(error)) from error

    def delete(self, names: Iterable[Declaration]) -> None:
        """Deletes exchanges and queues. A broker takes one that does not exist as deleted."""
        for kind, name in names:
            if self._deadline.is_over:
                raise ObserverError(LATE)
            channel = self._channel
            delete = channel.queue_delete if kind == "queue" else channel.exchange_delete
            try:
                delete(name)
            except self._errors as error:
                raise ObserverError(_words(error)) from error

    def _open_channel(self) -> None:
        try:
            self._channel = self._connection.channel()
        except self._errors as error:
            raise ObserverError(_words(error)) from error

    def _opened(self) -> BlockingConnection:
        from pika import BlockingConnection, ConnectionParameters, PlainCredentials, SSLOptions
        from pika.credentials import ExternalCredentials

        own, target = self._own, self._target
        population, amqp = own.population, own.population.protocol
        login = Login.of(population, own.client)
        wait_s = max(STEP_S, min(ANSWER_S, self._deadline.left_s))
        tls = (login.tls or PlannedTls()) if target.tls else None
        is_external = isinstance(amqp, AmqpProtocol) and amqp.mechanism == "external"
        plain = PlainCredentials(login.username or GUEST, login.password or GUEST)
        return BlockingConnection(
            ConnectionParameters(
                host=target.reachable_at,
                port=target.ports.get("amqp", target.port),
                virtual_host=own.host,
                credentials=ExternalCredentials() if is_external else plain,
                ssl_options=SSLOptions(tls_context(tls), target.host) if tls else None,
                heartbeat=0,
                socket_timeout=wait_s,
                stack_timeout=wait_s,
                blocked_connection_timeout=wait_s,
                client_properties={"connection_name": f"clean start of {population.name}"},
            )
        )


def _words(error: Exception) -> str:
    """Returns what a broker or a socket said."""
    text = str(getattr(error, "reply_text", "") or error) or "cannot connect"
    return re.sub(r"^\w+: ", "", text)
