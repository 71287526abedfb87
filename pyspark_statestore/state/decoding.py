"""Decodes a store's keys and values to columns. A column that cannot be decoded stays bytes and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_statestore.state.contents import Contents, Encoding
from pyspark_statestore.state.rows import MalformedRowError, UnsafeRows, struct_array
from pyspark_statestore.state.schemas import Family, SparkType, UnknownTypeError, parse_schema

UNDECODED = b"pyspark_statestore.undecoded"
"""The key of a field's metadata that says why the column is bytes and not decoded."""

_BATCH = 1 << 16
_BATCH_BYTES = 64 << 20
"""How many rows, and how many of their bytes, are decoded at a time. Both bound the memory that it takes."""

_UNSAFE_ROW = 0
_NEGATIVE, _NULL = 0, 2


@dataclass(frozen=True)
class DecodedColumn:
    """A column of a table.

    Attributes:
        field: The field, with :data:`UNDECODED` in its metadata where the values are bytes.
        values: The values.
    """

    field: pa.Field
    values: pa.ChunkedArray


@dataclass(frozen=True)
class Decoder:
    """Decodes the keys and values of one column family.

    Attributes:
        family: The family's schema.
        encoding: How the query's stores write.
    """

    family: Family
    encoding: Encoding

    def keys(self, name: str, keys: Sequence[bytes], contents: Contents) -> DecodedColumn:
        """Decodes keys of these contents to a column of this name."""
        prefix = len(contents.prefix)

        def decode(some: Sequence[bytes], type_: SparkType) -> pa.Array:
            if not contents.is_rocksdb:
                return decode_rows(some, type_)
            return decode_keys(some, type_, self.family.encoder, prefix=prefix)

        return self._column(name, keys, self.family.key_json, decode)

    def values(self, name: str, values: Sequence[bytes], contents: Contents) -> DecodedColumn:
        """Decodes values to a column of this name. Each item is one value: :meth:`split` comes first."""
        skip = 1 if contents.is_rocksdb else 0
        return self._column(
            name, values, self.family.value_json, lambda some, type_: decode_rows(some, type_, skip=skip)
        )

    def split(self, values: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        """Splits the bytes of keys that have several values; returns all values, and how many each key has.

        Raises:
            MalformedRowError: A length is wrong.
        """
        if not self.family.has_many:
            return list(values), np.ones(len(values), "i8")
        found: list[bytes] = []
        count: np.ndarray = np.zeros(len(values), "i8")
        for number, value in enumerate(values):
            before = len(found)
            found.extend(_split(value, len(self.encoding.delimiter)))
            count[number] = len(found) - before
        return found, count

    def _column(
        self,
        name: str,
        values: Sequence[bytes],
        schema: str,
        decode: Callable[[Sequence[bytes], SparkType], pa.Array],
    ) -> DecodedColumn:
        try:
            type_ = parse_schema(schema)
            if not self.encoding.is_unsafe_row:
                raise UnknownTypeError("the query's state is not encoded as UnsafeRows")
            chunks = [decode(values[batch], type_) for batch in _batches_of(values)]
        except (UnknownTypeError, MalformedRowError, KeyError, ValueError) as error:
            field = pa.field(name, pa.binary(), metadata={UNDECODED: str(error).encode()})
            return DecodedColumn(field, pa.chunked_array([pa.array(values, pa.binary())], pa.binary()))
        return DecodedColumn(pa.field(name, type_.arrow), pa.chunked_array(chunks, type_.arrow))


def decode_rows(values: Sequence[bytes], type_: SparkType, *, skip: int = 0) -> pa.StructArray:
    """Decodes rows: the values of any store, and the keys of the heap store.

    Args:
        values: The bytes of each row.
        type_: The type of the rows, a struct.
        skip: The number of bytes before each row, of which the last says how it is encoded; 0 for the heap store.

    Raises:
        MalformedRowError: The bytes are not rows of this type.
    """
    rows, start, end = _joined(values)
    if skip:
        start = _after_mark(rows, start + skip - 1, end)
    return struct_array(type_, rows.fields(type_.children, start, end), len(values))


def decode_keys(
    values: Sequence[bytes], type_: SparkType, encoder: Mapping[str, Any], *, prefix: int
) -> pa.StructArray:
    """Decodes RocksDB's keys: the counterpart of Spark's ``RocksDBStateEncoder``.

    A byte before each row says how the row is encoded: 0 for an ``UnsafeRow``. A key is encoded in one of these ways:

    * ``NoPrefixKeyStateEncoderSpec``: a row.
    * ``PrefixKeyScanStateEncoderSpec``: the length of a first row, a row of the first columns, a row of the others.
    * ``RangeKeyScanStateEncoderSpec``: the same, with the columns to order by in the first row, each as bytes that
      sort: a mark (0 negative, 1 not negative, 2 null), then the number with its highest byte first. Of negative
      floating point numbers all bits are flipped.
    * ``TimestampAsPrefixKeyStateEncoderSpec``, ``TimestampAsPostfixKeyStateEncoderSpec``: the last column with its
      highest byte first and its sign flipped, before or after a row of the others.

    Args:
        values: The bytes of each key.
        type_: The type of the keys, a struct.
        encoder: The encoder's type and parameters, as in the schema file.
        prefix: The number of bytes before each key, for the id of the column family.

    Raises:
        MalformedRowError: The bytes are not keys of this type, or this release does not know the encoder.
    """
    rows, start, end = _joined(values)
    start = start + prefix
    types = type_.children
    kind = encoder.get("keyStateEncoderType")
    if kind == "NoPrefixKeyStateEncoderSpec":
        fields = rows.fields(types, _after_mark(rows, start, end), end)
    elif kind == "PrefixKeyScanStateEncoderSpec":
        count = int(encoder["numColsPrefixKey"])
        first, middle = _two_parts(rows, start, end)
        fields = rows.fields(types[:count], first, middle)
        fields += rows.fields(types[count:], _after_mark(rows, middle, end), end)
    elif kind == "RangeKeyScanStateEncoderSpec":
        fields = _range_scan(rows, types, [int(each) for each in encoder["orderingOrdinals"]], start, end)
    elif kind in ("TimestampAsPrefixKeyStateEncoderSpec", "TimestampAsPostfixKeyStateEncoderSpec"):
        if (end - start < 8).any():
            raise MalformedRowError("a key has no timestamp")
        is_first = kind == "TimestampAsPrefixKeyStateEncoderSpec"
        time = start if is_first else end - 8
        begin, stop = (start + 8, end) if is_first else (start, end - 8)
        fields = rows.fields(types[:-1], _after_mark(rows, begin, stop), stop)
        flipped = rows.numbers(time, ">i8") ^ np.iinfo("i8").min
        fields.append(pa.array(flipped.astype("i8")).cast(types[-1].arrow))
    else:
        raise MalformedRowError(f"keys are encoded with {kind}, which this release does not know")
    return struct_array(type_, fields, len(values))


def _batches_of(values: Sequence[bytes]) -> Iterator[slice]:
    begin = size = 0
    for at, value in enumerate(values):
        if at - begin == _BATCH or (size + len(value) > _BATCH_BYTES and at > begin):
            yield slice(begin, at)
            begin, size = at, 0
        size += len(value)
    if begin < len(values):
        yield slice(begin, len(values))


def _split(data: bytes, delimiter: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little", signed=True)
        if length < 1 or at + 4 + length > len(data):
            raise MalformedRowError("one of a key's values has a wrong length")
        yield data[at + 4 : at + 4 + length]
        at += 4 + length + delimiter


def _range_scan(
    rows: UnsafeRows, types: Sequence[SparkType], ordered: Sequence[int], start: np.ndarray, end: np.ndarray
) -> list[pa.Array]:
    first, middle = _two_parts(rows, start, end)
    fields: list[pa.Array | None] = [None] * len(types)
    for number, ordinal in enumerate(ordered):
        at, size = rows.binaries(len(ordered), number, first, middle)
        fields[ordinal] = _sortable(rows, types[ordinal], at, size)
    others = [number for number in range(len(types)) if number not in ordered]
    if others:
        rest = rows.fields([types[each] for each in others], _after_mark(rows, middle, end), end)
        for number, column in zip(others, rest, strict=True):
            fields[number] = column
    return fields


def _sortable(rows: UnsafeRows, type_: SparkType, at: np.ndarray, size: np.ndarray) -> pa.Array:
    if type_.kind != "fixed" or (size != type_.width + 1).any():
        raise MalformedRowError("a column to order by has a wrong length")
    mark = rows.numbers(at, "u1")
    unsigned = f">u{type_.width}"
    bits: np.ndarray = rows.numbers(at + 1, unsigned).astype(unsigned[1:])
    if type_.dtype in ("<f4", "<f8"):
        bits = np.where(mark == _NEGATIVE, ~bits, bits)
    return pa.array(bits.view(type_.dtype[1:]), mask=mark == _NULL).view(type_.arrow)


def _two_parts(rows: UnsafeRows, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the first row begins, and where it ends and the second one begins."""
    if (end - start < 4).any():
        raise MalformedRowError("a key is too short")
    length: np.ndarray = rows.numbers(start, "<i4").astype("i8")
    middle = start + 4 + length
    if ((length < 1) | (middle > end)).any():
        raise MalformedRowError("the first part of a key has a wrong length")
    return _after_mark(rows, start + 4, middle), middle


def _after_mark(rows: UnsafeRows, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    if (start >= end).any():
        raise MalformedRowError("a row is empty")
    if (rows.numbers(start, "u1") != _UNSAFE_ROW).any():
        raise MalformedRowError("a row is not encoded as an UnsafeRow")
    return start + 1


def _joined(values: Sequence[bytes]) -> tuple[UnsafeRows, np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, values), "i8", len(values))
    end = np.cumsum(lengths)
    return UnsafeRows(b"".join(values)), end - lengths, end
