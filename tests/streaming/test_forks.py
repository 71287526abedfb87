"""A query goes on from a fork and gives out what its source does, which goes on as well, and at last is emptied."""

import json
import shutil
import uuid
from pathlib import Path

import pytest

from pyspark_statestore.format import file_name
from tests.conftest import MakeSpark
from tests.jvm.harness import CREATED_MS, Checkpoint, refer
from tests.streaming.runs import STATE_STORE, Run, Setting, merged_files, plain_state_files, unload_stores
from tests.streaming.workloads import BATCHES, write_batches

pytestmark = pytest.mark.spark

CONF = {
    f"{STATE_STORE}maintenanceInterval": "300ms",
    f"{STATE_STORE}minDeltasForSnapshot": "1",
    f"{STATE_STORE}minVersionsToDelete": "0",
    "spark.sql.streaming.minBatchesToRetain": "1",
}
"""Snapshots soon, and old versions go at once."""


def fork(source: Run, folder: Path) -> Run:
    """What Spark has written is copied, the state is referred to, and pinned."""
    made = Run(source.spark, source.workload, source.setting, folder, source.input)
    shutil.copytree(source.checkpoint, made.checkpoint, ignore=shutil.ignore_patterns("_merged", ".*.crc"))
    (made.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    here, there = (Checkpoint(source.spark._jvm, run.checkpoint) for run in (source, made))
    files = sorted({name for name, _ in here.view().live.values()})
    pin = {"fork": str(made.checkpoint), "mode": "no_claim", "files": files, "created_ms": CREATED_MS}
    (here.merged / file_name(CREATED_MS, 98, 2).replace(".merged", ".fork")).write_text(json.dumps(pin))
    refer(here, there)
    return made


@pytest.mark.parametrize(
    ("workload", "setting"),
    [("aggregation", Setting("provider", "rocksdb", 2, checksums=True)), ("outer_join", Setting("provider", "heap"))],
    ids=str,
)
def test_a_query_goes_on(make_spark: MakeSpark, tmp_path: Path, workload: str, setting: Setting) -> None:
    spark = make_spark(CONF, mode="provider", store=setting.store)
    unload_stores(spark)
    source = Run(spark, workload, setting, tmp_path / "source")
    write_batches(source.input, range(2))
    source.run()
    unload_stores(spark)

    first = max(source.rows) + 1
    here = Checkpoint(spark._jvm, source.checkpoint)
    here.log.seal()
    forked = fork(source, tmp_path / "fork")
    live = {name for name, _ in here.view().live.values()}
    needed = {path: path.read_bytes() for path in merged_files(source.checkpoint) if path.name in live}
    write_batches(source.input, range(2, BATCHES))
    source.run()
    unload_stores(spark)
    here.fs.delete(here.path("0"), True)
    here.write("0/0/0.delta", b"the only file that lives")
    here.log.seal()
    here.clean()
    assert not live & {name for name, _ in here.view().live.values()}
    assert here.metrics()["unlinkedFiles"] > 0
    forked.run()
    unload_stores(spark)
    Checkpoint(spark._jvm, forked.checkpoint).clean()

    new = range(first, max(source.rows) + 1)
    assert {batch: forked.rows[batch] for batch in new} == {batch: source.rows[batch] for batch in new}
    assert {batch: forked.metrics[batch] for batch in new} == {batch: source.metrics[batch] for batch in new}
    assert min(forked.rows) == first
    assert [path for path, data in needed.items() if not path.read_bytes().startswith(data)] == []
    assert plain_state_files(forked.checkpoint) == []
