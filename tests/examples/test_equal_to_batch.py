"""Each example on merged state: stopped half-way, restarted, and equal to the same computation done in batch."""

from pathlib import Path

import pytest

from examples import first_sightings, flights_with_weather, follow_aircraft, harness, windowed_delays

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAYS = 6
FILES_PER_TRIGGER = 2
PLAIN_STATE = {".delta", ".changelog", ".zip", ".sst", ".snapshot"}


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(
    scope="module",
    params=[("provider", "rocksdb"), ("path", "heap")],  # tests/streaming combines all of them
    ids=lambda door_and_store: "-".join(door_and_store),
)
def settings(request, work_dir):
    door, store = request.param
    return harness.Settings(
        state="merged", door=door, store=store, days=DAYS, work_dir=work_dir, files_per_trigger=FILES_PER_TRIGGER
    )


def run_example(make_spark, settings, example):
    spark = make_spark(mode=settings.door, store=settings.store)
    return harness.run(spark, settings, example.NAME, example.start, example.expected, quiet=True)


def assert_equal_to_batch(outcome):
    assert outcome.missing == []
    assert outcome.surplus == []
    assert outcome.rows == outcome.expected > 0
    assert 0 < outcome.stopped_after < outcome.batches


def assert_state_is_merged(settings, example):
    state = harness.run_folder(settings, example.NAME) / "checkpoint" / "state"
    assert list((state / "_merged").glob("*.merged"))
    plain = [file for file in state.rglob("*") if file.is_file() and "_merged" not in file.parts]
    assert [file for file in plain if PLAIN_STATE & set(Path(file.name.removesuffix(".crc")).suffixes)] == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("example", [windowed_delays, first_sightings, flights_with_weather], ids=lambda e: e.NAME)
def test_equal_to_batch(make_spark, settings, example) -> None:
    outcome = run_example(make_spark, settings, example)
    assert_equal_to_batch(outcome)
    assert_state_is_merged(settings, example)


def test_transform_with_state_is_equal_to_batch(make_spark, work_dir) -> None:
    """Through the path door and with RocksDB, because Spark admits transformWithState with no provider but its own."""
    pytest.importorskip("google.protobuf", reason="pyspark's transformWithStateInPandas needs protobuf")
    settings = harness.Settings(door="path", days=DAYS, work_dir=work_dir, files_per_trigger=FILES_PER_TRIGGER)
    outcome = run_example(make_spark, settings, follow_aircraft)
    assert_equal_to_batch(outcome)
    assert_state_is_merged(settings, follow_aircraft)


def test_comparison_sees_every_difference(make_spark) -> None:
    spark = make_spark(mode="path")
    facts = {"stopped_after": 1, "batches": 2, "seconds": 0.0}
    one, twice, other = (
        spark.createDataFrame(rows, "k int, v string") for rows in ([(1, "a")], [(1, "a"), (1, "a")], [(1, None)])
    )
    assert harness.compare(one, one, **facts).equal
    assert harness.compare(other, other, **facts).equal
    assert harness.compare(one, twice, **facts).missing == [(1, "a")]
    assert harness.compare(twice, one, **facts).surplus == [(1, "a")]
    assert not harness.compare(one, other, **facts).equal
