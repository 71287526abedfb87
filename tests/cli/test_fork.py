"""The commands ``fork`` and ``release``, and ``compact --localize``."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.cli import main
from pyspark_statestore.maintenance.maintenance import Maintenance
from tests.cli.conftest import Invoke, rows
from tests.maintenance.builders import contents, make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Versions 1 to 4 of two partitions."""
    return make(tmp_path / "q1")


def test_fork_and_what_follows(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    made = rows(invoke("fork", source, fork, "--version", 3, "--output", "json"))
    assert (made["mode"], made["version"], made["referenced_segments_count"]) == ("no_claim", 3, 12)
    assert rows(invoke("summary", fork, "--output", "json"))["forked_from"] == f"file://{source}"

    refused = invoke("release", source, fork, status=1)
    assert refused.stderr.startswith("[PSS_FORK_NEEDS]")
    planned = invoke("release", source, fork, "--force", "--dry-run")
    assert "12" in planned.stdout
    assert "cannot be restored once these files are gone" in planned.stdout
    done = rows(invoke("compact", fork, "--localize", "--output", "json"))
    assert done["rewritten_bytes_count"] == made["referenced_bytes_count"]
    assert rows(invoke("release", source, fork, "--output", "json"))["released_pins_count"] == 0


@pytest.mark.parametrize("mode", ["no_claim", "claim", "copy"])
def test_a_dry_run_makes_nothing(invoke: Invoke, source: Path, tmp_path: Path, mode: str) -> None:
    before = contents(tmp_path)
    arguments = ("fork", source, tmp_path / "fork", "--mode", mode, "--force", "--output", "json")

    planned = rows(invoke(*arguments, "--dry-run"))

    assert contents(tmp_path) == before
    assert not (tmp_path / "fork").exists()
    made = rows(invoke(*arguments))
    assert (planned.pop("dry_run"), planned.pop("query_id")) == (True, "")
    assert {name: made[name] for name in planned} == planned


def test_the_defaults_are_those_of_python() -> None:
    for command, method in (("fork", Checkpoint.fork), ("release", Maintenance.release_fork)):
        parameters = inspect.signature(method).parameters
        ours = main.cli.commands[command].make_context(command, ["path", "fork"]).params
        shared = set(ours) & set(parameters) - {"storage_options", "fork"}
        assert {"dry_run", "force"} <= shared
        assert {name: ours[name] for name in shared} == {name: parameters[name].default for name in shared}


def test_a_dry_run_for_people_has_a_dash_for_the_id(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    shown = invoke("fork", source, tmp_path / "fork", "--dry-run").stdout
    assert re.search(r"^query_id +-$", shown, re.MULTILINE)
