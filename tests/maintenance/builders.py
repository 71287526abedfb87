"""A small checkpoint with all that Spark would leave, merged or not, and ways to damage it."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import google_crc32c

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import BytesSource, Entry, MergedFile, read_merged_file
from pyspark_statestore.log.damage import Damage
from pyspark_statestore.maintenance.verify.verification import Verification
from tests.inspect.builders import STAMP, merged_file, merged_paths, plain_file
from tests.inspect.spark_files import changelog, lz4, snapshot

KINDS = ("merged", "plain", "mixed")
PARTITIONS = 2
LAST = 3
"""The last committed batch; the state after it is version 4."""


def files_of_version(partition: int, version: int, randbytes: Callable[[int], bytes] = os.urandom) -> dict[str, bytes]:
    """What a store writes for a version: a changelog; with each second one a snapshot with one new file."""
    folder = f"0/{partition}"
    files = {f"{folder}/{version}.changelog": lz4(changelog(None, rest=randbytes(50)))}
    if version % 2 == 0:
        sst = randbytes(200)
        name = f"00000{version}-{partition}"
        named = [{"dfsSstFileName": f"{name}.sst", "sizeBytes": len(sst)}]
        files[f"{folder}/SSTs/{name}.sst"] = sst
        files[f"{folder}/{version}.zip"] = snapshot(json.dumps({"sstFiles": named}))
    return files


def write_version(checkpoint: Path, version: int, *, merged: bool, leave_out: Iterable[str] = ()) -> None:
    """Version ``n`` of all partitions, as a merged file with a group or as plain files."""
    files = {path: data for p in range(PARTITIONS) for path, data in files_of_version(p, version).items()}
    files = {path: data for path, data in files.items() if path not in set(leave_out)}
    if merged:
        with merged_file(checkpoint, version, plain=True) as out:
            for number, (path, data) in enumerate(files.items()):
                out.put(path, data, stamp=STAMP + 100 * version + number)
    else:
        for path, data in files.items():
            plain_file(checkpoint, path, data)


def write_logs(checkpoint: Path, batches: Iterable[int]) -> None:
    """Spark's own files: what was committed, and which stores there are."""
    for batch in batches:
        for log, text in (("offsets", "v1\n{}\n{}"), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
            path = checkpoint / log / str(batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": [store]}
    plain_file(checkpoint, "0/_metadata/metadata", b"v1\n" + json.dumps(operator).encode())


def make(checkpoint: Path, kind: str = "merged") -> Path:
    """Batches 0 to 3; a mixed checkpoint was begun without merging."""
    write_logs(checkpoint, range(LAST + 1))
    for version in range(1, LAST + 2):
        write_version(checkpoint, version, merged=kind == "merged" or (kind == "mixed" and version > 2))
    return checkpoint


def companion(checkpoint: Path, path: str) -> None:
    """Spark's checksum beside a plain file."""
    data = (checkpoint / "state" / path).read_bytes()
    value = google_crc32c.value(data)
    value = value - (1 << 32) if value >= 1 << 31 else value
    text = json.dumps({"algorithm": "CRC32C", "value": value, "mainFileSize": len(data), "timestampMs": 1})
    plain_file(checkpoint, f"{path}.crc", text.encode())


def verify(checkpoint: Path | str, **how: object) -> Verification:
    """What the package says."""
    storage = how.pop("storage_options", None)
    return Checkpoint(checkpoint, storage).maintenance.verify(**how)  # type: ignore[arg-type]


def damages(checkpoint: Path) -> list[tuple[str, str, int | None, str | None]]:
    """Kind, path below the checkpoint, offset and logical path of all damages; ``is_clean`` says the same."""
    found = verify(checkpoint)
    assert found.is_clean is not bool(found.damages)
    return [short(checkpoint, each) for each in found.damages]


def short(checkpoint: Path, found: Damage) -> tuple[str, str, int | None, str | None]:
    """One damage."""
    prefix = f"file://{checkpoint}/"
    assert found.path.startswith(prefix), found
    return found.kind, found.path.removeprefix(prefix), found.offset, found.logical_path


def merged_name(path: Path) -> str:
    """Path of a merged file below its checkpoint."""
    return f"state/_merged/{path.name}"


def index_of(path: Path) -> MergedFile:
    """The index of a merged file."""
    return read_merged_file(BytesSource(path.read_bytes()), path.name)


def entry_of(checkpoint: Path, logical_path: str) -> tuple[Path, Entry]:
    """The merged file that holds a segment, and its entry; there is only one."""
    [found] = [
        (path, each)
        for path in merged_paths(checkpoint)
        if ".index." not in path.name
        for each in index_of(path)
        if each.path == logical_path
    ]
    return found


def flip(path: Path, offset: int) -> None:
    """Changes one bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(bytes(data))


def contents(checkpoint: Path) -> Mapping[str, str]:
    """Every file below a directory."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {str(path.relative_to(checkpoint)): base64.b64encode(path.read_bytes()).decode() for path in files}


def copy_as(path: Path, name: str) -> Path:
    """A second file with the same bytes."""
    return Path(shutil.copy2(path, path.with_name(name)))
