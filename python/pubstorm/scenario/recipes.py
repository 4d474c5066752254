"""Recipes of brokers: how a broker is installed and started on equal terms with others, and what it
cannot do. Each is a YAML file that comes with Pubstorm. All problems of a file are reported
together, each with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path as FilePath
from typing import Any

from pydantic import PrivateAttr, ValidationError

from pubstorm.errors import ScenarioError, ScenarioProblem
from pubstorm.files import shipped
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.base import Part, broken_rules
from pubstorm.scenario.checks.brokers import check_broker
from pubstorm.scenario.document import Finding, Path, YamlDocument
from pubstorm.scenario.fields import Flag, PositiveDuration, QoS, SomeText
from pubstorm.scenario.load import mapping_in, named_file, text_of
from pubstorm.scenario.problems import explain
from pubstorm.scenario.topology import AnyBroker

WARM_UP = 5 * SECOND_NS
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "websocket": {"transport": "websocket"},
    "tls": {"tls": "server"},
}
"""Keys of the broker for clients of another transport."""


class RecipeLogin(Part):
    """A user whom the broker accepts."""

    username: SomeText
    """User name."""
    password: SomeText
    """Password."""


class Recipe(Part):
    """A broker that a data sheet can start."""

    name: SomeText
    """Name of the broker, as its makers write it."""
    source: SomeText
    """Place that it comes from, in one line."""
    install: SomeText
    """Command that installs it."""
    broker: AnyBroker
    """The broker on equal terms, as an entry of `topology.brokers`: persistence off, no limits of
    queues, no delay of small packets, no logs."""
    changed: tuple[SomeText, ...] = ()
    """Differences from the maker's defaults, each in a sentence with its reason."""
    persistent: Mapping[str, Any] | None = None
    """Keys of `broker` that change if it keeps sessions and messages on the disk. Default: it
    cannot, for a reason in `known`."""
    websocket: Flag = False
    """It serves WebSocket with `transport: websocket`."""
    tls: Flag = False
    """It serves TLS with `tls: server`."""
    login: RecipeLogin | None = None
    """Login of every client. Default: clients need none."""
    qos: QoS = 2
    """Highest QoS with which clients can publish and subscribe."""
    warm_up: PositiveDuration = WARM_UP
    """Time under load until it is as fast as it will be. A JVM needs about a minute."""
    garbage: Flag = False
    """Its memory has garbage in it, which a collector has not taken yet."""
    untried: SomeText | None = None
    """The reason why no test of this project starts it. Default: a test does."""
    known: tuple[SomeText, ...] = ()
    """Known limits in MQTT, each in a sentence."""

    _entry: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    def entry(
        self, *, persistent: bool = False, websocket: bool = False, tls: bool = False
    ) -> dict[str, Any]:
        """Returns the broker as it is written under `topology.brokers`: with persistence, with a
        listener for WebSocket, or under TLS."""
        entry = deepcopy({**self._entry})
        if persistent:
            entry = merged(entry, self.persistent or {})
        for key, is_wanted in (("websocket", websocket), ("tls", tls)):
            entry = merged(entry, VARIANTS[key] if is_wanted else {})
        return entry

    def read_from(self, entry: Mapping[str, Any]) -> Recipe:
        """Returns the same recipe with its broker as it was written."""
        copy = self.model_copy()
        copy._entry = entry
        return copy

    def rules(self) -> Iterator[Finding]:
        """Yields problems of the broker alone."""
        yield from check_broker(("broker",), self.broker)


def load_recipe(path: FilePath) -> Recipe:
    """Reads a recipe; raises ScenarioError with every problem."""
    return parse_recipe(text_of(path, NAMES_HINT), str(path))


def parse_recipe(text: str, file: str) -> Recipe:
    """Reads a recipe from text that came from `file`."""
    document = mapping_in(text, file, Recipe, NAMES_HINT)
    data: Any = document.data
    recipe, findings = _validated(data, FilePath(file).absolute().parent)
    if recipe is not None and not findings:
        findings = [*_of_variants(recipe, data, FilePath(file).absolute().parent)]
    problems = [*problems_of(document, file, findings)]
    if recipe is None or problems:
        raise ScenarioError(problems)
    return recipe.read_from(_as_mapping(data["broker"]))


def merged(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping with changes; mappings within it are merged too."""
    inner = {
        key: merged(whole[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
    }
    return {**whole, **changes, **inner}


def _validated(data: Any, folder: FilePath) -> tuple[Recipe | None, list[Finding]]:
    """Returns the recipe, if the types of all values fit, and the problems."""
    try:
        recipe = Recipe.model_validate(data, context=folder)
    except ValidationError as error:
        return None, explain(error, Recipe)
    return recipe, [*broken_rules(recipe)]


def _of_variants(recipe: Recipe, data: Mapping[str, Any], folder: FilePath) -> Iterator[Finding]:
    """Yields problems of the broker with persistence, WebSocket and TLS, at the keys that say that
    it has them. The broker alone has none."""
    changes = {key: change for key, change in VARIANTS.items() if getattr(recipe, key)}
    changes["persistent"] = merged(recipe.persistent or {}, changes.get("websocket", {}))
    for key, change in changes.items():
        varied = {**data, "broker": merged(_as_mapping(data["broker"]), change)}
        for path, message, hint in _validated(varied, folder)[1]:
            yield (key, *(path[1:] if key == "persistent" else ())), message, hint


def _as_mapping(broker: Any) -> Mapping[str, Any]:
    """Returns a broker without its short form."""
    return broker if isinstance(broker, dict) else {"kind": broker}


def problems_of(
    document: YamlDocument, file: str, findings: Iterable[Finding]
) -> Iterator[ScenarioProblem]:
    """Yields problems at the closest places that the user wrote, by line."""
    twice: list[Finding] = [
        (path, "found the same key twice", None) for path, _ in document.duplicates
    ]
    lines = dict(document.duplicates)
    at = [(lines.get(each[0]) or _line(document, each[0]), each) for each in (*twice, *findings)]
    for line, (path, message, hint) in sorted(at, key=lambda each: each[0]):
        yield ScenarioProblem(f"{file}:{line}", ".".join(map(str, path)), message, hint)


def _line(document: YamlDocument, path: Path) -> int:
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines.get(path, 1)


def recipe_names() -> list[str]:
    """Returns the names of the recipes that come with Pubstorm."""
    return [*shipped("recipes", "*.yaml")]


def find_recipe(name: str) -> FilePath:
    """Returns the file that a user means by a path or by the name of a recipe."""
    return named_file(name, "recipes", "found no recipe")


NAMES_HINT = "the folder recipes of Pubstorm has ready ones to start from"
