"""Writes merged state back as the plain files that stock Spark expects: ``export``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.payload import checksum_of
from pyspark_statestore.log.scan import (
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    Scan,
    always_gone,
    check_checkpoint,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS
from pyspark_statestore.log.state_files import STATE, files_below_state
from pyspark_statestore.migration.conversion import OffsetChanges, require_not_gone_on, require_query_stopped
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.export_plan import (
    PlainFiles,
    check_places,
    check_replaced,
    check_restorable,
    check_strays,
)
from pyspark_statestore.migration.live_segments import LiveSegments, require_fresh
from pyspark_statestore.migration.offset_log import REPLACED
from pyspark_statestore.migration.pieces import Writing, copy_pieces, segment_pieces
from pyspark_statestore.storage.changes import delete, overwrite, publish
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


ACTION = "Exporting"


@dataclass(frozen=True)
class Export:
    """What was written, or would be.

    Attributes:
        path: Where the plain files are, as a URL: the checkpoint itself, or the new directory.
        exported_files_count: Segments that became plain files.
        exported_bytes_count: Of these.
        kept_files_count: Segments that were there as plain files already, with the same bytes.
        replaced_files_count: Of the exported ones, those in whose place a plain file was that had been superseded.
        copied_files_count: Other files that a new directory got.
        provider: The class that the newest entry of the offset log names for stock Spark; None where it names none.
        dry_run: Whether nothing was changed.
    """

    path: str
    exported_files_count: int = 0
    exported_bytes_count: int = 0
    kept_files_count: int = 0
    replaced_files_count: int = 0
    copied_files_count: int = 0
    provider: str | None = None
    dry_run: bool = False


def export(
    log: MergedLog,
    target: Directory | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Export:
    """See :meth:`pyspark_statestore.Checkpoint.export`."""
    check_checkpoint(log.directory)
    if target is not None:
        return export_to(log, target, dry_run=dry_run, force=force, spark=spark, callback=callback)
    marker = ExportMarker.found(log.directory)
    changes = OffsetChanges.planned(log.directory, "stock")
    if marker is not None and marker.is_done:
        if not dry_run:
            remove_markers(log.directory, (EXPORTING_SUFFIX,))
        return _converted(log, changes, dry_run)
    found, live = retry_if_gone(log.directory, lambda: _look(log.directory))
    if not force:
        require_query_stopped(log, found, marker, changes, ACTION, dry_run=dry_run)
    if not len(live) and marker is None:
        return _converted(log, changes, dry_run)
    plain = _planned(log, marker, found, live, force=force)
    if not dry_run:
        _carry_out(log, marker, live, plain, Writing(log.directory, log.directory, spark, callback))
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


def _look(directory: Directory) -> tuple[Scan, LiveSegments]:
    found = scan(directory, retired=True)
    check_restorable(directory, found)
    return found, LiveSegments.of(found)


def _planned(
    log: MergedLog, marker: ExportMarker | None, found: Scan, live: LiveSegments, *, force: bool
) -> PlainFiles:
    """Makes sure that nothing that is there is lost, and that what is written is newer."""
    directory = log.directory
    there = files_below_state(directory)
    if marker is not None:
        require_not_gone_on(directory, marker)
    elif not force:
        require_fresh(directory, found, there.values())
    check_strays(directory, found, live, there)
    check_places(directory, live, there)
    plain = PlainFiles.of(directory, live, there)
    check_replaced(directory, live, plain, marker)
    return plain


def _carry_out(
    log: MergedLog, marker: ExportMarker | None, live: LiveSegments, plain: PlainFiles, writing: Writing
) -> None:
    directory = log.directory
    if marker is None:
        replaces = tuple(live.path[at] for at in plain.others.tolist())
        created_ms = log.now_ms
        marker = ExportMarker("", created_ms, live.highest_stamp, replaces, Progress.of(directory))
        marker = marker.write_as(log, EXPORTING_SUFFIX)
    writing.note(live, plain.same)
    # Whoever was about to write when the first look was made has ended, or will find the marker: look again.
    for _ in writing.attempts():
        found = retry_if_gone(directory, lambda: scan(directory, retired=True))
        live = LiveSegments.of(found)
        rows = writing.missing(live)
        if not len(rows):
            break
        writing.run(segment_pieces(found, live, rows), live, rows)
    marker.write_as(log, EXPORTED_SUFFIX)
    remove_markers(directory, (EXPORTING_SUFFIX,))


def _converted(log: MergedLog, changes: OffsetChanges, dry_run: bool) -> Export:
    """Where every byte of the state is plain already."""
    if not dry_run:
        changes.carry_out(log)
    return Export(log.directory.location.url, provider=changes.providers[1], dry_run=dry_run)


# Exports to a new directory: the state as plain files, and a copy of everything else.

METADATA = "metadata"

IN_PROGRESS = "_exporting"
"""In the new directory, from the first file to the last: says of what it is to become a copy."""

UNFINISHED = b"This checkpoint is being written by pyspark-statestore export."
"""Stands in ``metadata`` meanwhile. That is no JSON, so Spark does not start there."""


@dataclass(frozen=True)
class _Contents:
    """What is in the checkpoint.

    Attributes:
        found: Its merged files.
        live: What lives in them.
        plain: Other files below ``state/`` that are copied; by their paths in the checkpoint, as all that follow.
        rest: Files that Spark keeps beside the state.
        logs: Of these, offsets and commits.
    """

    found: Scan = field(repr=False)
    live: LiveSegments
    plain: tuple[FileInfo, ...] = field(repr=False)
    rest: tuple[FileInfo, ...] = field(repr=False)
    logs: tuple[FileInfo, ...] = field(repr=False)

    @classmethod
    def of(cls, directory: Directory) -> _Contents:
        """Looks; what lives in merged files is not copied from the plain files that it supersedes."""
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


def export_to(
    log: MergedLog,
    target: Directory,
    *,
    dry_run: bool,
    force: bool,
    spark: SparkSession | None,
    callback: Callback | None,
) -> Export:
    """Writes a checkpoint for stock Spark to a directory that is empty or does not exist.

    Its ``metadata``, without which Spark would take it for a new query, comes last; until then there is one that Spark
    refuses. An interrupted export goes on where it was.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, PSS_DESTINATION_EXISTS, PSS_QUERY_RUNNING, PSS_VERSION_NOT_RESTORABLE,
            PSS_CORRUPT_SEGMENT, or something cannot be read or written.
    """
    source = log.directory
    _check_apart(source, target)
    what = json.dumps({"source": source.location.url, "progress": asdict(Progress.of(source))}, sort_keys=True)
    _check_empty(target, what)
    changes = OffsetChanges.planned(source, "stock")
    contents = retry_if_gone(source, lambda: _Contents.of(source))
    if not force:
        marker = ExportMarker.found(source)
        require_query_stopped(log, contents.found, marker, changes, ACTION, dry_run=dry_run)
    there = files_below_state(target)
    check_places(target, contents.live, there)
    rows = np.array([at for at, path in enumerate(contents.live.path) if path in there], "i8")
    same = rows[contents.live.same(target, there, rows)]
    if not dry_run:
        with publish(target, IN_PROGRESS) as out:
            out.write(what.encode("utf-8"))
        if not any(info.name == METADATA for info in target.files("")):
            with publish(target, METADATA) as out:
                out.write(UNFINISHED)
        writing = Writing(source, target, spark, callback)
        writing.note(contents.live, same)
        contents = _write_state(source, target, contents, writing)
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
        reason = f"it is, or is in, or holds the checkpoint {source.location.url} itself"
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
        reason = f"{IN_PROGRESS} in it is of an export of something else, or of an earlier batch"
    elif all(name.startswith(f".{IN_PROGRESS}.") for name in names):
        return
    else:
        reason = f"{sorted(names)[0]} is in it"
    raise StateStoreFilesError("PSS_DESTINATION_EXISTS", {"path": target.location.url, "reason": reason})


def _write_state(source: Directory, target: Directory, contents: _Contents, writing: Writing) -> _Contents:
    first = True
    for _ in writing.attempts():
        rows = writing.missing(contents.live)
        plain = _different(source, target, contents.plain) if first else []
        if not len(rows) and not plain:
            break
        first = False
        pieces = [*segment_pieces(contents.found, contents.live, rows), *copy_pieces(plain)]
        writing.run(pieces, contents.live, rows)
        if len(writing.missing(contents.live)):
            first = True
            contents = retry_if_gone(source, lambda: _Contents.of(source))
    return contents


def _write_rest(source: Directory, target: Directory, contents: _Contents, changes: OffsetChanges) -> None:
    writing = Writing(source, target, None, None)
    is_whole = writing.run(copy_pieces(_different(source, target, contents.rest)))
    converted = {f"{OFFSETS}/{entry.batch}": entry.data for entry in changes.changed}

    def convert(path: str) -> None:
        with publish(target, path) as out:
            out.write(converted[path])

    in_parallel(convert, list(converted))
    is_whole &= writing.run(copy_pieces([info for info in contents.logs if info.name not in converted]))
    if not is_whole:
        raise always_gone(source)
    metadata = [info for info in source.files("") if info.name == METADATA]
    if metadata:
        overwrite(target, METADATA, source.read(METADATA, metadata[0].size))
    else:
        delete(target, METADATA)
    delete(target, IN_PROGRESS)


def _different(source: Directory, target: Directory, files: Sequence[FileInfo]) -> list[FileInfo]:
    """Those that an earlier run has not copied whole."""
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
    """Without Hadoop's own checksums and what a crash has left: these belong to where they are."""
    return tuple(info for info in files if not info.name.rpartition("/")[2].startswith("."))
