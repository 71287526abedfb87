"""Runs queries batch by batch, keeps what they gave out, and looks at what they left on the disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import merged_path
from pyspark_statestore.format.reader import BytesSource, read_merged_file
from tests import class_data
from tests.jvm.harness import until
from tests.streaming.workloads import WORKLOADS, events

STATE_STORE = "spark.sql.streaming.stateStore."
PROVIDER = STATE_STORE + "providerClass"
STOCK_CLASSES = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_FILE_CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
NO_FILE_CHECKSUMS = {_FILE_CHECKSUMS: "false"}
"""With them Spark makes files in threads that know of no task, so nothing can wait for the end of a task or a batch."""
_LATE_WORKER = "Python worker failed to connect back"
PLAIN_STATE_FILE = re.compile(r".*\.(delta|changelog|zip|sst|snapshot|log)(\.crc)?(\..*)?")


@dataclass(frozen=True)
class Setting:
    """How a query keeps its state.

    Attributes:
        door: ``provider``, ``path``, or ``stock`` for Spark without merged state.
        store: ``rocksdb`` or ``heap``.
        format_version: Spark's checkpoint format; the heap store knows the first only.
        changelog: Whether RocksDB writes changelogs and, in maintenance, snapshots, or a snapshot with each batch.
        checksums: Whether Spark writes a checksum file beside each file; see :func:`writes_checksums`.
    """

    door: str
    store: str
    format_version: int = 1
    changelog: bool = True
    checksums: bool = False

    def __str__(self) -> str:
        changelog = "changelog" if self.changelog else "snapshots"
        checksums = "checksums" if self.checksums else "bare"
        return f"{self.door}-{self.store}-v{self.format_version}-{changelog}-{checksums}"

    @property
    def conf(self) -> dict[str, str]:
        """The settings to make in a session that has the jar and, for the path door, the file manager."""
        changed = {
            f"{STATE_STORE}checkpointFormatVersion": str(self.format_version),
            f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": str(self.changelog).lower(),
            _FILE_CHECKSUMS: str(self.checksums).lower(),
        }
        if self.door == "stock":
            changed[PROVIDER] = STOCK_CLASSES[self.store]
        return changed

    def location(self, folder: Path) -> str:
        """What the query has as its checkpointLocation for a checkpoint in ``folder``."""
        return merged_path(folder) if self.door == "path" else str(folder)


@contextmanager
def session_conf(spark: SparkSession, changed: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of a session for a while. A query keeps the settings that it was started with."""
    before = {key: spark.conf.get(key, None) for key in changed}
    try:
        for key, value in changed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@dataclass
