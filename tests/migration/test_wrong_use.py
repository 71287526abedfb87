"""What would lose something, or bring old state back, is refused with an error that says what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from pyspark_statestore import Checkpoint, convert, export
from tests.inspect.builders import STAMP, merged_file, plain_file, refused, use_for_local_files
from tests.maintenance.builders import contents, entry_of, flip, write_version
from tests.migration.builders import (
    MERGED,
    STOCK,
    at,
    make,
    markers,
    plain_state,
    providers,
    state_of_merged,
    stock_goes_on,
    superseded,
    write_offsets,
)


@contextmanager
def unchanged(*places: Path) -> Iterator[None]:
    """Nothing in these directories changes."""
    before = [contents(place) for place in places]
    yield
    assert [contents(place) for place in places] == before


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A checkpoint that was merged from the beginning."""
    return make(tmp_path / "merged")


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """A checkpoint of stock Spark."""
    return make(tmp_path / "stock", "plain")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_query_that_seems_to_be_running(merged: Path, stock: Path, tmp_path: Path, dry_run: bool) -> None:
    with unchanged(merged, stock):
        with refused("PSS_QUERY_RUNNING", "Converting"):
            convert(stock, "merged", dry_run=dry_run)
        with refused("PSS_QUERY_RUNNING", "Exporting"):
            export(merged, dry_run=dry_run)
        with refused("PSS_QUERY_RUNNING", "Exporting"):
            export(merged, tmp_path / "new", dry_run=dry_run)
    assert not (tmp_path / "new").exists()
    assert Checkpoint(stock).convert("merged", force=True).changed_entries_count == 4


def test_dry_runs_change_nothing(merged: Path, stock: Path, tmp_path: Path) -> None:
    with unchanged(merged, stock):
        assert at(stock).convert("merged", dry_run=True).changed_entries_count == 4
        assert at(merged).export(dry_run=True).exported_files_count == 16
        assert at(merged).export(tmp_path / "new", dry_run=True).exported_files_count == 16
    assert not (tmp_path / "new").exists()
    at(merged).export()
    with unchanged(merged):
        assert at(merged).export(dry_run=True).exported_files_count == 0
        assert at(merged).convert("merged", dry_run=True).removed_files_count == 16
        assert at(merged).drop_merged().removed_files_count == 4


def test_over_files_that_exist(merged: Path, stock: Path, tmp_path: Path) -> None:
    with unchanged(merged, stock):
        with refused("PSS_DESTINATION_EXISTS", str(stock)):
            at(merged).export(stock)
        with refused("PSS_BAD_PATH", "itself"):
            at(merged).export(merged / "inside")
        with refused("PSS_BAD_PATH", "itself"):
            at(merged).export(merged.parent)
    at(merged).export(tmp_path / "new")
    with unchanged(tmp_path / "new"), refused("PSS_DESTINATION_EXISTS", "new"):
        at(merged).export(tmp_path / "new")


