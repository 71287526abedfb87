"""Export: writes merged state back as the plain files that stock Spark expects, in place or to a new directory.

*In place*, the merged files stay, and nobody reads or writes them afterwards. The order: an ``.exporting`` marker,
which makes executors and maintenance refuse the merged files; one plain file for each live segment, until a scan finds
nothing more to write; the ``.exported`` marker; at last the class in the offset log. A crash leaves right plain files
and a marker; the next export keeps these files and goes on. ``convert`` to ``merged`` takes all of it back, as long as
stock Spark has not gone on.

*To a new directory*, the checkpoint itself is only read. The directory gets the state, then copies of everything else,
at last the query's ``metadata``, without which Spark would take it for a new query. Until then it has a ``metadata``
that Spark refuses, and a file ``_exporting`` by which a repeated export knows that it may go on there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.payload import checksum_of
from pyspark_statestore.log.repartitionings import REPLACED
from pyspark_statestore.log.scan import (
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    Scan,
    always_gone,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS
from pyspark_statestore.log.state_files import STATE, files_below_state
from pyspark_statestore.log.stopped import require_still_stopped
from pyspark_statestore.migration.checks import (
    LiveSegments,
    PlainCopies,
    check_places,
    check_replaced,
    check_restorable,
    check_strays,
    require_fresh,
    require_not_gone_on,
    require_query_stopped,
)
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.offset_log import OffsetChanges
from pyspark_statestore.migration.plain_writer import PlainWriter, copy_tasks, segment_tasks
from pyspark_statestore.storage.changes import delete, overwrite, publish
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


METADATA = "metadata"

IN_PROGRESS = "_exporting"
"""In a new directory from the first file to the last: names the checkpoint that is being exported there."""

UNFINISHED = b"This checkpoint is being written by pyspark-statestore export."
"""The new directory's ``metadata`` meanwhile. It is not JSON, so Spark does not start there."""

_ACTION = "Exporting"


@dataclass(frozen=True)
class Export:
    """What an export wrote, or would write.

    Attributes:
        path: URL of the plain files' checkpoint: the exported one itself, or the new directory.
        exported_files_count: Segments that became plain files.
        exported_bytes_count: Size of these files, in bytes.
        kept_files_count: Segments that were there as plain files already, with the same bytes.
        replaced_files_count: Exported files that replaced a plain file which a merged one had superseded.
        copied_files_count: Other files that a new directory got.
        provider: The class that the newest entry of the offset log names for stock Spark; None where it names none.
        dry_run: Whether nothing was changed.
        is_idle: Whether there was nothing to do: all state is plain, and the offset log says so.
    """

    path: str
    exported_files_count: int = 0
    exported_bytes_count: int = 0
    kept_files_count: int = 0
    replaced_files_count: int = 0
    copied_files_count: int = 0
    provider: str | None = None
    dry_run: bool = False
    is_idle: bool = False


def export(
    log: MergedLog,
    target: Directory | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
    query: Any = None,
) -> Export:
    """Implements :meth:`pyspark_statestore.Checkpoint.export`."""
    if target is not None:
        return _export_to(log, target, dry_run=dry_run, force=force, spark=spark, callback=callback, query=query)
    marker = ExportMarker.found(log.directory)
    changes = OffsetChanges.planned(log.directory, "stock")
    if marker is not None and marker.is_done:
        if not dry_run:
            remove_markers(log.directory, (EXPORTING_SUFFIX,))
        return _converted(log, changes, dry_run)
    found, live = retry_if_gone(log.directory, lambda: _restorable(log.directory))
    said = None
    if not force:
        said = require_query_stopped(log, found, _ACTION, query=query, marker=marker, ours=changes.ours)
    if not len(live) and marker is None:
        return _converted(log, changes, dry_run)
    plain = _checked(log, marker, found, live, force=force)
    if not dry_run:
        require_still_stopped(log, said, _ACTION)
        _write_in_place(log, marker, live, plain, PlainWriter(log.directory, log.directory, spark, callback))
        changes.carry_out(log)
    new: np.ndarray = np.setdiff1d(np.arange(len(live)), plain.same)
    return Export(
        path=log.directory.location.url,
        exported_files_count=len(new),
        exported_bytes_count=int(live.length[new].sum()),
        kept_files_count=len(plain.same),
        replaced_files_count=len(plain.others),
        provider=changes.providers[1],
        dry_run=dry_run,
    )


def _restorable(directory: Directory) -> tuple[Scan, LiveSegments]:
    found = scan(directory, retired=True)
    check_restorable(directory, found)
    return found, LiveSegments.of(found)


