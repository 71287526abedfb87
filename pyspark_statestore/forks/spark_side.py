"""Spark's own files of a fork: its logs, what sources remember, metadata and schemas of operators.

All of them are copied, up to the last batch that the fork has. The order makes the fork a checkpoint only at the end:
everything else first, then the newest commit, then the query's metadata with a new query id. Before that, Spark takes
the directory for a new query's, and this package for no checkpoint.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.forks.needed import copy_file
from pyspark_statestore.log.scan import ATTEMPTS, always_gone
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries, missing_entry, operators
from pyspark_statestore.log.state_files import STATE
from pyspark_statestore.parsing import objects, parse_object, whole_number
from pyspark_statestore.paths import MERGED_PREFIX
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import make_directory, write
from pyspark_statestore.storage.directory import in_parallel

SOURCES, METADATA = "sources", "metadata"

_OF_OPERATORS = ("_metadata", "_stateSchema")
_SCHEMA_PATHS = "stateSchemaFilePaths"
_NAMES_SCHEMAS = "/_metadata/v2/"
"""In the paths of metadata files that name schema files."""


@dataclass(frozen=True)
class SparkFiles:
    """Spark's files that a fork begins with, by their paths in the checkpoint.

    Attributes:
        first: Files that are copied first, in any order.
        last: The newest commit, which is copied last.
    """

    first: tuple[FileInfo, ...] = field(repr=False)
    last: FileInfo

    def __len__(self) -> int:
        return len(self.first) + 2


def spark_files(source: Directory, version: int) -> SparkFiles:
    """Lists the files of Spark that a fork at a version begins with; batch ``version - 1`` is its last one.

    Raises:
        KeyError: A batch that Spark needs for a restart is not in its logs any more; the message names it.
        StateStoreFilesError: A directory cannot be listed.
    """
    last = version - 1
    logs = {log: {b: info for b, info in entries(source, log).items() if b <= last} for log in (COMMITS, OFFSETS)}
    if gone := missing_entry(logs[COMMITS], logs[OFFSETS], last):
        raise KeyError(f"{gone} does not exist")
    newest = logs[COMMITS].pop(last)
    first = [_below(log, info) for log in (COMMITS, OFFSETS) for info in logs[log].values()]
    first += _of_sources(source, logs[OFFSETS][last])
    first += _of_operators(source, last)
    return SparkFiles(tuple(first), _below(COMMITS, newest))


def copy_first(source: Directory, target: Directory, version: int, files: SparkFiles) -> int:
    """Copies all files but the newest commit, and returns how many; lists anew if the query deletes one meanwhile.

    Raises:
        KeyError: As :func:`spark_files`.
        StateStoreFilesError: A file cannot be read or written.
    """
    done: set[str] = set()

    def copy(info: FileInfo) -> None:
        if _NAMES_SCHEMAS in info.name:
            data = source.read(info.name, info.size)
            write(target, info.name, _with_own_schemas(source, target, info.name, data))
        else:
            copy_file(source, target, info.name, info.size)
        done.add(info.name)

    for _ in range(ATTEMPTS):
        try:
            in_parallel(copy, [info for info in files.first if info.name not in done])
            return len(done)
        except FileNotFoundError:
            # Spark has compacted a log: what the file said is in a newer one.
            files = spark_files(source, version)
    raise always_gone(source)


def make_partitions(source: Directory, target: Directory, with_state: Iterable[tuple[int, int]]) -> None:
    """Makes the directories of the state partitions, by which Spark's ``statestore`` source counts the partitions.

    Args:
        source: The checkpoint. A copy of one, by which it may have come there, may have lost empty directories.
        target: The fork.
        with_state: Operators and partitions that have state.
    """
    found = {f"{STATE}/{each}/{name}" for each in operators(source) for name in source.names(f"{STATE}/{each}")}
    made = {path for path in found if path.rpartition("/")[2].isdecimal()}
    made |= {f"{STATE}/{operator}/{partition}" for operator, partition in with_state}
    in_parallel(lambda path: make_directory(target, path), sorted(made))


def copy_last(source: Directory, target: Directory, files: SparkFiles) -> str:
    """Makes the fork a checkpoint: the newest commit, and metadata with a query id of its own.

    Returns:
        The query's id.

    Raises:
        FileNotFoundError: The commit is gone.
        StateStoreFilesError: A file cannot be read or written.
    """
    write(target, files.last.name, source.read(files.last.name, files.last.size))
    query_id = str(uuid.uuid4())
    write(target, METADATA, json.dumps({"id": query_id}, separators=(",", ":")).encode())
    return query_id


def _of_sources(source: Directory, offsets: FileInfo) -> list[FileInfo]:
    """The files that sources keep. A source of files has a log, of which the fork gets what its batches have read.

    The fork finds later files itself; with the rest of the log it would read them as one large batch. Where the log was
    compacted since, the fork needs all of it.
    """
    found = [info for info in source.find(SOURCES) if not _is_hidden(info.name)]
    lines = source.read(f"{OFFSETS}/{offsets.name}", offsets.size).decode("utf-8", "replace").split("\n")
    reached: dict[str, int] = {}
    for number, line in enumerate(lines[2:] if lines[0] == "v1" else []):
        with suppress(ValueError, KeyError):
            reached[str(number)] = whole_number(parse_object(line)["logOffset"], "logOffset")

    def is_later(info: FileInfo) -> bool:
        folder, _, name = info.name.rpartition("/")
        entry = name.partition(".")[0]
        return folder in reached and entry.isdecimal() and int(entry) > reached[folder]

    later = [info for info in found if is_later(info)]
    compacted = {info.name.rpartition("/")[0] for info in later if info.name.endswith(".compact")}
    left = {info.name for info in later if info.name.rpartition("/")[0] not in compacted}
    return [_below(SOURCES, info) for info in found if info.name not in left]


def _of_operators(source: Directory, last: int) -> Iterator[FileInfo]:
    """Metadata and schemas; they lie beside the operator's partitions, or beside the stores of its first one."""
    for operator in operators(source):
        folder = f"{STATE}/{operator}"
        for kind in _OF_OPERATORS:
            listed = source.find(f"{folder}/{kind}")
            found = [_below(f"{folder}/{kind}", info) for info in listed if not _is_hidden(info.name)]
            yield from _up_to(found, last) if kind == "_metadata" else found
        for info in source.find(f"{folder}/0", ("SSTs", "logs")):
            parts = info.name.split("/")
            if "_metadata" in parts[:-1] and not _is_hidden(info.name):
                yield _below(f"{folder}/0", info)


