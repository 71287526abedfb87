"""Directories that are listed page by page while files come and go: no listing is a snapshot, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import MergedFileWriter, file_name
from tests.inspect.builders import CREATED_MS, STAMP, use_for_local_files
from tests.maintenance.paged import Pages, paged_file_system

P = "0/0/1.changelog"
DATA = b"moved to a page that has been read"
MANY = 450
ORIGINAL = file_name(CREATED_MS + 10, 7, MANY)


def put(checkpoint: Path, name: str, path: str, data: bytes, **key: int) -> None:
    folder = checkpoint / "state" / "_merged"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as out:
        file = MergedFileWriter(out, writer=7, created_ms=CREATED_MS, meta={"plain": False})
        file.put(path, data, **key)
        file.seal()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pages:
    """Of the first listing: meanwhile a path is moved from the last page to the first one."""
    for number in range(MANY):
        put(tmp_path, file_name(CREATED_MS, 7, number), f"0/1/{number}.changelog", b"x", stamp=STAMP + number)
    put(tmp_path, ORIGINAL, P, DATA, stamp=STAMP)
    pages = Pages(MANY // 3)

    def move(directory: str, last: str) -> None:
        if directory.endswith("_merged"):
            pages.between = lambda directory, last: None
            put(tmp_path, file_name(CREATED_MS - 10, 7, 9999), P, DATA, stamp=STAMP, generation=1)
            (tmp_path / "state" / "_merged" / ORIGINAL).unlink()

    pages.between = move
    use_for_local_files(monkeypatch, paged_file_system(pages))
    return pages


def test_what_is_moved_meanwhile_is_seen(tmp_path: Path, pages: Pages) -> None:
    table = Checkpoint(tmp_path).inspect.segments()
    live = {row["logical_path"] for row in table.to_pylist() if row["status"] == "live"}
    assert len(live) == MANY + 1
    assert P in live
