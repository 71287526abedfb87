"""How many file-system calls a stateful query costs on clusters of any size: the model behind `scale_model.py`.

Merged state has two ways. With the index service, the default, executors ask the driver. Alone, each reads what all
others have written.

Every formula says what the code does, with what it depends on as a named parameter. Nothing here needs Spark.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

# Writing a file on HDFS: create, addBlock, complete. Spark writes to a temporary name and renames.
WRITE = 3
WRITE_AND_RENAME = 4


@dataclass(frozen=True)
class Shape:
    """A query on a cluster.

    Attributes:
        partitions: The number of state stores of all operators.
        executors: The number of executors, each with as many stores as the others.
        batch_seconds: The time from one batch to the next.
        maintenance_seconds: spark.sql.streaming.stateStore.maintenanceInterval.
        commit_bytes: The bytes that a store writes in a batch.
        deltas_per_snapshot: The batches from one snapshot of a store to the next.
        ssts_per_snapshot: The new RocksDB files in a snapshot.
        ssts_per_load: The RocksDB files that a snapshot names.
        changelogs_per_load: The changelogs after the snapshot that a restart finds.
        retained: Whether Spark deletes old versions at all in the modelled time.
        loading_executors: The executors to which partitions move in a batch.
        moved_partitions: The number of these partitions.
    """

    partitions: int = 200
    executors: int = 10
    batch_seconds: float = 10.0
    maintenance_seconds: float = 60.0
    commit_bytes: int = 20_000
    deltas_per_snapshot: int = 10
    ssts_per_snapshot: float = 1.0
    ssts_per_load: float = 3.0
    changelogs_per_load: float = 5.0
    retained: bool = True
    loading_executors: float = 0.0
    moved_partitions: float = 0.0

    def scaled(self, partitions: int, executors: int) -> Shape:
        """Returns the same query with more or fewer partitions and executors."""
        return dataclasses.replace(self, partitions=partitions, executors=min(executors, partitions))


@dataclass(frozen=True)
class StockCosts:
    """The calls of Spark's own file manager and RocksDB file manager, measured with the counting file system.

    Attributes:
        snapshot_status: getFileStatus calls of a snapshot and of the deletion of old ones after it.
        snapshot_lists: listStatus calls of the deletion of old versions, which follows a snapshot.
        load_status: getFileStatus calls of a load.
        load_lists: listStatus calls of a load.
        opens_per_changelog: Spark opens a changelog to see its version, and again to replay it.
    """

    snapshot_status: float = 2.0
    snapshot_lists: float = 1.0
    load_status: float = 2.0
    load_lists: float = 1.0
    opens_per_changelog: float = 2.0


@dataclass(frozen=True)
class MergedCosts:
    """The calls of merged state.

    Attributes:
        open_files: Lanes that an executor has open: commits, snapshots.
        max_file_bytes: `maxFileSize`.
        small_file_bytes: A lane seals no smaller file (`MergedLog.SMALL_FILE`).
        live_share: The highest size of a file as a share of live bytes: a quarter of `maxSpaceAmplification` - 1.
        idle_seal_seconds: A tenth of `closedAfter`: a lane without a commit for so long seals its file.
        cleaner_seconds: A process cleans at most this often (`Cleaner.MAX_INTERVAL_MS`).
        tails_per_second: The open files of others that maintenance reads (`Refresher.mayReadTails`).
        relocated: Bytes that are moved for each byte that Spark writes.
        round_calls: The calls for a relocation marker: create, complete, delete, list.
        served_round_calls: The same with an index service, where nobody lists.
        moved_file_calls: The calls for a file that segments are moved out of: whether it exists, and an open.
        max_age_seconds: No file stays open for longer (`Lane.MAX_AGE_MS`).
        page: A listing with so many names is made twice (`Storage.PAGE`), but for passes of the driver.
        pass_lists: Listings of a cleaning pass of the driver.
        index_only_after: Sealed files that the driver repeats in an index-only file (`Consolidation.WORTH_IT`).
        most_opens: A cold process opens so many files at most, besides unsealed ones (`Consolidation.MOST_OPENS`).
        lists_per_load: Listings of `_merged/` until the first stage of a process has loaded.
        driver_calls: The calls that list `state/` and ask for its status, once for each start of the query.
        index_opens: Opens for the index of a sealed file. An unsealed one is read again with each listing.
        relist_opens: All opens for the index of another process's file: when it is new, and when it was sealed.
    """

    open_files: int = 2
    max_file_bytes: int = 128 << 20
    small_file_bytes: int = 2 << 20
    live_share: float = 0.25
    idle_seal_seconds: float = 60.0
    cleaner_seconds: float = 10.0
    tails_per_second: float = 1.0
    relocated: float = 0.05
    round_calls: float = 4.0
    served_round_calls: float = 3.0
    moved_file_calls: float = 2.0
    max_age_seconds: float = 3600.0
    page: int = 400
    pass_lists: float = 1.0
    index_only_after: int = 5
    most_opens: int = 20
    lists_per_load: float = 1.0
    driver_calls: float = 4.0
    index_opens: float = 1.0
    relist_opens: float = 2.0


def stock_batch(shape: Shape, costs: StockCosts = StockCosts()) -> float:
    """Calls of stock Spark in a steady batch, maintenance included."""
    # A snapshot copies its new SSTs to where they belong and writes a zip as any checkpoint file.
    snapshot = WRITE_AND_RENAME + WRITE * shape.ssts_per_snapshot + costs.snapshot_status + costs.snapshot_lists
    deleted = 1 + (1 + shape.ssts_per_snapshot) / shape.deltas_per_snapshot if shape.retained else 0.0
    steady = WRITE_AND_RENAME + snapshot / shape.deltas_per_snapshot + deleted
    return shape.partitions * steady + shape.moved_partitions * load(shape, costs)


def load(shape: Shape, costs: StockCosts = StockCosts()) -> float:
    """Calls of stock Spark to load one store."""
    files = 1 + shape.ssts_per_load + costs.opens_per_changelog * shape.changelogs_per_load
    return costs.load_status + costs.load_lists + (files if shape.ssts_per_load else files - 1)


def stock_restart(shape: Shape, costs: StockCosts = StockCosts()) -> float:
    """Calls of stock Spark from a restart to the end of its first batch."""
    return shape.partitions * (load(shape, costs) + WRITE_AND_RENAME)


@dataclass(frozen=True)
class Calls:
    """Calls by their purpose, each an attribute."""

    @property
    def total(self) -> float:
        """The sum of all calls."""
        return float(sum(dataclasses.asdict(self).values()))


@dataclass(frozen=True)
class MergedBatch(Calls):
    """Calls of merged state in a steady batch, by what they are for.

    Attributes:
        rotation: The calls that end files, begin others, and delete old ones.
        listing: The listings of `_merged/` by maintenance.
        new_indexes: Opens for the indexes of other executors' new files.
        tails: Opens for what other executors have appended.
        relocation: The calls for relocation markers.
        moves: The reads of executors that take over partitions.
    """

    rotation: float
    listing: float
    new_indexes: float
    tails: float
    relocation: float
    moves: float


def live_bytes(shape: Shape) -> float:
    """Bytes of state that Spark still needs: a snapshot's files, and the changelogs after it."""
    per_store = shape.changelogs_per_load + shape.deltas_per_snapshot * shape.ssts_per_load
    return shape.partitions * shape.commit_bytes * per_store


