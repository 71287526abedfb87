"""What people read: narrow terminals, the words of messages, filters and columns that do not exist, a full disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_statestore import rendering
from pyspark_statestore.cli import layouts, text
from pyspark_statestore.cli.dialect import spoken
from pyspark_statestore.cli.lines import Lines
from pyspark_statestore.cli.main import cli
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
    pieces = re.compile(r"[^\s_]+_?")  # a heading may be folded, but no cell
    headings = piped.splitlines()[1]
    assert set(pieces.findall(headings)) <= set(pieces.findall("\n".join(shown)))
    words = {word for line in piped.splitlines() for word in line.split() if "_" not in word}
    assert words <= set(re.findall(r"\S+", "\n".join(shown)))
    assert set(re.findall(r"\S+\.merged", piped)) <= set(re.findall(r"\S+", "\n".join(shown)))
    # A line is longer than the terminal only where there is nothing but a name or a heading in it, and its cell.
    for line in shown[1:]:
        assert len(line) <= columns or len(line.split()) <= 4 or " in file:" in line


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


def test_headings_are_folded_and_short_cells_go_on_in_a_second_line() -> None:
    table = [["7", "3.1 KiB", "yes"]]
    lines = Lines(["operator_id", "file_size_in_bytes", "last_seen (UTC)"], [False, True, False], 32)
    assert lines.heading(table).splitlines() == [
        "              file_  last_",
        "operator_  size_in_  seen",
        "id            bytes  (UTC)",
    ]
    assert lines.body(table) == "7           3.1 KiB  yes\n"
    lines = Lines(["operator_id", "partition_id", "segment_count"], [False, False, True], 24)
    assert lines.heading(table) == "operator_  partition_\nid         id\n  segment_count\n"
    assert lines.body(table) == "7          3.1 KiB\n  yes\n"


@pytest.mark.parametrize("columns", ["", "80", "0", "wide"])
def test_who_exports_the_width_means_it(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke, checkpoint: Path, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, *lines = invoke("files", checkpoint).stdout.splitlines()
    if columns == "80":
        assert max(map(len, lines)) <= 80
        assert len(lines) > 1 + 3
    else:
        assert [len(lines[:1]), len(lines)] == [1, 1 + 3]
    assert sum(line.lstrip().startswith(tuple("0123456789")) and ".merged" in line for line in lines) == 3


LAYOUTS = {
    **layouts.TABLES,
    **{f"top by {name}": layout for name, layout in layouts.COSTS.items()},
    **{name: layout for name, layout in vars(layouts).items() if name.isupper() and isinstance(layout, tuple)},
    "show": text._ENTRIES,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_heading_is_the_name_of_the_column(name: str) -> None:
    for column in LAYOUTS[name]:
        unit = " (UTC)" if column.form is rendering.time else ""
        assert (column.heading,) == tuple(f"{each}{unit}" for each in column.columns)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize("group", [[], ["sink"]])
def test_no_summary_of_a_command_is_cut(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke, columns: str, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = invoke(*group, "--help").stdout
    commands = cli.commands if not group else cli.commands["sink"].commands  # type: ignore[attr-defined]
    listed = " ".join(shown.partition("Commands:")[2].split())
    assert "..." not in listed
    for command in commands.values():
        assert " ".join((command.help or "").partition(".")[0].split()) in listed


def test_no_message_speaks_python_on_the_command_line() -> None:
    # Those of sessions are for people who write Python.
    others = (
        "PSS_NEEDS_PATH_DOOR",
        "PSS_WRONG_DOOR",
        "PSS_STAYS_STOCK",
        "PSS_KEEPS_STORE",
        "PSS_SPARK_NOT_RUNNING",
        "PSS_UNKNOWN_SCHEME",
    )
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
