"""Makes a fork: a second checkpoint that begins where a version of a first one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.forks.needed import (
    Needed,
    check_restorable,
    copy_plain,
    copy_segments,
    needed_for,
    not_restorable,
    places_of,
    write_references,
)
from pyspark_statestore.forks.pinning import Pinning
from pyspark_statestore.forks.spark_side import SparkFiles, copy_first, copy_last, make_partitions, spark_files
from pyspark_statestore.format import MergedFile
from pyspark_statestore.log.merged_log import Clocks, LogSnapshot, MergedLog, ask_file_system, require_stopped
from pyspark_statestore.log.pins import CLAIM, NO_CLAIM, ORIGIN_SUFFIX, Origin, check_unclaimed, write_origin
from pyspark_statestore.log.restorability import Batches, committed, ids_of
from pyspark_statestore.log.scan import MERGED, ForeignFileGoneError, check_checkpoint, retry_if_gone, scan
from pyspark_statestore.log.spark_logs import COMMITS
from pyspark_statestore.log.state_files import StateFiles, by_checkpoint, foreign_of, missing_foreign, plain_files
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import delete

COPY = "copy"
MODES = (NO_CLAIM, CLAIM, COPY)


@dataclass(frozen=True)
class Fork:
    """What was made.

    Attributes:
        path: URL of the fork's checkpoint.
        source: URL of the checkpoint that was forked.
        mode: ``no_claim``, ``claim`` or ``copy``.
        version: Of the state that the fork begins with; the next batch is of this number.
        query_id: Spark's id of the fork's query.
        referenced_files_count: Merged files of other checkpoints that the fork reads.
        referenced_segments_count: Segments that it reads there.
        referenced_bytes_count: Of these.
        copied_segments_count: Segments that were copied; 0 but with mode ``copy``.
        copied_files_count: State files that are not merged, which are copied whatever the mode.
        copied_bytes_count: Of segments and state files.
        dry_run: Whether nothing was made.
    """

    path: str
    source: str
    mode: str
    version: int
    query_id: str
    referenced_files_count: int = 0
    referenced_segments_count: int = 0
    referenced_bytes_count: int = 0
    copied_segments_count: int = 0
    copied_files_count: int = 0
    copied_bytes_count: int = 0
    dry_run: bool = False


def fork_checkpoint(
    log: MergedLog,
    target: Location,
    mode: str = NO_CLAIM,
    version: int | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> Fork:
    """See :func:`fork`.

    Args:
        log: Of the checkpoint that is forked.
        target: Where the fork is to be.
        mode: As there.
        version: As there.
        dry_run: As there.
        force: As there.

    Raises:
        StateStoreFilesError: As there.
    """
    _check(log, target, mode, version)
    if dry_run:
        return _Fork(log, MergedLog(Directory(target), log.closed_after), mode, version, force).foresee()
    pinning = Pinning(log, target.absolute)
    try:
        with taken_back(MergedLog(Directory(target), log.closed_after)) as there:
            return _Fork(log, there, mode, version, force).make(pinning)
    except BaseException:
        pinning.release()
        raise


@dataclass(frozen=True)
class _Plan:
    """What a look at the source has found.

    Attributes:
        snapshot: Of its merged files.
        files: Of its state.
        needed: Rows of these that the fork has.
        version: Of the state.
        spark: What else it begins with.
        highest_stamp: That any merged file knows of.
    """

    snapshot: LogSnapshot = field(repr=False)
    files: StateFiles = field(repr=False)
    needed: Needed
    version: int
    spark: SparkFiles
    highest_stamp: int

    @property
    def rows(self) -> np.ndarray:
        """Of the entries."""
        rows: np.ndarray = StateFiles.entry_rows(self.snapshot.scan)[self.needed.segments]
        return rows

    @property
    def others(self) -> set[str]:
        """Paths of the checkpoints that the source is a fork of, as far as this matters."""
        return set(foreign_of(self.snapshot.scan.entries, self.rows))


class _Fork:
    def __init__(self, log: MergedLog, target: MergedLog, mode: str, version: int | None, force: bool) -> None:
        self._log = log
        self._target = target
        self._mode = mode
        self._version = version
        self._force = force
        self._known: Mapping[str, MergedFile] = {}

    def make(self, pinning: Pinning) -> Fork:
        here = self._log.directory.location.absolute
        plan = self._checked()  # what is wrong is said before anything is written
        pinned: set[str] = set()
        # Stock Spark's checkpoints have no merged files to pin.
        while wanted := (({here} if plan.snapshot.scan.infos else set()) | plan.others) - pinned:
            for checkpoint in sorted(wanted):
                pinning.begin(checkpoint)
            pinned |= wanted
            plan = self._plan()
        places = places_of(plan.snapshot.scan.entries, plan.rows, here)
        files = by_checkpoint(places[0])
        if self._mode == CLAIM and pinned:
            files[here] = frozenset(plan.snapshot.scan.infos)
        pinning.name_files(files, {here: CLAIM} if self._mode == CLAIM else {})
        made = self._write(plan, places)
        if self._mode == COPY:
            pinning.release()
        else:
            pinning.end()
        return made

    def foresee(self) -> Fork:
        """What would be made."""
        plan = self._checked()
        places = places_of(plan.snapshot.scan.entries, plan.rows, self._log.directory.location.absolute)
        return self._made(plan, places, "", int(plan.files.length[plan.needed.plain].sum()), dry_run=True)

    def _checked(self) -> _Plan:
        plan = self._plan()
        if self._mode == CLAIM and not self._force:
            snapshot = self._log.snapshot()
            plain = plain_files(self._log.directory, snapshot.scan)
            now = Clocks(self._log.clock()) if self._log.dry_run else ask_file_system(self._log)
            require_stopped(self._log, snapshot, plain, now, "Claiming a checkpoint")
        return plan

    def _plan(self) -> _Plan:
        return retry_if_gone(self._log.directory, self._look)

    def _look(self) -> _Plan:
        source = self._log.directory
        batches = committed(source)
        if not batches:
            check_checkpoint(source)
        version = batches[-1] + 1 if self._version is None and batches else self._version
        if version is None:
            raise not_restorable(source, 0, "the query", "no batch was committed", batches)
        found = scan(source, headers=False, known=self._known)
        self._known = found.files
        check_unclaimed(source, found.others)
        entries = found.entries
        if missing := missing_foreign(source, entries):
            path = min(missing)
            row = int(np.argmax(entries.origin == entries.foreign.index(path) + 1))
            raise ForeignFileGoneError(path, str(entries.path[row]))
        files = StateFiles.of(found, plain_files(source, found))
        try:
            spark = spark_files(source, version)
        except KeyError as error:
            reason = f"Spark's logs do not reach there: {error.args[0]}"
            raise not_restorable(source, version, "the query", reason, batches) from error
        ids: dict[int, dict[int, list[list[str]]]] = {}
        if files.has_ids:
            ids[version - 1] = ids_of(source.read(f"{COMMITS}/{version - 1}", spark.last.size))
        check_restorable(source, files, version, Batches(tuple(batches), ids))
        stamps = (group.trailer.group_stamp for file in found.files.values() for group in file.groups)
        snapshot = LogSnapshot(found, {}, frozenset())
        return _Plan(snapshot, files, needed_for(files, version), version, spark, max(stamps, default=0))

    def _write(self, plan: _Plan, places: tuple[list[str], np.ndarray]) -> Fork:
        source, there = self._log.directory, self._target.directory
        rows = plan.rows
        if self._mode == COPY:
            for _ in copy_segments(self._log, self._target, plan.snapshot, rows, plan.highest_stamp):
                pass
        elif len(rows):
            write_references(self._target, plan.snapshot, rows, places, plan.highest_stamp)
        created_ms = self._log.now_ms
        origin = Origin(source.location.absolute, source.location.url, plan.version, self._mode, created_ms)
        write_origin(there, self._target.next_name(ORIGIN_SUFFIX), origin)
        try:
            copied = copy_plain(source, there, plan.files, plan.needed.plain)
            make_partitions(source, there)
            copy_first(source, there, plan.version, plan.spark)
            query_id = copy_last(source, there, plan.spark)
        except (KeyError, FileNotFoundError) as error:
            reason = f"{error.args[-1]} was deleted while it was copied; the query is too far ahead"
            raise not_restorable(source, plan.version, "the query", reason, committed(source)) from error
        return self._made(plan, places, query_id, copied)

    def _made(
        self,
        plan: _Plan,
        places: tuple[list[str], np.ndarray],
        query_id: str,
        plain_bytes: int,
        *,
        dry_run: bool = False,
    ) -> Fork:
        rows, is_copied = plan.rows, self._mode == COPY
        size = int(plan.snapshot.scan.entries.length[rows].sum())
        return Fork(
            self._target.directory.location.url,
            self._log.directory.location.url,
            self._mode,
            plan.version,
            query_id,
            referenced_files_count=0 if is_copied else len(places[0]),
            referenced_segments_count=0 if is_copied else len(rows),
            referenced_bytes_count=0 if is_copied else size,
            copied_segments_count=len(rows) if is_copied else 0,
            copied_files_count=len(plan.needed.plain),
            copied_bytes_count=plain_bytes + (size if is_copied else 0),
            dry_run=dry_run,
        )


def _check(log: MergedLog, target: Location, mode: str, version: int | None) -> None:
    source = log.directory.location
    if mode not in MODES:
        allowed = ", ".join(MODES)
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": "mode", "value": mode, "allowed": allowed})
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        allowed = "a whole number from 1 on"
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": "version", "value": version, "allowed": allowed})
    check_target(source, target, needs_same_file_system=mode != COPY)


# Where a fork is made: nothing may be there, and nothing is when it could not be made.


def check_target(source: Location, target: Location, *, needs_same_file_system: bool) -> None:
    """Refuses a place where a fork cannot be.

    Args:
        source: Of the checkpoint that is forked.
        target: Where the fork is to be.
        needs_same_file_system: Whether it is to read the state where it is.

    Raises:
        StateStoreFilesError: PSS_OTHER_FILE_SYSTEM, PSS_BAD_PATH, PSS_NOT_EMPTY, or it cannot be listed.
    """
    is_shared = source.shares_file_system(target)
    if needs_same_file_system and not is_shared:
        raise StateStoreFilesError("PSS_OTHER_FILE_SYSTEM", {"fork": target.url, "path": source.url})
    inside = f"{target.absolute}/".startswith(f"{source.absolute}/")
    around = f"{source.absolute}/".startswith(f"{target.absolute}/")
    if is_shared and (inside or around):
        reason = f"it is the checkpoint that is forked, or in it, or around it ({source.url})"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.url, "reason": reason})
    names = sorted(Directory(target).names())
    if names:
        raise StateStoreFilesError("PSS_NOT_EMPTY", {"path": target.url, "found": ", ".join(names[:5])})


@contextmanager
def taken_back(there: MergedLog) -> Iterator[MergedLog]:
    """The fork's directory, in which nothing was; if it fails to be made, nothing is in it again."""
    try:
        yield there
    except BaseException:
        with suppress(Exception):
            _remove_all(there)
        raise


def _remove_all(there: MergedLog) -> None:
    directory = there.directory
    merged = there.directory.names(MERGED)
    if any(f"-{there.writer:016x}-" not in name for name in merged):
        return  # somebody else is making a fork in the same place
    for name in directory.names():
        files = [f"{name}/{info.name}" for info in directory.find(name)]
        for path in files or [name]:
            with suppress(Exception):
                delete(directory, path)
        with suppress(Exception):  # what is left of it is empty directories
            directory.location.fs.rm(directory.location.below(name), recursive=True)
