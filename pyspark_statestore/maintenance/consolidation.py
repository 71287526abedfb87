"""Index consolidation: one index-only file repeats the indexes of all sealed merged files.

A process that starts reads that file instead of opening each sealed one. Nothing else changes: an index-only file holds
no segments and states nothing new, so it may be lost or deleted at any time, and what it says of files that are
unlinked later is ignored.

Only sealed files are covered, since their indexes never change. Older index-only files that cover nothing more are
removed, after the new one is durable and a listing shows that no fork has pinned them. A crash leaves both the old and
the new one, or a temporary file; the next run removes what is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.format.index_block import IndexBlock
from pyspark_statestore.format.layout import ENTRY, U32
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import check_unclaimed, unpinned
from pyspark_statestore.log.scan import INDEX_SUFFIX, MERGED, Scan, retry_if_gone, scan
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel

_WORTH_IT = 2
"""So many files have to be covered; a single file is opened as quickly as one that repeats its index."""

_ROOM = (1 << 31) - (64 << 20)
"""Bytes of entries and paths at most: Java reads an index block into one array. A file's name takes about 45 bytes."""


_ORDER = ("generation", "writer", "stamp", "offset", "kind", "file_ref")
"""The fields that put entries in order, the most important one last."""


@dataclass(frozen=True)
class Consolidation:
    """What a consolidation did, or would do.

    Attributes:
        index_file: URL of the index-only file that was written; None where there was nothing new to write.
        covered_files_count: Sealed files that a starting process need not open.
        removed_files_count: Older index-only files that were removed.
        dry_run: Whether nothing was changed.
        is_idle: Whether there was nothing to write and nothing to remove, or in a dry run would be.
    """

    index_file: str | None
    covered_files_count: int
    removed_files_count: int
    dry_run: bool
    is_idle: bool = False


