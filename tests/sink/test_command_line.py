"""``pyspark-statestore sink``: what its commands print, write and return."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyspark_statestore.cli.main import cli
from tests.conftest import ROOT, MakeSpark
from tests.sink.sinks import TASKS, FileSink, rows_of
from tests.sink.test_old_sinks import listed, old_sink

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]


@pytest.fixture(scope="module")
def sink(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> FileSink:
    return old_sink(make_spark(), tmp_path_factory.mktemp("sink"))


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(cli, ["sink", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def as_json(*arguments: object, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--output", "json", status=status).partition("\nDRY RUN")[0])


def test_what_is_there(sink: FileSink) -> None:
    assert "40 listed files" in run("files", sink.files)
    assert len(as_json("files", sink.files)) == 40
    assert "2.compact" in run("log", sink.files)
    assert [row["entry_count"] for row in as_json("log", sink.files) if row["is_current"]] == [24, 8, 8]
    assert as_json("verify", sink.files) == {
        "is_clean": True,
        "listed_files_count": 40,
        "listed_bytes_count": sum(row["file_size_in_bytes"] for row in as_json("files", sink.files)),
        "damages": [],
        "notes": [],
    }


def test_damage_has_an_exit_status(make_spark: MakeSpark, tmp_path: Path) -> None:
    damaged = old_sink(make_spark(), tmp_path, batches=1)
    (damaged.files / listed(damaged)[0]).unlink()
    assert "missing_file" in run("verify", damaged.files, status=3)
    assert "PSS_NOT_A_SINK" in run("verify", tmp_path, status=1)
    assert "PSS_INVALID_OPTION" in run("orphans", damaged.files, "--older-than", "1m", status=1)


def in_a_process(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyspark_statestore.cli", "sink", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_a_picture(sink: FileSink, tmp_path: Path) -> None:
    run("plot", sink.files, "-o", tmp_path / "sink.html")
    page = (tmp_path / "sink.html").read_text()
    cells = dict(re.findall(r"<tr><td>(\w+)</td><td>([^<]*)</td>", page))
    assert cells["listed_files"] == cells["small_files"] == "40"
    assert cells["directories"] == "2"
    assert cells["list_entries"] == "40"
    assert "q=1: 20" in page
    run("plot", sink.files, "-o", tmp_path / "sink.png")
    assert (tmp_path / "sink.png").read_bytes()[:4] == b"\x89PNG"
    assert "PSS_NOT_A_SINK" in run("plot", tmp_path, "-o", tmp_path / "no.png", status=1)


def test_what_waits_is_shown_and_published(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path / "sink", "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay="10h")
    assert "2 files that wait" in run("waiting", sink.files)
    assert [row["directory"] for row in as_json("waiting", sink.files)] == ["q=0", "q=1"]
    run("plot", sink.files, "-o", tmp_path / "sink.html")
    assert "<td>waiting_files</td><td>2</td>" in (tmp_path / "sink.html").read_text()

    refused = in_a_process(tmp_path, "publish", sink.files)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("[PSS_SINK_IN_USE]")
    arguments = ("publish", sink.files, "--idle-for", "0s", "--force", "--output", "json", "--master", "local[2]")
    done = in_a_process(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["published_data_files_count"] == 2
    assert sink.ids() == list(range(40))


def test_compact_and_orphans(make_spark: MakeSpark, tmp_path: Path) -> None:
    """In a process of its own, since the command starts a Spark, and stops it."""
    old = old_sink(make_spark(), tmp_path, batches=2, format="csv", options={"header": "true"})
    before, rows = listed(old), old.read()

    def compact(*more: str) -> subprocess.CompletedProcess[str]:
        return in_a_process(tmp_path, "compact", old.files, "--older-than", "0s", *more)

    refused = compact()
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("[PSS_INVALID_OPTION]")
    assert "Traceback" not in refused.stderr
    done = compact("--option", "header=true", "--output", "json", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rewritten_data_files_count"], report["added_data_files_count"]) == (2 * 2 * TASKS, 4)
    assert len(report["files"]) == len(before)
    assert report["removed_files_count"] == 0
    assert "sees the rows of the joined files twice" in done.stdout + done.stderr
    assert old.read() == rows

    assert as_json("orphans", old.files)["removed_files_count"] == 0
    planned = as_json("orphans", old.files, "--older-than", "0s", "--force")
    assert planned["removed_files_count"] == len(before) + 2
    assert set(before) <= set(old.present())
    run("orphans", old.files, "--older-than", "0s", "--force", "--no-dry-run")
    assert old.present() == listed(old)
    assert old.read() == rows
