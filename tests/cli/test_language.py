"""What people read: narrow terminals, the words of messages, filters and columns that do not exist, a full disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_statestore.cli.dialect import spoken
from pyspark_statestore.cli.lines import Lines
from pyspark_statestore.cli.text import TextOutput
from pyspark_statestore.errors import ERROR_CLASSES
from tests.cli.builders import name, write_sink
from tests.cli.conftest import Invoke, rows

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"\w=True|\btimedelta\b|\bdatetime\b|\bmode=|(?<!merged_path)\((?!s\b)\)|Checkpoint\(")


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(TextOutput, "__init__", lambda self: setattr(self, "_on_terminal", True))
    monkeypatch.setenv("COLUMNS", str(columns))


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize("columns", [40, 50, 80, 200])
@pytest.mark.parametrize("command", ["files", "segments", "versions", "top"])
def test_no_name_is_broken_and_no_column_is_left_out(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke, checkpoint: Path, columns: int, command: str
) -> None:
    piped = invoke(command, checkpoint).stdout
    on_terminal(monkeypatch, columns)
    shown = plain(invoke(command, checkpoint).stdout)
    words = set(re.findall(r"\S+", piped))
    assert words <= set(re.findall(r"\S+", "\n".join(shown)))
    # A line is longer than the terminal only where there is nothing but a name or a heading in it.
    for line in shown[1:]:
        assert len(line) <= columns or len(line.split()) <= 3 or " in file:" in line


def test_wide_terminals_and_pipes_have_a_line_for_a_row() -> None:
    table = [["a-long-name", "12"], ["b", "3"]]
    for room in (None, 80, 18):
        lines = Lines(["file", "size"], [False, True], room)
        assert lines.heading(table) == "file         size\n"
        assert lines.body(table) == "a-long-name    12\nb               3\n"


def test_a_name_gets_a_line_of_its_own_and_then_each_cell_does() -> None:
    table = [["a-very-long-name", "12", "open"], ["b", "3", "open"]]
    lines = Lines(["file", "size", "state"], [False, True, False], 20)
    assert lines.heading(table) == "file\n  size  state\n"
    assert lines.body(table) == "a-very-long-name\n    12  open\nb\n     3  open\n"
    lines = Lines(["file", "size", "state"], [False, True, False], 5)
    assert lines.heading(table) == ""
    assert lines.body(table[:1]) == "file   a-very-long-name\nsize   12\nstate  open\n"
    assert lines.body(table[1:]) == "\nfile   b\nsize   3\nstate  open\n"


def test_no_message_speaks_python_on_the_command_line() -> None:
    # Those of sessions are for people who write Python.
    others = ("PSS_NEEDS_PATH_DOOR", "PSS_WRONG_DOOR", "PSS_STAYS_STOCK", "PSS_SPARK_NOT_RUNNING", "PSS_UNKNOWN_SCHEME")
    for error_class, message in ERROR_CLASSES.items():
        if error_class not in others:
            assert not PYTHON.search(spoken(message)), spoken(message)


@pytest.mark.parametrize("folder", ["checkpoint", "sink"])
def test_a_time_that_is_too_short(invoke: Invoke, checkpoint: Path, tmp_path: Path, folder: str) -> None:
    write_sink(tmp_path / "sink")
    command = ["orphans", checkpoint] if folder == "checkpoint" else ["sink", "orphans", tmp_path / "sink"]
    said = invoke(*command, "--older-than", "10s", status=1).stderr
    assert said.startswith("[PSS_INVALID_OPTION] --older-than 10s is not allowed. Allowed: ")
    assert "--force allows less" in said
    assert not PYTHON.search(said)


def test_a_query_that_may_run_is_told_in_options(invoke: Invoke, checkpoint: Path) -> None:
    said = invoke("expire", checkpoint, "--retain-last", "1", status=1).stderr
    assert "in the last 10m" in said
    assert re.search(r"wait (9m \d+s|10m), until", said)
    assert said.rstrip().endswith("say so with --force.")


@pytest.mark.parametrize("command", ["segments", "versions"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--operator", "7"], "Nothing has --operator 7. There are: 0.\n"),
        (["--partition", "9"], "Nothing has --partition 9. There are: 0, 1, 2.\n"),
        (["--store", "nope"], "Nothing has --store nope. There are: default.\n"),
        (
            ["--operator", "0", "--partition", "9", "--store", "nope"],
            "Nothing has --partition 9. There are: 0, 1, 2.\n",
        ),
        (["--operator", "0"], ""),
    ],
)
def test_a_filter_that_matches_nothing(
    invoke: Invoke, checkpoint: Path, command: str, options: list[str], said: str
) -> None:
    done = invoke(command, checkpoint, *options, "--output", "json")
    assert done.stderr == said
    assert (rows(done) == []) == bool(said)


def test_a_column_that_does_not_exist_is_refused_before_anything_is_written(
    invoke: Invoke, checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "stock" / "offsets").mkdir(parents=True)
    for path in (checkpoint, tmp_path / "stock"):  # with rows and without
        for form in ("table", "json"):
            refused = invoke("files", path, "--sort", "size", "--output", form, status=2)
            assert "'size' is not a column" in refused.stderr
            assert refused.stdout == ""


def test_a_file_is_called_a_file(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    write_sink(tmp_path / "sink")
    assert "is not a streaming checkpoint: it is a file." in invoke("files", checkpoint / "metadata", status=1).stderr
    assert "it does not exist or is empty" in invoke("files", checkpoint / "nothing", status=1).stderr
    listed = tmp_path / "sink" / "_spark_metadata" / "3"
    assert "is not a file sink: it is a file." in invoke("sink", "files", listed, status=1).stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has /dev/full")
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_disk_is_no_defect(checkpoint: Path, form: str) -> None:
    command = [sys.executable, "-m", "pyspark_statestore.cli", "segments", str(checkpoint), "--output", form]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=300, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("[PSS_WRITE_FAILED] Writing the output failed: No space left on device.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["segments", "PATH"], ["segments", "PATH", "--output", "json"], ["--help"]])
def test_a_nearly_full_disk_loses_no_output_in_silence(
    checkpoint: Path, tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    """It takes a part of a write. Python without a buffer counts that as all of it."""
    words = [str(checkpoint) if word == "PATH" else word for word in arguments]
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sys.argv[1:] = {words!r}
from pyspark_statestore.cli.main import main
main()
"""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"}
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=300,
            check=False,
        )
    assert (tmp_path / "out").stat().st_size == 100
    assert done.returncode == 1
    assert done.stderr.startswith("[PSS_WRITE_FAILED] Writing the output failed: File too large.")
    assert len(done.stderr.splitlines()) == 1


def test_the_name_of_a_file_can_be_pasted(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, checkpoint: Path) -> None:
    on_terminal(monkeypatch, 40)
    path = checkpoint / "state" / "_merged" / name(1)
    assert plain(invoke("show", path).stdout)[0] == path.as_uri()
