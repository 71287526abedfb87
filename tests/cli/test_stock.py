"""A checkpoint that stock Spark has written: what the commands show before there are merged files, and beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.cli.conftest import Invoke, rows
from tests.inspect.builders import STAMP, merged_file, plain_file


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """Two partitions with three changelogs, a snapshot and an SST each."""
    folder = tmp_path / "stock"
    (folder / "offsets").mkdir(parents=True)
    for partition in range(2):
        for version in range(1, 4):
            plain_file(folder, f"0/{partition}/{version}.changelog", bytes(100 * (partition + 1)))
        plain_file(folder, f"0/{partition}/3.zip", bytes(1000))
        plain_file(folder, f"0/{partition}/000009-abc.sst", bytes(5000 * (partition + 1)))
    plain_file(folder, "0/_metadata/v2/0", b"not state")
    return folder


def test_the_table_agrees_with_the_summary(stock: Path) -> None:
    inspect = Checkpoint(stock).inspect
    plain, summary = inspect.plain_files().to_pylist(), inspect.summary().to_pylist()[0]
    assert (
        (summary["plain_file_count"], summary["plain_bytes"])
        == (10, 17900)
        == (
            len(plain),
            sum(row["file_size_in_bytes"] for row in plain),
        )
    )
    first = plain[0]
    assert first["file_path"] == (stock / "state/0/0/000009-abc.sst").as_uri()
    assert (first["logical_path"], first["type"], first["version"]) == ("0/0/000009-abc.sst", "sst", None)
    assert (first["operator_id"], first["partition_id"], first["store_name"]) == (0, 0, "default")
    assert [row["version"] for row in plain if row["type"] == "changelog"] == [1, 2, 3, 1, 2, 3]
    assert all(row["last_modified_at"] is not None for row in plain)


def test_files_counts_and_lists_plain_files(stock: Path, invoke: Invoke) -> None:
    assert invoke("files", stock).stdout == (
        f"0 merged files in {stock.as_uri()}; 10 plain state files, 17.5 KiB (--plain lists them)\n"
    )
    assert rows(invoke("files", stock, "--output", "json")) == []
    shown = invoke("files", stock, "--plain", "--sort", "file_size_in_bytes", "--descending", "--limit", "1").stdout
    assert shown.splitlines()[0] == f"10 plain state files, 17.5 KiB, in {stock.as_uri()}"
    assert shown.splitlines()[2].split()[:3] == ["0/1/000009-abc.sst", "9.8", "KiB"]
    assert len(rows(invoke("files", stock, "--plain", "--output", "json"))) == 10


def test_top_adds_plain_files_up(stock: Path, invoke: Invoke) -> None:
    found = rows(invoke("top", stock, "--by", "partitions", "--output", "json"))
    assert [(row["partition_id"], row["total_bytes"], row["dead_bytes"], row["plain_file_count"]) for row in found] == [
        (1, 11600, 0, 5),
        (0, 6300, 0, 5),
    ]
    assert sum(row["share"] for row in found) == pytest.approx(1)
    shown = invoke("top", stock, "-n", "1").stdout
    assert "plain_file_count" in shown
    assert "0/1/000009-abc.sst" in shown  # another partition may have a file of this name
    types = rows(invoke("top", stock, "--by", "types", "--output", "json"))
    assert {row["type"]: row["plain_file_count"] for row in types} == {"sst": 2, "changelog": 6, "snapshot": 2}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A query that was converted: two merged files, which say that plain ones may be beside them."""
    folder = tmp_path / "converted"
    for number in (1, 2):
        with merged_file(folder, number, plain=True) as file:
            for partition in range(2):
                file.put(f"0/{partition}/{number}.changelog", bytes(100), stamp=STAMP + number)
    return folder


def test_plain_files_beside_merged_ones(checkpoint: Path, invoke: Invoke) -> None:
    before = rows(invoke("top", checkpoint, "--by", "partitions", "--output", "json"))
    assert "plain_file_count" not in invoke("top", checkpoint).stdout
    plain_file(checkpoint, "0/0/9.changelog", bytes(10_000))
    after = rows(invoke("top", checkpoint, "--by", "partitions", "--output", "json"))
    totals = {row["partition_id"]: row["total_bytes"] for row in before}
    assert {row["partition_id"]: row["total_bytes"] for row in after} == {**totals, 0: totals[0] + 10_000}
    heading = invoke("files", checkpoint).stdout.splitlines()[0]
    assert heading.endswith("; 1 plain state file, 9.8 KiB (--plain lists them)")


def test_a_picture_shows_plain_files_and_names_its_bars(stock: Path, checkpoint: Path, invoke: Invoke) -> None:
    invoke("plot", stock, "-o", stock / "stock.html")
    page = (stock / "stock.html").read_text()
    assert "10 plain state files, 17.5 KiB" in page
    assert "no state files" not in page
    plain_file(checkpoint, "0/0/9.changelog", bytes(10_000))
    invoke("plot", checkpoint, "-o", checkpoint / "q1.html")
    page = (checkpoint / "q1.html").read_text()
    assert "1 plain file in one bar" in page
    files = rows(invoke("files", checkpoint, "--output", "json"))
    for number, row in enumerate(files, start=1):
        assert f"<td>{number}</td>" in page
        assert row["file_path"].rpartition("/")[2] in page
