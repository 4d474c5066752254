"""Command lines of other tools: each tool is a table of options, and one reader takes the words
apart. Values of secret options are left out of what is shown of a line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from pubstorm.cli.imports.scenario import literal
from pubstorm.errors import REDACTED, UsageError, without_credentials

BETWEEN_COMMANDS = frozenset({"&", "&&", ";"})
"""Words of a shell that end a command."""
JAR = re.compile(r"(?:-(?:latest|[0-9][\w.-]*))?\.jar$")
"""End of the file of a program for a JVM, with its version."""

GO_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h)")
GO_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "m": 6e4, "h": 3.6e6}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of another tool."""

    short: str = ""
    default: str | None = None
    is_flag: bool = False
    """True if the option can stand without a value."""
    is_many: bool = False
    """True if all words up to the next option are its values."""
    of: tuple[str, ...] = ()
    """Actions that have the option; empty: all."""
    remark: str = ""
    """The reason why the scenario has no key for the option; empty if it has one."""
    unless: str = ""
    """The value for which the remark is not needed, as the scenario does the same."""
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Grammar:
    """The command line of a tool."""

    tool: str
    """Name of the tool in messages."""
    programs: frozenset[str]
    options: Mapping[str, Option]
    """Options by their long name."""
    example: str
    actions: tuple[str, ...] = ()
    """The first word after the program; empty if there is none."""
    has_flag_words: bool = False
    """True if `true` or `false` can follow a flag as a word of its own."""
    has_one_dash: bool = False
    """True if one dash introduces a long name, as in programs of Go."""

    def shown(self, name: str) -> str:
        """Returns an option as its users write it."""
        short = self.options[name].short
        return f"-{short or name}" if short or self.has_one_dash else f"--{name}"


