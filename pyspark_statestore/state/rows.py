"""Spark's ``UnsafeRow``, many rows at once: NumPy gathers a column's bytes, Arrow gets them as they are.

A row of n fields is a bit for each field, set where it is null, in whole words of 64 bits; then a slot of 8 bytes for
each; then what does not fit into a slot, which has ``offset << 32 | size`` instead, counted from the row's start. An
array is its count, null bits likewise, and elements as wide as their type; a map the length of its key array, that, and
its value array. Rows are little-endian, as Spark writes them on the processors that it runs on; of decimals with more
than 18 digits the bytes are Java's ``BigInteger``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_statestore.parsing import parse_json

_PADDING = 16
"""What is not there is read from the start of the data, so there must be something; the widest thing is 16 bytes."""

_LONG = 256
"""Values that are longer on average are copied one by one: NumPy would need eight bytes for each of theirs."""


class MalformedRowError(ValueError):
    """Bytes are no row of this schema."""


@dataclass(frozen=True)
class Cells:
    """Where the values of a column are.

    Attributes:
        slot: Of each value, the place of its slot in the data.
        base: Where the row or array begins that the slot is in.
        end: Where that ends.
        valid: Whether it is not null. Nothing is read where it is.
    """

    slot: np.ndarray
    base: np.ndarray
    end: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.slot)


class UnsafeRows:
    """Bytes that hold rows.

    Args:
        data: All of them, one after another, with whatever is between.
    """

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data + bytes(_PADDING), "u1")
        self._length = len(data)

    def fields(self, types: Sequence[SparkType], start: np.ndarray, end: np.ndarray) -> list[pa.Array]:
        """Decodes rows, each of which has a place of its own.

        Args:
            types: Of the fields.
            start: Where each row begins.
            end: Where it ends.

        Returns:
            A column for each field.

        Raises:
            MalformedRowError: Something does not fit.
        """
        return self._fields(types, start, end, np.ones(len(start), bool))

    def binaries(self, count: int, number: int, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of a binary field are, and how many; rows have ``count`` fields and this is not null."""
        cells = self._cells(count, start, end, np.ones(len(start), bool))[number]
        return self._place(cells)

    def numbers(self, at: np.ndarray, dtype: str) -> np.ndarray:
        """The numbers at these places, none of which may be outside of the data."""
        return self._read(at, np.ones(len(at), bool), dtype)

    def _cells(self, count: int, start: np.ndarray, end: np.ndarray, valid: np.ndarray) -> list[Cells]:
        nulls = (count + 63) // 64 * 8
        self._check(start, np.full(len(start), nulls + 8 * count), end, valid)
        found = []
        for field in range(count):
            is_null = self._read(start + field // 8, valid, "u1") >> (field % 8) & 1 == 1
            found.append(Cells(start + nulls + 8 * field, start, end, valid & ~is_null))
        return found

    def _fields(
        self, types: Sequence[SparkType], start: np.ndarray, end: np.ndarray, valid: np.ndarray
    ) -> list[pa.Array]:
        cells = self._cells(len(types), start, end, valid)
        return [self.column(type_, each) for type_, each in zip(types, cells, strict=True)]

    def column(self, type_: SparkType, cells: Cells) -> pa.Array:
        """Decodes one column.

        Raises:
            MalformedRowError: Something does not fit.
        """
        return _READERS[type_.kind](self, type_, cells)

    def _null(self, type_: SparkType, cells: Cells) -> pa.Array:
        return pa.nulls(len(cells))

    def _boolean(self, type_: SparkType, cells: Cells) -> pa.Array:
        return pa.array(self._read(cells.slot, cells.valid, "u1") != 0, mask=~cells.valid)

    def _fixed(self, type_: SparkType, cells: Cells) -> pa.Array:
        return _array(type_.arrow, cells.valid, [self._read(cells.slot, cells.valid, type_.dtype)])

    def _decimal(self, type_: SparkType, cells: Cells) -> pa.Array:
        if type_.arrow.precision <= MAX_LONG_DECIMAL:
            low = self._read(cells.slot, cells.valid, "<i8")
            return _array(type_.arrow, cells.valid, [np.stack([low, low >> 63], axis=1)])
        at, size = self._place(cells)
        if ((size > 16) | (size < 1))[cells.valid].any():
            raise MalformedRowError("a decimal does not have 1 to 16 bytes")
        is_negative = self._read(at, cells.valid, "i1") < 0
        unscaled = np.where(is_negative, 0xFF, 0).astype("u1")[:, None].repeat(16, axis=1)
        for place in range(16):  # bytes of a BigInteger begin with the highest, Arrow's end with it
            has = np.flatnonzero(place < size)
            unscaled[has, place] = self._data[at[has] + size[has] - 1 - place]
        return _array(type_.arrow, cells.valid, [unscaled])

    def _binary(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        return self._bytes(at, size, cells.valid)

    def _string(self, type_: SparkType, cells: Cells) -> pa.Array:
        try:
            return self._binary(type_, cells).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise MalformedRowError("a string is not UTF-8") from error

    def _interval(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        self._check_sizes(size == 16, cells.valid, "an interval")
        months_days = np.stack([self._read(at, cells.valid, "<i4"), self._read(at + 4, cells.valid, "<i4")], axis=1)
        nanoseconds: np.ndarray = self._read(at + 8, cells.valid, "<i8") * 1000
        return _array(type_.arrow, cells.valid, [np.hstack([months_days.view("<i8"), nanoseconds[:, None]])])

    def _variant(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        self._check_sizes(size >= 4, cells.valid, "a variant")
        first: np.ndarray = self._read(at, cells.valid, "<i4").astype("i8")
        self._check_sizes((first >= 0) & (first <= size - 4), cells.valid, "a variant")
        value = self._bytes(at + 4, first, cells.valid)
        metadata = self._bytes(at + 4 + first, np.where(cells.valid, size - 4 - first, 0), cells.valid)
        # A null variant's parts are not null themselves.
        return _array(type_.arrow, cells.valid, [], [part.fill_null(b"") for part in (value, metadata)])

    def _struct(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        return _array(type_.arrow, cells.valid, [], self._fields(type_.children, at, at + size, cells.valid))

    def _list(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        offsets, elements = self._elements(type_.children[0], at, at + size, cells.valid)
        return _array(type_.arrow, cells.valid, [offsets], [elements])

    def _map(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        end = at + size
        self._check_sizes(size >= 8, cells.valid, "a map")
        keys_size = self._read(at, cells.valid, "<i8")
        self._check_sizes((keys_size >= 0) & (keys_size <= size - 8), cells.valid, "a map")
        middle = at + 8 + keys_size
        offsets, keys = self._elements(type_.children[0], at + 8, middle, cells.valid)
        others, values = self._elements(type_.children[1], middle, end, cells.valid)
        if not np.array_equal(offsets, others):
            raise MalformedRowError("a map has as many keys as values")
        pairs = _array(_pair_type(type_.arrow), None, [], [keys, values])
        return _array(type_.arrow, cells.valid, [offsets], [pairs])

    def _elements(
        self, type_: SparkType, at: np.ndarray, end: np.ndarray, valid: np.ndarray
    ) -> tuple[np.ndarray, pa.Array]:
        """Offsets and elements of many arrays."""
        self._check(at, np.full(len(at), 8), end, valid)
        count = self._read(at, valid, "<i8")
        if ((count < 0) | (count > end - at))[valid & (count != 0)].any():
            raise MalformedRowError("an array is shorter than it says")
        header: np.ndarray = 8 + (count + 63) // 64 * 8
        self._check(at, header + count * type_.width, end, valid)
        offsets = np.concatenate([[0], np.cumsum(count)])
        of: np.ndarray = np.repeat(np.arange(len(at)), count)
        number = np.arange(offsets[-1]) - offsets[:-1][of]
        bits = self._data[at[of] + 8 + number // 8]
        is_null = bits >> (number % 8).astype("u1") & 1 == 1
        cells = Cells(at[of] + header[of] + number * type_.width, at[of], end[of], ~is_null)
        return offsets.astype("i4"), self.column(type_, cells)

    def _place(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Where what does not fit into a slot is, and its size; nowhere and 0 for nulls."""
        slot = self._read(cells.slot, cells.valid, "<i8")
        at, size = cells.base + (slot >> 32), slot & 0xFFFFFFFF
        if (slot < 0).any():
            raise MalformedRowError("an offset is negative")
        self._check(at, size, cells.end, cells.valid)
        return np.where(cells.valid, at, 0), np.where(cells.valid, size, 0)

    def _bytes(self, at: np.ndarray, size: np.ndarray, valid: np.ndarray) -> pa.Array:
        offsets = np.concatenate([[0], np.cumsum(size)])
        if offsets[-1] >= 1 << 31:
            raise MalformedRowError("more bytes than a column of Arrow holds")
        if offsets[-1] > _LONG * len(at):
            view = self._data.data
            parts = (view[begin : begin + length] for begin, length in zip(at.tolist(), size.tolist(), strict=True))
            data = np.frombuffer(b"".join(parts), "u1")
        else:
            data = self._data[np.repeat(at - offsets[:-1], size) + np.arange(offsets[-1])]
        return _array(pa.binary(), valid, [offsets.astype("i4"), data])

    def _read(self, at: np.ndarray, valid: np.ndarray, dtype: str) -> np.ndarray:
        """Numbers; 0 for nulls."""
        width = int(dtype[-1])
        places = np.where(valid, at, 0)
        found = self._data[places[:, None] + np.arange(width)].view(dtype).ravel()
        numbers: np.ndarray = np.where(valid, found, np.zeros((), found.dtype))
        return numbers

    def _check(self, at: np.ndarray, size: np.ndarray, end: np.ndarray, valid: np.ndarray) -> None:
        fits = (at >= 0) & (size >= 0) & (at + size <= end) & (end <= self._length)
        if not fits[valid].all():
            raise MalformedRowError("a row is shorter than its schema needs, or points behind its end")

    def _check_sizes(self, fits: np.ndarray, valid: np.ndarray, what: str) -> None:
        if not fits[valid].all():
            raise MalformedRowError(f"{what} has a wrong length")


def struct_array(type_: SparkType, children: Sequence[pa.Array], length: int) -> pa.Array:
    """Puts columns together; a struct may have none."""
    return pa.Array.from_buffers(type_.arrow, length, [None], children=list(children))


def _pair_type(map_type: pa.MapType) -> pa.StructType:
    return pa.struct([map_type.key_field, map_type.item_field])


def _array(
    type_: pa.DataType, valid: np.ndarray | None, buffers: Sequence[np.ndarray], children: Sequence[pa.Array] = ()
) -> pa.Array:
    """An Arrow array of these parts; ``valid`` is None where nothing is null."""
    length = len(valid) if valid is not None else len(children[0])
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    parts = [bitmap, *(pa.py_buffer(np.ascontiguousarray(part)) for part in buffers)]
    return pa.Array.from_buffers(type_, length, parts, children=list(children) or None)


_READERS: Mapping[str, Callable[[UnsafeRows, SparkType, Cells], pa.Array]] = {
    "null": UnsafeRows._null,
    "boolean": UnsafeRows._boolean,
    "fixed": UnsafeRows._fixed,
    "decimal": UnsafeRows._decimal,
    "binary": UnsafeRows._binary,
    "string": UnsafeRows._string,
    "interval": UnsafeRows._interval,
    "variant": UnsafeRows._variant,
    "struct": UnsafeRows._struct,
    "array": UnsafeRows._list,
    "map": UnsafeRows._map,
}


# Spark's types as its schema files write them in JSON, and what they are in Arrow.


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
