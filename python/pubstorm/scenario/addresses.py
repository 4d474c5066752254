"""Addresses of targets and of clients: the use of several addresses of a name, and the source
addresses that clients state in the PROXY protocol. The docstrings are the reference that users
read."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pubstorm.contract import U32_MAX
from pubstorm.contract.capabilities import BY_NAME, AddressScheme
from pubstorm.contract.plan import PlannedAddressUse, PlannedProxyProtocol
from pubstorm.contract.target import TARGET, Target, parse_sources, parse_targets
from pubstorm.quantities import UnfitError
from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Flag, HostLabel, name

ADDRESSES_MAX = 255
"""Most addresses of a name that clients use."""
INVENTED = "198.18.0.0/15"
"""Networks for benchmarks of network devices [RFC 2544, C.2.2]: no host of the Internet has one of
their addresses."""
LIST_JSON = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
NAMED_JSON = {"anyOf": [LIST_JSON, {"type": "object", "additionalProperties": LIST_JSON}]}


def written_targets(value: object) -> dict[str, list[object]]:
    """Returns the addresses of targets, as a scenario has them, by the name of the targets."""
    named = value if isinstance(value, dict) else {} if value is None else {TARGET: value}
    return {str(key): own if isinstance(own, list) else [own] for key, own in named.items()}


def written_schemes(value: object) -> dict[str, AddressScheme | None]:
    """Returns the scheme of the first address of each name; None for an address without one."""
    firsts = ((key, str(next(iter(own), ""))) for key, own in written_targets(value).items())
    return {key: BY_NAME.get(first.strip().partition("://")[0]) for key, first in firsts}


def _targets(value: object) -> tuple[Target, ...]:
    if not isinstance(value, dict) or not value:
        return parse_targets(value)
    found: list[Target] = []
    for key, own in value.items():
        called = name(key)
        try:
            found += parse_targets(own, called)
        except UnfitError as unfit:
            raise UnfitError(own, f"for {called} {unfit.allowed}", unfit.hint) from None
    return tuple(found)


Targets = Annotated[
    tuple[Target, ...],
    BeforeValidator(_targets),
    WithJsonSchema({"title": "address, list or mapping", **NAMED_JSON}),
]
Sources = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(parse_sources),
    WithJsonSchema({"title": "address or list", **LIST_JSON}),
]


def _addresses(value: object) -> tuple[str, ...]:
    """Returns the addresses in one or a list of them, each as it is usually written."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not 0 < len(items) <= ADDRESSES_MAX:
        raise UnfitError(value, f"are 1 to {ADDRESSES_MAX} addresses")
    return tuple(map(_address, items))


def _address(value: object) -> str:
    try:
        found = ip_address(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or getattr(found, "scope_id", None) is not None:
        raise UnfitError(value, "is an address such as 192.0.2.7 or 2001:db8::7")
    return str(found)


def network(value: object) -> str:
    """A network in CIDR notation, or one address."""
    try:
        return str(ip_network(value if isinstance(value, str) else ""))
    except ValueError as error:
        hint = "clear the bits after the prefix" if "host bits" in str(error) else None
        raise UnfitError(value, "is a network such as 10.0.0.0/8 or 2001:db8::/64", hint) from None


GivenAddresses = Annotated[
    tuple[str, ...],
    BeforeValidator(_addresses),
    WithJsonSchema({"title": "address or list", **LIST_JSON}),
]
Network = Annotated[
    str, BeforeValidator(network), WithJsonSchema({"title": "network", "type": "string"})
]


class Addresses(Part):
    """Use of several addresses of a target's name. Each agent resolves a name once, at its start,
    to all addresses of IPv4 and IPv6. A plain text is `use`."""

    SHORT_FOR: ClassVar[str | None] = "use"

    use: Literal["first", "in_turn", "random"] = "in_turn"
    """Address of an attempt to connect. `first`: the first one, of IPv4 if the name has such an
    address. `in_turn`: clients begin with different addresses, and each attempt of a client uses
    the next one. `random`: each attempt draws one, from the seed."""
    failover: Flag = True
    """A client tries the next address at once after an attempt that the address did not answer:
    refused, reset, closed, unreachable or timed out. It waits as `reconnect` says once it has tried
    each address."""
    names: Mapping[HostLabel, GivenAddresses] = Field(default_factory=dict)
    """Addresses of names, in place of those that the resolver finds: one, or a list."""

    @property
    def planned(self) -> PlannedAddressUse:
        """The use in the plan."""
        return PlannedAddressUse(use=self.use, failover=self.failover)


class ProxyProtocol(Part):
    """Header of the PROXY protocol at the beginning of each connection, as a load balancer sends
    it. A plain text is the version."""

    SHORT_FOR: ClassVar[str | None] = "version"

    version: Literal["v1", "v2"]
    """Version of the header: `v1`, a line of text, or `v2`, binary."""
    sources: Network = INVENTED
    """Network of the invented source addresses. The client with number 0 has the first address that
    a host can have, the others the following ones. Default: 198.18.0.0/15, which is reserved for
    benchmarks."""

    @property
    def planned(self) -> PlannedProxyProtocol:
        """The header in the plan."""
        first, count = _hosts(self.sources)
        return PlannedProxyProtocol(version=self.version, first=str(first), count=count)


def _hosts(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Returns the first address of a network that a host can have, and the number of those that
    follow with it, at most 2^32 - 1. The first and the last address of a network of IPv4 have
    another meaning, and so does the first of IPv6."""
    found = ip_network(text)
    if found.num_addresses <= 2:
        return found.network_address, found.num_addresses
    reserved = 2 if found.version == 4 else 1
    return found.network_address + 1, min(found.num_addresses - reserved, U32_MAX)
