"""From pydantic's errors to problems in a user's words: what was found, what is allowed, a hint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MQTT, NATS, PUBLISHERS, SOCKETS, SUBSCRIBERS
from pubstorm.scenario.shape import Shape, shape_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from pubstorm.scenario.document import Path


def explain(error: ValidationError) -> list[tuple[Path, str, str | None]]:
    """Each error as path, message and hint."""
    details = error.errors(include_url=False)
    # A list whose only item is wrong counts as empty; the item's own error says more.
    return [_explain(each) for each in details if each["type"] != "too_short" or not each["input"]]


def _explain(details: ErrorDetails) -> tuple[Path, str, str | None]:
    place = _Place.of(tuple(step for step in details["loc"] if step != "[key]"))
    path, found = place.path, details["input"]
    match details["type"]:
        case "value_error":
            unfit = details["ctx"]["error"]
            return path, str(unfit), unfit.hint if isinstance(unfit, UnfitError) else None
        case "missing":
            return path, f"found no {path[-1]!r}, which is needed", None
        case "extra_forbidden":
            return path, *_unknown_key(place)
        case "literal_error":
            return path, f"found {describe(found)}, allowed is {details['ctx']['expected']}", None
        case "union_tag_invalid" | "union_tag_not_found" if isinstance(found, dict | str):
            return _unknown_kind(place, found)
        case (
            "model_type"
            | "mapping_type"
            | "dict_type"
            | "model_attributes_type"
            | "union_tag_not_found"
        ):
            keys = place.shape.keys
            hint = f"its keys are {', '.join(keys)}" if keys else None
            return path, f"found {describe(found)}, allowed is a mapping", hint
        case "tuple_type" | "list_type":
            return path, f"found {describe(found)}, allowed is a list", _list_hint(found)
        case "too_short":
            return path, f"found {describe(found)}, allowed is at least one", None
        case _:
            return path, f"found {describe(found)}: {details['msg']}", None


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an error in a scenario."""

    path: Path
    """Keys, names and indices, as written."""
    shape: Shape
    """The shape there."""
    around: Shape
    """The shape of the part that has the last key."""
    kind: str = ""
    """The kind of the innermost part around it that has kinds; empty if there is none."""
    others: Mapping[str, Shape] = field(default_factory=dict)
    """The shapes of the other kinds, by kind."""

    @classmethod
    def of(cls, location: Path) -> _Place:
        """Follows a location of pydantic, which names the kinds that it passes."""
        shape = around = shape_of(Scenario)
        path: Path = ()
        kind, others = "", dict[str, Shape]()
        for step in location:
            if step in shape.kinds:
                kind = str(step)
                others = {name: each for name, each in shape.kinds.items() if name != kind}
                shape = shape.kinds[kind]
                continue
            others = {n: e.below(step) for n, e in others.items() if _allows(e, step)}
            path, shape, around = (*path, step), shape.below(step), shape
        return cls(path, shape, around, kind, others)


def _allows(shape: Shape, step: str | int) -> bool:
    return shape.kind != "keys" or step in shape.keys


