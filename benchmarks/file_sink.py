"""What does a file sink leave behind, and what does a batch cost? Stock Spark and ours, batch by batch in turn.

python benchmarks/file_sink.py                  # 64 tasks x 10 partition values x 50 batches, 5 ms a metadata call
python benchmarks/file_sink.py --delay-ms 0
python benchmarks/file_sink.py --quick          # 16 tasks x 4 values x 8 batches

A reader polls each sink's list of files all the time. In the end both sinks are read as a whole. Then the files of the
stock sink are joined, as of one that is old, and it is read again.
"""

from __future__ import annotations

import datetime
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.filesystems import METADATA_CALLS, CallCounters, Counts, calls, minus  # noqa: E402
from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.scenario import Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import start_session  # noqa: E402
from pyspark_statestore.session.doors import COMMIT_PROTOCOL_KEY, COMPACTING_PROTOCOL  # noqa: E402
from pyspark_statestore.sink.sink import Sink as OldSink  # noqa: E402
from tests.meanwhile import meanwhile  # noqa: E402
from tests.sink.manifest import listed  # noqa: E402

MOST_TIME = 1.25
MOST_READING = 0.2


@dataclass
class Sink:
    """One side.

    Attributes:
        name: "stock" or "merged".
        session: Its session.
        root: The local directory of all that it writes.
        counters: The JVM's counters.
        batches: What was measured of each.
        most_visible: Of a batch and partition value, the most files that a reader has found.
    """

    name: str
    session: SparkSession
    root: Path
    counters: CallCounters
    batches: list[dict[str, Any]] = field(default_factory=list)
    most_visible: int = 0
    _query: StreamingQuery | None = None
    _before: dict[str, Counts] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        """The sink."""
        return self.root / "files"

    @property
    def location(self) -> str:
        """The sink as Spark is told."""
        return f"counting:{self.files}"

    def start(self, tasks: int) -> None:
        """Starts the query."""
        (self.root / "input").mkdir(parents=True)
        if self.name != "stock":
            self.session.conf.set(COMMIT_PROTOCOL_KEY, COMPACTING_PROTOCOL)
        self.counters.register(self.name, str(self.files))
        rows = self.session.readStream.schema("id long, value int, word string").parquet(str(self.root / "input"))
        self._query = (
            rows.repartition(tasks, "id")
            .writeStream.format("parquet")
            .partitionBy("value")
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .start(self.location)
        )
        self._query.processAllAvailable()

    def run_batch(self, source: Path) -> None:
        """Feeds one file and waits until it is processed."""
        assert self._query is not None
        hidden = self.root / "input" / f".{source.name}"
        shutil.copyfile(source, hidden)
        hidden.rename(self.root / "input" / source.name)
        self._query.processAllAvailable()
        progress = self._query.lastProgress
        assert progress is not None
        after = self.counters.snapshot(self.name)
        found = calls(minus(after, self._before), tuple({c for thread in after.values() for c in thread}))
        self._before = after
        self.batches.append({"ms": progress["durationMs"]["triggerExecution"], "calls": found})

    def poll(self) -> None:
        """Looks at what a reader would find now."""
        for entry, files in listed(self.files).items():
            if entry.isdecimal():
                each = Counter(file.parent for file in files)
                self.most_visible = max(self.most_visible, *each.values())

    def read_all(self) -> tuple[float, tuple[Any, ...]]:
        """Reads everything; the seconds it took, and what was there."""
        begin = time.monotonic()
        rows = self.session.read.parquet(self.location)
        found = rows.agg(F.count("*"), F.sum("id"), F.sum(F.xxhash64("id", "value", "word") % 1_000_003)).first()
        assert found is not None
        return time.monotonic() - begin, tuple(found)

    def stop(self) -> None:
        """Stops the query."""
        assert self._query is not None
        self._query.stop()


