"""Export markers: files beside the merged ones that say that state is being, or was, written back as plain files.

Executors and maintenance refuse merged files that have such a marker beside them (``PSS_EXPORTED``): stock Spark may
have gone on, and what the index knows would win over its plain files. ``.exporting`` is durable before the first plain
file is written, ``.exported`` once all are verified, ``.dropping`` before the first merged file is deleted. So after a
crash at any point, the latest marker says how far the export came.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.scan import (
    DROPPING_SUFFIX,
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    MERGED,
    check_checkpoint,
    our_files,
)
from pyspark_statestore.log.spark_logs import COMMITS, entries
from pyspark_statestore.parsing import parse_object, whole_number
from pyspark_statestore.storage.changes import delete, publish
from pyspark_statestore.storage.directory import Directory, FileInfo

_LATEST_FIRST = (DROPPING_SUFFIX, EXPORTED_SUFFIX, EXPORTING_SUFFIX)


@dataclass(frozen=True)
class Progress:
    """How far a query has come, by its log of commits.

    A batch in the offset log does not count: a query that was refused its merged state has entered one there.

    Attributes:
        commits: The newest batch that was committed; None without any.
        commit_crc32c: Checksum of its entry.
    """

    commits: int | None
    commit_crc32c: int

    @classmethod
    def of(cls, directory: Directory) -> Progress:
        """Reads it from a checkpoint."""
        committed = entries(directory, COMMITS)
        newest = max(committed, default=None)
        data = b"" if newest is None else directory.read(f"{COMMITS}/{newest}", committed[newest].size)
        return cls(newest, crc32c(data))

    @classmethod
    def parse(cls, found: object) -> Progress:
        """Reads it from a marker's JSON.

        Raises:
            ValueError: The JSON is not a progress.
        """
        if not isinstance(found, dict) or found.keys() != {"commits", "commit_crc32c"}:
            raise ValueError("its progress is not as an export writes it")
        commits = found["commits"]
        newest = None if commits is None else whole_number(commits, "commits")
        return cls(newest, whole_number(found["commit_crc32c"], "commit_crc32c"))


@dataclass(frozen=True)
class ExportMarker:
    """What a marker says.

    Attributes:
        name: Name of the marker file.
        created_ms: When the export began, in Unix milliseconds by the clock of the exporting process.
        highest_stamp: The highest stamp of the segments that lived then.
        replaces: Paths below ``state/`` of plain files that merged files had superseded with other bytes.
        progress: How far the query had come then.
    """

    name: str
    created_ms: int
    highest_stamp: int
    replaces: tuple[str, ...]
    progress: Progress

    @property
    def is_done(self) -> bool:
        """Whether all state was there as plain files, verified."""
        return not self.name.endswith(EXPORTING_SUFFIX)

    @property
    def is_dropping(self) -> bool:
        """Whether merged files may have been deleted already."""
        return self.name.endswith(DROPPING_SUFFIX)

    @classmethod
    def found(cls, directory: Directory) -> ExportMarker | None:
        """Reads a checkpoint's marker, the latest where there are several; None without one.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or the marker cannot be read.
        """
        listed = our_files(directory)
        if not listed:
            check_checkpoint(directory)
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
            return cls(info.name, created_ms, stamp, _texts(found["replaces"]), Progress.parse(found["progress"]))
        except (ValueError, KeyError) as error:
            where, reason = directory.location.display(path), f"it is not an export marker ({error})"
            raise StateStoreFilesError(
                "PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason}
            ) from error

    def write_as(self, log: MergedLog, suffix: str) -> ExportMarker:
        """Writes the same as a marker with another suffix, which is durable when this returns."""
        name = log.next_name(suffix)
        content = {key: value for key, value in asdict(self).items() if key != "name"}
        with publish(log.directory, f"{MERGED}/{name}") as out:
            out.write(json.dumps(content).encode("utf-8"))
        return ExportMarker(name, self.created_ms, self.highest_stamp, self.replaces, self.progress)


def _texts(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError("its replaces are not a list of strings")
    return tuple(found)


def remove_markers(directory: Directory, suffixes: tuple[str, ...]) -> None:
    """Deletes the markers with these suffixes, in this order."""
    listed = our_files(directory)
    for suffix in suffixes:
        for info in listed:
            if info.name.endswith(suffix):
                delete(directory, f"{MERGED}/{info.name}")
