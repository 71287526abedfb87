"""Finds a second time which segments live: path by path, in plain Python, by the text of the rules 3 to 5.

Shares no code with :mod:`pyspark_statestore.log`, so that a mistake there is not made here again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.format import MergedFile

_AT_ONCE = 50_000
"""Entries that are Python objects at the same time."""

_PUT = 1

_COLUMNS = ("kind", "generation", "stamp", "writer", "offset", "length")

_Entry = tuple[str, str, int, int, int, int, int, int]
"""Path, name of the file, then as :data:`_COLUMNS`."""


@dataclass
class Count:
    """What lives in one file.

    Attributes:
        live_segments: The number of live segments.
        live_bytes: The bytes that they have in the file; those of a reference file are elsewhere.
    """

    live_segments: int = 0
    live_bytes: int = 0


def recount(files: Mapping[str, MergedFile]) -> dict[str, Count]:
    """Counts what lives in each file.

    Args:
        files: The files by name, with their own indexes; without index-only files, which only repeat others.
    """
    counts = {name: Count() for name in files}
    for _, same in groupby(_by_path(files), key=itemgetter(0)):
        found = _living(same)
        if found is not None:
            name, length = found
            counts[name].live_segments += 1
            counts[name].live_bytes += 0 if files[name].foreign else length
    return counts


def _living(same: Iterable[_Entry]) -> tuple[str, int] | None:
    """The file and the length of a path's live segment; None where none lives."""
    puts = []
    killed = (-1, -1)
    for _, name, kind, generation, stamp, writer, offset, length in same:
        if kind == _PUT:
            puts.append(((stamp, writer), generation, name, offset, length))
        else:
            killed = max(killed, (stamp, writer))
    newest = max(puts, default=None)
    if newest is None or newest[0] <= killed:
        return None
    return newest[2], newest[4]


def _by_path(files: Mapping[str, MergedFile]) -> Iterator[_Entry]:
    """All entries, those of a path one after the other; few of them are Python objects at the same time."""
    names = list(files)
    blocks = [(number, group.index) for number, name in enumerate(names) for group in files[name].groups]
    if not blocks:
        return
    paths = pa.chunked_array([block.paths for _, block in blocks], pa.string())
    of: np.ndarray = np.repeat([number for number, _ in blocks], [len(block) for _, block in blocks])
    columns = [np.concatenate([block.records[name] for _, block in blocks]) for name in _COLUMNS]
    order = pc.sort_indices(paths).to_numpy()
    for start in range(0, len(order), _AT_ONCE):
        rows = order[start : start + _AT_ONCE]
        here = [column[rows].tolist() for column in columns]
        of_names = [names[number] for number in of[rows].tolist()]
        yield from zip(paths.take(pa.array(rows)).to_pylist(), of_names, *here, strict=True)
