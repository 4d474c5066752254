"""Lists the names of clients that need keys, by population, from a template and a range of numbers
or from a scenario."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.template import Template, TemplateError, VariableKind
from pubstorm.contract.texts import template_of
from pubstorm.errors import UsageError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import load_scenario
from pubstorm.scenario.shipped import find_scenario

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The keys that a user asks for."""

    template: str | None = None
    """Template of a name."""
    count: int | None = None
    """Number of clients."""
    first: int = 0
    """Number of the first."""
    scenario: str | None = None
    """A scenario instead."""

    @property
    def is_nothing(self) -> bool:
        """True if the user asks for no keys."""
        return self.template is None and self.scenario is None and self.count is None

    def identities(self) -> tuple[Names, ...]:
        """Identities of pre-shared keys, by population; clients of a scenario may share one."""
        if self.scenario is not None:
            self._require_alone()
            chosen = [p for p in _populations(self.scenario) if not _has_certificate(p)]
            return tuple(tuple(dict.fromkeys(names_of(p, _identity(p)))) for p in chosen)
        return (self._numbered(),)

    def subjects(self) -> tuple[Names, ...]:
        """Common names of certificates, by population."""
        if self.scenario is not None:
            self._require_alone()
            chosen = [p for p in _populations(self.scenario) if not _has_psk(p)]
            return tuple(names_of(p, p.client_id) for p in chosen)
        return (self._numbered(),)

    def _numbered(self) -> Names:
        if self.template is None or self.count is None:
            raise UsageError(
                "found no clients, needed are a template with --count, or --scenario",
                "for example: 'device-{n}' --count 3000",
            )
        try:
            template = Template.parse(self.template)
        except TemplateError as error:
            raise UsageError(f"found {error}") from None
        if template.has(
            *set(VariableKind)
            - {VariableKind.NUMBER, VariableKind.REMAINDER, VariableKind.QUOTIENT}
        ):
            hint = "write {n}, and how many with --count"
            message = f"found {self.template!r}, allowed are {{n}}, {{n%K}} and {{n/K}}"
            raise UsageError(message, hint)
        return tuple(template.text(n) for n in range(self.first, self.first + self.count))

    def _require_alone(self) -> None:
        if self.template is not None or self.count is not None:
            raise UsageError("found --scenario and a template or --count, allowed is one of them")


def names_of(population: PlannedPopulation, template: str) -> Names:
    """A template's text for every client of a population, in their order."""
    compiled = template_of(population, template)
    first = population.first
    return tuple(compiled.text(n) for n in range(first, first + population.clients))


def _populations(scenario: str) -> tuple[PlannedPopulation, ...]:
    loaded = load_scenario(find_scenario(scenario))
    targets = tuple(t.model_copy(update={"tls": True}) for t in planned_targets(loaded))
    return compile_plan(loaded, targets, run_tag=0).populations


def _identity(population: PlannedPopulation) -> str:
    tls = population.tls
    return population.client_id if tls is None or tls.psk is None else tls.psk.identity


def _has_psk(population: PlannedPopulation) -> bool:
    return population.tls is not None and population.tls.psk is not None


def _has_certificate(population: PlannedPopulation) -> bool:
    return population.tls is not None and population.tls.certificate is not None
