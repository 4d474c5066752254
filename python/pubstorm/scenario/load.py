"""From a scenario file, or a ready scenario that comes with Pubstorm, to a scenario: read,
override, validate and check. All problems are reported together, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, BinaryIO

from pydantic import ValidationError

from pubstorm.errors import (
    ScenarioError,
    ScenarioProblem,
    UsageError,
    is_secret,
    meant,
    without_credentials,
)
from pubstorm.files import content_of, shipped
from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.base import Part
from pubstorm.scenario.checks import check_files, check_keys, check_values
from pubstorm.scenario.client_profiles import with_client_profiles
from pubstorm.scenario.document import (
    At,
    DocumentError,
    Finding,
    Path,
    References,
    YamlDocument,
    read_document,
    redacted_override,
    redacted_text,
    yaml_of,
)
from pubstorm.scenario.expressions import (
    check_expression,
    check_limits,
    check_variant_columns,
    with_limits,
)
from pubstorm.scenario.message_counts import check_messages, with_lengths
from pubstorm.scenario.model import Scenario, ScenarioText, Step
from pubstorm.scenario.problems import explain, shape_of
from pubstorm.scenario.recovery import recovery_settings
from pubstorm.scenario.rewrite import (
    apply_override,
    counted,
    parse_override,
    placed,
    retargeted,
)
from pubstorm.scenario.series import Search, Sweep, Variation, numbered, shown
from pubstorm.scenario.sizes import (
    allowed_descriptors,
    check_rates,
    scaled,
    scaled_sweep,
    with_numbers,
    with_rates,
)


def load_scenario(
    path: FilePath, overrides: Sequence[str] = (), target: str | None = None
) -> Scenario:
    """Reads a scenario file; raises `ScenarioError` with every problem.

    `overrides` are `a.b.c=value` each. A `target` replaces the file's and its brokers, but for
    those that are bridged to it; several are separated by spaces.
    """
    return parse_scenario(text_of(path, EXAMPLE_HINT), str(path), overrides, target)


def read_standard_input(overrides: Sequence[str] = (), target: str | None = None) -> Scenario:
    """Reads a scenario from stdin in the same way. Its relative paths are from the working
    directory."""
    with open(0, "rb", closefd=False) as stdin:
        return parse_scenario(_read(stdin, STDIN), STDIN, overrides, target)


def parse_scenario(
    text: str,
    file: str,
    overrides: Sequence[str] = (),
    target: str | None = None,
    *,
    lenient: bool = False,
) -> Scenario:
    """Reads a scenario from text that came from `file`. If `lenient`, secrets that it refers to
    need not exist."""
    loading = _Loading(file, mapping_in(text, file, Scenario, EXAMPLE_HINT))
    loading.lenient = lenient
    return loading.scenario(text, overrides, target)


def mapping_in(text: str, file: str, part: type[Part], hint: str) -> YamlDocument:
    """Returns a document whose text came from `file` and must be a mapping with the keys of `part`.
    Raises ScenarioError."""
    try:
        document = read_document(text)
    except DocumentError as error:
        problem = ScenarioProblem(f"{file}:{error.line}", "", str(error), error.hint)
        raise ScenarioError([problem]) from None
    if isinstance(document.data, dict):
        return document
    message = f"found no mapping, allowed are the keys {', '.join(shape_of(part).keys)}"
    message = "found an empty file" if document.data is None else message
    raise ScenarioError([ScenarioProblem(f"{file}:1", "", message, hint)])


def written_again(scenario: Scenario) -> str:
    """Returns the text of a scenario with its overrides and its target as values. Secrets stay
    references."""
    source = scenario.source
    loading = _Loading(source.file, read_document(source.text))
    written = {**loading.written(source.overrides, source.target)}
    written["populations"] = _without_nulls(written["populations"])
    return yaml_of({key: part for key, part in written.items() if part != {}})


def populations_of(scenario: Scenario) -> Mapping[str, Any]:
    """Returns the populations of a scenario as they are written, with its overrides."""
    data: Any = read_document(written_again(scenario)).data
    return {**data["populations"]}


def _without_nulls(part: Any) -> Any:
    """Returns a part without its null values, which are as if they were absent."""
    if isinstance(part, Mapping):
        return {key: _without_nulls(each) for key, each in part.items() if each is not None}
    return [_without_nulls(each) for each in part] if isinstance(part, list) else part


def varied(scenario: Scenario, *overrides: str) -> Scenario:
    """A scenario read again, with more overrides; raises `ScenarioError`."""
    source = scenario.source
    return parse_scenario(source.text, source.file, (*source.overrides, *overrides), source.target)


def searched(scenario: Scenario, value: float) -> Scenario:
    """A scenario with a value of its search, in the unit of its parser, and without the search."""
    search = scenario.search
    assert search is not None, "only a scenario with a search has such values"
    return varied(scenario, FOUND, f"{search.vary}={search.span.measure.written(value)}")


def smallest(scenario: Scenario) -> Scenario:
    """The first that is played of a scenario: with the first value of its search, if it has one."""
    search = scenario.search
    return scenario if search is None else searched(scenario, search.span.low)


def largest(scenario: Scenario) -> Scenario:
    """The heaviest that a scenario comes to: with the last value of its search, if it has one."""
    search = scenario.search
    return scenario if search is None else searched(scenario, search.span.high)


def check_figure(scenario: Scenario, figure: Expression) -> Iterator[Finding]:
    """Yields the reason why the runs of a scenario cannot have a figure."""
    source = scenario.source
    loading = _Loading(source.file, read_document(source.text))
    root = At(loading.written(source.overrides, source.target))
    yield from check_expression(root, scenario, figure)


class _Loading:
    """One file on its way: its values so far, and where each came from."""

    def __init__(self, file: str, document: YamlDocument) -> None:
        self.file = file
        self.document = document
        self.data = document.data
        self.lines = document.lines
        self.lenient = False
        self.resolved_at: set[Path] = set()
        """Paths of the secrets that the scenario refers to."""
        self.overridden: dict[Path, str] = {}
        self.left_out: tuple[str, ...] = ()
        self.problems = [
            self._problem(path, "found the same key twice", None, line)
            for path, line in document.duplicates
        ]

    def scenario(self, text: str, overrides: Sequence[str], target: str | None) -> Scenario:
        self.written(overrides, target)
        self._resolve()
        if isinstance(self.data, dict):
            self.data = self._sized({"name": _name_of(self.file), **self.data})
        scenario = self._validate()
        if scenario is not None and scenario.search is not None and not self.problems:
            self._check_ends(scenario, scenario.search, text, (overrides, target))
        steps: tuple[Step, ...] = ()
        if scenario is not None and scenario.sweep is not None and not self.problems:
            steps = self._steps(scenario.sweep, text, (overrides, target))
        if scenario is None or self.problems:
            raise ScenarioError(sorted(self.problems, key=self._order))
        settings = [f"--set {redacted_override(override)}" for override in overrides]
        settings += [_options(target)] if target is not None else []
        notes = "".join(f"# with {setting}\n" for setting in settings)
        stored = redacted_text(text)
        newline = "" if stored.endswith("\n") or not notes else "\n"
        source = ScenarioText(text, self.file, tuple(overrides), target, self.left_out)
        return scenario.read_from(source, stored + newline + notes, steps)

    def written(self, overrides: Sequence[str], target: str | None) -> Mapping[str, Any]:
        """The values with overrides and target, as they are written."""
        for override in overrides:
            self._override(override)
        if target is not None:
            self._retarget(target)
        if isinstance(self.data, dict):
            there = placed(self.data)
            self.data, self.left_out = dict(there.data), (*self.left_out, *there.left_out)
        return self.data if isinstance(self.data, dict) else {}

    def _sized(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values with every size times the scale, and with numbers that follow from sizes."""
        larger, unscaled = scaled(data)
        sized, unknown = with_numbers(counted(larger, allowed_descriptors()))
        self._add((*unscaled, *unknown))
        return sized

    def _resolve(self) -> None:
        references = References(self._folder, lenient=self.lenient)
        self.data = references.resolved(self.data)
        self.resolved_at = references.paths
        if references.problems:
            self._add(references.problems)
            raise ScenarioError(sorted(self.problems, key=self._order))

    def _check_ends(
        self,
        scenario: Scenario,
        search: Search,
        text: str,
        settings: tuple[Sequence[str], str | None],
    ) -> None:
        """Loads the scenario with the first and the last value of its search, and with its recovery
        test; what is wrong with one is a problem of that key."""
        overrides, target = settings
        span = search.span
        ends = {"from": span.low, "to": span.high}
        played: dict[str, tuple[str, ...]] = {
            k: (f"{search.vary}={span.measure.written(end)}",) for k, end in ends.items()
        }
        if search.recovery:
            beyond = min(search.grow * span.low, span.high)
            played["recovery"] = recovery_settings(scenario, span.low, beyond)
        for key, settings_of_key in played.items():
            own = settings_of_key[0]
            try:
                apply_override(self.data, shape_of(Scenario), parse_override(own))
                loading = _Loading(self.file, self.document)
                loading.lenient = self.lenient
                loading.scenario(text, (*overrides, ALONE, FOUND, *settings_of_key), target)
            except UnfitError as unfit:
                self._add([(("search", "vary"), str(unfit), unfit.hint)])
                return
            except ScenarioError as error:
                words = f"with {own.replace('=', ' ', 1)}"
                found = ((f"{words}: {each.message}", each.hint) for each in error.problems)
                self._add((("search", key), *each) for each in found)

    def _steps(
        self, sweep: Sweep, text: str, settings: tuple[Sequence[str], str | None]
    ) -> tuple[Step, ...]:
        """Every step of a sweep, loaded as if it stood alone; what is wrong with one is a problem
        of the value that brought it."""
        overrides, target = settings
        steps: list[Step] = []
        looked_at: set[str | None] = {None}
        as_played = scaled_sweep(sweep, self.data).variations()
        for variation, played in zip(sweep.variations(), as_played, strict=True):
            own, variant = variation.overrides, variation.variant
            loading = _Loading(self.file, self.document)
            loading.lenient = self.lenient
            try:
                scenario = loading.scenario(text, (*overrides, ALONE, *own.values()), target)
            except ScenarioError as error:
                self._add_of_step(variation, error.problems)
                continue
            steps.append(Step(variation, scenario, numbered(variation, played)))
            if variant is not None and variant not in looked_at:
                looked_at.add(variant)
                self._add(check_variant_columns(At(loading.data), scenario, variant))
        other = [s for s in steps if s.scenario.topology != steps[0].scenario.topology]
        if sweep.broker == "same" and other:
            message = "found 'same' for steps with different brokers, allowed is 'fresh'"
            hint = f"step {other[0].variation.label!r} changes them"
            self._add([(("sweep", "broker"), message, hint)])
        return tuple(steps)

    def _add_of_step(self, variation: Variation, problems: Sequence[ScenarioProblem]) -> None:
        overrides = variation.overrides.items()
        paths = {f"--set {redacted_override(setting)}": path for path, setting in overrides}
        for problem in problems:
            path = paths.get(problem.place)
            if path is None:
                place: Path = ("sweep",)
                words = f"step {variation.label!r}: {problem.path}: {problem.message}"
            else:
                place, value = variation.places[path], shown(path, variation.values[path])
                named = value in problem.message
                words = problem.message if named else f"{value}: {problem.message}"
            found = self._problem(place, words, problem.hint)
            if found not in self.problems:
                self.problems.append(found)

    def _override(self, text: str) -> None:
        try:
            override = parse_override(text)
            self.data = apply_override(self.data, shape_of(Scenario), override)
            self.overridden[override.path] = f"--set {redacted_override(text)}"
        except UnfitError as unfit:
            path = text.partition("=")[0]
            place = f"--set {redacted_override(text)}"
            message = UNFIT_SECRET if is_secret((path,)) else str(unfit)
            self.problems.append(ScenarioProblem(place, path, message, unfit.hint))

    def _retarget(self, target: str) -> None:
        if not isinstance(self.data, dict):
            return
        # No target may have a login, and a password with a blank would be parts of several.
        target = without_credentials(target)
        moved = retargeted(self.data, target.split())
        self.data, self.left_out = dict(moved.data), moved.left_out
        self.overridden[("target",)] = _options(target)

    def _validate(self) -> Scenario | None:
        self._add(check_keys(self.data))
        try:
            written = Scenario.model_validate(self.data, context=self._folder)
        except ValidationError as error:
            self._add(explain(error))
            return None
        self._add((*check_limits(written), *check_rates(written)))
        scenario = with_limits(with_rates(written))
        if not self.problems:
            self._add(check_messages(scenario))
        if not self.problems:
            scenario, unfit = with_client_profiles(scenario)
            self._add(unfit)
        if not self.problems:
            scenario = with_lengths(scenario)
            self._add(check_values(scenario))
        if not self.problems:
            self._add(check_files(scenario))
        return scenario

    @property
    def _folder(self) -> FilePath:
        return FilePath(self.file).absolute().parent

    def _add(self, findings: Iterable[Finding]) -> None:
        for path, message, hint in findings:
            self.problems.append(self._problem(path, message, hint))

    def _problem(
        self, path: Path, message: str, hint: str | None, line: int | None = None
    ) -> ScenarioProblem:
        """A problem at the closest place that the user wrote."""
        quoted = self._quoted_secret(path, message)
        if quoted is not None:
            message, hint = f"{UNFIT_SECRET}{_allowed(message, quoted)}", SECRET_HINT
        shown = path
        while shown and shown not in self.lines and shown not in self.overridden:
            shown = shown[:-1]
        is_short_form = shown != path and isinstance(self._value_at(shown), str | int | float)
        written = ".".join(map(str, shown if is_short_form else path))
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return ScenarioProblem(self.overridden[path[:end]], written, message, hint)
        return ScenarioProblem(
            f"{self.file}:{line or self.lines.get(shown, 1)}", written, message, hint
        )

    def _quoted_secret(self, path: Path, message: str) -> str | None:
        """Returns the beginning of a message that quotes the value that it found, if that is a
        secret; else None."""
        quoted = f"found {describe(self._value_at(path))}"
        may_be_secret = is_secret(path) or path in self.resolved_at
        return quoted if may_be_secret and message.startswith(quoted) else None

    def _value_at(self, path: Path) -> object:
        value: object = self.data
        for step in path:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
        return value

    def _order(self, problem: ScenarioProblem) -> tuple[int, str]:
        line = problem.place.removeprefix(f"{self.file}:")
        return (int(line) if line.isdigit() else 10**9, problem.path)


