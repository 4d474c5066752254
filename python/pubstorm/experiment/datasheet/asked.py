"""A data sheet as a user asks for it, and its broker: a recipe on terms, or an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pubstorm.errors import UsageError
from pubstorm.result.datasheet import Identity
from pubstorm.scenario.document import yaml_of
from pubstorm.scenario.load import text_of as written_in
from pubstorm.scenario.recipes import NAMES_HINT as RECIPE_HINT
from pubstorm.scenario.recipes import Recipe, find_recipe, parse_recipe
from pubstorm.scenario.sheets import Dialect, PlannedCell, dialect_of, qos_of

QOS_MAX = 2
"""Highest QoS of MQTT."""


@dataclass(frozen=True, slots=True)
class BrokerTerms:
    """Terms on which a broker is started."""

    persistent: bool = False
    """True if it keeps its state on the disk."""
    cpus: tuple[int, ...] = ()
    """Processors that it may use; empty: all."""
    memory_bytes: int | None = None
    """Memory that it may use; None: all."""

    def entry(self, recipe: Recipe, **transport: bool) -> dict[str, Any]:
        """Returns a broker on these terms, as an entry of `topology.brokers`."""
        entry = recipe.entry(persistent=self.persistent, **transport)
        entry |= {"cpus": list(self.cpus)} if self.cpus else {}
        return entry | ({} if self.memory_bytes is None else {"memory": f"{self.memory_bytes}B"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A data sheet as a user asks for it."""

    subject: str
    """A recipe, by name or file, or the address of a broker that runs already."""
    for_s: float
    """Time of the sheet, in seconds."""
    plan: str = "default"
    """The plan: a file, or the name of one that comes with Pubstorm."""
    only: tuple[str, ...] = ()
    """Cells and sections that are measured; empty: all."""
    skip: tuple[str, ...] = ()
    """Cells and sections that are not measured."""
    terms: BrokerTerms = BrokerTerms()
    """Terms of a broker that the sheet starts."""
    soak_s: float | None = None
    """Length of the soak; None: that of the scenario."""
    restart: str = ""
    """Line for the shell that restarts a broker that runs already; empty: it is not restarted."""
    protocol: str | None = None
    """Title of the protocol of the clients; None: that of the address, or MQTT."""
    reports: bool = True

    @property
    def target(self) -> str | None:
        """The address, if it is one."""
        return self.subject if "://" in self.subject else None


@dataclass(frozen=True, slots=True)
class BrokerAsked:
    """The broker under test: a recipe, or an address."""

    name: str
    recipe: Recipe | None
    text: str = ""
    """Text of the recipe."""
    restart: str = ""
    """The line that restarts it, if the sheet does not start it."""
    dialect: Dialect | None = None
    """Protocol of the clients; None: MQTT."""

    @classmethod
    def of(cls, asked: Asked, text: str | None = None) -> BrokerAsked:
        """Reads the recipe, or takes the address. `text`: that of a recipe that was stored."""
        dialect = dialect_of(asked.protocol, asked.target)
        if asked.target is not None:
            if asked.terms != BrokerTerms():
                message = f"{asked.target} runs already: it has its terms"
                raise UsageError(message, "leave out --persistent, --cpus and --memory")
            return cls(asked.target, None, restart=asked.restart, dialect=dialect)
        if asked.restart:
            message = f"found --restart-command with {asked.subject}, which the sheet starts itself"
            raise UsageError(message, "leave it out: the sheet kills and starts the broker")
        path = find_recipe(asked.subject)
        text = written_in(path, RECIPE_HINT) if text is None else text
        recipe = parse_recipe(text, str(path))
        if asked.terms.persistent and recipe.persistent is None:
            message = f"found --persistent, which the recipe {asked.subject} does not have"
            raise UsageError(message, "; ".join(recipe.known) or "measure it without")
        if dialect is not None and dialect.protocol not in recipe.broker.other_ports:
            message = f"found {dialect.can.title} with the recipe {asked.subject}"
            raise UsageError(message, "give the address of a broker that runs, with its scheme")
        return cls(recipe.name, recipe, text, dialect=dialect)

    @property
    def is_less_than_mqtt(self) -> bool:
        """True if some populations of MQTT cannot be its clients."""
        return self.dialect is not None or (self.recipe is not None and self.recipe.qos < QOS_MAX)

    def without(self, populations: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the populations of MQTT that cannot be its clients, with the reason."""
        if self.dialect is not None:
            return self.dialect.without(populations)
        most = QOS_MAX if self.recipe is None else self.recipe.qos
        found = {name: qos_of(clients) for name, clients in populations.items()}
        return {name: f"{self.name} has no QoS {qos}" for name, qos in found.items() if qos > most}

    def lacks(self, cell: PlannedCell) -> str | None:
        """Returns the reason why this broker cannot have a cell; None if it can."""
        if "started" in cell.needs and self.recipe is None:
            if not cell.by_command:
                return "the sheet did not start this broker"
            if not self.restart:
                return "the sheet did not start this broker: --restart-command LINE restarts it"
        if "mqtt" in cell.needs and self.dialect is not None:
            return f"{self.dialect.can.title} does not have it"
        for need in ("tls", "websocket", "persistent"):
            if self.dialect is not None and need in ("tls", "websocket") and need in cell.needs:
                return f"the sheet starts no listener of {self.dialect.can.title} with {need}"
            if need in cell.needs and not (self.recipe and getattr(self.recipe, need)):
                return f"the sheet has no way to this broker with {need}"
        return None

    def identity(self, asked: Asked) -> Identity:
        """Returns the identity of the broker, as far as it is known before the first run."""
        recipe, dialect = self.recipe, self.dialect
        spoken = Identity(broker=self.name)
        if dialect is not None:
            spoken = Identity(broker=self.name, protocol=dialect.can.title, words=dialect.words)
        if recipe is None:
            return spoken
        return Identity(
            broker=recipe.name,
            protocol=spoken.protocol,
            words=spoken.words,
            recipe=asked.subject,
            source=recipe.source,
            settings=yaml_of(asked.terms.entry(recipe)),
            changed=recipe.changed,
            known=recipe.known if dialect is None else (),
            cpus=asked.terms.cpus,
            memory_bytes=asked.terms.memory_bytes,
            garbage=recipe.garbage,
        )
