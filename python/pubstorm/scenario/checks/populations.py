"""Checks populations against one another and their rows: templates whose columns exist and whose
values fit their place, connections that are taken over, flapping subscriptions, answers that can
come back, and retained messages that can be distinguished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pubstorm.contract.recorded import RECORD_HINT, TOPIC_BYTES_MAX, read_recorded
from pubstorm.contract.sessions import read_sessions
from pubstorm.contract.template import (
    RECORDED,
    STAMP_BYTES,
    RowFile,
    RowsError,
    RowTable,
    Template,
    TemplateError,
    VariableKind,
    read_rows,
    splits_levels,
)
from pubstorm.quantities import describe, write_count, write_duration, write_rate
from pubstorm.scenario.base import parts_in
from pubstorm.scenario.data import RECORDS_BYTES_MAX, Data
from pubstorm.scenario.defaults import covers, may_match
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.encodings import DataError
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.fields import NUL_HINT, WITHOUT_NUL, payload_texts, texts_of
from pubstorm.scenario.flows import (
    BrokeredPublication,
    MqttPublication,
    MqttSubscription,
    Publication,
)
from pubstorm.scenario.kinds import MqttClients, MqttDifference
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Connecting, Flapping, Lifetime, Population, Rows
from pubstorm.scenario.shares import MEAN_NS_MAX, PopulationShare, mean_subscribed_ns, shares_of

CREDENTIALS = ("username", "password")
BINARY = {"password", "payload", "correlation_data", "data"}
"""Keys whose texts are binary data for MQTT."""


def check_payloads(scenario: Scenario) -> Iterator[Finding]:
    """Texts in payloads that are mappings or lists."""
    for name, population in scenario.populations.items():
        for path, source in texts_of(population):
            if "payload" not in path:
                continue
            try:
                Template.parse(source)
            except TemplateError as error:
                found = f"found {describe(source)}, allowed is a template: found {error}"
                yield ("populations", name, *path), found, None


def check_data(scenario: Scenario) -> Iterator[Finding]:
    """Payloads from files: those that cannot be made, or are too many for a plan."""
    total = 0
    for name, population in scenario.populations.items():
        for path, part in parts_in(population):
            if not isinstance(part, BrokeredPublication) or part.data is None:
                continue
            within: Path = ("populations", name, *path, "data")
            try:
                records = part.data.records()
            except (DataError, RowsError) as error:
                yield within, error.message, error.hint
                continue
            total += sum(map(len, records))
            if total > RECORDS_BYTES_MAX:
                found = f"found {total:,} bytes of payloads from files up to here"
                hint = "agents get them with the plan: take fewer lines or rows"
                yield within, f"{found}, allowed are {RECORDS_BYTES_MAX:,}", hint
                return
            if getattr(part, "payload_format", None) == "text" and not _is_text(part.data, records):
                message = "found text for data that is no UTF-8, allowed is bytes"
                yield (*within[:-1], "payload_format"), message, None


def _is_text(data: Data, records: Sequence[bytes]) -> bool:
    try:
        return data.stamp == "beside" and all(each.decode() is not None for each in records)
    except UnicodeDecodeError:
        return False


def check_rows(scenario: Scenario) -> Iterator[Finding]:
    """Rows of populations, whose paths are absolute, and columns that nothing has rows for."""
    yield from _check_bridges(scenario)
    for name, population in scenario.populations.items():
        within: Path = ("populations", name)
        if not isinstance(population, Connecting) or population.rows is None:
            columns = list(_without_rows(name, population))
            yield from columns or _check_lengths(within, population, None)
            continue
        try:
            file = read_rows(population.rows.file)
        except RowsError as error:
            yield (*within, "rows", "file"), error.message, error.hint
            continue
        counted = list(_check_count(within, population, population.rows, file))
        yield from counted or _check_columns(within, population, file)


def check_replays(scenario: Scenario) -> Iterator[Finding]:
    """Files of recorded messages, whose paths are absolute."""
    for name, population in scenario.populations.items():
        parts: list[tuple[Path, Sequence[Publication]]] = [((), population.flows)]
        lifetimes: list[tuple[Path, Lifetime | None]] = [((), population.stay)]
        if isinstance(population, MqttClients):
            shares = population.shares.items()
            parts += [(("shares", share), each.publications or ()) for share, each in shares]
            lifetimes += [(("shares", share), each.lifetime) for share, each in shares]
        for within, flows in parts:
            for number, flow in enumerate(flows):
                replay = getattr(flow, "replay", None)
                if replay is not None:
                    path = ("populations", name, *within, "publications", number)
                    yield from _check_replay(path, flow, replay.file)
        for within, lifetime in lifetimes:
            if lifetime is not None and lifetime.replay is not None:
                path = ("populations", name, *within, "lifetime")
                yield from _check_sessions(path, lifetime.replay, population.flows)


def _check_sessions(path: Path, name: str, flows: Sequence[Publication]) -> Iterator[Finding]:
    """A file of sessions, which has as many clients as the messages that they send."""
    try:
        clients = read_sessions(name).clients
        for flow in flows:
            replay = getattr(flow, "replay", None)
            if replay is not None and (others := read_recorded(replay.file).clients) != clients:
                found = f"found {clients} clients in {name} and {others} in {replay.file}"
                yield (*path, "replay"), f"{found}, needed are as many in both", RECORD_HINT
                return
    except RowsError as error:
        yield (*path, "replay"), error.message, error.hint


def _check_replay(path: Path, flow: Publication, name: str) -> Iterator[Finding]:
    try:
        file = read_recorded(name)
    except RowsError as error:
        yield (*path, "replay"), error.message, error.hint
        return
    replay = getattr(flow, "replay", None)
    if replay is not None and replay.stamp == "front" and not file.has_payloads:
        message = f"found stamp: front with {name}, which has no payloads"
        yield (*path, "replay"), message, "record with --payloads, or leave it out"
    kind = (flow.level, bool(getattr(flow, "retain", False)))
    if kind not in file.kinds:
        described = [_kind(*each) for each in sorted(file.kinds)]
        message = f"found no recorded messages with {_kind(*kind)} in {name}"
        yield path, f"{message}, there are some with {', '.join(described)}", None
    literal = len(flow.topic.replace(RECORDED, "").encode())
    if file.topic_bytes_max + literal > TOPIC_BYTES_MAX:
        message = f"found topics of up to {file.topic_bytes_max + literal} bytes"
        yield (*path, "topic"), f"{message}, allowed are {TOPIC_BYTES_MAX}", None


def _kind(qos: int, retain: bool) -> str:
    return f"qos: {qos}, retain: {str(retain).lower()}"


def _without_rows(name: str, population: Population) -> Iterator[Finding]:
    for path, source in texts_of(population):
        for column in Template.parse(source).columns:
            message = f"found {{row.{column}}} without rows, needed is a file of them"
            yield ("populations", name, *path), message, f"write rows: FILE.csv under {name}"
            return


def _check_count(
    within: Path, population: Connecting, rows: Rows, file: RowFile
) -> Iterator[Finding]:
    clients, count = population.clients, len(file.rows)
    if clients > count and not rows.repeat:
        message = f"found {clients} clients and {count} rows, allowed are as many rows or more"
        hint = f"write rows: {{file: {rows.file}, repeat: true}} to begin again with the first row"
        yield (*within, "rows"), message, hint


def _check_columns(within: Path, population: Connecting, file: RowFile) -> Iterator[Finding]:
    table = RowTable(file, population.first)
    known = True
    for path, source in texts_of(population):
        for column in Template.parse(source).columns:
            if column not in file.headings:
                known = False
                allowed = ", ".join(f"{{row.{heading}}}" for heading in file.headings)
                yield (*within, *path), f"found {{row.{column}}}, allowed are {allowed}", None
            elif path[-1] == "topic":
                wrong = next(filter(splits_levels, file.columns[column]), None)
                if wrong is not None:
                    found = f"found {describe(wrong)} in the column {column} of the rows"
                    message = f"{found}, allowed in a topic are values without /, + and #"
                    yield (*within, *path), message, None
    client_id = population.client_id if isinstance(population, MqttClients) else None
    template = Template.parse(client_id or "{n}", table)
    if not known:
        return
    yield from _check_nul(within, population, table)
    yield from _check_lengths(within, population, table)
    if template.columns and isinstance(population, MqttClients):
        yield from _check_ids(within, population, template)


def _check_nul(within: Path, population: Population, table: RowTable) -> Iterator[Finding]:
    """Yields texts of MQTT with a value that has a NUL in it; binary data may have one."""
    for path, source in texts_of(population):
        if not BINARY.isdisjoint(path):
            continue
        for column in Template.parse(source).columns:
            if any("\0" in value for value in table.file.columns[column]):
                found = f"found a NUL in the column {column} of the rows"
                yield (*within, *path), f"{found}, allowed {WITHOUT_NUL}", NUL_HINT


def _check_lengths(
    within: Path, population: Population, table: RowTable | None
) -> Iterator[Finding]:
    """Texts that are longer with their values than their place allows."""
    can = population.can
    for path, source in texts_of(population):
        most = can.login_bytes_max if path[-1] in CREDENTIALS else can.text_bytes_max
        if most is None or ("publications" in path and "payload" in path):
            continue
        yield from check_length((*within, *path), Template.parse(source, table), most)


def check_length(path: Path, template: Template, most: int) -> Iterator[Finding]:
    """Yields a text that has more bytes with its values than it may."""
    found = template.bytes_max
    if found > most:
        message = f"found up to {found} bytes with the values of its variables"
        yield path, f"{message}, allowed are {most} bytes", None


def _check_ids(within: Path, population: MqttClients, template: Template) -> Iterator[Finding]:
    numbers = range(population.first, population.first + population.clients)
    if not all(map(template.text, numbers)):
        yield from check_unnamed(within, population)
    seen: set[str] = set()
    for client_id in filter(None, map(template.text, numbers)):
        if client_id in seen:
            found = f"found the client id {describe(client_id)} more than once, allowed is one each"
            hint = "a broker disconnects the first when the second comes: use {n}"
            yield (*within, "client_id"), found, hint
            return
        seen.add(client_id)


def check_unnamed(within: Path, population: MqttClients) -> Iterator[Finding]:
    """Yields the reasons against clients without identifiers, which the broker is to name."""
    path, version = (*within, "client_id"), population.version
    sessions = {population.session, *(share.session for share in population.shares.values())}
    tls = population.tls
    if version == "3.1":
        message = "found an empty client id with version 3.1, allowed are versions 3.1.1 and 5"
        yield path, message, "write NAME-{n}: in version 3.1 a broker names no client"
    elif version == "3.1.1" and "persistent" in sessions:
        message = "found an empty client id with session: persistent in version 3.1.1"
        hint = "write version: 5, where a client keeps the identifier that the broker assigned"
        yield path, f"{message}, allowed are session: clean and version: 5", hint
    if tls is not None and tls.psk is not None and tls.psk.identity is None:
        message = "found an empty client id and no identity, needed is an identity of the keys"
        yield (*within, "tls", "psk"), message, "write identity: TEXT, different for each client"


def _check_bridges(scenario: Scenario) -> Iterator[Finding]:
    for name, bridge in scenario.topology.bridges.items():
        within: Path = ("topology", "bridges", name)
        texts: dict[Path, str | None] = {
            ("client_id",): bridge.client_id,
            ("username",): bridge.username,
            ("password",): bridge.password,
        }
        for n, topic in enumerate(bridge.topics):
            texts[("topics", n, "topic")] = topic.topic
            texts[("topics", n, "local_prefix")] = topic.local_prefix
            texts[("topics", n, "remote_prefix")] = topic.remote_prefix
        for path, source in texts.items():
            if source is not None and Template.parse(source).columns:
                message = f"found {describe(source)}, allowed are {{n}}, {{n%K}} and {{n/K}}"
                yield (*within, *path), message, "bridges have no rows"


def check_lives(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    named = scenario.populations.items()
    clients = {name: each for name, each in named if isinstance(each, MqttClients)}
    yield from _check_flapping(scenario)
    taken: dict[str, str] = {}
    for name, taker in clients.items():
        if taker.takes_over is None:
            continue
        path: Path = ("populations", name, "takes_over")
        others = [other for other in clients if other != name]
        victim = clients.get(taker.takes_over) if taker.takes_over in others else None
        if taker.takes_over == name:
            yield path, f"found {name} itself, allowed is another population", None
        elif victim is None:
            yield path, *unknown("population", taker.takes_over, others)
        elif taker.takes_over in taken:
            first = taken[taker.takes_over]
            message = f"found {taker.takes_over}, which {first} takes over too, allowed is one"
            yield path, message, f"raise the clients of {first}"
        elif victim.takes_over is not None:
            message = f"found {taker.takes_over}, which takes over {victim.takes_over} itself"
            yield path, f"{message}, allowed is a population that takes over none", None
        else:
            yield from _check_pair(name, taker, taker.takes_over, victim)
            taken[taker.takes_over] = name


def _check_pair(
    name: str, taker: MqttClients, victim_name: str, victim: MqttClients
) -> Iterator[Finding]:
    path: Path = ("populations", name)
    if taker.client_id is not None:
        message = f"found client_id with takes_over, allowed is that of {victim_name}"
        yield (*path, "client_id"), message, "leave client_id out"
    if victim.client_id == "":
        message = f"found {victim_name}, whose client identifiers the broker assigns"
        yield (*path, "takes_over"), f"{message}, allowed are others", "write {n} in its client_id"
    if "first" in taker.model_fields_set and taker.first != victim.first:
        message = f"found {taker.first}, allowed is {victim.first}, as in {victim_name}"
        yield (*path, "first"), message, "leave first out"
    if taker.clients > victim.clients:
        clients = f"{write_count(taker.clients)}, allowed are up to {write_count(victim.clients)}"
        message = f"found {clients} with takes_over, the clients of {victim_name}"
        yield (*path, "clients"), message, "each takes the connection of one client over"
    if victim.client_id is not None and Template.parse(victim.client_id).has(VariableKind.ROW):
        message = f"found {victim_name}, whose client identifiers come from rows"
        yield (*path, "takes_over"), f"{message}, allowed are numbers", "write {n} in its client_id"
    for each, population in ((name, taker), (victim_name, victim)):
        if population.shares:
            message = "found shares of a population with takeovers, allowed are none"
            yield ("populations", each, "shares"), message, "write a population for each share"


def _check_flapping(scenario: Scenario) -> Iterator[Finding]:
    """Clients without filters, and rates that no time gives; only where times are right."""
    written = (part for _, part in parts_in(scenario.populations) if isinstance(part, Flapping))
    is_unfit = any(True for each in written for _ in each.rules())
    for played in () if is_unfit else shares_of(scenario).values():
        if played.population.flaps is not None:
            yield from _check_played(scenario, played, played.population.flaps)


def _check_played(
    scenario: Scenario, played: PopulationShare, flapping: Flapping
) -> Iterator[Finding]:
    share: Path = () if played.share is None else ("shares", played.share)
    whole = scenario.populations[played.whole]
    is_own = played.share in whole.differing and "flapping" in (
        whole.differing[played.share or ""].model_fields_set
    )
    path: Path = ("populations", played.whole, *(share if is_own else ()), "flapping")
    if not played.population.filters:
        message = f"found flapping of {played.name}, which subscribes to nothing"
        yield path, f"{message}, needed are subscriptions", "write subscriptions, or leave it out"
    elif flapping.rate is not None:
        subscribed_ns = mean_subscribed_ns(scenario, played)
        clients = write_count(played.clients if is_own else whole.clients)
        message = f"found {write_rate(flapping.rate)} of {clients} clients"
        if subscribed_ns <= 0:
            unsubscribed = f"that are unsubscribed for {write_duration(flapping.unsubscribed)}"
            message = f"{message} {unsubscribed}, needed is a lower rate"
            yield path, message, "or a shorter time of unsubscribed"
        elif subscribed_ns > MEAN_NS_MAX:
            hint = f"each would stay subscribed for more than {write_duration(MEAN_NS_MAX)}"
            yield path, f"{message}, needed is a higher rate", hint


def check_round_trips(scenario: Scenario) -> Iterator[Finding]:
    """Yields requests without a way back, and populations that can receive no request."""
    for name, population in scenario.populations.items():
        if not isinstance(population, MqttClients) or population.version != "5":
            continue
        within: Path = ("populations", name)
        shares = population.shares.values()
        written = [population.subscriptions, *(share.subscriptions for share in shares)]
        if population.responds is not None and not any(written):
            message = "found responds without subscriptions, needed is a subscription"
            yield (*within, "responds"), message, "subscribe to the topics of the requests"
        yield from _check_requests(
            scenario, within, population.publications, population.subscriptions
        )
        for share_name, share in population.shares.items():
            if share.publications is None and share.subscriptions is None:
                continue
            own = share.subscriptions
            path: Path = (*within, "shares", share_name)
            yield from _check_requests(
                scenario,
                path if share.publications is not None else within,
                population.publications if share.publications is None else share.publications,
                population.subscriptions if own is None else own,
            )


def _check_requests(
    scenario: Scenario,
    within: Path,
    publications: Iterable[MqttPublication],
    subscriptions: Iterable[MqttSubscription],
) -> Iterator[Finding]:
    for number, publication in enumerate(publications):
        if publication.request:
            path = (*within, "publications", number)
            yield from _check_request(path, publication)
            yield from _check_way_back(path, publication, subscriptions)
            if scenario.topology.bridges:
                message = "found request: true with bridges, allowed is a request without bridges"
                hint = "connect both populations to one broker, in a scenario without bridges"
                yield (*path, "request"), message, hint


def _check_request(path: Path, publication: MqttPublication) -> Iterator[Finding]:
    if publication.response_topic is None:
        message = "found request: true without response_topic, needed is one"
        yield (*path, "request"), message, 'for example response_topic: "reply/{n}"'
    if publication.correlation_data is not None:
        message = "found correlation_data with request: true, which has the stamp there"
        yield (*path, "correlation_data"), message, "leave correlation_data out"
    if publication.retain:
        message = "found retain: true with request: true, allowed is false"
        yield (*path, "retain"), message, "a retained message is not answered"


def _check_way_back(
    path: Path, publication: MqttPublication, subscriptions: Iterable[MqttSubscription]
) -> Iterator[Finding]:
    topic = publication.response_topic
    if topic is None:
        return
    if any(
        v.kind in {VariableKind.RANGE, VariableKind.CHOICE} for v in Template.parse(topic).variables
    ):
        message = f"found {topic!r} with request: true, allowed is a topic without range and choice"
        yield (*path, "response_topic"), message, 'for example response_topic: "reply/{n}"'
    elif topic == publication.topic:
        message = f"found {topic!r}, the topic of the requests, allowed is another one"
        yield (*path, "response_topic"), message, 'for example response_topic: "reply/{n}"'
    elif not any(covers(subscription.topic, topic) for subscription in subscriptions):
        message = (
            f"found {topic!r}, which no subscription of the population matches: answers would not "
            "come back"
        )
        hint = f"add {topic!r} to its subscriptions, outside of shared groups"
        yield (*path, "response_topic"), message, hint


def check_retained(scenario: Scenario) -> Iterator[Finding]:
    """Yields retained messages without a stamp that subscriptions may receive as published: the
    ledger could not distinguish a forwarded message from a kept one."""
    parts = list(_parts(scenario))
    filters = [
        (path[1], subscription.topic)
        for path, _, part in parts
        for subscription in part.subscriptions or ()
        if subscription.retain_as_published
    ]
    if not filters:
        return
    for path, version, part in parts:
        for number, publication in enumerate(part.publications or ()):
            if publication.retain and not _has_stamp(publication, version):
                hint = "write {stamp} into the payload, a size of 32B, or version: 5 with a payload"
                where = (*path, "publications", number, "retain")
                yield from _check_flow(where, publication.topic, filters, hint)
        if part.will is not None and part.will.retain:
            hint = "leave retain out: a will has no stamp"
            yield from _check_flow((*path, "will", "retain"), part.will.topic, filters, hint)


def _check_flow(
    path: Path, topic: str, filters: Sequence[tuple[object, str]], hint: str
) -> Iterator[Finding]:
    receiver = next((name for name, wanted in filters if may_match(wanted, topic)), None)
    if receiver is not None:
        message = (
            f"found retain: true without a stamp in messages that {receiver} receives with "
            "retain_as_published, allowed are messages with a stamp"
        )
        yield path, message, hint


def _has_stamp(publication: MqttPublication, version: str) -> bool:
    """Returns True if clients of MQTT 5 receive each message with a stamp."""
    if publication.data is not None:
        return version == "5" or publication.data.stamp == "front"
    if publication.payload is None:
        return publication.size.bytes_min >= STAMP_BYTES
    texts = (text for _, text in payload_texts(publication.payload))
    return version == "5" or any(Template.parse(text).has(VariableKind.STAMP) for text in texts)


def _parts(scenario: Scenario) -> Iterator[tuple[Path, str, MqttClients | MqttDifference]]:
    for name, population in scenario.populations.items():
        if isinstance(population, MqttClients):
            yield ("populations", name), population.version, population
            for share_name, share in population.shares.items():
                yield ("populations", name, "shares", share_name), population.version, share
