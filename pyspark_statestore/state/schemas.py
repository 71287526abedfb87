"""The schemas of a store's keys and values, as Spark writes them below ``state/<operator>``, and their types in Arrow.

Version 2 of an operator's metadata (``_metadata``) names the schema files of its stores (``_stateSchema``). These have
version 3, with a section for each virtual column family. Without version 2 of the metadata, each store has a schema
file of version 1 or 2 in its first partition. Strings are written with Java's ``writeUTF``, long ones in chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.spark_logs import operator_metadata
from pyspark_statestore.log.state_files import DEFAULT_STORE, store_folder
from pyspark_statestore.parsing import objects, parse_json, parse_object, whole_number
from pyspark_statestore.sparkfiles.records import JavaReader
from pyspark_statestore.storage import Directory
from pyspark_statestore.values import unique_names

DEFAULT_FAMILY = "default"

_COLUMNS = 1 << 16
"""The highest number of a key's columns that is believed: nobody has so many."""

_MULTIPLE_JOIN_FAMILIES = ("-keyWithTsToValues", "-tsWithKey")
"""How the families of a stream-stream join end, in state format 4, in which a key has several values."""


@dataclass(frozen=True)
class Family:
    """The schema of a column family, or of a whole store that has none.

    Attributes:
        name: ``default``, a state variable's name, or one of Spark's own, which begin with ``$``.
        key_json: The schema of the keys, as JSON.
        value_json: The schema of the values, as JSON.
        encoder: The encoder of RocksDB's keys, as in the schema file's JSON: its type and parameters.
        has_many: Whether a key has several values.
    """

    name: str
    key_json: str = field(repr=False)
    value_json: str = field(repr=False)
    encoder: Mapping[str, Any]
    has_many: bool = False


@dataclass(frozen=True)
class StoreSchema:
    """The schema of a store.

    Attributes:
        families: The column families by name.
        is_virtual: Whether they are virtual column families of RocksDB: each key begins with its family's id.
    """

    families: Mapping[str, Family]
    is_virtual: bool


def read_store_schema(directory: Directory, operator_id: int, store_name: str) -> StoreSchema | None:
    """Reads the schema of a store, or returns None where Spark has written none.

    Raises:
        StateStoreFilesError: PSS_UNREADABLE_STATE where it is damaged or of a newer version, or it cannot be read.
    """
    folder = f"state/{operator_id}"
    metadata = _operator_metadata(directory, operator_id)
    info = _store_info(metadata, store_name)
    paths = info.get("stateSchemaFilePaths") or []
    if paths:
        name = str(paths[-1]).rpartition("/")[2]  # the checkpoint may have moved since
        where = f"{folder}/_stateSchema/{store_name}/{name}"
        data = _read(directory, where)
        return None if data is None else _schema_of(directory, where, data, metadata, info)
    where = f"state/{store_folder((operator_id, 0, store_name))}/_metadata/schema"
    data = _read(directory, where)
    return None if data is None else _schema_of(directory, where, data, metadata, info)


def store_names(directory: Directory, operator_id: int) -> list[str]:
    """Returns the names of an operator's stores, as far as its metadata has them."""
    infos = _operator_metadata(directory, operator_id).get("stateStoreInfo", ())
    return sorted(str(info.get("storeName", DEFAULT_STORE)) for info in infos) or [DEFAULT_STORE]


def unreadable(directory: Directory, path: str, reason: object) -> StateStoreFilesError:
    """Returns PSS_UNREADABLE_STATE for one of Spark's own files."""
    text = re.sub(r"\s+", " ", str(reason)).rstrip(".")
    if not isinstance(reason, ValueError) and isinstance(reason, Exception):
        text = f"{type(reason).__name__}: {text}"
    return StateStoreFilesError("PSS_UNREADABLE_STATE", {"path": directory.location.display(path), "reason": text})


class UnknownTypeError(ValueError):
    """A schema has a type that this release cannot read."""


@dataclass(frozen=True)
class SparkType:
    """A type of Spark's.

    Attributes:
        kind: How its bytes are read: ``fixed``, ``boolean``, ``null``, ``decimal``, ``string``, ``binary``,
            ``interval``, ``nanos``, ``variant``, ``struct``, ``array`` or ``map``.
        arrow: The type in Arrow.
        width: The bytes that an element takes in an array: 8, an offset and a size, where its bytes are elsewhere.
        dtype: NumPy's name for a fixed type.
        children: The types of a struct's fields, of an array's elements, or of a map's keys and values.
    """

    kind: str
    arrow: pa.DataType
    width: int = 8
    dtype: str = ""
    children: tuple[SparkType, ...] = ()


_FIXED: Mapping[str, tuple[str, pa.DataType]] = {
    "byte": ("<i1", pa.int8()),
    "short": ("<i2", pa.int16()),
    "integer": ("<i4", pa.int32()),
    "long": ("<i8", pa.int64()),
    "float": ("<f4", pa.float32()),
    "double": ("<f8", pa.float64()),
    "date": ("<i4", pa.date32()),
    "timestamp": ("<i8", pa.timestamp("us", "UTC")),
    "timestamp_ltz": ("<i8", pa.timestamp("us", "UTC")),
    "timestamp_ntz": ("<i8", pa.timestamp("us")),
}

_VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])

_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
"""Arrow's own type has nanoseconds, of which 64 bits hold less than Spark's microseconds."""

_OTHERS: Mapping[str, SparkType] = {
    "boolean": SparkType("boolean", pa.bool_(), 1),
    "void": SparkType("null", pa.null()),
    "null": SparkType("null", pa.null()),
    "string": SparkType("string", pa.string()),
    "binary": SparkType("binary", pa.binary()),
    "interval": SparkType("interval", _INTERVAL),
    "variant": SparkType("variant", _VARIANT),
}


def parse_schema(text: str) -> SparkType:
    """Reads the JSON of a StructType.

    Raises:
        UnknownTypeError: It has an unknown type, or is not the JSON of a StructType.
    """
    try:
        found = _type_of(parse_json(text))
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        if isinstance(error, UnknownTypeError):
            raise
        raise UnknownTypeError(f"its schema cannot be read ({type(error).__name__}: {error})") from error
    if found.kind != "struct":
        raise UnknownTypeError("its schema is not a struct")
    return found


def struct_of(names: list[str], children: tuple[SparkType, ...]) -> SparkType:
    """Returns the type of a struct with these fields. Of fields with one name, all but the first get a number."""
    fields = [pa.field(name, child.arrow) for name, child in zip(unique_names(names), children, strict=True)]
    return SparkType("struct", pa.struct(fields), children=children)


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
        raise ValueError("the name of a store is not text")
    paths = info.get("stateSchemaFilePaths") or []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("its stateSchemaFilePaths are not a list of texts")


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


def _schema_of(
    directory: Directory, where: str, data: bytes, metadata: Mapping[str, Any], info: Mapping[str, Any]
) -> StoreSchema:
    try:
        reader = JavaReader(data)
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


def _family(reader: JavaReader, many: frozenset[str]) -> Family:
    name = reader.text()
    reader.number(2)  # the id of the key's schema, which UnsafeRows do not contain
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


def _type_of(what: Any) -> SparkType:
    if isinstance(what, str):
        return _named(what)
    kind = what["type"]
    if kind == "struct":
        fields = what["fields"]
        return struct_of([str(field["name"]) for field in fields], tuple(_type_of(field["type"]) for field in fields))
    if kind == "array":
        element = _type_of(what["elementType"])
        return SparkType("array", pa.list_(pa.field("element", element.arrow)), children=(element,))
    if kind == "map":
        key, value = _type_of(what["keyType"]), _type_of(what["valueType"])
        return SparkType("map", pa.map_(key.arrow, value.arrow), children=(key, value))
    if kind == "udt":
        return _type_of(what["sqlType"])
    raise UnknownTypeError(f"its schema has the type {kind!r}, which this release does not know")


def _named(name: str) -> SparkType:
    if name in _FIXED:
        dtype, arrow = _FIXED[name]
        return SparkType("fixed", arrow, int(dtype[2:]), dtype)
    if name in _OTHERS:
        return _OTHERS[name]
    for pattern, make in _PATTERNS:
        found = re.fullmatch(pattern, name)
        if found:
            return make(found)
    raise UnknownTypeError(f"its schema has the type {name!r}, which this release does not know")


def _decimal(found: re.Match[str]) -> SparkType:
    return SparkType("decimal", pa.decimal128(int(found[1] or 10), int(found[2] or 0)))


def _nanos(has_zone: bool) -> SparkType:
    """A timestamp with nanoseconds: 64 bits of them, as in Arrow's own type, hold fewer years than Spark's."""
    time = pa.timestamp("us", "UTC" if has_zone else None)
    return SparkType("nanos", pa.struct([("time", time), ("nanoseconds", pa.int16())]))


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], SparkType]], ...] = (
    (r"decimal(?:\((\d+),\s*(-?\d+)\))?", _decimal),
    (r"(?:char|varchar)\(\d+\)", lambda _: _OTHERS["string"]),
    (r"string collate \w+", lambda _: _OTHERS["string"]),
    (r"interval (?:day|hour|minute|second)(?: to \w+)?", lambda _: SparkType("fixed", pa.duration("us"), 8, "<i8")),
    # Months. Arrow has a type for them, but can compute hardly anything with it.
    (r"interval (?:year|month)(?: to \w+)?", lambda _: SparkType("fixed", pa.int32(), 4, "<i4")),
    (r"timestamp_(?:ltz|ntz)\(\d\)", lambda found: _nanos("ltz" in found[0])),
    (r"(?:geometry|geography)(?:\(.*\))?", lambda _: _OTHERS["binary"]),
    (r"time\(\d\)", lambda _: SparkType("fixed", pa.time64("ns"), 8, "<i8")),
)
