"""Damaged files, files that a crash has torn, and groups that are being written, as the shim meets them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import MergedFileWriter, file_name
from pyspark_statestore.format.layout import pack_front
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint, calls, java_error

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

HUGE = 256 << 20


def written_by(
    checkpoint: Checkpoint, number: int, path: str, *, stamp: int, fronts: bool = True, seal: bool = False
) -> Path:
    """A file of another process that is long dead."""
    checkpoint.merged.mkdir(parents=True, exist_ok=True)
    file = checkpoint.merged / file_name(CREATED_MS, 9, number)
    with file.open("wb") as out:
        meta: dict[str, str | bool] = {"plain": False, "fronts": fronts}
        writer = MergedFileWriter(out, writer=9, created_ms=CREATED_MS, meta=meta)
        writer.put(path, path.encode() * 10, stamp=stamp)
        writer.end_group()
        if seal:
            writer.seal()
    return aged(file)


def aged(file: Path) -> Path:
    os.utime(file, (CREATED_MS / 1000, CREATED_MS / 1000))
    return file


def flipped(file: Path, from_end: int) -> Path:
    data = bytearray(file.read_bytes())
    data[-from_end] ^= 4
    file.write_bytes(bytes(data))
    return aged(file)


@pytest.mark.parametrize("fronts", [True, False], ids=["fronts", "release 0.1"])
@pytest.mark.parametrize("from_end", [5, 70], ids=["trailer", "index"])
def test_a_damaged_last_group_is_an_error_and_stays(checkpoint: Checkpoint, fronts: bool, from_end: int) -> None:
    damaged = flipped(written_by(checkpoint, 1, "0/0/1.delta", stamp=STAMP, fronts=fronts), from_end)
    written_by(checkpoint, 2, "0/1/1.delta", stamp=STAMP + 5)

    with java_error("PSS_CORRUPT_INDEX", damaged.name):
        checkpoint.exists("0/0/1.delta")

    assert damaged.exists()


def test_a_file_that_is_damaged_while_a_query_runs_is_not_unlinked(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/1/1.delta")
    damaged = flipped(written_by(checkpoint, 1, "0/0/1.delta", stamp=STAMP), 5)

    assert checkpoint.log.clean() == 0

    assert damaged.exists()
    flipped(damaged, 5)  # its copy is put back
    assert checkpoint.read("0/0/1.delta") == b"0/0/1.delta" * 10


@pytest.mark.parametrize(
    ("fronts", "cut", "zeros", "goes"),
    [(False, 30, 0, False), (False, 64, 64, False), (True, 64, 64, False), (True, 30, 0, True)],
)
def test_only_what_a_crash_has_torn_goes(
    checkpoint: Checkpoint, fronts: bool, cut: int, zeros: int, goes: bool
) -> None:
    file = written_by(checkpoint, 1, "0/0/1.delta", stamp=STAMP, fronts=fronts)
    file.write_bytes(file.read_bytes()[:-cut] + bytes(zeros))
    aged(file)
    checkpoint.write("0/1/1.delta")

    checkpoint.clean()

    assert file.exists() is not goes
    assert not checkpoint.exists("0/0/1.delta")


# ---- groups that are being written


def test_a_group_that_is_being_written_is_not_searched(jvm: Any, counted: Callable[..., Checkpoint]) -> None:
    checkpoint = counted()
    checkpoint.merged.mkdir(parents=True)
    path = checkpoint.merged / file_name(CREATED_MS, 9, 1)
    with path.open("wb", buffering=0) as out:
        file = MergedFileWriter(out, writer=9, created_ms=CREATED_MS, meta={"plain": False, "fronts": True})
        file.put("0/0/1.delta", b"before", stamp=STAMP)
        file.end_group()
        out.write(pack_front(out.tell(), HUGE + 1000))
        for look in ("cold", "again", "again"):
            out.seek(HUGE // 4, os.SEEK_END)
            out.write(b"x")  # nothing but its length counts
            before = calls(jvm, checkpoint)
            if look == "cold":
                assert checkpoint.exists("0/0/1.delta")
            else:
                checkpoint.log.refresh()
            now = {what: count - before.get(what, 0) for what, count in calls(jvm, checkpoint).items()}
            print(f"{look}: {now}")
            assert 0 < now["read"] <= 4 * now["open"], look
            assert now["read_bytes"] <= (256 << 10) * now["open"], look
