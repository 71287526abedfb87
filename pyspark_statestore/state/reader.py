"""Finds the state that is asked for: the store, its schema, the version, and the attempt that was committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.inspect import Inspection
from pyspark_statestore.log.restart import ranges
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, content_of, entries, operators, partitions_of
from pyspark_statestore.log.state_files import DEFAULT_STORE, StateFiles, StoreFilter, check_id, check_name, plain_files
from pyspark_statestore.log.versions import NOTHING, Restores
from pyspark_statestore.state.contents import Contents, ContentsReader, Encoding
from pyspark_statestore.state.decoding import Decoder
from pyspark_statestore.state.schemas import (
    Family,
    StoreSchema,
    read_store_schema,
    store_names,
)
from pyspark_statestore.storage import Directory

_INTERNAL = "$"
"""The names of Spark's own column families begin with it: counters, times to live, timers."""

_STORE = "spark.sql.streaming.stateStore."
_DELIMITERS = {"1": b",", "2": b""}
"""The delimiter by ``rocksdb.mergeOperatorVersion``. A log that is older than the setting means 1."""


@dataclass(frozen=True)
class PartitionContents:
    """The bytes of a version in one state partition.

    Attributes:
        partition_id: The state partition.
        contents: The version's bytes.
    """

    partition_id: int
    contents: Contents = field(repr=False)


@dataclass(frozen=True)
class StateSelection:
    """The state that is asked for.

    Attributes:
        operator_id: The stateful operator.
        partition_id: The state partition; None for all.
        store_name: The store.
        state_variable: The state variable or column family; None where the store has only one.
    """

    operator_id: int
    partition_id: int | None
    store_name: str
    state_variable: str | None

    def __post_init__(self) -> None:
        for name in ("operator_id", "store_name"):
            if getattr(self, name) is None:
                raise not_allowed(name, None, "the one to read; see the summary for what there is")
        check_id("operator_id", self.operator_id)
        check_id("partition_id", self.partition_id)
        check_name("store_name", self.store_name)
        check_name("state_variable", self.state_variable)


