"""The layouts of the tables for people: which columns each has, and how their values look.

A heading is the column's name, as ``--sort``, JSON, SQL and Python have it, and says so where times are in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from pyspark_statestore import rendering
from pyspark_statestore.rendering import form_of


@dataclass(frozen=True)
class ColumnLayout:
    """A column of a table for people.

    Attributes:
        heading: The column's name, with `` (UTC)`` behind that of a time.
        columns: The columns of the Arrow table that its cells are made of.
        form: Makes a cell of their values.
        optional: Whether the column is left out of a table in which it has no value, or only zeros.
    """

    heading: str
    columns: tuple[str, ...]
    form: rendering.Form
    optional: bool = False


TableLayout: TypeAlias = tuple[ColumnLayout, ...]

_STORE: TableLayout = (
    ColumnLayout("operator_id", ("operator_id",), rendering.text),
    ColumnLayout("partition_id", ("partition_id",), rendering.text),
    ColumnLayout("store_name", ("store_name",), rendering.text),
)

_FILES: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live_bytes", ("live_bytes",), rendering.size),
    ColumnLayout("space_amplification", ("space_amplification",), rendering.ratio),
    ColumnLayout("live_segment_count", ("live_segment_count",), rendering.count),
    ColumnLayout("segment_count", ("segment_count",), rendering.count),
    ColumnLayout("is_sealed", ("is_sealed",), rendering.flag),
    ColumnLayout("is_closed", ("is_closed",), rendering.flag),
    ColumnLayout("is_orphan", ("is_orphan",), rendering.flag, optional=True),
    ColumnLayout("last_modified_at (UTC)", ("last_modified_at",), rendering.time),
)

_SEGMENTS: TableLayout = (
    ColumnLayout("logical_path", ("logical_path",), rendering.text),
    ColumnLayout("length", ("length",), rendering.size),
    ColumnLayout("status", ("status",), rendering.text),
    ColumnLayout("written_at (UTC)", ("written_at",), rendering.time),
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("offset", ("offset",), rendering.text),
)

_VERSIONS: TableLayout = (
    *_STORE,
    ColumnLayout("version", ("version",), rendering.text),
    ColumnLayout("state_store_checkpoint_id", ("state_store_checkpoint_id",), rendering.text, optional=True),
    ColumnLayout("has_snapshot", ("has_snapshot",), rendering.flag),
    ColumnLayout("has_changelog", ("has_changelog",), rendering.flag),
    ColumnLayout("is_restorable", ("is_restorable",), rendering.flag),
    ColumnLayout("base_snapshot_version", ("base_snapshot_version",), rendering.text),
    ColumnLayout("replay_count", ("replay_count",), rendering.count),
    ColumnLayout("restore_bytes", ("restore_bytes",), rendering.size),
)


_PLAIN_FILES: TableLayout = (
    ColumnLayout("logical_path", ("logical_path",), rendering.text),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("type", ("type",), rendering.text),
    ColumnLayout("last_modified_at (UTC)", ("last_modified_at",), rendering.time),
)

_FIGURES: TableLayout = (
    ColumnLayout("total_bytes", ("total_bytes",), rendering.size),
    ColumnLayout("live_bytes", ("live_bytes",), rendering.size),
    ColumnLayout("dead_bytes", ("dead_bytes",), rendering.size),
    ColumnLayout("live_segment_count", ("live_segment_count",), rendering.count),
    ColumnLayout("segment_count", ("segment_count",), rendering.count),
    ColumnLayout("plain_file_count", ("plain_file_count",), rendering.count, optional=True),
    ColumnLayout("share", ("share",), rendering.share),
)

COSTS: dict[str, TableLayout] = {
    "partitions": (
        ColumnLayout("operator_id", ("operator_id",), rendering.text),
        ColumnLayout("partition_id", ("partition_id",), rendering.text),
        *_FIGURES,
    ),
    "operators": (ColumnLayout("operator_id", ("operator_id",), rendering.text), *_FIGURES),
    "types": (ColumnLayout("type", ("type",), rendering.text), *_FIGURES),
    "files": (ColumnLayout("file_path", ("file_path",), rendering.state_name), *_FIGURES),
}
"""The layouts of the command ``top``, by what it adds up by."""

TABLES: dict[str, TableLayout] = {
    "files": _FILES,
    "segments": _SEGMENTS,
    "versions": _VERSIONS,
    "plain_files": _PLAIN_FILES,
}
"""The layouts of the tables of these names."""

CHECKPOINTS: TableLayout = (
    ColumnLayout("checkpoint", ("checkpoint",), rendering.text),
    ColumnLayout("file_count", ("file_count",), rendering.count),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live_bytes", ("live_bytes",), rendering.size),
    ColumnLayout("space_amplification", ("space_amplification",), rendering.ratio),
    ColumnLayout("plain_file_count", ("plain_file_count",), rendering.count, optional=True),
    ColumnLayout("plain_bytes", ("plain_bytes",), rendering.size, optional=True),
    ColumnLayout("partition_count", ("partition_count",), rendering.count),
    ColumnLayout("max_version", ("max_version",), rendering.text),
    ColumnLayout("not_restorable", ("not_restorable",), rendering.mark, optional=True),
    ColumnLayout("error", ("error",), rendering.text, optional=True),
)
"""The layout of the command ``list``."""

REWRITTEN: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live_bytes", ("live_bytes",), rendering.size),
    ColumnLayout("is_rewritten", ("is_rewritten",), rendering.flag),
    ColumnLayout("is_added", ("is_added",), rendering.flag),
    ColumnLayout("is_removed", ("is_removed",), rendering.flag),
)
"""The layout of the command ``compact``."""

ORPHANS: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.text),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("last_modified_at (UTC)", ("last_modified_at",), rendering.time),
    ColumnLayout("reason", ("reason",), rendering.text),
)
"""The layout of the command ``orphans``."""

DAMAGES: TableLayout = (
    ColumnLayout("kind", ("kind",), rendering.text),
    ColumnLayout("path", ("path",), rendering.name),
    ColumnLayout("offset", ("offset",), rendering.text),
    ColumnLayout("logical_path", ("logical_path",), rendering.text, optional=True),
    ColumnLayout("is_repairable", ("is_repairable",), rendering.flag),
    ColumnLayout("repaired", ("repaired",), rendering.flag),
    ColumnLayout("reason", ("reason",), rendering.text),
)
"""The layout of the command ``verify``."""

SINK_FILES: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("directory", ("directory",), rendering.text),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("last_modified_at (UTC)", ("last_modified_at",), rendering.time),
    ColumnLayout("listed_in", ("listed_in",), rendering.text),
)
"""The layout of the command ``sink files``."""

SINK_LOG: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("is_current", ("is_current",), rendering.flag),
    ColumnLayout("entry_count", ("entry_count",), rendering.count),
    ColumnLayout("listed_bytes", ("listed_bytes",), rendering.size),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("last_modified_at (UTC)", ("last_modified_at",), rendering.time),
)
"""The layout of the command ``sink log``."""

SINK_WAITING: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("directory", ("directory",), rendering.text),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("waiting_since (UTC)", ("waiting_since",), rendering.time),
)
"""The layout of the command ``sink waiting``."""

SINK_PROBLEMS: TableLayout = (
    ColumnLayout("kind", ("kind",), rendering.text),
    ColumnLayout("path", ("path",), rendering.text),
    ColumnLayout("reason", ("reason",), rendering.text),
)
"""The layout of the command ``sink verify``."""

SINK_JOINED: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("listed_in", ("listed_in",), rendering.text),
)
"""The layout of the command ``sink compact``."""

SINK_FAILED: TableLayout = (
    ColumnLayout("file_path", ("file_path",), rendering.name),
    ColumnLayout("file_size_in_bytes", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("reason", ("reason",), rendering.text),
)
"""The layout of what ``sink compact`` left."""


def all_columns(schema: pa.Schema) -> TableLayout:
    """Returns the layout that shows all columns under their own names."""
    return tuple(ColumnLayout(field.name, (field.name,), form_of(field.name, field.type)) for field in schema)
