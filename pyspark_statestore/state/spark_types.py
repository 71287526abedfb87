"""Spark's types as its schema files write them in JSON, and what they are in Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyspark_statestore.parsing.json_text import parse_json


class UnknownTypeError(ValueError):
    """A schema has a type whose bytes this release cannot read."""


@dataclass(frozen=True)
class SparkType:
    """A type.

    Attributes:
        kind: How its bytes are read: ``fixed``, ``boolean``, ``null``, ``decimal``, ``string``, ``binary``,
            ``interval``, ``variant``, ``struct``, ``array`` or ``map``.
        arrow: The same in Arrow.
        width: Bytes of an element in an array; where the bytes lie elsewhere, that is 8 for their offset and size.
        dtype: NumPy's name of a fixed type.
        children: Of a struct its fields, of an array its element, of a map its key and its value.
    """

    kind: str
    arrow: pa.DataType
    width: int = 8
    dtype: str = ""
    children: tuple[SparkType, ...] = ()


_FIXED: Mapping[str, tuple[str, pa.DataType]] = {
    "byte": ("<i1", pa.int8()),
    "short": ("<i2", pa.int16()),
    "integer": ("<i4", pa.int32()),
    "long": ("<i8", pa.int64()),
    "float": ("<f4", pa.float32()),
    "double": ("<f8", pa.float64()),
    "date": ("<i4", pa.date32()),
    "timestamp": ("<i8", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("<i8", pa.timestamp("us")),
}

_VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])

_OTHERS: Mapping[str, SparkType] = {
    "boolean": SparkType("boolean", pa.bool_(), 1),
    "void": SparkType("null", pa.null()),
    "null": SparkType("null", pa.null()),
    "string": SparkType("string", pa.string()),
    "binary": SparkType("binary", pa.binary()),
    "interval": SparkType("interval", pa.month_day_nano_interval()),
    "variant": SparkType("variant", _VARIANT),
}

MAX_LONG_DECIMAL = 18
"""Decimals of more digits do not fit into eight bytes."""


def parse_schema(text: str) -> SparkType:
    """Reads the JSON of a StructType.

    Raises:
        UnknownTypeError: It has a type that is not known, or is no such JSON.
    """
    try:
        found = _parse(parse_json(text))
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        if isinstance(error, UnknownTypeError):
            raise
        raise UnknownTypeError(f"its schema cannot be read ({type(error).__name__}: {error})") from error
    if found.kind != "struct":
        raise UnknownTypeError("its schema is no struct")
    return found


def struct_of(names: list[str], children: tuple[SparkType, ...]) -> SparkType:
    """The type of a struct with these fields."""
    fields = [pa.field(name, child.arrow) for name, child in zip(names, children, strict=True)]
    return SparkType("struct", pa.struct(fields), children=children)


def _parse(what: Any) -> SparkType:
    if isinstance(what, str):
        return _named(what)
    kind = what["type"]
    if kind == "struct":
        fields = what["fields"]
        return struct_of([str(field["name"]) for field in fields], tuple(_parse(field["type"]) for field in fields))
    if kind == "array":
        element = _parse(what["elementType"])
        return SparkType("array", pa.list_(pa.field("element", element.arrow)), children=(element,))
    if kind == "map":
        key, value = _parse(what["keyType"]), _parse(what["valueType"])
        return SparkType("map", pa.map_(key.arrow, value.arrow), children=(key, value))
    if kind == "udt":
        return _parse(what["sqlType"])
    raise UnknownTypeError(f"its schema has the type {kind!r}, which this release does not know")


def _named(name: str) -> SparkType:
    if name in _FIXED:
        dtype, arrow = _FIXED[name]
        return SparkType("fixed", arrow, int(dtype[2:]), dtype)
    if name in _OTHERS:
        return _OTHERS[name]
    for pattern, make in _PATTERNS:
        found = re.fullmatch(pattern, name)
        if found:
            return make(found)
    raise UnknownTypeError(f"its schema has the type {name!r}, which this release does not know")


def _decimal(found: re.Match[str]) -> SparkType:
    return SparkType("decimal", pa.decimal128(int(found[1] or 10), int(found[2] or 0)))


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], SparkType]], ...] = (
    (r"decimal(?:\((\d+),\s*(-?\d+)\))?", _decimal),
    (r"(?:char|varchar)\(\d+\)", lambda _: _OTHERS["string"]),
    (r"string collate \w+", lambda _: _OTHERS["string"]),
    (r"interval (?:day|hour|minute|second)(?: to \w+)?", lambda _: SparkType("fixed", pa.duration("us"), 8, "<i8")),
    # Months: Arrow has a type for them that hardly anything can compute with.
    (r"interval (?:year|month)(?: to \w+)?", lambda _: SparkType("fixed", pa.int32(), 4, "<i4")),
    (r"time\(\d\)", lambda _: SparkType("fixed", pa.time64("ns"), 8, "<i8")),
)
