"""Global aggregations and limits keep everything in one partition, whatever their metadata says."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.reshape.harness import at, given_out, go_on, partitions, repartitioned, since
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.spark

ALWAYS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false", **partitions(3)}

Build = Callable[[Callable[[], DataFrame]], DataFrame]


@pytest.fixture(params=["global aggregation", "limit"])
def run(request: pytest.FixtureRequest, make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A stopped query with three partitions, of which it uses one."""
    builds: dict[str, tuple[Build, str]] = {
        "global aggregation": (lambda stream: stream().agg(sf.count("*"), sf.sum("v")), "complete"),
        "limit": (lambda stream: stream().select("key").limit(7), "append"),
    }
    monkeypatch.setitem(WORKLOADS, request.param, Workload(*builds[request.param]))
    query = Run(make_spark(mode="provider"), request.param, Setting("provider", "rocksdb"), tmp_path / "query")
    return go_on(query, range(2), ALWAYS)


def test_it_is_whole(run: Run, tmp_path: Path) -> None:
    """It was refused to fork, export or convert such a query, and verification called it damaged."""
    checkpoint = at(run)
    assert {row["partition_id"] for row in checkpoint.inspect.versions().to_pylist()} == {0}
    assert checkpoint.maintenance.verify().is_clean
    fork = Run(run.spark, run.workload, run.setting, tmp_path / "fork", run.input)
    assert Checkpoint(run.checkpoint).fork(fork.checkpoint).version == 2

    go_on(fork, [2], ALWAYS)
    checkpoint.export()
    stock = Run(run.spark, run.workload, Setting("stock", "rocksdb"), tmp_path / "query", run.input)
    go_on(stock, (), ALWAYS)

    assert given_out(fork) == given_out(stock)
    assert len(given_out(fork)) == 1


@pytest.mark.since("4.0", "Spark 3.5 notes nowhere which operators a query has")
def test_what_is_lost_is_noticed(run: Run) -> None:
    (merged,) = (run.checkpoint / "state" / "_merged").glob("*.merged")
    merged.unlink()
    checkpoint = Checkpoint(run.checkpoint, closed_after=datetime.timedelta(0))
    assert not checkpoint.maintenance.verify().is_clean
    with refused("PSS_VERSION_NOT_RESTORABLE"):
        Checkpoint(run.checkpoint).fork(run.checkpoint.parent / "fork")


@since
def test_it_keeps_its_partition(run: Run) -> None:
    """Spark's repartitioning looks for state in partitions that there never were, and puts it where nobody looks."""
    if run.workload == "limit":
        with refused("PSS_CANNOT_REPARTITION", "Spark says of operator 0"):
            repartitioned(run, 5)
    else:
        assert repartitioned(run, 5).partitions == 5
        assert at(run).maintenance.verify().is_clean
    go_on(run, [2], ALWAYS)
    stock = Run(run.spark, run.workload, Setting("stock", "rocksdb"), run.checkpoint.parent / "stock", run.input)
    go_on(stock, (), ALWAYS)
    assert given_out(run) == given_out(stock)
