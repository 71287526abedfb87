"""Several processes on one checkpoint on HDFS: kills, leases, files that go away. All of it the same as on the disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.local_hdfs import LocalHdfs
from tests.hdfs.harness import Hdfs, Place, SharedCheckpoint, Shell, expected, text, write_all
from tests.jvm.harness import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="clusters")]

Here = Callable[..., SharedCheckpoint]
StartShell = Callable[..., Shell]

FILES = [f"0/{partition}/{version}.changelog" for version in (1, 2, 3) for partition in (0, 1)]


def close_lease(place: Hdfs, name: str) -> None:
    """Takes the lease of a file from its writer, dead or alive, and waits until the file is closed."""
    path = place.path(f"state/_merged/{name}")
    place.fs.recoverLease(path)
    until(lambda: place.fs.isFileClosed(path), "the NameNode to close the file", seconds=60)


def test_killed_writer_is_read_at_once(place: Place, here: Here, shell: StartShell) -> None:
    writer = shell(place)
    write_all(writer, *FILES)
    writer.kill()
    reader = here(place)
    assert {path: reader.load(path) for path in FILES} == expected(*FILES)
    assert place.contents() == expected(*FILES)
    # And written on by whoever takes over.
    reader.write(FILES[0], b"written anew")
    reader.write("0/0/4.changelog", b"more")
    second = shell(place)
    assert second.read(FILES[0]) == "written anew"
    assert second.read("0/0/4.changelog") == "more"
    assert second.read(FILES[1]) == text(FILES[1]).strip()


def test_an_open_file_is_read_beyond_its_listed_length(on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    writer = shell(on_hdfs)
    write_all(writer, FILES[0])
    reader = here(on_hdfs)
    assert reader.load(FILES[0]) == text(FILES[0]).encode()
    first = on_hdfs.merged_files()
    for path in FILES[1:]:
        write_all(writer, path)
        assert reader.load(path) == text(path).encode()
    assert on_hdfs.merged_files() == first, "this HDFS lists an open file with its length: the test proves nothing"
    (name,) = first
    assert len((on_hdfs.state() / "_merged" / name).read_bytes()) > first[name] + len(text(FILES[0]))


def test_lease_recovery(on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    writer = shell(on_hdfs)
    write_all(writer, *FILES)
    reader = here(on_hdfs)
    assert reader.load(FILES[0]) == text(FILES[0]).encode()
    writer.kill()
    ((name, listed),) = on_hdfs.merged_files().items()
    close_lease(on_hdfs, name)
    assert on_hdfs.merged_files()[name] > listed
    assert on_hdfs.contents() == expected(*FILES)
    assert {path: reader.load(path) for path in FILES} == expected(*FILES)
    reader.write("0/0/4.changelog", b"more")
    assert on_hdfs.contents() == {**expected(*FILES), "0/0/4.changelog": b"more"}


def test_lease_taken_from_a_living_writer(on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """A commit that is acknowledged is there, also where HDFS has closed the file under its writer."""
    writer = shell(on_hdfs)
    write_all(writer, FILES[0])
    (name,) = on_hdfs.merged_files()
    close_lease(on_hdfs, name)
    acknowledged = [FILES[0]] + [path for path in FILES[1:] if writer.write(path, text(path)) == "ok"]
    # The first attempt may fail, as its file is given up; a task's next attempt goes to another file.
    assert FILES[-1] in acknowledged
    reader = here(on_hdfs)
    assert {path: reader.load(path) for path in acknowledged} == expected(*acknowledged)
    found = on_hdfs.contents()
    assert {path: found[path] for path in acknowledged} == expected(*acknowledged)
    assert len(on_hdfs.merged_files()) == 2


def test_file_unlinked_under_an_idle_writer(place: Place, here: Here, shell: StartShell) -> None:
    """Rule 7: whoever was away for so long that others dealt with its file does not append to it any more."""
    times = {"closedAfter": "20s"}
    writer = shell(place, **times)
    cleaner = here(place, **times)
    write_all(writer, FILES[0])
    writer.stop()
    ((name, file),) = place.view().files.items()
    assert not file.sealed
    assert cleaner.load(FILES[0]) == text(FILES[0]).encode()
    cleaner.delete(FILES[0])

    def gone() -> bool:
        cleaner.clean()
        return name not in place.merged_files()

    until(gone, "the stopped writer's file to be unlinked", seconds=120)
    writer.tell("write", FILES[1], text(FILES[1]))
    writer.go_on()
    # A failure would be right, too: the task is tried again.
    if writer.answer() != "ok":
        write_all(writer, FILES[1])
    write_all(writer, FILES[2])
    assert cleaner.load(FILES[1]) == text(FILES[1]).encode()
    assert not cleaner.exists(FILES[0])
    assert place.contents() == expected(FILES[1], FILES[2])


def test_flushes_are_no_business_of_the_name_node(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here) -> None:
    checkpoint = here(on_hdfs)
    checkpoint.write("0/0/1.changelog")
    before = hdfs.calls()
    for version in range(2, 22):
        checkpoint.write(f"0/0/{version}.changelog")
    mine = [call for call in hdfs.calls() - before if call.path.startswith(on_hdfs.checkpoint)]
    assert mine == []
    assert len(on_hdfs.contents()) == 21
    assert len(on_hdfs.merged_files()) == 1
