"""Every command that changes something ends with what comes next, in one line; what it names can be pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pyarrow as pa
import pytest

from pyspark_statestore.cli import next_steps
from pyspark_statestore.cli.main import cli
from pyspark_statestore.forks.fork import Fork
from pyspark_statestore.migration.repartition import Repartition
from pyspark_statestore.migration.store_conversion import StoreConversion
from pyspark_statestore.sink.compaction import SinkCompaction
from pyspark_statestore.sink.waiting import SinkPublication
from tests.cli.builders import write_sink
from tests.cli.conftest import Invoke
from tests.inspect.builders import merged_paths
from tests.maintenance import builders
from tests.migration.builders import make

SPARK = {"repartition", "undo-repartition", "sink compact", "sink publish"}
"""These need a session, or what one has left; the last test asks what they say."""


def assert_can_be_pasted(text: str) -> list[str]:
    """Every command line in a text is one; returns their verbs."""
    verbs = []
    for line in re.findall(r"pyspark-statestore (.+?)(?=$|\)|[.;] )", text):
        words = shlex.split(line.rstrip("."))
        command: click.Command = cli
        while isinstance(command, click.Group):
            verb = words.pop(0)
            assert verb in command.commands, line
            command = command.commands[verb]
        command.make_context(verb, words)
        verbs.append(verb)
    return verbs


def step(invoke: Invoke, *arguments: object, status: int = 0) -> str:
    """The last line of a command's output, which says what comes next."""
    lines = invoke(*arguments, status=status).stdout.splitlines()
    assert lines[-1].startswith("Next: "), lines
    assert lines[-2] == ""
    assert sum(line.startswith("Next: ") for line in lines) == 1
    assert_can_be_pasted(lines[-1])
    return lines[-1].removeprefix("Next: ")


def changing() -> set[str]:
    """All commands that can be tried dry."""
    found = set()
    for name, command in cli.commands.items():
        below = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        for verb, each in below:
            if any("--dry-run" in param.opts for param in each.params):
                found.add(f"{name} {verb}".strip())
    return found


def test_each_says_it(invoke: Invoke, tmp_path: Path) -> None:
    q1, fork, sink = builders.make(tmp_path / "q1"), tmp_path / "fork", tmp_path / "sink"
    write_sink(sink)
    said = {
        "fork": step(invoke, "fork", q1, fork),
        "verify": step(invoke, "verify", q1),
        "consolidate": step(invoke, "consolidate", q1),
        "compact": step(invoke, "compact", q1),
        "expire": step(invoke, "expire", q1, "--retain-last", "1", "--no-dry-run", "--force"),
        "orphans": step(invoke, "orphans", q1, "--no-dry-run"),
        "release": step(invoke, "release", q1, fork, "--force"),
        "old-partitions": step(invoke, "old-partitions", q1, "--no-dry-run"),
        "sink orphans": step(invoke, "sink", "orphans", sink, "--no-dry-run"),
        "sink verify": step(invoke, "sink", "verify", sink),
    }
    assert f"checkpointLocation {fork.as_uri()!r}" in said["fork"]
    assert "--sink OLD NEW" in said["fork"]
    assert f"pyspark-statestore compact {fork.as_uri()} --localize" in said["fork"]
    assert said["verify"] == "nothing has to be done."
    assert f"pyspark-statestore compact {q1.as_uri()}" in said["expire"]
    stock = make(tmp_path / "q2")
    said["export"] = step(invoke, "export", stock, "--force")
    assert "without this package" in said["export"]
    assert f"pyspark-statestore drop-merged {stock.as_uri()}" in said["export"]
    said["drop-merged"] = step(invoke, "drop-merged", stock, "--no-dry-run")
    said["convert"] = step(invoke, "convert", stock, "--to", "merged", "--force")
    assert said.keys() | SPARK == changing()
    assert said["sink verify"] == "nothing has to be done."


def test_nothing_seems_merged_after_a_conversion(invoke: Invoke, tmp_path: Path) -> None:
    q1 = make(tmp_path / "q1")
    invoke("export", q1, "--force")
    invoke("drop-merged", q1, "--no-dry-run")
    said = step(invoke, "convert", q1, "--to", "merged", "--force")
    assert "start the query with configure() in its session" in said
    assert "from its first batch on" in said
    assert "the last after 100 batches" in said
    assert said.endswith(f"How many there are of both: pyspark-statestore files {q1.as_uri()}")
    assert "plain state files" in invoke("files", q1).stdout
    path = step(invoke, "convert", q1, "--to", "merged", "--door", "path", "--force")
    assert "merged_path(" in path
    assert "without this package" in step(invoke, "convert", q1, "--to", "stock", "--force")


def test_a_new_directory_and_a_claim(invoke: Invoke, tmp_path: Path) -> None:
    q1 = make(tmp_path / "q1")
    said = step(invoke, "export", q1, "--to", tmp_path / "plain", "--force")
    assert f"checkpointLocation {(tmp_path / 'plain').as_uri()}" in said
    assert "run only one of them" in said
    claimed = step(invoke, "fork", q1, tmp_path / "claim", "--mode", "claim", "--force")
    assert f"{q1.as_uri()} must not be used any more" in claimed