def _unknown_key(place: _Place) -> tuple[str, str | None]:
    """Returns message and hint for a key that is not allowed at its place."""
    key, keys = place.path[-1], place.around.keys
    if place.others:
        hints = HINTS.get(place.kind, {})
        allowed = ", ".join(place.others)
        message = f"found {key} with {place.kind}, allowed with {allowed}"
        return message, hints.get(str(key), HINTS[""].get(str(key)))
    close = get_close_matches(str(key), keys, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else None
    return f"found the unknown key {key!r}, allowed are {', '.join(keys)}", hint


def _unknown_kind(place: _Place, found: dict[str, object] | str) -> tuple[Path, str, str | None]:
    key = str(place.shape.short_for)
    if isinstance(found, dict) and key not in found:
        return (*place.path, key), f"found no {key!r}, which is needed", None
    kinds = ", ".join(kind.removeprefix(f"{key} ") for kind in place.shape.kinds)
    given = describe(found[key] if isinstance(found, dict) else found)
    return (*place.path, key), f"found {given}, allowed are {kinds}", None


def _list_hint(found: object) -> str | None:
    return f"write [{found}]" if isinstance(found, str) and len(found) < 40 else None


ONLY_SENDS = "a PUB socket only sends"
EVEN = "a publisher sends on an even schedule, or in bursts"
NO_ACKS = "PUB and SUB know no acknowledgement"
SIMULATED_ONLY = "only simulated subscribers have it: leave subscriber out"
HINTS: Mapping[str, Mapping[str, str]] = {
    "": {
        "tls": "the run makes keys for mosquitto only: use kind: mosquitto",
        "passwords": "the run makes passwords for mosquitto and rabbitmq only",
        "acl": "these are lines of mosquitto's ACL file: use kind: mosquitto",
        "auth": "mosquitto has passwords and acl; other brokers have settings",
        "plugins": "plugins are RabbitMQ's: use kind: rabbitmq",
        "federation": "virtual hosts and federation are RabbitMQ's: use kind: rabbitmq",
        "cluster": "RabbitMQ makes clusters; mosquitto is connected with topology.bridges",
        "command": "binary names another program of this kind",
        "binary": "the program is the first word of command",
        "settings": "command has the options of the program",
        "will": "wills are MQTT's",
        "end": "a socket of ZeroMQ always closes in order",
        "session": "sessions are MQTT's: what a subscriber missed is gone",
        "bridge": "bridges are MQTT's",
        "client_id": "a socket of ZeroMQ has no name of its own",
        "qos": NO_ACKS,
        "retain": "ZeroMQ keeps no message",
        "publications": "a SUB socket only receives",
        "lifetime": SIMULATED_ONLY,
        "flapping": "sockets of ZeroMQ do not flap: write lifetime, after which a client returns",
        "read_rate": SIMULATED_ONLY,
        "tcp_acks": SIMULATED_ONLY,
        "keep_alive": "libzmq sends no heartbeats by itself; simulated subscribers do",
        "shares": "put the clients that differ into a population of their own",
    },
    MQTT: {
        "subscriber": "write at: and a population of publishers, or target: zmq://HOST:PORT",
        "high_water_mark": "write at: and a population of publishers, or target: zmq://HOST:PORT",
        "echo": "write protocol: nats",
        "token": "write protocol: nats",
        "nkey": "write protocol: nats",
    },
    NATS: {
        "qos": "core NATS acknowledges nothing",
        "retain": "core NATS keeps no message",
        "session": "core NATS keeps no session: what a subscriber missed is gone",
        "client_id": "clients have the name of their population and a number",
        "user_properties": "write headers",
        "end": "a client of NATS closes its connection without a word",
        "window": "core NATS has no feedback: what is scheduled is sent",
    },
    PUBLISHERS: {
        "subscriber": "write it at a population of subscribers",
        "high_water_mark": "write publisher: {kind: libzmq, high_water_mark: 1000}",
        "at": "each publisher listens itself, and others connect to it",
        "subscriptions": f"{ONLY_SENDS}: give subscribers a population of their own",
        "shares": "give publishers that differ a population each",
        "lifetime": "a publisher is active for the whole run",
        "read_rate": ONLY_SENDS,
        "tcp_acks": ONLY_SENDS,
        "rows": "its topics have {n} and ranges",
        "tls": "ZeroMQ has security: curve at the publisher",
        "arrivals": EVEN,
        "jitter": EVEN,
        "spread": EVEN,
        "window": "PUB has no feedback: what is scheduled is sent",
    },
    SUBSCRIBERS: {
        "high_water_mark": "simulated subscribers queue nothing; write subscriber: libzmq for real "
        "sockets",
        "tls": "ZeroMQ has security: curve at the publisher",
    },
    SOCKETS: {"tls": "ZeroMQ has security: curve at the publisher"},
}
"""Hints for keys that other kinds have, by kind and key; those under "" are for every kind."""
