"""Test plans of JMeter with the samplers of mqtt-jmeter: thread groups become populations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from pubstorm.cli.imports.jmeter_texts import PlanTexts, prop, title
from pubstorm.cli.imports.plans import population_name, read_plan
from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    address,
    limit,
    pace,
)
from pubstorm.cli.imports.words import printable
from pubstorm.errors import UsageError

ROOT = "jmeterTestPlan"
SAMPLERS = "net.xmeter.samplers."
GROUPS = frozenset({"ThreadGroup", "SetupThreadGroup", "PostThreadGroup"})
TIMERS = {
    "ConstantTimer": 0.0,
    "UniformRandomTimer": 0.5,
    "GaussianRandomTimer": 0.0,
}
"""Timers, with the part of their random range that is its mean."""
THROUGHPUT = "ConstantThroughputTimer"
CONTROLLERS = frozenset({"GenericController", "TransactionController", "OnceOnlyController"})
REASONS = {
    "ResultCollector": "the run directory has the figures",
    "Summariser": "the display shows the figures",
    "DurationAssertion": "thresholds: has limits of latency",
    "ResponseAssertion": "the ledger checks each delivery",
    "CookieManager": "MQTT has none",
    "BackendListener": "exports: has databases",
    "ConfigTestElement": "the defaults of samplers are not read",
}
"""Reasons why an element has no equal, by its tag; others have the last one of these."""
NO_EQUAL = "a scenario has no equal"
PROPERTIES = frozenset(
    {
        *("server", "port", "version", "protocol", "ws_path", "user_name", "password"),
        *("client_id_prefix", "client_id_suffix", "conn_keep_alive", "conn_timeout"),
        *("conn_clean_session", "reconn_attempt_max", "conn_attempt_max", "conn_share"),
        *("client_name", "dual_ssl_authentication", "keystore_file_path", "keystore_password"),
        *("clientcert_file_path", "clientcert_password", "topic_name", "qos_level"),
        *("add_timestamp", "message_type", "message_type_fixed_length", "message_to_sent"),
        *("retained_message", "sample_condition", "sample_condition_value", "debug_response"),
    }
)
"""Properties of the samplers that a scenario has a key for, or does not need."""
KEYSTORES = "tls: has files in PEM"
TLS_FILES = ("mqtt.keystore_file_path", "mqtt.clientcert_file_path")
SCHEMES = {"TCP": "mqtt", "SSL": "mqtts", "WS": "ws", "WSS": "wss"}
SECURE = frozenset({"SSL", "WSS"})
VERSIONS = {"3.1": "3.1", "3.1.1": "3.1.1", "5": "5", "5.0": "5"}
TIMESTAMP = "{time}ts_sep_flag"
TIMESTAMP_BYTES = 24
RANDOM_TEXT = "Random string with fixed length"
ELAPSED = "elapsed"
NO_COLUMNS: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Cycle:
    """The body of a loop: one pass takes the time of its timers."""

    times: int | None
    """Passes of all loops around it; None: without end."""
    interval_ms: float = 0


@dataclass(slots=True)
class _Group:
    """The samplers of a thread group."""

    element: Element
    rows: Element | None
    connect: Element | None = None
    publishes: list[tuple[Element, _Cycle]] = field(default_factory=list)
    subscribes: list[Element] = field(default_factory=list)
    disconnects: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """Names of the variables that a row of a file has."""
        names = prop(self.rows, "variableNames") if self.rows is not None else ""
        return frozenset(filter(None, map(str.strip, names.split(","))))


def read(path: str) -> ImportedScenario:
    """Returns the scenario of a test plan. Raises UsageError."""
    plan = _Plan(read_plan(path, ROOT))
    scenario = ImportedScenario()
    for group in plan.groups:
        clients = plan.clients(group, scenario.clients)
        scenario.clients.append(clients)
        if group.disconnects:
            scenario.ends.append(clients.name)
    if not scenario.clients:
        raise UsageError(
            f"found no thread group with an MQTT Connect sampler in {path}",
            "the samplers are those of mqtt-jmeter, such as net.xmeter.samplers.ConnectSampler",
        )
    scenario.comments = [f"# {printable(path)}", *dict.fromkeys(plan.remarks)]
    return scenario


class _Plan:
    """A test plan: its groups, and remarks about the rest."""

    def __init__(self, root: Element) -> None:
        self.remarks: list[str] = []
        self.texts = PlanTexts(root, self.remarks)
        self.groups: list[_Group] = []
        self._rows: Element | None = None
        for tree in root.findall("hashTree"):
            self._top(tree)

    def _top(self, tree: Element) -> None:
        """Finds the thread groups below the plan, at any depth."""
        for element, below in self._enabled(tree):
            if element.tag in GROUPS:
                group = _Group(element, self._rows)
                loops = self._loops(element.find("elementProp[@elementType='LoopController']"))
                self._walk(below, group, _Cycle(loops), [])
                if group.connect is None:
                    self._say(element, "it has no MQTT Connect sampler")
                else:
                    self.groups.append(group)
            elif element.tag == "CSVDataSet":
                self._rows = element
            elif element.tag in {"TestPlan", "Arguments"}:
                self._top(below)
            elif element.tag != "WorkBench":
                self._say(element)

    def _enabled(self, tree: Element) -> Iterator[tuple[Element, Element]]:
        """Yields the elements of a tree, each with the tree below it."""
        children = [*tree, Element("hashTree")]
        for number, element in enumerate(children[:-1]):
            if element.tag == "hashTree":
                continue
            following = children[number + 1]
            below = following if following.tag == "hashTree" else Element("hashTree")
            if element.get("enabled", "true") == "false":
                self._say(element, "it is disabled")
            else:
                yield element, below

    def _walk(self, tree: Element, group: _Group, cycle: _Cycle, timers: list[Element]) -> None:
        """Finds the samplers of a group. A timer delays each sampler of its tree."""
        found = [*self._enabled(tree)]
        timers = [*timers, *(each for each, _ in found if _is_timer(each))]
        for element, below in found:
            kind = element.tag.removeprefix(SAMPLERS)
            if element.tag.startswith(SAMPLERS):
                inner = [each for each, _ in self._enabled(below) if _is_timer(each)]
                cycle.interval_ms += sum(map(self._delay_ms, (*timers, *inner)))
                self._sampler(kind, element, group, cycle)
            elif element.tag == "LoopController":
                loops = self._loops(element)
                times = None if loops is None or cycle.times is None else loops * cycle.times
                self._walk(below, group, _Cycle(times), timers)
            elif element.tag == "CSVDataSet":
                group.rows = element
            elif element.tag.endswith("Controller"):
                if element.tag not in CONTROLLERS:
                    self._say(element, "its samplers are played always")
                self._walk(below, group, cycle, timers)
            elif not _is_timer(element) and element.tag != "Arguments":
                self._say(element)

    def _sampler(self, kind: str, element: Element, group: _Group, cycle: _Cycle) -> None:
        if kind == "ConnectSampler" and group.connect is None:
            group.connect = element
        elif kind == "PubSampler":
            group.publishes.append((element, cycle))
        elif kind == "SubSampler":
            group.subscribes.append(element)
            if ELAPSED in self.texts.value(element, "mqtt.sample_condition", ELAPSED):
                cycle.interval_ms += self.texts.number(
                    element, "mqtt.sample_condition_value", "1000"
                )
        elif kind == "DisConnectSampler":
            group.disconnects = True
        else:
            self._say(element)
            return
        names = (each.get("name", "") for each in element if (each.text or "").strip())
        for name in names:
            if name.startswith("mqtt.") and name.removeprefix("mqtt.") not in PROPERTIES:
                self._say(element, f"{printable(name[:60])} has no equal")

    def _delay_ms(self, timer: Element) -> float:
        if timer.tag == THROUGHPUT:
            if self.texts.number(timer, "calcMode"):
                self._say(timer, "total_rate: of a publication is a rate of all clients")
                return 0
            per_min = self.texts.decimal(timer, "throughput")
            return 60_000 / per_min if per_min else 0
        spread_ms = self.texts.decimal(timer, "RandomTimer.range")
        if spread_ms:
            self._say(timer, "its mean is the interval; jitter: of a publication moves messages")
        return self.texts.decimal(timer, "ConstantTimer.delay") + TIMERS[timer.tag] * spread_ms

    def _loops(self, controller: Element | None) -> int | None:
        """Returns the passes of a loop; None: without end."""
        if controller is None:
            return 1
        text = self.texts.value(controller, "LoopController.loops")
        if self.texts.is_on(controller, "LoopController.continue_forever"):
            # A thread group writes true beside the number of passes that it makes.
            is_group = controller.tag == "elementProp"
            if not is_group or text in {"", "-1"}:
                return None
        return None if text == "-1" else self.texts.number(controller, "LoopController.loops", "1")

    def _say(self, element: Element, reason: str = "") -> None:
        tag = element.tag.removeprefix(SAMPLERS)
        why = reason or REASONS.get(tag, NO_EQUAL)
        self.remarks.append(f"# without {printable(tag[:60])} {title(element)}: {why}")

    def clients(self, group: _Group, others: Sequence[ImportedClients]) -> ImportedClients:
        """Returns the population of a thread group. Raises UsageError."""
        element, connect = group.element, group.connect
        assert connect is not None
        name = population_name(element.get("testname", ""), [each.name for each in others])
        keys: Keys = {"clients": self.texts.number(element, "ThreadGroup.num_threads", "1")}
        keys["first"] = 1
        keys |= dict(self._rows_of(group)) | dict(self._connection(connect, group.columns))
        has_suffix = self.texts.is_on(connect, "mqtt.client_id_suffix", default=True)
        if has_suffix and keys["client_id"] in [each.keys["client_id"] for each in others]:
            # The random suffixes of the tool differ between groups; numbers do not.
            keys["client_id"] = f"{name}-{keys['client_id']}"
        clients = ImportedClients(name, [self._address(connect)], keys)
        if ramp_s := self.texts.number(element, "ThreadGroup.ramp_time"):
            clients.connect = {"over": Plain(f"{ramp_s}s")}
        if delay_s := self.texts.number(element, "ThreadGroup.delay"):
            remark = f"# without the start delay of {delay_s} s of {title(element)}: hold: waits"
            self.remarks.append(remark)
        clients.subscriptions = [
            {"topic": self._filled(topic.strip(), each, group), "qos": self._qos(each)}
            for each in group.subscribes
            for topic in self.texts.value(each, "mqtt.topic_name", "test_topic").split(",")
        ]
        clients.publications = [
            self._publication(each, cycle, group) for each, cycle in group.publishes
        ]
        self._length(clients, group)
        return clients

    def _length(self, clients: ImportedClients, group: _Group) -> None:
        """Makes the load as long as the duration of a group, or as its loops."""
        if self.texts.is_on(group.element, "ThreadGroup.scheduler"):
            duration_s = self.texts.number(group.element, "ThreadGroup.duration")
            if duration_s:
                clients.length = Plain(f"{duration_s}s")
                return
        cycles = [cycle for _, cycle in group.publishes if cycle.times is not None]
        if cycles and len(cycles) == len(group.publishes):
            longest = max(cycles, key=lambda cycle: (cycle.times or 0) * cycle.interval_ms)
            shown = f"passes of its loop: {longest.times}"
            limit(clients, shown, longest.times or 0, longest.interval_ms)
            if len(cycles) > 1:
                clients.messages = None

    def _rows_of(self, group: _Group) -> Iterator[tuple[str, object]]:
        if group.rows is None:
            return
        file = prop(group.rows, "filename")
        self.remarks.append("# a client has one row of its file; a thread takes one for each pass")
        if group.columns:
            names = printable(prop(group.rows, "variableNames")[:200])
            self.remarks.append(f"# the first line of {printable(file)} is to be {names}")
        does_repeat = self.texts.is_on(group.rows, "recycle", default=True)
        yield "rows", {"file": file, "repeat": does_repeat}

    def _address(self, connect: Element) -> str:
        protocol = self._protocol(connect)
        path = self.texts.value(connect, "mqtt.ws_path") if protocol.startswith("WS") else ""
        path = path if not path or path.startswith("/") else f"/{path}"
        host = self.texts.value(connect, "mqtt.server", "127.0.0.1").strip()
        if re.fullmatch(r"[\w.:\[\]-]{1,255}", host) is None:
            raise self.texts.unfit(connect, "mqtt.server", host, "is a host")
        port = self.texts.number(connect, "mqtt.port", "1883")
        return address(SCHEMES[protocol], host, port, path)

    def _protocol(self, connect: Element) -> str:
        protocol = self.texts.value(connect, "mqtt.protocol", "TCP").upper()
        if protocol not in SCHEMES:
            raise self.texts.unfit(connect, "mqtt.protocol", protocol, "is TCP, SSL, WS or WSS")
        return protocol

    def _connection(
        self, connect: Element, columns: frozenset[str]
    ) -> Iterator[tuple[str, object]]:
        texts = self.texts
        prefix = texts.value(connect, "mqtt.client_id_prefix", "conn_")
        client_id = texts.template(prefix, connect, columns, is_topic=True)
        has_suffix = texts.is_on(connect, "mqtt.client_id_suffix", default=True)
        yield (
            "client_id",
            f"{client_id}{{n}}" if has_suffix and "{n" not in client_id else client_id,
        )
        version = texts.value(connect, "mqtt.version", "3.1")
        if version not in VERSIONS:
            raise texts.unfit(connect, "mqtt.version", version, "is 3.1, 3.1.1 or 5")
        yield "version", VERSIONS[version]
        yield "keep_alive", Plain(f"{texts.number(connect, 'mqtt.conn_keep_alive', '300')}s")
        timeout_s = texts.number(connect, "mqtt.conn_timeout", "10")
        yield "connect_timeout", Plain(f"{timeout_s or 10}s")
        if not texts.is_on(connect, "mqtt.conn_clean_session", default=True):
            yield "session", Plain("persistent")
        if texts.value(connect, "mqtt.reconn_attempt_max", "0") == "0":
            yield "reconnect", Plain("never")
        for key, name in (("username", "user_name"), ("password", "password")):
            if text := texts.value(connect, f"mqtt.{name}").strip():
                yield key, texts.template(text, connect, columns, is_topic=True)
        if self._protocol(connect) in SECURE:
            yield "tls", {"verify": False}
        for name in TLS_FILES:
            if prop(connect, name):
                self._say(connect, f"{name.removeprefix('mqtt.')} has no equal: {KEYSTORES}")

    def _publication(self, element: Element, cycle: _Cycle, group: _Group) -> Keys:
        texts = self.texts
        topic = self._filled(texts.value(element, "mqtt.topic_name", "test_topic"), element, group)
        keys: Keys = {"topic": topic}
        if ".." in topic:
            keys["order"] = Plain("shuffled")
        keys |= pace(cycle.interval_ms)
        has_time = texts.is_on(element, "mqtt.add_timestamp")
        kind = texts.value(element, "mqtt.message_type", RANDOM_TEXT)
        message = texts.value(element, "mqtt.message_to_sent")
        if kind == "String":
            text = texts.template(message, element, group.columns, is_topic=False)
            keys["payload"] = f"{TIMESTAMP}{text}" if has_time else text
        else:
            size = len(message) // 2
            if kind == RANDOM_TEXT:
                size = texts.number(element, "mqtt.message_type_fixed_length", "1024")
            else:
                self._say(element, "payload: has texts; messages have as many bytes")
            keys["size"] = size + (TIMESTAMP_BYTES if has_time else 0)
        keys["qos"] = qos = self._qos(element)
        if texts.is_on(element, "mqtt.retained_message"):
            keys["retain"] = True
        return keys | ({"window": 1} if qos else {})

    def _qos(self, element: Element) -> int:
        qos = self.texts.number(element, "mqtt.qos_level")
        if qos > 2:
            raise self.texts.unfit(element, "mqtt.qos_level", str(qos), "is 0, 1 or 2")
        return qos

    def _filled(self, topic: str, element: Element, group: _Group) -> str:
        return self.texts.template(topic, element, group.columns, is_topic=True)


def _is_timer(element: Element) -> bool:
    return element.tag in TIMERS or element.tag == THROUGHPUT
