"""The types of a scenario's fields: quantities with their bounds, texts, templates, topics,
payloads, and words of a command with values to fill in, such as `{host}`. Errors say what was found
and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path as FilePath
from string import Formatter
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from pubstorm.contract import RATE_MAX_PER_S, RATE_MIN_PER_S, U16_MAX, U32_MAX
from pubstorm.contract.capabilities import MqttVersion
from pubstorm.contract.protocol import IDENTIFIER_MAX
from pubstorm.contract.template import (
    RECORDED,
    MisplacedError,
    Template,
    TemplateError,
    VariableKind,
)
from pubstorm.metrics.expressions import Expression, Threshold, parse_expression, parse_threshold
from pubstorm.quantities import (
    KINDS,
    SECOND_NS,
    PartOf,
    QuantityField,
    UnfitError,
    bits_per_s,
    count,
    describe,
    duration_ns,
    factor,
    rate_per_s,
    share,
    size_bytes,
)
from pubstorm.scenario.base import OrWord, Part, parts_in
from pubstorm.scenario.document import Path

VARIABLE = re.compile(r"\{[^{}]*\}")
"""A variable of a template."""


def data(value: object) -> str:
    """Text of bounded length with any characters, as MQTT's binary data may have."""
    if not isinstance(value, str):
        written = describe(value)
        scalar = isinstance(value, (int, float, bool))
        raise UnfitError(value, "is text", f'write "{written}" in quotes' if scalar else None)
    if len(value.encode()) > TEXT_BYTES_MAX:
        raise UnfitError(value, f"is text of at most {TEXT_BYTES_MAX} bytes")
    return value


def text(value: object) -> str:
    """Text of bounded length, without NUL [MQTT-1.5.3-2]."""
    source = data(value)
    if "\0" in source:
        raise UnfitError(value, WITHOUT_NUL, NUL_HINT)
    return source


