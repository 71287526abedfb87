"""Spark's offset log, as far as it says which class keeps the state.

A file for each batch: ``v1`` or ``v2``, a line of JSON whose ``conf`` has the settings that a restart takes from here
and not from the session (``OffsetSeqMetadata.relevantSQLConfs``), then a line for each source. A restart takes them
from the newest entry; who reads the state of an earlier batch, from that batch's.
"""

from __future__ import annotations

import json
import re
import secrets
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.migration.live_segments import highest_version
from pyspark_statestore.parsing import opened_zip, parse_json, parse_object
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY, STOCK_PROVIDERS
from pyspark_statestore.storage.changes import delete, forget_checksum, publish
from pyspark_statestore.storage.directory import Directory, in_parallel

_VERSIONS = ("v1", "v2")

_COUNTERPARTS: Mapping[str, Mapping[str, str]] = {
    "merged": {STOCK_PROVIDERS[store]: MERGED_PROVIDERS[store] for store in STOCK_PROVIDERS},
    "stock": {MERGED_PROVIDERS[store]: STOCK_PROVIDERS[store] for store in STOCK_PROVIDERS},
}


@dataclass(frozen=True)
class OffsetEntry:
    """What the offset log says of a batch.

    Attributes:
        batch: Its number.
        data: All of the file.
        provider: The class that keeps the state; None where the entry leaves it to the session.
        is_whole: Whether the file has these bytes; otherwise it was cut off while it was written anew.
    """

    batch: int
    data: bytes = field(repr=False)
    provider: str | None
    is_whole: bool = True

    @classmethod
    def of(cls, batch: int, data: bytes) -> OffsetEntry:
        """Reads an entry.

        Raises:
            ValueError: It was cut off, or is of a newer Spark.
        """
        version, _, rest = data.decode("utf-8").partition("\n")
        metadata, newline, _ = rest.partition("\n")
        if version.strip() not in _VERSIONS:
            raise ValueError(f"its version is {version[:20]!r}, and known are {', '.join(_VERSIONS)}")
        if not newline:
            raise ValueError("it was cut off")
        if not metadata.strip():
            return cls(batch, data, None)
        conf = parse_object(metadata).get("conf", {})
        if not isinstance(conf, dict):
            raise ValueError("its second line is no JSON object with a conf")
        provider = conf.get(PROVIDER_KEY)
        return cls(batch, data, None if provider is None else str(provider))

    def with_provider(self, provider: str) -> OffsetEntry:
        """Returns the entry with another class, and nothing else changed, not even a blank.

        Raises:
            ValueError: The class is not there to be changed.
        """
        head, newline, rest = self.data.decode("utf-8").partition("\n")
        metadata, end, sources = rest.partition("\n")
        pattern = re.compile(rf"({re.escape(json.dumps(PROVIDER_KEY))}\s*:\s*){re.escape(json.dumps(self.provider))}")
        changed, count = pattern.subn(lambda found: found[1] + json.dumps(provider), metadata)
        expected = parse_object(metadata)
        expected["conf"][PROVIDER_KEY] = provider
        if count != 1 or parse_json(changed) != expected:
            raise ValueError("the provider class is there more than once")
        return OffsetEntry(self.batch, "".join([head, newline, changed, end, sources]).encode("utf-8"), provider)


def counterpart(provider: str | None, to: str) -> str | None:
    """The class that keeps the same store the other way; None where it does so already, or the session decides.

    Args:
        provider: As the log has it.
        to: ``merged`` or ``stock``.

    Raises:
        KeyError: It is a class that nobody knows.
    """
    if provider is None or provider in _COUNTERPARTS[to].values():
        return None
    return _COUNTERPARTS[to][provider]


def read_offsets(directory: Directory, replaced: Mapping[int, bytes]) -> list[OffsetEntry]:
    """Reads the log, in the order of the batches.

    Args:
        directory: Of the checkpoint.
        replaced: Earlier contents of entries, by batch, which stand for those that were cut off while they were
            written anew.

    Raises:
        StateStoreFilesError: PSS_UNREADABLE_STATE, or it cannot be read at all.
    """
    infos = entries(directory, OFFSETS)

    def read(batch: int) -> OffsetEntry:
        data = directory.read(f"{OFFSETS}/{batch}", infos[batch].size)
        try:
            return OffsetEntry.of(batch, data)
        except ValueError as error:
            earlier = _understood(batch, replaced.get(batch))
            if earlier is not None:
                return replace(earlier, is_whole=False)
            where = directory.location.display(f"{OFFSETS}/{batch}")
            raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error

    return in_parallel(read, list(infos))


def _understood(batch: int, data: bytes | None) -> OffsetEntry | None:
    """An entry that was kept, if it is one."""
    try:
        return None if data is None else OffsetEntry.of(batch, data)
    except ValueError:
        return None


# Copies of what a conversion has replaced: ``_replaced/<time>-<n>.zip`` in the checkpoint.

REPLACED = "_replaced"
_UNDONE = "undone"
"""In such a zip, where files are that were taken away: nothing stands in their place."""

