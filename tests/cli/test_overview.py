"""``list``: all checkpoints below a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.cli.builders import write_checkpoint
from tests.cli.conftest import Invoke, rows
from tests.inspect.builders import plain_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two merged checkpoints, one of stock Spark, one that is damaged, and what is none."""
    folder = tmp_path / "root"
    write_checkpoint(folder / "b")
    write_checkpoint(folder / "team" / "a")
    for name in ("stock", "broken"):
        for made in ("offsets", "commits"):
            (folder / name / made).mkdir(parents=True)
    plain_file(folder / "stock", "0/0/1.changelog", bytes(100))
    merged = folder / "broken" / "state" / "_merged"
    merged.mkdir(parents=True)
    (merged / "1700000000000-0000000000000007-1.merged").write_bytes(b"not a merged file, but long enough for one")
    (folder / "something" / "else").mkdir(parents=True)
    write_checkpoint(folder / "_hidden")
    write_checkpoint(folder / "b" / "inside")
    return folder


def test_every_checkpoint_has_a_line(root: Path, invoke: Invoke) -> None:
    found = rows(invoke("list", root, "--output", "json"))
    assert [row["checkpoint"] for row in found] == [
        (root / name).as_uri() for name in ("b", "broken", "stock", "team/a")
    ]
    merged, broken, stock, _ = found
    summary = Checkpoint(root / "b").inspect.summary().to_pylist()[0]
    assert {name: summary[name] for name in merged if name in summary} == {
        name: value for name, value in merged.items() if name not in ("checkpoint", "error")
    }
    assert merged["error"] is None
    assert broken["error"].startswith("[PSS_CORRUPT_FILE]")
    assert broken["file_count"] is None
    assert (stock["file_count"], stock["plain_file_count"], stock["plain_bytes"]) == (0, 1, 100)


def test_the_table_for_people(root: Path, invoke: Invoke) -> None:
    shown = invoke("list", root, "--sort", "file_size_in_bytes", "--descending", "--limit", "1").stdout.splitlines()
    assert shown[0] == f"4 checkpoints in {root.as_uri()}"
    assert shown[1].split()[:2] == ["checkpoint", "file_count"]
    assert shown[2].startswith((root / "b").as_uri()) or shown[2].startswith((root / "team/a").as_uri())
    assert shown[3] == "... and 3 more; --limit 0 shows all."


def test_how_deep_it_looks(root: Path, invoke: Invoke) -> None:
    assert len(rows(invoke("list", root, "--depth", "1", "--output", "json"))) == 3
    assert rows(invoke("list", root, "--depth", "0", "--output", "json")) == []
    assert len(rows(invoke("list", root / "b", "--depth", "0", "--output", "json"))) == 1
    assert invoke("list", root / "something").stdout == f"0 checkpoints in {(root / 'something').as_uri()}\n"


def test_a_root_that_holds_nothing(root: Path, invoke: Invoke) -> None:
    said = invoke("list", root / "nowhere", status=1).stderr
    assert said.startswith(f"[PSS_READ_FAILED] Could not list {(root / 'nowhere').as_uri()}: it does not exist")
    assert ": it is a file;" in invoke("list", root / "b" / "metadata", status=1).stderr.replace(".", ";")
