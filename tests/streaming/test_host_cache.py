"""A query that is started again on the same host reads no SST of its merged files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, forget
from tests.streaming.workloads import write_batch

pytestmark = pytest.mark.spark

SETTINGS = [
    Setting("provider", "rocksdb", changelog=False),
    Setting("path", "rocksdb", format_version=2, changelog=False, checksums=True),
]

CASES = [(setting, workload) for setting in SETTINGS for workload in ("aggregation", "outer_join")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the session keeps."""
    return tmp_path_factory.mktemp("host") / "cache"


@pytest.fixture
def session(make_spark: Callable[..., SparkSession], cache: Path) -> SparkSession:
    """A session with both doors and a cache of its own."""
    return make_spark(mode="provider", cache_dir=str(cache))


def loaded(spark: SparkSession, run: Run) -> tuple[int, int]:
    """Bytes of SSTs that this process had when it loaded stores, and that it had to fetch."""
    jvm: Any = spark.sparkContext._jvm
    metrics = jvm.io.pyspark.statestore.log.MergedLogs.all()[f"file:{run.checkpoint}/state"].metrics().snapshot()
    return metrics["cachedBytes"], metrics["fetchedBytes"]


@pytest.mark.parametrize(("setting", "workload"), sampled(CASES, 1), ids=str)
def test_a_restart_fetches_nothing(
    session: SparkSession, cache: Path, tmp_path: Path, setting: Setting, workload: str
) -> None:
    keeps, keeps_nothing = (
        Run(session, workload, setting, tmp_path / name, tmp_path / "input") for name in ("keeps", "keeps-nothing")
    )
    off = {f"{STATE_STORE}fileMerging.cache.sizeLimit": "0"}
    for batch in range(4):
        write_batch(keeps.input, batch)
        for run, conf in ((keeps, {}), (keeps_nothing, off)):
            forget(session, run.checkpoint)
            run.run(conf)
            had, fetched = loaded(session, run)
            if batch:
                assert (had > 0, fetched > 0) == ((True, False) if run is keeps else (False, True)), (had, fetched)

    # Another host.
    shutil.rmtree(cache)
    write_batch(keeps.input, 4)
    for run, conf in ((keeps, {}), (keeps_nothing, off)):
        forget(session, run.checkpoint)
        run.run(conf)
        assert loaded(session, run)[1] > 0
    assert keeps.rows == keeps_nothing.rows
    assert keeps.metrics == keeps_nothing.metrics
