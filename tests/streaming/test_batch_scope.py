"""With groupCommit.scope=batch, a query says where Spark leaves no batch to wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.streaming.runs import STATE_STORE, Run, Setting, writes_checksums
from tests.streaming.test_metrics import log_lines
from tests.streaming.workloads import write_batches

pytestmark = pytest.mark.spark

LOG = "io.pyspark.statestore.log.MergedLog"


FORMAT = 1 if MINOR == "4.1" else 2
"""Of the checkpoint: 4.1 writes checksums with any, later versions with the second."""


@pytest.mark.skipif(not writes_checksums(FORMAT), reason="this Spark writes no checksum files")
@pytest.mark.parametrize("checksums", [True, False], ids=["checksums", "bare"])
def test_a_warning_says_that_checksums_leave_no_batch(make_spark: MakeSpark, tmp_path: Path, checksums: bool) -> None:
    spark = make_spark({f"{STATE_STORE}fileMerging.groupCommit.scope": "batch"}, mode="provider")
    run = Run(spark, "aggregation", Setting("provider", "rocksdb", FORMAT, checksums=checksums), tmp_path)
    write_batches(run.input, range(2))

    with log_lines(spark.sparkContext._jvm, LOG) as lines:
        run.run()
        said = [line for line in lines() if "groupCommit.scope=batch has no effect" in line]

    assert len(said) == int(checksums)
    assert all(str(run.checkpoint) in line and "fileChecksum.enabled=false" in line for line in said)
