"""Reads everything that lives and says what is wrong with it, beside a query that goes on writing.

Two passes in a row have to find the same before it counts as damage: what one pass sees may be work that is under way.
Verification changes nothing, unless it is told to repair.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log import damage
from pyspark_statestore.log.damage import LOSES_ENTRIES, Damage
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.on_spark import run_on_spark
from pyspark_statestore.log.payload import Checked, check_run, segment_runs
from pyspark_statestore.log.restart import Restart, rows_of_missing
from pyspark_statestore.log.restorability import Batches, Restorability, check_versions, read_batches
from pyspark_statestore.log.scan import ATTEMPTS, INDEX_SUFFIX, Scan, always_gone, retry_if_gone, scan
from pyspark_statestore.log.state_files import STATE, StateFiles, plain_files
from pyspark_statestore.maintenance.verify.indexes import file_damages, torn_tails, url_of
from pyspark_statestore.maintenance.verify.plain import check_plain_files
from pyspark_statestore.maintenance.verify.recount import recount
from pyspark_statestore.maintenance.verify.repair import repair_damages
from pyspark_statestore.storage.directory import Directory, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession

_CORRUPT = frozenset({damage.CORRUPT_SEGMENT, damage.CORRUPT_PLAIN_FILE})


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        damages: What is not as it should be, repaired or not.
        notes: What is normal and may be worth knowing: what killed writers left, versions that cannot be restored
            because of one of the damages, and gaps in what was retained.
        read_bytes_count: The bytes that were read, of live segments and of plain files.
        files_count: The number of merged files.
        segments_count: The number of live segments that were read.
        versions_count: The number of versions of all stores, restorable or not.
        dry_run: Whether a repair was only planned.
        committed_version: The version that the last committed batch has left; None without one.
        restorable_version: The newest version that the query can go on from, with the damage that is left. Where it is
            older than ``committed_version``, ``Checkpoint.fork(dst, version=restorable_version)`` is the way out.
    """

    damages: tuple[Damage, ...] = ()
    notes: tuple[Damage, ...] = ()
    read_bytes_count: int = 0
    files_count: int = 0
    segments_count: int = 0
    versions_count: int = 0
    dry_run: bool = False
    committed_version: int | None = None
    restorable_version: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether there is no damage, or none that was not repaired."""
        return all(each.repaired for each in self.damages)

    @property
    def repaired_count(self) -> int:
        """How many damages and torn tails were repaired."""
        return sum(each.repaired for each in (*self.damages, *self.notes))

    def to_arrow(self) -> pa.Table:
        """Returns a row for each damage and each note."""
        rows = [("damage", each) for each in self.damages] + [("note", each) for each in self.notes]
        columns = {
            "severity": pa.array([severity for severity, _ in rows], pa.string()),
            **{
                name: pa.array([getattr(each, name) for _, each in rows], type_)
                for name, type_ in (
                    ("kind", pa.string()),
                    ("path", pa.string()),
                    ("offset", pa.int64()),
                    ("logical_path", pa.string()),
                    ("reason", pa.string()),
                    ("is_repairable", pa.bool_()),
                    ("repaired", pa.bool_()),
                )
            },
        }
        return pa.table(columns)


def verify(
    log: MergedLog,
    *,
    repair: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Verification:
    """Looks for damage, and looks again before it counts.

    A query may go on writing, and maintenance may go on moving and unlinking files. So what seems to be damage is
    looked for once more, from the beginning; only what two passes in a row have found is returned.

    Args:
        log: This process's work on the checkpoint.
        repair: Repair what can be repaired without losing anything.
        dry_run: Only say what would be repaired.
        spark: Read in tasks of this session instead of in this process.
        callback: Gets the number of bytes to read, and then how many were read.

    Raises:
        StateStoreFilesError: The checkpoint cannot be read at all; or it cannot be written, and was to be repaired.
    """
    found = _verified(log, spark, callback)
    if found.damages or found.notes:
        damages, notes = repair_damages(log, found.damages, found.notes, dry_run=dry_run or not repair)
        found = replace(found, damages=damages, notes=notes)
    if not found.is_clean:
        restart = _restart(log.directory, found)
        found = replace(found, committed_version=restart.committed, restorable_version=restart.restorable)
    return replace(found, dry_run=repair and dry_run)


def _restart(directory: Directory, found: Verification) -> Restart:
    """From which version the query can go on, with the damage that is left."""
    left = [each for each in found.damages if each.kind in _CORRUPT and not each.repaired]
    try:
        return Restart.found(directory, frozenset(each.logical_path for each in left if each.logical_path))
    except StateStoreFilesError:  # while a merged file cannot be read, nobody concludes anything from the others
        return Restart(found.committed_version)


@dataclass
class VerificationPass:
    """What one pass has found.

    Attributes:
        damages: What seems to be wrong; it may be work that is under way.
        notes: What is normal.
        suspects: Logical paths that have to be read again.
        unread: Those of them whose files were gone.
        read_bytes: How many bytes were read.
        files: How many merged files there are.
        segments: How many live segments were to be read.
        versions: How many versions there are.
        newest: The version that the last committed batch has left.
    """

    damages: list[Damage] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    read_bytes: int = 0
    files: int = 0
    segments: int = 0
    versions: int = 0
    newest: int | None = None


def run_pass(
    log: MergedLog,
    suspects: set[str] | None,
    known: Iterable[Damage],
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> VerificationPass:
    """Reads indexes and versions, and the bytes of everything or of the suspects.

    Args:
        log: This process's work on the checkpoint.
        suspects: The logical paths whose bytes are read; all if None.
        known: What an earlier pass has found: corrupt files restore nothing.
        spark: Read bytes in tasks of this session.
        callback: Gets the number of bytes to read, and then how many were read.

    Raises:
        StateStoreFilesError: The checkpoint cannot be read at all.
    """
    directory = log.directory
    corrupt = {each.logical_path for each in known if each.logical_path and each.kind in _CORRUPT}
    # The versions before the bytes: these take long, and files that versions are made of would be gone after them.
    found, files, versions = retry_if_gone(directory, lambda: _indexes_and_versions(directory, corrupt))
    torn = torn_tails(directory, found)
    now = VerificationPass(file_damages(directory, found), versions=versions.versions_count, files=len(found.infos))
    now.newest = versions.newest
    on_progress = _Progress(callback, int(files.length.sum()) if suspects is None else 0)
    _check_segments(directory, found, suspects, spark, on_progress, now)
    _check_plain(directory, files, suspects, on_progress, now)
    now.damages += _recounted(directory, found)
    _explain(versions, found, torn, directory, now)
    now.notes += versions.gaps
    states = log.snapshot_of(found).states
    now.notes += [each for each in torn if states[each.name].closed and each.offset != found.infos[each.name].size]
    return now


def _verified(log: MergedLog, spark: SparkSession | None, callback: Callback | None) -> Verification:
    first = now = run_pass(log, None, (), spark, callback)
    read_bytes = now.read_bytes
    confirmed: list[Damage] = []
    for _ in range(ATTEMPTS):
        # Only what seemed to be wrong is in doubt.
        if len(confirmed) == len(now.damages) and now.suspects <= {each.logical_path for each in confirmed}:
            break
        before = {_identity(each) for each in now.damages}
        now = run_pass(log, now.suspects, now.damages, spark)
        read_bytes += now.read_bytes
        confirmed = [each for each in now.damages if _identity(each) in before]
    else:
        if now.unread:
            raise always_gone(log.directory)
    damages, notes = _once(confirmed, _without_passing_gaps(log, now, spark))
    # Without damage, the newest version can be restored: that is what was checked.
    return Verification(
        tuple(damages),
        tuple(notes),
        read_bytes,
        now.files,
        first.segments,
        now.versions,
        committed_version=now.newest,
        restorable_version=now.newest,
    )


def _without_passing_gaps(log: MergedLog, now: VerificationPass, spark: SparkSession | None) -> list[Damage]:
    """The notes of a pass, without gaps that the next one does not see: a query deletes versions one by one."""
    if not any(each.kind == damage.VERSION_GAP for each in now.notes):
        return now.notes
    again = {_identity(each) for each in run_pass(log, set(), now.damages, spark).notes}
    return [each for each in now.notes if each.kind != damage.VERSION_GAP or _identity(each) in again]


def _identity(found: Damage) -> tuple[object, ...]:
    return found.kind, found.path, found.offset, found.logical_path


def _once(confirmed: list[Damage], notes: list[Damage]) -> tuple[list[Damage], list[Damage]]:
    """Each finding once; a note of what is a damage, too, is left out."""
    damages = list({_identity(each): each for each in confirmed}.values())
    known = {_identity(each) for each in damages}
    return damages, [each for key, each in {_identity(each): each for each in notes}.items() if key not in known]


def _indexes_and_versions(directory: Directory, corrupt: set[str]) -> tuple[Scan, StateFiles, Restorability]:
    # The log of commits first: a batch that is committed later need not be in the files that are listed now.
    batches = read_batches(directory, with_ids=False)
    found = scan(directory, collect_errors=True)
    files = StateFiles.of(found, plain_files(directory, found))
    if files.has_ids:
        batches = Batches(batches.committed, read_batches(directory, with_ids=True).ids)
    there = _without(files.without(rows_of_missing(directory, found, files)), corrupt)
    return found, files, check_versions(directory, there, batches)


def _check_segments(
    directory: Directory,
    found: Scan,
    suspects: set[str] | None,
    spark: SparkSession | None,
    on_progress: Callable[[int], object],
    now: VerificationPass,
) -> None:
    entries = found.entries
    rows = np.flatnonzero(found.resolution.live)
    if suspects is not None:
        rows = rows[_among(entries.path.take(pa.array(rows)), suspects)]
    runs = segment_runs(entries, rows, found.sizes)
    checked: list[Checked]
    if spark is None:
        checked = in_parallel(partial(check_run, directory, on_progress=on_progress), runs)
    else:
        checked = run_on_spark(spark, partial(check_run, directory), runs)
        for run in runs:
            on_progress(run.total)
    now.segments += len(rows)
    for run, each in zip(runs, checked, strict=True):
        now.read_bytes += each.read_bytes
        url = directory.location.display(run.path)
        for row in each.bad:
            path, offset, length = entries.path[row].as_py(), int(entries.offset[row]), int(entries.length[row])
            beyond = offset + length > run.size
            reason = f"the file has only {run.size} bytes" if beyond else f"the checksum of {length} bytes differs"
            now.damages.append(Damage(damage.CORRUPT_SEGMENT, url, reason, offset, path))
            now.suspects.add(path)
        unread = entries.path.take(pa.array(each.unread, pa.int64())).to_pylist()
        now.suspects.update(unread)
        if each.gone and run.is_foreign:
            reason = f"it does not exist, and it is needed for {len(unread)} of the segments here"
            now.damages.append(Damage(damage.MISSING_FILE, url, reason))
        elif each.gone:
            now.unread.update(unread)
        if each.error is not None:
            reason = each.error.getMessageParameters().get("reason", str(each.error))
            now.damages.append(Damage(damage.UNREADABLE_FILE, url, reason))


def _check_plain(
    directory: Directory,
    files: StateFiles,
    suspects: set[str] | None,
    on_progress: Callable[[int], object],
    now: VerificationPass,
) -> None:
    if suspects is not None:
        files = _without(files, set(files.path.to_pylist()) - suspects - {f"{path}.crc" for path in suspects})
    checked = check_plain_files(directory, files, on_progress)
    now.read_bytes += checked.read_bytes
    now.suspects |= checked.gone
    now.unread |= checked.gone
    for path, reason in checked.reasons.items():
        url = directory.location.display(f"{STATE}/{path}")
        now.damages.append(Damage(damage.CORRUPT_PLAIN_FILE, url, reason, None, path))
        now.suspects.add(path)


def _recounted(directory: Directory, found: Scan) -> list[Damage]:
    """Counts what lives in another way; a difference is a mistake of this package."""
    own = {name: file for name, file in found.files.items() if not name.endswith(INDEX_SUFFIX)}
    totals = found.resolution.totals
    damages = []
    counted = recount(own)
    for name, segments, size in zip(
        found.entries.files, totals.live_segment_count.tolist(), totals.live_bytes.tolist(), strict=True
    ):
        if name in counted and (counted[name].live_segments, counted[name].live_bytes) != (segments, size):
            again = f"{counted[name].live_segments} live segments with {counted[name].live_bytes} bytes"
            reason = f"{segments} live segments with {size} bytes are counted in it, and {again} in another way"
            damages.append(Damage(damage.REFERENCE_COUNT, url_of(directory, name), reason))
    return damages


def _explain(
    versions: Restorability, found: Scan, torn: Iterable[Damage], directory: Directory, now: VerificationPass
) -> None:
    """A version that cannot be restored is a damage of its own only where no other one explains it."""
    if not versions.missing:
        return
    if any(each.kind in LOSES_ENTRIES and not each.name.endswith(INDEX_SUFFIX) for each in now.damages):
        now.notes += versions.missing
        return
    if any(each.kind == damage.MISSING_FILE for each in now.damages):
        now.notes += versions.missing
        return
    corrupt = {_store(each) for each in now.damages if each.kind in _CORRUPT}
    now.notes += [each for each in versions.missing if _store(each) in corrupt]
    own = [each for each in versions.missing if _store(each) not in corrupt]
    if not own:
        return
    what = f"and {own[0].logical_path} is missing or not whole"
    causes = [replace(each, kind=damage.TRUNCATED_FILE, reason=f"{each.reason}, {what}") for each in torn]
    causes = causes or _gone(found, directory, own)
    now.damages += causes or own
    now.notes += own if causes else []


def _store(found: Damage) -> str:
    """The directory of the store that a finding is about."""
    return (found.logical_path or "").rpartition("/")[0].removesuffix("/SSTs").removesuffix("/logs")


def _gone(found: Scan, directory: Directory, missing: Iterable[Damage]) -> list[Damage]:
    """Merged files that are gone, and that held what is missing, as an index-only file says."""
    stems = {(each.logical_path or "").rpartition(".")[0] for each in missing}
    damages: dict[str, Damage] = {}
    for name, file in found.files.items():
        for group in file.groups if name.endswith(INDEX_SUFFIX) else ():
            gone = [number for number, about in enumerate(group.index.names, 1) if about not in found.files]
            rows = np.flatnonzero(np.isin(group.index.records["file_ref"], gone))
            for row, path in zip(rows.tolist(), group.index.paths.take(pa.array(rows)).to_pylist(), strict=True):
                about = group.index.names[group.index.records["file_ref"][row] - 1]
                if path.rpartition(".")[0] in stems:
                    reason = f"it does not exist, and {name} says that it held {path}"
                    damages[about] = Damage(damage.MISSING_FILE, url_of(directory, about), reason)
    return list(damages.values())


def _among(paths: pa.ChunkedArray, wanted: set[str]) -> np.ndarray:
    found: np.ndarray = np.array(pc.is_in(paths, value_set=pa.array(sorted(wanted), pa.string())), bool)
    return found


def _without(files: StateFiles, paths: set[str]) -> StateFiles:
    return files.without(np.flatnonzero(_among(files.path, paths))) if paths else files


class _Progress:
    """Lets several threads call one callback."""

    def __init__(self, callback: Callback | None, total: int) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        if callback is not None:
            callback.set_size(total)

    def __call__(self, read: int) -> None:
        if self._callback is not None:
            with self._lock:
                self._callback.relative_update(read)
