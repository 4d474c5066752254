"""A bridge in mosquitto's words: the `connection` section of a small broker's mosquitto.conf.
Where the main broker is and which keys it asks for is given."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from pubstorm.contract.template import Template
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.topology import Bridge, BridgeTopic
from pubstorm.topology.adapters.mosquitto import lines_of

STATES = "pubstorm/bridge"
"""Topics under it say whether a bridge is up."""
Words = Mapping[str, object]
"""Settings in mosquitto's words."""


@dataclass(frozen=True, slots=True)
class BridgeAccess:
    """Address and login of one bridge at the main broker."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    tls: Words = field(default_factory=dict)
    """`bridge_...` settings; none without TLS."""
    knows_bridges: bool = True
    """True if the main broker knows how bridges connect; others may close the connection."""


def client_id(name: str, bridge: Bridge, number: int) -> str:
    """Returns the client identifier of a bridge on the main broker."""
    return _text(bridge.client_id or f"{name}-{{n}}", number)


def state_topic(name: str, number: int | str) -> str:
    """Returns the topic of a bridge's state; `+` is for all of a name."""
    return f"{STATES}/{name}/{number}"


def bridge_lines(name: str, bridge: Bridge, number: int, access: BridgeAccess) -> str:
    """The section for one small broker; the scenario's own settings win."""
    private = {"try_private": access.knows_bridges}
    ours = {**_connection(name, bridge, number), **private, **_login(access), **access.tls}
    topics = [_topic(topic, number) for topic in bridge.topics]
    address = {"connection": f"{name}-{number}", "address": f"{access.host}:{access.port}"}
    return "\n" + lines_of({**address, **ours, **bridge.settings, "topic": topics})


def psk_identity(name: str, bridge: Bridge, number: int) -> str:
    """Returns the identity of a bridge under a pre-shared key: that of the scenario, or the client
    identifier."""
    named = bridge.tls.psk.identity if bridge.tls and bridge.tls.psk else None
    return client_id(name, bridge, number) if named is None else _text(named, number)


def tls_words(tls: Tls, number: int) -> Words:
    """TLS with certificates to a target that the run does not start, as the scenario says."""
    words: dict[str, object] = {**tls_version(tls), **_authorities(tls.ca)}
    if tls.certificate is not None and tls.key is not None:
        words["bridge_certfile"] = _text(tls.certificate, number)
        words["bridge_keyfile"] = _text(tls.key, number)
    if not tls.verify:
        words["bridge_insecure"] = True
    return words


def tls_version(tls: Tls) -> Words:
    """The version of TLS, where the scenario leaves one only: mosquitto's own choice is 1.2."""
    return {"bridge_tls_version": "tlsv1.3"} if tls.min_version == "1.3" else {}


def psk_words(identity: str, key: str) -> Words:
    """A pre-shared key."""
    return {"bridge_identity": identity, "bridge_psk": key}


def _connection(name: str, bridge: Bridge, number: int) -> Words:
    retry, remote_id = bridge.reconnect, client_id(name, bridge, number)
    longest = max(retry.after, retry.up_to)
    words: dict[str, object] = {
        "remote_clientid": remote_id,
        "local_clientid": f"local.{name}-{number}",
        "bridge_protocol_version": bridge.protocol,
        "cleansession": bridge.clean_session,
        "start_type": "automatic",
        "keepalive_interval": bridge.keep_alive // SECOND_NS,
        "restart_timeout": f"{retry.after // SECOND_NS} {longest // SECOND_NS}",
        "notifications": bridge.notifications,
    }
    if bridge.notifications:
        words["notification_topic"] = state_topic(name, number)
    return words


def _login(access: BridgeAccess) -> Words:
    if access.username is None:
        return {}
    password = {} if access.password is None else {"remote_password": access.password}
    return {"remote_username": access.username, **password}


def _topic(topic: BridgeTopic, number: int) -> str:
    """A line of `topic`; mosquitto wants a word for an empty prefix."""
    both = (topic.local_prefix, topic.remote_prefix)
    prefixes = (_text(prefix, number) or '""' for prefix in both)
    return " ".join((_text(topic.topic, number), topic.direction, str(topic.qos), *prefixes))


def _authorities(path: str | None) -> Words:
    """The scenario's authorities, or those of the system."""
    if path is not None:
        return {"bridge_cafile": path}
    system = ssl.get_default_verify_paths()
    if system.cafile is not None:
        return {"bridge_cafile": system.cafile}
    return {"bridge_capath": system.capath or system.openssl_capath}


def _text(template: str, number: int) -> str:
    return Template.parse(template).text(number)
