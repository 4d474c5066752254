"""The lines between controller and agent besides plan and snapshot: commands in; greeting, failure
and farewell out. Changes of populations during a publish stage: their names, and the active clients
after them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count, groupby
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field, TypeAdapter

from pubstorm.contract import LATER, U62, U64, Value
from pubstorm.contract.plan import (
    AddClients,
    ChangeAction,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    MigrateClients,
    Plan,
    PlannedStage,
    RemoveClients,
)
from pubstorm.contract.snapshot import ClockState, Snapshot
from pubstorm.quantities import PartOf

CURVE_PUBLIC_KEY = "PUBSTORM_CURVE_PUBLIC_KEY"
"""Variable with a program's own public key, in the 40 characters of Z85."""
CURVE_SECRET_KEY = "PUBSTORM_CURVE_SECRET_KEY"
"""Variable with its secret key."""
CURVE_SERVER_KEY = "PUBSTORM_CURVE_SERVER_KEY"
"""Variable with the public key of the publisher, for subscribers."""
CURVE_CLIENT_KEYS = "PUBSTORM_CURVE_CLIENT_KEYS"
"""Variable with the public keys of all subscribers, for publishers; spaces between them."""


class EnterStage(Value):
    """Enter a stage of the plan at an instant."""

    command: Literal["stage"] = "stage"
    index: U64
    """Index into the plan's stages."""
    at_ns: U62
    """Instant of the reference clock, in nanoseconds."""


class Resume(Value):
    """Continue a publisher that was started again, from the next stage command on."""

    command: Literal["resume"] = "resume"
    from_ns: U62
    """Instant of the reference clock before which it sends nothing, in nanoseconds. Messages that
    were scheduled before and not sent count as skipped."""
    sent: U64
    """Messages that its former processes have sent in the whole run."""
    scheduled: U64
    """Messages of the stage that its former processes have sent or skipped."""


class ApplyChange(Value):
    """Change a population in the current publish stage, beyond what the plan says."""

    command: Literal["change"] = "change"
    at_ns: U62
    """Instant of the reference clock, in nanoseconds."""
    population: U64
    """Index of the population."""
    action: ChangeAction
    """The change."""


class Sent(Value):
    """Messages that an external publisher has sent in the whole run."""

    population: U64
    """Index of its population."""
    client: U64
    """Its index in the population."""
    total: U64
    """Messages of its one publication."""


class Close(Value):
    """Close the current publish stage: what is still due is skipped, the ledger is balanced."""

    command: Literal["close"] = "close"
    sent: tuple[Sent, ...] = ()
    """Messages that external publishers have sent; the agent of shard 0 counts their expected
    deliveries."""


class ExcludeFromLoss(Value):
    """Excludes populations from loss to the end of the current publish stage, or of the pending
    one: expected := received, because an agent has failed."""

    command: Literal["exclude_from_loss"] = "exclude_from_loss"
    populations: tuple[U64, ...]
    """Indices of the populations."""


class Beat(Value):
    """Renews the lease of an agent, which answers with the same word."""

    command: Literal["beat"] = "beat"


class Stop(Value):
    """Disconnect every client, send the last snapshot, say bye and exit."""

    command: Literal["stop"] = "stop"


class Hello(Value):
    """An agent's first line."""

    kind: Literal["hello"] = "hello"
    agent: U64
    """Index of the agent's shard."""
    agents: U64
    """Number of shards."""
    version: str
    """Version of the engine."""
    pid: U64
    """Process id."""
    descriptors: U64
    """Its limit of open descriptors."""
    clients: tuple[U64, ...]
    """Its share of each population."""
    clock_ns: U64
    """Its clock at the time of this line, in nanoseconds."""
    library: str | None = None
    """Library and version that plays its clients, such as `libzmq 4.3.5`; null for an engine."""
    clock: ClockState | None = None
    """State of its reference clock, which its times refer to; null: its host's clock is the
    reference."""


class ReferenceHello(Value):
    """The first line of the reference clock: where it answers."""

    kind: Literal["reference"] = "reference"
    port: Annotated[int, Field(ge=1, le=65535)]
    """Its port of UDP."""


class BeatAnswer(Value):
    """The answer to a beat."""

    kind: Literal["beat"] = "beat"


class Failure(Value):
    """Failure of an agent, which exits after this line."""

    kind: Literal["failure"] = "failure"
    message: str
    """Description of the failure."""
    hint: str
    """Hint for the user."""


