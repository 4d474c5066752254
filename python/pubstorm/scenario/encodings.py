"""Encodings of payloads before a run: Avro and Protocol Buffers, from a schema and the values of a
row or an object of JSON, and compression."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pubstorm.errors import PubstormError, extra_hint

Encode = Callable[[Mapping[str, Any], str], bytes]
"""Encodes the values of a message; the text names their place in messages of errors."""


WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
"""Texts of numbers that are not finite, as the JSON of Protocol Buffers has them."""
HEXADECIMAL = re.compile(r"([0-9a-fA-F]{2})*", re.ASCII)
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
FLAGS = {"true": True, "false": False}
FLOAT_MAX = 3.4028235e38
"""Largest number of 32 bits."""


class DataError(PubstormError):
    """Data that cannot be taken: what was found, what is allowed, and a hint."""

    default_exit_code = 2


def avro_encoder(path: str, schema: bytes) -> Encode:
    """Returns the encoder of a schema of Avro: a datum without its schema, in binary form."""
    try:
        import fastavro
        from fastavro.validation import ValidationError
    except ImportError:
        raise DataError("found avro without its library", INSTALL) from None
    try:
        parsed = json.loads(schema)
        compiled = fastavro.parse_schema(parsed)
    except Exception as error:
        raise DataError(f"found {path}, which is no schema of Avro: {error}") from None
    if not isinstance(compiled, dict) or compiled.get("type") != "record":
        hint = "a payload is a record with a field for each value"
        raise DataError(f"found {path}, which is no schema of a record", hint)
    fields = {each["name"]: each["type"] for each in compiled["fields"]}

    def encode(values: Mapping[str, Any], place: str) -> bytes:
        out = io.BytesIO()
        unknown = [name for name in values if name not in fields]
        if unknown:
            allowed = ", ".join(fields) or "none"
            raise DataError(f"found {unknown[0]} in {place}, allowed are the fields {allowed}")
        try:
            typed = {name: _avro_value(fields[name], value) for name, value in values.items()}
            fastavro.validation.validate(typed, compiled)
            fastavro.schemaless_writer(out, compiled, typed, strict_allow_default=True)
            read = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), compiled, None)
            if sum(map(math.isinf, _floats(read))) > sum(map(math.isinf, _floats(typed))):
                raise ValueError("a number beyond the range of its type")
        except ValidationError as error:
            reason = error.errors[0]
            raise DataError(f"found {place}, which does not fit the schema: {reason}") from None
        except Exception as error:
            raise DataError(f"found {place}, which does not fit the schema: {error}") from None
        return out.getvalue()

    return encode


def _avro_value(kind: Any, value: Any) -> Any:
    """Returns the value of a text in a column as its type in the schema, in a union as the first
    type that has the text; other values as they are. Raises ValueError for a text of no type."""
    if not isinstance(value, str):
        return value
    kinds = kind if isinstance(kind, list) else [kind]
    names = [each.get("type") if isinstance(each, dict) else each for each in kinds]
    if value == "" and "null" in names:
        return None
    for name in names:
        match name:
            case "int" | "long" if WHOLE.fullmatch(value):
                return int(value)
            case "float" | "double" if DECIMAL.fullmatch(value) or value in NOT_FINITE:
                number = float(value)
                if math.isinf(number) and value not in NOT_FINITE:
                    raise ValueError(f"{value[:40]!r} is beyond the range of {name}")
                return number
            case "boolean" if value in FLAGS:
                return FLAGS[value]
            case "bytes" | "fixed" if HEXADECIMAL.fullmatch(value):
                return bytes.fromhex(value)
            case "int" | "long" | "float" | "double" | "boolean" | "bytes" | "fixed" | "null":
                continue
            case _:
                return value
    raise ValueError(f"{value[:40]!r} is no {' or '.join(map(str, names))}")


def _floats(value: Any) -> Iterator[float]:
    """Yields the numbers with a fraction in a value."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _floats(each)
    elif isinstance(value, list):
        for each in value:
            yield from _floats(each)


