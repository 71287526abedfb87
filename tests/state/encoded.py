"""Rows of any type as Spark's ``UnsafeRow`` has them, encoded here a value at a time; no Spark is needed."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.inspect.builders import plain_file
from tests.state.small_stores import commit, compressed, write_schema

_FIXED = {
    "boolean": "?",
    "byte": "b",
    "short": "h",
    "integer": "i",
    "long": "q",
    "float": "f",
    "double": "d",
    "date": "i",
    "timestamp": "q",
    "timestamp_ltz": "q",
    "timestamp_ntz": "q",
}


def struct_json(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON of a StructType, of names and types; a name may come twice."""
    return {
        "type": "struct",
        "fields": [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in fields],
    }


def encoded_row(types: Sequence[Any], values: Sequence[Any]) -> bytes:
    """A row: bits of nulls, a slot for each field, and what does not fit into slots."""
    head = bytearray(-(-len(types) // 64) * 8)
    return _encoded(head, 0, [8] * len(types), types, values)


def _encoded(head: bytearray, bits: int, widths: Sequence[int], types: Sequence[Any], values: Sequence[Any]) -> bytes:
    slots, more = bytearray(), bytearray()
    begin = len(head) + -(-sum(widths) // 8) * 8
    for number, (width, type_, value) in enumerate(zip(widths, types, values, strict=True)):
        slot = b""
        if value is None:
            head[bits + number // 8] |= 1 << number % 8
        elif code := _fixed_code(type_):
            slot = struct.pack(f"<{code}", value)
        else:
            data = _bytes(type_, value)
            slot = struct.pack("<Q", (begin + len(more)) << 32 | len(data))
            more += data + bytes(-len(data) % 8)
        slots += slot + bytes(width - len(slot))
    return bytes(head + slots + bytes(-len(slots) % 8) + more)


def _fixed_code(type_: Any) -> str:
    if not isinstance(type_, str):
        return ""
    if type_.startswith("decimal") and int(type_[8:].partition(",")[0]) <= 18:
        return "q"
    if type_.startswith("interval "):
        return "i" if "year" in type_ or "month" in type_ else "q"
    return "q" if type_.startswith("time(") else _FIXED.get(type_, "")


def _bytes(type_: Any, value: Any) -> bytes:
    if isinstance(type_, dict):
        kind = type_["type"]
        if kind == "struct":
            return encoded_row([field["type"] for field in type_["fields"]], value)
        if kind == "array":
            return _array(type_["elementType"], value)
        if kind == "map":
            keys = _array(type_["keyType"], [key for key, _ in value])
            return struct.pack("<Q", len(keys)) + keys + _array(type_["valueType"], [each for _, each in value])
        return _bytes(type_["sqlType"], value)
    if type_ == "interval":
        return struct.pack("<iiq", *value)
    if type_.startswith("timestamp_"):
        return struct.pack("<qq", *value)
    if type_ == "variant":
        return struct.pack("<i", len(value[0])) + bytes(value[0]) + bytes(value[1])
    if type_.startswith("decimal"):
        number = int(value)
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return value if isinstance(value, bytes) else str(value).encode()


def _array(type_: Any, values: Sequence[Any]) -> bytes:
    width = struct.calcsize(f"<{_fixed_code(type_) or 'q'}")
    head = bytearray(8 + -(-len(values) // 64) * 8)
    head[:8] = struct.pack("<Q", len(values))
    return _encoded(head, 8, [width] * len(values), [type_] * len(values), values)


def write_typed_store(
    checkpoint: Path, key: Sequence[tuple[str, Any]], rows: Sequence[tuple[Sequence[Any], Sequence[Any]]], value: Any
) -> Path:
    """A heap store of one version in one partition.

    Args:
        checkpoint: Where to.
        key: Names and types of the key's fields.
        rows: Keys and values.
        value: Names and types of the value's fields.
    """
    write_schema(checkpoint, json.dumps(struct_json(key)), json.dumps(struct_json(value)))
    parts = []
    for row in rows:
        for fields, values in zip((key, value), row, strict=True):
            data = encoded_row([type_ for _, type_ in fields], values)
            parts.append(struct.pack(">i", len(data)) + data)
    plain_file(checkpoint, "0/0/1.delta", compressed(b"".join(parts) + struct.pack(">i", -1)))
    commit(checkpoint, 0)
    return checkpoint
