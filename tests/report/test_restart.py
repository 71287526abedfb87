"""Can the newest committed batch be restored? The summary, the list, the pages, verify and fork say the same."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.cli.conftest import Invoke, rows
from tests.forks.harness import restorable, state_of
from tests.inspect.builders import (
    STAMP,
    Watch,
    merged_file,
    merged_paths,
    plain_file,
    refused,
    use_for_local_files,
    watched_file_system,
)
from tests.maintenance.builders import entry_of, flip, make, verify, write_logs, write_version
from tests.report.pages import Page


def said(folder: Path) -> tuple[int | None, int | None]:
    """Version of the last committed batch, and the newest one that can be restored, as the summary says."""
    [row] = Checkpoint(folder).inspect.summary().to_pylist()
    assert (row["not_restorable"] is None) is (row["committed_version"] == row["restorable_version"])
    return row["committed_version"], row["restorable_version"]


def lose(folder: Path, version: int, kind: str = "merged") -> None:
    """Takes away what a version has left, in all partitions or in one."""
    if kind == "merged":
        merged_paths(folder)[version - 1].unlink()
    else:
        for path in (folder / "state/0/1").glob(f"{version}.*"):
            path.unlink()


@pytest.mark.parametrize("kind", ["merged", "plain"])
def test_all_doors_name_the_way_out(tmp_path: Path, invoke: Invoke, kind: str) -> None:
    folder, well = make(tmp_path / "q1", kind), make(tmp_path / "q2", kind)
    assert said(folder) == (4, 4)
    assert "restart" not in {each.rule for each in Checkpoint(folder).report().advice}
    lose(folder, 4, kind)
    url = folder.as_uri()
    command = f"pyspark-statestore fork {url} {url}-from-3 --version 3"

    assert said(folder) == (4, 3)
    report = Checkpoint(folder).report()
    assert report.advice[0].rule == "restart"
    assert report.advice[0].level == "act"
    assert report.advice[0].commands[0] == command
    page = Page(report.html)
    assert page.cards[0][0] == "act"
    assert page.tiles["a restart"] == ("fails", "version 4 cannot be restored; the newest that can be is 3")
    shown = invoke("summary", folder)
    assert shown.stdout.startswith(
        f"The query of {url} cannot start: version 4, which its last committed batch has left"
    )
    assert command in shown.stdout.splitlines()[0]
    listed = invoke("list", tmp_path)
    assert command in listed.stdout.splitlines()[0]
    as_json = invoke("list", tmp_path, "--output", "json")
    assert [(row["committed_version"], row["restorable_version"]) for row in rows(as_json)] == [(4, 3), (4, 4)]
    assert as_json.stderr.count("cannot start") == 1
    assert well.as_uri() not in as_json.stderr
    overview = Page(invoke("list", tmp_path, "-o", "-").stdout)
    assert overview.cards[0][0] == "act"
    assert overview.cards[0][2][0] == command
    found = invoke("verify", folder, "--repair", status=3)
    lost = "The query cannot go on: version 4, its newest, cannot be restored."
    assert f"{lost} Go back to version 3, in a fork: {command}" in " ".join(found.stdout.split())
    with refused("PSS_VERSION_NOT_RESTORABLE", "Version 4", "can be restored: 1 to 3. Go back", command):
        Checkpoint(folder).fork(tmp_path / "never")

    before = state_of(folder, 3)
    invoke(*shlex.split(command)[1:])
    fork = tmp_path / "q1-from-3"
    assert state_of(fork, 3) == before
    assert said(fork) == (3, 3)
    assert 3 in restorable(fork)


def test_nothing_can_be_restored(tmp_path: Path, invoke: Invoke) -> None:
    folder = make(tmp_path / "q1")
    for path in merged_paths(folder):
        path.unlink()
    (folder / "state/_merged").rmdir()

    assert said(folder) == (4, None)
    advice = Checkpoint(folder).report().advice[0]
    assert (advice.rule, advice.level) == ("restart", "act")
    assert not any("fork" in command for command in advice.commands)
    assert "No older version is known that can be restored." in invoke("summary", folder).stdout
    with refused("PSS_VERSION_NOT_RESTORABLE", "can be restored: none."):
        Checkpoint(folder).fork(tmp_path / "never")


def test_one_partition_of_many_is_enough(tmp_path: Path) -> None:
    """Versions that the other partition can be restored at are not named."""
    folder = make(tmp_path / "q1")
    with merged_file(folder, 20, plain=True) as out:
        for version in (3, 4):
            _, entry = entry_of(folder, f"0/1/{version}.changelog")
            out.delete(entry.path, stamp=entry.stamp, writer=entry.writer)
        _, entry = entry_of(folder, "0/1/4.zip")
        out.delete(entry.path, stamp=entry.stamp, writer=entry.writer)

    assert said(folder) == (4, 2)
    with refused("PSS_VERSION_NOT_RESTORABLE", "partition 1", "can be restored: 1 to 2."):
        Checkpoint(folder).fork(tmp_path / "never")
    with refused("PSS_VERSION_NOT_RESTORABLE", "can be restored: 1 to 2. Go back", "--version 2"):
        Checkpoint(folder).export(force=True)


def test_an_older_version_that_is_gone_is_a_note(tmp_path: Path) -> None:
    folder = tmp_path / "q1"
    write_logs(folder, range(8))
    for version in range(1, 9):
        write_version(folder, version, merged=True)
    assert Checkpoint(folder).report().advice == ()
    lose(folder, 5)

    assert said(folder) == (8, 8)
    [advice] = Checkpoint(folder).report().advice
    assert (advice.rule, advice.level) == ("version-gap", "look")
    assert "there is nothing of version 5 of store 0/0" in advice.why
    with refused("PSS_VERSION_NOT_RESTORABLE", "can be restored: 1 to 4, 6 to 8."):
        Checkpoint(folder).fork(tmp_path / "never", version=5)


def test_what_spark_has_cleaned_and_what_is_not_committed_is_not_missed(tmp_path: Path) -> None:
    folder = tmp_path / "q1"
    write_logs(folder, range(5, 12))
    for version in range(6, 13):
        write_version(folder, version, merged=True)
    write_version(folder, 13, merged=True, leave_out=["0/1/13.changelog"])

    assert said(folder) == (12, 12)
    assert [each.rule for each in Checkpoint(folder).report().advice] == []


def test_a_file_that_a_snapshot_names(tmp_path: Path) -> None:
    """The zip is there, and its SST is not, nor a changelog that leads around it."""
    folder = make(tmp_path / "q1")
    with merged_file(folder, 20, plain=True) as out:
        for name in ("4.changelog", "SSTs/000004-1.sst"):
            _, entry = entry_of(folder, f"0/1/{name}")
            out.delete(entry.path, stamp=entry.stamp, writer=entry.writer)
    assert said(folder) == (4, 3)


def test_corrupt_bytes_count_for_verify(tmp_path: Path, invoke: Invoke) -> None:
    """Only ``verify`` reads all bytes, so only it knows; what it names can be restored."""
    folder = make(tmp_path / "q1")
    for name in ("0/1/4.changelog", "0/1/4.zip"):
        path, entry = entry_of(folder, name)
        flip(path, entry.offset)
    found = verify(folder)
    assert (found.committed_version, found.restorable_version) == (4, 3)
    assert "--version 3" in invoke("verify", folder, status=3).stdout

    whole = make(tmp_path / "q2")
    path, entry = entry_of(whole, "0/1/1.changelog")
    flip(path, entry.offset)
    assert verify(whole).restorable_version == 4
    assert "The query can go on: version 4, its newest, can be restored." in invoke("verify", whole, status=3).stdout
    clean = verify(make(tmp_path / "q3"))
    assert (clean.committed_version, clean.restorable_version) == (4, 4)


def test_a_merged_file_that_cannot_be_read_has_no_way_out_by_a_fork(tmp_path: Path, invoke: Invoke) -> None:
    """A fork refuses then, too: nobody knows what else the file says."""
    folder = make(tmp_path / "q1")
    flip(merged_paths(folder)[3], 13)
    shown = invoke("verify", folder, status=3).stdout
    assert "fork" not in shown.replace("_fork", "")
    assert "No older version is known that can be restored." in shown


def test_a_file_of_the_source_is_gone(tmp_path: Path, invoke: Invoke) -> None:
    source, fork = make(tmp_path / "source"), tmp_path / "fork"
    Checkpoint(source).fork(fork)
    assert said(fork) == (4, 4)
    merged_paths(source)[3].unlink()

    assert said(fork) == (4, 3)
    with refused("PSS_FOREIGN_FILE_MISSING", merged_paths(source)[0].parent.as_uri()):
        Checkpoint(fork).fork(tmp_path / "never")
    invoke("fork", fork, tmp_path / "again", "--version", "3")
    assert said(tmp_path / "again") == (3, 3)
    assert Checkpoint(tmp_path / "again").maintenance.verify().is_clean


def test_what_moves_meanwhile_is_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "q1")
    newest, away = merged_paths(folder)[3], tmp_path / "away"
    watch = Watch()

    def move(path: str) -> None:
        if path.endswith("_merged"):
            (newest if newest.exists() else away).rename(away if newest.exists() else newest)

    watch.before_list = move
    use_for_local_files(monkeypatch, watched_file_system(watch))
    assert said(folder) == (4, 4)
    assert watch.listings["_merged"] == 2, "the first look missed it"


def test_what_cannot_be_found_out_costs_no_other_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "q1")
    watch = Watch()

    def refuse(path: str) -> None:
        if path.endswith("offsets"):
            raise PermissionError(path)

    watch.before_list = refuse
    use_for_local_files(monkeypatch, watched_file_system(watch))
    [row] = Checkpoint(folder).inspect.summary().to_pylist()
    assert (row["file_count"], row["committed_version"], row["restorable_version"]) == (4, 4, None)
    assert "[PSS_NO_PERMISSION]" in row["not_restorable"]
    assert Checkpoint(folder).report().advice[0].rule == "restart"


def test_the_list_opens_no_plain_file(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock Spark's are thousands. What a name and a size tell is told all the same."""
    folder = make(tmp_path / "q1", "plain")
    watch = Watch()
    use_for_local_files(monkeypatch, watched_file_system(watch))
    [row] = rows(invoke("list", tmp_path, "--output", "json"))
    assert row["restorable_version"] == 4
    assert set(watch.opens) == {"3", "metadata"}, "an offset log, and an operator's metadata"
    plain_file(folder, "0/1/4.changelog", b"")
    plain_file(folder, "0/1/4.zip", b"")
    assert rows(invoke("list", tmp_path, "--output", "json"))[0]["restorable_version"] == 3
    assert said(folder) == (4, 3)


