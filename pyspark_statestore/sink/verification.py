"""Verification of a sink: is everything there that the list names, and is everything named that is there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.sink.file_list import (
    FORMER_WAITING,
    LIST,
    WAITING,
    ListPart,
    check_sink,
    display,
    read_list,
    start_of,
)
from pyspark_statestore.sink.waiting import read_waiting
from pyspark_statestore.storage.directory import Directory, FileInfo, errors_of

_NOTES = ("unlisted", "elsewhere", "waits_elsewhere")

_DAMAGED_FILE = ("missing_file", "wrong_size")

_OTHERS = ({LIST}, {"_delta_log"}, {".hoodie"}, {"metadata", "data"}, {"offsets", "commits"})
"""Names in a directory that is something of its own: a sink, a table of Delta, Hudi or Iceberg, a checkpoint."""

_PROBLEMS = pa.schema(
    [("severity", pa.string()), ("kind", pa.string()), ("path", pa.string()), ("reason", pa.string())]
)


@dataclass(frozen=True)
class SinkVerification:
    """What was found in a sink.

    Attributes:
        listed_files_count: Files that readers go by.
        listed_bytes_count: Their size, in bytes.
        problems: A row for each: ``severity`` (``damage``, or ``note`` where no reader is harmed), ``kind``, ``path``
            and ``reason``.
        repaired: URLs of the entries that were written in the list, or would be.
        dry_run: Whether they were not.
    """

    listed_files_count: int
    listed_bytes_count: int
    problems: pa.Table = field(repr=False)
    repaired: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether no damage was found."""
        return "damage" not in self.problems["severity"].to_pylist()


def verify(directory: Directory) -> SinkVerification:
    """Implements :meth:`pyspark_statestore.sink.sink.Sink.verify`."""
    check_sink(directory)  # before all files below a directory are listed that is none
    # In this order: what is published meanwhile is in the list, and not among the files.
    there = {info.name: info for info in data_files(all_files(directory))}
    parts = read_list(directory)
    found = [
        *_gaps(directory, parts),
        *_listed(directory, parts, there),
        *_waiting(directory),
        *_unlisted(directory, parts, there),
    ]
    rows = [("note" if kind in _NOTES else "damage", kind, path, reason) for kind, path, reason in found]
    entries = [entry for part in parts for entry in part.entries]
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(_PROBLEMS)]
    table = pa.table(columns, schema=_PROBLEMS)
    return SinkVerification(len(entries), sum(entry.size for entry in entries), table)


def all_files(directory: Directory) -> list[FileInfo]:
    """Lists the files in a sink's directory. Another table or a checkpoint in it is not looked into."""
    return directory.find("", leave_out=(LIST,), is_foreign=_is_another)


def data_files(found: Sequence[FileInfo]) -> list[FileInfo]:
    """Of these files, the data files, listed or not."""
    return [info for info in found if not any(map(_is_hidden, info.name.split("/")))]


def _is_another(names: Collection[str]) -> bool:
    """Whether these are the names in the directory of something that has nothing to do with this sink."""
    return any(others.issubset(names) for others in _OTHERS)


def _is_hidden(name: str) -> bool:
    """Whether readers pass over a file or directory of this name (Spark: ``HadoopFSUtils.shouldFilterOutPathName``)."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _gaps(directory: Directory, parts: list[ListPart]) -> Iterator[tuple[str, str, str]]:
    """One problem for all batches that are missing in a row: a stray number may seem to be a batch of any size."""
    before = start_of(parts)
    for part in parts:
        missing = part.batch_id - before - 1
        if missing > 0:
            which = "this one" if missing == 1 else f"this one and the {missing - 1:,} after it"
            reason = (
                f"Spark's list has later batches, and readers fail without {which}; if it was a repartitioning, "
                "repair with the query's checkpoint"
            )
            yield "missing_batch", directory.location.display(f"{LIST}/{before + 1}"), reason
        before = part.batch_id


def disagrees(directory: Directory, parts: Sequence[ListPart], there: Sequence[FileInfo]) -> bool:
    """Whether a file that the list names is not there with its size: then the list may be what is damaged.

    Args:
        directory: The sink's directory.
        parts: The list.
        there: What :func:`data_files` has found before the list was read.
    """
    found = {info.name: info for info in there}
    return any(kind in _DAMAGED_FILE for kind, _, _ in _listed(directory, parts, found))


def waiting_disagrees(directory: Directory) -> bool:
    """The same of what waits and of its manifest."""
    return any(True for _ in _waiting(directory))


def _listed(
    directory: Directory, parts: Sequence[ListPart], there: dict[str, FileInfo]
) -> Iterator[tuple[str, str, str]]:
    times = Counter(entry.key for part in parts for entry in part.entries)
    for part in parts:
        for entry in part.entries:
            info, path = there.get(entry.relative), display(directory, entry)
            if not entry.relative:
                yield "elsewhere", path, "it is not in the sink's directory, so it was not looked at"
            elif info is None:
                # A file that was published after the listing.
                if not _is_there(directory, entry.relative):
                    yield "missing_file", path, f"{part.info.name} names it, and it is not there"
            elif info.size != entry.size:
                yield "wrong_size", path, f"it has {info.size} bytes, and {part.info.name} says {entry.size}"
            if times[entry.key] > 1:
                yield "listed_twice", path, f"{part.info.name} names it, and it is named {times[entry.key]} times"


def _is_there(directory: Directory, relative: str) -> bool:
    with errors_of("look at", directory.location.display(relative)):
        return bool(directory.location.fs.exists(directory.location.below(relative)))


def _waiting(directory: Directory) -> Iterator[tuple[str, str, str]]:
    # In this order: a file that is published meanwhile does not wait any more.
    folders = (WAITING, FORMER_WAITING)
    there = {f"{folder}/{info.name}": info.size for folder in folders for info in directory.find(folder)}
    try:
        waiting = read_waiting(directory)
    except StateStoreFilesError as error:
        if error.getErrorClass() == "PSS_SINK_ELSEWHERE":
            yield "waits_elsewhere", directory.location.display(WAITING), f"what waits was not looked at: {error}"
            return
        yield "missing_manifest", directory.location.display(WAITING), f"what waits cannot be known: {error}"
        return
    manifest = waiting.manifest.relative if waiting.manifest else ""
    for file in waiting.files:
        size = there.get(file.relative)
        path = directory.location.display(file.relative)
        if size is None:
            # A file that began to wait after the listing.
            if not _is_there(directory, file.relative):
                yield "missing_waiting_file", path, f"{manifest} names it, and it is not there"
        elif size != file.size:
            yield "wrong_size", path, f"it has {size} bytes, and {manifest} says {file.size}"


def _unlisted(
    directory: Directory, parts: list[ListPart], there: dict[str, FileInfo]
) -> Iterator[tuple[str, str, str]]:
    named = {entry.relative for part in parts for entry in part.entries}
    for name in sorted(there.keys() - named):
        yield "unlisted", directory.location.display(name), "no reader that goes by the list sees it"
