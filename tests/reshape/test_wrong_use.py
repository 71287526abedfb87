"""What is refused is refused before anything is changed, with an id and a reason."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration.spark_side import quoted_in
from pyspark_statestore.session.doors import MERGED_PROVIDERS
from tests.inspect.builders import refused
from tests.maintenance import builders
from tests.maintenance.builders import contents
from tests.migration.builders import at, make, write_offsets
from tests.migration.test_unfinished_repartition import BATCH, begin_repartitioning
from tests.reshape.harness import pretend_spark


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of the provider door, with two partitions."""
    return make(tmp_path / "q1")


@pytest.fixture(autouse=True)
def any_spark_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_spark(monkeypatch, "4.3.0")


@pytest.mark.parametrize("n", [0, -1, True, 2.0, "4", None, 1 << 40])
def test_what_is_no_number(checkpoint: Path, n: object) -> None:
    before = contents(checkpoint)
    with refused("PSS_INVALID_OPTION", "131072"):
        at(checkpoint).repartition(n)  # type: ignore[arg-type]
    if n is not None:
        with refused("PSS_INVALID_OPTION", "131072"):
            at(checkpoint).fork(checkpoint.parent / "fork", partitions=n)  # type: ignore[arg-type]
    assert contents(checkpoint) == before
    assert not (checkpoint.parent / "fork").exists()


def test_a_dry_run_needs_no_spark_and_changes_nothing(checkpoint: Path) -> None:
    before = contents(checkpoint)
    done = at(checkpoint).repartition(5, dry_run=True)
    assert (done.partitions_before, done.partitions, done.batch, done.stores_count) == (2, 5, BATCH, 5)
    assert done.dry_run
    assert contents(checkpoint) == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_spark_that_is_too_old_is_refused_in_a_dry_run_too(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    pretend_spark(monkeypatch, "4.1.4")
    before, reason = contents(checkpoint), "this is Spark 4.1.4, and it takes Spark 4.3 or newer"
    typed = at(f"merged+file:{checkpoint}")
    with refused("PSS_CANNOT_REPARTITION", f"] {checkpoint.as_uri()} cannot", reason):
        typed.repartition(5, dry_run=dry_run)
    with refused("PSS_CANNOT_REPARTITION", f"] {tmp_path.as_uri()}/fork cannot", reason):
        typed.fork(tmp_path / "fork", partitions=5, dry_run=dry_run)
    with refused("PSS_CANNOT_CONVERT_STORE", f"] {checkpoint.as_uri()} cannot", reason):
        typed.convert(store="heap", dry_run=dry_run)
    assert contents(checkpoint) == before
    assert not (tmp_path / "fork").exists()
    assert typed.repartition(2, dry_run=dry_run).batch is None, "nothing is to be done, so any Spark will do"
    assert typed.convert(store="rocksdb", dry_run=dry_run).version is None
    assert Checkpoint(checkpoint).fork(tmp_path / "fork", partitions=2, dry_run=dry_run).version == BATCH


def test_the_same_number_is_done_already(checkpoint: Path) -> None:
    before = contents(checkpoint)
    assert at(checkpoint).repartition(2).batch is None
    assert contents(checkpoint) == before


@pytest.mark.parametrize("name", ["a b", "a%20b", "50%", "a#b", "a?b", "a[b]", "a\u00a0b", "a ", "{x}"])
def test_a_path_that_sparks_reader_does_not_find(checkpoint: Path, name: str) -> None:
    """It quotes such a path twice, and says that there is no committed batch."""
    source, folder = checkpoint, checkpoint.parent / name / "here"
    folder.parent.mkdir()
    checkpoint = Path(shutil.copytree(source, folder))
    before = contents(checkpoint)
    (letter, *_) = quoted_in(name)
    for dry_run in (True, False):
        with refused("PSS_CANNOT_REPARTITION", repr(letter), "ename"):
            at(checkpoint).repartition(5, dry_run=dry_run)
        with refused("PSS_CANNOT_CONVERT_STORE", repr(letter), "ename"):
            at(checkpoint).convert(store="heap", dry_run=dry_run)
        with refused("PSS_CANNOT_REPARTITION", repr(letter), "ename"):
            at(source).fork(folder.parent / "fork", partitions=5, dry_run=dry_run)
    assert contents(checkpoint) == before
    assert [path.name for path in folder.parent.iterdir()] == ["here"]


@pytest.mark.spark
def test_which_paths_java_quotes(jvm: Any) -> None:
    letters = [chr(code) for code in (*range(1, 0xD800), *range(0xE000, 0x11000)) if chr(code) != "/"]

    uri = jvm.org.apache.hadoop.fs.Path("/" + "".join(letters)).toUri().toString()

    quoted = set(quoted_in("".join(letters)))
    assert uri == "/" + "".join(urllib.parse.quote(each, safe="") if each in quoted else each for each in letters)


def test_a_query_that_seems_to_run(checkpoint: Path) -> None:
    with refused("PSS_QUERY_RUNNING", "Repartitioning"):
        Checkpoint(checkpoint).repartition(5, dry_run=True)
    assert Checkpoint(checkpoint).repartition(5, dry_run=True, force=True).batch == BATCH


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("another provider", "org.example.Store"),
        ("no provider", "does not name"),
        ("a batch under way", f"batch {BATCH} was begun"),
        ("nothing committed", "no batch was committed"),
        ("no number", "how many partitions"),
        ("no metadata", "operator 0"),
        ("no operator", "no stateful operator"),
    ],
)
def test_what_cannot_be(checkpoint: Path, what: str, words: str) -> None:
    offsets = checkpoint / "offsets"
    if what == "another provider":
        write_offsets(checkpoint, "org.example.Store", range(BATCH))
    elif what in ("no provider", "no number"):
        newest = offsets / str(builders.LAST)
        version, metadata, sources = newest.read_text().split("\n")
        said = json.loads(metadata)
        key = "spark.sql.shuffle.partitions" if what == "no number" else "spark.sql.streaming.stateStore.providerClass"
        del said["conf"][key]
        newest.write_text("\n".join([version, json.dumps(said), sources]))
    elif what == "a batch under way":
        write_offsets(checkpoint, MERGED_PROVIDERS["rocksdb"], [BATCH])
    elif what == "nothing committed":
        for file in (checkpoint / "commits").iterdir():
            file.unlink()
    elif what == "no metadata":
        (checkpoint / "state" / "0" / "_metadata" / "metadata").unlink()
    else:
        (checkpoint / "state" / "0").rename(checkpoint / "state" / "x")
    before = contents(checkpoint)
    for dry_run in (True, False):
        with refused("PSS_CANNOT_REPARTITION", words):
            at(checkpoint).repartition(5, dry_run=dry_run)
    assert contents(checkpoint) == before


