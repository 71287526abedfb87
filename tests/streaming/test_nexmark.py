"""Two of Nexmark's queries give out the same on stock Spark and merged, and what SQL says.

`python benchmarks/nexmark.py --quick` does so with all ten, and more events.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks import nexmark_process
from benchmarks.filesystems import filesystem_settings
from benchmarks.nexmark_events import Shape, write_files
from benchmarks.nexmark_places import Place, open_place
from benchmarks.nexmark_process import _return, come_back, compare, forget_state, measure, same_state, state_of, warm_up
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_sides import KINDS, USUAL, NexmarkSide, Stage, run_in_turn, settings_of
from benchmarks.scenario import Scenario
from benchmarks.sides import BenchmarkError, jvm_pid
from benchmarks.workloads import fingerprint
from tests.conftest import MakeSpark
from tests.sampling import marked

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEAPS = ("heap-stock", "heap-merged")
SAMPLE = (("q8", ("stock", "merged")), ("q12", HEAPS))
"""The queries and sides that `make test` compares; `make soak` has all queries."""
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
    marked([*SAMPLE, *((name, ("stock", "merged")) for name in QUERIES if name != "q8")], lambda case: case in SAMPLE),
)
def test_a_query_gives_the_same_everywhere(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sides: tuple[str, str]
) -> None:
    """In the sample: a deduplication and a join behind it, which append, and an aggregation that updates."""
    rows_of_states, seen = [], []

    def observed(side: NexmarkSide) -> list[tuple[Any, ...]]:
        seen.append("state")
        found = state_of(side)
        rows_of_states.append(len(found))
        return found

    def forgotten(spark: SparkSession, sides: Sequence[NexmarkSide]) -> None:
        seen.append("forget")
        forget_state(spark, sides)

    monkeypatch.setattr(nexmark_process, "state_of", observed)
    monkeypatch.setattr(nexmark_process, "forget_state", forgotten)
    files = write_files(SHAPE, tmp_path / "events", closing=True)
    with open_place("local") as place:
        found = compare(QUERIES[name], stage_at(place, make_spark, tmp_path), sides, files, bool(QUERIES[name].key))

    # Of both sides, in the middle and at the end, each time as the checkpoint has it.
    of_both = ["forget", "state", "state", "forget"]
    assert seen == ((of_both * 2)[:-1] if QUERIES[name].key else ["forget"])
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


def lost(rows: dict[int, list[Any]]) -> None:
    rows[LAST].pop()


def doubled(rows: dict[int, list[Any]]) -> None:
    rows[LAST].append(rows[LAST][0])


def one_more_batch(rows: dict[int, list[Any]]) -> None:
    rows[LAST + 100] = []


LAST = SHAPE.batches - 1
THREE = (*HEAPS, "merged")


@pytest.mark.parametrize(
    ("wrong", "where", "says"),
    [
        (lost, {"merged"}, "q12, batch 1: RocksDB, merged differs: 1 of [1-9].* rows are missing, 0 are too many"),
        (doubled, {"merged"}, "q12, batch 1: RocksDB, merged differs: 0 of [1-9].* are missing, 1 are too many"),
        (one_more_batch, {"merged"}, "q12, the batches of RocksDB, merged differs: 0 of .*, 1 are too many"),
        (lost, {*THREE}, "q12, the whole stream beside SQL differs: [1-9].* rows are missing"),
    ],
    ids=["lost", "doubled", "one more batch", "all lost the same"],
)
def test_rows_that_differ_are_found(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any, where: set[str], says: str
) -> None:
    """Somebody falsifies what the last of the sides, or all of them, give out in the last batch."""
    keep = NexmarkSide._keep

    def falsified(side: NexmarkSide, frame: DataFrame, batch: int) -> None:
        keep(side, frame, batch)
        if batch == LAST and any(side.kind is KINDS[name] for name in where):
            wrong(side.rows)

    monkeypatch.setattr(NexmarkSide, "_keep", falsified)
    compare_q12(make_spark, tmp_path, THREE, says)


def compare_q12(make_spark: MakeSpark, folder: Path, sides: tuple[str, ...], says: str) -> None:
    """Compares q12's sides, which has to fail with these words."""
    files = write_files(SHAPE, folder / "events", closing=True)
    with open_place("local") as place, pytest.raises(BenchmarkError, match=says):
        compare(QUERIES["q12"], stage_at(place, make_spark, folder), sides, files, False)


