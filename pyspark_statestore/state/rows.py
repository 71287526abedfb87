"""Spark's ``UnsafeRow``, many rows at once: NumPy gathers a column's bytes, Arrow gets them as they are.

A row begins with a bit for each field, set where the field is null, in whole words of 64 bits. Then follow a slot of 8
bytes for each field, and the values that do not fit into a slot. The slot of such a value has ``offset << 32 | size``,
counted from the row's start. An array has its count, null bits like a row's, and elements as wide as their type. A map
has the length of its key array, that array, and its value array. Rows are little-endian, as the processors are that
Spark runs on. A decimal of more than 18 digits is the bytes of a Java ``BigInteger``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.state.schemas import SparkType

_PADDING = 16
"""Nulls are read from the start of the data, so it needs to have some bytes: 16, as the widest value has."""

_MAX_LONG_DECIMAL = 18
"""Decimals with more digits do not fit into eight bytes."""

_LONG = 256
"""Values that are longer on average are copied one by one: NumPy would need eight bytes of memory for each byte."""


class MalformedRowError(ValueError):
    """Bytes are not a row of the schema."""


@dataclass(frozen=True)
class Cells:
    """Where the values of a column are. Each array has an item per value.

    Attributes:
        slot: The place of the value's slot in the data.
        base: Where the slot's row or array begins.
        end: Where the slot's row or array ends.
        valid: Whether the value is not null. The slot of a null is not read.
    """

    slot: np.ndarray
    base: np.ndarray
    end: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.slot)


class UnsafeRows:
    """Decodes rows.

    Args:
        data: The bytes that the rows are in. Other bytes may be between them.
    """

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data + bytes(_PADDING), "u1")
        self._length = len(data)

    def fields(self, types: Sequence[SparkType], start: np.ndarray, end: np.ndarray) -> list[pa.Array]:
        """Decodes the rows that begin and end at these places, and returns a column for each field.

        Raises:
            MalformedRowError: The bytes are not rows of these types.
        """
        return self._fields(types, start, end, np.ones(len(start), bool))

    def binaries(self, count: int, number: int, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the bytes of a binary field begin, and how many there are.

        The rows have ``count`` fields, and field ``number`` is not null.
        """
        cells = self._cells(count, start, end, np.ones(len(start), bool))[number]
        return self._place(cells)

    def numbers(self, at: np.ndarray, dtype: str) -> np.ndarray:
        """Returns the numbers at these places, which the caller has checked to be in the data."""
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
            MalformedRowError: The bytes are not values of this type.
        """
        return _READERS[type_.kind](self, type_, cells)

    def _null(self, type_: SparkType, cells: Cells) -> pa.Array:
        return pa.nulls(len(cells))

    def _boolean(self, type_: SparkType, cells: Cells) -> pa.Array:
        return pa.array(self._read(cells.slot, cells.valid, "u1") != 0, mask=~cells.valid)

    def _fixed(self, type_: SparkType, cells: Cells) -> pa.Array:
        return _array(type_.arrow, cells.valid, [self._read(cells.slot, cells.valid, type_.dtype)])

    def _decimal(self, type_: SparkType, cells: Cells) -> pa.Array:
        if type_.arrow.precision <= _MAX_LONG_DECIMAL:
            low = self._read(cells.slot, cells.valid, "<i8")
            return _decimals(type_.arrow, cells.valid, np.stack([low, low >> 63], axis=1))
        at, size = self._place(cells)
        if ((size > 16) | (size < 1))[cells.valid].any():
            raise MalformedRowError("a decimal does not have 1 to 16 bytes")
        is_negative = self._read(at, cells.valid, "i1") < 0
        unscaled = np.where(is_negative, 0xFF, 0).astype("u1")[:, None].repeat(16, axis=1)
        for place in range(16):  # bytes of a BigInteger begin with the highest, Arrow's end with it
            has = np.flatnonzero(place < size)
            unscaled[has, place] = self._data[at[has] + size[has] - 1 - place]
        return _decimals(type_.arrow, cells.valid, unscaled)

    def _binary(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        return self._bytes(at, size, cells.valid)

    def _string(self, type_: SparkType, cells: Cells) -> pa.Array:
        found = self._binary(type_, cells)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            # Spark keeps any bytes in a string, and shows those that are not UTF-8 as Java does.
            texts = [None if each is None else each.decode("utf-8", "replace") for each in found.to_pylist()]
            return pa.array(texts, pa.string())

    def _interval(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        self._check_sizes(size == 16, cells.valid, "an interval")
        parts = [self._read(at + skip, cells.valid, dtype) for skip, dtype in ((0, "<i4"), (4, "<i4"), (8, "<i8"))]
        return _array(type_.arrow, cells.valid, [], [pa.array(part) for part in parts])

    def _nanos(self, type_: SparkType, cells: Cells) -> pa.Array:
        at, size = self._place(cells)
        self._check_sizes(size == 16, cells.valid, "a timestamp with nanoseconds")
        time = pa.array(self._read(at, cells.valid, "<i8")).view(type_.arrow[0].type)
        part = pa.array(self._read(at + 8, cells.valid, "<i8").astype("i2"))
        return _array(type_.arrow, cells.valid, [], [time, part])

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
            raise MalformedRowError("a map does not have as many keys as values")
        pairs = _array(_pair_type(type_.arrow), None, [], [keys, values])
        return _array(type_.arrow, cells.valid, [offsets], [pairs])

    def _elements(
        self, type_: SparkType, at: np.ndarray, end: np.ndarray, valid: np.ndarray
    ) -> tuple[np.ndarray, pa.Array]:
        """Returns the offsets and the elements of many arrays."""
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
        """Returns place and size of the values that do not fit into their slots; 0 and 0 for nulls."""
        slot = self._read(cells.slot, cells.valid, "<i8")
        at, size = cells.base + (slot >> 32), slot & 0xFFFFFFFF
        if (slot < 0).any():
            raise MalformedRowError("an offset is negative")
        self._check(at, size, cells.end, cells.valid)
        return np.where(cells.valid, at, 0), np.where(cells.valid, size, 0)

    def _bytes(self, at: np.ndarray, size: np.ndarray, valid: np.ndarray) -> pa.Array:
        offsets = np.concatenate([[0], np.cumsum(size)])
        if offsets[-1] >= 1 << 31:
            raise MalformedRowError("there are more bytes than a column of Arrow holds")
        if offsets[-1] > _LONG * len(at):
            view = self._data.data
            parts = (view[begin : begin + length] for begin, length in zip(at.tolist(), size.tolist(), strict=True))
            data = np.frombuffer(b"".join(parts), "u1")
        else:
            data = self._data[np.repeat(at - offsets[:-1], size) + np.arange(offsets[-1])]
        return _array(pa.binary(), valid, [offsets.astype("i4"), data])

    def _read(self, at: np.ndarray, valid: np.ndarray, dtype: str) -> np.ndarray:
        """Returns the numbers at these places; 0 for nulls."""
        width = int(dtype[-1])
        places = np.where(valid, at, 0)
        found = self._data[places[:, None] + np.arange(width)].view(dtype).ravel()
        numbers: np.ndarray = np.where(valid, found, np.zeros((), found.dtype))
        return numbers

    def _check(self, at: np.ndarray, size: np.ndarray, end: np.ndarray, valid: np.ndarray) -> None:
        fits = (at >= 0) & (size >= 0) & (at + size <= end) & (end <= self._length)
        if not fits[valid].all():
            raise MalformedRowError("a row is shorter than its schema needs, or points beyond its end")

    def _check_sizes(self, fits: np.ndarray, valid: np.ndarray, what: str) -> None:
        if not fits[valid].all():
            raise MalformedRowError(f"{what} has a wrong length")


def struct_array(type_: SparkType, children: Sequence[pa.Array], length: int) -> pa.Array:
    """Makes a struct column of its fields' columns, of which there may be none."""
    return pa.Array.from_buffers(type_.arrow, length, [None], children=list(children))


def _pair_type(map_type: pa.MapType) -> pa.StructType:
    return pa.struct([map_type.key_field, map_type.item_field])


def _decimals(type_: pa.DataType, valid: np.ndarray, unscaled: np.ndarray) -> pa.Array:
    """Decimals of 16 bytes each, which may be more than have as many digits as the type."""
    found = _array(type_, valid, [unscaled])
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise MalformedRowError(f"a decimal has more than {type_.precision} digits") from error
    return found


def _array(
    type_: pa.DataType, valid: np.ndarray | None, buffers: Sequence[np.ndarray], children: Sequence[pa.Array] = ()
) -> pa.Array:
    """Makes an Arrow array of these parts; ``valid`` is None where nothing is null."""
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
    "nanos": UnsafeRows._nanos,
    "variant": UnsafeRows._variant,
    "struct": UnsafeRows._struct,
    "array": UnsafeRows._list,
    "map": UnsafeRows._map,
}
