"""Rows that wait to be published (``maxDelay``), and how to publish them when the query does not run any more.

    sink/_spark_metadata/_waiting/p=1/part-00000-….parquet    rows that wait
    sink/_spark_metadata/_waiting/7-<random>.json             manifest: which files wait after batch 7
    sink/_spark_metadata/7                                    Spark's list, which names that manifest as a directory

Readers pass over directories that the list names. The newest manifest that it names counts (``Waiting`` of the jar).

Publishing adds the rows to the newest file of the list, and names a manifest in which nothing waits, both at once: that
decides, whoever dies then. A driver looks which manifest the list names before it publishes what waits, and again
before it adds a batch. The query may not commit a batch meanwhile, since it would publish the rows, too. So the list
must not have changed for a while; and that is looked at again right before it is replaced, since joining takes time.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.columns import table_of
from pyspark_statestore.log.merged_log import Clocks
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.parsing import objects, parse_object, relative_path, whole_number
from pyspark_statestore.sink.file_list import (
    LIST,
    WAITING,
    ListPart,
    Manifest,
    new_line,
    path_below,
    read_list,
    text_of,
    time_of,
)
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.sink.rewriter import Rewriter, check_options, format_of, look_at
from pyspark_statestore.storage.changes import delete, file_system_time, write
from pyspark_statestore.storage.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_IDLE = datetime.timedelta(hours=1)
"""A query that has committed a batch since then may be running."""


@dataclass(frozen=True)
class WaitingFile:
    """A file that waits.

    Attributes:
        folder: The directory of what waits below the sink's.
        path: Its path below that.
        size: In bytes.
        since_ms: When its rows began to wait, in milliseconds since 1970.
    """

    folder: str
    path: str
    size: int
    since_ms: int

    @property
    def relative(self) -> str:
        """Its path below the sink's directory."""
        return f"{self.folder}/{self.path}"

    @property
    def directory(self) -> str:
        """The partition value's directory below the sink's, such as ``p=1/q=x``; empty without partition columns."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class Waiting:
    """What waits.

    Attributes:
        parts: The list by which it waits.
        manifest: The manifest that counts, the newest that the list names; None where nothing ever waited.
        files: The files.
        form: In what form they are, as the manifest says.
    """

    parts: tuple[ListPart, ...]
    manifest: Manifest | None
    files: tuple[WaitingFile, ...]
    form: str = ""

    @property
    def schema(self) -> str:
        """The columns of the files as Spark's JSON: in the form the class of the format is before it."""
        begin = self.form.find("{")
        try:
            return self.form[begin : json.JSONDecoder().raw_decode(self.form, max(begin, 0))[1]]
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its form says no columns: {error}") from error


@dataclass(frozen=True)
class SinkPublication:
    """What was published of what waited, or would be.

    Attributes:
        published_data_files_count: Files that readers see now; in a dry run, the files that wait.
        published_bytes_count: Size of these files, in bytes.
        dry_run: Whether nothing was changed.
    """

    published_data_files_count: int
    published_bytes_count: int
    dry_run: bool


def read_waiting(directory: Directory) -> Waiting:
    """Reads what waits.

    Raises:
        StateStoreFilesError: PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, PSS_SINK_ELSEWHERE where the manifest is another
            sink's, or the list or the manifest cannot be read.
    """
    gone: set[str] = set()

    def read() -> Waiting:
        parts = tuple(read_list(directory))
        manifest = next((part.manifests[-1] for part in reversed(parts) if part.manifests), None)
        if manifest is None:
            return Waiting(parts, None, ())
        if not manifest.relative:
            parameters = {"path": directory.location.display(), "file": manifest.url}
            raise StateStoreFilesError("PSS_SINK_ELSEWHERE", parameters)
        folder = manifest.folder
        info = next((i for i in directory.files(folder) if f"{folder}/{i.name}" == manifest.relative), None)
        if info is None and manifest.relative in gone:
            where, reason = directory.location.display(manifest.relative), "Spark's list names it, and it is not there"
            raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})
        if info is None:  # the query may have committed a batch meanwhile
            gone.add(manifest.relative)
            raise FileNotFoundError(manifest.relative)
        data = directory.read(manifest.relative, info.size)
        return Waiting(parts, manifest, *_parse(directory, manifest, data))

    return retry_if_gone(directory, read, WAITING)


def _parse(directory: Directory, manifest: Manifest, data: bytes) -> tuple[tuple[WaitingFile, ...], str]:
    try:
        said = parse_object(data)
        files = tuple(_waiting_file(manifest.folder, each) for each in objects(said["files"], "files"))
        if len({file.relative for file in files}) < len(files):
            raise ValueError("it names a file twice")
        form = said["form"]
        if not isinstance(form, str):
            raise ValueError("form is no text in it")
        return files, form
    except (ValueError, KeyError) as error:
        raise _unreadable(directory, manifest, error) from error


