"""Makes a fork: a second checkpoint that begins at a version of a first one, its source.

The source is read, and gets pins; nothing else in it changes. The fork gets, in this order:

1. *Pins in the source.* An empty pin protects every file there, while a scan finds what the version needs. A second pin
   names these files. The empty one is deleted last, so at no time is there no pin. A source that is a fork itself reads
   files of further checkpoints, which are pinned likewise.
2. *State.* A reference file that says where the segments are, or copies of them (``copy``); and copies of the state
   files that are not merged.
3. *Spark's own files:* its logs up to the version's batch, what sources remember, metadata and schemas of operators.
   The newest commit and the query's metadata are written last: without them, the directory is no checkpoint.

If anything fails, what was written is deleted again, the query's metadata first. The pins are dropped only once a look
at the fork's directory shows that nothing there refers to the source any more: where the deletion fails, too, or is
interrupted, the fork may be whole. A crash leaves a directory that is no checkpoint, and pins: others stop heeding an
empty pin after ``closedAfter``, and ``remove_orphan_files`` in the source removes the pins of a fork that does not
exist. docs/guarantees.md says why a fork finds all that it needs, whatever is cleaned meanwhile.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.forks.needed import Needed, copy_plain, copy_segments, needed_for
from pyspark_statestore.forks.spark_side import (
    METADATA,
    SparkFiles,
    copy_first,
    copy_last,
    make_partitions,
    spark_files,
)
from pyspark_statestore.format import MergedFile
from pyspark_statestore.log import is_timely
from pyspark_statestore.log.ended import Ended, say_unused
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import (
    CLAIM,
    NO_CLAIM,
    ORIGIN_SUFFIX,
    PIN_SUFFIX,
    Origin,
    Pin,
    check_unclaimed,
    drop_pin,
    write_origin,
    write_pin,
)
from pyspark_statestore.log.references import Holders, write_references
from pyspark_statestore.log.restart import lost_stores, not_restorable, rows_of_missing, why_lost
from pyspark_statestore.log.restorability import batch_with_ids, committed
from pyspark_statestore.log.scan import MERGED, ForeignFileGoneError, retry_if_gone, scan
from pyspark_statestore.log.spark_logs import COMMITS
from pyspark_statestore.log.state_files import StateFiles, by_checkpoint, foreign_of, plain_files
from pyspark_statestore.log.stopped import require_still_stopped, require_stopped
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import delete

COPY = "copy"
MODES = (NO_CLAIM, CLAIM, COPY)

_CLAIMING = "Claiming a checkpoint"


@dataclass(frozen=True)
class Fork:
    """The fork that was made, or would be made.

    Attributes:
        path: URL of the fork's checkpoint.
        source: URL of the checkpoint that was forked.
        mode: ``no_claim``, ``claim`` or ``copy``.
        version: The state version that the fork begins with; its next batch has this number.
        query_id: Spark's id of the fork's query; empty in a dry run.
        referenced_files_count: Merged files of other checkpoints that the fork reads.
        referenced_segments_count: Segments that it reads there.
        referenced_bytes_count: Size of these segments, in bytes.
        copied_segments_count: Segments that were copied; 0 except with mode ``copy``.
        copied_files_count: State files that are not merged; they are copied whatever the mode.
        copied_bytes_count: Size of the copied segments and state files, in bytes.
        dry_run: Whether nothing was made.
        sinks_count: Directories that were made ready for the fork's query to write files to.
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
    sinks_count: int = 0


def fork_checkpoint(
    log: MergedLog,
    target: Location,
    mode: str = NO_CLAIM,
    version: int | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
    is_reshaped: bool = False,
    afterwards: Callable[[], object] | None = None,
    query: Any = None,
) -> Fork:
    """Implements :meth:`pyspark_statestore.Checkpoint.fork`; what is done with it ``afterwards`` belongs to it."""
    fork = MergedLog(Directory(target), log.closed_after)
    _check_arguments(mode, version)
    _check_target(log.directory.location, fork.directory, needs_same_file_system=mode != COPY)
    if dry_run:
        return _Forking(log, fork, mode, version, force, query).predict()
    pins = _Pins(log, target, secrets.token_hex(16))
    there, is_whole = fork, False
    try:
        made = _Forking(log, there, mode, version, force, query, is_reshaped=is_reshaped).make(pins)
        is_whole = True
        if afterwards is not None:
            afterwards()
        return made
    except BaseException:
        # Not in a "finally", and nothing is caught: whatever else goes wrong here, the pins stay.
        if _is_removed(there, is_ours=is_whole):
            pins.drop_all()
        raise


