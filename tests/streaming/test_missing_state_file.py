"""A merged file that was cut off or taken away: beside Spark's advice to clear the checkpoint stands ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_statestore.format.reader import BytesSource, read_merged_file
from tests.conftest import MakeSpark
from tests.streaming.runs import Run, Setting, merged_files, session_conf
from tests.streaming.workloads import WORKLOADS, events, write_batches

pytestmark = pytest.mark.spark

ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
BATCHES = 2
CUT = 3


def holding(checkpoint: Path, name: str) -> list[Path]:
    """The merged files that have state files of this name."""
    indexes = {file: read_merged_file(BytesSource(file.read_bytes()), file.name) for file in merged_files(checkpoint)}
    return [file for file, index in indexes.items() if any(entry.path.endswith(f"/{name}") for entry in index)]


def cut(file: Path) -> list[str]:
    """Cuts a file off within its last group; what has to be said of it."""
    data = file.read_bytes()[:-CUT]
    file.write_bytes(data)
    left = read_merged_file(BytesSource(data), file.name).valid_length
    assert 0 < left < len(data)
    return [f"{file.name} ({len(data) - left} bytes from offset {left} on)"]


def remove(file: Path) -> list[str]:
    """Takes a file away."""
    file.unlink()
    return []


def begin(spark: SparkSession, folder: Path, setting: Setting) -> Run:
    """A query that has run, at another place than it ran: this process would know what was in its files."""
    run = Run(spark, "aggregation", setting, folder / "query")
    write_batches(run.input, range(BATCHES))
    run.run(ONLY_DATA)
    copy = Run(spark, "aggregation", setting, folder / "copy", run.input)
    # The query has just ended, and says so meanwhile.
    shutil.copytree(run.checkpoint, copy.checkpoint, ignore=shutil.ignore_patterns("*.running", "*.ended"))
    write_batches(run.input, range(BATCHES, BATCHES + 1))
    return copy


def said(run: Run) -> str:
    """What PySpark shows of the failure, with a sink that adds nothing to it."""
    with session_conf(run.spark, {**run.setting.conf, **ONLY_DATA}):
        result = WORKLOADS[run.workload].build(lambda: events(run.spark, run.input))
        writer = result.writeStream.outputMode("update").format("noop").option("checkpointLocation", run.location)
        query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        (Setting("path", "rocksdb"), f"{BATCHES}.changelog"),
        pytest.param(Setting("path", "heap"), f"{BATCHES}.delta", marks=pytest.mark.slow),
        pytest.param(Setting("provider", "heap"), f"{BATCHES}.delta", marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("damage", [cut, pytest.param(remove, marks=pytest.mark.slow)])
def test_both_messages_are_shown(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, name: str, damage: Callable[[Path], list[str]]
) -> None:
    run = begin(make_spark(mode=setting.door, store=setting.store), tmp_path, setting)
    expected = [words for file in holding(run.checkpoint, name) for words in damage(file)]
    message = said(run)
    assert "does not exist" in message, "Spark's"
    assert "[PSS_MISSING_STATE_FILE] " in message
    ours = message[message.index("[PSS_MISSING_STATE_FILE] ") :]
    assert name.rpartition(".")[2] in ours.partition(" does not exist")[0]
    assert str(run.checkpoint) in ours
    assert "pyspark-statestore verify" in ours
    assert "do not clear the checkpoint" in ours
    assert [words for words in expected if words not in ours] == []


@pytest.mark.slow
@pytest.mark.since("4.1", "Spark 4.0 shows the query only that state could not be loaded; its log says why")
def test_an_sst_that_is_missing(make_spark: MakeSpark, tmp_path: Path) -> None:
    run = begin(make_spark(mode="path"), tmp_path, Setting("path", "rocksdb", changelog=False))
    damaged = []
    for file in merged_files(run.checkpoint):
        data = file.read_bytes()
        paths = [entry.path for entry in read_merged_file(BytesSource(data), file.name)]
        if any(path.endswith(".sst") for path in paths):
            damaged.append(file)
            for path in paths:  # under another name, of the same length
                if path.endswith(".zip"):
                    zipped = run.checkpoint / "state" / path
                    zipped.parent.mkdir(parents=True, exist_ok=True)
                    entry = next(e for e in read_merged_file(BytesSource(data), file.name) if e.path == path)
                    zipped.write_bytes(data[entry.offset : entry.offset + entry.length])
            file.unlink()
    assert damaged
    message = said(run)
    assert "[PSS_MISSING_STATE_FILE] " in message
    assert ".sst" in message[message.index("[PSS_MISSING_STATE_FILE] ") :]
