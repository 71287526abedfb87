"""What a conversion changes, and that it changes nothing else."""

from __future__ import annotations

import os
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.migration.builders import (
    MERGED,
    STOCK,
    at,
    make,
    make_small,
    markers,
    offsets_text,
    plain_state,
    providers,
    state_of_merged,
)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """A checkpoint of stock Spark."""
    return make(tmp_path / "stock", "plain")


def test_one_word_changes_and_a_copy_is_kept(stock: Path) -> None:
    (stock / "offsets" / "2").write_text(offsets_text(STOCK, 2, "v2"))
    before = {batch: (stock / "offsets" / str(batch)).read_bytes() for batch in range(4)}
    state = plain_state(stock)

    done = at(stock).convert("merged")

    assert (done.provider_before, done.provider_after, done.changed_entries_count) == (STOCK, MERGED, 4)
    for batch, data in before.items():
        assert (stock / "offsets" / str(batch)).read_bytes() == data.replace(STOCK.encode(), MERGED.encode())
        assert not (stock / "offsets" / f".{batch}.crc").exists(), "Hadoop would refuse to read the entry"
    assert plain_state(stock) == state
    assert done.kept_copy is not None
    with zipfile.ZipFile(BytesIO(Path(done.kept_copy.removeprefix("file://")).read_bytes())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"offsets/{batch}": data for batch, data in before.items()
        }


def test_and_back_to_the_byte(stock: Path) -> None:
    before = [(stock / "offsets" / str(batch)).read_bytes() for batch in range(4)]
    at(stock).convert("merged")
    assert at(stock).convert("merged").changed_entries_count == 0
    assert at(stock).convert("stock").changed_entries_count == 4
    assert [(stock / "offsets" / str(batch)).read_bytes() for batch in range(4)] == before


@pytest.mark.parametrize("text", ["v1\n\n{}", 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{}'])
def test_where_the_session_decides_nothing_has_to_be_changed(stock: Path, text: str) -> None:
    for batch in range(4):
        (stock / "offsets" / str(batch)).write_text(text)
    done = at(stock).convert("merged")
    assert (done.provider_before, done.provider_after, done.changed_entries_count) == (None, None, 0)
    assert done.kept_copy is None


@pytest.mark.parametrize("metadata", ['{"batchWatermarkMs":0}', '{"conf":{"x":null}}', "{}"])
def test_an_entry_that_lost_its_class_meanwhile_is_left_alone(stock: Path, metadata: str) -> None:
    at(stock).convert("merged")
    entry = stock / "offsets" / "1"
    entry.write_text(f"v1\n{metadata}\n{{}}")
    assert at(stock).convert("stock").changed_entries_count == 3
    assert entry.read_text() == f"v1\n{metadata}\n{{}}"


def test_a_superseded_plain_file_is_replaced_and_its_checksum_goes(tmp_path: Path) -> None:
    checkpoint = make_small(tmp_path / "small")
    before = state_of_merged(checkpoint)
    done = at(checkpoint).export()
    assert (done.replaced_files_count, done.exported_files_count, done.kept_files_count) == (1, 6, 0)
    assert plain_state(checkpoint) == before
    assert not (checkpoint / "state/0/1/.2.changelog.crc").exists()
    assert markers(checkpoint) == [".exported"]
    assert set(providers(checkpoint)) == {STOCK}


def test_through_the_path_door_the_class_stays(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "path", "mixed", provider=STOCK)
    for file in (checkpoint / "state").rglob("*.*"):
        if "_merged" not in file.parts:
            os.utime(file, (1_600_000_000, 1_600_000_000))
    before, offsets = state_of_merged(checkpoint), (checkpoint / "offsets" / "3").read_bytes()
    assert at(checkpoint).export().provider == STOCK
    assert plain_state(checkpoint) == before
    at(checkpoint).convert("merged", door="path")
    assert (markers(checkpoint), (checkpoint / "offsets" / "3").read_bytes()) == ([], offsets)
    assert state_of_merged(checkpoint) == before


def test_an_entry_that_was_cut_off_while_it_was_written_anew_is_mended(stock: Path) -> None:
    before = [(stock / "offsets" / str(batch)).read_bytes() for batch in range(4)]
    at(stock).convert("merged")
    for left in (b"", b"v1\n{"):
        (stock / "offsets" / "3").write_bytes(left)
        assert at(stock).convert("merged").changed_entries_count == 1
        assert providers(stock) == [MERGED] * 4
    (stock / "offsets" / "3").write_bytes(b"")
    assert at(stock).convert("stock").changed_entries_count == 4
    assert [(stock / "offsets" / str(batch)).read_bytes() for batch in range(4)] == before


def test_where_renaming_replaces_nothing(tmp_path: Path) -> None:
    """Neither a local disk nor an object store, as HDFS is neither."""
    import fsspec

    memory = fsspec.filesystem("memory")
    local = make(tmp_path / "local")
    root = f"/{tmp_path.name}"  # other tests of this process use it, too
    memory.put(str(local), f"{root}/there", recursive=True)
    try:
        checkpoint = at(f"memory:/{root}/there")
        checkpoint.export(f"memory:/{root}/new")
        checkpoint.export()
        for name in ("there", "new"):
            memory.get(f"{root}/{name}", str(tmp_path / name), recursive=True)
            assert plain_state(tmp_path / name) == state_of_merged(local)
            assert set(providers(tmp_path / name)) == {STOCK}
        checkpoint.convert("merged")
        memory.get(f"{root}/there", str(tmp_path / "back"), recursive=True)
        assert (markers(tmp_path / "back"), set(providers(tmp_path / "back"))) == ([], {MERGED})
        assert state_of_merged(tmp_path / "back") == state_of_merged(local)
    finally:
        memory.rm(root, recursive=True)
