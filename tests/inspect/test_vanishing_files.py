"""Files that are moved or deleted while they are read: look again, and give up only when that never ends."""

from pathlib import Path

from fsspec.callbacks import Callback

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.inspect import TABLES
from tests.inspect.builders import (
    ALL_TABLES,
    STAMP,
    Watch,
    add_index,
    merged_file,
    merged_paths,
    plain_file,
    refused,
)


class Relocation:
    """Moves what lives in the first merged file to a new one, and unlinks the file, just before it is first opened."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.first = merged_paths(checkpoint)[0]
        self.entries = list(read_merged_file(BytesSource(self.first.read_bytes())))
        self.done = False

    def __call__(self, path: str) -> None:
        if not path.endswith(self.first.name) or self.done:
            return
        self.done = True
        data = self.first.read_bytes()
        with merged_file(self.checkpoint, 50) as file:
            for e in self.entries:
                copy = data[e.offset : e.offset + e.length]
                file.put(e.path, copy, stamp=e.stamp, writer=e.writer, generation=1)
        self.first.unlink()


@ALL_TABLES
def test_file_that_is_moved_while_it_is_read(checkpoint: Path, watch: Watch, tmp_path: Path, table: str) -> None:
    watch.before_open = relocation = Relocation(checkpoint)
    found = Checkpoint(checkpoint).inspect.table(table)
    assert relocation.done
    assert found == Checkpoint(checkpoint).inspect.table(table)
    if table == "summary":
        assert found["live_segment_count"].to_pylist() == [4]


def test_segment_that_is_moved_between_index_and_reading(tmp_path: Path, watch: Watch) -> None:
    with merged_file(tmp_path, 1) as file:
        file.put(f"0/0/1_{'a' * 8}.changelog", b"x", stamp=STAMP)
        file.put(f"0/0/2_{'a' * 8}.changelog", b"x", stamp=STAMP + 1)
    relocation = Relocation(tmp_path)
    first = relocation.first.name

    def at_second_open(path: str) -> None:
        if watch.opens[first] == 1:
            relocation(path)

    watch.before_open = at_second_open
    assert len(Checkpoint(tmp_path).inspect.versions()) == 2
    assert relocation.done


@ALL_TABLES
def test_plain_file_that_vanishes(tmp_path: Path, watch: Watch, table: str) -> None:
    (tmp_path / "offsets").mkdir()
    files = [plain_file(tmp_path, f"0/0/{version}.delta") for version in (1, 2)]
    watch.before_open = lambda path: files[1].unlink(missing_ok=True)
    found = Checkpoint(tmp_path).inspect.table(table)
    if table == "versions":
        assert found["version"].to_pylist() == [1]


@ALL_TABLES
def test_files_that_go_on_vanishing(checkpoint: Path, watch: Watch, table: str) -> None:
    def vanish(path: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    watch.before_open = vanish
    with refused("PSS_READ_FAILED", "10 times", "state/_merged"):
        Checkpoint(checkpoint).inspect.table(table)
    assert watch.listings["_merged"] == 10


def test_progress_ends_where_it_said_it_would(checkpoint: Path, watch: Watch) -> None:
    for index_only in (False, True):
        if index_only:
            add_index(checkpoint)
        watch.before_open = Relocation(checkpoint)  # the first attempt comes to nothing
        for name in TABLES:
            callback = Callback()
            Checkpoint(checkpoint).inspect.table(name, callback=callback)
            assert callback.value == callback.size == len(merged_paths(checkpoint)), (name, index_only)