def protobuf_encoder(path: str, descriptors: bytes, name: str) -> Encode:
    """Returns the encoder of a message of Protocol Buffers."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import Message

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        for file in files.file:
            pool.Add(file)
    except Exception:
        hint = "write it with protoc --include_imports --descriptor_set_out=FILE NAME.proto"
        raise DataError(f"found {path}, which is no file of descriptors", hint) from None
    try:
        descriptor = pool.FindMessageTypeByName(name)
    except (KeyError, TypeError):
        names = [
            f"{file.package}.{each.name}" if file.package else each.name
            for file in files.file
            for each in file.message_type
        ]
        allowed = ", ".join(names) or "none"
        raise DataError(f"found the message {name}, allowed in {path} are {allowed}") from None
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    flags = {f.name for f in descriptor.fields if f.cpp_type == f.CPPTYPE_BOOL}
    flags |= {f.json_name for f in descriptor.fields if f.cpp_type == f.CPPTYPE_BOOL}

    def encode(values: Mapping[str, Any], place: str) -> bytes:
        typed = {
            key: FLAGS.get(value, value) if key in flags and isinstance(value, str) else value
            for key, value in values.items()
        }
        try:
            _check_message(descriptor, typed)
            encoded: bytes = json_format.ParseDict(typed, made()).SerializeToString()
            return encoded
        except Exception as error:
            raise DataError(f"found {place}, which is no {name}: {error}") from None

    return encode


def _check_message(kind: Any, values: Mapping[str, Any]) -> None:
    """Checks the scalars of a message, of which the library reads some as other values: `1_000`,
    a text that is no base64, a number beyond the range of its type. Raises ValueError."""
    if kind.full_name.startswith("google.protobuf."):
        return
    fields = {name: field for field in kind.fields for name in (field.name, field.json_name)}
    for name, value in values.items():
        field = fields.get(name)
        if field is None or value is None:
            continue
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map and isinstance(value, Mapping):
            field, value = field.message_type.fields_by_name["value"], [*value.values()]
        for each in value if isinstance(value, list) else [value]:
            if field.message_type is not None and isinstance(each, Mapping):
                _check_message(field.message_type, each)
            elif not _is_scalar(field, each):
                raise ValueError(f"the field {name} has {str(each)[:40]!r}")


def _is_scalar(field: Any, value: Any) -> bool:
    """Returns True for a value that the library reads as what it is."""
    text = value if isinstance(value, str) else None
    if field.message_type is not None:
        return bool(field.message_type.full_name.startswith("google.protobuf."))
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        if isinstance(value, bool) or (text is not None and not DECIMAL.fullmatch(text)):
            return text in NOT_FINITE
        most = FLOAT_MAX if field.cpp_type == field.CPPTYPE_FLOAT else sys.float_info.max
        return not isinstance(value, (int, float, str)) or not most < abs(float(value))
    if field.enum_type is not None:
        if text is not None and not WHOLE.fullmatch(text):
            return text in field.enum_type.values_by_name
        is_whole = text is not None or (isinstance(value, int) and not isinstance(value, bool))
        return is_whole and -(2**31) <= int(value) < 2**31
    if field.type == field.TYPE_BYTES:
        return text is not None and BASE64.fullmatch(text) is not None
    is_text = field.cpp_type == field.CPPTYPE_STRING
    return is_text or text is None or DECIMAL.fullmatch(text) is not None


def _gzip() -> Callable[[bytes], bytes]:
    return lambda data: gzip.compress(data, mtime=0)


def _deflate() -> Callable[[bytes], bytes]:
    return zlib.compress


def _zstd() -> Callable[[bytes], bytes]:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise DataError("found zstd without its library", INSTALL) from None
    compress: Callable[[bytes], bytes] = zstd.compress
    return compress


COMPRESS: Mapping[str, Callable[[], Callable[[bytes], bytes]]] = {
    "gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
INSTALL = extra_hint("payloads")
