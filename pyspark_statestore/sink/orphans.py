"""Orphans of a sink: removes files that no reader sees and nobody will list any more.

What is removed, each only when it is old enough:

* data files that Spark's list does not name: of attempts that failed, and what a compaction has replaced. Only files
  count that are where a query writes, under a name that Spark gives, and not what lies in another table or in a
  checkpoint inside of the sink's directory. Where a batch job has written, too, only what was replaced counts;
* what is in :data:`STAGING`, and what is in :data:`WAITING` and does not wait by the manifest that counts;
* the notes of compactions in :data:`REPLACED` once none of their files is left;
* temporary files that a crash has left beside the list.

Why that is safe. The files are listed before the list is read, so what is published in between is named. A file that a
query has written and not listed yet is young, or its batch says that it is still at work (:func:`_attempts`), or, of
stock Spark, it is younger than the list and than :data:`LONGEST_BATCH`. A file that a compaction has replaced counts
as old only when its note is, too: a reader that took the old list has ended by then. The notes are read after the
list, since a compaction writes its note first. Where the list or a note cannot be read, or the list names files in
other directories, nothing is removed. Where a listed file is not there with its size, the line that names it may be
what is damaged: then what is unlisted stays, unless a note says that it was replaced; and so does what waits where its
manifest is wrong.

A file is old where both clocks, this process's and the file system's, say so. A dry run does not ask the file system
for the time, and may list more than is removed.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.columns import TIMESTAMP
from pyspark_statestore.log.merged_log import Clocks
from pyspark_statestore.sink.file_list import FORMER_WAITING, LIST, WAITING, Entry, ListPart, check_sink, read_list
from pyspark_statestore.sink.notes import LEASE, attempt_of, read_notes
from pyspark_statestore.sink.verification import all_files, data_files, disagrees, waiting_disagrees
from pyspark_statestore.sink.waiting import read_waiting
from pyspark_statestore.storage.changes import delete, file_system_time, hadoop_checksum_of, is_temporary
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

STAGING = f"{LIST}/_staging"
"""The directory of what batches stage; the same as in the jar's ``SinkPlaces``."""

AT_WORK = "_at_work"
"""What an attempt that takes long writes into its staging directory; the same as in the jar's ``AtWork``."""

_LARGEST_SIGN = 20
_SLACK = datetime.timedelta(minutes=1)
"""What a file system's time may go back meanwhile."""

FORMER_STAGING = "_staging"
"""Where they staged before."""

LEAST = datetime.timedelta(hours=1)
"""A younger file may be about to be listed: a batch publishes its files before it commits."""

LONGEST_BATCH = datetime.timedelta(days=1)
"""Stock Spark writes in place, and lists files when a batch ends. What is younger than the list's newest part may be
of a batch that goes on, for so long.
"""

_SPARKS_NAME = re.compile(r"part-[0-9]{5,}-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})([-.])c[0-9]{3,}(?:\..+)?")
"""Names from Spark's ``ManifestFileCommitProtocol`` and its writers, the same in 3.5 to 4.3: with ``-c000`` where there
are no partition columns, with ``.c000`` where there are. A joined file is named like one of its parts.
"""

_BATCH_JOB = "_SUCCESS"
"""What a batch job leaves where it has written, which no query does, unless it is told not to. Its files are named like
those of queries, but all have the same UUID, and a query gives each of its files another one
(``HadoopMapReduceCommitProtocol`` and ``ManifestFileCommitProtocol``).
"""

_UNLISTED = "Spark's list does not name it"
_STAGED = "a batch that did not commit has staged it"
_NOTE = "note of a compaction whose files are gone"
_TEMPORARY = "temporary file of a writer that has crashed"


@dataclass(frozen=True)
class SinkOrphanRemoval:
    """What a removal of a sink's orphans deleted, or would delete.

    Attributes:
        removed_files_count: Files that were deleted.
        removed_bytes_count: Size of these files, in bytes.
        files: A row for each: ``file_path``, ``file_size_in_bytes``, ``reason`` and ``last_modified_at``.
        dry_run: Whether nothing was changed.
    """

    removed_files_count: int
    removed_bytes_count: int
    files: pa.Table = field(repr=False)
    dry_run: bool