@dataclass(frozen=True)
class _Plan:
    """What the fork needs, by one scan of the source.

    Attributes:
        snapshot: The source's merged files.
        files: The source's state files.
        needed: Which of these the fork gets.
        version: The state version that the fork begins with.
        spark: The files of Spark that it begins with.
        highest_stamp: The highest stamp that any merged file of the source knows.
    """

    snapshot: LogSnapshot = field(repr=False)
    files: StateFiles = field(repr=False)
    needed: Needed
    version: int
    spark: SparkFiles
    highest_stamp: int

    @property
    def rows(self) -> np.ndarray:
        """Rows of the entries of the segments that the fork gets."""
        rows: np.ndarray = StateFiles.entry_rows(self.snapshot.scan)[self.needed.segments]
        return rows

    @property
    def further_sources(self) -> set[str]:
        """Paths of the other checkpoints that hold bytes of these segments, where the source is a fork itself."""
        return set(foreign_of(self.snapshot.scan.entries, self.rows))


class _Forking:
    """The making of one fork."""

    def __init__(
        self,
        log: MergedLog,
        target: MergedLog,
        mode: str,
        version: int | None,
        force: bool,
        query: Any,
        *,
        is_reshaped: bool = False,
    ) -> None:
        self._log = log
        self._target = target
        self._mode = mode
        self._version = version
        self._force = force
        self._query = query
        self._is_reshaped = is_reshaped
        self._said: Ended | None = None
        self._known: Mapping[str, MergedFile] = {}

    def make(self, pins: _Pins) -> Fork:
        source = self._log.directory.location.absolute
        plan = self._checked_plan()  # raises what is wrong before anything is written
        pinned: set[str] = set()
        # Stock Spark's checkpoints have no merged files to pin.
        while wanted := (({source} if plan.snapshot.scan.infos else set()) | plan.further_sources) - pinned:
            for checkpoint in sorted(wanted):
                pins.begin(checkpoint)
            pinned |= wanted
            plan = self._plan()
        holders = Holders.of(plan.snapshot.scan.entries, plan.rows, source)
        files = by_checkpoint(holders.paths)
        require_still_stopped(self._log, self._said, _CLAIMING)
        if self._mode == CLAIM and pinned:
            files[source] = frozenset(plan.snapshot.scan.infos)
        pins.name_files(files, {source: CLAIM} if self._mode == CLAIM else {})
        made = self._write(plan, holders, pins.fork_id)
        if self._mode == COPY:
            pins.drop_all()
        else:
            pins.end()
        return made

    def predict(self) -> Fork:
        """What :meth:`make` would make."""
        plan = self._checked_plan()
        holders = Holders.of(plan.snapshot.scan.entries, plan.rows, self._log.directory.location.absolute)
        return self._made(plan, holders, "", int(plan.files.length[plan.needed.plain].sum()), dry_run=True)

    def _checked_plan(self) -> _Plan:
        plan = self._plan()
        if self._mode == CLAIM and not self._force:
            snapshot = self._log.snapshot()
            plain = plain_files(self._log.directory, snapshot.scan)
            self._said = require_stopped(self._log, snapshot, plain, _CLAIMING, query=self._query)
        return plan

    def _plan(self) -> _Plan:
        return retry_if_gone(self._log.directory, self._plan_once)

    def _plan_once(self) -> _Plan:
        source = self._log.directory
        batches = committed(source)
        found = scan(source, headers=False, known=self._known)
        self._known = found.files
        version = batches[-1] + 1 if self._version is None and batches else self._version
        check_unclaimed(source, found.others)
        files = StateFiles.of(found, plain_files(source, found))
        gone = rows_of_missing(source, found, files)
        if version is None:
            raise not_restorable(source, files, 0, "the query", "no batch was committed")
        try:
            spark = spark_files(source, version)
        except KeyError as error:
            reason = f"Spark's logs do not cover it: {error.args[0]}"
            raise not_restorable(source, files, version, "the query", reason) from error
        lost = lost_stores(source, files.without(gone), version, batch_with_ids(source, files, version - 1))
        # A version that is asked for by its number may do without what older or later ones need.
        if len(gone) and (lost or self._version is None):
            raise ForeignFileGoneError(files.holder(int(gone[0])), str(files.path[int(gone[0])].as_py()))
        if lost:
            raise not_restorable(source, files, version, *why_lost(lost))
        stamps = (group.trailer.group_stamp for file in found.files.values() for group in file.groups)
        snapshot = LogSnapshot(found, {}, frozenset())
        needed = needed_for(source, files, version, gone, is_reshaped=self._is_reshaped)
        return _Plan(snapshot, files, needed, version, spark, max(stamps, default=0))

    def _write(self, plan: _Plan, holders: Holders, fork_id: str) -> Fork:
        source, there = self._log.directory, self._target.directory
        rows = plan.rows
        if self._mode == COPY:
            for _ in copy_segments(self._log, self._target, plan.snapshot, rows, plan.highest_stamp):
                pass
        elif len(rows):
            write_references(self._target, plan.snapshot, rows, holders, plan.highest_stamp)
        created_ms = self._log.now_ms
        origin = Origin(source.location.absolute, source.location.url, plan.version, self._mode, created_ms, fork_id)
        write_origin(there, self._target.next_name(ORIGIN_SUFFIX), origin)
        try:
            copied = copy_plain(source, there, plan.files, plan.needed.plain)
            make_partitions(source, there, {store[:2] for store in plan.files.stores().known})
            copy_first(source, there, plan.version, plan.spark)
            query_id = copy_last(source, there, plan.spark)
            say_unused(self._target, query_id, plan.version - 1)
        except (KeyError, FileNotFoundError) as error:
            reason = f"the query deleted it while it was being copied ({error.args[-1]}); fork a later version"
            raise self._not_restorable_now(plan.version, reason) from error
        return self._made(plan, holders, query_id, copied)

    def _not_restorable_now(self, version: int, reason: str) -> StateStoreFilesError:
        """The error for a version that was there when it was looked for."""
        source = self._log.directory

        def made() -> StateStoreFilesError:
            found = scan(source, headers=False)
            return not_restorable(
                source, StateFiles.of(found, plain_files(source, found)), version, "the query", reason
            )

        return retry_if_gone(source, made)

    def _made(self, plan: _Plan, holders: Holders, query_id: str, plain_bytes: int, *, dry_run: bool = False) -> Fork:
        rows, is_copied = plan.rows, self._mode == COPY
        size = int(plan.snapshot.scan.entries.length[rows].sum())
        return Fork(
            self._target.directory.location.url,
            self._log.directory.location.url,
            self._mode,
            plan.version,
            query_id,
            referenced_files_count=0 if is_copied else len(holders.paths),
            referenced_segments_count=0 if is_copied else len(rows),
            referenced_bytes_count=0 if is_copied else size,
            copied_segments_count=len(rows) if is_copied else 0,
            copied_files_count=len(plan.needed.plain),
            copied_bytes_count=plain_bytes + (size if is_copied else 0),
            dry_run=dry_run,
        )