def write_input(spark: SparkSession, folder: Path, batches: int, rows: int, values: int) -> list[Path]:
    """Writes a file for each batch."""
    folder.mkdir(parents=True)
    files = []
    for batch in range(batches):
        made = spark.range(batch * rows, (batch + 1) * rows, numPartitions=1)
        made = made.selectExpr("id", f"cast(id % {values} AS int) AS value", "sha2(cast(id AS string), 256) AS word")
        made.write.parquet(str(folder / str(batch)))
        (part,) = (folder / str(batch)).glob("part-*.parquet")
        files.append(part.rename(folder / f"{batch:06}.parquet"))
    return files


def measure(sink: Sink) -> dict[str, Any]:
    """What one side has come to."""
    steady = sink.batches[2:]
    named = [file for files in listed(sink.files).values() for file in files]
    by_kind = {kind: statistics.median(b["calls"].get(kind, 0) for b in steady) for kind in METADATA_CALLS}
    seconds, content = sink.read_all()
    return {
        "files": len(named),
        "bytes": sum(file.stat().st_size for file in named),
        "most_visible": sink.most_visible,
        "batch_seconds": statistics.median(b["ms"] for b in steady) / 1000,
        "batches": sink.batches,
        "calls_by_kind": by_kind,
        "calls": sum(by_kind.values()),
        "read_seconds": seconds,
        "content": content,
        "left_in_staging": sum(1 for path in (sink.files / "_spark_metadata/_staging").rglob("*") if path.is_file()),
    }


def join_old(sink: Sink, before: dict[str, Any]) -> dict[str, Any]:
    """What joining the files of a sink that stock Spark has written takes, and what reading gains."""
    begin = time.monotonic()
    done = OldSink(sink.files).compact(older_than=datetime.timedelta(0), spark=sink.session)
    seconds = time.monotonic() - begin
    read_seconds, content = sink.read_all()
    if content != before["content"]:
        raise click.ClickException(f"joined files hold {content}, and {before['content']} was there")
    files = [file for named in listed(sink.files).values() for file in named]
    return {
        "joined_files": done.rewritten_data_files_count,
        "seconds": seconds,
        "files": {"before": before["files"], "after": len(files)},
        "read_seconds": {"before": before["read_seconds"], "after": read_seconds},
    }


def print_old(old: dict[str, Any]) -> None:
    """Prints what joining old files has brought."""
    table = Table(title="The stock sink's files, joined later", title_justify="left", title_style="bold")
    for column in ("", "before", "after", "after / before"):
        table.add_column(column, justify="right" if column else "left")
    for label, key, digits in (("files", "files", 0), ("seconds to read everything", "read_seconds", 2)):
        before, after = old[key]["before"], old[key]["after"]
        table.add_row(label, f"{before:,.{digits}f}", f"{after:,.{digits}f}", f"{after / before:.3g}")
    Console(width=max(110, Console().width)).print(table)
    print(f"joining {old['joined_files']:,} files took {old['seconds']:.1f} s")