class StateReader:
    """Reads one store of a checkpoint, as it was when the reader was made.

    Args:
        directory: The checkpoint's directory.
        inspection: The checkpoint's tables.
        wanted: The state that is asked for.

    Raises:
        FileNotFoundError: A file was moved or deleted meanwhile: make a new reader.
        StateStoreFilesError: There is no such state (PSS_NO_SUCH_STATE), or it cannot be read or understood.
    """

    def __init__(self, directory: Directory, inspection: Inspection, wanted: StateSelection) -> None:
        self._directory = directory
        self._wanted = wanted
        # Before the files: what is committed while they are listed is not among them.
        self._newest = newest_version(directory)
        scan = inspection.scan(headers=True)
        self.schema, self.store_name, self.family = self._find_schema()
        self.family_name = self.family.name if self.schema.is_virtual else None
        files = StateFiles.of(scan, plain_files(directory, scan))
        self._restores = Restores.of(
            files, directory, StoreFilter(wanted.operator_id, wanted.partition_id, self.store_name)
        )
        known = self._restores.stores.known
        self._stores = [i for i, store in enumerate(known) if self._is_wanted(store)]
        if not self._stores:
            partitions = sorted({store[1] for store in known if store[0] == wanted.operator_id})
            what = f"state in partition {wanted.partition_id} of operator {wanted.operator_id}"
            raise self._no_such(what, [f"partition {each}" for each in partitions])

    def version(self, asked: int | None) -> int:
        """Returns the version asked for. None means the last committed batch's, or else the newest restorable one."""
        if asked is not None:
            return asked
        if self._newest is not None:
            return self._newest
        return max(self._restorable(), default=0)

    def decoder(self, version: int) -> Decoder:
        """Returns what decodes the store's keys and values."""
        return Decoder(self.family, encoding(self._directory, version))

    def partitions(self, version: int) -> list[PartitionContents]:
        """Reads a version of every wanted partition; version 0 is the empty state.

        Raises:
            FileNotFoundError: A file was moved or deleted meanwhile: make a new reader.
            StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE, PSS_CORRUPT_SEGMENT, PSS_UNREADABLE_STATE or
                PSS_MISSING_DEPENDENCY.
        """
        if version == 0:
            return []
        ids = checkpoint_ids(self._directory, self._wanted.operator_id, version)
        stores = self._stores_at(version)
        rows = [self._row(store, version, ids) for store in stores]
        reader = ContentsReader(self._directory, self._restores, encoding(self._directory, version))
        known = self._restores.stores.known
        return [
            PartitionContents(known[store][1], reader.read(row, self.family_name))
            for store, row in zip(stores, rows, strict=True)
        ]

    def _stores_at(self, version: int) -> list[int]:
        """The wanted stores that the query had then: a repartitioning makes partitions, and leaves others behind."""
        partitions = partitions_of(self._directory, version - 1)
        if partitions is None or self._wanted.partition_id is not None:
            return self._stores
        known = self._restores.stores.known
        return [store for store in self._stores if known[store][1] < partitions]

    def _row(self, store: int, version: int, ids: Collection[str] | None) -> int:
        """Finds the attempt at a version that was committed."""
        versions = self._restores.versions
        rows = np.flatnonzero((versions.store == store) & (versions.version == version))
        if not len(rows):
            raise self._not_restorable(store, version, "none of its files exists")
        attempts = {int(row): str(versions.id[int(row)].as_py()) for row in rows}
        if ids is not None and any(attempts.values()):
            attempts = {row: each for row, each in attempts.items() if each in ids}
            if not attempts:
                raise self._not_restorable(store, version, "the files of the committed attempt do not exist")
        restorable = [row for row in attempts if self._restores.base[row] != NOTHING]
        if not restorable:
            raise self._not_restorable(store, version, "files that it needs are missing or damaged")
        if len(restorable) > 1:
            reason = f"there are {len(restorable)} attempts at it, and no commit says which one counts"
            raise self._not_restorable(store, version, reason)
        return restorable[0]

    def _restorable(self) -> set[int]:
        """Returns the versions that can be restored in every wanted partition."""
        restores = self._restores
        found = [
            set(restores.versions.version[(restores.versions.store == store) & (restores.base != NOTHING)].tolist())
            for store in self._stores
        ]
        return set.intersection(*found) if found else set()

    def _not_restorable(self, store: int, version: int, reason: str) -> StateStoreFilesError:
        operator, partition, name = self._restores.stores.known[store]
        parameters = {
            "version": version,
            "what": f"operator {operator}, partition {partition}, store {name!r}",
            "path": self._directory.location.url,
            "reason": reason,
            "known": ranges(sorted(self._restorable())) or "none",
        }
        return StateStoreFilesError("PSS_VERSION_NOT_RESTORABLE", parameters)

    def _is_wanted(self, store: tuple[int, int, str]) -> bool:
        return StoreFilter(self._wanted.operator_id, self._wanted.partition_id, self.store_name).wants(store)

    def _find_schema(self) -> tuple[StoreSchema, str, Family]:
        wanted = self._wanted
        known = operators(self._directory)
        if wanted.operator_id not in known:
            raise self._no_such(f"stateful operator {wanted.operator_id}", [f"operator {each}" for each in known])
        name, variable = wanted.store_name, wanted.state_variable
        schema = read_store_schema(self._directory, wanted.operator_id, name)
        names = store_names(self._directory, wanted.operator_id) if schema is None else []
        if schema is None and variable is None:
            # In state format 3, a join has one store with four column families, which were four stores before.
            whole = read_store_schema(self._directory, wanted.operator_id, DEFAULT_STORE)
            families = sorted(whole.families) if whole is not None and whole.is_virtual else []
            names += families
            if name in families:
                schema, name, variable = whole, DEFAULT_STORE, name
        if schema is None:
            what = f"store {name!r} with a schema in operator {wanted.operator_id}"
            listed = [f"store {each!r}" for each in names]
            if names:
                listed[-1] += f". Say which one: store_name={names[0]!r} (--store)"
            raise self._no_such(what, listed)
        return schema, name, self._find_family(schema, variable)

    def _find_family(self, schema: StoreSchema, variable: str | None) -> Family:
        if variable is None:
            names = [name for name in schema.families if not name.startswith(_INTERNAL)]
            if len(names) == 1:
                return schema.families[names[0]]
            allowed = "one of " + ", ".join(sorted(schema.families))
            raise not_allowed("state_variable", None, allowed)
        if variable not in schema.families:
            what = f"state variable {variable!r} in operator {self._wanted.operator_id}"
            raise self._no_such(what, sorted(schema.families))
        return schema.families[variable]

    def _no_such(self, what: str, known: list[str]) -> StateStoreFilesError:
        listed = ", ".join(known) or "none"
        return StateStoreFilesError(
            "PSS_NO_SUCH_STATE", {"path": self._directory.location.url, "what": what, "known": listed}
        )


def newest_version(directory: Directory) -> int | None:
    """Returns the version that the last committed batch left, or None where no batch was committed."""
    batches = entries(directory, COMMITS)
    return max(batches) + 1 if batches else None


def checkpoint_ids(directory: Directory, operator_id: int, version: int) -> frozenset[str] | None:
    """Returns the ids of the committed attempts at a version, or None where the commit log has none.

    Only checkpoint format 2 writes them.
    """
    found = _json(directory, COMMITS, version - 1)
    ids = (found or {}).get("stateUniqueIds")
    if not isinstance(ids, Mapping) or str(operator_id) not in ids:
        return None
    partitions = ids[str(operator_id)]
    if not isinstance(partitions, list) or not all(isinstance(each, list) for each in partitions):
        return None
    return frozenset(str(each) for partition in partitions for each in partition)


def encoding(directory: Directory, version: int) -> Encoding:
    """Returns how the query's stores write, as its offset log says."""
    batches = entries(directory, OFFSETS)
    if not batches:
        return Encoding()
    found = _json(directory, OFFSETS, version - 1 if version - 1 in batches else max(batches))
    said = (found or {}).get("conf")
    conf = said if isinstance(said, Mapping) else {}
    return Encoding(
        delimiter=_DELIMITERS.get(str(conf.get(f"{_STORE}rocksdb.mergeOperatorVersion", "1")), b""),
        has_checksums=str(conf.get(f"{_STORE}rowChecksum.enabled", "false")).lower() == "true",
        is_unsafe_row=str(conf.get(f"{_STORE}encodingFormat", "unsaferow")).lower() == "unsaferow",
    )


def _json(directory: Directory, log: str, batch: int) -> Mapping[str, Any] | None:
    info = entries(directory, log).get(batch)
    try:
        return None if info is None else content_of(directory.read(f"{log}/{batch}", info.size))
    except ValueError:
        return None
