"""The entries of many merged files as columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import Entry, Kind, MergedFile

CLOCK_BITS = 16
"""A stamp is Unix milliseconds, shifted left by so many bits, plus a counter."""

Column: TypeAlias = Any
"""A one-dimensional NumPy array."""

_COLUMNS = ("kind", "type", "generation", "crc32c", "stamp", "writer", "offset", "length")

_TYPES = ("u1", "u1", "i4", "u4", "i8", "i8", "i8", "i8")


def time_of(stamp: int) -> datetime.datetime:
    """The time of a write by its writer's clock."""
    return datetime.datetime.fromtimestamp((stamp >> CLOCK_BITS) / 1000, datetime.timezone.utc)


@dataclass(frozen=True)
class Entries:
    """Entries of many merged files, a row for each.

    Attributes:
        files: Names of all files, those without entries included, in ascending order: a file's number orders as its
            name does.
        file: Number of the file that a row is about.
        kind: PUT or DELETE, as :class:`~pyspark_statestore.format.Kind` numbers them.
        type: What the logical file is: see :class:`~pyspark_statestore.format.SegmentType`.
        generation: How often the entry was copied.
        crc32c: The checksum of the segment's bytes.
        stamp: With ``writer`` the key of the write; for a DELETE, of the newest write that it kills.
        writer: See ``stamp``.
        offset: Where the segment begins in its file.
        length: Bytes of the segment.
        path: The path of the logical file, as a chunked Arrow string array.
        origin: 0 where the segment is in ``file`` itself. Otherwise it is in another checkpoint, in the file with this
            number (from 1 on) in ``foreign``, and ``file`` is the reference file, which it counts for.
        foreign: Paths of other checkpoints' files, as reference files name them, in ascending order.
        distinct: Whether no row can be there twice; an index-only file may repeat what was read in the file itself.
    """

    files: tuple[str, ...]
    file: Column = field(repr=False)
    kind: Column = field(repr=False)
    type: Column = field(repr=False)
    generation: Column = field(repr=False)
    crc32c: Column = field(repr=False)
    stamp: Column = field(repr=False)
    writer: Column = field(repr=False)
    offset: Column = field(repr=False)
    length: Column = field(repr=False)
    path: pa.ChunkedArray = field(repr=False)
    origin: Column = field(repr=False)
    foreign: tuple[str, ...] = ()
    distinct: bool = False

    @classmethod
    def read(cls, files: Mapping[str, MergedFile]) -> Entries:
        """Takes the indexes of merged files as they were read.

        An index-only file says what is in others. What it says of a file that is not among ``files`` is left out: that
        file does not exist any more. Leave the groups of a file away (``groups=()``) where an index-only file is to
        speak for it.

        Args:
            files: All files that exist, by name.
        """
        names = tuple(sorted(files))
        number = {name: i for i, name in enumerate(names)}
        foreign = tuple(sorted({path for file in files.values() for path in file.foreign}))
        place = {path: i for i, path in enumerate(foreign, start=1)}
        records, numbers, paths, origins = [], [], [], []
        spoken_for: set[int] = set()
        distinct = True
        for name, file in files.items():
            mine: set[int] = set()
            for group in file.groups:
                block = group.index
                # -1 where the file that a reference means is gone.
                if block.foreign:
                    about: Column = np.full(len(block), number[name], np.int32)
                    origin = np.array([0, *(place[path] for path in block.names)], np.int32)[block.records["file_ref"]]
                else:
                    meant = np.array([number[name], *(number.get(other, -1) for other in block.names)], np.int32)
                    about = meant[block.records["file_ref"]]
                    origin = np.zeros(len(block), np.int32)
                here, path = block.records, block.paths
                keep = about >= 0
                if not keep.all():
                    about, here, path = about[keep], here[keep], path.filter(pa.array(keep))
                    origin = origin[keep]
                records.append(here)
                numbers.append(about)
                paths.append(path)
                origins.append(origin)
                mine |= set(np.unique(about).tolist())
            distinct &= mine.isdisjoint(spoken_for)
            spoken_for |= mine
        if not records:
            nothing: Mapping[str, Column] = {name: np.empty(0, type_) for name, type_ in _dtypes()}
            return cls._of(names, nothing, np.empty(0, "i4"), [], distinct=True)
        joined = np.concatenate(records)
        columns = {name: joined[name].astype(type_) for name, type_ in _dtypes()}
        return cls._of(names, columns, np.concatenate(numbers), paths, np.concatenate(origins), foreign, distinct)

    @classmethod
    def of(cls, files: Mapping[str, Iterable[Entry]], *, distinct: bool = False) -> Entries:
        """Takes entries one by one, for few of them; ``file_ref`` does not count.

        Args:
            files: The entries by the name of the file that they are about.
            distinct: Whether the caller has made sure that no entry is there twice.
        """
        names = tuple(sorted(files))
        rows = [(number, entry) for number, name in enumerate(names) for entry in files[name]]
        columns = {
            name: np.array([getattr(entry, name) for _, entry in rows], dtype=type_) for name, type_ in _dtypes()
        }
        paths = [pa.array([entry.path for _, entry in rows], pa.string())]
        return cls._of(names, columns, np.array([number for number, _ in rows], "i4"), paths, distinct=distinct)

    @classmethod
    def _of(
        cls,
        files: tuple[str, ...],
        columns: Mapping[str, Column],
        file: Column,
        paths: Sequence[pa.Array],
        origin: Column = None,
        foreign: tuple[str, ...] = (),
        distinct: bool = False,
    ) -> Entries:
        path = pa.chunked_array(paths, pa.string())
        origin = np.zeros(len(file), "i4") if origin is None else origin.astype("i4")
        return cls(files, file.astype("i4"), **columns, path=path, origin=origin, foreign=foreign, distinct=distinct)

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        """Puts several lots of entries together; files may be in more than one."""
        names = tuple(sorted({name for part in parts for name in part.files}))
        number = {name: i for i, name in enumerate(names)}
        file = [np.array([number[n] for n in part.files] or [0], "i4")[part.file] for part in parts]
        empty: list[Column] = [np.empty(0, "i4")]
        columns = {
            name: np.concatenate([np.empty(0, type_), *(getattr(part, name) for part in parts)]).astype(type_)
            for name, type_ in _dtypes()
        }
        foreign = tuple(sorted({path for part in parts for path in part.foreign}))
        place = {path: i for i, path in enumerate(foreign, start=1)}
        origin = [np.array([0, *(place[path] for path in part.foreign)], "i4")[part.origin] for part in parts]
        distinct = all(part.distinct for part in parts) and sum(len(part.files) for part in parts) == len(names)
        chunks = [chunk for part in parts for chunk in part.path.chunks]
        return cls._of(
            names, columns, np.concatenate(empty + file), chunks, np.concatenate(empty + origin), foreign, distinct
        )

    def __len__(self) -> int:
        return len(self.file)

    @property
    def is_put(self) -> Column:
        """Which rows are segments; the others are tombstones."""
        return self.kind == Kind.PUT

    def take(self, rows: Column) -> Entries:
        """Returns some of the rows; the names of all files stay."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        path = self.path.take(pa.array(rows, pa.int64()))
        return Entries(
            self.files,
            self.file[rows],
            **columns,
            path=path,
            origin=self.origin[rows],
            foreign=self.foreign,
            distinct=self.distinct,
        )

    def to_arrow(self) -> pa.Table:
        """Returns a table with these columns; ``file`` is a dictionary of names."""
        file = pa.DictionaryArray.from_arrays(pa.array(self.file), pa.array(self.files, pa.string()))
        columns = {name: pa.array(getattr(self, name)) for name in _COLUMNS}
        return pa.table({"file": file, **columns, "path": self.path})


def _dtypes() -> zip[tuple[str, str]]:
    return zip(_COLUMNS, _TYPES, strict=True)
