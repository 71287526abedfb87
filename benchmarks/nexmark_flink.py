"""Nexmark's queries on Flink and on Spark, over the same events: how many files and bytes has a file system to take?

python benchmarks/nexmark_flink.py                    # all queries; Spark; RocksDB and ForSt, file merging on and off
python benchmarks/nexmark_flink.py --query q4 --batches 4
python benchmarks/nexmark_flink.py --publish          # into docs/nexmark.md, on a quiet machine

Flink comes from PyPI, once, into an environment of its own. A file of events appears; when it is processed, a
checkpoint is triggered; then comes the next file. After the last one, SIGKILL ends the process, and another one starts
from the last checkpoint with one more file. Spark gets the same files, one in a batch, is killed, and starts again;
it has as many partitions as Flink has subtasks.

What this does not compare: Flink corrects results with each event and keeps state on local disks until a checkpoint,
Spark makes a commit of each batch. So a time of one is no time of the other. Files and bytes of a checkpoint are what a
file system has to take in both.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import nexmark  # noqa: E402
from benchmarks.flink import VERSION, FlinkError, Job, environment  # noqa: E402
from benchmarks.nexmark_events import Shape, write_files  # noqa: E402
from benchmarks.nexmark_figures import side_figures  # noqa: E402
from benchmarks.nexmark_queries import QUERIES  # noqa: E402
from benchmarks.report import put_into_page  # noqa: E402
from benchmarks.scenario import Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402

PUBLISHED = ROOT / "benchmarks" / "published" / "nexmark-flink.json"

SPARK = {"stock": "Spark", "merged": "Spark, merged"}
FLINK = {
    "rocksdb": "Flink, RocksDB",
    "rocksdb-merged": "Flink, RocksDB, merged files",
    "forst": "Flink, ForSt",
    "forst-merged": "Flink, ForSt, merged files",
}
COMPACTION = 4
"""RocksDB's `level0_file_num_compaction_trigger`, which Flink leaves as it is; a checkpoint makes one file of each."""
MAINTENANCE = "2s"
"""Of Spark, whose batches are short here: so each snapshot is uploaded soon enough to count."""
ENGINES = {**SPARK, **FLINK}
"""What runs the queries, and what the tables call it."""

# query -> engine -> figure -> value; or engine -> {"failed": why}
Figures = dict[str, dict[str, dict[str, Any]]]


