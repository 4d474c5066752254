"""Texts of a test plan of JMeter: variables are replaced, functions become templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from xml.etree.ElementTree import Element

from pubstorm.cli.imports.scenario import literal
from pubstorm.cli.imports.words import printable
from pubstorm.contract.template import RANGE_VALUES_MAX
from pubstorm.errors import UsageError

REFERENCE = re.compile(r"\$\{([^${}]*)\}")
FUNCTION = re.compile(r"(__\w+)(?:\((.*)\))?", re.DOTALL)
EXPANSIONS_MAX = 5
"""Most variables that refer to one another."""
TEXT_CHARS_MAX = 100_000
"""Longest text after its variables are replaced."""
NUMBER = "{n}"
THREAD = frozenset({"__threadNum"})
PROPERTIES = frozenset({"__P", "__property"})
HEX_DIGITS_MAX = 4096


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,17}", text) else None


def _random(arguments: list[str], *, is_topic: bool) -> str | None:
    low, high = (_whole(each) for each in (*arguments, "", "")[:2])
    if low is None or high is None or low > high:
        return None
    if not is_topic:
        return f"{{random {low}..{high}}}"
    is_range = low >= 0 and high - low < RANGE_VALUES_MAX
    return f"{{{low}..{high}}}" if is_range else None


def _random_text(arguments: list[str], *, is_topic: bool) -> str | None:
    digits = _whole(arguments[0]) if arguments else None
    fits = digits is not None and 0 < digits <= HEX_DIGITS_MAX and not is_topic
    return f"{{hex {digits}}}" if fits else None


def _only_in_payloads(template: str) -> Callable[..., str | None]:
    def found(arguments: list[str], *, is_topic: bool) -> str | None:
        del arguments
        return None if is_topic else template

    return found


FUNCTIONS: Mapping[str, Callable[..., str | None]] = {
    "__Random": _random,
    "__RandomString": _random_text,
    "__UUID": _only_in_payloads("{hex 32}"),
    "__time": _only_in_payloads("{time}"),
    "__counter": _only_in_payloads("{seq}"),
}
"""Templates of functions, by their arguments; None if the place has none."""


class PlanTexts:
    """The texts of a plan, with the variables that it defines."""

    def __init__(self, root: Element, remarks: list[str]) -> None:
        self._remarks = remarks
        arguments = (
            each for each in root.iter("elementProp") if each.get("elementType") == "Argument"
        )
        self._variables = {
            name: prop(each, "Argument.value")
            for each in arguments
            if (name := prop(each, "Argument.name"))
        }

    def value(self, element: Element, name: str, default: str = "") -> str:
        """Returns a property with its variables, or the default if it is empty."""
        text = prop(element, name)
        for _ in range(EXPANSIONS_MAX):
            text = REFERENCE.sub(self._known, text)
            if len(text) > TEXT_CHARS_MAX:
                raise self.unfit(element, name, f"{len(text):,} characters", "are fewer")
        return text or default

    def number(self, element: Element, name: str, default: str = "0") -> int:
        """Returns a property that is a whole number. Raises UsageError."""
        text = self.value(element, name, default).strip()
        if re.fullmatch(r"[0-9]{1,12}", text) is None:
            raise self.unfit(element, name, text, "is a whole number")
        return int(text)

    def decimal(self, element: Element, name: str) -> float:
        """Returns a property that is a number. Raises UsageError."""
        text = self.value(element, name, "0").strip()
        if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text) is None:
            raise self.unfit(element, name, text, "is a number")
        return float(text)

    def is_on(self, element: Element, name: str, *, default: bool = False) -> bool:
        """Returns a property that is true or false."""
        return self.value(element, name, str(default).lower()).strip().lower() == "true"

    def template(
        self, text: str, element: Element, columns: frozenset[str], *, is_topic: bool
    ) -> str:
        """Returns a text as a template. Variables with the name of a column are values of rows."""
        return "".join(self._parts(text, element, columns, is_topic=is_topic))

    def unfit(self, element: Element, name: str, found: str, allowed: str) -> UsageError:
        """Returns the error of a property that is not allowed."""
        shown = printable(found[:80])
        return UsageError(
            f"found {name} {shown} in {title(element)}, allowed {allowed}",
            "a variable needs a value in the plan" if "${" in found else None,
        )

    def _known(self, found: re.Match[str]) -> str:
        name = found[1].strip()
        function = FUNCTION.fullmatch(name)
        if function is not None and function[1] in PROPERTIES:
            return (function[2] or "").rpartition(",")[2].strip()
        return self._variables.get(name, found[0])

    def _parts(
        self, text: str, element: Element, columns: frozenset[str], *, is_topic: bool
    ) -> Iterator[str]:
        for number, piece in enumerate(REFERENCE.split(text)):
            if number % 2 == 0:
                yield literal(piece)
                continue
            function = FUNCTION.fullmatch(piece.strip())
            if piece in columns:
                yield f"{{row.{piece}}}"
            elif function is None or function[1] not in {*FUNCTIONS, *THREAD}:
                yield self._unknown(piece, element)
            elif function[1] in THREAD:
                yield NUMBER
            else:
                arguments = [each.strip() for each in (function[2] or "").split(",")]
                found = FUNCTIONS[function[1]](arguments, is_topic=is_topic)
                yield found or self._unknown(piece, element)

    def _unknown(self, piece: str, element: Element) -> str:
        shown = printable(piece[:80])
        self._remarks.append(f"# without ${{{shown}}} of {title(element)}: it stays a text")
        return literal(f"${{{piece}}}")


def prop(element: Element, name: str) -> str:
    """Returns the text of a property; empty if the element has none."""
    return next((each.text or "" for each in element if each.get("name") == name), "")


def title(element: Element) -> str:
    """Returns the name of an element as its user sees it."""
    return f'"{printable(element.get("testname", "")[:60])}"'