def name(value: object) -> str:
    """A name that a path of the file system and a threshold may contain."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise UnfitError(value, "are letters, digits, _ and -, at most 64, beginning with a letter")


def host_label(value: object) -> str:
    """A label of hosts, or the address of one."""
    if isinstance(value, str) and _HOST_LABEL.fullmatch(value):
        return value
    raise UnfitError(value, "are letters, digits, _, - and ., at most 63: a label or an address")


def file_name(value: object) -> str:
    """A name of a file below a folder."""
    parts = value.split("/") if isinstance(value, str) else [""]
    if all(_FILE_PART.fullmatch(part) for part in parts) and len(parts) <= FILE_DEPTH_MAX:
        return "/".join(parts)
    allowed = "are letters, digits, ., _ and -, not beginning with a dot, after folders such as"
    raise UnfitError(value, f"{allowed} etc/")


def absolute(path: str, info: ValidationInfo) -> str:
    """A path from the folder of the scenario file, if that is known."""
    return str(FilePath(info.context or "", path))


def absolute_for_client(path: str, info: ValidationInfo) -> str:
    """A template of a path, in the same way."""
    return str(FilePath(_literal(info.context), path))


def absolute_program(command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """A command with an absolute program, unless that is to be looked for in the PATH."""
    program, *words = command or ("",)
    if "/" in program and not program.startswith("{"):
        program = str(FilePath(_literal(info.context), program))
    return (program, *words) if command else ()


def _literal(folder: object) -> str:
    """A folder as a template."""
    return str(folder or "").replace("{", "{{").replace("}", "}}")


def some_text(value: object) -> str:
    """Text that is not empty."""
    if value == "":
        raise UnfitError(value, "is text of at least one character")
    return text(value)


def client_text(value: object) -> str:
    """A template with one value for each client: no range, and nothing that only a message has."""
    return client_data(text(value))


def client_data(value: object) -> str:
    """The same for binary data of MQTT, in which NUL is allowed."""
    source = data(value)
    template = _template(source)
    if template.has(VariableKind.RANGE, VariableKind.CHOICE):
        hint = "a range or a choice belongs into a topic or a payload"
        raise UnfitError(value, "are {n}, {n%K}, {n/K} and {row.NAME}", hint)
    _check(source, template.check_client)
    return source


def topic(value: object) -> str:
    """A template of a topic name: not empty, no wildcard [MQTT-3.3.2-2]."""
    source = text(value)
    template = _template(source)
    if not source:
        raise UnfitError(value, "is a topic of at least one character", EMPTY_HINT)
    _check(source, template.check_topic)
    if any(isinstance(part, str) and set(part) & {"+", "#"} for part in template.parts):
        raise UnfitError(value, "is a topic without the wildcards + and #")
    return source


def published_topic(value: object) -> str:
    """A template of a topic name, or `{recorded}` once with texts of the client around it."""
    source = text(value)
    before, recorded, after = source.partition(RECORDED)
    if not recorded:
        return topic(value)
    client_topic(f"{before}recorded{after}")
    return source


def flow_topic(value: object) -> str:
    """A template of a topic of any protocol: where it is MQTT's, `topic` has its rules. ZeroMQ's
    may be empty."""
    source = text(value)
    template = _template(source)
    _check(source, template.check_topic)
    return source


def client_topic(value: object) -> str:
    """A template of a topic name with one value for each client: no range and no choice."""
    return client_text(topic(value))


def topic_filter(value: object) -> str:
    """A template of a topic filter, with the wildcards in their places [MQTT-4.7.1-2, -3]."""
    source = text(value)
    template = _template(source)
    if not source:
        raise UnfitError(value, "is a topic filter of at least one character", EMPTY_HINT)
    _check(source, template.check_topic)
    try:
        levels = template.levels()
    except TemplateError as error:
        raise UnfitError(value, f"is one variable a level: {error}") from None
    for place, level in enumerate(levels):
        literal = "".join(part for part in level if isinstance(part, str))
        alone = literal in {"+", "#"} and all(isinstance(part, str) for part in level)
        if set(literal) & {"+", "#"} and not alone:
            raise UnfitError(value, "are wildcards that fill a whole level, as in a/+/b/#")
        if literal == "#" and place != len(levels) - 1:
            raise UnfitError(value, "is # in the last level only")
    if source.startswith("$share/") and not _is_shared(levels):
        hint = "GROUP is a level without wildcards [MQTT5-4.8.2-1]"
        raise UnfitError(value, "is $share/GROUP/FILTER", hint)
    return source


def subject(value: object) -> str:
    """A template of a subject of NATS that has no wildcards."""
    source = subject_filter(value)
    if {"*", ">"} & {*VARIABLE.sub("{}", source).split(".")}:
        raise UnfitError(value, "is a subject without the wildcards * and >")
    return source


def subject_filter(value: object) -> str:
    """A template of a subject of NATS: tokens between dots, `*` for one token, `>` for one or more
    at the end."""
    source = text(value)
    _check(source, _template(source).check_topic)
    tokens = VARIABLE.sub("{}", source).split(".")
    if not all(tokens) or any(map(str.isspace, source)):
        hint = "NATS has dots where MQTT has slashes: device.1.state"
        raise UnfitError(value, "are tokens between dots, none of them empty, without spaces", hint)
    if any(token.count("{}") > 1 for token in tokens):
        raise UnfitError(value, "is one variable a token")
    if ">" in tokens[:-1]:
        raise UnfitError(value, "is > as the last token only")
    return source


def queue_group(value: object) -> str:
    """A template of the name of a queue group, with one value for each client."""
    source = client_text(value)
    if not source or "/" in source or any(map(str.isspace, source)):
        raise UnfitError(value, "is a name without slashes and spaces")
    return source


def _is_shared(levels: Sequence[Sequence[object]]) -> bool:
    """Returns True if a group and a filter follow the first level."""
    _, group, *rest = ["".join(map(str, level)) for level in levels]
    return group not in {"", "+"} and rest not in ([], [""])


def qos(value: object) -> int:
    """A quality of service."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2:
        return value
    raise UnfitError(value, "are 0, 1 and 2")


def version(value: object) -> str:
    """A version of MQTT, as text or as the number that YAML reads."""
    if str(value) in MQTT_VERSIONS and not isinstance(value, bool):
        return str(value)
    raise UnfitError(value, f"are {', '.join(MQTT_VERSIONS[:-1])} and {MQTT_VERSIONS[-1]}")


def property_text(value: object) -> str:
    """A template with one value for each message: no range or choice, which belongs to the
    topic."""
    return property_data(text(value))


def property_data(value: object) -> str:
    """The same for binary data of MQTT, in which NUL is allowed."""
    source = data(value)
    if _template(source).has(VariableKind.RANGE, VariableKind.CHOICE):
        raise UnfitError(value, "is a text without ranges and choices")
    return source


def session_expiry(value: object) -> object:
    """A duration in whole seconds, or the largest one for `never`."""
    return f"{U32_MAX}s" if value == "never" else value


