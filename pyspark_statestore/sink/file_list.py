"""Spark's list of the files of a sink. Readers go by it, and see no file that it does not name.

    sink/_spark_metadata/9.compact      all files of the batches 0 to 9
    sink/_spark_metadata/10             the files of batch 10
    sink/_spark_metadata/11             the files of batch 11

Each has a line ``v1`` and then a line of JSON for each file (Spark: ``FileStreamSinkLog``). Every tenth batch
(``spark.sql.streaming.fileSink.log.compactInterval``) Spark repeats all files in a new ``.compact``. A reader takes the
newest ``.compact`` and the batches after it; what is older stays for a while, and does not count.

Where rows wait to be published (``maxDelay``), a line that is marked as a directory names the manifest of what waits.
Readers pass over it.

A list may have millions of lines, and anybody may have written it. So it is read line by line, each line has a bound,
and paths are compared as paths: decoded, without ``..`` and double slashes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError, redacted
from pyspark_statestore.log.columns import schema_of, table_of
from pyspark_statestore.log.nearby import checkpoint_of, sinks_below
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.parsing import LARGEST, parse_object, whole_number
from pyspark_statestore.paths import SINK_LIST
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel, in_parts

LIST = SINK_LIST

WAITING = f"{LIST}/_waiting"
"""The directory of rows that wait to be published; no reader looks there. The same as in the jar's ``SinkPlaces``."""

FORMER_WAITING = "_waiting"
"""Where they waited before. What is there is still read, and cleaned."""

LONGEST_LINE = 64 << 10
"""Bytes of a line at most. File systems allow paths of 4 KiB, which are three times as long when they are encoded."""

LARGEST_PART = 8 << 30
"""Bytes of a file of the list at most: about thirty million lines."""

_LARGEST_SIZE = 1 << 56
"""Bytes of all files that a file of the list names, at most: so sums of them are numbers of Arrow."""

_VERSION = "v1"
_PART = re.compile(r"([0-9]{1,18})(\.compact)?")
_MANIFEST = re.compile(rf".*/{FORMER_WAITING}/(([0-9]{{1,18}})-[0-9a-f]+\.json)", re.DOTALL)
"""URLs of manifests: the name of their directory is the same in both places."""

_PLAIN_NAME = re.compile(r"[\w.-]+", re.ASCII)
_DIRECTORIES = 4096
"""Directories whose paths are remembered."""

_ROWS = 1 << 16
"""Rows of a table that are made at once."""

