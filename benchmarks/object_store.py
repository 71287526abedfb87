"""How many requests does a bucket get? Stock Spark and merged state on a real S3A, side by side, in one run.

python benchmarks/object_store.py                          # aggregation, 50 partitions x 20 batches, 50 ms a request
python benchmarks/object_store.py --workload stream_join
python benchmarks/object_store.py --quick

Merged state runs twice: as it is by default, and with `groupCommit.scope=batch`. moto is the server, on loopback. A
proxy before it adds the latency, and counts each request by its kind and by the part of the checkpoint that it is
about. After the batches all sides forget what they know, as a new process, and start again with one more batch.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.filesystems import CallCounters, Counts  # noqa: E402
from benchmarks.scenario import DOORS, STORES, WORKLOADS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import BenchmarkError, Side, environment, merged_settings, start_session  # noqa: E402
from benchmarks.targets import Figure, publish  # noqa: E402
from benchmarks.workloads import state_fingerprint, write_input  # noqa: E402
from tests.s3.jars import S3AUnavailable, s3a_jars  # noqa: E402
from tests.s3.local_s3 import BUCKET, LocalS3, class_path_settings  # noqa: E402
from tests.s3.proxy import counts, table  # noqa: E402

STATE = ("state/", "state/_merged/")
"""The parts of a checkpoint in which state is; the others are Spark's own."""

SIDES = ("stock", "merged", "batch-scope")
OURS = SIDES[1:]
SCOPE = "spark.sql.streaming.stateStore.fileMerging.groupCommit.scope"

STEADY_FROM = 2
"""The first batches make directories and read what is not there yet."""

KINDS = ("PUT", "COPY", "DELETE", "BULK_DELETE", "GET", "HEAD", "LIST")


class NoCounters(CallCounters):
    """For `Side`, which counts calls of file systems: here the proxy counts."""

    def __init__(self) -> None:
        pass

    def register(self, label: str, path: str) -> None:
        """Does nothing: the keys tell the sides apart."""

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns nothing."""
        return {}


class S3Side(Side):
    """A side whose checkpoint is in the bucket."""

    @property
    def key(self) -> str:
        """The checkpoint's, in the bucket."""
        return f"{self.name}/checkpoint"

    @property
    def checkpoint(self) -> str:
        """The checkpoint's location as its query gets it."""
        location = f"s3a://{BUCKET}/{self.key}"
        return f"merged+{location}" if self.is_merged and self.scenario.door == "path" else location

    def start(self, merged: dict[str, str]) -> None:
        """Starts the query, with the scope of its group commits."""
        super().start(merged | {SCOPE: "batch"} if self.name == "batch-scope" else merged)


class _Asked:
    """The requests about each side, by the part of the run: `start`, the number of each batch, `restart`."""

    def __init__(self, s3: LocalS3) -> None:
        self._s3 = s3
        self._seen = 0
        self.found: list[dict[str, Any]] = []

    def note(self, part: str) -> None:
        new = self._s3.proxy.since(self._seen)
        self._seen += len(new)
        for side in SIDES:
            for where, kinds in counts(new, f"{side}/checkpoint").items():
                self.found.extend(
                    {"part": part, "side": side, "where": where, "kind": kind, "count": count}
                    for kind, count in sorted(kinds.items())
                )


