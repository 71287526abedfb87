"""Which batches in a query's logs are repartitionings, and which file sinks have got an entry for one.

A repartitioning uses up a batch number. Its entry in the offset log differs from an earlier one in nothing but the
number of state partitions; a query's own batches differ in more, as in the time. A file sink has nothing for that batch
in its list unless an empty entry is written there. Once the query goes on without the repartitioning, that entry would
have the sink skip the query's own batch of that number: its rows are lost, and its state is not written. So the
checkpoint notes which sinks have one:

    checkpoint/_replaced/<batch>-<random>.sink.json

The note is there before the entry, and goes after it.
"""

from __future__ import annotations

import json
import posixpath
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, PARTITIONS_KEY, entries
from pyspark_statestore.parsing import parse_object
from pyspark_statestore.session.doors import PROVIDER_KEY
from pyspark_statestore.storage.changes import create_new, delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel
from pyspark_statestore.storage.location import Location

REPLACED = "_replaced"
"""The folder in the checkpoint for what was replaced or taken away, and for these notes."""

_NOTE = re.compile(r"([0-9]{1,18})-[0-9a-f]+\.sink\.json")


def without_partitions(data: bytes, *, any_store: bool = False) -> tuple[str, object]:
    """The number of partitions, and all else that an entry of the offset log says; None for it without a number.

    Args:
        data: The entry's bytes.
        any_store: Whether the class of the store is left out, too: a conversion puts another one into the newest entry.
    """
    version, _, rest = data.decode("utf-8").partition("\n")
    metadata, _, sources = rest.partition("\n")
    settings = json.loads(metadata) if metadata.strip() else {}
    partitions = settings.get("conf", {}).pop(PARTITIONS_KEY, None)
    if any_store:
        settings.get("conf", {}).pop(PROVIDER_KEY, None)
    return str(partitions), None if partitions is None else (version, settings, sources)


def base_of(newest: bytes, older: Sequence[bytes], *, any_store: bool = False) -> int | None:
    """The place of the last older entry of the offset log that differs only in the number of partitions; or None."""
    partitions, rest = without_partitions(newest, any_store=any_store)
    for place in reversed(range(len(older))):
        others, same = without_partitions(older[place], any_store=any_store)
        if same == rest and rest is not None and others != partitions:
            return place
    return None


@dataclass(frozen=True)
class BatchLogs:
    """What a query's logs say of its batches.

    Attributes:
        committed: The last batch that was committed; -1 without one.
        entered: The last batch in the offset log; -1 without one.
        first: The first batch that the offset log still has.
        repartitionings: The committed batches that are repartitionings, in ascending order.
    """

    committed: int
    entered: int
    first: int
    repartitionings: tuple[int, ...]

    @classmethod
    def read(cls, directory: Directory) -> BatchLogs:
        """Reads them.

        Raises:
            FileNotFoundError: The query has deleted an entry meanwhile: look again.
            StateStoreFilesError: A log cannot be read.
        """
        infos, committed = entries(directory, OFFSETS), entries(directory, COMMITS)
        batches = [*infos]
        data = in_parallel(lambda batch: directory.read(f"{OFFSETS}/{batch}", infos[batch].size), batches)
        found = [batch for at, batch in enumerate(batches) if batch in committed and _is_one(data[at], data[:at])]
        return cls(max(committed, default=-1), max(batches, default=-1), min(batches, default=0), tuple(found))

    def first_in_row(self, end: int) -> int:
        """The first of the repartitionings right before a batch, without one of the query between; it, without any.

        All of them can still be taken back, one after the other.
        """
        while end - 1 in self.repartitionings:
            end -= 1
        return end


def _is_one(newest: bytes, older: Sequence[bytes]) -> bool:
    try:
        return base_of(newest, older, any_store=True) is not None
    except (ValueError, AttributeError, TypeError):  # an entry that was cut off shows nothing
        return False


