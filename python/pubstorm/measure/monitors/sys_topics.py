"""A broker's own reports under `$SYS`, read by an observer: one more client, which counts its own
traffic. Readings that repeat an earlier report are marked."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pubstorm.contract import Source
from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target, parse_target, sources_of
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ObserverTraffic
from pubstorm.scenario.monitors import SysTopics
from pubstorm.topology.observer import ANONYMOUS, Follower, Login, ObserverError

SILENCE_S = 15.0
"""Time for which a broker's last report counts, and for which it may be silent at first."""
SETTLED_S = 0.1
"""Silence after which a report of the broker is complete."""
REPORT_S = 1.0
"""Longest wait for that silence, where other topics never pause."""
REPORT_METRIC = "$SYS/uptime"
"""Topics that each report of mosquitto contains; other topics only if their values have changed."""
TOPICS_MAX = 1000
"""Topics that are kept."""
PAYLOAD_BYTES_MAX = 64
"""Longest payload that is looked at for a number."""

ALIASES = {
    "$SYS/heap/current size": "$SYS/heap/current",
    "$SYS/heap/maximum size": "$SYS/heap/maximum",
    "$SYS/clients/active": "$SYS/clients/connected",
    "$SYS/clients/inactive": "$SYS/clients/disconnected",
    "$SYS/publish/messages/dropped": "$SYS/messages/dropped",
    "$SYS/messages/dropped": "$SYS/publish/messages/dropped",
}
"""Names of the same figure in mosquitto's versions: the name that exists, and the name that is
added."""


class Reports:
    """The latest value of each topic, and which of them are news. mosquitto reports every few
    seconds, and only changes: a report confirms the other values. Values between reports, and after
    a subscription, say nothing of growth."""

    def __init__(self) -> None:
        self.is_empty = True
        """True if no value ever came."""
        self._latest: dict[str, Reading] = {}
        self._left: list[Reading] = []
        self._fresh: set[str] = set()
        self._received_ns = 0
        self._report_ns: int | None = None

    def on_report(self, at_ns: int) -> None:
        """Notes that the broker reports."""
        self._received_ns = at_ns

    def take(self, reading: Reading) -> bool:
        """Takes a new value; False if there are too many topics."""
        if reading.metric not in self._latest and len(self._latest) >= TOPICS_MAX:
            return False
        self.is_empty = False
        self._latest[reading.metric] = reading
        self._fresh.add(reading.metric)
        if reading.metric == REPORT_METRIC and not reading.held:
            self._report_ns = reading.at_ns
        return True

    def lose(self) -> None:
        """The connection is lost: what was known holds no longer."""
        self._left += [self._latest[name] for name in self._fresh]
        self._latest.clear()
        self._fresh.clear()
        self._report_ns = None

    def read(self, now_ns: int) -> Iterator[Reading]:
        """Yields new values; once a report is complete, the values that it confirms; otherwise
        repeated values, while the broker reports at all."""
        report_ns, fresh = self._report_ns, self._fresh
        self._fresh = set()
        is_open = report_ns is not None and (
            now_ns - self._received_ns < SETTLED_S * SECOND_NS
            and now_ns - report_ns < REPORT_S * SECOND_NS
        )
        if not is_open:
            self._report_ns = None
        yield from self._left
        self._left = []
        for name, reading in self._latest.items():
            if name in fresh:
                yield reading
            elif is_open:
                continue
            elif report_ns is not None and name.startswith("$SYS/") and reading.at_ns < report_ns:
                yield Reading(report_ns, name, reading.value)
            elif now_ns - self._received_ns <= SILENCE_S * SECOND_NS:
                yield Reading(now_ns, name, reading.value, held=True)


def monitors_of(source: Source, wanted: SysTopics, plan: Plan) -> Iterator[SysTopicsMonitor]:
    """Yields the observer of a broker."""
    target = observed_by(source.name, wanted, plan)
    login = client_login(plan, target)
    if wanted.username is not None:
        login = replace(login, username=wanted.username, password=wanted.password)
    yield SysTopicsMonitor(source, target, wanted.topics, login)


def observed_by(name: str, wanted: SysTopics, plan: Plan) -> Target:
    """Returns the target of a source: that of its address or of its name, else the first one for
    MQTT."""
    if wanted.url is not None:
        given = parse_target(wanted.url)
        return next((target for target in plan.targets if str(target) == str(given)), given)
    named = {source.name: n for n, source in enumerate(sources_of(plan.targets))}
    first = next((n for n, target in enumerate(plan.targets) if target.speaks_mqtt), 0)
    return plan.targets[named.get(name, first)]


