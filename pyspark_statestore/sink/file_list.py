"""Spark's list of the files of a sink. Readers go by it, and see no file that it does not name.

    sink/_spark_metadata/9.compact      all files of the batches 0 to 9
    sink/_spark_metadata/10             the files of batch 10
    sink/_spark_metadata/11             the files of batch 11

Each has a line ``v1`` and then a line of JSON for each file (Spark: ``FileStreamSinkLog``). Every tenth batch
(``spark.sql.streaming.fileSink.log.compactInterval``) Spark repeats all files in a new ``.compact``. A reader takes the
newest ``.compact`` and the batches after it; what is older stays for a while, and does not count.

Where rows wait to be published (``maxDelay``), a line that is marked as a directory names the manifest of what waits.
Readers pass over it.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.columns import table_of
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

LIST = "_spark_metadata"

WAITING = f"{LIST}/_waiting"
"""The directory of rows that wait to be published; no reader looks there. The same as in the jar's ``SinkPlaces``."""

FORMER_WAITING = "_waiting"
"""Where they waited before. What is there is still read, and cleaned."""

_VERSION = "v1"
_PART = re.compile(r"(\d{1,18})(\.compact)?")
_MANIFEST = re.compile(rf"/((?:{LIST}/)?_waiting/\d{{1,18}}-[0-9a-f]+\.json)$")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class Entry:
    """A file that the list names.

    Attributes:
        line: The line of JSON.
        url: Its path as in the line, URL-encoded.
        relative: Its path below the sink's directory; empty where it is elsewhere.
        size: In bytes.
        modified_ms: When it was last modified, in milliseconds since 1970.
    """

    line: str
    url: str
    relative: str
    size: int
    modified_ms: int

    @property
    def directory(self) -> str:
        """Its partition value's directory below the sink's, such as ``p=1/q=x``; empty without partition columns."""
        return self.relative.rpartition("/")[0]


@dataclass(frozen=True)
class Manifest:
    """A manifest of what waits, which the list names.

    Attributes:
        line: The line of JSON.
        url: Its path as in the line, URL-encoded.
        relative: Its path below the sink's directory.
    """

    line: str
    url: str
    relative: str

    @property
    def folder(self) -> str:
        """The directory of what waits below the sink's: the files that it names are beside it."""
        return self.relative.rpartition("/")[0]

    @property
    def batch_id(self) -> int:
        """The batch that it counts after."""
        return int(self.relative.rpartition("/")[2].partition("-")[0])


@dataclass(frozen=True)
class Named:
    """What a file of the list names: files, and manifests in the order of their batches."""

    entries: tuple[Entry, ...]
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True)
class ListPart:
    """A file of the list: one batch, or with ``is_compact`` all batches up to one.

    Attributes:
        info: What a listing says of it.
        batch_id: The batch, or the last one.
        is_compact: Whether it repeats all batches before.
        is_current: Whether readers go by it.
        named: What it names; of a part that does not count, too.
    """

    info: FileInfo
    batch_id: int
    is_compact: bool
    is_current: bool
    named: Named

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The files that it names."""
        return self.named.entries

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of what waits that it names, in the order of their batches."""
        return self.named.manifests


def read_list(directory: Directory, *, only_current: bool = True) -> list[ListPart]:
    """Reads the list, in the order of batches.

    Args:
        directory: The sink's directory.
        only_current: Leave out what readers do not go by.

    Raises:
        StateStoreFilesError: PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, or it cannot be read.
    """
    return retry_if_gone(directory, lambda: _read_list(directory, only_current), LIST)


def check_sink(directory: Directory) -> None:
    """Refuses a directory that has no list of files. One listing tells.

    Raises:
        StateStoreFilesError: PSS_NOT_A_SINK, or it cannot be listed.
    """
    _parts(directory)


def _parts(directory: Directory) -> list[tuple[FileInfo, re.Match[str]]]:
    named = [(info, found) for info in directory.files(LIST) if (found := _PART.fullmatch(info.name))]
    if not named:
        where = directory.location.display()
        reason = "it is a file" if directory.is_file() else f"there is no {LIST} in it that names files"
        raise StateStoreFilesError("PSS_NOT_A_SINK", {"path": where, "reason": reason})
    return named


def _read_list(directory: Directory, only_current: bool) -> list[ListPart]:
    named = _parts(directory)
    newest = max((int(found[1]) for _, found in named if found[2]), default=-1)

    def read(one: tuple[FileInfo, re.Match[str]]) -> ListPart:
        info, found = one
        batch, is_compact = int(found[1]), bool(found[2])
        current = batch > newest or (is_compact and batch == newest)
        data = directory.read(f"{LIST}/{info.name}", info.size)
        return ListPart(info, batch, is_compact, current, parse(directory, info.name, data))

    wanted = [
        one for one in named if not only_current or int(one[1][1]) > newest or (one[1][2] and int(one[1][1]) == newest)
    ]
    return sorted(in_parallel(read, wanted), key=lambda part: (part.batch_id, part.is_compact))


