"""Damaged lists and manifests of sinks: no row that was readable gets lost, and none is there twice.

The attacks are those on merged files, here on the list, on the manifest of what waits and on a compaction's note.
"""

from __future__ import annotations

import json
import random
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_statestore import Sink, StateStoreFilesError
from tests.conftest import MakeSpark
from tests.damage.attacks import CHANGES
from tests.sampling import sample
from tests.sink.made import line, make, name, put, write_list
from tests.sink.sinks import WAITING, FileSink, rows_of
from tests.sink.test_waiting import LONG, forget

NOW = timedelta(0)
PYTHON_CASES, JAVA_CASES = range(3000), range(300)
LISTED = [f"q={value % 2}/{name(value, '.c000.parquet')}" for value in range(6)]
WAITS = [f"q={value % 2}/{name(value, '.c000.parquet')}" for value in range(10, 13)]
REPLACED = f"q=0/{name(20, '.c000.parquet')}"
PLACES = ("", "_spark_metadata/")
"""Before the names of directories where rows wait and notes are: formerly, and now."""


def world(folder: Path, place: str) -> tuple[Path, list[str], list[str]]:
    """A sink whose files all have sizes of their own; what waits in it; and its small files."""
    sink = make(folder, [])
    waiting, manifest, note = f"{place}_waiting", f"{place}_waiting/1-0a.json", f"{place}_replaced/1.json"
    waits = [f"{waiting}/{path}" for path in WAITS]
    for number, path in enumerate((*LISTED, *waits, REPLACED)):
        put(sink, path, data=bytes(100 + number))
    sizes = {path: (sink / path).stat().st_size for path in (*LISTED, *waits)}
    write_list(sink, [line(f"file:{sink}/{path}", sizes[path]) for path in LISTED[:3]])
    rest = [line(f"file:{sink}/{path}", sizes[path]) for path in LISTED[3:]]
    write_list(sink, [*rest, line(f"file:{sink}/{manifest}", 0, isDir=True)], entry="1")
    files = [{"path": path.removeprefix(f"{waiting}/"), "size": sizes[path], "since": 1} for path in waits]
    put(sink, manifest, data=json.dumps({"batch": 1, "form": "", "files": files}).encode())
    said = {"list": "0", "replaced": [REPLACED], **({"made_by": "0123456789abcdef"} if place else {})}
    put(sink, note, data=json.dumps(said).encode())
    return sink, waits, ["_spark_metadata/0", "_spark_metadata/1", manifest, note]


def attacked(path: Path, chance: random.Random) -> str:
    """Changes a file as anything might; says how."""
    kind = chance.choice(sorted(CHANGES))
    original = path.read_bytes()
    data, what = CHANGES[kind](chance, path.name, original)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_bytes(data)
    return what


def is_a_shorter_list(original: bytes, data: bytes) -> bool:
    """Whether only whole lines are missing, so that nobody can tell."""
    lines = data.removesuffix(b"\n").split(b"\n")
    return lines[0] == b"v1" and set(lines) <= set(original.split(b"\n"))


@pytest.mark.sweep
def test_what_was_listed_or_waited_stays(tmp_path: Path) -> None:
    cut = 0
    for number in sample(PYTHON_CASES, 150):
        chance = random.Random(number)
        sink, waits, small = world(tmp_path / "t1", PLACES[number % 2])
        path = sink / chance.choice(small)
        original = path.read_bytes()
        what = attacked(path, chance)
        before = {each: (sink / each).read_bytes() for each in (*LISTED, *waits)}
        try:
            if not Sink(sink).verify().is_clean:
                what += ", which is said"
            Sink(sink).remove_orphan_files(NOW, dry_run=False, force=True)
        except StateStoreFilesError:
            pass
        lost = [each for each in before if not (sink / each).exists()]
        if lost and path.parent.name == "_spark_metadata" and is_a_shorter_list(original, path.read_bytes()):
            cut += 1
        else:
            assert not lost, (number, path.name, what, lost)
        shutil.rmtree(sink)
    assert cut < 10


@pytest.mark.spark
@pytest.mark.sweep
def test_a_batch_publishes_what_waits_once_or_refuses(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Also where a driver reads a list or a manifest that somebody has damaged."""
    sink = FileSink(make_spark(), tmp_path / "s", "json", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    shutil.copytree(sink.folder, tmp_path / "kept")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    outcomes = set()
    for number in sample(JAVA_CASES, 6):
        shutil.rmtree(sink.folder)
        shutil.copytree(tmp_path / "kept", sink.folder)
        chance = random.Random(number)
        places = [sink.files / "_spark_metadata" / "1", *(sink.files / WAITING).glob("1-*.json")]
        path = chance.choice(places)
        original = path.read_bytes()
        what = attacked(path, chance)
        forget(sink)
        sink.fed = 2
        sink.feed(rows_of(2))
        try:
            sink.run()
        except StreamingQueryException as error:
            assert "PSS_SINK_COMPACTION_FAILED" in str(error) or "_spark_metadata" in str(error), (number, what, error)
            outcomes.add("refused")
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            path.write_bytes(original)
            forget(sink)
            sink.run()
        else:
            outcomes.add("done")
            if path.parent.name == "_spark_metadata":  # readers go by what the driver did not need, too
                path.write_bytes(original)
        assert sink.ids() == list(range(120)), (number, path.name, what)
        assert victim.read_bytes() == b"precious"
    assert "refused" in outcomes
