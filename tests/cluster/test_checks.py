"""The checks of killed queries find what they look for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from pyspark_statestore.format import MergedFileWriter, file_name
from tests.cluster.application import Application, Setting
from tests.cluster.checks import Graveyard, files_in_use, leftovers, names_in, stable_view
from tests.cluster.processes import has_exited
from tests.jvm import harness
from tests.jvm.harness import TESTING

_WRITER = 5


@pytest.fixture
def app(tmp_path: Path) -> Application:
    """An application that nobody starts."""
    return Application(tmp_path, Setting(), (tmp_path, tmp_path))


def test_a_jvm_that_hangs_in_its_exit_is_told_from_one_that_runs(test_jar: Path, tmp_path: Path) -> None:
    home = tmp_path / "db"
    command = ["java", "-cp", f"{Path(pyspark.__file__).parent}/jars/*{os.pathsep}{test_jar}", f"{TESTING}.HangingExit"]
    with subprocess.Popen([*command, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "logs\n"
            assert not has_exited(process.pid)

            process.stdin.write("exit\n")
            process.stdin.flush()
            harness.until(lambda: has_exited(process.pid), "the end of the JVM")
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
        finally:
            process.kill()


def _write(
    app: Application, number: int, *, puts: dict[str, int] | None = None, deletes: dict[str, int] | None = None
) -> str:
    """A sealed merged file with these paths and stamps; its name."""
    directory = app.state / "_merged"
    directory.mkdir(parents=True, exist_ok=True)
    name = file_name(1_700_000_000_000, _WRITER, number)
    with (directory / name).open("wb") as out:
        file = MergedFileWriter(out, writer=_WRITER, created_ms=1_700_000_000_000, meta={})
        for path, stamp in (puts or {}).items():
            file.put(path, b"state", stamp=stamp)
        for path, stamp in (deletes or {}).items():
            file.delete(path, stamp=stamp, writer=_WRITER)
        file.seal()
    return name


def test_a_deleted_path_that_lives_again_is_found(app: Application) -> None:
    _write(app, 1, puts={"0/0/1.changelog": 10})
    tombstone = _write(app, 2, deletes={"0/0/1.changelog": 10})
    graveyard = Graveyard(app.state)
    graveyard.visit()

    (app.state / "_merged" / tombstone).unlink()

    with pytest.raises(AssertionError, match="back"):
        graveyard.visit()


def test_a_path_that_is_written_again_is_not_a_deleted_one(app: Application) -> None:
    _write(app, 1, puts={"0/0/1.changelog": 10}, deletes={"0/0/1.changelog": 10})
    graveyard = Graveyard(app.state)
    graveyard.visit()

    _write(app, 2, puts={"0/0/1.changelog": 11})

    assert list(graveyard.visit().live) == ["0/0/1.changelog"]


def test_a_file_is_of_use_as_long_as_something_lives_in_it_or_its_tombstones_hold_something_down(
    app: Application,
) -> None:
    mixed = _write(app, 1, puts={"0/0/1.changelog": 10, "0/0/2.changelog": 11})
    dead = _write(app, 2, puts={"0/0/3.changelog": 12})
    weaker = _write(app, 3, deletes={"0/0/1.changelog": 10})
    stronger = _write(app, 4, deletes={"0/0/1.changelog": 10, "0/0/3.changelog": 12})
    newest = _write(app, 5, puts={"0/0/4.changelog": 13}, deletes={"0/0/4.changelog": 13})

    assert files_in_use(stable_view(app.state)) == {mixed, stronger, newest}

    (app.state / "_merged" / dead).unlink()
    (app.state / "_merged" / mixed).unlink()
    assert files_in_use(stable_view(app.state)) == {newest}
    assert names_in(app.state) == [weaker, stronger, newest]


def test_an_index_only_file_is_of_use_as_long_as_it_alone_repeats_a_file_that_exists(app: Application) -> None:
    first = _write(app, 1, puts={"0/0/1.changelog": 10})
    second = _write(app, 2, puts={"0/0/2.changelog": 11})
    of_both = _repeat(app, 3, [first, second], stamp=12)
    of_one = _repeat(app, 4, [second], stamp=13)
    newest = _write(app, 5, puts={"0/0/3.changelog": 14})

    assert files_in_use(stable_view(app.state)) == {first, second, of_both, of_one, newest}

    of_all = _repeat(app, 6, [first, second], stamp=13)
    assert files_in_use(stable_view(app.state)) == {first, second, of_all, newest}

    (app.state / "_merged" / first).unlink()
    (app.state / "_merged" / second).unlink()
    assert files_in_use(stable_view(app.state)) == {newest}


def _repeat(app: Application, number: int, names: list[str], *, stamp: int) -> str:
    """An index-only file that repeats these files; its name."""
    view = stable_view(app.state)
    name = file_name(1_700_000_000_000, _WRITER, number, index_only=True)
    with (app.state / "_merged" / name).open("wb") as out:
        file = MergedFileWriter(out, writer=_WRITER, created_ms=1_700_000_000_000, meta={})
        file.seal_index_only({repeated: list(view.files[repeated]) for repeated in names}, group_stamp=stamp)
    return name


def test_relocations_without_end_and_old_versions_are_left_over(app: Application) -> None:
    app.fed = 20
    paths = [f"0/1/{version}.changelog" for version in range(10, 21)] + ["0/1/9.zip", "0/1/13.zip"]
    _write(app, 1, puts={path: 10 + number for number, path in enumerate(paths)})
    marker = app.state / "_merged" / "1700000000000-0000000000000005-9.relocating"
    marker.touch()

    found = leftovers(app, Graveyard(app.state))

    assert sorted(found) == ["0/1/10.changelog", "0/1/11.changelog", "0/1/12.changelog", "0/1/9.zip", marker.name]