class Run:
    """A query's checkpoint, and what it has given out so far.

    Attributes:
        spark: The session.
        workload: Its name.
        setting: How it keeps its state.
        folder: For its ``input``, unless it has another's, and its ``checkpoint``.
        input: Where it reads.
        rows: What it gave out, by batch, sorted.
        metrics: What it said of its state, by batch: for each store, rows in all, updated, removed, dropped as late.
        more_metrics: What it said besides, by batch: the sums of all operators.
    """

    spark: SparkSession
    workload: str
    setting: Setting
    folder: Path
    input: Path = field(default=Path())
    rows: dict[int, list[str]] = field(default_factory=dict)
    metrics: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    more_metrics: dict[int, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.input == Path():
            self.input = self.folder / "input"
        self.input.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        """The real directory of the checkpoint."""
        return self.folder / "checkpoint"

    @property
    def location(self) -> str:
        """The checkpoint as Spark is told."""
        return self.setting.location(self.checkpoint)

    def start(self, conf: Mapping[str, str] | None = None, *, available_now: bool = True) -> StreamingQuery:
        """Starts or restarts the query.

        Args:
            conf: More settings than those of how it keeps its state.
            available_now: Whether it ends when it has read all that is there.
        """
        workload = WORKLOADS[self.workload]
        with session_conf(self.spark, {**self.setting.conf, **(conf or {})}):
            result = workload.build(lambda: events(self.spark, self.input))
            writer = result.writeStream.outputMode(workload.output_mode).foreachBatch(self._take)
            writer = writer.option("checkpointLocation", self.location)
            return (writer.trigger(availableNow=True) if available_now else writer).start()

    def finish(self, query: StreamingQuery, conf: Mapping[str, str] | None = None) -> None:
        """Waits for the end of a query that was started to read what is there.

        Spark gives a Python worker ten seconds to start, whatever else the machine does; then the query starts again.

        Args:
            query: What ``start`` has given.
            conf: As it was started with.
        """
        for left in (2, 1, 0):
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if not left or _LATE_WORKER not in str(error):
                    raise
                self.note(query)
                query = self.start(conf)
            else:
                self.note(query)
                return

    def note(self, query: StreamingQuery) -> None:
        """Keeps the metrics of the batches that a query has done."""
        for progress in query.recentProgress:
            if progress["batchId"] in self.rows:
                batch, operators = progress["batchId"], progress["stateOperators"]
                self.metrics[batch] = [_figures(store) for store in operators]
                self.more_metrics[batch] = sum((Counter(dict(each["customMetrics"])) for each in operators), Counter())

    def run(self, conf: Mapping[str, str] | None = None) -> None:
        """Reads all that is there."""
        self.finish(self.start(conf), conf)

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = sorted(repr(tuple(row)) for row in batch.collect())


def _figures(store: Any) -> tuple[int, ...]:
    names = ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark")
    return tuple(int(store[name]) for name in names)


def plain_state_files(checkpoint: Path) -> list[str]:
    """Returns the files of state stores, relative to ``state/``, that are files of their own on the disk."""
    state = checkpoint / "state"
    files = (file for file in state.rglob("*") if file.is_file() and "_merged" not in file.parts)
    return sorted(str(file.relative_to(state)) for file in files if PLAIN_STATE_FILE.fullmatch(file.name))


def merged_files(checkpoint: Path) -> list[Path]:
    """Returns a checkpoint's merged files."""
    return sorted((checkpoint / "state" / "_merged").glob("*.merged"))


def segments(checkpoint: Path) -> set[str]:
    """Returns the logical paths, relative to ``state/``, that merged files hold or have held; deleted ones too."""
    paths: set[str] = set()
    for file in merged_files(checkpoint):
        index = read_merged_file(BytesSource(file.read_bytes()), file.name)
        paths.update(entry.path for entry in index if entry.kind == 1)
    return paths


def writes_checksums(format_version: int) -> bool:
    """Whether this Spark can write checksum files beside those of state; from 4.2 on not in format 1."""
    return class_data.MINOR == "4.1" or (class_data.MINOR not in ("3.5", "4.0") and format_version >= 2)


def assert_state_is_merged(run: Run) -> set[str]:
    """Checks that all of a query's state is in merged files, as the settings say; returns the logical paths."""
    assert plain_state_files(run.checkpoint) == []
    found = segments(run.checkpoint)
    assert merged_files(run.checkpoint), f"no merged file under {run.checkpoint}"
    files = {path for path in found if not path.endswith(".crc")}
    companions = found - files
    ends = {path.rsplit(".", 1)[1] for path in files}
    if run.setting.store == "heap":
        assert "delta" in ends
        assert ends <= {"delta", "snapshot"}
    elif run.setting.changelog:
        assert "changelog" in ends
    else:
        assert {"zip", "sst"} <= ends
        assert "changelog" not in ends
    if run.setting.checksums and writes_checksums(run.setting.format_version):
        assert companions == {f"{path}.crc" for path in files if not path.endswith((".sst", ".log"))}
    else:
        assert companions == set()
    return found


def unload_stores(spark: SparkSession | SparkContext) -> None:
    """Unloads all state stores; the next load is from files, and starts maintenance with the session's interval."""
    context = spark if isinstance(spark, SparkContext) else spark.sparkContext
    package: Any = context._jvm.org.apache.spark.sql.execution.streaming.state
    stores = getattr(getattr(package, "StateStore$"), "MODULE$")
    if context.version.startswith(("4.0.", "4.1.", "4.2.")):
        # There stop() waits for maintenance, which may need the lock that it holds: for as long as the settings say, in
        # 4.0 for 300 s whatever they say.
        stores.unloadAll()
        field = stores.getClass().getDeclaredField("maintenancePartitions")
        field.setAccessible(True)
        until(lambda: field.get(stores).isEmpty(), "maintenance to end")
    stores.stop()


def forget(spark: SparkSession, checkpoint: Path) -> None:
    """Lets the process be a new one: no store is loaded, and nothing is known of the checkpoint."""
    unload_stores(spark)
    jvm: Any = spark.sparkContext._jvm
    jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(f"file:{checkpoint}"))
