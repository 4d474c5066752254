"""Stages: connect, publish, hold and disconnect, one after the other. The docstrings are the
reference that users read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from pubstorm.contract.commands import ClientsChange, change_words, unique_name
from pubstorm.quantities import (
    SECOND_NS,
    PartOf,
    QuantityField,
    UnfitError,
    count,
    write_count,
    write_share,
)
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.faults import Fault
from pubstorm.scenario.fields import (
    ClientsOrNone,
    ClientsOrPart,
    Duration,
    Factor,
    Parallelism,
    PathText,
    PositiveDuration,
    Rate,
    RateOrZero,
    Share,
    Text,
)


class StageKeys(Part):
    """Keys that all stages have."""

    name: Text | None = None
    """Name of the stage. Default: its key, such as `publish`."""
    populations: tuple[Text, ...] | None = None
    """Populations, or shares of them, that take part. Default: all."""


class Ramp(StageKeys):
    """Keys of stages that start or end connections."""

    over: PositiveDuration | None = None
    """Time over which the clients connect or disconnect, at an even rate, however many they are:
    one of `over` and `rate`."""

    @model_validator(mode="before")
    @classmethod
    def check_one_speed(cls, value: object) -> object:
        """Makes sure that there is one speed at most."""
        if isinstance(value, Mapping) and None not in (value.get("rate"), value.get("over")):
            raise UnfitError("rate and over", "is one of them")
        return value


EVERY = ""
"""Stands for every population of a stage."""


def _by_population(value: object) -> object:
    return value if isinstance(value, Mapping) or value is None else {EVERY: value}


@dataclass(frozen=True, slots=True)
class _OrOneForAll:
    """The JSON Schema of a mapping by population, or one value for every one."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        by_population = handler(schema)
        one = by_population["additionalProperties"]
        return {"title": "clients", "anyOf": [one, by_population]}


class Connect(Ramp):
    """Connects and subscribes clients, and waits until all are ready or given up."""

    rate: Rate | None = None
    """Connections started a second. Default: as parallelism allows."""
    parallelism: Parallelism | None = None
    """Connections under way at once. Default: 100 without `rate` and `over`, else no limit."""
    timeout: PositiveDuration = 30 * SECOND_NS
    """Longest wait without progress: since the last connection was started, or since the number of
    ready clients last grew. In any case the stage ends after three times as long, and 0.1 s for
    each client."""
    clients: Annotated[
        Annotated[Mapping[Text, ClientsOrPart], _OrOneForAll()] | None,
        BeforeValidator(_by_population),
    ] = None
    """Active clients after the stage: a number or a share such as `50%` for each of its
    populations, or a mapping from population to a number or share. Clients with the lowest numbers
    connect first. Default: all."""


class Change(Part):
    """A change of a population in a publish or hold stage: exactly one of `add`, `remove`,
    `migrate` and `rate`. In a publish stage each begins a phase that is evaluated by itself, and
    only there is a `rate`."""

    at: Duration
    """Time after the start of the stage."""
    population: Text
    """The population. One with shares changes in percent, or by one share."""
    add: ClientsOrPart | None = None
    """Number of clients that join, or a share of the population such as `50%`."""
    remove: ClientsOrPart | None = None
    """Number of clients that leave, or a share of the population. The last that joined leave
    first."""
    migrate: ClientsOrPart | None = None
    """Number of clients whose open connections of QUIC change to another port of this host, or a
    share of the population. The first that joined change first. Needs targets over QUIC."""
    rate: Factor | None = None
    """Factor of the rate of all its clients: 2 doubles it, 0 pauses them."""
    over: Duration = 0
    """Time over which clients join, leave or migrate."""
    name: Text | None = None
    """Name of the phase. Default: what changes, such as `+500 device`."""

    @property
    def phase(self) -> str:
        """Name of the phase that begins with it, unless the stage has another one of that name."""
        if self.name is not None:
            return self.name
        kind, amount = self.of_clients
        if amount is None:
            return change_words("rate", 1.0 if self.rate is None else self.rate, self.population)
        return change_words(kind, amount, self.population)

    @property
    def of_clients(self) -> tuple[ClientsChange, int | PartOf | None]:
        """Its kind and its clients; without clients it is a change of the rate."""
        if self.add is not None:
            return "add", self.add
        return ("migrate", self.migrate) if self.remove is None else ("remove", self.remove)


