"""What the runs of a query say of themselves, and who may believe it: that they go on, or that they have ended.

The driver makes an empty file ``.running`` before the first batch of a run, takes away what earlier runs have left,
and puts ``.ended`` in its place when the run has ended and none of its tasks can write any more. A driver that is
killed, paused or cut off leaves ``.running``; one of a build or a session that does not know these files leaves what
was there. So an end counts only where no run goes on, and where nothing is newer than what it names: no batch, no group
of a process that it does not know, no plain state file. Processes of its own application may still seal their files,
and upload snapshots of versions that are there.

Whoever rewrites the state of a stopped query says the end anew (:meth:`Ended.renew`): else what it wrote looks like a
query's. docs/format.md says what is in the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFile, name_ending, parse_file_name
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.scan import MERGED, Scan, our_files, read_file
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.parsing import LARGEST, parse_object
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import delete, write

RUNNING_SUFFIX, ENDED_SUFFIX = ".running", ".ended"


@dataclass(frozen=True)
class End:
    """What a run has said when it ended.

    Attributes:
        query: Spark's id of the query.
        run: Spark's id of the run.
        app_id: Spark's id of the application; the merged files of its processes have it, too.
        batch: The newest batch in the log of commits; -1 without one.
        planned: The newest batch in the offset log; -1 without one.
        ended_ms: When it ended, in Unix milliseconds by the driver's clock.
        writers: The stamp of the newest group of each process whose merged files were there, by its id.
    """

    query: str
    run: str
    app_id: str
    batch: int
    planned: int
    ended_ms: int
    writers: Mapping[int, int] = field(repr=False)

    def encode(self) -> bytes:
        """Returns the bytes of the file."""
        found: dict[str, object] = {name: getattr(self, name) for name in ("query", "run", "app_id")}
        found |= {name: getattr(self, name) for name in ("batch", "planned", "ended_ms")}
        found["writers"] = {f"{writer:016x}": stamp for writer, stamp in sorted(self.writers.items())}
        return json.dumps(found | {"crc32c": self._checksum, "shim": __version__}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> End | None:
        """Reads the bytes of a file; None where it was cut off or damaged, so that nobody believes it."""
        try:
            found = parse_object(data)
            query, run, app_id = texts = [found[name] for name in ("query", "run", "app_id")]
            batch, planned, ended_ms = numbers = [found[name] for name in ("batch", "planned", "ended_ms")]
            stamps = {int(writer, 16): stamp for writer, stamp in found["writers"].items()}
            checksum = found["crc32c"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if not all(isinstance(text, str) for text in texts) or not all(map(_is_number, (*numbers, *stamps.values()))):
            return None
        end = cls(query, run, app_id, batch, planned, ended_ms, stamps)
        return end if end._checksum == checksum else None

    @property
    def _checksum(self) -> int:
        """Of all that it says, as the driver computes it, too (``RunFiles``)."""
        said = [self.query, self.run, self.app_id, *map(str, (self.batch, self.planned, self.ended_ms))]
        said += [f"{writer:016x} {stamp}" for writer, stamp in sorted(self.writers.items())]
        return crc32c("\n".join(said).encode())

    def accounts_for(self, file: MergedFile) -> bool:
        """Whether no later run has written any of a merged file."""
        named = parse_file_name(file.name)
        if named is None or self.may_go_on(file):
            return named is not None
        return named[1] in self.writers and _newest_stamp(file) <= self.writers[named[1]]

    def may_go_on(self, file: MergedFile) -> bool:
        """Whether what is in a file is of no other run, however new: its writer is of the same application, or a tool.

        Processes of the application seal what they have open, and upload snapshots of versions that are there. This
        package's own tools add nothing to the state.
        """
        meta = {} if file.header is None else file.header.meta
        application = meta.get("app_id")
        is_tool = not application and meta.get("executor_id") == "maintenance"
        return is_tool or (bool(application) and application == self.app_id)


def _newest_stamp(file: MergedFile) -> int:
    return max((group.trailer.group_stamp for group in file.groups), default=0)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= LARGEST


@dataclass(frozen=True)
class Ended:
    """An end that may be believed, as of now.

    Attributes:
        end: What was said.
        name: The name of its file.
    """

    end: End
    name: str

    @classmethod
    def found(
        cls, directory: Directory, scan: Scan, plain: Iterable[FileInfo], query_id: str | None, ours: Collection[str]
    ) -> Ended | None:
        """Looks whether the last run of the query has ended and nobody has gone on since.

        Args:
            directory: The checkpoint's directory.
            scan: Its merged files.
            plain: Its other state files.
            query_id: Spark's id of the query, as the checkpoint has it.
            ours: Files of the query's logs that this package wrote, such as ``offsets/7``: of no run of the query.

        Raises:
            StateStoreFilesError: Something cannot be read.
        """
        batches = {log: _newest(directory, log, ours) for log in (OFFSETS, COMMITS)}
        listed = our_files(directory)  # last: who has begun before is in it, or in what was read
        if running(listed):
            return None
        for info in listed:
            if name_ending(info.name) != ENDED_SUFFIX:
                continue
            end = _read(directory, info)
            if (
                end is not None
                and end.query == query_id
                and batches[OFFSETS] <= end.planned
                and batches[COMMITS] <= end.batch
                and all(_is_older(each, info) for each in plain)
                and all(end.accounts_for(file) for file in _merged(directory, scan, listed, end))
            ):
                return cls(end, info.name)
        return None

    def stands(self, directory: Directory) -> bool:
        """Whether no run has begun since that was found: ask it right before something is changed.

        Raises:
            StateStoreFilesError: The directory cannot be listed.
        """
        listed = our_files(directory)
        return not running(listed) and any(info.name == self.name for info in listed)

    def renew(self, log: MergedLog) -> None:
        """Says the end anew, once this package has rewritten the query's state: no run of the query has.

        Raises:
            StateStoreFilesError: Something cannot be read or written.
        """
        directory = log.directory
        stamps = dict(self.end.writers)
        for name, file in log.snapshot().scan.files.items():
            named = parse_file_name(name)
            if named is not None:
                stamps[named[1]] = max(_newest_stamp(file), stamps.get(named[1], 0))
        planned, batch = (max(entries(directory, each), default=-1) for each in (OFFSETS, COMMITS))
        if running(our_files(directory)):
            return  # beside its file no end counts
        end = replace(self.end, batch=batch, planned=planned, ended_ms=log.now_ms, writers=stamps)
        write(directory, f"{MERGED}/{log.next_name(ENDED_SUFFIX)}", end.encode())
        delete(directory, f"{MERGED}/{self.name}")


def say_unused(log: MergedLog, query_id: str, batch: int) -> None:
    """Says of a new checkpoint that no run of its query goes on: none has begun.

    Args:
        log: This process's work on it, which has written all merged files that are there.
        query_id: The id of its query.
        batch: The newest batch in its logs.

    Raises:
        StateStoreFilesError: The file cannot be written.
    """
    end = End(query_id, "", "", batch, batch, log.now_ms, {})
    write(log.directory, f"{MERGED}/{log.next_name(ENDED_SUFFIX)}", end.encode())


def running(listed: Iterable[FileInfo]) -> list[FileInfo]:
    """The files of runs that have begun and have not said that they ended."""
    return [info for info in listed if name_ending(info.name) == RUNNING_SUFFIX]


def _newest(directory: Directory, log: str, ours: Collection[str]) -> int:
    """The newest batch in a log of the query that is not this package's: a repartitioning is no batch of a run."""
    batches = entries(directory, log)
    return max((each for each in batches if not {f"{OFFSETS}/{each}", f"{COMMITS}/{each}"} & set(ours)), default=-1)


def _read(directory: Directory, info: FileInfo) -> End | None:
    try:
        return End.decode(directory.read(f"{MERGED}/{info.name}", info.size))
    except FileNotFoundError:  # a run has just begun
        return None
    except StateStoreFilesError:
        return None


def _is_older(plain: FileInfo, end: FileInfo) -> bool:
    """Whether a plain state file was there before the end was said, by the one clock that both have."""
    return plain.modified is not None and end.modified is not None and plain.modified <= end.modified


def _merged(directory: Directory, scan: Scan, listed: Iterable[FileInfo], end: End) -> Iterable[MergedFile]:
    """The merged files of a listing; those that may have grown, or were not opened, are read now."""
    for info in listed:
        if parse_file_name(info.name) is None:
            continue
        known = scan.files.get(info.name)
        if known is not None and known.header is not None and (known.sealed or end.may_go_on(known)):
            yield known
            continue
        try:
            yield read_file(directory, info)
        except FileNotFoundError:  # it was moved: its content is elsewhere, by a process that moves
            continue
