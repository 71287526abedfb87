"""What costs most in a checkpoint: its tables, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.cli import cells
from pyspark_statestore.cli.views import Field, View

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

    from pyspark_statestore.inspect import Inspection

KEYS = {"partitions": ("operator_id", "partition_id"), "operators": ("operator_id",), "types": ("type",)}
"""What segments are added up by; ``files`` is a table by itself."""

_SUMS = ("total_bytes", "live_bytes", "segment_count", "live_segment_count")

_FIGURES: View = (
    Field("bytes", ("total_bytes",), cells.size),
    Field("live", ("live_bytes",), cells.size),
    Field("dead", ("dead_bytes",), cells.size),
    Field("live segments", ("live_segment_count", "segment_count"), cells.part_of),
    Field("share of all", ("share",), cells.share),
)

VIEWS: dict[str, View] = {
    "partitions": (
        Field("operator", ("operator_id",), cells.text),
        Field("partition", ("partition_id",), cells.text),
        *_FIGURES,
    ),
    "operators": (Field("operator", ("operator_id",), cells.text), *_FIGURES),
    "types": (Field("type", ("type",), cells.text), *_FIGURES),
    "files": (Field("file", ("file_path",), cells.name), *_FIGURES),
}
"""How each looks."""


def costs(inspection: Inspection, by: str, callback: Callback | None = None) -> pa.Table:
    """Adds up what merged files hold, the most expensive first.

    Args:
        inspection: Of the checkpoint.
        by: ``partitions``, ``operators`` or ``types``, which add up segments; or ``files``, where indexes and torn
            tails count as dead.
        callback: Told how many merged files there are, and of each that was read.

    Returns:
        What ``by`` says, then ``total_bytes``, ``live_bytes``, ``dead_bytes``, ``segment_count``,
        ``live_segment_count`` and ``share``, the part of all bytes, from 0 to 1.

    Raises:
        StateStoreFilesError: As :meth:`Inspection.segments`.
    """
    if by != "files":
        return costs_of_segments(inspection.segments(callback=callback), by)
    names = ("file_path", "file_size_in_bytes", "live_bytes", "segment_count", "live_segment_count")
    files = inspection.files(callback=callback).select(list(names))
    return _ranked(files.rename_columns(["file_path", *_SUMS]), ("file_path",))


def costs_of_segments(segments: pa.Table, by: str) -> pa.Table:
    """The same for segments that were read already.

    Args:
        segments: The table of that name.
        by: One of :data:`KEYS`.
    """
    return _ranked(_added_up(segments, KEYS[by]), KEYS[by])


def _added_up(segments: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    is_live = pc.equal(segments["status"], "live")
    columns = {
        **{key: segments[key] for key in keys},
        "total": segments["length"],
        "live": pc.if_else(is_live, segments["length"], pa.scalar(0, pa.int64())),
        "is_live": is_live.cast(pa.int64()),
    }
    sums = [("total", "sum"), ("live", "sum"), ("is_live", "count"), ("is_live", "sum")]
    grouped = pa.table(columns).group_by(list(keys)).aggregate(sums).select([*keys, *("_".join(s) for s in sums)])
    return grouped.rename_columns([*keys, *_SUMS])


def _ranked(sums: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    total = sums["total_bytes"]
    everything = pc.sum(total).as_py() or 0
    share = total.to_numpy() / everything if everything else np.zeros(len(total))
    table = sums.add_column(len(keys) + 2, "dead_bytes", pc.subtract(total, sums["live_bytes"]))
    table = table.append_column("share", pa.array(share, pa.float64()))
    return table.sort_by([("total_bytes", "descending"), *((key, "ascending") for key in keys)])
