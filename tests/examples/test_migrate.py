"""The example about migration, for real."""

import re
import sys

import pytest
from click.testing import CliRunner

from examples import migrate
from tests.conftest import ROOT
from tests.examples.look import run_commands
from tests.scripts import run_to_the_end


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sweep(0, files="what a reader runs first")
def test_it_gets_in_and_out(main_jar, tmp_path) -> None:
    options = ["--days", "6", "--files-per-trigger", "1", "--partitions", "2", "--work-dir", str(tmp_path)]
    command = [sys.executable, "-m", "examples.migrate", *options]
    done = run_to_the_end(command, cwd=ROOT, timeout=500)

    assert done.returncode == 0, done.stderr
    assert re.search(r"equal to the batch computation, row for row \([1-9]", done.stdout)
    assert re.search(r"converted [1-9]", done.stdout)
    assert re.search(r"exported [1-9]", done.stdout)
    assert re.search(r"dropped [1-9]", done.stdout)
    assert re.search(r"^merged: .* and [1-9]\d* merged ones", done.stdout, re.MULTILINE)
    run_commands(done.stdout)


def test_stock_alone_migrates_nowhere() -> None:
    assert CliRunner().invoke(migrate.main, ["--state", "stock"]).exit_code == 2
