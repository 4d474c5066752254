"""Data of a scenario that messages carry as it is: payloads from files, and weights of sizes and
topics. The docstrings of the parts are the reference for users."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from pubstorm.contract.template import (
    RowsError,
    RowTable,
    Template,
    TemplateError,
    VariableKind,
    read_rows,
)
from pubstorm.files import content_of
from pubstorm.quantities import UnfitError, describe, size_bytes, write_bytes
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.encodings import (
    COMPRESS,
    DECIMAL,
    DataError,
    avro_encoder,
    protobuf_encoder,
)
from pubstorm.scenario.fields import MESSAGE_BYTES_MAX, PathText, Text, absolute, payload

RECORDS_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the payloads of all publications of a scenario that come from files: each agent gets
them with the plan, and the run's folder has them in it."""
RECORDS_MAX = 100_000
"""Payloads of a publication that come from a file."""
BINS_MAX = 1000
"""Sizes of a histogram."""
ROUND_MAX = 1 << 20
"""Messages of a round of topics with weights: 6 MB of each agent."""


class Protobuf(Part):
    """A message of Protocol Buffers."""

    descriptors: PathText
    """A file of descriptors: `protoc --include_imports --descriptor_set_out=FILE NAME.proto`."""
    message: Text
    """Full name of the message, such as `plant.Reading`."""


RowText = Annotated[
    str | dict[str, Any] | list[Any],
    BeforeValidator(payload),
    WithJsonSchema(
        {
            "title": "template, mapping or list",
            "anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}],
        }
    ),
]


