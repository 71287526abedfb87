"""A checkpoint from somebody else, with all the small files that Spark and this package leave; and verbs."""

from __future__ import annotations

import datetime
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import file_name
from tests.inspect.builders import CREATED_MS, STAMP, merged_file, plain_file
from tests.inspect.spark_files import lz4, snappy
from tests.maintenance.builders import write_logs
from tests.migration.builders import MERGED, offsets_text
from tests.report.pages import Page
from tests.state.small_stores import changelog, delta, java_text, pairs, schema_json, write_schema

Contents = dict[str, bytes]
"""Files by their paths in the checkpoint."""

NOW = datetime.timedelta(0)
MERGED_FOLDER = "state/_merged"
IDS = ("aaaa", "bbbb", "cccc")


def beside(number: int, suffix: str) -> str:
    """The name of a small file beside the merged ones."""
    return f"{MERGED_FOLDER}/{file_name(CREATED_MS + number, 7, number).removesuffix('.merged')}{suffix}"


def snapshot(metadata: Mapping[str, Any]) -> bytes:
    """A snapshot's zip, with what the metadata says."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("MANIFEST-000005", b"x")
        archive.writestr("OPTIONS-000007", b"merge_operator=nullptr\n")
        archive.writestr("metadata", "v1\n" + json.dumps(metadata))
    return out.getvalue()


def kept(entries: Mapping[str, str]) -> bytes:
    """What a conversion keeps of what it replaced."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return out.getvalue()


def everything(folder: Path) -> Contents:
    """Two operators, of RocksDB with checkpoint ids and of the heap store; logs; kin; an export that was begun."""
    write_logs(folder, range(3))
    write_schema(folder)
    for batch in range(3):
        (folder / "offsets" / str(batch)).write_text(offsets_text(MERGED, batch))
        ids = {"stateUniqueIds": {"0": [[IDS[batch]], [IDS[batch]]]}, "nextBatchWatermarkMs": 0}
        (folder / "commits" / str(batch)).write_text("v2\n" + json.dumps(ids))
    for partition in range(2):
        for version, each in enumerate(IDS, 1):
            past = [(at, IDS[at - 1]) for at in range(1, version)]
            plain_file(folder, f"0/{partition}/{version}_{each}.changelog", changelog({(version, 1): (3,)}, past))
        files = [{"localFileName": "000008.sst", "dfsSstFileName": "000008-x.sst", "sizeBytes": 20}]
        said = {"sstFiles": files, "logFiles": [], "columnFamilyMapping": {"default": 0}}
        plain_file(folder, f"0/{partition}/3_cccc.zip", snapshot(said))
        plain_file(folder, f"0/{partition}/SSTs/000008-x.sst", b"s" * 20)
    value = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
    value["stateSchemaFilePaths"] = ["file:/elsewhere/state/1/_stateSchema/default/0_x"]
    said = {"operatorInfo": {"operatorId": 1}, "stateStoreInfo": [value], "operatorPropertiesJson": "{}"}
    plain_file(folder, "1/_metadata/v2/0", b"v2\n" + json.dumps(said).encode())
    plain_file(folder, "1/_stateSchema/default/0_x", schema_of_families())
    for partition in range(2):
        plain_file(folder, f"1/{partition}/1.delta", delta({(1, 1): (2,)}))
        plain_file(folder, f"1/{partition}/2.snapshot", lz4(pairs({(1, 1): (2,)})))
        plain_file(folder, f"1/{partition}/3.delta", snappy(pairs({(1, 2): (3,)})))
    plain_file(folder, "1/0/1.delta.crc", b'{"algorithm":"CRC32C","value":1,"mainFileSize":9,"timestampMs":1}')
    (folder / "metadata").write_text('{"id":"4f5b"}')
    source = folder / "sources" / "0" / "0"
    source.parent.mkdir(parents=True)
    source.write_text('v1\n{"path":"a"}')
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found["_replaced/1760000000000-aa.zip"] = kept({"offsets/0": offsets_text(MERGED, 0)})
    return found