def not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = nexmark_process._read
    monkeypatch.setattr(nexmark_process, "_read", lambda side: 0 if side.is_merged else read(side))


def not_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark_process, "bytes_left_out", lambda side: 0)


def not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    start = NexmarkSide.start
    monkeypatch.setattr(NexmarkSide, "start", lambda side, merged: start(side, {}))


def nothing_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = NexmarkSide._keep

    def nothing(side: NexmarkSide, frame: DataFrame, batch: int) -> None:
        keep(side, frame, batch)
        side.rows[batch] = []

    monkeypatch.setattr(NexmarkSide, "_keep", nothing)
    monkeypatch.setattr(nexmark_process, "by_sql", lambda *_: [])


@pytest.mark.parametrize(
    ("wrong", "sides", "says"),
    [
        (not_read, HEAPS, "q12: heap, merged has not read its state back"),
        (not_remote, ("stock", "remote"), "q12: RocksDB, merged, remote-first has fetched all of its state"),
        (not_merged, HEAPS, "q12: heap, merged has not the state files that it should have"),
        (nothing_given_out, HEAPS, "q12 gave nothing out"),
    ],
)
def test_a_comparison_that_proves_nothing_fails(
    make_spark: MakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Any,
    sides: tuple[str, ...],
    says: str,
) -> None:
    """Equal rows say nothing about merged state where there is none, or where nothing of it was read."""
    wrong(monkeypatch)
    compare_q12(make_spark, tmp_path, sides, says)


def test_sides_have_their_settings(make_spark: MakeSpark, tmp_path: Path) -> None:
    names = ("merged", "batch-scope", "remote")
    prefix = "spark.sql.streaming.stateStore.fileMerging."
    found = {}
    with open_place("local") as place:
        for name, side in zip(names, stage_at(place, make_spark, tmp_path).sides(QUERIES["q12"], names), strict=True):
            side.start(side.merged)
            side.stop()
            options = ("groupCommit.scope", "restore", "local.sizeLimit")
            found[name] = [side.session.conf.get(f"{prefix}{option}", "") for option in options]
    usual = found["merged"]
    assert usual[0] != "batch"
    assert usual[1] != "remote"
    assert found == {"merged": usual, "batch-scope": ["batch", *usual[1:]], "remote": [usual[0], "remote", "16m"]}


@pytest.mark.since("4.0", "Spark reads the metadata of its state since 4.0")
def test_all_stores_of_all_operators_are_compared(make_spark: MakeSpark, tmp_path: Path) -> None:
    with open_place("local") as place:
        (side,) = stage_at(place, make_spark, tmp_path).sides(QUERIES["q8"], ("heap-merged",), keep=True)
        run_in_turn([side], write_files(SHAPE, tmp_path / "events"))
        side.stop()
        rows = state_of(side)
    of_join = {f"{of}-{what}" for of in ("left", "right") for what in ("keyToNumValues", "keyWithIndexToValue")}
    assert {row[:2] for row in rows} == {*((0, store) for store in of_join), (1, "default")}
    sellers = {row[-1] for row in rows if row[1] == "left-keyWithIndexToValue"}
    assert len(sellers) > 1, "the values of state are not there"


def test_other_rows_have_another_fingerprint(make_spark: MakeSpark) -> None:
    """Whichever column differs."""
    spark = make_spark()

    def of(*rows: tuple[int, str, float]) -> Any:
        return spark.createDataFrame(rows, "a long, b string, c double").agg(*fingerprint(["a", "b", "c"])).first()

    same = of((1, "x", 0.5), (2, "y", 1.5))
    assert of((2, "y", 1.5), (1, "x", 0.5)) == same
    for row in ((3, "y", 1.5), (2, "z", 1.5), (2, "y", 2.5)):
        assert of((1, "x", 0.5), row) != same
    assert of((1, "x", 0.5), (2, "y", 1.5), (2, "y", 1.5)) != same