def test_a_dry_run_says_only_that_it_was_one(invoke: Invoke, tmp_path: Path) -> None:
    shown = invoke("compact", builders.make(tmp_path / "q1"), "--dry-run").stdout
    assert "Next: " not in shown
    assert "without --dry-run does it" in shown.splitlines()[-1]


def idle_dry_run(invoke: Invoke, *arguments: object) -> str:
    """What a dry run says that found nothing to do."""
    shown = invoke(*arguments).stdout
    assert "DRY RUN: nothing was changed. There is nothing to do." in shown
    assert "does it" not in shown
    return shown


def test_where_nothing_is_to_be_done_a_dry_run_says_so(invoke: Invoke, tmp_path: Path) -> None:
    q1 = builders.make(tmp_path / "q1")
    invoke("consolidate", q1)
    idle_dry_run(invoke, "consolidate", q1, "--dry-run")
    assert "Next: nothing has to be done: the index is in one file already." in invoke("consolidate", q1).stdout
    idle_dry_run(invoke, "orphans", q1)
    idle_dry_run(invoke, "old-partitions", q1)
    idle_dry_run(invoke, "expire", q1, "--retain-last", "1000", "--force")
    invoke("fork", q1, tmp_path / "fork")
    invoke("release", q1, tmp_path / "fork", "--force")
    idle_dry_run(invoke, "release", q1, tmp_path / "fork", "--force", "--dry-run")
    sink = tmp_path / "sink"
    write_sink(sink)
    idle_dry_run(invoke, "sink", "orphans", sink)
    small = builders.make(tmp_path / "q2")
    for file in merged_paths(small)[1:]:
        file.unlink()
    assert "there are too few sealed files yet" in invoke("consolidate", small).stdout
    idle_dry_run(invoke, "compact", small, "--dry-run")
    assert step(invoke, "compact", small).startswith("nothing has to be done. ")


def test_what_is_converted_already(invoke: Invoke, tmp_path: Path) -> None:
    q1 = make(tmp_path / "q1")
    same = ("convert", q1, "--to", "merged", "--force")
    assert "It is so already." in idle_dry_run(invoke, *same, "--dry-run")
    assert "It is so already." in invoke(*same).stdout
    assert step(invoke, *same) == "start the query with configure() in its session."
    store = ("convert", q1, "--store", "rocksdb")
    assert "It has that store already." in idle_dry_run(invoke, *store, "--dry-run")
    number = ("repartition", q1, "--partitions", 2)
    assert "It has that number of partitions already." in idle_dry_run(invoke, *number, "--dry-run")
    export = ("export", q1, "--force")
    assert "without --dry-run does it" in invoke(*export, "--dry-run").stdout
    invoke(*export)
    assert "All of its state is plain already." in idle_dry_run(invoke, *export, "--dry-run")
    stock = ("convert", q1, "--to", "stock", "--force")
    assert "It is so already." in idle_dry_run(invoke, *stock, "--dry-run")
    invoke("drop-merged", q1, "--no-dry-run")
    idle_dry_run(invoke, "drop-merged", q1)
    by_path = ("convert", q1, "--to", "merged", "--door", "path", "--force")
    assert "Nothing has to be converted." in idle_dry_run(invoke, *by_path, "--dry-run")
    assert step(invoke, *by_path).startswith("start the query with checkpointLocation = merged_path(")


def test_where_damage_is_left_the_note_says_what_to_do(invoke: Invoke, tmp_path: Path) -> None:
    q1 = builders.make(tmp_path / "q1")
    merged_paths(q1)[3].unlink()
    shown = invoke("verify", q1, status=3).stdout
    assert "Next: " not in shown
    assert "--version 3" in shown


def test_json_stays_what_scripts_read(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("consolidate", builders.make(tmp_path / "q1"), "--output", "json")
    assert "Next" not in done.output


@pytest.mark.parametrize("url", ["file:///c/q1", "file:///c/with a space"])
def test_those_that_need_spark(url: str) -> None:
    fewer = next_steps.after_repartition(url, Repartition(8, 4, 7, 1, 4, 9, False))
    assert assert_can_be_pasted(fewer) == ["undo-repartition", "old-partitions"]
    assert assert_can_be_pasted(next_steps.after_repartition(url, Repartition(4, 8, 7, 1, 8, 9, False))) == [
        "undo-repartition"
    ]
    assert next_steps.after_repartition(url, Repartition(4, 4, None, 1, 0, 0, False)) == "start the query."
    store = next_steps.after_convert_store(url, StoreConversion("heap", "rocksdb", "x", 4, 3, 9, None, False))
    assert assert_can_be_pasted(store) == ["old-partitions"]
    nothing = pa.table({})
    joined = SinkCompaction(4, 1, 0, 9, 9, nothing, nothing, dry_run=False)
    assert assert_can_be_pasted(next_steps.after_sink_compact(url, joined, and_remove=False)) == ["orphans"]
    assert assert_can_be_pasted(next_steps.after_sink_publish(url, SinkPublication(4, 9, False))) == ["files"]
    assert next_steps.after_sink_publish(url, SinkPublication(0, 0, False)).startswith("nothing has to be done")
    none = SinkCompaction(0, 0, 0, 0, 0, nothing, nothing, dry_run=False)
    assert next_steps.after_sink_compact(url, none, and_remove=False).startswith("nothing has to be done")
    copied = next_steps.after_fork(Fork(f"{url}-b", url, "copy", 4, "id"))
    assert assert_can_be_pasted(copied) == []
