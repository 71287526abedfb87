"""The commands that show a checkpoint's tables."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pyspark_statestore import Checkpoint
from pyspark_statestore.cli import options
from pyspark_statestore.inspect import TABLES
from tests.cli.builders import age, name
from tests.cli.conftest import Invoke, rows

ARRAYS = [table for table in TABLES if table not in ("summary", "plain_files")]


def in_json(value: Any) -> Any:
    """A value of an Arrow table as JSON has it."""
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def as_json(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table as JSON has them."""
    return [{key: in_json(value) for key, value in row.items()} for row in table.to_pylist()]


@pytest.mark.parametrize("table", ARRAYS)
def test_json_is_the_table(invoke: Invoke, checkpoint: Path, table: str) -> None:
    expected = as_json(Checkpoint(checkpoint).inspect.table(table))

    assert expected
    assert rows(invoke(table, checkpoint, "--output", "json")) == expected


def test_the_summary_is_an_object(invoke: Invoke, checkpoint: Path) -> None:
    [expected] = Checkpoint(checkpoint).inspect.summary().to_pylist()

    assert expected["file_count"] == 3
    assert rows(invoke("summary", checkpoint, "--output", "json")) == expected


@pytest.mark.parametrize("table", ["segments", "versions"])
def test_narrowed_to_a_store(invoke: Invoke, checkpoint: Path, table: str) -> None:
    narrowed = ["--operator", 0, "--partition", 2, "--store", "default"]
    found = rows(invoke(table, checkpoint, *narrowed, "--output", "json"))

    assert found == as_json(Checkpoint(checkpoint).inspect.table(table, operator_id=0, partition_id=2))
    assert {row["partition_id"] for row in found} == {2}
    assert rows(invoke(table, checkpoint, "--store", "no-such", "--output", "json")) == []


@pytest.mark.parametrize(("more", "expected"), [([], [1, 2, 3]), (["--descending"], [3, 2, 1])])
def test_sorted_with_nulls_last(invoke: Invoke, checkpoint: Path, more: list[str], expected: list[int]) -> None:
    by_size = rows(invoke("files", checkpoint, "--sort", "file_size_in_bytes", *more, "--output", "json"))
    by_ratio = rows(invoke("files", checkpoint, "--sort", "space_amplification", *more, "--output", "json"))

    sizes = [row["file_size_in_bytes"] for row in by_size]
    assert sizes == sorted(sizes, reverse=bool(more))
    assert len(set(sizes)) == len(expected)
    assert by_ratio[-1]["space_amplification"] is None


def test_limited(invoke: Invoke, checkpoint: Path) -> None:
    assert len(rows(invoke("segments", checkpoint, "--limit", 2, "--output", "json"))) == 2
    assert len(rows(invoke("segments", checkpoint, "--limit", 0, "--output", "json"))) == 13
    shown = invoke("segments", checkpoint, "--limit", 2).stdout.splitlines()
    assert shown[0].startswith("13 segments in file:")
    assert shown[-1] == "... and 11 more; --limit 0 shows all."
    assert len(shown) == 5


def test_a_table_that_is_not_for_a_terminal_is_whole_and_aligned(invoke: Invoke, checkpoint: Path) -> None:
    title, heading, *lines = invoke("segments", checkpoint).stdout.splitlines()

    assert title.startswith("13 segments")
    assert len(lines) == 13
    at = heading.index("status")
    assert {line[at:].split()[0] for line in lines} == {"live", "superseded", "deleted"}


def test_sizes_are_for_people(invoke: Invoke, checkpoint: Path) -> None:
    found = Checkpoint(checkpoint).inspect.files().to_pylist()[0]
    shown = invoke("files", checkpoint).stdout

    assert f"{found['live_bytes'] / 1024:.1f} KiB" in shown
    assert str(found["live_bytes"]) not in shown
    assert f"({found['live_bytes']:,})" not in shown
    assert (
        f"({Checkpoint(checkpoint).inspect.summary()['live_bytes'][0].as_py():,})"
        in invoke("summary", checkpoint).stdout
    )


def test_all_columns_where_they_are_wanted(invoke: Invoke, checkpoint: Path) -> None:
    heading = invoke("files", checkpoint, "--wide").stdout.splitlines()[1]

    assert heading.split() == [column.name for column in TABLES["files"]]


