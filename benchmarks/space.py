"""Measures after every batch how much of the merged files is still needed, from the files themselves.

Like `disk.merged_space`, it resolves the entries itself, without the package's own index, so that a mistake there
cannot hide here. Unlike that one, it remembers what it has read: after a batch it reads only new groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_statestore.format import BytesSource, Entry, Kind, read_merged_file
from pyspark_statestore.format.index_block import IndexBlock
from pyspark_statestore.format.layout import TRAILER_SIZE, Trailer

ATTEMPTS = 20


@dataclass
class _File:
    """What was read of one merged file."""

    size: int = 0
    last_trailer: int = 0
    entries: list[Entry] = field(default_factory=list)


@dataclass
class SpaceReader:
    """Follows the merged files of one checkpoint.

    Attributes:
        directory: The local `state/_merged`.
        written_bytes: Payload that Spark has written so far, as far as it was seen.
        relocated_bytes: Payload that was copied from one merged file to another, as far as it was seen.
    """

    directory: Path
    written_bytes: int = 0
    relocated_bytes: int = 0
    _files: dict[str, _File] = field(default_factory=dict)

    def measure(self) -> dict[str, Any]:
        """Returns the state of the files now.

        Returns:
            files, physical_bytes, live_bytes, amplification (None where nothing lives), written_bytes and
            relocated_bytes since the start.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._measure()
            except FileNotFoundError:
                continue  # unlinked between the listing and the reading: look again
        raise RuntimeError(f"the files in {self.directory} went away while they were read, {ATTEMPTS} times in a row")

    def _measure(self) -> dict[str, Any]:
        physical = 0
        present: set[str] = set()
        for path in sorted(self.directory.glob("*.merged")):
            self._read(path)
            present.add(path.name)
            physical += path.stat().st_size
        self._files = {name: file for name, file in self._files.items() if name in present}
        best: dict[str, tuple[tuple[int, int, int, str], int]] = {}
        deleted: dict[str, tuple[int, int]] = {}
        for name, file in self._files.items():
            for entry in file.entries:
                if entry.kind == Kind.DELETE:
                    deleted[entry.path] = max(deleted.get(entry.path, entry.key), entry.key)
                else:
                    rank = (*entry.key, entry.generation, name)
                    if entry.path not in best or rank > best[entry.path][0]:
                        best[entry.path] = (rank, entry.length)
        live = sum(length for path, (rank, length) in best.items() if rank[:2] > deleted.get(path, (-1, -1)))
        return {
            "files": len(present),
            "physical_bytes": physical,
            "live_bytes": live,
            "amplification": physical / live if live else None,
            "written_bytes": self.written_bytes,
            "relocated_bytes": self.relocated_bytes,
        }

    def _read(self, path: Path) -> None:
        file = self._files.get(path.name, _File())
        size = path.stat().st_size
        if size == file.size:
            return
        entries, last = _new_entries(path, file.last_trailer)
        known = {(entry.kind, entry.path, entry.key, entry.generation) for entry in file.entries}
        for entry in entries:
            # The cumulative index of a sealed file repeats what its groups have said.
            if entry.file_ref or (entry.kind, entry.path, entry.key, entry.generation) in known:
                continue
            file.entries.append(entry)
            if entry.kind == Kind.PUT and entry.generation:
                self.relocated_bytes += entry.length
            elif entry.kind == Kind.PUT:
                self.written_bytes += entry.length
        file.size, file.last_trailer = size, last
        self._files[path.name] = file


def _new_entries(path: Path, after: int) -> tuple[list[Entry], int]:
    """Returns the entries of a file's groups after a trailer, and where its last trailer is."""
    with path.open("rb") as source:
        end = source.seek(0, 2)
        offset, last, found = end - TRAILER_SIZE, 0, []
        while offset > after:
            trailer = Trailer.unpack(_range(source, offset, TRAILER_SIZE), offset)
            if trailer is None:
                break
            found.append(IndexBlock.decode(_range(source, trailer.index_offset, trailer.index_length), trailer))
            last = last or offset
            offset = 0 if trailer.cumulative else trailer.previous
        else:
            return [entry for block in reversed(found) for entry in block], last or after
        # A group is being written right now, so the end of the file is not the end of a group.
        file = read_merged_file(BytesSource(_range(source, 0, end)), path.name)
    last = file.groups[-1].trailer_offset if file.groups else 0
    return [entry for group in file.groups if group.trailer_offset > after for entry in group.index], last


def _range(source: Any, offset: int, length: int) -> bytes:
    source.seek(offset)
    data: bytes = source.read(length)
    return data
