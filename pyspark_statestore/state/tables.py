"""The tables about a store's contents: the keys and values of a version, and the changes between two versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import not_allowed
from pyspark_statestore.inspect import Inspection
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.state_files import STATE
from pyspark_statestore.state.contents import Contents
from pyspark_statestore.state.decoding import DecodedColumn, Decoder
from pyspark_statestore.state.keys import where_key
from pyspark_statestore.state.reader import PartitionContents, StateReader, StateSelection
from pyspark_statestore.state.rows import MalformedRowError
from pyspark_statestore.state.schemas import unreadable
from pyspark_statestore.storage import Directory

ADDED, CHANGED, REMOVED = "added", "changed", "removed"

_NOTHING = Contents({}, b"", True)


def read_state(
    directory: Directory, inspection: Inspection, wanted: StateSelection, version: int | None, key: Any = None
) -> pa.Table:
    """See :meth:`pyspark_statestore.Checkpoint.state`."""
    _check_version("version", version)

    def read() -> pa.Table:
        reader = StateReader(directory, inspection, wanted)
        at = reader.version(version)
        return _table(reader.decoder(at), reader.partitions(at), at)

    return _read(read, directory, wanted, key)


def read_changes(
    directory: Directory,
    inspection: Inspection,
    wanted: StateSelection,
    before: int,
    after: int | None,
    key: Any = None,
) -> pa.Table:
    """See :meth:`pyspark_statestore.Checkpoint.state_changes`."""
    _check_version("from_version", before)
    _check_version("to_version", after)

    def read() -> pa.Table:
        reader = StateReader(directory, inspection, wanted)
        at = reader.version(after)
        return _changes(reader.decoder(at), reader.partitions(before), reader.partitions(at), (before, at))

    return _read(read, directory, wanted, key)


def _check_version(name: str, version: object) -> None:
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
        raise not_allowed(name, version, "a whole number, 0 (the empty state) or more")


def _read(read: Callable[[], pa.Table], directory: Directory, wanted: StateSelection, key: Any) -> pa.Table:
    try:
        found = retry_if_gone(directory, read)
    except MalformedRowError as error:
        raise unreadable(directory, f"{STATE}/{wanted.operator_id}", error) from error
    return found if key is None else where_key(found, key)


def _table(decoder: Decoder, partitions: Sequence[PartitionContents], version: int) -> pa.Table:
    contents = partitions[0].contents if partitions else _NOTHING
    keys = list(chain.from_iterable(each.contents.pairs for each in partitions))
    values = list(chain.from_iterable(each.contents.pairs.values() for each in partitions))
    partition: np.ndarray = np.repeat(
        np.array([each.partition_id for each in partitions], "i4"), [len(each.contents.pairs) for each in partitions]
    )
    key_column = decoder.keys("key", keys, contents)
    values, count = decoder.split(values)
    if decoder.family.has_many:
        rows: np.ndarray = np.repeat(np.arange(len(keys)), count)
        key_column = DecodedColumn(key_column.field, key_column.values.take(pa.array(rows)))
        partition = partition[rows]
    value_column = decoder.values("value", values, contents)
    return _with_metadata(
        [
            DecodedColumn(pa.field("partition_id", pa.int32()), pa.chunked_array([pa.array(partition, pa.int32())])),
            key_column,
            value_column,
        ],
        {"version": str(version)},
    )


def _changes(
    decoder: Decoder, before: Sequence[PartitionContents], after: Sequence[PartitionContents], versions: tuple[int, int]
) -> pa.Table:
    contents = (*after, *before)[0].contents if before or after else _NOTHING
    old = {each.partition_id: each.contents.pairs for each in before}
    new = {each.partition_id: each.contents.pairs for each in after}
    rows: list[tuple[int, str, bytes, bytes | None, bytes | None]] = []
    for partition in sorted({*old, *new}):
        was, now = old.get(partition, {}), new.get(partition, {})
        for key, value in now.items():
            earlier = was.get(key)
            if earlier != value:
                rows.append((partition, ADDED if earlier is None else CHANGED, key, earlier, value))
        rows.extend((partition, REMOVED, key, value, None) for key, value in was.items() if key not in now)
    rows.sort(key=lambda row: (row[0], row[2]))
    columns = [
        DecodedColumn(pa.field("partition_id", pa.int32()), _chunked([row[0] for row in rows], pa.int32())),
        DecodedColumn(pa.field("change", pa.string()), _chunked([row[1] for row in rows], pa.string())),
        decoder.keys("key", [row[2] for row in rows], contents),
        _optional(decoder, "value_before", [row[3] for row in rows], contents),
        _optional(decoder, "value_after", [row[4] for row in rows], contents),
    ]
    return _with_metadata(columns, {"from_version": str(versions[0]), "to_version": str(versions[1])})


def _optional(decoder: Decoder, name: str, values: Sequence[bytes | None], contents: Contents) -> DecodedColumn:
    """Decodes values of which some are missing. Where keys have several values, each row has a list of them."""
    there = [value for value in values if value is not None]
    each, count = decoder.split(there)
    column = decoder.values(name, each, contents)
    field, found = column.field, column.values.combine_chunks()
    if decoder.family.has_many:
        offsets = np.concatenate([[0], np.cumsum(count)]).astype("i4")
        found = pa.ListArray.from_arrays(pa.array(offsets), found)
        field = pa.field(name, found.type, metadata=field.metadata)
    is_there = np.array([value is not None for value in values], bool)
    places = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
    return DecodedColumn(field, pa.chunked_array([found.take(places)], found.type))


def _chunked(values: Sequence[object], type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_)], type_)


def _with_metadata(columns: Sequence[DecodedColumn], metadata: dict[str, str]) -> pa.Table:
    named = {f"pyspark_statestore.{name}": value for name, value in metadata.items()}
    schema = pa.schema([column.field for column in columns], metadata=named)
    return pa.table([column.values for column in columns], schema=schema)
