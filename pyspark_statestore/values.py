"""The values of a table as Python, JSON and text have them, whatever their type is: this decides it for all doors.

An Arrow table holds each value as it is. Python has no date before the year 1 or after 9999, JSON no NaN, and neither
has two fields of one name.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_CYCLE_DAYS = 146_097
_CYCLE_YEARS = 400
"""After so many years the calendar repeats."""

_EPOCH_DAYS = datetime.date(1970, 1, 1).toordinal() - 1
"""Days from 0001-01-01 to 1970-01-01."""

_DAY = 86_400_000_000
"""A day's microseconds."""

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_DAY, _LAST_DAY = (each.toordinal() - 1 - _EPOCH_DAYS for each in (datetime.date.min, datetime.date.max))


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of which no two are equal: the second ``a`` becomes ``a_2``, the next ``a_3``; taken names are left out."""
    taken, used, count, found = set(names), set[str](), dict[str, int](), []
    for name in names:
        unique = name
        while unique in used or (unique != name and unique in taken):
            count[name] = count.get(name, 1) + 1
            unique = f"{name}_{count[name]}"
        used.add(unique)
        found.append(unique)
    return found


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as Python's own, times in UTC without a zone; text where Python has no object for a date or time."""
    return _values(column, _python_leaf)


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as JSON has them: text, numbers, booleans, None, lists and dictionaries; a map is a list of pairs."""
    return _values(column, _json_leaf)


def date_text(days: int) -> str:
    """A date, by the days since 1970; years beyond 0000 to 9999 have a sign, as in ISO 8601 and in Spark."""
    cycle, day = divmod(days + _EPOCH_DAYS, _CYCLE_DAYS)
    date = datetime.date.fromordinal(day + 1)
    year = date.year + cycle * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{date.month:02}-{date.day:02}"


def days_of(year: int, month: int, day: int) -> int:
    """The days from 1970 to a date of any year.

    Raises:
        ValueError: There is no such date.
    """
    cycle, of = divmod(year - 1, _CYCLE_YEARS)
    return datetime.date(of + 1, month, day).toordinal() - 1 - _EPOCH_DAYS + cycle * _CYCLE_DAYS


def time_text(value: int, unit: str = "us") -> str:
    """A point in time in UTC, by the units since 1970, with the part of a second where there is one."""
    days, rest = divmod(value, 86_400 * _PER_SECOND[unit])
    return f"{date_text(days)} {clock_text(rest, unit)}"


def clock_text(value: int, unit: str) -> str:
    """A time of day, by the units since midnight, with the part of a second where there is one."""
    seconds, part = divmod(value, _PER_SECOND[unit])
    digits = len(str(_PER_SECOND[unit])) - 1
    fraction = f".{part:0{digits}}".rstrip("0") if part else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def duration_text(value: datetime.timedelta) -> str:
    """A duration as in Spark's ``INTERVAL '1 02:03:04.5' DAY TO SECOND``: ``1 02:03:04.5``."""
    microseconds = value // datetime.timedelta(microseconds=1)
    days, rest = divmod(abs(microseconds), _DAY)
    return f"{'-' if microseconds < 0 else ''}{days} {clock_text(rest, 'us')}"


def decimal_text(value: decimal.Decimal) -> str:
    """A decimal with all its digits and without an exponent."""
    return format(value, "f")


def finite(value: float) -> float | str:
    """A number, or a name of Spark's ``to_json`` for what is none in JSON: ``NaN``, ``Infinity``, ``-Infinity``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_Leaf = Callable[[pa.Array], list[Any]]


def _values(column: pa.Array | pa.ChunkedArray, leaf: _Leaf) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        return list(chain.from_iterable(_values(chunk, leaf) for chunk in column.chunks))
    type_ = column.type
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        fields = [_values(column.field(number), leaf) for number in range(type_.num_fields)]
        rows: Iterable[tuple[Any, ...]] = zip(*fields, strict=True) if fields else [()] * len(column)
        return _where_valid(column, (dict(zip(names, row, strict=True)) for row in rows))
    if pa.types.is_map(type_):
        pairs = zip(_elements(column, column.keys, leaf), _elements(column, column.items, leaf), strict=True)
        return _where_valid(column, ([*zip(keys, values, strict=True)] for keys, values in pairs))
    if pa.types.is_list(type_):
        return _where_valid(column, _elements(column, column.values, leaf))
    return leaf(column)


def _elements(column: pa.Array, elements: pa.Array, leaf: _Leaf) -> list[list[Any]]:
    """The elements of each list; of a slice, the offsets lead into the elements of the whole."""
    offsets = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    found = _values(elements.slice(first, (offsets[-1] if offsets else 0) - first), leaf)
    return [found[begin - first : end - first] for begin, end in pairwise(offsets)]


def _where_valid(column: pa.Array, values: Iterable[Any]) -> list[Any]:
    if not column.null_count:
        return list(values)
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def _python_leaf(column: pa.Array) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_) and type_.tz:
        # Arrow would look the zone up for each value, which takes long and loses a Ctrl-C that comes meanwhile.
        column = column.cast(pa.timestamp(type_.unit))
    if _python_has(column):
        found: list[Any] = column.to_pylist()
        return found
    return _each(_integers(column), _writer(type_))


def _writer(type_: pa.DataType) -> Callable[[int], str]:
    """What makes text of the integers that dates, times and times of day are in Arrow."""
    if pa.types.is_date32(type_):
        return date_text
    unit = type_.unit
    return lambda value: (time_text if pa.types.is_timestamp(type_) else clock_text)(value, unit)


def _as_integers(column: pa.Array) -> pa.Array:
    return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _integers(column: pa.Array) -> list[int | None]:
    found: list[int | None] = _as_integers(column).to_pylist()
    return found


def _each(values: Iterable[Any], form: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else form(value) for value in values]


def _python_has(column: pa.Array) -> bool:
    """Whether Python has an object for each value."""
    type_ = column.type
    if pa.types.is_time64(type_) and type_.unit == "ns":
        return not any(value is not None and value % 1000 for value in _integers(column))
    if pa.types.is_date32(type_):
        lowest, highest = _FIRST_DAY, _LAST_DAY
    elif pa.types.is_timestamp(type_):
        day = 86_400 * _PER_SECOND[type_.unit]
        lowest, highest = _FIRST_DAY * day, _LAST_DAY * day + day - 1
    else:
        return True
    bounds = pc.min_max(_as_integers(column)).as_py()
    return bounds["min"] is None or (lowest <= bounds["min"] and bounds["max"] <= highest)


def _json_leaf(column: pa.Array) -> list[Any]:
    type_ = column.type
    if pa.types.is_floating(type_):
        return _each(column.to_pylist(), finite)
    if pa.types.is_decimal(type_):
        return _each(column.to_pylist(), decimal_text)
    if pa.types.is_binary(type_):
        return _each(column.to_pylist(), bytes.hex)
    if pa.types.is_duration(type_):
        return _each(column.to_pylist(), duration_text)
    if pa.types.is_timestamp(type_):
        zone = "+00:00" if type_.tz else ""
        return [text and _iso(text) + zone for text in _each(_integers(column), _writer(type_))]
    if pa.types.is_date32(type_) or pa.types.is_time64(type_):
        return _each(_integers(column), _writer(type_))
    found: list[Any] = column.to_pylist()
    return found


def _iso(text: str) -> str:
    """A point in time as ``isoformat`` has it: with six digits of a second's part, which older parsers need."""
    time, point, part = text.replace(" ", "T").partition(".")
    return f"{time}{point}{part:0<6}" if point else time