def _checked(
    log: MergedLog, marker: ExportMarker | None, found: Scan, live: LiveSegments, *, force: bool
) -> PlainCopies:
    """Finds the plain files that are there already, and makes sure that none is lost and none is newer."""
    directory = log.directory
    there = files_below_state(directory)
    if marker is not None:
        require_not_gone_on(directory, marker)
    elif not force:
        require_fresh(directory, found, there.values())
    check_strays(directory, found, live, there)
    check_places(directory, live, there)
    plain = PlainCopies.of(directory, live, there)
    check_replaced(directory, live, plain, marker)
    return plain


def _write_in_place(
    log: MergedLog, marker: ExportMarker | None, live: LiveSegments, plain: PlainCopies, writer: PlainWriter
) -> None:
    directory = log.directory
    if marker is None:
        replaces = tuple(live.path[at] for at in plain.others.tolist())
        created_ms = log.now_ms
        marker = ExportMarker("", created_ms, live.highest_stamp, replaces, Progress.of(directory))
        marker = marker.write_as(log, EXPORTING_SUFFIX)
    writer.note(live, plain.same)
    # A process that was writing during the first scan has ended since, or will find the marker: scan again.
    for _ in writer.attempts():
        found = retry_if_gone(directory, lambda: scan(directory, retired=True))
        live = LiveSegments.of(found)
        rows = writer.missing(live)
        if not len(rows):
            break
        writer.run(segment_tasks(found, live, rows), live, rows)
    marker.write_as(log, EXPORTED_SUFFIX)
    remove_markers(directory, (EXPORTING_SUFFIX,))


def _converted(log: MergedLog, changes: OffsetChanges, dry_run: bool) -> Export:
    """The export of a checkpoint whose state is all plain already: only the offset log changes."""
    if not dry_run:
        changes.carry_out(log)
    url, provider = log.directory.location.url, changes.providers[1]
    return Export(url, provider=provider, dry_run=dry_run, is_idle=not changes.are_any)


@dataclass(frozen=True)
class _Contents:
    """What a new directory gets of the checkpoint; files by their paths in it.

    Attributes:
        found: The merged files.
        live: The segments that live in them.
        plain: The other files below ``state/`` that are copied.
        rest: Spark's files beside the state, except the query's metadata and ``logs``.
        logs: The entries of the logs of offsets and commits.
    """

    found: Scan = field(repr=False)
    live: LiveSegments
    plain: tuple[FileInfo, ...] = field(repr=False)
    rest: tuple[FileInfo, ...] = field(repr=False)
    logs: tuple[FileInfo, ...] = field(repr=False)

    @classmethod
    def of(cls, directory: Directory) -> _Contents:
        """Scans the checkpoint; plain files that a segment supersedes are left out."""
        found = scan(directory)
        check_restorable(directory, found)
        live = LiveSegments.of(found)
        there = files_below_state(directory)
        check_strays(directory, found, live, there)
        known = set(live.path)
        plain = [replace(info, name=f"{STATE}/{name}") for name, info in there.items() if name not in known]
        rest = [info for info in directory.files("") if info.name not in (METADATA, IN_PROGRESS)]
        logs: list[FileInfo] = []
        files = {info.name for info in directory.files("")}
        for folder in directory.names():
            if folder not in files and folder not in (STATE, REPLACED):
                inside = [replace(info, name=f"{folder}/{info.name}") for info in directory.find(folder)]
                (logs if folder in (OFFSETS, COMMITS) else rest).extend(inside)
        return cls(found, live, _shown(plain), _shown(rest), _shown(logs))


def _export_to(
    log: MergedLog,
    target: Directory,
    *,
    dry_run: bool,
    force: bool,
    spark: SparkSession | None,
    callback: Callback | None,
    query: Any,
) -> Export:
    """Exports to a directory that is empty, does not exist, or holds an unfinished export of the same state."""
    source = log.directory
    _check_apart(source, target)
    what = json.dumps({"source": source.location.url, "progress": asdict(Progress.of(source))}, sort_keys=True)
    _check_empty(target, what)
    changes = OffsetChanges.planned(source, "stock")
    contents = retry_if_gone(source, lambda: _Contents.of(source))
    said = None
    if not force:
        marker = ExportMarker.found(source)
        said = require_query_stopped(log, contents.found, _ACTION, query=query, marker=marker, ours=changes.ours)
    there = files_below_state(target)
    check_places(target, contents.live, there)
    rows = contents.live.rows_in(there)
    same = rows[contents.live.same(target, there, rows)]
    if not dry_run:
        with publish(target, IN_PROGRESS) as out:
            out.write(what.encode("utf-8"))
        if not any(info.name == METADATA for info in target.files("")):
            with publish(target, METADATA) as out:
                out.write(UNFINISHED)
        writer = PlainWriter(source, target, spark, callback)
        writer.note(contents.live, same)
        contents = _write_state(source, target, contents, writer)
        require_still_stopped(log, said, _ACTION)
        _write_rest(source, target, contents, changes)
    live = contents.live
    new: np.ndarray = np.setdiff1d(np.arange(len(live)), same)
    return Export(
        path=target.location.url,
        exported_files_count=len(new),
        exported_bytes_count=int(live.length[new].sum()),
        kept_files_count=len(same),
        copied_files_count=len(contents.plain) + len(contents.rest) + len(contents.logs),
        provider=changes.providers[1],
        dry_run=dry_run,
    )


