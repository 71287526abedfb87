"""Back to the merged files after an export in place, as long as stock Spark has not gone on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.scan import EXPORTED_SUFFIX, EXPORTING_SUFFIX, MERGED, Scan
from pyspark_statestore.inspect.state_files import STATE, is_state_file
from pyspark_statestore.maintenance.checked_bytes import check_part, parts_of
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.migration.staleness import DROP, highest_version
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel
from pyspark_statestore.storage.whole_files import forget_checksum


@dataclass(frozen=True)
class GoingBack:
    """What is to be done.

    Attributes:
        marker: Of the export.
        copies: Paths below ``state/`` of plain files that have the bytes of a live segment.
    """

    marker: ExportMarker
    copies: tuple[str, ...] = field(repr=False)

    @classmethod
    def planned(cls, site: Site, marker: ExportMarker, found: Scan, there: Mapping[str, FileInfo]) -> GoingBack:
        """Compares every plain copy with its segment, and both with their checksum.

        Args:
            site: Of the checkpoint.
            marker: Of the export.
            found: The merged files.
            there: Other files below ``state/``.

        Raises:
            StateStoreFilesError: PSS_STALE_MERGED where stock Spark has gone on, PSS_CORRUPT_SEGMENT where a plain copy
                is the only good one, or something cannot be read.
        """
        directory = site.directory
        require_not_gone_on(directory, marker)
        live = LiveSegments.of(found)
        rows = np.array([at for at, path in enumerate(live.path) if path in there], "i8")
        same = live.same(directory, there, rows)
        replaced = set() if marker.is_done else set(marker.replaces)
        others = [live.path[at] for at in rows[~same].tolist() if live.path[at] not in replaced]
        if others:
            reason = f"{STATE}/{others[0]} has other bytes than were exported, so somebody has written it since"
            raise _stale(directory, reason)
        known = set(live.path)
        unknown = [name for name in there if is_state_file(name) and name not in known]
        if highest_version(unknown) > highest_version(live.path):
            raise _stale(directory, "stock Spark has begun to write the next version")
        _check_segments(directory, found, live, rows[same])
        return cls(marker, tuple(live.path[at] for at in rows[same].tolist()))

    def begin(self, site: Site) -> None:
        """Takes back that everything is there as plain files: soon it is not.

        Raises:
            StateStoreFilesError: A file cannot be written or deleted.
        """
        if self.marker.is_done:
            self.marker.write_as(site, EXPORTING_SUFFIX)
            remove_markers(site.directory, (EXPORTED_SUFFIX,))

    def end(self, site: Site) -> None:
        """Removes the copies, and then what keeps others from the merged files.

        Raises:
            StateStoreFilesError: A file cannot be deleted.
        """

        def remove(path: str) -> None:
            forget_checksum(site.directory, f"{STATE}/{path}")
            delete(site.directory, f"{STATE}/{path}")

        in_parallel(remove, self.copies)
        remove_markers(site.directory, (EXPORTING_SUFFIX,))


def has_gone_on(directory: Directory, marker: ExportMarker) -> bool:
    """Whether a query has committed a batch since the export began.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    return Progress.of(directory) != marker.progress


def require_not_gone_on(directory: Directory, marker: ExportMarker) -> None:
    """Refuses merged files of before an export after which stock Spark has gone on.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED, or something cannot be read.
    """
    if marker.is_dropping:
        raise _stale(directory, "somebody has begun to drop them")
    if has_gone_on(directory, marker):
        reason = f"the query has gone on without them since they were exported ({MERGED}/{marker.name} says so)"
        raise _stale(directory, reason)


def _stale(directory: Directory, reason: str) -> StateStoreFilesError:
    parameters = {"path": directory.location.url, "reason": reason, "action": DROP}
    return StateStoreFilesError("PSS_STALE_MERGED", parameters)


def _check_segments(directory: Directory, found: Scan, live: LiveSegments, rows: np.ndarray) -> None:
    parts = parts_of(found.entries, live.row[rows], found.sizes)
    for part, checked in zip(parts, in_parallel(lambda part: check_part(directory, part), parts), strict=True):
        if checked.error is not None:
            raise checked.error
        bad = (*checked.bad, *checked.unread)
        if bad:
            entries = found.entries
            parameters = {
                "path": entries.path[bad[0]].as_py(),
                "file": directory.location.display(part.path),
                "length": int(entries.length[bad[0]]),
                "offset": int(entries.offset[bad[0]]),
                "reason": "their checksum differs, and the plain file's does not; nothing was changed",
            }
            raise StateStoreFilesError("PSS_CORRUPT_SEGMENT", parameters)
