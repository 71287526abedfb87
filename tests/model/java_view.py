"""The same view, with the Java index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pyspark_statestore.format import Entry, Kind, SegmentType
from pyspark_statestore.log import is_expired
from tests.model.views import Found
from tests.model.world import CLOSED, Key


class JavaView:
    """Decides with ``io.pyspark.statestore.index.Index`` and its neighbours.

    Args:
        jvm: py4j's view of the JVM.
    """

    def __init__(self, jvm: Any) -> None:
        self._java = jvm.io.pyspark.statestore.index.ModelView(CLOSED)

    def next_stamp(self, wall: int, now: int) -> int:
        self._java.time(wall, now)
        return int(self._java.nextStamp())

    def opened(self, name: str, now: int) -> None:
        self._java.time(now, now)
        self._java.opened(name)

    def appended(self, name: str, entries: Sequence[Entry], stamp: int, now: int) -> None:
        self._java.time(now, now)
        self._java.appended(name, _text(entries), stamp)

    def sealed(self, name: str) -> None:
        self._java.sealed(name)

    def given_up(self, name: str) -> None:
        self._java.left(name)

    def listed(self, name: str, now: int) -> None:
        self._java.time(now, now)
        self._java.listed(name)

    def read(
        self,
        name: str,
        entries: Sequence[Entry],
        stamp: int,
        *,
        sealed: bool,
        index_only: bool,
        now: int,
        repeats: Collection[str] = (),
    ) -> None:
        self._java.time(now, now)
        self._java.read(name, _text(entries), stamp, sealed, index_only, "\n".join(repeats))

    def remove(self, name: str) -> None:
        self._java.remove(name)

    def names(self) -> set[str]:
        return set(self._java.names().split())

    def needs_read(self, name: str) -> bool:
        return bool(self._java.needsRead(name))

    def delete(self, path: str) -> Key | None:
        saw = self._java.delete(path).split()
        return (int(saw[0]), int(saw[1])) if saw else None

    def find(self, path: str) -> Found | None:
        name, _, line = self._java.find(path).partition("\n")
        return Found(name, _entry(line)) if name else None

    def relocatable(self, name: str) -> list[Entry]:
        return _entries(self._java.live(name))

    def copies(self, name: str) -> list[Entry]:
        return _entries(self._java.copies(name))

    def begin_refresh(self, now: int) -> None:
        self._java.time(now, now)
        self._java.beginRefresh()

    def counting(self, markers: Collection[str], now: int) -> Collection[str]:
        return markers  # Java decides when it is told what the refresh has shown

    def expired(self, markers: Collection[str], now: int) -> list[str]:
        return list(self._java.expired().split())

    def refreshed(self, markers: Collection[str], *, complete: bool, now: int) -> None:
        self._java.time(now, now)
        self._java.refreshed("\n".join(markers), complete, 0)

    def plan(self, now: int) -> list[str]:
        self._java.time(now, now)
        return list(self._java.plan().split())

    def carry(self, name: str) -> list[Entry]:
        return _entries(self._java.carry(name))


class ServedJavaView(JavaView):
    """The same, for an index service and those whom it serves.

    The service decides which markers count. The files that it waits for are markers, too, as far as the index knows.
    """

    def __init__(self, jvm: Any) -> None:
        super().__init__(jvm)
        self._markers_seen: dict[str, int] = {}

    def learn(self, name: str, entries: Sequence[Entry], now: int) -> None:
        self._java.time(now, now)
        self._java.learn(name, _text(entries))

    def observe(self, stamp: int) -> None:
        self._java.observe(stamp)

    def entries(self, partition: str) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for line in self._java.entries(partition).splitlines():
            name, _, entry = line.partition(" ")
            found.setdefault(name, []).append(_entry(entry))
        return found

    def revision(self, partition: str) -> int:
        return int(self._java.revision(partition))

    def forget(self, partition: str) -> None:
        self._java.forget(partition)

    def counting(self, markers: Collection[str], now: int) -> Collection[str]:
        for marker in markers:
            self._markers_seen.setdefault(marker, now)
        expired = self.expired(markers, now)
        return [marker for marker in markers if marker not in expired]

    def expired(self, markers: Collection[str], now: int) -> list[str]:
        return [marker for marker in markers if is_expired([now - self._markers_seen.get(marker, now)], CLOSED)]

    def refreshed(self, markers: Collection[str], *, complete: bool, now: int) -> None:
        self._java.time(now, now)
        # Each is as new as can be: that it counts still is known here.
        self._java.refreshed("\n".join(markers), complete, self._java.refreshes())


def _text(entries: Iterable[Entry]) -> str:
    return "\n".join(f"{e.kind:d} {e.generation} {e.crc32c} {e.stamp} {e.writer} {e.offset} {e.path}" for e in entries)


def _entries(text: str) -> list[Entry]:
    return [_entry(line) for line in text.splitlines()]


def _entry(line: str) -> Entry:
    kind, generation, crc32c, stamp, writer, offset, path = line.split()
    return Entry(
        Kind(int(kind)),
        SegmentType.of(path),
        int(generation),
        int(crc32c),
        int(stamp),
        int(writer),
        int(offset),
        1,
        0,
        path,
    )
