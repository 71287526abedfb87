"""Every type, its extreme values and odd names: each has a text, a JSON, an Arrow form, and a key that finds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from tests.cli.conftest import Invoke, invoke
from tests.sampling import sampled
from tests.state.encoded import struct_json, write_typed_store
from tests.state.typed_values import CASES, Case

__all__ = ["invoke"]

NUMBER = [("n", "long")]


def strict_json(text: str) -> Any:
    """JSON as any other reader takes it: without Python's NaN."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def kind_of(case: Case) -> tuple[Any, ...]:
    """The type, and whether the value is one that Python or JSON has nothing for."""
    is_odd = isinstance(case.json, str) and case.json.startswith(("+", "-", "NaN", "Inf"))
    return json.dumps(case.type), is_odd, isinstance(case.raw, bytes)


def typed(case: Case) -> list[str]:
    """The ways in which a key may be typed: as JSON shows it, whole or by field, and a simple text as it is."""
    ways = [json.dumps({"f": case.json}), f"f={json.dumps(case.json)}"]
    if isinstance(case.json, str):
        ways.append(f"f={case.json}" if case.json != "null" and not case.json.startswith('"') else ways[0])
    return ways


@pytest.mark.parametrize("case", sampled(CASES, 50, kind_of), ids=str)
def test_each_value(invoke: Invoke, tmp_path: Path, case: Case) -> None:
    fields = [("f", case.type)]
    store = write_typed_store(tmp_path / "q1", fields, [((case.raw,), (case.raw,))], fields)
    table = Checkpoint(store).state()
    assert not [field.name for field in table.schema if field.metadata], "all is decoded"
    table.validate(full=True)

    row = {"partition_id": 0, "key": {"f": case.json}, "value": {"f": case.json}}
    assert strict_json(invoke("state", store, "--output", "json").stdout) == [row]
    change = {
        "partition_id": 0,
        "change": "added",
        "key": row["key"],
        "value_before": None,
        "value_after": row["value"],
    }
    assert strict_json(invoke("diff", store, "--from", 0, "--output", "json").stdout) == [change]

    for command in (("state", store), ("state", store, "--wide"), ("diff", store, "--from", 0)):
        line = invoke(*command).stdout.splitlines()[2]
        if case.text is not None:
            assert line.count(case.text.strip()) >= 2, (line, case.text)

    for text in typed(case):
        for command in (("state", store), ("diff", store, "--from", 0)):
            assert len(strict_json(invoke(*command, "--key", text, "--output", "json").stdout)) == 1, text
    assert Checkpoint(store).state(key={"f": case.json}).num_rows == 1
    assert Checkpoint(store).state(key={"f": None}).num_rows == (case.raw is None)


STRUCT = struct_json([("b", "long"), ("b", "long")])
NAMES: list[tuple[list[tuple[str, Any]], list[str]]] = [
    (
        [("_groupingexpression", "long"), ("_groupingexpression", "long")],
        ["_groupingexpression", "_groupingexpression_2"],
    ),
    ([("a", "long"), ("a", "long"), ("a_2", "long"), ("a", "long")], ["a", "a_3", "a_2", "a_4"]),
    ([("a", STRUCT), ("a.b", "long")], ["a.b", "a.b_2", "a.b_3"]),
    ([("", "long"), ("", "long")], ["", "_2"]),
    ([("a=b", "long"), ("c d", "long")], ["a=b", "c d"]),
    ([("größe", "long"), ("Über", "long"), ("名前", "long")], ["größe", "Über", "名前"]),
    ([("a", "long"), ("A", "long")], ["a", "A"]),
    ([("`a`", "long"), ('"b"', "long"), ("it's", "long")], ["`a`", '"b"', "it's"]),
    ([("count(1)", "long"), ("window.start", "long")], ["count(1)", "window.start"]),
    ([("\x1b[2J", "long"), ("a\nb", "long"), ("\u202e", "long")], ["\\x1b[2J", "a\\nb", "\\u202e"]),
    ([("key", "long"), ("partition_id", "long"), ("value", "long")], ["key", "partition_id", "value"]),
    ([("expiryTimestampMs", "long")], ["expiryTimestampMs"]),
]
"""Fields, and the names of their columns in a table for people."""


