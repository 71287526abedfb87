"""Cells for people: durations, and the values of a user's own state."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from pyspark_statestore import rendering
from pyspark_statestore.background import BackgroundMaintenance, MaintainedQuery, MaintenanceRun

UTC = datetime.timezone.utc
AT = datetime.datetime(2026, 1, 2, 10, 0, 0, 120_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (-5, "0s"),
        (0.25, "250ms"),
        (10, "10s"),
        (600, "10m"),
        (592, "9m 52s"),
        (90061, "1d 1h"),
        (3600, "1h"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert rendering.duration(datetime.timedelta(seconds=seconds)) == shown


TIME = pa.timestamp("us", "UTC")
STRUCT = pa.struct([("at", TIME), ("n", pa.int32())])


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (pa.list_(STRUCT), [{"at": AT, "n": 1}, None], '[{"at": "2026-01-02 10:00:00.12", "n": 1}, null]'),
        (pa.map_(pa.string(), pa.date32()), [("a", AT.date())], '{"a": "2026-01-02"}'),
        (pa.map_(pa.int32(), pa.list_(pa.binary())), [(1, [b"\0\xff"])], '{"1": ["00ff"]}'),
        (pa.map_(STRUCT, pa.int64()), [({"at": None, "n": 2}, 3)], '{"{\\"at\\": null, \\"n\\": 2}": 3}'),
        (pa.list_(pa.string()), ["é", "\x1b[2J"], '["é", "\\u001b[2J"]'),
        (TIME, AT, "2026-01-02 10:00:00.12"),
        (TIME, AT.replace(microsecond=0), "2026-01-02 10:00:00"),
    ],
)
def test_values_of_state(type_: pa.DataType, value: Any, shown: str) -> None:
    assert rendering.form_of("value.x", type_)(value) == shown


def test_times_that_spark_keeps_as_numbers() -> None:
    # Of the watermark of dropDuplicatesWithinWatermark, and of timers and TTLs of transformWithState.
    micros = rendering.form_of("value.expiresAtMicros", pa.int64())
    assert micros(1_767_348_000_120_000) == "1767348000120000 (2026-01-02 10:00:00.12)"
    assert rendering.form_of("key.expiryTimestampMs", pa.int64())(0) == "0 (1970-01-01 00:00:00)"
    assert micros((1 << 63) - 1) == str((1 << 63) - 1)
    assert rendering.form_of("value.expiresAtMicros", pa.string())("x") == "x"
    assert rendering.form_of("value.count", pa.int64())(1000) == "1000"


def test_what_maintain_returns_says_what_it_does() -> None:
    class Queries:
        job_group = pool = "p"

    maintenance = BackgroundMaintenance(Queries(), datetime.timedelta(minutes=10), None)  # type: ignore[arg-type]
    assert repr(maintenance) == "<BackgroundMaintenance: stopped, every 10m, no run yet>"
    queries = (MaintainedQuery("1", None), MaintainedQuery("2", "q", error=ValueError()))
    maintenance._runs.append(MaintenanceRun(3, AT, AT, queries, None))
    assert repr(maintenance) == (
        "<BackgroundMaintenance: stopped, every 10m, run 3 ended at 2026-01-02 10:00:00 UTC: 2 queries, 1 error>"
    )
