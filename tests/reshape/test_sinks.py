"""Queries that write files: a repartitioning, its way back and a fork leave a list with which all goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore import Checkpoint, Sink
from pyspark_statestore.cli.main import cli
from tests.conftest import MakeSpark
from tests.migration.builders import NOW
from tests.reshape.harness import partitions, since
from tests.sink.sinks import FileSink, rows_of

pytestmark = [pytest.mark.spark, since, pytest.mark.sweep(1, files="reshape")]

INTERVAL = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}
CONF = {**INTERVAL, "spark.sql.streaming.noDataMicroBatches.enabled": "false", **partitions(2)}
COUNT = 4
"""Rows of a batch."""


def distinct(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["id"])


def begun(spark: SparkSession, folder: Path, batches: int) -> FileSink:
    """A query with state in two partitions, which repeats its sink's list with each third batch."""
    return go_on(FileSink(spark, folder, change=distinct), batches)


def go_on(sink: FileSink, batches: int, *, compacting: bool = True, **options: str) -> FileSink:
    sink.feed(*(rows_of(sink.fed + number, COUNT) for number in range(batches)))
    sink.run(compacting=compacting, conf=CONF, **options)
    return sink


def at(sink: FileSink) -> Checkpoint:
    return Checkpoint(sink.checkpoint, closed_after=NOW)


def all_ids(sink: FileSink, first: int = 0) -> list[int]:
    return list(range(first * COUNT, sink.fed * COUNT))


@pytest.mark.parametrize("door", ["provider", "path"])
@pytest.mark.parametrize(
    ("batches", "compacting", "entry"), [(4, False, "4"), (5, False, "5.compact"), (2, True, "2.compact")]
)
def test_the_query_goes_on_over_the_next_repetition_of_the_list(
    make_spark: MakeSpark, tmp_path: Path, door: str, batches: int, compacting: bool, entry: str
) -> None:
    spark = make_spark(mode=door)
    # What waits to be published must not be forgotten, either.
    options: dict[str, Any] = {"maxDelay": "10h"} if compacting else {}
    sink = FileSink(spark, tmp_path, change=distinct, is_merged_path=door == "path")
    go_on(sink, batches, compacting=compacting, **options)
    log = sink.files / "_spark_metadata"

    assert at(sink).repartition(4, spark=spark).batch == batches

    assert not (log / entry).exists(), "it can still be taken back"
    if compacting:
        assert Sink(sink.files).waiting().num_rows > 0
    else:
        assert sink.ids() == all_ids(sink)
    go_on(sink, 4, compacting=compacting)
    assert (log / entry).exists()
    assert sink.ids() == all_ids(sink)
    assert Sink(sink.files).verify().is_clean
    assert {"2.compact", "5.compact"} <= {path.name for path in log.iterdir()}


def test_two_in_a_row_and_a_query_that_finds_nothing_to_do(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Until it has entered a batch, both can be taken back: the list has nothing for them."""
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 2)
    assert [at(sink).repartition(n, spark=spark).batch for n in (4, 3)] == [2, 3]
    go_on(sink, 0)
    assert sorted(path.name for path in (sink.files / "_spark_metadata").glob("[0-9]*")) == ["0", "1"]
    assert at(sink).undo_repartition().batch == 3
    go_on(sink, 0)
    assert [at(sink).repartition(5, spark=spark).batch] == [3]
    go_on(sink, 3)
    assert sink.ids() == all_ids(sink)
    assert (sink.files / "_spark_metadata" / "3").read_text() == "v1"
    assert Sink(sink.files).verify().is_clean


def test_a_list_of_another_query_that_has_come_as_far_stays(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Nothing on a disk says whose list it is, so only the query itself adds to one."""
    spark = make_spark(mode="provider")
    one, other = (begun(spark, tmp_path / name, 3) for name in ("one", "other"))
    assert at(one).repartition(4, spark=spark).batch == 3
    assert Sink(other.files).verify(repair=True, checkpoint=one.checkpoint).repaired == ()
    for sink in (other, one):
        go_on(sink, 4)
        assert sink.ids() == all_ids(sink)
        assert Sink(sink.files).verify().is_clean


@pytest.mark.parametrize("by", ["command", "query"])
def test_a_sink_that_has_the_hole_already(make_spark: MakeSpark, tmp_path: Path, by: str) -> None:
    """Its query has gone on without the package."""
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 3)
    at(sink).repartition(4, spark=spark)
    go_on(sink, 1)
    for name in ("3", ".3.crc"):
        (sink.files / "_spark_metadata" / name).unlink()
    with pytest.raises(Exception, match=r"BATCH_METADATA_NOT_FOUND|doesn't exist"):
        sink.ids()

    if by == "command":
        repair = ["sink", "verify", str(sink.files), "--repair", "--checkpoint", str(sink.checkpoint)]
        found = CliRunner().invoke(cli, [*repair, "--compact-interval", "3"])
        assert found.exit_code == 0, found.output
        assert (sink.files / "_spark_metadata" / "3").read_text() == "v1"
        assert sink.ids() == all_ids(sink)

    go_on(sink, 3)
    assert sink.ids() == all_ids(sink)
    assert Sink(sink.files).verify().is_clean


def test_a_repartitioning_that_is_taken_back(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A sink would skip the query's own batch of that number, had its list an entry for it."""
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 2)
    at(sink).repartition(4, spark=spark)
    at(sink).undo_repartition()
    go_on(sink, 2)
    assert sink.ids() == all_ids(sink)


class Forked(FileSink):
    """A query that goes on from a fork, with the same input."""

    @property
    def files(self) -> Path:
        return self.folder / "fork-files"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "fork"


@pytest.mark.parametrize("n", [None, 4])
def test_a_fork_writes_to_a_sink_of_its_own(make_spark: MakeSpark, tmp_path: Path, n: int | None) -> None:
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 5)
    before = all_ids(sink)
    fork = Forked(spark, tmp_path, change=sink.change, fed=sink.fed)
    made = Checkpoint(sink.checkpoint).fork(fork.checkpoint, partitions=n, sinks={sink.files: fork.files}, spark=spark)
    assert (made.version, made.sinks_count) == (5, 1)
    if n is not None:
        assert at(fork).undo_repartition().batch == 5
        at(fork).repartition(n, spark=spark)
    go_on(fork, 4, compacting=False)
    assert n is None or (fork.files / "_spark_metadata" / "5.compact").exists()
    assert fork.ids() == all_ids(fork, 5)
    assert Sink(fork.files).verify().is_clean
    assert sink.ids() == before
