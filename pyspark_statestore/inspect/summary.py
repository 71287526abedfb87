"""The table ``summary``: one row for the whole checkpoint."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_statestore.inspect.columns import table_of
from pyspark_statestore.inspect.files import is_orphan
from pyspark_statestore.inspect.scan import Scan
from pyspark_statestore.inspect.state_files import PLAIN, StateFiles

if TYPE_CHECKING:
    from pyspark_statestore.forks.kinship import Kinship


def summary_table(scan: Scan, files: StateFiles, closed_after: datetime.timedelta, kinship: Kinship) -> pa.Table:
    """Makes the table.

    Args:
        scan: Of the merged files, with their headers.
        files: Of the state, merged and plain.
        closed_after: After how long without a change nobody appends to a file any more.
        kinship: What the checkpoint has to do with others.
    """
    resolution = scan.resolution
    size, live = sum(scan.sizes.values()), resolution.live_bytes
    stores = files.stores()
    present = [stores.known[i] for i in np.unique(stores.store[stores.store >= 0])]
    version, _ = stores.versions(np.arange(len(stores.store)))
    versions = version.drop_null().to_numpy()
    columns = {
        "file_count": len(scan.files),
        "file_size_in_bytes": size,
        "live_bytes": live,
        "space_amplification": size / live if live else None,
        "segment_count": int(resolution.totals.segment_count.sum()),
        "live_segment_count": int(resolution.totals.live_segment_count.sum()),
        "orphan_file_count": sum(is_orphan(scan, name, scan.is_closed(name, closed_after)) for name in scan.files),
        "operator_count": len({operator for operator, _, _ in present}),
        "partition_count": len({(operator, partition) for operator, partition, _ in present}),
        "min_version": int(versions.min()) if len(versions) else None,
        "max_version": int(versions.max()) if len(versions) else None,
        "foreign_file_count": len(np.unique(scan.entries.origin[resolution.live & (scan.entries.origin > 0)])),
        "foreign_live_bytes": int(resolution.totals.foreign_live_bytes.sum()),
        "forked_from": kinship.forked_from,
        "fork_count": kinship.fork_count,
        "plain_file_count": int(np.count_nonzero(files.merged == PLAIN)),
    }
    return table_of("summary", {name: [value] for name, value in columns.items()})
