"""The commands ``state`` and ``diff``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.errors import not_allowed
from tests.cli.conftest import Invoke, rows
from tests.inspect.builders import refused
from tests.state.small_stores import KEY, VALUE, schema_json, write_schema, write_store


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    return write_store(tmp_path / "clicks", merged=True)


def test_json_is_the_table(invoke: Invoke, clicks: Path) -> None:
    assert rows(invoke("state", clicks, "--output", "json")) == Checkpoint(clicks).state().to_pylist()
    changes = rows(invoke("diff", clicks, "--from", 1, "--to", 3, "--output", "json"))
    assert changes == Checkpoint(clicks).state_changes(1, 3).to_pylist()


def test_a_table_has_a_column_for_each_field(invoke: Invoke, clicks: Path) -> None:
    title, headings, *lines = invoke("state", clicks, "--version", 1, "--sort", "value.clicks").stdout.splitlines()
    assert title.startswith("4 values in version 1 of ")
    assert headings.split() == ["partition_id", "key.user", "key.day", "value.clicks"]
    assert [line.split() for line in lines] == [
        ["0", "1", "1", "10"],
        ["0", "2", "1", "20"],
        ["1", "3", "1", "30"],
        ["0", "4", "-", "40"],
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["user=1"], [{"user": 1, "day": 1}, {"user": 1, "day": 2}]),
        (["user=1", "day=2"], [{"user": 1, "day": 2}]),
        (['{"user": 1, "day": 2}'], [{"user": 1, "day": 2}]),
        (["day=null"], [{"user": 4, "day": None}]),
        (["user=99"], []),
    ],
    ids=str,
)
def test_a_key(invoke: Invoke, clicks: Path, keys: list[str], expected: list[Any]) -> None:
    options = [part for key in keys for part in ("--key", key)]
    assert [row["key"] for row in rows(invoke("state", clicks, *options, "--output", "json"))] == expected


def test_a_key_in_a_locale_without_its_letters(invoke: Invoke, clicks: Path) -> None:
    """Python hands on bytes that it cannot decode as halves of characters."""
    letters = "ключ".encode().decode("ascii", "surrogateescape")
    assert "user=ключ" in invoke("state", clicks, "--key", f"user={letters}", status=1).stderr
    assert "not text in UTF-8" in invoke("state", clicks, "--key", "user=\udcff", status=2).stderr


def test_two_values_for_one_field(invoke: Invoke, clicks: Path) -> None:
    message = invoke("state", clicks, "--key", "user=1", "--key", "user=2", status=1).stderr
    assert message.startswith("[PSS_INVALID_OPTION] --key user=1 user=2 is not allowed.")
    assert "one value for user, and there are two values for it" in message


def test_what_cannot_be_decoded_is_said(invoke: Invoke, clicks: Path) -> None:
    write_schema(clicks, value=schema_json(VALUE, {"clicks": "quaternion"}))
    result = invoke("state", clicks, "--key", "user=3", "--version", 1, "--output", "json")
    [row] = json.loads(result.stdout)
    assert "value is shown as bytes" in result.stderr
    assert "quaternion" in result.stderr
    assert row["key"] == dict(zip(KEY, (3, 1), strict=True))
    assert bytes.fromhex(row["value"]) == bytes(8) + (30).to_bytes(8, "little")


def test_errors_are_messages(invoke: Invoke, clicks: Path) -> None:
    assert invoke("state", clicks, "--version", 9, status=1).stderr.startswith("[PSS_VERSION_NOT_RESTORABLE]")
    assert invoke("state", clicks, "--operator", 9, status=1).stderr.startswith("[PSS_NO_SUCH_STATE]")
    assert invoke("diff", clicks, status=2).stderr


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("operator_id", "0"),
        ("operator_id", None),
        ("operator_id", True),
        ("operator_id", -1),
        ("partition_id", "0"),
        ("partition_id", 1.0),
        ("store_name", 7),
        ("store_name", None),
        ("state_variable", b"x"),
    ],
)
def test_arguments_of_wrong_types_are_refused_by_id(clicks: Path, argument: str, value: Any) -> None:
    checkpoint, given = Checkpoint(clicks), {argument: value}
    with refused("PSS_INVALID_OPTION", f"{argument} = {str(value)!r} is not allowed"):
        checkpoint.state(**given)
    with refused("PSS_INVALID_OPTION", f"{argument} = {str(value)!r} is not allowed"):
        checkpoint.state_changes(1, **given)
    if argument != "state_variable" and value is not None:
        for narrowed in (checkpoint.inspect.segments, checkpoint.inspect.versions):
            with refused("PSS_INVALID_OPTION", f"{argument} = {str(value)!r} is not allowed"):
                narrowed(**given)


def test_numbers_of_numpy_are_numbers(clicks: Path) -> None:
    found = Checkpoint(clicks).state(np.int64(0), np.int32(1))
    assert set(found["partition_id"].to_pylist()) == {1}


def test_without_a_store_name_an_operator_with_several_names_them(invoke: Invoke, clicks: Path) -> None:
    metadata = clicks / "state" / "0" / "_metadata" / "metadata"
    stores = [{"storeName": name, "numPartitions": 2} for name in ("left-keyToNumValues", "right-keyToNumValues")]
    info = {"operatorInfo": {"operatorId": 0, "operatorName": "symmetricHashJoin"}, "stateStoreInfo": stores}
    metadata.write_text("v1\n" + json.dumps(info))
    (clicks / "state" / "0" / "0" / "_metadata" / "schema").unlink()
    known = "It has: store 'left-keyToNumValues', store 'right-keyToNumValues'. Say which one: "
    said = invoke("state", clicks, status=1).stderr
    assert said.startswith("[PSS_NO_SUCH_STATE]")
    assert f"{known}--store left-keyToNumValues." in said
    with refused("PSS_NO_SUCH_STATE", f"{known}store_name='left-keyToNumValues' (--store)."):
        Checkpoint(clicks).state()


def test_a_variable_that_has_to_be_given_is_asked_for_by_its_option(
    invoke: Invoke, clicks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(*_: object, **given: object) -> None:
        raise not_allowed("state_variable", given["state_variable"], "one of a, b")

    monkeypatch.setattr(Checkpoint, "state", several)
    said = invoke("state", clicks, status=1).stderr
    assert said == "[PSS_INVALID_OPTION] --variable has to be given here. Allowed: one of a, b.\n"
    said = invoke("state", clicks, "--variable", "c", status=1).stderr
    assert said == "[PSS_INVALID_OPTION] --variable c is not allowed. Allowed: one of a, b.\n"
