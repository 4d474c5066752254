"""The content of a publisher's messages: topic, size, stamp and text, as the engine makes them."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence

from pubstorm.contract.flows import FixedPayload, GaussianPayload, PlannedPublication, TextPayload
from pubstorm.contract.random import Random
from pubstorm.contract.stamp import STAMP_BYTES
from pubstorm.contract.template import MessageFacts, Template
from pubstorm.contract.texts import has_stamped_text, template_of
from pubstorm.fleet.zmq_agent.part import AgentShard

STAMP = struct.Struct("<IIQQQ")
"""Run tag, place in the stream, the stream's key, and when it was due and sent."""
SEQUENCE_MASK = 0xFFFF_FFFF
FILLER = b"."
ORDER_PURPOSE = 2 << 40
EXCHANGES = 16
VARIANTS_MAX = 1 << 16


class Messages:
    """The messages of one client, by their numbers from 0 over the whole run."""

    def __init__(self, part: AgentShard, client: int) -> None:
        population = part.population
        publication = population.publications[0]
        seed = part.plan.seed
        index = part.first_publication(part.place.population)
        topic = template_of(population, publication.topic)
        self._client = client
        self._n = population.first + client
        self._run_tag = part.plan.run_tag
        self._key = index << 48 | client
        self._payload = publication.payload
        self._stamped = is_stamped(publication)
        self._topics = [
            topic.text(self._n, variant).encode()
            for variant in range(min(topic.variants, VARIANTS_MAX))
        ]
        shuffled = publication.order == "shuffled" and len(self._topics) > 1
        self._order = Random.new(seed, ORDER_PURPOSE + index) if shuffled else None
        self._sizes = Random.new(seed, 2 * index + 1).of(client)
        self._chance = MessageFacts.stream(seed, index).of(client)
        self._since_1970_ns = time.time_ns() - time.monotonic_ns()
        self._text: Template | None = None
        if isinstance(publication.payload, TextPayload):
            self._text = template_of(population, publication.payload.template)

    @property
    def plain(self) -> tuple[int, int, int] | None:
        """Run tag, key and size, where every message is one frame of one size with a stamp: those
        can be made without asking for each."""
        payload = self._payload
        if not isinstance(payload, FixedPayload) or payload.bytes < STAMP_BYTES:
            return None
        return (self._run_tag, self._key, payload.bytes) if self._topics == [b""] else None

    def frames(self, number: int, intended_ns: int, actual_ns: int) -> Sequence[bytes]:
        """The frames of a message: the payload, after the topic unless that is empty."""
        count = len(self._topics)
        variant = self._variant(number)
        stamp = STAMP.pack(
            self._run_tag,
            number // count & SEQUENCE_MASK,
            self._key | variant << 32,
            intended_ns,
            actual_ns,
        )
        payload = self._body(number, variant, stamp, actual_ns)
        topic = self._topics[variant]
        return (topic, payload) if topic else (payload,)

    def _body(self, number: int, variant: int, stamp: bytes, actual_ns: int) -> bytes:
        payload = self._payload
        if self._text is not None:
            time_ms = (actual_ns + self._since_1970_ns) // 1_000_000
            chance = self._chance.of(number)
            facts = MessageFacts(number, len(self._topics), chance, time_ms, stamp)
            return self._text.message_text(self._n, variant, facts).encode()
        if isinstance(payload, GaussianPayload):
            deviation = normal(self._sizes.of(number)) * payload.sd_bytes
            size = max(math.floor(payload.mean_bytes + deviation + 0.5), 0)
        else:
            assert isinstance(payload, FixedPayload), "a text has a template"
            size = payload.bytes
        return (stamp if self._stamped else b"").ljust(size, FILLER)

    def _variant(self, number: int) -> int:
        count = len(self._topics)
        place = number % count
        if self._order is None:
            return place
        drawn = self._order.of(self._client << 32 | number // count)
        for step in range(EXCHANGES):
            place = _exchanged(drawn.of(step), count, place)
        return place


def is_stamped(publication: PlannedPublication) -> bool:
    """True if every payload has a stamp, or room for one."""
    match publication.payload:
        case FixedPayload(bytes=size):
            return size >= STAMP_BYTES
        case GaussianPayload(mean_bytes=mean, sd_bytes=deviation):
            return mean - 4 * deviation >= STAMP_BYTES
        case _:
            return has_stamped_text(publication)


def normal(drawn: Random) -> float:
    """A value of the normal distribution, cut at four standard deviations (Box and Muller)."""
    u = ((drawn.bits >> 32) + 1) / 2**32
    v = (drawn.bits & 0xFFFF_FFFF) / 2**32
    value = math.sqrt(-2.0 * math.log(u)) * math.cos(math.tau * v)
    return min(max(value, -4.0), 4.0)


def _exchanged(step: Random, count: int, at: int) -> int:
    """A step of the shuffle of `crates/plan/src/schedule/order.rs`."""
    partner = (step.below(count) - at) % count
    return partner if step.of(max(at, partner)).bits & 1 else at
