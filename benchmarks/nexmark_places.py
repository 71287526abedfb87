"""Where the checkpoints of Nexmark's queries are: a local disk, near or far, a real HDFS, a real S3A.

with open_place("hdfs") as place:
    start_session(..., more=place.settings)
    side.start()                              # its checkpoint is at place.location(label, directory)
    place.tally(counts)                       # calls and files, for state and in all
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import disk
from benchmarks.figures import STATE_CATEGORIES
from benchmarks.filesystems import METADATA_CALLS, CallCounters, Counts, calls

PLACES = {
    "local": "a local disk",
    "local5": "a local disk with 5 ms in each metadata call",
    "hdfs": "a real HDFS (NameNode and DataNode on loopback)",
    "s3": "a real S3A (moto on loopback, 50 ms a request)",
}
S3_LATENCY_MS = 50


class PlaceUnavailable(Exception):
    """What the place needs cannot be had here; the message says why."""


@dataclass
class Place:
    """A file system for checkpoints: here the local disk, whose test file system counts and delays calls.

    Attributes:
        name: One of PLACES.
        settings: What a session needs to reach it.
        url: What a checkpoint's location begins with.
        delay_ms: What each metadata call of the test file system waits.
    """

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    url: str = "counting:"
    delay_ms: int = 0

    def location(self, label: str, directory: Path) -> str:
        """A checkpoint's, for its query.

        Args:
            label: The side's, which is different from those of all other queries.
            directory: Where it would be on the local disk.
        """
        return f"{self.url}{directory}" if self.url == "counting:" else f"{self.url}/{label}/checkpoint"

    def counters(self, spark: Any) -> CallCounters:
        """What counts calls while queries of this session run."""
        return CallCounters(spark)

    def slow(self, counters: CallCounters) -> None:
        """Makes the place as slow as it is to be."""
        if self.delay_ms:
            counters.delay(self.delay_ms)

    def fast(self, counters: CallCounters) -> None:
        """Ends that."""
        if self.delay_ms:
            counters.delay(0)

    def tally(self, counts: dict[str, Counts]) -> dict[str, float]:
        """Calls and files created, for state and in all; bytes written for state where the place knows them."""
        categories = tuple({each for by_category in counts.values() for each in by_category})
        of_state, of_all = calls(counts, STATE_CATEGORIES), calls(counts, categories)
        return {
            "state_calls": sum(of_state.get(kind, 0) for kind in METADATA_CALLS),
            "all_calls": sum(of_all.get(kind, 0) for kind in METADATA_CALLS),
            "state_files": of_state.get("create", 0),
            "all_files": of_all.get("create", 0),
            "state_bytes": sum(of_state.get(f"{kind}_bytes", 0) for kind in ("write", "hflush", "hsync")),
        }

    def left(self, label: str, directory: Path) -> dict[str, int]:
        """Files and bytes below ``state/`` now; nothing where that is not known."""
        usage = disk.usage(directory)
        return {"files": usage["files"], "bytes": usage["bytes"]}

    def amplification(self, directory: Path) -> float | None:
        """Bytes of merged files for each that lives."""
        return disk.merged_space(directory).amplification

    def for_client(self) -> dict[str, Any]:
        """What another process needs to use the same place, while this one keeps it open."""
        return {"name": self.name, "settings": self.settings, "url": self.url, "delay_ms": self.delay_ms}


class _Remote(Place):
    """Served by this machine, and counted by the server."""

    STATE: tuple[str, ...] = ()
    CREATES: tuple[str, ...] = ()

    def tally(self, counts: dict[str, Counts]) -> dict[str, float]:
        """Requests and files, for state and in all."""
        kinds = counts.get("clients", {})

        def total(areas: Any, which: tuple[str, ...] = ()) -> int:
            return sum(n for area in areas for kind, n in kinds.get(area, {}).items() if not which or kind in which)

        return {
            "state_calls": total(self.STATE),
            "all_calls": total(kinds),
            "state_files": total(self.STATE, self.CREATES),
            "all_files": total(kinds, self.CREATES),
        }

    def left(self, label: str, directory: Path) -> dict[str, int]:
        """Nothing."""
        return {}

    def amplification(self, directory: Path) -> float | None:
        """Nothing: the files are not here."""
        return None


class _Hdfs(_Remote):
    """Requests that name no path, such as the renewal of leases, are in no side's counts."""

    STATE = ("state", "merged")
    CREATES = ("Create",)
    hdfs: Any = None

    def counters(self, spark: Any) -> CallCounters:
        """The NameNode's."""
        from benchmarks.hdfs import NameNodeCounters

        return NameNodeCounters(self.hdfs)


