"""The text of a plan, message by message: templates by the grammar of
`crates/plan/src/text/template.rs`, chance as a pure function of a seed
(`crates/plan/src/schedule/random.rs`), files of rows, and the stamps in payloads, which separate
messages of a run from others (`crates/plan/src/record/stamp.rs`)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path

from pubstorm.contract import U64_MAX
from pubstorm.errors import PubstormError
from pubstorm.files import opened


@dataclass(frozen=True, slots=True)
class Random:
    """A stream of random values that can be read at any index."""

    bits: int
    """The value itself: 64 uniform bits."""

    @classmethod
    def new(cls, seed: int, purpose: int) -> Random:
        """The stream of one purpose; different purposes are independent."""
        return cls(mix(seed ^ mix(purpose)))

    def of(self, index: int) -> Random:
        """A sub-stream, such as that of one client."""
        return Random(mix(self.bits ^ mix(index)))

    def below(self, end: int) -> int:
        """Uniform below `end`."""
        return self.bits * end >> 64


def mix(value: int) -> int:
    """The finaliser of SplitMix64."""
    z = value + 0x9E3779B97F4A7C15 & U64_MAX
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & U64_MAX
    z = (z ^ z >> 27) * 0x94D049BB133111EB & U64_MAX
    return z ^ z >> 31


def run_tags(payload: bytes) -> set[int]:
    """The run tags that a payload may carry: of its first bytes, and of a stamp in its text."""
    tags = set()
    if len(payload) >= STAMP_BYTES:
        tags.add(int.from_bytes(payload[:4], "little"))
    if stamp := stamp_in_text(payload):
        tags.add(int.from_bytes(stamp[:4], "little"))
    return tags


def stamp_in_text(payload: bytes) -> bytes | None:
    """The 32 bytes of the first stamp in a payload of text; None: it has none."""
    found = _TEXT.search(payload)
    return None if found is None else base64.urlsafe_b64decode(found[1] + b"=")


def stamp_text(stamp: bytes) -> str:
    """A stamp of 32 bytes as text."""
    return MARKER + base64.urlsafe_b64encode(stamp).decode().rstrip("=")


STAMP_BYTES = 32
NUMBERED_BYTES = STAMP_BYTES + 8
"""Length of a stamp with a number behind it, in bytes."""
RECORDED = "{recorded}"
"""Variable of a topic: the topic of a recorded message."""
MARKER = "~pst~"
_TEXT = re.compile(MARKER.encode() + rb"([A-Za-z0-9_-]{43})")


class RowsError(PubstormError):
    """A file that cannot be taken: what was found, what is allowed, and a hint."""

    default_exit_code = 2


@dataclass(frozen=True, eq=False)
class RowFile:
    """Content of a file. Values are equal only if they are the same object."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The values of each column."""
        return dict(zip(self.headings, zip(*self.rows, strict=True), strict=True))

    def longest(self, column: str) -> int:
        """Returns the bytes of the longest value in a column."""
        return max(len(value.encode()) for value in self.columns[column])

    @cached_property
    def digest(self) -> str:
        """A name for what it has."""
        made = hashlib.sha256()
        for row in (self.headings, *self.rows):
            made.update(repr(row).encode())
        return made.hexdigest()


@dataclass(frozen=True)
class RowTable:
    """The rows of a file, each for a client's number."""

    file: RowFile
    first: int
    """The number that has the first row; beyond the last row the first comes again."""

    def value(self, column: str, n: int) -> str:
        """Returns the value of row `n` in a column; raises KeyError if there is no such column."""
        return self.file.columns[column][(n - self.first) % len(self.file.rows)]


