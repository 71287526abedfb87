"""Spark's offset log, as far as it names the class that keeps the state, and its rewriting.

The log has a file for each batch: ``v1`` or ``v2``, a line of JSON whose ``conf`` has the settings that a restart takes
from here and not from the session (``OffsetSeqMetadata.relevantSQLConfs``), then a line for each source. A restart
takes the class from the newest entry; a reader of an earlier batch's state takes it from that batch's entry. So all
entries are rewritten, and the newest one last: until then the query goes on as before.

What is replaced is first kept in a zip, ``_replaced/<time>-<random>.zip`` in the checkpoint. A crash may cut an entry
off while it is overwritten; the next run takes its contents from that zip and writes it whole.

An offline repartitioning by Spark that was begun and has written no state bars the query from starting. Its entries are
taken away, and kept in the same zip.
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
from pyspark_statestore.log.repartitionings import REPLACED, base_of, without_partitions
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.migration.checks import highest_version
from pyspark_statestore.parsing import opened_zip, parse_json, parse_object
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY, STOCK_PROVIDERS
from pyspark_statestore.storage.changes import delete, forget_checksum, overwrite, publish
from pyspark_statestore.storage.directory import Directory, in_parallel

_UNDONE = "undone"
"""The folder in such a zip for files that were taken away: nothing replaces them."""

_LARGEST = 256 << 20
"""Bytes of the entries in one zip at most."""

_VERSIONS = ("v1", "v2")

_COUNTERPARTS: Mapping[str, Mapping[str, str]] = {
    "merged": {STOCK_PROVIDERS[store]: MERGED_PROVIDERS[store] for store in STOCK_PROVIDERS},
    "stock": {MERGED_PROVIDERS[store]: STOCK_PROVIDERS[store] for store in STOCK_PROVIDERS},
}


@dataclass(frozen=True)
class OffsetEntry:
    """An entry of the offset log.

    Attributes:
        batch: Number of its batch.
        data: Contents of the file.
        provider: The class that keeps the state; None where the entry leaves it to the session.
        is_whole: Whether the file has these contents; otherwise it was cut off while it was rewritten.
    """

    batch: int
    data: bytes = field(repr=False)
    provider: str | None
    is_whole: bool = True

    @classmethod
    def of(cls, batch: int, data: bytes) -> OffsetEntry:
        """Parses an entry.

        Raises:
            ValueError: It was cut off, or a newer Spark wrote it.
        """
        version, _, rest = data.decode("utf-8").partition("\n")
        metadata, newline, _ = rest.partition("\n")
        if version.strip() not in _VERSIONS:
            raise ValueError(f"its version is {version[:20]!r}, but only {', '.join(_VERSIONS)} are known")
        if not newline:
            raise ValueError("it was cut off")
        if not metadata.strip():
            return cls(batch, data, None)
        conf = parse_object(metadata).get("conf", {})
        if not isinstance(conf, dict):
            raise ValueError("its second line is not a JSON object with a conf")
        provider = conf.get(PROVIDER_KEY)
        return cls(batch, data, None if provider is None else str(provider))

    def with_provider(self, provider: str) -> OffsetEntry:
        """Returns the entry with another class, and every other byte as it was.

        Raises:
            ValueError: The class cannot be replaced without changing something else, or the entry has none.
        """
        if self.provider is None:
            raise ValueError("it names no provider class")
        head, newline, rest = self.data.decode("utf-8").partition("\n")
        metadata, end, sources = rest.partition("\n")
        pattern = re.compile(rf"({re.escape(json.dumps(PROVIDER_KEY))}\s*:\s*){re.escape(json.dumps(self.provider))}")
        changed, count = pattern.subn(lambda found: found[1] + json.dumps(provider), metadata)
        expected = parse_object(metadata)
        expected["conf"][PROVIDER_KEY] = provider
        if count != 1 or parse_json(changed) != expected:
            raise ValueError("the provider class is named more than once")
        return OffsetEntry(self.batch, "".join([head, newline, changed, end, sources]).encode("utf-8"), provider)


def counterpart(provider: str | None, to: str) -> str | None:
    """The class for the same store that is ``merged`` or ``stock``; None where it is already, or the session decides.

    Raises:
        KeyError: The class is neither Spark's nor this package's.
    """
    if provider is None or provider in _COUNTERPARTS[to].values():
        return None
    return _COUNTERPARTS[to][provider]


def read_offsets(directory: Directory, replaced: Mapping[int, bytes]) -> list[OffsetEntry]:
    """Reads the log, in the order of the batches.

    Args:
        directory: The checkpoint's directory.
        replaced: Earlier contents by batch, which are returned for entries that were cut off while they were rewritten.

    Raises:
        StateStoreFilesError: PSS_UNREADABLE_STATE, or the log cannot be read at all.
    """
    infos = entries(directory, OFFSETS)

    def read(batch: int) -> OffsetEntry:
        data = directory.read(f"{OFFSETS}/{batch}", infos[batch].size)
        try:
            return OffsetEntry.of(batch, data)
        except ValueError as error:
            earlier = _parsed(batch, replaced.get(batch))
            if earlier is not None:
                return replace(earlier, is_whole=False)
            where = directory.location.display(f"{OFFSETS}/{batch}")
            raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error

    return in_parallel(read, list(infos))


def _parsed(batch: int, data: bytes | None) -> OffsetEntry | None:
    """An entry that was kept; None where it cannot be parsed."""
    try:
        return None if data is None else OffsetEntry.of(batch, data)
    except ValueError:
        return None


@dataclass(frozen=True)
class OffsetChanges:
    """What a conversion or an export rewrites in an offset log.

    Attributes:
        before: All entries as they are, without those of ``undone``.
        changed: The entries that change, as they will be.
        ours: Files of the query's logs, such as ``offsets/7``, that an earlier conversion or a repartitioning wrote
            last, and not the query.
        undone: An unfinished repartitioning whose entries are taken away.
    """

    before: tuple[OffsetEntry, ...] = field(repr=False)
    changed: tuple[OffsetEntry, ...] = field(repr=False)
    ours: frozenset[str] = frozenset()
    undone: UnfinishedRepartition | None = None

    @classmethod
    def planned(cls, directory: Directory, to: str | None) -> OffsetChanges:
        """Plans the change to ``merged`` or ``stock`` classes; None changes nothing.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_PROVIDER, PSS_UNREADABLE_STATE, or the log cannot be read.
        """
        copies = kept(directory)
        replaced = {batch: data for copy in copies for batch, data in copy.items()}
        before = read_offsets(directory, replaced)
        changed = [] if to is None else [_changed(directory, entry, to) for entry in before]
        ours = {f"{OFFSETS}/{entry.batch}" for entry in before if any(_is_ours(entry, copy) for copy in copies)}
        return cls(tuple(before), tuple(entry for entry in changed if entry is not None), frozenset(ours))

    @classmethod
    def of_newest(cls, directory: Directory, provider: str) -> OffsetChanges:
        """Plans to have another class in the newest entry only: state of earlier batches stays with the old one.

        Raises:
            StateStoreFilesError: PSS_UNREADABLE_STATE, or the log cannot be read.
        """
        planned = cls.planned(directory, None)
        newest = planned.before[-1]
        try:
            return replace(planned, changed=(newest.with_provider(provider),))
        except ValueError as error:
            where = directory.location.display(f"{OFFSETS}/{newest.batch}")
            raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error

    def undoing(self, unfinished: UnfinishedRepartition) -> OffsetChanges:
        """The same changes, and the undoing of a repartitioning."""
        before, changed = (
            tuple(entry for entry in log if entry.batch != unfinished.batch) for log in (self.before, self.changed)
        )
        return replace(self, before=before, changed=changed, ours=self.ours | set(unfinished.files), undone=unfinished)

    @property
    def are_any(self) -> bool:
        """Whether anything changes."""
        return bool(self.changed) or self.undone is not None

    @property
    def providers(self) -> tuple[str | None, str | None]:
        """The class that the newest entry names now, and the one that it will name."""
        if not self.before:
            return None, None
        newest = self.before[-1]
        return newest.provider, next((e.provider for e in self.changed if e.batch == newest.batch), newest.provider)

    def carry_out(self, log: MergedLog) -> str | None:
        """Keeps a copy of what will be replaced, then rewrites, the newest entry last.

        Returns:
            URL of the copy; None where nothing changes.
        """
        if not self.are_any:
            return None
        batches = {entry.batch for entry in self.changed}
        copy = keep(
            log,
            [entry for entry in self.before if entry.batch in batches],
            {} if self.undone is None else self.undone.files,
        )
        if self.undone is not None:
            self.undone.undo(log.directory)

        def write(entry: OffsetEntry) -> None:
            overwrite(log.directory, f"{OFFSETS}/{entry.batch}", entry.data)

        in_parallel(write, self.changed[:-1])
        for newest in self.changed[-1:]:
            write(newest)
        return copy


def _changed(directory: Directory, entry: OffsetEntry, to: str) -> OffsetEntry | None:
    where = directory.location.display(f"{OFFSETS}/{entry.batch}")
    try:
        provider = counterpart(entry.provider, to)
        if provider is None:
            return None if entry.is_whole else entry
        return entry.with_provider(provider)
    except KeyError:
        parameters = {"file": where, "provider": entry.provider, "reason": "it is neither Spark's nor this package's"}
        raise StateStoreFilesError("PSS_UNKNOWN_PROVIDER", parameters) from None
    except ValueError as error:
        raise StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": where, "reason": error}) from error


def _is_ours(entry: OffsetEntry, copy: dict[int, bytes]) -> bool:
    """Whether an earlier conversion wrote the entry: it differs from the kept one in nothing but the class."""
    if entry.batch not in copy or entry.data == copy[entry.batch]:
        return False
    if not entry.is_whole:
        return True
    try:
        provider = OffsetEntry.of(entry.batch, copy[entry.batch]).provider
        return provider is not None and entry.with_provider(provider).data == copy[entry.batch]
    except ValueError:
        return False


def keep(log: MergedLog, entries: Iterable[OffsetEntry], undone: Mapping[str, bytes]) -> str:
    """Writes a zip with the entries that will be replaced, and the files that will be taken away; returns its URL."""
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
    """Contents of the replaced entries by batch, for each conversion, the latest last.

    Raises:
        StateStoreFilesError: A zip cannot be read.
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
            reason = f"it is not a zip of replaced files ({error})"
            raise StateStoreFilesError(
                "PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason}
            ) from error
    return found