class _S3(_Remote):
    STATE = ("state/", "state/_merged/")
    CREATES = ("PUT", "COPY", "COMPLETE")
    s3: Any = None

    def counters(self, spark: Any) -> CallCounters:
        """The proxy's."""
        return _BucketCounters(self.s3)

    def slow(self, counters: CallCounters) -> None:
        """Lets each request wait in the proxy."""
        self.s3.proxy.latency = S3_LATENCY_MS / 1000

    def fast(self, counters: CallCounters) -> None:
        """Ends that."""
        self.s3.proxy.latency = 0.0

    def left(self, label: str, directory: Path) -> dict[str, int]:
        """Objects below ``state/``."""
        keys = self.s3.keys(f"{label}/checkpoint/state/")
        return {"files": sum(not key.endswith("/") for key in keys)}


class _BucketCounters(CallCounters):
    """Counts requests by the checkpoint that they are about."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3
        self._seen = 0
        self._counts: dict[str, Counts] = {}

    def register(self, label: str, path: str) -> None:
        """Does nothing: the keys tell the sides apart."""

    def delay(self, milliseconds: int, category: str = "*") -> None:
        """Does nothing: the proxy waits."""

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns all requests about a checkpoint since the start, by the part of it and by kind."""
        from tests.s3.proxy import area

        new = self._s3.proxy.since(self._seen)
        self._seen += len(new)
        for request in new:
            owner = request.key.split("/")[0]
            where = area(request.key, f"{owner}/checkpoint")
            if where == "state/" and "/_" in request.key.removeprefix(f"{owner}/checkpoint/state"):
                where = "state_meta/"
            if where:
                kinds = self._counts.setdefault(owner, {}).setdefault(where, {})
                kinds[request.kind] = kinds.get(request.kind, 0) + 1
        return {"clients": {area: dict(kinds) for area, kinds in self._counts.get(label, {}).items()}}


@contextmanager
def open_place(name: str) -> Iterator[Place]:
    """Starts what a place needs, and stops it at the end.

    Args:
        name: One of PLACES.

    Yields:
        The place.

    Raises:
        PlaceUnavailable: If the servers or the client cannot be had here.
    """
    if name == "hdfs":
        from benchmarks.local_hdfs import HdfsUnavailable, LocalHdfs

        try:
            with LocalHdfs() as hdfs:
                place = _Hdfs(name, dict(hdfs.client_settings()), hdfs.url)
                place.hdfs = hdfs
                yield place
        except HdfsUnavailable as error:
            raise PlaceUnavailable(str(error)) from error
    elif name == "s3":
        from tests.s3.jars import S3AUnavailable, s3a_jars
        from tests.s3.local_s3 import BUCKET, LocalS3, class_path_settings

        try:
            jars = s3a_jars()
        except S3AUnavailable as error:
            raise PlaceUnavailable(str(error)) from error
        with LocalS3() as s3:
            bucket = _S3(name, {**s3.spark_settings(), **class_path_settings(jars)}, f"s3a://{BUCKET}")
            bucket.s3 = s3
            yield bucket
    else:
        yield Place(name, delay_ms=5 if name == "local5" else 0)


class ClientPlace(Place):
    """A place that another process keeps open, and counts."""

    def counters(self, spark: Any) -> CallCounters:
        """Those of this process on the local disk, and none elsewhere."""
        return CallCounters(spark) if self.url == "counting:" else _NoCounters()


class _NoCounters(CallCounters):
    def __init__(self) -> None:
        pass

    def register(self, label: str, path: str) -> None:
        """Does nothing."""

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns nothing."""
        return {}


def client_of(values: Mapping[str, Any]) -> Place:
    """Returns the place that `Place.for_client` of another process has described."""
    return ClientPlace(**values)
