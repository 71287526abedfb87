"""A database whose files have holes answers as one without, and files with holes are never taken for whole ones."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests import class_data
from tests.jvm.harness import Checkpoint, compacted_histories
from tests.sampling import sample

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on"),
    pytest.mark.sweep(1, files="few reads"),
]


@pytest.fixture
def holes(new_checkpoint: Callable[..., Checkpoint]) -> Iterator[Any]:
    """Decides which files have holes: here all."""
    control: Any = new_checkpoint().jvm.io.pyspark.statestore.tables.Lazily
    control.everywhere()
    yield control
    control.asEver()


@pytest.mark.sweep
def test_random_histories_with_holes(jvm: Any, holes: Any, tmp_path: Path) -> None:
    left_out = 0
    for seed in sample(range(400), 40):
        directory = tmp_path / str(seed)
        directory.mkdir()
        left_out += jvm.io.pyspark.statestore.rocks.HoleyDatabase.run(str(directory), seed, 120)
    assert left_out > 0


@pytest.mark.sweep
def test_random_histories_that_are_compacted_with_holes(jvm: Any, holes: Any, tmp_path: Path) -> None:
    left_out, compactions = compacted_histories(jvm, tmp_path, lambda seed: 0)
    assert left_out > 0
    assert compactions > 0


BLOCK, CHUNK, WIDE = 4 << 10, 1 << 10, 1 << 20


@pytest.fixture
def cost_of_reads(jvm: Any, tmp_path: Path) -> Callable[..., list[int]]:
    """Reads random blocks of a file of 16 MB that has nothing yet: requests, bytes fetched, bytes missing then."""

    def cost(reads: int, request_ms: int, whole_bytes_per_second: int) -> list[int]:
        path = jvm.java.io.File(str(tmp_path / "file")).toPath()
        seeded = jvm.java.util.Random(reads)
        sst = jvm.io.pyspark.statestore.tables.HoleySst
        return list(sst.blocks(path, 16 << 20, reads, request_ms, whole_bytes_per_second, seeded))

    return cost


@pytest.mark.parametrize("reads", [30, 1_000])
def test_reads_of_rows_fetch_blocks_as_long_as_requests_are_fast(
    cost_of_reads: Callable[..., list[int]], reads: int
) -> None:
    # As much time as the whole file takes at 1 KB/s is never spent.
    requests, fetched, missing = cost_of_reads(reads, 0, 1 << 10)
    assert requests <= reads
    assert missing >= (16 << 20) - fetched
    assert fetched <= reads * (BLOCK + CHUNK)


def test_reads_of_many_rows_fetch_all_where_requests_are_slow(cost_of_reads: Callable[..., list[int]]) -> None:
    # The whole file takes 160 ms at 100 MB/s, which eight requests take at least. Then 16 or less fetch 1 MB each.
    requests, fetched, missing = cost_of_reads(1_000, 20, 100 << 20)
    assert requests <= 9 + 16 + 16  # a read at an end of 1 MB, and one beside what is there, take two
    assert missing == 0
    assert fetched < 1.5 * (16 << 20)


def test_reads_of_few_rows_fetch_their_blocks_where_requests_are_slow(cost_of_reads: Callable[..., list[int]]) -> None:
    _, fetched, missing = cost_of_reads(5, 20, 1 << 20)
    assert missing >= (16 << 20) - fetched
    assert fetched <= 5 * (BLOCK + CHUNK)


def test_reads_of_rows_do_not_wait_for_the_background(jvm: Any, tmp_path: Path) -> None:
    """It fetches up to 1 MB at a time. A scan wants all of that, so it waits."""
    path = jvm.java.io.File(str(tmp_path / "file")).toPath()
    found = jvm.io.pyspark.statestore.tables.HoleySst.besideBackground(path, 1 << 20, jvm.java.util.Random(1))
    assert list(found) == [True, False]


def test_a_read_of_a_row_may_come_after_the_background_has_completed_the_file(jvm: Any, tmp_path: Path) -> None:
    path = jvm.java.io.File(str(tmp_path / "file")).toPath()
    jvm.io.pyspark.statestore.tables.HoleySst.behindBackground(path, 1 << 20, jvm.java.util.Random(1))


def test_a_hole_that_the_background_fills_is_no_damage(jvm: Any, tmp_path: Path) -> None:
    """All of the store would be fetched, which checks it, though only a part of one file was asked for."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    assert jvm.io.pyspark.statestore.tables.HoleySst.filledMeanwhile(directory, 1 << 20, jvm.java.util.Random(1))