def _up_to(found: Sequence[FileInfo], last: int) -> list[FileInfo]:
    """Metadata up to a batch. Version 2 has a file for each batch that changed it; the fork gets no later ones."""

    def batch(info: FileInfo) -> int:
        folder, _, name = info.name.rpartition("/")
        return int(name) if folder.endswith("/v2") and name.isdecimal() else -1

    return [info for info in found if batch(info) <= last]


def _with_own_schemas(source: Directory, target: Directory, path: str, data: bytes) -> bytes:
    """Metadata of version 2 names schema files by their whole paths; this makes them the fork's own."""
    if _SCHEMA_PATHS.encode() not in data:
        return data
    head, _, text = data.partition(b"\n")
    try:
        found = parse_object(text)
        for store in objects(found["stateStoreInfo"], "stateStoreInfo"):
            paths = store.get(_SCHEMA_PATHS) or []
            if not isinstance(paths, list):
                raise ValueError(f"its {_SCHEMA_PATHS} is not an array")
            store[_SCHEMA_PATHS] = [_moved(str(each), source, target) for each in paths]
    except (ValueError, KeyError) as error:
        where = source.location.display(path)
        raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error
    return head + b"\n" + json.dumps(found, separators=(",", ":")).encode()


def _moved(path: str, source: Directory, target: Directory) -> str:
    """The same file's path in the fork; scheme and host stay as they are if the fork is in the same file system."""
    before, slash, inside = path.rpartition(f"/{STATE}/")
    if not slash:
        return path
    if source.location.shares_file_system(target.location) and before.endswith(source.location.absolute):
        return f"{before.removesuffix(source.location.absolute)}{target.location.absolute}/{STATE}/{inside}"
    prefix = MERGED_PREFIX if before.startswith(MERGED_PREFIX) else ""
    return f"{prefix}{target.location.exact_url}/{STATE}/{inside}"


def _below(folder: str, info: FileInfo) -> FileInfo:
    return FileInfo(f"{folder}/{info.name}", info.size, info.modified)


def _is_hidden(path: str) -> bool:
    """Whether it is a temporary file, or one of Hadoop's own checksums, which do not apply to a copy."""
    return path.rpartition("/")[2].startswith(".")
