"""Checks plain state files, as far as what is in them and beside them tells."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.payload import checksum_of
from pyspark_statestore.log.state_files import PLAIN, STATE, StateFiles
from pyspark_statestore.parsing import opened_zip, parse_object, whole_number
from pyspark_statestore.sparkfiles import is_whole_stream
from pyspark_statestore.storage.changes import hadoop_checksum_of
from pyspark_statestore.storage.directory import Directory, OpenFile, in_parallel

_STREAMS = (".changelog", ".delta", ".snapshot")

_CHECKED = (".zip", *_STREAMS)

_LARGE = 64 << 20
"""Bytes of the largest zip that is unpacked."""

_UNPACKED = 1 << 30
"""Bytes that a zip may unpack to at most."""

_HEADER = struct.Struct(">4sI")

_MAGIC = b"crc\x00"

_AT_ONCE = 4 << 20

_MAX_PART = 1 << 20


@dataclass(frozen=True)
class PlainChecked:
    """What was found in plain files.

    Attributes:
        reasons: Why files are not whole, by path.
        gone: Paths of files that do not exist any more.
        read_bytes: How many bytes were read.
    """

    reasons: dict[str, str]
    gone: frozenset[str]
    read_bytes: int


def check_plain_files(
    directory: Directory, files: StateFiles, on_progress: Callable[[int], object] = lambda read: None
) -> PlainChecked:
    """Reads the plain snapshots, changelogs and deltas.

    Spark writes a checksum beside a file if it was told to (``spark.sql.streaming.checkpoint.fileChecksum.enabled``),
    and Hadoop writes one of its own on a local disk. A zip has checksums in it. The end of any other compressed file
    tells whether it was cut off. An SST has to have the size that its snapshot names: that is checked with the
    versions.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state.
        on_progress: Called with the number of bytes that were read, again and again.
    """
    rows = np.flatnonzero(files.merged == PLAIN)
    paths = files.path.take(rows).to_pylist()
    sizes = dict(zip(paths, files.length[rows].tolist(), strict=True))
    hidden = _hadoop_checksums(directory, paths)
    wanted = [path for path in paths if path.endswith(_CHECKED) or path in hidden]

    def check(path: str) -> tuple[str | None, bool]:
        try:
            reason = _reason(directory, path, sizes[path], sizes.get(f"{path}.crc"), hidden.get(path))
        except FileNotFoundError:
            return None, True
        except StateStoreFilesError as error:
            return error.getMessageParameters().get("reason", str(error)), False
        on_progress(sizes[path])
        return reason, False

    answers = dict(zip(wanted, in_parallel(check, wanted), strict=True))
    reasons = {path: reason for path, (reason, _) in answers.items() if reason is not None}
    gone = frozenset(path for path, (_, is_gone) in answers.items() if is_gone)
    return PlainChecked(reasons, gone, sum(sizes[path] for path in wanted if path not in gone))


def _hadoop_checksums(directory: Directory, paths: Iterable[str]) -> dict[str, int]:
    """Sizes of Hadoop's own checksum files, by the paths of the files that they belong to."""
    if not directory.location.url.startswith("file:"):
        return {}
    by_name: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        folder, _, name = path.rpartition("/")
        by_name[folder][hadoop_checksum_of(name)] = path
    folders = list(by_name)
    listings = in_parallel(lambda folder: directory.files(f"{STATE}/{folder}"), folders)
    return {
        by_name[folder][info.name]: info.size
        for folder, listing in zip(folders, listings, strict=True)
        for info in listing
        if info.name in by_name[folder]
    }


def _reason(
    directory: Directory, path: str, size: int, companion_size: int | None, hidden_size: int | None
) -> str | None:
    with directory.open(f"{STATE}/{path}", size) as file:
        if hidden_size is not None:
            checksums = directory.read(hadoop_checksum_of(f"{STATE}/{path}"), hidden_size)
            if not _matches_hadoop(file, size, checksums):
                return "Hadoop's checksum file beside it says otherwise"
        if companion_size:
            expected = _expected(directory.read(f"{STATE}/{path}.crc", companion_size))
            if expected is not None:
                if expected[0] != size:
                    return f"it has {size} bytes, and its checksum file says {expected[0]}"
                return None if checksum_of(file, 0, size) == expected[1] else "its checksum does not match"
        if path.endswith(".zip"):
            return _zip_reason(file, size)
        if path.endswith(_STREAMS):
            return None if is_whole_stream(file.read_at, size) else "it was cut off"
    return None


def _expected(companion: bytes) -> tuple[int, int] | None:
    """Size and crc32c of a file as Spark's ChecksumCheckpointFileManager notes them; None if these are other bytes."""
    try:
        found = parse_object(companion)
        if found["algorithm"] != "CRC32C":
            return None
        if not isinstance(found["value"], int):
            return None
        return whole_number(found["mainFileSize"], "mainFileSize"), found["value"] & 0xFFFFFFFF
    except (ValueError, KeyError):
        return None


def _zip_reason(file: OpenFile, size: int) -> str | None:
    if size > _LARGE:
        return None
    try:
        with opened_zip(file.read_at(0, size), _UNPACKED) as archive:
            damaged = archive.testzip()
    except ValueError as error:
        return str(error)
    return None if damaged is None else f"{damaged} in it is damaged"


def _matches_hadoop(file: OpenFile, size: int, checksums: bytes) -> bool:
    """Whether a file, which is read little by little, has the bytes that Hadoop's checksum file was written for.

    Something else than a checksum file counts as matching.
    """
    if len(checksums) < _HEADER.size:
        return True
    magic, part = _HEADER.unpack_from(checksums)
    if magic != _MAGIC or not 0 < part <= _MAX_PART:
        return True
    if len(checksums) != _HEADER.size + 4 * -(-size // part):
        return False
    at_once = _AT_ONCE // part * part
    place = _HEADER.size
    for start in range(0, size, at_once):
        data = file.read_at(start, min(at_once, size - start))
        if len(data) < min(at_once, size - start):
            return False
        found = [zlib.crc32(data[at : at + part]) for at in range(0, len(data), part)]
        if struct.pack(f">{len(found)}I", *found) != checksums[place : place + 4 * len(found)]:
            return False
        place += 4 * len(found)
    return True