@dataclass(slots=True)
class GivenCommand:
    """A command line, taken apart."""

    grammar: Grammar
    action: str
    shown: list[str]
    """Its words, without secrets."""
    given: dict[str, list[str]] = field(default_factory=dict)
    """Values of the options that the user gave, by long name."""
    before: list[str] = field(default_factory=list)
    """Words before the program, such as those of a container."""

    @property
    def comment(self) -> str:
        """The command line on one line, without secrets."""
        return printable(without_credentials(shlex.join(self.shown)))

    def has(self, name: str) -> bool:
        """Returns True if the user gave an option."""
        return name in self.given

    def all(self, name: str) -> list[str]:
        """Returns each value of an option."""
        default = self.grammar.options[name].default
        return self.given.get(name, [] if default is None else [default])

    def value(self, name: str) -> str | None:
        """Returns the last value of an option, or its default."""
        values = self.all(name)
        return values[-1] if values else None

    def text(self, name: str) -> str:
        """Returns the last value of an option, its default or an empty text."""
        return self.value(name) or ""

    def number(self, name: str) -> int:
        """Returns an option that is a whole number. Raises UsageError."""
        text = self.value(name) or "0"
        if re.fullmatch(r"[0-9]{1,18}", text) is None:
            raise self.unfit(name, "is a whole number")
        return int(text)

    def decimal(self, name: str) -> float:
        """Returns an option that is a number with or without a fraction. Raises UsageError."""
        text = self.value(name) or "0"
        if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", text) is None:
            raise self.unfit(name, "is a number")
        return float(text)

    def duration_ms(self, name: str) -> int:
        """Returns an option that is a duration as programs of Go read it. Raises UsageError."""
        text = self.value(name) or "0s"
        if re.fullmatch(f"(?:{GO_DURATION.pattern})+|0", text) is None:
            raise self.unfit(name, "is a duration such as 500ms, 10s or 1m30s")
        parts = GO_DURATION.findall(text)
        return round(sum(float(number) * GO_UNITS_MS[unit] for number, unit in parts))

    def is_on(self, name: str) -> bool:
        """Returns a flag. Raises UsageError."""
        text = self.value(name) or "false"
        if text not in {"true", "false"}:
            raise self.unfit(name, "is true or false")
        return text == "true"

    def one_of(self, name: str, values: Mapping[str, str], allowed: str) -> str:
        """Returns what stands for the value of an option in a table. Raises UsageError."""
        found = values.get(self.text(name))
        if found is None:
            raise self.unfit(name, f"is {allowed}")
        return found

    def unfit(self, name: str, allowed: str, hint: str | None = None) -> UsageError:
        """Returns the error of a value that is not allowed."""
        is_secret = self.grammar.options[name].is_secret
        shown = REDACTED if is_secret else without_credentials(self.text(name))
        return UsageError(f"found {self.grammar.shown(name)} {shown}, allowed {allowed}", hint)

    def remarks(self, reasons: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yields a comment for each given option without an equal. `reasons` are those of options
        that this command line does not need, by name."""
        for name, values in self.given.items():
            option = self.grammar.options[name]
            reason = (reasons or {}).get(name) or option.remark
            if not reason or values == [option.unless]:
                continue
            shown = [REDACTED] if option.is_secret else values
            if option.is_flag and values == ["true"]:
                shown = []
            text = without_credentials(" ".join((self.grammar.shown(name), *shown)))
            yield f"# without {printable(text)}: {reason}"


def command_lines(arguments: Sequence[str]) -> list[list[str]]:
    """Returns the words of each command line. Each argument is a command line in quotes, or all of
    them are the words of one. Raises UsageError."""
    try:
        if any(map(str.isspace, "".join(arguments[:1]))) or len(arguments) == 1:
            words = [[*_words(argument), ";"] for argument in arguments]
        else:
            words = [[*arguments]]
    except ValueError as error:
        raise UsageError(f"found a command line with {error}".lower()) from error
    lines: list[list[str]] = [[]]
    for word in (word for line in words for word in line):
        if word in BETWEEN_COMMANDS:
            lines.append([])
        else:
            lines[-1].append(word)
    return [line for line in lines if line] or [[]]


def _words(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", " "))


def parsed(grammar: Grammar, words: Sequence[str]) -> GivenCommand:
    """Reads a command line. Raises UsageError."""
    left = [*words]
    shown, before = list[str](), list[str]()
    programs = [at for at, word in enumerate(left) if program_of(word) in grammar.programs]
    if programs and left[0] not in grammar.actions and not left[0].startswith("-"):
        # A container or a shell may come before the program. Its words may have the same name,
        # such as that of a network.
        placed = [at for at in programs if re.search(r"[/:]", left[at].partition("://")[0])]
        start = 0 if programs[0] == 0 else (placed or programs)[0]
        while start + 1 in programs:
            start += 1
        shown.append(left[start])
        before = left[:start]
        del left[: start + 1]
    action = ""
    if grammar.actions:
        action = left.pop(0) if left else ""
        if action not in grammar.actions:
            raise UsageError(
                f"found {action or 'nothing'}, allowed is"
                f" {grammar.tool} {', '.join(grammar.actions)}",
                f"such as {grammar.example}",
            )
        shown.append(action)
    line = GivenCommand(grammar, action, shown, before=before)
    while left:
        _take(line, left)
    return line


def program_of(word: str) -> str:
    """Returns the name of a program without its folder, or of an image without its version."""
    return JAR.sub("", word.rpartition("/")[2].partition(":")[0])


def _take(line: GivenCommand, left: list[str]) -> None:
    """Takes an option with its values from the words that are left. Raises UsageError."""
    grammar = line.grammar
    word = left.pop(0)
    name, value, head = _option(line, word)
    option = grammar.options[name]
    is_apart = value is None
    values: list[str] = []
    if value is not None:
        values = [value]
    elif option.is_flag:
        follows = left and (
            left[0] in {"true", "false"} if grammar.has_flag_words else option.is_many
        )
        while follows and left and not left[0].startswith("-"):
            values.append(left.pop(0))
            follows = option.is_many
        line.shown.extend([word, *values])
        line.given.setdefault(name, []).extend(values or ["true"])
        return
    elif option.is_many:
        while left and not (values and left[0].startswith("-")):
            values.append(left.pop(0))
    elif left:
        values = [left.pop(0)]
    if not values:
        raise UsageError(f"found {grammar.shown(name)} without a value")
    hidden = [REDACTED] * len(values) if option.is_secret else values
    line.shown.extend([word, *hidden] if is_apart else [f"{head}{hidden[0]}"])
    line.given.setdefault(name, []).extend(values)


def _option(line: GivenCommand, word: str) -> tuple[str, str | None, str]:
    """Returns the long name of an option, a value in the same word, and the text before this value.
    Raises UsageError."""
    grammar, action = line.grammar, line.action
    known = [
        name for name, option in grammar.options.items() if action in option.of or not option.of
    ]
    shorts = {grammar.options[name].short: name for name in (*grammar.options, *known)}
    dashes = "--" if word.startswith("--") else "-" if word.startswith("-") else ""
    body, equals, value = word[len(dashes) :].partition("=")
    name = body if dashes == "--" or (dashes and grammar.has_one_dash) else ""
    found, head = (value if equals else None), f"{dashes}{body}{equals}"
    if dashes == "--" and len(name) > 1:
        name = shorts.get(name, name)
    elif dashes == "-" and name not in grammar.options:
        letters = body if body in shorts else body[:1]
        name = shorts.get(letters, "") if letters else ""
        if letters != body:
            found, head = word[len(dashes) + len(letters) :] or None, f"{dashes}{letters}"
    if name not in grammar.options:
        raise _unknown(line, word, known)
    of = grammar.options[name].of
    if of and action not in of:
        allowed = " and ".join(of)
        raise UsageError(f"found {grammar.shown(name)} with {action}, allowed with {allowed}")
    return name, found, head


def _unknown(line: GivenCommand, word: str, known: Sequence[str]) -> UsageError:
    grammar = line.grammar
    name = word.lstrip("-").partition("=")[0]
    close = get_close_matches(name, known, n=1, cutoff=0.8)
    dashes = "-" if grammar.has_one_dash else "--"
    every = ", ".join(sorted(map(grammar.shown, known)))
    hint = f"write {dashes}{close[0]}" if close else f"the options are {every}"
    # The value of an option that is misspelt may be a password.
    is_short = word.startswith("-") and not (word.startswith("--") or grammar.has_one_dash)
    shown = word[:2] if is_short else word.partition("=")[0]
    tool = f"{grammar.tool} {line.action}".strip()
    return UsageError(f"found {printable(shown)}, which is no option of {tool}", hint)


def printable(text: str) -> str:
    """Returns a text that fits into a comment: without line ends and control characters."""
    return "".join(each if each.isprintable() else "?" for each in text)


def tls_keys(line: GivenCommand, ca: str) -> Iterator[tuple[str, object]]:
    """Yields the keys of TLS that tools name alike. `ca` is their option of the authority."""
    if line.has(ca):
        yield "ca", line.text(ca)
    if line.is_on("insecure"):
        yield "verify", False
    for key, name in (("certificate", "cert"), ("key", "key")):
        if line.has(name):
            yield key, literal(line.text(name))
