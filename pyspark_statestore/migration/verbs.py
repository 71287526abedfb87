"""The verbs as functions of a path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_statestore.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark_statestore.migration.conversion import Conversion
    from pyspark_statestore.migration.export import Export


def convert(
    path: str | os.PathLike[str], to: str, storage_options: Mapping[str, Any] | None = None, **how: Any
) -> Conversion:
    """Lets a stopped query go on with merged state, or with stock Spark's.

    Args:
        path: The query's ``checkpointLocation``.
        to: ``merged`` or ``stock``.
        storage_options: For the fsspec file system.
        **how: As of :meth:`Checkpoint.convert`: ``door``, ``dry_run``, ``force``.

    Raises:
        StateStoreFilesError: As of :meth:`Checkpoint.convert`.

    Example:
        >>> convert("hdfs://nn/checkpoints/q1", to="merged").changed_entries_count
        100
    """
    return Checkpoint(path, storage_options).convert(to, **how)


def export(
    path: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Export:
    """Writes the merged state of a stopped query back as the plain files that stock Spark expects.

    Args:
        path: The query's ``checkpointLocation``.
        dst: A directory that is empty or does not exist; in place if not given.
        storage_options: For the fsspec file system of both.
        **how: As of :meth:`Checkpoint.export`: ``dry_run``, ``force``, ``spark``, ``callback``.

    Raises:
        StateStoreFilesError: As of :meth:`Checkpoint.export`.
    """
    return Checkpoint(path, storage_options).export(dst, **how)