_LARGEST = 256 << 20
"""Bytes of the entries of an offset log that are replaced at once."""


def keep(log: MergedLog, entries: Iterable[OffsetEntry], undone: Mapping[str, bytes]) -> str:
    """Keeps the entries of the offset log as they are.

    Args:
        log: Of the checkpoint.
        entries: Those that will be replaced.
        undone: Other files that will be taken away, with their contents, by their paths in the checkpoint.

    Returns:
        Where, as a URL.

    Raises:
        StateStoreFilesError: It cannot be written.
    """
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            archive.writestr(f"{OFFSETS}/{entry.batch}", entry.data)
        for name, contents in undone.items():
            archive.writestr(f"{_UNDONE}/{name}", contents)
    created_ms = log.now_ms
    path = f"{REPLACED}/{created_ms:013}-{secrets.token_hex(4)}.zip"
    with publish(log.directory, path) as out:
        out.write(data.getvalue())
    return log.directory.location.display(path)


def kept(directory: Directory) -> list[dict[int, bytes]]:
    """Contents of offset log entries that were replaced, by batch, for each conversion; the latest last.

    Raises:
        StateStoreFilesError: One cannot be read.
    """
    infos = sorted((info for info in directory.files(REPLACED) if info.name.endswith(".zip")), key=lambda i: i.name)
    found: list[dict[int, bytes]] = []
    for info in infos:
        if info.name.startswith("."):
            continue
        try:
            with opened_zip(directory.read(f"{REPLACED}/{info.name}", info.size), _LARGEST) as archive:
                names = [name for name in archive.namelist() if name.startswith(f"{OFFSETS}/")]
                found.append({int(name.partition("/")[2]): archive.read(name) for name in names})
        except ValueError as error:
            where = directory.location.display(f"{REPLACED}/{info.name}")
            reason = f"it is no zip of replaced files ({error})"
            raise StateStoreFilesError(
                "PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason}
            ) from error
    return found


# An offline repartitioning that Spark has begun and could not finish, and the way back.

PARTITIONS_KEY = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class UnfinishedRepartition:
    """What such a repartitioning has left in a query's logs.

    Attributes:
        batch: That it entered in the offset log.
        partitions: How many there were to be.
        files: What it wrote, such as ``offsets/7``, with the contents; in the order in which it is taken away.
    """

    batch: int
    partitions: str
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def found(cls, directory: Directory, log: Sequence[OffsetEntry]) -> UnfinishedRepartition | None:
        """Looks for one.

        Args:
            directory: Of the checkpoint.
            log: All entries of its offset log.

        Raises:
            StateStoreFilesError: It cannot be read.
        """
        if not log or not log[-1].is_whole:
            return None
        newest = log[-1]
        committed = entries(directory, COMMITS)
        base = None if newest.batch in committed else _base_of(newest, log[:-1])
        if base is None:
            return None
        # The entry that bars the query from starting goes last: whoever is interrupted finds the rest by it.
        skipped = [batch for batch in reversed(committed) if batch > base.batch]
        files = {f"{COMMITS}/{b}": directory.read(f"{COMMITS}/{b}", committed[b].size) for b in skipped}
        files[f"{OFFSETS}/{newest.batch}"] = newest.data
        return cls(newest.batch, _without_partitions(newest)[0], files)

    def require_no_state(self, directory: Directory, state: Iterable[str]) -> None:
        """Refuses to undo what has written state already: the query would take that for its own.

        Args:
            directory: Of the checkpoint.
            state: Paths of state files below ``state/``.

        Raises:
            StateStoreFilesError: PSS_UNFINISHED_REPARTITION.
        """
        highest = highest_version(list(state))
        if highest > self.batch:
            parameters = {
                "path": directory.location.url,
                "batch": self.batch,
                "partitions": self.partitions,
                "reason": f"there are state files of version {highest}",
            }
            raise StateStoreFilesError("PSS_UNFINISHED_REPARTITION", parameters)

    def undo(self, directory: Directory) -> None:
        """Takes away what it wrote in the logs.

        Raises:
            StateStoreFilesError: A file cannot be deleted.
        """
        for name in self.files:
            forget_checksum(directory, name)
            delete(directory, name)


def _base_of(newest: OffsetEntry, older: Sequence[OffsetEntry]) -> OffsetEntry | None:
    """The entry from which it was made; a query's own batches differ in more, such as the time."""
    partitions, rest = _without_partitions(newest)
    for entry in reversed(older):
        others, same = _without_partitions(entry)
        if same == rest and rest is not None and others != partitions:
            return entry
    return None


def _without_partitions(entry: OffsetEntry) -> tuple[str, object]:
    """The number of partitions, and all else that an entry says; None where it does not say the number."""
    version, _, rest = entry.data.decode("utf-8").partition("\n")
    metadata, _, sources = rest.partition("\n")
    said = json.loads(metadata) if metadata.strip() else {}
    partitions = said.get("conf", {}).pop(PARTITIONS_KEY, None)
    return str(partitions), None if partitions is None else (version, said, sources)
