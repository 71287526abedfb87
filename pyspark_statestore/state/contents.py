"""Reads the key-value pairs of a version of one store, as bytes: its snapshot, and the changelogs after it."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.state_files import PLAIN, STATE, StateFiles
from pyspark_statestore.log.versions import Restores
from pyspark_statestore.sparkfiles.compression import LARGEST
from pyspark_statestore.sparkfiles.records import (
    Change,
    Record,
    Snapshot,
    read_snapshot,
    records_of_changelog,
    records_of_pairs,
)
from pyspark_statestore.state.schemas import unreadable
from pyspark_statestore.storage import Directory

_READ_AT_ONCE = 128 << 20
"""How many bytes of files are in memory at the same time; more only where one file is larger."""

_MERGE_OPERATOR = re.compile(r"^(\s*merge_operator)=.*$", re.MULTILINE)

_CHECKSUM = struct.Struct("<I")
_CHECKSUM_AND_LENGTH = struct.Struct("<II")


@dataclass(frozen=True)
class Encoding:
    """How the query's stores write, as the query's offset log says.

    Attributes:
        delimiter: The bytes between values that RocksDB has merged.
        has_checksums: Whether rows have checksums.
        is_unsafe_row: Whether rows are UnsafeRows.
    """

    delimiter: bytes = b""
    has_checksums: bool = False
    is_unsafe_row: bool = True


@dataclass(frozen=True)
class Contents:
    """The bytes of a version of a store.

    Attributes:
        pairs: The values by key. Where a key has several, they follow each other in the bytes.
        prefix: The id of the column family, with which each key begins; empty where there is none.
        is_rocksdb: Whether RocksDB's encoders wrote them.
    """

    pairs: dict[bytes, bytes] = field(repr=False)
    prefix: bytes
    is_rocksdb: bool


class ContentsReader:
    """Reads versions of stores.

    Args:
        directory: The checkpoint's directory.
        restores: From which files each version is restored.
        encoding: How the query's stores write.
    """

    def __init__(self, directory: Directory, restores: Restores, encoding: Encoding) -> None:
        self._directory = directory
        self._restores = restores
        self._files: StateFiles = restores.files
        self._encoding = encoding

    def read(self, row: int, family: str | None) -> Contents:
        """Reads a version.

        Args:
            row: The number of a restorable version in ``restores``.
            family: The virtual column family to read; None where the store has none.

        Raises:
            FileNotFoundError: A file is gone.
            StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_UNREADABLE_STATE, PSS_MISSING_DEPENDENCY, or it cannot be
                read.
        """
        snapshot, changes = self._restores.steps(row)
        first = self._path(changes[0] if snapshot is None else snapshot)
        if first.endswith((".delta", ".snapshot")):
            return Contents(self._heap(snapshot, changes), b"", False)
        prefix = b""
        pairs: dict[bytes, bytes] = {}
        if snapshot is not None:
            zipped = self._zip(snapshot)
            if family is not None:
                number = zipped.column_families.get(family)
                if number is None:  # Spark names some families in schemas and never creates them
                    return Contents({}, b"", True)
                prefix = number.to_bytes(2, "little", signed=True)
            pairs = self._snapshot(snapshot, zipped, prefix)
        elif family is not None:
            reason = ValueError("there is no snapshot, which would say which id a family has")
            raise unreadable(self._directory, f"{STATE}/{first}", reason)
        for path, data in self._read(changes):
            self._apply(pairs, path, records_of_changelog(data), prefix)
        return Contents(pairs, prefix, True)

    def _zip(self, row: int) -> Snapshot:
        [(path, data)] = self._read([row])
        try:
            return read_snapshot(data)
        except ValueError as error:
            raise unreadable(self._directory, f"{STATE}/{path}", error) from error

    def _snapshot(self, row: int, zipped: Snapshot, prefix: bytes) -> dict[bytes, bytes]:
        path = self._path(row)
        tables = self._tables(path.rpartition("/")[0], zipped)
        try:
            pairs = read_pairs(zipped, tables, prefix, self._encoding.delimiter)
            if self._encoding.has_checksums:
                pairs = {key: self._checked(key, value) for key, value in pairs.items()}
            return pairs
        except ValueError as error:
            raise unreadable(self._directory, f"{STATE}/{path}", error) from error

    def _tables(self, folder: str, snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
        paths = pa.array([f"{folder}/{path}" for path in snapshot.sizes], pa.string())
        rows = pc.index_in(paths, value_set=self._files.path).fill_null(-1).to_numpy(zero_copy_only=False)
        if (rows < 0).any():
            raise FileNotFoundError(f"{STATE}/{paths[int(np.flatnonzero(rows < 0)[0])]}")
        for name, (_, data) in zip(snapshot.local_names.values(), self._read(rows.tolist()), strict=True):
            yield name, data

    def _heap(self, snapshot: int | None, changes: Sequence[int]) -> dict[bytes, bytes]:
        pairs: dict[bytes, bytes] = {}
        rows = [*([] if snapshot is None else [snapshot]), *changes]
        for path, data in self._read(rows):
            try:
                for change, key, value in records_of_pairs(data):
                    if change is Change.DELETE:
                        pairs.pop(without_checksum(key) if self._encoding.has_checksums else key, None)
                    else:
                        pairs[key] = without_checksum(value, key) if self._encoding.has_checksums else value
            except ValueError as error:
                raise unreadable(self._directory, f"{STATE}/{path}", error) from error
        return pairs

    def _apply(self, pairs: dict[bytes, bytes], path: str, records: Iterator[Record], prefix: bytes) -> None:
        checked = self._encoding.has_checksums
        try:
            for change, key, value in records:
                if change is Change.DELETE:
                    pairs.pop(without_checksum(key) if checked else key, None)
                    continue
                if not key.startswith(prefix):
                    continue
                if checked:
                    value = self._checked(key, value)
                if change is Change.PUT:
                    pairs[key] = value
                elif change is Change.MERGE:
                    before = pairs.get(key)
                    pairs[key] = value if before is None else before + self._encoding.delimiter + value
                else:
                    for each in [each for each in pairs if key <= each < value]:
                        del pairs[each]
        except ValueError as error:
            raise unreadable(self._directory, f"{STATE}/{path}", error) from error

    def _checked(self, key: bytes, value: bytes) -> bytes:
        return self._encoding.delimiter.join(split_values(key, value, self._encoding.delimiter))

    def _path(self, row: int) -> str:
        return str(self._files.path[row].as_py())

    def _read(self, rows: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        """Yields the paths and the bytes of files, of which many are read at once."""
        for batch in self._batches(rows):
            found = self._files.read(self._directory, np.array(batch, "i8"), lambda data: data, most=LARGEST)
            for row, data in zip(batch, found, strict=True):
                path = self._path(row)
                if data is None:
                    raise self._corrupt(row, path)
                yield path, data

    def _batches(self, rows: Sequence[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        size = 0
        for row in rows:
            batch.append(row)
            size += int(self._files.length[row])
            if size >= _READ_AT_ONCE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _corrupt(self, row: int, path: str) -> StateStoreFilesError:
        files = self._files
        if files.merged[row] == PLAIN:
            return unreadable(self._directory, f"{STATE}/{path}", ValueError("it is shorter than it was listed"))
        parameters = {
            "path": path,
            "file": self._directory.location.display(files.holder(row)),
            "length": int(files.length[row]),
            "offset": int(files.offset[row]),
            "reason": "their checksum does not match",
        }
        return StateStoreFilesError("PSS_CORRUPT_SEGMENT", parameters)


def import_rocksdict() -> Any:
    """Returns the module ``rocksdict``.

    Raises:
        StateStoreFilesError: PSS_MISSING_DEPENDENCY where it cannot be imported.
    """
    try:
        import rocksdict
    except ImportError as error:
        parameters = {
            "what": "Reading RocksDB state",
            "reason": error,
            "install": "pyspark-statestore comes with it, so the installation is not whole: pip install rocksdict",
        }
        raise StateStoreFilesError("PSS_MISSING_DEPENDENCY", parameters) from error
    return rocksdict


def read_pairs(
    snapshot: Snapshot, tables: Iterable[tuple[str, bytes]], prefix: bytes, delimiter: bytes
) -> dict[bytes, bytes]:
    """Reads the pairs of a RocksDB snapshot whose keys begin with a prefix.

    It writes the snapshot's files to a temporary directory and opens them read-only with ``rocksdict``.

    Args:
        snapshot: The snapshot's zip.
        tables: The local name and the bytes of each SST file that the zip names.
        prefix: The id of a column family; empty for all keys.
        delimiter: The bytes between values that RocksDB has merged.

    Raises:
        ValueError: RocksDB cannot open or read it.
        StateStoreFilesError: PSS_MISSING_DEPENDENCY.
    """
    rocksdict = import_rocksdict()
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as folder:
        for name, data in snapshot.files.items():
            (Path(folder) / name).write_bytes(_with_delimiter(data, delimiter) if name.startswith("OPTIONS-") else data)
        for name, data in tables:
            (Path(folder) / name).write_bytes(data)
        try:
            options = rocksdict.Options(raw_mode=True)
            database = rocksdict.Rdict(folder, options=options, access_type=rocksdict.AccessType.read_only())
        except Exception as error:  # RocksDB's errors have no type of their own
            raise ValueError(f"RocksDB cannot open it ({error})") from error
        try:
            return _pairs(database, prefix)
        except Exception as error:
            raise ValueError(f"RocksDB cannot read it ({error})") from error
        finally:
            database.close()


def _pairs(database: Any, prefix: bytes) -> dict[bytes, bytes]:
    if not prefix:
        return dict(database.items())
    found: dict[bytes, bytes] = {}
    for key, value in database.items(from_key=prefix):
        if not key.startswith(prefix):
            break
        found[key] = value
    return found


def _with_delimiter(options: bytes, delimiter: bytes) -> bytes:
    """Adds the delimiter to an OPTIONS file: RocksDB writes the name of its merge operator there without it."""
    operator = f"{{id=StringAppendOperator;delimiter={{{delimiter.decode()}}};}}"
    return _MERGE_OPERATOR.sub(rf"\1={operator}", options.decode("utf-8", "replace")).encode()


def split_values(key: bytes, data: bytes, delimiter: bytes) -> list[bytes]:
    """Returns the values of a key without Spark's row checksums, which it checks.

    Rows have them with ``spark.sql.streaming.stateStore.rowChecksum.enabled``.

    Raises:
        ValueError: A checksum does not match, or a length is wrong.
    """
    values, at = [], 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError("a row's checksum was cut off")
        checksum, length = _CHECKSUM_AND_LENGTH.unpack_from(data, at)
        value = data[at + 8 : at + 8 + length]
        if len(value) < length or crc32c(key + value) != checksum:
            raise ValueError("a row's checksum does not match")
        values.append(value)
        at += 8 + length + len(delimiter)
    return values


def without_checksum(data: bytes, key: bytes = b"") -> bytes:
    """Checks a checksum that is before bytes, and returns the bytes. With ``key``, the checksum covers it, too.

    Raises:
        ValueError: The checksum does not match.
    """
    if len(data) < 4 or crc32c(key + data[4:]) != _CHECKSUM.unpack_from(data)[0]:
        raise ValueError("a row's checksum does not match")
    return data[4:]
