"""Whether a query can go on from its last committed batch, and from which version it can where not.

Everybody who says that a version can be restored, or cannot, asks here: forks, migration, ``verify``, the summary and
the pages. What a store is restored from, :mod:`~pyspark_statestore.log.versions` finds out; which attempt counts,
:func:`~pyspark_statestore.log.restorability.restorable_rows`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.restorability import (
    Batches,
    ExpectedStores,
    Store,
    batch_with_ids,
    committed,
    read_batches,
    restorable_rows,
)
from pyspark_statestore.log.scan import Scan, retry_if_gone, scan
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries, missing_entry, setting_of
from pyspark_statestore.log.state_files import StateFiles, missing_foreign, plain_files
from pyspark_statestore.log.versions import Restores
from pyspark_statestore.session.doors import PROVIDER_KEY
from pyspark_statestore.storage.directory import Directory, FileInfo


@dataclass(frozen=True)
class Restart:
    """Whether a query can go on from its last committed batch.

    Attributes:
        committed: The version that the last committed batch has left; None where no batch was committed.
        restorable: The newest version of a committed batch that can be restored; None where none can.
        reason: Why ``committed`` cannot be restored; empty where it can.
        provider: The class that keeps the state after a restart, as the offset log says; None where it does not.
    """

    committed: int | None = None
    restorable: int | None = None
    reason: str = ""
    provider: str | None = None

    @classmethod
    def of(cls, directory: Directory, files: StateFiles, batches: Batches, *, opens_plain: bool = True) -> Restart:
        """Finds out from files that are listed already.

        Where all is well, it lists Spark's logs and reads the newest snapshot of each store, and no older ones.

        Args:
            directory: The checkpoint's directory.
            files: The files of the state, without those that are known to be gone or corrupt.
            batches: The log of commits as it was before the files were listed. Ids need not be in it.
            opens_plain: As for :meth:`~pyspark_statestore.log.versions.Restores.of`.

        Raises:
            FileNotFoundError: A file is gone, or the batch was purged: list again.
            StateStoreFilesError: A file cannot be read.
        """
        offsets = entries(directory, OFFSETS)
        provider = setting_of(directory, max(offsets, default=-1), PROVIDER_KEY, offsets)
        if batches.last < 0:
            return cls(provider=provider)
        version = batches.last + 1
        newest = batch_with_ids(directory, files, batches.last)
        lost = lost_stores(directory, files, version, newest, opens_plain=opens_plain, offsets=offsets)
        gone = missing_entry(batches.committed, offsets, batches.last)
        if not lost and not gone:
            return cls(version, version, provider=provider)
        if batches.last not in Batches(batches.committed).needed(committed(directory)):
            raise FileNotFoundError(f"{COMMITS}/{batches.last}")
        known = restorable_versions(directory, files, opens_plain=opens_plain)
        why = "of {}, {}".format(*why_lost(lost)) if lost else f"{gone} of Spark's own logs is missing"
        return cls(version, max(known, default=None), why, provider)

    @classmethod
    def found(cls, directory: Directory, corrupt: frozenset[str] = frozenset()) -> Restart:
        """Lists all files and finds out; where a version cannot be restored, it looks twice.

        Args:
            directory: The checkpoint's directory.
            corrupt: Paths below ``state/`` of files that are known to be corrupt: they restore nothing.

        Raises:
            StateStoreFilesError: There is no checkpoint, or it cannot be read.
        """

        def look() -> Restart:
            batches = read_batches(directory, with_ids=False)
            found = scan(directory, headers=False)
            files = StateFiles.of(found, plain_files(directory, found))
            files = files.without(rows_of_missing(directory, found, files))
            if corrupt:
                is_corrupt = pc.is_in(files.path, value_set=pa.array(sorted(corrupt), pa.string()))
                files = files.without(np.flatnonzero(np.array(is_corrupt, bool)))
            return cls.of(directory, files, batches)

        first = retry_if_gone(directory, look)
        # Beside a query that goes on, what is missing may have been moved meanwhile.
        return retry_if_gone(directory, look) if first.is_lost else first

    @property
    def is_lost(self) -> bool:
        """Whether the query cannot go on from its last committed batch."""
        return bool(self.reason)


def way_out(url: str, version: int | None) -> str:
    """Says how to go on from an older version, in a sentence; that there is none if the version is None."""
    if version is None:
        return "No older version is known that can be restored."
    return f"Go back to version {version}, in a fork: pyspark-statestore {fork_of(url, version)}"


def alarm(url: str, summary: Mapping[str, Any]) -> str:
    """Says that a query cannot start, and how to go on; nothing where it can.

    Args:
        url: The checkpoint's URL.
        summary: The row of the table ``summary``.
    """
    if not summary["not_restorable"]:
        return ""
    if summary["committed_version"] is None:
        return f"Whether the query of {url} can start cannot be found out: {summary['not_restorable']}"
    said = f"The query of {url} cannot start: version {summary['committed_version']}, which its last committed batch "
    said += f"has left, cannot be restored: {summary['not_restorable']}."
    return f"{said} {way_out(url, summary['restorable_version'])}"


def fork_of(url: str, version: int) -> str:
    """The command line that makes a fork of a version, without the program's name."""
    return f"fork {shlex.quote(url)} {shlex.quote(f'{url}-from-{version}')} --version {version}"


