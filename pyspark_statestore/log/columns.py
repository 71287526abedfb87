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
    """The Arrow schema of one of :data:`TABLES` or :data:`SINK_TABLES`."""
    return pa.schema([(column.name, column.type) for column in _columns_of(table)])


def spark_schema_of(table: str) -> str:
    """The same for Spark, as DDL."""
    return ", ".join(f"{column.name} {_SPARK_TYPES[column.type]}" for column in _columns_of(table))


def comments_of(table: str) -> dict[str, str]:
    """What each column of a table says, by its name."""
    return {column.name: column.about for column in _columns_of(table)}


def _columns_of(table: str) -> tuple[Column, ...]:
    return TABLES[table] if table in TABLES else SINK_TABLES[table]


def table_of(table: str, columns: Mapping[str, object]) -> pa.Table:
    """Makes one of :data:`TABLES` or :data:`SINK_TABLES`.

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
    Column("file_size_in_bytes", pa.int64(), "All its bytes: payload, index, header, dead segments and a torn tail."),
    Column("live_bytes", pa.int64(), "Bytes of the live segments in it."),
    Column("segment_count", pa.int32(), "Segments in it, dead ones included."),
    Column("live_segment_count", pa.int32(), "Live segments in it: the file's reference count."),
    Column("tombstone_count", pa.int32(), "Tombstones in it, for segments in any file."),
    Column(
        "space_amplification",
        pa.float64(),
        "file_size_in_bytes divided by live_bytes; null when nothing in the file lives.",
    ),
    Column(
        "generation",
        pa.int32(),
        "The highest generation in it: how often a segment in it was copied from file to file.",
    ),
    Column("is_sealed", pa.bool_(), "Whether its writer has ended it; a sealed file never changes."),
    Column(
        "is_closed",
        pa.bool_(),
        "Whether no process appends to it: it is sealed, or has not changed for closedAfter (10 minutes unless given).",
    ),
    Column("is_orphan", pa.bool_(), "Whether it is closed and has no whole group: nothing can be read from it."),
    Column("created_at", TIMESTAMP, "When its writer began it, by the writer's clock."),
    Column(
        "last_modified_at",
        TIMESTAMP,
        "When it last changed, by the file system's clock; null if the file system does not say.",
    ),
    Column("writer", pa.string(), "Id of the process that wrote it, 16 hexadecimal digits."),
    Column(
        "app_id",
        pa.string(),
        "The Spark application of that process; empty if Python wrote the file, null without a header.",
    ),
    Column("executor_id", pa.string(), "The executor, 'driver', or 'maintenance' for a file that Python wrote."),
    Column("query_run_id", pa.string(), "The run of the streaming query in which the file was begun, if known."),
    Column(
        "foreign_file_count",
        pa.int32(),
        "Files that a reference file names: of other checkpoints, or own ones with second paths.",
    ),
    Column("foreign_live_bytes", pa.int64(), "Bytes of live segments in those files; live_bytes does not count them."),
)

_SEGMENTS = (
    Column("file_path", pa.string(), "The merged file that holds the segment, as a URL."),
    Column("offset", pa.int64(), "Where its first byte is in the merged file."),
    Column("length", pa.int64(), "Its length in bytes."),
    Column("logical_path", pa.string(), "The logical file, relative to <checkpoint>/state/."),
    Column("type", pa.string(), "sst, changelog, snapshot, delta, checksum, log or other."),
    *_store_columns(),
    Column("version", pa.int64(), "The state version in its name; null if the name has none, as for SSTs."),
    Column(
        "state_store_checkpoint_id",
        pa.string(),
        "The id in its name with Spark's checkpoint format 2; null otherwise.",
    ),
    Column(
        "status",
        pa.string(),
        "live: it is read; superseded: a newer write or copy is read; deleted: a tombstone killed it.",
    ),
    Column("generation", pa.int32(), "How often it was copied from file to file; 0 for what a task wrote."),
    Column("written_at", TIMESTAMP, "When the state was written, by the writer's logical clock; copies keep it."),
    Column("crc32c", pa.int64(), "Checksum of its bytes."),
    Column(
        "foreign_path",
        pa.string(),
        "The file that holds the bytes at that offset, as a URL, where a reference file says so: in a fork, or after "
        "partitions were split; else null.",
    ),
)

_VERSIONS = (
    *_store_columns(),
    Column("version", pa.int64(), "The state version: what batch version - 1 left."),
    Column(
        "state_store_checkpoint_id",
        pa.string(),
        "Which of the attempts at this version, with Spark's checkpoint format 2; null otherwise.",
    ),
    Column("has_snapshot", pa.bool_(), "Whether a snapshot of this version is there."),
    Column("has_changelog", pa.bool_(), "Whether a changelog (RocksDB) or a delta (heap) of this version is there."),
    Column(
        "is_restorable",
        pa.bool_(),
        "Whether all that it needs is there: a snapshot, the SSTs that it names, all changelogs after it.",
    ),
    Column(
        "base_snapshot_version",
        pa.int64(),
        "The version of the snapshot that a restore begins with; 0 for the empty state, null if not restorable.",
    ),
    Column("replay_count", pa.int32(), "Changelogs that a restore replays after it; null if not restorable."),
    Column("restore_bytes", pa.int64(), "Bytes that a restore reads; null if not restorable."),
)

_SUMMARY = (
    Column("file_count", pa.int64(), "Merged files."),
    Column("file_size_in_bytes", pa.int64(), "Bytes of all merged files."),
    Column("live_bytes", pa.int64(), "Bytes of all live segments."),
    Column("space_amplification", pa.float64(), "file_size_in_bytes divided by live_bytes; null when nothing lives."),
    Column("segment_count", pa.int64(), "Segments, dead ones included."),
    Column("live_segment_count", pa.int64(), "Live segments: files, as far as Spark is concerned."),
    Column("orphan_file_count", pa.int64(), "Merged files that are closed and have no whole group."),
    Column("operator_count", pa.int64(), "Stateful operators that have live state files, merged or plain."),
    Column("partition_count", pa.int64(), "State partitions of all operators together."),
    Column("min_version", pa.int64(), "The oldest state version of which a file is there; null if there is none."),
    Column("max_version", pa.int64(), "The newest state version of which a file is there; null if there is none."),
    Column("plain_file_count", pa.int64(), "State files that are not merged; metadata is left out."),
    Column("plain_bytes", pa.int64(), "Bytes of these files; file_size_in_bytes does not count them."),
    Column(
        "foreign_file_count",
        pa.int64(),
        "Files that hold live segments by reference: in a fork, or after partitions were split.",
    ),
    Column("foreign_live_bytes", pa.int64(), "Bytes of these segments; live_bytes does not count them."),
    Column("forked_from", pa.string(), "In a fork: the checkpoint that it was made from, as a URL; else null."),
    Column("fork_count", pa.int64(), "Forks that have pinned files here; these files stay."),
    Column("committed_version", pa.int64(), "The version that the last committed batch has left; null without one."),
    Column(
        "restorable_version",
        pa.int64(),
        "The newest version that a query can go on from: an older one than committed_version, or null, is an alarm.",
    ),
    Column("not_restorable", pa.string(), "Why committed_version cannot be restored; null where it can."),
    Column(
        "provider",
        pa.string(),
        "The class that keeps the state after a restart, as the offset log says; null where it does not.",
    ),
    Column(
        "door",
        pa.string(),
        "The door through which the query goes on: provider or path; null without merged files, or if nothing tells.",
    ),
)

_PLAIN_FILES = (
    Column("file_path", pa.string(), "The plain file, as a URL."),
    Column("file_size_in_bytes", pa.int64(), "Its size."),
    Column("logical_path", pa.string(), "The same file, relative to <checkpoint>/state/."),
    Column("type", pa.string(), "sst, changelog, snapshot, delta, checksum, log or other."),
    *_store_columns(),
    Column("version", pa.int64(), "The state version in its name; null if the name has none, as for SSTs."),
    Column(
        "state_store_checkpoint_id",
        pa.string(),
        "The id in its name with Spark's checkpoint format 2; null otherwise.",
    ),
    Column("last_modified_at", TIMESTAMP, "When it last changed; null if the file system does not say."),
)

TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "files": _FILES,
        "segments": _SEGMENTS,
        "versions": _VERSIONS,
        "summary": _SUMMARY,
        "plain_files": _PLAIN_FILES,
    }
)
"""By name, in the order in which they are documented."""

_SINK_FILES = (
    Column("file_path", pa.string(), "The file, as a URL."),
    Column("directory", pa.string(), "Of its partition value, such as p=1/q=x; empty without partition columns."),
    Column("file_size_in_bytes", pa.int64(), "Its size, as the list says."),
    Column("last_modified_at", TIMESTAMP, "When it was written, as the list says; of a joined file, its newest part."),
    Column("listed_in", pa.string(), "The file of Spark's list that names it."),
)

_SINK_LOG = (
    Column("file_path", pa.string(), "The file of Spark's list, as a URL."),
    Column("batch_id", pa.int64(), "The batch whose files it names, or the last one of them."),
    Column("is_compact", pa.bool_(), "Whether it repeats the files of all batches before."),
    Column("is_current", pa.bool_(), "Whether readers go by it; older ones stay for a while."),
    Column("entry_count", pa.int64(), "Files that it names."),
    Column("listed_bytes", pa.int64(), "Size of these files."),
    Column("file_size_in_bytes", pa.int64(), "Its own size."),
    Column("last_modified_at", TIMESTAMP, "When it last changed; null if the file system does not say."),
)

_SINK_WAITING = (
    Column("file_path", pa.string(), "The file, as a URL. No reader of the sink sees it yet."),
    Column("directory", pa.string(), "Of its partition value, such as p=1/q=x; empty without partition columns."),
    Column("file_size_in_bytes", pa.int64(), "Its size."),
    Column("waiting_since", TIMESTAMP, "When its rows began to wait; maxDelay counts from then."),
)

SINK_TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {"sink_files": _SINK_FILES, "sink_log": _SINK_LOG, "sink_waiting": _SINK_WAITING}
)
"""The tables about a file sink, by name."""
