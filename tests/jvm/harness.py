"""Checkpoints for tests that work on merged logs without a query, and a second opinion on what is in them."""

from __future__ import annotations

import io
import json
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from pyspark_statestore.format import (
    BytesSource,
    Entry,
    Kind,
    MergedFile,
    MergedFileWriter,
    file_name,
    foreign_path,
    read_merged_file,
    read_segment,
)
from tests.sampling import sample

Result = TypeVar("Result")

TESTING = "io.pyspark.statestore.testing"
FILE_SYSTEMS = {
    "counting": "CountingFileSystem",
    "objectstore": "ObjectStoreLikeFileSystem",
    "faulty": "FaultyFileSystem",
    "faultystore": "FaultyObjectStore",
    "gated": "GatedFileSystems$Disk",
    "gatedstore": "GatedFileSystems$Store",
    "paged": "PagedFileSystem",
    "bulk": "BulkDeletingFileSystem",
}
"""The test file systems' classes by scheme."""

FORKLESS = {
    "spark.hadoop.fs.file.impl": f"{TESTING}.ForklessLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{TESTING}.ForklessLocalFs",
}
"""Settings of sessions with the test jar: Hadoop starts no processes for files of the local disk."""

MERGED_FILE_SYSTEM = "io.pyspark.statestore.fs.MergedFileSystem"
PREFIX = "spark.sql.streaming.stateStore.fileMerging."
CREATED_MS = 1_700_000_000_000
STAMP = CREATED_MS << 16


def file_system_conf(*schemes: str) -> dict[str, str]:
    """Hadoop settings for test file systems and what merges over them."""
    conf = {}
    for scheme in schemes:
        if scheme in FILE_SYSTEMS:
            conf[f"fs.{scheme}.impl"] = f"{TESTING}.{FILE_SYSTEMS[scheme]}"
        conf[f"fs.merged+{scheme}.impl"] = MERGED_FILE_SYSTEM
    return conf


