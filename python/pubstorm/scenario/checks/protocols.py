"""Checks the keys of protocols and transports against one another: MQTT 5, ZeroMQ, TLS, WebSocket,
and agents on other hosts. The host checks that files exist and fit, and a cluster that agents reach
their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pubstorm.contract import split_member
from pubstorm.contract.protocol import SCRAM
from pubstorm.contract.target import TARGET
from pubstorm.contract.template import Template
from pubstorm.quantities import PartOf, describe, write_duration, write_rate
from pubstorm.scenario.base import parts_in
from pubstorm.scenario.checks.brokers import check_command
from pubstorm.scenario.credentials import HINTS_WITH_PSK
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.flows import (
    Mqtt5,
    MqttPublication,
    MqttSubscription,
    Will,
    carried_keys,
)
from pubstorm.scenario.kinds import (
    MqttClients,
    MqttDifference,
    RealSubscribers,
    SimulatedSubscribers,
    StartedPublishers,
)
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, Simulated
from pubstorm.scenario.shares import MEAN_NS_MAX, mean_stay_ns, shares_of

STAMP = "pubstorm"
"""User property that has the stamp of a message whose payload has none."""


def check_mqtt5(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, population in scenario.populations.items():
        if not isinstance(population, MqttClients):
            continue
        within: Path = ("populations", name)
        if population.version != "5":
            yield from _check_version(within, population)
        elif population.session == "persistent" and population.session_expiry == 0:
            message = "found session: persistent with session_expiry: 0s, needed is a longer one"
            yield (*within, "session_expiry"), message, "leave it out: then the session has no end"
        yield from _check_authentication(within, population)
        yield from _check_formats(within, population)
        yield from _check_stamp_name(within, population)
        for path, part in _endings(population):
            yield from _check_ending((*within, *path), part, population)
        for path, subscriptions in _subscriptions(population):
            yield from _check_no_local((*within, *path), subscriptions)


def _check_ending(
    path: Path, part: MqttClients | MqttDifference, population: MqttClients
) -> Iterator[Finding]:
    if part.end == "disconnect_with_will" and population.version != "5":
        message = (
            f"found disconnect_with_will with version {population.version}, allowed with it are "
            "disconnect, abort and vanish"
        )
        yield (*path, "end"), message, "write version: 5 in the population"
    will = part.will or population.will
    if population.version != "5" or will is None or will.delay is None:
        return
    if part.will is None and part.session is None:
        return
    is_clean = (part.session or population.session) == "clean"
    if is_clean and population.session_expiry is None and will.delay:
        message = (
            f"found a delay of {write_duration(will.delay)} in a session that ends with its "
            "connection, needed is session_expiry: the broker publishes a will at the end of the "
            "session"
        )
        hint = "write session_expiry in the population, 0s for a will at once"
        yield (*path, "will", "delay"), message, hint


def _check_version(within: Path, population: MqttClients) -> Iterator[Finding]:
    for path, part in parts_in(population, within):
        only_5 = (n for n, mark in carried_keys(type(part)).items() if isinstance(mark, Mqtt5))
        for key in only_5:
            if key in part.model_fields_set:
                found = f"found {key} with version {population.version}"
                message = f"{found}, allowed is {key} with version 5"
                yield (*path, key), message, "write version: 5 in the population"
    if population.password is not None and population.username is None:
        message = f"found password without username with version {population.version}"
        hint = "write username, or version: 5"
        yield (*within, "password"), f"{message}, needed are both", hint


def _check_authentication(within: Path, population: MqttClients) -> Iterator[Finding]:
    authentication = population.authentication
    if authentication is None:
        return
    path, method, data = (*within, "authentication"), authentication.method, authentication.data
    if method != SCRAM:
        if data is None:
            message = f"found method {method} without data, allowed without data is {SCRAM}"
            yield (*path, "method"), message, "write data: TEXT, which CONNECT then has"
        return
    if data is not None:
        message = f"found data with method {SCRAM}, allowed are username and password"
        yield (*path, "data"), message, "write them in the population and leave data out"
    for key in ("username", "password"):
        if getattr(population, key) is None:
            message = f"found {SCRAM} without {key} of the population, needed are both"
            yield path, message, f"write {key}: TEXT in the population"


def _check_formats(within: Path, population: MqttClients) -> Iterator[Finding]:
    """Yields publications that call bytes a text; a broker may end such a connection."""
    for path, part in parts_in(population, within):
        if not isinstance(part, MqttPublication) or not (
            part.payload is None and part.data is None
        ):
            continue
        if part.payload_format == "text":
            message = "found text without payload, allowed is bytes: data of a size is no UTF-8"
            hint = "write payload: TEXT in the publication, with {stamp} in it for latencies"
            yield (*path, "payload_format"), message, hint


def _check_stamp_name(within: Path, population: MqttClients) -> Iterator[Finding]:
    """Yields user properties with the name of the stamp: receivers read them as stamps."""
    for path, part in parts_in(population, within):
        if isinstance(part, (MqttPublication, Will)) and STAMP in part.user_properties:
            message = "found the name of the stamp, allowed is any other name"
            yield (*path, "user_properties", STAMP), message, None


def _check_no_local(path: Path, subscriptions: Sequence[MqttSubscription]) -> Iterator[Finding]:
    own = [subscription.no_local for subscription in subscriptions]
    if any(own) and not all(own):
        message = (
            f"found no_local in {sum(own)} of {len(own)} subscriptions, allowed is all or none"
        )
        yield path, message, "put the others into a population of their own"
    for number, subscription in enumerate(subscriptions):
        if subscription.no_local and subscription.topic.startswith("$share/"):
            message = "found no_local in a shared subscription, allowed is false"
            yield (*path, number, "no_local"), message, "MQTT 5 forbids it [MQTT5-3.8.3-4]"


def _endings(population: MqttClients) -> Iterator[tuple[Path, MqttClients | MqttDifference]]:
    yield (), population
    yield from ((("shares", name), share) for name, share in population.shares.items())


def _subscriptions(
    population: MqttClients,
) -> Iterator[tuple[Path, tuple[MqttSubscription, ...]]]:
    yield ("subscriptions",), population.subscriptions
    for name, share in population.shares.items():
        yield ("shares", name, "subscriptions"), share.subscriptions or ()


def check_publishers(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    yield from _check_target(scenario)
    if scenario.addresses is not None and scenario.targets_publish:
        message = "found addresses with publishers of ZeroMQ, allowed are brokers"
        yield ("addresses",), message, "libzmq resolves names itself, and uses one address"
    for name, population in scenario.populations.items():
        path: Path = ("populations", name)
        yield from _check_rates(path, population, scenario)
        if population.can.has_broker:
            yield from _check_place(path, population, scenario)
        elif isinstance(population, StartedPublishers):
            yield from _check_publisher(path, population)
        elif isinstance(population, SimulatedSubscribers | RealSubscribers):
            yield from _check_subscriber(path, population, scenario)
    yield from _check_changes(scenario)
    yield from _check_keys_elsewhere(scenario) if scenario.fleet.on != "local" else ()


def _check_target(scenario: Scenario) -> Iterator[Finding]:
    """Yields targets that no population and no bridge connects to."""
    places = [each.attached_to for each in scenario.populations.values() if not each.is_publisher]
    used = {bridge.to for bridge in scenario.topology.bridges.values()}
    used |= {at.brokers for at in places if at is not None}
    for name in scenario.target_sizes:
        if None not in places and name not in used:
            message = "found a target that no population connects to, allowed is one with clients"
            path: Path = (TARGET,) if name == TARGET else (TARGET, name)
            yield path, message, f"write at: {name} at its clients, or leave it out"


def _check_place(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    """Yields a population that connects to nothing, since the scenario has publishers alone."""
    if population.attached_to is None and not scenario.target and not scenario.topology.brokers:
        message = "found no at, needed is the population of publishers that it connects to"
        yield path, message, f"write at: {next(iter(scenario.publishers), None)}"


def _check_publisher(path: Path, population: StartedPublishers) -> Iterator[Finding]:
    publisher, count = population.publisher, len(population.publications)
    if count != 1:
        message = f"found {count or 'no'} publications, needed is one for a publisher"
        hint = 'write publications: [{topic: "", size: 32B, rate: 1k/s}]'
        if count:
            hint = "a range in its topic makes many topics of it; or write more populations"
        yield (*path, "publications"), message, hint
    if publisher.command and publisher.kind != "command":
        message = f"found command with kind {publisher.kind}, allowed with command alone"
        yield (*path, "publisher", "command"), message, None
    if publisher.kind == "command":
        place = (*path, "publisher", "command")
        yield from check_command(place, publisher.command, COMMAND_VALUES)
    yield from _check_security(path, population)


def _check_security(path: Path, population: StartedPublishers) -> Iterator[Finding]:
    publisher = population.publisher
    place = (*path, "publisher", "security")
    if publisher.security == "curve" and publisher.kind == "libzmq":
        message = "found curve with kind libzmq, allowed with pyzmq and command"
        yield place, message, "the libzmq in Pubstorm is built without libsodium: kind: pyzmq"
    written = [key for key in ("username", "password") if getattr(population, key) is not None]
    if publisher.security == "plain" and len(written) < 2:
        message = "found plain, needed are the username and the password that it takes"
        yield place, message, f"write them under {path[-1]}, and under its subscribers"
    if publisher.security != "plain":
        for key in written:
            message = f"found {key} with security {publisher.security}, allowed is it with plain"
            yield (*path, key), message, "write publisher: {security: plain}"


def _check_subscriber(
    path: Path, population: SimulatedSubscribers | RealSubscribers, scenario: Scenario
) -> Iterator[Finding]:
    publishers = scenario.publisher_of(population)
    for where, part in _wholes_and_shares(path, population):
        for n, subscription in enumerate(part.subscriptions or ()):
            place = (*where, "subscriptions", n, "topic")
            if publishers is not None:
                yield from _check_prefix(place, subscription.topic, publishers)
    yield from _check_login(path, population, publishers)


def _check_login(
    path: Path,
    population: SimulatedSubscribers | RealSubscribers,
    publishers: StartedPublishers | None,
) -> Iterator[Finding]:
    """Yields logins of subscribers that do not fit the security of their publisher."""
    written = [key for key in ("username", "password") if getattr(population, key) is not None]
    if len(written) == 1:
        missing = "password" if written == ["username"] else "username"
        yield (*path, written[0]), f"found {written[0]} without {missing}, needed are both", None
    if publishers is None:
        return
    security = publishers.publisher.security
    if security == "curve" and population.subscriber != "libzmq":
        message = f"found {population.subscriber} subscribers at a publisher with security curve"
        hint = "the engine does not encrypt: write subscriber: libzmq"
        yield (*path, "subscriber"), f"{message}, allowed are libzmq", hint
    if security == "plain" and not written:
        message = "found no username at a publisher with security plain, needed is who they are"
        yield path, message, "write username and password"
    if security != "plain" and written:
        message = f"found {written[0]} at a publisher with security {security}"
        hint = "write publisher: {security: plain}"
        yield (*path, written[0]), f"{message}, allowed is it with plain", hint


def _check_prefix(path: Path, prefix: str, publishers: StartedPublishers) -> Iterator[Finding]:
    """Wildcards of MQTT, which are ordinary characters in ZeroMQ: some topic ought to have them."""
    literal = "".join(part for part in Template.parse(prefix).parts if isinstance(part, str))
    topics = "".join(publication.topic for publication in publishers.publications)
    for wildcard in "#+":
        if wildcard in literal and wildcard not in topics:
            message = f"found {describe(prefix)}, allowed is what topics begin with"
            yield path, message, f"ZeroMQ matches prefixes: leave out the {wildcard}"
            return


def _check_rates(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    """Read rates in percent, and lives by how many clients go a second."""
    if not isinstance(population, Simulated):
        return
    publishers = scenario.publisher_of(population)
    for where, part in _wholes_and_shares(path, population):
        if isinstance(part.read_rate, PartOf):
            place, found = (*where, "read_rate"), f"found {part.read_rate}"
            if publishers is None:
                message = f"{found}, allowed in percent is what a publisher of the run sends"
                yield place, message, "write a rate such as 100/s"
            elif any(each.rate_per_s is None for each in publishers.publications):
                message = f"{found} of an unknown rate, needed is a rate in numbers"
                yield place, message, "the publisher sends at rate max: write a rate such as 100/s"
    for played in shares_of(scenario, str(path[1])).values():
        lifetime = played.population.stay
        if played.whole == path[1] and lifetime is not None and lifetime.rate is not None:
            stay_ns = mean_stay_ns(scenario, played)
            if 0 < stay_ns <= MEAN_NS_MAX:
                continue
            share = () if played.share is None else ("shares", played.share)
            message = f"found {write_rate(lifetime.rate)} of {played.clients:,} clients"
            offline = write_duration(lifetime.offline or 0)
            needed, hint = "lower", f"they would have to be back sooner than after {offline}"
            if stay_ns > 0:
                needed = "higher"
                hint = f"each would stay for more than {write_duration(MEAN_NS_MAX)}"
            yield (*path, *share, "lifetime"), f"{message}, needed is a {needed} rate", hint
            return


def _check_changes(scenario: Scenario) -> Iterator[Finding]:
    """Only the rate of publishers changes."""
    populations = scenario.populations.items()
    staying = {name for name, each in populations if isinstance(each, StartedPublishers)}
    for n, stage in enumerate(scenario.stages):
        for m, change in enumerate(stage.changes):
            if change.population in staying and change.rate is None:
                key, _ = change.of_clients
                message = f"found {key} of publishers, allowed is a change of a rate"
                place = ("stages", n, stage.verb, "changes", m, key)
                yield place, message, "a publisher is active for the whole run"


def _check_keys_elsewhere(scenario: Scenario) -> Iterator[Finding]:
    """Yields real subscribers on other hosts that get no keys there."""
    for name, population in scenario.populations.items():
        if not isinstance(population, RealSubscribers) or population.hosts is None:
            continue
        publishers = scenario.publisher_of(population)
        if publishers is not None and publishers.publisher.security == "curve":
            message = "found hosts with security curve, allowed with none and plain"
            hint = "leave hosts out: then it is on the controller's host"
            yield ("populations", name, "hosts"), message, hint


def _wholes_and_shares(path: Path, population: Any) -> Iterator[tuple[Path, Any]]:
    yield path, population
    yield from (((*path, "shares", name), each) for name, each in population.differing.items())


COMMAND_VALUES = ("host", "port", "folder")


def check_tls(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    yield from _check_brokers(scenario)
    brokers = scenario.topology.brokers.values()
    is_used = any(target.tls for target in scenario.target) or any(
        broker.tls_mode != "none" for broker in brokers
    )
    for name, population in scenario.populations.items():
        tls = getattr(population, "tls", None)
        if tls is None:
            continue
        path = ("populations", name, "tls")
        if not is_used:
            hint = "set tls of a broker in topology.brokers" if brokers else SCHEMES
            yield path, "found tls, and no target that is under TLS", hint
        elif tls.resume and not tls.certificate and _gets_psk(scenario):
            message = "found resume and a broker with tls: psk, allowed are server and mutual"
            yield (*path, "resume"), message, HINTS_WITH_PSK["resume"]


def _gets_psk(scenario: Scenario) -> bool:
    """Returns True if the run makes pre-shared keys for its clients."""
    return any(broker.tls_mode == "psk" for broker in scenario.topology.brokers.values())


def _check_brokers(scenario: Scenario) -> Iterator[Finding]:
    modes: dict[str, str] = {}
    for name, broker in scenario.topology.brokers.items():
        path = ("topology", "brokers", name, "tls")
        if broker.tls_mode == "none":
            continue
        modes.setdefault("psk" if broker.tls_mode == "psk" else "certificates", name)
        if len(modes) > 1:
            message = f"found {broker.tls_mode} beside {' and '.join(_others(scenario, name))}"
            hint = "a population has pre-shared keys or certificates, not both"
            yield path, f"{message}, allowed are psk alone, or server and mutual", hint
            return


def _others(scenario: Scenario, name: str) -> list[str]:
    brokers = scenario.topology.brokers.items()
    return sorted({b.tls_mode for other, b in brokers if other != name and b.tls_mode != "none"})


SCHEMES = "write mqtts://, wss:// for WebSocket or quic://"


def check_websocket(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, broker in scenario.topology.brokers.items():
        if broker.serves_websocket and broker.tls_mode == "psk":
            place = ("topology", "brokers", name, "transport")
            message = "found websocket with tls: psk, allowed are none, server and mutual"
            yield place, message, "mosquitto's WebSocket has no pre-shared keys"
    brokers = scenario.topology.brokers.values()
    is_used = any(target.websocket is not None for target in scenario.target) or any(
        broker.serves_websocket for broker in brokers
    )
    if is_used:
        return
    for name, population in scenario.populations.items():
        if isinstance(population, MqttClients) and population.headers:
            hint = "set transport of a broker in topology.brokers" if brokers else "write ws://"
            path = ("populations", name, "headers")
            yield path, "found headers, and no target over WebSocket", hint


NOT_OVER_QUIC = (
    *("psk", "ciphers", "suites", "groups", "alpn"),
    *("passphrase", "reread", "key_log"),
)
"""Settings of TLS that OpenSSL has, and our QUIC does not."""


def check_quic(scenario: Scenario) -> Iterator[Finding]:
    """Yields brokers without QUIC, and settings of TLS that QUIC does not have."""
    brokers = scenario.topology.brokers
    for name, broker in brokers.items():
        if broker.serves_quic and broker.kind != "embedded":
            place = ("topology", "brokers", name, "transport")
            message = f"found quic with kind {broker.kind}, allowed is kind embedded"
            yield place, message, "start another broker yourself, and write target: quic://HOST"
    served = {name for name, broker in brokers.items() if broker.serves_quic}
    served |= {target.name for target in scenario.target if target.quic}
    yield from _check_migrations(scenario)
    for name, population in scenario.populations.items():
        tls, at = getattr(population, "tls", None), population.attached_to
        if getattr(tls, "early_data", False) and not _has_only_quic(scenario, population):
            message = "found early_data and a target over TCP, allowed are targets over quic://"
            hint = "TLS over TCP resumes sessions without 0-RTT: leave early_data out"
            yield ("populations", name, "tls", "early_data"), message, hint
        if served.isdisjoint(served if at is None else {at.brokers}):
            continue
        if getattr(population, "link", None) is not None:
            message = "found link and a target over QUIC, allowed are links over TCP"
            yield ("populations", name, "link"), message, "leave it out, or use mqtts://"
        if getattr(population, "proxy_protocol", None) is not None:
            message = "found proxy_protocol and a target over QUIC, allowed is it over TCP"
            yield ("populations", name, "proxy_protocol"), message, "leave it out, or use mqtts://"
        wrong = [key for key in NOT_OVER_QUIC if getattr(tls, key, None)]
        wrong += ["max_version"] * (tls is not None and tls.max_version == "1.2")
        for key in wrong:
            message = f"found {key} and a target over QUIC, allowed are certificates and TLS 1.3"
            yield ("populations", name, "tls", key), message, "leave it out, or use mqtts://"


def _has_only_quic(scenario: Scenario, population: Population) -> bool:
    """Returns True for clients of MQTT all of whose targets have QUIC."""
    at, brokers = population.attached_to, scenario.topology.brokers
    own = [brokers[name] for name in brokers if at is None or at.brokers == name]
    targets = scenario.targets_of(population)
    has_quic = [*(each.quic for each in targets), *(each.serves_quic for each in own)]
    return isinstance(population, MqttClients) and bool(has_quic) and all(has_quic)


def _check_migrations(scenario: Scenario) -> Iterator[Finding]:
    """Yields migrations of clients without QUIC."""
    for n, stage in enumerate(scenario.stages):
        for m, change in enumerate(stage.changes):
            population = scenario.populations.get(split_member(change.population)[0])
            if change.migrate is None or population is None:
                continue
            if not _has_only_quic(scenario, population):
                place = ("stages", n, stage.verb, "changes", m, "migrate")
                found = f"migrate of {change.population}, whose targets have TCP"
                message = f"found {found}, allowed are clients of MQTT over quic://"
                yield place, message, "a connection of TCP ends when its address changes"


def check_fleet(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    fleet = scenario.fleet
    if fleet.on != "local":
        yield from _check_networks(scenario)
        yield from _check_placed(scenario)
    has_programs = any(not isinstance(each, Simulated) for each in scenario.populations.values())
    if fleet.on_agent_failure != "fail" and has_programs:
        message = f"found {fleet.on_agent_failure} with agents that run no engine, allowed is fail"
        hint = "no other agent can play publishers and real sockets"
        yield ("fleet", "on_agent_failure"), message, hint
    yield from _check_parallelism(scenario)


def _check_parallelism(scenario: Scenario) -> Iterator[Finding]:
    """Yields connect stages that allow fewer connections under way than there are agents."""
    agents = scenario.fleet.agents or 1
    for index, stage in enumerate(scenario.stages):
        at_once = stage.connect.parallelism if stage.connect is not None else None
        if at_once is not None and at_once < agents:
            message = f"found {at_once} with fleet.agents {agents}, allowed is {agents} or more"
            hint = "each agent connects one client at a time, or more"
            yield ("stages", index, "connect", "parallelism"), message, hint


def _check_placed(scenario: Scenario) -> Iterator[Finding]:
    """Yields servers on other hosts that only this host can have."""
    topology = scenario.topology
    for name, broker in topology.brokers.items():
        if broker.hosts is None:
            continue
        path: Path = ("topology", "brokers", name, "hosts")
        for bridge, each in topology.bridges.items():
            if each.network is not None and name in {each.from_, each.to}:
                message = f"found hosts with topology.bridges.{bridge}.network, allowed is one"
                hint = "a network joins brokers of one host: leave network or hosts out"
                yield path, message, hint


def _check_networks(scenario: Scenario) -> Iterator[Finding]:
    """Clients at brokers in a network that this host alone reaches."""
    networks = {
        bridge.from_: name
        for name, bridge in scenario.topology.bridges.items()
        if bridge.network is not None
    }
    for name, population in scenario.populations.items():
        at = population.attached_to
        inside = [g for g in networks if at is None or at.brokers == g]
        if inside:
            message = (
                f"found clients at {inside[0]} with fleet.on {scenario.fleet.on}, allowed are "
                "brokers that other hosts reach"
            )
            hint = f"leave network out of topology.bridges.{networks[inside[0]]}, or run on local"
            yield ("populations", name, "at"), message, hint
