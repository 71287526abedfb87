"""Values of each type that Spark can keep in state, the extreme ones above all, and how each of them looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.state.encoded import struct_json

NAN, INF = float("nan"), float("inf")
LONG, INT = 1 << 63, 1 << 31
FAR = 253_402_300_800_000_000
"""The beginning of the year 10000, in microseconds: what the end of 9999-12-31 is west of UTC."""


@dataclass(frozen=True)
class Case:
    """A value, as it is encoded and as it looks.

    Attributes:
        type: In the JSON of a schema.
        raw: As it is encoded.
        json: In JSON.
        text: In a table; None where the struct has a column for each field.
    """

    type: Any
    raw: Any
    json: Any
    text: str | None

    def __str__(self) -> str:
        name = self.type if isinstance(self.type, str) else self.type["type"]
        return f"{name} {self.raw!r}"[:60]


def _numbers(type_: str, bits: int) -> list[Case]:
    return [Case(type_, raw, raw, str(raw)) for raw in (0, 42, -(1 << bits - 1), (1 << bits - 1) - 1)]


def _floats(type_: str, *numbers: float) -> list[Case]:
    names: list[tuple[float, Any]] = [(NAN, "NaN"), (INF, "Infinity"), (-INF, "-Infinity")]
    shown = [*names, *((number, number) for number in (0.0, -0.0, 1.5, 100000.0, *numbers))]
    return [Case(type_, raw, json, str(json)) for raw, json in shown]


def _times(type_: str, zone: str) -> list[Case]:
    found = [
        (0, "1970-01-01 00:00:00"),
        (-1, "1969-12-31 23:59:59.999999"),
        (1_767_348_000_120_000, "2026-01-02 10:00:00.12"),
        (FAR - 1, "9999-12-31 23:59:59.999999"),
        (FAR, "+10000-01-01 00:00:00"),
        (-62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (-62_167_219_200_000_001, "-0001-12-31 23:59:59.999999"),
        (LONG - 1, "+294247-01-10 04:00:54.775807"),
        (-LONG, "-290308-12-21 19:59:05.224192"),
    ]
    cases = []
    for raw, text in found:
        time, point, part = text.replace(" ", "T").partition(".")
        cases.append(Case(type_, raw, f"{time}{point}{part.ljust(6, '0') if point else ''}{zone}", text))
    return cases


def _same(type_: Any, *shown: tuple[Any, str]) -> list[Case]:
    """Cases that look in JSON as in a table."""
    return [Case(type_, raw, text, text) for raw, text in shown]


_STRINGS = ["", "42", "-1", "1e5", "true", "null", "2026-01-01", "é €", "a=b", "it's", '"quoted"', "{", "[1]", " x "]
_DECIMALS = [
    *_same("decimal(5,2)", (0, "0.00"), (-1, "-0.01"), (99999, "999.99")),
    *_same("decimal(18,18)", (1, "0." + "0" * 17 + "1"), (0, "0." + "0" * 18)),
    *_same("decimal(38,0)", (10**38 - 1, "9" * 38), (-(10**38) + 1, "-" + "9" * 38), (127, "127"), (-128, "-128")),
    *_same("decimal(38,38)", (10**38 - 1, "0." + "9" * 38), (0, "0." + "0" * 38)),
    *_same("decimal(20,10)", (12, "0.0000000012")),
]
_DATES = [
    (0, "1970-01-01"),
    (-719_162, "0001-01-01"),
    (-719_163, "0000-12-31"),
    (2_932_896, "9999-12-31"),
    (2_932_897, "+10000-01-01"),
    (INT - 1, "+5881580-07-11"),
    (-INT, "-5877641-06-23"),
]
_SPANS = [
    (0, "0 00:00:00"),
    (-1, "-0 00:00:00.000001"),
    (93_784_500_000, "1 02:03:04.5"),
    (LONG - 1, "106751991 04:00:54.775807"),
    (-LONG, "-106751991 04:00:54.775808"),
]
_FAR_DATES = {"type": "array", "elementType": "date", "containsNull": True}
_MAP = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
_OF_TIMES = {"type": "map", "keyType": "timestamp", "valueType": "decimal(38,0)", "valueContainsNull": True}
_NESTED = {"type": "array", "elementType": struct_json([("at", "timestamp"), ("at", "float")]), "containsNull": True}
_UDT = {"type": "udt", "class": "x.Point", "pyClass": None, "sqlType": struct_json([("x", "double")])}

CASES: list[Case] = [
    *[Case("boolean", raw, raw, str(raw).lower()) for raw in (True, False)],
    *_numbers("byte", 8),
    *_numbers("short", 16),
    *_numbers("integer", 32),
    *_numbers("long", 64),
    *_floats("float", 2.0**-149, 3.4028234663852886e38),
    *_floats("double", 5e-324, 1.7976931348623157e308),
    *_same("string", *((text, text) for text in _STRINGS)),
    Case("string", "\x1b[2J\n", "\x1b[2J\n", "\\x1b[2J\\n"),
    Case("string", b"a\xffb", "a\ufffdb", "a\ufffdb"),
    *_same("char(3)", ("a  ", "a  ")),
    *_same("varchar(3)", ("a", "a")),
    *_same("string collate UNICODE_CI_AI", ("Ann", "Ann")),
    *_same("binary", (b"", ""), (b"\0\xff", "00ff"), (b"42", "3432")),
    *_same("geometry(OGC:CRS84)", (b"\1\2", "0102")),
    *_same("geography(OGC:CRS84, SPHERICAL)", (b"\1\2", "0102")),
    *_same("date", *_DATES),
    *_times("timestamp", "+00:00"),
    *_times("timestamp_ltz", "+00:00"),
    *_times("timestamp_ntz", ""),
    *_DECIMALS,
    *_same("interval day to second", *_SPANS),
    *_same("interval hour to minute", *_SPANS[:2]),
    *[Case("interval year to month", raw, raw, str(raw)) for raw in (0, 40, -INT, INT - 1)],
    *_same("time(6)", (0, "00:00:00"), (86_399_999_999_000, "23:59:59.999999"), (1_000, "00:00:00.000001")),
    *_same("time(9)", (86_399_999_999_999, "23:59:59.999999999")),
    *[
        Case("interval", raw, dict(zip(("months", "days", "microseconds"), raw, strict=True)), None)
        for raw in ((0, 0, 0), (INT - 1, INT - 1, LONG - 1), (-INT, -INT, -LONG))
    ],
    Case("timestamp_ntz(9)", (FAR, 999), {"time": "+10000-01-01T00:00:00", "nanoseconds": 999}, None),
    Case("timestamp_ltz(7)", (-1, 100), {"time": "1969-12-31T23:59:59.999999+00:00", "nanoseconds": 100}, None),
    Case("variant", (b"\x0c\1", b"\1\0\0"), {"value": "0c01", "metadata": "010000"}, None),
    Case("void", None, None, "-"),
    Case("long", None, None, "-"),
    Case("string", None, None, "-"),
    Case("timestamp", None, None, "-"),
    Case(_UDT, (INF,), {"x": "Infinity"}, None),
    Case(struct_json([("x", "date"), ("x", "double")]), (INT - 1, NAN), {"x": "+5881580-07-11", "x_2": "NaN"}, None),
    Case(
        _FAR_DATES, [2_932_897, None, 0], ["+10000-01-01", None, "1970-01-01"], '["+10000-01-01", null, "1970-01-01"]'
    ),
    Case(_FAR_DATES, [], [], "[]"),
    Case(_MAP, [("a", NAN), ("b", None)], [["a", "NaN"], ["b", None]], '{"a": "NaN", "b": null}'),
    Case(
        _OF_TIMES,
        [(FAR, -(10**38) + 1)],
        [["+10000-01-01T00:00:00+00:00", "-" + "9" * 38]],
        '{"+10000-01-01 00:00:00": "-' + "9" * 38 + '"}',
    ),
    Case(
        _NESTED,
        [(0, -INF), None, (FAR, 1.5)],
        [
            {"at": "1970-01-01T00:00:00+00:00", "at_2": "-Infinity"},
            None,
            {"at": "+10000-01-01T00:00:00+00:00", "at_2": 1.5},
        ],
        '[{"at": "1970-01-01 00:00:00", "at_2": "-Infinity"}, null, {"at": "+10000-01-01 00:00:00", "at_2": 1.5}]',
    ),
]
"""Spark's types, and of each its extremes."""
