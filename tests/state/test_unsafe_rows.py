"""Rows that Spark has encoded, decoded: random schemas, nulls everywhere, and each way in which RocksDB has keys."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from pyspark_statestore.state.decoding import decode_keys, decode_rows
from pyspark_statestore.state.schemas import parse_schema
from pyspark_statestore.values import json_values
from tests.conftest import MakeSpark
from tests.streaming.runs import session_conf

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

UTC = datetime.timezone.utc
ENCODERS = pytest.mark.since("4.0", "these encoders came with Spark 4.0")


@pytest.fixture(scope="module")
def session(make_spark: MakeSpark) -> SparkSession:
    """Any session will do."""
    return make_spark()


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return unscaled.map(lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=precision)))


EARLY, LATE = datetime.datetime(1890, 1, 1), datetime.datetime(2190, 1, 1)

LEAVES: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.BooleanType(), st.booleans()),
    (t.ByteType(), whole(8)),
    (t.ShortType(), whole(16)),
    (t.IntegerType(), whole(32)),
    (t.LongType(), whole(64)),
    (t.FloatType(), st.floats(width=32)),
    (t.DoubleType(), st.floats()),
    (t.StringType(), st.text(st.characters(codec="utf-8"), max_size=20)),
    (t.BinaryType(), st.binary(max_size=20)),
    (t.DateType(), st.dates(EARLY.date(), LATE.date())),
    (t.TimestampType(), st.datetimes(EARLY, LATE, timezones=st.just(UTC))),
    (t.TimestampNTZType(), st.datetimes(EARLY, LATE)),
    (t.DayTimeIntervalType(), st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999))),
    *[(t.DecimalType(p, s), decimals(p, s)) for p, s in ((1, 0), (9, 2), (18, 18), (19, 0), (38, 10))],
]

Typed = tuple[t.DataType, st.SearchStrategy[Any]]


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def _array(of: Typed) -> Typed:
    return t.ArrayType(of[0]), st.lists(_nullable(of[1]), max_size=70)


def _map(key: Typed, value: Typed) -> Typed:
    return t.MapType(key[0], value[0]), st.dictionaries(key[1], _nullable(value[1]), max_size=4)


def _struct(fields: Sequence[Typed]) -> Typed:
    named = [t.StructField(f"f{number}", each[0]) for number, each in enumerate(fields)]
    return t.StructType(named), st.tuples(*(_nullable(each[1]) for each in fields))


def _is_key(of: Typed) -> bool:
    # Of numbers that are equal and have other bits, a Python dictionary and Spark keep different ones.
    return not isinstance(of[0], (t.FloatType, t.DoubleType, t.BinaryType, t.DecimalType))


LEAF = st.sampled_from(LEAVES)
ANY = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        inner.map(_array),
        st.builds(_map, LEAF.filter(_is_key), inner),
        st.lists(inner, min_size=1, max_size=4).map(_struct),
    ),
    max_leaves=5,
)


@st.composite
def rows(draw: st.DrawFn, fields: st.SearchStrategy[Sequence[Typed]]) -> tuple[t.StructType, list[tuple[Any, ...]]]:
    """A schema and rows of it."""
    schema, values = _struct(draw(fields))
    assert isinstance(schema, t.StructType)
    return schema, draw(st.lists(values, min_size=1, max_size=8))


def internal_rows(frame: DataFrame) -> list[Any]:
    """The rows of a frame as Spark has them."""
    rows = list(frame._jdf.queryExecution().executedPlan().executeCollect())
    assert {row.getClass().getSimpleName() for row in rows} == {"UnsafeRow"}
    return rows


def expected(schema: t.DataType, value: Any) -> Any:
    """The value that Arrow should have, of one that Spark got."""
    if value is None:
        return None
    if isinstance(schema, t.StructType):
        return {field.name: expected(field.dataType, each) for field, each in zip(schema, value, strict=True)}
    if isinstance(schema, t.ArrayType):
        return [expected(schema.elementType, each) for each in value]
    if isinstance(schema, t.MapType):
        return [(expected(schema.keyType, k), expected(schema.valueType, v)) for k, v in value.items()]
    return value


def compared(values: Sequence[Any]) -> list[str]:
    """Text that tells NaN from NaN no more, and maps whose pairs are in another order."""

    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}"
        if isinstance(value, list):
            parts = [f"{shown(e[0])} -> {shown(e[1])}" if isinstance(e, tuple) else shown(e) for e in value]
            return str(sorted(parts) if value and isinstance(value[0], tuple) else parts)
        if isinstance(value, datetime.datetime):
            return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
        return repr(value)

    return [shown(value) for value in values]


SLOW = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@SLOW
@given(given_rows=rows(st.lists(ANY, min_size=1, max_size=6)))
def test_random_schemas(session: SparkSession, given_rows: tuple[t.StructType, list[tuple[Any, ...]]]) -> None:
    schema, values = given_rows
    frame = session.createDataFrame(values, schema)
    encoded = [bytes(row.getBytes()) for row in internal_rows(frame)]
    found = decode_rows(encoded, parse_schema(schema.json()))
    found.validate(full=True)
    assert compared(found.to_pylist()) == compared([expected(schema, value) for value in values])


def test_more_fields_than_a_word_has_bits(session: SparkSession) -> None:
    names = [f"f{number}" for number in range(130)]
    values = [tuple(None if (row + number) % 3 == 0 else number for number in range(130)) for row in range(5)]
    frame = session.createDataFrame(values, t.StructType([t.StructField(name, t.LongType()) for name in names]))
    encoded = [bytes(row.getBytes()) for row in internal_rows(frame)]
    found = decode_rows(encoded, parse_schema(frame.schema.json()))
    assert found.to_pylist() == [dict(zip(names, row, strict=True)) for row in values]


@pytest.mark.since("4.1", "the type TIME came with Spark 4.1")
def test_types_that_python_has_no_values_of(session: SparkSession) -> None:
    with session_conf(session, {"spark.sql.timeType.enabled": "true"}):
        _check_types_without_values(session)


def _check_types_without_values(session: SparkSession) -> None:
    frame = session.sql("""
        SELECT make_interval(1, 2, 0, 3, 4, 5, 6.789012) AS span, INTERVAL '3-4' YEAR TO MONTH AS months,
               parse_json('{"a": [1, "b"]}') AS variant, NULL AS nothing, TIME'12:34:56.789' AS time,
               array(parse_json('1'), NULL) AS variants, CAST('a' AS CHAR(3)) AS short
        UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL
    """)
    encoded = [bytes(row.getBytes()) for row in internal_rows(frame)]
    found = decode_rows(encoded, parse_schema(frame.schema.json()))
    first, second = found.to_pylist()
    assert first["span"] == {"months": 14, "days": 3, "microseconds": (4 * 3600 + 5 * 60) * 10**6 + 6_789_012}
    assert first["months"] == 40
    assert first["time"] == datetime.time(12, 34, 56, 789000)
    [row] = frame.limit(1).select("variant", "variants").collect()
    assert first["variant"] == {"value": row[0].value, "metadata": row[0].metadata}
    assert [each and each["value"] for each in first["variants"]] == [row[1][0].value, None]
    assert set(second.values()) == {None}


@pytest.mark.since("4.3", "timestamps with nanoseconds and values of places came with Spark 4.3")
def test_types_of_new_versions(session: SparkSession) -> None:
    point = "X'0101000000000000000000F03F0000000000000040'"
    enabled = {"spark.sql.timestampNanosTypes.enabled": "true", "spark.sql.geospatial.enabled": "true"}
    with session_conf(session, {**enabled, "spark.sql.timeType.enabled": "true"}):
        frame = session._jsparkSession.sql(f"""
            SELECT CAST('2026-01-02 03:04:05.123456789' AS TIMESTAMP_NTZ(9)) AS ntz,
                   CAST('9999-12-31 23:59:59.1234567' AS TIMESTAMP_LTZ(7)) AS ltz,
                   array(CAST('1969-12-31 23:59:59.999999999' AS TIMESTAMP_NTZ(8)), NULL) AS several,
                   CAST(NULL AS TIMESTAMP_NTZ(9)) AS nothing, CAST('12:34:56.123456789' AS TIME(9)) AS clock,
                   CAST(X'61FF' AS STRING) AS broken, 'a' COLLATE UNICODE_CI AS collated,
                   st_geomfromwkb({point}) AS geometry, st_geogfromwkb({point}) AS geography
        """)
        rows = [bytes(row.getBytes()) for row in frame.queryExecution().executedPlan().executeCollect()]
        found = decode_rows(rows, parse_schema(frame.schema().json()))
    found.validate(full=True)
    [row] = json_values(found)
    well_known = "0101000000000000000000f03f0000000000000040"
    assert row.pop("geometry").endswith(well_known)
    assert row.pop("geography").endswith(well_known)
    assert row == {
        "ntz": {"time": "2026-01-02T03:04:05.123456", "nanoseconds": 789},
        "ltz": {"time": "9999-12-31T23:59:59.123456+00:00", "nanoseconds": 700},
        "several": [{"time": "1969-12-31T23:59:59.999999", "nanoseconds": 990}, None],
        "nothing": None,
        "clock": "12:34:56.123456789",
        "broken": "a\ufffd",
        "collated": "a",
    }


NUMBERS = [each for each in LEAVES if isinstance(each[0], t.NumericType) and not isinstance(each[0], t.DecimalType)]


def _check_keys(
    session: SparkSession,
    given_rows: tuple[t.StructType, list[tuple[Any, ...]]],
    name: str,
    make: Callable[[Any, Any], Any],
    **more: Any,
) -> None:
    schema, values = given_rows
    frame = session.createDataFrame(values, schema)
    state = session._jvm.org.apache.spark.sql.execution.streaming.state
    spec = make(state, frame._jdf.schema())
    rows_as_bytes = state.UnsafeRowDataEncoder(spec, frame._jdf.schema())
    encoder = spec.toEncoder(rows_as_bytes, False)
    encoded = [b"\x07\x00" + bytes(encoder.encodeKey(row)) for row in internal_rows(frame)]
    found = decode_keys(encoded, parse_schema(schema.json()), {"keyStateEncoderType": name, **more}, prefix=2)
    found.validate(full=True)
    assert compared(found.to_pylist()) == compared([expected(schema, value) for value in values])


@ENCODERS
@SLOW
@given(given_rows=rows(st.lists(ANY, min_size=1, max_size=3)))
def test_keys_that_are_rows(session: SparkSession, given_rows: Any) -> None:
    name = "NoPrefixKeyStateEncoderSpec"
    _check_keys(session, given_rows, name, lambda state, schema: state.NoPrefixKeyStateEncoderSpec(schema))


@ENCODERS
@SLOW
@given(given_rows=rows(st.lists(ANY, min_size=2, max_size=5)), data=st.data())
def test_keys_with_a_prefix(session: SparkSession, given_rows: Any, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(given_rows[0]) - 1))
    name = "PrefixKeyScanStateEncoderSpec"
    _check_keys(
        session,
        given_rows,
        name,
        lambda state, schema: state.PrefixKeyScanStateEncoderSpec(schema, count),
        numColsPrefixKey=count,
    )


@ENCODERS
@SLOW
@given(given_rows=rows(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=5)), data=st.data())
def test_keys_to_scan_in_order(session: SparkSession, given_rows: Any, data: st.DataObject) -> None:
    ordered = data.draw(st.permutations(range(len(given_rows[0]))))
    ordered = ordered[: data.draw(st.integers(1, len(ordered)))]
    as_seq = session._jvm.org.apache.spark.api.python.PythonUtils.toSeq
    _check_keys(
        session,
        given_rows,
        "RangeKeyScanStateEncoderSpec",
        lambda state, schema: state.RangeKeyScanStateEncoderSpec(schema, as_seq(list(ordered))),
        orderingOrdinals=ordered,
    )


@pytest.mark.since("4.2", "keys with a time came with Spark 4.2, for version 4 of a join's state")
@SLOW
@given(given_rows=rows(st.lists(ANY, min_size=1, max_size=3)), data=st.data())
@pytest.mark.parametrize("where", ["Prefix", "Postfix"])
def test_keys_with_a_time(session: SparkSession, given_rows: Any, data: st.DataObject, where: str) -> None:
    schema, values = given_rows
    schema = t.StructType([*schema.fields, t.StructField("__event_time", t.LongType())])
    values = [(*row, data.draw(whole(64))) for row in values]
    name = f"TimestampAs{where}KeyStateEncoderSpec"
    _check_keys(session, (schema, values), name, lambda state, java: getattr(state, name)(java))
