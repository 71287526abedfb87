"""What do Spark's own logs cost in a batch? Every request of stock Spark and of this package's, by log and kind.

python benchmarks/sparks_logs.py                  # on a real HDFS and on real S3A, four minutes
python benchmarks/sparks_logs.py --place hdfs

A query that keeps no state copies files of a directory into a file sink, one in a batch. So it has all of the logs:
offsets, commits, that of its source, and the list of its sink. It keeps two batches, and removes at once what it may
remove, as a query does that has run for days. Twenty batches are counted, in which each log is repeated twice.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.local_hdfs import HdfsUnavailable, LocalHdfs  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from tests.s3.jars import S3AUnavailable, s3a_jars  # noqa: E402
from tests.s3.local_s3 import BUCKET, LocalS3  # noqa: E402
from tests.streaming import logs  # noqa: E402
from tests.streaming.logs import COUNTED, LOGS, WARM, Asked  # noqa: E402

SIDES = ("stock", "ours")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
    **logs.FEW_KEPT,
}

Place = tuple[str, dict[str, str], Callable[[], Asked]]
"""A URL, the settings of clients, and what was asked so far, by path and kind."""


@contextmanager
def hdfs() -> Iterator[Place]:
    """An HDFS."""
    with LocalHdfs() as servers:

        def asked() -> Asked:
            return Counter({(call.path, call.kind): count for call, count in servers.calls().items()})

        yield servers.url, servers.client_settings(), asked


@contextmanager
def s3a() -> Iterator[Place]:
    """A server that speaks S3, and a bucket of it."""
    with LocalS3() as servers:

        def asked() -> Asked:
            return Counter((f"/{request.key}", request.kind) for request in servers.proxy.requests)

        yield f"s3a://{BUCKET}", servers.spark_settings(), asked


PLACES = {"hdfs": hdfs, "s3a": s3a}


def by_log(asked: Asked, side: str) -> Asked:
    """Requests about a side's logs."""
    found: Asked = Counter()
    for (path, kind), count in asked.items():
        if path.startswith(f"/{side}/") and (log := logs.log_of(path)):
            found[log, kind] += count
    return found


def run(side: str, place: Place, work: Path) -> Asked:
    """Runs the query on a side, and returns what was asked in the counted batches."""
    from pyspark.sql import SparkSession

    from pyspark_statestore import configure

    url, settings, asked = place
    root = f"{url}/{side}"
    builder = SparkSession.builder.master("local[2]").appName("logs").config(map={**SETTINGS, **settings})
    spark = (configure(builder, mode="provider") if side == "ours" else builder).getOrCreate()
    try:
        counted = logs.steady(spark, work / side, root, lambda: by_log(asked(), side))
        if logs.ids(spark, root) != list(range(5 * (WARM + COUNTED))):
            raise click.ClickException(f"{side}: the sink does not have what the query read")
        return counted
    finally:
        spark.stop()


def table(found: dict[str, Asked]) -> str:
    """What was asked in a batch, by log and kind, as Markdown."""
    kinds = sorted({key for asked in found.values() for key in asked}, key=lambda key: (LOGS.index(key[0]), key[1]))
    lines = ["| log | request | stock | ours |", "|---|---|---:|---:|"]
    lines += [
        f"| `{log}` | {kind} | " + " | ".join(f"{found[side][log, kind] / COUNTED:.2f}" for side in SIDES) + " |"
        for log, kind in kinds
    ]
    for log in (*LOGS, ""):
        sums = [sum(n for (of, _), n in found[side].items() if log in ("", of)) / COUNTED for side in SIDES]
        lines.append(f"| {f'`{log}`' if log else '**all**'} | all | {sums[0]:.2f} | {sums[1]:.2f} |")
    return "\n".join(lines)


@click.command(context_settings={"show_default": True})
@click.option("--place", type=click.Choice(list(PLACES)), multiple=True, help="Where; both unless said.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(place: tuple[str, ...], build: bool, out: Path) -> None:
    """Count the requests about Spark's own logs."""
    if build:
        build_shim()
    from pyspark_statestore import jar_path

    result: dict[str, Any] = {}
    try:
        # One JVM runs all sides, with all jars. Without the settings of configure() they do nothing.
        jars = [str(jar_path()), *(map(str, s3a_jars()) if "s3a" in (place or PLACES) else ())]
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {':'.join(jars)} pyspark-shell"
        for name in place or PLACES:
            work = Path(tempfile.mkdtemp(prefix="sparks-logs-"))
            try:
                with PLACES[name]() as made:
                    found = {side: run(side, made, work) for side in SIDES}
            finally:
                shutil.rmtree(work, ignore_errors=True)
            print(f"\nrequests in a batch, {name}\n\n{table(found)}")
            result[name] = {
                side: [[log, kind, count] for (log, kind), count in sorted(asked.items())]
                for side, asked in found.items()
            }
    except (HdfsUnavailable, S3AUnavailable) as error:
        raise click.ClickException(str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    (out / "sparks-logs.json").write_text(json.dumps({"batches": COUNTED, "requests": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
