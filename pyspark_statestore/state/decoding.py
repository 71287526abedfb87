"""Decodes a store's keys and values to columns. A column that cannot be decoded stays bytes and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.state.contents import Contents, Encoding
from pyspark_statestore.state.keys import decode_keys, decode_rows
from pyspark_statestore.state.rows import MalformedRowError
from pyspark_statestore.state.schemas import Family, SparkType, UnknownTypeError, parse_schema

UNDECODED = b"pyspark_statestore.undecoded"
"""The key of a field's metadata that says why the column is bytes and not decoded."""

_BATCH = 1 << 16
_BATCH_BYTES = 64 << 20
"""How many rows, and how many of their bytes, are decoded at a time. Both bound the memory that it takes."""


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