_NO_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that the list names. There may be millions, so what the line says is not kept once more.

    Attributes:
        line: The line of JSON.
        relative: Its path below the sink's directory, decoded; empty where it is elsewhere.
        size: In bytes.
        modified_ms: When it was last modified, in milliseconds since 1970.
    """

    line: str
    relative: str
    size: int
    modified_ms: int

    @property
    def url(self) -> str:
        """Its path as in the line, URL-encoded."""
        return str(parse_object(self.line)["path"])

    @property
    def key(self) -> str:
        """The same for all lines that name this file."""
        return self.relative or self.url

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
        relative: Its path below the sink's directory; empty where it is elsewhere.
        batch_id: The batch that it counts after.
    """

    line: str
    url: str
    relative: str
    batch_id: int

    @property
    def folder(self) -> str:
        """The directory of what waits below the sink's: the files that it names are beside it."""
        return self.relative.rpartition("/")[0]


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
        digest: Of its bytes.
    """

    info: FileInfo
    batch_id: int
    is_compact: bool
    is_current: bool
    named: Named
    digest: bytes

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
        reason = "it is a file" if directory.is_file() else _why_no_list(directory)
        raise StateStoreFilesError("PSS_NOT_A_SINK", {"path": where, "reason": reason})
    return named


def _why_no_list(directory: Directory) -> str:
    if found := checkpoint_of(directory):
        is_in = (
            "it is a streaming checkpoint" if found == directory.location.url else f"it is in the checkpoint {found}"
        )
        return f"{is_in} (what is in that: pyspark-statestore summary {shlex.quote(found)})"
    reason = f"there is no {LIST} in it that names files"
    if not any(not name.startswith(("_", ".")) for name in directory.names()):
        return reason
    if below := sinks_below(directory):
        return f"{reason}. File sinks are below: {below}"
    return (
        f"{reason}. If a query has written the files in it, its list was deleted or moved: bring {LIST} back from a "
        "copy. Without one, read the files as a plain directory, and give the query a new directory and a new "
        "checkpoint: with the old one it goes on with a batch that needs the list"
    )


def start_of(parts: Sequence[ListPart]) -> int:
    """The batch up to which a reader needs no entry but the first part; -1 where the list begins with batch 0."""
    return parts[0].batch_id if parts[0].is_compact else -1


def compact_batches(directory: Directory) -> list[int]:
    """The batches that have repeated the list, in ascending order, also those by which no reader goes any more.

    Raises:
        StateStoreFilesError: PSS_NOT_A_SINK, or it cannot be listed.
    """
    return sorted(int(found[1]) for _, found in _parts(directory) if found[2])


def _current(
    parts: Sequence[tuple[FileInfo, re.Match[str]]],
) -> list[tuple[FileInfo, re.Match[str]]]:
    """What readers go by: the newest repetition of all batches, and the batches after it."""
    newest = max((int(found[1]) for _, found in parts if found[2]), default=-1)
    return [(info, f) for info, f in parts if int(f[1]) > newest or (f[2] and int(f[1]) == newest)]


def _read_list(directory: Directory, only_current: bool) -> list[ListPart]:
    named = _parts(directory)
    current = {info.name for info, _ in _current(named)}

    def read(one: tuple[FileInfo, re.Match[str]]) -> ListPart:
        info, found = one
        batch, is_compact, is_current = int(found[1]), bool(found[2]), info.name in current
        said, digest = _parse(directory, info)
        return ListPart(info, batch, is_compact, is_current, said, digest)

    wanted = [one for one in named if not only_current or one[0].name in current]
    return sorted(in_parallel(read, wanted), key=lambda part: (part.batch_id, part.is_compact))


def _parse(directory: Directory, info: FileInfo) -> tuple[Named, bytes]:
    """Reads one file of the list, line by line.

    Returns:
        What it names, and the digest of its bytes.

    Raises:
        StateStoreFilesError: PSS_DAMAGED_SINK_LIST: nothing may be deleted on the strength of such a list.
    """
    digest, parse = hashlib.sha256(), _line_parser(directory)
    entries: list[Entry] = []
    manifests: list[Manifest] = []
    total = number = 0
    for number, line in enumerate(_lines(directory, info, digest.update), 1):
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE} bytes")
            text = line.decode("utf-8")
            if number == 1:
                _check_version(text)
                continue
            one = parse(text)
            total += 0 if isinstance(one, Manifest) else one.size
            if total > _LARGEST_SIZE:
                raise ValueError(f"the files up to here have more than {_LARGEST_SIZE} bytes together")
        except (ValueError, KeyError) as error:
            where, reason = directory.location.display(f"{LIST}/{info.name}"), f"{type(error).__name__}: {error}"
            parameters = {"file": where, "line": number, "reason": reason}
            raise StateStoreFilesError("PSS_DAMAGED_SINK_LIST", parameters) from error
        if isinstance(one, Manifest):
            manifests.append(one)
        else:
            entries.append(one)
    named = Named(tuple(entries), tuple(sorted(manifests, key=lambda manifest: manifest.batch_id)))
    return named, digest.digest()


def _lines(directory: Directory, info: FileInfo, update: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yields the lines of a file of the list, at least one, without their ends; the last one where one is too long.

    Args:
        directory: The sink's directory.
        info: The file.
        update: Takes all bytes.
    """
    relative = f"{LIST}/{info.name}"
    if info.size > LARGEST_PART:
        reason = f"it has {info.size} bytes, and of a list at most {LARGEST_PART} are read"
        parameters = {"action": "read", "path": directory.location.display(relative), "reason": reason}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters)
    left, is_first = b"", True
    with directory.open(relative, info.size) as file:
        for data in in_parts(file, 0, info.size):
            update(data)
            *whole, left = (left + data).split(b"\n")
            yield from whole
            is_first = is_first and not whole
            if len(left) > LONGEST_LINE:
                break
    if left or is_first:
        yield left


def _check_version(line: str) -> None:
    if line.strip() != _VERSION:
        raise ValueError(f"its version is {line[:20]!r}, and {_VERSION} is known")


