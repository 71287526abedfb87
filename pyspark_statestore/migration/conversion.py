"""Lets a stopped query go on with merged state, or with stock Spark's: ``convert``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import Clocks, MergedLog, ask_file_system, require_stopped
from pyspark_statestore.log.payload import check_run, segment_runs
from pyspark_statestore.log.scan import (
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    MERGED,
    Scan,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.spark_logs import OFFSETS, content_of, operator_metadata, operators
from pyspark_statestore.log.state_files import STATE, files_below_state, is_state_file
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.live_segments import DROP, LiveSegments, highest_version, require_fresh
from pyspark_statestore.migration.offset_log import (
    OffsetEntry,
    UnfinishedRepartition,
    counterpart,
    keep,
    kept,
    read_offsets,
)
from pyspark_statestore.storage.changes import delete, forget_checksum, overwrite
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

TARGETS = ("merged", "stock")
DOORS = ("provider", "path")


@dataclass(frozen=True)
class Conversion:
    """What was changed.

    Attributes:
        to: ``merged`` or ``stock``.
        provider_before: The class that the newest entry of the offset log named; None where it left it to the session.
        provider_after: The class that it names now.
        changed_entries_count: Entries of the offset log that were rewritten: the newest, from which Spark takes the
            class, and all older ones, from which who goes back or reads an earlier batch takes it.
        removed_files_count: Plain copies of merged segments, left by an export, that were removed.
        undone_batch: The batch of an unfinished repartitioning by Spark that was taken out of the logs; None without.
        kept_copy: A zip with the entries as they were before, as a URL; None where none was rewritten or taken out.
        dry_run: Whether nothing was changed.
    """

    to: str
    provider_before: str | None
    provider_after: str | None
    changed_entries_count: int
    removed_files_count: int
    undone_batch: int | None
    kept_copy: str | None
    dry_run: bool


@dataclass(frozen=True)
class OffsetChanges:
    """What has to be rewritten in an offset log.

    Attributes:
        before: All of its entries.
        changed: Those that change, as they will be.
        ours: Files of the query's logs, such as ``offsets/7``, that the query did not write last: an earlier conversion
            did, or a repartitioning.
        undone: A repartitioning whose batch goes; what was before is without it.
    """

    before: tuple[OffsetEntry, ...] = field(repr=False)
    changed: tuple[OffsetEntry, ...] = field(repr=False)
    ours: frozenset[str] = frozenset()
    undone: UnfinishedRepartition | None = None

    @classmethod
    def planned(cls, directory: Directory, to: str) -> OffsetChanges:
        """Reads the log.

        Args:
            directory: Of the checkpoint.
            to: ``merged`` or ``stock``; an empty text to change nothing.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_PROVIDER, PSS_UNREADABLE_STATE, or it cannot be read.
        """
        copies = kept(directory)
        replaced = {batch: data for copy in copies for batch, data in copy.items()}
        before = read_offsets(directory, replaced)
        changed = [_changed(directory, entry, to) for entry in before] if to else []
        ours = {f"{OFFSETS}/{entry.batch}" for entry in before if any(_is_ours(entry, copy) for copy in copies)}
        return cls(tuple(before), tuple(entry for entry in changed if entry is not None), frozenset(ours))

    def undoing(self, unfinished: UnfinishedRepartition) -> OffsetChanges:
        """The same without the batch of a repartitioning."""
        before, changed = (
            tuple(entry for entry in log if entry.batch != unfinished.batch) for log in (self.before, self.changed)
        )
        return replace(self, before=before, changed=changed, ours=self.ours | set(unfinished.files), undone=unfinished)

    @property
    def are_any(self) -> bool:
        """Whether anything changes."""
        return bool(self.changed) or self.undone is not None

    @property
    def providers(self) -> tuple[str | None, str | None]:
        """What the newest entry names, and will name."""
        if not self.before:
            return None, None
        newest = self.before[-1]
        return newest.provider, next((e.provider for e in self.changed if e.batch == newest.batch), newest.provider)

    def carry_out(self, log: MergedLog) -> str | None:
        """Keeps a copy of what will be replaced, then rewrites; the newest entry, which counts, last.

        Returns:
            Where the copy is.

        Raises:
            StateStoreFilesError: A file cannot be written.
        """
        if not self.are_any:
            return None
        batches = {entry.batch for entry in self.changed}
        copy = keep(
            log,
            [entry for entry in self.before if entry.batch in batches],
            {} if self.undone is None else self.undone.files,
        )
        if self.undone is not None:
            self.undone.undo(log.directory)

        def write(entry: OffsetEntry) -> None:
            overwrite(log.directory, f"{OFFSETS}/{entry.batch}", entry.data)

        in_parallel(write, self.changed[:-1])
        for newest in self.changed[-1:]:
            write(newest)
        return copy


def convert(
    log: MergedLog, to: str, *, door: str = "provider", dry_run: bool = False, force: bool = False
) -> Conversion:
    """Rewrites which class keeps the state, so that the query goes on the other way.

    To ``merged``, the old files are read where they are. Where an export has written plain files, and stock Spark has
    not gone on since, it goes back to the merged files and removes these copies. To ``stock``, everything has to be
    there as plain files; :func:`~pyspark_statestore.migration.export.export` makes them. A repartitioning by Spark that
    was begun and has written no state is undone.

    Args:
        log: Of the checkpoint.
        to: ``merged`` or ``stock``.
        door: Which one the query will go through when merged; for ``path`` the class is Spark's.
        dry_run: Whether nothing is to be changed.
        force: Whether the query is stopped, though it seems to be running, and the merged files are what counts, though
            they seem to be older than plain ones. That an export says so is never passed over.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_CHECKPOINT, PSS_QUERY_RUNNING, PSS_NOT_EXPORTED,
            PSS_STALE_MERGED, PSS_NEEDS_PATH_DOOR, PSS_UNKNOWN_PROVIDER, PSS_UNFINISHED_REPARTITION,
            PSS_UNREADABLE_STATE, or the checkpoint cannot be read or written. Repeated, it ends what an interrupted
            one has begun.
    """
    check_word("to", to, TARGETS)
    check_word("door", door, DOORS)
    directory = log.directory
    marker = ExportMarker.found(directory)
    # Through the path door the location says that state is merged, and the class is Spark's.
    changes = OffsetChanges.planned(directory, "stock" if door == "path" else to)
    found = retry_if_gone(directory, lambda: scan(directory, retired=True))
    changes = _undoing_repartition(directory, changes, found)
    back: GoingBack | None = None
    if to == "stock":
        _require_plain(directory, found, marker)
    else:
        if door == "provider":
            _require_no_transform_with_state(directory)
        there = files_below_state(directory)
        if marker is not None:
            back = GoingBack.planned(log, marker, found, there)
        elif not force:
            require_fresh(directory, found, there.values())
    if not force and (changes.are_any or back):
        require_query_stopped(log, found, marker, changes, f"Converting to {to}", dry_run=dry_run)
    copy = None
    if not dry_run:
        if back is not None:
            back.begin(log)
        copy = changes.carry_out(log)
        if back is not None:
            back.end(log)
    removed = 0 if back is None else len(back.copies)
    undone = None if changes.undone is None else changes.undone.batch
    return Conversion(to, *changes.providers, len(changes.changed), removed, undone, copy, dry_run)


def require_query_stopped(
    log: MergedLog, found: Scan, marker: ExportMarker | None, changes: OffsetChanges, action: str, *, dry_run: bool
) -> None:
    """Refuses to go on where the query seems to be running; what an earlier run here has written is no sign of that.

    Args:
        log: Of the checkpoint.
        found: Its merged files.
        marker: Of an export that was begun.
        changes: What is in its offset log.
        action: What needs a stopped query.
        dry_run: Whether not even the file system's clock may be asked for.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING, or the checkpoint cannot be read.
    """
    plain: list[FileInfo] = []
    if marker is None:
        plain = [info for name, info in files_below_state(log.directory).items() if is_state_file(name)]
    snapshot = log.snapshot_of(found)
    require_stopped(log, snapshot, plain, Clocks(log.clock()), action, changes.ours)
    if not dry_run:
        require_stopped(log, snapshot, plain, ask_file_system(log), action, changes.ours)


def check_word(key: str, value: object, allowed: Sequence[str]) -> None:
    """Refuses what is not one of a few words.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if value not in allowed:
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": " or ".join(allowed)})