class FileSinks(Protocol):
    """The file sinks of a query that is repartitioned, as far as a repartitioning has to know them."""

    def check(self) -> int:
        """Finds every obstacle to :meth:`mend` that can be found before; returns how many entries are missing now."""
        ...

    def mend(self) -> int:
        """Writes the entries that are missing; returns how many were."""
        ...

    def note(self, batch: int, *, is_new: bool) -> None:
        """Notes that these sinks get an entry for a repartitioning, which is not finished yet."""
        ...

    def not_named(self, batch: int) -> str:
        """Why a repartitioning must not be finished or taken back without more sinks; empty where none is missing."""
        ...

    def check_back(self, batch: int) -> int:
        """Finds every obstacle to :meth:`take_back`; returns how many entries there are to be taken back."""
        ...

    def take_back(self, batch: int) -> None:
        """Deletes the entries of a repartitioning. The query must not be able to start."""
        ...

    def forget(self, batch: int) -> None:
        """Deletes the note about a repartitioning that was taken back."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...


def noted_sinks(directory: Directory, batch: int) -> dict[str, Mapping[str, str]]:
    """The sinks that are noted to have an entry for a repartitioning: by the note, its ``url`` and ``path``.

    Raises:
        StateStoreFilesError: PSS_READ_FAILED: a note cannot be understood.
    """
    infos = [info for info in directory.files(REPLACED) if _NOTE.fullmatch(info.name)]
    return {info.name: _noted(directory, info) for info in infos if int(info.name.partition("-")[0]) == batch}


def _noted(directory: Directory, info: FileInfo) -> Mapping[str, str]:
    name = f"{REPLACED}/{info.name}"
    try:
        said = parse_object(directory.read(name, info.size))
        return {"url": str(said["url"]), "path": str(said["path"])}
    except (ValueError, KeyError) as error:
        reason = f"it is no note of a file sink: {error}"
        parameters = {"action": "read", "path": directory.location.display(name), "reason": reason}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters) from error


def note_sinks(directory: Directory, batch: int, sinks: Sequence[Location]) -> None:
    """Notes that sinks get an entry for a repartitioning, beside those that are noted already.

    Raises:
        StateStoreFilesError: A note cannot be read or written.
    """
    noted = noted_sinks(directory, batch).values()
    for sink in sinks:
        if not any(_is_same(sink, one) for one in noted):
            data = json.dumps({"batch": batch, "url": sink.url, "path": sink.absolute}).encode()
            create_new(directory, f"{REPLACED}/{batch}-{secrets.token_hex(4)}.sink.json", data)


def forget_sinks(directory: Directory, batch: int) -> None:
    """Deletes the note about a batch: what it is about is over."""
    for info in directory.files(REPLACED):
        found = _NOTE.fullmatch(info.name)
        if found and int(found[1]) == batch:
            delete(directory, f"{REPLACED}/{info.name}")


def forget_what_is_over(directory: Directory, batch: int) -> None:
    """Deletes the notes that are about no repartitioning any more, before one begins.

    One that comes right before it, without a batch of the query between, can still be taken back after it.

    Args:
        directory: The checkpoint's directory.
        batch: The batch that begins.

    Raises:
        StateStoreFilesError: A log cannot be read, or a note cannot be deleted.
    """
    first = retry_if_gone(directory, lambda: BatchLogs.read(directory)).first_in_row(batch)
    for info in directory.files(REPLACED):
        found = _NOTE.fullmatch(info.name)
        if found and not first <= int(found[1]) < batch:
            delete(directory, f"{REPLACED}/{info.name}")


def not_named(directory: Directory, batch: int, sinks: Sequence[Location]) -> str:
    """Why a repartitioning must not be finished or taken back without more sinks; empty where none is missing.

    Raises:
        StateStoreFilesError: The note cannot be read.
    """
    noted = noted_sinks(directory, batch)
    missing = {name: one["url"] for name, one in noted.items() if not any(_is_same(sink, one) for sink in sinks)}
    if not missing:
        return ""
    where = ", ".join(directory.location.display(f"{REPLACED}/{name}") for name in missing)
    return (
        f"the list of its file sink {', '.join(missing.values())} has, or gets, an empty entry for batch {batch}, "
        f"which the query would skip. Name it (--sink, in Python sinks=); if it is the sink of another query, take the "
        f"repartitioning back with it (undo-repartition). Where the sink is gone, delete {where}"
    )


def _is_same(sink: Location, noted: Mapping[str, str]) -> bool:
    same_place = urlsplit(sink.url).netloc == urlsplit(noted["url"]).netloc
    return same_place and posixpath.normpath(sink.absolute) == posixpath.normpath(noted["path"])
