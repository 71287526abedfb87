"""What the examples share: a session, stopping half-way and restarting, comparing with batch, what to look at next."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from examples import flights
from examples.options import Settings, with_settings
from examples.progress import BatchProgress

STOCK_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


@dataclass(frozen=True)
class RunPaths:
    """Where a run of an example writes.

    Attributes:
        output: the result, written by the query.
        checkpoint: the query's checkpointLocation: `merged+file:…` for the path door.
        folder: the real folder of that checkpoint.
    """

    output: Path
    checkpoint: str
    folder: Path

    def write(self, rows: DataFrame, *, available_now: bool = True) -> StreamingQuery:
        """Starts a query that appends rows to the result, or restarts it if its checkpoint is there.

        Args:
            rows: a stream.
            available_now: end when all is read that is there now; otherwise the query goes on until it is stopped.
        """
        writer = rows.writeStream.format("parquet").outputMode("append").option("path", str(self.output))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", self.checkpoint).start()


@dataclass(frozen=True)
class FlightPaths(RunPaths):
    """Where a run reads flights and writes. The `start` and `expected` of an example get it.

    Attributes:
        source: the daily files.
        files_per_trigger: days in a batch.
    """

    source: Path
    files_per_trigger: int

    def stream(self, spark: SparkSession, name: str = "flights") -> DataFrame:
        """Reads "flights" or "weather" as a stream of so many days a batch."""
        return flights.read(spark, self.source, name, files_per_trigger=self.files_per_trigger)

    def table(self, spark: SparkSession, name: str = "flights") -> DataFrame:
        """Reads the same rows as a table."""
        return flights.read(spark, self.source, name)


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
    stopped_after: int = 0
    batches: int = 0
    seconds: float = 0.0

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


Start = Callable[[SparkSession, FlightPaths], StreamingQuery]
Expected = Callable[[SparkSession, FlightPaths], DataFrame]


def session(settings: Settings, app_name: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """Builds a session. One call of `configure` turns merged state on; the rest is for the examples only.

    Args:
        settings: how to run.
        app_name: the application's name.
        more: further configuration.

    Returns:
        The session; as a context manager it stops at the end.
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


def new_run(settings: Settings, name: str) -> RunPaths:
    """Makes an empty folder for one run of an example.

    Args:
        settings: how to run.
        name: the example's name, which the folder's name begins with.
    """
    run = run_folder(settings, name)
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    folder = run.resolve() / "checkpoint"
    checkpoint = folder.as_uri()
    if settings.state == "merged" and settings.door == "path":
        from pyspark_statestore import merged_path

        checkpoint = merged_path(checkpoint)
    return RunPaths(run / "result", checkpoint, folder)


def prepare_run(settings: Settings, name: str) -> FlightPaths:
    """Makes an empty folder for one run, and writes the daily files if they do not exist."""
    source = flights.prepare(settings.work_dir, settings.days)
    return FlightPaths(**vars(new_run(settings, name)), source=source, files_per_trigger=settings.files_per_trigger)


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
        # More than one may have ended since the last look.
        for each in query.recentProgress if last is not None and last["batchId"] >= done else ():
            if each["batchId"] >= done:
                done = int(each["batchId"]) + 1
                progress.batch(each)
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


def tell(outcome: Outcome, whose: str = "") -> bool:
    """Prints whether a result equals the batch computation, and some of the differences; returns whether it does."""
    prefix = f"{whose}: " if whose else ""
    if outcome.equal:
        click.echo(f"{prefix}equal to the batch computation, row for row ({outcome.expected:,} rows)")
        return True
    click.echo(f"{prefix}DIFFERENT from the batch computation, which has {outcome.expected:,} rows", err=True)
    for kind, rows in (("missing", outcome.missing), ("surplus", outcome.surplus)):
        for row in rows:
            click.echo(f"  {kind}: {row}", err=True)
    return False


def look_next(checkpoint: Path, *commands: str) -> None:
    """Prints commands to paste, which look into what a run has left.

    Args:
        checkpoint: the checkpoint's folder.
        commands: commands of pyspark-statestore without its name. `{checkpoint}` is the checkpoint, `{run}` the folder
            that it is in, `{work}` the one around that.
    """
    folders = {"checkpoint": checkpoint, "run": checkpoint.parent, "work": checkpoint.parent.parent}
    places = {name: shlex.quote(str(folder)) for name, folder in folders.items()}
    click.echo("Look at next:")
    for command in commands:
        click.echo(f"  {command_line()} {command.format(**places)}")


def command_line() -> str:
    """Returns how to call pyspark-statestore: by its name if the PATH leads to this environment's, else by its path."""
    command = Path(sys.executable).with_name("pyspark-statestore")
    if shutil.which(command.name) == str(command):
        return command.name
    if command.exists():
        return shlex.quote(str(command))
    return f"{shlex.quote(sys.executable)} -m pyspark_statestore.cli"


def main(name: str, settings: Settings, start: Start, expected: Expected, look: Sequence[str]) -> int:
    """Runs an example from the command line, prints the result, and returns the exit code.

    Args:
        name: the example's name.
        settings: how to run.
        start: starts the query.
        expected: does the same computation in batch.
        look: commands to look at next; see `look_next`.
    """
    with session(settings, name) as spark:
        outcome = run(spark, settings, name, start, expected)
    return conclude(name, settings, outcome, look)


def conclude(name: str, settings: Settings, outcome: Outcome, look: Sequence[str]) -> int:
    """Prints what a run has done and left, and returns the exit code."""
    checkpoint = run_folder(settings, name).resolve() / "checkpoint"
    files = state_files(checkpoint)
    click.echo(
        f"{name}: {outcome.rows:,} rows from {outcome.batches} batches in {outcome.seconds:.0f} s, "
        f"stopped after {outcome.stopped_after} of them and restarted"
    )
    click.echo(f"files under state/: {files['merged']} merged, {files['plain']} plain, {files['bytes']:,} bytes")
    equal = tell(outcome)
    look_next(checkpoint, *look)
    return 0 if equal else 1


def command(text: str | None, name: str, start: Start, expected: Expected, look: Sequence[str], **choices: Any) -> Any:
    """Returns the command of an example that does no more than `main`.

    Args:
        text: the help.
        name: the example's name; `start`, `expected` and `look` are as for `main`.
        start: starts the query.
        expected: does the same computation in batch.
        look: commands to look at next.
        choices: which options the example has; see `with_settings`.
    """

    @click.command(help=text)
    @with_settings(**choices)
    def call(settings: Settings) -> None:
        sys.exit(main(name, settings, start, expected, look))

    return call
