"""Spark's RocksDB class on a checkpoint's merged files, in whatever JVM, without a query."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.jvm.harness import TESTING, file_system_conf

STORE = "0/0"
"""The one store that these tests work on, below ``state/``."""

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."
GATED_MANAGER = f"{TESTING}.GatedFileManager"


def open_store(
    jvm: Any,
    checkpoint: Path,
    *,
    changelog: bool = True,
    compact: bool = True,
    retain: int = 2,
    fixes: bool = False,
    options: Mapping[str, str] | None = None,
    counts: bool = True,
    checksums: bool = False,
    scheme: str = "file",
    local: str = "",
) -> Any:
    """A RocksDBStore; each is one of Spark's "managers" of the store.

    Args:
        jvm: py4j's view of the process that has it.
        checkpoint: On the local disk.
        changelog: Whether each version is a changelog, and snapshots are uploaded by maintenance.
        compact: Whether each snapshot has SSTs of its own only.
        retain: Versions that maintenance keeps.
        fixes: Whether Spark's own protection against uploading a snapshot too late is on.
        options: Of the merged log, by their names below the prefix.
        counts: Whether Spark counts the rows.
        checksums: Whether Spark writes a checksum file beside each, in threads that it has for that.
        scheme: The file system that it is merged over.
        local: Where the store has its files on this disk; empty for where Java keeps temporary files.
    """
    settings = {
        f"{ROCKSDB}changelogCheckpointing.enabled": str(changelog).lower(),
        f"{ROCKSDB}compactOnCommit": str(compact).lower(),
        f"{ROCKSDB}checkStaleReusedFilesInSnapshot": str(fixes).lower(),
        f"{ROCKSDB}trackTotalNumberOfRows": str(counts).lower(),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": str(checksums).lower(),
        # From 4.2 on Spark leaves checksum files out in format 1. Names of files are another setting of this class.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2" if checksums else "1",
        "spark.sql.streaming.minBatchesToRetain": str(retain),
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
        "spark.sql.streaming.stateStore.numMinVersionsToDelete": "0",
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    }
    hadoop = {
        **file_system_conf("file", scheme),
        "spark.sql.streaming.checkpointFileManagerClass": GATED_MANAGER,
        **{f"spark.sql.streaming.stateStore.fileMerging.{name}": value for name, value in (options or {}).items()},
    }
    return getattr(jvm, f"{TESTING}.RocksDBStore")(
        f"merged+{scheme}:{checkpoint}/state/{STORE}", _java_map(jvm, settings), _java_map(jvm, hadoop), local
    )


def _java_map(jvm: Any, entries: dict[str, str]) -> Any:
    made = jvm.java.util.HashMap()
    for key, value in entries.items():
        made.put(key, value)
    return made


def fill(store: Any, version: int, **entries: str) -> None:
    """Loads the version before and commits this one with some entries."""
    store.load(version - 1)
    for key, value in entries.items():
        store.put(key, value)
    store.commit()
