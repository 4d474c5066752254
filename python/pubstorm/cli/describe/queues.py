"""Queues of AMQP in words, before a plan is played: bindings, acknowledgements, and what a broker
promises about messages."""

from __future__ import annotations

import re

from pubstorm.contract.amqp import (
    AmqpLate,
    AmqpMultiple,
    AmqpProtocol,
    AmqpQueue,
    AmqpWord,
)
from pubstorm.contract.protocol import PlannedPublication, PlannedSubscription
from pubstorm.quantities import write_duration, write_share


def consumer_words(queue: AmqpQueue, subscription: PlannedSubscription) -> str:
    """Returns the queue of a subscription and its binding in words."""
    return f"consumes {_queue(queue)} {_routed(subscription.filter)}"


def promised_words(amqp: AmqpProtocol, number: int, publication: PlannedPublication) -> str:
    """Returns what the broker promises about the messages of a publication, in words."""
    words = ("confirmed", publication.qos), ("mandatory", amqp.mandatory[number])
    given = (*words, ("persistent", amqp.persistent[number]))
    return "".join(f", {word}" for word, is_given in given if is_given)


def exchange_words(publication: PlannedPublication) -> str:
    """Returns the exchange and the key of a publication in words."""
    _, exchange, key = publication.topic.split("/", 2)
    with_key = f" with key {key}" if key else ""
    return f"{exchange}{with_key}" if exchange else f"queue {key}"


def _routed(filter_: str) -> str:
    """Returns the binding of a queue in words, from the name in the plan."""
    host, exchange, key = re.sub(r"^\$share/[^/]*/", "", filter_).split("/", 2)
    if not exchange:
        return "of the default exchange"
    return f"bound to {exchange} by {key}{' of all virtual hosts' if host == '*' else ''}"


def _queue(queue: AmqpQueue) -> str:
    """Returns a queue in words, with its acknowledgements."""
    match queue.acknowledge:
        case AmqpMultiple(every=every):
            acks = f"one acknowledgement for {every:,} deliveries"
        case AmqpLate(delay_ns=delay_ns):
            acks = f"acknowledgements after {write_duration(delay_ns)}"
        case AmqpWord(kind=kind):
            acks = {"each": "an acknowledgement for each delivery"}.get(kind, "no acknowledgements")
    name = f"the {queue.type} queue {queue.name}" if queue.name else "a queue of its own"
    prefetch = f", prefetch {queue.prefetch:,}" if queue.prefetch else ""
    exists = ", which exists already" * queue.exists
    refused = f", {write_share(queue.refused)} refused" if queue.refused else ""
    return f"{name}{exists} ({acks}{prefetch}{refused})"
