"""State files that no batch of a query's logs accounts for: leftovers of batches that the query went back before.

With Spark's checkpoint format 1 the name of a state file says which version it is, and not which attempt at it. A query
whose logs went back to an earlier batch, and that has gone on since, writes the same names again, but not all of them:
what is left under the others is of another timeline. Spark looks by name, so it would restore from it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.log.spark_logs import OFFSETS, PARTITIONS_KEY, content_of, entries
from pyspark_statestore.log.state_files import StateFiles
from pyspark_statestore.storage.directory import Directory, in_parallel


def leftovers(directory: Directory, files: StateFiles, last: int) -> np.ndarray:
    """Finds the files that are of no batch up to the last committed one.

    These are the files of later versions, and those of partitions that no batch since has had. Of a partition that was
    left in a repartitioning, the versions of the batches that had it stay: a query may go back to them. RocksDB's
    immutable files go where a snapshot that goes names them and none that stays.

    Args:
        directory: The checkpoint's directory.
        files: Its state files.
        last: The last committed batch.

    Returns:
        Rows of the files.

    Raises:
        FileNotFoundError: A file is gone: look again.
        StateStoreFilesError: A file cannot be read.
    """
    stores = files.stores()
    every = np.arange(len(files.length))
    number, _, extension = stores.version_files(every)
    numbers = np.asarray(number.fill_null(-1))
    newest = _newest_versions(directory, np.array([store[1] for store in stores.known], "i8"), last)
    # -1 is the last one: what belongs to no store is of nobody's timeline.
    limit: np.ndarray = np.append(newest, np.iinfo("i8").max)
    is_left = (numbers > limit[stores.store]) & (stores.store >= 0)
    if not is_left.any():
        return np.flatnonzero(is_left)
    is_zip = np.array(pc.equal(extension, "zip").fill_null(False), bool) & (stores.store >= 0)
    left, kept = (files.named(directory, np.flatnonzero(is_zip & each)).keys() for each in (is_left, ~is_left))
    gone = [name for path in left - kept for name in (path, f"{path}.crc")]
    is_immutable = np.array(pc.is_in(files.path, value_set=pa.array(gone, pa.string())), bool)
    return np.flatnonzero(is_left | is_immutable)


def _newest_versions(directory: Directory, partitions: np.ndarray, last: int) -> np.ndarray:
    """Of each of these partitions, the newest version that a batch has left; 0 without one."""
    infos = {batch: info for batch, info in entries(directory, OFFSETS).items() if batch <= last}
    newest: np.ndarray = np.zeros(len(partitions), "i8")
    if last not in infos or not len(partitions):
        return newest + last + 1

    def said(batch: int) -> tuple[int, int]:
        try:
            conf = content_of(directory.read(f"{OFFSETS}/{batch}", infos[batch].size))["conf"]
            return batch, int(conf[PARTITIONS_KEY])
        except FileNotFoundError:  # purged meanwhile, so nobody goes back to it
            return batch, 0
        except (ValueError, KeyError, TypeError):  # it may have had any number
            return batch, int(partitions.max()) + 1

    counts = [said(last)]
    if counts[0][1] <= partitions.max():
        counts += in_parallel(said, [batch for batch in infos if batch != last])
    for batch, count in counts:
        np.maximum(newest, batch + 1, out=newest, where=partitions < count)
    return newest
