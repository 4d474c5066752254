"""The words of `pubstorm check`, as lines of text: the plan, the steps of a series or search with
the trials to expect, and the needs of each host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.experiment.search import settings_of
from pubstorm.experiment.search.strategy import Settings, State, Strategy, TrialOutcome
from pubstorm.host.calibration import least_seconds
from pubstorm.host.preflight import Need
from pubstorm.host.preflight.tuning import Setting
from pubstorm.host.sizing import Resource, Sizes
from pubstorm.host.sizing.servers import ServerHosts
from pubstorm.plan import provisional_plan
from pubstorm.quantities import span_text, write_bits_per_s, write_share
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import smallest
from pubstorm.scenario.series import written

PORTS_MOST = 64_512
KEPT_FILES = 200
"""Open files of a broker beside those of its connections."""
DECIMAL = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def needs_in_words(needs: Sequence[Need], agents: int) -> Iterator[str]:
    """Yields the needs of a plan, each with what the host has."""
    yield ""
    yield f"needs, with {many(agents, 'agent')}"
    for need in needs:
        word = "ok   " if need.is_met else "short"
        yield f"  {word}  {need}"
        if not need.is_met:
            yield f"         fix: {need.fix}"
        elif need.hint:
            yield f"         hint: {need.hint}"


def answer_of_host(needs: Sequence[Need], clients: int, agents: int) -> Iterator[str]:
    """Yields in one sentence if this host can play a plan."""
    short = [need.what for need in needs if not need.is_met]
    load = f"{many(clients, 'client')} with {many(agents, 'agent')}"
    yield ""
    if short:
        yield f"answer: this host is too small for {load}; short: {', '.join(short)}"
    else:
        yield f"answer: this host can play {load}; whether the target takes them, a run will show"


def tuning_in_words(settings: Sequence[Setting], *, every: bool) -> Iterator[str]:
    """Yields the settings of the kernel that a plan wants otherwise, or all of them."""
    low = [setting for setting in settings if not setting.is_met]
    yield ""
    yield "tuning of the kernel"
    for setting in settings:
        if every or not setting.is_met:
            yield f"  {'ok   ' if setting.is_met else 'tune '}  {setting}"
            if not setting.is_met:
                yield f"         fix: {setting.need.fix}"
    suits = f"{len(settings) - len(low)} of {many(len(settings), 'setting')} suit this plan"
    yield f"  {suits}{'' if every else '; --tuning lists them'}"


def broker_needs_in_words(needs: Sequence[Need]) -> Iterator[str]:
    """Yields the needs of a broker's host, which Pubstorm does not check."""
    yield ""
    yield "the broker's own host should have, which is not looked at here"
    for need in needs:
        fix = f"   ({need.fix})" if need.fix else ""
        yield f"         {need}{fix}"


def sizes_in_words(sizes: Sizes, ports: int) -> Iterator[str]:
    """Yields the needs of a plan on a cluster whose addresses have `ports` ports for each
    target."""
    host, first = sizes.host, sizes.resources[0]
    yield ""
    yield (
        f"sizes, on hosts with {many(host.cores, 'processor')}, {_amount(host.memory, 'bytes')} "
        f"of memory, {many(host.addresses, 'address', 'addresses')}, {host.descriptors:,} open "
        f"files and {write_bits_per_s(host.bandwidth)} (fleet.host)"
    )
    why = f"{first.what} set their number" if sizes.hosts > 1 else "one is enough"
    if sizes.given:
        why = "as fleet.agents says"
    others = "one for the controller"
    if sizes.servers:
        others = f"{many(sizes.servers, 'host')} for brokers, and {others}"
    else:
        others = f"and {others}"
    yield f"  hosts        {sizes.hosts:,}, {others}; {why}"
    share = f"of up to {many(sizes.clients, 'client')} each"
    packed = not sizes.given and sizes.agents > sizes.hosts
    ask = f": --set fleet.agents={sizes.agents}" if packed else ""
    yield f"  agents       {sizes.agents:,}, {share}{ask}"
    yield (
        f"  addresses    {sizes.hosts * host.addresses:,} in all, each with {ports:,} ports for a "
        f"target, as on this host (net.ipv4.ip_local_port_range; {PORTS_MOST:,} with 1024 65535)"
    )
    runs = f", for {sizes.runs:,} runs" if sizes.runs > 1 else ""
    yield f"  time         {_span(sizes.seconds)} at least{runs}"
    yield f"  price        {_price(sizes)}"
    yield ""
    titles = "".join(f"{title:>18}" for title in ("agents need", "on each host", "a host gives"))
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


def answer_of_cluster(sizes: Sizes) -> Iterator[str]:
    """Yields in one sentence what a plan needs on a cluster, and what it costs."""
    cost = f" and costs {sizes.price:,.2f}" if sizes.host.price else ""
    hosts = many(sizes.all_hosts, "host")
    yield ""
    yield f"answer: it needs {hosts} such as fleet.host for at least {_span(sizes.seconds)}{cost}"


