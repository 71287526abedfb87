"""JSON and zips from somebody else: understood, or a ValueError."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore.parsing import DEEPEST, LARGEST, LONGEST, objects, opened_zip, parse_json, whole_number
from tests.hostile.mutations import TEXTS

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Halves of characters cannot be written to any file.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(VALUES, st.booleans())
def test_what_json_can_say_is_understood(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)

    assert parse_json(text) == value
    assert parse_json(text.encode()) == value


@given(st.binary() | st.sampled_from(TEXTS).map(str.encode))
def test_everything_else_is_one_error(data: bytes) -> None:
    try:
        found = parse_json(data)
    except ValueError:
        return
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "[1e400]", '"\\ud800"', '"\\udC00x"', '{"\\uD83d":1}'),
        *(
            "1" + "0" * 5000,
            "[" * 100_000,
            "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
            '{"a":' * 5000 + "1" + "}" * 5000,
        ),
        *('"' + '\\"' * 200_000, '["[[[[[[' + "[" * 200, "", " ", "{", "\ufeff{}", "'x'", "{1:2}", "[1,]"),
        '[{"a":1,"a":1}]',
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_what_is_no_json_here(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        parse_json(text)


def test_brackets_in_text_are_no_depth() -> None:
    value = [{'a"]}': "[" * 500 + '\\"' + "{" * 500}] * 3

    assert parse_json(json.dumps(value)) == value
    assert parse_json("[" * DEEPEST + "]" * DEEPEST)
    assert parse_json("[" + "[]," * 1000 + "[]]")


def test_a_text_may_not_be_longer_than_is_said() -> None:
    with pytest.raises(ValueError, match=str(LONGEST)):
        parse_json(b" " * (LONGEST + 1))


@pytest.mark.parametrize("value", [-1, LARGEST + 1, 2**64, True, False, None, 1.0, "1", [], {}])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match="the size"):
        whole_number(value, "the size")


@pytest.mark.parametrize("value", [1, "x", {}, [1], [{}, []], True])
def test_what_are_no_objects(value: object) -> None:
    with pytest.raises(ValueError, match="files"):
        objects(value, "files")


def zipped(data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("x", data)
    return out.getvalue()


def test_a_zip_unpacks_to_no_more_than_is_said() -> None:
    data = zipped(bytes(1000))
    with opened_zip(data, 1000) as archive:
        assert archive.read("x") == bytes(1000)

    with pytest.raises(ValueError, match="unpacks to 1000 bytes, and at most 999"), opened_zip(data, 999):
        pass


@pytest.mark.parametrize("said", [0, 10])
def test_a_zip_that_says_less_than_it_has(said: int) -> None:
    data = bytearray(zipped(bytes(1000)))
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = said.to_bytes(4, "little")

    try:
        with opened_zip(bytes(data), 100) as archive:
            assert len(archive.read("x")) <= said
    except ValueError as error:
        assert "no whole zip" in str(error)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_java_does_not_have(method: int) -> None:
    with pytest.raises(ValueError, match="Java"), opened_zip(zipped(b"x", method), 1000):
        pass


@given(st.integers(0, 200), st.integers(1, 255))
def test_damage_of_a_zip_is_one_error(at: int, change: int) -> None:
    data = bytearray(zipped(b"some text, some text"))
    data[at % len(data)] ^= change
    try:
        with opened_zip(bytes(data), 1000) as archive:
            for name in archive.namelist():
                archive.read(name)
    except ValueError:
        pass
