"""What the examples share: a session, stopping half-way and restarting, comparing with batch, command-line options."""

from __future__ import annotations

import functools
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from examples import flights
from examples.progress import BatchProgress

STOCK_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


@dataclass(frozen=True)
class Settings:
    """How to run an example: its command-line options.

    Attributes:
        state: "merged", or "stock" for plain Spark without this package.
        door: "provider" (a configuration key) or "path" (`merged+…` in front of the checkpoint's path).
        store: "rocksdb" or "heap".
        days: how many days of the year.
        work_dir: where input, checkpoint and result go.
        partitions: shuffle partitions, that is, state stores for each stateful operator.
        files_per_trigger: days in a batch.
    """

    state: str = "merged"
    door: str = "provider"
    store: str = "rocksdb"
    days: int = flights.YEAR_DAYS
    work_dir: Path = Path(tempfile.gettempdir()) / "pyspark-statestore-examples"
    partitions: int = 4
    files_per_trigger: int = 14


@dataclass(frozen=True)
class RunPaths:
    """Where a run of an example reads and writes. Its `start` and `expected` get it.

    Attributes:
        source: the daily files.
        output: the result, written by the query.
        checkpoint: the query's checkpointLocation: `merged+file:…` for the path door.
        folder: the real folder of that checkpoint.
        files_per_trigger: days in a batch.
    """

    source: Path
    output: Path
    checkpoint: str
    folder: Path
    files_per_trigger: int


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        rows: rows that the streaming query wrote.
        expected: rows of the batch computation.
        missing: rows of the batch computation that the query did not write.
        surplus: rows that the query wrote and the batch computation does not have.
        stopped_after: batches done when the query was stopped half-way.
        batches: batches done in the end.
        seconds: duration of the streaming part.
    """

    rows: int
    expected: int
    missing: list[Any]
    surplus: list[Any]
    stopped_after: int
    batches: int
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether query and batch have the same rows, each as often."""
        return self.rows == self.expected and not self.missing and not self.surplus


class ShowsBatches(Protocol):
    """What `follow` calls for each finished batch."""

    def batch(self, progress: Any) -> None:
        """Takes a finished batch's progress."""


class Quiet:
    """Shows no batches."""

    def batch(self, progress: Any) -> None:
        """Shows nothing."""


Start = Callable[[SparkSession, RunPaths], StreamingQuery]
Expected = Callable[[SparkSession, RunPaths], DataFrame]


