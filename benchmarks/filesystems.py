"""The test file systems of the shim (jvm-shim/src/test): their Spark settings, and their counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyspark

PACKAGE = "io.pyspark.statestore.testing"
CLASSES = {"counting": "Counting", "objectstore": "ObjectStoreLike", "faulty": "Faulty"}
MERGED_FILE_SYSTEM = "io.pyspark.statestore.fs.MergedFileSystem"
_MINOR = ".".join(pyspark.__version__.split(".")[:2])
TEST_JAR = Path(__file__).resolve().parent.parent / "build" / f"pyspark-statestore-test-shim-spark-{_MINOR}.jar"

# Calls that a NameNode or an object store answers; the others move bytes.
METADATA_CALLS = (
    "create",
    "addBlock",
    "complete",
    "append",
    "open",
    "getFileStatus",
    "listStatus",
    "rename",
    "delete",
    "mkdirs",
    "other",
)
DATA_CALLS = ("write", "hflush", "hsync", "close", "read")

# Counts of one side: category (state, merged, state_meta, offsets, ...) -> operation -> count.
Counts = dict[str, dict[str, int]]


def filesystem_settings(merged: bool = True, chmod_fork: bool = False) -> dict[str, str]:
    """Spark settings that make counting:, objectstore: and faulty: known, in both of Hadoop's interfaces.

    Args:
        merged: Whether to declare `merged+<scheme>` for them, too (the shim's jar has to be there then).
        chmod_fork: Whether setPermission is to start a chmod process, as on `file:` without Hadoop's native library.

    Returns:
        Configuration keys for the session's builder.
    """
    settings: dict[str, str] = {}
    for scheme, name in CLASSES.items():
        settings[f"spark.hadoop.fs.{scheme}.impl"] = f"{PACKAGE}.{name}FileSystem"
        settings[f"spark.hadoop.fs.AbstractFileSystem.{scheme}.impl"] = f"{PACKAGE}.{name}Fs"
        settings[f"spark.hadoop.fs.{scheme}.chmod"] = "fork" if chmod_fork else "direct"
        if merged:
            settings[f"spark.hadoop.fs.merged+{scheme}.impl"] = MERGED_FILE_SYSTEM
    return settings


class CallCounters:
    """The counters of the test file systems in a session's JVM.

    Args:
        spark: A session that was started with `filesystem_settings` and the test jar.
    """

    def __init__(self, spark: Any) -> None:
        self._java = getattr(spark._jvm, f"{PACKAGE}.CountingFileSystem")

    def register(self, label: str, path: str) -> None:
        """Counts the calls below a path under a label of its own.

        Args:
            label: The label.
            path: The directory.
        """
        self._java.registerRoot(label, path)

    def delay(self, milliseconds: int, category: str = "*") -> None:
        """Delays every metadata call.

        Args:
            milliseconds: How long each call waits.
            category: Only calls of this category, or "*".
        """
        self._java.setDelayMillis(category, milliseconds)

    def limit_reads(self, megabytes_per_second: int) -> None:
        """Lets each stream read so many megabytes in a second; 0 is as fast as it goes."""
        self._java.setBytesPerSecond(megabytes_per_second * 1_000_000)

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns all counts of a label since the start.

        Args:
            label: The registered label.

        Returns:
            thread kind (task, driver, maintenance, other) -> category -> operation -> count.
        """
        counts: dict[str, Counts] = json.loads(self._java.snapshotJson()).get(label, {})
        return counts


def minus(after: dict[str, Counts], before: dict[str, Counts]) -> dict[str, Counts]:
    """Returns the counts between two snapshots, without zeroes."""
    out: dict[str, Counts] = {}
    for thread, categories in after.items():
        for category, operations in categories.items():
            for operation, count in operations.items():
                rest = count - before.get(thread, {}).get(category, {}).get(operation, 0)
                if rest:
                    out.setdefault(thread, {}).setdefault(category, {})[operation] = rest
    return out


def calls(counts: dict[str, Counts], categories: tuple[str, ...], threads: tuple[str, ...] = ()) -> dict[str, int]:
    """Returns the counts of operations, summed over categories and threads.

    Args:
        counts: A snapshot or a difference of two.
        categories: The parts of the checkpoint to look at.
        threads: Only these kinds of threads; all if empty.

    Returns:
        operation -> count.
    """
    out: dict[str, int] = {}
    for thread, by_category in counts.items():
        if threads and thread not in threads:
            continue
        for category in categories:
            for operation, count in by_category.get(category, {}).items():
                out[operation] = out.get(operation, 0) + count
    return out
