"""What is wrong with the merged files themselves: unreadable ones, torn tails, wrong names, contradictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFile
from pyspark_statestore.log import damage
from pyspark_statestore.log.damage import Damage
from pyspark_statestore.log.scan import INDEX_SUFFIX, MERGED, Scan
from pyspark_statestore.storage.directory import Directory

_KINDS: Mapping[str, str] = {
    "PSS_CORRUPT_INDEX": damage.CORRUPT_INDEX,
    "PSS_CORRUPT_FILE": damage.CORRUPT_FILE,
    "PSS_UNSUPPORTED_FORMAT_VERSION": damage.UNSUPPORTED_VERSION,
}
_FIELDS = ["kind", "generation", "crc32c", "stamp", "writer", "offset", "length"]


def file_damages(directory: Directory, found: Scan) -> list[Damage]:
    """Says what is wrong with the merged files of a scan that has collected errors.

    Returns:
        Files that cannot be read; those that have another name than their writer gave them; and those that contradict
        an index-only file.
    """
    unreadable = [_of(error, directory, name) for name, error in found.errors.items()]
    return [*unreadable, *_wrong_names(directory, found), *_mismatches(directory, found)]


def torn_tails(directory: Directory, found: Scan) -> list[Damage]:
    """Says which files have bytes behind their last whole group, or no group at all."""
    return [each for name, file in sorted(found.files.items()) for each in _remains(directory, name, file)]


def url_of(directory: Directory, name: str) -> str:
    """Returns the URL of a merged file."""
    return directory.location.display(f"{MERGED}/{name}")


def _of(error: StateStoreFilesError, directory: Directory, name: str) -> Damage:
    said = error.getMessageParameters()
    offset = said.get("offset", "")
    kind = _KINDS.get(error.getErrorClass(), damage.UNREADABLE_FILE)
    reason = said.get("reason") or error.getMessage()
    if kind == damage.UNSUPPORTED_VERSION:
        reason = f"it has format version {said['found']}; this release reads version {said['supported']}"
    return Damage(kind, url_of(directory, name), reason, int(offset) if offset.isdigit() else None)


def _remains(directory: Directory, name: str, file: MergedFile) -> list[Damage]:
    """The bytes behind the last whole group: what a killed writer left, as far as can be told."""
    begin = max(file.valid_length, 0 if file.header is None else file.header.length)
    if file.groups and file.size == begin:
        return []
    reason = f"its last {file.size - begin} bytes are no whole group" if file.size > begin else "it has no group"
    if not file.accounted:
        reason += ", and whether they were one once cannot be told, so nothing deletes the file"
    return [Damage(damage.TORN_TAIL, url_of(directory, name), reason, begin)]


def _wrong_names(directory: Directory, scan: Scan) -> list[Damage]:
    """Files that somebody has copied or renamed: the header says which writer began the file, and when."""
    by_header: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, file in sorted(scan.files.items()):
        if file.header is not None:
            by_header[file.header.writer, file.header.created_ms].append(name)
    found = []
    for (writer, created_ms), names in by_header.items():
        fitting = [name for name in names if scan.files[name].has_own_name]
        for name in names:
            groups = _groups(scan.files[name])
            others = [other for other in names if other != name and groups and _groups(scan.files[other]) == groups]
            # Where two names fit, the writer has given the one with the lower number.
            if others and (name not in fitting or any(other in fitting and other < name for other in others)):
                original = next((other for other in others if other in fitting), min(others))
                if name in fitting or original in fitting or name > original:
                    found.append(
                        Damage(damage.DUPLICATED_FILE, url_of(directory, name), f"it is a copy of {original}", 0)
                    )
                    continue
            if name not in fitting:
                reason = f"its header says that writer {writer:016x} began it at {created_ms}"
                found.append(Damage(damage.MISNAMED_FILE, url_of(directory, name), reason, 0))
    return found


def _groups(file: MergedFile) -> tuple[tuple[int, int], ...]:
    return tuple((group.trailer_offset, group.trailer.index_crc) for group in file.groups)


def _mismatches(directory: Directory, scan: Scan) -> list[Damage]:
    """Index-only files repeat sealed files, which do not change: any difference is damage in one of the two."""
    found: dict[str, Damage] = {}
    for index, file in scan.files.items():
        if not index.endswith(INDEX_SUFFIX):
            continue
        for group in file.groups:
            records = group.index.records
            for number, name in enumerate(group.index.names, start=1):
                if name not in scan.files:
                    continue
                said = _entries(records[records["file_ref"] == number])
                own = _entries(*(own.index.records for own in scan.files[name].groups))
                missing = len(np.setdiff1d(said, own)) if len(own) else len(said)
                if missing:
                    reason = f"{index} has {missing} entries of it that it does not have itself"
                    path, offset = url_of(directory, name), scan.files[name].valid_length
                    found[name] = Damage(damage.TRUNCATED_FILE, path, reason, offset)
                elif len(own) and len(np.setdiff1d(own, said)):
                    reason = f"it does not have all entries of {name}"
                    found[index] = Damage(damage.INDEX_MISMATCH, url_of(directory, index), reason, is_repairable=True)
    return list(found.values())


def _entries(*records: np.ndarray) -> np.ndarray:
    parts = [part[_FIELDS] for part in records]
    return np.concatenate(parts) if parts else np.empty(0, "i8")
