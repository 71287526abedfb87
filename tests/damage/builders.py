"""Small checkpoints that nobody has touched for long, and all that was ever written to them.

Each is built once, and laid out afresh for every attack, always at the same place: the reference files of forks name
paths. Random numbers come from seeds, so a number of an attack means the same attack every time.
"""

from __future__ import annotations

import datetime
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_statestore.conf import CLOSED_AFTER
from pyspark_statestore.forks.fork import fork_checkpoint
from pyspark_statestore.format import Entry, MergedFileWriter, file_name
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.references import give_second_paths
from pyspark_statestore.log.scan import MERGED
from pyspark_statestore.maintenance.compaction import compact
from pyspark_statestore.maintenance.consolidation import consolidate_index
from pyspark_statestore.storage import Directory, Location
from tests.forks.harness import state_of
from tests.inspect.builders import CREATED_MS, META, STAMP, plain_file
from tests.maintenance.builders import files_of_version
from tests.migration.builders import MERGED as MERGED_PROVIDER
from tests.migration.builders import plain_state, write_offsets
from tests.state.small_stores import Changes, Row, delta, write_schema

PARTITIONS = 2
LAST = 4
"""The newest version; batch 3 left it."""
REDONE = 4
"""The version that was written twice: its first attempt is not what anybody may read."""

_NOW = datetime.datetime.fromtimestamp(CREATED_MS / 1000, datetime.timezone.utc) + datetime.timedelta(days=10)
Files = dict[str, bytes]
Where = tuple[str, str]
"""A checkpoint of a world, and a logical path in it."""


@dataclass
class World:
    """Some checkpoints, as bytes.

    Attributes:
        name: For reports.
        files: All files, by their path below the world's directory.
        checkpoints: Directories that maintenance is done on.
        readers: Those that have to be readable: not one that was claimed.
        flushed: Merged files that were written flush by flush: a crash may leave any beginning of them.
        written: The bytes that were ever written under a logical path.
        newest: What a reader of the undamaged world finds.
        has_rows: Whether ``state()`` can decode it.
    """

    name: str
    files: Files
    checkpoints: tuple[str, ...]
    readers: tuple[str, ...]
    flushed: frozenset[str]
    written: dict[str, frozenset[bytes]]
    newest: dict[Where, bytes]
    has_rows: bool

    @property
    def targets(self) -> list[str]:
        """What can be attacked: merged files, also reference files; pins, and what says where a fork came from."""
        return sorted(name for name in self.files if name.endswith((".merged", ".fork", ".own", ".origin")))

    def lay_out(self, root: Path) -> None:
        """Writes it, and nothing else is there."""
        shutil.rmtree(root, ignore_errors=True)
        for name in self.files:
            self.put_back(root, name)

    def put_back(self, root: Path, name: str) -> None:
        """Restores one file from the copy."""
        write_old(root / name, self.files[name])


