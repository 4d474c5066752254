"""A data sheet: the cells of a plan, played one after the other as far as they fit into its time.
Each cell is a search or a series in a folder of its own. The journal stores the sheet after each
cell, and a stored sheet continues with the cells that it lacks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pubstorm.contract.target import parse_target
from pubstorm.errors import PubstormError, ScenarioError, StoredRunError, UsageError, meant
from pubstorm.experiment.datasheet.asked import Asked, BrokerAsked, BrokerTerms
from pubstorm.experiment.datasheet.budget import Budget, fitting
from pubstorm.experiment.datasheet.probing import PROBE_S, figures_of_limits, probing
from pubstorm.experiment.datasheet.reading import best_of, evidence_of, figures_of
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.player import Journal, Played, Player, Playing, Runs, Turn, run_s
from pubstorm.experiment.search import play_search, settings_of
from pubstorm.experiment.search.strategy import trials_left
from pubstorm.experiment.series import play_series
from pubstorm.files import text_of
from pubstorm.host.children import run_loop
from pubstorm.output import warn
from pubstorm.play.directory import RunDirectory, new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS
from pubstorm.quantities import SECOND_NS, counted, span_text
from pubstorm.report import holds, load_result, write_reports
from pubstorm.report.stored import DATASHEET_FILE, DATASHEETS_FILE, load_datasheet
from pubstorm.result import SearchResult, Series
from pubstorm.result.datasheet import SECTIONS, Datasheet, SheetCell, SheetDrift
from pubstorm.result.datasheet_comparison import SheetComparison, compare_sheets
from pubstorm.result.limits import Probed
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import largest, populations_of
from pubstorm.scenario.load import text_of as written_in
from pubstorm.scenario.series import written
from pubstorm.scenario.sheets import (
    PLAN_HINT,
    PartOfAnswer,
    PlannedCell,
    SheetPlan,
    find_plan,
    parse_plan,
)
from pubstorm.topology import Topology

CELLS = "cells"
"""Folder of the cells, in that of the sheet."""
PLAN_FILE, RECIPE_FILE = "plan.yaml", "recipe.yaml"
STARTED_SPAN = 4.0
"""Factor between the first value and the answer of a search that starts at a part of another
answer, for its planned time."""
LEFT_OUT = "left out"


def run_datasheet(asked: Asked, out: Path | None, live: Live) -> Datasheet:
    """Plays a data sheet, in a new folder or in `out`, which must be new or empty."""
    subject = BrokerAsked.of(asked)
    plan_path = find_plan(asked.plan)
    text = written_in(plan_path, PLAN_HINT)
    plan = parse_plan(text, str(plan_path))
    _check_names(asked, plan)
    stem = subject.name if asked.target is None else "target"
    path = out or new_path(RUNS, f"datasheet-{stem}", datetime.now().astimezone())
    files = {PLAN_FILE: text} | ({RECIPE_FILE: subject.text} if subject.recipe else {})
    journal = Journal.create(path, CELLS, files, live)
    return run_loop(Player(_SheetRuns(asked, subject, plan, journal), journal).play())


def _check_names(asked: Asked, plan: SheetPlan) -> None:
    """Raises UsageError for a name that is no cell and no section."""
    known = [*SECTIONS, *(cell.cell for cell in plan.cells)]
    for name in (*asked.only, *asked.skip):
        if name not in known:
            hint = meant(name, known, f"sections are {', '.join(SECTIONS)}")
            raise UsageError(f"found {name!r}, which is no cell and no section of the plan", hint)


def resume_datasheet(path: Path, live: Live) -> Datasheet:
    """Plays the cells that the sheet in a folder lacks. Raises StoredRunError if it has none."""
    stored = load_datasheet(path)
    asked = Asked(
        stored.scenario,
        stored.for_s,
        stored.plan,
        stored.only,
        stored.skip,
        BrokerTerms(stored.persistent, stored.identity.cpus, stored.identity.memory_bytes),
        stored.soak_s,
        stored.restart,
        stored.identity.protocol,
    )
    recipe = text_of(path / RECIPE_FILE) if holds(path, RECIPE_FILE) else None
    plan = parse_plan(text_of(path / PLAN_FILE), str(path / PLAN_FILE))
    journal = Journal.open(path, stored.started, live)
    runs = _SheetRuns(asked, BrokerAsked.of(asked, recipe), plan, journal)
    runs.continues(stored)
    return run_loop(Player(runs, journal).play())


def compare_stored_sheets(folders: Sequence[Path], out: Path | None) -> SheetComparison:
    """Compares the sheets in some folders. Stores the comparison with its reports in `out`, if
    there is one. Raises UsageError for fewer than two sheets, or one twice."""
    if len({folder.resolve() for folder in folders}) < max(len(folders), 2):
        found = f"found {counted(len(folders), 'sheet')}"
        raise UsageError(f"{found}, needed are two or more, each once", "name their folders")
    sheets = [load_datasheet(folder) for folder in folders]
    compared = compare_sheets(sheets, "" if out is None else str(out))
    if out is not None:
        with closing(RunDirectory.create(out)) as directory:
            directory.write(DATASHEETS_FILE, compared.to_json())
            for problem in write_reports(out, directory.write):
                warn(problem)
    return compared


class _SheetRuns(Runs[Datasheet]):
    """The cells of a sheet that is being played."""

    def __init__(
        self, asked: Asked, subject: BrokerAsked, plan: SheetPlan, journal: Journal
    ) -> None:
        self._asked, self._subject, self._plan, self._journal = asked, subject, plan, journal
        self._root = journal.directory.path
        self._answers: dict[str, float] = {}
        """Answers of searches, in their own unit."""
        self._identity = subject.identity(asked)
        cells = [cell for cell in plan.cells if _is_wanted(asked, cell)]
        last = [cell for cell in cells if cell.is_last]
        ordered = [*(cell for cell in cells if not cell.is_last), *last]
        self._planned = {cell.cell: cell for cell in ordered}
        self._cells = {
            cell.cell: SheetCell(
                name=cell.cell, section=cell.section, title=cell.title, says=cell.says
            )
            for cell in ordered
        }
        self._budget = Budget(asked.for_s)
        self._seconds = {cell.cell: self._planned_s(cell) for cell in ordered}
        self._budget.kept_s = sum(self._seconds[cell.cell] for cell in last)

    def continues(self, stored: Datasheet) -> None:
        """Takes the cells of a stored sheet that were measured."""
        self._journal.check(list(self._cells), [cell.name for cell in stored.cells])
        for cell in stored.cells:
            if cell.folder:
                self._cells[cell.name] = cell
                self._budget.take(self._seconds[cell.name], cell.took_s)
        if stored.identity.environment is not None:
            self._identity = stored.identity

    def turns(self) -> Iterator[Turn]:
        self._say_what_fits()
        for number, planned in enumerate(self._planned.values(), 1):
            cell = self._cells[planned.cell]
            if cell.state != "not played":
                self._remember(planned, cell)
                continue
            why = self._lacks(planned) or self._budget.refusal(
                self._seconds[planned.cell], is_last=planned.is_last
            )
            turn = None if why else self._turn(number, planned)
            if turn is None:
                self._leave_out(planned, why or self._cells[planned.cell].why)
                continue
            began_s = time.monotonic()
            yield turn
            took_s = time.monotonic() - began_s
            if self._cells[planned.cell].folder:
                self._budget.take(self._seconds[planned.cell], took_s)
                self._change(planned, took_s=round(took_s, 1))

    def take(self, turn: Turn) -> str:
        """Puts the figures of a cell."""
        planned = list(self._planned.values())[turn.number - 1]
        played = turn.result
        if played is not None and played.interrupted:
            return ""
        folder = self._root / turn.folder
        if isinstance(played, Probed) and played.limits is not None:
            figures = tuple(figures_of_limits(played.limits))
            self._change(planned, state="measured", folder=turn.folder, figures=figures)
            return counted(len(figures), "limit")
        if isinstance(played, SearchResult | Series):
            lacking = self._not_there(planned)
            figures = tuple(figures_of(planned, played, folder, lacking))
            has_any = any(each.estimate is not None or each.word for each in figures)
            self._change(
                planned,
                state="measured" if has_any else "without figures",
                why="" if has_any else "; ".join(figures[0].remarks) if figures else "",
                folder=turn.folder,
                command=turn.command,
                figures=figures,
                evidence=evidence_of(played),
                answer=best_of(played),
            )
            self._remember(planned, self._cells[planned.cell])
            self._learn(played, folder)
            return "; ".join(f"{each.name}: {each.text}" for each in figures[:3])
        self._change(planned, state="without figures", why=turn.words, folder=turn.folder)
        return turn.words

    def later_s(self, turn: Turn) -> Sequence[float]:
        later = list(self._planned)[turn.number :]
        return [self._seconds[name] for name in later if self._cells[name].state == "not played"]

    def store(self) -> None:
        self._stored(complete=False)

    def finish(self) -> Datasheet:
        over = all(cell.state != "not played" for cell in self._cells.values())
        sheet = self._stored(complete=over and not self._journal.interrupted.is_set())
        if self._asked.reports:
            self._journal.write_reports()
        return sheet

    def _stored(self, *, complete: bool) -> Datasheet:
        asked = self._asked
        sheet = Datasheet(
            **self._journal.record(Invocation(asked.subject, (), asked.target)),
            name=self._subject.name,
            identity=self._identity,
            plan=asked.plan,
            for_s=asked.for_s,
            only=asked.only,
            skip=asked.skip,
            persistent=asked.terms.persistent,
            soak_s=asked.soak_s,
            restart=asked.restart,
            spent_s=round(self._budget.spent_s, 1),
            cells=tuple(self._cells.values()),
            drift=self._drift(),
            complete=complete,
        )
        self._journal.directory.write(DATASHEET_FILE, sheet.to_json())
        return sheet

    def _drift(self) -> SheetDrift | None:
        names = [self._plan.anchor, *(c.cell for c in self._planned.values() if c.anchors)]
        firsts = [self._cells[name].figures[:1] for name in names if name in self._cells]
        values = [f.estimate for figures in firsts for f in figures if f.estimate is not None]
        if len(values) < 2:
            return None
        middle = sum(each.value for each in values) / len(values)
        spread = max(each.value for each in values) - min(each.value for each in values)
        title = self._planned[self._plan.anchor].title
        return SheetDrift(figure=title, values=tuple(values), spread=round(spread / middle, 4))

    def _say_what_fits(self) -> None:
        """Says before the first cell what will be measured and what will not."""
        open_cells = [
            cell
            for name, cell in self._planned.items()
            if self._cells[name].state == "not played" and self._lacks(cell) is None
        ]
        early = [cell for cell in open_cells if not cell.is_last]
        seconds = [self._seconds[cell.cell] for cell in early]
        left_s = self._asked.for_s - self._budget.spent_s
        fits = [*fitting(seconds, left_s, self._budget.kept_s)]
        chosen = [cell for cell, is_in in zip(early, fits, strict=True) if is_in]
        chosen += [cell for cell in open_cells if cell.is_last]
        others = [cell for cell, is_in in zip(early, fits, strict=True) if not is_in]
        live = self._journal.live
        live.step(f"data sheet of {self._subject.name}, for {span_text(self._asked.for_s)}")
        live.step(f"  {counted(len(chosen), 'cell')} will fit: {_names(chosen)}")
        if others:
            live.step(f"  {counted(len(others), 'cell')} will not, unless others are faster:")
            live.step(f"  {_names(others)}")

    def _lacks(self, cell: PlannedCell) -> str | None:
        """Returns the reason why a cell is left out, whatever the time; None if it is not."""
        for part in (cell.start, cell.load):
            used = None if part is None else self._cells.get(part.of)
            will_be = used is not None and used.state == "not played"
            if part is not None and not will_be and part.of not in self._answers:
                return f"it needs the answer of {part.of}, which has none"
        if cell.probe and not (self._asked.target or "mqtt://").startswith("mqtt://"):
            return "limits are looked for over TCP alone, without TLS and WebSocket"
        lacking = self._not_there(cell)
        missing = (why for name, why in lacking.items() if name not in cell.optional)
        return self._subject.lacks(cell) or next(missing, None)

    def _not_there(self, cell: PlannedCell) -> Mapping[str, str]:
        """Returns the populations of a cell that this broker cannot have, with the reason."""
        if cell.probe or not self._subject.is_less_than_mqtt:
            return {}
        scenario = Invocation(cell.scenario, self._given(cell)).load()
        return self._subject.without(populations_of(scenario))

    def _turn(self, number: int, planned: PlannedCell) -> Turn | None:
        """Returns the turn of a cell; None if its scenario does not fit this broker."""
        recipe = self._subject.recipe
        try:
            asked, scenario = self._scenario(self._played_by(planned))
        except ScenarioError as error:
            first = error.problems[0]
            self._change(planned, state=LEFT_OUT, why=f"{first.path}: {first.message}")
            return None
        login = None if recipe is None else recipe.login
        experiment = probing(largest(scenario), login) if planned.probe else None
        return Turn(
            number=number,
            title=f"cell {number} of {len(self._planned)}: {planned.cell}: {planned.title}",
            scenario=scenario,
            folder=f"{CELLS}/{number:02}-{planned.cell}",
            command="" if planned.probe else asked.command(),
            planned_s=self._seconds[planned.cell],
            experiment=experiment or _playing(scenario, asked),
        )

    def _played_by(self, planned: PlannedCell) -> PlannedCell:
        """Returns the cell that starts the broker: a probe takes that of the anchor."""
        anchor = self._plan.anchor
        return next(c for c in self._plan.cells if c.cell == anchor) if planned.probe else planned

    def _scenario(self, planned: PlannedCell) -> tuple[Invocation, Scenario]:
        """Returns the scenario of a cell with this broker. Raises ScenarioError."""
        changes, broker = self._changes(planned), dict[str, Any]()
        recipe, dialect = self._subject.recipe, self._subject.dialect
        if recipe is not None:
            needs = {need: need in planned.needs for need in ("websocket", "tls")}
            broker["topology.brokers.broker"] = self._asked.terms.entry(recipe, **needs)
        absent = self._not_there(planned).keys() & {*planned.optional}
        # The scenario in MQTT does not fit the broker: its populations are written again.
        is_rewritten = dialect is not None or bool(absent)
        changes |= {} if is_rewritten else broker
        target = None if is_rewritten else self._asked.target
        asked = Invocation(planned.scenario, _overrides(changes), target, reports=False)
        scenario = asked.load()
        changes |= self._answers_in(planned, scenario)
        if recipe is not None and recipe.login is not None:
            for name in scenario.populations:
                changes[f"populations.{name}.username"] = recipe.login.username
                changes[f"populations.{name}.password"] = recipe.login.password
        if warm_s := self._warm_s(planned, scenario):
            changes[f"{'search' if scenario.search else 'sweep'}.warm_up"] = f"{warm_s:g}s"
        if is_rewritten:
            in_mqtt = populations_of(replace(asked, overrides=_overrides(changes)).load())
            spoken = {"populations": {n: each for n, each in in_mqtt.items() if n not in absent}}
            if dialect is not None:
                spoken = dialect.spoken(in_mqtt, persistent=self._asked.terms.persistent)
            kept = {path: v for path, v in changes.items() if not path.startswith("populations.")}
            changes = spoken | kept | broker
        asked = replace(asked, overrides=_overrides(changes), target=self._asked.target)
        return asked, asked.load()

    def _warm_s(self, planned: PlannedCell, scenario: Scenario) -> float:
        """Returns the seconds for which the broker warms up before a cell."""
        recipe, experiment = self._subject.recipe, scenario.search or scenario.sweep
        is_warmed = planned.warm_up and experiment is not None and experiment.broker == "same"
        return recipe.warm_up / SECOND_NS if recipe is not None and is_warmed else 0.0

    def _changes(self, planned: PlannedCell) -> dict[str, Any]:
        """Returns the values of a cell by path, with the length that is asked for."""
        soak_s = self._asked.soak_s
        length = {planned.soaks: f"{soak_s:g}s"} if planned.soaks and soak_s else {}
        return self._plan.overrides(planned) | length | self._faults_by_command(planned)

    def _given(self, planned: PlannedCell) -> tuple[str, ...]:
        """Returns the same as overrides."""
        return _overrides(self._changes(planned))

    def _faults_by_command(self, planned: PlannedCell) -> dict[str, Any]:
        """Returns the faults that the line of `--restart-command` makes, by path."""
        if not self._asked.restart:
            return {}
        target = parse_target(self._asked.subject.split()[0])
        host = f"[{target.host}]" if ":" in target.host else target.host
        made = {"command": self._asked.restart, "repaired_when": f"tcp {host}:{target.port}"}
        return {path: fault | made for path, fault in planned.by_command.items()}

    def _answers_in(self, planned: PlannedCell, scenario: Scenario) -> dict[str, Any]:
        """Returns values that follow from the answers of other cells."""
        found: dict[str, Any] = {}
        if planned.load is not None:
            rate = self._part(planned.load)
            found["populations.publisher.publications.0.rate"] = f"{rate:.4g}/s"
        if planned.start is not None and scenario.search is not None:
            measure = scenario.search.span.measure
            value = self._part(planned.start) * measure.per_unit
            low, high = scenario.search.span.low / 1000, scenario.search.span.high
            found["search.from"] = measure.written(float(f"{min(max(value, low), high):.3g}"))
        return found

    def _part(self, part: PartOfAnswer) -> float:
        return self._answers[part.of] * part.part

    def _planned_s(self, planned: PlannedCell) -> float:
        """Returns the seconds of a cell by its plan; 0 if its scenario does not fit."""
        if planned.probe:
            return PROBE_S
        try:
            scenario = Invocation(planned.scenario, self._given(planned)).load()
        except PubstormError:
            return 0.0
        warm_s = self._warm_s(planned, scenario)
        if scenario.search is None:
            runs_s = sum(run_s(step.scenario) for step in scenario.steps)
            return warm_s + runs_s * _repeats(scenario)
        settings = settings_of(scenario.search)
        if planned.start is not None:
            settings = replace(settings, low=1.0, high=STARTED_SPAN, whole=False)
        return warm_s + trials_left(settings, ()) * run_s(scenario)

    def _leave_out(self, planned: PlannedCell, why: str) -> None:
        self._change(planned, state=LEFT_OUT, why=why)
        self._journal.live.step(f"{planned.cell} is left out: {why}")

    def _remember(self, planned: PlannedCell, cell: SheetCell) -> None:
        """Keeps the answer of a search for cells that use it."""
        if cell.answer is not None:
            self._answers[planned.cell] = cell.answer

    def _change(self, planned: PlannedCell, **changes: Any) -> None:
        cell = self._cells[planned.cell]
        self._cells[planned.cell] = cell.model_copy(update=changes)

    def _learn(self, played: SearchResult | Series, folder: Path) -> None:
        """Takes the machine and the broker's version from the first run that has them."""
        if self._identity.environment is not None:
            return
        runs = played.trials if isinstance(played, SearchResult) else played.steps
        for run in runs:
            try:
                result = load_result(folder / run.folder)
            except StoredRunError:
                continue
            version = next((broker.version for broker in result.brokers), "")
            changes = {"environment": result.environment, "version": version}
            self._identity = self._identity.model_copy(update=changes)
            return


def _playing(scenario: Scenario, asked: Invocation) -> Playing:
    """Returns what plays the search or the series of a cell."""

    async def play(folder: Path, live: Live, topology: Topology | None) -> Played:
        if scenario.search is not None and not scenario.steps:
            return await play_search(scenario, folder, asked, live, topology)
        return await play_series(scenario, folder, asked, live)

    return play


def _is_wanted(asked: Asked, cell: PlannedCell) -> bool:
    own = {cell.cell, cell.section}
    return (not asked.only or bool(own & {*asked.only})) and not own & {*asked.skip}


def _overrides(changes: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{path}={written(value)}" for path, value in changes.items())


def _repeats(scenario: Scenario) -> int:
    return 1 if scenario.sweep is None else scenario.sweep.repeat


def _names(cells: Sequence[PlannedCell]) -> str:
    return ", ".join(cell.cell for cell in cells)
