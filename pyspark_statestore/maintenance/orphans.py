"""Orphans: removes files that nobody can need, and that nothing else would ever remove.

What is removed, each kind only when it is old enough:

* merged files without a group that could be read;
* temporary files of writers that have crashed, and markers of relocations that have ended;
* pins of forks that need nothing here any more, or have been away for long, and files of a claimed source that nobody
  reads;
* RocksDB's immutable files that no snapshot names, and checksums of files that do not exist. Merged ones have to be a
  day old: executors upload SSTs before their snapshot, and may name one for half a day.

What stays, though nothing refers to it: what a fork needs; plain files under a path that lives in a merged file, too
(they are few, and of use should the merged file be lost); and an immutable file that was made after its store's newest
snapshot was taken, since RocksDB may name it in the next one.

Merged files' segments are deleted as executors delete them, with a tombstone each (rule 4 of docs/guarantees.md).

A fork that is not there may be on a disk that is not mounted now. So the first run that misses it leaves a file, beside
the fork's pin, whose age says for how long nobody has found it; a run that finds it deletes that file again.

A file is old where both clocks, this process's and the file system's, say so. A dry run writes nothing, so it cannot
ask for the file system's clock, and may list more than is removed. Each file is removed on its own: a crash in the
middle leaves the rest for the next run.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log import lets_go
from pyspark_statestore.log.deletion import delete_segments
from pyspark_statestore.log.entries import time_of
from pyspark_statestore.log.merged_log import Clocks, LogSnapshot, MergedLog, ask_file_system
from pyspark_statestore.log.pins import (
    AWAY_SUFFIX,
    CLAIM,
    Pin,
    away_note,
    claimed,
    pins_among,
    read_pins,
    unpinned,
)
from pyspark_statestore.log.scan import MERGED, retry_if_gone
from pyspark_statestore.log.state_files import (
    IMMUTABLE,
    STATE,
    StateFiles,
    files_below_state,
    is_state_file,
    parse_store,
)
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.fork_release import standing_of, unneeded_claimed, unneeded_own
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.changes import delete, is_temporary, write
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

LEAST = datetime.timedelta(hours=1)
"""A younger file may be about to be referred to: a snapshot's files are uploaded before its zip."""

_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
"""A merged file says by its writer's clock when a snapshot was written, a plain file by the file system's."""

_LATEST_UPLOAD = datetime.timedelta(days=1)
"""So long after it was taken a snapshot is written at the latest, where no changelog says when that was."""

_NO_GROUP = "merged file without a group that could be read"
_LEFT_MARKER = "marker of a relocation that has ended"
_LEFT_PIN = "pin of a fork that has been away for long, or needs nothing here any more"
_CLAIMED = "file of the claimed checkpoint that nobody reads any more"
_LEFT_TEMPORARY = "temporary file of a writer that has crashed"
_UNNAMED = "no snapshot names it"
_CHECKSUM = "checksum of a file that does not exist"


@dataclass(frozen=True)
class OrphanRemoval:
    """What an orphan removal deleted, or would delete.

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
class _Orphan:
    """A file that nobody needs once it has the least age; ``info.name`` is its path in the checkpoint."""

    info: FileInfo
    reason: str
    least_age: datetime.timedelta
    entry_row: int | None = None
    """Of the entry whose segment it is; None for a file."""
    note: FileInfo | None = None
    """Of the pin of a fork that is away, since when; it goes with the pin."""

    def is_old(self, clocks: Clocks) -> bool:
        """Whether it has the least age, and so has the note."""
        return all(clocks.age(each.modified) >= self.least_age for each in (self.info, self.note) if each is not None)


@dataclass
class _Absences:
    """Which forks are away, as far as this run has looked; names of the files that say since when.

    Attributes:
        begun: Of forks that were not missed before.
        over: Of forks that are back, and of pins that are gone.
    """

    begun: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)

    def write_down(self, directory: Directory) -> None:
        """Leaves the former files, and deletes the latter ones.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
        """
        for name in sorted(self.begun):
            write(directory, f"{MERGED}/{name}", b"")
        for name in sorted(self.over):
            delete(directory, f"{MERGED}/{name}")


def remove_orphan_files(
    log: MergedLog, older_than: datetime.timedelta, *, dry_run: bool = True, force: bool = False
) -> OrphanRemoval:
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.remove_orphan_files`."""
    _check_age(older_than, force)
    clocks = Clocks(log.clock())
    snapshot, found, absences = retry_if_gone(log.directory, lambda: _orphans(log, older_than, clocks))
    if not dry_run:
        absences.write_down(log.directory)
        gone = {_base(orphan.info.name) for orphan in found}
        for pin in read_pins(log.directory):
            if pin.mode == CLAIM and pin.name not in gone:
                raise claimed(log.directory, pin)
    if found and not dry_run:
        clocks = ask_file_system(log)
        found = [orphan for orphan in found if orphan.is_old(clocks)]
        files = [orphan.info.name for orphan in found if orphan.entry_row is None]
        in_parallel(lambda name: delete(log.directory, name), files)
        notes = [orphan.note.name for orphan in found if orphan.note is not None]
        in_parallel(lambda name: delete(log.directory, f"{MERGED}/{name}"), notes)
        rows = [orphan.entry_row for orphan in found if orphan.entry_row is not None]
        if rows:
            delete_segments(log, snapshot, np.array(rows, "i8"))
            clean(log, snapshot.closed_tombstones)
    sizes = [orphan.info.size for orphan in found]
    table = pa.table(
        {
            "file_path": pa.array([log.directory.location.display(o.info.name) for o in found], pa.string()),
            "file_size_in_bytes": pa.array(sizes, pa.int64()),
            "reason": pa.array([orphan.reason for orphan in found], pa.string()),
            "last_modified_at": pa.array([o.info.modified for o in found], pa.timestamp("us", "UTC")),
        }
    )
    return OrphanRemoval(len(found), sum(sizes), table, dry_run)


