"""Directories that cannot be listed, that hold nothing, and that are above or below a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.cli.main import cli
from tests.cli.builders import write_checkpoint, write_sink
from tests.cli.conftest import Invoke, rows
from tests.cli.test_next_steps import assert_can_be_pasted
from tests.inspect.builders import Watch, refused, use_for_local_files, watched_file_system
from tests.report.pages import Page

OPENS = {
    "summary": (),
    "files": (),
    "segments": (),
    "versions": (),
    "state": (),
    "diff": ("--from", "1"),
    "top": (),
    "plot": ("-o", "never.png"),
    "report": ("-o", "never.html"),
    "compact": (),
    "orphans": (),
    "verify": (),
    "expire": ("--retain-last", "1"),
    "consolidate": (),
    "convert": ("--to", "merged"),
    "export": (),
    "drop-merged": (),
    "fork": ("/never",),
    "release": ("/never",),
    "repartition": ("--partitions", "4", "--dry-run"),
    "undo-repartition": (),
    "old-partitions": (),
}
"""Every command that opens a checkpoint, with what it needs besides."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    write_checkpoint(folder / "a")
    write_checkpoint(folder / "team" / "b")
    (folder / "locked").mkdir()
    return folder


def test_every_command_is_asked() -> None:
    others = {"list", "show", "sink", "settings", "jar-path"}
    assert set(cli.commands) == OPENS.keys() | others


@pytest.mark.parametrize("command", OPENS)
def test_a_wrong_directory_gets_a_hint(invoke: Invoke, root: Path, command: str) -> None:
    below = f"; 2 checkpoints are below (pyspark-statestore list {root.as_uri()})."
    said = invoke(command, root, *OPENS[command], status=1).stderr
    assert said.startswith("[PSS_NOT_A_CHECKPOINT]")
    assert said.endswith(f"Give the directory that is the query's checkpointLocation{below}\n")
    for inside, up in (("state", "one directory up"), ("state/_merged", "2 directories up")):
        said = invoke(command, root / "a" / inside, *OPENS[command], status=1).stderr
        assert said.endswith(f"checkpointLocation; {(root / 'a').as_uri()} is one, {up}.\n")


@pytest.mark.parametrize("command", OPENS)
def test_a_file_sink_is_no_checkpoint(invoke: Invoke, tmp_path: Path, command: str) -> None:
    sink = tmp_path / "clicks"
    write_sink(sink)
    said = invoke(command, sink, *OPENS[command], status=1).stderr
    assert said.startswith(f"[PSS_NOT_A_CHECKPOINT] {sink.as_uri()} is not a streaming checkpoint: it is a file sink. ")
    assert set(assert_can_be_pasted(said.strip())) == {"files", "verify"}
    assert f"pyspark-statestore sink files {sink.as_uri()}" in said


def test_a_list_of_a_file_sink_says_what_it_is(invoke: Invoke, tmp_path: Path) -> None:
    write_sink(tmp_path / "clicks")
    said = invoke("list", tmp_path / "clicks").stderr
    assert f"pyspark-statestore sink files {(tmp_path / 'clicks').as_uri()}" in said


SINK_COMMANDS = {
    "files": (),
    "log": (),
    "waiting": (),
    "plot": ("-o", "never.png"),
    "report": ("-o", "never.html"),
    "verify": (),
    "compact": (),
    "publish": (),
    "orphans": (),
}


def test_every_command_of_sinks_is_asked() -> None:
    group = cli.commands["sink"]
    assert isinstance(group, click.Group)
    assert set(group.commands) == set(SINK_COMMANDS)


