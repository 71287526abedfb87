"""How many requests does a NameNode get? Stock Spark and merged state on a real HDFS, side by side, in one run.

python benchmarks/hdfs.py                                # aggregation, 50 partitions x 12 batches, provider door
python benchmarks/hdfs.py --workload stream_join --door path
python benchmarks/hdfs.py --master 'local-cluster[2,1,1024]'

Requests are counted in the NameNode's process, by their kind and the path that they name. The path tells requests for
state from those for Spark's own logs. The sum is compared with the NameNode's own metrics.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import hdfs_report  # noqa: E402
from benchmarks.filesystems import CallCounters, Counts  # noqa: E402
from benchmarks.local_hdfs import Call, HdfsUnavailable, LocalHdfs  # noqa: E402
from benchmarks.scenario import DOORS, SIDES, STORES, WORKLOADS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import BenchmarkError, Side, environment, merged_settings, start_session  # noqa: E402
from benchmarks.workloads import state_fingerprint, write_input  # noqa: E402

SPARKS_OWN_BELOW_STATE = {"_metadata", "_stateSchema"}


def category(path: str, side: str) -> str | None:
    """Returns the part of a side's checkpoint that a path is in.

    Args:
        path: The path in the request to the NameNode.
        side: The side's name, which is also the name of its checkpoint's directory.

    Returns:
        "merged" (below `state/_merged`), "state" (of state stores), "state_meta" (Spark's own, below `state/`), "logs"
        (the rest of a checkpoint, and the directory itself); None if the path is not the side's.
    """
    _, first, *rest = path.split("/") if path.startswith("/") else ("", "")
    if first != side:
        return None
    if rest[1:2] != ["state"]:
        return "logs"
    if rest[2:3] == ["_merged"]:
        return "merged"
    return "state_meta" if SPARKS_OWN_BELOW_STATE & set(rest) else "state"


class NameNodeCounters(CallCounters):
    """The counters that `Side` needs, read from the NameNode.

    Args:
        hdfs: The HDFS.
    """

    def __init__(self, hdfs: LocalHdfs) -> None:
        self._hdfs = hdfs

    def register(self, label: str, path: str) -> None:
        """Does nothing: the paths tell the sides apart."""

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns all counts of a side since the start, by category and kind of request."""
        counts: Counts = {}
        for call, count in self._hdfs.calls().items():
            if found := category(call.path, label):
                kinds = counts.setdefault(found, {})
                kinds[call.kind] = kinds.get(call.kind, 0) + count
        return {"clients": counts}


class HdfsSide(Side):
    """A side whose checkpoint is on HDFS."""

    url = ""

    @property
    def checkpoint(self) -> str:
        """The checkpoint's location as its query gets it."""
        location = f"{self.url}/{self.name}/checkpoint"
        return f"merged+{location}" if self.name == "merged" and self.scenario.door == "path" else location


def run(scenario: Scenario, master: str, conf: dict[str, str], hdfs: LocalHdfs, work: Path) -> dict[str, Any]:
    """Runs both sides, batch by batch in turn.

    Args:
        scenario: What to run.
        master: Spark's master.
        conf: More Spark settings.
        hdfs: The HDFS for the checkpoints.
        work: An empty directory for everything else.

    Returns:
        All raw numbers.

    Raises:
        BenchmarkError: If the sides' results differ, or the counts are not the NameNode's.
    """
    files = write_input(scenario, work / "staging")
    merged = merged_settings(scenario)
    spark = start_session(scenario, work, merged, master, {**hdfs.client_settings(), **conf})
    counters = NameNodeCounters(hdfs)
    sides = [HdfsSide(name, spark.newSession(), scenario, work / name, counters) for name in SIDES]
    HdfsSide.url = hdfs.url
    try:
        asked = _Asked(hdfs)
        for side in sides:
            side.start(merged)
            asked.note("start", side.name)
        for number, file in enumerate(files):
            for side in sides if number % 2 == 0 else reversed(sides):
                record = side.run_batch(file)
                print(f"  batch {number + 1:3}/{len(files)} {side.name:6} {record['trigger_ms']:6} ms", file=sys.stderr)
                asked.note(str(number), side.name)
        for side in sides:
            side.stop()
            if side.name == "merged" and master.startswith("local["):
                # What a process does when it ends.
                spark._jvm.io.pyspark.statestore.log.MergedLogs.sealAll()
            asked.note("stop", side.name)
        counted, bean = sum(hdfs.calls().values()), sum(hdfs.rpc_counts().values())
        if counted != bean:
            raise BenchmarkError(f"{counted} requests were counted, but the NameNode's metrics say {bean}")
        results = {
            side.name: {
                "output": [batch["output"] for batch in side.batches],
                "trigger_ms": [batch["trigger_ms"] for batch in side.batches],
                "state": state_fingerprint(side.session, scenario.workload, side.checkpoint),
            }
            for side in sides
        }
        for what in ("output", "state"):
            if results["stock"][what] != results["merged"][what]:
                raise BenchmarkError(f"{what} differs: {results['stock'][what]}, {results['merged'][what]}")
        if not sum(rows for rows, _ in results["stock"]["output"]):
            raise BenchmarkError("the query gave nothing out: this proves nothing")
        about = {"scenario": scenario.to_json(), "master": master, "conf": conf, "environment": environment(spark)}
        return {**about, "requests": asked.found, "name_node_total": bean, "sides": results}
    finally:
        for side in sides:
            side.stop()
        spark.stop()


class _Asked:
    """The requests to the NameNode, by the part of the run: `start`, the number of each batch, `stop`.

    Requests that name no path count for the side whose turn it is, since the other one waits for input. The exception
    is the renewal of leases every 30 s for all files that a process has open: only merged state keeps files open.
    """

    def __init__(self, hdfs: LocalHdfs) -> None:
        self._hdfs = hdfs
        self._before: Counter[Call] = Counter()
        self.found: list[dict[str, Any]] = []

    def note(self, part: str, turn: str) -> None:
        now = self._hdfs.calls()
        for call, count in sorted((now - self._before).items()):
            if call.path:
                side = next((name for name in SIDES if category(call.path, name)), None)
            else:
                side = "merged" if call.kind == "RenewLease" else turn
            if side is not None:
                what = category(call.path, side) or ("leases" if call.kind == "RenewLease" else "client")
                self.found.append({"part": part, "side": side, "category": what, **call._asdict(), "count": count})
        self._before = now


@click.command(context_settings={"show_default": True})
@click.option("--workload", type=click.Choice(WORKLOADS), default="aggregation")
@click.option("--door", type=click.Choice(DOORS), default="provider")
@click.option("--store", type=click.Choice(STORES), default="rocksdb")
@click.option("--partitions", type=click.IntRange(1), default=50)
@click.option("--batches", type=click.IntRange(2), default=12)
@click.option("--master", default="local[2]", help="local-cluster[2,1,1024] has two executors.")
@click.option(
    "--changelog/--no-changelog", default=False, help="RocksDB changelog checkpointing; Spark's default is off."
)
@click.option("--maintenance-interval", default="60s", help="Of both sides.")
@click.option("--rows-per-batch", type=click.IntRange(1), default=5_000)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting, such as spark.locality.wait=0s.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(master: str, conf: tuple[str, ...], build: bool, out: Path, **values: Any) -> None:
    """Count the requests to a NameNode that stock Spark and merged state cost."""
    scenario = Scenario(**values)
    if not scenario.possible():
        raise click.ClickException("Spark refuses this combination of workload, door and store")
    if build:
        build_shim()
    work = Path(tempfile.mkdtemp(prefix="hdfs-benchmark-"))
    try:
        with LocalHdfs() as hdfs:
            result = run(scenario, master, dict(each.split("=", 1) for each in conf), hdfs, work)
    except (BenchmarkError, HdfsUnavailable) as error:
        raise click.ClickException(str(error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    where = "" if master == "local[2]" else "-" + master.split("[")[0]
    name = f"hdfs-{scenario.workload}-{scenario.store}-{scenario.door}{where}"
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    hdfs_report.print_tables(result)
    hdfs_report.draw(result, out / f"{name}.png")
    print(f"raw numbers: {out / name}.json, picture: {out / name}.png", file=sys.stderr)


if __name__ == "__main__":
    main()
