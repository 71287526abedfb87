"""A fork leaves for stock Spark, too: what it reads in its source is written where it is itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import fork
from tests.inspect.builders import refused
from tests.maintenance.builders import contents
from tests.migration.builders import STOCK, at, make, plain_state, providers, state_of_merged


@pytest.fixture
def forked(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint, and a fork of it."""
    source = make(tmp_path / "source")
    fork(source, tmp_path / "fork")
    return source, tmp_path / "fork"


def test_a_fork_is_exported(forked: tuple[Path, Path], tmp_path: Path) -> None:
    source, copy = forked
    expected, before = state_of_merged(source), contents(source)
    at(copy).export(tmp_path / "new")
    at(copy).export()
    for place in (copy, tmp_path / "new"):
        assert plain_state(place) == expected
        assert set(providers(place)) == {STOCK}
    assert contents(source) == before
    at(copy).drop_merged(dry_run=False)
    at(source).maintenance.remove_orphan_files(dry_run=False)
    assert plain_state(copy) == expected


def test_a_source_whose_files_are_gone(forked: tuple[Path, Path]) -> None:
    source, copy = forked
    for file in (source / "state" / "_merged").glob("*.merged"):
        file.unlink()
    with refused("PSS_FOREIGN_FILE_MISSING", str(source)):
        at(copy).export()


def test_a_source_of_a_fork_does_not_drop_what_the_fork_reads(forked: tuple[Path, Path]) -> None:
    source, _ = forked
    at(source).export()
    with refused("PSS_DROP_REFUSED", "fork"):
        at(source).drop_merged(dry_run=False)