class Data(Part):
    """Payloads from a file; a plain text is the path of one payload. Message `k` of each client has
    payload `k` of the file, and again the first one after the last. All of a scenario have up to
    16 MiB."""

    SHORT_FOR: ClassVar[str | None] = "file"

    file: PathText | None = None
    """A file whose bytes are the payload."""
    lines: PathText | None = None
    """A file with a payload in each line, without the end of the line."""
    rows: PathText | None = None
    """A file of comma-separated values with a line of headings: a payload for each row, as `text`,
    `avro` or `protobuf` say."""
    text: RowText | None = None
    """Text of a row, or a mapping or list that becomes JSON; `{row.NAME}` is the value of the
    column of that name."""
    avro: PathText | None = None
    """A schema of Avro (JSON): each row, or each line with an object of JSON, is encoded by it. The
    library is in the extra `payloads`: `pip install 'WHEEL[payloads]'`."""
    protobuf: Protobuf | None = None
    """A message of Protocol Buffers that each row, or each line with an object of JSON, is encoded
    as."""
    compress: Literal["gzip", "deflate", "zstd"] | None = None
    """Compresses each payload before the run; `deflate` has the format of zlib, as in HTTP. The
    library of `zstd` is in the extra `payloads`."""
    order: Literal["turn", "shuffled"] = "turn"
    """Order of the payloads: in turn, or an order of each client's own that is drawn anew for each
    round."""
    stamp: Literal["beside", "front"] = "beside"
    """Place of the stamp: a user property with `version: 5`, and none otherwise; or 32 bytes of the
    payload in front of the data."""

    def rules(self) -> Iterator[Finding]:
        """Yields sources and encodings that do not go together."""
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "no file"
            yield (), f"found {found}, needed is one of file, lines and rows", None
            return
        encodings = [key for key in ENCODINGS if getattr(self, key) is not None]
        allowed = {"file": (), "lines": ("avro", "protobuf"), "rows": ENCODINGS}[given[0]]
        wrong = [key for key in encodings if key not in allowed]
        if wrong:
            words = f"allowed are {' and '.join(allowed)}" if allowed else "allowed is file alone"
            yield (wrong[0],), f"found {wrong[0]} with {given[0]}, {words}", None
        elif len(encodings) > 1 or (given == ["rows"] and not encodings):
            found = " and ".join(encodings) or "rows alone"
            hint = "write text: with {row.NAME} in it to make a text or JSON of each row"
            yield (), f"found {found}, needed is one of text, avro and protobuf", hint

    def records(self) -> tuple[bytes, ...]:
        """Returns the payloads. Raises DataError, and RowsError for a file of rows."""
        compress = COMPRESS[self.compress]() if self.compress is not None else bytes
        made: list[bytes] = []
        total = 0
        for encoded in self._encoded():
            made.append(compress(encoded))
            total += len(made[-1])
            if len(made) > RECORDS_MAX:
                raise DataError(f"found more payloads than {RECORDS_MAX:,}, which are allowed")
            if total > RECORDS_BYTES_MAX:
                allowed = f"allowed are {RECORDS_BYTES_MAX:,}"
                raise DataError(f"found payloads of {total:,} bytes up to here, {allowed}")
        if not made:
            raise DataError(f"found no payloads in {self.lines}, needed is one")
        return tuple(made)

    def _encoded(self) -> Iterator[bytes]:
        if self.file is not None:
            yield _content(self.file)
        elif self.lines is not None:
            encode = self._encoder()
            for number, line in enumerate(io.BytesIO(_content(self.lines)), 1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                place = f"line {number} of {self.lines}"
                yield text if encode is None else encode(_object(place, text), place)
        elif self.rows is not None:
            yield from self._of_rows(self.rows)

    def _of_rows(self, path: str) -> Iterator[bytes]:
        file = read_rows(path)
        encode = self._encoder()
        if encode is not None:
            for number, row in enumerate(file.rows, 1):
                given = dict(zip(file.headings, row, strict=True))
                yield encode(given, f"row {number} of {path}")
            return
        render = _renderer(self.text, RowTable(file, 0))
        yield from (render(n).encode() for n in range(len(file.rows)))

    def _encoder(self) -> Callable[[Mapping[str, Any], str], bytes] | None:
        if self.avro is not None:
            return avro_encoder(self.avro, _content(self.avro))
        if self.protobuf is not None:
            path = self.protobuf.descriptors
            return protobuf_encoder(path, _content(path), self.protobuf.message)
        return None


SOURCES = ("file", "lines", "rows")
ENCODINGS = ("text", "avro", "protobuf")


def _renderer(value: object, rows: RowTable) -> Callable[[int], str]:
    """Returns the text of a row by its number; for a mapping or a list, its JSON. Raises DataError
    if a text has another variable than columns."""
    if isinstance(value, str):
        return _row_text(value, rows).text
    if isinstance(value, Mapping):
        inner = [
            (json.dumps(key, ensure_ascii=False), _json_of(v, rows)) for key, v in value.items()
        ]
        return lambda n: f"{{{','.join(f'{key}:{render(n)}' for key, render in inner)}}}"
    if isinstance(value, Sequence):
        each = [_json_of(item, rows) for item in value]
        return lambda n: f"[{','.join(render(n) for render in each)}]"
    written = json.dumps(value)
    return lambda _: written


def _json_of(value: object, rows: RowTable) -> Callable[[int], str]:
    """Returns the JSON of a value for a row. A text of one column is the value itself if that is a
    number, `true`, `false` or `null`."""
    if not isinstance(value, str):
        return _renderer(value, rows)
    template = _row_text(value, rows)
    is_column = len(template.parts) == 1 and bool(template.variables)

    def render(n: int) -> str:
        text = template.text(n)
        if is_column and not text.startswith('"') and JSON_VALUE.fullmatch(text):
            return text
        return json.dumps(text, ensure_ascii=False)

    return render


def _row_text(source: str, rows: RowTable) -> Template:
    try:
        template = Template.parse(source, rows)
    except TemplateError as error:
        raise DataError(f"found {describe(source)}, which is no template: found {error}") from None
    for variable in template.variables:
        if variable.kind is not VariableKind.ROW or variable.words[0] not in rows.file.headings:
            allowed = ", ".join(f"{{row.{heading}}}" for heading in rows.file.headings)
            hint = "a text with other variables is a payload, not data"
            raise DataError(f"found {variable}, allowed are {allowed}", hint)
    return template


def _object(place: str, line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        found = f"found no object of JSON in {place}"
        raise DataError(found, 'each line is encoded by the schema: {"key": value, …}')
    return value


def _content(path: str) -> bytes:
    """Returns the content of a file, if it is small enough for a plan."""
    try:
        return content_of(Path(path), RECORDS_BYTES_MAX, follows_links=True)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "a relative path is from the folder of the scenario file"
        raise DataError(f"found {path}, which cannot be read: {reason}", hint) from None


def histogram(value: object, info: ValidationInfo) -> tuple[tuple[int, float], ...]:
    """Sizes with their weights: a mapping, or the path of a file with the columns size and
    weight."""
    pairs: list[tuple[object, object]]
    if isinstance(value, str):
        file = _rows(value, info, ("size", "weight"))
        pairs = [*zip(file["size"], file["weight"], strict=True)]
    elif isinstance(value, Mapping):
        pairs = [*value.items()]
    else:
        raise UnfitError(value, HISTOGRAM_ALLOWED)
    bins = {}
    for size, weight in pairs:
        size_of = size_bytes(f"{size}B" if str(size).isdecimal() else size)
        if not 0 <= size_of <= MESSAGE_BYTES_MAX:
            raise UnfitError(size, f"are sizes of 0B to {write_bytes(MESSAGE_BYTES_MAX)}")
        if size_of in bins:
            raise UnfitError(size, "is each size once")
        bins[size_of] = _weight(weight)
    if not 1 <= len(bins) <= BINS_MAX:
        raise UnfitError(value, f"are 1 to {BINS_MAX:,} sizes")
    return tuple(sorted(bins.items()))


def weights(value: object) -> float | tuple[float, ...]:
    """Weights of the values of a topic: a list, or `{zipf: EXPONENT}`."""
    if isinstance(value, Mapping) and [*value] == ["zipf"]:
        exponent = value["zipf"]
        if _is_number(exponent) and 0 < exponent <= ZIPF_MAX:
            return float(exponent)
        raise UnfitError(exponent, f"is an exponent above 0 and up to {ZIPF_MAX}")
    if isinstance(value, (list, tuple)) and value:
        return tuple(map(_weight, value))
    raise UnfitError(value, "is a list with a weight for each value, or {zipf: EXPONENT}")


def topics(value: object, info: ValidationInfo) -> tuple[str, tuple[float, ...]]:
    """Topic and weights of a file with the columns topic and, if topics differ, weight. The topic
    is a choice among them."""
    if not isinstance(value, Mapping) or [*value] != ["file"] or not isinstance(value["file"], str):
        raise UnfitError(value, "is a template, or {file: PATH}")
    file = _rows(value["file"], info, ("topic",))
    names = file["topic"]
    wrong = next((name for name in names if not name or set(name) & {*"|{}+#\0"}), None)
    if wrong is not None:
        raise UnfitError(wrong, "are topics of a file without |, {, }, + and #")
    wrong = next((name for name in names if "" in name.split("/")), None)
    if wrong is not None:
        raise UnfitError(wrong, "are topics of a file whose levels are not empty")
    if len(names) != len({*names}):
        twice = Counter(names).most_common(1)[0][0]
        raise UnfitError(twice, "is each topic once", "write a weight beside it")
    if len(names) < 2:
        raise UnfitError(value["file"], "is a file of two topics or more", "write the topic itself")
    if len(names) > VALUES_MAX:
        raise UnfitError(value["file"], f"is a file of up to {VALUES_MAX:,} topics")
    given = tuple(map(_weight, file.get("weight", ())))
    return f"{{{'|'.join(names)}}}", given


def round_of(given: Sequence[float] | float, values: int) -> tuple[int, ...]:
    """Returns the messages of each value in a round: whole numbers in the proportions of the
    weights. They are exact if they fit into a round, else to one message."""
    if isinstance(given, float):
        parts = [Fraction(1.0 / rank**given) for rank in range(1, values + 1)]
    else:
        parts = [Fraction(str(weight)) for weight in given]
    whole = lcm(*(part.denominator for part in parts)) if not isinstance(given, float) else 0
    if whole and sum(parts) * whole <= 10**18:
        exact = [int(part * whole) for part in parts]
        common = gcd(*exact)
        if sum(exact) // common <= ROUND_MAX:
            return tuple(part // common for part in exact)
    share = (ROUND_MAX - values) / sum(parts)
    return tuple(max(1, int(part * share)) for part in parts)


def bins_of(sizes: Sequence[tuple[int, float]]) -> Iterator[tuple[int, int]]:
    """Yields sizes with the ends of their parts of 2^32 draws. A size whose part is less than one
    draw is left out."""
    total = sum(Fraction(str(weight)) for _, weight in sizes)
    so_far, end = Fraction(0), 0
    for size, weight in sizes:
        so_far += Fraction(str(weight))
        before, end = end, round(so_far / total * DRAWS)
        if end > before:
            yield size, end


def _rows(path: str, info: ValidationInfo, needed: Sequence[str]) -> Mapping[str, Sequence[str]]:
    columns = f"column {needed[0]}" if len(needed) == 1 else f"columns {' and '.join(needed)}"
    try:
        file = read_rows(absolute(path, info))
    except RowsError as error:
        raise UnfitError(path, f"is a file with the {columns}", error.message) from None
    for name in needed:
        if name not in file.headings:
            hint = f"its columns are {', '.join(file.headings)}"
            raise UnfitError(path, f"is a file with the {columns}", hint)
    return file.columns


def _weight(value: object) -> float:
    number = value
    if isinstance(value, str) and DECIMAL.fullmatch(value.strip()):
        number = float(value)
    if _is_number(number) and 0 < number <= WEIGHT_MAX:
        return float(number)
    raise UnfitError(value, f"are weights above 0 and up to {WEIGHT_MAX:,}", "leave it out for 0")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


JSON_VALUE = re.compile(
    r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
    r'|"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    re.ASCII,
)
"""A value of JSON without parts [RFC 8259]."""
ZIPF_MAX = 10
WEIGHT_MAX = 10**9
DRAWS = 1 << 32
VALUES_MAX = 65_536
HISTOGRAM_ALLOWED = "is a mapping of sizes to weights, or a file with the columns size and weight"

Histogram = Annotated[
    tuple[tuple[int, float], ...],
    BeforeValidator(histogram),
    WithJsonSchema(
        {
            "title": "sizes with weights, or a file",
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "number"}},
                {"type": "string"},
            ],
        }
    ),
]
Weights = Annotated[
    float | tuple[float, ...],
    BeforeValidator(weights),
    WithJsonSchema(
        {
            "title": "weights",
            "anyOf": [
                {"type": "array", "items": {"type": "number"}},
                {
                    "type": "object",
                    "properties": {"zipf": {"type": "number"}},
                    "required": ["zipf"],
                    "additionalProperties": False,
                },
            ],
        }
    ),
]