def measured(make_spark: MakeSpark, folder: Path, monkeypatch: pytest.MonkeyPatch, following: int, says: str) -> Any:
    """Measures q12's heap stores, which has to fail with these words; returns what was killed, and how."""
    killed = []
    monkeypatch.setattr(Stage, "open", lambda place, *_: stage_at(place, make_spark, folder))
    monkeypatch.setattr("benchmarks.nexmark_process.os.kill", lambda *what: killed.append(what))
    monkeypatch.setattr("benchmarks.nexmark_process.logging.disable", lambda: None)
    with pytest.raises(BenchmarkError, match=says):
        measure("q12", HEAPS, "local", SHAPE, following, Scenario(workload="nexmark", partitions=1), folder)
    return killed


def test_measured_rows_that_differ_are_found(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a measured run nothing is collected: sums of hashes and rows of state tell."""
    run_batch = NexmarkSide.run_batch

    def falsified(side: NexmarkSide, source: Path) -> dict[str, Any]:
        record = run_batch(side, source)
        if side.kind is KINDS["heap-merged"] and record["batch"] == LAST:
            record["output"] = [record["output"][0], "0"]
        return record

    monkeypatch.setattr(NexmarkSide, "run_batch", falsified)
    says = "q12, batch 1: heap, merged differs: .*sum of their hashes"
    assert measured(make_spark, tmp_path, monkeypatch, -1, says) == []


def test_rows_that_differ_after_a_restart_are_found(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gives them out, and its JVM has to be gone at once."""
    back = {"heap-stock": [[5, "7"], [5, "7"]], "heap-merged": [[5, "7"], [5, "8"]]}
    monkeypatch.setattr(nexmark_process, "_return", lambda name, *_: {"output": back[name], "state_rows": [[3]]})
    killed = measured(make_spark, tmp_path, monkeypatch, 0, "q12 after the restart: heap, merged differs")
    assert killed == [(jvm_pid(make_spark(SETTINGS)), signal.SIGKILL)]


def test_a_side_comes_back_on_another_host(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the host has kept of merged files, or of state, nothing makes a restart faster."""
    stores = tmp_path / "local" / "stores"
    stores.mkdir(parents=True)

    def process(command: list[str], **_: Any) -> None:
        assert not stores.exists()
        raise BenchmarkError(json.loads(Path(command[-2]).read_text())["scenario"]["options"]["cache_size_limit"])

    monkeypatch.setattr("benchmarks.nexmark_process.subprocess.Popen", process)
    with open_place("local") as place:
        (side,) = stage_at(place, make_spark, tmp_path).sides(QUERIES["q12"], ("merged",))
        with pytest.raises(BenchmarkError, match=r"^0$"):
            _return("merged", side, [])


@pytest.mark.parametrize(
    ("first_batch", "says"),
    [(7, "heap-stock came back with batch 0, not 7"), (0, "heap-stock came back and has read no state")],
)
def test_a_side_that_begins_again_has_not_come_back(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_batch: int, says: str
) -> None:
    """A lost checkpoint would give a fast restart."""
    monkeypatch.setattr(nexmark_process, "WAIT_SECONDS", 0)
    files = write_files(SHAPE, tmp_path / "events")
    with open_place("local") as place:
        stage = stage_at(place, make_spark, tmp_path)
        monkeypatch.setattr(Stage, "open", lambda *_: stage)
        monkeypatch.setattr(nexmark_process, "client_of", lambda _: place)
        # It would stop the session of all tests then.
        monkeypatch.setattr(nexmark_process, "jvm_memory", pytest.fail)
        (tmp_path / "q12" / "heap-stock" / "input").mkdir(parents=True)
        order = {"side": "heap-stock", "query": "q12", "work": str(tmp_path), "place": {}, "first_batch": first_batch}
        order["files"] = [str(file) for file in files]
        try:
            with pytest.raises(BenchmarkError, match=says):
                come_back(order, stage.scenario, SHAPE)
        finally:
            for query in stage.spark.streams.active:
                query.stop()


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
