"""What commands that run Spark jobs show of them on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fsspec.callbacks import Callback
from pyspark.sql import SparkSession

from pyspark_statestore.cli.session import tasks_counted

TASKS = 6


class Recorder(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[tuple[int, int]] = []

    def set_size(self, size: int) -> None:
        self.jobs.append((size, 0))

    def relative_update(self, inc: int = 1) -> None:
        size, done = self.jobs[-1]
        assert inc >= 0
        self.jobs[-1] = (size, done + inc)


def slowly(rows: Iterator[int]) -> Iterator[int]:
    time.sleep(0.3)
    yield from rows


@pytest.mark.spark
def test_tasks_are_counted_job_by_job(spark: SparkSession) -> None:
    heard = Recorder()
    with tasks_counted(spark, heard, every_seconds=0.02):
        for tasks in (TASKS, 1, 2 * TASKS):
            assert spark.sparkContext.range(0, tasks, numSlices=tasks).mapPartitions(slowly).count() == tasks
    assert [size for size, _ in heard.jobs] == [TASKS, 1, 2 * TASKS]
    (some, _, more) = heard.jobs
    assert 0 < some[1] <= TASKS
    assert 0 < more[1] <= 2 * TASKS
    told = list(heard.jobs)
    spark.sparkContext.range(0, 2, numSlices=2).mapPartitions(slowly).count()
    assert heard.jobs == told