def _check_age(older_than: object, force: bool) -> None:
    least = datetime.timedelta(0) if force else LEAST
    if not isinstance(older_than, datetime.timedelta) or older_than < least:
        allowed = "a datetime.timedelta of at least 0" if force else "a datetime.timedelta of at least an hour"
        hint = "" if force else "; force=True allows less, if nobody writes to the checkpoint"
        shown = rendering.duration(older_than) if isinstance(older_than, datetime.timedelta) else older_than
        raise not_allowed("older_than", shown, allowed + hint)


def _orphans(
    log: MergedLog, older_than: datetime.timedelta, clocks: Clocks
) -> tuple[LogSnapshot, list[_Orphan], _Absences]:
    # Plain files first: what is scanned afterwards has a snapshot that is committed meanwhile, though Spark may have
    # deleted an older one for it.
    plain = list(files_below_state(log.directory).values())
    snapshot = log.snapshot()
    old = [info for info in plain if clocks.age(info.modified) >= older_than]
    gone = {info.name: _LEFT_TEMPORARY for info in old if is_temporary(_base(info.name))}
    immutable = [info for info in old if IMMUTABLE.fullmatch(info.name)]
    gone |= {info.name: _UNNAMED for info in _unnamed(log.directory, snapshot, plain, immutable)}
    gone |= dict.fromkeys(_lost_checksums(snapshot, plain, old, gone), _CHECKSUM)
    found = [_Orphan(_in_checkpoint(STATE, i), gone[i.name], older_than) for i in old if i.name in gone]
    found += _unnamed_segments(log, snapshot, plain, max(older_than, log.closed_after, log.abandoned_after), clocks)
    absences = _Absences()
    return snapshot, [*_merged_orphans(log, snapshot, older_than, clocks, absences), *found], absences


def _unnamed_segments(
    log: MergedLog, snapshot: LogSnapshot, plain: Sequence[FileInfo], least_age: datetime.timedelta, clocks: Clocks
) -> list[_Orphan]:
    """Live segments of immutable files that no snapshot names: a process was killed that had uploaded them early."""
    rows = StateFiles.entry_rows(snapshot.scan)
    entries = snapshot.scan.entries
    paths = entries.path.take(pa.array(rows))
    immutable = np.array(pc.match_substring_regex(paths, rf"^(?:{IMMUTABLE.pattern})$"), bool)
    rows, old = rows[immutable], {}
    for path, row in zip(paths.filter(pa.array(immutable)).to_pylist(), rows.tolist(), strict=True):
        written = time_of(int(entries.stamp[row]))
        modified = snapshot.scan.infos[entries.files[entries.file[row]]].modified
        if log.clock() - written >= least_age and clocks.age(modified) >= least_age:
            old[path] = (FileInfo(path, int(entries.length[row]), written), row)
    found = _unnamed(log.directory, snapshot, plain, [info for info, _ in old.values()])
    return [_Orphan(_in_checkpoint(STATE, info), _UNNAMED, least_age, old[info.name][1]) for info in found]


