"""What a removal of orphans leaves alone: all that a query of the sink cannot have written, and all that is listed."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.cli.main import cli
from tests.sink.made import line, make, name, present, put, write_list

AT_ONCE = timedelta(0)
LISTED = [f"q=0/{name(1, '.c000.snappy.parquet')}", f"q=1/{name(2, '.c000.snappy.parquet')}"]
LEFT = f"q=1/{name(3, '.c000.snappy.parquet')}"


def removed(folder: Path) -> set[str]:
    """What a removal takes."""
    before = present(folder)
    Sink(folder).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    return before - present(folder)


@pytest.mark.parametrize(
    "others",
    [
        ["checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/commits/0", "checkpoint/state/0/0/1.delta"],
        ["checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/sources/0/0"],  # its first batch has failed
        ["p=1/sink/_spark_metadata/0", f"p=1/sink/q=1/{name(5)}"],
        ["p=1/_spark_metadata/0", f"p=1/q=1/{name(5)}"],
        ["t=1/_delta_log/00000000000000000000.json", f"t=1/{name(5, '-c000.snappy.parquet')}"],
        ["t=1/.hoodie/hoodie.properties", f"t=1/q=1/{name(5)}"],
        ["t=1/metadata/v1.metadata.json", f"t=1/data/q=1/{name(5)}", f"t=1/data/{name(6)}"],
        ["t=1/_SUCCESS", f"t=1/{name(5)}"],
        [f"table/{name(5)}", f"table/q=1/{name(6)}"],
        ["q=1/notes.txt", "README.md", "q=1/00000-0-1b4e28ba-2fa1-11d2-883f-0016d3cca427-00001.parquet"],
        [f"q=1/{name(5, '')}", f"q=1/copy of {name(6)}", f"q=1/{name(7)}~".replace("-c000", "-d")],
        ["_SUCCESS", f"q=1/{name(5, '.c000.snappy.parquet')}"],
        ["offsets/0", "commits/0", "metadata", "sources/0/0", f"state/0/0/{name(4)}"],  # the checkpoint is the sink
    ],
    ids=lambda others: others[0],
)
def test_what_is_somebody_elses_stays(tmp_path: Path, others: list[str]) -> None:
    folder = make(tmp_path / "t1", LISTED)
    put(folder, *others)

    assert removed(folder) == set()
    assert Sink(folder).remove_orphan_files(AT_ONCE, force=True).removed_files_count == 0
    assert {advice.rule for advice in Sink(folder).report().advice} & {"sink-orphans"} == set()
    if "_SUCCESS" not in others:
        put(folder, LEFT)
        assert "sink-orphans" in {advice.rule for advice in Sink(folder).report().advice}
        assert removed(folder) == {LEFT}


@pytest.mark.parametrize(
    "left",
    [
        name(3),
        name(3, "-c001.json", task=123456),
        name(3, "-c1000.txt.gz"),
        name(3, "-c000"),
        f"q=1/{name(3, '.c000.snappy.orc')}",
        f"q=1/r=b%2Fc d%3D%25/{name(3, '.c002.csv')}",
        f"q=__HIVE_DEFAULT_PARTITION__/{name(3, '.c000.zstd.parquet')}",
        f"_q=1/{name(3, '.c000.parquet')}",
    ],
)
def test_what_a_query_has_left_goes(tmp_path: Path, left: str) -> None:
    folder = make(tmp_path / "t1", LISTED)
    put(folder, left)

    assert removed(folder) == {left}


@pytest.mark.parametrize("place", ["", "q=1/"])
def test_files_of_a_batch_job_that_says_nothing_stay(tmp_path: Path, place: str) -> None:
    """With mapreduce.fileoutputcommitter.marksuccessfuljobs=false; all files of a job have the same UUID."""
    folder = make(tmp_path / "t1", LISTED)
    ending = ".c000.snappy.parquet" if place else "-c000.snappy.parquet"
    put(folder, *(f"{place}{name(5, ending, task=task)}" for task in range(2)), LEFT)
    assert removed(folder) == {LEFT}


def test_files_of_a_sink_around_it_stay(tmp_path: Path) -> None:
    """Directly in a sink, a query writes other names than below the values of its columns."""
    folder = make(tmp_path / "around" / "p=1", LISTED)
    put(folder, name(5, ".c000.snappy.parquet"), LEFT)
    assert removed(folder) == {LEFT}


@pytest.mark.parametrize(("hours", "stays"), [(2, True), (23, True), (25, False)])
def test_what_a_long_batch_of_stock_spark_has_written_stays(tmp_path: Path, hours: int, stays: bool) -> None:
    """It writes in place and says nothing. The list's newest part is older than the batch."""
    folder = make(tmp_path / "t1", LISTED)
    put(folder, LEFT)
    now = time.time()
    os.utime(folder / LEFT, (now - hours * 3600,) * 2)
    for part in (folder / "_spark_metadata").iterdir():
        os.utime(part, (now - 100 * 3600,) * 2)
    found = Sink(folder).remove_orphan_files(timedelta(hours=1), dry_run=False)
    assert found.removed_files_count == (not stays)
    # Whoever forces a younger age says that nobody writes there.
    assert Sink(folder).remove_orphan_files(AT_ONCE, dry_run=False, force=True).removed_files_count == stays


