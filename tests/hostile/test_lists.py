"""Lists of sinks, manifests and notes from somebody else: an answer or one of the package's errors; nothing is lost."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.cli.main import cli
from pyspark_statestore.plot import plot_sink
from pyspark_statestore.sink.file_list import LONGEST_LINE
from pyspark_statestore.storage.directory import LARGEST_WHOLE
from tests.hostile.mutations import TEXTS, mutated
from tests.hostile.test_bombs import little_memory
from tests.sampling import sample
from tests.sink.made import line, make, name, present, put, write_list

AT_ONCE = timedelta(0)
LISTED = [f"q={value}/{name(value, '.c000.snappy.parquet')}" for value in range(3)]
WAITS = f"q=1/{name(8, '.c000.snappy.parquet')}"
LEFT = f"q=1/{name(9, '.c000.snappy.parquet')}"
MUTATIONS = range(400)
FIELDS = ("path", "size", "isDir", "modificationTime", "blockReplication", "blockSize", "action")


PLACES = ("", "_spark_metadata/")
"""Before the names of directories where rows wait and notes are: formerly, and now."""


def world(folder: Path, place: str = "") -> Path:
    """A sink in which rows wait, with what a compaction and a failed batch have left; and somebody else's file."""
    put(folder / "victim", name(7))
    sink = make(folder / "t1", LISTED)
    manifest = {"batch": 1, "form": "", "files": [{"path": WAITS, "size": 4, "since": 1}]}
    put(sink, f"{place}_waiting/{WAITS}", LEFT)
    put(sink, f"{place}_waiting/1-0a.json", data=json.dumps(manifest).encode())
    note = {"list": "0", "replaced": [f"q=0/{name(6)}"], **({"made_by": "0123456789abcdef"} if place else {})}
    put(sink, f"{place}_replaced/1.json", data=json.dumps(note).encode())
    write_list(sink, [line(f"file:{sink}/{place}_waiting/1-0a.json", 0, isDir=True)], entry="1")
    return sink


def looked_at(sink: Path, picture: Path | None = None) -> list[str]:
    """The ids of the errors of all verbs that change nothing, perhaps with a picture, which takes longer."""
    made = Sink(sink)
    verbs: list[Any] = [made.files, made.log, made.waiting, made.verify, made.report, made.remove_orphan_files]
    if picture:
        verbs.append(lambda: plot_sink(made, picture))
    said = []
    for verb in verbs:
        try:
            verb()
        except StateStoreFilesError as error:
            str(error).encode()  # it can be printed
            said.append(error.getErrorClass())
    for command in ("files", "log", "waiting", "verify", "orphans"):
        for output in ("table", "json"):
            done = CliRunner().invoke(cli, ["sink", command, str(sink), "--output", output])
            assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
            assert "\x1b" not in done.output
            assert "Traceback" not in done.output
    return said


@pytest.mark.parametrize("field", FIELDS)
def test_any_value_in_a_line(tmp_path: Path, field: str) -> None:
    sink = world(tmp_path)
    before = present(tmp_path)
    for number, text in enumerate(TEXTS):
        said = json.loads(line(f"file:{sink}/{LISTED[0]}"))
        said[field] = "put-it-here"
        write_list(sink, [json.dumps(said).replace('"put-it-here"', text)])
        looked_at(sink, tmp_path / "picture.png" if number < 2 else None)
    assert present(tmp_path) - {"picture.png"} == before


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, '{"path":' * 100_000, "[]", "null", "{}", '"x"', "1" * 5000, "\ufeff{}", ""),
        line("file:/x\\ud800").replace("\\\\", "\\"),
        line("file:/%zz"),
        line("file:/%ff"),
        line("file://[/x"),
        line("file:/" + "x" * LONGEST_LINE),
        line("file:/x", modificationTime=10**30),
        line("file:/x", size=1 << 60),
        line("file:/x", size=-1),
        line("file:/x", size=True),
        line("file:/x", size=float("nan")),
    ],
    ids=lambda text: ascii(text)[:25],
)
def test_what_is_no_line_is_one_error(tmp_path: Path, text: str) -> None:
    sink = world(tmp_path)
    write_list(sink, [text, line(f"file:{sink}/{LISTED[0]}")])
    before = present(tmp_path)

    with pytest.raises(StateStoreFilesError, match=r"PSS_DAMAGED_SINK_LIST.*/0 .* line 2:"):
        Sink(sink).files()
    with pytest.raises(StateStoreFilesError, match="PSS_DAMAGED_SINK_LIST"):
        Sink(sink).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert present(tmp_path) == before


