"""``Scenario``: what one run of a benchmark does, and the presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

WORKLOADS = (
    "aggregation",
    "windowed_aggregation",
    "dedup",
    "stream_join",
    "open_join",
    "session_window",
    "groups_in_python",
    "transform_with_state",
)
DOORS = ("provider", "path")
STORES = ("rocksdb", "heap")
SIDES = ("stock", "merged")


@dataclass(frozen=True)
class Scenario:
    """One run: both sides, interleaved, in one JVM (or one side alone).

    Attributes:
        workload: The query, one of WORKLOADS.
        door: How merged state is reached, "provider" or "path". Stock Spark is the same either way.
        store: "rocksdb" or "heap".
        partitions: Shuffle partitions, that is, state stores for each stateful operator (a join has four).
        batches: Micro-batches, one input file each.
        delay_ms: Sleep in every metadata call of the file system, as a stand-in for its latency.
        filesystem: "counting" (a disk with hflush) or "objectstore" (visible at close, rename copies).
        rows_per_batch: Rows of an input file.
        keys: How many keys there are. They are drawn uniformly.
        value_bytes: Random bytes in each row. State has those of each row of an open join, and of the other queries
            that keep values, "aggregation" and "groups_in_python", the largest of each key.
        sides: The sides to run.
        changelog: RocksDB changelog checkpointing.
        checkpoint_version: spark.sql.streaming.stateStore.checkpointFormatVersion; 2 adds a `.crc` file to each file.
        retain: spark.sql.streaming.minBatchesToRetain.
        maintenance_interval: spark.sql.streaming.stateStore.maintenanceInterval, of both sides.
        chmod_fork: Whether setPermission starts a chmod process, as `file:` does without Hadoop's native library.
        options: Options of merged state, as for `configure`.
        seed: The seed of the input data.
        trace_space: Whether to read the merged files' indexes after every batch, for their space amplification.
    """

    workload: str = "aggregation"
    door: str = "provider"
    store: str = "rocksdb"
    partitions: int = 50
    batches: int = 12
    delay_ms: int = 0
    filesystem: str = "counting"
    rows_per_batch: int = 5_000
    keys: int = 50_000
    value_bytes: int = 0
    sides: tuple[str, ...] = SIDES
    changelog: bool = True
    checkpoint_version: int = 1
    retain: int = 100
    maintenance_interval: str = "10s"
    chmod_fork: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 20130101
    trace_space: bool = False

    def possible(self) -> bool:
        """Whether Spark can run it: transformWithState needs RocksDB, and refuses every provider class but its own."""
        return self.workload != "transform_with_state" or (self.store == "rocksdb" and self.door == "path")

    def title(self) -> str:
        """A short name for tables and pictures."""
        delay = f", {self.delay_ms} ms per call" if self.delay_ms else ""
        where = "" if self.filesystem == "counting" else f", {self.filesystem}"
        log = "" if self.changelog or self.store == "heap" else ", no changelog"
        log += f", checkpoint version {self.checkpoint_version}" if self.checkpoint_version != 1 else ""
        size = f"{self.partitions} partitions x {self.batches} batches"
        return f"{self.workload} ({self.store}{log}, {self.door} door), {size}{where}{delay}"

    def to_json(self) -> dict[str, Any]:
        """Returns the scenario as plain JSON values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Scenario:
        """Returns the scenario that `to_json` wrote."""
        return Scenario(**{**values, "sides": tuple(values["sides"])})


# What each preset sets unless the command line does. The values of a tuple run one after the other.
PRESETS: dict[str, dict[str, Any]] = {
    # Spark's defaults: no changelogs, maintenance once a minute, chmod as on `file:`.
    "issue": {
        "workload": ("aggregation",),
        "partitions": (200,),
        "batches": 69,
        "maintenance_interval": "60s",
        "changelog": False,
        "chmod_fork": True,
    },
    # The time of a batch with a near and a far file system, also with Spark's defaults.
    "time": {"partitions": (50,), "batches": 20, "delay_ms": (0, 5, 20), "changelog": False, "chmod_fork": True},
    "steady": {"workload": ("aggregation", "stream_join"), "partitions": (10, 50, 200), "batches": 12},
    "amplification": {
        "workload": ("aggregation",),
        "partitions": (8,),
        "batches": 100,
        "rows_per_batch": 20_000,
        "keys": 500_000,
        # So that old versions die several times. By default, Spark keeps 100 batches and looks once in 60 s.
        "retain": 2,
        "maintenance_interval": "5s",
    },
    "object-store": {"workload": ("aggregation",), "partitions": (50,), "filesystem": "objectstore"},
}
