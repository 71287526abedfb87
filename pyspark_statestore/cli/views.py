"""Which columns a table for people has, and how they look in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from pyspark_statestore.cli import cells


@dataclass(frozen=True)
class Field:
    """A column of a table for people.

    Attributes:
        heading: Above it.
        columns: Whose values are in it, by their names in the Arrow table.
        form: Makes a cell of these values.
        optional: Whether it is left out where it has no value at all.
    """

    heading: str
    columns: tuple[str, ...]
    form: cells.Form
    optional: bool = False


View: TypeAlias = tuple[Field, ...]

_STORE: View = (
    Field("op", ("operator_id",), cells.text),
    Field("part", ("partition_id",), cells.text),
    Field("store", ("store_name",), cells.text),
)

_FILES: View = (
    Field("file", ("file_path",), cells.name),
    Field("size", ("file_size_in_bytes",), cells.size),
    Field("live", ("live_bytes",), cells.size),
    Field("amplif.", ("space_amplification",), cells.ratio),
    Field("live segments", ("live_segment_count", "segment_count"), cells.part_of),
    Field("state", ("is_sealed", "is_closed", "is_orphan"), cells.file_state),
    Field("changed (UTC)", ("last_modified_at",), cells.time),
)

_SEGMENTS: View = (
    Field("logical path", ("logical_path",), cells.text),
    Field("size", ("length",), cells.size),
    Field("status", ("status",), cells.text),
    Field("written (UTC)", ("written_at",), cells.time),
    Field("file", ("file_path",), cells.name),
    Field("offset", ("offset",), cells.text),
)

_VERSIONS: View = (
    *_STORE,
    Field("version", ("version",), cells.text),
    Field("checkpoint id", ("state_store_checkpoint_id",), cells.text, optional=True),
    Field("snapshot", ("has_snapshot",), cells.flag),
    Field("changelog", ("has_changelog",), cells.flag),
    Field("restorable", ("is_restorable",), cells.flag),
    Field("from snapshot", ("base_snapshot_version",), cells.text),
    Field("replay", ("replay_count",), cells.count),
    Field("to read", ("restore_bytes",), cells.size),
)


_FIGURES: View = (
    Field("bytes", ("total_bytes",), cells.size),
    Field("live", ("live_bytes",), cells.size),
    Field("dead", ("dead_bytes",), cells.size),
    Field("live segments", ("live_segment_count", "segment_count"), cells.part_of),
    Field("share of all", ("share",), cells.share),
)

COSTS: dict[str, View] = {
    "partitions": (
        Field("operator", ("operator_id",), cells.text),
        Field("partition", ("partition_id",), cells.text),
        *_FIGURES,
    ),
    "operators": (Field("operator", ("operator_id",), cells.text), *_FIGURES),
    "types": (Field("type", ("type",), cells.text), *_FIGURES),
    "files": (Field("file", ("file_path",), cells.name), *_FIGURES),
}
"""What ``top`` shows."""

TABLES: dict[str, View] = {"files": _FILES, "segments": _SEGMENTS, "versions": _VERSIONS}
"""How the commands of these names show their tables."""

REWRITTEN: View = (
    Field("file", ("file_path",), cells.name),
    Field("size", ("file_size_in_bytes",), cells.size),
    Field("live", ("live_bytes",), cells.size),
    Field("what becomes of it", ("is_rewritten", "is_added", "is_removed"), cells.fate),
)
"""What ``compact`` shows."""

ORPHANS: View = (
    Field("file", ("file_path",), cells.text),
    Field("size", ("file_size_in_bytes",), cells.size),
    Field("changed (UTC)", ("last_modified_at",), cells.time),
    Field("why", ("reason",), cells.text),
)
"""What ``orphans`` shows."""

DAMAGES: View = (
    Field("kind", ("kind",), cells.text),
    Field("file", ("path",), cells.name),
    Field("offset", ("offset",), cells.text),
    Field("logical path", ("logical_path",), cells.text, optional=True),
    Field("repairable", ("is_repairable",), cells.flag),
    Field("repaired", ("repaired",), cells.flag),
    Field("why", ("reason",), cells.text),
)
"""What ``verify`` shows."""


def form_of(column: str, type_: pa.DataType) -> cells.Form:
    """How the values of any column look."""
    if "." in column:  # a field of a user's own, whatever its name is
        return cells.time if pa.types.is_timestamp(type_) else cells.text
    if column in ("length", "size") or column.endswith(("_bytes", "_bytes_count")):
        return cells.size
    if column == "share":
        return cells.share
    if column.endswith("_count"):
        return cells.count
    if pa.types.is_floating(type_):
        return cells.ratio
    if pa.types.is_timestamp(type_):
        return cells.time
    return cells.flag if pa.types.is_boolean(type_) else cells.text


def whole(schema: pa.Schema) -> View:
    """All columns, under their own names."""
    return tuple(Field(field.name, (field.name,), form_of(field.name, field.type)) for field in schema)