class RatePoint(Part):
    """The rate at an instant: one of `factor` and `rate`. Two points of one instant are a step."""

    at: Duration
    """Time after the start of the stage."""
    factor: Factor | None = None
    """Factor of the rate of each client: 2 doubles it."""
    rate: RateOrZero | None = None
    """Messages a second of all clients of the stage together, as many as are active at its
    start."""


class Sine(Part):
    """Rates along a sine, which begins at its lowest."""

    period: PositiveDuration
    """Time from one lowest rate to the next."""
    low: Factor = 0.0
    """Lowest factor of the rates."""
    high: Factor
    """Highest factor of the rates."""

    def rules(self) -> Iterator[Finding]:
        """Yields factors in the wrong order."""
        if self.low > self.high:
            found = f"found low {self.low:g} above high {self.high:g}"
            yield ("low",), f"{found}, allowed is up to high", None


class RateProfile(Part):
    """Rates of all publications of a stage over time: one of `points`, `sine` and `csv`."""

    points: tuple[RatePoint, ...] = ()
    """Points, in order. Between two points the rate is on a line; before the first and after the
    last it stays the same."""
    sine: Sine | None = None
    """A sine."""
    csv: PathText | None = None
    """A file of comma-separated values with a line of headings, by its path from the folder of the
    scenario file. It has the columns `time`, in seconds from any instant, and `rate`, in messages a
    second of all clients together, or `factor`. The first row is the start of the stage."""
    factor: Factor = 1.0
    """Factor of all rates of the profile; a search can vary it."""


class ClientPoint(Part):
    """The clients at an instant. Two points of one instant are a step."""

    at: Duration
    """Time after the start of the stage."""
    clients: ClientsOrNone
    """Active clients: a number, or a share of the population such as `50%`."""


class ClientSine(Part):
    """Clients along a sine, which begins at its lowest."""

    period: PositiveDuration
    """Time from one lowest number to the next."""
    low: Share = 0.0
    """Lowest share of the clients of the population."""
    high: Share = 1.0
    """Highest share of the clients of the population."""

    def rules(self) -> Iterator[Finding]:
        """Yields shares in the wrong order."""
        if self.low > self.high:
            found = f"found low {write_share(self.low)} above high {write_share(self.high)}"
            yield ("low",), f"{found}, allowed is up to high", None


class ClientProfile(Part):
    """Active clients of a population over time: one of `points`, `sine` and `csv`."""

    points: tuple[ClientPoint, ...] = ()
    """Points, in order. Between two points the clients are on a line; before the first and after
    the last they stay the same."""
    sine: ClientSine | None = None
    """A sine."""
    csv: PathText | None = None
    """A file of comma-separated values with a line of headings, by its path from the folder of the
    scenario file. It has the columns `time`, in seconds from any instant, and `clients`, or `share`
    from 0 to 1. The first row is the start of the stage."""
    factor: Factor = 1.0
    """All numbers of the profile are so many times as high; a search can vary it."""


_MESSAGES = QuantityField(count, 1, 10**12)


@dataclass(frozen=True, slots=True)
class MessagesOfEach:
    """A number of messages of each client, such as `100/client`."""

    number: int
    """At least 1."""

    def __str__(self) -> str:
        return f"{write_count(self.number)}/client"


def messages(value: object) -> int | MessagesOfEach:
    """A number of messages of all clients, or of each."""
    if isinstance(value, MessagesOfEach):
        return value
    number, slash, unit = value.partition("/") if isinstance(value, str) else (value, "", "")
    try:
        if slash and unit.strip() == "client":
            return MessagesOfEach(int(_MESSAGES.read(number)))
        return int(_MESSAGES.read(value))
    except UnfitError as unfit:
        raise UnfitError(value, f"{unfit.allowed}, or of each client such as 100/client") from None


Messages = Annotated[
    int | MessagesOfEach,
    PlainValidator(messages),
    WithJsonSchema(
        {"title": "messages", "type": ["integer", "string"], "examples": ["10k", "100/client"]}
    ),
]


