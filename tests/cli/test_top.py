"""The command that tells what costs most."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.cli.builders import name
from tests.cli.conftest import Invoke, rows


def test_partitions_add_up(invoke: Invoke, checkpoint: Path) -> None:
    found = rows(invoke("top", checkpoint, "--by", "partitions", "--output", "json"))

    assert [row["partition_id"] for row in found] == [2, 1, 0]
    # Four versions of 3000 bytes, of which the first is deleted.
    largest = {**found[0], "share": round(found[0]["share"], 4)}
    assert largest == {
        "operator_id": 0,
        "partition_id": 2,
        "total_bytes": 12_000,
        "live_bytes": 9_000,
        "dead_bytes": 3_000,
        "segment_count": 4,
        "live_segment_count": 3,
        "plain_file_count": 0,
        "share": round(12_000 / 24_005, 4),
    }
    assert sum(row["share"] for row in found) == pytest.approx(1)


def test_files_add_up_to_what_is_on_the_disk(invoke: Invoke, checkpoint: Path) -> None:
    found = rows(invoke("top", checkpoint, "--by", "files", "--output", "json"))
    on_disk = {file.name: file.stat().st_size for file in (checkpoint / "state" / "_merged").iterdir()}

    assert {row["file_path"].rsplit("/", 1)[1]: row["total_bytes"] for row in found} == on_disk
    assert found[0]["file_path"].endswith(name(1))
    assert all(row["live_bytes"] + row["dead_bytes"] == row["total_bytes"] for row in found)
    live = Checkpoint(checkpoint).inspect.summary()["live_bytes"][0].as_py()
    assert sum(row["live_bytes"] for row in found) == live


@pytest.mark.parametrize(("by", "key"), [("operators", {"operator_id": 0}), ("types", {"type": "changelog"})])
def test_other_sums(invoke: Invoke, checkpoint: Path, by: str, key: dict[str, object]) -> None:
    [row] = rows(invoke("top", checkpoint, "--by", by, "--output", "json"))

    assert row.items() >= {**key, "total_bytes": 24_005, "segment_count": 13, "share": 1.0}.items()


def test_partitions_and_files_if_nothing_is_said(invoke: Invoke, checkpoint: Path) -> None:
    both = rows(invoke("top", checkpoint, "-n", 2, "--output", "json"))
    shown = invoke("top", checkpoint, "-n", 2).stdout

    assert list(both) == ["partitions", "files"]
    assert [len(table) for table in both.values()] == [2, 2]
    assert "partitions, 2 of 3" in shown
    assert "files, 2 of 3" in shown
    assert "50.0%" in shown


def test_nothing_costs_nothing(invoke: Invoke, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")

    assert rows(invoke("top", checkpoint, "--output", "json")) == {"partitions": [], "files": []}
    assert "partitions, 0 of 0" in invoke("top", checkpoint).stdout
