"""The two sides: child sessions of one Spark session, each with its query, its checkpoint and its counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks import disk
from benchmarks.filesystems import TEST_JAR, CallCounters, Counts, filesystem_settings, minus
from benchmarks.scenario import Scenario
from benchmarks.space import SpaceReader
from benchmarks.workloads import OUTPUT_MODES, fingerprint, streaming_result

STATE = "org.apache.spark.sql.execution.streaming.state"
STOCK_PROVIDERS = {"rocksdb": f"{STATE}.RocksDBStateStoreProvider", "heap": f"{STATE}.HDFSBackedStateStoreProvider"}


class BenchmarkError(Exception):
    """The benchmark cannot run, or the two sides differ; the message says why."""


def merged_settings(scenario: Scenario) -> dict[str, str]:
    """What `pyspark_statestore.configure` sets for this scenario, as a dictionary."""
    try:
        from pyspark_statestore import configure
    except ImportError as error:
        raise BenchmarkError(
            f"pyspark_statestore cannot be imported ({error}); build it first (make build), or use --sides stock."
        ) from error
    builder = SparkSession.Builder()
    configure(builder, mode=scenario.door, store=scenario.store, **scenario.options)
    return {key: str(value) for key, value in builder._options.items()}


def require_plain_name(work: Path) -> None:
    """Raises `BenchmarkError` where Spark does not find state, or its own files, because of a directory's name.

    Its reader of state does not find what has a ``%`` in a URL, such as a space, and `spark.local.dir` ends at a comma.
    """
    if odd := re.search(r"[^\w/.+=@~-]", str(work)):
        raise BenchmarkError(
            f"Spark cannot work in {work}, since there is {odd[0]!r} in its name: set TMPDIR to another directory"
        )


def start_session(
    scenario: Scenario,
    work: Path,
    merged: dict[str, str],
    master: str = "local[2]",
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts the one Spark session that both sides live in.

    Args:
        scenario: What will run.
        work: A directory for Spark's local files.
        merged: What `merged_settings` returned, or nothing for stock Spark alone.
        master: Spark's master.
        more: Settings in addition to the scenario's.

    Returns:
        The session.

    Raises:
        BenchmarkError: The jar of the tests is missing, or Spark cannot work in the directory.
    """
    if not TEST_JAR.exists():
        raise BenchmarkError(f"{TEST_JAR} is missing: python jvm-shim/build.py --tests")
    require_plain_name(work)
    more = dict(more or {})
    java_options = more.pop("spark.driver.extraJavaOptions", "")
    temporary = work / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        # A JVM that is killed leaves there what it has unpacked.
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={temporary}" {java_options}',
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(scenario.partitions),
        "spark.sql.streaming.minBatchesToRetain": str(scenario.retain),
        "spark.sql.streaming.stateStore.maintenanceInterval": scenario.maintenance_interval,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": str(scenario.changelog).lower(),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(scenario.checkpoint_version),
        # One batch for each input file, and nothing in between: batches of both sides have to correspond.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.noDataProgressEventInterval": "3600000",
        # The side that waits its turn polls for input; the default of 10 ms would disturb the other.
        "spark.sql.streaming.pollingDelay": "50ms",
        **filesystem_settings(merged=bool(merged), chmod_fork=scenario.chmod_fork),
        **more,
    }
    # Whatever is not a setting of a query has to be there from the start: jars, extensions, file systems.
    settings |= {key: value for key, value in merged.items() if not key.startswith("spark.sql.streaming.")}
    settings["spark.jars"] = ",".join(filter(None, [settings.get("spark.jars"), str(TEST_JAR)]))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(f"small_files {scenario.workload}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass
class Side:
    """One side of the comparison.

    Attributes:
        name: "stock", "merged", or what merged state with other settings is called.
        session: The side's child session.
        scenario: What runs.
        root: The local directory of everything that the side writes.
        counters: The JVM's counters.
        batches: What was measured, one entry for each batch.
        first_batch: The number of the first of them, where the query has run before.
    """

    name: str
    session: SparkSession
    scenario: Scenario
    root: Path
    counters: CallCounters
    batches: list[dict[str, Any]] = field(default_factory=list)
    first_batch: int = 0
    _query: StreamingQuery | None = None
    _before: dict[str, Counts] = field(default_factory=dict)
    _space: SpaceReader | None = None

    @property
    def directory(self) -> Path:
        """The checkpoint as a local directory."""
        return self.root / "checkpoint"

    @property
    def checkpoint(self) -> str:
        """The checkpoint's location as its query gets it."""
        location = f"{self.scenario.filesystem}:{self.directory}"
        return f"merged+{location}" if self.is_merged and self.scenario.door == "path" else location

    @property
    def is_merged(self) -> bool:
        """Whether its state is merged."""
        return self.name != "stock"

    def start(self, merged: dict[str, str]) -> None:
        """Starts the query, and returns when it waits for input.

        Args:
            merged: The settings of merged state; stock Spark does not use them.
        """
        (self.root / "input").mkdir(parents=True, exist_ok=True)
        self.session.conf.set("spark.sql.streaming.stateStore.providerClass", STOCK_PROVIDERS[self.scenario.store])
        if self.is_merged:
            for key, value in merged.items():
                if key.startswith("spark.sql.streaming."):
                    self.session.conf.set(key, value)
        self.counters.register(self.name, str(self.directory))
        result = streaming_result(self.session, self.scenario, self.root / "input")
        self._query = (
            result.observe("check", *fingerprint(result.columns))
            .writeStream.format("noop")
            .outputMode(OUTPUT_MODES.get(self.scenario.workload, "append"))
            .option("checkpointLocation", self.checkpoint)
            .queryName(self.name)
            .start()
        )
        self._query.processAllAvailable()

    def run_batch(self, source: Path) -> dict[str, Any]:
        """Feeds one file and waits until it is processed.

        Args:
            source: The input file.

        Returns:
            What was measured (also kept in `batches`). Background work of this side since its last batch is included.
        """
        assert self._query is not None
        hidden = self.root / "input" / f".{source.name}"
        # It may be large, and takes no room as a second name of the same file.
        hidden.hardlink_to(source)
        # A self-join has two file sources. Spark asks both for their offsets under this lock, so both see the file in
        # the same batch.
        lock = self._query._jsq.streamingQuery().awaitProgressLock()
        lock.lock()
        try:
            hidden.rename(self.root / "input" / source.name)
        finally:
            lock.unlock()
        self._query.processAllAvailable()
        progress = self._query.lastProgress
        expected = self.first_batch + len(self.batches)
        if progress is None or progress["batchId"] != expected or progress["numInputRows"] == 0:
            recent = [
                (each["batchId"], each["numInputRows"], each["timestamp"], each["sources"][0]["endOffset"])
                for each in self._query.recentProgress[-5:]
            ]
            raise BenchmarkError(f"{self.name}: one batch, number {expected}, was expected; the query reports {recent}")
        after = self.counters.snapshot(self.name)
        record = {
            "batch": expected,
            "trigger_ms": progress["durationMs"]["triggerExecution"],
            "add_batch_ms": progress["durationMs"]["addBatch"],
            "durations_ms": dict(progress["durationMs"]),
            "output": _values(progress["observedMetrics"]["check"]),
            "counts": minus(after, self._before),
            "disk": disk.usage(self.directory),
        }
        if self.scenario.trace_space and self.is_merged:
            self._space = self._space or SpaceReader(self.directory / "state" / "_merged")
            record["space"] = self._space.measure()
        self._before = after
        self.batches.append(record)
        return record

    @property
    def run_id(self) -> str:
        """The id of the query's run."""
        assert self._query is not None
        return str(self._query.runId)

    def progress(self) -> dict[str, Any]:
        """The query's progress in its last batch with input."""
        assert self._query is not None
        found: dict[str, Any] = [each for each in self._query.recentProgress if each["numInputRows"]][-1]
        return found

    def stop(self) -> None:
        """Stops the query."""
        if self._query is not None:
            self._query.stop()
            self._query = None


def _values(row: Any) -> list[Any]:
    """The values of a row of a query's progress, which is a mapping before Spark 4.0."""
    return list(row.values() if isinstance(row, Mapping) else row)


def jvm_pid(spark: Any) -> int:
    """The id of the process of a session's JVM."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def jvm_memory(spark: SparkSession) -> dict[str, int]:
    """Memory of the session's JVM in bytes: peak resident size, and heap in use after a collection."""
    jvm: Any = spark._jvm
    status = Path(f"/proc/{jvm_pid(spark)}/status")
    memory = {}
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        memory["peak_resident"] = int(fields["VmHWM"].split()[0]) * 1024
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    memory["heap_after_gc"] = runtime.totalMemory() - runtime.freeMemory()
    return memory


def cpu_seconds(spark: SparkSession) -> float:
    """Processor time so far of a session's JVM and of the Python workers that it has started."""
    process = psutil.Process(jvm_pid(spark))
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def environment(spark: SparkSession) -> dict[str, Any]:
    """Returns what the numbers depend on, for the JSON file."""
    jvm: Any = spark._jvm
    return {
        "spark": spark.version,
        "java": jvm.System.getProperty("java.version"),
        "python": sys.version.split()[0],
        "hadoop": jvm.org.apache.hadoop.util.VersionInfo.getVersion(),
        "cpus": os.cpu_count(),
        "platform": " ".join(os.uname()[i] for i in (0, 2, 4)),
        "commit": commit(Path(__file__).parent) or None,
        "spark_conf": {
            key: value
            for key, value in spark.sparkContext.getConf().getAll()
            if key.startswith(("spark.sql.streaming", "spark.sql.shuffle", "spark.master", "spark.driver.memory"))
        },
    }


def commit(where: Path) -> str:
    """The commit that is in a directory; empty where nobody knows."""
    return (git(where, "rev-parse", "HEAD") or "").strip()


def git(where: Path, *arguments: str) -> str | None:
    """What git says in a directory; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=where)
    except OSError:
        return None
    return None if done.returncode else done.stdout