def _unreadable(directory: Directory, manifest: Manifest, error: Exception) -> StateStoreFilesError:
    where = directory.location.display(manifest.relative)
    reason = f"it is no manifest of files that wait: {error}"
    return StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})


def _waiting_file(folder: str, said: Mapping[str, Any]) -> WaitingFile:
    # Only what is below the directory is this sink's.
    path = relative_path(said["path"], "a file that waits")
    return WaitingFile(folder, path, whole_number(said["size"], "size"), whole_number(said["since"], "since"))


def waiting_table(directory: Directory, waiting: Waiting) -> pa.Table:
    """The table of files that wait."""
    columns: dict[str, object] = {
        "file_path": [directory.location.display(file.relative) for file in waiting.files],
        "directory": [file.directory for file in waiting.files],
        "file_size_in_bytes": [file.size for file in waiting.files],
        "waiting_since": [time_of(file.since_ms) for file in waiting.files],
    }
    return table_of("sink_waiting", columns)


def publish(
    directory: Directory,
    *,
    target_file_size: int,
    idle_for: datetime.timedelta,
    format: str | None,
    options: Mapping[str, str],
    dry_run: bool,
    force: bool,
    spark: SparkSession | None,
    now: datetime.datetime,
) -> SinkPublication:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.publish`."""
    if idle_for < (datetime.timedelta(0) if force else LEAST_IDLE):
        allowed = "at least an hour, since a query that runs publishes by itself; force=True allows less"
        raise not_allowed("idle_for", rendering.duration(idle_for), allowed)
    waiting = read_waiting(directory)
    total = sum(file.size for file in waiting.files)
    if dry_run or waiting.manifest is None or not waiting.files:
        return SinkPublication(len(waiting.files), total, dry_run)
    _check_idle(directory, waiting.parts, idle_for, now)
    old, last = waiting.manifest, waiting.parts[-1]
    named = format_of(directory, format, [file.relative for file in waiting.files])
    check_options(named, options)
    jvm = Rewriter(directory, spark)
    root = old.url.removesuffix(old.relative)
    given = [(root + quote(file.relative), file.size) for file in waiting.files]
    try:
        schema = waiting.schema
    except ValueError as error:
        raise _unreadable(directory, old, error) from error
    with Intent(directory, last.info.name) as intent:
        made = jvm.publish(named, options, given, target_file_size, schema, intent.attempt)
        manifest = f"{WAITING}/{last.batch_id}-{secrets.token_hex(8)}.json"
        now_ms = int(now.timestamp() * 1000)
        lines = [entry.line for entry in last.entries]
        lines += [new_line(each.url, each.size, now_ms, each.replication, each.block_size) for each in made]
        lines.append(new_line(root + manifest, 0, now_ms, 0, 0, is_dir=True))
        text = text_of(lines)
        try:
            intent.replaces([])
            look_at(directory, last, made)
            _check_unpublished(directory, waiting)
            _check_idle(directory, read_list(directory), idle_for, now)
        except StateStoreFilesError:
            # Nobody has been told of them, but who reads by directory sees them.
            for name in filter(None, (path_below(directory)(each.url) for each in made)):
                delete(directory, name)
            raise
        write(directory, manifest, json.dumps({"batch": last.batch_id, "form": "", "files": []}).encode())
        jvm.replace_list(last.info.name, text)
        delete(directory, old.relative)
    return SinkPublication(len(made), sum(each.size for each in made), dry_run)


def _check_unpublished(directory: Directory, waiting: Waiting) -> None:
    """Makes sure that no batch has been committed and nothing was published since a list was read.

    Raises:
        StateStoreFilesError: PSS_SINK_LIST_CHANGED.
    """
    last, newest = waiting.parts[-1], read_list(directory)[-1]
    if (newest.info.name, newest.digest) != (last.info.name, last.digest):
        where = directory.location.display(f"{LIST}/{newest.info.name}")
        raise StateStoreFilesError("PSS_SINK_LIST_CHANGED", {"file": where})


def _check_idle(
    directory: Directory, parts: Sequence[ListPart], idle_for: datetime.timedelta, now: datetime.datetime
) -> None:
    """A clock that is ahead shows idle queries: both have to agree. Without modification times nobody knows."""
    if not idle_for:
        return
    clocks = Clocks(now, file_system_time(directory, WAITING))
    newest = min(parts, key=lambda part: clocks.age(part.info.modified))
    if clocks.age(newest.info.modified) < idle_for:
        changed = newest.info.modified or "at a time that the file system does not tell"
        where = directory.location.display(f"{LIST}/{newest.info.name}")
        raise StateStoreFilesError("PSS_SINK_IN_USE", {"file": where, "changed": changed, "idle_for": idle_for})
