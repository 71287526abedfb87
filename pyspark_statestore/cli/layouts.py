"""The layouts of the tables for people: which columns each has, and how their values look."""

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
        heading: The column's heading.
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
    ColumnLayout("op", ("operator_id",), rendering.text),
    ColumnLayout("part", ("partition_id",), rendering.text),
    ColumnLayout("store", ("store_name",), rendering.text),
)

_FILES: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live", ("live_bytes",), rendering.size),
    ColumnLayout("amplif.", ("space_amplification",), rendering.ratio),
    ColumnLayout("live segments", ("live_segment_count", "segment_count"), rendering.part_of),
    ColumnLayout("state", ("is_sealed", "is_closed", "is_orphan"), rendering.file_state),
    ColumnLayout("changed (UTC)", ("last_modified_at",), rendering.time),
)

_SEGMENTS: TableLayout = (
    ColumnLayout("logical path", ("logical_path",), rendering.text),
    ColumnLayout("size", ("length",), rendering.size),
    ColumnLayout("status", ("status",), rendering.text),
    ColumnLayout("written (UTC)", ("written_at",), rendering.time),
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("offset", ("offset",), rendering.text),
)

_VERSIONS: TableLayout = (
    *_STORE,
    ColumnLayout("version", ("version",), rendering.text),
    ColumnLayout("checkpoint id", ("state_store_checkpoint_id",), rendering.text, optional=True),
    ColumnLayout("snapshot", ("has_snapshot",), rendering.flag),
    ColumnLayout("changelog", ("has_changelog",), rendering.flag),
    ColumnLayout("restorable", ("is_restorable",), rendering.flag),
    ColumnLayout("from snapshot", ("base_snapshot_version",), rendering.text),
    ColumnLayout("replay", ("replay_count",), rendering.count),
    ColumnLayout("to read", ("restore_bytes",), rendering.size),
)


_PLAIN_FILES: TableLayout = (
    ColumnLayout("plain file", ("logical_path",), rendering.text),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("type", ("type",), rendering.text),
    ColumnLayout("changed (UTC)", ("last_modified_at",), rendering.time),
)

_FIGURES: TableLayout = (
    ColumnLayout("bytes", ("total_bytes",), rendering.size),
    ColumnLayout("live", ("live_bytes",), rendering.size),
    ColumnLayout("dead", ("dead_bytes",), rendering.size),
    ColumnLayout("live segments", ("live_segment_count", "segment_count"), rendering.part_of),
    ColumnLayout("plain files", ("plain_file_count",), rendering.count, optional=True),
    ColumnLayout("share of all", ("share",), rendering.share),
)

COSTS: dict[str, TableLayout] = {
    "partitions": (
        ColumnLayout("operator", ("operator_id",), rendering.text),
        ColumnLayout("partition", ("partition_id",), rendering.text),
        *_FIGURES,
    ),
    "operators": (ColumnLayout("operator", ("operator_id",), rendering.text), *_FIGURES),
    "types": (ColumnLayout("type", ("type",), rendering.text), *_FIGURES),
    "files": (ColumnLayout("file", ("file_path",), rendering.state_name), *_FIGURES),
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
    ColumnLayout("files", ("file_count",), rendering.count),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live", ("live_bytes",), rendering.size),
    ColumnLayout("amplif.", ("space_amplification",), rendering.ratio),
    ColumnLayout("plain files", ("plain_file_count",), rendering.count, optional=True),
    ColumnLayout("their size", ("plain_bytes",), rendering.size, optional=True),
    ColumnLayout("partitions", ("partition_count",), rendering.count),
    ColumnLayout("version", ("max_version",), rendering.text),
    ColumnLayout("cannot start", ("not_restorable",), rendering.mark, optional=True),
    ColumnLayout("error", ("error",), rendering.text, optional=True),
)
"""The layout of the command ``list``."""

REWRITTEN: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("live", ("live_bytes",), rendering.size),
    ColumnLayout("what becomes of it", ("is_rewritten", "is_added", "is_removed"), rendering.fate),
)
"""The layout of the command ``compact``."""

ORPHANS: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.text),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("changed (UTC)", ("last_modified_at",), rendering.time),
    ColumnLayout("why", ("reason",), rendering.text),
)
"""The layout of the command ``orphans``."""

DAMAGES: TableLayout = (
    ColumnLayout("kind", ("kind",), rendering.text),
    ColumnLayout("file", ("path",), rendering.name),
    ColumnLayout("offset", ("offset",), rendering.text),
    ColumnLayout("logical path", ("logical_path",), rendering.text, optional=True),
    ColumnLayout("repairable", ("is_repairable",), rendering.flag),
    ColumnLayout("repaired", ("repaired",), rendering.flag),
    ColumnLayout("why", ("reason",), rendering.text),
)
"""The layout of the command ``verify``."""

SINK_FILES: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("directory", ("directory",), rendering.text),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("changed (UTC)", ("last_modified_at",), rendering.time),
    ColumnLayout("listed in", ("listed_in",), rendering.text),
)
"""The layout of the command ``sink files``."""

SINK_LOG: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("counts", ("is_current",), rendering.flag),
    ColumnLayout("files", ("entry_count",), rendering.count),
    ColumnLayout("their size", ("listed_bytes",), rendering.size),
    ColumnLayout("own size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("changed (UTC)", ("last_modified_at",), rendering.time),
)
"""The layout of the command ``sink log``."""

SINK_WAITING: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("directory", ("directory",), rendering.text),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("waits since (UTC)", ("waiting_since",), rendering.time),
)
"""The layout of the command ``sink waiting``."""

SINK_PROBLEMS: TableLayout = (
    ColumnLayout("kind", ("kind",), rendering.text),
    ColumnLayout("file", ("path",), rendering.text),
    ColumnLayout("why", ("reason",), rendering.text),
)
"""The layout of the command ``sink verify``."""

SINK_JOINED: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("listed in", ("listed_in",), rendering.text),
)
"""The layout of the command ``sink compact``."""

SINK_FAILED: TableLayout = (
    ColumnLayout("file", ("file_path",), rendering.name),
    ColumnLayout("size", ("file_size_in_bytes",), rendering.size),
    ColumnLayout("stays as it is, since", ("reason",), rendering.text),
)
"""The layout of what ``sink compact`` left."""


def all_columns(schema: pa.Schema) -> TableLayout:
    """Returns the layout that shows all columns under their own names."""
    return tuple(ColumnLayout(field.name, (field.name,), form_of(field.name, field.type)) for field in schema)
