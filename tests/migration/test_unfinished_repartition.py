"""Spark's offline repartitioning enters a batch in the logs and then finds that it does not know the state."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.log.spark_logs import PARTITIONS_KEY
from pyspark_statestore.session.doors import FILE_MANAGER_KEY
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.maintenance import builders
from tests.maintenance.builders import contents
from tests.maintenance.faults import Breakage, DiedError
from tests.migration.builders import MERGED, NOW, STOCK, at, make, providers, state_of_merged
from tests.streaming.runs import Run, Setting, assert_state_is_merged, session_conf
from tests.streaming.workloads import write_batches

BATCH = builders.LAST + 1
ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def begin_repartitioning(checkpoint: Path, base: int = builders.LAST, batch: int = BATCH) -> None:
    """As Spark does: the logs of the last committed batch with another number of partitions."""
    version, metadata, sources = (checkpoint / "offsets" / str(base)).read_text().split("\n")
    said = json.loads(metadata)
    said["conf"] = dict(sorted({**said["conf"], PARTITIONS_KEY: "5"}.items()))
    (checkpoint / "offsets" / str(batch)).write_text("\n".join([version, json.dumps(said), sources]))
    for skipped in range(base + 1, batch):
        (checkpoint / "commits" / str(skipped)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of the provider door."""
    return make(tmp_path / "q1")


def files(checkpoint: Path) -> dict[str, str]:
    """All files but the kept copies and the checksums of what was there."""
    return {
        name: data
        for name, data in contents(checkpoint).items()
        if not name.startswith("_replaced/") and not Path(name).name.startswith(".")
    }


@pytest.mark.parametrize("door", ["provider", "path"])
def test_it_is_undone_and_a_copy_is_kept(checkpoint: Path, door: str) -> None:
    before = files(checkpoint)
    begin_repartitioning(checkpoint)
    entry = (checkpoint / "offsets" / str(BATCH)).read_bytes()
    assert at(checkpoint).convert("merged", door=door, dry_run=True).undone_batch == BATCH
    assert (checkpoint / "offsets" / str(BATCH)).exists()

    done = at(checkpoint).convert("merged", door=door)

    assert (done.undone_batch, done.changed_entries_count) == (BATCH, 0 if door == "provider" else BATCH)
    assert done.provider_after == (MERGED if door == "provider" else STOCK)
    after = files(checkpoint)
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == (
        set() if door == "provider" else {f"offsets/{batch}" for batch in range(BATCH)}
    )
    assert done.kept_copy is not None
    with zipfile.ZipFile(BytesIO(Path(done.kept_copy.removeprefix("file://")).read_bytes())) as archive:
        assert archive.read(f"undone/offsets/{BATCH}") == entry
    assert at(checkpoint).convert("merged", door=door).undone_batch is None


def test_a_batch_that_it_skipped_is_begun_again(checkpoint: Path) -> None:
    """Its input would be lost otherwise: the logs say that it was processed."""
    skipped = builders.LAST
    (checkpoint / "commits" / str(skipped)).unlink()
    before = files(checkpoint)
    begin_repartitioning(checkpoint, base=skipped - 1, batch=BATCH)
    assert (checkpoint / "commits" / str(skipped)).exists()
    assert at(checkpoint).convert("merged").undone_batch == BATCH
    assert files(checkpoint) == before


def test_an_interrupted_one_is_ended_by_the_next(tmp_path: Path, breakage: Breakage) -> None:
    skipped = builders.LAST
    original = make(tmp_path / "original")
    (original / "commits" / str(skipped)).unlink()
    before = files(original)
    begin_repartitioning(original, base=skipped - 1, batch=BATCH)

    def convert_dying_at(operation: int | None, checkpoint: Path) -> bool:
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = operation, True, True
        try:
            at(checkpoint).convert("merged")
        except DiedError:
            return False
        return True

    for operation in itertools.count():
        checkpoint = tmp_path / str(operation)
        shutil.copytree(original, checkpoint)
        if convert_dying_at(operation, checkpoint):
            break
        assert convert_dying_at(None, checkpoint)
        assert files(checkpoint) == before
    assert operation > 3


def test_the_entry_is_no_sign_of_a_running_query(checkpoint: Path) -> None:
    for file in checkpoint.rglob("*"):
        if file.is_file():
            os.utime(file, (1_600_000_000, 1_600_000_000))
    begin_repartitioning(checkpoint)
    assert Checkpoint(checkpoint).convert("merged").undone_batch == BATCH