def parse(directory: Directory, name: str, data: bytes) -> Named:
    """Reads one file of the list.

    Raises:
        StateStoreFilesError: PSS_DAMAGED_SINK_LIST: nothing may be deleted on the strength of such a list.
    """
    at = 0

    def damaged(reason: object) -> StateStoreFilesError:
        where = directory.location.display(f"{LIST}/{name}")
        return StateStoreFilesError("PSS_DAMAGED_SINK_LIST", {"file": where, "line": at + 1, "reason": reason})

    try:
        version, *lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise damaged(error) from error
    if version.strip() != _VERSION:
        raise damaged(f"its version is {version[:20]!r}, and {_VERSION} is known")
    root = directory.location.absolute.rstrip("/") + "/"
    entries, manifests = [], []
    for at, line in enumerate(lines, 1):
        if not line and at == len(lines):
            break
        try:
            one = _line(line, root)
            if isinstance(one, Entry):
                entries.append(one)
            else:
                manifests.append(one)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"{type(error).__name__}: {error}") from error
    return Named(tuple(entries), tuple(sorted(manifests, key=lambda manifest: manifest.batch_id)))


def _line(line: str, root: str) -> Entry | Manifest:
    fields: Any = json.loads(line)
    path = unquote(urlparse(fields["path"]).path)
    relative = path[len(root) :] if path.startswith(root) else ""
    manifest = _MANIFEST.search(path)
    if fields["isDir"] and manifest:
        return Manifest(line, str(fields["path"]), manifest[1])
    if fields["action"] != "add" or fields["isDir"]:
        raise ValueError("it is no file that was added")
    return Entry(line, str(fields["path"]), relative, int(fields["size"]), int(fields["modificationTime"]))


def new_line(url: str, size: int, modified_ms: int, replication: int, block_size: int, *, is_dir: bool = False) -> str:
    """The line of a file or, for a manifest, of a directory, as Spark writes it."""
    fields = {"path": url, "size": size, "isDir": is_dir, "modificationTime": modified_ms}
    fields |= {"blockReplication": replication, "blockSize": block_size, "action": "add"}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def text_of(lines: Sequence[str]) -> str:
    """A file of the list with these lines, as Spark writes it."""
    return "\n".join([_VERSION, *lines])


def check_unchanged(directory: Directory, part: ListPart) -> None:
    """Makes sure that a part still counts and says the same, before it is replaced.

    Raises:
    StateStoreFilesError: PSS_SINK_LIST_CHANGED: the query has repeated the list, or another compaction has run.
    """
    now = next((info for info in directory.files(LIST) if info.name == part.info.name), None)
    is_current = part.info.name in {current.info.name for current in read_list(directory)}
    if now is not None and is_current:
        data = directory.read(f"{LIST}/{now.name}", now.size)
        if parse(directory, now.name, data) == part.named:
            return
    where = directory.location.display(f"{LIST}/{part.info.name}")
    raise StateStoreFilesError("PSS_SINK_LIST_CHANGED", {"file": where})


def files_table(directory: Directory, parts: Sequence[ListPart]) -> pa.Table:
    """The table of listed files."""
    listed = [(part, entry) for part in parts for entry in part.entries]
    columns: dict[str, object] = {
        "file_path": [display(directory, entry) for _, entry in listed],
        "directory": [entry.directory for _, entry in listed],
        "file_size_in_bytes": [entry.size for _, entry in listed],
        "last_modified_at": [EPOCH + datetime.timedelta(milliseconds=entry.modified_ms) for _, entry in listed],
        "listed_in": [part.info.name for part, _ in listed],
    }
    return table_of("sink_files", columns)


def log_table(directory: Directory, parts: Sequence[ListPart]) -> pa.Table:
    """The table of the files that make up the list."""
    columns: dict[str, object] = {
        "file_path": [directory.location.display(f"{LIST}/{part.info.name}") for part in parts],
        "batch_id": [part.batch_id for part in parts],
        "is_compact": [part.is_compact for part in parts],
        "is_current": [part.is_current for part in parts],
        "entry_count": [len(part.entries) for part in parts],
        "listed_bytes": [sum(entry.size for entry in part.entries) for part in parts],
        "file_size_in_bytes": [part.info.size for part in parts],
        "last_modified_at": [part.info.modified for part in parts],
    }
    return table_of("sink_log", columns)


def display(directory: Directory, entry: Entry) -> str:
    """What people call a listed file."""
    return directory.location.display(entry.relative) if entry.relative else entry.url
