"""The sizes of a fleet in words (`pubstorm check --on ray`). It gives lines of text and prints
none."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.sizes import Resource, Sizes
from pubstorm.units import write_bits_per_s

PORTS_MOST = 64_512
DECIMAL = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def sizes_in_words(sizes: Sizes, ports: int) -> Iterator[str]:
    """What the plan asks of a cluster, where an address has so many ports for each target."""
    host, first = sizes.host, sizes.resources[0]
    yield ""
    yield (
        f"sizes, on hosts with {_many(host.cores, 'processor')}, {_amount(host.memory, 'bytes')} "
        f"of memory, {_many(host.addresses, 'address', 'addresses')}, {host.descriptors:,} open "
        f"files and {write_bits_per_s(host.bandwidth)} (fleet.host)"
    )
    why = f"{first.what} set their number" if sizes.hosts > 1 else "one is enough"
    if sizes.given:
        why = "as fleet.agents says"
    yield f"  hosts        {sizes.hosts:,}, and one for the conductor; {why}"
    share = f"of up to {_many(sizes.clients, 'client')} each"
    packed = not sizes.given and sizes.agents > sizes.hosts
    ask = f": --set fleet.agents={sizes.agents}" if packed else ""
    yield f"  engines      {sizes.agents:,}, {share}{ask}"
    yield (
        f"  addresses    {sizes.hosts * host.addresses:,} in all, each with {ports:,} ports for a "
        f"target, as on this host (net.ipv4.ip_local_port_range; {PORTS_MOST:,} with 1024 65535)"
    )
    yield f"  time         {_span(sizes.seconds)} at least"
    yield f"  price        {_price(sizes)}"
    yield ""
    titles = "".join(f"{title:>18}" for title in ("engines need", "on each host", "a host gives"))
    yield f"  {'of':18}{titles}{'hosts':>9}   counted"
    for resource in sizes.resources:
        yield f"  {_row(resource, sizes.hosts)}"
    for resource in sizes.resources:
        if resource.hosts > sizes.hosts:
            yield f"  short  {resource.what}: {resource.hosts:,} hosts would do"
    for remark in sizes.remarks:
        yield f"  hint   {remark}"
    yield ""
    yield "  reckoned with"
    yield from (f"    {line}" for line in sizes.costs)


def _row(resource: Resource, hosts: int) -> str:
    unit = resource.unit
    amounts = (resource.needed, resource.needed / hosts, resource.capacity)
    columns = "".join(f"{_amount(amount, unit):>18}" for amount in amounts)
    return f"{resource.what:18}{columns}{resource.hosts:>9,}   {resource.reason}"


def _amount(number: float, unit: str) -> str:
    match unit:
        case "bytes" | "bytes/s":
            return _bytes(number) + unit.removeprefix("bytes")
        case "cores":
            return f"{number:,.3f}" if number < 1 else f"{number:,.1f}"
        case _:
            return f"{number:,.0f}"


def _bytes(number: float) -> str:
    for unit, factor in DECIMAL:
        if number >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:.0f} B"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    words = (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{rest} s")
    return " ".join(word for word in words if word)


def _price(sizes: Sizes) -> str:
    if not sizes.host.price:
        return "not known: --set fleet.host.price=0.20 is that of a host for an hour"
    return (
        f"{sizes.price:,.2f}: {sizes.hosts + 1:,} hosts at {sizes.host.price:g} an hour are "
        f"{sizes.price_per_hour:,.2f} an hour"
    )


def _many(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