def _merged_orphans(
    log: MergedLog, snapshot: LogSnapshot, older_than: datetime.timedelta, clocks: Clocks, absences: _Absences
) -> list[_Orphan]:
    """Orphans among the merged files: empty files, temporary files, markers, pins; and claimed files in the source."""
    # Rule 7: a file without a stamp is closed where its modification time is old enough.
    files, states = snapshot.scan.files, snapshot.states
    empty = [snapshot.scan.infos[name] for name in files if not files[name].groups and states[name].accounted]
    closed = max(older_than, log.closed_after, log.abandoned_after)
    found = [_Orphan(_in_checkpoint(MERGED, info), _NO_GROUP, closed) for info in empty]
    free, _ = unpinned(log.directory, (_base(orphan.info.name) for orphan in found), snapshot.expired)
    found = [orphan for orphan in found if _base(orphan.info.name) in free]
    temporary = [info for name, info in snapshot.scan.others.items() if is_temporary(name)]
    found += [_Orphan(_in_checkpoint(MERGED, info), _LEFT_TEMPORARY, closed) for info in temporary]
    markers = [snapshot.scan.others[name] for name in sorted(snapshot.scan.relocation_markers)]
    ended = max(older_than, log.closed_after)
    found += [_Orphan(_in_checkpoint(MERGED, info), _LEFT_MARKER, ended) for info in markers]
    old = [info for info in unneeded_claimed(log.directory, snapshot.scan) if clocks.age(info.modified) >= older_than]
    found += [_Orphan(info, _CLAIMED, older_than) for info in old]
    pins = pins_among(log.directory, snapshot.scan.others)
    left = [pin.name for pin in pins if pin.is_begun]
    left += [pin.name for pin, needed in unneeded_own(log.directory, snapshot).items() if not needed]
    found += [_Orphan(_in_checkpoint(MERGED, snapshot.scan.others[name]), _LEFT_PIN, ended) for name in left]
    found += _pins_of_forks(log.directory, snapshot, pins, ended, clocks, absences)
    return [orphan for orphan in found if orphan.is_old(clocks)]


def _pins_of_forks(
    directory: Directory,
    snapshot: LogSnapshot,
    pins: Iterable[Pin],
    patience: datetime.timedelta,
    clocks: Clocks,
    absences: _Absences,
) -> Iterator[_Orphan]:
    """Pins of forks that need nothing here any more, or that have been away for long."""
    notes = {name: info for name, info in snapshot.scan.others.items() if name.endswith(AWAY_SUFFIX)}
    for pin in pins:
        note = notes.pop(away_note(pin.name), None)
        needs = standing_of(directory, pin) if pin.fork else True
        if needs is not None and note is not None:
            absences.over.add(note.name)
        ages = [datetime.timedelta(0)] if note is None else clocks.ages(note.modified)
        if lets_go(needs, ages, patience):
            info = _in_checkpoint(MERGED, snapshot.scan.others[pin.name])
            yield _Orphan(info, _LEFT_PIN, patience, note=note if needs is None else None)
        elif needs is None and note is None:
            absences.begun.add(away_note(pin.name))
    absences.over |= notes.keys()


def _lost_checksums(
    snapshot: LogSnapshot, plain: Sequence[FileInfo], old: Iterable[FileInfo], gone: Collection[str]
) -> list[str]:
    """Checksums, Hadoop's ``.name.crc`` and Spark's ``name.crc``, whose files do not exist, or are removed now."""
    of = {info.name: main for info in old if (main := _checked_by(info.name))}
    stay = {info.name for info in plain}.difference(gone)
    lost = {name: main for name, main in of.items() if main not in stay}
    if lost:
        live = snapshot.scan.resolution.to_arrow()["path"]
        merged = pc.is_in(pa.array(list(lost.values()), pa.string()), value_set=live).to_pylist()
        lost = {name: main for (name, main), is_merged in zip(lost.items(), merged, strict=True) if not is_merged}
    # A checksum may have a checksum itself.
    return [*lost, *(name for name, main in of.items() if main in lost)]


def _checked_by(path: str) -> str | None:
    """The path of the file that a checksum belongs to; None where the path is not a checksum's."""
    folder, slash, name = path.rpartition("/")
    if not name.endswith(".crc"):
        return None
    if name.startswith("."):
        return f"{folder}{slash}{name[1:-4]}"
    return path[:-4] if is_state_file(path) else None


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _in_checkpoint(folder: str, info: FileInfo) -> FileInfo:
    return FileInfo(f"{folder}/{info.name}", info.size, info.modified)


class _StoreSnapshots:
    """The files that the snapshots of one store name, and when the newest snapshot was taken."""

    def __init__(self) -> None:
        self.named: set[str] = set()
        self.newest = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)

    def add(self, written: datetime.datetime | None, changed: datetime.datetime | None, named: set[str]) -> None:
        """Adds a snapshot.

        Args:
            written: When its zip was written.
            changed: When the changelog of its version was written, which is when the snapshot was taken.
            named: What it names.
        """
        self.named |= named
        if written is not None:
            taken = written - _LATEST_UPLOAD if changed is None else min(written, changed)
            self.newest = max(self.newest, taken)


