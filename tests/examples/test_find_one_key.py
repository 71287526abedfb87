"""The example about looking inside, for real."""

import json
import re
import sys

import pytest
from click.testing import CliRunner

from examples import find_one_key
from tests.conftest import ROOT
from tests.examples.look import run_commands
from tests.scripts import run_to_the_end


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sweep(0, files="what a reader runs first")
def test_a_key_and_its_history(main_jar, tmp_path) -> None:
    options = ["--days", "8", "--partitions", "2", "--work-dir", str(tmp_path)]
    command = [sys.executable, "-m", "examples.find_one_key", *options]
    done = run_to_the_end(command, cwd=ROOT, timeout=500)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"remembers [1-9][\d,]* sightings, one of them of N\w+", done.stdout)
    assert re.search(r"^  partition \d: .*'tailnum': 'N\w+'.* -> .*expiresAtMicros", done.stdout, re.MULTILINE)
    assert re.search(r"^  version \d+: added .*'tailnum': 'N\w+'", done.stdout, re.MULTILINE)
    assert re.search(r"equal to what Spark's statestore source reads \([1-9]", done.stdout)
    changes, found = run_commands(done.stdout)
    assert "added" in changes
    assert json.loads(found)


def test_help_shows_the_command() -> None:
    assert "python -m examples.find_one_key" in CliRunner().invoke(find_one_key.main, ["--help"]).output
