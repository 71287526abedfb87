"""The table ``files``: a row for each merged file."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import parse_file_name
from pyspark_statestore.inspect.columns import TIMESTAMP, table_of
from pyspark_statestore.inspect.scan import MERGED, Scan


def files_table(scan: Scan, url: str, closed_after: datetime.timedelta) -> pa.Table:
    """Makes the table, in the order of the files' names, which begin with their age.

    Args:
        scan: With the files' headers.
        url: Of the checkpoint.
        closed_after: After how long without a change nobody appends to a file any more.
    """
    entries, resolution = scan.entries, scan.resolution
    names, totals = entries.files, resolution.totals
    generation: np.ndarray = np.zeros(len(names), "i4")
    np.maximum.at(generation, entries.file, entries.generation)
    amplification = resolution.space_amplification(scan.sizes)
    headers = [scan.files[name].header for name in names]
    meta = [{} if header is None else header.meta for header in headers]
    created = [parse_file_name(name) or (0, 0, 0) for name in names]
    closed = [scan.is_closed(name, closed_after) for name in names]
    columns = {
        "file_path": [f"{url}/{MERGED}/{name}" for name in names],
        "file_size_in_bytes": [scan.files[name].size for name in names],
        "live_bytes": totals.live_bytes,
        "segment_count": totals.segment_count,
        "live_segment_count": totals.live_segment_count,
        "tombstone_count": totals.tombstone_count,
        "space_amplification": pa.array(amplification, mask=np.isnan(amplification)),
        "generation": generation,
        "is_sealed": [scan.files[name].sealed for name in names],
        "is_closed": closed,
        "is_orphan": [is_orphan(scan, name, is_closed) for name, is_closed in zip(names, closed, strict=True)],
        "created_at": pa.array([ms * 1000 for ms, _, _ in created], TIMESTAMP),
        "last_modified_at": [scan.infos[name].modified for name in names],
        "writer": [f"{writer:016x}" for _, writer, _ in created],
        "foreign_file_count": [len(scan.files[name].foreign) for name in names],
        "foreign_live_bytes": totals.foreign_live_bytes,
        **{key: [_text(each.get(key)) for each in meta] for key in ("app_id", "executor_id", "query_run_id")},
    }
    return table_of("files", columns)


def is_orphan(scan: Scan, name: str, is_closed: bool) -> bool:
    """Whether nothing can be read from a file, now or ever."""
    file = scan.files[name]
    return is_closed and not file.groups and file.accounted and name not in scan.covered


def _text(value: str | None) -> str | None:
    """A file is input, and JSON can name half of a surrogate pair, which is no text to Arrow."""
    return None if value is None else value.encode("utf-8", "replace").decode("utf-8")
