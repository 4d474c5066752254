"""Assigns a host to each agent, by pure functions. Before Pubstorm joins a cluster, it asks for the
protection without which anyone who reaches the cluster can run programs on its hosts. Errors of Ray
become sentences: Ray's own texts are many lines of addresses and ids."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    AuthenticationError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)

from pubstorm.contract.target import Target
from pubstorm.errors import FleetError, KeysError
from pubstorm.host.keys.certificates import check_authorities, check_credential, check_issued
from pubstorm.host.keys.files import read_file

LABEL = "pubstorm"
"""Ray's label of hosts that a scenario names: ray start --labels pubstorm=NAME."""


@dataclass(frozen=True, slots=True)
class RayHost:
    """A host of a cluster."""

    node: str
    """Ray's id of it."""
    address: str
    """Its address in the cluster."""
    is_here: bool
    """True if the controller is on it."""
    cores: int
    """Processors that it gives to the cluster."""
    free: int
    """Processors that are not reserved."""
    label: str = ""
    """Name that scenarios have for it and its like; empty: none."""
    is_for_agents: bool = True
    """False if only other hosts are marked to play agents."""

    def has(self, label: str) -> bool:
        """Returns True if a scenario means it by a name: its label or its address."""
        return label in {self.label, self.address}


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that a scenario gives to hosts."""

    fleet: str | None = None
    """That of hosts to play on; None: hosts without one of the others, if there are such."""
    engines: frozenset[str] = frozenset()
    """Those of hosts for some populations."""
    servers: frozenset[str] = frozenset()
    """Those of hosts with servers."""


def labelled(hosts: Sequence[RayHost], label: str) -> tuple[RayHost, ...]:
    """Returns the hosts that a scenario means by a name; FleetError lists the labels of all."""
    found = tuple(host for host in hosts if host.has(label))
    if found:
        return found
    each = ", ".join(f"{host.address} has {host.label or 'none'}" for host in hosts)
    raise FleetError(
        f"found no host of the Ray cluster with the label {label}: {each}",
        f"ray start --labels {LABEL}={label} on such hosts, or name an address",
    )


def for_agents(
    hosts: Sequence[RayHost], label: str | None, of_servers: Collection[str]
) -> tuple[RayHost, ...]:
    """Returns the hosts that play agents: those of a label; without one, hosts that are marked for
    it and have none of the labels of servers, if there are any."""
    if label is not None:
        return tuple(host for host in labelled(hosts, label) if host.cores)
    found = [host for host in hosts if host.is_for_agents and host.cores]
    apart = [host for host in found if not any(host.has(each) for each in of_servers)]
    return tuple(apart or found)


def chosen(hosts: Sequence[RayHost], agents: int, spread: str) -> tuple[RayHost, ...]:
    """Returns a host for each agent, in the order of the hosts: each its own if `spread` is strict,
    else as many on one as it has free processors. FleetError lists the free processors of each."""
    room = {host: min(1, host.free) if spread == "strict" else host.free for host in hosts}
    places = [host for host, agents_max in room.items() for _ in range(agents_max)]
    if len(places) < agents:
        raise FleetError(f"found {shortage(hosts, len(places), agents, spread)}", HINTS[spread])
    return tuple(places[:agents])


def spare(
    hosts: Sequence[RayHost], lost: str, taken: Collection[str], spread: str
) -> tuple[RayHost, ...]:
    """Hosts for an agent that has lost its place on the node `lost`, the best first; `taken` are
    the nodes of the others."""
    free = [host for host in hosts if host.free and host.node != lost]
    others = [host for host in free if host.node not in taken]
    shared = [host for host in free if host.node in taken] if spread == "pack" else []
    return (*others, *shared)


def shortage(hosts: Sequence[RayHost], places: int, agents: int, spread: str) -> str:
    """Returns the number of agents with room, and the free processors of each host."""
    each = ", ".join(f"{host.address} has {host.free} of {host.cores}" for host in hosts)
    kind = "hosts with a free processor" if spread == "strict" else "free processors"
    return f"{places} {kind} for {agents} agents: {each}"


HINTS = {
    "strict": "ask for fewer (--set fleet.agents=N), put several on a host (--set "
    "fleet.spread=pack), or add hosts to the cluster",
    "pack": "ask for fewer (--set fleet.agents=N), or add hosts to the cluster",
}


Environment = Mapping[str, str]

CERTIFICATE, KEY, CA = "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"
DEFAULT_TOKEN = Path(".ray", "auth_token")
"""Ray's default file for the token, in the user's home."""
YES = ("1", "true")
HINT = (
    "pubstorm ray-keys --node ADDRESS makes a token and certificates for every node; on each: "
    "set -a; . /etc/pubstorm/environment; set +a"
)


def demand_security(address: str, environment: Environment) -> None:
    """FleetError names all that is missing to join the cluster whose GCS has this address
    (`HOST:PORT`). A cluster on a loopback address needs nothing."""
    if is_loopback(address):
        return
    lacks = [*_lacking_token(environment), *_lacking_tls(environment)]
    if lacks:
        message = f"the cluster {address} is open to others, and this host is not ready to join it"
        raise FleetError("\n  ".join([f"{message}:", *lacks]), HINT)


def is_loopback(address: str) -> bool:
    """True if `HOST:PORT` can be reached from this host only."""
    return Target(host=address.rpartition(":")[0].strip("[]"), port=0).is_loopback


def _lacking_token(environment: Environment) -> Iterator[str]:
    """Ray takes the token itself, then a file that is named, then the one in the user's home."""
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        yield "no token is asked for: RAY_AUTH_MODE must be token"
    if environment.get("RAY_AUTH_TOKEN"):
        return
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    path = named or Path(environment.get("HOME", "/")) / DEFAULT_TOKEN
    try:
        if not read_file(path).strip():
            yield f"found an empty token in {path}"
    except KeysError as error:
        yield f"no token: {error.message}; RAY_AUTH_TOKEN_PATH names its file"


