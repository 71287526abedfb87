"""The examples in docs/command-line.md are commands that work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.builders import age, name, write_checkpoint, write_sink
from tests.conftest import ROOT
from tests.maintenance.builders import make
from tests.migration.builders import make as make_with_offsets
from tests.migration.test_unfinished_repartition import begin_repartitioning
from tests.state.small_stores import write_store

pytestmark = pytest.mark.sweep(1, files="queries of pages")

DOCS = ROOT / "docs" / "command-line.md"
MERGED_FILE = re.compile(r"\d{13}-[0-9a-f]{16}-\d+\.merged")


def examples() -> list[str]:
    """The command lines on the page, those of a block together."""
    blocks = re.findall(r"^```console\n(.*?)^```$", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    return ["\n".join(line[2:] for line in block.splitlines() if line.startswith("$ ")) for block in blocks]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page's checkpoint in it, and the command."""
    folder = tmp_path_factory.mktemp("docs")
    for path in write_checkpoint(folder / "checkpoints" / "q1").rglob("*"):
        age(path, minutes=60)  # its query is stopped
    write_store(folder / "checkpoints" / "clicks")
    make(folder / "checkpoints" / "orders")
    begin_repartitioning(make_with_offsets(folder / "checkpoints" / "carts"))
    write_sink(folder / "tables" / "clicks")
    command = folder / "bin" / "pyspark-statestore"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pyspark_statestore.cli "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("example", examples())
def test_example(place: Path, example: str) -> None:
    environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = ["bash", "-e", "-o", "pipefail", "-c", MERGED_FILE.sub(name(1), example)]

    done = subprocess.run(shell, cwd=place, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout or " -o " in example
    assert "Traceback" not in done.stderr


def test_every_command_is_on_the_page() -> None:
    from pyspark_statestore.cli.main import cli

    shown = set(re.findall(r"^pyspark-statestore (\S+)", "\n".join(examples()), re.MULTILINE))

    assert set(cli.commands) - {"jar-path", "settings"} == shown
    of_sinks = [f"sink {command}" for command in cli.commands["sink"].commands]  # type: ignore[attr-defined]
    table = DOCS.read_text().partition("| command | what it shows |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^\| (?:\[)?`((?:sink )?[a-z-]+)", table, re.MULTILINE))
    assert listed == {*cli.commands, *of_sinks} - {"sink"}