@dataclass(frozen=True)
class UnfinishedRepartition:
    """What an offline repartitioning by Spark, unfinished unless it is asked for, has left in a query's logs.

    Attributes:
        batch: The batch that it entered in the offset log.
        partitions: The number of partitions that was asked for.
        base: The batch whose state was taken.
        files: Contents of the files that it wrote, such as ``offsets/7``, in the order in which they are deleted.
    """

    batch: int
    partitions: str
    base: int
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def found(
        cls, directory: Directory, log: Sequence[OffsetEntry], *, or_finished: bool = False
    ) -> UnfinishedRepartition | None:
        """Finds one in a checkpoint, given all entries of its offset log; None without one.

        Args:
            directory: The checkpoint's directory.
            log: The entries.
            or_finished: Whether one counts, too, that was committed, if the query has not gone on.
        """
        if not log or not log[-1].is_whole:
            return None
        newest = log[-1]
        committed = entries(directory, COMMITS)
        if newest.batch in committed and not or_finished:
            return None
        place = base_of(newest.data, [entry.data for entry in log[:-1]])
        if place is None:
            return None
        base = log[place]
        # The entry that bars the query from starting goes last: after a crash, the next run finds the rest by it.
        skipped = [batch for batch in reversed(committed) if batch > base.batch]
        files = {f"{COMMITS}/{b}": directory.read(f"{COMMITS}/{b}", committed[b].size) for b in skipped}
        files[f"{OFFSETS}/{newest.batch}"] = newest.data
        return cls(newest.batch, without_partitions(newest.data)[0], base.batch, files)

    def require_no_state(self, directory: Directory, state: Iterable[str]) -> None:
        """Refuses to undo what has written any of these state files: the query would take them for its own.

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
        """Deletes what it wrote in the logs."""
        for name in self.files:
            forget_checksum(directory, name)
            delete(directory, name)