def numbered(fields: list[tuple[str, Any]]) -> list[Any]:
    """A number for each field, counted from 1."""
    found, number = [], 0
    for _, type_ in fields:
        size = 1 if isinstance(type_, str) else len(type_["fields"])
        numbers = tuple(range(number + 1, number + size + 1))
        found.append(numbers[0] if isinstance(type_, str) else numbers)
        number += size
    return found


@pytest.mark.parametrize(("fields", "names"), sampled(NAMES, 6), ids=str)
def test_each_name(invoke: Invoke, tmp_path: Path, fields: list[tuple[str, Any]], names: list[str]) -> None:
    numbers = numbered(fields)
    store = write_typed_store(tmp_path / "q1", fields, [(numbers, numbers)], fields)
    table = Checkpoint(store).state()
    [row] = table.to_pylist()
    assert len(row["key"]) == len(fields)
    assert len(set(table.flatten().column_names)) == 1 + 2 * len(fields)

    [shown] = strict_json(invoke("state", store, "--output", "json").stdout)
    assert shown == row
    [change] = strict_json(invoke("diff", store, "--from", 0, "--output", "json").stdout)
    assert change["value_after"] == row["value"]
    heading, line = invoke("state", store).stdout.splitlines()[1:3]
    position = 0
    for side in ("key", "value"):
        for name in names:
            position = heading.index(f"{side}.{name}", position) + 1
    flat = [each for number in numbers for each in (number if isinstance(number, tuple) else [number])]
    if names != ["expiryTimestampMs"]:
        assert line.split() == [*map(str, [0, *flat, *flat])]

    # Whatever the names are, JSON finds the key; and so does FIELD=VALUE, where only one field may be meant.
    assert len(strict_json(invoke("state", store, "--key", json.dumps(row["key"]), "--output", "json").stdout)) == 1
    for name, value in row["key"].items():
        if isinstance(value, int) and names != ["a.b", "a.b_2", "a.b_3"]:
            found = strict_json(invoke("state", store, "--key", f"{name}={value}", "--output", "json").stdout)
            assert len(found) == 1, name
            assert strict_json(invoke("state", store, "--key", f"{name}={value + 1}", "--output", "json").stdout) == []
    assert Checkpoint(store).report()._repr_html_()


def test_a_name_that_may_mean_two_fields(invoke: Invoke, tmp_path: Path) -> None:
    fields = [("a", struct_json([("b", "long")])), ("a.b", "long")]
    store = write_typed_store(tmp_path / "q1", fields, [(((1,), 2), (1,))], NUMBER)
    assert "several fields" in invoke("state", store, "--key", "a.b=1", status=1).stderr
    for key in ('{"a": {"b": 1}}',):
        assert len(strict_json(invoke("state", store, "--key", key, "--output", "json").stdout)) == 1


def test_keys_without_fields(invoke: Invoke, tmp_path: Path) -> None:
    # As of an aggregation that groups by nothing.
    store = write_typed_store(tmp_path / "q1", [], [((), (5,))], NUMBER)
    assert strict_json(invoke("state", store, "--output", "json").stdout) == [
        {"partition_id": 0, "key": {}, "value": {"n": 5}}
    ]
    assert invoke("state", store).stdout.splitlines()[1].split() == ["partition_id", "value.n"]
    assert "there are none" in invoke("state", store, "--key", "a=1", status=1).stderr


WINDOW = struct_json([("start", "timestamp"), ("end", "timestamp")])
KEYS: list[tuple[str, Any]] = [
    ("user", "string"),
    ("window", WINDOW),
    ("day", "date"),
    ("price", "decimal(10,2)"),
    ("ok", "boolean"),
    ("ntz", "timestamp_ntz"),
    ("tiny", "byte"),
    ("ratio", "float"),
    ("raw", "binary"),
    ("tags", {"type": "array", "elementType": "string", "containsNull": True}),
    ("map", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}),
    ("span", "interval day to second"),
]
AT = 1_767_261_600_000_000  # 2026-01-01T10:00:00Z
ROW = ("42", (AT, AT + 1), 20_454, 150, True, AT, -1, 0.1, b"\0\xff", ["a", None], [("x", 1), ("y", 2)], 10**6)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    nothing = ("null", None, None, None, None, None, None, None, None, None, None, None)
    return write_typed_store(tmp_path / "q1", KEYS, [(ROW, (1,)), (nothing, (2,))], NUMBER)