def _undoing_repartition(directory: Directory, changes: OffsetChanges, found: Scan) -> OffsetChanges:
    unfinished = UnfinishedRepartition.found(directory, changes.before)
    if unfinished is None:
        return changes
    plain = [name for name in files_below_state(directory) if is_state_file(name)]
    unfinished.require_no_state(directory, [*plain, *LiveSegments.of(found).path])
    return changes.undoing(unfinished)


def _changed(directory: Directory, entry: OffsetEntry, to: str) -> OffsetEntry | None:
    where = directory.location.display(f"{OFFSETS}/{entry.batch}")
    try:
        provider = counterpart(entry.provider, to)
        if provider is None:
            return None if entry.is_whole else entry
        return entry.with_provider(provider)
    except KeyError:
        parameters = {"file": where, "provider": entry.provider, "reason": "it is neither Spark's nor of this package"}
        raise StateStoreFilesError("PSS_UNKNOWN_PROVIDER", parameters) from None
    except ValueError as error:
        raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error


def _is_ours(entry: OffsetEntry, copy: dict[int, bytes]) -> bool:
    """Whether an entry differs from a kept one in nothing but the class."""
    if entry.batch not in copy or entry.data == copy[entry.batch]:
        return False
    if not entry.is_whole:
        return True
    try:
        provider = OffsetEntry.of(entry.batch, copy[entry.batch]).provider
        return provider is not None and entry.with_provider(provider).data == copy[entry.batch]
    except ValueError:
        return False