def write_json(source: Path, target: Path) -> None:
    """Writes the events of a file as lines of JSON, as Flink reads them without more jars."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
        return value

    rows = pq.read_table(source).drop_columns(["arrival"]).to_pylist()
    target.write_text("".join(f"{json.dumps(plain(row))}\n" for row in rows))


def on_flink(python: Path, query: str, engine: str, parallelism: int, files: list[Path], events: int) -> dict[str, Any]:
    """Runs a query on Flink: a checkpoint after each file but the last one, which follows a restart.

    Args:
        python: Of the environment with Flink.
        query: The query's name.
        engine: One of FLINK.
        parallelism: Subtasks of each operator.
        files: The events as lines of JSON.
        events: In a file.

    Returns:
        Its figures, as `on_spark` returns them, and ``checkpoints``, each one as Flink tells of it.

    Raises:
        FlinkError: The job failed.
    """
    backend, _, merging = engine.partition("-")
    work = Path(tempfile.mkdtemp(prefix="nexmark-flink-"))
    try:
        job = Job(python, work, query, backend, bool(merging), parallelism)
        checkpoints = []
        try:
            for file in files[:-1]:
                _appear(file, work / "events")
                begun, moved = job.wait_until_processed()
                checkpoints.append({**job.checkpoint(), "seconds": moved - begun})
        finally:
            job.kill()
        _appear(files[-1], work / "events")
        again = Job(python, work, query, backend, bool(merging), parallelism, checkpoints[-1]["path"])
        try:
            processed = again.wait_until_processed()[1] - again.begun
            last = again.checkpoint()
        finally:
            again.kill()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {**flink_figures(checkpoints, events), "restart_seconds": processed + last["milliseconds"] / 1000}


def flink_figures(checkpoints: list[dict[str, Any]], events: int) -> dict[str, Any]:
    """Computes what `on_flink` returns, without the restart.

    Of the checkpoints after the first four, all fours count: each fourth one has what RocksDB and ForSt have
    compacted, which is most of the state, since they do so by default when there are four files on their first level.

    Args:
        checkpoints: All of them, as Flink tells of them.
        events: In a file.
    """
    whole = len(checkpoints) // COMPACTION * COMPACTION
    steady = checkpoints[COMPACTION:whole] or checkpoints[len(checkpoints) // 2 :]
    return {
        "files": statistics.mean(point["new_files"] for point in steady),
        "bytes": statistics.mean(point["new_bytes"] for point in steady),
        "files_left": steady[-1]["files"],
        "bytes_left": steady[-1]["bytes"],
        "events_per_second": events / statistics.median(point["seconds"] for point in steady),
        "checkpoints": [{name: value for name, value in point.items() if name != "path"} for point in checkpoints],
    }


def _appear(file: Path, folder: Path) -> None:
    hidden = folder / f".{file.name}"
    hidden.hardlink_to(file)
    hidden.rename(folder / file.name)


def on_spark(query: str, parallelism: int, shape: Shape) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Runs a query on Spark's RocksDB, stock and merged, on the local disk.

    Args:
        query: The query's name.
        parallelism: Partitions.
        shape: Of the events before the kill.

    Returns:
        The figures of both, and what they depend on. Of each: the means ``files`` and ``bytes`` that a batch writes
        (its files with those for Spark's own logs, its bytes without them); ``files_left`` and ``bytes_left`` of state;
        ``restart_seconds`` from the query's start to the end of its first batch; ``events_per_second``.
    """
    scenario = Scenario(workload="nexmark", partitions=parallelism, maintenance_interval=MAINTENANCE)
    run = nexmark.run_part("measure", scenario, shape, query=query, place="local", sides=[*SPARK], following=0)
    found = {}
    for side in SPARK:
        figures = side_figures(run["sides"][side], shape.events)
        names = {"files": "all_files", "bytes": "state_bytes"}
        same = ("files_left", "bytes_left", "restart_seconds", "events_per_second")
        found[side] = {name: figures[names.get(name, name)] for name in (*names, *same)}
    return found, run["environment"]


def summary(found: Figures) -> list[str]:
    """A table in Markdown, a row for each query: files and MB for each checkpoint or batch, and the restart."""
    engines = [name for name in ENGINES if any(name in each for each in found.values())]
    lines = ["| query | " + " | ".join(ENGINES[name] for name in engines) + " |", "|---|" + "---:|" * len(engines)]
    for query, each in found.items():
        cells = []
        for name in engines:
            of = each.get(name, {})
            if "files" in of:
                cells.append(f"{of['files']:,.1f}; {of['bytes'] / 1e6:,.2f}; {of['restart_seconds']:.1f}")
            else:
                cells.append("failed" if "failed" in of else "")
        lines.append(f"| {query} | {' | '.join(cells)} |")
    return lines


def table(found: Figures) -> list[str]:
    """All figures as a table in Markdown, a row for each query and engine."""
    lines = [
        "| query | engine | new files | new MB | files left | MB left | restart, s | events a second |",
        "|---|---|" + "---:|" * 6,
    ]
    for query, engines in found.items():
        for name, each in engines.items():
            if "failed" in each:
                why = " ".join(each["failed"].replace("|", "/").split())
                cells = [f"failed: {why[:80]}", *[""] * 5]
            else:
                cells = [
                    f"{each['files']:,.1f}",
                    f"{each['bytes'] / 1e6:,.2f}",
                    f"{each['files_left']:,}",
                    f"{each['bytes_left'] / 1e6:,.1f}",
                    f"{each['restart_seconds']:.1f}",
                    f"{each['events_per_second']:,.0f}",
                ]
            lines.append(f"| {query} | {ENGINES[name]} | {' | '.join(cells)} |")
    return lines


