"""docs/tutorial.md, from an empty directory to its end: the scripts and commands as they stand, in their order.

The scripts run in this process, whose JVM is there already. Installing is what tests/packaging does.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_statestore.cli.main import cli
from tests.conftest import ROOT, MakeSpark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.0", "Python data sources came with Spark 4.0"),
    pytest.mark.sweep(0, files="what a reader runs first"),
]

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r'^```python title="(.+?)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
STEPS = PAGE.partition("## 2.")[2].partition("## 9.")[0]
COMMANDS = "".join(re.findall(r"^```bash\n(.*?)^```$", STEPS, re.DOTALL | re.MULTILINE)).splitlines()
SHOWN = re.findall(r"^```text\n(.*?)^```$", STEPS, re.DOTALL | re.MULTILINE)


def run(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """Runs a command of the page; returns what it prints."""
    program, *words = shlex.split(command)
    if program == "pyspark-statestore":
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        return done.stdout
    assert program == "python", command
    monkeypatch.setattr(sys, "argv", words)
    capfd.readouterr()
    runpy.run_path(words[0], run_name="__main__")
    return capfd.readouterr().out


@pytest.fixture
def tutorial(make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The reader's directory, with the page's scripts in it, and a JVM without a session."""
    make_spark().stop()
    for name, text in SCRIPTS.items():
        # Spark's paths are relative to where its JVM was started.
        absolute = text.replace('json("clicks")', f'json("{tmp_path}/clicks")')
        (tmp_path / name).write_text(absolute.replace("checkpoints/", f"{tmp_path}/checkpoints/"))
    monkeypatch.chdir(tmp_path)
    for name, value in (("SPARK_LOCAL_IP", "127.0.0.1"), ("PYSPARK_PYTHON", sys.executable)):
        monkeypatch.setenv(name, value)
    yield tmp_path
    # What the scripts have set is of their sessions only, which they stop themselves.
    make_spark().stop()


def test_from_nothing_to_sql(
    tutorial: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    printed = {command: run(command, monkeypatch, capfd) for command in COMMANDS}

    assert set(SCRIPTS) == {"clicks.py", "ask.py"}
    assert list(printed)[:2] == ["python clicks.py stock", "python clicks.py merged"]
    assert "batch 11 was the last one" in printed["python clicks.py merged"]
    assert "batch 14 was the last one" in printed["python clicks.py merged 15"]
    assert "<svg" in (tutorial / "merged.html").read_text(encoding="utf-8")
    found = "\n".join(printed.values())
    exact = [
        shown for shown in SHOWN if "checkpoint  " not in shown and "file_count" not in shown and "|files|" not in shown
    ]
    for line in (line for shown in exact for line in shown.splitlines() if "file:///" not in line):
        assert line in found, line
    # Sizes, and the files that Spark makes of its snapshots by then, differ a little from machine to machine.
    (merged, stock) = (line.split() for line in printed["pyspark-statestore list checkpoints"].splitlines()[2:])
    assert merged[0].endswith("/merged")
    assert int(merged[1]) < 5
    assert stock[1] == "0"
    assert int(stock[-5]) > 200, stock


def test_every_command_is_one_that_is_run() -> None:
    before, after = PAGE.partition("## 2.")[0], PAGE.partition("## 9.")[2]
    assert {command.split()[0] for command in COMMANDS} == {"python", "pyspark-statestore"}
    others = re.findall(r"^```bash\n(.*?)^```$", before + after, re.DOTALL | re.MULTILINE)
    assert [block.split()[0] for block in others] == ["python3", "pip", "mkdir", "cd"]
    done = subprocess.run(
        ["bash", "-n"], input="\n".join(others), text=True, capture_output=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
