"""From a store's bytes to columns; what cannot be decoded stays bytes, and the column says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.state.contents import Contents, Encoding
from pyspark_statestore.state.keys import decode_keys, decode_rows
from pyspark_statestore.state.rows import MalformedRowError, SparkType, UnknownTypeError, parse_schema
from pyspark_statestore.state.schema_files import Family

UNDECODED = b"pyspark_statestore.undecoded"
"""Metadata of a column that has bytes because they could not be decoded: the reason."""

_BATCH = 1 << 16
_BATCH_BYTES = 64 << 20
"""Rows that are decoded at a time, and their bytes, which bounds what that takes in memory."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        field: With the reason in its metadata, where it is bytes.
        values: They.
    """

    field: pa.Field
    values: pa.ChunkedArray


@dataclass(frozen=True)
class Decoder:
    """Decodes what one column family has.

    Attributes:
        family: Its schema.
        encoding: How the query's stores write.
    """

    family: Family
    encoding: Encoding

    def keys(self, name: str, keys: Sequence[bytes], contents: Contents) -> Column:
        """Decodes keys.

        Args:
            name: Of the column.
            keys: As the store has them.
            contents: That they are from.
        """
        prefix = len(contents.prefix)

        def decode(some: Sequence[bytes], type_: SparkType) -> pa.Array:
            if not contents.is_rocksdb:
                return decode_rows(some, type_)
            return decode_keys(some, type_, self.family.encoder, prefix=prefix)

        return self._column(name, keys, self.family.key_json, decode)

    def values(self, name: str, values: Sequence[bytes], contents: Contents) -> Column:
        """Decodes values, one for each key; see :meth:`split`."""
        skip = 1 if contents.is_rocksdb else 0
        return self._column(
            name, values, self.family.value_json, lambda some, type_: decode_rows(some, type_, skip=skip)
        )

    def split(self, values: Sequence[bytes]) -> tuple[list[bytes], np.ndarray]:
        """Takes the values of keys that have several apart.

        Returns:
            All of them, and how many each key has.

        Raises:
            MalformedRowError: A length does not fit.
        """
        if not self.family.has_many:
            return list(values), np.ones(len(values), "i8")
        found: list[bytes] = []
        count: np.ndarray = np.zeros(len(values), "i8")
        for number, value in enumerate(values):
            before = len(found)
            found.extend(_parts(value, len(self.encoding.delimiter)))
            count[number] = len(found) - before
        return found, count

    def _column(
        self,
        name: str,
        values: Sequence[bytes],
        schema: str,
        decode: Callable[[Sequence[bytes], SparkType], pa.Array],
    ) -> Column:
        try:
            type_ = parse_schema(schema)
            if not self.encoding.is_unsafe_row:
                raise UnknownTypeError("the query's state is not encoded as UnsafeRows")
            chunks = [decode(values[part], type_) for part in _parts_of(values)]
        except (UnknownTypeError, MalformedRowError, KeyError, ValueError) as error:
            field = pa.field(name, pa.binary(), metadata={UNDECODED: str(error).encode()})
            return Column(field, pa.chunked_array([pa.array(values, pa.binary())], pa.binary()))
        return Column(pa.field(name, type_.arrow), pa.chunked_array(chunks, type_.arrow))


def _parts_of(values: Sequence[bytes]) -> Iterator[slice]:
    begin = size = 0
    for at, value in enumerate(values):
        if at - begin == _BATCH or (size + len(value) > _BATCH_BYTES and at > begin):
            yield slice(begin, at)
            begin, size = at, 0
        size += len(value)
    if begin < len(values):
        yield slice(begin, len(values))


def _parts(data: bytes, delimiter: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little", signed=True)
        if length < 1 or at + 4 + length > len(data):
            raise MalformedRowError("one of a key's values has a wrong length")
        yield data[at + 4 : at + 4 + length]
        at += 4 + length + delimiter