def publish(run: dict[str, Any], published: Path, page: Path) -> None:
    """Writes figures beside the benchmark, and the summary into the page.

    Queries that were published before stay.

    Args:
        run: What `main` keeps: ``about`` and ``queries``.
        published: The file with all figures; a table is written beside it.
        page: The page.

    Raises:
        click.ClickException: Other queries were run with other versions, cores or events, or the page has no place for
            the summary. Nothing is published then.
    """
    before: dict[str, Any] = json.loads(published.read_text()) if published.exists() else {"queries": {}}
    others = set(before["queries"]) - set(run["queries"])
    if others and before["about"] != run["about"]:
        raise click.ClickException(
            f"not published: {', '.join(sorted(others))} were run with {before['about']}, and this with "
            f"{run['about']}. Publish all of them: --publish"
        )
    queries = {**before["queries"], **run["queries"]}
    kept = {"about": run["about"], "queries": {name: queries[name] for name in QUERIES if name in queries}}
    about, found = kept["about"], kept["queries"]
    said = [
        "Each cell: new files of a checkpoint or batch; their MB; seconds from a restart after SIGKILL to the first "
        "events and a checkpoint.",
        "",
        *summary(found),
        "",
        f"Flink {about['flink']} with {about['parallelism']} subtasks, Spark {about['spark']} with as many partitions; "
        f"{about['shape']['batches']} files of {about['shape']['events']:,} events; Java {about['java']}, "
        f"{about['cpus']} cores, a local disk.",
    ]
    # This comes first: it refuses a page that has no place for it.
    put_into_page(page, "flink", ["", *said, ""])
    published.parent.mkdir(exist_ok=True)
    published.write_text(json.dumps(kept, indent=1) + "\n")
    text = "\n".join(["# Nexmark, Flink and Spark, all figures", "", *table(found)])
    published.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")


@click.command(context_settings={"show_default": True})
@click.option("--query", "queries", type=click.Choice(list(QUERIES)), multiple=True, help="All without it.")
@click.option("--engine", "engines", type=click.Choice(list(ENGINES)), multiple=True, default=tuple(ENGINES))
@click.option("--parallelism", type=click.IntRange(1), default=4, help="Flink's subtasks, Spark's partitions.")
@click.option(
    "--batches", type=click.IntRange(2), default=nexmark.SHAPE.batches, help="Of Spark, and checkpoints of Flink."
)
@click.option("--events", type=click.IntRange(50), default=10_000)
@click.option("--seconds", type=click.IntRange(1), default=10)
@click.option("--seed", default=20130101)
@click.option("--publish", "is_published", is_flag=True, help="Write figures into the repository, and into the page.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
@click.pass_context
def main(
    context: click.Context,
    queries: tuple[str, ...],
    engines: tuple[str, ...],
    parallelism: int,
    batches: int,
    events: int,
    seconds: int,
    seed: int,
    is_published: bool,
    out: Path,
) -> None:
    """Count the files of Flink's checkpoints and of Spark's, over the same events."""
    if is_published and nexmark.said_options(context) - {"is_published", "queries", "out"}:
        raise click.UsageError("--publish runs queries as they are by default: say --query at most")
    if is_published:
        nexmark.refuse_changes(nexmark.changes())
    nexmark.require_writable(out)
    build_shim()
    try:
        python = environment()
    except FlinkError as error:
        raise click.ClickException(f"{error}. Spark alone: benchmarks/nexmark.py") from error
    shape = Shape(batches, events, seconds, seed)
    work = Path(tempfile.mkdtemp(prefix="nexmark-events-"))
    about: dict[str, Any] = {"flink": VERSION, "parallelism": parallelism, "shape": asdict(shape)}
    found: Figures = {}
    try:
        files = []
        for file in write_files(replace(shape, batches=batches + 1), work / "parquet"):
            files.append(work / f"{file.stem}.json")
            write_json(file, files[-1])
        for query in (name for name in QUERIES if not queries or name in queries):
            found[query] = {}
            if any(name in SPARK for name in engines):
                found[query], versions = on_spark(query, parallelism, shape)
                about |= {name: versions[name] for name in ("spark", "java", "cpus")}
            for name in (name for name in FLINK if name in engines):
                try:
                    found[query][name] = on_flink(python, query, name, parallelism, files, events)
                except FlinkError as error:
                    found[query][name] = {"failed": str(error)}
            print("\n".join(table({query: found[query]})[2:]), file=sys.stderr, flush=True)
            kept = {"about": about, "queries": found}
            (out / "nexmark-flink.json").write_text(json.dumps(kept, indent=1) + "\n")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n".join(table(found)))
    print(f"raw numbers: {out}/nexmark-flink.json", file=sys.stderr)
    failed = [f"{query} on {ENGINES[name]}" for query, each in found.items() for name in each if "failed" in each[name]]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")
    if is_published:
        publish(kept, PUBLISHED, nexmark.PAGE)


if __name__ == "__main__":
    nexmark.end_in_order()
    main()