def rows_of_missing(directory: Directory, found: Scan, files: StateFiles) -> np.ndarray:
    """Finds the rows of what is in missing files of other checkpoints: it restores nothing.

    Args:
        directory: The checkpoint's directory.
        found: A scan of its merged files.
        files: The files of its state, by that scan.

    Raises:
        StateStoreFilesError: Another checkpoint cannot be listed.
    """
    if not found.entries.foreign:
        return np.zeros(0, "i8")
    missing = missing_foreign(directory, found.entries, found.resolution.live)
    gone = [number for number, path in enumerate(files.foreign, start=1) if path in missing]
    rows: np.ndarray = np.flatnonzero(np.isin(files.origin, gone))
    return rows


def lost_stores(
    directory: Directory,
    files: StateFiles,
    version: int,
    batches: Batches,
    *,
    opens_plain: bool = True,
    offsets: Mapping[int, FileInfo] | None = None,
) -> list[Store]:
    """Finds the stores of the query that cannot be restored at a version.

    Only the newest snapshot of each store up to the version is opened, and what follows it, unless that turns out to be
    not enough.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state.
        version: The version.
        batches: The committed batches; with checkpoint format 2, with the ids of the version's batch.
        opens_plain: As for :meth:`~pyspark_statestore.log.versions.Restores.of`.
        offsets: The files of the offset log, where they are listed already.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: list again.
        StateStoreFilesError: A file cannot be read.
    """
    expected = ExpectedStores(directory, files.stores().known, offsets).after(version - 1)
    lost: list[Store] = []
    for chosen in (files.without(_rows_to_skip(files, version)), files):
        can_be = restorable_rows(Restores.of(chosen, directory, opens_plain=opens_plain), version, batches)
        lost = [store for store in expected if store not in can_be]
        if not lost:
            break
    return lost


def restorable_versions(directory: Directory, files: StateFiles, *, opens_plain: bool = True) -> list[int]:
    """Lists the versions that a query could go on from: of committed batches, in every store. It reads all snapshots.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state.
        opens_plain: As for :meth:`~pyspark_statestore.log.versions.Restores.of`.

    Returns:
        The versions in ascending order. Of each, Spark's logs have what a restart reads.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: list again.
        StateStoreFilesError: A file cannot be read.
    """
    batches = read_batches(directory, with_ids=files.has_ids)
    offsets = entries(directory, OFFSETS)
    restores = Restores.of(files, directory, opens_plain=opens_plain)
    expected = ExpectedStores(directory, restores.stores.known, offsets)
    found = []
    for batch in batches.committed:
        if missing_entry(batches.committed, offsets, batch):
            continue
        can_be = restorable_rows(restores, batch + 1, batches)
        if all(store in can_be for store in expected.after(batch)):
            found.append(batch + 1)
    return found


def why_lost(lost: Sequence[Store]) -> tuple[str, str]:
    """Says of which stores a version cannot be restored, and why."""
    operator, partition, name = lost[0]
    more = f", and so it is with {len(lost) - 1:,} more stores" if len(lost) > 1 else ""
    return (
        f"operator {operator}, partition {partition}, store {name!r}",
        f"files that it needs are missing or damaged{more}",
    )


def not_restorable(
    directory: Directory, files: StateFiles, version: int, what: str, reason: str
) -> StateStoreFilesError:
    """The error that a version cannot be restored. It names those that can be, and how to go on from the newest.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state.
        version: The version.
        what: Of what.
        reason: Why not.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: list again.
        StateStoreFilesError: A file cannot be read.
    """
    known = restorable_versions(directory, files)
    url = directory.location.url
    said = ranges(known) or "none"
    if known and version > known[-1]:
        said += f". Go back to the newest of them in a fork: pyspark-statestore {fork_of(url, known[-1])}"
    parameters = {"version": version, "what": what, "path": url, "reason": reason, "known": said}
    return StateStoreFilesError("PSS_VERSION_NOT_RESTORABLE", parameters)


def ranges(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as text, such as "3 to 7, 9"."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)


def _rows_to_skip(files: StateFiles, version: int) -> np.ndarray:
    """Rows of later versions, and of what is before each store's newest snapshot up to the version."""
    stores = files.stores()
    number, _, extension = stores.version_files(np.arange(len(files.length)))
    numbers: np.ndarray = np.asarray(number.fill_null(-1))
    is_versioned = (numbers >= 0) & (stores.store >= 0)
    later = numbers > version
    snapshots = pa.array(["zip", "snapshot"], pa.string())
    is_snapshot = np.array(pc.is_in(extension, value_set=snapshots).fill_null(False), bool)
    rows = np.flatnonzero(is_snapshot & is_versioned & ~later)
    newest: np.ndarray = np.full(len(stores.known) + 1, -1, "i8")
    np.maximum.at(newest, stores.store[rows], numbers[rows])
    before = is_versioned & (numbers < newest[stores.store])
    skipped: np.ndarray = np.flatnonzero((later & is_versioned) | before)
    return skipped
