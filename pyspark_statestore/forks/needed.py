"""What of a checkpoint's state a version needs, and whether all of it is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.state_files import PLAIN, StateFiles
from pyspark_statestore.inspect.versions import versions_table
from pyspark_statestore.maintenance.batches import Batches, Store, expected_stores
from pyspark_statestore.storage import Directory


@dataclass(frozen=True)
class Needed:
    """The state files of all versions up to one.

    Attributes:
        segments: Rows of the merged ones.
        plain: Rows of the others.
    """

    segments: np.ndarray = field(repr=False)
    plain: np.ndarray = field(repr=False)


def needed_for(files: StateFiles, version: int) -> Needed:
    """Chooses what belongs to versions up to one, and what belongs to none, such as RocksDB's immutable files.

    Args:
        files: Of the state.
        version: The last that is wanted.
    """
    number, _ = files.stores().versions(np.arange(len(files.length)))
    wanted = np.array(pc.less_equal(number, version).fill_null(True), bool)
    is_plain = files.merged == PLAIN
    return Needed(np.flatnonzero(wanted & ~is_plain), np.flatnonzero(wanted & is_plain))


def check_restorable(directory: Directory, files: StateFiles, version: int, batches: Batches) -> None:
    """Refuses a version that any store of the query could not be restored at.

    Only the newest snapshot of each store up to the version is opened, unless it turns out not to be whole.

    Args:
        directory: Of the checkpoint.
        files: Of the state.
        version: The version.
        batches: With checkpoint format 2, with ids.

    Raises:
        FileNotFoundError: A file is gone: look again.
        StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE, or a file cannot be read.
    """
    for chosen in (files.without(_needless(files, version)), files):
        lost = _lost(directory, chosen, version, batches)
        if not lost:
            return
    store = lost[0]
    operator, partition, name = store
    what = f"operator {operator}, partition {partition}, store {name!r}"
    reason = "files that it needs are missing or damaged"
    raise not_restorable(directory, version, what, reason, batches.committed)


def not_restorable(
    directory: Directory, version: int, what: str, reason: str, committed: Collection[int]
) -> StateStoreFilesError:
    """The error that a version cannot be had.

    Args:
        directory: Of the checkpoint.
        version: That was asked for.
        what: Whose.
        reason: Why not.
        committed: Batches that Spark could go back to.
    """
    known = f"of the batches that are in its log, {min(committed) + 1} to {max(committed) + 1}" if committed else "none"
    parameters = {"version": version, "what": what, "path": directory.location.url, "reason": reason, "known": known}
    return StateStoreFilesError("PSS_VERSION_NOT_RESTORABLE", parameters)


def _needless(files: StateFiles, version: int) -> np.ndarray:
    """Rows of later versions, and of all snapshots but the newest ones up to the version."""
    stores = files.stores()
    number, _, extension = stores.version_files(np.arange(len(files.length)))
    later = np.array(pc.greater(number, version).fill_null(False), bool)
    is_snapshot = np.array(pc.is_in(extension, value_set=_snapshots()).fill_null(False), bool) & ~later
    rows = np.flatnonzero(is_snapshot & (stores.store >= 0))
    numbers: np.ndarray = np.asarray(number.fill_null(-1))
    newest: np.ndarray = np.full(len(stores.known) + 1, -1, "i8")
    np.maximum.at(newest, stores.store[rows], numbers[rows])
    older: np.ndarray = np.zeros(len(later), bool)
    older[rows] = numbers[rows] < newest[stores.store[rows]]
    needless: np.ndarray = np.flatnonzero(later | older)
    return needless


def _snapshots() -> object:
    import pyarrow as pa

    return pa.array(["zip", "snapshot"], pa.string())


def _lost(directory: Directory, files: StateFiles, version: int, batches: Batches) -> list[Store]:
    """Stores that cannot be restored at the version."""
    table = versions_table(files, directory)
    table = table.filter(pc.and_(pc.equal(table["version"], version), table["is_restorable"]))
    names = ("operator_id", "partition_id", "store_name", "state_store_checkpoint_id")
    restorable: dict[Store, set[str]] = defaultdict(set)
    for operator, partition, name, checkpoint_id in zip(*(table[each].to_pylist() for each in names), strict=True):
        restorable[operator, partition, name].add(checkpoint_id or "")
    return [
        store
        for store in expected_stores(directory, files.stores().known)
        if not _counts(restorable[store], store, batches, version)
    ]


def _counts(ids: Collection[str], store: Store, batches: Batches, version: int) -> bool:
    """Whether the attempt that was committed is among those that can be restored."""
    operator, partition, _ = store
    by_partition = batches.ids.get(version - 1, {}).get(operator, [])
    named = by_partition[partition] if partition < len(by_partition) else []
    return any(not each or not named or each in named for each in ids)