def run(scenario: Scenario, s3: LocalS3, latency_ms: float, conf: dict[str, str], work: Path) -> dict[str, Any]:
    """Runs all sides, batch by batch in turn, and restarts them.

    Args:
        scenario: What to run; the last of its batches follows the restart.
        s3: The server.
        latency_ms: What each request waits.
        conf: More Spark settings.
        work: An empty directory for everything else.

    Returns:
        All raw numbers.

    Raises:
        BenchmarkError: If the sides' results differ.
    """
    *files, last = write_input(scenario, work / "staging")
    merged = merged_settings(scenario)
    spark = start_session(scenario, work, merged, more={**s3.spark_settings(), **conf})
    sides = [S3Side(name, spark.newSession(), scenario, work / name, NoCounters()) for name in SIDES]
    restart_s: dict[str, float] = {}
    s3.proxy.latency = latency_ms / 1000
    try:
        asked = _Asked(s3)
        for side in sides:
            side.start(merged)
        asked.note("start")
        for number, file in enumerate(files):
            for side in sides if number % 2 == 0 else reversed(sides):
                record = side.run_batch(file)
                print(
                    f"  batch {number + 1:3}/{len(files)} {side.name:11} {record['trigger_ms']:6} ms", file=sys.stderr
                )
            asked.note(str(number))
        for side in sides:
            side.stop()
        _forget(spark)
        asked.note("stop")
        for side in sides:
            begun = time.perf_counter()
            side.start(merged)
            side.run_batch(last)
            restart_s[side.name] = time.perf_counter() - begun
            print(f"  restart with a batch {side.name:11} {restart_s[side.name]:6.1f} s", file=sys.stderr)
            side.stop()
        asked.note("restart")
        s3.proxy.latency = 0.0
        results: dict[str, dict[str, Any]] = {
            side.name: {
                "output": [batch["output"] for batch in side.batches],
                "trigger_ms": [batch["trigger_ms"] for batch in side.batches[:-1]],
                "restart_s": restart_s[side.name],
                "objects": len([key for key in s3.keys(f"{side.key}/state/") if not key.endswith("/")]),
                "state": state_fingerprint(side.session, scenario.workload, side.checkpoint),
            }
            for side in sides
        }
        for what, name in itertools.product(("output", "state"), OURS):
            if results["stock"][what] != results[name][what]:
                raise BenchmarkError(f"{what} differs: {results['stock'][what]}, {name} {results[name][what]}")
        if not sum(rows for rows, _ in results["stock"]["output"]):
            raise BenchmarkError("the query gave nothing out: this proves nothing")
        about = {"scenario": scenario.to_json(), "latency_ms": latency_ms, "conf": conf}
        return {**about, "environment": environment(spark), "requests": asked.found, "sides": results}
    finally:
        s3.proxy.latency = 0.0
        for side in sides:
            side.stop()
        spark.stop()


def _forget(spark: Any) -> None:
    """Lets this JVM forget its state stores and all that it knows of merged files."""
    jvm = spark._jvm
    getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()
    logs = jvm.io.pyspark.statestore.log.MergedLogs
    logs.sealAll()
    for side in OURS:
        logs.forgetBelow(jvm.org.apache.hadoop.fs.Path(f"s3a://{BUCKET}/{side}"))


def requests(result: dict[str, Any], side: str, parts: set[str]) -> dict[str, Counter[str]]:
    """Requests about a side in some parts of a run: by the part of the checkpoint and by kind."""
    found: dict[str, Counter[str]] = {}
    for each in result["requests"]:
        if each["side"] == side and each["part"] in parts:
            found.setdefault(each["where"], Counter())[each["kind"]] += each["count"]
    return dict(sorted(found.items()))


