"""SSTs that a host keeps: what comes out is right, whatever was done to them, and their room is bounded."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jvm.harness import Checkpoint, begun, java_error, refer, snapshot_zip

pytestmark = pytest.mark.spark

SIZE = 20_000
ZIP = "0/0/3.zip"

MakeCached = Callable[..., Checkpoint]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The directory of the cache, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def cached(new_checkpoint: Callable[..., Checkpoint], cache: Path) -> MakeCached:
    """Makes checkpoints whose SSTs are kept in ``cache``."""

    def make(**options: str) -> Checkpoint:
        return new_checkpoint(**{"cache__dir": str(cache), "cache__sizeLimit": "1m", **options})

    return make


def sst() -> str:
    """A new SST's path."""
    return f"0/0/SSTs/000012-{uuid.uuid4()}.sst"


def snapshot(checkpoint: Checkpoint, *paths: str, zipped: str = ZIP) -> dict[str, bytes]:
    """Writes a snapshot of these SSTs, as Spark does; returns their bytes."""
    data = {path: random.Random(path).randbytes(SIZE) for path in paths}
    for path, content in data.items():
        checkpoint.stage(path, content)
    checkpoint.write(zipped, snapshot_zip(*(Path(path).name for path in paths)))
    return data


def load(checkpoint: Checkpoint, path: str, name: str = "loaded.sst") -> Path:
    """Copies an SST to where a store wants it, as Spark does; returns where that is."""
    target = checkpoint.directory.parent / name
    hadoop = checkpoint.jvm.org.apache.hadoop.fs.Path
    checkpoint.fs.copyToLocalFile(False, checkpoint.path(path), hadoop(f"file:{target}"), True)
    return target


def bytes_of(checkpoint: Checkpoint) -> tuple[int, int]:
    """How many bytes of SSTs were cached and fetched."""
    metrics = checkpoint.metrics()
    return metrics["cachedBytes"], metrics["fetchedBytes"]


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("1/??/*") if path.is_file())