def servers_in_words(found: Sequence[ServerHosts], descriptors: int) -> Iterator[str]:
    """Yields the hosts for brokers that the run starts, each with so many open files a process."""
    if not found:
        return
    yield ""
    titles = "".join(f"{title:>18}" for title in ("memory", "on one host", "a host gives"))
    yield f"  hosts for brokers      brokers{titles}{'hosts':>9}"
    for each in found:
        label = each.label or "(controller)"
        memory = (each.bytes, each.fullest_bytes, each.host_bytes)
        columns = "".join(f"{_amount(amount, 'bytes'):>18}" for amount in memory)
        yield f"  {label:18}{each.brokers:>12,}{columns}{each.hosts:>9,}"
    for each in found:
        if not each.is_enough:
            yield f"  short  {_short_memory(each)}"
        if each.largest + KEPT_FILES > descriptors:
            text = f"a broker has {each.largest:,} connections and {descriptors:,} files"
            yield f"  short  open files: {text}"
    yield "  processors and networks of brokers are not counted"


def _short_memory(found: ServerHosts) -> str:
    """Returns the shortage of the fullest host for brokers, with advice."""
    needed, gives = (_amount(each, "bytes") for each in (found.fullest_bytes, found.host_bytes))
    if not found.label:
        where, hint = "the controller's host", "place brokers (topology.brokers.NAME.hosts)"
    else:
        where = f"a host of {found.label}"
        hint = "a broker is on one host: take hosts with more of it (fleet.host.memory), or more"
        hint += " brokers (topology.brokers.NAME.count)"
    return f"memory: {where} needs {needed} for brokers and gives {gives}; {hint}"


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
        f"{sizes.price:,.2f}: {sizes.all_hosts:,} hosts at {sizes.host.price:g} an hour are "
        f"{sizes.price_per_hour:,.2f} an hour"
    )


def many(number: int, noun: str, plural: str = "") -> str:
    """Returns a count with its noun, such as 1,000 clients."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def sweep_in_words(scenario: Scenario) -> Iterator[str]:
    """The steps of its sweep, and how they are played."""
    sweep = scenario.sweep
    if sweep is None:
        return
    brokers = _brokers(scenario, sweep.broker)
    times = f", {many(sweep.repeat, 'time')} each" if sweep.repeat > 1 else ""
    yield ""
    yield f"sweep, the plan above is its first step; each step with {brokers}{times}"
    bases = dict.fromkeys(step.variation.base for step in scenario.steps)
    for number, base in enumerate(bases, 1):
        yield f"  {number}. {base}"
    for name in sweep.played:
        changed = ", ".join(f"{path}={written(v)}" for path, v in sweep.variants[name].items())
        yield f"  each as {name}: {changed or 'as written'}"
    left_out = [each for step in scenario.steps for each in step.scenario.source.left_out]
    for text in dict.fromkeys(left_out):
        yield f"  left out of {many(left_out.count(text), 'step')}: {text}"
    for line in sweep.stop_when:
        yield f"  ends early when {line if isinstance(line, str) else line.source}"


def search_in_words(scenario: Scenario, steps: int = 1) -> Iterator[str]:
    """The search of a scenario, if it has one, which is played for so many steps of a series."""
    search = scenario.search
    if search is None:
        return
    settings, write = settings_of(search), search.span.measure.written
    few, most = trials_expected(settings)
    seconds = least_seconds(provisional_plan(smallest(scenario)))
    seconds += search.pause / 1e9
    brokers = _brokers(scenario, search.broker)
    yield ""
    yield f"search, the plan above is its first trial; each trial with {brokers}"
    yield f"  the largest {search.vary} at which all thresholds pass,"
    low, high = write(settings.low), write(settings.high)
    yield f"  from {low} to {high}, times {settings.grow:g} from one to the next"
    if search.figure is not None:
        yield f"  and on until {search.figure} grows by less than {write_share(search.growth)}"
    times = "once" if search.repeat == 1 else f"{search.repeat} times"
    yield f"  looked for {times}, to within {write_share(search.precision)}"
    if search.recovery:
        yield "  and at its end beyond the answer and back, three times as long as a trial"
    yield (
        f"  about {few} to {most} trials of {span_text(seconds)} or more: "
        f"{span_text(few * seconds)} to {span_text(most * seconds)} or more"
    )
    if steps > 1:
        shortest, longest = (span_text(steps * n * seconds) for n in (few, most))
        yield f"  if all {steps} steps are like the first: {shortest} to {longest} or more"


def trials_of(scenario: Scenario) -> int:
    """Returns the fewest trials of a scenario's search; one without a search."""
    search = scenario.search
    return 1 if search is None else trials_expected(settings_of(search))[0]


def trials_expected(settings: Settings) -> tuple[int, int]:
    """Returns the trials for a low limit and for one near the bound; no trial is repeated."""
    third = (settings.high / settings.low) ** (1 / 3)
    near = settings.high / (1 + settings.precision)
    counts = [_trials_to(limit, settings) for limit in (settings.low * third, near)]
    return min(counts), max(counts)


def _trials_to(limit: float, settings: Settings) -> int:
    """Returns the number of trials that find a constant limit."""
    strategy, trials = Strategy(settings), 0
    while (following := strategy.next) is not None:
        state: State = "passed" if following.value <= limit else "failed"
        strategy.take(TrialOutcome(state, min(following.value, limit)))
        trials += 1
    return trials


def _brokers(scenario: Scenario, kind: str) -> str:
    """The brokers of each step or trial: `kind` is fresh or same."""
    if not scenario.topology.brokers:
        return "the same target" if len(scenario.target) == 1 else "the same targets"
    if scenario.target:
        brokers = "small brokers" if scenario.topology.bridges else "brokers"
        return "the same target" + (f", and {brokers} of its own" if kind == "fresh" else "")
    return "brokers of its own" if kind == "fresh" else "the same brokers"