def figures(result: dict[str, Any]) -> list[Figure]:
    """What was measured, with the targets."""
    batches = len(result["sides"]["stock"]["trigger_ms"])
    steady = {str(number) for number in range(STEADY_FROM, batches)}
    of = {side: requests(result, side, steady) for side in SIDES}
    state, everything, median, kinds = {}, {}, {}, {}
    for side in SIDES:
        kinds[side] = sum((of[side].get(where, Counter()) for where in STATE), Counter())
        state[side] = kinds[side].total() / len(steady)
        everything[side] = sum(kind.total() for kind in of[side].values()) / len(steady)
        median[side] = statistics.median(result["sides"][side]["trigger_ms"][STEADY_FROM:])
    restart = {side: result["sides"][side]["restart_s"] for side in SIDES}

    def over_stock(what: str, of_side: dict[str, float], most: dict[str, float]) -> list[Figure]:
        ratio = {side: of_side[side] / of_side["stock"] for side in OURS}
        return [Figure(f"{what}, {side} / stock", ratio[side], most=most.get(side)) for side in OURS]

    return [
        *(Figure(f"{side}: requests for state, a batch", state[side]) for side in SIDES),
        *over_stock("requests for state", state, {"merged": 0.1, "batch-scope": 0.05}),
        *(Figure(f"{side}: all requests, a batch", everything[side]) for side in SIDES),
        *over_stock("all requests", everything, {}),
        Figure("merged: PUTs of state, a batch", kinds["merged"]["PUT"] / len(steady)),
        # This process is the only executor.
        Figure("batch-scope: PUTs of state, a batch", kinds["batch-scope"]["PUT"] / len(steady), most=1),
        *(Figure(f"{side}: LISTs of state, a batch", kinds[side]["LIST"] / len(steady), most=0) for side in OURS),
        *(Figure(f"{side}: objects below state/", result["sides"][side]["objects"]) for side in SIDES),
        *(Figure(f"{side}: median batch", median[side] / 1000, "s") for side in SIDES),
        *over_stock("median batch", median, dict.fromkeys(OURS, 0.4)),
        *(Figure(f"{side}: restart with a batch", restart[side], "s") for side in SIDES),
        *over_stock("restart", restart, dict.fromkeys(OURS, 0.3)),
    ]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draws the requests of a steady batch by kind, for state and in all."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    batches = len(result["sides"]["stock"]["trigger_ms"])
    steady = {str(number) for number in range(STEADY_FROM, batches)}
    figure, axis = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    for what, parts in (("state", STATE), ("all", None)):
        for side in SIDES:
            found = requests(result, side, steady)
            kinds = sum((found[where] for where in found if parts is None or where in parts), Counter())
            left = 0.0
            for number, kind in enumerate(KINDS):
                width = kinds[kind] / len(steady)
                label = kind if (what, side) == ("state", SIDES[0]) else None
                axis.barh([f"{side}, {what}"], [width], left=left, color=f"C{number}", label=label)
                left += width
    axis.invert_yaxis()
    axis.set_xlabel("requests a batch")
    axis.legend(ncols=len(KINDS), frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--workload", type=click.Choice(WORKLOADS), default="aggregation")
@click.option("--door", type=click.Choice(DOORS), default="provider")
@click.option("--store", type=click.Choice(STORES), default="rocksdb")
@click.option("--partitions", type=click.IntRange(1), default=50)
@click.option("--batches", type=click.IntRange(STEADY_FROM + 2), default=20)
@click.option("--latency-ms", type=float, default=50.0, help="What each request waits in the proxy.")
@click.option("--changelog/--no-changelog", default=True, help="RocksDB changelog checkpointing.")
@click.option("--rows-per-batch", type=click.IntRange(1), default=5_000)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
@click.option("--quick", is_flag=True, help="4 partitions, 5 batches, 5 ms.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    conf: tuple[str, ...], latency_ms: float, quick: bool, build: bool, out: Path, batches: int, **values: Any
) -> None:
    """Count the requests to an object store that stock Spark and merged state cost."""
    if quick:
        values["partitions"], batches, latency_ms = 4, 5, 5.0
    # One more, for the restart.
    scenario = Scenario(batches=batches + 1, **values)
    if not scenario.possible():
        raise click.ClickException("Spark refuses this combination of workload, door and store")
    if build:
        build_shim()
    work = Path(tempfile.mkdtemp(prefix="object-store-benchmark-"))
    try:
        settings = {**class_path_settings(s3a_jars()), **dict(each.split("=", 1) for each in conf)}
        with LocalS3() as s3:
            result = run(scenario, s3, latency_ms, settings, work)
    except (BenchmarkError, S3AUnavailable) as error:
        raise click.ClickException(str(error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    result["conf"] = dict(each.split("=", 1) for each in conf)
    for part in ("a steady batch", "a restart with a batch"):
        steady = [str(number) for number in range(STEADY_FROM, batches)]
        for side in SIDES:
            found = requests(result, side, set(steady) if part == "a steady batch" else {"restart"})
            print(f"{side}, {part}{f' (sum of {len(steady)})' if 'steady' in part else ''}\n{table(found)}")
    name = f"object-store-{scenario.workload}-{scenario.store}-{scenario.door}{'-quick' if quick else ''}"
    title = f"{scenario.title()}, {latency_ms:g} ms a request"
    publish(name, title, result, figures(result), lambda path: draw(result, path), out)


if __name__ == "__main__":
    main()
