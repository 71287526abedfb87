"""What costs most in a checkpoint: its tables, added up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEYS = {"partitions": ("operator_id", "partition_id"), "operators": ("operator_id",), "types": ("type",)}
"""What segments are added up by."""

_SUMS = ("total_bytes", "live_bytes", "segment_count", "live_segment_count")


def costs_of_files(files: pa.Table) -> pa.Table:
    """Ranks the merged files; what is no live segment in them counts as dead, indexes and torn tails too.

    Args:
        files: The table of that name.

    Returns:
        ``file_path`` and the columns of :func:`costs_of_segments`.
    """
    names = ("file_path", "file_size_in_bytes", "live_bytes", "segment_count", "live_segment_count")
    return _ranked(files.select(list(names)).rename_columns(["file_path", *_SUMS]), ("file_path",))


def costs_of_segments(segments: pa.Table, by: str) -> pa.Table:
    """Adds up what merged files hold, the most expensive first.

    Args:
        segments: The table of that name.
        by: One of :data:`KEYS`.

    Returns:
        What ``by`` says, then ``total_bytes``, ``live_bytes``, ``dead_bytes``, ``segment_count``,
        ``live_segment_count`` and ``share``, the part of all bytes, from 0 to 1.
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
