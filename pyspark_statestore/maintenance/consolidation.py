"""One file that repeats the indexes of all sealed ones: who starts opens it instead of each of them."""

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
from pyspark_statestore.log.scan import INDEX_SUFFIX, MERGED, Scan, check_checkpoint, retry_if_gone, scan
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel

_WORTH_IT = 2
"""One file is opened as quickly as the one that repeats its index."""

_ROOM = (1 << 31) - (64 << 20)
"""For entries and paths: Java reads an index block into one array. Names of files take about 45 bytes each."""


@dataclass(frozen=True)
class Consolidation:
    """What was done.

    Attributes:
        index_file: URL of the index-only file that was written; None where there was nothing new to write.
        covered_files_count: Sealed files that need not be opened, or would not have to be.
        removed_files_count: Older index-only files that are gone, or would be.
        dry_run: Whether nothing was changed.
    """

    index_file: str | None
    covered_files_count: int
    removed_files_count: int
    dry_run: bool


def consolidate_index(log: MergedLog, *, dry_run: bool = False) -> Consolidation:
    """Writes an index-only file about all sealed files where none is there yet, and removes those that it replaces.

    Only sealed files are taken in. Their indexes never change, so what it says stays true, and what it says of files
    that are unlinked later is not heard any more. It has no facts of its own, so it may be lost at any time.

    Args:
        log: Of the checkpoint.
        dry_run: Whether nothing is to be changed.

    Raises:
        StateStoreFilesError: PSS_NOT_A_CHECKPOINT, or the checkpoint cannot be read or written.
    """
    found = retry_if_gone(log.directory, lambda: scan(log.directory, headers=False))
    if not found.infos:
        check_checkpoint(log.directory)
    if not dry_run:
        check_unclaimed(log.directory, found.others)
    sources = _sources(found)
    covered = _that_fit(sources)
    indexes = _Indexes.of(found)
    keeper = indexes.one_for(covered)
    written = None
    if keeper is None and len(covered) >= _WORTH_IT:
        unneeded = list(indexes.ranks)
        if not dry_run:
            written = _write(log, found, sources, covered)
    else:
        unneeded = indexes.unneeded(found, keeper)
        covered = indexes.speaks_for[keeper] if keeper else frozenset()
    unneeded = sorted(unpinned(log.directory, unneeded)[0])
    if not dry_run:
        in_parallel(lambda name: delete(log.directory, f"{MERGED}/{name}"), unneeded)
    url = log.directory.location.display(f"{MERGED}/{written}") if written else None
    return Consolidation(url, len(covered), len(unneeded), dry_run)


@dataclass(frozen=True)
class _Source:
    """An index block; of each of its file references the file that it is to speak for, or "" where it is not to."""

    block: IndexBlock
    files: tuple[str, ...]

    def about(self, number: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """Of each entry the number of its file, 0 where it has none."""
        lookup = np.array([number.get(name, 0) for name in self.files], "u4")
        numbers: np.ndarray[Any, Any] = lookup[self.block.records["file_ref"]]
        return numbers


@dataclass(frozen=True)
class _Indexes:
    """The index-only files that are complete.

    Attributes:
        ranks: By name what orders them, and all other files: the highest stamp, then the name.
        speaks_for: By name the files that exist of those that it repeats.
        mostly_history: Those that speak more of what is gone than of what exists.
    """

    ranks: Mapping[str, tuple[int, str]]
    speaks_for: Mapping[str, frozenset[str]]
    mostly_history: frozenset[str]

    @classmethod
    def of(cls, found: Scan) -> _Indexes:
        ranks, speaks_for, history = {}, {}, set()
        for name, file in found.files.items():
            if not name.endswith(INDEX_SUFFIX) or not file.sealed:
                continue
            ranks[name] = (max(group.trailer.group_stamp for group in file.groups), name)
            speaks_for[name] = frozenset(n for g in file.groups for n in g.index.names if n in found.infos)
            about = [_Source(g.index, ("", *g.index.names)).about(dict.fromkeys(found.infos, 1)) for g in file.groups]
            if 2 * sum(int(part.sum()) for part in about) < sum(map(len, about)):
                history.add(name)
        return cls(ranks, speaks_for, frozenset(history))

    def one_for(self, files: frozenset[str]) -> str | None:
        """The highest that speaks for all of these files and for little else."""
        able = [name for name, covered in self.speaks_for.items() if covered >= files and covered]
        return max((name for name in able if name not in self.mostly_history), key=self.ranks.__getitem__, default=None)

    def unneeded(self, found: Scan, keeper: str | None) -> list[str]:
        """Those that speak for nothing that the keeper does not speak for.

        The highest stamp must stay to be seen (rule 3), so one file goes only for a higher one; as that is a total
        order, of two who do this at the same time neither removes what the other one keeps in its place.
        """
        stays = [(g.trailer.group_stamp, name) for name, f in found.files.items() for g in f.groups]
        rank = self.ranks[keeper] if keeper else max((r for r in stays if r[1] not in self.ranks), default=(0, ""))
        covered = self.speaks_for[keeper] if keeper else frozenset()
        return [name for name in self.ranks if self.speaks_for[name] <= covered and self.ranks[name] < rank]


def _sources(found: Scan) -> list[_Source]:
    """Who speaks for which sealed file: an index-only file where one does, else the file itself."""
    sources = []
    claimed: set[str] = set()
    for name, file in found.files.items():
        if name.endswith(INDEX_SUFFIX) and file.sealed:
            for group in file.groups:
                mine = [n if n in found.infos and n not in claimed else "" for n in group.index.names]
                claimed.update(mine)
                sources.append(_Source(group.index, ("", *mine)))
    for name, file in found.files.items():
        # What a reference file says cannot be repeated: an index-only file names files of its own checkpoint. Nor can
        # what a file says that somebody has renamed: by this name it may be another one tomorrow.
        is_known = name in claimed or name.endswith(INDEX_SUFFIX) or file.foreign or not file.has_own_name
        if file.sealed and not is_known:
            sources.append(_Source(file.groups[-1].index, (name,)))
    return sources


def _that_fit(sources: Sequence[_Source]) -> frozenset[str]:
    """The files whose entries one index block has room for; the oldest, where it has not for all."""
    names = sorted({name for source in sources for name in source.files if name})
    number = {name: i for i, name in enumerate(names, start=1)}
    lengths: np.ndarray[Any, Any] = np.zeros(len(names) + 1, "i8")
    for source in sources:
        paths = pc.binary_length(source.block.paths).to_numpy()
        np.add.at(lengths, source.about(number), paths + (ENTRY.size + U32.size))
    fitting = int(np.searchsorted(np.cumsum(lengths[1:]), _ROOM, side="right"))
    return frozenset(names[:fitting])


def _write(log: MergedLog, found: Scan, sources: Sequence[_Source], covered: frozenset[str]) -> str:
    names = sorted(covered)
    number = {name: i for i, name in enumerate(names, start=1)}
    # Above all that is known, so that it outranks the files that it replaces; a clock of stamps may tick at any time.
    stamp = max(group.trailer.group_stamp for file in found.files.values() for group in file.groups) + 1
    with log.new_file(LogSnapshot(found, {}, frozenset()), INDEX_SUFFIX) as (name, out):
        for source in sources:
            about = source.about(number)
            kept = about > 0
            records = source.block.records[kept].copy()
            records["file_ref"] = about[kept]
            out.add_columns(records, source.block.paths.filter(pa.array(kept)))
        out.seal_index_of(names, group_stamp=stamp)
    return name
