"""Two of Nexmark's queries give out the same on stock Spark and merged, and what SQL says.

`python benchmarks/nexmark.py --quick` does so with all ten, and more events.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from benchmarks import nexmark_process
from benchmarks.filesystems import filesystem_settings
from benchmarks.nexmark_events import Shape, write_files
from benchmarks.nexmark_places import Place, open_place
from benchmarks.nexmark_process import compare, same_state, state_of, warm_up
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_sides import KINDS, USUAL, NexmarkSide, Stage, run_in_turn, settings_of
from benchmarks.scenario import Scenario
from benchmarks.sides import BenchmarkError
from tests.conftest import MakeSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEAPS = ("heap-stock", "heap-merged")
# Windows begin in one batch and end in the other one.
SHAPE = Shape(batches=2, events=1_000, seconds=7)
SETTINGS = {
    **filesystem_settings(),
    "spark.sql.shuffle.partitions": "1",
    # One batch for each file, as the sides of the benchmark have it.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
}


def stage_at(place: Place, make_spark: MakeSpark, folder: Path) -> Stage:
    """Where queries run, in a session of the tests."""
    scenario = Scenario(workload="nexmark", partitions=1)
    merged = settings_of(scenario, USUAL)
    # What is not a setting of a query has to be there from the start.
    together = {key: value for of_store in merged.values() for key, value in of_store.items()}
    more = {key: value for key, value in together.items() if ".streaming." not in key and key != "spark.jars"}
    return Stage(make_spark({**SETTINGS, **more}), place, SHAPE, scenario, merged, folder)


@pytest.mark.since("4.0", "its queries chain operators whose watermarks Spark passes on since 4.0")
@pytest.mark.parametrize(
    ("name", "sides"),
    [("q8", ("stock", "merged")), ("q12", ("heap-stock", "heap-merged"))],
)
def test_a_query_gives_the_same_everywhere(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sides: tuple[str, str]
) -> None:
    """A deduplication and a join behind it, which append, and an aggregation that updates."""
    rows_of_states = []

    def observed(side: NexmarkSide) -> list[tuple[Any, ...]]:
        found = state_of(side)
        rows_of_states.append(len(found))
        return found

    monkeypatch.setattr(nexmark_process, "state_of", observed)
    files = write_files(SHAPE, tmp_path / "events", closing=True)
    with open_place("local") as place:
        found = compare(QUERIES[name], stage_at(place, make_spark, tmp_path), sides, files, bool(QUERIES[name].key))

    # Of both sides, in the middle and at the end.
    assert len(rows_of_states) == (4 if QUERIES[name].key else 0)
    assert all(rows_of_states)
    assert found["rows"] >= SHAPE.batches
    stock, ours = (found["sides"][side]["batches"][-1] for side in sides)
    assert stock["state_files"] >= 1
    assert ours["state_files"] == 0
    assert ours["state_calls"] < stock["state_calls"] / 10
    assert ours["state_bytes"] > 0
    assert ours["cpu_seconds"] > 0


@pytest.mark.since("4.0", "Spark reads the metadata of its state since 4.0")
def test_state_that_differs_is_found(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Two checkpoints of q18 after other events: a side that lost what came before gives out the same rows."""
    query = QUERIES["q18"]
    files = write_files(SHAPE, tmp_path / "events")
    with open_place("local") as place:
        stage = stage_at(place, make_spark, tmp_path)
        one, other = sides = stage.sides(query, HEAPS, keep=True)
        other.polling = "70ms"
        run_in_turn([one], files)
        run_in_turn([other], files[1:])
        asked = [side.session.conf.get("spark.sql.streaming.pollingDelay", None) for side in sides]
        assert asked == [stage.spark.conf.get("spark.sql.streaming.pollingDelay", None), "70ms"]
        assert sorted(other.rows[0]) == sorted(one.rows[1])
        for side in sides:
            side.stop()
        with pytest.raises(BenchmarkError, match="q18, the state of heap, merged differs: [1-9].* rows are missing"):
            same_state(query, sides)


def lost(rows: dict[int, list[Any]], batch: int) -> None:
    rows[batch].pop()


def doubled(rows: dict[int, list[Any]], batch: int) -> None:
    rows[batch].append(rows[batch][0])


def one_more_batch(rows: dict[int, list[Any]], batch: int) -> None:
    rows[batch + 100] = []


@pytest.mark.parametrize(
    ("wrong", "where", "says"),
    [
        (lost, {"heap-merged"}, "q12, batch 0: heap, merged differs: 1 of [1-9].* rows are missing, 0 are too many"),
        (doubled, {"heap-merged"}, "q12, batch 0: heap, merged differs: 0 of [1-9].* are missing, 1 are too many"),
        (one_more_batch, {"heap-merged"}, "q12, the batches of heap, merged differs: 0 of [1-9].*, [1-9] are too many"),
        (lost, {"heap-stock", "heap-merged"}, "q12, the whole stream beside SQL differs: [1-9].* rows are missing"),
    ],
    ids=["lost", "doubled", "one more batch", "all lost the same"],
)
def test_rows_that_differ_are_found(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any, where: set[str], says: str
) -> None:
    """Somebody falsifies what one of the sides, or both, give out."""
    keep = NexmarkSide._keep

    def falsified(side: NexmarkSide, frame: DataFrame, batch: int) -> None:
        keep(side, frame, batch)
        if any(side.kind is KINDS[name] for name in where):
            wrong(side.rows, batch)

    monkeypatch.setattr(NexmarkSide, "_keep", falsified)
    files = write_files(SHAPE, tmp_path / "events", closing=True)
    with open_place("local") as place, pytest.raises(BenchmarkError, match=says):
        compare(QUERIES["q12"], stage_at(place, make_spark, tmp_path), HEAPS, files, False)


def test_state_that_is_not_read_back_is_found(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no byte of it was read, a comparison says nothing about the checkpoint."""
    monkeypatch.setattr(nexmark_process, "_read", lambda side: 0)
    files = write_files(SHAPE, tmp_path / "events", closing=True)
    with open_place("local") as place, pytest.raises(BenchmarkError, match="q12: heap.* has not read its state back"):
        compare(QUERIES["q12"], stage_at(place, make_spark, tmp_path), HEAPS, files, False)


def test_a_warm_up_runs_all_sides_and_leaves_nothing(
    make_spark: MakeSpark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is measured after it begins with its first batch, and with no state."""
    query, names = QUERIES["q12"], HEAPS
    with open_place("local") as place:
        stage = stage_at(place, make_spark, tmp_path)
        stage = dataclasses.replace(stage, shape=dataclasses.replace(SHAPE, warm_up=3))
        before = [*tmp_path.iterdir()]
        warm_up(query, names, stage)

        assert "q12 batch   3/3" in capsys.readouterr().err
        assert [*tmp_path.iterdir()] == before
        jvm: Any = stage.spark._jvm
        assert not [log for log in jvm.io.pyspark.statestore.log.MergedLogs.all() if str(tmp_path) in log]
        assert not stage.spark.streams.active
        (stock, merged) = sides = stage.sides(query, names)
        run_in_turn(sides, write_files(SHAPE, tmp_path / "events"))
        for side in sides:
            side.stop()
    assert [batch["batch"] for batch in merged.batches] == [0, 1]
    assert merged.batches[0]["output"] == stock.batches[0]["output"]
