"""Orphans of a sink: removes files that no reader sees and nobody will list any more.

What is removed, each only when it is old enough:

* data files that Spark's list does not name: of attempts that failed, and what a compaction has replaced;
* what is in :data:`STAGING`, and what is in :data:`WAITING` and does not wait by the manifest that counts;
* the notes of compactions in :data:`REPLACED` once none of their files is left;
* temporary files that a crash has left beside the list.

Why that is safe. The files are listed before the list is read, so what is published in between is named. A file that a
query has written and not listed yet is young. A file that a compaction has replaced counts as old only when its note
is, too: a reader that took the old list has ended by then. The notes are read after the list, since a compaction writes
its note first. Where the list or a note cannot be read, or the list names files in other directories, nothing is
removed.

A file is old where both clocks, this process's and the file system's, say so. A dry run does not ask the file system
for the time, and may list more than is removed.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.columns import TIMESTAMP
from pyspark_statestore.log.merged_log import Clocks
from pyspark_statestore.sink.compaction import FORMER_REPLACED, REPLACED
from pyspark_statestore.sink.file_list import FORMER_WAITING, LIST, WAITING, Entry, ListPart, read_list
from pyspark_statestore.sink.verification import data_files
from pyspark_statestore.sink.waiting import read_waiting
from pyspark_statestore.storage.changes import delete, file_system_time, hadoop_checksum_of, is_temporary
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

STAGING = f"{LIST}/_staging"
"""The directory of what batches stage; the same as in the jar's ``SinkPlaces``."""

FORMER_STAGING = "_staging"
"""Where they staged before."""

LEAST = datetime.timedelta(hours=1)
"""A younger file may be about to be listed: a batch publishes its files before it commits."""

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


@dataclass(frozen=True)
class _Note:
    """A compaction's note: which files are not listed any more, since it was written."""

    info: FileInfo
    replaced: frozenset[str]


def remove_orphan_files(
    directory: Directory, older_than: datetime.timedelta, now: datetime.datetime, *, dry_run: bool, force: bool
) -> SinkOrphanRemoval:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.remove_orphan_files`."""
    check_age("older_than", older_than, force=force)
    clocks = Clocks(now)
    if not dry_run:
        read_list(directory)  # before anything is written, for one who is wrong about the directory
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

    there = data_files(directory)
    in_waiting = _found(directory, WAITING, FORMER_WAITING)
    staged = _found(directory, STAGING, FORMER_STAGING)
    waiting = read_waiting(directory)
    waits = {file.relative for file in waiting.files}
    waits |= {waiting.manifest.relative} if waiting.manifest else set()
    waits |= {hadoop_checksum_of(name) for name in waits}
    notes = _notes(directory)
    kept = {path for note in notes if not is_old(note.info) for path in note.replaced}
    named = {entry.relative for part in waiting.parts for entry in _checked(directory, part)}
    unlisted = [info for info in there if info.name not in named]
    gone = {info.name for info in unlisted if is_old(info) and info.name not in kept}
    yield from ((info, _UNLISTED) for info in unlisted if info.name in gone)
    yield from ((info, _STAGED) for info in staged if is_old(info))
    yield from ((info, _STAGED) for info in in_waiting if info.name not in waits and is_old(info))
    left = {info.name for info in unlisted} - gone
    yield from ((note.info, _NOTE) for note in notes if is_old(note.info) and not note.replaced & left)
    temporary = (_below(LIST, info) for info in directory.files(LIST) if is_temporary(info.name) and is_old(info))
    yield from ((info, _TEMPORARY) for info in temporary)


def _checked(directory: Directory, part: ListPart) -> tuple[Entry, ...]:
    """Refuses a list that names files elsewhere: what is here would seem to be unlisted."""
    for entry in part.entries:
        if not entry.relative:
            parameters = {"path": directory.location.display(), "file": entry.url}
            raise StateStoreFilesError("PSS_SINK_ELSEWHERE", parameters)
    return part.entries


def _notes(directory: Directory) -> list[_Note]:
    return [_read_note(directory, info) for info in _found(directory, REPLACED, FORMER_REPLACED)]


def _read_note(directory: Directory, info: FileInfo) -> _Note:
    try:
        return _Note(info, frozenset(json.loads(directory.read(info.name, info.size))["replaced"]))
    except FileNotFoundError:
        return _Note(info, frozenset())  # another removal was faster, and its files are gone
    except (ValueError, KeyError, TypeError) as error:
        parameters = {
            "action": "read",
            "path": directory.location.display(info.name),
            "reason": f"it is no note: {error}",
        }
        raise StateStoreFilesError("PSS_READ_FAILED", parameters) from error


def _remove(directory: Directory, name: str) -> None:
    delete(directory, name)
    if directory.is_local:
        delete(directory, hadoop_checksum_of(name))


def _found(directory: Directory, *folders: str) -> list[FileInfo]:
    """The files below folders of a sink, by their paths below the sink's directory."""
    return [_below(folder, info) for folder in folders for info in directory.find(folder)]


def _below(folder: str, info: FileInfo) -> FileInfo:
    return FileInfo(f"{folder}/{info.name}", info.size, info.modified)
