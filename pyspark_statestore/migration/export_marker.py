"""What says that state is being written back as plain files, or was: a file among the merged ones.

Executors and maintenance refuse to work with merged files beside which there is one (``PSS_EXPORTED``), since stock
Spark may have gone on, and what the index knows wins over plain files. ``.exporting`` is there before the first plain
file is written, ``.exported`` when all are verified, ``.dropping`` before the first merged file is deleted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.scan import DROPPING_SUFFIX, EXPORTED_SUFFIX, EXPORTING_SUFFIX, MERGED
from pyspark_statestore.log.spark_logs import COMMITS, entries
from pyspark_statestore.parsing import parse_object, whole_number
from pyspark_statestore.storage.changes import delete, publish
from pyspark_statestore.storage.directory import Directory, FileInfo

_LATEST_FIRST = (DROPPING_SUFFIX, EXPORTED_SUFFIX, EXPORTING_SUFFIX)


@dataclass(frozen=True)
class Progress:
    """How far a query has come, by its own logs.

    A batch that was only begun is none: a query that was refused its merged state has entered it in the offset log.

    Attributes:
        commits: The newest batch that was committed; None without any.
        commit_crc32c: Of its entry.
    """

    commits: int | None
    commit_crc32c: int

    @classmethod
    def of(cls, directory: Directory) -> Progress:
        """Looks at a checkpoint.

        Raises:
            StateStoreFilesError: It cannot be read.
        """
        committed = entries(directory, COMMITS)
        newest = max(committed, default=None)
        data = b"" if newest is None else directory.read(f"{COMMITS}/{newest}", committed[newest].size)
        return cls(newest, crc32c(data))

    @classmethod
    def said(cls, found: object) -> Progress:
        """Understands what a marker says.

        Raises:
            ValueError: It is something else.
        """
        if not isinstance(found, dict) or found.keys() != {"commits", "commit_crc32c"}:
            raise ValueError("its progress is not what an export writes")
        commits = found["commits"]
        newest = None if commits is None else whole_number(commits, "commits")
        return cls(newest, whole_number(found["commit_crc32c"], "commit_crc32c"))


@dataclass(frozen=True)
class ExportMarker:
    """One of these files.

    Attributes:
        name: Of the file.
        created_ms: When the export began, by the clock of who exports.
        highest_stamp: Of the segments that lived then.
        replaces: Paths below ``state/`` of plain files with other bytes that merged files superseded.
        progress: Of the query, then.
    """

    name: str
    created_ms: int
    highest_stamp: int
    replaces: tuple[str, ...]
    progress: Progress

    @property
    def is_done(self) -> bool:
        """Whether everything is there as plain files."""
        return not self.name.endswith(EXPORTING_SUFFIX)

    @property
    def is_dropping(self) -> bool:
        """Whether merged files may be gone already."""
        return self.name.endswith(DROPPING_SUFFIX)

    @classmethod
    def found(cls, directory: Directory) -> ExportMarker | None:
        """Looks for one; the latest where there are several.

        Raises:
            StateStoreFilesError: It cannot be read.
        """
        listed = directory.files(MERGED)
        for suffix in _LATEST_FIRST:
            for info in listed:
                if info.name.endswith(suffix):
                    return cls._read(directory, info)
        return None

    @classmethod
    def _read(cls, directory: Directory, info: FileInfo) -> ExportMarker:
        path = f"{MERGED}/{info.name}"
        try:
            found = parse_object(directory.read(path, info.size))
            created_ms, stamp = (whole_number(found[key], key) for key in ("created_ms", "highest_stamp"))
            return cls(info.name, created_ms, stamp, _texts(found["replaces"]), Progress.said(found["progress"]))
        except (ValueError, KeyError) as error:
            where, reason = directory.location.display(path), f"it says nothing of an export ({error})"
            raise StateStoreFilesError(
                "PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason}
            ) from error

    def write_as(self, log: MergedLog, suffix: str) -> ExportMarker:
        """Says the same under another ending, and is durable when it returns.

        Raises:
            StateStoreFilesError: It cannot be written.
        """
        name = log.next_name(suffix)
        said = {key: value for key, value in asdict(self).items() if key != "name"}
        with publish(log.directory, f"{MERGED}/{name}") as out:
            out.write(json.dumps(said).encode("utf-8"))
        return ExportMarker(name, self.created_ms, self.highest_stamp, self.replaces, self.progress)


def _texts(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("its replaces are no texts")
    return tuple(found)


def remove_markers(directory: Directory, suffixes: tuple[str, ...]) -> None:
    """Deletes those with these endings, in this order.

    Raises:
        StateStoreFilesError: One cannot be deleted.
    """
    listed = directory.files(MERGED)
    for suffix in suffixes:
        for info in listed:
            if info.name.endswith(suffix):
                delete(directory, f"{MERGED}/{info.name}")
