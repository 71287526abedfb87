"""The offset of a stream: which writes it has returned, in a few bytes per process that has written any.

A stamp and a writer identify a write, and every copy keeps both. While the write's own file exists, the file and the
stamp decide whether it was returned: a writer numbers its files, and within a file the stamps of its writes ascend.
Once only copies are left, the writer's stamps decide alone. So a stream returns writes in the order of their stamps,
and keeps young ones back until no older write of the same process can appear any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LATE_FILES = 64
"""How many of a writer's newest files the offset remembers if they have not appeared yet. Where files appear only when
they are closed, a higher number may appear before a lower one."""

EVERYTHING = (1 << 63) - 1


@dataclass(frozen=True)
class Progress:
    """Which writes of one writer a stream has returned.

    Attributes:
        stamp: The highest stamp of a returned write.
        top: The highest number of a file with a returned write.
        open: By the numbers of files up to ``top`` to which more may be added: the stamp up to which their writes were
            returned.
        late: The numbers up to ``top`` of which no file has appeared yet.
    """

    stamp: int = 0
    top: int = -1
    open: Mapping[int, int] = field(default_factory=dict)
    late: frozenset[int] = frozenset()

    def of_file(self, number: int) -> int:
        """Returns the stamp up to which a file's own writes were returned."""
        if number > self.top or number in self.late:
            return 0
        return self.open.get(number, EVERYTHING)

    def advanced(self, given: Iterable[tuple[int, int]], stamp: int, files: Mapping[int, bool]) -> Progress:
        """Returns the progress after a batch.

        Args:
            given: The number of each file with writes in the batch, and the stamp of the last of them.
            stamp: The highest stamp in the batch.
            files: For each existing file by its number, whether all of its writes were returned and no more can come.
        """
        last = dict(given)
        top = max([self.top, *last])
        unseen = (set(range(max(self.top + 1, top - LATE_FILES), top + 1)) | self.late) - files.keys()
        open_ = {
            number: max(last.get(number, 0), known)
            for number, is_done in files.items()
            if number <= top and not is_done and (known := self.of_file(number)) != EVERYTHING
        }
        late = frozenset(number for number in unseen if number > top - LATE_FILES)
        return Progress(max(self.stamp, stamp), top, open_, late)


@dataclass(frozen=True)
class Seen:
    """The offset of a stream.

    Attributes:
        writers: The progress by writer, without writers of which the checkpoint holds no write any more.
    """

    writers: Mapping[int, Progress] = field(default_factory=dict)

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Seen:
        """Reads an offset from Spark's log."""
        return cls(
            {
                int(writer, 16): Progress(
                    each["stamp"],
                    each["top"],
                    {int(number): stamp for number, stamp in each.get("open", {}).items()},
                    frozenset(each.get("late", ())),
                )
                for writer, each in offset.get("writers", {}).items()
            }
        )

    def offset(self) -> dict[str, Any]:
        """Returns the offset for Spark's log."""
        writers: dict[str, Any] = {}
        for writer, each in sorted(self.writers.items()):
            entry: dict[str, Any] = {"stamp": each.stamp, "top": each.top}
            writers[f"{writer:016x}"] = entry
            if each.open:
                entry["open"] = {str(number): stamp for number, stamp in sorted(each.open.items())}
            if each.late:
                entry["late"] = sorted(each.late)
        return {"version": 1, "writers": writers}

    def __getitem__(self, writer: int) -> Progress:
        return self.writers.get(writer, _NOTHING)


_NOTHING = Progress()