def test_what_was_written_here_is_not_fetched(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    checkpoint.forget()

    assert load(checkpoint, path).read_bytes() == data

    assert bytes_of(checkpoint) == (SIZE, 0)
    (entry,) = entries(cache)
    # One file, and not a copy.
    assert entry.samefile(checkpoint.directory.parent / "loaded.sst")
    assert cache.stat().st_mode & 0o777 == 0o700


def test_what_was_fetched_once_is_not_fetched_again(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    for entry in entries(cache):
        entry.unlink()
    checkpoint.forget()

    assert load(checkpoint, path).read_bytes() == data
    assert bytes_of(checkpoint) == (0, SIZE)
    checkpoint.forget()
    assert load(checkpoint, path).read_bytes() == data
    assert bytes_of(checkpoint) == (SIZE, 0)


def test_a_fork_finds_what_its_source_has_put_there(
    cached: MakeCached, new_checkpoint: Callable[..., Checkpoint], cache: Path
) -> None:
    source = cached()
    ((path, data),) = snapshot(source, sst()).items()
    fork = cached(name="fork")
    refer(source, fork)
    assert load(fork, path).read_bytes() == data
    assert bytes_of(fork) == (SIZE, 0)


def spoil(entry: Path, how: str, elsewhere: Path) -> None:
    """Does something to an entry that nothing of ours does."""
    data = entry.read_bytes()
    mode = entry.stat().st_mode
    entry.unlink()
    if how == "flipped":
        entry.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif how == "cut":
        entry.write_bytes(data[:-1])
    elif how == "longer":
        entry.write_bytes(data + b"x")
    elif how == "empty":
        entry.write_bytes(b"")
    elif how == "link":
        elsewhere.write_bytes(data)
        entry.symlink_to(elsewhere)
    elif how == "dangling":
        entry.symlink_to(elsewhere)
    elif how == "directory":
        entry.mkdir()
    elif how == "pipe":
        os.mkfifo(entry)
    if entry.is_file() and not entry.is_symlink():
        entry.chmod(mode)


@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty", "link", "dangling", "directory", "pipe", "gone"])
def test_a_damaged_entry_is_fetched_instead(cached: MakeCached, cache: Path, tmp_path: Path, how: str) -> None:
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    (entry,) = entries(cache)
    spoil(entry, how, tmp_path / "elsewhere")
    checkpoint.forget()

    assert load(checkpoint, path).read_bytes() == data

    assert bytes_of(checkpoint) == (0, SIZE)
    assert not (tmp_path / "loaded.sst").is_symlink()


@pytest.mark.parametrize("name", ["as Spark's", "of no kind that is kept"])
def test_what_is_loaded_over_an_old_file_does_not_reach_the_cache(cached: MakeCached, cache: Path, name: str) -> None:
    """The old file and an entry are one file with two names."""
    checkpoint = cached()
    data = snapshot(checkpoint, sst(), sst() if name == "as Spark's" else "0/0/SSTs/000012-a.sst")
    one, other = data
    checkpoint.forget()
    load(checkpoint, one)
    kept = {entry: entry.read_bytes() for entry in entries(cache)}
    for entry in [entry for entry, content in kept.items() if content == data[other]]:
        entry.unlink()

    assert load(checkpoint, other).read_bytes() == data[other]

    assert {entry: entry.read_bytes() for entry in entries(cache)} == kept
    checkpoint.forget()
    assert load(checkpoint, one).read_bytes() == data[one]


def test_the_checkpoint_says_what_is_there(cached: MakeCached) -> None:
    """A host may have more than the checkpoint, and gives none of it."""
    checkpoint = cached()
    ((path, _),) = snapshot(checkpoint, sst()).items()
    assert checkpoint.delete(path)
    with java_error("does not exist"):
        load(checkpoint, path)
    assert not (checkpoint.directory.parent / "loaded.sst").exists()


@pytest.mark.parametrize("path", ["0/0/SSTs/000012-a.sst", "0/0/logs/000012.log", "0/0/7.zip"])
def test_only_files_with_names_for_ever_are_kept(cached: MakeCached, cache: Path, path: str) -> None:
    checkpoint = cached()
    checkpoint.write(path, b"may be written again")
    checkpoint.forget()
    assert load(checkpoint, path).read_bytes() == b"may be written again"
    assert entries(cache) == []


def test_what_was_used_longest_ago_goes_first(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached(cache__sizeLimit="100k")
    first = sst()
    snapshot(checkpoint, first)
    for version in range(4, 20):
        newest = sst()
        snapshot(checkpoint, newest, zipped=f"0/0/{version}.zip")
        assert any(Path(newest).name in entry.name for entry in entries(cache))
        for age, entry in enumerate(sorted(entries(cache), key=lambda each: each.stat().st_mtime_ns, reverse=True)):
            os.utime(entry, (1_700_000_000 - age, 1_700_000_000 - age))
        checkpoint.forget()
        load(checkpoint, first)
        assert bytes_of(checkpoint) == (SIZE, 0), "it was used all the time"
        # A twentieth of the limit may come before it is looked at again, and a file is never cut.
        assert sum(entry.stat().st_size for entry in entries(cache)) <= 100 * 1024 + 2 * SIZE
    assert 2 <= len(entries(cache)) <= 7


def test_what_a_store_has_now_goes_last(cached: MakeCached, cache: Path) -> None:
    """Its links are what the next load needs, however long ago they were made."""
    checkpoint = cached(cache__sizeLimit="100k")
    first = sst()
    snapshot(checkpoint, first)
    checkpoint.forget()
    open_one = load(checkpoint, first)
    (of_first,) = entries(cache)
    assert of_first.samefile(open_one)
    (checkpoint.directory.parent / Path(first).name).unlink()

    def write_another(version: int) -> None:
        """A snapshot whose SST is compacted away afterwards."""
        if of_first.exists():
            os.utime(of_first, (1_600_000_000, 1_600_000_000))
        path = sst()
        snapshot(checkpoint, path, zipped=f"0/0/{version}.zip")
        (checkpoint.directory.parent / Path(path).name).unlink()

    for version in range(4, 20):
        write_another(version)
        assert of_first.exists()
    open_one.unlink()
    for version in range(20, 28):
        write_another(version)
    assert not of_first.exists()
    assert sum(entry.stat().st_size for entry in entries(cache)) <= 100 * 1024 + 2 * SIZE


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted for it")
def test_a_full_disk_costs_what_no_store_has(cached: MakeCached, tmp_path: Path) -> None:
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
    try:
        checkpoint = cached(cache__dir=str(disk / "cache"))
        live, *others = snapshot(checkpoint, *(sst() for _ in range(5)))
        # To delete what no store has is not enough, and to delete more frees nothing.
        dead, new = others[:1], others[1:]
        checkpoint.forget()

        def names() -> set[str]:
            return {entry.name[: len(Path(live).name)] for entry in entries(disk / "cache")}

        for path in (live, *dead):
            load(checkpoint, path, str(disk / Path(path).name))
        for path in dead:
            (disk / Path(path).name).unlink()
        assert names() == {Path(path).name for path in (live, *dead)}
        tenth = 2**20 // 10
        (disk / "of somebody").write_bytes(bytes(shutil.disk_usage(disk).free - tenth))

        for path in new:
            load(checkpoint, path, str(disk / Path(path).name))

        assert names() >= {Path(path).name for path in (live, *new)}
        assert not names() >= {Path(path).name for path in dead}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_nothing_is_kept_where_the_limit_is_nothing(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached(cache__sizeLimit="0")
    ((path, data),) = snapshot(checkpoint, sst()).items()
    checkpoint.forget()
    assert load(checkpoint, path).read_bytes() == data
    assert not cache.exists()


def test_what_is_larger_than_the_limit_is_not_kept(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached(cache__sizeLimit="10k")
    ((path, data),) = snapshot(checkpoint, sst()).items()
    checkpoint.forget()
    assert load(checkpoint, path).read_bytes() == data
    assert entries(cache) == []


@pytest.mark.parametrize("how", ["open to others", "another user's", "a link", "a file"])
def test_a_directory_that_others_can_write_to_is_not_used(
    cached: MakeCached, cache: Path, tmp_path: Path, how: str
) -> None:
    if how == "another user's" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "elsewhere")
    elif how == "a file":
        cache.write_text("of somebody")
    else:
        cache.mkdir(mode=0o700)
        if how == "open to others":
            cache.chmod(0o770)
        else:
            os.chown(cache, 65_533, -1)
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    checkpoint.forget()

    assert load(checkpoint, path).read_bytes() == data

    assert bytes_of(checkpoint) == (0, SIZE)
    assert not list(tmp_path.glob("elsewhere/*"))
    assert cache.is_file() or not list(cache.iterdir())


@pytest.mark.parametrize("named", ["/", "/../", "no\0name", "{file}/below"])
def test_what_can_be_no_directory_is_not_used(
    cached: MakeCached, new_checkpoint: Callable[..., Checkpoint], tmp_path: Path, named: str
) -> None:
    (tmp_path / "file").write_text("of somebody")
    checkpoint = new_checkpoint(cache__dir=named.format(file=tmp_path / "file"))
    ((path, data),) = snapshot(checkpoint, sst()).items()
    checkpoint.forget()

    assert load(checkpoint, path).read_bytes() == data

    assert bytes_of(checkpoint) == (0, SIZE)


def test_the_cache_may_go_at_any_time(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    data = snapshot(checkpoint, sst(), sst())
    shutil.rmtree(cache)
    checkpoint.forget()
    for path, content in data.items():
        assert load(checkpoint, path).read_bytes() == content
    assert len(entries(cache)) == len(data)


def test_a_directory_that_somebody_makes_later_is_not_used(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    (entry,) = entries(cache)
    theirs = cache.with_name("theirs")
    shutil.copytree(cache, theirs)
    shutil.rmtree(cache)
    theirs.rename(cache)
    cache.chmod(0o777)
    checkpoint.forget()
    assert load(checkpoint, path).read_bytes() == data
    assert bytes_of(checkpoint) == (0, SIZE)
    assert entries(cache) == [entry]


def test_many_load_and_somebody_deletes(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    data = snapshot(checkpoint, *(sst() for _ in range(4)))
    checkpoint.forget()
    assert checkpoint.exists(ZIP)
    loads = [
        (path, begun(load, checkpoint, path, f"{number}-{at}.sst"))
        for number in range(12)
        for at, path in enumerate(data)
    ]
    while not all(done.done() for _, done in loads):
        for entry in entries(cache):
            entry.unlink(missing_ok=True)
    for path, done in loads:
        assert done.result(30).read_bytes() == data[path]


def test_damage_in_a_merged_file_is_not_kept(cached: MakeCached, cache: Path) -> None:
    checkpoint = cached()
    ((path, data),) = snapshot(checkpoint, sst()).items()
    (entry,) = entries(cache)
    entry.unlink()
    name, where = checkpoint.view().live[path]
    with (checkpoint.merged / name).open("r+b") as file:
        file.seek(where.offset)
        file.write(bytes([data[0] ^ 1]))
    checkpoint.forget()

    with java_error("PSS_CORRUPT_SEGMENT", path):
        load(checkpoint, path)

    assert entries(cache) == []
