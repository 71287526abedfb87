"""Queries that write files: a repartitioning, its way back and a fork leave a list with which all goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, Sink, StateStoreFilesError
from pyspark_statestore.cli.main import cli
from tests.conftest import MakeSpark
from tests.maintenance.faults import Breakage
from tests.migration.builders import NOW
from tests.reshape.harness import partitions, since
from tests.sink.sinks import FileSink, rows_of
from tests.streaming.runs import session_conf

pytestmark = [pytest.mark.spark, since]

INTERVAL = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}
CONF = {**INTERVAL, "spark.sql.streaming.noDataMicroBatches.enabled": "false", **partitions(2)}
COUNT = 4
"""Rows of a batch."""


def begun(spark: SparkSession, folder: Path, batches: int, **options: Any) -> FileSink:
    """A query with state in two partitions, which repeats its sink's list with each third batch."""
    return go_on(FileSink(spark, folder, change=lambda rows: rows.dropDuplicates(["id"])), batches, **options)


def go_on(sink: FileSink, batches: int, *, compacting: bool = True, **options: str) -> FileSink:
    sink.feed(*(rows_of(sink.fed + number, COUNT) for number in range(batches)))
    sink.run(compacting=compacting, conf=CONF, **options)
    return sink


def at(sink: FileSink) -> Checkpoint:
    return Checkpoint(sink.checkpoint, closed_after=NOW)


def all_ids(sink: FileSink, first: int = 0) -> list[int]:
    return list(range(first * COUNT, sink.fed * COUNT))


@pytest.mark.parametrize(
    ("batches", "compacting", "entry"), [(4, False, "4"), (5, False, "5.compact"), (2, True, "2.compact")]
)
def test_the_query_goes_on_over_the_next_repetition_of_the_list(
    make_spark: MakeSpark, tmp_path: Path, breakage: Breakage, batches: int, compacting: bool, entry: str
) -> None:
    spark = make_spark(mode="provider")
    # What waits to be published must not be forgotten, either.
    options: dict[str, Any] = {"maxDelay": "10h"} if compacting else {}
    sink = begun(spark, tmp_path, batches, compacting=compacting, **options)
    log = sink.files / "_spark_metadata"
    commit = sink.checkpoint / "commits" / str(batches)
    with session_conf(spark, INTERVAL):
        breakage.at = lambda done: commit.exists() and done[-1].endswith("_spark_metadata")
        with pytest.raises(StateStoreFilesError, match="broken on purpose"):
            at(sink).repartition(4, sinks=[sink.files], spark=spark)
        breakage.mended()
        assert commit.exists()
        assert not (log / entry).exists()

        done = at(sink).repartition(4, sinks=[sink.files], spark=spark)

    assert (done.batch, done.sink_entries_count) == (None, 1)
    assert (log / entry).exists()
    if compacting:
        assert Sink(sink.files).waiting().num_rows > 0
    else:
        assert sink.ids() == all_ids(sink)
    go_on(sink, 4, compacting=compacting)
    assert sink.ids() == all_ids(sink)
    assert Sink(sink.files).verify().is_clean
    assert {"2.compact", "5.compact"} <= {path.name for path in log.iterdir()}


def test_a_sink_that_has_the_hole_already(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 3)
    assert at(sink).repartition(4, spark=spark).sink_entries_count == 0
    go_on(sink, 1)
    with pytest.raises(Exception, match=r"BATCH_METADATA_NOT_FOUND|doesn't exist"):
        sink.ids()
    with pytest.raises(Exception, match=r"BATCH_METADATA_NOT_FOUND|doesn't exist"):
        go_on(sink, 2)

    repair = ["sink", "verify", str(sink.files), "--repair", "--checkpoint", str(sink.checkpoint)]
    found = CliRunner().invoke(cli, [*repair, "--compact-interval", "3"])

    assert found.exit_code == 0, found.output
    assert (sink.files / "_spark_metadata" / "3").read_text() == "v1"
    go_on(sink, 3)
    assert sink.ids() == all_ids(sink)
    assert Sink(sink.files).verify().is_clean


def test_a_repartitioning_that_is_taken_back(make_spark: MakeSpark, tmp_path: Path) -> None:
    """The sink would skip the query's own batch of that number."""
    spark = make_spark(mode="provider")
    sink = begun(spark, tmp_path, 2)
    with session_conf(spark, INTERVAL):
        assert at(sink).repartition(4, sinks=[sink.files], spark=spark).sink_entries_count == 1
    with pytest.raises(StateStoreFilesError, match="PSS_CANNOT_UNDO_REPARTITION"):
        at(sink).undo_repartition()
    assert at(sink).undo_repartition(sinks=[sink.files]).sink_entries_count == 1
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
        with pytest.raises(StateStoreFilesError, match="PSS_CANNOT_UNDO_REPARTITION"):
            at(fork).undo_repartition()
        assert at(fork).undo_repartition(sinks=[fork.files]).sink_entries_count == 1
        assert at(fork).repartition(n, sinks=[fork.files], spark=spark).sink_entries_count == 1
        assert (fork.files / "_spark_metadata" / "5.compact").exists()
    go_on(fork, 4, compacting=False)
    assert fork.ids() == all_ids(fork, 5)
    assert Sink(fork.files).verify().is_clean
    assert sink.ids() == before
