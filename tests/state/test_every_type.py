"""Every type, its extreme values and odd names: each has a text, a JSON, an Arrow form, and a key that finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint
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


def kind_of(case: Case) -> str:
    return json.dumps(case.type)


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

    assert Checkpoint(store).report()._repr_html_()


def test_keys_without_fields(invoke: Invoke, tmp_path: Path) -> None:
    # As of an aggregation that groups by nothing.
    store = write_typed_store(tmp_path / "q1", [], [((), (5,))], NUMBER)
    assert strict_json(invoke("state", store, "--output", "json").stdout) == [
        {"partition_id": 0, "key": {}, "value": {"n": 5}}
    ]
    assert invoke("state", store).stdout.splitlines()[1].split() == ["partition_id", "value.n"]


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
