"""Files that nobody has closed, on an HDFS whose DataNode was restarted: it does not say how long they are any more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from benchmarks.local_hdfs import LocalHdfs
from tests.hdfs.harness import Hdfs, SharedCheckpoint, Shell, expected, text, write_all
from tests.jvm.harness import java_error, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="HDFS")]

Here = Callable[..., SharedCheckpoint]
StartShell = Callable[..., Shell]

FILES = [f"0/0/{version}.changelog" for version in (1, 2, 3, 4)]


def restart_data_node(hdfs: LocalHdfs, place: Hdfs, name: str) -> None:
    """Restarts it, and makes sure that this is what the tests are about."""
    hdfs.restart_data_node()
    with java_error("CannotObtainBlockLength"):
        place.fs.open(place.path(f"state/_merged/{name}")).close()


def test_killed_writer(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """A restart of the query finds all that was acknowledged, also what the NameNode never heard of."""
    writer = shell(on_hdfs)
    write_all(writer, *FILES)
    writer.kill()
    ((name, listed),) = on_hdfs.merged_files().items()
    restart_data_node(hdfs, on_hdfs, name)
    with hdfs.lease_soft_limit(1):
        reader = here(on_hdfs)
        assert {path: reader.load(path) for path in FILES} == expected(*FILES)
    assert on_hdfs.fs.isFileClosed(on_hdfs.path(f"state/_merged/{name}"))
    assert on_hdfs.merged_files()[name] > listed
    assert on_hdfs.contents() == expected(*FILES)


def test_file_that_is_known(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """A process that has read the file reads on in it, where only its bytes are needed anew."""
    writer = shell(on_hdfs)
    write_all(writer, *FILES)
    reader = here(on_hdfs)
    assert reader.load(FILES[0]) == text(FILES[0]).encode()
    writer.kill()
    (name,) = on_hdfs.merged_files()
    restart_data_node(hdfs, on_hdfs, name)
    with hdfs.lease_soft_limit(1):
        assert {path: reader.read(path) for path in FILES} == expected(*FILES)


def test_living_writer_is_left_alone(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """Who renews a lease may write on: the file is not taken away. The error says which file, and what to do."""
    writer = shell(on_hdfs)
    write_all(writer, *FILES[:2])
    (name,) = on_hdfs.merged_files()
    restart_data_node(hdfs, on_hdfs, name)
    reader = here(on_hdfs, closedAfter="5s")
    with java_error("PSS_FILE_NOT_CLOSED", name, "hdfs debug recoverLease -path"):
        reader.load(FILES[0])
    assert not on_hdfs.fs.isFileClosed(on_hdfs.path(f"state/_merged/{name}"))


def test_given_up_file_is_closed(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """A writer whose file is broken closes it for good, though it lives on and renews its other leases."""
    writer = shell(on_hdfs)
    write_all(writer, *FILES[:2])
    (name,) = on_hdfs.merged_files()
    restart_data_node(hdfs, on_hdfs, name)
    acknowledged = FILES[:2] + [path for path in FILES[2:] if writer.write(path, text(path)) == "ok"]
    assert FILES[-1] in acknowledged
    path = on_hdfs.path(f"state/_merged/{name}")
    until(lambda: on_hdfs.fs.isFileClosed(path), "the writer's file to be closed", seconds=60)
    assert len(on_hdfs.merged_files()) == 2
    reader = here(on_hdfs)
    assert {path: reader.load(path) for path in acknowledged} == expected(*acknowledged)


def test_file_that_counts_as_closed(hdfs: LocalHdfs, on_hdfs: Hdfs, here: Here, shell: StartShell) -> None:
    """Rule 7: the lease of a process that hangs for longer than `closedAfter` is no reason to wait."""
    # The writer would seal a file soon that it counts as closed so early.
    writer = shell(on_hdfs)
    write_all(writer, *FILES[:2])
    writer.stop()
    reader = here(on_hdfs, closedAfter="10s")
    (name,) = on_hdfs.merged_files()
    end = time.monotonic() + 11
    until(lambda: reader.load(FILES[0]) and time.monotonic() > end, "the file to count as closed")
    restart_data_node(hdfs, on_hdfs, name)
    assert {path: reader.read(path) for path in FILES[:2]} == expected(*FILES[:2])