def path_below(directory: Directory) -> Callable[[str], str]:
    """Makes what takes a URL to its path below the sink's directory, however it is written; empty if it is elsewhere.

    It raises ValueError for what is no URL.
    """
    root = _normal(directory.location.absolute).rstrip("/") + "/"
    bucket = _bucket(directory.location.url) if directory.is_flat else ""

    def below(url: str) -> str:
        path = _normal(unquote(urlsplit(url).path, errors="strict"))
        elsewhere = bucket and _bucket(url) not in ("", bucket)
        return path[len(root) :] if path.startswith(root) and not elsewhere else ""

    return below


def _line_parser(directory: Directory) -> Callable[[str], Entry | Manifest]:
    """Makes what reads a line of this sink's list: it raises ValueError or KeyError for something else."""
    below = path_below(directory)

    @lru_cache(_DIRECTORIES)
    def folder(url: str) -> tuple[str, bool]:
        """A directory's path below the sink's, and whether it is there or the sink's own."""
        found = below(f"{url}/x")
        return found[:-1], bool(found)

    def file(url: str) -> str:
        """As :func:`path_below`. Millions of files are in few directories."""
        if _NO_ESCAPE.search(url):
            raise ValueError("its path is not URL-encoded")
        above, _, name = url.rpartition("/")
        if name in ("", ".", "..") or not _PLAIN_NAME.fullmatch(name):
            return below(url)
        directory, is_here = folder(above)
        return directory + name if is_here else ""

    def parse(line: str) -> Entry | Manifest:
        fields = parse_object(line)
        url, is_dir = fields["path"], fields["isDir"]
        if not isinstance(url, str) or not isinstance(is_dir, bool):
            raise ValueError("its path is no text, or isDir is neither true nor false")
        if is_dir:
            found = _MANIFEST.fullmatch(url)
            if found:
                relative = file(url)
                is_here = relative in (f"{WAITING}/{found[1]}", f"{FORMER_WAITING}/{found[1]}")
                return Manifest(line, url, relative if is_here else "", int(found[2]))
        if fields["action"] != "add" or is_dir:
            raise ValueError("it is no file that was added")
        return Entry(line, file(url), whole_number(fields["size"], "size"), _time(fields["modificationTime"]))

    return parse


def _normal(path: str) -> str:
    """A path from the root as file systems take it: Hadoop's do not know double slashes, ``.`` or ``..``."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _bucket(url: str) -> str:
    """The bucket of an object store; Azure's URLs have the account after it, others may have a user before."""
    netloc = urlsplit(url).netloc
    return netloc.partition("@")[0] if url.startswith(("abfs", "wasb")) else netloc.rpartition("@")[2]


def _time(value: object) -> int:
    """Milliseconds since 1970, which some file systems do not know, or let be negative."""
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise ValueError(f"modificationTime is no whole number from {-LARGEST} to {LARGEST}")
    return value


def time_of(milliseconds: int) -> datetime.datetime | None:
    """A time in milliseconds since 1970; None where no calendar has it."""
    try:
        return EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


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
    now = next((info for info, found in _current(_parts(directory)) if info.name == part.info.name), None)
    with suppress(FileNotFoundError):
        if now is not None and _digest(directory, now) == part.digest:
            return
    where = directory.location.display(f"{LIST}/{part.info.name}")
    raise StateStoreFilesError("PSS_SINK_LIST_CHANGED", {"file": where})


def _digest(directory: Directory, info: FileInfo) -> bytes:
    digest = hashlib.sha256()
    for _ in _lines(directory, info, digest.update):
        pass
    return digest.digest()


def files_table(directory: Directory, parts: Sequence[ListPart]) -> pa.Table:
    """The table of listed files."""
    some = [_files(directory, part, at) for part in parts for at in range(0, len(part.entries), _ROWS)]
    return pa.concat_tables(some).combine_chunks() if some else schema_of("sink_files").empty_table()


def _files(directory: Directory, part: ListPart, begin: int) -> pa.Table:
    """Some rows: Python's values take ten times the memory of Arrow's."""
    entries = part.entries[begin : begin + _ROWS]
    columns: dict[str, object] = {
        "file_path": [display(directory, entry) for entry in entries],
        "directory": [entry.directory for entry in entries],
        "file_size_in_bytes": [entry.size for entry in entries],
        "last_modified_at": [time_of(entry.modified_ms) for entry in entries],
        "listed_in": [part.info.name] * len(entries),
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
    return directory.location.display(entry.relative) if entry.relative else redacted(entry.url)
