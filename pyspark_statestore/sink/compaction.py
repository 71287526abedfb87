"""Compaction of what a sink has listed already: joins small files, and names the new ones in the list in their place.

    1. Spark's tasks join small files of one partition value; rows or bytes are counted on the way.
    2. A note in :data:`REPLACED` says which files will not be listed any more.
    3. The file of Spark's list that named them is replaced at once by one that names the new files.

Readers are not harmed: one that has the old list finds the old files, since these stay until
:mod:`~pyspark_statestore.sink.orphans` removes them, and one that begins later finds the new files. Whatever dies
leaves files that no list names.

A running query may repeat the old list in a new ``.compact`` at the same moment. Then the old files stay listed and
the new ones are left over: nothing is lost, and the next compaction does the work.

**A stream that reads the sink** takes a new file for new rows, unless the file is older than the newest one that it has
seen by more than ``maxFileAge`` (7 days; Spark: ``FileStreamSource.SeenFilesMap``). A stream lags, so what is old for
it is not what is old for the sink. Only files are joined that are older than the sink's newest by ``older_than``: a
stream that is behind by less has read them, since it reads the oldest first. And a new file is listed as older than the
sink's newest by twice as much (:func:`listed_time`): that is too old for each such stream whose ``maxFileAge`` is not
longer than ``older_than``, and not too old for one that is further behind, and may not have read the rows.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_statestore.errors import not_allowed
from pyspark_statestore.sink.file_list import (
    LIST,
    Entry,
    ListPart,
    check_unchanged,
    display,
    new_line,
    read_list,
    text_of,
)
from pyspark_statestore.sink.rewriter import New, Rewriter, check_options, format_of
from pyspark_statestore.storage.changes import write
from pyspark_statestore.storage.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLACED = f"{LIST}/_replaced"
"""The directory of the notes that say which files are not listed any more. No reader looks there, by any way."""

FORMER_REPLACED = "_replaced"
"""Where the notes were before: a reader that was given ``sink/*`` took them for data. They still count."""

LEAST_TARGET = 1024
"""Bytes; the same as of ``targetFileSize``."""


@dataclass(frozen=True)
class SinkCompaction:
    """What a compaction of a sink did, or would do.

    Attributes:
        rewritten_data_files_count: Files that were joined. They stay until orphans are removed.
        added_data_files_count: Files that were made of them; in a dry run, about so many.
        rewritten_bytes_count: Size of the joined files, in bytes.
        added_bytes_count: Size of the new files, in bytes; None in a dry run.
        files: The joined files: ``file_path``, ``file_size_in_bytes``, and ``listed_in``, the file of Spark's list.
        dry_run: Whether nothing was changed.
        removed_files_count: Files that were removed then, with ``remove_after``: what earlier compactions have
            replaced, and other orphans.
        removed_bytes_count: Size of these files, in bytes.
    """

    rewritten_data_files_count: int
    added_data_files_count: int
    rewritten_bytes_count: int
    added_bytes_count: int | None
    files: pa.Table = field(repr=False)
    dry_run: bool
    removed_files_count: int = 0
    removed_bytes_count: int = 0


def compact(
    directory: Directory,
    *,
    target_file_size: int,
    older_than: datetime.timedelta,
    format: str | None,
    options: Mapping[str, str],
    dry_run: bool,
    spark: SparkSession | None,
) -> SinkCompaction:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.compact`."""
    if not isinstance(target_file_size, int) or target_file_size < LEAST_TARGET:
        raise not_allowed("target_file_size", target_file_size, f"a number of bytes of at least {LEAST_TARGET}")
    if older_than < datetime.timedelta(0):
        raise not_allowed("older_than", older_than, "a datetime.timedelta of 0 or more")
    parts = read_list(directory)
    jvm = Rewriter(directory, spark)
    newest = max((entry.modified_ms for part in parts for entry in part.entries), default=0)
    age = older_than // datetime.timedelta(milliseconds=1)
    before = newest - age
    works = []
    for part in parts:
        old = [entry for entry in part.entries if entry.relative and entry.modified_ms <= before]
        bins = jvm.plan(old, target_file_size)
        if bins:
            works.append(_Work(part, bins, newest - 2 * age))
    added, added_bytes = sum(len(work.bins) for work in works), None
    if works and not dry_run:
        named = format_of(directory, format, [entry.relative for work in works for entry in work.joined])
        check_options(named, options)
        made = [made for work in works for made in work.do(directory, jvm, named, options, target_file_size)]
        added, added_bytes = len(made), sum(each.size for each in made)
    joined = [(work.part.info.name, entry) for work in works for entry in work.joined]
    sizes = [entry.size for _, entry in joined]
    table = pa.table(
        {
            "file_path": pa.array([display(directory, entry) for _, entry in joined], pa.string()),
            "file_size_in_bytes": pa.array(sizes, pa.int64()),
            "listed_in": pa.array([name for name, _ in joined], pa.string()),
        }
    )
    return SinkCompaction(len(joined), added, sum(sizes), 0 if not works else added_bytes, table, dry_run)


def listed_time(joined: Sequence[Entry], latest_ms: int) -> int:
    """The modification time with which the list names a file that was made of others, in milliseconds since 1970.

    Args:
        joined: What it was made of.
        latest_ms: The sink's newest time less twice ``older_than``. With L the newest time that a stream has seen, A
            its ``maxFileAge``, N the sink's newest time and T ``older_than``: from L > N - T and A <= T follows
            N - 2T < L - A, and what is older than L - A the stream does not read.
    """
    return min(latest_ms, max(entry.modified_ms for entry in joined))


@dataclass(frozen=True)
class _Work:
    """What is to be joined of one file of the list."""

    part: ListPart
    bins: Sequence[Sequence[Entry]]
    latest_ms: int

    @property
    def joined(self) -> list[Entry]:
        return [entry for entries in self.bins for entry in entries]

    def do(
        self, directory: Directory, jvm: Rewriter, format: str, options: Mapping[str, str], target: int
    ) -> list[New]:
        made = jvm.join(format, options, self.joined, target)
        gone = {entry.url for entry in self.joined}
        lines = [entry.line for entry in self.part.entries if entry.url not in gone]
        # The older manifests of what waits say nothing any more.
        lines += [manifest.line for manifest in self.part.manifests[-1:]]
        for each in made:
            time = listed_time(self.bins[each.bin], self.latest_ms)
            lines.append(new_line(each.url, each.size, time, each.replication, each.block_size))
        check_unchanged(directory, self.part)
        note = {"list": self.part.info.name, "replaced": [entry.relative for entry in self.joined]}
        write(directory, f"{REPLACED}/{uuid.uuid4()}.json", json.dumps(note).encode())
        jvm.replace_list(self.part.info.name, text_of(lines))
        return made
