"""The pairs of a version of one store, as bytes: what its snapshot holds, and then its changelogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.state_files import PLAIN, STATE, StateFiles
from pyspark_statestore.inspect.versions import Restores
from pyspark_statestore.sparkfiles.compression import LARGEST
from pyspark_statestore.sparkfiles.records import Change, Record, records_of_changelog, records_of_pairs
from pyspark_statestore.sparkfiles.snapshot import Snapshot, read_snapshot
from pyspark_statestore.state.rocksdb import read_pairs
from pyspark_statestore.state.row_checksums import split_values, without_checksum
from pyspark_statestore.state.schema_files import unreadable
from pyspark_statestore.storage import Directory

_READ_AT_ONCE = 128 << 20
"""Bytes of files that are in memory at the same time, more only where one of them is larger."""


@dataclass(frozen=True)
class Encoding:
    """How the query's stores write, as its offset log says.

    Attributes:
        delimiter: Between values that RocksDB merged.
        has_checksums: Whether rows have checksums.
        is_unsafe_row: Whether rows are UnsafeRows.
    """

    delimiter: bytes = b""
    has_checksums: bool = False
    is_unsafe_row: bool = True


@dataclass(frozen=True)
class Contents:
    """A store's bytes.

    Attributes:
        pairs: Values by key; where keys have several, they are one after another.
        prefix: What keys begin with, for the column family.
        is_rocksdb: Whether RocksDB's encoders were used.
    """

    pairs: dict[bytes, bytes] = field(repr=False)
    prefix: bytes
    is_rocksdb: bool


class ContentsReader:
    """Reads versions of stores.

    Args:
        directory: Of the checkpoint.
        restores: How versions are restored.
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
            row: Of the restorable version.
            family: The virtual column family that is wanted; None where the store has none.

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
                if number is None:  # Spark names some families in schemas and never makes them
                    return Contents({}, b"", True)
                prefix = number.to_bytes(2, "little", signed=True)
            pairs = self._snapshot(snapshot, zipped, prefix)
        elif family is not None:
            raise unreadable(self._directory, f"{STATE}/{first}", ValueError("no snapshot says which id a family has"))
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
        """Paths and bytes of files; reads many at once."""
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
