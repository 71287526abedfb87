"""Which columns a table for people has, and how they look in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from pyspark_statestore import rendering
from pyspark_statestore.rendering import form_of

if TYPE_CHECKING:
    pass


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
    form: rendering.Form
    optional: bool = False


View: TypeAlias = tuple[Field, ...]

_STORE: View = (
    Field("op", ("operator_id",), rendering.text),
    Field("part", ("partition_id",), rendering.text),
    Field("store", ("store_name",), rendering.text),
)

_FILES: View = (
    Field("file", ("file_path",), rendering.name),
    Field("size", ("file_size_in_bytes",), rendering.size),
    Field("live", ("live_bytes",), rendering.size),
    Field("amplif.", ("space_amplification",), rendering.ratio),
    Field("live segments", ("live_segment_count", "segment_count"), rendering.part_of),
    Field("state", ("is_sealed", "is_closed", "is_orphan"), rendering.file_state),
    Field("changed (UTC)", ("last_modified_at",), rendering.time),
)

_SEGMENTS: View = (
    Field("logical path", ("logical_path",), rendering.text),
    Field("size", ("length",), rendering.size),
    Field("status", ("status",), rendering.text),
    Field("written (UTC)", ("written_at",), rendering.time),
    Field("file", ("file_path",), rendering.name),
    Field("offset", ("offset",), rendering.text),
)

_VERSIONS: View = (
    *_STORE,
    Field("version", ("version",), rendering.text),
    Field("checkpoint id", ("state_store_checkpoint_id",), rendering.text, optional=True),
    Field("snapshot", ("has_snapshot",), rendering.flag),
    Field("changelog", ("has_changelog",), rendering.flag),
    Field("restorable", ("is_restorable",), rendering.flag),
    Field("from snapshot", ("base_snapshot_version",), rendering.text),
    Field("replay", ("replay_count",), rendering.count),
    Field("to read", ("restore_bytes",), rendering.size),
)


_FIGURES: View = (
    Field("bytes", ("total_bytes",), rendering.size),
    Field("live", ("live_bytes",), rendering.size),
    Field("dead", ("dead_bytes",), rendering.size),
    Field("live segments", ("live_segment_count", "segment_count"), rendering.part_of),
    Field("share of all", ("share",), rendering.share),
)

COSTS: dict[str, View] = {
    "partitions": (
        Field("operator", ("operator_id",), rendering.text),
        Field("partition", ("partition_id",), rendering.text),
        *_FIGURES,
    ),
    "operators": (Field("operator", ("operator_id",), rendering.text), *_FIGURES),
    "types": (Field("type", ("type",), rendering.text), *_FIGURES),
    "files": (Field("file", ("file_path",), rendering.name), *_FIGURES),
}
"""What ``top`` shows."""

TABLES: dict[str, View] = {"files": _FILES, "segments": _SEGMENTS, "versions": _VERSIONS}
"""How the commands of these names show their tables."""

REWRITTEN: View = (
    Field("file", ("file_path",), rendering.name),
    Field("size", ("file_size_in_bytes",), rendering.size),
    Field("live", ("live_bytes",), rendering.size),
    Field("what becomes of it", ("is_rewritten", "is_added", "is_removed"), rendering.fate),
)
"""What ``compact`` shows."""

ORPHANS: View = (
    Field("file", ("file_path",), rendering.text),
    Field("size", ("file_size_in_bytes",), rendering.size),
    Field("changed (UTC)", ("last_modified_at",), rendering.time),
    Field("why", ("reason",), rendering.text),
)
"""What ``orphans`` shows."""

DAMAGES: View = (
    Field("kind", ("kind",), rendering.text),
    Field("file", ("path",), rendering.name),
    Field("offset", ("offset",), rendering.text),
    Field("logical path", ("logical_path",), rendering.text, optional=True),
    Field("repairable", ("is_repairable",), rendering.flag),
    Field("repaired", ("repaired",), rendering.flag),
    Field("why", ("reason",), rendering.text),
)
"""What ``verify`` shows."""


def whole(schema: pa.Schema) -> View:
    """All columns, under their own names."""
    return tuple(Field(field.name, (field.name,), form_of(field.name, field.type)) for field in schema)
