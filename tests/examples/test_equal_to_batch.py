"""Each example on merged state: stopped half-way, restarted, and equal to the same computation done in batch."""

from pathlib import Path

import pytest

from examples import first_sightings, flights_with_weather, follow_aircraft, harness, kafka_shaped, windowed_delays
from examples.options import Settings
from tests.examples.look import run_commands

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="equal queries")]

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
    return Settings(
        state="merged", door=door, store=store, days=DAYS, work_dir=work_dir, files_per_trigger=FILES_PER_TRIGGER
    )


def run_example(make_spark, settings, example):
    spark = make_spark(mode=settings.door, store=settings.store)
    return harness.run(spark, settings, example.NAME, example.start, example.expected, quiet=True)


def assert_commands_work(settings, example, outcome, capsys):
    capsys.readouterr()
    assert harness.conclude(example.NAME, settings, outcome, example.LOOK) == 0
    return run_commands(capsys.readouterr().out)


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
def test_equal_to_batch(make_spark, settings, example, capsys) -> None:
    outcome = run_example(make_spark, settings, example)
    assert_equal_to_batch(outcome)
    assert_state_is_merged(settings, example)
    assert_commands_work(settings, example, outcome, capsys)


def test_records_of_kafka_are_equal_to_batch(make_spark, work_dir, capsys) -> None:
    settings = Settings(work_dir=work_dir)
    spark = make_spark(mode=settings.door, store=settings.store)
    outcome = kafka_shaped.run(spark, settings, 4, quiet=True)
    assert_equal_to_batch(outcome)
    assert_state_is_merged(settings, kafka_shaped)
    _, windows, ids = assert_commands_work(settings, kafka_shaped, outcome, capsys)
    assert "key.id" in ids
    assert "key.shop" in windows


def test_records_look_like_those_of_kafka(make_spark) -> None:
    spark = make_spark(mode="path")
    numbers = spark.range(4_000).selectExpr("id AS value", "current_timestamp() AS timestamp")
    records = kafka_shaped.records(numbers)
    # As the integration guide of Spark's Kafka source lists them, headers aside.
    assert [(field.name, field.dataType.simpleString()) for field in records.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert records.select("topic", "partition", "offset").distinct().count() == 4_000
    orders = kafka_shaped.orders(records)
    assert orders.count() == 4_000 - 4, "some are no JSON"
    retried = orders.groupBy("id").count().where("count > 1").count()
    assert retried == sum(1 for n in range(kafka_shaped.TRIED_AGAIN_AFTER, 4_000) if n % 10 == 9)
    assert orders.where("shop IS NULL OR cents IS NULL OR at IS NULL").count() == 0


def test_transform_with_state_is_equal_to_batch(make_spark, work_dir, capsys) -> None:
    """Through the path door and with RocksDB, because Spark admits transformWithState with no provider but its own."""
    pytest.importorskip("google.protobuf", reason="pyspark's transformWithStateInPandas needs protobuf")
    settings = Settings(door="path", days=DAYS, work_dir=work_dir, files_per_trigger=FILES_PER_TRIGGER)
    outcome = run_example(make_spark, settings, follow_aircraft)
    assert_equal_to_batch(outcome)
    assert_state_is_merged(settings, follow_aircraft)
    totals, _ = assert_commands_work(settings, follow_aircraft, outcome, capsys)
    assert "value.flights" in totals


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
