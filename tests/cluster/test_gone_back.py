"""Executors of a new application do not take snapshots of what was given up for those of a process that took over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.sums import MASTER, PARTITIONS, settings
from tests.streaming.runs import Setting
from tests.streaming.test_gone_back import CONF, Query, goes_back

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="sessions in processes")]


def test_a_snapshot_of_what_was_given_up_is_replaced(
    make_spark: Callable[..., SparkSession], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    conf = {**settings((main_jar, test_jar)), **CONF, "spark.sql.streaming.minBatchesToRetain": "100"}
    setting = Setting("provider", "rocksdb")
    goes_back(Query(tmp_path, setting, lambda: make_spark(conf, mode="provider", master=MASTER)), PARTITIONS)