def remove_orphan_files(
    directory: Directory, older_than: datetime.timedelta, now: datetime.datetime, *, dry_run: bool, force: bool
) -> SinkOrphanRemoval:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.remove_orphan_files`."""
    check_age("older_than", older_than, force=force)
    clocks = Clocks(now)
    check_sink(directory)  # before anything is listed or written, for one who is wrong about the directory
    if not dry_run:
        read_list(directory)
        clocks = Clocks(now, file_system_time(directory, STAGING))
    found = list(_orphans(directory, clocks, older_than))
    if not dry_run:
        in_parallel(lambda one: _remove(directory, one[0].name), found)
    infos = [info for info, _ in found]
    table = pa.table(
        {
            "file_path": pa.array([directory.location.display(info.name) for info in infos], pa.string()),
            "file_size_in_bytes": pa.array([info.size for info in infos], pa.int64()),
            "reason": pa.array([reason for _, reason in found], pa.string()),
            "last_modified_at": pa.array([info.modified for info in infos], TIMESTAMP),
        }
    )
    return SinkOrphanRemoval(len(infos), sum(info.size for info in infos), table, dry_run)


def check_age(name: str, age: datetime.timedelta, *, force: bool) -> None:
    """Refuses an age at which files may still be needed.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if age < (datetime.timedelta(0) if force else LEAST):
        allowed = "at least an hour, since a batch lists files after it wrote them"
        allowed += "; force=True allows less" if name == "older_than" else ""
        raise not_allowed(name, rendering.duration(age), allowed)


def _orphans(directory: Directory, clocks: Clocks, older_than: datetime.timedelta) -> Iterator[tuple[FileInfo, str]]:
    def is_old(info: FileInfo) -> bool:
        return clocks.age(info.modified) >= older_than

    found = all_files(directory)
    there, jobs = data_files(found), _batch_jobs(found)
    in_waiting = _found(directory, WAITING, FORMER_WAITING)
    staged = _found(directory, STAGING, FORMER_STAGING)
    attempts, begun = _attempts(directory, staged, clocks)
    waiting = read_waiting(directory)
    waits = {file.relative for file in waiting.files}
    waits |= {waiting.manifest.relative} if waiting.manifest else set()
    waits |= {hadoop_checksum_of(name) for name in waits}
    notes = read_notes(directory)
    at_work = [note for note in notes if note.is_at_work(clocks)]
    young = [note for note in notes if not is_old(note.info) or note in at_work]
    kept = {path for note in young for path in note.replaced}
    working = {note.made_by for note in young} - {""}
    replaced = {path for note in notes for path in note.replaced}
    named = {entry.relative for part in waiting.parts for entry in _checked(directory, part)}
    if disagrees(directory, waiting.parts, there):
        jobs = frozenset([*jobs, ""])  # nobody knows what else the list has named
    sparks = (_SPARKS_NAME.fullmatch(info.name.rpartition("/")[2]) for info in there)
    of_jobs = {uuid for uuid, count in Counter(each[1] for each in sparks if each).items() if count > 1}
    written = [info for info in there if _is_of_a_query(info.name, replaced, jobs, of_jobs)]
    unlisted = [info for info in written if info.name not in named]
    listed = max((part.info.modified for part in waiting.parts if part.info.modified), default=None)

    def may_be_listed(info: FileInfo) -> bool:
        """Whether a batch of stock Spark may go on that has written it; whoever forces a younger age knows of none."""
        is_new = listed is None or (info.modified is not None and info.modified >= listed)
        return is_new and older_than >= LEAST and clocks.age(info.modified) < LONGEST_BATCH

    old = {info.name for info in unlisted if is_old(info) and not may_be_listed(info)}
    gone = {name for name in old if name not in kept and attempt_of(name) not in working}

    def candidates() -> Iterator[tuple[FileInfo, str]]:
        yield from ((info, _UNLISTED) for info in unlisted if info.name in gone)
        if not at_work:
            yield from ((info, _STAGED) for info in staged if is_old(info))
        if not at_work and not waiting_disagrees(directory):
            yield from ((info, _STAGED) for info in in_waiting if info.name not in waits and is_old(info))
        left = {info.name for info in unlisted} - gone
        makers = set(map(attempt_of, left))
        done = [note for note in notes if note not in young and not note.is_about_any(left, makers)]
        yield from ((note.info, _NOTE) for note in done)
        temporary = (_below(LIST, info) for info in directory.files(LIST) if is_temporary(info.name) and is_old(info))
        yield from ((info, _TEMPORARY) for info in temporary)

    # Wherever it is: what the list names, some reader reads. And an attempt may be about to list what it has written.
    return (
        (info, reason)
        for info, reason in candidates()
        if info.name not in named and not info.name.startswith(attempts) and info.modified and info.modified < begun
    )


def _attempts(
    directory: Directory, staged: Sequence[FileInfo], clocks: Clocks
) -> tuple[tuple[str, ...], datetime.datetime]:
    """Finds the attempts at a batch that say that they are still at work.

    An attempt says so every few minutes, in its staging directory, until that goes when the list has its files or the
    attempt has failed. So the staging directory has to be listed after the files, and before the list is read.

    Returns:
        Their staging directories, each with a slash at its end; and when the oldest of them began.
    """
    found: list[str] = []
    begun = datetime.datetime.max.replace(tzinfo=datetime.timezone.utc)
    for info in staged:
        attempt, _, name = info.name.rpartition("/")
        if name != AT_WORK or clocks.age(info.modified) >= LEASE:
            continue
        found.append(f"{attempt}/")
        try:
            said = directory.read(info.name, min(info.size, _LARGEST_SIGN))
            if not said.isdigit() or info.modified is None:
                raise ValueError(said)
            begun = min(begun, info.modified - datetime.timedelta(milliseconds=int(said)) - _SLACK)
        except (FileNotFoundError, ValueError, OverflowError):
            # It has ended, or the sign is being written: who knows when it began?
            begun = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
    return tuple(found), begun


def _is_of_a_query(path: str, replaced: Collection[str], jobs: Collection[str], of_jobs: Collection[str]) -> bool:
    """Whether a query may have written a data file, so that it is no business of anybody else's.

    Args:
        path: Its path below the sink's directory.
        replaced: Files that a compaction has taken out of the list.
        jobs: Directories in which a batch job has written, each with a slash at its end; empty for the sink's. What is
            unlisted there is no orphan.
        of_jobs: UUIDs in the names of batch jobs' files.
    """
    *folders, name = path.split("/")
    found = _SPARKS_NAME.fullmatch(name)
    if not found or not all("=" in folder for folder in folders) or found[2] != ("." if folders else "-"):
        return False
    return path in replaced or (found[1] not in of_jobs and not any(path.startswith(job) for job in jobs))


def _batch_jobs(found: Sequence[FileInfo]) -> frozenset[str]:
    """Where batch jobs have written, as :func:`_is_of_a_query` takes it."""
    names = (info.name for info in found)
    return frozenset(name.removesuffix(_BATCH_JOB) for name in names if name.rpartition("/")[2] == _BATCH_JOB)


def _checked(directory: Directory, part: ListPart) -> tuple[Entry, ...]:
    """Refuses a list that names files elsewhere: what is here would seem to be unlisted."""
    for entry in part.entries:
        if not entry.relative:
            parameters = {"path": directory.location.display(), "file": entry.url}
            raise StateStoreFilesError("PSS_SINK_ELSEWHERE", parameters)
    return part.entries


def _remove(directory: Directory, name: str) -> None:
    delete(directory, name)
    if directory.is_local:
        delete(directory, hadoop_checksum_of(name))


def _found(directory: Directory, *folders: str) -> list[FileInfo]:
    """The files below folders of a sink, by their paths below the sink's directory."""
    return [_below(folder, info) for folder in folders for info in directory.find(folder)]


def _below(folder: str, info: FileInfo) -> FileInfo:
    return FileInfo(f"{folder}/{info.name}", info.size, info.modified)