def text_of(path: FilePath, hint: str) -> str:
    """Returns the text of a file that a user named; raises ScenarioError. `hint`: the remedy if
    there is no such file."""
    try:
        with path.open("rb") as file:
            return _read(file, str(path))
    except FileNotFoundError:
        raise _unreadable(path, "found no such file", hint) from None
    except IsADirectoryError:
        raise _unreadable(path, "found a directory, allowed is a YAML file", None) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, f"cannot be read: {reason}", None) from None


def _read(stream: BinaryIO, name: str) -> str:
    try:
        content = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(name, f"cannot be read: {error.strerror}", None) from None
    if len(content) > FILE_BYTES_MAX:
        raise _unreadable(name, "found more than 1 MiB, allowed is a smaller file", None)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = "found bytes that are not UTF-8"
        raise ScenarioError([ScenarioProblem(f"{name}:{line}", "", message)]) from None


def _unreadable(path: FilePath | str, message: str, hint: str | None) -> ScenarioError:
    return ScenarioError([ScenarioProblem(str(path), "", message, hint)])


def _name_of(file: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", FilePath(file).stem).strip("-")[:60]
    return stem if stem[:1].isalpha() else f"run-{stem}".rstrip("-")


def _options(target: str) -> str:
    """Returns the options of a command line for the targets in a text."""
    return " ".join(f"--target {each}" for each in target.split())


def _allowed(message: str, quoted: str) -> str:
    """Returns the allowed values of a message, without the value that was found."""
    rest = message.removeprefix(quoted).partition(": found")[0]
    return rest if rest.startswith(", allowed ") else ""


UNFIT_SECRET = "found a secret that does not fit here"
SECRET_HINT = "a secret is text in quotes; {n} and {row.NAME} are replaced, {{ and }} are braces"
ALONE = "sweep=null"
"""The override that makes a scenario with a sweep one of its steps."""
FOUND = "search=null"
"""The override that makes a scenario with a search one of its points."""
FILE_BYTES_MAX = 2**20
STDIN = "stdin"
"""Name of a scenario that was read from stdin."""
EXAMPLE_HINT = "pubstorm scenarios lists ready ones to start from"


def scenario_files() -> list[FilePath]:
    """The ready scenarios, by name."""
    return [*shipped("scenarios", "*.yaml").values()]


def shipped_scenarios() -> list[Scenario]:
    """The ready scenarios, read."""
    return [load_scenario(path) for path in scenario_files()]


def find_scenario(name: str) -> FilePath:
    """The file that a user means by a path or by the name of a ready scenario."""
    if FilePath(name).exists():
        return FilePath(name)
    others = "pubstorm scenarios lists the ready ones"
    return named_file(name, "scenarios", "found no file and no ready scenario", others)


def unchanged(name: str, stored: str) -> str | None:
    """Returns the text of the file that a stored scenario was read from, with its secrets. None
    unless the file is as it was then."""
    try:
        content = content_of(find_scenario(name), FILE_BYTES_MAX, follows_links=True)
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        read_document(text)
    except (UsageError, OSError, ValueError):
        return None
    return text if redacted_text(text) == stored else None


def named_file(name: str, folder: str, missing: str, others: str = "") -> FilePath:
    """Returns the file that a user means by a path, or by the name of one in a folder that comes
    with Pubstorm. Raises UsageError, which opens with `missing`, with the most similar name or
    `others` as hint; default: all names."""
    path, known = FilePath(name), shipped(folder, "*.yaml")
    if path.suffix in {".yaml", ".yml"} or "/" in name:
        return path
    if name in known:
        return known[name]
    hint = meant(name, known, others or f"there are {', '.join(known)}")
    raise UsageError(f"{missing} {name!r}", hint)