class Publish(StageKeys):
    """Publishes for a time, or a number of messages, then drains; a plain duration is the time."""

    SHORT_FOR: ClassVar[str | None] = "for"

    duration: PositiveDuration = Field(default_factory=int, alias="for")
    """Duration; with `messages` the longest. Default with `messages`: twice the time by the rates,
    and 30 s; with `rate: max` 10 minutes more, and 1 s for each 1,000 messages."""
    messages: Messages | None = None
    """Messages that all clients send together, such as `10k`, or each, such as `100/client`. The
    stage ends when they are sent. Populations share a number in proportion to their rates, or with
    `rate: max` to their clients. Needs the same clients and the same load all the time."""
    rate_profile: RateProfile | None = None
    """Rates over time. Default: the same rates all the time."""
    client_profiles: Mapping[Text, ClientProfile] = Field(default_factory=dict)
    """Active clients over time, by population or share. The clients of the other populations
    stay."""
    changes: tuple[Change, ...] = ()
    """Changes during the stage."""
    faults: tuple[Fault, ...] = ()
    """Faults during the stage."""

    @model_validator(mode="before")
    @classmethod
    def check_length(cls, value: object) -> object:
        """Makes sure that there is a time or a number of messages."""
        if isinstance(value, Mapping):
            given = [key for key in ("for", "messages") if value.get(key) is not None]
            if not given:
                raise UnfitError(None, "is a time such as for: 30s, or messages: 10k")
        return value


class Hold(StageKeys):
    """Keeps the connections and publishes nothing; a plain duration is the time."""

    SHORT_FOR: ClassVar[str | None] = "for"

    duration: PositiveDuration = Field(alias="for")
    """Duration."""
    client_profiles: Mapping[Text, ClientProfile] = Field(default_factory=dict)
    """Active clients over time, by population or share. The clients of the other populations
    stay."""
    changes: tuple[Change, ...] = ()
    """Clients that join, leave or migrate during the stage."""
    faults: tuple[Fault, ...] = ()
    """Faults during the stage."""


class Disconnect(Ramp):
    """Disconnects clients."""

    rate: Rate | None = None
    """Disconnections a second. Default: all at once."""


class Stage(Part):
    """A part of the run: one of the keys `connect`, `publish`, `hold` and `disconnect`."""

    connect: Connect | None = None
    """Connects and subscribes clients."""
    publish: Publish | None = None
    """Publishes for a time, then drains."""
    hold: Hold | None = None
    """Keeps the connections and publishes nothing."""
    disconnect: Disconnect | None = None
    """Disconnects clients."""

    @model_validator(mode="before")
    @classmethod
    def check_verb(cls, value: object) -> object:
        """Makes sure that there is exactly one verb; without a value it means its defaults."""
        if isinstance(value, str) and value in cls.model_fields:
            return {value: {}}
        if not isinstance(value, dict) or len(value) != 1:
            found = "keys " + ", ".join(map(str, value)) if isinstance(value, dict) else value
            raise UnfitError(found, f"is one of {', '.join(cls.model_fields)}")
        return {verb: {} if step is None else step for verb, step in value.items()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Adds that there is exactly one verb, and that it can stand alone."""
        full = super().__get_pydantic_json_schema__(schema, handler)
        one = {**full, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [one, {"enum": ["connect", "disconnect"]}]}

    @property
    def step(self) -> Connect | Publish | Hold | Disconnect:
        """The action of the stage."""
        step = self.connect or self.publish or self.hold or self.disconnect
        if step is None:
            raise ValueError("a stage has exactly one verb")
        return step

    @property
    def verb(self) -> str:
        """The name of what is done."""
        return type(self.step).__name__.lower()

    @property
    def name(self) -> str:
        """The name of the stage."""
        return self.step.name or self.verb

    @property
    def happenings(self) -> tuple[tuple[str, Change | Fault], ...]:
        """Its changes and faults in the order of time, each with a name of its own; one that is
        taken gets a number."""
        both: list[Change | Fault] = [*self.changes, *self.faults]
        in_time = sorted(both, key=lambda happening: happening.at)
        named: list[tuple[str, Change | Fault]] = []
        for happening in in_time:
            taken = [self.name, *(name for name, _ in named)]
            named.append((unique_name(happening.phase, taken), happening))
        return tuple(named)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the stage, as written."""
        return self.step.changes if isinstance(self.step, Publish | Hold) else ()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the stage, as written."""
        return self.step.faults if isinstance(self.step, Publish | Hold) else ()

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of what begins with its changes and faults, in the order of time."""
        return tuple(name for name, _ in self.happenings)

    @property
    def populations(self) -> tuple[str, ...] | None:
        """Populations that take part; None for all."""
        return self.step.populations


DEFAULT_STAGES = (
    Stage(connect=Connect()),
    Stage(publish=Publish.model_validate("10s")),
)