def _check_apart(source: Directory, target: Directory) -> None:
    plain, there = (f"{each.location.url.rstrip('/')}/" for each in (source, target))
    if plain.startswith(there) or there.startswith(plain):
        reason = f"it is the checkpoint {source.location.url} itself, contains it or lies in it"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.location.url, "reason": reason})


def _check_empty(target: Directory, what: str) -> None:
    names = target.names()
    if not names:
        return
    files = {info.name: info for info in target.files("")}
    if IN_PROGRESS in files:
        begun = target.read(IN_PROGRESS, files[IN_PROGRESS].size)
        if begun == what.encode("utf-8"):
            return
        reason = f"its {IN_PROGRESS} belongs to an export of another checkpoint or of an earlier batch"
    elif all(name.startswith(f".{IN_PROGRESS}.") for name in names):
        return
    else:
        reason = f"it contains {sorted(names)[0]}"
    raise StateStoreFilesError("PSS_DESTINATION_EXISTS", {"path": target.location.url, "reason": reason})


def _write_state(source: Directory, target: Directory, contents: _Contents, writer: PlainWriter) -> _Contents:
    """Writes until nothing is missing, and returns the contents as they were found last."""
    first = True
    for _ in writer.attempts():
        rows = writer.missing(contents.live)
        plain = _different(source, target, contents.plain) if first else []
        if not len(rows) and not plain:
            break
        first = False
        tasks = [*segment_tasks(contents.found, contents.live, rows), *copy_tasks(plain)]
        writer.run(tasks, contents.live, rows)
        if len(writer.missing(contents.live)):
            first = True
            contents = retry_if_gone(source, lambda: _Contents.of(source))
    return contents


def _write_rest(source: Directory, target: Directory, contents: _Contents, changes: OffsetChanges) -> None:
    writer = PlainWriter(source, target, None, None)
    is_whole = writer.run(copy_tasks(_different(source, target, contents.rest)))
    converted = {f"{OFFSETS}/{entry.batch}": entry.data for entry in changes.changed}

    def write_converted(path: str) -> None:
        with publish(target, path) as out:
            out.write(converted[path])

    in_parallel(write_converted, list(converted))
    is_whole &= writer.run(copy_tasks([info for info in contents.logs if info.name not in converted]))
    if not is_whole:
        raise always_gone(source)
    metadata = [info for info in source.files("") if info.name == METADATA]
    if metadata:
        overwrite(target, METADATA, source.read(METADATA, metadata[0].size))
    else:
        delete(target, METADATA)
    delete(target, IN_PROGRESS)


def _different(source: Directory, target: Directory, files: Sequence[FileInfo]) -> list[FileInfo]:
    """The files that an earlier run has not copied whole."""
    folders = sorted({info.name.rpartition("/")[0] for info in files})
    listed = in_parallel(target.files, folders)
    there = {
        f"{folder}/{info.name}" if folder else info.name: info.size
        for folder, infos in zip(folders, listed, strict=True)
        for info in infos
    }

    def differs(info: FileInfo) -> bool:
        return there.get(info.name) != info.size or _checksum(source, info) != _checksum(target, info)

    answers = in_parallel(differs, files)
    return [info for info, is_different in zip(files, answers, strict=True) if is_different]


def _checksum(directory: Directory, info: FileInfo) -> int | None:
    with directory.open(info.name, info.size) as file:
        return checksum_of(file, 0, info.size)


def _shown(files: Sequence[FileInfo]) -> tuple[FileInfo, ...]:
    """Leaves out Hadoop's own checksums and temporary files, which mean nothing in another directory."""
    return tuple(info for info in files if not info.name.rpartition("/")[2].startswith("."))
