"""What the tables look like: one declaration for Arrow, for Spark's data source and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")

_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    TIMESTAMP: "timestamp",
}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: In snake_case.
        type: In Arrow.
        about: What it says, for people.
    """

    name: str
    type: pa.DataType
    about: str


def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of one of :data:`TABLES`."""
    return pa.schema([(column.name, column.type) for column in TABLES[table]])


def spark_schema_of(table: str) -> str:
    """The same for Spark, as DDL."""
    return ", ".join(f"{column.name} {_SPARK_TYPES[column.type]}" for column in TABLES[table])


def table_of(table: str, columns: Mapping[str, object]) -> pa.Table:
    """Makes one of :data:`TABLES`.

    Args:
        table: Its name.
        columns: What is in each column: an Arrow array, or what makes one.
    """
    schema = schema_of(table)
    return pa.table([_column(columns[field.name], field.type) for field in schema], schema=schema)


def _column(values: object, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return values.cast(type_) if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, type_)


def _store_columns() -> tuple[Column, ...]:
    return (
        Column("operator_id", pa.int32(), "The stateful operator, as Spark numbers them within the query."),
        Column("partition_id", pa.int32(), "The state partition."),
        Column("store_name", pa.string(), "'default', or for a stream-stream join one of its four stores."),
    )


_FILES = (
    Column("file_path", pa.string(), "The merged file, as a URL."),
    Column("file_size_in_bytes", pa.int64(), "All of it: payload, index, header, what is dead and a torn tail."),
    Column("live_bytes", pa.int64(), "Of its segments that are read."),
    Column("segment_count", pa.int32(), "Segments in it, dead ones included."),
    Column("live_segment_count", pa.int32(), "Of these, those that are read: the file's reference count."),
    Column("tombstone_count", pa.int32(), "Deletions that the file records, of segments in any file."),
    Column(
        "space_amplification",
        pa.float64(),
        "file_size_in_bytes divided by live_bytes; null when nothing in the file lives.",
    ),
    Column("generation", pa.int32(), "The highest number of times that something in it was copied from file to file."),
    Column("is_sealed", pa.bool_(), "Whether its writer has ended it; it never changes any more."),
    Column(
        "is_closed",
        pa.bool_(),
        "Whether nobody appends to it: it is sealed, or has not changed for closedAfter (10 minutes unless given).",
    ),
    Column("is_orphan", pa.bool_(), "Whether it is closed and has no whole group: nothing can be read from it."),
    Column("created_at", TIMESTAMP, "When its writer began it, by the writer's clock."),
    Column("last_modified_at", TIMESTAMP, "By the file system's clock; null where the file system does not say."),
    Column("writer", pa.string(), "Id of the process that wrote it, 16 hexadecimal digits."),
    Column("app_id", pa.string(), "The Spark application of that process; null for a file without a header."),
    Column("executor_id", pa.string(), "The executor, or 'driver'."),
    Column("query_run_id", pa.string(), "The run of the streaming query that the file was begun in, where known."),
    Column("foreign_file_count", pa.int32(), "In a fork: files of other checkpoints that the file refers to."),
    Column("foreign_live_bytes", pa.int64(), "Of segments that are read there; live_bytes does not count them."),
)

_SEGMENTS = (
    Column("file_path", pa.string(), "The merged file that holds it, as a URL."),
    Column("offset", pa.int64(), "Of its first byte in the merged file."),
    Column("length", pa.int64(), "In bytes."),
    Column("logical_path", pa.string(), "The file that it is to Spark, relative to <checkpoint>/state/."),
    Column("type", pa.string(), "sst, changelog, snapshot, delta, checksum, log or other."),
    *_store_columns(),
    Column("version", pa.int64(), "The state version in its name; null for what has none, such as SSTs."),
    Column(
        "state_store_checkpoint_id",
        pa.string(),
        "With Spark's checkpoint format 2, the id in its name; null otherwise.",
    ),
    Column("status", pa.string(), "live: it is read; superseded: a newer write or copy of its path is; deleted."),
    Column("generation", pa.int32(), "How often it was copied from file to file; 0 for what a task wrote."),
    Column("written_at", TIMESTAMP, "When the state was written (copies keep it), by the writer's logical clock."),
    Column("crc32c", pa.int64(), "Checksum of its bytes."),
    Column(
        "foreign_path",
        pa.string(),
        "In a fork: the other checkpoint's file that has the bytes, at that offset, as a URL; else null.",
    ),
)

_VERSIONS = (
    *_store_columns(),
    Column("version", pa.int64(), "The state version: what batch version - 1 left."),
    Column(
        "state_store_checkpoint_id",
        pa.string(),
        "With Spark's checkpoint format 2, which of the attempts at this version; null otherwise.",
    ),
    Column("has_snapshot", pa.bool_(), "Whether a snapshot of this version is there."),
    Column("has_changelog", pa.bool_(), "Whether a changelog (RocksDB) or a delta (heap) of this version is there."),
    Column(
        "is_restorable",
        pa.bool_(),
        "Whether every byte that is needed for it is there: snapshot, the SSTs it names, all changelogs after it.",
    ),
    Column(
        "base_snapshot_version",
        pa.int64(),
        "The snapshot that a restore begins with; 0 for the empty state, null if not restorable.",
    ),
    Column("replay_count", pa.int32(), "Changelogs that are replayed after it; null if not restorable."),
    Column("restore_bytes", pa.int64(), "What has to be read for it; null if not restorable."),
)

_SUMMARY = (
    Column("file_count", pa.int64(), "Merged files."),
    Column("file_size_in_bytes", pa.int64(), "Of all merged files."),
    Column("live_bytes", pa.int64(), "Of all segments that are read."),
    Column("space_amplification", pa.float64(), "file_size_in_bytes divided by live_bytes; null when nothing lives."),
    Column("segment_count", pa.int64(), "Segments, dead ones included."),
    Column("live_segment_count", pa.int64(), "Segments that are read: files, as far as Spark is concerned."),
    Column("orphan_file_count", pa.int64(), "Merged files that are closed and have no whole group."),
    Column("operator_count", pa.int64(), "Stateful operators that have live state files, merged or plain."),
    Column("partition_count", pa.int64(), "State partitions, of all operators together."),
    Column("min_version", pa.int64(), "The oldest state version that a file is there of; null without any."),
    Column("max_version", pa.int64(), "The newest one."),
    Column("plain_file_count", pa.int64(), "Files of state that are not in merged files, metadata left out."),
    Column("foreign_file_count", pa.int64(), "In a fork: files of other checkpoints that have live segments of it."),
    Column("foreign_live_bytes", pa.int64(), "Of these segments; live_bytes does not count them."),
    Column("forked_from", pa.string(), "Of a fork, the checkpoint that it was made of, as a URL; else null."),
    Column("fork_count", pa.int64(), "Forks that have files here pinned: these files stay."),
)

TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {"files": _FILES, "segments": _SEGMENTS, "versions": _VERSIONS, "summary": _SUMMARY}
)
"""By name, in the order in which they are documented."""