class Bye(Value):
    """An agent's last line: every snapshot has been written."""

    kind: Literal["bye"] = "bye"
    snapshots: U64
    """Number of snapshots it wrote."""


AnyCommand = EnterStage | Resume | ApplyChange | Close | ExcludeFromLoss | Beat | Stop
Command = Annotated[AnyCommand, Field(discriminator="command")]
"""A line from the controller, after the plan on the first line."""

AnyAgentLine = Hello | Snapshot | BeatAnswer | Failure | Bye
AgentLine = Annotated[AnyAgentLine, Field(discriminator="kind")]
"""A line from an agent."""

COMMAND: TypeAdapter[AnyCommand] = TypeAdapter(Command, config=LATER)
AGENT_LINE: TypeAdapter[AnyAgentLine] = TypeAdapter(AgentLine, config=LATER)


class ActiveClients:
    """Active clients of each population: always its first ones."""

    def __init__(self, plan: Plan) -> None:
        self.most = [population.clients for population in plan.populations]
        self.counts = [0] * len(self.most)
        self.staying = {i for i, each in enumerate(plan.populations) if each.is_publisher}
        """Publishers under test: they do not join or leave."""

    def enter(self, stage: PlannedStage) -> None:
        """A stage begins."""
        for place, population in enumerate(stage.populations):
            if isinstance(stage.action, ConnectAction):
                asked = stage.action.clients
                wanted = self.most[population] if asked is None else asked[place]
                self.counts[population] = max(self.counts[population], wanted)
            elif isinstance(stage.action, DisconnectAction):
                self.counts[population] = 0

    def change(self, population: int, action: ChangeAction) -> None:
        """A population changes, as far as it can."""
        there = self.counts[population]
        if isinstance(action, AddClients):
            self.counts[population] = min(there + action.clients, self.most[population])
        elif isinstance(action, RemoveClients):
            self.counts[population] = max(there - action.clients, 0)

    def limit(self, most: Sequence[int]) -> None:
        """Limits the active clients of each population."""
        self.counts = [min(pair) for pair in zip(self.counts, most, strict=True)]

    def room(self, population: int) -> int:
        """Clients of a population that are not there."""
        return self.most[population] - self.counts[population]

    def fits(self, population: int, action: ChangeAction) -> bool:
        """Returns True if that many clients can join, leave or migrate."""
        there = self.counts[population]
        match action:
            case AddClients(clients=clients):
                return clients <= self.room(population)
            case RemoveClients(clients=clients) | MigrateClients(clients=clients):
                return clients <= there
            case ChangeRate():
                return True

    def together(self, populations: Iterable[int]) -> int:
        """Active clients of several populations."""
        return sum(self.counts[population] for population in populations)

    def copy(self) -> ActiveClients:
        """The same, to look ahead with."""
        other = copy(self)
        other.counts = list(self.counts)
        return other


class Named(Protocol):
    """A change with the name of the phase that begins with it."""

    @property
    def name(self) -> str:
        """The name."""


AnyChange = TypeVar("AnyChange", bound=Named)


def together(changes: Iterable[AnyChange]) -> Iterator[tuple[AnyChange, ...]]:
    """Changes of one stage in the order of time, those of the shares of a population in one: they
    have one name and one instant."""
    return (tuple(same) for _, same in groupby(changes, key=lambda change: change.name))


def change_name(action: ChangeAction, population: str) -> str:
    """Returns the name of a change of a population."""
    amount = action.factor if isinstance(action, ChangeRate) else action.clients
    return change_words(action.kind, amount, population)


ClientsChange = Literal["add", "remove", "migrate"]
CLIENT_CHANGES: Mapping[
    ClientsChange, type[AddClients] | type[RemoveClients] | type[MigrateClients]
] = {"add": AddClients, "remove": RemoveClients, "migrate": MigrateClients}
"""Changes of clients by their kind."""


def change_words(
    kind: ClientsChange | Literal["rate"], amount: float | PartOf, population: str
) -> str:
    """Returns the name of a change: `+500 device`, `-50% device`, `migrate 50% device`,
    `2 × device`, `pause device`."""
    match kind:
        case "add":
            return f"+{amount} {population}"
        case "remove":
            return f"-{amount} {population}"
        case "migrate":
            return f"migrate {amount} {population}"
        case "rate":
            return f"{amount:g} × {population}" if amount else f"pause {population}"


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    names = (name if n == 1 else f"{name} ({n})" for n in count(1))
    return next(each for each in names if each not in taken)