def session(settings: Settings, app_name: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """Builds a session. One call of `configure` turns merged state on; the rest is for the examples only.

    Args:
        settings: how to run.
        app_name: the application's name.
        more: further configuration.
    """
    builder = (
        SparkSession.builder.appName(app_name)
        .master("local[*]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", settings.partitions)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in (more or {}).items():
        builder = builder.config(key, value)
    if settings.state == "merged":
        from pyspark_statestore import configure

        builder = configure(builder, mode=settings.door, store=settings.store)
    else:
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", STOCK_PROVIDERS[settings.store])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_folder(settings: Settings, name: str) -> Path:
    """Returns the folder for an example's runs with these settings."""
    return settings.work_dir / "-".join((name, settings.state, settings.door, settings.store))


def prepare_run(settings: Settings, name: str) -> RunPaths:
    """Writes the input if it does not exist, and makes an empty folder for one run.

    Args:
        settings: how to run.
        name: the example's name, which the folder's name begins with.
    """
    source = flights.prepare(settings.work_dir, settings.days)
    run = run_folder(settings, name)
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    folder = run.resolve() / "checkpoint"
    checkpoint = folder.as_uri()
    if settings.state == "merged" and settings.door == "path":
        from pyspark_statestore import merged_path

        checkpoint = merged_path(checkpoint)
    return RunPaths(source, run / "result", checkpoint, folder, settings.files_per_trigger)


def run(
    spark: SparkSession, settings: Settings, name: str, start: Start, expected: Expected, *, quiet: bool = False
) -> Outcome:
    """Runs a query to the middle, stops it, restarts it from its checkpoint, and compares its result with batch.

    Args:
        spark: a session for these settings.
        settings: how to run.
        name: the example's name, for its folder and the progress display.
        start: starts the query; called twice, with the same paths.
        expected: does the same computation in batch.
        quiet: no progress display.
    """
    where = prepare_run(settings, name)
    batches = math.ceil(settings.days / settings.files_per_trigger)
    began = time.monotonic()
    with BatchProgress(name, batches, quiet=quiet) as progress:
        query = start(spark, where)
        stopped_after = follow(query, progress, until=max(1, batches // 2))
        stop(spark, query)
        progress.say(f"stopped after {stopped_after} batches; restarting from the checkpoint")
        query = start(spark, where)
        done = follow(query, progress)
    seconds = time.monotonic() - began
    actual = spark.read.parquet(str(where.output))
    return compare(actual, expected(spark, where), stopped_after=stopped_after, batches=done, seconds=seconds)


def follow(query: StreamingQuery, progress: ShowsBatches, until: int | None = None) -> int:
    """Shows a query's batches while it runs, until it ends or has done some batches.

    Args:
        query: a started query.
        progress: where to show its batches.
        until: return when this many batches are done.

    Returns:
        How many batches were done.
    """
    done = 0
    while True:
        active = query.isActive
        last = query.lastProgress
        if last is not None and last["batchId"] >= done:
            done = int(last["batchId"]) + 1
            progress.batch(last)
            if until is not None and done >= until:
                return done
        if not active:
            break
        time.sleep(0.05)
    query.awaitTermination()
    return done


def stop(spark: SparkSession, query: StreamingQuery) -> None:
    """Stops a query, as in real life most likely in the middle of a batch. After a restart it does that batch again.

    Spark logs a long stack trace for the interrupted batch, which would only confuse here.
    """
    spark.sparkContext.setLogLevel("OFF")
    query.stop()
    spark.sparkContext.setLogLevel("ERROR")


def compare(actual: DataFrame, expected: DataFrame, **facts: Any) -> Outcome:
    """Compares two tables row for row, with duplicates, and keeps up to five differences of each kind."""
    actual, expected = actual.cache(), expected.select(actual.columns).cache()
    try:
        return Outcome(
            rows=actual.count(),
            expected=expected.count(),
            missing=expected.exceptAll(actual).limit(5).collect(),
            surplus=actual.exceptAll(expected).limit(5).collect(),
            **facts,
        )
    finally:
        actual.unpersist()
        expected.unpersist()


def state_files(folder: Path) -> dict[str, int]:
    """Counts the files under a checkpoint's `state/`: merged ones, and the plain ones that Spark itself writes."""
    files = [file for file in (folder / "state").rglob("*") if file.is_file()]
    merged = sum(1 for file in files if "_merged" in file.relative_to(folder).parts)
    return {"merged": merged, "plain": len(files) - merged, "bytes": sum(file.stat().st_size for file in files)}


def main(name: str, settings: Settings, start: Start, expected: Expected) -> int:
    """Runs an example from the command line, prints the result, and returns the exit code."""
    spark = session(settings, name)
    try:
        outcome = run(spark, settings, name, start, expected)
    finally:
        spark.stop()
    checkpoint = run_folder(settings, name) / "checkpoint"
    files = state_files(checkpoint)
    click.echo(
        f"{name}: {outcome.rows:,} rows from {outcome.batches} batches in {outcome.seconds:.0f} s, "
        f"stopped after batch {outcome.stopped_after} and restarted"
    )
    click.echo(f"files under state/: {files['merged']} merged, {files['plain']} plain, {files['bytes']:,} bytes")
    click.echo(f"checkpoint: {checkpoint}")
    if outcome.equal:
        click.echo(f"equal to the batch computation, row for row ({outcome.expected:,} rows)")
        return 0
    click.echo(f"DIFFERENT from the batch computation, which has {outcome.expected:,} rows", err=True)
    for row in outcome.missing:
        click.echo(f"  missing: {row}", err=True)
    for row in outcome.surplus:
        click.echo(f"  surplus: {row}", err=True)
    return 1


def options(
    *,
    doors: tuple[str, ...] = ("provider", "path"),
    stores: tuple[str, ...] = ("rocksdb", "heap"),
    files_per_trigger: int = Settings.files_per_trigger,
) -> Any:
    """Adds the examples' options to a command, which gets them as one `Settings` before its own options.

    Args:
        doors: the doors that the example can take, the default one first.
        stores: the stores that it can use, the default one first.
        files_per_trigger: the default number of days in a batch.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            settings = Settings(**{field.name: values.pop(field.name) for field in fields(Settings)})
            command(settings, **values)

        defaults = Settings()
        for option in reversed(
            (
                click.option(
                    "--state", type=click.Choice(("merged", "stock")), default="merged", help="Stock is plain Spark."
                ),
                click.option(
                    "--door", type=click.Choice(doors), default=doors[0], help="How merged state is switched on."
                ),
                click.option("--store", type=click.Choice(stores), default=stores[0], help="Spark's state store."),
                click.option("--days", type=click.IntRange(2, flights.YEAR_DAYS), default=defaults.days),
                click.option("--work-dir", type=click.Path(path_type=Path), default=defaults.work_dir),
                click.option("--partitions", type=click.IntRange(1), default=defaults.partitions),
                click.option("--files-per-trigger", type=click.IntRange(1), default=files_per_trigger),
            )
        ):
            call = option(call)
        return call

    return decorate