def test_another_number_than_one_that_was_begun(checkpoint: Path) -> None:
    begin_repartitioning(checkpoint)
    before = contents(checkpoint)
    with refused("PSS_UNFINISHED_REPARTITION", "5 partitions"):
        at(checkpoint).repartition(7)
    assert contents(checkpoint) == before
    assert Checkpoint(checkpoint).repartition(5, dry_run=True).batch == BATCH, "no query runs beside it"


def test_a_version_that_cannot_be_restored(checkpoint: Path) -> None:
    for file in (checkpoint / "state" / "_merged").iterdir():
        if f"-{builders.LAST + 1}.merged" in file.name:
            file.unlink()
    with refused("PSS_VERSION_NOT_RESTORABLE"):
        at(checkpoint).repartition(5, dry_run=True)


def test_state_that_was_exported_or_claimed(checkpoint: Path, tmp_path: Path) -> None:
    Checkpoint(checkpoint).fork(tmp_path / "fork", mode="claim", force=True)
    for call in (lambda: at(checkpoint).repartition(5), lambda: at(checkpoint).undo_repartition(force=True)):
        with refused("PSS_CLAIMED"):
            call()
    other = make(tmp_path / "other")
    at(other).export()
    with refused("PSS_EXPORTED"):
        at(other).repartition(5)


def test_no_session(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    before = contents(checkpoint)
    with refused("PSS_SPARK_NOT_RUNNING"):
        at(checkpoint).repartition(5)
    assert {name for name in contents(checkpoint) if "clock" not in name} == set(before)


def test_nothing_to_take_back(checkpoint: Path) -> None:
    before = contents(checkpoint)
    with refused("PSS_CANNOT_UNDO_REPARTITION"):
        at(checkpoint).undo_repartition()
    assert contents(checkpoint) == before


def test_a_query_that_seems_to_run_after_its_repartitioning(checkpoint: Path) -> None:
    begin_repartitioning(checkpoint)
    builders.write_version(checkpoint, BATCH + 1, merged=True)
    (checkpoint / "commits" / str(BATCH)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    with refused("PSS_QUERY_RUNNING", "Taking a repartitioning back"):
        Checkpoint(checkpoint).undo_repartition()
    assert Checkpoint(checkpoint).undo_repartition(force=True).partitions == 2
    for file in checkpoint.rglob("*"):
        if file.is_file():
            os.utime(file, (1_600_000_000, 1_600_000_000))
    assert Checkpoint(checkpoint).inspect.versions().num_rows > 0
