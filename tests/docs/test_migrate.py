"""The commands in docs/migrate.md work in the order in which they are there, and do what the page says."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_statestore.cli.main import cli
from pyspark_statestore.errors import ERROR_CLASSES
from tests.conftest import ROOT
from tests.migration.builders import (
    MERGED,
    STOCK,
    make,
    markers,
    plain_state,
    providers,
    state_of_merged,
    stock_goes_on,
)

PAGE = (ROOT / "docs" / "migrate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```console\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)


def age(checkpoint: Path) -> None:
    """Its query was stopped an hour ago."""
    for file in checkpoint.rglob("*"):
        if file.is_file():
            time = file.stat().st_mtime - 3600
            os.utime(file, (time, time))


def run(block: str) -> str:
    """Runs the commands of a block; returns what they print."""
    lines = re.findall(r"\$ pyspark-statestore (.*)", block)
    assert lines
    printed = ""
    for line in lines:
        done = CliRunner().invoke(cli, shlex.split(line))
        assert done.exit_code == 0, done.output
        printed += done.output
    return printed


def test_in_and_out_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into, out, back, anew = BLOCKS
    monkeypatch.chdir(tmp_path)
    stock = make(tmp_path / "checkpoints" / "q1", "plain")
    age(stock)
    assert "4" in run(into)
    assert set(providers(stock)) == {MERGED}

    stock.rename(tmp_path / "was-stock")
    checkpoint = make(tmp_path / "checkpoints" / "q1", "merged")
    before = state_of_merged(checkpoint)
    age(checkpoint)
    run(out)
    assert (plain_state(checkpoint), set(providers(checkpoint)), markers(checkpoint)) == (
        before,
        {STOCK},
        [".exported"],
    )
    run(back)
    assert (plain_state(checkpoint), set(providers(checkpoint)), markers(checkpoint)) == ({}, {MERGED}, [])

    run(out)
    stock_goes_on(checkpoint)
    age(checkpoint)
    before = plain_state(checkpoint)
    run(anew)
    assert (state_of_merged(checkpoint), set(providers(checkpoint))) == (before, {MERGED})
    assert not (checkpoint / "state" / "_merged").exists()


def test_every_error_on_the_page_exists() -> None:
    named = set(re.findall(r"PSS_\w+", PAGE))
    assert named
    assert named <= set(ERROR_CLASSES)