@pytest.mark.parametrize("command", SINK_COMMANDS)
def test_a_checkpoint_is_no_file_sink(
    invoke: Invoke, root: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("pyspark_statestore.cli.session.session", lambda *_: pytest.fail("a session was started"))
    url = (root / "a").as_uri()
    for inside, where in (("", "it is a streaming checkpoint"), ("state", f"it is in the checkpoint {url}")):
        said = invoke("sink", command, root / "a" / inside, *SINK_COMMANDS[command], status=1).stderr
        assert said.startswith("[PSS_NOT_A_SINK]")
        assert f": {where} (what is in that: pyspark-statestore summary {url}). Give the directory" in said
        assert assert_can_be_pasted(said.strip()) == ["summary"]


def test_the_sinks_below_a_directory_are_named(invoke: Invoke, tmp_path: Path) -> None:
    for name in ("clicks", "a b", "orders", "visits"):
        write_sink(tmp_path / name)
    said = invoke("sink", "files", tmp_path, status=1).stderr
    assert "File sinks are below: a b, clicks, orders, ..." in said
    assert "was deleted or moved" not in said


def test_python_and_files_too(root: Path, tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", "it is a file", f"{(root / 'a').as_uri()} is one, one directory up"):
        Checkpoint(root / "a" / "metadata").maintenance.verify()
    with refused("PSS_NOT_A_CHECKPOINT", "1 checkpoint is below"):
        Checkpoint(root / "team").report()
    with refused("PSS_NOT_A_CHECKPOINT", "the query's checkpointLocation."):
        Checkpoint(tmp_path / "nowhere").inspect.summary()


def test_a_hint_comes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many directories only some are looked into, and an error on the way is none of the user's."""
    for number in range(300):
        (tmp_path / f"{number:03}" / "inside").mkdir(parents=True)
    watch = Watch()
    use_for_local_files(monkeypatch, watched_file_system(watch))
    with refused("PSS_NOT_A_CHECKPOINT", "the query's checkpointLocation."):
        Checkpoint(tmp_path).inspect.summary()
    assert watch.listings.total() <= 120

    def refuse(path: str) -> None:
        if path == str(tmp_path.parent):
            raise PermissionError(path)

    watch.before_list = refuse
    for name in ("offsets", "commits"):
        (tmp_path / "001" / name).mkdir()
    with refused("PSS_NOT_A_CHECKPOINT", "1 checkpoint is below"):
        Checkpoint(tmp_path).inspect.summary()


def test_a_directory_that_cannot_be_listed_costs_no_other(
    invoke: Invoke, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()

    def refuse(path: str) -> None:
        if path.endswith("locked"):
            raise PermissionError(path)

    watch.before_list = refuse
    use_for_local_files(monkeypatch, watched_file_system(watch))
    url = (root / "locked").as_uri()
    shown = invoke("list", root, "--limit", "1", status=1)
    assert shown.stdout.splitlines()[0] == f"2 checkpoints in {root.as_uri()}; 1 directory could not be listed"
    assert shown.stderr.startswith(f"[PSS_NO_PERMISSION] No permission to list {url}.")
    found = rows(invoke("list", root, "--output", "json", status=1))
    assert [(row["checkpoint"], row["error"] is None) for row in found] == [
        ((root / "a").as_uri(), True),
        (url, False),
        ((root / "team/b").as_uri(), True),
    ]
    page = Page(invoke("list", root, "-o", "-", status=1).stdout)
    assert "locked" in page.text
    assert "[PSS_NO_PERMISSION]" in page.text


def test_the_root_itself_has_to_be_listed(invoke: Invoke, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()

    def refuse(path: str) -> None:
        raise PermissionError(path)

    watch.before_list = refuse
    use_for_local_files(monkeypatch, watched_file_system(watch))
    assert invoke("list", root, status=1).stderr.startswith("[PSS_NO_PERMISSION]")


def test_an_empty_root_is_no_error(invoke: Invoke, root: Path, tmp_path: Path) -> None:
    shown = invoke("list", root / "locked")
    assert shown.stdout == f"0 checkpoints in {(root / 'locked').as_uri()}\n"
    assert shown.stderr == f"{(root / 'locked').as_uri()} is empty.\n"
    assert rows(invoke("list", root / "locked", "--output", "json")) == []
    assert invoke("list", tmp_path / "nowhere", status=1).stderr.startswith("[PSS_READ_FAILED]")
    inside = invoke("list", root / "a" / "state")
    assert inside.stderr == f"{(root / 'a').as_uri()} is one, one directory up.\n"
    assert "2 checkpoints are below" in invoke("list", root, "--depth", "0").stderr
