"""What the tables cost, added up by partition, operator, type or file, for ``top`` and for pictures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.grouping import grouped

KEYS = {"partitions": ("operator_id", "partition_id"), "operators": ("operator_id",), "types": ("type",)}
"""The columns that segments can be added up by."""

_SUMS = ("total_bytes", "live_bytes", "segment_count", "live_segment_count", "plain_file_count")


def costs_of_files(files: pa.Table, plain: pa.Table) -> pa.Table:
    """Ranks the files by bytes. All that is not a live segment counts as dead, also indexes and torn tails.

    Args:
        files: The table ``files``.
        plain: The table ``plain_files``. A plain file lives: Spark has not deleted it.

    Returns:
        ``file_path`` and the columns of :func:`costs_of_segments`.
    """
    merged = pa.table(
        [
            files["file_path"],
            files["file_size_in_bytes"],
            files["live_bytes"],
            files["segment_count"].cast(pa.int64()),
            files["live_segment_count"].cast(pa.int64()),
            pa.array(np.zeros(len(files), "i8")),
        ],
        ["file_path", *_SUMS],
    )
    each = [plain["file_path"], plain["file_size_in_bytes"], plain["file_size_in_bytes"]]
    return _ranked(pa.concat_tables([merged, pa.table([*each, *_of_plain(plain)], merged.schema)]), ("file_path",))


def costs_of_segments(segments: pa.Table, plain: pa.Table, by: str) -> pa.Table:
    """Adds up the bytes of segments and of plain files, and ranks the sums.

    Args:
        segments: The table ``segments``.
        plain: The table ``plain_files``. A plain file lives: Spark has not deleted it.
        by: One of :data:`KEYS`.

    Returns:
        The columns that ``by`` stands for, then ``total_bytes``, ``live_bytes``, ``dead_bytes``, ``segment_count``,
        ``live_segment_count``, ``plain_file_count`` and ``share``, which is the part of all bytes, from 0 to 1.
    """
    keys = KEYS[by]
    is_live = pc.equal(segments["status"], "live")
    zeros = pa.array(np.zeros(len(segments), "i8"))
    merged = pa.table(
        [
            *(segments[key] for key in keys),
            segments["length"],
            pc.if_else(is_live, segments["length"], pa.scalar(0, pa.int64())),
            pa.array(np.ones(len(segments), "i8")),
            is_live.cast(pa.int64()),
            zeros,
        ],
        [*keys, *_SUMS],
    )
    each = [plain["file_size_in_bytes"], plain["file_size_in_bytes"]]
    beside = pa.table([*(plain[key] for key in keys), *each, *_of_plain(plain)], merged.schema)
    sums = grouped(pa.concat_tables([merged, beside]), keys).aggregate([(name, "sum") for name in _SUMS])
    return _ranked(sums.select([*keys, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*keys, *_SUMS]), keys)


def _of_plain(plain: pa.Table) -> list[pa.Array]:
    """The counts of plain files: each is one, and no segment."""
    nothing = pa.array(np.zeros(len(plain), "i8"))
    return [nothing, nothing, pa.array(np.ones(len(plain), "i8"))]


def _ranked(sums: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    total = sums["total_bytes"]
    everything = pc.sum(total).as_py() or 0
    share = total.to_numpy() / everything if everything else np.zeros(len(total))
    table = sums.add_column(len(keys) + 2, "dead_bytes", pc.subtract(total, sums["live_bytes"]))
    table = table.append_column("share", pa.array(share, pa.float64()))
    return table.sort_by([("total_bytes", "descending"), *((key, "ascending") for key in keys)])