def consolidate_index(log: MergedLog, *, dry_run: bool = False) -> Consolidation:
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.consolidate_index`."""
    found = retry_if_gone(log.directory, lambda: scan(log.directory, headers=False))
    if not dry_run:
        check_unclaimed(log.directory, found.others)
    sources = _sources(found)
    covered = _fitting(sources)
    indexes = _Indexes.of(found)
    keeper = indexes.covering(covered)
    written = None
    is_new = keeper is None and len(covered) >= _WORTH_IT
    if is_new:
        unneeded = list(indexes.ranks)
        if not dry_run:
            written = _write(log, found, sources, covered)
    else:
        unneeded = indexes.unneeded(found, keeper)
        covered = indexes.covers[keeper] if keeper else frozenset()
    unneeded = sorted(unpinned(log.directory, unneeded)[0])
    if not dry_run:
        in_parallel(lambda name: delete(log.directory, f"{MERGED}/{name}"), unneeded)
    url = log.directory.location.display(f"{MERGED}/{written}") if written else None
    return Consolidation(url, len(covered), len(unneeded), dry_run, is_idle=not is_new and not unneeded)


@dataclass(frozen=True)
class _Source:
    """An index block, and for each of its file references the file that it is the source for; "" where it is not."""

    block: IndexBlock
    files: tuple[str, ...]

    def file_numbers(self, number: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """For each entry the number of its file; 0 where it has none."""
        lookup = np.array([number.get(name, 0) for name in self.files], "u4")
        numbers: np.ndarray[Any, Any] = lookup[self.block.records["file_ref"]]
        return numbers


@dataclass(frozen=True)
class _Indexes:
    """The index-only files that are complete.

    Attributes:
        ranks: By name, its place in the order of all files: the highest stamp, then the name.
        covers: By name, the existing files whose indexes it repeats.
        mostly_history: Names of those with more entries of files that are gone than of files that exist.
    """

    ranks: Mapping[str, tuple[int, str]]
    covers: Mapping[str, frozenset[str]]
    mostly_history: frozenset[str]

    @classmethod
    def of(cls, found: Scan) -> _Indexes:
        ranks, covers, history = {}, {}, set()
        for name, file in found.files.items():
            if not name.endswith(INDEX_SUFFIX) or not file.sealed:
                continue
            ranks[name] = (max(group.trailer.group_stamp for group in file.groups), name)
            covers[name] = frozenset(n for g in file.groups for n in g.index.names if n in found.infos)
            blocks = [_Source(group.index, ("", *group.index.names)) for group in file.groups]
            exists = [block.file_numbers(dict.fromkeys(found.infos, 1)) for block in blocks]
            if 2 * sum(int(part.sum()) for part in exists) < sum(map(len, exists)):
                history.add(name)
        return cls(ranks, covers, frozenset(history))

    def covering(self, files: frozenset[str]) -> str | None:
        """The highest that covers all of these files and little else; None where there is none."""
        able = [name for name, covered in self.covers.items() if covered >= files and covered]
        return max((name for name in able if name not in self.mostly_history), key=self.ranks.__getitem__, default=None)

    def unneeded(self, found: Scan, keeper: str | None) -> list[str]:
        """Names of those that cover nothing that the keeper does not cover.

        The highest stamp has to stay visible (rule 3), so a file only goes where a higher one stays. Since that is a
        total order, two processes that do this at the same time never remove each other's keeper.
        """
        stays = [(g.trailer.group_stamp, name) for name, f in found.files.items() for g in f.groups]
        rank = self.ranks[keeper] if keeper else max((r for r in stays if r[1] not in self.ranks), default=(0, ""))
        covered = self.covers[keeper] if keeper else frozenset()
        return [name for name in self.ranks if self.covers[name] <= covered and self.ranks[name] < rank]


def _sources(found: Scan) -> list[_Source]:
    """The source of each sealed file's entries: an index-only file where one covers it, else the file itself."""
    sources = []
    claimed: set[str] = set()
    for name, file in found.files.items():
        if name.endswith(INDEX_SUFFIX) and file.sealed:
            for group in file.groups:
                mine = [n if n in found.infos and n not in claimed else "" for n in group.index.names]
                claimed.update(mine)
                sources.append(_Source(group.index, ("", *mine)))
    for name, file in found.files.items():
        # A reference file cannot be covered: an index-only file names files of its own checkpoint. Nor can a file that
        # was renamed: by this name it may be another one tomorrow.
        is_known = name in claimed or name.endswith(INDEX_SUFFIX) or file.foreign or not file.has_own_name
        if file.sealed and not is_known:
            sources.append(_Source(file.groups[-1].index, (name,)))
    return sources


def _fitting(sources: Sequence[_Source]) -> frozenset[str]:
    """The files whose entries one index block has room for; the oldest ones where it has no room for all."""
    names = sorted({name for source in sources for name in source.files if name})
    number = {name: i for i, name in enumerate(names, start=1)}
    lengths: np.ndarray[Any, Any] = np.zeros(len(names) + 1, "i8")
    for source in sources:
        paths = pc.binary_length(source.block.paths).to_numpy()
        np.add.at(lengths, source.file_numbers(number), paths + (ENTRY.size + U32.size))
    fitting = int(np.searchsorted(np.cumsum(lengths[1:]), _ROOM, side="right"))
    return frozenset(names[:fitting])


def _write(log: MergedLog, found: Scan, sources: Sequence[_Source], covered: frozenset[str]) -> str:
    names = sorted(covered)
    number = {name: i for i, name in enumerate(names, start=1)}
    # Above every known stamp, so that it outranks the files that it replaces; raising the stamp does no harm.
    stamp = max(group.trailer.group_stamp for file in found.files.values() for group in file.groups) + 1
    with log.new_file(LogSnapshot(found, {}, frozenset()), INDEX_SUFFIX) as (name, out):
        out.add_columns(*_in_order(sources, number))
        out.seal_index_of(names, group_stamp=stamp)
    return name


def _in_order(sources: Sequence[_Source], number: Mapping[str, int]) -> tuple[np.ndarray[Any, Any], pa.StringArray]:
    """The entries of the numbered files, in the one order that both languages write them in, whatever they come from.

    That is by file, kind and offset, and then by key and generation: a key belongs to one path.
    """
    all_records, all_paths = [], []
    for source in sources:
        numbers = source.file_numbers(number)
        kept = numbers > 0
        records = source.block.records[kept].copy()
        records["file_ref"] = numbers[kept]
        all_records.append(records)
        all_paths.append(source.block.paths.filter(pa.array(kept)))
    joined = np.concatenate(all_records)
    order = np.lexsort([joined[field] for field in _ORDER])
    return joined[order], pa.concat_arrays(all_paths).take(pa.array(order))
