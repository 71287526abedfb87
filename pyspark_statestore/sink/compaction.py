"""Compaction of what a sink has listed already: joins small files, and names the new ones in the list in their place.

    1. Spark's tasks join small files of one partition value; rows or bytes are counted on the way.
    2. A note (:mod:`~pyspark_statestore.sink.notes`) says which files will not be listed any more.
    3. The file of Spark's list that named them is replaced at once by one that names the new files.

Readers are not harmed: one that has the old list finds the old files, since these stay until
:mod:`~pyspark_statestore.sink.orphans` removes them, and one that begins later finds the new files. Whatever dies
leaves files that no list names.

A running query may repeat the old list in a new ``.compact`` at the same moment. Then the old files stay listed and
the new ones are left over: nothing is lost, and the next compaction does the work.

**A stream that reads the sink** takes a new file for new rows, unless the file is older than the newest one that it has
seen by more than ``maxFileAge`` (7 days; Spark: ``FileStreamSource.SeenFilesMap``). A stream lags, so what is old for
it is not what is old for the sink. Only files are joined that are older than the sink's newest by ``older_than``, and a
new file is listed with the time of the newest that it was made of. With N the sink's newest time, T ``older_than``, A
``maxFileAge``, L the newest time that a stream has seen, t the new file's: from N - L < T - A and t <= N - T follows
t < L - A, and such a file the stream does not read. A stream that is further behind reads it, and misses nothing. No
file gets an older time than its rows had: Spark's option ``retention`` would take it out of the list too early.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.sink.file_list import (
    Entry,
    ListPart,
    check_unchanged,
    display,
    new_line,
    read_list,
    text_of,
)
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.sink.rewriter import Joined, New, Rewriter, check_options, format_of, look_at
from pyspark_statestore.sink.verification import all_files, data_files
from pyspark_statestore.storage.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_TARGET = 1024
"""Bytes; the same as of ``targetFileSize``."""


@dataclass(frozen=True)
class SinkCompaction:
    """What a compaction of a sink did, or would do.

    Attributes:
        rewritten_data_files_count: Files that were joined. They stay until orphans are removed.
        added_data_files_count: Files that were made of them; in a dry run, about so many.
        failed_data_files_count: Files that were to be joined and stay as they are, since they could not be joined
            without loss.
        rewritten_bytes_count: Size of the joined files, in bytes.
        added_bytes_count: Size of the new files, in bytes; None in a dry run.
        files: The joined files: ``file_path``, ``file_size_in_bytes``, and ``listed_in``, the file of Spark's list.
        failed: The files that were left: ``file_path``, ``file_size_in_bytes`` and ``reason``.
        dry_run: Whether nothing was changed.
        removed_files_count: Files that were removed then, with ``remove_after``: what earlier compactions have
            replaced, and other orphans.
        removed_bytes_count: Size of these files, in bytes.
    """

    rewritten_data_files_count: int
    added_data_files_count: int
    failed_data_files_count: int
    rewritten_bytes_count: int
    added_bytes_count: int | None
    files: pa.Table = field(repr=False)
    failed: pa.Table = field(repr=False)
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
    there = {info.name: info.size for info in data_files(all_files(directory))}
    times = Counter(entry.relative for part in parts for entry in part.entries)
    works, failed = [], []
    for part in parts:
        old = [entry for entry in part.entries if entry.relative and entry.modified_ms <= before]
        sound = []
        for entry in old:
            why = _why_not(entry, there.get(entry.relative), times[entry.relative])
            if why is None:
                sound.append(entry)
            else:
                failed.append((entry, why))
        bins = jvm.plan(sound, target_file_size)
        if bins:
            works.append(_Work(part, bins))
    planned = [_Done(work.part, [_Exchange(entries, ()) for entries in work.bins], ()) for work in works]
    done = planned
    if works and not dry_run:
        named = format_of(directory, format, [entry.relative for work in works for entry in work.planned])
        check_options(named, options)
        done = [work.do(directory, jvm, named, options) for work in works]
        failed += [pair for each in done for pair in each.failed]
    exchanges = [(each.part.info.name, exchange) for each in done for exchange in each.exchanges]
    joined = [(name, entry) for name, exchange in exchanges for entry in exchange.gone]
    made = [new for _, exchange in exchanges for new in exchange.made]
    sizes = [entry.size for _, entry in joined]
    table = pa.table(
        {
            "file_path": pa.array([display(directory, entry) for _, entry in joined], pa.string()),
            "file_size_in_bytes": pa.array(sizes, pa.int64()),
            "listed_in": pa.array([name for name, _ in joined], pa.string()),
        }
    )
    failures = pa.table(
        {
            "file_path": pa.array([display(directory, entry) for entry, _ in failed], pa.string()),
            "file_size_in_bytes": pa.array([entry.size for entry, _ in failed], pa.int64()),
            "reason": pa.array([why for _, why in failed], pa.string()),
        }
    )
    return SinkCompaction(
        rewritten_data_files_count=len(joined),
        added_data_files_count=len(exchanges) if dry_run else len(made),
        failed_data_files_count=len(failed),
        rewritten_bytes_count=sum(sizes),
        added_bytes_count=None if dry_run and works else sum(new.size for new in made),
        files=table,
        failed=failures,
        dry_run=dry_run,
    )


def _why_not(entry: Entry, size: int | None, times: int) -> str | None:
    """Why a listed file is left alone, whatever its size: ``verify`` says the same of it."""
    if size is None:
        return "it is not there"
    if size != entry.size:
        return f"it has {size} bytes, and the list says {entry.size}"
    return None if times == 1 else "it is listed more than once"


@dataclass(frozen=True)
class _Exchange:
    """Files whose rows are in new ones: these are listed in the place of those, or none of both is touched."""

    gone: Sequence[Entry]
    made: Sequence[New]


@dataclass(frozen=True)
class _Done:
    """What became of a file of the list."""

    part: ListPart
    exchanges: Sequence[_Exchange]
    failed: Sequence[tuple[Entry, str]]


@dataclass(frozen=True)
class _Work:
    """What is to be joined of one file of the list."""

    part: ListPart
    bins: Sequence[Sequence[Entry]]

    @property
    def planned(self) -> list[Entry]:
        return [entry for entries in self.bins for entry in entries]

    def do(self, directory: Directory, jvm: Rewriter, format: str, options: Mapping[str, str]) -> _Done:
        with Intent(directory, self.part.info.name) as intent:
            results = jvm.join(format, options, self.bins, intent.attempt)
            done = accounted(self.part, self.bins, results)
            if not done.exchanges:
                return done
            gone = [entry for exchange in done.exchanges for entry in exchange.gone]
            text = text_of(new_lines(self.part, done.exchanges))
            intent.replaces([entry.relative for entry in gone])
            look_at(directory, self.part, [new for exchange in done.exchanges for new in exchange.made])
            check_unchanged(directory, self.part)
            jvm.replace_list(self.part.info.name, text)
            return done


def accounted(part: ListPart, bins: Sequence[Sequence[Entry]], results: Sequence[Joined]) -> _Done:
    """What becomes of each file that was planned: it is exchanged for new ones, or it stays listed.

    The jar's ``Account`` has compared the rows. Here it is made sure that the list loses no file without a reason.
    """
    exchanges, failed = [], []
    for entries, joined in zip(bins, results, strict=True):
        failed += [(entries[at], why) for at, why in joined.left.items()]
        gone = [entry for at, entry in enumerate(entries) if at not in joined.left]
        if bool(gone) != bool(joined.made):
            reason = f"of {part.info.name}, {len(gone)} files became {len(joined.made)}; no list names them"
            raise StateStoreFilesError("PSS_SINK_REWRITE_FAILED", {"path": part.info.name, "reason": reason})
        if gone:
            exchanges.append(_Exchange(gone, joined.made))
    return _Done(part, exchanges, failed)


def new_lines(part: ListPart, exchanges: Sequence[_Exchange]) -> list[str]:
    """The lines of a part in which files were exchanged; all other lines stay."""
    gone = {entry.key for exchange in exchanges for entry in exchange.gone}
    lines = [entry.line for entry in part.entries if entry.key not in gone]
    # The older manifests of what waits say nothing any more.
    lines += [manifest.line for manifest in part.manifests[-1:]]
    for exchange in exchanges:
        modified = max(entry.modified_ms for entry in exchange.gone)
        lines += [new_line(new.url, new.size, modified, new.replication, new.block_size) for new in exchange.made]
    return lines
