"""Symbolic links in a checkpoint: nothing behind them changes; the checkpoint itself may be behind one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import file_name
from tests.hostile.builders import CHANGES, NOW, Contents, copied, everything, write
from tests.inspect.builders import CREATED_MS, STAMP, merged_file, refused
from tests.migration.builders import make

NAME = file_name(CREATED_MS + 1, 7, 1)
PLACES = (
    *("state", "state/_merged", "state/0", "state/0/1", "state/1/0", "offsets", "commits", "_replaced", "sources/0"),
    *("offsets/2", f"state/_merged/{NAME}", "state/0/_metadata", "metadata"),
)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return everything(tmp_path_factory.mktemp("whole") / "q")


def all_in(folder: Path) -> Mapping[str, bytes | None]:
    """Files with their bytes, and directories."""
    found = sorted(path for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("merged", [False, True], ids=["plain", "merged"])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_behind_a_link_changes(tmp_path: Path, contents: Contents, place: str, merged: bool) -> None:
    whole = write(tmp_path / "whole", contents, merged=merged)
    if not (whole / place).exists():
        pytest.skip("there is no such place when it is merged")
    for name, verb in CHANGES.items():
        path, elsewhere, empty = (tmp_path / f"{name} {each}" for each in ("q", "elsewhere", "empty"))
        copied(whole, path)
        elsewhere.mkdir()
        shutil.move(path / place, elsewhere / "moved")
        (path / place).symlink_to(elsewhere / "moved")
        empty.mkdir()
        before = all_in(elsewhere)
        try:
            verb(path, empty)
        except Exception as error:
            assert type(error).__name__ == "StateStoreFilesError", (name, error)
        assert all_in(elsewhere) == before, name


def test_an_export_says_what_leads_where(tmp_path: Path) -> None:
    path, elsewhere = make(tmp_path / "q"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (path / "state" / "0" / "1").symlink_to(elsewhere)
    before = all_in(path)

    with refused("PSS_BAD_PATH", "state/0/1", "symbolic link", str(elsewhere)):
        Checkpoint(path, closed_after=NOW).export(force=True)

    assert all_in(path) == before
    assert not list(elsewhere.iterdir())


def test_a_link_to_another_place_in_the_checkpoint_is_allowed(tmp_path: Path) -> None:
    path = make(tmp_path / "q")
    (path / "state" / "elsewhere").mkdir()
    (path / "state" / "0" / "1").symlink_to(path / "state" / "elsewhere")

    assert Checkpoint(path, closed_after=NOW).export(force=True).exported_files_count

    assert (path / "state" / "elsewhere" / "1.changelog").is_file()


def test_the_checkpoint_may_be_behind_a_link(tmp_path: Path, contents: Contents) -> None:
    whole = write(tmp_path / "real" / "q", contents, merged=True)
    for name, verb in CHANGES.items():
        said = []
        for real, way in ((f"{name}-1", f"{name}-1"), (f"{name}-2", f"{name}-link")):
            copied(whole, tmp_path / real / "q")
            if real != way:
                (tmp_path / way).symlink_to(tmp_path / real)
            empty = tmp_path / f"{way}-empty"
            empty.mkdir()
            try:
                verb(tmp_path / way / "q", empty)
                said.append("done")
            except Exception as error:
                said.append(str(error)[:20])
        assert said[0] == said[1], name


def test_an_exported_file_never_goes_into_a_directory_of_its_name(tmp_path: Path) -> None:
    path = make(tmp_path / "q")
    (path / "state" / "0" / "1" / "1.changelog").mkdir(parents=True)
    before = all_in(path / "state" / "0")

    with refused("PSS_WRITE_FAILED", "1.changelog", "there is a directory of this name"):
        Checkpoint(path, closed_after=NOW).export(force=True)

    assert not all_in(path / "state" / "0" / "1" / "1.changelog")
    assert not [name for name in all_in(path) if name.endswith(".tmp")]
    assert before.keys() <= all_in(path / "state" / "0").keys()


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("0/0/1.changelog", "0/0/1.changelog/2.changelog", "a file and a directory"),
        ("0/0", "0/0/2.changelog", "a file and a directory"),
        ("0/0/1.changelog", f"0/0/{'x' * 250}.changelog", "200 bytes"),
    ],
)
def test_what_cannot_all_be_written_is_not_begun(tmp_path: Path, one: str, other: str, words: str) -> None:
    path = tmp_path / "q"
    (path / "commits").mkdir(parents=True)
    with merged_file(path, 1) as out:
        for number, each in enumerate((one, other)):
            out.put(each, b"abc", stamp=STAMP + number)
    before = all_in(path)

    for target in (None, tmp_path / "new"):
        with refused("PSS_BAD_PATH", words, "nothing was changed"):
            Checkpoint(path, closed_after=NOW).export(target, force=True)

    assert all_in(path) == before
    assert not (tmp_path / "new").exists()
