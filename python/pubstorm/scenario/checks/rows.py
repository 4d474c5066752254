"""Checks templates against the rows of their population: the columns that they name, a row for
every client, values that fit their place. This check reads a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.rows import RowFile, RowsError, RowTable, read_rows
from pubstorm.contract.template import Template, TemplateError, splits_levels
from pubstorm.quantities import describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.fields import TEXT_BYTES_MAX, payload_texts
from pubstorm.scenario.flows import MqttPublication, NatsPublication, Will
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import (
    Connecting,
    MqttClients,
    MqttDifference,
    NatsClients,
    Population,
    Rows,
    ShareKeys,
)
from pubstorm.scenario.tls import Tls

CREDENTIALS = ("username", "password")
PROPERTY_TEXTS = ("content_type", "response_topic", "correlation_data")
"""Keys of a publication that are texts of MQTT 5."""


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


def texts_of(population: Population) -> Iterator[tuple[Path, str]]:
    """The templates of a population and its shares, each with its path."""
    yield from _client_texts(population)
    yield from _shared_texts(population)
    for name, share in population.differing.items():
        yield from ((("shares", name, *path), text) for path, text in _shared_texts(share))


def _texts_of_will(will: Will) -> Iterator[tuple[Path, str]]:
    for key in ("topic", "payload", "content_type", "response_topic", "correlation_data"):
        if (text := getattr(will, key)) is not None:
            yield ("will", key), text
    for name, text in will.user_properties.items():
        yield ("will", "user_properties", name), text


def _shared_texts(part: Population | ShareKeys) -> Iterator[tuple[Path, str]]:
    """Yields the templates that a share may have of its own."""
    if isinstance(part, MqttClients | MqttDifference) and part.will is not None:
        yield from _texts_of_will(part.will)
    for n, subscription in enumerate(part.filters):
        yield ("subscriptions", n, "topic"), subscription.topic
    for n, publication in enumerate(part.flows):
        yield ("publications", n, "topic"), publication.topic
        for path, source in payload_texts(publication.payload):
            yield ("publications", n, "payload", *path), source
        if isinstance(publication, MqttPublication):
            for key in PROPERTY_TEXTS:
                if (text := getattr(publication, key)) is not None:
                    yield ("publications", n, key), text
        beside = "headers" if isinstance(publication, NatsPublication) else "user_properties"
        for key, text in publication.beside.items():
            yield ("publications", n, beside, key), text


def _client_texts(population: Population) -> Iterator[tuple[Path, str]]:
    texts: dict[Path, str | None] = {
        ("username",): population.username,
        ("password",): population.password,
    }
    if isinstance(population, NatsClients):
        texts |= {(key,): getattr(population, key) for key in ("token", "nkey", "jwt")}
    if isinstance(population, MqttClients | NatsClients):
        tls = population.tls or Tls()
        texts |= {("tls", "certificate"): tls.certificate, ("tls", "key"): tls.key}
        texts[("tls", "psk", "identity")] = None if tls.psk is None else tls.psk.identity
    if isinstance(population, MqttClients):
        texts[("client_id",)] = population.client_id
        if population.authentication is not None:
            texts["authentication", "data"] = population.authentication.data
        texts |= {("headers", header): value for header, value in population.headers.items()}
        texts |= {
            ("user_properties", key): text for key, text in population.user_properties.items()
        }
    yield from ((path, text) for path, text in texts.items() if text is not None)


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
    yield from _check_lengths(within, population, table)
    if template.columns:
        yield from _check_ids(within, population, template)


def _check_lengths(
    within: Path, population: Population, table: RowTable | None
) -> Iterator[Finding]:
    """Texts that are longer with their values than their place allows."""
    can = population.can
    for path, source in texts_of(population):
        most = can.login_bytes_max if path[-1] in CREDENTIALS else can.text_bytes_max
        if most is None or ("publications" in path and "payload" in path):
            continue
        most, found = min(most, TEXT_BYTES_MAX), Template.parse(source, table).bytes_max
        if found > most:
            message = f"found up to {found} bytes with the values of its variables"
            yield (*within, *path), f"{message}, allowed are {most} bytes", None


def _check_ids(within: Path, population: Connecting, template: Template) -> Iterator[Finding]:
    seen: set[str] = set()
    for n in range(population.first, population.first + population.clients):
        client_id = template.text(n)
        if client_id in seen:
            found = f"found the client id {describe(client_id)} more than once, allowed is one each"
            hint = "a broker disconnects the first when the second comes: use {n}"
            yield (*within, "client_id"), found, hint
            return
        seen.add(client_id)


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