FOUND: Mapping[str, int] = {
    "user=42": 1,
    'user="42"': 1,
    "user=043": 0,
    "user=null": 0,
    'user="null"': 1,
    '{"user": 42}': 1,
    "window.start=2026-01-01T10:00": 1,
    "window.start=2026-01-01 10:00:00Z": 1,
    "window.start=2026-01-01T12:00:00.000+02:00": 1,
    "window.start=2026-01-01T04:30-0530": 1,
    "window.end=2026-01-01T10:00:00.000001": 1,
    "window.end=2026-01-01T10:00": 0,
    "window.start=+10000-01-01": 0,
    'window={"start": "2026-01-01T10:00"}': 1,
    '{"window": {"start": "2026-01-01T10:00", "end": "2026-01-01T10:00:00.000001Z"}}': 1,
    '{"window.start": "2026-01-01T10:00"}': 1,
    "window=null": 1,
    "day=2026-01-01": 1,
    "day=null": 1,
    "price=1.5": 1,
    "price=1.50": 1,
    "price=15e-1": 1,
    "price=1.51": 0,
    '{"price": 1.5}': 1,
    "ok=true": 1,
    "ok=False": 0,
    "ntz=2026-01-01T10:00": 1,
    "tiny=-1": 1,
    "tiny=-1.0": 1,
    "tiny=1e2": 0,
    "ratio=0.1": 1,
    "ratio=1e-1": 1,
    "ratio=NaN": 0,
    "raw=00FF": 1,
    'tags=["a", null]': 1,
    'tags=["a"]': 0,
    'map={"y": 2, "x": 1}': 1,
    'map=[["x", 1], ["y", 2]]': 1,
    "span=0 00:00:01": 1,
    "span=00:00:01": 1,
}


@pytest.mark.parametrize(("text", "count"), FOUND.items())
def test_the_type_decides_how_a_value_is_read(invoke: Invoke, store: Path, text: str, count: int) -> None:
    assert len(strict_json(invoke("state", store, "--key", text, "--output", "json").stdout)) == count


