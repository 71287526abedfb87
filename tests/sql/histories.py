"""A checkpoint whose processes write, seal, move and unlink at random, and a stream that follows it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.stream_limited import LimitedStreamReader

from pyspark_statestore.format import MergedFileWriter, file_name

CREATED_MS = 1_700_000_000_000


@dataclass
class Write:
    """One logical file, wherever its copies are."""

    path: str
    stamp: int
    writer: int
    places: dict[str, int] = field(default_factory=dict)
    """Generation by merged file."""
    alive: bool = True


@dataclass
class File:
    """A merged file, and what in it is on its way."""

    name: str
    writer: int
    out: BinaryIO
    log: MergedFileWriter
    held: list[Write] = field(default_factory=list)
    sealed: bool = False
    late: bool = False
    """Whether bytes were on their way at the last look, and have not been looked at since."""


class World:
    """Two processes with three lanes each, by the format's rules, in files that are really written.

    Args:
        directory: Of the checkpoint.
        seed: Of all choices.
        group_is_file: Whether files appear only when they are closed, as on object stores.
        created_ms: When it all begins, in Unix milliseconds.
    """

    def __init__(
        self, directory: Path, seed: int, *, group_is_file: bool = False, created_ms: int = CREATED_MS
    ) -> None:
        self.random = random.Random(seed)
        self.merged = directory / "state" / "_merged"
        self.merged.mkdir(parents=True)
        self.group_is_file = group_is_file
        self.files: dict[str, File] = {}
        self.writes: list[Write] = []
        self._lanes: dict[tuple[int, int], File] = {}
        self._numbers = dict.fromkeys((11, 12), -1)
        self._created_ms = created_ms
        self._clock = created_ms << 16

    def step(self) -> None:
        """Something happens."""
        actions = [self.write, self.write, self.write, self.hold, self.flush, self.seal, self.delete]
        self.random.choice([*actions, self.relocate, self.relocate, self.unlink, self.unlink])()

    def write(self) -> None:
        """A group of a few writes becomes durable."""
        file = self._lane()
        self._stamp(file)
        self._flush(file)

    def hold(self) -> None:
        """A group has its stamps, but is not durable yet."""
        self._stamp(self._lane())

    def flush(self) -> None:
        """Such a group becomes durable."""
        waiting = [file for file in self.files.values() if file.held]
        if waiting:
            self._flush(self.random.choice(waiting))

    def seal(self) -> None:
        """A file ends."""
        open_ = [file for file in self.files.values() if not file.sealed and not self.group_is_file]
        if open_:
            file = self.random.choice(open_)
            self._flush(file)
            self._seal(file)

    def delete(self) -> None:
        """Some writes die."""
        for write in self.random.sample(self.writes, min(3, len(self.writes))):
            write.alive = write.alive and not write.places

    def relocate(self) -> None:
        """What lives in a closed file is copied."""
        source = self._closed()
        if source is None:
            return
        moved = [w for w in self.writes if w.alive and source.name in w.places]
        target = self._lane(other_than=source)
        for write in moved:
            generation = write.places[source.name] + 1
            target.log.put(write.path, b"x", stamp=write.stamp, writer=write.writer, generation=generation)
            write.places.setdefault(target.name, generation)
        self._flush(target)

    def unlink(self) -> None:
        """A closed file in which nothing is read any more goes."""
        file = self._closed()
        # Bytes that were on their way for longer than settledAfter are what the stream does not promise.
        if file is None or file.late:
            return
        in_it = [write for write in self.writes if file.name in write.places]
        if all(not w.alive or max(w.places.values()) > w.places[file.name] for w in in_it):
            for write in in_it:
                del write.places[file.name]
            (self.merged / file.name).unlink()
            del self.files[file.name]

    def looked(self, *, took_all: bool = True) -> None:
        """The stream has looked."""
        for file in self.files.values():
            file.late = bool(file.held) or (file.late and not took_all)

    def _closed(self) -> File | None:
        closed = [file for file in self.files.values() if file.sealed]
        return self.random.choice(closed) if closed else None

    def _lane(self, other_than: File | None = None) -> File:
        key = self.random.choice(list(self._numbers)), self.random.randrange(3)
        file = self._lanes.get(key)
        if file is None or file.sealed or file is other_than:
            self._numbers[key[0]] += 1
            name = file_name(self._created_ms + len(self.writes), key[0], self._numbers[key[0]])
            out = (self.merged / (f".{name}" if self.group_is_file else name)).open("wb", buffering=0)
            file = File(name, key[0], out, MergedFileWriter(out, writer=key[0], created_ms=CREATED_MS))
            self._lanes[key] = self.files[name] = file
        return file

    def _stamp(self, file: File) -> None:
        for _ in range(self.random.randint(1, 3)):
            self._clock += self.random.choice([1, 1, 1 << 16])
            partition, version = divmod(len(self.writes), 100)
            write = Write(f"0/{partition}/{version}.changelog", self._clock, file.writer)
            self.writes.append(write)
            file.held.append(write)
            file.log.put(write.path, b"x", stamp=write.stamp)

    def _flush(self, file: File) -> None:
        for write in file.held:
            write.places.setdefault(file.name, 0)
        file.held = []
        if self.group_is_file:
            self._seal(file)
            (self.merged / f".{file.name}").rename(self.merged / file.name)
        else:
            file.log.end_group()

    def _seal(self, file: File) -> None:
        file.log.seal()
        file.out.close()
        file.sealed = True


class Follower:
    """A stream of a checkpoint, as Spark drives it: one batch after the other, each perhaps read again.

    Args:
        directory: Of the checkpoint.
        options: Of the stream.
    """

    def __init__(self, directory: Path, **options: str) -> None:
        self._options = ReadOptions.parse(
            {"path": str(directory), "table": "segments", "settledAfter": "0s", **options}
        )
        self.reader = LimitedStreamReader(self._options)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.rows: list[str] = []

    def restart(self) -> None:
        """Goes on in a new process."""
        self.offset = json.loads(json.dumps(self.offset))
        self.reader = LimitedStreamReader(self._options)

    def plan(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next batch ends."""
        return self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())

    def read(self, end: dict[str, Any]) -> list[str]:
        """Reads a batch."""
        (partition,) = self.reader.partitions(self.offset, end)
        return [path for batch in self.reader.read(partition) for path in batch.column("logical_path").to_pylist()]

    def take(self, end: dict[str, Any]) -> list[str]:
        """Reads a batch and is done with it."""
        rows = self.read(end)
        self.rows += rows
        self.offset = end
        return rows

    def batch(self, at_most: int | None = None) -> list[str]:
        """The next batch; nothing where there is no new offset."""
        end = self.plan(ReadAllAvailable() if at_most is None else ReadMaxRows(at_most))
        return [] if end == self.offset else self.take(end)