def _lacking_tls(environment: Environment) -> Iterator[str]:
    if environment.get("RAY_USE_TLS", "").lower() not in YES:
        yield "no TLS: RAY_USE_TLS must be 1"
    unset = [name for name in (CERTIFICATE, KEY, CA) if not environment.get(name)]
    if unset:
        yield f"no certificates: {', '.join(unset)} must name files"
        return
    certificate, key, authorities = (environment[name] for name in (CERTIFICATE, KEY, CA))
    found: dict[str, None] = {}
    for check in (
        partial(check_authorities, authorities),
        partial(check_credential, certificate, key),
        partial(check_issued, certificate, authorities),
    ):
        try:
            check()
        except KeysError as error:
            found[error.message] = None
    yield from found


_MEMORY = re.compile(r"\(IP: ([^,)]+).*?was ([\d.]+ ?\w+ */ *[\d.]+ ?\w+)", re.DOTALL)
_VERSIONS = re.compile(r"(Ray|Python): ?([\w.+]+)")


def loss_in_words(error: RayError) -> str:
    """Why a place cannot be reached any more."""
    if isinstance(error, OutOfMemoryError):
        found = _MEMORY.search(str(error))
        used = f": {found[2]} used on {found[1]}" if found else ""
        return f"Ray ended its worker since the host ran out of memory{used}"
    if isinstance(error, ActorUnavailableError):
        return "its host, or the worker on it, cannot be reached"
    if isinstance(error, ActorDiedError):
        return "the worker on its host died" if is_worker_lost(error) else "its host died"
    return f"Ray says: {_first_line(str(error))}"


def is_worker_lost(error: RayError) -> bool:
    """True if a worker is gone from a host that still answers."""
    if isinstance(error, ActorDiedError):
        return any(words in str(error) for words in ("worker process has died", "`ray.kill`"))
    return isinstance(error, OutOfMemoryError | WorkerCrashedError)


def joining_in_words(address: str, error: Exception) -> FleetError:
    """Why a cluster cannot be joined."""
    text = str(error)
    message = f"cannot join the Ray cluster {address}: "
    if isinstance(error, AuthenticationError) or "InvalidAuthToken" in _with_causes(error):
        hint = "RAY_AUTH_TOKEN_PATH must name the file with the token that the cluster has"
        return FleetError(f"{message}it refused the token of this host", hint)
    if "ersion mismatch" in text:
        versions = [f"{name} {version}" for name, version in _VERSIONS.findall(text)]
        there, here = " and ".join(versions[:2]), " and ".join(versions[2:4])
        hint = "all hosts need the same versions of Ray and Python"
        return FleetError(f"{message}it has {there}, this host has {here}", hint)
    if "No node info found" in text:
        hint = f"ray start --address {address} on this host; --num-cpus 0 keeps agents off it"
        return FleetError(f"{message}this host is no part of it", hint)
    hint = "is it the address of its head (GCS), with the same RAY_USE_TLS? ray status shows it"
    return FleetError(message + _first_line(text), hint)


def _with_causes(error: BaseException) -> str:
    """Yields the text of an error, then those of its causes."""
    cause = error.__cause__
    return str(error) if cause is None else f"{error}\n{_with_causes(cause)}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason")
