"""The templates of a population with the rows that they refer to."""

from __future__ import annotations

from pubstorm.contract.flows import FixedPayload, GaussianPayload, PlannedPublication, TextPayload
from pubstorm.contract.plan import PlannedPopulation, PlannedTls
from pubstorm.contract.rows import RowTable, read_rows
from pubstorm.contract.stamp import STAMP_BYTES
from pubstorm.contract.template import Template, VariableKind


def template_of(population: PlannedPopulation, source: str) -> Template:
    """A template of the population, which can be rendered for its clients; raises RowsError where
    its file cannot be read."""
    template = Template.parse(source)
    if population.rows is None or not template.columns:
        return template
    return Template.parse(source, rows_of(population))


def rows_of(population: PlannedPopulation) -> RowTable | None:
    """The rows of the population's clients; `None`: it has none."""
    rows = population.rows
    return None if rows is None else RowTable(read_rows(rows.file), rows.first)


def client_tls(population: PlannedPopulation, n: int) -> PlannedTls | None:
    """TLS of the population with the files of client number `n`, as templates of nothing else."""
    tls = population.tls
    if tls is None or tls.certificate is None or tls.key is None:
        return tls
    paths = {"certificate": tls.certificate, "key": tls.key}
    texts = {name: template_of(population, path).text(n) for name, path in paths.items()}
    literal = {name: t.replace("{", "{{").replace("}", "}}") for name, t in texts.items()}
    return tls.model_copy(update=literal)


def has_stamped_text(publication: PlannedPublication) -> bool:
    """Returns True if its payload is a text with a stamp."""
    payload = publication.payload
    return isinstance(payload, TextPayload) and Template.parse(payload.template).has(
        VariableKind.STAMP
    )


def lacks_stamps(publisher: PlannedPopulation, receiver: PlannedPopulation) -> bool:
    """Returns True if some messages between two populations carry no stamp."""
    return not all(carries_stamp(each, publisher, receiver) for each in publisher.publications)


def payload_bytes_max(population: PlannedPopulation, publication: PlannedPublication) -> int:
    """Returns the bytes of the largest payload of a publication."""
    payload = publication.payload
    if isinstance(payload, FixedPayload):
        return payload.bytes
    if isinstance(payload, GaussianPayload):
        return payload.mean_bytes + 4 * payload.sd_bytes
    return template_of(population, payload.template).bytes_max


def carries_stamp(
    publication: PlannedPublication, publisher: PlannedPopulation, receiver: PlannedPopulation
) -> bool:
    """Returns True if the messages of a publication have a stamp that clients of a population
    receive: texts without one have it in a property, where both protocols have properties."""
    payload = publication.payload
    if isinstance(payload, FixedPayload):
        return payload.bytes >= STAMP_BYTES
    if isinstance(payload, GaussianPayload):
        return payload.mean_bytes - 4 * payload.sd_bytes >= STAMP_BYTES
    has_properties = publisher.can.has_properties and receiver.can.has_properties
    return has_properties or has_stamped_text(publication)