def client_login(plan: Plan, target: Target) -> Login:
    """Returns the login of a client at a target: the first one of the first population there."""
    index = plan.targets.index(target) if target in plan.targets else 0
    fits = (p for p in plan.populations if p.at.first <= index < p.at.first + p.at.count)
    population = next(fits, plan.populations[0])
    login = Login.of(population)
    return login if target.tls else replace(login, tls=None)


class SysTopicsMonitor(Follower):
    """Watches one broker's topics."""

    hint = ": give username and password of the source"
    keep_alive_s = 10
    wait_s = 0.5
    retry_s = (1, 10)

    def __init__(
        self, source: Source, target: Target, topics: Sequence[str], login: Login = ANONYMOUS
    ) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._reports = Reports()
        self._subscribed_s: float | None = None
        self._problems: list[str] = []
        super().__init__(source.name, target, dict.fromkeys(topics, 0), login)

    def start(self) -> None:
        """Begins to connect, and continues until it is stopped."""
        try:
            super().start()
        except ObserverError as error:
            self.problem = str(error)
            raise MonitorError(str(error)) from error

    def read(self) -> Iterator[Reading]:
        """Yields the values since the last reading, each at its instant, and those that still
        hold."""
        with self._lock:
            readings = list(self._reports.read(time.monotonic_ns()))
            problems, self._problems = self._problems, []
        yield from with_aliases(readings)
        since_s = self._subscribed_s
        is_silent = since_s is not None and time.monotonic() - since_s > SILENCE_S
        if self._reports.is_empty and is_silent:
            problems.append(self._silence())
        if problems:
            raise MonitorError("; ".join(dict.fromkeys(problems)))

    def stop(self) -> None:
        """Disconnects. Raises MonitorError if no number ever came and no problem explains it."""
        super().stop()
        if self._reports.is_empty and self.problem is None:
            raise MonitorError(self._silence())

    def observer(self) -> ObserverTraffic:
        """Returns the observer for the result."""
        silence = self._silence() if self._reports.is_empty else None
        return super().observer().model_copy(update={"problem": self.problem or silence})

    def note(self, text: str) -> None:
        """Takes a problem for the next reading; the first one is that of the result."""
        with self._lock:
            if text not in self._problems:
                self._problems.append(text)
            self.problem = self.problem or text

    def on_disconnected(self, is_failure: bool) -> None:
        """Forgets what held until now."""
        with self._lock:
            self._reports.lose()
        if is_failure and self._subscribed_s is not None:
            self.note(f"{self.target} ended the observer's connection; it is tried again")

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Notes which subscriptions are refused."""
        self._subscribed_s = time.monotonic()
        super().on_granted(granted)

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Takes a value."""
        name, value = metric_name(topic), number(payload)
        with self._lock:
            at_ns = time.monotonic_ns()
            self.received_total += 1
            self.received_bytes += len(payload)
            self._reports.on_report(at_ns)
            if value is None or self._reports.take(Reading(at_ns, name, value, is_retained)):
                return
        self.note(f"more than {TOPICS_MAX} topics: the others are left out, narrow topics")

    def _silence(self) -> str:
        topics = ", ".join(self.topics)
        if self._subscribed_s is None:
            return f"{self.target} answered no login of the observer for {topics}"
        text = f"{self.target} published no number under {topics}"
        return f"{text}: allow the observer to read it, or the broker has no such topics"


def metric_name(topic: str) -> str:
    """Returns the metric of a topic: `$SYS/broker/` is shortened to `$SYS/`."""
    prefix = "$SYS/broker/"
    return f"$SYS/{topic.removeprefix(prefix)}" if topic.startswith(prefix) else topic


def number(payload: bytes) -> float | None:
    """The number that a payload is, alone or before a word such as `seconds`."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        return None
    found = _NUMBER.fullmatch(payload.strip())
    value = float(found[1]) if found else math.nan
    return value if math.isfinite(value) else None


def with_aliases(readings: Sequence[Reading]) -> Iterator[Reading]:
    """The readings, and those of other versions' names again under the name that is missing."""
    names = {reading.metric for reading in readings}
    for reading in readings:
        yield reading
        alias = ALIASES.get(reading.metric)
        if alias is not None and alias not in names:
            yield Reading(reading.at_ns, alias, reading.value, reading.held)


_NUMBER = re.compile(rb"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:\s+[A-Za-z]+)?")
