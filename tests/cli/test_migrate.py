"""``convert``, ``export`` and ``drop-merged``."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from pyspark_statestore.cli.main import cli
from tests.maintenance.builders import contents
from tests.migration.builders import MERGED, STOCK, make, markers, plain_state, providers, state_of_merged


def run(*arguments: object) -> Result:
    """Runs a command."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_dry_runs_say_so_and_change_nothing(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "q1")
    before = contents(checkpoint)
    for command in (("export",), ("export", "--to", tmp_path / "new"), ("convert", "--to", "merged")):
        done = run(command[0], checkpoint, *command[1:], "--dry-run", "--force")
        assert done.exit_code == 0, done.output
        assert "DRY RUN" in done.output
    assert contents(checkpoint) == before
    assert not (tmp_path / "new").exists()


def test_out_and_dropped(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "q1")
    before = state_of_merged(checkpoint)
    refused = run("export", checkpoint)
    assert refused.exit_code == 1
    assert "[PSS_QUERY_RUNNING]" in refused.output
    assert "--force" in refused.output

    done = run("export", checkpoint, "--force", "--output", "json")
    assert json.loads(done.output)["exported_files_count"] == len(before)
    assert json.loads(done.output)["provider"] == STOCK
    assert plain_state(checkpoint) == before

    assert "DRY RUN" in run("drop-merged", checkpoint).output
    assert markers(checkpoint) == [".exported"]
    assert run("drop-merged", checkpoint, "--no-dry-run").exit_code == 0
    assert not (checkpoint / "state" / "_merged").exists()
    done = run("convert", checkpoint, "--to", "merged", "--force", "--output", "json")
    assert json.loads(done.output)["changed_entries_count"] == 4
    assert set(providers(checkpoint)) == {MERGED}


def test_the_command_line_is_checked() -> None:
    assert run("convert", "x").exit_code == 2
    assert run("convert", "x", "--to", "elsewhere").exit_code == 2
    assert run("convert", "x", "--to", "merged", "--door", "window").exit_code == 2
