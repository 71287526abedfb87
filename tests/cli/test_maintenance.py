"""The commands that change a checkpoint: what they do, what they leave alone, and what they say."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.cli import main
from pyspark_statestore.cli.options import Size
from pyspark_statestore.maintenance.maintenance import Maintenance
from tests.cli.builders import write_sink
from tests.cli.conftest import Invoke, rows
from tests.conftest import ROOT
from tests.inspect.builders import STAMP, add_index, merged_file, merged_paths

MAINTENANCE = {
    "compact": "compact",
    "orphans": "remove_orphan_files",
    "verify": "verify",
    "expire": "expire",
    "consolidate": "consolidate_index",
}
NEEDS = {"expire": ["--retain-last", "1"]}
LONG_AGO = 1_600_000_000


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Four sealed files, each with a version of two partitions of a heap store, and two files that nobody can need."""
    checkpoint = tmp_path / "q1"
    for number in range(1, 5):
        with merged_file(checkpoint, number) as file:
            for partition in range(2):
                file.put(f"0/{partition}/{number}.delta", bytes([partition]) * 100, stamp=STAMP + number)
                if number == 3:
                    file.put(f"0/{partition}/{number}.snapshot", bytes([partition]) * 200, stamp=STAMP + number)
    for made in ("offsets", "commits"):
        (checkpoint / made).mkdir()
        for batch in range(4):
            (checkpoint / made / str(batch)).write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id":"x"}')
    for number in range(2):
        (checkpoint / "state" / "_merged" / f"16000000000{number:02}-00000000000000ff-1.merged").write_bytes(b"")
    for path in checkpoint.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return checkpoint


def content(checkpoint: Path) -> dict[str, bytes]:
    """Every file with its bytes."""
    files = (path for path in checkpoint.rglob("*") if path.is_file())
    return {str(path.relative_to(checkpoint)): path.read_bytes() for path in files}


def figures(result: Any) -> dict[str, str]:
    """What a table for people says, by name."""
    lines = (line.split(None, 1) for line in result.stdout.partition("\n\n")[0].splitlines()[1:])
    return {line[0]: line[1] for line in lines}


@pytest.mark.parametrize("command", MAINTENANCE)
def test_dry_run_is_the_first_option(invoke: Invoke, command: str) -> None:
    first = invoke(command, "--help").stdout.partition("\nOptions:\n")[2].split()

    assert first[:3] == ["--dry-run", "/", "--no-dry-run"]


@pytest.mark.parametrize("command", MAINTENANCE)
def test_the_defaults_are_those_of_python(command: str) -> None:
    parameters = inspect.signature(getattr(Maintenance, MAINTENANCE[command])).parameters
    ours = main.cli.commands[command].make_context(command, ["path", *NEEDS.get(command, [])]).params
    shared = set(ours) & set(parameters) - {"retain_last"}

    assert "dry_run" in shared
    assert {name: ours[name] for name in shared} == {name: parameters[name].default for name in shared}


@pytest.mark.parametrize("command", MAINTENANCE)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_dry_run_changes_nothing_and_says_so(invoke: Invoke, small: Path, command: str, form: str) -> None:
    before = content(small)

    done = invoke(command, small, "--dry-run", "--output", form, *NEEDS.get(command, []), *_repair(command))

    assert content(small) == before
    said = done.stdout.splitlines()[-1] if form == "table" else done.stderr
    assert "DRY RUN: nothing was changed." in said
    if form == "json":
        assert rows(done)["dry_run"] is True


def _repair(command: str) -> list[str]:
    return ["--repair"] if command == "verify" else []


@pytest.mark.parametrize("command", ["orphans", "expire"])
def test_what_deletes_is_a_dry_run_unless_told_otherwise(invoke: Invoke, small: Path, command: str) -> None:
    before = content(small)

    dry = invoke(command, small, *NEEDS.get(command, []))
    unchanged = content(small)
    really = invoke(command, small, "--no-dry-run", *NEEDS.get(command, []))

    assert unchanged == before
    assert "The same command with --no-dry-run does it." in dry.stdout.splitlines()[-1]
    assert "DRY RUN" not in really.output
    assert content(small) != before
    assert int(figures(dry)["removed_files_count"]) > 0


def test_compacted(invoke: Invoke, small: Path) -> None:
    versions = Checkpoint(small).inspect.versions().to_pylist()

    dry = rows(invoke("compact", small, "--dry-run", "--output", "json"))
    done = rows(invoke("compact", small, "--output", "json"))

    assert (dry["dry_run"], done["dry_run"]) == (True, False)
    assert dry["rewritten_files_count"] == done["rewritten_files_count"] == 4
    assert done["added_files_count"] == 1
    assert done["rewritten_bytes_count"] == sum(row["live_bytes"] for row in done["files"] if row["is_rewritten"])
    assert Checkpoint(small).inspect.versions().to_pylist() == versions
    assert len([path for path in merged_paths(small) if path.stat().st_size]) == 1


def test_only_what_is_small_or_mostly_dead_is_rewritten(invoke: Invoke, small: Path) -> None:
    size = max(path.stat().st_size for path in merged_paths(small))

    nothing = rows(invoke("compact", small, "--smaller-than", 1, "--max-space-amplification", 1e9, "--output", "json"))
    some = rows(
        invoke(
            *("compact", small, "--dry-run", "--output", "json"),
            *("--smaller-than", size + 1, "--max-space-amplification", 1e9),
        )
    )

    assert nothing["rewritten_files_count"] == 0
    assert some["rewritten_files_count"] == 4


def test_files_of_the_wanted_size(invoke: Invoke, small: Path) -> None:
    done = rows(invoke("compact", small, "--target-file-size", 1, "--smaller-than", "1m", "--output", "json"))

    assert done["added_files_count"] > 1