def print_table(title: str, sides: dict[str, dict[str, Any]]) -> None:
    """Prints both sides and their ratio."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", *sides, "merged / stock", "allowed"):
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)

    def row(label: str, key: str, digits: int = 0, limit: float | None = None) -> None:
        values = {name: side[key] for name, side in sides.items()}
        ratio = values["merged"] / values["stock"] if values["stock"] else None
        met = "" if limit is None or ratio is None else f"at most {limit}: {ratio <= limit}"
        cells = [f"{value:,.{digits}f}" for value in values.values()]
        table.add_row(label, *cells, "-" if ratio is None else f"{ratio:.3g}", met)

    row("files, and entries of the list", "files", limit=1 / 20)
    row("most files of a batch and value that a reader has seen", "most_visible")
    row("bytes", "bytes")
    row("median batch, seconds", "batch_seconds", 2, MOST_TIME)
    row("metadata calls for the sink in a median batch", "calls")
    for kind in METADATA_CALLS:
        if any(side["calls_by_kind"][kind] for side in sides.values()):
            values = [f"{side['calls_by_kind'][kind]:,.0f}" for side in sides.values()]
            table.add_row(f"  {kind}", *values, "", "")
    row("seconds to read everything", "read_seconds", 2, MOST_READING)
    row("files left in staging", "left_in_staging")
    Console(width=max(110, Console().width)).print(table)


def draw(title: str, sides: dict[str, dict[str, Any]], target: Path) -> None:
    """Draws files, time of a batch and of reading, stock beside ours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figures = {"files": "files", "batch_seconds": "median batch, seconds", "read_seconds": "seconds to read everything"}
    figure, axes = plt.subplots(1, 3, figsize=(13, 2.6), layout="constrained")
    for axis, (key, label) in zip(axes, figures.items(), strict=True):
        for name, side in sides.items():
            axis.barh([name], [side[key]], color=COLOURS[name], height=0.6)
            axis.text(side[key], name, f" {side[key]:,.3g}" if key != "files" else f" {side[key]:,}", va="center")
        axis.set_xlim(0, max(side[key] for side in sides.values()) * 1.25)
        axis.set_xlabel(label)
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    figure.savefig(target, dpi=110)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--tasks", type=click.IntRange(1), default=64, help="That write each batch.")
@click.option("--values", type=click.IntRange(1), default=10, help="Of the partition column.")
@click.option("--batches", type=click.IntRange(4), default=50)
@click.option("--rows-per-batch", type=click.IntRange(1), default=64_000)
@click.option("--delay-ms", type=click.IntRange(0), default=5, help="Sleep in each metadata call of both sides.")
@click.option("--quick", is_flag=True, help="16 tasks, 4 values, 8 batches.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    tasks: int, values: int, batches: int, rows_per_batch: int, delay_ms: int, quick: bool, build: bool, out: Path
) -> None:
    """Write the same batches through both protocols, and compare what is there and what it took."""
    if build:
        build_shim()
    if quick:
        tasks, values, batches = 16, 4, 8
    work = Path(tempfile.mkdtemp(prefix="file-sink-"))
    from pyspark_statestore import jar_path

    try:
        spark = start_session(Scenario(), work, {"spark.jars": jar_path()})
        files = write_input(spark, work / "source", batches, rows_per_batch, values)
        counters = CallCounters(spark)
        sinks = [Sink(name, spark.newSession(), work / name, counters) for name in ("stock", "merged")]
        for sink in sinks:
            sink.start(tasks)
        counters.delay(delay_ms)
        with ExitStack() as polled:
            for sink in sinks:
                polled.enter_context(meanwhile(sink.poll, 0.1))
            for file in files:
                for sink in sinks:
                    sink.run_batch(file)
        for sink in sinks:
            sink.stop()
        sides = {sink.name: measure(sink) for sink in sinks}
        old = join_old(sinks[0], sides["stock"])
        spark.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if sides["stock"]["content"] != sides["merged"]["content"]:
        raise click.ClickException(f"the sinks differ: {[side['content'] for side in sides.values()]}")
    # Each has less than the target size.
    if sides["merged"]["files"] > batches * values or sides["merged"]["most_visible"] > 1:
        raise click.ClickException(f"{sides['merged']['files']} files, where {batches * values} hold them")
    title = f"{tasks} tasks x {values} values x {batches} batches of {rows_per_batch:,} rows, {delay_ms} ms a call"
    out.mkdir(parents=True, exist_ok=True)
    (out / "file_sink.json").write_text(
        json.dumps({"title": title, "sides": sides, "old": old}, indent=1, default=str) + "\n"
    )
    draw(title, sides, out / "file_sink.png")
    print_table(title, sides)
    print_old(old)
    print(f"raw numbers: {out}/file_sink.json, picture: {out}/file_sink.png", file=sys.stderr)


if __name__ == "__main__":
    main()