def _check_arguments(mode: str, version: int | None) -> None:
    if mode not in MODES:
        allowed = ", ".join(MODES)
        raise not_allowed("mode", mode, allowed)
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        allowed = "a whole number of at least 1"
        raise not_allowed("version", version, allowed)


def _check_target(source: Location, fork: Directory, *, needs_same_file_system: bool) -> None:
    """Refuses a target that is not empty, overlaps the source, or cannot refer to files of the source."""
    target = fork.location
    is_shared = source.shares_file_system(target)
    if needs_same_file_system and not is_shared:
        raise StateStoreFilesError("PSS_OTHER_FILE_SYSTEM", {"fork": target.url, "path": source.url})
    inside = f"{target.real}/".startswith(f"{source.real}/")
    around = f"{source.real}/".startswith(f"{target.real}/")
    if is_shared and (inside or around):
        reason = f"it is, contains or lies in the checkpoint that is forked ({source.url})"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.url, "reason": reason})
    names = sorted(fork.names())
    if names:
        raise StateStoreFilesError("PSS_NOT_EMPTY", {"path": target.url, "found": ", ".join(names[:5])})


@dataclass
class _Pins:
    """The pins of one fork in its sources.

    The order matters to cleaners, see :func:`~pyspark_statestore.log.pins.unpinned`. ``fork`` is where the fork's
    checkpoint is, ``fork_id`` what its origin calls it, ``clock`` a monotonic clock in seconds.
    """

    log: MergedLog
    fork: Location
    fork_id: str
    clock: Callable[[], float] = time.monotonic
    _begun: dict[str, str] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    _started: float | None = None

    def begin(self, checkpoint: str) -> None:
        """Pins every file of a checkpoint: what a scan that begins afterwards finds stays."""
        if self._started is None:
            self._started = self.clock()
        name = self.log.next_name(PIN_SUFFIX)
        self._begun[checkpoint] = name
        write_pin(self._at(checkpoint), Pin(name))

    def name_files(self, files: Mapping[str, frozenset[str]], modes: Mapping[str, str]) -> None:
        """Pins certain files of each checkpoint; :meth:`end` may be called after that.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED, also where too much time has passed.
        """
        for checkpoint, names in files.items():
            if not names:
                continue
            name = self.log.next_name(PIN_SUFFIX)
            self._named[checkpoint] = name
            created_ms = self.log.now_ms
            pin = Pin(name, self.fork.absolute, modes.get(checkpoint, NO_CLAIM), names, created_ms)
            relative = posixpath.relpath(self.fork.absolute, checkpoint)
            pin = replace(pin, fork_id=self.fork_id, relative=relative)
            write_pin(self._at(checkpoint), pin)
        closed_after = self.log.closed_after.total_seconds()
        if self._started is not None and not is_timely(self.clock() - self._started, closed_after):
            # Others stop heeding an empty pin after closedAfter.
            raise self.log.too_slow("reading the checkpoint that is forked")

    def end(self) -> None:
        """Drops the pins that protect every file; others stop heeding one that stays after ``closedAfter``."""
        for checkpoint, name in self._begun.items():
            drop_pin(self._at(checkpoint), name)
        self._begun = {}

    def drop_all(self) -> None:
        """Drops all pins, as far as possible: the fork was not made, or reads nothing of its sources."""
        for checkpoint, name in [*self._named.items(), *self._begun.items()]:
            with suppress(StateStoreFilesError):
                drop_pin(self._at(checkpoint), name)
        self._begun, self._named = {}, {}

    def _at(self, checkpoint: str) -> Directory:
        return self.log.directory.beside(checkpoint)