def test_a_file_that_stays_is_not_forgotten(jvm: Any, tmp_path: Path) -> None:
    """While a store is loaded, another thread looks which of its files have no name any more."""
    root = jvm.java.io.File(str(tmp_path)).toPath()
    assert jvm.io.pyspark.statestore.tables.HoleySst.forgotten(root, 8, 2000, jvm.java.util.Random(1)) == 0


@pytest.mark.parametrize(("limit", "comes_along"), [(1 << 20, False), (4 << 20, True)])
def test_what_lies_between_comes_along_where_files_fit(jvm: Any, tmp_path: Path, limit: int, comes_along: bool) -> None:
    """Else it would displace what was asked for; that some bytes are free when it is asked for says nothing."""
    length, count = 64 << 10, 20
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    fetched = jvm.io.pyspark.statestore.tables.HoleySst.neighbours(
        directory, length, count, limit, jvm.java.util.Random(1)
    )
    asked = 2 * BLOCK
    assert [bytes > asked for bytes in fetched] == [comes_along] * count


def test_a_task_that_is_killed_fetches_no_more(jvm: Any, tmp_path: Path) -> None:
    """What is under way ends; there are two threads."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    assert jvm.io.pyspark.statestore.tables.HoleySst.interrupted(directory, 1 << 16, 20, jvm.java.util.Random(1)) <= 2


@pytest.mark.parametrize("hydrates", [True, False])
@pytest.mark.parametrize("error", ["IOException", "OutOfMemoryError"])
def test_a_check_that_could_not_be_made_is_made_again(jvm: Any, tmp_path: Path, error: str, hydrates: bool) -> None:
    """All bytes are there, so no read asks for any: the store would never count as whole, and never compact."""
    path = jvm.java.io.File(str(tmp_path / "file")).toPath()
    failure = jvm.java.io.IOException("for once") if error == "IOException" else jvm.java.lang.OutOfMemoryError("once")
    assert jvm.io.pyspark.statestore.tables.HoleySst.checkedAgain(
        path, 1 << 16, hydrates, failure, jvm.java.util.Random(1)
    )


def test_a_file_is_completed_beside_others_that_the_file_system_does_not_answer(jvm: Any, tmp_path: Path) -> None:
    """There are two threads in all. Three files of other stores hang, so that each of the two meets one."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    assert jvm.io.pyspark.statestore.tables.HoleySst.besideOthersThatHang(
        directory, 1 << 16, 3, jvm.java.util.Random(1)
    )


def test_a_damaged_file_without_a_name_is_not_read_for_ever(jvm: Any, tmp_path: Path) -> None:
    """RocksDB may have deleted it since the read began, and another file has the row. So it is read once more."""
    assert jvm.io.pyspark.statestore.rocks.HoleyDatabase.reads(str(tmp_path)) == 3


def test_rows_of_a_database_are_read_without_the_rest_of_its_files(jvm: Any, tmp_path: Path) -> None:
    gets = 400
    lazily = jvm.io.pyspark.statestore.tables.Lazily
    lazily.wholeAt(1 << 10)  # so that a slow machine takes no more for better
    try:
        left_out, missing = jvm.io.pyspark.statestore.rocks.HoleyDatabase.gets(str(tmp_path), 40_000, 1_700, gets)
    finally:
        lazily.asEver()
    assert left_out > 60 << 20
    assert gets * 1_700 < left_out - missing < gets * (8 << 10)


STATE = "org.apache.spark.sql.execution.streaming.state"
READS = {"get", "multiGetAsList", "keyExists", "newIterator", "compactRange", "flush"}
"""What Spark calls that reads files, or has to notice that one is damaged. ``LazyRocksDB`` replaces each."""
WRITES = {"put", "merge", "delete", "deleteRange"}
OTHERS = {"open", "close", "closeE", "isClosed", "cancelAllBackgroundWork", "getProperty"}
INNER = {"handleMetricsUpdate", "getValue", "getDBProperty", "getMemoryUsage", "updateMemoryUsageIfNeeded"} | {
    "openDB",
    "closeDB",
}
"""Methods of Spark's class that others of it call, which have asked for the database to be replaced."""
COUNTING = "countKeys"


