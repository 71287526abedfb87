"""The heap store's map against full copies of a ``java.util.HashMap``, over many versions that share their rows.

With rows that are spilled at any moment, and without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import SparkContext

from tests.jvm.harness import java_error, open_descriptors, until

pytestmark = pytest.mark.since("4.2", "the heap store's maps can be replaced from Spark 4.2 on")

GROUPS = st.one_of(st.none(), st.integers(0, 3))
NAMES = st.integers(0, 40).map(lambda number: f"name{number}" * (1 + number % 3))
LENGTHS = st.one_of(st.integers(0, 80), st.sampled_from([0, 700, 5000]))
VERSIONS = st.integers(0, 6)


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of the model."""

    name: str
    arguments: tuple[Any, ...]


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda chosen: Step(name, chosen))


PUT = step("put", VERSIONS, GROUPS, NAMES, LENGTHS, st.integers(0, 1 << 20))
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        PUT,
        step("remove", VERSIONS, GROUPS, NAMES),
        step("remove", VERSIONS, GROUPS, NAMES),
        step("putMany", VERSIONS, GROUPS, st.integers(0, 60), st.integers(1, 60), st.integers(0, 60)),
        step("removeMany", VERSIONS, GROUPS, st.integers(0, 60), st.integers(1, 60)),
        step("get", VERSIONS, GROUPS, NAMES),
        step("scan", VERSIONS, GROUPS),
        step("iterate", VERSIONS),
        step("hold", VERSIONS, GROUPS, st.integers(0, 5)),
        step("branch", VERSIONS),
        step("drop", VERSIONS),
        step("spill", st.integers(1, 100)),
        step("spill", st.integers(1, 100)),
        step("tidy"),
        step("tidyABit"),
        step("tidyABit"),
        step("mix", VERSIONS, st.integers(0, 1000)),
    ),
    min_size=10,
    max_size=120,
)


@pytest.fixture(scope="module")
def package(_sessions: Any) -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm.io.pyspark.statestore.heap


