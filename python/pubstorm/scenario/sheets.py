"""Plans of data sheets: the cells that a sheet measures, in the order of their worth. A plan is a
YAML file that comes with Pubstorm, or one of a user. All problems of a file are reported together,
each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from pubstorm.contract.capabilities import CAPABILITIES, MQTT, Capabilities, ProtocolName
from pubstorm.contract.target import parse_target
from pubstorm.errors import ScenarioError, UsageError
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import UnfitError, Unit
from pubstorm.result.datasheet import Better, Section
from pubstorm.scenario.base import Part, broken_rules
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import Flag, Name, SharePositive, SmallCount, SomeText, Text
from pubstorm.scenario.load import mapping_in, named_file, text_of
from pubstorm.scenario.problems import explain
from pubstorm.scenario.recipes import problems_of

BEST, VERDICT = "search.best", "verdict"
"""Figures that are no metric: the answer of a search, and the verdict of each step of a sweep."""
Need = Literal["started", "tls", "websocket", "persistent", "mqtt"]
"""Needs of a cell: the sheet starts the broker, it serves a transport, or clients speak MQTT."""


class PlannedFigure(Part):
    """A figure of a cell: a metric of its runs, or a quotient of two."""

    SHORT_FOR: ClassVar[str | None] = "of"

    name: Text = ""
    """Its name in the sheet. Default: the metric."""
    of: SomeText
    """A metric as in thresholds; `search.best`, the answer of the search in the unit of the whole
    load; or `verdict`, of each step of a sweep. In a search, metrics are those of the trials that
    passed with at least 70 % of the answer."""
    per: SomeText | None = None
    """Another metric, which divides it."""
    times: SmallCount = 1
    """Factor of the figure."""
    unit: Unit | None = None
    """Unit of a quotient; `us` of a quotient in seconds. Default: that of `of`."""
    better: Better = ""
    """`more` or `less`, if the figure has a good direction."""

    def rules(self) -> Iterator[Finding]:
        """Yields figures that are none."""
        for key, written in (("of", self.of), ("per", self.per)):
            if written in (None, BEST) or (key == "of" and written == VERDICT):
                continue
            try:
                parse_expression(written)
            except UnfitError as unfit:
                yield (key,), str(unfit), unfit.hint


class PlannedSlope(Part):
    """A line through readings at several numbers of objects: its slope is what an object takes."""

    name: SomeText
    """Its name in the sheet."""
    of: SomeText
    """Metric of a monitor, without its span."""
    at: Mapping[str, int]
    """The stages that hold the load steady, at least four, with the number of objects in each."""
    back: SomeText | None = None
    """The stage after the objects are gone: the sheet says what is given back."""
    many: Text = ""
    """Words such as `1M sessions`, for which the figure is extrapolated."""

    def rules(self) -> Iterator[Finding]:
        """Yields a line through too few numbers."""
        if len(set(self.at.values())) < POINTS_MIN:
            found = f"found {len(set(self.at.values()))} numbers of objects"
            yield ("at",), f"{found}, needed are {POINTS_MIN}", "a line needs points"


POINTS_MIN = 4
"""Numbers of objects from which a line is fitted."""


class PartOfAnswer(Part):
    """A part of the answer of a cell that comes before."""

    of: Name
    """The cell; its scenario has a search."""
    part: SharePositive
    """The part, such as `50%`."""


class PlannedCell(Part):
    """A ready scenario, with what changes it and the figures that it gives."""

    cell: Name
    """Name of the cell."""
    section: Section
    """Section of the sheet that shows it."""
    title: SomeText
    """Description of the load."""
    scenario: Text = ""
    """Name of a ready scenario, or a file, with a `search` or a `sweep`."""
    probe: Literal["", "limits"] = ""
    """Instead of a scenario: `limits` finds limits by trying."""
    values: Mapping[str, Any] = Field(default_factory=dict)
    """Values by the names that the plan has for paths of scenarios."""
    set: Mapping[str, Any] = Field(default_factory=dict)
    """Values by path, as for `--set`."""
    start: PartOfAnswer | None = None
    """First value of the search."""
    load: PartOfAnswer | None = None
    """Rate of the publishers."""
    warm_up: Flag = True
    """The broker warms up first, for as long as its recipe says, if the runs share it."""
    needs: tuple[Need, ...] = ()
    """Properties of the broker, and the protocol, without which the cell is left out."""
    optional: tuple[Name, ...] = ()
    """Populations without which the cell is played if the protocol or the broker cannot have them;
    without others it is left out."""
    by_command: Mapping[str, Any] = Field(default_factory=dict)
    """Faults by path that take the place of those of the scenario where `--restart-command`
    restarts a broker that the sheet did not start. The sheet adds the command."""
    soaks: Text = ""
    """Path of the length that `--soak` sets."""
    figures: tuple[PlannedFigure, ...] = ()
    """Figures of the cell."""
    slope: PlannedSlope | None = None
    """A line through the stages of its run."""
    says: Text = ""
    """Its part of the sentence that opens the sheet, with `{}` for the first figure, such as
    `holds {} messages a second`."""
    anchors: Flag = False
    """The first figure is the anchor once more: its spread is the drift of the machine."""
    is_last: Flag = False
    """The sheet keeps time for it, and plays it last."""

    def rules(self) -> Iterator[Finding]:
        """Yields a cell that plays nothing or two things, or that gives nothing."""
        if bool(self.scenario) == bool(self.probe):
            yield (), f"found the cell {self.cell!r} with none or both of scenario and probe", None
        if self.scenario and not self.figures and self.slope is None:
            yield (), f"found the cell {self.cell!r} without figures and slope", None


class SheetPlan(Part):
    """The cells of a data sheet."""

    description: Text = ""
    """One line about the plan."""
    anchor: Name
    """The cell whose first figure is the anchor."""
    values: Mapping[str, tuple[SomeText, ...]] = Field(default_factory=dict)
    """Names for paths of scenarios, which `values` of the cells use."""
    cells: tuple[PlannedCell, ...]
    """The cells in the order of playing."""

    def rules(self) -> Iterator[Finding]:
        """Yields names that mean no cell or two, and cells that refer to later ones."""
        before: set[str] = set()
        for number, cell in enumerate(self.cells):
            place = ("cells", number)
            if cell.cell in before:
                yield (*place, "cell"), f"found the cell {cell.cell!r} twice", None
            for key, part in (("start", cell.start), ("load", cell.load)):
                if part is not None and part.of not in before:
                    message = f"found {part.of!r}, which is no cell before {cell.cell!r}"
                    yield (*place, key, "of"), message, "a cell uses answers that are known"
            for name in cell.values:
                if name not in self.values:
                    allowed = ", ".join(self.values) or "none"
                    yield (*place, "values", name), f"found {name!r}, allowed are {allowed}", None
            before.add(cell.cell)
        if self.anchor not in before:
            yield ("anchor",), f"found {self.anchor!r}, which is no cell", None

    def overrides(self, cell: PlannedCell) -> dict[str, Any]:
        """Returns the values of a cell by path."""
        named = {path: value for name, value in cell.values.items() for path in self.values[name]}
        return {**named, **cell.set}


def load_plan(path: FilePath) -> SheetPlan:
    """Reads a plan; raises ScenarioError with every problem."""
    return parse_plan(text_of(path, PLAN_HINT), str(path))


def parse_plan(text: str, file: str) -> SheetPlan:
    """Reads a plan from text that came from `file`."""
    document, plan = mapping_in(text, file, SheetPlan, PLAN_HINT), None
    try:
        plan = SheetPlan.model_validate(document.data)
        findings = [*broken_rules(plan)]
    except ValidationError as error:
        findings = explain(error, SheetPlan)
    problems = [*problems_of(document, file, findings)]
    if plan is None or problems:
        raise ScenarioError(problems)
    return plan


def find_plan(name: str) -> FilePath:
    """Returns the file that a user means by a path or by the name of a plan of Pubstorm."""
    return named_file(name, "sheets", "found no plan")


PLAN_HINT = "the folder sheets of Pubstorm has a plan to start from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of a protocol for the cells of a sheet, whose scenarios have those of MQTT."""

    protocol: ProtocolName
    published: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Keys of a publication of QoS 0, and of QoS 1."""
    subscribed: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Keys of a subscription of QoS 0, and of QoS 1."""
    persistent: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of a publication of QoS 1 if the broker keeps its state on the disk."""
    group: str
    """Key with the name of a group."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a subscription whose messages are kept while its client is away, with {population}
    and {place} for its place there."""
    stream: str | None = None
    """Name of the stream that stores messages of QoS 1; None: the protocol needs none."""
    words: tuple[str, ...]
    """Meanings of the words of MQTT, each in a sentence."""

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol."""
        return CAPABILITIES[self.protocol]

    def lacks(self, clients: Mapping[str, Any]) -> str | None:
        """Returns the reason why a population of MQTT does not exist in the protocol; None if it
        does."""
        qos = qos_of(clients)
        if qos > 1:
            return f"{self.can.title} has no QoS {qos}"
        if any(flow.get("retain") for flow in _flows(clients)):
            return f"{self.can.title} has no retained messages"
        if clients.get("session") == "persistent" and not clients.get("subscriptions"):
            return f"{self.can.title} has no session without a subscription"
        return None

    def without(self, populations: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the populations of MQTT that do not exist in the protocol, with the reason."""
        found = {name: self.lacks(clients) for name, clients in populations.items()}
        return {name: why for name, why in found.items() if why is not None}

    def spoken(self, populations: Mapping[str, Any], *, persistent: bool) -> dict[str, Any]:
        """Returns the keys of a scenario with the populations in the protocol, without those that
        do not exist there. `persistent`: the broker keeps its state on the disk."""
        found = {
            name: self._clients(name, clients, persistent=persistent)
            for name, clients in populations.items()
            if self.lacks(clients) is None
        }
        subjects = {
            _first(flow["topic"]): None
            for clients in found.values()
            for flow in (*clients.get("publications", ()), *clients.get("subscriptions", ()))
            if "stream" in flow
        }
        if not subjects:
            return {"populations": found}
        storage = "file" if persistent else "memory"
        streams = {self.stream: {"subjects": [*subjects], "storage": storage}}
        # Streams deliver again after 3 s, which must be less than the drain.
        return {"populations": found, "topology.streams": streams, "drain": "5s"}

    def _clients(
        self, name: str, clients: Mapping[str, Any], *, persistent: bool
    ) -> dict[str, Any]:
        is_kept = clients.get("session") == "persistent"
        found = {key: value for key, value in clients.items() if key not in OF_MQTT}
        found["protocol"] = self.protocol
        for key in ("publications", "subscriptions"):
            if key not in clients:
                continue
            found[key] = []
            for place, flow in enumerate(_flows(clients, (key,))):
                qos = flow.get("qos", 0)
                own = (self.published if key == "publications" else self.subscribed)[qos]
                more: dict[str, Any] = {}
                if key == "publications" and qos and persistent:
                    more = {**self.persistent}
                elif key == "subscriptions" and is_kept:
                    around = {"population": name, "place": place, "n": "{n}"}
                    more = {
                        kept: value.format(**around) if isinstance(value, str) else value
                        for kept, value in self.kept.items()
                    }
                found[key].append({**self._named(flow), **own, **more})
        return found

    def _named(self, flow: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a flow with its name, and its group, in the words of the protocol."""
        names, topic = self.can.names, flow["topic"]
        assert names is not None, "the protocol has names"
        group = {}
        if topic.startswith(SHARED):
            _, name, topic = topic.split("/", 2)
            group = {self.group: name}
        kept = {key: value for key, value in flow.items() if key not in {"topic", "qos"}}
        return {**names.flow(topic), **group, **kept}


def qos_of(clients: Mapping[str, Any]) -> int:
    """Returns the highest QoS of the flows of a population of MQTT as it is written."""
    return max((flow.get("qos", 0) for flow in _flows(clients)), default=0)


def _flows(
    clients: Mapping[str, Any], keys: Iterable[str] = ("publications", "subscriptions")
) -> Iterator[Mapping[str, Any]]:
    """Yields the flows of a population as mappings."""
    for flow in (flow for key in keys for flow in clients.get(key, ())):
        yield flow if isinstance(flow, Mapping) else {"topic": flow}


def _first(subject: str) -> str:
    """Returns the subject of NATS that has all those with the same first token."""
    first, separator, _ = subject.partition(".")
    return f"{first}.>" if separator else first


SHARED = "$share/"
OF_MQTT = ("session", "version", "end")
"""Keys of a population that only MQTT has, and without which a cell is the same load."""
DIALECTS: Mapping[str, Dialect] = {
    dialect.can.title: dialect
    for dialect in (
        Dialect(
            protocol="amqp",
            published=({}, {"confirm": True}),
            subscribed=({"acknowledge": "none"}, {"acknowledge": "each"}),
            persistent={"persistent": True},
            group="queue",
            kept={"queue": "{population}-{n}-{place}", "auto_delete": False},
            words=(
                "a topic is a routing key of amq.topic, a subscription a queue with its consumer",
                "QoS 1: the broker confirms each message, and consumers acknowledge each delivery",
                "QoS 0: without confirms, and the broker forgets a delivery as it sends it",
                "a persistent session is a durable queue without auto_delete",
                "a shared group is a queue that its members share",
            ),
        ),
        Dialect(
            protocol="nats",
            published=({}, {"stream": "SHEET"}),
            subscribed=({}, {"stream": "SHEET"}),
            group="group",
            stream="SHEET",
            words=(
                "a topic is a subject",
                "QoS 1: JetStream stores and acknowledges each message, and each client has a "
                "durable consumer, also where the session is clean",
                "QoS 0: core NATS",
                "a shared group is a queue group",
            ),
        ),
    )
}
"""Protocols other than MQTT in which a sheet can be played, by their titles."""


def dialect_of(protocol: str | None, target: str | None) -> Dialect | None:
    """Returns the words of a protocol by its title, or of the protocol of an address; None for
    MQTT. Raises UsageError for another one, or two that differ."""
    address = None if target is None else parse_target(target.split()[0]).can.title
    if protocol is not None and address not in {None, protocol}:
        raise UsageError(f"found {protocol} with {target}", "leave out --protocol")
    title = protocol or address or MQTT.title
    if title not in {MQTT.title, *DIALECTS}:
        allowed = ", ".join((MQTT.title, *DIALECTS))
        raise UsageError(f"found {target}, a data sheet is of {allowed}")
    return DIALECTS.get(title)
