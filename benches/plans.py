"""The plans that the engine plays in the benches, as JSON: the load of the baseline's modes.

Names are as long as those of `crates/baseline/src/wire.rs`: five digits for every client.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

SECOND_NS = 1_000_000_000
COALESCING_NS = 1_000_000
"""Default of a scenario."""
FIRST_CLIENT = 10_000
PAYLOAD_BYTES = 100
STAMP_BYTES = 32
PARALLELISM = 500
KEY = "5a" * 16
"""The pre-shared key of `crates/baseline/src/secure.rs`."""
TOPIC = "bench/device-{n}/up"
JSON_TEXT = '{{"id":"{row.serial}","temperature":{random 20.0..30.0},"seq":{seq},"s":"{stamp}"}}'


def plan(populations: Sequence[Json], stages: Sequence[Json], port: int) -> Json:
    """A plan against the sink at `port`."""
    return {
        "format": 2,
        "name": "bench",
        "run_tag": 20_260_101,
        "seed": 1,
        "targets": [{"host": "127.0.0.1", "port": port, "tls": False}],
        "targets_joined": True,
        "bridges": [],
        "sources": [],
        "snapshot_interval_ns": SECOND_NS,
        "drain_ns": 2 * SECOND_NS,
        "coalescing_ns": COALESCING_NS,
        "populations": list(populations),
        "stages": list(stages),
    }


Variant = Callable[[Json], Json]
"""Change of the reference's plan, which a case measures."""


def unchanged(plan: Json) -> Json:
    """The plan as it is."""
    return plan


def mqtt5(plan: Json) -> Json:
    """The same plan with MQTT 5, without properties."""

    def changed(each: Json) -> Json:
        return {**each, "protocol": {**each["protocol"], "version": "5"}}

    return {**plan, "populations": [changed(each) for each in plan["populations"]]}


def mqtt5_properties(plan: Json) -> Json:
    """The same plan with MQTT 5, and three user properties in each message."""
    plan = mqtt5(plan)
    pairs = (("site", "north"), ("unit", "celsius"), ("model", "a-7"))
    properties = [{"name": "user_property", "key": key, "value": text} for key, text in pairs]

    def changed(each: Json) -> Json:
        return {
            **each,
            "publications": [{**p, "properties": properties} for p in each["publications"]],
        }

    return {**plan, "populations": [changed(each) for each in plan["populations"]]}


def over_websocket(plan: Json) -> Json:
    """The same plan over WebSocket."""
    return {**plan, "targets": [{**each, "websocket": "/mqtt"} for each in plan["targets"]]}


def population(
    clients: int,
    *,
    first: int = FIRST_CLIENT,
    filters: Sequence[str] = (),
    qos: int = 0,
    publications: Sequence[Json] = (),
) -> Json:
    """Clients that do not connect again: a lost connection is to show."""
    return {
        "name": f"from-{first}",
        "protocol": {
            "kind": "mqtt",
            "version": "3.1.1",
            "client_id": "bench-{n}",
            "clean_session": True,
        },
        "clients": clients,
        "first": first,
        "at": {"first": 0, "count": 1, "choice": "turn"},
        "username": None,
        "password": None,
        "tls": None,
        "keep_alive_s": 60,
        "connect_timeout_ns": 10 * SECOND_NS,
        "reconnect": None,
        "read_rate_per_s": None,
        "subscriptions": [{"filter": text, "qos": qos} for text in filters],
        "publications": list(publications),
    }


def sockets(subscribers: int) -> list[Json]:
    """A publisher of ZeroMQ that some other program plays, and its subscribers."""
    zmtp = {"kind": "zmtp", "high_water_mark": 0, "io_threads": 1, "security": "null"}
    stamped = {"topic": "", "payload": {"kind": "fixed", "bytes": STAMP_BYTES}}
    publications = [{**publication(None), **stamped}]
    return [
        population(1, publications=publications) | {"protocol": {**zmtp, "player": "libzmq"}},
        population(subscribers, filters=[""]) | {"protocol": zmtp},
    ]


@dataclass(frozen=True)
class Text:
    """Templates of topics and payloads."""

    json: bool
    """True if payloads are JSON, about as long as the plain payloads."""


def with_text(populations: Sequence[Json], text: Text, rows: Path) -> list[Json]:
    """The same populations with such topics and payloads; writes a row for each client to `rows`.
    The lengths of topics stay."""
    numbers = [p["first"] + c for p in populations for c in range(p["clients"])]
    rows.write_text("serial\n" + "".join(f"device-{n}\n" for n in numbers))
    payload = {"kind": "text", "template": JSON_TEXT, "is_json": True}
    own: Json = {"topic": "bench/{row.serial}/{up|on}"}
    own |= {"payload": payload} if text.json else {}
    changed = []
    for population in populations:
        publications = [{**publication, **own} for publication in population["publications"]]
        of_file = {"file": str(rows), "first": FIRST_CLIENT, "repeat": False}
        changed.append({**population, "rows": of_file, "publications": publications})
    return changed


def under_tls(plan: Json, word: str, pem: Path, keys: Path) -> Json:
    """Returns the same plan to a sink under TLS, named by the baseline's word `word`; writes
    pre-shared keys to `keys` where that needs them."""
    psk = None
    if word != "certificate":
        numbers = [p["first"] + c for p in plan["populations"] for c in range(p["clients"])]
        keys.write_text("".join(f"bench-{n}:{KEY}\n" for n in numbers))
        psk = {"file": str(keys), "identity": "bench-{n}"}
    version = "1.2" if word == "psk-1.2" else "1.3"
    tls = {
        "ca": None if psk else str(pem),
        "verify": True,
        "server_name": None,
        "certificate": None,
        "key": None,
        "psk": psk,
        "min_version": version,
        "max_version": version,
        "ciphers": None,
    }
    targets = [{**target, "tls": True} for target in plan["targets"]]
    populations = [{**population, "tls": tls} for population in plan["populations"]]
    return {**plan, "targets": targets, "populations": populations}


def publication(rate_per_s: float | None, *, qos: int = 0) -> Json:
    """Messages at a rate for each client, evenly spread; `None` is as fast as possible."""
    pace: Json = {"kind": "closed"}
    if rate_per_s is not None:
        pace = {
            "kind": "open",
            "period_ns": round(SECOND_NS / rate_per_s),
            "spread": 0.0,
            "jitter": 0.0,
            "phase": "spread",
            "late": "send",
        }
    return {
        "topic": TOPIC,
        "order": "turn",
        "qos": qos,
        "retain": False,
        "pace": pace,
        "window": 65_535,
        "payload": {"kind": "fixed", "bytes": PAYLOAD_BYTES},
    }


def connect(populations: int) -> Json:
    """Connects the first `populations` populations, at the baseline's parallelism."""
    action = {
        "kind": "connect",
        "rate_per_s": None,
        "parallelism": PARALLELISM,
        "timeout_ns": 10 * SECOND_NS,
    }
    return _stage("connect", action, populations)


def publish(populations: int, seconds: float) -> Json:
    """Publishes for a time."""
    action = {"kind": "publish", "duration_ns": round(seconds * SECOND_NS), "changes": []}
    return _stage("publish", action, populations)


def hold(populations: int, seconds: float) -> Json:
    """Keeps the connections for a time."""
    action = {"kind": "hold", "duration_ns": round(seconds * SECOND_NS)}
    return _stage("hold", action, populations)


def _stage(name: str, action: Json, populations: int) -> Json:
    return {"name": name, "action": action, "populations": list(range(populations))}