def until(condition: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Waits for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return result


def no_file_goes(look: Callable[[], Result], seconds: float = 60) -> Result:
    """A look during which no file was unlinked. Cleaning goes on for a while after whatever calls for it."""
    end = time.monotonic() + seconds
    while True:
        try:
            return look()
        except FileNotFoundError:
            assert time.monotonic() < end, f"files come and go for {seconds} s without a pause"


def await_listeners(spark: SparkSession) -> None:
    """Waits until Spark's listeners have heard of all that has happened so far."""
    context: Any = spark.sparkContext._jsc
    context.sc().listenerBus().waitUntilEmpty()


def gauge(jvm: Any, name: str) -> float:
    """What one of our gauges says in the driver of the running session."""
    gauges = getattr(jvm, f"{TESTING}.PluginGauges")
    return float(gauges.value("io.pyspark.statestore.spark.FileMergingPlugin", f"fileMerging.{name}"))


def compacted_histories(jvm: Any, folder: Path, limit: Callable[[int], int]) -> tuple[int, int]:
    """Runs random histories of databases that are compacted although their files have holes.

    Args:
        jvm: With the test jar.
        folder: For their files.
        limit: Bytes that may be on the disk, by the number of the history; 0 for all.

    Returns:
        Bytes that have gone, or were left out where none go, and the number of compactions.
    """
    gone = compactions = 0
    for seed in sample(range(400), 15):
        directory = folder / str(seed)
        directory.mkdir()
        found = jvm.io.pyspark.statestore.rocks.HoleyDatabase.runCompacted(str(directory), seed, 12, limit(seed))
        gone += found[0]
        compactions += found[1]
    return gone, compactions


def open_descriptors(jvm: Any) -> Iterator[tuple[str, Path]]:
    """Names of the files that the JVM has open, and where they are read whatever became of their names."""
    for entry in Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(entry), entry


def open_files(jvm: Any) -> Iterator[str]:
    """Names of the files that the JVM has open."""
    return (name for name, _ in open_descriptors(jvm))


def begun(action: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Does something in a thread of its own, for which nobody waits at the end where it hangs."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(action(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def in_time(action: Callable[..., Any], *arguments: Any, seconds: float = 30) -> Any:
    """Does something that must not wait for ever; its own errors are raised here."""
    return result_in_time(begun(action, *arguments), action, seconds=seconds)


def result_in_time(done: Future[Any], what: Any, seconds: float = 30) -> Any:
    """The result of what was begun, which must not take for ever."""
    try:
        return done.result(seconds)
    except TimeoutError:
        pytest.fail(f"{what} still hangs after {seconds} s", pytrace=False)


@contextmanager
def java_error(*words: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expects a Java exception that says all of these words.

    Once a session has been made in the process, PySpark turns those that it knows into exceptions of its own.
    """
    with pytest.raises((Py4JJavaError, CapturedException)) as caught:
        yield caught
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said


@dataclass
class View:
    """What is in a checkpoint's merged files by §4 and rules 3 to 5, read by the Python package."""

    files: dict[str, MergedFile]
    sources: dict[str, BytesSource]
    """The files' bytes, which stay when another unlinks them."""
    live: dict[str, tuple[str, Entry]] = field(default_factory=dict)
    """By logical path: the merged file's name and the entry."""

    @classmethod
    def of(cls, state: Path) -> View:
        def read() -> dict[str, BytesSource]:
            return {path.name: BytesSource(path.read_bytes()) for path in sorted((state / "_merged").glob("*.merged"))}

        data = no_file_goes(read)
        view = cls({name: read_merged_file(source, name) for name, source in data.items()}, data)
        tombstones: dict[str, tuple[int, int]] = {}
        best: dict[str, tuple[tuple[int, int], int, str, Entry]] = {}
        for name, file in view.files.items():
            if name.endswith(".index.merged"):
                continue  # what it says is in other files
            for entry in file:
                if entry.file_ref and not file.foreign:
                    continue  # what it repeats is read of the file itself, where that exists
                if entry.kind is Kind.DELETE:
                    tombstones[entry.path] = max(entry.key, tombstones.get(entry.path, (-1, -1)))
                else:
                    candidate = (entry.key, entry.generation, name, entry)
                    best[entry.path] = max(candidate, best.get(entry.path, candidate), key=lambda c: c[:3])
        view.live = {p: (c[2], c[3]) for p, c in best.items() if c[0] > tombstones.get(p, (-1, -1))}
        return view

    def contents(self) -> dict[str, bytes]:
        """The bytes of every live path, each checked."""

        def source(name: str, entry: Entry) -> BytesSource:
            foreign = self.files[name].foreign
            where = foreign[entry.file_ref - 1] if foreign else name
            return self.sources[where] if where in self.sources else BytesSource(Path(where).read_bytes())

        return {path: read_segment(source(name, entry), entry, name) for path, (name, entry) in self.live.items()}


class Checkpoint:
    """One checkpoint on a test's disk, as this JVM's merged log writes and reads it and as Python reads it afresh.

    Args:
        jvm: py4j's view of the JVM.
        directory: The checkpoint, on the local disk.
        scheme: The file system that it is merged over.
        fs: Hadoop settings of that, by key.
        options: Of the log, by their names below the prefix.
    """

    def __init__(self, jvm: Any, directory: Path, scheme: str = "file", fs: Any = None, **options: str) -> None:
        self.jvm = jvm
        self.directory = directory
        self.state = directory / "state"
        self.merged = self.state / "_merged"
        self.scheme = scheme
        self._below = fs or {}
        self.fs = self._file_system(options)

    def _file_system(self, options: Mapping[str, str]) -> Any:
        return self._files.fileSystem(f"merged+{self.scheme}:///", json.dumps(self._hadoop_settings(options)))

    def _hadoop_settings(self, options: Mapping[str, str]) -> dict[str, str]:
        settings = {**file_system_conf(self.scheme), **self._below}
        # Damage is to be seen where it is, and not to be made good by what this host has kept.
        settings[PREFIX + "cache.sizeLimit"] = "0"
        return settings | {PREFIX + name.replace("__", "."): value for name, value in options.items()}

    @cached_property
    def _files(self) -> Any:
        return getattr(self.jvm, f"{TESTING}.LogicalFiles")

    @cached_property
    def _path_class(self) -> Any:
        # Asked for by its whole name, it takes one question to the JVM; else one for each package.
        return getattr(self.jvm, "org.apache.hadoop.fs.Path")

    @cached_property
    def _logs(self) -> Any:
        return getattr(self.jvm, "io.pyspark.statestore.log.MergedLogs")

    def location(self, relative: str) -> str:
        """A logical file as Hadoop is told, with the merged scheme."""
        return f"merged+{self.scheme}:{self.state}/{relative}"

    def path(self, relative: str) -> Any:
        """The Hadoop path of a logical file, with the merged scheme."""
        return self._path_class(self.location(relative))

    @property
    def log(self) -> Any:
        """The MergedLog; None before it is first used."""
        return self._logs.open(self._path_class(f"{self.scheme}:{self.state}"))

    def forget(self) -> None:
        """What is left of a process that was killed: its unsealed files."""
        self._logs.forgetBelow(self._path_class(f"{self.scheme}:{self.directory}"))

    def write(self, relative: str, data: bytes = b"some bytes") -> None:
        """Commits a logical file."""
        in_time(self._files.write, self.fs, self.location(relative), bytearray(data))

    def read(self, relative: str) -> bytes:
        """Reads a logical file through the merged file system."""
        return bytes(self._files.read(self.fs, self.location(relative)))

    def delete(self, relative: str) -> bool:
        """Deletes a logical file."""
        return bool(self._files.delete(self.fs, self.location(relative)))

    def exists(self, relative: str) -> bool:
        """Whether the merged file system knows a path."""
        return bool(self._files.exists(self.fs, self.location(relative)))

    def names(self, directory: str) -> list[str]:
        """What a listing shows."""
        found: list[str] = json.loads(self._files.names(self.fs, self.location(directory)))
        return found

    def stage(self, relative: str, data: bytes) -> None:
        """Uploads a local file, as Spark does with a snapshot's SSTs."""
        local = self.directory.parent / Path(relative).name
        local.write_bytes(data)
        source = self.jvm.org.apache.hadoop.fs.Path(f"file:{local}")
        self.fs.copyFromLocalFile(False, True, source, self.path(relative))

    def clean(self) -> int:
        """Unlinks what may go; how many files went."""
        self.exists("0/0")  # opens the log
        return int(self.log.clean())

    def metrics(self) -> dict[str, int]:
        """The log's counts."""
        return dict(self.log.metrics().snapshot())

    def files(self) -> list[str]:
        """Names of the physical merged files, oldest first."""
        found = [path.name for path in self.merged.glob("*.merged")]
        return sorted(found, key=lambda name: int(re.findall(r"-(\d+)(?:\.index)?\.merged", name)[0]))

    def view(self) -> View:
        """What Python reads."""
        return View.of(self.state)

    def contents(self) -> dict[str, bytes]:
        """The live files and their bytes, read by Python."""
        return self.view().contents()

    def sealed(self, name: str) -> bool:
        """Whether a merged file is sealed."""
        return self.view().files[name].sealed

    @contextmanager
    def foreign(
        self, number: int, *, writer: int = 77, seal: bool = True, created_ms: int = CREATED_MS
    ) -> Iterator[MergedFileWriter]:
        """A merged file as another process writes it."""
        self.merged.mkdir(parents=True, exist_ok=True)
        with (self.merged / file_name(created_ms, writer, number)).open("wb") as out:
            file = MergedFileWriter(out, writer=writer, created_ms=created_ms, meta={"plain": False})
            yield file
            if seal:
                file.seal()
            else:
                file.end_group()


def calls(jvm: Any, checkpoint: Checkpoint) -> dict[str, int]:
    """Counts of the calls on merged files since the checkpoint's root was registered, over all threads."""
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    counted: dict[str, int] = {}
    by_thread = json.loads(counting.snapshotJson()).get(checkpoint.directory.name, {})
    for categories in by_thread.values():
        for operation, count in categories.get("merged", {}).items():
            counted[operation] = counted.get(operation, 0) + count
    return counted


def refer(source: Checkpoint, fork: Checkpoint, *, number: int = 1) -> str:
    """Makes what a fork is to executors: a reference file to all that lives in another checkpoint.

    Returns:
        The file's name.
    """
    view = source.view()
    files: dict[str, list[Entry]] = {}
    for name, entry in view.live.values():
        foreign = view.files[name].foreign
        where = foreign[entry.file_ref - 1] if foreign else foreign_path(str(source.directory), name)
        files.setdefault(where, []).append(entry)
    fork.merged.mkdir(parents=True, exist_ok=True)
    made = file_name(CREATED_MS, 99, number)
    stamps = [group.trailer.group_stamp for file in view.files.values() for group in file.groups]
    with (fork.merged / made).open("wb") as out:
        file = MergedFileWriter(out, writer=99, created_ms=CREATED_MS, meta={"plain": False})
        file.seal_references(files, group_stamp=max(stamps))
    return made


def snapshot_zip(*ssts: str) -> bytes:
    """The zip of a RocksDB snapshot that needs these SSTs, by their names."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        metadata = {"sstFiles": [{"localFileName": "l.sst", "dfsSstFileName": name} for name in ssts]}
        archive.writestr("metadata", "v1\n" + json.dumps(metadata))
    return packed.getvalue()


def dump(data: bytes) -> dict[str, Any]:
    """A file as ``MergedFileDump.dump`` shows it, but read by Python."""
    file = read_merged_file(BytesSource(data))
    shown: dict[str, Any] = {"valid_length": file.valid_length, "length": file.size, "sealed": file.sealed}
    shown["accounted"] = file.accounted
    if file.header is not None:
        shown |= {"writer": file.header.writer, "created_ms": file.header.created_ms, "meta": dict(file.header.meta)}
    shown["groups"] = [
        {
            "trailer_offset": group.trailer_offset,
            "flags": group.trailer.flags,
            "index_offset": group.trailer.index_offset,
            "previous": group.trailer.previous,
            "group_stamp": group.trailer.group_stamp,
            "names": list(group.index.names),
            "entries": [
                {
                    "kind": int(entry.kind),
                    "type": int(entry.type),
                    "generation": entry.generation,
                    "crc32c": entry.crc32c,
                    "stamp": entry.stamp,
                    "writer": entry.writer,
                    "offset": entry.offset,
                    "length": entry.length,
                    "file_ref": entry.file_ref,
                    "path": entry.path,
                }
                for entry in group.index
            ],
        }
        for group in file.groups
    ]
    return shown


def java_dump(jvm: Any, path: Path) -> dict[str, Any]:
    """A file as the shim reads it; ``{"error": …}`` where it refuses to."""
    shown: dict[str, Any] = json.loads(jvm.io.pyspark.statestore.format.MergedFileDump.dump(str(path)))
    return shown
