"""Makes index blocks, from entries one by one or from whole columns of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark_statestore.format.layout import MAX_HEAP, U32, Entry

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class IndexEncoder:
    """Collects the entries of an index block in the form in which they are written."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._lengths: list[bytes] = []
        self._heap: list[bytes] = []
        self._heap_length = 0
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        path = entry.path.encode()
        self._add(1, entry.pack(), U32.pack(len(path)), path)

    def add_columns(self, records: np.ndarray[Any, Any], paths: pa.StringArray) -> None:
        """Adds many entries.

        Args:
            records: As :attr:`IndexBlock.records`.
            paths: As :attr:`IndexBlock.paths`.
        """
        import numpy as np

        if not len(records):
            return
        # The buffers of an array that is a slice of another one begin elsewhere.
        offsets = np.frombuffer(paths.buffers()[1], "<i4", len(paths) + 1, 4 * paths.offset)
        data = paths.buffers()[2]
        heap = data[int(offsets[0]) : int(offsets[-1])].to_pybytes() if data is not None else b""
        self._add(len(records), records.tobytes(), np.diff(offsets).astype("<u4").tobytes(), heap)

    def extend(self, other: IndexEncoder) -> None:
        """Adds all entries of another block."""
        self._entries += other._entries
        self._lengths += other._lengths
        self._heap += other._heap
        self._heap_length += other._heap_length
        self.count += other.count

    def encode(self, names: Sequence[str] | None = None) -> tuple[bytes, int]:
        """Makes the block.

        Args:
            names: Of other merged files, in an index-only file.

        Returns:
            The block, and where in it the name table begins; 0 without one.
        """
        block = b"".join([*self._entries, _offsets(b"".join(self._lengths)), *self._heap])
        if names is None:
            return block, 0
        encoded = [name.encode() for name in names]
        lengths = b"".join(U32.pack(len(name)) for name in encoded)
        return b"".join([block, U32.pack(len(names)), _offsets(lengths), *encoded]), len(block)

    def _add(self, count: int, entries: bytes, lengths: bytes, heap: bytes) -> None:
        if self._heap_length + len(heap) > MAX_HEAP:
            raise ValueError("the paths of an index block take more than 2 GiB")
        self._entries.append(entries)
        self._lengths.append(lengths)
        self._heap.append(heap)
        self._heap_length += len(heap)
        self.count += count


def _offsets(lengths: bytes) -> bytes:
    """From the lengths of strings to where they begin, and where the last one ends."""
    import numpy as np

    offsets: np.ndarray[Any, Any] = np.zeros(len(lengths) // U32.size + 1, "<u4")
    np.cumsum(np.frombuffer(lengths, "<u4"), out=offsets[1:])
    return offsets.tobytes()