def read_rows(path: str) -> RowFile:
    """The rows of a file; raises RowsError."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read(path: str, _changed_ns: int, _size_bytes: int) -> RowFile:
    rows: list[tuple[str, ...]] = []
    try:
        with (
            opened(Path(path), follows_links=True) as content,
            io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file, strict=True)
            headings = next((tuple(row) for row in reader if row), ())
            for row in reader:
                if row and len(row) != len(headings):
                    found = f"found {len(row)} values in line {reader.line_num} of {path}"
                    message = f"{found}, allowed are {len(headings)} as in its first line"
                    raise RowsError(message, "a value with a comma needs double quotes")
                if row:
                    rows.append(tuple(row))
    except UnicodeDecodeError:
        raise RowsError(f"found bytes in {path} that are not UTF-8", SAVE_HINT) from None
    except OSError as error:
        raise unreadable(path, error) from None
    except csv.Error as error:
        message = f"found no comma-separated values in line {reader.line_num} of {path}: {error}"
        raise RowsError(message, SAVE_HINT) from None
    twice = {heading for heading in headings if headings.count(heading) > 1}
    if twice:
        message = f"found the heading {min(twice)!r} more than once in {path}"
        raise RowsError(message, "columns have different names")
    if not rows:
        message = (
            f"found no rows in {path}, allowed is a line of headings, then a row for each client"
        )
        raise RowsError(message)
    return RowFile(headings, tuple(rows))


def unreadable(path: str, error: OSError | ValueError) -> RowsError:
    """Returns the error of a file that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    message = f"found {path}, which cannot be read: {reason}"
    return RowsError(message, "a relative path is from the folder of the scenario file")


SAVE_HINT = "save the table as CSV in UTF-8"


class TemplateError(ValueError):
    """A template is wrong: the text says what was found and what is allowed."""


class MisplacedError(TemplateError):
    """A variable stands where its kind is not allowed."""


class VariableKind(Enum):
    """Kind of a variable."""

    NUMBER = "n"
    REMAINDER = "n%K"
    QUOTIENT = "n/K"
    RANGE = "a..b"
    CHOICE = "red|green"
    ROW = "row.NAME"
    RANDOM = "random a..b"
    HEX = "hex N"
    SEQUENCE = "seq"
    TIME = "time"
    STAMP = "stamp"
    RECORDED = "recorded"


