"""Whatever fails, and wherever the process dies: one can go back, one can repeat it, and nothing half-done counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pyspark_statestore import StateStoreFilesError
from tests.maintenance import builders
from tests.maintenance.builders import contents
from tests.maintenance.faults import Breakage, DiedError
from tests.migration.builders import (
    MERGED,
    STOCK,
    at,
    make_small,
    markers,
    plain_state,
    providers,
    state_of_merged,
    stock_goes_on,
    write_offsets,
)
from tests.sampling import sample_of_calls

pytestmark = [pytest.mark.slow, pytest.mark.sweep, pytest.mark.sweep(0, files="in and out")]

HOW = pytest.mark.parametrize(("deadly", "torn"), [(True, True)])
"""The process is dead after half of a write; one that lives on has less to mend."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begun by stock Spark, merged since."""
    return make_small(tmp_path_factory.mktemp("faults") / "original")


class Interrupted:
    """An action on copies of a checkpoint, each interrupted at another operation.

    Args:
        breakage: Of the file system.
        original: What is copied.
        folder: For the copies.
        action: What is done with a copy.
    """

    def __init__(self, breakage: Breakage, original: Path, folder: Path, action: Callable[[Path], object]) -> None:
        self._breakage, self._original, self._folder, self._action = breakage, original, folder, action

    def at_each(self, check: Callable[[Path, str], object], *, deadly: bool, torn: bool) -> int:
        """Calls ``check`` with each copy and the operation that failed, when all works again; returns how many."""
        whole = self._copy("whole")
        self._action(whole)
        calls = list(self._breakage.operations)
        numbers = sample_of_calls(calls)
        failed = 0
        for number in numbers:
            checkpoint = self._copy(str(number))
            self._breakage.mended()
            self._breakage.at, self._breakage.deadly, self._breakage.torn = number, deadly, torn
            try:
                self._action(checkpoint)
            except (StateStoreFilesError, DiedError):
                failed += 1
            what = self._breakage.operations[number] if number < len(self._breakage.operations) else "later"
            self._breakage.mended()
            check(checkpoint, what)
            shutil.rmtree(checkpoint.parent)
        assert failed > len(numbers) / 2
        return len(calls)

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._original, self._folder / name / "checkpoint"))


def go_back(checkpoint: Path, before: dict[str, bytes], what: str) -> None:
    """On a copy, so that the original can be gone on with, too."""
    copy = Path(shutil.copytree(checkpoint, checkpoint.with_name("back")))
    at(copy).convert("merged")
    assert state_of_merged(copy) == before, what
    assert (markers(copy), set(providers(copy))) == ([], {MERGED}), what
    at(copy).export()
    assert plain_state(copy) == before, what


@pytest.mark.parametrize(("deadly", "torn"), [(False, False), (True, True)])
def test_export_in_place(original: Path, tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool) -> None:
    before = state_of_merged(original)

    def check(checkpoint: Path, what: str) -> None:
        if ".exported" in markers(checkpoint) or STOCK in providers(checkpoint):
            assert plain_state(checkpoint) == before, what
        assert state_of_merged(checkpoint) == before, what
        go_back(checkpoint, before, what)
        at(checkpoint).export()
        assert plain_state(checkpoint) == before, what
        assert (markers(checkpoint), set(providers(checkpoint))) == ([".exported"], {STOCK}), what
        replaced = checkpoint / "state" / "0" / "1"
        assert not (replaced / ".2.changelog.crc").exists(), "Hadoop would refuse to read the new file"
        assert not (checkpoint / "offsets" / ".1.crc").exists()

    assert Interrupted(breakage, original, tmp_path, lambda c: at(c).export()).at_each(check, deadly=deadly, torn=torn)


def test_what_is_merged_until_the_export_says_that_it_has_begun_is_exported(
    original: Path, tmp_path: Path, breakage: Breakage
) -> None:
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    at(whole).export()
    [begun] = [n for n, what in enumerate(breakage.operations) if what.startswith("rename") and "exporting" in what]
    assert begun > 20
    for number in sample_of_calls(breakage.operations[: begun + 1]):
        checkpoint = Path(shutil.copytree(original, tmp_path / str(number)))
        breakage.mended()
        breakage.at = number
        breakage.instead = partial(builders.write_version, checkpoint, 3, merged=True)
        at(checkpoint).export()
        what = breakage.operations[number]
        breakage.mended()
        assert plain_state(checkpoint) == state_of_merged(checkpoint), what
        assert (checkpoint / "state/0/1/3.changelog").exists(), what