def file_bytes(shape: Shape, costs: MergedCosts = MergedCosts()) -> float:
    """How large a merged file gets before it is sealed (`MergedLog.fileSize`)."""
    return min(costs.max_file_bytes, max(costs.small_file_bytes, costs.live_share * live_bytes(shape)))


def rotations(shape: Shape, costs: MergedCosts = MergedCosts()) -> float:
    """Files that all executors together begin in a batch."""
    written = shape.partitions * shape.commit_bytes * (1 + costs.relocated)
    by_size = written / file_bytes(shape, costs)
    # Slower than that, each batch has files of its own.
    by_age = shape.executors if shape.batch_seconds > costs.idle_seal_seconds else 0.0
    # So has each wave of snapshots, which all stores make in the same batches.
    if costs.open_files > 1 and shape.deltas_per_snapshot * shape.batch_seconds > costs.idle_seal_seconds:
        by_age += shape.executors / shape.deltas_per_snapshot
    oldest = shape.executors * costs.open_files * shape.batch_seconds / costs.max_age_seconds
    return max(by_size, by_age, oldest)


def served_batch(shape: Shape, costs: MergedCosts = MergedCosts()) -> MergedBatch:
    """Calls of merged state with the index service in a steady batch; only the driver lists, and unlinks."""
    new_files = rotations(shape, costs)
    passes = shape.batch_seconds / shape.maintenance_seconds
    relocations = new_files * costs.relocated / (1 + costs.relocated)
    others = (shape.executors - 1) * costs.open_files
    index_only = min(passes, new_files / costs.index_only_after)
    return MergedBatch(
        rotation=(new_files + index_only) * (WRITE + 1),
        listing=passes * costs.pass_lists,
        new_indexes=0.0,
        tails=0.0,
        relocation=relocations * (costs.served_round_calls + costs.moved_file_calls),
        # Only data: the store's files, each opened once by each executor that reads in it.
        moves=min(shape.loading_executors * others, shape.moved_partitions * costs.open_files),
    )