def _is_removed(there: MergedLog, *, is_ours: bool) -> bool:
    """Empties the fork's directory again, which was empty before; whether nothing of it refers to the source any more.

    Args:
        there: The fork.
        is_ours: Whether all in it is. While it is not whole, another process may be making a fork in the same place:
            then only what refers to the source goes, of what this process has written.
    """
    directory = there.directory
    mark = f"-{there.writer:016x}-"
    with suppress(Exception):
        merged = directory.names(MERGED)
        if is_ours or all(mark in name for name in merged):
            _remove_all(directory)
        else:
            for name in merged:
                if mark in name:
                    delete(directory, f"{MERGED}/{name}")
    try:
        left = directory.names(MERGED)
    except StateStoreFilesError:
        return False
    return not any(mark in name or is_ours for name in left)


def _remove_all(directory: Directory) -> None:
    # Without its metadata the directory is no checkpoint that a query goes on with.
    for name in sorted(directory.names(), key=lambda name: (name != METADATA, name != COMMITS, name)):
        files = [f"{name}/{info.name}" for info in directory.find(name)]
        for path in files or [name]:
            with suppress(Exception):
                delete(directory, path)
        with suppress(Exception):  # only empty directories are left in it
            directory.location.fs.rm(directory.location.below(name), recursive=True)