@HOW
def test_export_to_a_new_directory(
    original: Path, tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool
) -> None:
    before, expected = contents(original), state_of_merged(original)

    def check(checkpoint: Path, what: str) -> None:
        now = {name: data for name, data in contents(checkpoint).items() if not name.startswith("state/.clock.")}
        assert now == before, what
        new = checkpoint.with_name("new")
        if (new / "metadata").exists() and "4f5b" in (new / "metadata").read_text():
            assert plain_state(new) == expected, what
            assert set(providers(new)) == {STOCK}, what
        if (new / "offsets").exists():
            assert (new / "metadata").exists(), "Spark would begin a new query"
        if (new / "_exporting").exists() and (new / "metadata").exists():
            metadata = (new / "metadata").read_text()
            assert "4f5b" in metadata or not metadata.startswith("{"), "Spark would take it for whole"
        if not (new / "metadata").exists() or (new / "_exporting").exists() or not new.exists():
            at(checkpoint).export(new)
        assert plain_state(new) == expected, what
        assert set(providers(new)) == {STOCK}, what
        for name in ("metadata", "commits/0", "commits/1", "state/0/_metadata/metadata"):
            assert (new / name).read_bytes() == (original / name).read_bytes(), what
        assert not (new / "_exporting").exists()
        assert not (new / "state" / "_merged").exists()

    action = Interrupted(breakage, original, tmp_path, lambda c: at(c).export(c.with_name("new")))
    assert action.at_each(check, deadly=deadly, torn=torn)


@HOW
def test_convert_to_merged(tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool) -> None:
    original = tmp_path / "original"
    builders.make(original, "plain")
    write_offsets(original, STOCK, range(4))
    entries = [(original / "offsets" / str(batch)).read_text() for batch in range(4)]

    def check(checkpoint: Path, what: str) -> None:
        assert providers(checkpoint)[-1] in (STOCK, MERGED), what
        if providers(checkpoint)[-1] == MERGED:
            assert set(providers(checkpoint)) == {MERGED}, "the newest one is the last"
        copy = Path(shutil.copytree(checkpoint, checkpoint.with_name("back")))
        at(copy).convert("stock")
        assert [(copy / "offsets" / str(batch)).read_text() for batch in range(4)] == entries, what
        at(checkpoint).convert("merged")
        assert providers(checkpoint) == [MERGED] * 4, what

    action = Interrupted(breakage, original, tmp_path, lambda c: at(c).convert("merged"))
    assert action.at_each(check, deadly=deadly, torn=torn)


@HOW
def test_going_back(original: Path, tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool) -> None:
    exported = Path(shutil.copytree(original, tmp_path / "exported"))
    before = state_of_merged(original)
    at(exported).export()
    breakage.mended()

    def check(checkpoint: Path, what: str) -> None:
        assert state_of_merged(checkpoint) == before, what
        if markers(checkpoint) == []:
            assert set(providers(checkpoint)) == {MERGED}, what
        copy = Path(shutil.copytree(checkpoint, checkpoint.with_name("again")))
        at(copy).export()
        assert plain_state(copy) == before, what
        at(checkpoint).convert("merged")
        assert (markers(checkpoint), set(providers(checkpoint))) == ([], {MERGED}), what
        assert state_of_merged(checkpoint) == before, what

    action = Interrupted(breakage, exported, tmp_path, lambda c: at(c).convert("merged"))
    assert action.at_each(check, deadly=deadly, torn=torn)


@HOW
def test_dropping(original: Path, tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool) -> None:
    exported = Path(shutil.copytree(original, tmp_path / "exported"))
    at(exported).export()
    stock_goes_on(exported, batch=2)
    before = plain_state(exported)
    breakage.mended()

    def check(checkpoint: Path, what: str) -> None:
        assert plain_state(checkpoint) == before, what
        if any((checkpoint / "state").glob("_merged/*.merged")):
            assert markers(checkpoint), "nobody reads what is left of them"
        at(checkpoint).drop_merged(dry_run=False)
        assert not any((checkpoint / "state").glob("_merged/*.*ed")), what
        at(checkpoint).convert("merged")
        assert state_of_merged(checkpoint) == before, what

    action = Interrupted(breakage, exported, tmp_path, lambda c: at(c).drop_merged(dry_run=False))
    assert action.at_each(check, deadly=deadly, torn=torn)
