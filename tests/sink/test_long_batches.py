"""A removal of orphans beside a batch that takes longer than the removal's age: what it has written is no orphan."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from pyspark_statestore import Sink
from tests.conftest import MakeSpark
from tests.jvm.harness import until
from tests.sink.sinks import STAGING, FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

HOUR = datetime.timedelta(hours=1)
SIGN = "_at_work"
UNLISTED = "part-00000-01234567-89ab-cdef-0123-456789abcdef-c000.snappy.parquet"


@pytest.fixture
def spark(make_spark: MakeSpark) -> Iterator[SparkSession]:
    """A session whose batches say every 100 ms that they are at work."""
    session = make_spark()
    signs: Any = session._jvm.io.pyspark.statestore.sink.Signs
    signs.every(100)
    yield session
    signs.every(300_000)


def held_up_by(flag: Path) -> Callable[[DataFrame], DataFrame]:
    """A query of which one row is not there before a file is."""
    path = str(flag)

    def wait(number: int) -> int:
        import os
        import time

        while number == 79 and not os.path.exists(path):
            time.sleep(0.05)
        return number

    waits = udf(wait, "long")
    return lambda rows: rows.repartition(4, "id").withColumn("id", waits("id"))


def aged(paths: Iterator[Path], age: datetime.timedelta) -> list[Path]:
    """Makes files look as if they were older."""
    found = [path for path in paths if path.is_file()]
    for path in found:
        os.utime(path, (time.time() - age.total_seconds(),) * 2)
    return found


def test_what_a_running_batch_has_staged_stays(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "go on"
    sink = FileSink(spark, tmp_path / "sink", change=held_up_by(flag))
    sink.feed(rows_of(0))
    sink.run()
    sink.feed(rows_of(1))
    staging = sink.files / STAGING
    with sink.running() as query:
        until(lambda: list(staging.glob(f"*/{SIGN}")) and list(staging.glob("*/part-*")), "a sign, and staged files")
        assert aged(staging.glob("*/part-*"), 2 * HOUR)
        removed = Sink(sink.files).remove_orphan_files(HOUR, dry_run=False)
        assert removed.removed_files_count == 0
        flag.touch()
        query.awaitTermination()
    assert sink.ids() == list(range(80))
    assert not list(sink.files.rglob(SIGN))


@pytest.mark.parametrize(
    ("said", "sign_age", "stays"),
    [
        (b"%d" % (3 * 3600 * 1000), 1, True),
        (b"%d" % (60 * 1000), 1, False),  # it began after the file was written
        (b"", 1, True),
        (b"9" * 30, 1, True),
        (b"-1", 1, True),
        (b"%d" % (3 * 3600 * 1000), 31, False),
    ],
)
def test_what_came_to_its_place_and_is_not_listed_yet_stays(
    make_spark: MakeSpark, tmp_path: Path, said: bytes, sign_age: int, stays: bool
) -> None:
    """A file keeps its age when it is renamed."""
    sink = FileSink(make_spark(), tmp_path / "sink")
    sink.feed(rows_of(0))
    sink.run()
    placed = sink.files / UNLISTED
    placed.write_bytes(b"PAR1")
    sign = sink.files / STAGING / "1-0123456789abcdef" / SIGN
    sign.parent.mkdir(parents=True)
    sign.write_bytes(said)
    aged(iter([placed]), 2 * HOUR)
    aged(iter([sign]), datetime.timedelta(minutes=sign_age))
    for dry_run in (True, False):
        found = Sink(sink.files).remove_orphan_files(HOUR, dry_run=dry_run)
        assert found.removed_files_count == (not stays)
    assert placed.exists() == stays
    assert sink.ids() == list(range(40))