def _unnamed(
    directory: Directory, snapshot: LogSnapshot, plain: Sequence[FileInfo], candidates: Sequence[FileInfo]
) -> list[FileInfo]:
    """The candidates that no snapshot of their store names, though one was taken when they were there.

    Such a snapshot shows that RocksDB is done with a file. Without one, the file may have been uploaded for a snapshot
    that failed, or as soon as it was made: the next snapshot, however late, may name it without uploading it again.
    That a snapshot was written later shows nothing, since maintenance may be late: the file may have been made between.

    Raises:
        FileNotFoundError: A snapshot was deleted meanwhile: list again.
        StateStoreFilesError: A snapshot cannot be read, so nothing is known of what it names (rule 8).
    """
    of = {info.name: folder for info in candidates if parse_store(folder := _store(info.name)) is not None}
    stores: defaultdict[str, _StoreSnapshots] = defaultdict(_StoreSnapshots)
    if of:
        files = StateFiles.of(snapshot.scan, ())
        changed = _changelogs(snapshot, files, plain, set(of.values()))
        _add_plain(directory, plain, set(of.values()), changed, stores)
        _add_merged(directory, snapshot, files, set(of.values()), changed, stores)
    found = []
    for info in candidates:
        if info.name not in of or info.modified is None:
            continue
        snapshots = stores[of[info.name]]
        if info.name not in snapshots.named and info.modified + _CLOCKS_DIFFER <= snapshots.newest:
            found.append(info)
    return found


def _store(path: str) -> str:
    """The directory of the store that an immutable file belongs to."""
    return path.rpartition("/")[0].rpartition("/")[0]


def _changelogs(
    snapshot: LogSnapshot, files: StateFiles, plain: Sequence[FileInfo], folders: set[str]
) -> dict[str, datetime.datetime]:
    """When the changelogs in some folders were written, by their paths without the ending."""
    ending = ".changelog"
    found = {
        info.name.removesuffix(ending): info.modified
        for info in plain
        if info.name.endswith(ending) and info.name.rpartition("/")[0] in folders and info.modified is not None
    }
    rows = np.flatnonzero(np.array(pc.ends_with(files.path, ending), bool))
    for path, (_, written) in _merged_in(snapshot, files, rows, folders).items():
        name = path.removesuffix(ending)
        found[name] = min(written, found.get(name, written))
    return found


def _merged_in(
    snapshot: LogSnapshot, files: StateFiles, rows: np.ndarray, folders: set[str]
) -> dict[str, tuple[int, datetime.datetime]]:
    """Those of some rows whose files are in one of these folders: by path, the row, and when the file was written."""
    paths = files.path.take(pa.array(rows)).to_pylist()
    wanted = [i for i, path in enumerate(paths) if path.rpartition("/")[0] in folders]
    rows = rows[wanted]
    stamps = snapshot.scan.entries.stamp[files.entry_rows(snapshot.scan)[rows]]
    found = zip(wanted, rows.tolist(), stamps.tolist(), strict=True)
    return {paths[i]: (row, time_of(stamp)) for i, row, stamp in found}


def _add_plain(
    directory: Directory,
    plain: Sequence[FileInfo],
    folders: set[str],
    changed: dict[str, datetime.datetime],
    stores: defaultdict[str, _StoreSnapshots],
) -> None:
    """Adds the plain snapshots, also those that merged files supersede."""
    zips = [info for info in plain if _is_zip(info.name) and info.name.rpartition("/")[0] in folders]

    def read(info: FileInfo) -> set[str]:
        path = f"{STATE}/{info.name}"
        return _named(directory, info.name, files_named(directory.read(path, info.size)))

    for info, named in zip(zips, in_parallel(read, zips), strict=True):
        stores[info.name.rpartition("/")[0]].add(info.modified, changed.get(info.name.removesuffix(".zip")), named)


def _add_merged(
    directory: Directory,
    snapshot: LogSnapshot,
    files: StateFiles,
    folders: set[str],
    changed: dict[str, datetime.datetime],
    stores: defaultdict[str, _StoreSnapshots],
) -> None:
    zips = _merged_in(snapshot, files, np.flatnonzero(np.array(pc.ends_with(files.path, ".zip"), bool)), folders)
    rows = np.array([row for row, _ in zips.values()], "i8")
    parsed = files.read(directory, rows, lambda data: None if data is None else files_named(data))
    for (path, (row, written)), named in zip(zips.items(), parsed, strict=True):
        modified = snapshot.scan.infos[files.names[files.merged[row]]].modified
        time = min(written, modified) if modified else None
        taken = changed.get(path.removesuffix(".zip"))
        stores[path.rpartition("/")[0]].add(time, taken, _named(directory, path, named))


def _is_zip(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".zip") and not name.startswith(".")


def _named(directory: Directory, path: str, named: dict[str, int] | None) -> set[str]:
    if named is None:
        where = directory.location.display(f"{STATE}/{path}")
        reason = "it is not an intact snapshot zip, so the files that it names are unknown"
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})
    folder = path.rpartition("/")[0]
    return {f"{folder}/{name}" for name in named}