def _require_plain(directory: Directory, found: Scan, marker: ExportMarker | None) -> None:
    if marker is not None and marker.is_done:
        return
    live = LiveSegments.of(found)
    if len(live):
        reason = f"{len(live)} files, such as {STATE}/{live.path[0]}, are segments of merged files"
        if marker is not None:
            reason += ", and an export was begun and not ended"
        raise StateStoreFilesError("PSS_NOT_EXPORTED", {"path": directory.location.url, "reason": reason})


def _require_no_transform_with_state(directory: Directory) -> None:
    for operator_id in operators(directory):
        metadata = operator_metadata(directory, operator_id)
        try:
            operator = content_of(metadata[1])["operatorInfo"]["operatorName"] if metadata else ""
        except (ValueError, KeyError, TypeError):
            continue
        if str(operator).startswith("transformWithState"):
            raise StateStoreFilesError("PSS_NEEDS_PATH_DOOR", {"operator": operator})


# Back to the merged files after an export in place, as long as stock Spark has not gone on.


@dataclass(frozen=True)
class GoingBack:
    """What is to be done.

    Attributes:
        marker: Of the export.
        copies: Paths below ``state/`` of plain files that have the bytes of a live segment.
    """

    marker: ExportMarker
    copies: tuple[str, ...] = field(repr=False)

    @classmethod
    def planned(cls, log: MergedLog, marker: ExportMarker, found: Scan, there: Mapping[str, FileInfo]) -> GoingBack:
        """Compares every plain copy with its segment, and both with their checksum.

        Args:
            log: Of the checkpoint.
            marker: Of the export.
            found: The merged files.
            there: Other files below ``state/``.

        Raises:
            StateStoreFilesError: PSS_STALE_MERGED where stock Spark has gone on, PSS_CORRUPT_SEGMENT where a plain copy
                is the only good one, or something cannot be read.
        """
        directory = log.directory
        require_not_gone_on(directory, marker)
        live = LiveSegments.of(found)
        rows = np.array([at for at, path in enumerate(live.path) if path in there], "i8")
        same = live.same(directory, there, rows)
        replaced = set() if marker.is_done else set(marker.replaces)
        others = [live.path[at] for at in rows[~same].tolist() if live.path[at] not in replaced]
        if others:
            reason = f"{STATE}/{others[0]} has other bytes than were exported, so somebody has written it since"
            raise _stale(directory, reason)
        known = set(live.path)
        unknown = [name for name in there if is_state_file(name) and name not in known]
        if highest_version(unknown) > highest_version(live.path):
            raise _stale(directory, "stock Spark has begun to write the next version")
        _check_segments(directory, found, live, rows[same])
        return cls(marker, tuple(live.path[at] for at in rows[same].tolist()))

    def begin(self, log: MergedLog) -> None:
        """Takes back that everything is there as plain files: soon it is not.

        Raises:
            StateStoreFilesError: A file cannot be written or deleted.
        """
        if self.marker.is_done:
            self.marker.write_as(log, EXPORTING_SUFFIX)
            remove_markers(log.directory, (EXPORTED_SUFFIX,))

    def end(self, log: MergedLog) -> None:
        """Removes the copies, and then what keeps others from the merged files.

        Raises:
            StateStoreFilesError: A file cannot be deleted.
        """

        def remove(path: str) -> None:
            forget_checksum(log.directory, f"{STATE}/{path}")
            delete(log.directory, f"{STATE}/{path}")

        in_parallel(remove, self.copies)
        remove_markers(log.directory, (EXPORTING_SUFFIX,))


def has_gone_on(directory: Directory, marker: ExportMarker) -> bool:
    """Whether a query has committed a batch since the export began.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    return Progress.of(directory) != marker.progress


def require_not_gone_on(directory: Directory, marker: ExportMarker) -> None:
    """Refuses merged files of before an export after which stock Spark has gone on.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED, or something cannot be read.
    """
    if marker.is_dropping:
        raise _stale(directory, "somebody has begun to drop them")
    if has_gone_on(directory, marker):
        reason = f"the query has gone on without them since they were exported ({MERGED}/{marker.name} says so)"
        raise _stale(directory, reason)


def _stale(directory: Directory, reason: str) -> StateStoreFilesError:
    parameters = {"path": directory.location.url, "reason": reason, "action": DROP}
    return StateStoreFilesError("PSS_STALE_MERGED", parameters)


def _check_segments(directory: Directory, found: Scan, live: LiveSegments, rows: np.ndarray) -> None:
    entries = found.entries
    runs = segment_runs(entries, live.row[rows], found.sizes)
    for run, checked in zip(runs, in_parallel(lambda run: check_run(directory, run), runs), strict=True):
        if checked.error is not None:
            raise checked.error
        for row in (*checked.bad, *checked.unread):
            reason = "their checksum differs, and the plain file's does not; nothing was changed"
            number = int(np.flatnonzero(run.row == row)[0])
            raise run.corrupt(directory, number, entries.path[row].as_py(), reason)