@pytest.fixture(scope="module")
def spark_calls() -> dict[str, list[str]]:
    """Of each method of Spark's class: what it does with the database, in order."""
    jars = Path(pyspark.__file__).parent / "jars"
    command = ["javap", "-c", "-private", "-cp", f"{jars}/*", f"{STATE}.RocksDB"]
    if class_data.MINOR >= "4.3":
        command.append(f"{STATE}.RocksDBIterator")
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    calls: dict[str, list[str]] = {}
    method = ""
    for line in shown.splitlines():
        if found := re.match(r"  \w.*?([\w$]+)\(.*\).*;$", line):
            method = found[1].rpartition("$")[2] if "$$" in found[1] else found[1]
        elif found := re.search(r"Method (?:[\w/]+/RocksDB\.)?(db|updateMemoryUsageIfNeeded):", line):
            calls.setdefault(method, []).append(found[1])
        elif found := re.search(r"Method org/rocksdb/(RocksDB|RocksIterator)\.(\w+):", line):
            calls.setdefault(method, []).append(f"{found[1]}.{found[2]}")
    return calls


def test_spark_calls_nothing_of_a_database_that_would_meet_a_hole(jvm: Any, spark_calls: dict[str, list[str]]) -> None:
    used = {call for calls in spark_calls.values() for call in calls if "." in call}
    of_database = {call.partition(".")[2] for call in used if call.startswith("RocksDB.")}
    assert of_database <= READS | WRITES | OTHERS
    replaced = {method.getName() for method in _declared(jvm, "io.pyspark.statestore.rocks.LazyRocksDB")}
    assert replaced >= READS


def _declared(jvm: Any, name: str) -> list[Any]:
    return list(jvm.java.lang.Class.forName(name).getDeclaredMethods())


def test_all_of_an_iterator_is_replaced(jvm: Any) -> None:
    """It has no native iterator of its own, so what is not replaced would end the process."""
    modifier = jvm.java.lang.reflect.Modifier

    def public(name: str) -> set[str]:
        methods = [method for method in _declared(jvm, name) if modifier.isPublic(method.getModifiers())]
        return {
            f"{method.getName()}({', '.join(kind.getSimpleName() for kind in method.getParameterTypes())})"
            for method in methods
        }

    below = public("org.rocksdb.RocksIterator") | public("org.rocksdb.AbstractRocksIterator")
    assert below <= public("io.pyspark.statestore.rocks.LazyIterator")


def test_spark_does_nothing_with_its_database_before_it_is_replaced(spark_calls: dict[str, list[str]]) -> None:
    early = {
        method
        for method, calls in spark_calls.items()
        if "db" in calls and "updateMemoryUsageIfNeeded" not in calls[: calls.index("db")]
    }
    # A snapshot is made in a commit, which begins so; it is closed, or opened, whatever it is.
    unexpected = {method for method in early if not method.startswith("$anonfun$createSnapshot$")}
    assert unexpected - INNER == {COUNTING}
    assert spark_calls["commit"][0] == spark_calls["load"][0] == "updateMemoryUsageIfNeeded"


# ---- where the data of an SST ends


def test_the_end_of_the_data_is_found_from_whatever_is_there(jvm: Any, tmp_path: Path) -> None:
    sst = tmp_path / "one.sst"
    find = jvm.io.pyspark.statestore.tables.HoleySst.dataEnd
    for version in range(2, 7):
        jvm.io.pyspark.statestore.rocks.HoleyDatabase.sst(str(sst), version)
        size = sst.stat().st_size
        ends = {find(str(sst), taken) for taken in (1, 52, 53, 54, 100, 500, 1000, 2000, size)}
        (end,) = ends
        assert size // 2 < end < size


def test_what_is_no_table_has_no_end(jvm: Any, tmp_path: Path) -> None:
    sst = tmp_path / "one.sst"
    find = jvm.io.pyspark.statestore.tables.HoleySst.dataEnd
    jvm.io.pyspark.statestore.rocks.HoleyDatabase.sst(str(sst), 5)
    data = sst.read_bytes()
    end = find(str(sst), len(data))
    generator = random.Random(5)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(generator.randrange(1, 4)):
            changed[generator.randrange(end, len(data))] = generator.randrange(256)
        sst.write_bytes(changed)
        # It may not notice. It never fails, and never says that data ends behind the file.
        assert -1 <= find(str(sst), generator.randrange(1, len(data))) < len(data)
    for no_table in (b"", b"x" * 10, bytes(1000), data[:-1]):
        sst.write_bytes(no_table)
        assert find(str(sst), 64) <= 0