def test_what_it_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all is well: the newest snapshots, and Spark's logs. Older versions cost nothing more."""
    cost = []
    for versions in (4, 24):
        folder = tmp_path / f"q{versions}"
        write_logs(folder, range(versions))
        for version in range(1, versions + 1):
            write_version(folder, version, merged=True)
        with monkeypatch.context() as patch:
            watch = Watch()
            use_for_local_files(patch, watched_file_system(watch))
            assert said(folder) == (versions, versions)
            opened = watch.opens.total() - versions  # each merged file for its index
            cost.append((opened, sum(watch.listings[name] for name in ("commits", "offsets", "0", "_metadata", "v2"))))
            assert watch.listings["commits"] == 1
    # The offset log twice, the metadata, and the merged file with the newest snapshots.
    assert cost[0] == cost[1]
    assert cost[0][0] <= 4


def test_a_query_that_has_committed_nothing(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    assert said(tmp_path) == (None, None)
    with merged_file(tmp_path, 1) as out:
        out.put("0/0/1.changelog", b"x", stamp=STAMP)
    assert said(tmp_path) == (None, None)
    with refused("PSS_VERSION_NOT_RESTORABLE", "no batch was committed", "can be restored: none."):
        Checkpoint(tmp_path).fork(tmp_path.with_name("never"))