def flag(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise UnfitError(value, "are true and false")


def publication_rate(value: object) -> float | None:
    """A rate, or None for `max`: as fast as the window and the socket take it."""
    if value == "max":
        return None
    try:
        return float(RATE.read(value))
    except UnfitError as unfit:
        raise UnfitError(value, f'{unfit.allowed}, or "max"', unfit.hint) from None


def clients_or_part(value: object, least: int = 1) -> int | PartOf:
    """A number of clients, or a share of them in percent."""
    if isinstance(value, PartOf):
        return value
    if isinstance(value, str) and value.rstrip().endswith("%"):
        return PartOf(float(QuantityField(share, 0, 1, above_low=least > 0).read(value)))
    try:
        return int(QuantityField(count, least, CLIENTS_MAX).read(value))
    except UnfitError as unfit:
        raise UnfitError(value, f"{unfit.allowed}, {OR_SHARE}") from None


def clients_or_none(value: object) -> int | PartOf:
    """A number of clients, or a share of them in percent, also none."""
    return clients_or_part(value, least=0)


def read_rate(value: object) -> float | PartOf:
    """A rate, or a share in percent of what is due."""
    if isinstance(value, PartOf):
        return value
    if isinstance(value, str) and value.rstrip().endswith("%"):
        return PartOf(float(QuantityField(share, 0, 1, above_low=True).read(value)))
    try:
        return float(RATE.read(value))
    except UnfitError as unfit:
        raise UnfitError(value, f"{unfit.allowed}, {OR_SHARE}", unfit.hint) from None


def or_never(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """Returns the value of the field, or None for `never`."""
    return None if value is None or value == "never" else handler(value)


def threshold(value: object) -> Threshold:
    """A threshold line."""
    return parse_threshold(text(value))


def metric_name(value: object) -> Expression:
    """A metric expression."""
    return parse_expression(text(value))


def amount(value: object) -> object:
    """A quantity of any kind, as it was written."""
    for read in KINDS:
        try:
            read(value)
        except UnfitError:
            continue
        return value
    raise UnfitError(value, "is a quantity such as 1000, 10k, 500/s or 10kB")


def stop_line(value: object) -> Threshold | str:
    """A verdict that ends a series, or a condition that does."""
    source = text(value)
    return source if source in STOP_WORDS else parse_threshold(source)


def payload(value: object) -> object:
    """A text with variables, or a mapping or list with such texts in it; these are looked at by
    `payload_texts`, each in its place."""
    if isinstance(value, (dict, list)):
        _check_numbers(value)
        return value
    return _template(data(value)).source


def texts_of(whole: Part) -> Iterator[tuple[Path, str]]:
    """Yields the templates of a part and of the parts in it, each with its path."""
    for path, part in parts_in(whole):
        for name, key in _templates_of(type(part)).items():
            found = payload_texts(getattr(part, name))
            yield from (((*path, key, *inner), source) for inner, source in found)


@cache
def _templates_of(part: type[Part]) -> Mapping[str, str]:
    """Returns the keys with templates by their names in Python."""
    fields = part.model_fields.items()
    marked = {n: f for n, f in fields if TEMPLATE in f.metadata or _has_template(f.annotation)}
    return {name: field.alias or name for name, field in marked.items()}


def _has_template(annotation: Any) -> bool:
    """Returns True if a type is one of texts with variables, or contains one."""
    marks = getattr(annotation, "__metadata__", ())
    return TEMPLATE in marks or any(map(_has_template, get_args(annotation)))


def payload_texts(value: object) -> Iterator[tuple[Path, str]]:
    """The texts in a payload, each with its path."""
    if isinstance(value, str):
        yield (), value
    elif isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from (((key, *path), found) for path, found in payload_texts(inner))


def _check_numbers(value: object) -> None:
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*map(text, value), *value.values()]
    elif isinstance(value, list):
        inner = value
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnfitError(value, "in JSON are finite numbers")
    for each in inner:
        _check_numbers(each)


def _template(source: str) -> Template:
    try:
        return Template.parse(source)
    except TemplateError as error:
        raise UnfitError(source, f"is a template: found {error}") from None


def _check(source: str, check: Callable[[], None]) -> None:
    try:
        check()
    except TemplateError as error:
        hint = "{random}, {hex}, {seq}, {time} and {stamp} belong into a payload"
        allowed = f"is a template for its place: found {error}"
        hints = hint if isinstance(error, MisplacedError) else None
        raise UnfitError(source, allowed, hints) from None


def _json(title: str, kind: str | list[str] = "string", **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"title": title, "type": kind, **more})


