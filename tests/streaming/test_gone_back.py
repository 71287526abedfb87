"""A query whose logs somebody has taken back to an earlier batch builds on what it has done since, and on nothing else.

What it had done before stays in the checkpoint: snapshots of versions that it comes to again, with other rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.checks import stable_view
from tests.inputs import appear
from tests.jvm.harness import until
from tests.streaming.runs import STATE_STORE, Setting, forget, session_conf, writes_checksums
from tests.streaming.test_restart_from_every_batch import forget_batches_after

pytestmark = [pytest.mark.spark]

CONF = {
    f"{STATE_STORE}maintenanceInterval": "100ms",
    # Of each version one is taken; of those that wait maintenance uploads the newest.
    f"{STATE_STORE}minDeltasForSnapshot": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
BATCHES = 8
LAST = 3
"""The batch that is the last one after the logs were taken back."""


class Query:
    """Adds up values, a file in a batch."""

    def __init__(self, folder: Path, setting: Setting, session: Callable[[], SparkSession]) -> None:
        self.setting, self.session = setting, session
        self.checkpoint, self.input = folder / "checkpoint", folder / "input"
        self.input.mkdir(parents=True)
        self.totals: dict[int, dict[int, int]] = {}

    def write(self, batch: int, value: int) -> None:
        lines = "\n".join(f'{{"key": {key}, "v": {value}}}' for key in range(40))
        appear(self.input / f"{batch:04}.json", lines, batch)

    def run(self, meanwhile: Callable[[StreamingQuery], object] = lambda query: None) -> None:
        """Reads all that is there in a new process, and ends when something has happened."""
        spark, totals = self.session(), self.totals
        # Maintenance begins again, too, with this session's interval.
        forget(spark, self.checkpoint)

        def take(batch: DataFrame, number: int) -> None:
            totals[number] = {row.key: row.total for row in batch.collect()}

        with session_conf(spark, self.setting.conf):
            rows = spark.readStream.schema("key LONG, v LONG").option("maxFilesPerTrigger", 1).json(str(self.input))
            writer = rows.groupBy("key").agg(sf.sum("v").alias("total")).writeStream.outputMode("update")
            writer = writer.option("checkpointLocation", self.setting.location(self.checkpoint))
            query = writer.foreachBatch(take).start()
        try:
            query.processAllAvailable()
            meanwhile(query)
        finally:
            query.stop()
        if "cluster" in spark.sparkContext.master:
            spark.stop()

    def snapshots(self, version: int) -> set[object]:
        """What tells the live snapshots of a version, one of each partition, from those that were there before."""
        live = stable_view(self.checkpoint / "state").live
        return {entry.key for path, (_, entry) in live.items() if re.fullmatch(rf"0/\d/{version}(_.*)?\.zip", path)}


def goes_back(query: Query, partitions: int) -> None:
    """Does batches, takes the logs back, does other batches instead, and goes on from these in a new process."""
    version = LAST + 3

    def goes_on(running: StreamingQuery) -> None:
        until(lambda: len(query.snapshots(version)) == partitions, "snapshots of the version that comes again")
        for batch in range(version, BATCHES):
            query.write(batch, 1)
        running.processAllAvailable()
        until(lambda: len(query.snapshots(BATCHES)) == partitions, "the last snapshots")

    for batch in range(version):
        query.write(batch, 1)
    query.run(goes_on)
    assert query.totals[BATCHES - 1] == dict.fromkeys(range(40), BATCHES)

    forget_batches_after(query.checkpoint, LAST)
    for batch in range(LAST + 1, BATCHES):
        (query.input / f"{batch:04}.json").unlink()
    for batch in (LAST + 1, LAST + 2):
        query.write(batch, 1000)
    given_up = query.snapshots(version)
    assert len(given_up) == partitions
    query.run(
        lambda _: until(lambda: len(query.snapshots(version) - given_up) == partitions, "snapshots of these rows")
    )

    # The next process loads that version.
    query.write(LAST + 3, 1000)
    query.run()
    assert query.totals[LAST + 3] == dict.fromkeys(range(40), LAST + 1 + 3 * 1000)


SETTINGS = [
    Setting("provider", "rocksdb"),
    Setting("provider", "rocksdb", format_version=2, checksums=True),
    Setting("path", "rocksdb", checksums=writes_checksums(1)),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_snapshot_of_what_was_given_up_is_replaced(
    make_spark: Callable[..., SparkSession], tmp_path: Path, setting: Setting
) -> None:
    goes_back(Query(tmp_path, setting, lambda: make_spark(CONF, mode=setting.door, store="rocksdb")), 3)
