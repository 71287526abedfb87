"""Which batches in a query's logs write nothing to a sink: repartitionings.

A repartitioning uses up a batch number. Its entry in the offset log differs from an earlier one in nothing but the
number of state partitions; a query's own batches differ in more, as in the time. Mostly that is the batch before. Spark
can be told to skip one that has failed (``enforce_exactly_once_sink=False``): it commits it unwritten, takes the state
of the one before, and the query reads the input of the skipped one again.

A query that is told to keep few batches soon forgets what a repartitioning was made of. So its driver notes what it
will need, when it starts, until the batch's entry is in the list of the query's file sink:

    checkpoint/_replaced/<batch>.repartitioning

``ListHoles`` of the jar has the same rule, and writes these notes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, PARTITIONS_KEY, entries
from pyspark_statestore.session.doors import PROVIDER_KEY
from pyspark_statestore.storage.directory import Directory, in_parallel

REPLACED = "_replaced"
"""The folder in the checkpoint for what was replaced or taken away, and for these notes."""

_NOTE = re.compile(r"([0-9]{1,18})\.repartitioning")


def noted(directory: Directory) -> dict[int, str]:
    """The batches that are noted to be repartitionings, or to be skipped for one; and the paths of the notes."""
    found = (_NOTE.fullmatch(info.name) for info in directory.files(REPLACED))
    return {int(each[1]): f"{REPLACED}/{each[0]}" for each in found if each}


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
        without_output: The committed batches that are repartitionings or were skipped for one, in ascending order.
    """

    committed: int
    entered: int
    first: int
    without_output: tuple[int, ...]

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
        found = {batch for batch in without_output(dict(zip(batches, data, strict=True))) if batch in committed}
        found |= noted(directory).keys()  # these were committed when they were noted
        last = max(committed, default=-1)
        without = tuple(sorted(batch for batch in found if batch <= last))
        return cls(last, max(batches, default=-1), min(batches, default=0), without)

    def first_in_row(self, end: int) -> int:
        """The first of the batches without output right before a batch; that one, without any."""
        while end - 1 in self.without_output:
            end -= 1
        return end


def without_output(entries: Mapping[int, bytes]) -> list[int]:
    """The batches that are repartitionings, or were skipped for one, in ascending order.

    Args:
        entries: The offset log, by batch in ascending order.
    """
    batches, data = [*entries], [*entries.values()]
    found: set[int] = set()
    for at in range(len(batches)):
        # An entry that was cut off shows nothing.
        with suppress(ValueError, AttributeError, TypeError):
            base = base_of(data[at], data[:at], any_store=True)
            if base is not None:
                found.update(batches[base + 1 : at + 1])
    return sorted(found)