def test_over_an_interrupted_export_of_something_else(merged: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    (new / "_exporting").write_text('{"source": "elsewhere"}')
    with unchanged(new), refused("PSS_DESTINATION_EXISTS", "_exporting"):
        at(merged).export(new)


def test_plain_files_that_merged_state_knows_nothing_of(tmp_path: Path) -> None:
    checkpoint = tmp_path / "born-merged"
    write_offsets(checkpoint, MERGED, range(1))
    with merged_file(checkpoint, 1, plain=False) as file:
        file.put("0/0/1.delta", b"state", stamp=STAMP)
    plain_file(checkpoint, "0/0/9.snapshot")
    os.utime(checkpoint / "state/0/0/9.snapshot", (1_600_000_000, 1_600_000_000))
    with unchanged(checkpoint), refused("PSS_DESTINATION_EXISTS", "0/0/9.snapshot"):
        at(checkpoint).export(force=True)


def test_a_version_that_cannot_be_restored(merged: Path, tmp_path: Path) -> None:
    last = sorted((merged / "state" / "_merged").glob("*.merged"))[-1]
    last.unlink()
    for target in (None, tmp_path / "new"):
        with unchanged(merged), refused("PSS_VERSION_NOT_RESTORABLE", "Version 4", "3"):
            at(merged).export(target)
    assert not (tmp_path / "new").exists()


def test_a_damaged_segment(merged: Path, tmp_path: Path) -> None:
    before = state_of_merged(merged)
    file, entry = entry_of(merged, "0/1/3.changelog")
    whole = file.read_bytes()
    flip(file, entry.offset + 3)
    new = tmp_path / "new"
    for target in (None, new):
        with refused("PSS_CORRUPT_SEGMENT", "0/1/3.changelog", file.name):
            at(merged).export(target)
    assert (markers(merged), set(providers(merged))) == ([".exporting"], {MERGED})
    assert "4f5b" not in (new / "metadata").read_text()
    assert not (new / "offsets").exists()
    assert not (merged / "state/0/1/3.changelog").exists()

    file.write_bytes(whole)
    for target in (None, new):
        at(merged).export(target)
    assert plain_state(merged) == plain_state(new) == before


def test_a_disk_that_keeps_other_bytes_than_were_written(
    merged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lying(LocalFileSystem):
        def mv(self, path1: str, path2: str, **kwargs: object) -> None:
            super().mv(path1, path2, **kwargs)
            if path2.endswith("/4.zip"):
                flip(Path(path2), 5)

    before = state_of_merged(merged)
    use_for_local_files(monkeypatch, Lying)
    for target in (None, tmp_path / "new"):
        with refused("PSS_WRITE_FAILED", "4.zip", "read back"):
            at(merged).export(target)
    assert (markers(merged), set(providers(merged))) == ([".exporting"], {MERGED})
    monkeypatch.undo()
    for target in (None, tmp_path / "new"):
        at(merged).export(target)
    assert plain_state(merged) == plain_state(tmp_path / "new") == before


def test_to_stock_without_an_export(merged: Path, stock: Path) -> None:
    with unchanged(merged), refused("PSS_NOT_EXPORTED", "export"):
        at(merged).convert("stock")
    with unchanged(stock):
        assert at(stock).convert("stock").changed_entries_count == 0


def test_an_unknown_provider(stock: Path) -> None:
    write_offsets(stock, "com.example.Mine", [3])
    with unchanged(stock):
        with refused("PSS_UNKNOWN_PROVIDER", "com.example.Mine", "offsets/3"):
            at(stock).convert("merged")
        with refused("PSS_INVALID_OPTION", "merged or stock"):
            at(stock).convert("sideways")


@pytest.mark.parametrize("text", ["", "v1\n", "v3\n{}\n{}", "v1\n[]\n{}", "v1\n{\n{}"])
def test_an_entry_that_cannot_be_understood(stock: Path, text: str) -> None:
    (stock / "offsets" / "3").write_text(text)
    with unchanged(stock), refused("PSS_UNREADABLE_STATE", "offsets/3"):
        at(stock).convert("merged")


def test_transform_with_state_needs_the_path_door(stock: Path) -> None:
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"}, "stateStoreInfo": []}
    (stock / "state/0/_metadata/metadata").write_text("v1\n" + json.dumps(operator))
    with unchanged(stock):
        with refused("PSS_NEEDS_PATH_DOOR", "transformWithStateExec"):
            at(stock).convert("merged")
        at(stock).convert("merged", door="path")


def test_nobody_works_with_exported_files(merged: Path) -> None:
    at(merged).export()
    versions = Checkpoint(merged).inspect.versions().to_pylist()
    stock_goes_on(merged)
    maintenance = at(merged).maintenance
    with unchanged(merged):
        for work in (maintenance.compact, maintenance.remove_orphan_files, lambda: maintenance.expire(1, force=True)):
            with refused("PSS_EXPORTED", "drop-merged", "convert --to merged"):
                work()
        assert maintenance.verify().is_clean
        assert not Checkpoint(merged).is_merged
    now = Checkpoint(merged).inspect.versions().to_pylist()
    assert len(now) == len(versions) + 2, "what stock Spark has added is seen"
    assert all(row["is_restorable"] for row in now)


def test_old_merged_state_never_comes_back(merged: Path) -> None:
    at(merged).export()
    stock_goes_on(merged)
    with unchanged(merged):
        for door in ("provider", "path"):
            with refused("PSS_STALE_MERGED", "drop-merged"):
                at(merged).convert("merged", door=door, force=True)
    at(merged).export()
    before = plain_state(merged)
    at(merged).drop_merged(dry_run=False)
    at(merged).convert("merged")
    assert state_of_merged(merged) == before


def test_old_merged_state_never_comes_back_where_stock_spark_has_repeated_a_batch(merged: Path) -> None:
    at(merged).export()
    plain_file(merged, "0/0/4.changelog", b"another attempt")
    with unchanged(merged):
        with refused("PSS_STALE_MERGED", "0/0/4.changelog"):
            at(merged).convert("merged", force=True)
        with refused("PSS_DROP_REFUSED", "0/0/4.changelog"):
            at(merged).drop_merged(dry_run=False)


def test_old_merged_state_never_comes_back_where_stock_spark_has_begun_a_batch(merged: Path) -> None:
    at(merged).export()
    plain_file(merged, "0/0/5.changelog")
    with unchanged(merged), refused("PSS_STALE_MERGED", "next version"):
        at(merged).convert("merged", force=True)


def test_old_merged_state_never_comes_back_without_an_export(merged: Path, tmp_path: Path) -> None:
    """Somebody has copied plain files into the directory, and stock Spark has gone on with them."""
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    at(merged).export(tmp_path / "copy")
    shutil.copytree(tmp_path / "copy", merged, dirs_exist_ok=True)
    stock_goes_on(merged)
    with unchanged(merged):
        with refused("PSS_STALE_MERGED", "version 5"):
            at(merged).convert("merged")
        with refused("PSS_STALE_MERGED"):
            at(merged).export()
        with refused("PSS_DROP_REFUSED", "export was not made"):
            at(merged).drop_merged()
    before = plain_state(merged)
    assert at(merged).drop_merged(dry_run=False, force=True).removed_files_count == 4
    assert plain_state(merged) == before
    assert not (merged / "state" / "_merged").exists()


def test_what_somebody_else_has_written_during_an_export_is_not_overwritten(merged: Path) -> None:
    superseded(merged, "0/0/1.changelog")
    file, entry = entry_of(merged, "0/1/4.changelog")
    whole = file.read_bytes()
    flip(file, entry.offset)
    with refused("PSS_CORRUPT_SEGMENT"):
        at(merged).export()
    file.write_bytes(whole)
    plain_file(merged, "0/0/4.changelog", b"somebody else's")
    with unchanged(merged), refused("PSS_DESTINATION_EXISTS", "0/0/4.changelog"):
        at(merged).export()


def test_dropping_what_is_needed(merged: Path, tmp_path: Path) -> None:
    with unchanged(merged), refused("PSS_DROP_REFUSED", "export was not made"):
        at(merged).drop_merged(dry_run=False)
    with unchanged(merged), refused("PSS_DROP_REFUSED", "without them"):
        at(merged).drop_merged(dry_run=False, force=True)
    at(merged).export()

    lost = Path(shutil.copytree(merged, tmp_path / "lost"))
    (lost / "state/0/0/4.changelog").unlink()
    with unchanged(lost), refused("PSS_DROP_REFUSED", "0/0/4.changelog does not exist"):
        at(lost).drop_merged(dry_run=False)

    rotten = Path(shutil.copytree(merged, tmp_path / "rotten"))
    stock_goes_on(rotten)
    [name] = [path for path in plain_state(rotten) if path.startswith("0/0/SSTs/000004")]
    flip(rotten / "state" / name, 3)
    with unchanged(rotten), refused("PSS_DROP_REFUSED", name, "other bytes"):
        at(rotten).drop_merged(dry_run=False)

    newer = Path(shutil.copytree(merged, tmp_path / "newer"))
    write_version(newer, 9, merged=True)
    with unchanged(newer), refused("PSS_DROP_REFUSED", "after the export"):
        at(newer).drop_merged(dry_run=False)

    pinned = Path(shutil.copytree(merged, tmp_path / "pinned"))
    (pinned / "state/_merged/1700000000000-0000000000000007-1.fork").write_text("{}")
    with unchanged(pinned), refused("PSS_DROP_REFUSED", "fork"):
        at(pinned).drop_merged(dry_run=False)

    assert at(merged).drop_merged(dry_run=False).removed_files_count == 4
    assert at(merged).drop_merged(dry_run=False).removed_files_count == 0
    assert set(providers(merged)) == {STOCK}


def test_not_a_checkpoint(tmp_path: Path) -> None:
    for action in (lambda: at(tmp_path).export(), lambda: at(tmp_path).convert("merged"), at(tmp_path).drop_merged):
        with refused("PSS_NOT_A_CHECKPOINT"):
            action()
