"""Text with variables, by the grammar of `crates/plan/src/template.rs`: `{n}` is the client's
number, `{n%K}` and `{n/K}` its remainder and quotient, `{a..b}` a range with both ends, `{{` and
`}}` the braces themselves. It knows no plan and no scenario.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class TemplateError(ValueError):
    """What is wrong with a template: what was found and what is allowed."""


class Kind(Enum):
    """What stands between braces."""

    NUMBER = "n"
    REMAINDER = "n%K"
    QUOTIENT = "n/K"
    RANGE = "a..b"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; `a` and `b` are K and nothing, or both ends of a range."""

    kind: Kind
    a: int = 0
    b: int = 0

    def value(self, n: int, variant: int) -> int:
        """Its value for client number `n` and value number `variant` of the range."""
        match self.kind:
            case Kind.NUMBER:
                return n
            case Kind.REMAINDER:
                return n % self.a
            case Kind.QUOTIENT:
                return n // self.a
            case Kind.RANGE:
                return self.a + variant

    def __str__(self) -> str:
        match self.kind:
            case Kind.RANGE:
                return f"{{{self.a}..{self.b}}}"
            case Kind.NUMBER:
                return "{n}"
            case _:
                return f"{{{self.kind.value.replace('K', str(self.a))}}}"


Part = str | Variable


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    source: str
    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, source: str) -> Template:
        """Compiles a template; `TemplateError` says what was found and what is allowed."""
        parts: list[Part] = []
        at = 0
        while at < len(source):
            found = _TOKEN.match(source, at)
            if found is None:
                message = f"a single '{source[at]}', write it twice to mean the character"
                raise TemplateError(message)
            if found.lastgroup == "variable":
                parts.append(_variable(found["variable"]))
            else:
                parts.append({"{{": "{", "}}": "}"}.get(found[0], found[0]))
            at = found.end()
        template = cls(source, tuple(parts))
        if sum(v.kind is Kind.RANGE for v in template.variables) > 1:
            raise TemplateError("a second range, allowed is one in a template")
        return template

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables in it, from left to right."""
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @property
    def variants(self) -> int:
        """Values of the range in it; 1 where there is none."""
        ranges = (v.b - v.a + 1 for v in self.variables if v.kind is Kind.RANGE)
        return next(ranges, 1)

    def has(self, kind: Kind) -> bool:
        """Whether a variable of this kind is in it."""
        return any(variable.kind is kind for variable in self.variables)

    def text(self, n: int, variant: int = 0) -> str:
        """The text for client number `n` and value number `variant` of the range."""
        return "".join(
            part if isinstance(part, str) else str(part.value(n, variant)) for part in self.parts
        )

    def levels(self) -> tuple[tuple[Part, ...], ...]:
        """The levels of the topic or filter; a level with two variables is a `TemplateError`."""
        levels: list[list[Part]] = [[]]
        for part in self.parts:
            if isinstance(part, Variable):
                levels[-1].append(part)
                continue
            head, *rest = part.split("/")
            levels[-1].append(head)
            levels.extend([piece] for piece in rest)
        for level in levels:
            if sum(isinstance(part, Variable) for part in level) > 1:
                text = "".join(map(str, level))
                raise TemplateError(
                    f"two variables in the level '{text}' of a topic filter, allowed is one a level"
                )
        return tuple(tuple(part for part in level if part != "") for level in levels)


def _variable(text: str) -> Variable:
    if text == "n":
        return Variable(Kind.NUMBER)
    if found := _ARITHMETIC.fullmatch(text):
        k = int(found[2])
        if 0 < k <= U64_MAX:
            return Variable(Kind.REMAINDER if found[1] == "%" else Kind.QUOTIENT, k)
    if found := _RANGE.fullmatch(text):
        low, high = int(found[1]), int(found[2])
        if low <= high <= U64_MAX and high - low < RANGE_VALUES_MAX:
            return Variable(Kind.RANGE, low, high)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise TemplateError(
        f"'{{{shown}}}', allowed are {{n}}, {{n%K}}, {{n/K}} and a range such as {{1..20}}"
        f" of at most {RANGE_VALUES_MAX} values"
    )


U64_MAX = 2**64 - 1
RANGE_VALUES_MAX = 65_536

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<variable>[^}]*)\}|[^{}]+")
_ARITHMETIC = re.compile(r"n([%/])(\d{1,20})", re.ASCII)
_RANGE = re.compile(r"(\d{1,20})\.\.(\d{1,20})", re.ASCII)
