"""The lines between controller and agent besides plan and snapshot: commands in; greeting, failure
and farewell out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from pubstorm.contract.plan import ChangeAction
from pubstorm.contract.snapshot import ClockState, Snapshot
from pubstorm.contract.value import LATER, U62, U64, Value


class EnterStage(Value):
    """Enter a stage of the plan at an instant."""

    command: Literal["stage"] = "stage"
    index: U64
    """Index into the plan's stages."""
    at_ns: U62
    """Instant of the reference clock, in nanoseconds."""


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


AnyCommand = EnterStage | ApplyChange | Close | ExcludeFromLoss | Beat | Stop
Command = Annotated[AnyCommand, Field(discriminator="command")]
"""A line from the controller, after the plan on the first line."""

AnyAgentLine = Hello | Snapshot | BeatAnswer | Failure | Bye
AgentLine = Annotated[AnyAgentLine, Field(discriminator="kind")]
"""A line from an agent."""

COMMAND: TypeAdapter[AnyCommand] = TypeAdapter(Command, config=LATER)
AGENT_LINE: TypeAdapter[AnyAgentLine] = TypeAdapter(AgentLine, config=LATER)
