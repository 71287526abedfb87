"""What the example programs say and return, and the options that they refuse."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from examples import first_sightings, flights, flights_with_weather, follow_aircraft, harness, windowed_delays
from examples.options import Settings
from pyspark_statestore import __version__

EXAMPLES = [windowed_delays, first_sightings, flights_with_weather, follow_aircraft]


class NoSession:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def outcome_of(monkeypatch):
    def set_outcome(**changes):
        facts: dict[str, Any] = {
            "rows": 3,
            "expected": 3,
            "missing": [],
            "surplus": [],
            "stopped_after": 1,
            "batches": 2,
            "seconds": 1.0,
        }
        monkeypatch.setattr(harness, "session", lambda *_: NoSession())
        monkeypatch.setattr(harness, "run", lambda *_: harness.Outcome(**facts | changes))

    return set_outcome


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.NAME)
def test_exit_code_says_whether_the_result_is_equal(example, outcome_of, tmp_path) -> None:
    outcome_of()
    result = CliRunner().invoke(example.main, ["--work-dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "equal to the batch computation, row for row (3 rows)" in result.output
    outcome_of(missing=["a row"])
    result = CliRunner().invoke(example.main, ["--work-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output
    assert "missing: a row" in result.output


@pytest.mark.parametrize("changes", [{"missing": ["a"]}, {"surplus": ["a"]}, {"rows": 4}])
def test_any_difference_is_unequal(changes) -> None:
    facts: dict[str, Any] = {"rows": 3, "expected": 3, "missing": [], "surplus": []}
    assert harness.Outcome(**facts, stopped_after=1, batches=2, seconds=0).equal
    assert not harness.Outcome(**facts | changes, stopped_after=1, batches=2, seconds=0).equal


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.NAME)
def test_help_shows_the_command(example) -> None:
    result = CliRunner().invoke(example.main, ["--help"])
    assert result.exit_code == 0
    assert f"python -m examples.{example.NAME}" in result.output


@pytest.mark.parametrize("wrong", [("--door", "provider"), ("--store", "heap")])
def test_transform_with_state_takes_the_path_door_only(wrong) -> None:
    result = CliRunner().invoke(follow_aircraft.main, wrong)
    assert result.exit_code == 2
    assert wrong[1] in result.output


@pytest.mark.parametrize("wrong", [("--days", "1"), ("--state", "other"), ("--partitions", "0"), ("--door", "window")])
def test_bad_options_are_refused(wrong) -> None:
    assert CliRunner().invoke(windowed_delays.main, wrong).exit_code == 2


def test_paths_of_both_doors(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(flights, "prepare", lambda work_dir, days: work_dir / "input")
    settings = {"work_dir": tmp_path, "days": 5}
    by_key = harness.prepare_run(Settings(**settings, door="provider"), "e")
    by_path = harness.prepare_run(Settings(**settings, door="path"), "e")
    stock = harness.prepare_run(Settings(**settings, door="path", state="stock"), "e")
    assert by_key.checkpoint == by_key.folder.as_uri()
    assert by_path.checkpoint == "merged+" + by_path.folder.as_uri()
    assert stock.checkpoint == stock.folder.as_uri()
    assert len({by_key.folder, by_path.folder, stock.folder}) == 3


def test_a_run_begins_with_an_empty_folder_and_leaves_others_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(flights, "prepare", lambda work_dir, days: work_dir / "input")
    settings = Settings(work_dir=tmp_path)
    old = harness.prepare_run(settings, "one").folder / "state" / "old"
    other = harness.prepare_run(settings, "two").folder / "state" / "old"
    for file in (old, other):
        file.parent.mkdir(parents=True)
        file.touch()
    harness.prepare_run(settings, "one")
    assert not old.exists()
    assert other.exists()


def test_the_command_line_is_named_so_that_a_shell_finds_it(tmp_path, monkeypatch) -> None:
    """In an environment that is activated and in one that is not; beside a command of the same name, too."""
    other = tmp_path / "with space" / "pyspark-statestore"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    own = str(Path(sys.executable).parent)
    before = os.environ["PATH"]
    for path in (f"{own}:{before}", f"{other.parent}:{before}", "/usr/bin:/bin"):
        monkeypatch.setenv("PATH", path)
        command = ["bash", "-c", f"{harness.command_line()} --version"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.stdout == f"pyspark-statestore, version {__version__}\n", done.stderr
    monkeypatch.setattr(sys, "executable", str(other.with_name("python")))
    assert harness.command_line() == f"'{other}'"


def test_commands_to_look_at_next_have_the_run_s_paths(tmp_path, capsys) -> None:
    folder = tmp_path / "a b" / "checkpoint"
    harness.look_next(folder, "top {checkpoint}", "report {checkpoint} -o {run}/report.html", "list {work}")
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Look at next:"
    words = [shlex.split(line)[-1] for line in lines]
    assert words == [str(folder), str(folder.parent / "report.html"), str(tmp_path)]


def test_state_files_are_counted_by_kind(tmp_path) -> None:
    for name in ("_merged/a.merged", "0/_metadata/metadata", "0/0/1.changelog"):
        file = Path(tmp_path, "state", name)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")
    assert harness.state_files(tmp_path) == {"merged": 1, "plain": 2, "bytes": 15}