def pages(shape: Shape, costs: MergedCosts = MergedCosts()) -> int:
    """How often a complete listing of `_merged/` lists."""
    return 2 if files_with_live_segments(shape, costs) >= costs.page else 1


def alone_batch(shape: Shape, costs: MergedCosts = MergedCosts()) -> MergedBatch:
    """Calls of merged state without an index service in a steady batch; commits make none."""
    interval = max(shape.maintenance_seconds, costs.cleaner_seconds)
    rounds = shape.executors * shape.batch_seconds / interval
    foreign = (shape.executors - 1) * costs.open_files
    # A round reads all tails, but only if as many seconds have gone by since the last that did: every n-th round.
    every = max(1, math.ceil(foreign / costs.tails_per_second / interval))
    new_files = rotations(shape, costs)
    relocations = new_files * costs.relocated / (1 + costs.relocated)
    return MergedBatch(
        rotation=new_files * (WRITE + 1),
        listing=rounds,
        new_indexes=new_files * (shape.executors - 1) * costs.relist_opens,
        tails=rounds / every * foreign,
        relocation=relocations * (costs.round_calls + 1),
        moves=shape.loading_executors * (1 + foreign * (costs.index_opens + 1)),
    )


@dataclass(frozen=True)
class Restart(Calls):
    """What a restart finds and reads.

    Attributes:
        lists: Listings of `_merged/`, and what the driver asks for.
        indexes: Opens for indexes.
        data: Opens for segments.
        first_files: The new files' create and addBlock; they stay open.
    """

    lists: float
    indexes: float
    data: float
    first_files: float


def files_with_live_segments(shape: Shape, costs: MergedCosts = MergedCosts()) -> float:
    """Merged files that exist: those that were open last, and the full ones before them."""
    return shape.executors * costs.open_files + live_bytes(shape) // file_bytes(shape, costs)


def served_restart(shape: Shape, costs: MergedCosts = MergedCosts(), index_only: bool = False) -> Restart:
    """Calls of merged state with the index service from a restart to the end of its first batch.

    Args:
        shape: The query and its cluster.
        costs: The costs of merged state.
        index_only: Whether all files are sealed, after a clean stop, and one index-only file speaks for them. After a
            kill some index-only files speak for those that are sealed.

    Returns:
        The calls of the driver, which reads each index once, and of all executors, which read segments.
    """
    alone = alone_restart(shape, costs)
    files, unsealed = files_with_live_segments(shape, costs), shape.executors * costs.open_files
    opened = 1.0 if index_only else (unsealed + min(files - unsealed, costs.most_opens)) * costs.index_opens
    # Passes meanwhile read the ends of those files that dead executors may have written without a report.
    passes = shape.batch_seconds / shape.maintenance_seconds * costs.pass_lists
    return Restart(
        lists=costs.driver_calls + pages(shape, costs) + passes,
        indexes=opened if index_only else opened + passes * unsealed,
        data=alone.data,
        first_files=alone.first_files,
    )


def alone_restart(shape: Shape, costs: MergedCosts = MergedCosts(), index_only: bool = False) -> Restart:
    """Calls of merged state without an index service from a restart to the end of its first batch.

    Args:
        shape: The query and its cluster.
        costs: The costs of merged state.
        index_only: Whether all files are sealed, after a clean stop, and one index-only file speaks for them. After a
            kill the files that were open are in no index-only file and have to be read one by one.

    Returns:
        The calls of all executors together.
    """
    files = files_with_live_segments(shape, costs)
    unsealed = shape.executors * costs.open_files
    indexes = 1.0 if index_only else (files - unsealed) * costs.index_opens + unsealed * costs.lists_per_load
    # An executor's partitions lie where their last owners wrote, and it need not get the same ones again.
    own = min(files, math.ceil(shape.partitions / shape.executors) * costs.open_files)
    return Restart(
        lists=shape.executors * costs.lists_per_load + costs.driver_calls,
        indexes=shape.executors * indexes,
        data=shape.executors * own,
        first_files=shape.executors * (WRITE - 1),
    )