@pytest.fixture
def disk(package: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A directory for rows that are spilled, into small files."""
    before = package.HeapModel.fileBytes(5_000)
    yield str(tmp_path_factory.mktemp("spilled"))
    package.HeapModel.fileBytes(before)


SPILLING = ("spill", "tidy", "tidyABit", "mix")


@given(
    steps=STEPS,
    has_prefix=st.booleans(),
    checksums=st.booleans(),
    hash_bits=st.sampled_from([0, 3, 11, 32]),
    spills=st.booleans(),
)
@settings(max_examples=400, suppress_health_check=list(HealthCheck))
def test_any_history(
    package: Any,
    disk: str,
    steps: Sequence[Step],
    has_prefix: bool,
    checksums: bool,
    hash_bits: int,
    spills: bool,
) -> None:
    """Branch, put, remove, get, prefix scan, iterate, hold an iterator over writes, drop, and spill, in any order."""
    model = package.HeapModel(has_prefix, checksums, hash_bits, disk if spills else None)
    for one in steps:
        if (one.name != "scan" or has_prefix) and (one.name not in SPILLING or spills):
            getattr(model, one.name)(*one.arguments)
    model.checkAll()


@pytest.mark.parametrize("has_prefix", [False, True])
@pytest.mark.parametrize("hash_bits", [2, 32])
def test_grows_and_shrinks(package: Any, has_prefix: bool, hash_bits: int) -> None:
    """Thousands of rows come and go; what is left of the trie in the end is as small as it was in the beginning."""
    model = package.HeapModel(has_prefix, False, hash_bits, None)
    rows = 3000 if hash_bits == 32 else 300
    for number in range(rows):
        model.put(0, number % 5, f"key{number}", number % 50, number)
    full = model.branch(0)
    for number in range(rows):
        model.remove(full, number % 5, f"key{number}")
    model.checkAll()
    assert model.nodes(full) == 1
    assert hash_bits < 32 or model.nodes(0) > 4


def test_shared_rows_count_once(package: Any) -> None:
    """What ten versions say that they need together is what going through them counts."""
    model = package.HeapModel(False, False, 32, None)
    for number in range(2000):
        model.put(0, number % 5, f"key{number}", 24, number)
    one = model.heap()[0]
    for version in range(1, 10):
        assert model.branch(version - 1) == version
        for number in range(20):
            model.put(version, number % 5, f"key{(version * 97 + number) % 2100}", 24, version)
            model.remove(version, number % 5, f"key{(version * 31 + number) % 2100}")
    model.checkAll()
    counted, said = model.heap()
    assert said == counted
    assert model.tellsItsSize(9)
    assert one < counted < 3 * one  # ten copies would be ten times as much


@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize("has_prefix", [False, True])
def test_readers_of_older_versions(package: Any, disk: str, has_prefix: bool, spills: bool) -> None:
    """A task writes while maintenance reads older versions, second attempts branch them, and rows are spilled."""
    assert package.HeapRace.run(has_prefix, 60, 120, 3, disk if spills else None) >= 30


def test_no_put_is_lost_to_the_thread_that_spills(package: Any, disk: str) -> None:
    assert package.HeapRace.rewrite(100_000, disk) > 100


def test_versions_that_others_write_count(package: Any, disk: str) -> None:
    """Of two attempts one commits, and the store says which versions it has; the other one goes on, and spills."""
    model = filled(package.HeapModel(False, False, 32, disk), 500)
    other = model.branch(0)
    for number in range(3000):
        model.put(other, number % 5, f"other{number}", 100, number)
    model.keepOnly(0)
    assert model.spill(100) > 300_000
    model.drop(0)
    model.checkAll()


def test_what_went_with_a_version_does_not_count(package: Any, disk: str) -> None:
    model = filled(package.HeapModel(False, False, 32, disk), 3000)
    model.keepOnly(0)
    model.spill(100)
    small = model.branch(0)
    for number in range(2900):
        model.remove(small, number % 5, f"key{number}")
    model.keepOnly(small)
    model.drop(0)
    heap = model.heap()[0]
    until(lambda: model.tidy() or model.heapBytes() > heap / 2, "it to be counted")


def test_a_full_disk_is_tidied_up_all_the_same(package: Any, tmp_path: Path, disk: str) -> None:
    """What is left of files comes back into memory, where nothing can be written."""
    folder = tmp_path / "disk"
    folder.mkdir()
    model = filled(package.HeapModel(False, False, 32, str(folder)), 3000)
    model.spill(100)
    folder.rmdir()
    folder.write_text("a file, in which there are none")
    for number in range(2900):
        model.remove(0, number % 5, f"key{number}")
        model.put(0, number % 5, f"key{number}", 0, number)
    model.remove(0, 1, "key1")

    def is_little() -> bool:
        model.tidy()
        model.spill(100)
        return int(model.spilled()[0]) < 30_000

    until(is_little, "files to be given up")
    model.checkAll()


def test_what_was_used_stays(package: Any, disk: str) -> None:
    model = filled(package.HeapModel(False, False, 32, disk), 3000)
    hot = [(number % 5, f"key{number}") for number in range(0, 3000, 300)]
    model.spill(0)  # all were used when they were written, and now it is asked whether they were since
    for key in hot:
        model.get(0, *key)
    assert model.spill(50) > 100_000
    _, _, reads = model.spilled()
    for key in hot:
        model.get(0, *key)
    assert model.spilled()[2] == reads
    model.checkAll()
    assert model.spilled()[2] > reads


@pytest.mark.usefixtures("disk")
def test_what_is_written_anew_is_what_versions_have(package: Any, tmp_path: Path) -> None:
    """Ten versions, each with a tenth of the rows new: most of what was spilled goes, and files with it."""
    model = package.HeapModel(False, False, 32, str(tmp_path))
    for number in range(3000):
        model.put(0, number % 5, f"key{number}", 100, number)
    model.spill(100)
    for version in range(1, 11):
        model.branch(version - 1)
        for number in range((version - 1) * 300, version * 300):
            model.put(version, number % 5, f"key{number}", 100, version)
        model.drop(version - 1)
        assert model.spill(100) > 0

    def is_little() -> bool:
        package.HeapStore.usedHeap()  # collects the versions that were dropped, and files that nobody needs
        model.tidy()
        model.spill(100)  # the last time it may have believed that less was left: versions that are not collected count
        files, spilled, reads = model.spilled()
        on_the_disk = 0
        for file in spill_files(str(tmp_path)):
            with suppress(FileNotFoundError):  # closed meanwhile
                on_the_disk += file.stat().st_size
        return bool(spilled > 300_000 and reads > 0 and max(files, on_the_disk) < 3 * spilled)

    until(is_little, "most files to be given up")
    model.checkAll()


def test_what_is_left_of_a_file_is_moved(package: Any, disk: str) -> None:
    """Of each file about an eighth is needed still, so hardly one goes by itself."""
    package.HeapModel.fileBytes(50_000)
    model = package.HeapModel(False, False, 32, disk)
    for number in range(320):
        model.put(0, number % 5, f"key{number}", 3000, number)  # a bucket of its own each
    assert model.spill(100) > 900_000
    for number in range(320):
        if number % 8 > 0:
            model.remove(0, number % 5, f"key{number}")
    until(lambda: model.tidy() or model.spilled()[0] < 350_000, "files to be given up")
    assert model.spilled()[1] > 100_000, "what is left is still on the disk"
    model.checkAll()


@pytest.mark.parametrize("steps", [1, 16, 31])
def test_what_is_spilled_during_a_count_counts(package: Any, tmp_path: Path, disk: str, steps: int) -> None:
    """A count goes on for a while, and memory may be short meanwhile."""
    model = filled(package.HeapModel(False, False, 32, str(tmp_path)), 3000)
    model.spill(10)  # the first call passes what was used
    for _ in range(steps):
        model.tidyABit()
    assert model.spill(100) > 200_000
    model.tidy()
    open_ = sum(file.stat().st_size for file in spill_files(str(tmp_path)))
    assert model.spilled()[0] == open_
    assert 0.9 * open_ < model.spilled()[1] < 1.5 * open_
    model.checkAll()


def test_files_come_back_with_a_version_that_was_not_known(package: Any, tmp_path: Path, disk: str) -> None:
    """Such as one that a task has just begun to write while another one was committed."""
    model = filled(package.HeapModel(False, False, 32, str(tmp_path)), 3000)
    model.spill(100)
    small = model.branch(0)
    for number in range(2990):
        model.remove(small, number % 5, f"key{number}")
    model.keepOnly(0)
    model.keepOnly(small)
    until(lambda: model.tidy() or model.spilled()[0] < 30_000, "files of the first one to be let go of")
    model.keepOnly(0)
    model.drop(small)
    until(lambda: model.tidy() or model.spilled()[0] > 300_000, "them to come back")
    assert model.spilled()[0] >= sum(file.stat().st_size for file in spill_files(str(tmp_path)))
    model.checkAll()


def spill_files(directory: str) -> list[Path]:
    """The files of spilled rows that the JVM has open, which have lost their names."""
    descriptors = open_descriptors(SparkContext._jvm)
    return [file for name, file in descriptors if name.startswith(f"{directory}/heap-spill-")]


def filled(model: Any, rows: int = 1000) -> Any:
    for number in range(rows):
        model.put(0, number % 5, f"key{number}", 100, number)
    return model


def test_what_is_not_what_was_written_is_refused(package: Any, disk: str) -> None:
    model = filled(package.HeapModel(False, False, 32, disk))
    assert model.spill(100) > 0
    for file in spill_files(disk):
        data = file.read_bytes()
        with file.open("r+b") as opened:
            opened.write(bytes(byte ^ 1 if at % 500 == 499 else byte for at, byte in enumerate(data)))
    with java_error("[PSS_HEAP_SPILL_FAILED] Rows of test ", "/heap-spill-", "(offset ", "The checkpoint has them."):
        model.rows(0)
    with java_error("PSS_HEAP_SPILL_FAILED"):
        model.get(0, 1, "key1")


def test_a_disk_that_takes_nothing(package: Any, tmp_path: Path) -> None:
    """Rows stay in memory, and it is tried again later."""
    (tmp_path / "file").write_text("no directory")
    model = filled(package.HeapModel(False, False, 32, str(tmp_path / "file")))
    assert (model.spill(100), model.spill(100)) == (0, 0)
    model.checkAll()
    assert list(model.spilled()) == [0, 0, 0]


def test_files_have_no_names(package: Any, tmp_path: Path) -> None:
    """So nothing is left of them after a process, however it ends; and what nobody needs is closed."""

    model = filled(package.HeapModel(False, False, 32, str(tmp_path)))
    assert model.spill(100) > 0
    assert list(tmp_path.iterdir()) == []
    assert spill_files(str(tmp_path)) != []
    model.checkAll()
    SparkContext._gateway.detach(model)

    def are_closed() -> bool:
        package.HeapStore.usedHeap()  # collects garbage
        return spill_files(str(tmp_path)) == []

    until(are_closed, "the files to be closed")


def test_a_scan_leaves_rows_where_they_are(package: Any, disk: str) -> None:
    model = filled(package.HeapModel(True, False, 32, disk))
    model.spill(100)
    _, spilled, _ = model.spilled()
    assert spilled > 50_000
    assert model.rows(0) == 1000
    _, after, reads = model.spilled()
    assert (after, reads > 0) == (spilled, True)
    model.scan(0, 1)
    _, scanned, _ = model.spilled()
    assert scanned < after, "but a scan of a prefix brings back what it needs"


def test_wrong_checksums_are_noticed(package: Any) -> None:
    """Rows are checked whichever way they are read, also in versions that have them from others."""
    assert list(package.HeapModel.noticingWrongChecksums()) == ["get", "iterator", "prefixScan", "entryIterator"]
