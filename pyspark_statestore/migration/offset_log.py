"""Spark's offset log, as far as it says which class keeps the state.

A file for each batch: ``v1`` or ``v2``, a line of JSON whose ``conf`` has the settings that a restart takes from here
and not from the session (``OffsetSeqMetadata.relevantSQLConfs``), then a line for each source. A restart takes them
from the newest entry; who reads the state of an earlier batch, from that batch's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark_statestore.doors import MERGED_PROVIDERS, PROVIDER_KEY, STOCK_PROVIDERS
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.spark_logs import OFFSETS, entries
from pyspark_statestore.parsing.json_text import parse_json, parse_object
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