CLIENT = frozenset(
    {VariableKind.NUMBER, VariableKind.REMAINDER, VariableKind.QUOTIENT, VariableKind.ROW}
)
"""Kinds with one value for each client."""
VARIED = frozenset({VariableKind.RANGE, VariableKind.CHOICE})
"""Kinds with several values in a topic."""
NUMERIC = frozenset(VariableKind) - {
    VariableKind.CHOICE,
    VariableKind.ROW,
    VariableKind.HEX,
    VariableKind.STAMP,
    VariableKind.RECORDED,
}
"""Kinds that are always a number as JSON writes it."""


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Values of a message for its payload."""

    number: int
    """Number of the message among those of its client and publication, from 0."""
    topic_variants: int
    """Values of the range or choice of its topic; 1 where there is none."""
    chance: Random
    """Random values of the message, one for each place of the template."""
    time_ms: int
    """Instant of sending, in milliseconds since 1970."""
    stamp: bytes
    """Its stamp."""

    @staticmethod
    def stream(seed: int, publication: int) -> Random:
        """Random numbers of the payloads of a publication, by its index over all populations. Each
        message draws from the sub-stream of its client (index over all agents) and number."""
        return Random.new(seed, PURPOSE + publication)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; `a` and `b` are K and nothing, both ends of what is gone through or drawn, or a
    number of digits."""

    kind: VariableKind
    a: int = 0
    b: int = 0
    places: int = 0
    """Digits behind the point of what is drawn."""
    words: tuple[str, ...] = ()
    """The options of a choice, the name of a column, or both ends as written."""

    @property
    def variants(self) -> int:
        """Number of its values."""
        return len(self.words) if self.kind is VariableKind.CHOICE else self.b - self.a + 1

    def bytes_max(self, rows: RowTable | None) -> int:
        """Returns the bytes of its longest value."""
        match self.kind:
            case VariableKind.ROW:
                return 0 if rows is None else rows.file.longest(self.words[0])
            case VariableKind.CHOICE:
                return max(len(word.encode()) for word in self.words)
            case VariableKind.HEX:
                return self.a
            case VariableKind.STAMP:
                return len(stamp_text(bytes(STAMP_BYTES)))
            case _:
                return NUMBER_CHARS_MAX

    def value(self, n: int, variant: int = 0, rows: RowTable | None = None) -> str:
        """Its value for client number `n` and value number `variant` of the range or choice; what
        only a message has is left out."""
        match self.kind:
            case VariableKind.NUMBER:
                return str(n)
            case VariableKind.REMAINDER:
                return str(n % self.a)
            case VariableKind.QUOTIENT:
                return str(n // self.a)
            case VariableKind.RANGE:
                return str(self.a + variant)
            case VariableKind.CHOICE:
                return self.words[variant]
            case VariableKind.ROW:
                return "" if rows is None else rows.value(self.words[0], n)
            case _:
                return ""

    def message_value(self, place: int, variant: int, message: MessageFacts) -> str | None:
        """Its value in a message, drawn at this place among the variables of its template; `None`
        where it is the client's."""
        drawn = message.chance.of(place)
        match self.kind:
            case VariableKind.RANGE:
                is_topics = self.variants == message.topic_variants
                turn = variant if is_topics else message.number
                return str(self.a + turn % self.variants)
            case VariableKind.CHOICE:
                return self.words[drawn.below(self.variants)]
            case VariableKind.RANDOM:
                return _scaled_text(self.a + drawn.below(self.variants), self.places)
            case VariableKind.HEX:
                blocks = range((self.a + 15) // 16)
                return "".join(f"{drawn.of(block).bits:016x}"[::-1] for block in blocks)[: self.a]
            case VariableKind.SEQUENCE:
                return str(message.number)
            case VariableKind.TIME:
                return str(message.time_ms)
            case VariableKind.STAMP:
                return stamp_text(message.stamp)
        return None

    def __str__(self) -> str:
        match self.kind:
            case VariableKind.RANGE:
                return f"{{{self.a}..{self.b}}}"
            case VariableKind.CHOICE:
                return f"{{{'|'.join(self.words)}}}"
            case VariableKind.ROW:
                return f"{{row.{self.words[0]}}}"
            case VariableKind.RANDOM:
                return f"{{random {self.words[0]}}}"
            case VariableKind.HEX:
                return f"{{hex {self.a}}}"
            case _:
                return f"{{{self.kind.value.replace('K', str(self.a))}}}"


Part = str | Variable


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    source: str
    parts: tuple[Part, ...]
    rows: RowTable | None = None
    """Rows with the values of its columns."""

    @classmethod
    def parse(cls, source: str, rows: RowTable | None = None) -> Template:
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
        return cls(source, tuple(parts), rows)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables in it, from left to right."""
        return tuple(part for part in self.parts if isinstance(part, Variable))

    @property
    def variants(self) -> int:
        """Values of the range or choice in it; 1 where there is none."""
        return next((v.variants for v in self.variables if v.kind in VARIED), 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it refers to."""
        return tuple(v.words[0] for v in self.variables if v.kind is VariableKind.ROW)

    @property
    def bytes_max(self) -> int:
        """Upper bound of the length of a text, in bytes."""
        return sum(
            len(part.encode()) if isinstance(part, str) else part.bytes_max(self.rows)
            for part in self.parts
        )

    def has(self, *kinds: VariableKind) -> bool:
        """Returns True if it has a variable of one of these kinds."""
        return any(variable.kind in kinds for variable in self.variables)

    def text(self, n: int, variant: int = 0) -> str:
        """The text for client number `n` and value number `variant` of the range or choice."""
        return "".join(
            part if isinstance(part, str) else part.value(n, variant, self.rows)
            for part in self.parts
        )

    def message_text(self, n: int, variant: int, message: MessageFacts) -> str:
        """The text of a message of client number `n`, whose topic has value number `variant`."""
        texts: list[str] = []
        place = 0
        for part in self.parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            own = part.message_value(place, variant, message)
            texts.append(part.value(n, 0, self.rows) if own is None else own)
            place += 1
        return "".join(texts)

    def check_client(self) -> None:
        """Raises TemplateError unless it has one value for each client."""
        self._check_kinds(CLIENT, "a client's texts", "{n}, {n%K}, {n/K} and {row.NAME}")

    def check_topic(self, *, is_filter: bool = False) -> None:
        """Raises TemplateError unless it can be a topic, or a filter. Options of a choice in a
        topic may have several levels."""
        allowed = "{n}, {n%K}, {n/K}, {row.NAME} and one range or choice"
        self._check_kinds(CLIENT | VARIED, "a topic", allowed)
        varied = [variable for variable in self.variables if variable.kind in VARIED]
        if len(varied) > 1:
            raise TemplateError("a second range or choice, allowed is one in a topic")
        for option in (word for v in varied for word in v.words):
            levels = [option] if is_filter else option.split("/")
            if any(map(splits_levels, levels)):
                allowed = "/, + and #" if is_filter else "+, # and empty levels"
                message = f"'{option}' in a choice, allowed in a topic are values without"
                raise TemplateError(f"{message} {allowed}")

    def levels(self) -> tuple[tuple[Part, ...], ...]:
        """The levels of the topic or filter; a level with two variables is a `TemplateError`."""
        self.check_topic(is_filter=True)
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

    def _check_kinds(self, kinds: frozenset[VariableKind], name: str, allowed: str) -> None:
        wrong = next((v for v in self.variables if v.kind not in kinds), None)
        if wrong is not None:
            raise MisplacedError(f"'{wrong}', allowed in {name} are {allowed}")


def splits_levels(value: str) -> bool:
    """Returns True if a value cannot stand within one level of a topic."""
    return not value or bool(set(value) & {"/", "+", "#", "\0"})


def _variable(text: str) -> Variable:
    found = _choice(text) if "|" in text and "{" not in text else _word(text)
    if found is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise TemplateError(f"'{{{shown}}}', allowed are {ALLOWED}")
    return found


def _choice(text: str) -> Variable | None:
    options = tuple(text.split("|"))
    whole = all(options) and len(options) <= RANGE_VALUES_MAX
    return Variable(VariableKind.CHOICE, words=options) if whole else None


def _word(text: str) -> Variable | None:
    if text in _PLAIN:
        return Variable(_PLAIN[text])
    if text.startswith("row.") and len(text) > len("row.") and "{" not in text:
        return Variable(VariableKind.ROW, words=(text.removeprefix("row."),))
    if found := _ARITHMETIC.fullmatch(text):
        k = int(found[2])
        kind = VariableKind.REMAINDER if found[1] == "%" else VariableKind.QUOTIENT
        return Variable(kind, k) if 0 < k <= U64_MAX else None
    if found := _HEX.fullmatch(text):
        digits = int(found[1])
        return Variable(VariableKind.HEX, digits) if 0 < digits <= HEX_DIGITS_MAX else None
    if found := _RANDOM.fullmatch(text):
        return _random(found[1], found[2])
    if found := _RANGE.fullmatch(text):
        low, high = int(found[1]), int(found[2])
        if low <= high <= U64_MAX and high - low < RANGE_VALUES_MAX:
            return Variable(VariableKind.RANGE, low, high)
    return None


def _random(low: str, high: str) -> Variable | None:
    places = max(len(end.partition(".")[2]) for end in (low, high))
    a, b = (_scaled(end, places) for end in (low, high))
    if a is None or b is None or a > b:
        return None
    return Variable(VariableKind.RANDOM, a, b, places, (f"{low}..{high}",))


def _scaled(text: str, places: int) -> int | None:
    """A decimal in units of one at its last of `places`."""
    before, _, behind = text.removeprefix("-").partition(".")
    if len(before) + places > DRAWN_DIGITS_MAX:
        return None
    value = int(before + behind.ljust(places, "0"))
    return -value if text.startswith("-") else value


def _scaled_text(value: int, places: int) -> str:
    sign, digits = "-" if value < 0 else "", f"{abs(value):0{places + 1}}"
    if places == 0:
        return sign + digits
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


RANGE_VALUES_MAX = 65_536
HEX_DIGITS_MAX = 4096
DRAWN_DIGITS_MAX = 18
"""Digits of a drawn number, before and behind the point together."""
NUMBER_CHARS_MAX = 20
"""Digits of the largest number of 64 bits, and at least those of a drawn one with its sign."""
PURPOSE = 4 << 40
"""Separates these draws from the draws of schedules, targets and orders."""
ALLOWED = (
    "{n}, {n%K}, {n/K}, {row.NAME}, a range such as {1..20} of at most"
    f" {RANGE_VALUES_MAX} values, a choice such as {{red|green}}, {{random 1..6}}, {{hex 16}},"
    " {seq}, {time} and {stamp}"
)

_PLAIN = {
    "n": VariableKind.NUMBER,
    "seq": VariableKind.SEQUENCE,
    "time": VariableKind.TIME,
    "stamp": VariableKind.STAMP,
    "recorded": VariableKind.RECORDED,
}
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<variable>[^}]*)\}|[^{}]+")
_ARITHMETIC = re.compile(r"n([%/])(\d{1,20})", re.ASCII)
_RANGE = re.compile(r"(\d{1,20})\.\.(\d{1,20})", re.ASCII)
_HEX = re.compile(r"hex (\d{1,20})", re.ASCII)
_DECIMAL = r"(-?\d{1,18}(?:\.\d{1,17})?)"
_RANDOM = re.compile(rf"random {_DECIMAL}\.\.{_DECIMAL}", re.ASCII)
