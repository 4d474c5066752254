"""Follows one run directory for its page: the run now, its lines over time, and the controls that a
person has now. The lines have bounded memory: with the length of the run their steps get wider, not
more."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pubstorm.contract import Sample, Source
from pubstorm.contract.plan import ChangeRate, DisconnectAction, HoldAction, Plan, PublishAction
from pubstorm.errors import PubstormError, StoredRunError
from pubstorm.files import is_regular, text_of
from pubstorm.measure.run_log import (
    StageEntered,
    Stored,
    StoredChange,
    StoredFault,
    stored_event,
)
from pubstorm.metrics.charts import LIVE, SCALES, ChartLine, lines_of
from pubstorm.plan.stages import faulty_bridges
from pubstorm.play.changes import members_of, publishing
from pubstorm.play.context import RunStart
from pubstorm.play.control_socket import ask
from pubstorm.play.directory import PLAN_FILE
from pubstorm.play.faults import KINDS, Breakable
from pubstorm.play.kept import kept_scenario
from pubstorm.quantities import SECOND_NS
from pubstorm.report import RESULT_FILE, check_format, holds, load_result
from pubstorm.report.plot import PALETTE
from pubstorm.result import Event, RunResult, Verdict
from pubstorm.result.journal import Tail
from pubstorm.result.samples import EVENTS_FILE, SAMPLES_FILE, START_FILE, Sources, samples_in
from pubstorm.scenario import Scenario
from pubstorm.topology.started import is_alive
from pubstorm.web.now import Latest, RunState, shown

STEPS_MAX = 900
"""Steps of a line at most: 15 minutes have steps of 1 s, an hour of 4 s."""
DIGITS = 5
"""Significant digits of a value."""

Mode = Literal["sum", "max"]
"""`sum` adds the sources of one instant up and takes the mean over time. `max` takes the largest
value of all."""


@dataclass
class LiveLine:
    """One line of a chart."""

    mode: Mode
    sums: dict[int, float] = field(default_factory=dict)
    """Sum or largest value of each step."""
    instants: dict[int, int] = field(default_factory=dict)
    """Instants with a value in each step."""
    changed: set[int] = field(default_factory=set)
    """Steps that changed since the last look."""
    latest_s: float = -1.0
    """Latest instant with a value."""

    def add(self, step: int, at_s: float, value: float) -> None:
        """Adds a value."""
        if self.mode == "max":
            self.sums[step] = max(self.sums.get(step, value), value)
        else:
            self.sums[step] = self.sums.get(step, 0.0) + value
            is_new = at_s != self.latest_s or step not in self.instants
            self.instants[step] = self.instants.get(step, 0) + is_new
        self.latest_s = at_s
        self.changed.add(step)

    def value(self, step: int) -> float:
        """The value of a step."""
        value = self.sums[step] / self.instants.get(step, 1)
        return float(f"{value:.{DIGITS}g}")

    def widen(self) -> None:
        """Joins each two steps."""
        sums, instants = self.sums, self.instants
        self.sums, self.instants, self.changed = {}, {}, set()
        for step, value in sums.items():
            before = self.sums.get(step // 2)
            if self.mode == "max":
                self.sums[step // 2] = value if before is None else max(before, value)
            else:
                self.sums[step // 2] = value + (before or 0.0)
        for step, count in instants.items():
            self.instants[step // 2] = self.instants.get(step // 2, 0) + count


class LiveHistory:
    """All lines of a run, in steps of one width."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self.width_s = 1.0
        """Width of a step; step 0 begins at the start of the run."""
        self.lines: dict[Hashable, LiveLine] = {}
        self._steps_max = steps_max

    def add(self, key: Hashable, mode: Mode, at_s: float, value: float) -> None:
        """Adds a value of the line `key`, in the order of time."""
        # An interval that ends at 3 s belongs to the step that ends there.
        while (step := max(int((at_s - 1e-6) // self.width_s), 0)) >= self._steps_max:
            self.width_s *= 2
            for line in self.lines.values():
                line.widen()
        line = self.lines.get(key) or self.lines.setdefault(key, LiveLine(mode))
        line.add(step, at_s, value)

    def whole(self) -> dict[Hashable, list[float]]:
        """Every line as step and value in turn, in the order of time."""
        return {key: _flat(line, line.sums) for key, line in self.lines.items()}

    def changes(self) -> dict[Hashable, list[float]]:
        """Lines with the steps that changed since the last call."""
        found = {k: _flat(line, line.changed) for k, line in self.lines.items() if line.changed}
        for line in self.lines.values():
            line.changed.clear()
        return found


def _flat(line: LiveLine, steps: set[int] | dict[int, float]) -> list[float]:
    return [part for step in sorted(steps) for part in (step, line.value(step))]


SOURCES_MAX = 8
"""Populations or brokers that have lines of their own in a chart."""
DRAWN = tuple(each for chart in LIVE for each in lines_of("live", chart.key))
"""Lines in the order of their colours."""


@dataclass(frozen=True)
class LineKey:
    """One line of the page."""

    drawn: ChartLine
    source: str
    """Name of the source; empty if the line sums several up."""

    @property
    def label(self) -> str:
        """Name of the line."""
        return f"{self.source} {self.drawn.line.label}".strip()

    @property
    def scale(self) -> float:
        """Factor from the unit of the metric to the one that the chart shows."""
        return SCALES.get(self.drawn.unit, 1.0)


class Sorter:
    """Finds the line of each sample."""

    def __init__(self, populations: Collection[str]) -> None:
        """`populations` are those that charts show: whole ones, without shares."""
        self._populations = frozenset(populations)
        self._found: dict[tuple[Source, str], LineKey | None] = {}
        self._sources: dict[tuple[str, str], list[str]] = {}

    def line_of(self, sample: Sample) -> LineKey | None:
        """Returns the line that shows a sample; None if none does."""
        name = (sample.source, sample.metric)
        if name not in self._found:
            self._found[name] = self._line(*name)
        return self._found[name]

    def kind_of(self, source: Source) -> str:
        """Returns the kind of a source in the charts, which show neither shares nor bridges."""
        match source.kind:
            case "agent" | "host" as kind:
                return kind
            case "population":
                return "population" if source.name in self._populations else "other"
        return "other" if source.kind == "bridge" else "watched"

    def _line(self, source: Source, metric: str) -> LineKey | None:
        kind = self.kind_of(source)
        lines = (each for each in DRAWN if each.kind == kind and each.sample == metric)
        drawn = next(lines, None)
        if drawn is None:
            return None
        if not drawn.line.each:
            return LineKey(drawn, "")
        shown = self._sources.setdefault((drawn.line.chart, metric), [])
        if len(shown) >= SOURCES_MAX:
            return None
        shown.append(source.name)
        return LineKey(drawn, source.name)


def coloured(keys: Collection[LineKey]) -> Iterator[tuple[LineKey, str]]:
    """Lines with their colours, chart by chart."""
    for chart in LIVE:
        own = [key for key in keys if key.drawn.line.chart == chart.key]
        own.sort(key=lambda key: (key.source, DRAWN.index(key.drawn)))
        for number, key in enumerate(own):
            yield key, PALETTE[number % len(PALETTE)]


WORDS_CHARS_MAX = 300
"""Longest request."""


class Controls:
    """The controls of one run."""

    def __init__(self, plan: Plan, scenario: Scenario) -> None:
        self._plan = plan
        breakable = Breakable(scenario, faulty_bridges(scenario))
        self._groups = {kind: names for kind in KINDS if (names := breakable.groups(kind))}
        self._factors: dict[tuple[int, int], float] = {}
        """Times the planned rate, by stage and population."""
        self._broken: dict[tuple[int, str], bool] = {}
        """True for a fault that is in effect and can be repaired, by stage and name."""

    def note(self, stored: StoredChange | StoredFault) -> None:
        """Takes a change or a fault."""
        if isinstance(stored, StoredFault):
            fault = stored.fault
            can_repair = fault.repaired_ns is None and fault.planned.lasts_ns is not None
            self._broken[fault.stage, fault.name] = can_repair
        elif isinstance(stored.change.action, ChangeRate):
            place = stored.change.stage, stored.change.population
            self._factors[place] = stored.change.action.factor

    def offer(self, entered: StageEntered, at_s: float) -> dict[str, Any]:
        """Returns what can be asked for at an instant of a stage."""
        stage = self._plan.stages[entered.stage]
        action, left_s = stage.action, 0.0
        if isinstance(action, PublishAction | HoldAction):
            left_s = entered.at_s + action.duration_ns / SECOND_NS - at_s
        loads = isinstance(action, PublishAction) and left_s > 0
        members = members_of(self._plan, stage) if loads else {}
        return {
            "rates": [
                {"name": name, "factor": self._factors.get((entered.stage, members[name][0]), 1.0)}
                for name in (publishing(self._plan, stage) if loads else ())
            ],
            "clients": [name for name, each in members.items() if self._can_move(each)],
            "faults": self._groups if left_s > 0 else {},
            "broken": [
                name for (at, name), is_on in self._broken.items() if is_on and at == entered.stage
            ],
            "end": not isinstance(action, DisconnectAction),
        }

    def _can_move(self, indices: tuple[int, ...]) -> bool:
        """True if clients of populations can join and leave."""
        return not any(self._plan.populations[index].is_publisher for index in indices)


def request(folder: Path, words: object) -> tuple[bool, str]:
    """Asks the run in a folder, and returns True with its answer, or False with its reason."""
    if not isinstance(words, str) or not words.isprintable() or len(words) > WORDS_CHARS_MAX:
        return False, f"found no request: words in one line, of {WORDS_CHARS_MAX} characters"
    try:
        return True, ask(folder, words)
    except PubstormError as error:
        return False, error.message if error.hint is None else f"{error.message}: {error.hint}"


EVENTS_MAX = 300
"""Events that the page shows, the latest."""
REPORT_FILE = "report.html"
ALIVE_S = 2.0
"""Time between two looks at the controller's process."""


@dataclass
class Surroundings:
    """Facts that the directory of a run does not hold, as the controller reports them."""

    name: str = ""
    step: str = ""
    """The step of a series or the trial of a search."""
    starting: str = ""
    """Progress of the start of the run."""
    after_s: float = 0.0
    """Time that further runs of a series or a search take, in seconds."""
    stays: bool = True
    """True if the page is served after the end of the run."""


class Watch:
    """One run as the page shows it."""

    def __init__(self, path: Path, around: Surroundings, *, has_controls: bool = False) -> None:
        self.path = path
        self._has_controls = has_controls
        self._controls: Controls | None = None
        self.around = around
        self.history = LiveHistory()
        self.events: deque[tuple[int, Event]] = deque(maxlen=EVENTS_MAX)
        """The latest events with their numbers."""
        self.entered: StageEntered | None = None
        """The present stage."""
        self.plan: Plan | None = None
        self.start: RunStart | None = None
        self.result: RunResult | None = None
        self.verdict: Verdict | None = None
        """The verdict so far, or that at the end."""
        self.evaluated_s: float | None = None
        """Instant of the verdict so far, in seconds after the start of the run."""
        self.problem = ""
        """Why there is no verdict so far; empty if there is no problem."""
        self.is_alive = True
        """True as long as the controller runs."""
        self._stages: list[tuple[float, str]] = []
        """Instant and name of each stage so far."""
        self._latest = Latest()
        self._sorter: Sorter | None = None
        self._sources: Sources = {}
        self._samples = Tail(path, SAMPLES_FILE)
        self._events = Tail(path, EVENTS_FILE)
        self._looked_s = 0.0
        self._sent = 0
        """Number of the latest event that browsers were sent as news."""

    @property
    def name(self) -> str:
        """Name of the run."""
        if self.result is not None:
            return self.result.name
        stored = Path(self.start.file).stem if self.start is not None else self.path.name
        return self.around.name or stored

    @property
    def is_over(self) -> bool:
        """True if the run has its result, or never will."""
        return self.result is not None or not self.is_alive

    @property
    def report(self) -> Path | None:
        """The report of the run; None if there is none."""
        path = self.path / REPORT_FILE
        return path if self.result is not None and is_regular(path) else None

    def poll(self) -> bool:
        """Reads what is new. Returns True if more may follow at once."""
        self._open()
        if not self.is_over:
            self._look_at_end()
        if self._sorter is None:
            return False
        lines = self._samples.lines()
        texts = (line.decode(errors="replace") for line in lines)
        for sample in samples_in(texts, self._sources):
            self._add(self._sorter, sample)
        # The result has every event.
        news = self._events.lines() if self.result is None else []
        for line in news:
            self._note(stored_event(line))
        return bool(lines or news)

    def whole(self) -> dict[str, Any]:
        """Everything that a browser needs to begin."""
        keys = self.keys
        lines = {chart.key: list[dict[str, Any]]() for chart in LIVE}
        for key, colour in coloured(keys):
            line = {"id": str(keys.index(key)), "label": key.label, "colour": colour}
            lines[key.drawn.line.chart].append(line)
        return {
            "run": {"name": self.name, "folder": str(self.path)},
            "width": self.history.width_s,
            "charts": [
                {
                    "key": chart.key,
                    "title": chart.title,
                    "caption": chart.caption,
                    "unit": chart.axis,
                    "log": chart.log,
                    "lines": lines[chart.key],
                }
                for chart in LIVE
            ],
            "values": _by_number(keys, self.history.whole()),
            "events": self._events_after(0),
            "stages": [{"at": at_s, "name": name} for at_s, name in self._stages],
            "now": self.now(),
        }

    def news(self) -> dict[str, Any]:
        """Changes since the last call."""
        events = self._events_after(self._sent)
        self._sent = self.events[-1][0] if self.events else 0
        return {
            "values": _by_number(self.keys, self.history.changes()),
            "events": events,
            "stages": [{"at": at_s, "name": name} for at_s, name in self._stages],
            "now": self.now(),
        }

    @property
    def keys(self) -> list[LineKey]:
        """Every line, in the order of its number."""
        return [key for key in self.history.lines if isinstance(key, LineKey)]

    def now(self) -> dict[str, Any]:
        """The state of the run at this instant."""
        moment = RunState(
            plan=self.plan,
            stage=self.entered,
            at_s=self.at_s,
            verdict=self.verdict,
            evaluated_s=self.evaluated_s,
            result=self.result,
            is_alive=self.is_alive,
        )
        return shown(moment, self._latest, self.around.after_s) | {
            # A page that ends with its run cannot show the report.
            "report": self.report is not None and self.around.stays,
            "kept": "" if self.report is None or self.around.stays else str(self.report),
            "offer": self._offer(),
            "problem": self.problem,
            "step": self.around.step,
            "starting": self.around.starting,
        }

    @property
    def at_s(self) -> float:
        """Time since the start of the run; of one that is over, its length."""
        if self.result is not None:
            return self.result.duration_s
        if self.start is None:
            return 0.0
        if not self.is_alive:
            return self._latest.at_s
        return (time.monotonic_ns() - self.start.started_ns) / SECOND_NS

    def _offer(self) -> dict[str, Any] | None:
        """The controls that work now; None if there are none."""
        if self._controls is None or self.entered is None or self.is_over:
            return None
        return self._controls.offer(self.entered, self.at_s)

    def _open(self) -> None:
        """Reads start and plan once they are stored."""
        if self.start is None:
            self.start = _read(self.path / START_FILE, RunStart)
        if self.plan is None:
            self.plan = _read(self.path / PLAN_FILE, Plan)
        if self.start is None or self.plan is None or self._sorter is not None:
            return
        names = [each.whole or each.name for each in self.plan.populations]
        self._sorter = Sorter(names)
        if self._has_controls:
            with contextlib.suppress(PubstormError):
                self._controls = Controls(self.plan, kept_scenario(self.path, self.start))

    def _look_at_end(self) -> None:
        now_s = time.monotonic()
        if now_s < self._looked_s + ALIVE_S:
            return
        self._looked_s = now_s
        # A controller stores the result before it ends.
        self.is_alive = self.start is None or is_alive(self.start.process)
        if holds(self.path, RESULT_FILE):
            try:
                self._finish(load_result(self.path))
            except PubstormError as error:
                self.is_alive = False
                self._note(Event(at_s=self._latest.at_s, kind="storage", text=error.message))

    def _finish(self, result: RunResult) -> None:
        self.result, self.verdict = result, result.verdict
        self.events = deque(enumerate(result.events, 1), EVENTS_MAX)
        self._stages = [(each.start_s, each.name) for each in result.stages]
        shares = {name for name in result.populations if "/" in name}
        names = [*({*result.populations} - shares), *result.wholes]
        self._sorter = self._sorter or Sorter(names)

    def look_at_end(self) -> None:
        """Looks for the result at once."""
        self._looked_s = 0.0

    def _add(self, sorter: Sorter, sample: Sample) -> None:
        self._latest.add(sorter.kind_of(sample.source), sample)
        key = sorter.line_of(sample)
        if key is not None:
            value = sample.value * key.scale
            self.history.add(key, key.drawn.line.joined, sample.at_s, value)

    def _note(self, stored: Stored | None) -> None:
        match stored:
            case StageEntered():
                self.entered = stored
                if self.plan is not None and stored.stage < len(self.plan.stages):
                    self._stages.append((stored.at_s, self.plan.stages[stored.stage].name))
            case Event():
                number = self.events[-1][0] + 1 if self.events else 1
                self.events.append((number, stored))
            case StoredChange() | StoredFault():
                if self._controls is not None:
                    self._controls.note(stored)

    def _events_after(self, number: int) -> list[dict[str, Any]]:
        return [
            {"n": n, "at": event.at_s, "kind": event.kind, "text": event.text}
            for n, event in self.events
            if n > number
        ]


def run_in(folder: Path) -> Path:
    """Returns the run in a folder; of a series or search, the newest. Raises StoredRunError."""
    if holds(folder, RESULT_FILE) or holds(folder, "logs"):
        check_format(folder)
        return folder
    hint = "name a folder that `pubstorm run` has made"
    try:
        starts = [*folder.glob(f"*/*/{START_FILE}"), *folder.glob(f"*/*/*/*/{START_FILE}")]
        if starts:
            return run_in(max(starts, key=lambda path: path.stat().st_mtime).parent)
        found = f"found no run in {folder}" if folder.is_dir() else f"found no folder {folder}"
    except OSError as error:
        raise StoredRunError(f"cannot read {folder}: {error.strerror}", hint) from error
    raise StoredRunError(found, hint)


def _by_number(keys: list[LineKey], values: Any) -> dict[str, list[float]]:
    return {str(number): values[key] for number, key in enumerate(keys) if key in values}


def _read(path: Path, model: Any) -> Any:
    """Returns a stored value; None if it is not there yet, or of another version."""
    try:
        return model.model_validate_json(text_of(path))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
