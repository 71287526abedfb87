"""Two attempts of one task, on two hosts, that write the same rows of a batch, or join the same files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.cluster.sums import Hold, settings
from tests.cluster.two_hosts import SPECULATION, require_hosts, two_hosts
from tests.jvm.harness import TESTING, until
from tests.sink.sinks import FileSink, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]


def in_two_tasks(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "id")


def test_each_row_is_there_once(make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path) -> None:
    """The slow attempts are killed; one of them takes no notice and goes on when its batch is committed."""
    require_hosts()
    holds = tmp_path / "holds"
    conf = {
        **settings((main_jar, test_jar)),
        **SPECULATION,
        "spark.hadoop.fs.filegate.impl": f"{TESTING}.FileGateFileSystem",
        "spark.hadoop.fs.filegate.directory": str(holds),
    }
    with two_hosts(tmp_path / "work") as master:
        spark = make_spark(conf, master=master)
        try:
            sink = FileSink(spark, tmp_path / "sink", "parquet", ("q",), {}, in_two_tasks, "filegate")
            for batch, (place, deaf) in enumerate(itertools.product(("staged", "joined"), (False, True))):
                slow, copy = (Hold(holds, f"{place}-0-{attempt}", deaf=deaf and not attempt) for attempt in (0, 1))
                sink.feed(rows_of(batch))
                with sink.running() as query:
                    # Both wait: else the copy might commit before the slow one has come.
                    slow.wait()
                    copy.wait()
                    copy.release()
                    query.awaitTermination()
                for attempt in (0, 1):
                    (holds / f"held-{place}-0-{attempt}").unlink()
                slow.release()
                assert len(sink.listed(batch)) == 2
                assert sink.ids() == list(range(40 * (batch + 1)))
            # What comes too late is where no reader looks.
            listed = {file for batch in range(4) for file in sink.listed(batch)}
            until(lambda: not spark.sparkContext.statusTracker().getActiveStageIds(), "the end of all tasks")
            assert {*sink.present_outside_staging()} == listed
        finally:
            spark.stop()