@pytest.mark.parametrize("notes", ["_replaced", "_spark_metadata/_replaced"])
def test_where_a_batch_job_has_written_only_what_was_replaced_goes(tmp_path: Path, notes: str) -> None:
    folder = make(tmp_path / "t1", LISTED)
    put(folder, "_SUCCESS", LEFT, f"q=0/{name(9)}")
    put(folder, f"{notes}/1.json", data=b'{"list":"0","replaced":["%s"]}' % LEFT.encode())

    assert removed(folder) == {LEFT, f"{notes}/1.json"}


def test_what_a_compaction_has_made_and_not_listed_stays_while_its_note_is_young(tmp_path: Path) -> None:
    """It may take days, and lists its files at its end."""
    made, other = f"q=1/part-00000-01234567-89ab-cdef-8333-{3:012x}.c000.parquet", LEFT
    note = "_spark_metadata/_replaced/1.json"
    said = {"list": "0", "replaced": [], "made_by": "0123456789abcdef"}
    folder = make(tmp_path / "t1", LISTED)
    put(folder, made, other)
    put(folder, note, data=json.dumps(said).encode())
    os.utime(folder / note)

    day = timedelta(days=1)
    done = Sink(folder).remove_orphan_files(day, dry_run=False).files["file_path"].to_pylist()
    assert done == [f"file://{folder}/{other}"]
    put(folder, note, data=json.dumps(said).encode())
    os.utime(folder / made)  # a note goes after the files that it is about
    assert Sink(folder).remove_orphan_files(day, dry_run=False).removed_files_count == 0
    put(folder, made)
    Sink(folder).remove_orphan_files(day, dry_run=False)
    assert present(folder) == {*LISTED, "_spark_metadata/0"}


@pytest.mark.parametrize("made_by", ["", "0123", "0123456789ABCDEF", 1, None, ["0123456789abcdef"]])
def test_a_note_that_names_no_attempt_is_no_note(tmp_path: Path, made_by: object) -> None:
    folder = make(tmp_path / "t1", LISTED)
    put(folder, LEFT)
    put(folder, "_spark_metadata/_replaced/1.json", data=json.dumps({"replaced": [], "made_by": made_by}).encode())

    with pytest.raises(StateStoreFilesError, match="PSS_READ_FAILED.*1.json.*no attempt"):
        Sink(folder).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert (folder / LEFT).exists()


@pytest.mark.parametrize(
    "url",
    [
        "file:{root}/{path}",
        "file://{root}/{path}",
        "{root}/{path}",
        "file:{root}//./{path}",
        "file:{root}/q=0/../{path}",
        "file:{root}/../t1/{path}",
    ],
)
def test_a_listed_file_stays_however_its_path_is_written(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "t1"
    path = f"q=a;b%3Fc/{name(1, '.c000.parquet')}"
    left = f"q=0/{name(2, '.c000.parquet')}"
    put(folder, path, left)
    write_list(folder, [line(url.format(root=folder, path=path.replace("%", "%25")))])

    assert Sink(folder).verify().is_clean
    assert removed(folder) == {left}
    assert Sink(folder).files()["directory"].to_pylist() == ["q=a;b%3Fc"]


@pytest.mark.parametrize("above", ["", "_spark_metadata/"])
@pytest.mark.parametrize("place", ["_waiting", "_staging", "_staging/3-a", "_replaced"])
def test_a_listed_file_stays_wherever_it_is(tmp_path: Path, place: str, above: str) -> None:
    """An earlier release has published files where rows wait, and lists have them."""
    path = f"{above}{place}/{name(1)}"
    folder = make(tmp_path / "t1", [path])
    if place == "_replaced":
        put(folder, path, data=b'{"replaced":[]}')

    assert removed(folder) == set()


def test_one_file_that_is_listed_in_two_ways_is_listed_twice(tmp_path: Path) -> None:
    folder = make(tmp_path / "t1", LISTED)
    write_list(folder, [line(f"file:{folder}/{LISTED[0]}"), line(f"file:{folder}/./{LISTED[0]}")])

    kinds = Sink(folder).verify().problems["kind"].to_pylist()
    assert kinds.count("listed_twice") == 2


def test_the_command_takes_only_what_a_query_has_left(tmp_path: Path) -> None:
    folder = make(tmp_path / "t1", LISTED)
    put(folder, LEFT, "checkpoint/offsets/0", "checkpoint/commits/0", "checkpoint/state/0/0/1.delta", "q=1/notes.txt")
    before = present(folder)

    done = CliRunner().invoke(cli, ["sink", "orphans", str(folder), "--no-dry-run"])

    assert done.exit_code == 0, done.output
    assert before - present(folder) == {LEFT}
