"""The agents of a run: their number, their hosts, and the end or continuation of a run that loses
an agent."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from pubstorm.quantities import QuantityField, UnfitError, count, factor, size_bytes
from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Bandwidth, Duration, HostLabel, SmallCount


def place(value: object) -> str:
    """Returns the place where agents run: a word, or the address of a Ray cluster."""
    if isinstance(value, str) and _PLACE.fullmatch(value):
        return value
    raise UnfitError(value, "are local, ray and ray://HOST:PORT")


_PLACE = re.compile(r"local|ray|ray://[^\s/:]+:[0-9]{1,5}")

Place = Annotated[
    str,
    BeforeValidator(place),
    WithJsonSchema({"title": "place", "type": "string", "pattern": f"^({_PLACE.pattern})$"}),
]
Memory = Annotated[int, QuantityField(size_bytes, 1 << 20, 1 << 50)]
Price = Annotated[float, QuantityField(factor, 0, 1e6)]
Files = Annotated[int, QuantityField(count, 100, 2**31 - 1)]
OnAgentFailure = Literal["fail", "continue", "replace"]
"""Consequence of an agent failure."""
Spread = Literal["strict", "pack"]


class FleetHost(Part):
    """A host of a cluster, for `pubstorm check`: resources that its agents have."""

    cores: SmallCount = 4
    """Processors."""
    memory: Memory = 16 * 10**9
    """Memory."""
    addresses: SmallCount = 1
    """Source addresses; with each there are as many connections to a target as there are ports."""
    descriptors: Files = 1_000_000
    """Open files that a process may have."""
    bandwidth: Bandwidth = 10**10
    """Bandwidth of its network in each direction."""
    price: Price = 0.0
    """Price for an hour, in any currency; 0: not known."""


class ScenarioFleet(Part):
    """The agents, and where they run."""

    agents: SmallCount | None = None
    """Number of agents. Default: on this host by descriptors, cores and load; on a cluster one on
    each host, or one on each processor if `spread` is pack."""
    on: Place = "local"
    """`local`: this host; `ray`: the Ray cluster that this host is a part of; `ray://HOST:PORT`:
    the one with this address, of which this host must be a part. The option `--on` sets it."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts that agents are on (`ray start --labels pubstorm=LABEL`), or
    the address of one. Default: hosts that no broker or service is placed on, if there are any."""
    spread: Spread = "strict"
    """On a cluster: each agent on a host of its own, or as many on a host as it has processors."""
    on_agent_failure: OnAgentFailure = "fail"
    """Consequence of an agent failure. `fail`: the run ends and is invalid; `continue`: the run
    continues without the agent's clients; `replace`: another agent plays them."""
    coalescing: Duration | None = None
    """Longest time that timers of clients wait to be handled together. Messages are late by as
    much: latencies from the intended send contain it, those from the actual send do not. `0s`
    handles each timer by itself, and takes up to three times the CPU. Default: a tenth of
    `validity.lateness_p99`, at most 1 ms."""
    host: FleetHost = FleetHost()
    """A host of the cluster, for `pubstorm check --on ray`."""
