"""What commands that run Spark jobs show of them on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.callbacks import Callback
from pyspark.sql import SparkSession

from pyspark_statestore.cli.session import tasks_counted

TASKS = 6


class Recorder(Callback):
    """Keeps what it is told, and leaves a file for each job's size, and for how many of its tasks are done."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.jobs: list[tuple[int, int]] = []

    def set_size(self, size: int) -> None:
        self.jobs.append((size, 0))
        (self.folder / f"{size}-0").touch()

    def relative_update(self, inc: int = 1) -> None:
        size, done = self.jobs[-1]
        assert inc >= 0
        self.jobs[-1] = (size, done + inc)
        for each in range(done + 1, done + inc + 1):
            (self.folder / f"{size}-{each}").touch()


def job(spark: SparkSession, tasks: int, folder: Path) -> None:
    """Runs tasks one after the other, each of which waits until those before it were told."""

    def waits(partition: int, rows: Iterator[int]) -> Iterator[int]:
        while not (folder / f"{tasks}-{max(0, partition - 1)}").exists():
            time.sleep(0.01)
        yield from rows

    assert spark.sparkContext.range(0, tasks, numSlices=tasks).mapPartitionsWithIndex(waits).count() == tasks


@pytest.mark.sweep(0, files="kills and long runs")
@pytest.mark.spark
def test_tasks_are_counted_job_by_job(spark: SparkSession, tmp_path: Path) -> None:
    heard = Recorder(tmp_path)
    with tasks_counted(spark, heard, every_seconds=0.02):
        for tasks in (TASKS, 1, 2 * TASKS):
            job(spark, tasks, tmp_path)
    assert [size for size, _ in heard.jobs] == [TASKS, 1, 2 * TASKS]
    (some, _, more) = heard.jobs
    assert TASKS - 2 <= some[1] <= TASKS
    assert 2 * TASKS - 2 <= more[1] <= 2 * TASKS
    told = list(heard.jobs)
    job(spark, TASKS, tmp_path)
    assert heard.jobs == told