def test_times_that_no_calendar_has_are_null(tmp_path: Path) -> None:
    sink = make(tmp_path / "t1", LISTED)
    urls = [f"file:{sink}/{path}" for path in LISTED]
    write_list(sink, [line(urls[0], modificationTime=(1 << 63) - 1), line(urls[1], modificationTime=-1), line(urls[2])])

    times = Sink(sink).files()["last_modified_at"].to_pylist()

    assert [time is None for time in times] == [True, False, False]
    assert looked_at(sink, tmp_path / "picture.png") == []


def test_a_list_that_is_too_large_to_be_read_at_once(tmp_path: Path) -> None:
    """As of a million files; here of fewer with long names."""
    sink = make(tmp_path / "t1", LISTED)
    urls = [f"file:{sink}/q={number:010}{'x' * 200}/{name(number)}" for number in range(5000)]
    write_list(sink, [line(url, comment="x" * 55_000) for url in urls], entry="9.compact")
    size = (sink / "_spark_metadata" / "9.compact").stat().st_size
    assert size > LARGEST_WHOLE

    with little_memory():
        files, log = Sink(sink).files(), Sink(sink).log()

    assert files.num_rows == 5000
    assert log["entry_count"].to_pylist()[-1] == 5000
    assert log["file_size_in_bytes"].to_pylist()[-1] == size


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "path",
    ["../../victim/{name}", "/etc/passwd", "..", ".", "", "a/../../x", "q=1//x", "q=1/./x", "x/", "a\\u0000b", 1, None],
)
def test_a_manifest_names_what_waits_in_its_sink(tmp_path: Path, path: object, place: str) -> None:
    sink = world(tmp_path, place)
    said = path.format(name=name(7)) if isinstance(path, str) else path
    manifest = {"batch": 1, "form": "", "files": [{"path": said, "size": 4, "since": 1}]}
    put(sink, f"{place}_waiting/1-0a.json", data=json.dumps(manifest).replace("\\\\u", "\\u").encode())
    before = present(tmp_path)

    for verb in (Sink(sink).waiting, lambda: Sink(sink).remove_orphan_files(AT_ONCE, dry_run=False, force=True)):
        with pytest.raises(StateStoreFilesError, match="PSS_READ_FAILED.*1-0a.json.*no path of a file that waits"):
            verb()
    assert present(tmp_path) == before


@pytest.mark.sweep
def test_changed_lists_manifests_and_notes(tmp_path: Path) -> None:
    """What is listed, what waits and what is somebody else's stays, whatever is in the small files of a sink."""
    for number in sample(MUTATIONS, 40):
        chance = random.Random(number)
        folder = tmp_path / str(number)
        place = PLACES[number % 2]
        sink = world(folder, place)
        small = ["_spark_metadata/0", "_spark_metadata/1", f"{place}_waiting/1-0a.json", f"{place}_replaced/1.json"]
        for path in chance.sample(small, chance.choice((1, 1, 2))):
            put(sink, path, data=mutated((sink / path).read_bytes(), chance))
        looked_at(sink)
        whole = {path: (sink / path).read_bytes() for path in (*LISTED, f"{place}_waiting/{WAITS}")}
        try:
            named = set(Sink(sink).files()["file_path"].to_pylist())
            waits = set(Sink(sink).waiting()["file_path"].to_pylist())
            Sink(sink).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
        except StateStoreFilesError:
            named = waits = {f"file://{sink / path}" for path in whole}  # then nothing goes
        for path, data in whole.items():
            if f"file://{sink / path}" in named | waits:
                assert (sink / path).read_bytes() == data, (number, path)
        assert (folder / "victim" / name(7)).exists(), number