def write_old(path: Path, data: bytes) -> None:
    """A file that was last changed years ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (CREATED_MS / 1000, CREATED_MS / 1000))


def read(root: Path, checkpoints: tuple[str, ...]) -> dict[Where, bytes | None]:
    """What is read of each state file; None stands for bytes that a reader refuses.

    Raises:
        StateStoreFilesError: Nothing can be read.
    """
    found: dict[Where, bytes | None] = {}
    for name in checkpoints:
        path = root / name
        # Where the state was exported, stock Spark reads on.
        plain = any((path / MERGED).glob("*.exported")) or not (path / MERGED).is_dir()
        contents = plain_state(path) if plain else state_of(path)
        found.update({(name, logical): data for logical, data in contents.items()})
    return found


class Builder:
    """One checkpoint while it is being written."""

    def __init__(self, root: Path, name: str, seed: str, heap: bool) -> None:
        self.root, self.name, self.path, self.heap = root, name, root / name, heap
        self.random = random.Random(seed)
        self.written: dict[str, set[bytes]] = {}
        self.flushed: set[str] = set()
        self.has_plain = False
        self.puts: dict[str, Entry] = {}
        self._stamp = STAMP
        if heap:
            write_schema(self.path)
        plain_file(self.path, "../metadata", b'{"id":"4f5b"}')

    @contextmanager
    def file(self, number: int, *, flushed: bool = True, sealed: bool = True) -> Iterator[MergedFileWriter]:
        """A merged file: as an executor writes it, group by group, and then perhaps sealed; or as maintenance does."""
        created, writer = CREATED_MS + number, 7
        name = f"{MERGED}/{file_name(created, writer, number)}"
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            meta = {**META, "plain": self.has_plain, "fronts": flushed, "whole": not flushed}
            file = MergedFileWriter(out, writer=writer, created_ms=created, meta=meta)
            yield file
            if sealed:
                file.seal()
        if flushed:
            self.flushed.add(f"{self.name}/{name}")

    def put(self, file: MergedFileWriter, path: str, data: bytes) -> None:
        """The newest write of a path."""
        self._stamp += 1
        self.puts[path] = file.put(path, data, stamp=self._stamp)
        self.written.setdefault(path, set()).add(data)

    def delete(self, file: MergedFileWriter, path: str) -> None:
        """Deletes what was put last."""
        dead = self.puts.pop(path)
        file.delete(path, stamp=dead.stamp, writer=dead.writer)

    def version(self, file: MergedFileWriter, version: int, attempt: int = 0, end: bool = True) -> None:
        """What all partitions write for a version."""
        for partition in range(PARTITIONS):
            for path, data in self.files_of(partition, version, attempt).items():
                self.put(file, path, data)
            if end:
                file.end_group()

    def forget(self, file: MergedFileWriter, version: int) -> None:
        """Deletes a version's files, but for what later snapshots name."""
        for path in [path for path in self.puts if path.rpartition("/")[2].startswith(f"{version}.")]:
            self.delete(file, path)

    def files_of(self, partition: int, version: int, attempt: int) -> Files:
        """A heap store's files, or a RocksDB store's."""
        if not self.heap:
            return files_of_version(partition, version, self.random.randbytes)
        files = {f"0/{partition}/{version}.delta": delta(changes(partition, version, attempt))}
        if version % 2 == 0:
            files[f"0/{partition}/{version}.snapshot"] = delta(
                contents(partition, version, attempt if version == REDONE else 1)
            )
        return files

    def world(self, name: str, checkpoints: tuple[str, ...] = ("q",), readers: tuple[str, ...] = ("q",)) -> World:
        """What is there now."""
        files = {str(p.relative_to(self.root)): p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file()}
        newest = {where: data for where, data in read(self.root, readers).items() if data is not None}
        written = {path: frozenset(each) for path, each in self.written.items()}
        assert all(data in written[path] for (_, path), data in newest.items())
        return World(name, files, checkpoints, readers, frozenset(self.flushed), written, newest, self.heap)

    def commit(self, *batches: int) -> None:
        """Spark's logs."""
        write_offsets(self.path, MERGED_PROVIDER, batches)
        for batch in batches:
            plain_file(self.path, f"../commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def changes(partition: int, version: int, attempt: int = 0) -> Changes:
    """What a version changes; another attempt writes other values."""
    numbers = random.Random(f"{partition} {version}")
    rows: dict[Row, Row | None] = {(partition, n): (numbers.getrandbits(40) + attempt,) for n in range(20)}
    rows[version, -1] = (version,)
    if version > 1:
        rows[version - 1, -1] = None
    return rows


def contents(partition: int, version: int, attempt: int = 1) -> dict[Row, Row]:
    """What a version has; ``attempt`` is the one of the version that was written twice."""
    rows: dict[Row, Row] = {}
    for each in range(1, version + 1):
        for key, value in changes(partition, each, attempt if each == REDONE else 0).items():
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
    return rows


def _closed(make: Builder) -> None:
    """Sealed files: of several flushes, and of one group; version 1 is deleted, the newest was written twice."""
    with make.file(1) as file:
        make.version(file, 1)
        make.version(file, 2)
    with make.file(2) as file:
        make.version(file, 3)
        make.version(file, REDONE, end=False)
    with make.file(3, flushed=False) as file:
        make.version(file, REDONE, attempt=1, end=False)
        make.forget(file, 1)
    make.commit(*range(LAST))


def _open(make: Builder) -> None:
    """What a killed query leaves: an unsealed file, whose last group holds a batch that was redone."""
    with make.file(1) as file:
        make.version(file, 1)
        make.version(file, 2)
        make.version(file, REDONE)
    with make.file(2, sealed=False) as file:
        make.version(file, 3)
        make.forget(file, 1)
        file.end_group()
        make.version(file, REDONE, attempt=1, end=False)
        file.end_group()
    make.commit(*range(LAST))


def _mixed(make: Builder) -> None:
    """As stock Spark began it: the first versions are plain files."""
    make.has_plain = True
    for version in (1, 2):
        for partition in range(PARTITIONS):
            for path, data in make.files_of(partition, version, 0).items():
                plain_file(make.path, path, data)
                make.written.setdefault(path, set()).add(data)
    with make.file(1) as file:
        make.version(file, 3)
        make.version(file, REDONE)
    with make.file(2, sealed=False) as file:
        make.version(file, REDONE, attempt=1)
    make.commit(*range(LAST))


def _sealed(make: Builder) -> None:
    """Each version in a file of its own, which appeared at once."""
    for version in range(1, LAST + 1):
        with make.file(version, flushed=False) as file:
            make.version(file, version, attempt=int(version == REDONE), end=False)
    make.commit(*range(LAST))


def log(checkpoint: Path) -> MergedLog:
    """Maintenance whose names and times are the same in each run."""
    return MergedLog(Directory(Location.of(checkpoint)), CLOSED_AFTER, clock=lambda: _NOW, writer=99)


def _compact(make: Builder) -> None:
    compact(log(make.path), max_space_amplification=1, target_file_size=1 << 27)


def _consolidate(make: Builder) -> None:
    consolidate_index(log(make.path))


def _go_on(make: Builder) -> None:
    """After it was forked: only pins keep the files of the versions until then."""
    with make.file(50, flushed=False) as file:
        make.version(file, 5, end=False)
        make.version(file, 6, end=False)
        for version in range(1, LAST + 1):
            make.forget(file, version)
        for path in [path for path in make.puts if ".sst" in path and "00006" not in path]:
            make.delete(file, path)
    make.commit(4, 5)


def _fork(mode: str) -> Callable[[Builder], None]:
    def fork(make: Builder) -> None:
        fork_checkpoint(log(make.path), Location.of(make.root / "fork"), mode)
        if mode != "claim":
            _go_on(make)

    return fork


def second(path: str) -> str:
    """The second path of a file, in a partition that follows the others."""
    operator, partition, rest = path.split("/", 2)
    return f"{operator}/{int(partition) + PARTITIONS}/{rest}"


def _split(make: Builder) -> None:
    """Partitions were split in place; then the old ones went on: only a pin keeps the files of their versions."""

    def choose(snapshot: LogSnapshot) -> tuple[np.ndarray, pa.StringArray]:
        rows = np.flatnonzero(snapshot.scan.resolution.live)
        paths = snapshot.scan.entries.path.take(pa.array(rows)).to_pylist()
        return rows, pa.array([second(path) for path in paths], pa.string())

    assert give_second_paths(log(make.path), choose)
    make.written |= {second(path): set(data) for path, data in make.written.items()}
    _grow_old(make.root)
    with make.file(50, flushed=False) as file:
        for version in range(1, LAST):
            make.forget(file, version)


@dataclass(frozen=True)
class Plan:
    """How a world is built."""

    begin: Callable[[Builder], None]
    then: tuple[Callable[[Builder], None], ...] = ()
    checkpoints: tuple[str, ...] = ("q",)
    readers: tuple[str, ...] = field(default=())

    def build(self, root: Path, name: str, heap: bool) -> World:
        shutil.rmtree(root, ignore_errors=True)
        make = Builder(root, "q", name, heap)
        self.begin(make)
        _grow_old(root)
        for step in self.then:
            step(make)
            _grow_old(root)
        return make.world(name, self.checkpoints, self.readers or self.checkpoints)


def _grow_old(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (CREATED_MS / 1000, CREATED_MS / 1000))


PLANS = {
    "closed": Plan(_closed),
    "open": Plan(_open),
    "mixed": Plan(_mixed),
    "compacted": Plan(_closed, (_compact,)),
    "indexed": Plan(_sealed, (_consolidate,)),
    "split": Plan(_closed, (_split,)),
    "fork": Plan(_closed, (_fork("no_claim"),), ("q", "fork")),
    "fork of an open one": Plan(_open, (_fork("no_claim"),), ("q", "fork")),
    "claimed": Plan(_closed, (_fork("claim"),), ("q", "fork"), ("fork",)),
}


def build_all(root: Path) -> list[World]:
    """The worlds, each with a heap store and with a RocksDB store."""
    return [
        plan.build(root, f"{name}, {'heap' if heap else 'rocksdb'}", heap)
        for name, plan in PLANS.items()
        for heap in (True, False)
    ]