def kin(path: Path) -> Contents:
    """What forks leave."""
    pin = {"fork": "/a/fork", "mode": "no_claim", "files": [file_name(CREATED_MS + 1, 7, 1)], "created_ms": 1}
    origin = {"source": str(path / "none"), "url": "file:///none", "version": 3, "mode": "claim", "created_ms": 5}
    return {beside(8, ".fork"): json.dumps(pin).encode(), beside(9, ".origin"): json.dumps(origin).encode()}


def marker() -> Contents:
    """What an export leaves that was begun."""
    progress = {"commits": 2, "commit_crc32c": 7}
    said = {"created_ms": 1, "highest_stamp": STAMP << 1, "replaces": [], "progress": progress}
    return {beside(7, ".exporting"): json.dumps(said).encode()}


def schema_of_families() -> bytes:
    """A schema file of version 3."""

    def chunk(text: str) -> bytes:
        return (1).to_bytes(4, "big") + java_text(text)

    family = java_text("default") + bytes(2) + chunk(schema_json(("user",))) + bytes(2) + chunk(schema_json(("n",)))
    family += chunk('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}') + bytes(4)
    return java_text("v3") + (1).to_bytes(4, "big") + family


def write(folder: Path, contents: Contents, *, merged: bool) -> Path:
    """Makes the checkpoint; state files in a merged file, with the right checksums, if so wanted."""
    segments = {}
    for path, data in contents.items():
        inside = path.removeprefix("state/")
        if merged and path.startswith("state/") and not inside.startswith("_") and "/_" not in inside:
            segments[inside] = data
        else:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    with merged_file(folder, 1, plain=True) as out:
        for number, (path, data) in enumerate(segments.items()):
            out.put(path, data, stamp=STAMP + number)
    return folder


Verb = Callable[[Path, Path], object]
"""Does something with a checkpoint; in the second directory there is nothing."""


def _at(path: Path) -> Checkpoint:
    return Checkpoint(path, closed_after=NOW)


LOOKS: dict[str, Verb] = {
    "files": lambda path, _: _at(path).inspect.files(),
    "segments": lambda path, _: _at(path).inspect.segments(),
    "versions": lambda path, _: _at(path).inspect.versions(),
    "summary": lambda path, _: _at(path).inspect.summary(),
    "report": lambda path, _: Page(_at(path).report().html),
    "state": lambda path, _: _at(path).state(0),
    "state at 2": lambda path, _: _at(path).state(0, version=2),
    "state of families": lambda path, _: _at(path).state(1),
    "state at 3": lambda path, _: _at(path).state(1, version=3),
    "changes": lambda path, _: _at(path).state_changes(1, 2),
    "verify": lambda path, _: _at(path).maintenance.verify(),
    "fork dry": lambda path, to: Checkpoint(path).fork(to / "f", dry_run=True),
}
CHANGES: dict[str, Verb] = {
    "fork": lambda path, to: Checkpoint(path).fork(to / "f"),
    "fork copy": lambda path, to: Checkpoint(path).fork(to / "f", "copy"),
    "claim": lambda path, to: Checkpoint(path).fork(to / "f", "claim", force=True),
    "export": lambda path, to: _at(path).export(force=True),
    "export to": lambda path, to: _at(path).export(to / "e", force=True),
    "to stock": lambda path, to: _at(path).convert("stock", force=True),
    "to merged": lambda path, to: _at(path).convert("merged", force=True),
    "drop": lambda path, to: _at(path).drop_merged(dry_run=False, force=True),
    "expire": lambda path, to: _at(path).maintenance.expire(1, dry_run=False, force=True),
    "orphans": lambda path, to: _at(path).maintenance.remove_orphan_files(NOW, dry_run=False, force=True),
    "compact": lambda path, to: _at(path).maintenance.compact(),
    "consolidate": lambda path, to: _at(path).maintenance.consolidate_index(),
    "repair": lambda path, to: _at(path).maintenance.verify(repair=True),
}
COMMANDS: dict[str, list[str]] = {
    "summary": [],
    "versions": ["--format", "json"],
    "report": ["-o", "-"],
    "state": [],
    "verify": [],
    "show": [],
    "convert": ["--to", "stock", "--dry-run"],
    "export": ["--dry-run"],
    "expire": ["--retain-last", "1"],
    "orphans": [],
}


def copied(folder: Path, to: Path) -> Path:
    """Another checkpoint of the same content; links stay links."""
    shutil.copytree(folder, to, symlinks=True)
    return to
