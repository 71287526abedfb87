"""Checkpoints in directories whose names have more than letters in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.reshape.harness import at, given_out, go_on, partitions, since
from tests.streaming.runs import Run, Setting, unload_stores

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

SETTING = Setting("provider", "rocksdb")
WORKLOAD = "aggregation"


def begun(make_spark: MakeSpark, folder: Path, name: str) -> tuple[Run, Run]:
    """A query of two batches in a directory of some name, and the same of stock Spark."""
    spark = make_spark(mode="provider", store="rocksdb")
    run = Run(spark, WORKLOAD, SETTING, folder / name, folder / "input")
    go_on(run, range(2), partitions(2))
    always = Run(spark, WORKLOAD, replace(SETTING, door="stock"), folder / "always", run.input)
    go_on(always, (), partitions(2))
    return run, always


def test_what_sparks_reader_finds_is_written_anew(make_spark: MakeSpark, tmp_path: Path) -> None:
    run, always = begun(make_spark, tmp_path, "pr\u00fcfung+\u65e5\u672c,=&@;(1)'~")

    assert at(run).repartition(4, spark=run.spark).partitions == 4
    fork = Checkpoint(run.checkpoint).fork(run.folder / "f\u00f6rk+1", partitions=3, spark=run.spark)
    assert fork.path.endswith("f\u00f6rk+1")
    assert at(run).convert(store="heap", spark=run.spark).store == "heap"
    unload_stores(run.spark)
    go_on(run, range(2, 3))
    go_on(always, ())

    assert given_out(run) == given_out(always)


def test_a_directory_can_be_renamed_for_it(make_spark: MakeSpark, tmp_path: Path) -> None:
    """It is the way out of which the error tells."""
    run, always = begun(make_spark, tmp_path, "a b#50%")
    with refused("PSS_CANNOT_REPARTITION", "' '", "Rename"):
        at(run).repartition(4, spark=run.spark)
    unload_stores(run.spark)

    plain = replace(run, folder=tmp_path / "plain")
    run.folder.rename(plain.folder)
    assert at(plain).repartition(4, spark=run.spark).partitions == 4
    plain.folder.rename(run.folder)

    go_on(run, range(2, 3))
    go_on(always, ())
    assert given_out(run) == given_out(always)
