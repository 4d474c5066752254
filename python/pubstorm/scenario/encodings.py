"""Encodings of payloads before a run: Avro and Protocol Buffers, from a schema and the values of a
row or an object of JSON, and compression."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from pubstorm.errors import PubstormError, extra_hint

Encode = Callable[[Mapping[str, Any], str], bytes]
"""Encodes the values of a message; the text names their place in messages of errors."""


class DataError(PubstormError):
    """Data that cannot be taken: what was found, what is allowed, and a hint."""

    default_exit_code = 2


def avro_encoder(path: str, schema: bytes) -> Encode:
    """Returns the encoder of a schema of Avro: a datum without its schema, in binary form."""
    try:
        import fastavro
    except ImportError:
        raise DataError("found avro without its library", INSTALL) from None
    try:
        parsed = json.loads(schema)
        compiled = fastavro.parse_schema(parsed)
    except Exception as error:
        raise DataError(f"found {path}, which is no schema of Avro: {error}") from None
    fields = (
        {each["name"]: each["type"] for each in compiled.get("fields", ())}
        if isinstance(compiled, dict)
        else {}
    )

    def encode(values: Mapping[str, Any], place: str) -> bytes:
        out = io.BytesIO()
        unknown = [name for name in values if name not in fields]
        if unknown:
            allowed = ", ".join(fields) or "those of a record"
            raise DataError(f"found {unknown[0]} in {place}, allowed are the fields {allowed}")
        try:
            typed = {name: _avro_value(fields[name], value) for name, value in values.items()}
            fastavro.schemaless_writer(out, compiled, typed, strict_allow_default=True)
        except Exception as error:
            raise DataError(f"found {place}, which does not fit the schema: {error}") from None
        return out.getvalue()

    return encode


def _avro_value(kind: Any, value: Any) -> Any:
    """Returns the value of a text in a column as its type in the schema; other values as they
    are."""
    if not isinstance(value, str):
        return value
    if isinstance(kind, list):
        if value == "" and "null" in kind:
            return None
        kind = next((each for each in kind if each != "null"), "null")
    name = kind.get("type") if isinstance(kind, dict) else kind
    match name:
        case "int" | "long":
            return int(value)
        case "float" | "double":
            return float(value)
        case "boolean":
            return {"true": True, "false": False}.get(value, value)
        case "bytes" | "fixed":
            return bytes.fromhex(value)
        case _:
            return value


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
            key: {"true": True, "false": False}.get(value, value)
            if key in flags and isinstance(value, str)
            else value
            for key, value in values.items()
        }
        try:
            encoded: bytes = json_format.ParseDict(typed, made()).SerializeToString()
            return encoded
        except Exception as error:
            raise DataError(f"found {place}, which is no {name}: {error}") from None

    return encode


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
