"""A Redis by its own report: memory, keys, clients, commands, and CPU if its process is not
monitored."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from pubstorm.contract import Source
from pubstorm.contract.plan import Plan
from pubstorm.errors import PubstormError
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.scenario.monitors import Redis
from pubstorm.topology.identities.seeding import RedisAddress, RedisStore

ANSWER_S = 3.0
"""Longest time for an answer."""
FIGURES: Mapping[str, str] = {
    "used_memory_bytes": "used_memory",
    "connections": "connected_clients",
    "commands_per_s": "instantaneous_ops_per_sec",
    "evicted": "evicted_keys",
    "rejected": "rejected_connections",
}
"""Our names and those of Redis' INFO."""


def monitors_of(source: Source, wanted: Redis, _: Plan) -> Iterator[RedisMonitor]:
    """Yields the monitor of a Redis. The process of one that the run starts has its own."""
    yield RedisMonitor(source, wanted.url, with_process=source.kind != "service")


class RedisMonitor:
    """Watches one Redis."""

    def __init__(self, source: Source, url: str, *, with_process: bool) -> None:
        """`with_process` also reads the figures of its process."""
        self.source = source
        self._url = url
        self._with_process = with_process
        self._store: RedisStore | None = None
        self._used: tuple[float, float, float] | None = None
        """Instant of the last reading of CPU time, and the time used in the program and in the
        kernel."""

    def start(self) -> None:
        """Connects, and takes the CPU time that was used before."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """Yields the present values."""
        info, at_ns = self._info(), time.monotonic_ns()
        for metric, name in FIGURES.items():
            yield Reading(at_ns, metric, float(info[name]))
        databases = (_KEYS.match(text) for name, text in info.items() if name.startswith("db"))
        yield Reading(at_ns, "keys", float(sum(int(found[1]) for found in databases if found)))
        if self._with_process:
            yield Reading(at_ns, "rss_bytes", float(info["used_memory_rss"]))
            yield from self._cpu(info, at_ns)

    def stop(self) -> None:
        """Closes the connection."""
        self._let_go()

    def _info(self) -> Mapping[str, str]:
        """A lost connection is made anew with the next reading."""
        try:
            if self._store is None:
                self._store = RedisStore(RedisAddress.parse(self._url), ANSWER_S)
            return self._store.info()
        except PubstormError as error:
            self._let_go()
            raise MonitorError(f"{error.message}: {error.hint or 'look at its log'}") from error

    def _cpu(self, info: Mapping[str, str], at_ns: int) -> Iterator[Reading]:
        """Shares of one core since the last reading."""
        user, system = float(info["used_cpu_user"]), float(info["used_cpu_sys"])
        before, self._used = self._used, (at_ns / 1e9, user, system)
        if before is None or user < before[1]:
            return
        span_s = at_ns / 1e9 - before[0]
        used = (user - before[1]) / span_s, (system - before[2]) / span_s
        shares = {"cpu": sum(used), "cpu_user": used[0], "cpu_system": used[1]}
        for metric, share in shares.items():
            yield Reading(at_ns, metric, round(share, 4))

    def _let_go(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._used = None


_KEYS = re.compile(r"keys=(\d+)")
