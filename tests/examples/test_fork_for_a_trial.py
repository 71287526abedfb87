"""The example about forks, for real."""

import re
import sys

import pytest
from click.testing import CliRunner

from examples import fork_for_a_trial
from tests.conftest import ROOT
from tests.examples.look import run_commands
from tests.scripts import run_to_the_end


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sweep(0, files="what a reader runs first")
def test_the_trial_ends_as_the_query_does(main_jar, tmp_path) -> None:
    options = ["--days", "8", "--partitions", "2", "--work-dir", str(tmp_path)]
    command = [sys.executable, "-m", "examples.fork_for_a_trial", *options]
    done = run_to_the_end(command, cwd=ROOT, timeout=500)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"forked at version \d+: [1-9]\d* segments, [1-9][\d,]* bytes, none of them copied", done.stdout)
    assert done.stdout.count("equal to the batch computation") == 2
    assert re.search(r"read elsewhere: [\d,]+ bytes, then 0", done.stdout)
    assert "forked_from" in run_commands(done.stdout)[0]


def test_without_merged_state_there_is_nothing_to_fork() -> None:
    assert CliRunner().invoke(fork_for_a_trial.main, ["--state", "stock"]).exit_code == 2


def test_help_shows_the_command() -> None:
    assert "python -m examples.fork_for_a_trial" in CliRunner().invoke(fork_for_a_trial.main, ["--help"]).output
