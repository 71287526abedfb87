"""Nothing that maintenance removes was needed: Spark reads the same of every version, and the query goes on."""

from __future__ import annotations

import datetime
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.copies import copy_stopped
from tests.inspect.builders import merged_file
from tests.streaming.runs import (
    PROVIDER,
    STATE_STORE,
    STOCK_CLASSES,
    Run,
    Setting,
    assert_state_is_merged,
    merged_files,
    session_conf,
    unload_stores,
)
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

BATCHES = 6
RETAINED = 3
SETTINGS = {
    "changelogs": Setting("path", "rocksdb", changelog=True),
    "snapshots": Setting("path", "rocksdb", changelog=False),
    "heap": Setting("path", "heap"),
}
CONF = {
    # Maintenance is part of each task, so snapshots and deletions are those of the same versions in every run.
    f"{STATE_STORE}unloadOnCommit": "true",
    f"{STATE_STORE}minDeltasForSnapshot": "2",
    f"{STATE_STORE}numMinVersionsToDelete": "0",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

TWO_DAYS_AGO = time.time() - 2 * 86_400

States = dict[int, list[str]]


@dataclass(frozen=True)
class Made:
    """A query after some batches, and what it does without any maintenance.

    Attributes:
        run: The query.
        states: What Spark reads of each version that is kept, by batch.
        next_rows: What the query gives out for one more batch.
        next_states: As ``states``, after that batch.
    """

    run: Run
    states: States
    next_rows: list[str]
    next_states: States


@pytest.fixture(scope="module")
def session(make_spark: MakeSpark) -> Iterator[SparkSession]:
    """Cleans when it is told to, so that what has changed was changed by maintenance."""
    spark = make_spark(CONF, mode="path")
    cleaning = spark.sparkContext._jvm.io.pyspark.statestore.log.Cleaning
    cleaning.byHand()
    yield spark
    cleaning.byItself()


@pytest.fixture(scope="module", params=SETTINGS)
def made(request: pytest.FixtureRequest, session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A merged file or more for each batch; versions have been deleted, and what is in them is dead."""
    run = Run(session, "aggregation", SETTINGS[request.param], tmp_path_factory.mktemp(request.param))
    unload_stores(session)
    for batch in range(BATCHES):
        write_batches(run.input, [batch])
        go_on(run)
    assert_state_is_merged(run)
    assert len(merged_files(run.checkpoint)) >= BATCHES
    states = states_of(run)
    assert len(states) >= RETAINED
    assert all(states.values())
    control = copy_of(run, tmp_path_factory.mktemp("control"))
    write_batches(run.input, [BATCHES])
    go_on(control)
    return Made(run, states, control.rows[BATCHES], states_of(control))


def go_on(run: Run) -> None:
    """Reads all that is there, and seals the files, as a process that ends does."""
    run.run({PROVIDER: STOCK_CLASSES[run.setting.store]})
    run.spark.sparkContext._jvm.io.pyspark.statestore.log.MergedLogs.sealAll()


def copy_of(run: Run, folder: Path) -> Run:
    """The same query as one of its own, with a copy of the checkpoint."""
    copy = Run(run.spark, run.workload, run.setting, folder, input=run.input)
    copy_stopped(run.checkpoint, copy.checkpoint)
    (copy.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    (copy.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    return copy


def states_of(run: Run) -> States:
    """The key-value pairs of each version that is kept, read through Spark's own source."""
    batches = kept_batches(run.checkpoint)

    def state(batch: int) -> DataFrame:
        reader = run.spark.read.format("statestore").option("batchId", batch).load(run.location)
        return reader.select(sf.lit(batch).alias("batch"), "*")

    with session_conf(run.spark, {**run.setting.conf, PROVIDER: STOCK_CLASSES[run.setting.store]}):
        rows = reduce(DataFrame.unionAll, map(state, batches)).collect()
    return {batch: sorted(repr(tuple(row)[1:]) for row in rows if row["batch"] == batch) for batch in batches}


def kept_batches(checkpoint: Path) -> list[int]:
    """Batches that are committed and whose version every partition can be restored to."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    restorable = [row["version"] for row in rows if row["is_restorable"]]
    committed = {int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    return sorted(batch for batch in committed if restorable.count(batch + 1) == 2)


def insert(run: Run) -> None:
    """Compaction as an INSERT."""
    run.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW state_files USING checkpoint_files OPTIONS (path '{run.checkpoint}')"
    )
    run.spark.sql("INSERT INTO state_files SELECT * FROM state_files")


def compact(run: Run) -> None:
    done = Checkpoint(run.checkpoint).maintenance.compact()
    assert done.rewritten_files_count > 1
    assert done.removed_files_count >= done.rewritten_files_count


def compact_in_spark(run: Run) -> None:
    done = Checkpoint(run.checkpoint).maintenance.compact(spark=run.spark)
    assert done.rewritten_files_count > 1


def consolidate(run: Run) -> None:
    done = Checkpoint(run.checkpoint).maintenance.consolidate_index()
    assert done.covered_files_count > 1


def remove_orphans(run: Run) -> None:
    with merged_file(run.checkpoint, 1, seal=False, fronts=True):
        pass
    (orphan, *_) = merged_files(run.checkpoint)
    orphan.write_bytes(orphan.read_bytes()[:-10])  # its only group is torn
    os.utime(orphan, (TWO_DAYS_AGO, TWO_DAYS_AGO))
    done = Checkpoint(run.checkpoint).maintenance.remove_orphan_files(datetime.timedelta(0), force=True, dry_run=False)
    assert not orphan.exists()
    assert done.removed_files_count == 1


def expire(run: Run) -> None:
    kept = len(kept_batches(run.checkpoint))
    Checkpoint(run.checkpoint).maintenance.expire(kept, dry_run=False, force=True)


def repair(run: Run) -> None:
    done = Checkpoint(run.checkpoint).maintenance.verify(repair=True)
    assert done.is_clean, done.damages


def everything(run: Run) -> None:
    for verb in (remove_orphans, consolidate, expire, compact, repair):
        verb(run)
    # The one file that is left is opened as quickly as an index of it.
    assert Checkpoint(run.checkpoint).maintenance.consolidate_index().index_file is None


VERBS: dict[str, Callable[[Run], Any]] = {
    verb.__name__: verb
    for verb in (compact, compact_in_spark, insert, consolidate, remove_orphans, expire, repair, everything)
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("verb", VERBS)
def test_every_version_is_as_before(made: Made, tmp_path: Path, verb: str) -> None:
    run = copy_of(made.run, tmp_path)
    assert states_of(run) == made.states  # this process knows all files now
    before = {path.name for path in merged_files(run.checkpoint)}

    VERBS[verb](run)

    assert states_of(run) == made.states
    assert verb in ("repair", "remove_orphans", "expire") or before != {p.name for p in merged_files(run.checkpoint)}
    go_on(run)
    assert run.rows == {BATCHES: made.next_rows}
    assert states_of(run) == made.next_states


def test_expired_versions_are_gone_and_no_others(made: Made, tmp_path: Path) -> None:
    run = copy_of(made.run, tmp_path)
    last = max(made.states)

    Checkpoint(run.checkpoint).maintenance.expire(2, dry_run=False, force=True)

    found = states_of(run)
    assert {last - 1, last} <= found.keys()
    assert found == {batch: made.states[batch] for batch in found}
    go_on(run)
    assert run.rows == {BATCHES: made.next_rows}
