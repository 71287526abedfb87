"""Bytes that are no rows are refused, whatever they are: nothing is read outside of them, nothing is guessed."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_statestore.state.decoding import decode_keys, decode_rows
from pyspark_statestore.state.rows import MalformedRowError
from pyspark_statestore.state.schemas import parse_schema

STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "decimal(30,2)"}]}
TYPES: list[Any] = [
    "long",
    "string",
    "decimal(38,0)",
    "interval",
    "variant",
    STRUCT,
    {"type": "array", "elementType": "boolean"},
    {"type": "array", "elementType": STRUCT},
    {"type": "map", "keyType": "integer", "valueType": "binary"},
    {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "void"}},
]
ENCODERS: list[dict[str, Any]] = [
    {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"},
    {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": 1},
    {"keyStateEncoderType": "RangeKeyScanStateEncoderSpec", "orderingOrdinals": [1]},
    {"keyStateEncoderType": "TimestampAsPrefixKeyStateEncoderSpec"},
    {"keyStateEncoderType": "TimestampAsPostfixKeyStateEncoderSpec"},
    {"keyStateEncoderType": "NewKeyStateEncoderSpec"},
]


def schema(*types: Any) -> Any:
    return parse_schema(
        json.dumps({"type": "struct", "fields": [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]})
    )


# Numbers that occur in rows: small offsets and sizes, and what an attacker would write.
WORDS = st.one_of(
    st.builds(lambda offset, size: offset << 32 | size, st.integers(0, 64), st.integers(0, 64)),
    st.integers(0, 20),
    st.sampled_from([1 << 63, (1 << 64) - 1, (1 << 63) - 1, 1 << 31, 1 << 32]),
    st.integers(0, (1 << 64) - 1),
)
BYTES = st.one_of(st.lists(WORDS, max_size=12).map(lambda words: struct.pack(f"<{len(words)}Q", *words)), st.binary())


@settings(max_examples=1000)
@given(type_=st.sampled_from(TYPES), rows=st.lists(BYTES, min_size=1, max_size=3))
def test_rows(type_: Any, rows: list[bytes]) -> None:
    try:
        found = decode_rows(rows, schema(type_))
    except MalformedRowError:
        return
    found.validate(full=True)
    assert len(found.to_pylist()) == len(rows)


@pytest.mark.parametrize(
    ("type_", "words"),
    [("decimal(38,0)", [16 << 32 | 16, *[0x7F7F7F7F7F7F7F7F] * 2]), ("decimal(4,1)", [10_000])],
)
def test_a_decimal_of_too_many_digits(type_: str, words: list[int]) -> None:
    with pytest.raises(MalformedRowError, match="digits"):
        decode_rows([struct.pack(f"<{1 + len(words)}Q", 0, *words)], schema(type_))


@settings(max_examples=1000)
@given(
    encoder=st.sampled_from(ENCODERS), keys=st.lists(st.tuples(st.binary(max_size=7), BYTES), min_size=1, max_size=3)
)
def test_keys(encoder: dict[str, Any], keys: list[tuple[bytes, bytes]]) -> None:
    try:
        found = decode_keys([b"\1\0" + b"".join(key) for key in keys], schema("string", "long"), encoder, prefix=2)
    except MalformedRowError:
        return
    found.validate(full=True)
    assert len(found.to_pylist()) == len(keys)
