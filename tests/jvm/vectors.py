"""The committed vector files. ``python -m tests.jvm.vectors`` writes them anew, for a new version of the format."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark_statestore.format import (
    BytesSource,
    Kind,
    MergedFileWriter,
    file_name,
    foreign_path,
    name_ending,
    read_merged_file,
)
from tests.class_data import TEST_JAR
from tests.jvm.harness import CREATED_MS, STAMP, dump, java_dump

DIRECTORY = Path(__file__).resolve().parent.parent / "vectors"
WRITER = 0x0123456789ABCDEF

SAYS = {
    "java-empty": "a header and no group: the writer died after its first write",
    "java-one-group": "one flush, two segments, one of them empty",
    "java-groups-and-tombstones": "three flushes, a tombstone in the second, a path that is not ASCII in the third",
    "java-sealed": "two flushes, then a cumulative index that repeats both",
    "java-sealed-at-once": "as object stores want it: the only group is the cumulative index, too",
    "java-index-only": "an entry of another file, the second of the name table",
    "java-reference": "a segment in a file of another checkpoint, the second of the name table",
    "java-torn": "one flush, then payload that no trailer ever followed",
    "java-fronts": "three groups with fronts, the last shorter than announced and filled up with zeros, then a seal",
    "java-fronts-index-only": "a tombstone of one file and a segment of another, in one group with a front",
    "java-fronts-torn": "a group with a front, then the front of one that was never finished",
    "python-fronts": "two groups with fronts and a seal that brings another segment along",
    "python-whole": "a file that got its name when it was sealed",
    "python-relocated": "segments of two other writers, copied with their keys, and a tombstone carried over",
    "python-growing": "three flushes without a seal, the second of tombstones alone",
    "python-sealed": "one flush, then a seal that brings another segment along",
    "python-index-only": "the entries of two sealed files, a tombstone among them",
    "python-second-paths": "a reference file that gives segments, of an own file too, other paths",
    "python-reference": "segments in files of two other checkpoints, one of them at the root",
}


NAMES = DIRECTORY / "names.txt"
"""Names of files beside merged files, each after what its ending is; quoted, since some cannot be seen."""

_OUR = (
    "1700000000000-0123456789abcdef-7",
    "0000000000000-ffffffffffffffff-0",
    "9999999999999-0000000000000000-2147483647",
)
_ENDINGS = (
    *(".merged", ".index.merged", ".relocating", ".fork", ".fork.away", ".own", ".origin"),
    *(".exporting", ".exported", ".dropping", ".running", ".ended"),
)
_NOT_OURS = (
    *(".DS_Store", "Thumbs.db", "desktop.ini", "_SUCCESS", ".nfs000000000a1b2c3d00000001", "lost+found", "", " ", "-"),
    *("._{}", ".{}.crc", "{}.crc", ".{}.swp", ".#{}", "#{}#", "{}~", "{}.bak", "{}._COPYING_", ".{}", "_{}", "~${}"),
    *(
        "Copy of {}",
        "Kopie von {}",
        "{} ",
        " {}",
        "{}\n",
        "\n{}",
        "{}\r",
        "{}\0",
        "\ufeff{}",
        "\u202e{}",
        "{}/",
        "./{}",
        "x/{}",
    ),
    *("backup-{}", "{}.gz", "{}.tmp", "{}.merged.merged", "{}.away.away", "{}.index", ".{}.{}.tmp", "{}{}"),
)


def names() -> list[tuple[str, str]]:
    """Names with what Python says that they are: each of ours, each with one thing changed, and what others leave."""
    found = [our + ending for our in _OUR for ending in _ENDINGS]
    found += [pattern.replace("{}", name) for pattern in _NOT_OURS for name in found[: len(_ENDINGS)]]
    whole = found[0]
    for at, letter in enumerate(whole):
        found += [whole[:at] + whole[at + 1 :], whole[:at] + letter + whole[at:]]
        found += [whole[:at] + other + whole[at + 1 :] for other in "0aAgz.-_ \u0660\u00e9\uff10" if other != letter]
    for ending in _ENDINGS:
        stem = _OUR[0]
        found += [stem + ending.upper(), stem + ending.replace(".", "x"), f"{stem} (1){ending}", f"{stem} 2{ending}"]
        found += [stem + other + ending for other in _ENDINGS]
        found += [f"17000000000000-0123456789abcdef-1{ending}", f"1700000000000-0123456789abcdef-12345678901{ending}"]
        found += [f"1700000000000-0123456789abcdef-{ending}", f"1700000000000-0123456789ABCDEF-1{ending}", ending]
    return [(name, name_ending(name)) for name in dict.fromkeys(found)]


def write_names() -> None:
    """Writes the names and what they are."""
    lines = [f"{ending or 'not ours':<13} {json.dumps(name)}\n" for name, ending in names()]
    NAMES.write_text("".join(lines), encoding="ascii")


def read_names() -> dict[str, str]:
    """What is committed: names, with their endings, which are empty where a name is not ours."""
    found = [(line[14:], line[:13].strip()) for line in NAMES.read_text(encoding="ascii").splitlines()]
    return {json.loads(name): "" if ending == "not ours" else ending for name, ending in found}


def write_python(directory: Path) -> None:
    """Writes the Python half."""
    meta: dict[str, str | bool] = {"app_id": "vectors", "executor_id": "7", "plain": True}
    with (directory / "python-relocated.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
        file.put("0/3/41.changelog", b"of writer 5", stamp=STAMP + 1, writer=5, generation=1)
        file.put("0/3/SSTs/000009-\u00fc.sst", bytes(range(200)), stamp=STAMP + 2, writer=2**63 - 1, generation=65_535)
        file.delete("0/3/40.changelog", stamp=STAMP, writer=5)
        file.seal(group_stamp=STAMP + 9)
    with (directory / "python-growing.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS)
        file.put("1/0/left-keyToNumValues/1.delta", b"left", stamp=STAMP + 1)
        file.put("1/0/right-keyToNumValues/1.delta", b"right", stamp=STAMP + 2)
        file.end_group()
        file.delete("1/0/left-keyToNumValues/1.delta", stamp=STAMP + 1, writer=WRITER)
        file.end_group(group_stamp=STAMP + 3)
        file.put("1/0/left-keyToNumValues/2.snapshot", b"", stamp=STAMP + 4)
        file.end_group()
    with (directory / "python-sealed.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
        file.put("0/0/1.changelog", b"one", stamp=STAMP + 1)
        file.end_group()
        file.put("0/0/1.changelog.crc", b"crc", stamp=STAMP + 2)
        file.seal()
    with (directory / "python-fronts.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta={**meta, "fronts": True})
        file.put("0/0/1.changelog", b"one", stamp=STAMP + 1)
        file.end_group()
        file.end_group(group_stamp=STAMP + 2)
        file.put("0/0/2.changelog", b"two", stamp=STAMP + 3)
        file.seal()
    with (directory / "python-whole.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta={**meta, "whole": True})
        file.put("0/0/1.changelog", b"one", stamp=STAMP + 1)
        file.seal()
    sources = {number: (directory / f"python-{kind}.merged") for number, kind in ((1, "relocated"), (2, "sealed"))}
    with (directory / "python-index-only.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
        entries = {
            file_name(CREATED_MS, WRITER, number): list(read_merged_file(BytesSource(path.read_bytes())))
            for number, path in sources.items()
        }
        file.seal_index_only(entries, group_stamp=STAMP + 20)
    with (directory / "python-reference.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
        puts = {
            number: [entry for entry in read_merged_file(BytesSource(path.read_bytes())) if entry.kind is Kind.PUT]
            for number, path in sources.items()
        }
        references = {
            foreign_path("/checkpoints/b\u00fccher", file_name(CREATED_MS, WRITER, 1)): puts[1],
            foreign_path("/", file_name(CREATED_MS, WRITER, 2)): puts[2],
        }
        file.seal_references(references, group_stamp=STAMP + 30)
    with (directory / "python-second-paths.merged").open("wb") as out:
        file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
        second = {
            name: [replace(entry, path=f"1{entry.path}", stamp=STAMP + 31 + number) for entry in puts[number]]
            for number, name in enumerate([file_name(CREATED_MS, WRITER, 1), next(iter(references))], start=1)
        }
        file.seal_references(second, group_stamp=STAMP + 40)


def write_java(jvm: Any, directory: Path) -> None:
    """Writes the Java half."""
    scratch = directory / "written-by-java"
    jvm.io.pyspark.statestore.format.VectorFiles.write(str(scratch))
    for path in scratch.iterdir():
        path.rename(directory / f"java-{path.name}")
    scratch.rmdir()


def describe(jvm: Any, path: Path) -> dict[str, Any]:
    """What a vector's JSON file says: what it shows, the facts as its writer's own reader sees them, its segments."""
    data = path.read_bytes()
    facts = java_dump(jvm, path) if path.name.startswith("java-") else dump(data)
    here = [e for group in facts["groups"] for e in group["entries"] if e["kind"] == Kind.PUT and not e["file_ref"]]
    segments = {entry["path"]: data[entry["offset"] : entry["offset"] + entry["length"]].hex() for entry in here}
    return {"says": SAYS[path.stem], "facts": facts, "segments": segments}


def main() -> None:
    """Writes the files and what is in them."""
    from pyspark import SparkContext

    from pyspark_statestore import jar_path

    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {jar_path()}{os.pathsep}{TEST_JAR} pyspark-shell"
    SparkContext._ensure_initialized()
    DIRECTORY.mkdir(exist_ok=True)
    write_java(SparkContext._jvm, DIRECTORY)
    write_python(DIRECTORY)
    write_names()
    for path in sorted(DIRECTORY.glob("*.merged")):
        described = describe(SparkContext._jvm, path)
        path.with_suffix(".json").write_text(json.dumps(described) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
