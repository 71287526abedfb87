"""What Spark writes down of a store's keys and values: ``_metadata`` and ``_stateSchema`` below ``state/<operator>``.

Version 2 of an operator's metadata names the schema files of its stores (version 3, with a part for each virtual column
family); without it, each store has one of version 1 or 2 in its first partition. Strings are Java's ``writeUTF``, in
several chunks where they are long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.spark_logs import operator_metadata
from pyspark_statestore.log.state_files import DEFAULT_STORE, store_folder
from pyspark_statestore.parsing import objects, parse_object, whole_number
from pyspark_statestore.sparkfiles.records import java_utf
from pyspark_statestore.storage import Directory

DEFAULT_FAMILY = "default"

_COLUMNS = 1 << 16
"""Of a key at most; nobody has so many."""

_MULTIPLE_JOIN_FAMILIES = ("-keyWithTsToValues", "-tsWithKey")
"""Of a stream-stream join of state format 4."""


@dataclass(frozen=True)
class Family:
    """Schema of a column family; of a store without any, of the whole store.

    Attributes:
        name: ``default``, a state variable's, or one of Spark's own, which begin with ``$``.
        key_json: Schema of the key, as JSON.
        value_json: Schema of the value.
        encoder: How RocksDB has keys, as JSON has it: its type and what that takes.
        has_many: Whether a key has several values.
    """

    name: str
    key_json: str = field(repr=False)
    value_json: str = field(repr=False)
    encoder: Mapping[str, Any]
    has_many: bool = False


@dataclass(frozen=True)
class StoreSchema:
    """Schema of a store.

    Attributes:
        families: By name.
        is_virtual: Whether the families are virtual column families of RocksDB, which keys begin with the id of.
    """

    families: Mapping[str, Family]
    is_virtual: bool


def read_store_schema(directory: Directory, operator_id: int, store_name: str) -> StoreSchema | None:
    """Reads the schema of a store.

    Args:
        directory: Of the checkpoint.
        operator_id: The stateful operator.
        store_name: The store.

    Returns:
        None where Spark has written none.

    Raises:
        StateStoreFilesError: PSS_UNREADABLE_STATE where it is damaged or of a newer version, or it cannot be read.
    """
    folder = f"state/{operator_id}"
    metadata = _operator_metadata(directory, operator_id)
    info = _store_info(metadata, store_name)
    paths = info.get("stateSchemaFilePaths") or []
    if paths:
        where = (
            f"{folder}/_stateSchema/{store_name}/{str(paths[-1]).rpartition('/')[2]}"  # the checkpoint may have moved
        )
        data = _read(directory, where)
        return None if data is None else _parsed(directory, where, data, metadata, info)
    where = f"state/{store_folder((operator_id, 0, store_name))}/_metadata/schema"
    data = _read(directory, where)
    return None if data is None else _parsed(directory, where, data, metadata, info)


def store_names(directory: Directory, operator_id: int) -> list[str]:
    """Names of an operator's stores, as far as its metadata tells."""
    infos = _operator_metadata(directory, operator_id).get("stateStoreInfo", ())
    return sorted(str(info.get("storeName", DEFAULT_STORE)) for info in infos) or [DEFAULT_STORE]


def _operator_metadata(directory: Directory, operator_id: int) -> Mapping[str, Any]:
    metadata = operator_metadata(directory, operator_id)
    if metadata is None:
        return {}
    where, data = metadata
    try:
        version, _, text = data.decode().partition("\n")
        if version.strip() not in ("v1", "v2"):
            raise ValueError(f"its version is {version[:20]!r}, and this release reads v1 and v2")
        found = parse_object(text)
        for info in objects(found["stateStoreInfo"], "stateStoreInfo"):
            _check_store(info)
    except (ValueError, KeyError) as error:
        raise unreadable(directory, where, error) from error
    return found


def _check_store(info: Mapping[str, Any]) -> None:
    if not isinstance(info.get("storeName", DEFAULT_STORE), str):
        raise ValueError("the name of a store is no text")
    paths = info.get("stateSchemaFilePaths") or []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("its stateSchemaFilePaths are no texts")


def _store_info(metadata: Mapping[str, Any], store_name: str) -> Mapping[str, Any]:
    for info in metadata.get("stateStoreInfo", ()):
        if info.get("storeName", DEFAULT_STORE) == store_name:
            found: Mapping[str, Any] = info
            return found
    return {}


def _read(directory: Directory, path: str) -> bytes | None:
    folder, _, name = path.rpartition("/")
    for info in directory.files(folder):
        if info.name == name:
            return directory.read(path, info.size)
    return None


def _parsed(
    directory: Directory, where: str, data: bytes, metadata: Mapping[str, Any], info: Mapping[str, Any]
) -> StoreSchema:
    try:
        reader = _Reader(data)
        version = reader.text()
        if version == "v3":
            many = _variables_of_many(metadata)
            families = [_family(reader, many) for _ in range(reader.number(4))]
            return StoreSchema({family.name: family for family in families}, True)
        if version not in ("v1", "v2"):
            raise ValueError(f"its version is {version[:20]!r}, and this release reads v1 to v3")
        key, value = (reader.text() if version == "v1" else reader.chunks() for _ in range(2))
        prefix = whole_number(info.get("numColsPrefixKey") or 0, "numColsPrefixKey", _COLUMNS)
        encoder: dict[str, Any] = {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}
        if prefix:
            encoder = {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": prefix}
        return StoreSchema({DEFAULT_FAMILY: Family(DEFAULT_FAMILY, key, value, encoder)}, False)
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(directory, where, error) from error


def _family(reader: _Reader, many: frozenset[str]) -> Family:
    name = reader.text()
    reader.number(2)  # id of the key's schema: rows of UnsafeRow do not have it
    key = reader.chunks()
    reader.number(2)
    value = reader.chunks()
    encoder = parse_object(reader.chunks())
    reader.chunks()  # the user key's schema is a part of the key's
    return Family(name, key, value, encoder, name in many or name.endswith(_MULTIPLE_JOIN_FAMILIES))


def _variables_of_many(metadata: Mapping[str, Any]) -> frozenset[str]:
    properties = parse_object(str(metadata.get("operatorPropertiesJson") or "{}"))
    variables = objects(properties.get("stateVariables"), "stateVariables")
    return frozenset(str(each["stateName"]) for each in variables if each["stateVariableType"] == "ListState")


def unreadable(directory: Directory, path: str, reason: object) -> StateStoreFilesError:
    """What of Spark's own cannot be understood."""
    text = re.sub(r"\s+", " ", str(reason)).rstrip(".")
    if not isinstance(reason, ValueError) and isinstance(reason, Exception):
        text = f"{type(reason).__name__}: {text}"
    return StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": directory.location.display(path), "reason": text})


class _Reader:
    """Java's ``DataInputStream``."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def number(self, length: int) -> int:
        if len(self._rest) < length:
            raise ValueError("it was cut off")
        number = int.from_bytes(self._rest[:length], "big", signed=True)
        self._rest = self._rest[length:]
        return number

    def text(self) -> str:
        text, self._rest = java_utf(self._rest)
        if text is None:
            raise ValueError("it was cut off")
        return text

    def chunks(self) -> str:
        return "".join(self.text() for _ in range(self.number(4)))