def test_what_may_still_happen_to_a_file(invoke: Invoke, checkpoint: Path) -> None:
    for number in (2, 3):
        age(checkpoint / "state" / "_merged" / name(number), minutes=20)

    def states(*more: str) -> list[str]:
        """Of each file, whether it is sealed, closed, and an orphan."""
        lines = invoke("files", checkpoint, *more).stdout.splitlines()[2:]
        return [" ".join(word for word in line.split() if word in ("yes", "no")) for line in lines]

    assert states() == ["yes yes no", "no yes no", "no yes yes"]
    assert states("--closed-after", "1h") == ["yes yes", "no no", "no no"]


def test_a_stock_checkpoint_has_no_merged_files(invoke: Invoke, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state" / "_merged")

    assert invoke("files", checkpoint).stdout == f"0 merged files in file://{checkpoint}\n"
    assert rows(invoke("files", checkpoint, "--output", "json")) == []


@pytest.mark.parametrize("command", ["files", "segments", "versions", "summary", "top"])
def test_what_is_no_checkpoint_is_an_error(invoke: Invoke, tmp_path: Path, command: str) -> None:
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "missing", tmp_path / "other"):
        failed = invoke(command, path, status=1)
        assert failed.stderr.startswith("[PSS_NOT_A_CHECKPOINT] file://")
        assert failed.stderr.count("\n") == 1
        assert failed.stdout == ""


def test_a_damaged_file_is_an_error(invoke: Invoke, checkpoint: Path) -> None:
    damaged = checkpoint / "state" / "_merged" / name(1)
    damaged.write_bytes(b"PSSMERX" + damaged.read_bytes()[7:])

    failed = invoke("files", checkpoint, status=1)

    assert "[PSS_CORRUPT_FILE]" in failed.stderr
    assert name(1) in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["files", "x", "--closed-after", "10"], "such as '60s'"),
        (["files", "x", "--storage-option", "anon"], "not KEY=VALUE"),
        (["files", "x", "--output", "xml"], "'table', 'json'"),
        (["segments", "x", "--partition", "-1"], "x>=0"),
        (["top", "x", "--by", "stores"], "'partitions'"),
        (["files"], "PATH"),
    ],
)
def test_wrong_usage(invoke: Invoke, arguments: list[str], word: str) -> None:
    failed = invoke(*arguments, status=2)

    assert word in failed.stderr
    assert failed.stdout == ""


def test_an_unknown_column_names_those_that_there_are(invoke: Invoke, checkpoint: Path) -> None:
    for form in ("table", "json"):
        failed = invoke("files", checkpoint, "--sort", "size", "--output", form, status=2)
        assert "file_size_in_bytes" in failed.stderr


def test_an_unknown_file_system_is_an_error(invoke: Invoke) -> None:
    assert "[PSS_" in invoke("files", "nosuch://x/y", status=1).stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("anon=true", ("anon", True)),
        ("key=AKIA=x", ("key", "AKIA=x")),
        ('client_kwargs={"endpoint_url": "http://x"}', ("client_kwargs", {"endpoint_url": "http://x"})),
    ],
)
def test_storage_options(given: str, expected: tuple[str, object]) -> None:
    @click.command()
    @options.storage_options
    def show(storage_options: tuple[tuple[str, object], ...]) -> None:
        click.echo(repr(storage_options))

    assert CliRunner().invoke(show, ["--storage-option", given]).stdout == f"{(expected,)}\n"


def test_help_has_a_purpose_and_examples(invoke: Invoke) -> None:
    from pyspark_statestore.cli.main import cli

    overview = invoke("--help").stdout
    assert "Exit status" in overview
    of_sinks = invoke("sink", "--help").stdout
    sink = cli.commands["sink"]
    assert isinstance(sink, click.Group)
    shown: list[tuple[tuple[str, ...], str]] = [((name,), overview) for name in cli.commands if name != "sink"]
    shown += [(("sink", name), of_sinks) for name in sink.commands]
    for command, listing in shown:
        text = invoke(*command, "--help").stdout
        assert text.split("Examples:\n")[1].count(" ".join(["pyspark-statestore", *command])) >= 1
        purpose = " ".join(text.partition("\n\n")[2].partition(".")[0].split())
        assert f" {command[-1]} {purpose}." in " ".join(listing.split())
