"""What the names of Spark's state files say, for a whole column of them at once.

Spark's layout, below ``state/`` (``StateStoreId.storeCheckpointLocation``, ``RocksDBFileManager``,
``HDFSBackedStateStoreProvider``)::

    <operator>/<partition>[/<store>]/<version>[_<checkpoint id>].{zip,changelog,delta,snapshot}
    <operator>/<partition>[/<store>]/{SSTs,logs}/<local name>-<uuid>.{sst,log}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DEFAULT_STORE = "default"

_STORE = re.compile(r"([0-9]{1,9})/([0-9]{1,9})(?:/(?!(?:SSTs|logs)$|_)([^/]+?))?(?:/(?:SSTs|logs))?")
_NAME = r"^(?P<version>[0-9]{1,18})(?:_(?P<id>[^./]+))?\.(?P<extension>(?:zip|changelog|delta|snapshot)(?:\.crc)?)$"


@dataclass(frozen=True)
class Stores:
    """Which store each path belongs to.

    Attributes:
        known: (operator id, partition id, store name) of the stores that occur, in ascending order.
        store: Per path, a number into ``known``; -1 where the path is none of Spark's.
        path: The paths.
        name: Of each, what is after its last slash.
    """

    known: tuple[tuple[int, int, str], ...]
    store: np.ndarray = field(repr=False)
    path: pa.StringArray = field(repr=False)
    name: pa.StringArray = field(repr=False)

    @classmethod
    def of(cls, paths: pa.ChunkedArray) -> Stores:
        """Takes logical paths apart."""
        path = pa.concat_arrays([pa.array([], pa.string()), *paths.chunks])
        folders, names = _split(path)
        encoded = folders.dictionary_encode()
        by_folder = [parse_store(folder) for folder in encoded.dictionary.to_pylist()]
        known = tuple(sorted({store for store in by_folder if store is not None}))
        number = {store: i for i, store in enumerate(known)}
        lookup = np.array([-1 if store is None else number[store] for store in by_folder] or [0], "i4")
        return cls(known, lookup[encoded.indices.to_numpy(zero_copy_only=False)], path, names)

    def columns(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """operator_id, partition_id and store_name of some rows; null where the path is none of Spark's."""
        return self.columns_of(self.store[rows])

    def columns_of(self, store: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The same of stores, given as numbers into ``known``."""
        indices = pa.array(store, pa.int32(), mask=store < 0)
        types: Sequence[pa.DataType] = (pa.int32(), pa.int32(), pa.string())
        return tuple(pa.array([s[i] for s in self.known], types[i]).take(indices) for i in range(3))

    def versions(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array]:
        """Version and checkpoint id in the names of some rows; null where there is none."""
        return self.version_files(rows)[:2]

    def version_files(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Version, checkpoint id and extension in the names of some rows, such as "zip" or "zip.crc"; null likewise."""
        # Versions are few beside the files of all partitions, and a regular expression for each file would take long.
        names = self.name.take(pa.array(rows)).dictionary_encode()
        parts = pc.extract_regex(names.dictionary, _NAME)
        version, checkpoint_id, extension = (pc.struct_field(parts, i) for i in range(3))
        is_empty = pc.equal(checkpoint_id, "")
        checkpoint_id = pc.if_else(is_empty, pa.scalar(None, pa.string()), checkpoint_id)
        return tuple(column.take(names.indices) for column in (version.cast(pa.int64()), checkpoint_id, extension))


def parse_store(folder: str) -> tuple[int, int, str] | None:
    """Tells (operator id, partition id, store name) from a directory below ``state/``, or None."""
    found = _STORE.fullmatch(folder)
    return (int(found[1]), int(found[2]), found[3] or DEFAULT_STORE) if found else None


def store_folder(store: tuple[int, int, str]) -> str:
    """The directory of a store below ``state/``."""
    operator, partition, name = store
    return f"{operator}/{partition}" if name == DEFAULT_STORE else f"{operator}/{partition}/{name}"


def _split(paths: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """What is before, and what is after the last slash; nothing is before where there is none."""
    if not len(paths):
        return paths, paths
    offsets = np.frombuffer(paths.buffers()[1], "i4", len(paths) + 1, paths.offset * 4)
    text = np.frombuffer(paths.buffers()[2] or b"", "u1")[: offsets[-1]]
    starts, ends = offsets[:-1].astype("i8"), offsets[1:].astype("i8")
    slashes = np.concatenate([[-1], np.flatnonzero(text == ord("/"))])
    last = slashes[np.searchsorted(slashes, ends) - 1]
    folder_ends = np.maximum(last, starts)
    name_starts = np.maximum(last + 1, starts)
    return _substrings(text, starts, folder_ends), _substrings(text, name_starts, ends)


def _substrings(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.StringArray:
    """The parts of a text, which are in order and do not overlap."""
    # What is left out before each part, and the part, in turn; then the rest.
    lengths: np.ndarray = np.empty(2 * len(starts) + 1, "i8")
    lengths[0:-1:2] = starts - np.concatenate([[0], ends[:-1]])
    lengths[1::2] = ends - starts
    lengths[-1] = len(text) - ends[-1]
    kept = text[np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)]
    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype("i4")
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(kept))
