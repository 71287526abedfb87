"""The same streaming query on stock Spark and on merged state, side by side: what it costs in files, calls and time.

    python -m examples.demo

The query is a windowed aggregation over a year of flights (`examples.windowed_delays`). Each side is a process of its
own and runs over a local file system that counts every call. Everything in the table is measured while you watch.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.filesystems import METADATA_CALLS, TEST_JAR
from examples import flights
from examples.harness import look_next
from examples.options import Settings
from examples.progress import BatchProgress

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"stock": "stock Spark", "merged": "merged state"}
NEXT = """\
Then:
  python -m examples.follow_aircraft      every example: stopped half-way, restarted, compared with batch
  python -m benchmarks.small_files        the benchmark: joins, deduplication, sessions, both doors, added latency
  README.md, examples/README.md           how to switch it on for a query of yours: one call
"""


@dataclass(frozen=True)
class Options:
    """The options that both sides share.

    Attributes:
        days: days of flights.
        batches: about how many batches to make of them.
        partitions: shuffle partitions.
        store: Spark's state store.
        door: how merged state is switched on.
        delay: milliseconds added to each metadata call.
        work_dir: where everything is written.
    """

    days: int
    batches: int
    partitions: int
    store: str
    door: str
    delay: int
    work_dir: Path

    @property
    def files_per_trigger(self) -> int:
        """Days in a batch."""
        return math.ceil(self.days / self.batches)


class DemoError(click.ClickException):
    """A side failed, or the sides differ."""


def measure(state: str, options: Options) -> dict[str, Any]:
    """Runs one side and shows its progress.

    Args:
        state: "stock" or "merged".
        options: the options of both sides.

    Returns:
        The measures: the result event of `examples.measure`.
    """
    command = [sys.executable, "-m", "examples.measure", "--state", state]
    for name in ("days", "partitions", "store", "door", "delay", "work_dir", "files_per_trigger"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    log = options.work_dir / f"demo-{state}.log"
    result: dict[str, Any] = {}
    with (
        BatchProgress(f"{TITLES[state]:12}", math.ceil(options.days / options.files_per_trigger)) as progress,
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "batch":
                progress.batch(event)
            elif event.get("event") == "result":
                result = event
    if process.returncode or not result:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise DemoError(f"{TITLES[state]} failed with exit code {process.returncode}; the end of {log}:\n{tail}")
    return result


def table(results: dict[str, dict[str, Any]], options: Options) -> Table:
    """Returns a table that compares the sides."""
    shown = Table(
        title=f"{options.days} days of flights in {next(iter(results.values()))['batches']} batches, "
        f"{options.partitions} shuffle partitions, {options.store}",
        caption="calls as a NameNode sees them; an hflush goes to DataNodes"
        + (f"; {options.delay} ms added to each call" if options.delay else ""),
    )
    shown.add_column("")
    for state in results:
        shown.add_column(TITLES[state], justify="right")
    shown.add_column("ratio", justify="right")

    def row(title: str, of: Any, text: Any = "{:,}".format, *, end: bool = False) -> None:
        values = [of(result) for result in results.values()]
        cells = ["-" if value is None else text(value) for value in values]
        ratio = ""
        if len(values) == 2 and all(values):
            ratio = f"{values[1] / values[0]:.2g}"
        shown.add_row(title, *cells, ratio, end_section=end)

    row("files created under state/", lambda result: result["calls"].get("create", 0), end=True)
    row("file-system calls for state", lambda result: sum(result["calls"].get(kind, 0) for kind in METADATA_CALLS))
    for kind in (*METADATA_CALLS, "hflush"):
        if any(result["calls"].get(kind) for result in results.values()):
            row(f"  {kind}", lambda result, kind=kind: result["calls"].get(kind, 0), end=kind == "hflush")
    shown.add_section()
    row("files left under state/", lambda result: result["files"])
    row("bytes left under state/", lambda result: result["bytes"])
    row("space amplification", lambda result: result["amplification"], "{:.2f}".format, end=True)
    row("median batch", lambda result: result["median_ms"], lambda ms: f"{ms / 1000:.2f} s")
    row("whole query", lambda result: result["seconds"], "{:.0f} s".format)
    row("processor time, start included", lambda result: result["processor_ms"], lambda ms: f"{ms / 1000:.0f} s")
    return shown


def same_rows(results: dict[str, dict[str, Any]]) -> int:
    """Checks that the sides wrote the same rows, and returns how many."""
    order = [("origin", "ascending"), ("start", "ascending")]
    written = {state: pq.read_table(result["output"]).sort_by(order) for state, result in results.items()}
    first, *others = written.values()
    for other in others:
        if not other.equals(first):
            raise DemoError(f"The sides wrote different rows: {first.num_rows:,} and {other.num_rows:,}.")
    return int(first.num_rows)


@click.command(help=__doc__)
@click.option("--days", type=click.IntRange(2, flights.YEAR_DAYS), default=flights.YEAR_DAYS, show_default=True)
@click.option("--batches", type=click.IntRange(1, 100), default=20, show_default=True, help="How many, about.")
@click.option("--partitions", type=click.IntRange(1), default=50, show_default=True, help="Shuffle partitions.")
@click.option("--store", type=click.Choice(("rocksdb", "heap")), default="rocksdb", show_default=True)
@click.option("--door", type=click.Choice(("provider", "path")), default="provider", show_default=True)
@click.option("--delay", type=click.IntRange(0), default=0, help="Milliseconds to add to each metadata call.")
@click.option("--work-dir", type=click.Path(path_type=Path), default=Settings.work_dir, show_default=True)
@click.option("--only", type=click.Choice(("stock", "merged")), help="Run one side alone.")
def main(only: str | None, **values: Any) -> None:
    """Runs the demo."""
    if not TEST_JAR.exists():
        raise DemoError(f"{TEST_JAR} is missing, the file system that counts: python jvm-shim/build.py --tests")
    options = Options(**values)
    console = Console()
    flights.prepare(options.work_dir, options.days)
    results = {state: measure(state, options) for state in TITLES if only in (None, state)}
    rows = same_rows(results)
    console.print(table(results, options))
    if len(results) == 2:
        console.print(f"Both wrote the same {rows:,} rows.\n")
    if "merged" in results:
        look_next(Path(results["merged"]["checkpoint"]), "report {checkpoint} -o {run}/report.html", "list {work}")
        click.echo(NEXT, nl=False)


if __name__ == "__main__":
    main()
