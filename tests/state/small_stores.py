"""Checkpoints of a store with small integers, written here as Spark writes them; no Spark is needed."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.inspect.builders import STAMP, merged_file, plain_file

Row = tuple[int | None, ...]
Changes = Mapping[Row, Row | None]
"""Values by key; None stands for a deletion."""

KEY = ("user", "day")
VALUE = ("clicks",)


def row_bytes(row: Row) -> bytes:
    """An UnsafeRow of longs, at most 64."""
    nulls = sum(1 << number for number, value in enumerate(row) if value is None)
    return struct.pack(f"<Q{len(row)}q", nulls, *(value or 0 for value in row))


def compressed(data: bytes) -> bytes:
    """One of the codecs that Spark knows."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def java_text(text: str) -> bytes:
    """``writeUTF``."""
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def pairs(changes: Changes, mark: bytes = b"") -> bytes:
    """What a delta has, or with a mark before each row a changelog."""
    parts = []
    for key, value in changes.items():
        encoded = mark + row_bytes(key)
        parts.append(struct.pack(">i", len(encoded)) + encoded)
        if value is None:
            parts.append(struct.pack(">i", -1))
        else:
            encoded = mark + row_bytes(value)
            parts.append(struct.pack(">i", len(encoded)) + encoded)
    return b"".join(parts) + struct.pack(">i", -1)


def delta(changes: Changes) -> bytes:
    """A delta or a snapshot of the heap store."""
    return compressed(pairs(changes))


def changelog(changes: Changes, lineage: Sequence[tuple[int, str]]) -> bytes:
    """A changelog of RocksDB with checkpoint format 2, which names the attempts that it follows."""
    items = [{"version": version, "checkpointUniqueId": each} for version, each in lineage]
    return compressed(java_text("v3") + java_text(json.dumps(items)) + pairs(changes, b"\0"))


def schema_json(names: Sequence[str], types: Mapping[str, str] | None = None) -> str:
    """The JSON of a StructType; of longs, unless types say otherwise."""
    of = types or {}
    fields = [{"name": name, "type": of.get(name, "long"), "nullable": True, "metadata": {}} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


def write_schema(checkpoint: Path, key: str | None = None, value: str | None = None, version: str = "v2") -> Path:
    """The schema file of operator 0's store, and the operator's metadata."""
    folder = checkpoint / "state" / "0"
    text = java_text(version)
    for each in (key or schema_json(KEY), value or schema_json(VALUE)):
        text += (struct.pack(">i", 1) if version == "v2" else b"") + java_text(each)
    (folder / "0" / "_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "0" / "_metadata" / "schema").write_bytes(text)
    (folder / "_metadata").mkdir(exist_ok=True)
    info = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
    stores = {"stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}]}
    (folder / "_metadata" / "metadata").write_text("v1\n" + json.dumps({**info, **stores}))
    return folder / "0" / "_metadata" / "schema"


def commit(checkpoint: Path, batch: int, **metadata: Any) -> None:
    """A batch's entry in the commit log."""
    (checkpoint / "commits").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text("v2\n" + json.dumps(metadata))


HISTORY: dict[int, dict[int, Changes]] = {
    0: {
        1: {(1, 1): (10,), (2, 1): (20,), (4, None): (40,)},
        2: {(1, 1): (11,), (1, 2): (12,)},
        3: {(2, 1): None, (4, None): (None,)},
    },
    1: {1: {(3, 1): (30,)}, 2: {}, 3: {(3, 2): (32,)}},
}
"""What each version of each partition changes."""


def state_at(version: int) -> dict[tuple[int, Row], Row]:
    """What a version has, by partition and key."""
    found: dict[tuple[int, Row], Row] = {}
    for partition, versions in HISTORY.items():
        for number in range(1, version + 1):
            for key, value in versions[number].items():
                if value is None:
                    del found[partition, key]
                else:
                    found[partition, key] = value
    return found


def write_store(checkpoint: Path, *, merged: bool = False) -> Path:
    """A heap store with the history; version 2 has a snapshot, too."""
    write_schema(checkpoint)
    files = {f"0/{p}/{v}.delta": delta(changes) for p, versions in HISTORY.items() for v, changes in versions.items()}
    for partition in HISTORY:
        state = {key: value for (of, key), value in state_at(2).items() if of == partition}
        files[f"0/{partition}/2.snapshot"] = delta(state)
    if merged:
        with merged_file(checkpoint, 1) as file:
            for number, (path, data) in enumerate(files.items()):
                file.put(path, data, stamp=STAMP + number)
    else:
        for path, data in files.items():
            plain_file(checkpoint, path, data)
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    for batch in range(3):
        (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n{}")
        commit(checkpoint, batch)
    return checkpoint