def test_orphans(invoke: Invoke, small: Path) -> None:
    done = rows(invoke("orphans", small, "--no-dry-run", "--output", "json"))

    assert done["removed_files_count"] == len(done["files"]) == 2
    assert all("00000000000000ff" in row["file_path"] for row in done["files"])
    assert len(merged_paths(small)) == 4
    assert "[PSS_INVALID_OPTION]" in invoke("orphans", small, "--older-than", "59m", status=1).stderr
    assert rows(invoke("orphans", small, "--older-than", "1m", "--force", "--output", "json"))["files"] == []


def test_expired(invoke: Invoke, small: Path) -> None:
    done = rows(invoke("expire", small, "--retain-last", 2, "--no-dry-run", "--output", "json"))

    assert done["removed_files_count"] > 0
    assert done["oldest_retained_batch"] == 2
    assert invoke("expire", small, "--retain-last", 0, status=2).stdout == ""
    assert "--retain-last" in invoke("expire", small, status=2).stderr


def test_a_query_that_runs_is_not_expired(invoke: Invoke, small: Path) -> None:
    os.utime(small / "offsets" / "3")

    refused = invoke("expire", small, "--retain-last", 1, "--no-dry-run", status=1)
    forced = invoke("expire", small, "--retain-last", 1, "--no-dry-run", "--force")

    assert refused.stderr.startswith("[PSS_QUERY_RUNNING]")
    assert "--force" in refused.stderr
    assert int(figures(forced)["removed_files_count"]) > 0


def test_consolidated(invoke: Invoke, small: Path) -> None:
    old = add_index(small)
    (small / "state" / "_merged" / "1600000000000-00000000000000ff-1.merged").unlink()
    done = rows(invoke("consolidate", small, "--output", "json"))
    again = figures(invoke("consolidate", small))

    assert done["covered_files_count"] >= 4
    if done["index_file"] is not None:
        assert done["index_file"].endswith(".index.merged")
        assert not old.exists()
    assert again["index_file"] == "-"


def test_sound(invoke: Invoke, small: Path) -> None:
    done = rows(invoke("verify", small, "--output", "json"))

    assert done["is_clean"] is True
    assert done["damages"] == []
    assert done["segments_count"] == 10
    assert "damage" not in invoke("verify", small).stdout.splitlines()[-1].replace("damages_count", "")


def test_damaged(invoke: Invoke, small: Path) -> None:
    path = merged_paths(small)[-1]
    row = next(r for r in Checkpoint(small).inspect.segments().to_pylist() if r["file_path"].endswith(path.name))
    data = bytearray(path.read_bytes())
    data[row["offset"]] ^= 1
    path.write_bytes(data)

    found = invoke("verify", small, "--output", "json", status=3)
    shown = invoke("verify", small, status=3)

    report = rows(found)
    assert report["is_clean"] is False
    assert report["damages_count"] - report["repaired_count"] > 0
    assert row["logical_path"] in {damage["logical_path"] for damage in report["damages"]}
    assert path.name in shown.stdout
    assert "not repaired" in shown.stdout.splitlines()[-1]
    assert "not repaired" in found.stderr


@pytest.mark.parametrize("command", MAINTENANCE)
def test_errors_are_messages(invoke: Invoke, tmp_path: Path, command: str) -> None:
    failed = invoke(command, tmp_path / "no", *NEEDS.get(command, []), status=1)

    assert failed.stdout == ""
    assert failed.stderr.startswith("[PSS_NOT_A_CHECKPOINT]")
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("text", ["", "3x", "-1", "1.5m", "many"])
def test_a_size_that_is_none(invoke: Invoke, small: Path, text: str) -> None:
    assert "such as '128m'" in invoke("compact", small, "--target-file-size", text, status=2).stderr


def test_sizes() -> None:
    assert [Size().convert(text, None, None) for text in ("7", "2k", "128m", 5)] == [7, 2048, 128 << 20, 5]


_INTERRUPTED = """
import os, signal, sys
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

class Interrupting(LocalFileSystem):
    def ls(self, path, *arguments, **kwargs):
        if path.endswith("_merged"):
            os.kill(os.getpid(), signal.SIGINT)
        return super().ls(path, *arguments, **kwargs)

_registry["file"] = Interrupting
from pyspark_statestore.cli.main import main
main()
"""


@pytest.mark.parametrize("command", [*MAINTENANCE, "report", "plot"])
def test_interrupted(small: Path, command: str) -> None:
    before = content(small)
    page = ["-o", str(small.parent / "page.html")] if command in ("report", "plot") else []
    arguments = [command, str(small), *NEEDS.get(command, []), *page]
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr.startswith("Interrupted. ")
    assert len(done.stderr.splitlines()) == 1
    assert content(small) == before
    assert not (small.parent / "page.html").exists()


@pytest.mark.parametrize("is_sink", [False, True])
def test_what_changes_nothing_anyway_says_nothing_of_dry_runs(
    invoke: Invoke, small: Path, tmp_path: Path, is_sink: bool
) -> None:
    write_sink(tmp_path / "clicks")
    command = ("sink", "verify", tmp_path / "clicks") if is_sink else ("verify", small)
    for arguments in (command, (*command, "--dry-run")):
        assert "dry" not in invoke(*arguments).output.lower()
        assert "dry_run" not in rows(invoke(*arguments, "--output", "json"))
    if not is_sink:
        repaired = invoke(*command, "--repair").stdout
        assert re.search(r"^dry_run +no$", repaired, re.MULTILINE)
        tried = invoke(*command, "--repair", "--dry-run").stdout
        assert "DRY RUN: nothing was changed. There is nothing to do." in tried
