"""Groups, lanes and files: who shares a flush, when a file ends, what a process leaves behind."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import parse_file_name
from tests.jvm.harness import TESTING, Checkpoint, calls, until

pytestmark = pytest.mark.spark

KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize("scheme", ["file", "objectstore"])
def test_concurrent_commits_share_groups(new_checkpoint: Callable[..., Checkpoint], jvm: Any, scheme: str) -> None:
    threads, commits = 32, 300 if scheme == "file" else 20
    checkpoint = new_checkpoint(scheme)
    storm = getattr(jvm, f"{TESTING}.Storm")

    failures = storm.commit(checkpoint.fs, f"merged+{scheme}:{checkpoint.state}", threads, commits)

    assert list(failures) == []
    metrics = checkpoint.metrics()
    assert metrics["commits"] == metrics["segments"] == threads * commits
    assert metrics["groups"] <= threads * commits / 2
    view = checkpoint.view()
    assert sum(len(file.groups) for file in view.files.values()) == metrics["groups"]
    contents = view.contents()
    assert len(contents) == threads * commits
    for partition in (0, 7, threads - 1):
        for version in range(1, commits + 1, 19):
            assert contents[f"0/{partition}/{version}.changelog"] == bytes(storm.content(partition, version))
    assert {path.suffix for path in checkpoint.merged.iterdir()} == {".merged"}


def test_a_commit_costs_one_flush_and_no_metadata_call(counted: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = counted()
    checkpoint.write("0/0/1.changelog")
    before = calls(jvm, checkpoint)

    for version in range(2, 12):
        checkpoint.write(f"0/0/{version}.changelog")

    after = calls(jvm, checkpoint)
    changed = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert changed.pop("write_bytes") > 0
    assert changed == {"hflush": 10, "write": 10}


@pytest.mark.parametrize(("flush", "other"), [("hflush", "hsync"), ("hsync", "hflush")])
def test_the_flush_option(counted: Callable[..., Checkpoint], jvm: Any, flush: str, other: str) -> None:
    checkpoint = counted(flush=flush)

    checkpoint.write("0/0/1.changelog")

    done = calls(jvm, checkpoint)
    assert done[flush] == 1
    assert other not in done


def test_object_stores_get_a_file_for_each_group_and_no_rename(counted: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = counted("objectstore")

    for version in range(1, 6):
        checkpoint.write(f"0/0/{version}.changelog", b"x" * version)

    done = calls(jvm, checkpoint)
    assert (done["create"], done["close"]) == (5, 5)
    assert not {"rename", "hflush", "hsync", "append"} & done.keys()
    view = checkpoint.view()
    assert all(file.sealed and len(file.groups) == 1 for file in view.files.values())
    assert len(view.live) == 5


def test_groups_wait_for_others_where_they_are_told_to(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint("counting", groupCommit__maxWait="10s")
    streams = [checkpoint.fs.create(checkpoint.path(f"0/{n}/1.changelog"), True) for n in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda stream: stream.close(), streams))

    assert checkpoint.metrics()["groups"] == 1
    assert checkpoint.metrics()["waitNanos"] < 3 * 9 * 10**9


def test_a_file_that_is_full_is_sealed(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(maxFileSize="64k")

    for version in range(1, 21):
        checkpoint.write(f"0/0/{version}.changelog", bytes([version]) * (20 * KB))

    files = checkpoint.files()
    assert len(files) == 5
    assert [checkpoint.sealed(name) for name in files] == [True] * 5
    assert all((checkpoint.merged / name).stat().st_size < 90 * KB for name in files)
    assert checkpoint.contents() == {f"0/0/{v}.changelog": bytes([v]) * (20 * KB) for v in range(1, 21)}


def test_commits_and_snapshots_do_not_share_a_file(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/0/1.changelog")
    checkpoint.write("0/0/1.zip")
    checkpoint.write("0/0/2.changelog")
    checkpoint.write("0/0/1.zip.crc")

    in_files = {path: name for path, (name, _) in checkpoint.view().live.items()}
    assert in_files["0/0/1.changelog"] == in_files["0/0/2.changelog"]
    assert in_files["0/0/1.zip"] == in_files["0/0/1.zip.crc"]
    assert len(checkpoint.files()) == 2


def test_an_idle_file_is_sealed_and_tombstones_get_a_group_of_their_own(
    new_checkpoint: Callable[..., Checkpoint],
) -> None:
    checkpoint = new_checkpoint(closedAfter="10s")
    began = time.monotonic()
    checkpoint.write("0/0/1.changelog")
    checkpoint.write("0/0/2.changelog")
    checkpoint.delete("0/0/1.changelog")
    assert not checkpoint.sealed(checkpoint.files()[0]) or time.monotonic() - began > 1

    until(lambda: checkpoint.view().live.keys() == {"0/0/2.changelog"}, "the tombstone")
    until(lambda: all(file.sealed for file in checkpoint.view().files.values()), "the seal")


def test_a_file_that_was_left_alone_is_not_appended_to(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(closedAfter="10s")
    checkpoint.write("0/0/1.changelog")
    first = checkpoint.files()[0]
    until(lambda: checkpoint.sealed(first), "the seal")
    sealed = (checkpoint.merged / first).read_bytes()

    checkpoint.write("0/0/2.changelog")

    assert (checkpoint.merged / first).read_bytes() == sealed
    assert checkpoint.view().live.keys() == {"0/0/1.changelog", "0/0/2.changelog"}
    assert len(checkpoint.files()) == 2


@pytest.mark.usefixtures("by_hand")
def test_garbage_does_not_hide_in_an_open_file(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(maxSpaceAmplification="1.5", closedAfter="1h")
    for version in range(40):
        checkpoint.write(f"0/0/{version}.delta", os.urandom(MB))
        checkpoint.delete(f"0/0/{version - 1}.delta")
    checkpoint.write("0/0/40.delta", b"the end")

    sizes = [path.stat().st_size for path in checkpoint.merged.iterdir()]
    assert len(sizes) >= 13
    assert max(sizes) < 3.5 * MB
    assert checkpoint.clean() >= len(sizes) - 2
    assert checkpoint.contents().keys() == {"0/0/39.delta", "0/0/40.delta"}


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(("allowed", "largest_mb"), [("1.5", 4), ("2", 7), ("9", 33)])
def test_the_more_lives_the_larger_are_files(
    new_checkpoint: Callable[..., Checkpoint], allowed: str, largest_mb: int
) -> None:
    """Once something has died: where all of it lives, there is nothing to be won by small files."""
    checkpoint = new_checkpoint(maxSpaceAmplification=allowed, maxFileSize="32m", closedAfter="1h")
    for version in range(23):
        checkpoint.write(f"0/0/{version}.delta", bytes(MB))
    in_growth = checkpoint.files()
    checkpoint.delete("0/0/0.delta")
    for version in range(23, 70):
        checkpoint.write(f"0/0/{version}.delta", bytes(MB))
        checkpoint.delete(f"0/0/{version - 22}.delta")

    sizes = {name: (checkpoint.merged / name).stat().st_size for name in checkpoint.files()}
    assert len(in_growth) == (3 if float(allowed) < 3 else 1)
    later = [size for name, size in sizes.items() if name not in in_growth]
    assert (largest_mb - 2) * MB < max(later) < largest_mb * MB


def test_names_say_who_wrote_a_file_and_when(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/0/1.changelog")
    checkpoint.log.seal()
    checkpoint.write("0/0/2.changelog")

    names = checkpoint.files()
    headers = [checkpoint.view().files[name].header for name in names]
    assert all(header is not None for header in headers)
    assert [parse_file_name(name) for name in names] == [
        (header.created_ms, header.writer, number) for number, header in enumerate(headers, 1) if header is not None
    ]
    assert {"app_id", "executor_id", "query_run_id", "shim", "plain"} <= (
        headers[0].meta.keys() if headers[0] else set()
    )


def run_program(main_jar: Path, test_jar: Path, *arguments: object, limit: int | None = None) -> str:
    """Runs CommittingProcess in a JVM of its own, with a limit on the size of its files if one is given."""
    import resource

    import pyspark

    jars = [str(Path(pyspark.__file__).parent / "jars" / "*"), str(main_jar), str(test_jar)]
    command = ["java", "-XX:-UsePerfData", "-cp", os.pathsep.join(jars)]
    command += [f"{TESTING}.CommittingProcess", *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=40,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)) if limit else None,
    )
    return done.stdout


@pytest.mark.parametrize(("end", "sealed"), [("exit", True), ("halt", False)])
def test_a_process_that_stops_cleanly_seals_its_files(
    main_jar: Path, test_jar: Path, checkpoint: Checkpoint, end: str, sealed: bool
) -> None:
    said = run_program(main_jar, test_jar, f"merged+file:{checkpoint.state}", 3, 100, end)

    assert "committed: 3" in said
    files = checkpoint.view().files.values()
    assert [file.sealed for file in files] == [sealed]
    assert checkpoint.contents() == {f"0/0/{version}.changelog": bytes(100) for version in (1, 2, 3)}
    assert checkpoint.read("0/0/3.changelog") == bytes(100)


@pytest.mark.parametrize("size", [500, 100 * KB])
def test_a_disk_that_is_really_full(main_jar: Path, test_jar: Path, checkpoint: Checkpoint, size: int) -> None:
    # No file may become larger than this: Hadoop's local file system sees the same error as on a full disk. With the
    # small size what cannot be written is still in its buffer, and is tried once more when the file is closed.
    said = run_program(main_jar, test_jar, f"merged+file:{checkpoint.state}", 100, size, "exit", limit=5 * size)

    committed = int(re.findall(r"committed: (\d+)", said)[0])
    assert 2 <= committed < 6
    assert "PSS_WRITE_FAILED" in said
    assert str(checkpoint.merged) in said
    assert checkpoint.contents() == {f"0/0/{v}.changelog": bytes(size) for v in range(1, committed + 1)}
