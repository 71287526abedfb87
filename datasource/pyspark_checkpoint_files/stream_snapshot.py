"""The writes in a checkpoint at one moment, each once, and which of them a stream has not returned yet."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.seen import EVERYTHING, Progress, Seen
from pyspark_statestore.format import parse_file_name
from pyspark_statestore.inspect import StoreFilter
from pyspark_statestore.log import Status
from pyspark_statestore.log.entries import CLOCK_BITS
from pyspark_statestore.log.scan import INDEX_SUFFIX, Scan
from pyspark_statestore.log.state_files import Stores


@dataclass(frozen=True)
class Writes:
    """A row for each write, in the order of their stamps.

    Attributes:
        stamp: The write's stamp, which with ``writer`` identifies it.
        writer: The number of the writer among those of the snapshot.
        entry: The entry that a stream returns for it: the live one, or else the one that was copied least often.
        own: The entry in the write's own file, or -1 where only copies are left.
    """

    stamp: np.ndarray
    writer: np.ndarray
    entry: np.ndarray
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.stamp)

    def take(self, rows: np.ndarray) -> Writes:
        """Returns these rows."""
        return Writes(self.stamp[rows], self.writer[rows], self.entry[rows], self.own[rows])


class StreamSnapshot:
    """A checkpoint as it was at one moment.

    Args:
        options: The options of the stream.

    Raises:
        StateStoreFilesError: There is no checkpoint, or it cannot be read.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        checkpoint = options.checkpoint()
        self.location = checkpoint.inspect.location
        self.scan: Scan = checkpoint.inspect.scan(headers=True)
        entries = self.scan.entries
        parsed = [parse_file_name(name) or (0, 0, 0) for name in entries.files]
        own_files = np.array([not name.endswith(INDEX_SUFFIX) for name in entries.files], bool)
        self._is_put = np.isin(self.scan.resolution.status, [Status.LIVE, Status.SUPERSEDED, Status.DELETED])
        self._file_writer: np.ndarray = np.array([writer for _, writer, _ in parsed], "i8")
        self._file_number: np.ndarray = np.array([number for _, _, number in parsed], "i8")
        self._closed = np.array([self.scan.is_closed(name, options.closed_after) for name in entries.files], bool)
        self._own_files = np.flatnonzero(own_files)
        self._writers = np.unique(np.concatenate([self._file_writer, entries.writer[self._is_put]]))

    @cached_property
    def writes(self) -> Writes:
        """The writes that the options ask for, each once."""
        entries, status = self.scan.entries, self.scan.resolution.status
        rows = np.flatnonzero(self._is_put)
        if self._options.narrowed:
            rows = rows[StoreFilter(**self._options.narrowed).rows(Stores.of(entries.path))[rows]]
        is_own = (entries.generation[rows] == 0) & (self._file_writer[entries.file[rows]] == entries.writer[rows])
        stamp: np.ndarray = entries.stamp[rows]
        writer: Any = np.searchsorted(self._writers, entries.writer[rows])
        own: np.ndarray = np.lexsort((~is_own, writer, stamp))
        shown: np.ndarray = np.lexsort((entries.generation[rows], status[rows] != Status.LIVE, writer, stamp))
        # Both orders have the entries of a write side by side, and the writes in the same places.
        first: np.ndarray = np.ones(len(rows), bool)
        first[1:] = (stamp[own][1:] != stamp[own][:-1]) | (writer[own][1:] != writer[own][:-1])
        own, shown = own[first], shown[first]
        return Writes(stamp[own], writer[own], rows[shown], np.where(is_own[own], rows[own], -1))

    def seen(self, by: Seen) -> np.ndarray:
        """Marks the writes that a stream has returned."""
        writes = self.writes
        floors = [by[w].of_file(n) for w, n in zip(self._file_writer.tolist(), self._file_number.tolist(), strict=True)]
        of_file = np.array([*floors, 0], "i8")  # the last is for writes whose own file is gone
        of_writer = np.array([by[writer].stamp for writer in self._writers.tolist()] or [0], "i8")
        file = np.where(writes.own >= 0, self.scan.entries.file[writes.own] if len(self.scan.entries) else -1, -1)
        seen: np.ndarray = np.where(file >= 0, writes.stamp <= of_file[file], writes.stamp <= of_writer[writes.writer])
        return seen

    def settled(self, at: datetime.datetime | None = None) -> np.ndarray:
        """Marks the writes after which no older one of the same process can appear.

        Args:
            at: A write of a process with an open file must be older than this; ``settledAfter`` before the snapshot if
                not given.
        """
        at = at or self.scan.at - self._options.settled_after
        busy = np.unique(self._file_writer[self._own_files[~self._closed[self._own_files]]])
        limit = np.where(np.isin(self._writers, busy), int(at.timestamp() * 1000) << CLOCK_BITS, EVERYTHING)
        settled: np.ndarray = self.writes.stamp <= (limit[self.writes.writer] if len(limit) else 0)
        return settled

    def advanced(self, since: Seen, given: np.ndarray) -> Seen:
        """Returns the offset after a batch.

        Args:
            since: The offset before the batch.
            given: Marks the writes in the batch.
        """
        writes, left = self.writes, ~(self.seen(since) | given)
        file = self.scan.entries.file
        unfinished = set(np.unique(file[writes.own[left & (writes.own >= 0)]]).tolist())
        last = _highest(file[writes.own[given & (writes.own >= 0)]], writes.stamp[given & (writes.own >= 0)])
        highest = _highest(writes.writer[given], writes.stamp[given])
        files: dict[int, dict[int, bool]] = {}
        lasts: dict[int, list[tuple[int, int]]] = {}
        for index in self._own_files.tolist():
            writer, number = int(self._file_writer[index]), int(self._file_number[index])
            files.setdefault(writer, {})[number] = bool(self._closed[index]) and index not in unfinished
            if index in last:
                lasts.setdefault(writer, []).append((number, last[index]))
        progress: dict[int, Progress] = {}
        for index, writer in enumerate(self._writers.tolist()):
            changed = since[writer].advanced(lasts.get(writer, []), highest.get(index, 0), files.get(writer, {}))
            if changed != Progress():
                progress[writer] = changed
        return Seen(progress)


def _highest(keys: np.ndarray, values: np.ndarray) -> Mapping[int, int]:
    """Returns the highest value of each key. The values must ascend."""
    return dict(zip(keys.tolist(), values.tolist(), strict=True))