@pytest.mark.parametrize("merged", [True, False])
def test_what_has_written_state_has_to_be_finished(checkpoint: Path, merged: bool) -> None:
    begin_repartitioning(checkpoint)
    builders.write_version(checkpoint, BATCH + 1, merged=merged)
    before = contents(checkpoint)
    with refused("PSS_UNFINISHED_REPARTITION", "5 partitions"):
        at(checkpoint).convert("merged", force=True)
    assert contents(checkpoint) == before


@pytest.mark.parametrize("what", ["committed", "a batch of the query", "the same number"])
def test_other_batches_stay(checkpoint: Path, what: str) -> None:
    begin_repartitioning(checkpoint)
    entry = checkpoint / "offsets" / str(BATCH)
    if what == "committed":
        (checkpoint / "commits" / str(BATCH)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    elif what == "a batch of the query":
        entry.write_text(entry.read_text().replace('"batchTimestampMs": 3', '"batchTimestampMs": 4'))
    else:
        entry.write_text(entry.read_text().replace(f'"{PARTITIONS_KEY}": "5"', f'"{PARTITIONS_KEY}": "2"'))
    before = contents(checkpoint)
    assert at(checkpoint).convert("merged").undone_batch is None
    assert contents(checkpoint) == before


def test_to_stock_too(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "stock", "plain", provider=MERGED)
    begin_repartitioning(checkpoint)
    done = at(checkpoint).convert("stock")
    assert (done.undone_batch, done.changed_entries_count) == (BATCH, BATCH)
    assert set(providers(checkpoint)) == {STOCK}


def test_without_a_conversion_an_export_leaves_it_to_stock_spark(checkpoint: Path) -> None:
    begin_repartitioning(checkpoint)
    before = state_of_merged(checkpoint)
    at(checkpoint).export()
    assert providers(checkpoint) == [STOCK] * (BATCH + 1)
    assert state_of_merged(checkpoint) == before


def fail_to_repartition(spark: SparkSession, location: str, *, strict: bool) -> None:
    """In a session that refuses nothing before Spark does."""
    manager = spark.conf.get(FILE_MANAGER_KEY)
    spark.conf.unset(FILE_MANAGER_KEY)
    try:
        with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
            spark._streamingCheckpointManager.repartition(location, 5, strict)
    finally:
        spark.conf.set(FILE_MANAGER_KEY, manager)


@pytest.mark.since("4.2", "offline repartitioning came with Spark 4.2")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("store", "strict", "log_version", "checksums"),
    [
        ("rocksdb", True, 1, False),
        pytest.param("heap", False, 1, False, marks=pytest.mark.slow),
        pytest.param("rocksdb", False, 2, True, marks=pytest.mark.slow),
    ],
)
def test_a_query_goes_on(
    make_spark: MakeSpark, tmp_path: Path, store: str, strict: bool, log_version: int, checksums: bool
) -> None:
    spark = make_spark(mode="provider", store=store)
    conf = {**ONLY_DATA, "spark.sql.streaming.offsetLog.formatVersion": str(log_version)}
    setting = Setting("provider", store, 2 if checksums else 1, checksums=checksums)
    run = Run(spark, "aggregation", setting, tmp_path / "query")
    write_batches(run.input, range(3))
    run.run(conf)
    if not strict:  # the last batch did not end
        for file in (run.checkpoint / "commits").glob("*2*"):
            file.unlink()
        (run.checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    with session_conf(spark, {**run.setting.conf, **conf}):
        fail_to_repartition(spark, run.location, strict=strict)
    write_batches(run.input, range(3, 4))
    with pytest.raises(StreamingQueryException, match="STREAMING_UNFINISHED_REPARTITION_DETECTED"):
        run.run(conf)

    done = Checkpoint(run.checkpoint, closed_after=NOW).convert("merged")

    assert done.undone_batch == 3
    run.rows.pop(2)
    again = Run(spark, "aggregation", setting, run.folder)
    again.run(conf)
    assert again.rows.keys() == ({3} if strict else {2, 3})
    stock = Run(spark, "aggregation", Setting("stock", store), tmp_path / "stock", run.input)
    stock.run(conf)
    assert again.rows == {batch: stock.rows[batch] for batch in again.rows}
    assert_state_is_merged(again)
