"""Repairs what can be repaired without losing anything, and leaves everything else exactly as it is.

* A damaged index-only file is deleted. That is safe because it only repeats what other files say.
* A live segment with damaged bytes is written again from an intact copy of the same write: in a merged file that was
  not unlinked yet, or in a plain file. That is safe because it is a relocation: the copy keeps the key.
* What lives in a file with a torn tail, or in the copy of a file, is relocated. The file is unlinked as every dead file
  is, by rule 6.

Where a file cannot be read, or lacks its end, nobody knows what lives: only index-only files are deleted then (rule 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.log import damage, relocatable
from pyspark_statestore.log.damage import LOSES_ENTRIES, Damage
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import check_run, checksum_of, copied, read_segments, segment_runs
from pyspark_statestore.log.pins import check_unclaimed, unpinned
from pyspark_statestore.log.relocation_marker import holding_marker
from pyspark_statestore.log.scan import INDEX_SUFFIX, MERGED, has_own_entries, merged_files, retry_if_gone, scan
from pyspark_statestore.log.state_files import STATE
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.relocation import Movable, relocate
from pyspark_statestore.maintenance.verify.indexes import file_damages
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parts

_UNNEEDED_INDEX = frozenset(
    {
        damage.CORRUPT_INDEX,
        damage.CORRUPT_FILE,
        damage.TRUNCATED_FILE,
        damage.INDEX_MISMATCH,
        damage.DUPLICATED_FILE,
        damage.MISNAMED_FILE,
        damage.TORN_TAIL,
    }
)
_PIECE = 128 << 20

Found = list[Damage]


def repair_damages(
    log: MergedLog, damages: Sequence[Damage], notes: Sequence[Damage], *, dry_run: bool
) -> tuple[tuple[Damage, ...], tuple[Damage, ...]]:
    """Repairs what can be repaired.

    Args:
        log: This process's work on the checkpoint.
        damages: The damages that were found.
        notes: What else was found; torn tails are among it.
        dry_run: Whether nothing is to be changed.

    Returns:
        The same, each with whether it can be repaired, and whether it was.

    Raises:
        StateStoreFilesError: A file cannot be written or deleted. Nothing that is needed is gone then.
    """
    if not dry_run:
        check_unclaimed(log.directory)
    found = _without_indexes(log, [*damages, *notes], dry_run)
    if all(_is_index(each) for each in found if each.kind in LOSES_ENTRIES):
        snapshot = _snapshot(log)
        if snapshot is not None:
            found = _replaced(log, _written_again(log, snapshot, found, dry_run), dry_run)
    damages_now, notes = found[: len(damages)], found[len(damages) :]
    if damages_now and all(each.repaired for each in damages_now):
        # What could not be restored because of them can be now.
        notes = [each for each in notes if each.kind == damage.TORN_TAIL]
    return tuple(damages_now), tuple(notes)


def _is_index(found: Damage) -> bool:
    return found.name.endswith(INDEX_SUFFIX)


def _snapshot(log: MergedLog) -> LogSnapshot | None:
    """A snapshot, if every file that has entries of its own can be read."""
    found = retry_if_gone(log.directory, lambda: scan(log.directory, collect_errors=True))
    damages = file_damages(log.directory, found)
    if all(_is_index(each) for each in damages if each.kind in LOSES_ENTRIES):
        return log.snapshot_of(found)
    return None


def _without_indexes(log: MergedLog, found: Found, dry_run: bool) -> Found:
    infos = merged_files(log.directory)[0] if any(_is_index(each) for each in found) else {}

    def with_outcome(each: Damage) -> Damage:
        if each.kind not in _UNNEEDED_INDEX or not _is_index(each):
            return each
        if not unpinned(log.directory, [each.name])[0]:
            return each
        if each.name in infos and has_own_entries(log.directory, infos[each.name]):
            return each
        if not dry_run:
            delete(log.directory, f"{MERGED}/{each.name}")
        return replace(each, is_repairable=True, repaired=not dry_run)

    return [with_outcome(each) for each in found]


@dataclass(frozen=True)
class _Good:
    """An intact copy of a damaged segment.

    Attributes:
        row: The row of the damaged segment.
        other: The row of the intact segment, or None.
        plain: The path in the checkpoint of the intact plain file, or "".
    """

    row: int
    other: int | None
    plain: str = ""


def _written_again(log: MergedLog, snapshot: LogSnapshot, found: Found, dry_run: bool) -> Found:
    corrupt = [each for each in found if each.kind == damage.CORRUPT_SEGMENT and each.logical_path]
    if not corrupt:
        return found
    if dry_run:
        repairable = set(_intact_copies(log, snapshot, corrupt))
        written: set[str] = set()
    else:
        repairable = written = _write_again(log, corrupt)

    def with_outcome(each: Damage) -> Damage:
        if each.kind != damage.CORRUPT_SEGMENT or each.logical_path not in repairable:
            return each
        return replace(each, is_repairable=True, repaired=each.logical_path in written)

    return [with_outcome(each) for each in found]


def _intact_copies(log: MergedLog, snapshot: LogSnapshot, corrupt: Iterable[Damage]) -> dict[str, _Good]:
    """What can be written in the place of damaged segments, by logical path."""
    entries = snapshot.scan.entries
    movable = set(relocatable(snapshot.scan.resolution, snapshot.states).tolist())
    wanted = {each.logical_path: each for each in corrupt}
    rows = np.flatnonzero(np.array(pc.is_in(entries.path, value_set=pa.array(list(wanted), pa.string())), bool))
    rows = rows[entries.is_put[rows]]
    by_path: dict[str, list[int]] = {}
    for row, path in zip(rows.tolist(), entries.path.take(pa.array(rows)).to_pylist(), strict=True):
        by_path.setdefault(path, []).append(row)
    found: dict[str, _Good] = {}
    for path, same in by_path.items():
        for row in movable.intersection(same):
            name = entries.files[entries.file[row]]
            if name != wanted[path].name or entries.offset[row] != wanted[path].offset:
                continue
            good = _other(log, snapshot, row, same) or _plain(log, snapshot, row, path)
            if good is not None:
                found[path] = good
    return found


def _other(log: MergedLog, snapshot: LogSnapshot, row: int, same: Iterable[int]) -> _Good | None:
    """An intact copy of the same write in another merged file, which has it until it is unlinked."""
    entries = snapshot.scan.entries
    fields = (entries.stamp, entries.writer, entries.length, entries.crc32c)
    for other in same:
        if other == row or any(column[other] != column[row] for column in fields):
            continue
        [run] = segment_runs(entries, np.array([other]), snapshot.scan.sizes)
        checked = check_run(log.directory, run)
        if not checked.bad and not checked.unread:
            return _Good(row, other)
    return None


def _plain(log: MergedLog, snapshot: LogSnapshot, row: int, path: str) -> _Good | None:
    """A plain file that has these bytes."""
    entries = snapshot.scan.entries
    folder, _, name = f"{STATE}/{path}".rpartition("/")
    size = int(entries.length[row])
    if not any(info.name == name and info.size == size for info in log.directory.files(folder)):
        return None
    try:
        with log.directory.open(f"{STATE}/{path}", size) as file:
            if checksum_of(file, 0, size) == entries.crc32c[row]:
                return _Good(row, None, f"{STATE}/{path}")
    except FileNotFoundError:
        pass
    return None


def _write_again(log: MergedLog, corrupt: Iterable[Damage]) -> set[str]:
    """Writes the intact copies as a relocation does; returns the paths that were written."""
    with holding_marker(log) as marker:
        snapshot = log.snapshot()
        copies = _intact_copies(log, snapshot, corrupt)
        if not copies or not marker.is_timely():
            return set()
        rows = np.array([good.row for good in copies.values()], "i8")
        offsets: list[int] = []
        with ExitStack() as in_doubt, log.new_file(snapshot) as (_, out):
            for good in copies.values():
                offsets.append(out.position)
                for data in _bytes_of(log, snapshot, good):
                    out.append(data)
            if not marker.is_timely():
                raise log.too_slow("writing what is intact")
            in_doubt.enter_context(marker.copying())
            out.add_columns(*copied(snapshot.scan.entries, rows, np.array(offsets)))
            out.seal(group_stamp=snapshot.highest_stamp)
    return set(copies)


def _bytes_of(log: MergedLog, snapshot: LogSnapshot, good: _Good) -> Iterator[bytes]:
    entries = snapshot.scan.entries
    if good.other is not None:
        yield from read_segments(log.directory, entries, np.array([good.other]))
        return
    size = int(entries.length[good.row])
    with log.directory.open(good.plain, size) as file:
        yield from in_parts(file, 0, size)


def _replaced(log: MergedLog, found: Found, dry_run: bool) -> Found:
    """Relocates what lives in copied and in torn files, and unlinks these files."""
    kinds = (damage.DUPLICATED_FILE, damage.TORN_TAIL)
    names = {each.name for each in found if each.kind in kinds and not _is_index(each)}
    if not names:
        return found
    corrupt = {each.name for each in found if each.kind == damage.CORRUPT_SEGMENT and not each.is_repairable}
    snapshot = _snapshot(log)
    if snapshot is None:
        return found
    able = {name for name in names if name in snapshot.states and snapshot.states[name].closed and name not in corrupt}
    gone: set[str] = set()
    if able and not dry_run:
        movable = Movable(snapshot)
        if all(each.kind in kinds or each.is_repairable for each in found):
            # Everything that has to be there is there without the bytes that no group accounts for.
            log.account_for(able)
        relocate(log, [(piece,) for name in sorted(able) for piece, _ in movable.ranges(name, _PIECE)])
        gone = set(clean(log, snapshot.closed_tombstones, only=able).files)

    def with_outcome(each: Damage) -> Damage:
        if each.kind not in kinds or _is_index(each):
            return each
        return replace(each, is_repairable=each.name in able, repaired=each.name in gone)

    return [with_outcome(each) for each in found]
