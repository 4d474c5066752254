"""Who receives a message of ZeroMQ: the subscribers at its publisher that asked for a prefix of its
topic. A subscriber gets a message once, however many of its prefixes match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.plan.attachment import clients_at, target_of
from pubstorm.plan.model import ZMTP, OpenPace, Plan, Population, Publication
from pubstorm.plan.texts import template_of

SECOND_NS = 10**9
SAMPLES = 16
CLIENTS_SAMPLED = 4096


def share_received(population: Population, clients: Sequence[int], topic: str) -> float:
    """Share of these clients of a population that receive a topic, of a sample where they are
    many."""
    templates = [template_of(population, each.filter) for each in population.subscriptions]
    alike = all(not t.has_client_values for t in templates)
    sample = sampled(clients, 1 if alike else CLIENTS_SAMPLED)
    found = sum(
        any(
            topic.startswith(template.text(population.first + client, variant))
            for template in templates
            for variant in range(template.variants)
        )
        for client in sample
    )
    return found / len(sample) if sample else 0.0


def due_per_s(plan: Plan, index: int) -> float | None:
    """Messages a second that are due to a client of a population of subscribers at the rates of the
    plan, in the mean over its clients; None where a publisher sends as fast as it can."""
    population = plan.populations[index]
    sample = sampled(range(population.clients), SAMPLES)
    each = [_due_to(plan, index, client) for client in sample]
    known = [rate for rate in each if rate is not None]
    return sum(known) / len(known) if len(known) == len(each) else None


def sampled(values: Sequence[int], most: int) -> Sequence[int]:
    """Up to `most` of the values, evenly spread."""
    if len(values) <= most:
        return values
    return [values[i * len(values) // most] for i in range(most)]


def _due_to(plan: Plan, index: int, client: int) -> float | None:
    target, rate_per_s = target_of(plan, index, client), 0.0
    for publisher, publication, number in _publishers_at(plan, target):
        template = template_of(publisher, publication.topic)
        variants = sampled(range(template.variants), SAMPLES)
        topics = [template.text(number, variant) for variant in variants]
        population = plan.populations[index]
        shares = [share_received(population, [client], topic) for topic in topics]
        if not any(shares):
            continue
        if not isinstance(publication.pace, OpenPace):
            return None
        rate_per_s += sum(shares) / len(shares) * SECOND_NS / publication.pace.period_ns
    return rate_per_s


def _publishers_at(plan: Plan, target: int) -> Iterator[tuple[Population, Publication, int]]:
    """Publications of ZeroMQ at a target, each with the number of the client that sends them."""
    for index, population in enumerate(plan.populations):
        if population.version == ZMTP:
            for publication in population.publications:
                for client in clients_at(plan, index, target):
                    yield population, publication, population.first + client
