"""Deletes the versions of a stopped query that nobody wants to go back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.forks.pins import check_unclaimed
from pyspark_statestore.format import Kind
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.inspect.scan import check_checkpoint, look_again
from pyspark_statestore.inspect.state_files import STATE, StateFiles, files_below_state, is_state_file
from pyspark_statestore.maintenance.ages import Now, ask_file_system
from pyspark_statestore.maintenance.batches import committed
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.copied_entries import paths_of
from pyspark_statestore.maintenance.expired_files import Expired, expired_files
from pyspark_statestore.maintenance.running import require_stopped
from pyspark_statestore.maintenance.site import Site, View
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import FileInfo, in_parallel
from pyspark_statestore.storage.whole_files import hadoop_checksum_of


@dataclass(frozen=True)
class Expiry:
    """What was deleted.

    Attributes:
        removed_versions_count: Versions of stores that could be restored and cannot be any more.
        removed_files_count: Logical files that are gone, or would be.
        removed_bytes_count: Of these.
        oldest_retained_batch: The first batch that can be gone back to; None where no batch was committed.
        untouched_stores_count: Stores that were left as they are, since not each of their versions that are to stay can
            be restored.
        dry_run: Whether nothing was changed.
    """

    removed_versions_count: int
    removed_files_count: int
    removed_bytes_count: int
    oldest_retained_batch: int | None
    untouched_stores_count: int
    dry_run: bool


@dataclass(frozen=True)
class _Look:
    """What is in a checkpoint.

    Attributes:
        view: Of the merged files.
        plain: State files beside them, by their path below ``state/``, those that merged files supersede included.
        others: What else lies below ``state/``.
    """

    view: View
    plain: Mapping[str, FileInfo]
    others: Mapping[str, FileInfo]

    @classmethod
    def at(cls, site: Site) -> _Look:
        view = site.look()
        below = files_below_state(site.directory) if view.plain else {}
        plain = {name: info for name, info in below.items() if is_state_file(name)}
        return cls(view, plain, {name: info for name, info in below.items() if name not in plain})


def expire(site: Site, retain_last: int, *, dry_run: bool = True, force: bool = False) -> Expiry:
    """Deletes the versions before those of the last committed batches, and what only they need.

    The state after batch ``b`` is version ``b + 1``. Versions above the last committed one stay, as does everything
    that restoring any version which stays begins with or replays. Spark's logs of offsets and commits are not touched:
    they still name batches whose state is gone then. Whoever goes back by deleting files from these logs must not
    delete those of ``oldest_retained_batch``; Spark cannot restart from earlier ones, and says that a file of the state
    is missing.

    Args:
        site: Of the checkpoint.
        retain_last: Batches that can be gone back to, at least 1.
        dry_run: Whether nothing is to be changed.
        force: Whether the query is stopped, though it seems to be running.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_CHECKPOINT, PSS_QUERY_RUNNING, or the checkpoint cannot be
            read or written. Whatever restoring the versions that stay needs is there then.
    """
    if not isinstance(retain_last, int) or isinstance(retain_last, bool) or retain_last < 1:
        parameters = {"key": "retain_last", "value": retain_last, "allowed": "a whole number of batches, at least 1"}
        raise StateStoreFilesError("PSS_INVALID_OPTION", parameters)
    check_checkpoint(site.directory)
    if not force:
        look = _Look.at(site)
        require_stopped(site, look.view, look.plain.values(), Now(site.clock()), "Expiring versions")
        if not dry_run:
            require_stopped(site, look.view, look.plain.values(), ask_file_system(site), "Expiring versions")
    batches = committed(site.directory)
    retained = batches[-retain_last:]
    if not retained or len(batches) < retain_last:
        return Expiry(0, 0, 0, retained[0] if retained else None, 0, dry_run)

    def look_and_plan() -> tuple[_Look, StateFiles, Expired]:
        look = _Look.at(site)
        files = StateFiles.of(look.view.scan, look.plain.values())
        return look, files, expired_files(files, site.directory, [batch + 1 for batch in retained])

    look, files, expired = look_again(site.directory, look_and_plan)
    if not dry_run:
        check_unclaimed(site.directory, look.view.scan.others)
        _carry_out(site, look, files, expired)
        clean(site, look.view.closed_tombstones)
    return Expiry(
        expired.versions_count,
        len(expired.immutable) + len(expired.versioned),
        int(files.length[expired.rows].sum()),
        retained[0],
        expired.untouched_stores_count,
        dry_run,
    )


def _carry_out(site: Site, look: _Look, files: StateFiles, expired: Expired) -> None:
    """What tells a later run what is to go, goes last: files before the snapshots that name them.

    Plain files go, too, where a merged file supersedes them: without it they would be read (rule 10).
    """
    immutable, versioned = (_plain_paths(look, files, rows) for rows in (expired.immutable, expired.versioned))
    hidden = [path for path in map(hadoop_checksum_of, [*immutable, *versioned]) if path in look.others]
    _delete_plain(site, hidden)
    _delete_plain(site, immutable)
    _delete_merged(site, look.view, files, expired)
    _delete_plain(site, versioned)


def _plain_paths(look: _Look, files: StateFiles, rows: np.ndarray) -> list[str]:
    if not look.plain:
        return []
    return [path for path in files.path.take(pa.array(rows)).to_pylist() if path in look.plain]


def _delete_plain(site: Site, paths: Sequence[str]) -> None:
    in_parallel(lambda path: delete(site.directory, f"{STATE}/{path}"), paths)


def _delete_merged(site: Site, view: View, files: StateFiles, expired: Expired) -> None:
    """Writes a tombstone, of rule 4, for each segment; all at once."""
    entries = view.scan.entries
    rows = files.entry_rows(view.scan)[expired.rows[files.is_merged(expired.rows)]]
    if not len(rows):
        return
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    records["kind"] = Kind.DELETE
    for name in ("type", "stamp", "writer"):
        records[name] = getattr(entries, name)[rows]
    with site.new_file(view) as (_, out):
        out.add_columns(records, paths_of(entries, rows))
        out.seal(group_stamp=view.highest_stamp)
