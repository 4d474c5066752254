"""Monitors of another host: `pubstorm monitor` serves them there, a run reads them over HTTP. The
pages of `pubstorm monitor` and their forms: readings in Prometheus' text format, and a profile in
JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import urlencode

from pubstorm.contract import Source, Value
from pubstorm.contract.plan import Plan
from pubstorm.measure.monitors import Monitor, MonitorError, Reading
from pubstorm.measure.monitors.profiling import StackProfile
from pubstorm.measure.monitors.prometheus import parse
from pubstorm.scenario.monitors import Process, Remote


def monitors_of(source: Source, wanted: Remote, _: Plan) -> Iterable[Monitor]:
    """Returns the monitors of another host, and of a process of it."""
    from pubstorm.measure.monitors.remote.client import remote_monitors

    return remote_monitors(source, wanted)


HOST_PAGE = "/host"
PROCESS_PAGE = "/process"
PROFILE_PAGE = "/profile"
PREFIX = "pubstorm_"
PROBLEM = "# problem: "
"""Beginning of a line that says what cannot be read."""


def query_of(process: Process, **more: object) -> str:
    """Returns the query of a page about a process."""
    return urlencode({**process.model_dump(exclude_none=True), **more})


def written(subject: str, readings: Iterable[Reading]) -> str:
    """Returns readings of a host or a process as text. A problem is its last line."""
    lines = []
    try:
        for reading in readings:
            lines.append(f"{PREFIX}{subject}_{reading.metric} {reading.value!r}")
    except MonitorError as error:
        lines.append(f"{PROBLEM}{error}")
    except Exception as error:
        lines.append(f"{PROBLEM}failed unexpectedly: {type(error).__name__}: {error}")
    return "".join(f"{' '.join(line.splitlines())}\n" for line in lines)


def read(text: str) -> Iterator[tuple[str, float]]:
    """Yields metrics and values. Raises MonitorError if the text is in another form."""
    for name, value in parse(text, _OWN):
        yield _OWN.sub("", name), value


def problem_in(text: str) -> str | None:
    """Returns the problem that the text of readings names; None if it names none."""
    found = (line for line in text.splitlines() if line.startswith(PROBLEM))
    return next((line.removeprefix(PROBLEM) for line in found), None)


class ProfilePage(Value):
    """A profile as it is sent."""

    event: str
    """Event that perf sampled by."""
    samples_total: int
    """Samples taken."""
    functions: tuple[tuple[str, str, str, int], ...]
    """Command, module, symbol and samples of each innermost function."""
    stacks: dict[str, int]
    """Samples by stack."""

    @classmethod
    def of(cls, profile: StackProfile, event: str) -> ProfilePage:
        """The page of a profile."""
        functions = tuple((*names, count) for names, count in profile.functions.items())
        return cls(
            event=event,
            samples_total=profile.samples_total,
            functions=functions,
            stacks=dict(profile.stacks),
        )

    def profile(self) -> StackProfile:
        """The profile again."""
        functions = Counter({(c, m, s): count for c, m, s, count in self.functions})
        return StackProfile(self.samples_total, functions, Counter(self.stacks))


_OWN = re.compile(rf"{PREFIX}(?:host|process)_")
