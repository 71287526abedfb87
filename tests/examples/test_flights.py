"""The daily files: complete, in order, and read as written."""

import datetime

import pyarrow.parquet as pq
import pytest

from examples import flights


@pytest.fixture(scope="module")
def three_days(tmp_path_factory):
    return flights.prepare(tmp_path_factory.mktemp("input"), 3)


def test_the_whole_year_is_there() -> None:
    table = flights.load_flights()
    assert table.num_rows == 336_776
    assert table["scheduled"].null_count == 0
    assert table["dep_delay"].null_count == 8_255
    assert table.group_by(["scheduled", "carrier", "flight", "origin"]).aggregate([]).num_rows == table.num_rows


def test_time_is_utc() -> None:
    first = flights.load_flights().slice(0, 1).to_pylist()[0]
    # 05:15 in New York, in winter
    assert first["scheduled"] == datetime.datetime(2013, 1, 1, 10, 15, tzinfo=datetime.timezone.utc)


def test_one_file_a_day_in_event_time_order(three_days) -> None:
    for folder, event_time in (("flights", "scheduled"), ("weather", "observed")):
        files = sorted((three_days / folder).iterdir())
        assert [file.name for file in files] == [f"2013-01-0{day}.parquet" for day in (1, 2, 3)]
        assert sorted(files, key=lambda file: file.stat().st_mtime) == files
        times = [time for file in files for time in pq.read_table(file)[event_time].to_pylist()]
        assert times == sorted(times)


def test_input_is_written_once(three_days) -> None:
    before = {file: file.stat().st_mtime_ns for file in three_days.rglob("*")}
    assert flights.prepare(three_days.parent, 3) == three_days
    assert {file: file.stat().st_mtime_ns for file in three_days.rglob("*")} == before


@pytest.mark.parametrize("days", [0, 1, 366])
def test_days_out_of_range_are_refused(tmp_path, days) -> None:
    with pytest.raises(ValueError, match="days must be between 2 and 365"):
        flights.prepare(tmp_path, days)
    assert not list(tmp_path.iterdir())


def test_overlapping_days_are_refused(tmp_path) -> None:
    table = flights.load_flights().slice(0, 5_000)
    backwards = table.set_column(0, "scheduled", table["scheduled"].take(list(range(table.num_rows))[::-1]))
    with pytest.raises(AssertionError, match="not after that of the day before"):
        flights.write_days(backwards, "scheduled", tmp_path / "flights", 3)
