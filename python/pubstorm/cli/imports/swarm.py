"""Scenarios of HiveMQ Swarm: client groups become populations, and stages become stages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from pubstorm.cli.imports.plans import population_name, read_plan
from pubstorm.cli.imports.scenario import (
    ImportedClients,
    ImportedScenario,
    Keys,
    Plain,
    address,
    literal,
    milliseconds,
    pace,
)
from pubstorm.cli.imports.words import printable
from pubstorm.contract.template import RANGE_VALUES_MAX
from pubstorm.errors import UsageError

ROOT = "scenario"
BROKERS = {"broker": "mqtt", "websocket-broker": "ws"}
READ = {
    "scenario": {"brokers", "clientGroups", "topicGroups", "subscriptions", "stages"},
    "brokers": {*BROKERS},
    "broker": {"id", "address", "port"},
    "websocket-broker": {"id", "address", "port", "path"},
    "clientGroups": {"clientGroup"},
    "clientGroup": {"id", "clientIdPattern", "count", "mqttVersion", "mqtt"},
    "mqtt": {"version"},
    "topicGroups": {"topicGroup"},
    "topicGroup": {"id", "topicNamePattern", "count"},
    "subscriptions": {"subscription"},
    "subscription": {"id", "topicGroup", "topicFilter", "wildCard"},
    "stages": {"stage"},
    "stage": {"id", "lifeCycle", "expectedDuration"},
    "lifeCycle": {
        *("id", "clientGroup", "rampUp", "delay", "connect", "subscribe", "publish", "disconnect"),
    },
    "rampUp": {"duration"},
    "delay": {"duration", "spread"},
    "connect": {"broker", "cleanStart", "sessionExpiry", "timeOut", "keepAlive", "autoReconnect"},
    "subscribe": {"to", "subscription", "qos", "expectedDuration"},
    "publish": {
        *("topicGroup", "qos", "count", "rate", "retain", "message", "expectedDuration"),
        "payloadGeneratorType",
    },
    "disconnect": {"expectedDuration"},
}
"""Attributes and elements with an equal, by the element around them."""
SCHEMA = "{http://www.w3.org/2001/XMLSchema-instance}"
VERSIONS = {"3": "3.1.1", "5": "5"}
PIECE = re.compile(r"(\[0-9\]|\\d)(?:\{([0-9]{1,2})\})?")
"""Digits of a pattern."""
PATTERN = re.compile(r"[\[\](){}*+?|\\^]")
"""Characters of a pattern that are no text."""
DIGITS_MAX = 15
DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h)?")
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)/([0-9]{0,9})(ms|s|m|h)")
GENERATED_BYTES = 256
"""Size of the messages of a payload generator."""


@dataclass(slots=True)
class _ClientGroup:
    """A client group, as the life cycles of all stages fill it."""

    clients: ImportedClients
    number: int
    has_connect: bool = False
    publish_stage: str = ""
    """Stage of its first publish command; empty: none."""


@dataclass(slots=True)
class _SwarmStage:
    """The commands of all life cycles of a stage."""

    name: str
    connects: list[tuple[str, int]] = field(default_factory=list)
    """Populations, each with the milliseconds of its ramp-up."""
    publishes: list[str] = field(default_factory=list)
    length_ms: int = 0
    wait_ms: int = 0
    disconnects: list[tuple[str, int]] = field(default_factory=list)


def read(path: str) -> ImportedScenario:
    """Returns the scenario of a file of HiveMQ Swarm. Raises UsageError."""
    return _Swarm(path, read_plan(path, ROOT)).imported()


class _Swarm:
    """A file of HiveMQ Swarm, with remarks about the parts without an equal."""

    def __init__(self, path: str, root: Element) -> None:
        self.path, self.root = path, root
        self.remarks: list[str] = []
        for element in root.iter():
            self._leave(element)
        self.brokers = dict(self._brokers())
        self.topics = {each.get("id", ""): each for each in root.iterfind(".//topicGroup[@id]")}
        self.subscriptions = {
            each.get("id", ""): each for each in root.iterfind(".//subscription[@id]")
        }
        self.groups = dict(self._groups())

    def _leave(self, element: Element) -> None:
        """Notes attributes and elements without an equal."""
        known = READ.get(element.tag)
        if known is None:
            return
        names = [*(name for name in element.attrib if not name.startswith(SCHEMA))]
        for name in dict.fromkeys([*names, *(each.tag for each in element)]):
            if name not in known:
                of = element.get("id") or element.tag
                shown = f"{printable(str(name)[:60])} of {printable(of[:60])}"
                self.remarks.append(f"# without {shown}: a scenario has no equal")

    def imported(self) -> ImportedScenario:
        """Returns the scenario. Raises UsageError."""
        stages = [self._stage(each) for each in self.root.iterfind("stages/stage")]
        written = [each for stage in stages for each in self._written(stage)]
        clients = [each.clients for each in self.groups.values() if each.has_connect]
        if not clients:
            raise UsageError(
                f"found no client group that connects in {self.path}",
                "a life cycle has <connect/> and names a client group",
            )
        for group in self.groups.values():
            if not group.has_connect:
                self._say(group.clients.name, "no life cycle connects this client group")
        comments = [f"# {printable(self.path)}", *dict.fromkeys(self.remarks)]
        return ImportedScenario(comments, clients, stages=written)

    def _brokers(self) -> Iterator[tuple[str, str]]:
        for element in self.root.iterfind("brokers/*"):
            if (scheme := BROKERS.get(element.tag)) is None:
                continue
            host = (element.findtext("address") or "localhost").strip()
            if re.fullmatch(r"[\w.:\[\]-]{1,255}", host) is None:
                raise self._unfit(element, "address", host, "is a host")
            port = self._number(element, "port", element.findtext("port"), 1883)
            path = (element.findtext("path") or "/mqtt").strip() if scheme == "ws" else ""
            path = path if not path or path.startswith("/") else f"/{path}"
            yield element.get("id", ""), address(scheme, host, port, path)

    def _groups(self) -> Iterator[tuple[str, _ClientGroup]]:
        taken: list[str] = []
        for element in self.root.iterfind("clientGroups/clientGroup"):
            name = population_name(element.get("id", ""), taken)
            taken.append(name)
            number = self._number(element, "count", element.findtext("count"), 1)
            found = element.findtext("mqttVersion") or element.findtext("mqtt/version") or "3"
            version = VERSIONS.get(found.strip())
            if version is None:
                raise self._unfit(element, "version", found, "is 3 or 5")
            pattern = element.findtext("clientIdPattern") or ""
            keys: Keys = {"clients": number}
            if pattern:
                keys["client_id"] = self._pattern(pattern, "{n}")
            keys["version"] = version
            clients = ImportedClients(name, [*self.brokers.values()], keys)
            yield element.get("id", ""), _ClientGroup(clients, number)

    def _stage(self, element: Element) -> _SwarmStage:
        stage = _SwarmStage(element.get("id", ""))
        for cycle in element.iterfind("lifeCycle"):
            group = self.groups.get(cycle.get("clientGroup", ""))
            if group is None:
                found = cycle.get("clientGroup") or "nothing"
                raise self._unfit(cycle, "clientGroup", found, "is the id of a client group")
            self._cycle(stage, cycle, group)
        return stage

    def _cycle(self, stage: _SwarmStage, cycle: Element, group: _ClientGroup) -> None:
        """Reads the commands of a life cycle."""
        ramp_ms = 0
        name = group.clients.name
        for command in cycle:
            if command.tag == "rampUp":
                ramp_ms = self._duration_ms(command, "duration")
            elif command.tag == "delay":
                delay_ms = self._duration_ms(command, "duration")
                if command.get("spread"):
                    ramp_ms = delay_ms
                else:
                    stage.wait_ms = max(stage.wait_ms, delay_ms)
            elif command.tag == "connect":
                stage.connects.append((name, ramp_ms))
                self._connect(command, group)
                ramp_ms = 0
            elif command.tag == "subscribe":
                self._subscribe(command, group)
            elif command.tag == "publish":
                self._publish(command, group, stage)
                if ramp_ms:
                    self._say(f"ramp-up of {name}", "publishers are spread over their interval")
            elif command.tag == "disconnect":
                stage.disconnects.append((name, ramp_ms))

    def _connect(self, command: Element, group: _ClientGroup) -> None:
        clients, keys = group.clients, group.clients.keys
        if group.has_connect:
            self._say(
                f"a further connect of {clients.name}", "its clients connect as the first time"
            )
            return
        group.has_connect = True
        names = (command.get("broker") or "").split()
        targets = [self.brokers[name] for name in names if name in self.brokers]
        clients.target = targets or [*self.brokers.values()]
        if not clients.target:
            raise self._unfit(command, "broker", "nothing", "are brokers with an address")
        keys["keep_alive"] = self._seconds(command, "keepAlive", 60_000)
        keys["connect_timeout"] = self._seconds(command, "timeOut", 60_000)
        if command.get("cleanStart", "true") == "false":
            keys["session"] = Plain("persistent")
        if command.get("sessionExpiry") and keys["version"] == "5":
            keys["session_expiry"] = self._seconds(command, "sessionExpiry", 0)
        if command.get("autoReconnect", "false") != "true":
            keys["reconnect"] = Plain("never")

    def _subscribe(self, command: Element, group: _ClientGroup) -> None:
        names = (command.get("to") or command.get("subscription") or "").split()
        for name in names:
            found = self.subscriptions.get(name)
            if found is None:
                raise self._unfit(command, "to", name, "is the id of a subscription")
            text = (found.findtext("topicFilter") or "").strip()
            if text:
                topic = literal(text)
            else:
                topics = self._topic_group(found, found.findtext("topicGroup"))
                is_wild = (found.findtext("wildCard") or "").strip() == "true"
                topic = self._wild(topics) if is_wild else self._topic(topics, group)
            keys: Keys = {"topic": topic, "qos": self._qos(command)}
            if keys not in group.clients.subscriptions:
                group.clients.subscriptions.append(keys)

    def _publish(self, command: Element, group: _ClientGroup, stage: _SwarmStage) -> None:
        name = group.clients.name
        count = self._number(command, "count", command.get("count"), 1)
        period_ms = self._period_ms(command)
        topics = self._topic_group(command, command.get("topicGroup"))
        keys: Keys = {"topic": self._topic(topics, group), **pace(period_ms)}
        generator, message = command.get("payloadGeneratorType"), command.get("message")
        if message and not generator:
            keys["payload"] = literal(message)
        else:
            keys["size"] = GENERATED_BYTES
            kind = printable((generator or "random")[:80])
            self._say(f"the payload generator {kind}", f"messages have {GENERATED_BYTES} bytes")
        keys["qos"] = self._qos(command)
        if command.get("retain") == "true":
            keys["retain"] = True
        if group.publish_stage not in {"", stage.name}:
            self._say(f"publish of {name} in {stage.name}", "its first publications are played")
        else:
            group.publish_stage = stage.name
            group.clients.publications.append(keys)
        if name not in stage.publishes:
            stage.publishes.append(name)
        if period_ms:
            stage.length_ms = max(stage.length_ms, math.ceil(count * period_ms))
        else:
            self._say(f"count {count} of {name}", "a stage has a time, and no number of messages")

    def _written(self, stage: _SwarmStage) -> Iterator[object]:
        """Yields the stages that stand for one of HiveMQ Swarm."""
        yield f"# stage {printable(stage.name)}"
        if stage.wait_ms:
            yield {"hold": milliseconds(stage.wait_ms)}
        for ramp_ms in dict.fromkeys(ramp for _, ramp in stage.connects):
            yield {"connect": self._part(stage.connects, ramp_ms)}
        if stage.publishes:
            keys: Keys = {"for": milliseconds(stage.length_ms) if stage.length_ms else Plain("30s")}
            every = [each.clients.name for each in self.groups.values() if each.publish_stage]
            if set(stage.publishes) != set(every):
                others = [
                    each.clients.name
                    for each in self.groups.values()
                    if each.has_connect and not each.publish_stage
                ]
                keys["populations"] = [*map(Plain, (*stage.publishes, *others))]
            yield {"publish": keys if len(keys) > 1 else keys["for"]}
        for ramp_ms in dict.fromkeys(ramp for _, ramp in stage.disconnects):
            yield {"disconnect": self._part(stage.disconnects, ramp_ms)}

    def _part(self, groups: list[tuple[str, int]], ramp_ms: int) -> Keys:
        names = list(dict.fromkeys(name for name, ramp in groups if ramp == ramp_ms))
        some = len(names) < sum(each.has_connect for each in self.groups.values())
        keys: Keys = {"populations": [*map(Plain, names)]} if some else {}
        return keys | ({"over": milliseconds(ramp_ms)} if ramp_ms else {})

    def _topic_group(self, element: Element, name: str | None) -> Element:
        found = self.topics.get((name or "").strip())
        if found is None:
            raise self._unfit(
                element, "topicGroup", name or "nothing", "is the id of a topic group"
            )
        return found

    def _topic(self, topics: Element, group: _ClientGroup) -> str:
        """Returns the topic that a client uses of a topic group: as many topics as clients are one
        for each, fewer are taken in turn by client, and more in turn by message."""
        number = self._number(topics, "count", topics.findtext("count"), 1)
        if number == group.number:
            variable = "{n}"
        elif number < group.number:
            variable = f"{{n%{max(number, 1)}}}"
        elif number <= RANGE_VALUES_MAX:
            variable = f"{{0..{number - 1}}}"
        else:
            variable = "{n}"
        if variable != "{n}" or number != group.number:
            shown = f"{number} topics for {group.number} clients"
            self.remarks.append(f"# {shown} of {group.clients.name}: {variable} chooses among them")
        return self._pattern(topics.findtext("topicNamePattern") or "", variable)

    def _wild(self, topics: Element) -> str:
        pattern = (topics.findtext("topicNamePattern") or "").strip()
        levels = pattern.split("/")
        return "/".join("+" if PATTERN.search(level) else literal(level) for level in levels)

    def _pattern(self, pattern: str, variable: str) -> str:
        """Returns the template of a pattern: its digits are a variable."""
        pieces = PIECE.split(pattern.strip())
        texts, widths = pieces[::3], [int(width or 1) for width in pieces[2::3]]
        if len(widths) not in {1, 2} or sum(widths) > DIGITS_MAX or any(map(PATTERN.search, texts)):
            if widths or PATTERN.search(pattern):
                shown = printable(pattern[:80])
                self.remarks.append(f"# the pattern {shown} is a number at the end of its text")
            start = PATTERN.split(pattern.strip())[0]
            return literal(start) + (variable if start != pattern.strip() else "")
        variables = [variable]
        if len(widths) == 2:
            variables = [f"{{n/{10 ** widths[1]}}}", f"{{n%{10 ** widths[1]}}}"]
        if max(widths) > 1:
            self.remarks.append("# numbers of patterns have no leading zeros")
        rest = [part for pair in zip(variables, texts[1:], strict=True) for part in pair]
        return "".join(
            part if number % 2 else literal(part) for number, part in enumerate((texts[0], *rest))
        )

    def _period_ms(self, command: Element) -> float:
        text = command.get("rate")
        if text is None:
            return 0
        found = RATE.fullmatch(text.strip())
        if found is None or not float(found[1]):
            raise self._unfit(command, "rate", text, "is a rate such as 1/10s")
        return int(found[2] or 1) * UNITS_MS[found[3]] / float(found[1])

    def _duration_ms(self, element: Element, name: str, default_ms: int = 0) -> int:
        text = element.get(name)
        if text is None:
            return default_ms
        found = DURATION.fullmatch(text.strip())
        if found is None:
            raise self._unfit(element, name, text, "is a duration such as 10s")
        return round(float(found[1]) * UNITS_MS[found[2] or "s"])

    def _seconds(self, element: Element, name: str, default_ms: int) -> Plain:
        return Plain(f"{-(-self._duration_ms(element, name, default_ms) // 1000)}s")

    def _qos(self, command: Element) -> int:
        qos = self._number(command, "qos", command.get("qos"), 0)
        if qos > 2:
            raise self._unfit(command, "qos", str(qos), "is 0, 1 or 2")
        return qos

    def _number(self, element: Element, name: str, text: str | None, default: int) -> int:
        found = (text or str(default)).strip()
        if re.fullmatch(r"[0-9]{1,12}", found) is None:
            raise self._unfit(element, name, found, "is a whole number")
        return int(found)

    def _say(self, subject: str, reason: str) -> None:
        self.remarks.append(f"# {printable(subject[:120])}: {reason}")

    def _unfit(self, element: Element, name: str, found: str, allowed: str) -> UsageError:
        of = f'<{element.tag} id="{printable(element.get("id", "")[:60])}">'
        return UsageError(f"found {name} {printable(found[:80])} in {of}, allowed {allowed}")