CLIENTS_MAX = U32_MAX
SMALL_COUNT_MAX = 4096
OR_SHARE = "or a share in percent such as 50%"
CENTURY_NS = 100 * 365 * 24 * 3600 * SECOND_NS
TEXT_BYTES_MAX = U16_MAX
"""Bytes of a text of MQTT [MQTT-1.5.3], and at most of any other one."""
WITHOUT_NUL = "is text without NUL characters"
NUL_HINT = "passwords, payloads and correlation data are the ones that may have U+0000"
MQTT_VERSIONS = get_args(MqttVersion)
EMPTY_HINT = "only ZeroMQ has empty ones: its subscribers say at: and a population of publishers"
MESSAGE_BYTES_MAX = 256_000_000
_HOST_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_FILE_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", re.ASCII)
FILE_DEPTH_MAX = 8
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
TEMPLATE = "template"
"""Marks a type of texts with variables."""

Clients = Annotated[int, QuantityField(count, 1, CLIENTS_MAX)]
Number = Annotated[int, QuantityField(count, 0, 2**62)]
PortNumber = Annotated[int, QuantityField(count, 1, 65535)]
Processor = Annotated[int, QuantityField(count, 0, 1023)]
MemoryLimit = Annotated[int, QuantityField(size_bytes, 4_000_000, 2**50)]
SmallCount = Annotated[int, QuantityField(count, 1, SMALL_COUNT_MAX)]
HighWaterMark = Annotated[int, QuantityField(count, 0, 2**31 - 1)]
Burst = Annotated[int, QuantityField(count, 1, 10**6)]
Window = Annotated[int, QuantityField(count, 1, 65535)]
Parallelism = Annotated[int, QuantityField(count, 1, 2**32 - 1)]
Seed = Annotated[int, QuantityField(count, 0, 2**62)]
PacketBytes = Annotated[int, QuantityField(size_bytes, 1024, MESSAGE_BYTES_MAX)]
Bytes = Annotated[int, QuantityField(size_bytes, 0, MESSAGE_BYTES_MAX)]
Duration = Annotated[int, QuantityField(duration_ns, 0, CENTURY_NS)]
PositiveDuration = Annotated[int, QuantityField(duration_ns, 0, CENTURY_NS, above_low=True)]
Interval = Annotated[int, QuantityField(duration_ns, 10**7, 3600 * SECOND_NS)]
HostsTimeout = Annotated[int, QuantityField(duration_ns, SECOND_NS, 3600 * SECOND_NS)]
RATE = QuantityField(rate_per_s, RATE_MIN_PER_S, RATE_MAX_PER_S)
Rate = Annotated[float, RATE]
RateOrZero = Annotated[float, QuantityField(rate_per_s, 0, RATE_MAX_PER_S)]
Bandwidth = Annotated[int, QuantityField(bits_per_s, 8_000, 10**11)]
Share = Annotated[float, QuantityField(share, 0, 1)]
ShareBelowOne = Annotated[float, QuantityField(share, 0, 0.999)]
KeepAlive = Annotated[int, QuantityField(duration_ns, 0, 65535 * SECOND_NS, step=SECOND_NS)]
Factor = Annotated[float, QuantityField(factor, 0, 1e6)]
ReadRate = Annotated[
    float | PartOf,
    PlainValidator(read_rate),
    _json("rate", "string", examples=["100/s", "50%"]),
]
PublicationRate = Annotated[
    float | None, BeforeValidator(publication_rate), _json("rate", examples=["10/s", "max"])
]
Scale = Annotated[float, QuantityField(factor, 0, 1e6, above_low=True)]
ClientsOrPart = Annotated[
    int | PartOf,
    PlainValidator(clients_or_part),
    _json("clients", ["integer", "string"], examples=[1000, "50%"]),
]
ClientsOrNone = Annotated[
    int | PartOf,
    PlainValidator(clients_or_none),
    _json("clients", ["integer", "string"], examples=[1000, "50%"]),
]
DurationOrNever = Annotated[
    int | None, QuantityField(duration_ns, 0, CENTURY_NS), WrapValidator(or_never), OrWord("never")
]
PositiveDurationOrNever = Annotated[
    int | None,
    QuantityField(duration_ns, 0, CENTURY_NS, above_low=True),
    WrapValidator(or_never),
    OrWord("never"),
]
Name = Annotated[str, BeforeValidator(name), _json("name")]
FileName = Annotated[str, BeforeValidator(file_name), _json("file name")]
HostLabel = Annotated[str, BeforeValidator(host_label), _json("host label")]
Text = Annotated[str, BeforeValidator(text), _json("text")]
SomeText = Annotated[str, BeforeValidator(some_text), _json("text")]
PathText = Annotated[Text, AfterValidator(absolute)]
Words = Annotated[tuple[Text, ...], AfterValidator(absolute_program)]
ClientText = Annotated[str, BeforeValidator(client_text), _json("template"), TEMPLATE]
ClientData = Annotated[str, BeforeValidator(client_data), _json("template"), TEMPLATE]
ClientPath = Annotated[ClientText, AfterValidator(absolute_for_client)]
FlowTopic = Annotated[str, BeforeValidator(flow_topic), _json("topic template"), TEMPLATE]
Topic = Annotated[str, BeforeValidator(topic), _json("topic template"), TEMPLATE]
PublishedTopic = Annotated[str, BeforeValidator(published_topic), _json("topic template"), TEMPLATE]
FlowFilter = Annotated[str, BeforeValidator(flow_topic), _json("topic filter template"), TEMPLATE]
ClientTopic = Annotated[str, BeforeValidator(client_topic), _json("topic template"), TEMPLATE]
TopicFilter = Annotated[
    str, BeforeValidator(topic_filter), _json("topic filter template"), TEMPLATE
]
Subject = Annotated[str, BeforeValidator(subject), _json("subject template"), TEMPLATE]
SubjectFilter = Annotated[str, BeforeValidator(subject_filter), _json("subject template"), TEMPLATE]
QueueGroup = Annotated[str, BeforeValidator(queue_group), _json("template"), TEMPLATE]
QoS = Annotated[int, BeforeValidator(qos), _json("QoS", "integer", enum=[0, 1, 2])]
Version = Annotated[
    MqttVersion,
    BeforeValidator(version),
    _json("version", ["string", "number"], enum=[*MQTT_VERSIONS, 3.1, 5]),
]
PropertyText = Annotated[str, BeforeValidator(property_text), _json("template"), TEMPLATE]
PropertyData = Annotated[str, BeforeValidator(property_data), _json("template"), TEMPLATE]
WholeSeconds = Annotated[int, QuantityField(duration_ns, 0, U32_MAX * SECOND_NS, step=SECOND_NS)]
SessionExpiry = Annotated[
    int,
    QuantityField(duration_ns, 0, U32_MAX * SECOND_NS, step=SECOND_NS),
    BeforeValidator(session_expiry),
    OrWord("never"),
]
ReceiveMaximum = Annotated[int, QuantityField(count, 1, 65535)]
TopicAliases = Annotated[int, QuantityField(count, 0, 65535)]
SubscriptionIdentifier = Annotated[int, QuantityField(count, 1, IDENTIFIER_MAX)]
Flag = Annotated[bool, BeforeValidator(flag), _json("flag", "boolean")]
Amount = Annotated[
    int | float | str,
    BeforeValidator(amount),
    _json("quantity", ["integer", "number", "string"], examples=[1000, "500/s"]),
]
GrowFactor = Annotated[float, QuantityField(factor, 1.1, 100)]
SharePositive = Annotated[float, QuantityField(share, 0, 1, above_low=True)]
Precision = Annotated[float, QuantityField(share, 0.0001, 1)]
Confidence = Annotated[float, QuantityField(share, 0.5, 0.9999)]
SearchRepeat = Annotated[int, QuantityField(count, 1, 100)]
Retries = Annotated[int, QuantityField(count, 0, 20)]
MetricName = Annotated[Expression, BeforeValidator(metric_name), _json("metric")]
STOP_WORDS = ("failed", "invalid")
StopLine = Annotated[Threshold | str, BeforeValidator(stop_line), _json("condition")]
ThresholdLine = Annotated[Threshold, BeforeValidator(threshold), _json("threshold")]
PAYLOAD_TYPES = ("string", "object", "array")
Payload = Annotated[
    str | dict[str, Any] | list[Any],
    BeforeValidator(payload),
    TEMPLATE,
    WithJsonSchema(
        {"title": "template, mapping or list", "anyOf": [{"type": t} for t in PAYLOAD_TYPES]}
    ),
]


COMMAND_VALUES = ("host", "port", "folder")
"""Values that a word may ask for."""
WEBSOCKET_PORT, AMQP1_PORT = "websocket_port", "amqp1_port"
BROKER_VALUES = (*COMMAND_VALUES, WEBSOCKET_PORT, AMQP1_PORT, "brokers")
"""Values that a text of a broker may ask for."""


def asked_for(word: str) -> list[str]:
    """The values that a word asks for. Raises ValueError with words where braces do not match."""
    return [field for _, field, _, _ in Formatter().parse(word) if field is not None]


def filled(word: str, values: Mapping[str, str]) -> str:
    """The word with its values."""
    return "".join(
        text + ("" if field is None else values[field])
        for text, field, _, _ in Formatter().parse(word)
    )
