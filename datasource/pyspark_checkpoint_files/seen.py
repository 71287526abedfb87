"""How far a stream has come: which writes it has given out, in a few bytes per process that wrote any.

A write is known by its stamp and its writer, which every copy of it keeps. Where its own file is there, the file and
the stamp decide: a writer numbers its files, and within one the stamps of its writes ascend. Where only copies are
left, the writer's stamps decide alone. That is why writes are given out in the order of their stamps, and young ones
wait until no older write of the same process can be on its way any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LATE_FILES = 64
"""Among so many newest files of a writer those are remembered that were not there yet: where files appear only when
they are closed, a higher number may be seen before a lower one."""

EVERYTHING = (1 << 63) - 1


@dataclass(frozen=True)
class Progress:
    """What was given out of one writer's writes.

    Attributes:
        stamp: The highest.
        top: The highest number of a file in which there was any.
        open: Of lower numbers, those in which more may come: the stamp up to which the file's writes were given out.
        late: Of lower numbers, those that have never been there.
    """

    stamp: int = 0
    top: int = -1
    open: Mapping[int, int] = field(default_factory=dict)
    late: frozenset[int] = frozenset()

    def of_file(self, number: int) -> int:
        """The stamp up to which a file's own writes were given out."""
        if number > self.top or number in self.late:
            return 0
        return self.open.get(number, EVERYTHING)

    def advanced(self, given: Iterable[tuple[int, int]], stamp: int, files: Mapping[int, bool]) -> Progress:
        """What is so after a batch.

        Args:
            given: (number, stamp) of the last write that the batch has of each file.
            stamp: The highest of the batch.
            files: Of those that are there, by number, whether all of it has been given out and nothing more can come.
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
        writers: What was given out of each writer's writes. A writer of whose writes nothing is left is left out.
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
        """Writes it for Spark's log."""
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
