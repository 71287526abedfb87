"""Whatever somebody else has put into a checkpoint: an answer or an error of this package's, and nothing else happens.

``PSS_HOSTILE_MUTATIONS`` says how many changed checkpoints are tried; ``PSS_HOSTILE_SEED`` which ones.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.cli.main import cli
from tests.hostile.builders import CHANGES, COMMANDS, LOOKS, Contents, Verb, copied, everything, kin, marker, write
from tests.hostile.mutations import mutated

MUTATIONS = int(os.environ.get("PSS_HOSTILE_MUTATIONS", "32"))
SEED = int(os.environ.get("PSS_HOSTILE_SEED", "1"))
PARTS = 4


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return everything(tmp_path_factory.mktemp("whole") / "q")


def try_it(verb: Verb, path: Path, empty: Path) -> str:
    """The id of the error, or that there was none."""
    empty.mkdir()
    try:
        verb(path, empty)
    except StateStoreFilesError as error:
        str(error).encode()  # it can be printed
        return error.getErrorClass()
    return "done"


def elsewhere(world: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(world.rglob("*")) if path.is_file()}


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("part", range(PARTS))
def test_a_changed_checkpoint(tmp_path: Path, contents: Contents, part: int) -> None:
    for number in range(part, MUTATIONS, PARTS):
        one_changed(tmp_path / str(number), contents, random.Random(SEED * 1_000_000 + number))
        shutil.rmtree(tmp_path / str(number))


def one_changed(world: Path, contents: Contents, chance: random.Random) -> None:
    victim = world / "victim"
    victim.mkdir(parents=True)
    (victim / "1.changelog").write_bytes(b"precious")
    (victim / "0").mkdir()
    there: Contents = {**contents, **(kin(world) if chance.random() < 0.5 else {})}
    if chance.random() < 0.3:
        there.update(marker())
    changed = chance.sample(sorted(there), chance.choice((1, 1, 2, 4)))
    hostile = {**there, **{path: mutated(there[path], chance) for path in changed}}
    path = write(world / "q", hostile, merged=chance.random() < 0.5)
    if chance.random() < 0.3:
        changed.append(linked(path, victim, chance))
    before = elsewhere(victim), names_in(victim)
    for name, verb in verbs(chance):
        copy = copied(path, world / "copy" / "q")
        try:
            try_it(verb, copy, world / "empty")
            run_commands(copy, chance)
        except BaseException as error:
            raise AssertionError(f"{name} of {changed}, seed {SEED}, {world.name}") from error
        assert (elsewhere(victim), names_in(victim)) == before, (name, changed)
        assert {each.name for each in world.iterdir()} == {"victim", "q", "copy", "empty"}, (name, changed)
        shutil.rmtree(world / "copy")
        shutil.rmtree(world / "empty")


def verbs(chance: random.Random) -> Iterable[tuple[str, Verb]]:
    """All looks, one after another, and two changes."""

    def all_looks(path: Path, empty: Path) -> None:
        for name, look in LOOKS.items():
            try_it(look, path, empty / name.replace(" ", "-"))

    return [("looks", all_looks), *chance.sample(sorted(CHANGES.items()), 2)]


def run_commands(path: Path, chance: random.Random) -> None:
    command = chance.choice(sorted(COMMANDS))
    result = CliRunner().invoke(cli, [command, str(path), *COMMANDS[command]])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output


def linked(path: Path, victim: Path, chance: random.Random) -> str:
    """Replaces something in the checkpoint by a symbolic link to somebody else's."""
    place = chance.choice(sorted(each for each in path.rglob("*") if not each.is_symlink()))
    if place.is_dir():
        shutil.rmtree(place)
        place.symlink_to(victim)
    else:
        place.unlink()
        place.symlink_to(victim / "1.changelog" if chance.random() < 0.5 else victim)
    return f"{place.relative_to(path)}, a link"


@pytest.mark.parametrize("merged", [False, True])
def test_what_nobody_has_changed_can_be_used(tmp_path: Path, contents: Contents, merged: bool) -> None:
    path = write(tmp_path / "q", contents, merged=merged)
    said = {}
    for name, verb in {**LOOKS, **CHANGES}.items():
        copy = copied(path, tmp_path / name)
        said[name] = try_it(verb, copy, tmp_path / f"{name}-empty")

    refused = {"to stock": "PSS_NOT_EXPORTED", "drop": "PSS_DROP_REFUSED"} if merged else {}
    refused["state"] = "PSS_UNREADABLE_STATE"  # its snapshot is none of RocksDB's own
    assert {name: each for name, each in said.items() if each != "done"} == refused
