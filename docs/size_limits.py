"""The rows of docs/reference/limits.md that say how large something may be, from the constants of
the code. `docs/generate.py` puts them into the page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

from pubstorm.cli.keys import CLIENTS_MAX as KEYS_MAX
from pubstorm.contract import RATE_MAX_PER_S, RATE_MIN_PER_S
from pubstorm.contract.capabilities import CAPABILITIES
from pubstorm.contract.histogram import MAX_NS, bucket_index
from pubstorm.contract.recorded import MESSAGES_MAX
from pubstorm.contract.target import SOURCES_MAX
from pubstorm.contract.template import RANGE_VALUES_MAX
from pubstorm.fleet.site import FILES_MAX
from pubstorm.measure.monitors.prometheus import SERIES_MAX
from pubstorm.measure.monitors.sys_topics import TOPICS_MAX
from pubstorm.quantities import SECOND_NS, QuantityField, bytes_text
from pubstorm.scenario import data, fields
from pubstorm.scenario.addresses import ADDRESSES_MAX
from pubstorm.scenario.checks import PUBLICATIONS_MAX
from pubstorm.scenario.checks.brokers import CLUSTER_MAX
from pubstorm.scenario.checks.series import STEPS_MAX
from pubstorm.scenario.document import DEPTH_MAX, NODES_MAX
from pubstorm.scenario.load import FILE_BYTES_MAX
from pubstorm.scenario.populations import CARRIED_BYTES_MAX
from pubstorm.scenario.shares import POINTS_MAX
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT

FILES_OF_MANY = 20_000
"""A limit of open files, as the example."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
RATES = RATE_MIN_PER_S, RATE_MAX_PER_S
YEAR_NS = 365 * 24 * 3600 * SECOND_NS


def size_limits() -> Iterator[tuple[str, str, str]]:
    """Yields each limit: what it is about, its value, and the reason."""
    yield "clients of one population", _most(fields.Clients), "32-bit client numbers"
    kept = f"less {DESCRIPTORS_KEPT}: {FILES_OF_MANY - DESCRIPTORS_KEPT:,} of {FILES_OF_MANY:,}"
    files = f"the limit of open files, {kept}"
    yield "clients of one agent", files, "`ulimit -n`; more agents play more clients"
    yield (
        "connections from one source address to one target",
        "28,232 with Linux's default ports",
        "`net.ipv4.ip_local_port_range`; `sources` adds addresses",
    )
    yield "source addresses of a target", f"{SOURCES_MAX:,}", "Pubstorm"
    yield "addresses of a target's name", f"{ADDRESSES_MAX}", "the first ones, of IPv4 first"
    yield (
        "memory of an idle client",
        "0.16 kB in the agent, 8.8 to 10.1 kB in the kernel for both ends",
        "see [benchmarks](../benchmarks.md)",
    )
    yield "memory of an idle client with TLS", "23 kB more in the agent", "OpenSSL"
    yield "bytes in a link of a client", _in_link(), "memory of the agent"
    yield (
        "client id, user name, password, topic and other texts",
        f"{fields.TEXT_BYTES_MAX:,} bytes, with the values of rows and other variables",
        "MQTT",
    )
    plain = f"{CAPABILITIES['zmtp-3.1'].login_bytes_max} bytes"
    yield "user name and password of ZeroMQ", plain, "the mechanism PLAIN"
    yield from _of_data()
    yield (
        "payload",
        f"{fields.MESSAGE_BYTES_MAX:,} bytes",
        "Pubstorm; MQTT allows 268,435,455 bytes for a packet",
    )
    yield (
        "a rate, such as that of one client's messages or of a connect stage",
        _rates(),
        "the schedule's arithmetic",
    )
    yield "messages of one publication at once", _most(fields.Burst), "Pubstorm"
    yield "messages of one client in flight", _most(fields.Window), "16-bit packet identifiers"
    yield "messages of one client", "2⁶⁴", "64-bit message numbers"
    years = _quantity(fields.Duration).high / YEAR_NS
    yield (
        "a duration, such as that of a stage",
        f"{years:.0f} years",
        "the range that Pubstorm accepts",
    )
    yield "interval of snapshots and monitors", _quantity(fields.Interval).bounds(), "Pubstorm"
    yield "publications of a scenario", f"{PUBLICATIONS_MAX:,}", "15-bit numbers in stamps"
    yield (
        "topics that a client publishes to by one publication",
        f"{RANGE_VALUES_MAX:,}",
        "16-bit numbers in stamps",
    )
    yield "recorded messages of a file", f"{MESSAGES_MAX:,}", "memory of agents: 28 bytes for each"
    yield "points of a rate profile", f"{POINTS_MAX:,}", "Pubstorm"
    yield "steps of a series", f"{STEPS_MAX:,}", "Pubstorm"
    yield "nodes of a RabbitMQ cluster that a run starts", f"{CLUSTER_MAX}", "Pubstorm"
    yield "files that a run sends to hosts of a cluster", f"{FILES_MAX:,}", "Pubstorm"
    yield "clients of one `pubstorm keys`", f"{KEYS_MAX:,}", "Pubstorm"
    yield "`$SYS` topics of a broker", f"{TOPICS_MAX:,}", "Pubstorm"
    yield "series of a Prometheus source", f"{SERIES_MAX:,}", "Pubstorm"
    size = f"{FILE_BYTES_MAX >> 20} MiB, {NODES_MAX:,} YAML nodes, depth {DEPTH_MAX}"
    yield "scenario file", size, "Pubstorm, against files that expand without end"
    parts = bucket_index(2 * SECOND_NS) - bucket_index(SECOND_NS)
    yield "resolution of a latency", f"1 part in {parts}", "buckets of the histogram"
    hours, minutes = divmod(MAX_NS // (60 * SECOND_NS), 60)
    yield "longest latency", f"{hours} h {minutes} min", "longer ones count as this"


def _of_data() -> Iterator[tuple[str, str, str]]:
    data_mib = data.RECORDS_BYTES_MAX >> 20
    yield (
        "payloads from files",
        f"{data_mib} MiB in all publications of a scenario, {data.RECORDS_MAX:,} in one",
        "Pubstorm: the plan carries them",
    )
    yield "sizes of a histogram", f"{data.BINS_MAX:,}", "Pubstorm"
    rounds = f"in rounds of up to {data.ROUND_MAX:,} messages"
    yield "topics with weights", f"{data.VALUES_MAX:,}, {rounds}", "Pubstorm"


def _in_link() -> str:
    carried = bytes_text(CARRIED_BYTES_MAX)
    return f"512 KiB in each direction; with a rate {carried} during the delay, and 64 KiB"


def _quantity(annotated: Any) -> QuantityField:
    return next(each for each in get_args(annotated) if isinstance(each, QuantityField))


def _most(annotated: Any) -> str:
    return f"{_quantity(annotated).high:,}"


def _rates() -> str:
    """Returns the bounds of rates as powers of ten."""
    low, high = (str(round(math.log10(each))).translate(RAISED) for each in RATES)
    return f"10{low}/s to 10{high}/s; of messages, `max` too"
