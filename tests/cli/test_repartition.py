"""``repartition``, ``undo-repartition`` and ``old-partitions``; with Spark in tests/reshape."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, rows
from tests.maintenance.builders import contents
from tests.migration.builders import make
from tests.reshape.builders import repartition_by_hand
from tests.reshape.harness import partitions_with_files, pretend_spark


@pytest.fixture(autouse=True)
def any_spark_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_spark(monkeypatch, "4.3.0")


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Batches 0 to 3 with two partitions."""
    return make(tmp_path / "q1")


def test_dry_runs_say_so_and_change_nothing(invoke: Invoke, begun: Path) -> None:
    before = contents(begun)
    done = invoke("repartition", begun, "--partitions", 5, "--dry-run", "--force")
    assert "DRY RUN" in done.stdout
    assert "partitions_before" in done.stdout
    shown = rows(invoke("repartition", begun, "--partitions", 5, "--dry-run", "--force", "--output", "json"))
    assert (shown["partitions_before"], shown["partitions"], shown["batch"]) == (2, 5, 4)
    same = invoke("repartition", begun, "--partitions", 2, "--dry-run", "--force").stdout
    assert "that number of partitions already" in same
    assert contents(begun) == before
    repartition_by_hand(begun)
    before = contents(begun)
    for command in (("undo-repartition", begun, "--dry-run", "--force"), ("old-partitions", begun)):
        assert "DRY RUN" in invoke(*command).stdout
    assert contents(begun) == before


@pytest.mark.parametrize(
    ("command", "dry_run"),
    [
        (command, dry_run)
        for command in (("repartition", "{q}", "--partitions", 5), ("convert", "{q}", "--store", "heap"))
        for dry_run in ((), ("--dry-run",))
    ],
)
def test_a_spark_that_is_too_old_is_refused_before_a_session_starts(
    invoke: Invoke, begun: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...], dry_run: tuple[str, ...]
) -> None:
    pretend_spark(monkeypatch, "4.1.4")
    monkeypatch.setattr("pyspark_statestore.cli.session.session", lambda *_: pytest.fail("a session was started"))
    said = invoke(*(str(word).format(q=begun) for word in command), *dry_run, status=1).stderr
    assert f"] {begun.as_uri()} cannot be" in said
    assert "this is Spark 4.1.4, and it takes Spark 4.3 or newer" in said


def test_they_do_it(invoke: Invoke, begun: Path) -> None:
    before = contents(begun)
    repartition_by_hand(begun)
    refused = invoke("undo-repartition", begun, status=1).stderr
    assert refused.startswith("[PSS_QUERY_RUNNING]")
    assert "--force" in refused
    shown = rows(invoke("undo-repartition", begun, "--force", "--output", "json"))
    assert (shown["partitions_before"], shown["partitions"]) == (1, 2)
    assert {name for name in contents(begun) if "_merged" not in name and "_replaced" not in name} <= set(before)
    repartition_by_hand(begun)
    assert rows(invoke("old-partitions", begun, "--no-dry-run", "--output", "json"))["removed_partitions_count"] == 1
    assert partitions_with_files(begun) == {0}
    assert "gone or damaged" in invoke("undo-repartition", begun, "--force", status=1).stderr


def test_the_command_line_is_checked(invoke: Invoke, begun: Path) -> None:
    assert "--partitions" in invoke("repartition", begun, status=2).stderr
    for number in (0, -1, "many"):
        assert "--partitions" in invoke("repartition", begun, "--partitions", number, status=2).stderr
    assert "--partitions" in invoke("fork", begun, begun.parent / "fork", "--partitions", 0, status=2).stderr


@pytest.mark.parametrize(
    "command",
    [
        ("repartition", "{q}", "--partitions", 5),
        ("convert", "{q}", "--store", "heap"),
        ("fork", "{q}", "{q}-fork", "--mode", "claim", "--partitions", 5),
    ],
)
def test_no_session_is_started_for_a_query_that_seems_to_run(
    invoke: Invoke, begun: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    monkeypatch.setattr("pyspark_statestore.cli.session.session", lambda *_: pytest.fail("a session was started"))
    before = contents(begun)
    refused = invoke(*(str(word).format(q=begun) for word in command), status=1).stderr
    assert refused.startswith("[PSS_QUERY_RUNNING]")
    assert "only silence tells: wait" in refused
    assert contents(begun) == before
    same = ("--partitions", 2) if command[0] == "repartition" else ("--store", "rocksdb")
    if command[0] != "fork":
        invoke(command[0], begun, *same)  # needs none either