REFUSED: Mapping[str, str] = {
    "day=tomorrow": "for day (date) a date, such as 2026-01-01",
    "day=2026-02-30": "for day (date) a date",
    "price=1.505": "for price (decimal(10,2)) a number with at most 8 digits before the point and 2 after it",
    "price=1e999999999": "for price (decimal(10,2))",
    "ok=it's": "for ok (boolean) true or false",
    "ok=1": "for ok (boolean) true or false",
    "ntz=2026-01-01T10:00Z": "for ntz (timestamp_ntz) a time without a zone",
    "tiny=128": "for tiny (tinyint) a whole number from -128 to 127",
    "tiny=": "for tiny (tinyint)",
    "ratio=1e39": "for ratio (float) a number",
    "raw=xyz": "for raw (binary) bytes as hexadecimal digits",
    "tags=a": "for tags (array<string>) a list of values",
    "map=a": "for map (map<string,bigint>) an object",
    "span=soon": "for span (interval day to second) a duration",
    "window=2026-01-01": "window.start (timestamp), window.end (timestamp)",
    "start=2026-01-01": "start is a field in a struct: window.start",
    "window.start=noon": "for window.start (timestamp) a time, such as 2026-01-01T10:00",
    "window.start=2026-01-01T24:00": "for window.start (timestamp) a time",
    "name=42": "user (string), window.start (timestamp)",
    "42": "user (string), window.start (timestamp)",
    '{"name": 42}': "user (string), window.start (timestamp)",
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_messages_name_fields_and_types(invoke: Invoke, store: Path, text: str, said: str) -> None:
    message = invoke("state", store, "--key", text, status=1).stderr
    assert message.startswith(f"[PSS_INVALID_OPTION] --key {text} is not allowed. Allowed: "), message
    assert said in message
    for word in ("pa.", "int64", "bytes,", "NoneType", "class", "str"):
        assert word not in message.replace("string", "").replace("struct", ""), message


def test_values_of_python(store: Path) -> None:
    import datetime
    import decimal

    checkpoint = Checkpoint(store)
    at = datetime.datetime(2026, 1, 1, 10)
    east = datetime.timezone(datetime.timedelta(hours=2))
    for key, count in (
        ({"user": 42}, 1),
        ({"user": "42"}, 1),
        ({"user": '"42"'}, 0),
        ({"user": "null"}, 1),
        ({"window": {"start": at}}, 1),
        ({"window.start": at.replace(hour=12, tzinfo=east)}, 1),
        ({"day": at.date()}, 1),
        ({"price": decimal.Decimal("1.500")}, 1),
        ({"price": 1.5}, 1),
        ({"ratio": 0.1}, 1),
        ({"ok": True}, 1),
        ({"ntz": at}, 1),
        ({"raw": b"\0\xff"}, 1),
        ({"tags": ["a", None]}, 1),
        ({"map": {"y": 2, "x": 1}}, 1),
        ({"span": datetime.timedelta(seconds=1)}, 1),
        ({"tiny": -1, "ok": False}, 0),
    ):
        assert checkpoint.state(key=key).num_rows == count, key
    for key in ({"day": at}, {"ok": 1}, {"ntz": at.replace(tzinfo=east)}, {"tiny": True}, {"raw": 1}, {"user": b"42"}):
        with pytest.raises(StateStoreFilesError, match="PSS_INVALID_OPTION"):
            checkpoint.state(key=key)


def test_a_key_with_one_field(invoke: Invoke, tmp_path: Path) -> None:
    for number, (type_, raw, text) in enumerate(
        [("string", "42", "42"), ("date", 20_454, "2026-01-01"), ("string", "x?a=b", "x?a=b"), ("long", -1, "-1")]
    ):
        store = write_typed_store(tmp_path / str(number), [("f", type_)], [((raw,), (1,))], NUMBER)
        assert len(strict_json(invoke("state", store, "--key", text, "--output", "json").stdout)) == 1
        assert Checkpoint(store).state(key=text).num_rows == 1
    assert "f (bigint)" in invoke("state", store, "--key", "typo=-1", status=1).stderr


def test_keys_that_are_shown_as_bytes(invoke: Invoke, tmp_path: Path) -> None:
    store = write_typed_store(tmp_path / "q1", [("f", "long")], [((1,), (1,))], NUMBER)
    from tests.state.small_stores import schema_json, write_schema

    write_schema(store, schema_json(["f"], {"f": "quaternion"}), schema_json(["n"]))
    message = invoke("state", store, "--key", "f=1", status=1).stderr
    assert "[PSS_INVALID_OPTION] --key f=1" in message
    assert "quaternion" in message


def test_sorting(invoke: Invoke, tmp_path: Path) -> None:
    fields = [("f", "double"), ("tags", {"type": "array", "elementType": "long", "containsNull": True})]
    rows = [((number, [1]), (number,)) for number in (2.0, 10.0, float("nan"))]
    store = write_typed_store(tmp_path / "q1", fields, [(key, (1,)) for key, _ in rows], NUMBER)
    found = strict_json(invoke("state", store, "--sort", "key.f", "--output", "json").stdout)
    assert [row["key"]["f"] for row in found] == [2.0, 10.0, "NaN"]
    assert "no order" in invoke("state", store, "--sort", "key.tags", status=2).stderr


def test_times_that_python_has_no_object_for_are_whole_in_arrow(tmp_path: Path) -> None:
    for number, case in enumerate(case for case in CASES if case.type in ("timestamp", "timestamp_ntz", "date")):
        fields = [("f", case.type)]
        store = write_typed_store(tmp_path / str(number), fields, [((case.raw,), (1,))], NUMBER)
        column = Checkpoint(store).state().column("key").combine_chunks().field("f")
        assert column.cast(pa.int32() if case.type == "date" else pa.int64()).to_pylist() == [case.raw]
