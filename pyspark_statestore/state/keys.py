"""The rows of one key. The type of each field decides how a value is read, be it of Python, of JSON, or typed."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.state.decoding import UNDECODED
from pyspark_statestore.values import days_of, decimal_text, finite, json_values

_Path: TypeAlias = tuple[int, ...]
"""Numbers of fields, from the key down."""

_FIELD = re.compile(r"([A-Za-z_][\w.]*)=.*", re.DOTALL)
"""What is meant as ``FIELD=VALUE``, even where there is no such field."""

_DATE = r"([+-]?\d{4,7})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
_ONLY_DATE = re.compile(_DATE, re.ASCII)
_ONLY_CLOCK = re.compile(_CLOCK, re.ASCII)
_TIME = re.compile(rf"{_DATE}(?:[T ]{_CLOCK})?\s?(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_DURATION = re.compile(rf"(-?)(?:(\d{{1,9}}) )?{_CLOCK}", re.ASCII)

_NAMES: Mapping[str, float] = {"nan": math.nan, "infinity": math.inf, "inf": math.inf}
_TIMES = "a time, such as 2026-01-01T10:00 (UTC) or 2026-01-01T10:00+02:00"
_JSON = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_MOST_NAMED = 20
_MOST_DIGITS = 400
"""Digits of a number that is read: no type has more, and 1e999999999 would need that many."""

_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.duration("us"): "interval day to second",
    pa.time64("ns"): "time",
    pa.null(): "void",
}


@dataclass(frozen=True)
class KeyTexts:
    """A key as people type it: ``FIELD=VALUE``, a JSON object, or the value of the only field; each for a part of it.

    VALUE is read as the field's type has it. ``null`` is null, and text in double quotes is JSON.

    Attributes:
        texts: The parts, at least one.
    """

    texts: tuple[str, ...]


@dataclass(frozen=True)
class _Condition:
    """What a field has to be: a value as Arrow takes it, or None for null."""

    path: _Path
    value: Any


class _NotReadError(ValueError):
    """A value is not of the field's type; the message says what is."""


def where_key(table: pa.Table, key: Any) -> pa.Table:
    """Keeps the rows of one key.

    Args:
        table: A table with a column ``key``.
        key: Values by field, for all fields or some of them, where ``window.start`` is a field in a struct; or just the
            value, where the key has one field; or :class:`KeyTexts`.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where there is no such field, or a value is not of its type.
    """
    field = table.schema.field("key")
    if not pa.types.is_struct(field.type):
        reason = (field.metadata or {}).get(UNDECODED, b"").decode()
        raise not_allowed("key", _given(key), f"no key, since the keys are shown as bytes: {reason}")
    wanted = _Reading(key, field.type).conditions()
    column = table.column("key").combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # as older releases of Arrow return it
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], field.type)
    found = pc.is_valid(column)
    for condition in wanted:
        found = pc.and_(found, _matches(column, condition.path, condition.value))
    return table.filter(found)


def spark_name(type_: pa.DataType) -> str:
    """A type as Spark's SQL names it."""
    if type_ in _TYPES:
        return _TYPES[type_]
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_map(type_):
        return f"map<{spark_name(type_.key_type)},{spark_name(type_.item_type)}>"
    if pa.types.is_list(type_):
        return f"array<{spark_name(type_.value_type)}>"
    return f"struct<{', '.join(f'{field.name}: {spark_name(field.type)}' for field in type_)}>"


class _Reading:
    """Reads one key for errors to name it as it was given."""

    def __init__(self, key: Any, type_: pa.StructType) -> None:
        self._key = key
        self._type = type_

    def conditions(self) -> list[_Condition]:
        """What each field has to be.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION.
        """
        if isinstance(self._key, KeyTexts):
            found = [each for text in self._key.texts for each in self._typed(text)]
        else:
            found = list(self._given(self._key))
        paths = [condition.path for condition in found]
        for path in paths:
            if paths.count(path) > 1:
                raise self._refused(f"one value for {self._name(path)}, and there are two values for it")
        return found

    def _given(self, key: Any) -> Iterator[_Condition]:
        if isinstance(key, Mapping):
            return self._fields(key, ())
        return iter([_Condition(path := self._only(), self._read(key, path))])

    def _typed(self, text: str) -> Iterator[_Condition]:
        """Reads one of the texts."""
        if text.lstrip().startswith("{"):
            found = _parsed(text)
            if isinstance(found, dict):
                return self._fields(found, ())
        at = [number for number, each in enumerate(text) if each == "="]
        named = [(paths, number) for number in at if (paths := self._paths(text[:number]))]
        if len(named) > 1 or (named and len(named[0][0]) > 1):
            raise self._refused("a key as JSON, since several fields have such a name")
        if named:
            [path], number = named[0]
            return self._value(_unquoted(text[number + 1 :], self._at(path)), path)
        if meant := _FIELD.fullmatch(text):
            raise self._no_field(meant[1])
        return self._value(_unquoted(text, self._at(path := self._only())), path)

    def _fields(self, values: Mapping[Any, Any], above: _Path) -> Iterator[_Condition]:
        for name, value in values.items():
            paths = self._paths(str(name), above)
            paths = [path for path in paths if len(path) == len(above) + 1] or paths  # a field here has this very name
            if not paths:
                raise self._no_field(str(name))
            if len(paths) > 1:
                raise self._refused(f"structs in structs instead of {name!r}, since several fields have such a name")
            yield from self._value(value, paths[0])

    def _value(self, value: Any, path: _Path) -> Iterator[_Condition]:
        if isinstance(value, Mapping) and pa.types.is_struct(self._at(path)):
            yield from self._fields(value, path)
        else:
            yield _Condition(path, self._read(value, path))

    def _read(self, value: Any, path: _Path) -> Any:
        type_ = self._at(path)
        if value is None:
            return None
        if pa.types.is_struct(type_):
            raise self._refused(f"values for the fields of {self._name(path)}: {self._names(path)}")
        try:
            return _read(value, type_)
        except _NotReadError as error:
            raise self._refused(f"for {self._name(path)} ({spark_name(type_)}) {error}") from None

    def _only(self) -> _Path:
        leaves = list(_leaves(self._type))
        if len(leaves) != 1:
            raise self._refused(f"values for the fields of the key: {self._names(())}")
        return leaves[0]

    def _paths(self, name: str, above: _Path = ()) -> list[_Path]:
        """All fields that a name with or without dots may mean."""
        found = []
        for number, field in enumerate(self._at(above)):
            if field.name == name:
                found.append((*above, number))
            if pa.types.is_struct(field.type) and name.startswith(f"{field.name}."):
                found += self._paths(name[len(field.name) + 1 :], (*above, number))
        return found

    def _at(self, path: _Path) -> pa.DataType:
        type_: pa.DataType = self._type
        for number in path:
            type_ = type_[number].type
        return type_

    def _name(self, path: _Path) -> str:
        names, type_ = [], self._type
        for number in path:
            names.append(type_[number].name)
            type_ = type_[number].type
        return ".".join(names)

    def _names(self, below: _Path) -> str:
        """The fields that a value can be given for, with their types."""
        paths = [(*below, *path) for path in _leaves(self._at(below))]
        named = [f"{self._name(path)} ({spark_name(self._at(path))})" for path in paths[:_MOST_NAMED]]
        more = len(paths) - _MOST_NAMED
        return ", ".join([*named, f"and {more} more"] if more > 0 else named) or "there are none"

    def _no_field(self, name: str) -> StateStoreFilesError:
        meant = [self._name(path) for path in _leaves(self._type) if self._name(path).endswith(f".{name}")]
        hint = f"; {name} is a field in a struct: {' or '.join(meant)}" if meant else ""
        return self._refused(f"values for the fields of the key: {self._names(())}{hint}")

    def _refused(self, allowed: str) -> StateStoreFilesError:
        return not_allowed("key", _given(self._key), allowed)


def _given(key: Any) -> Any:
    return " ".join(key.texts) if isinstance(key, KeyTexts) else key


def _leaves(type_: pa.StructType) -> Iterator[_Path]:
    """The fields that are no structs."""
    for number, field in enumerate(type_):
        if pa.types.is_struct(field.type):
            yield from ((number, *path) for path in _leaves(field.type))
        else:
            yield (number,)


def _unquoted(text: str, type_: pa.DataType) -> Any:
    """What a text means before its type says more: null, what JSON has in double quotes, a list or an object."""
    if text == "null":
        return None
    if (text.startswith('"') and text.endswith('"')) or pa.types.is_nested(type_):
        return _parsed(text)
    return text


def _parsed(text: str) -> Any:
    """What JSON says, with numbers as they are written; the text itself where it is no JSON."""
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def _matches(column: pa.Array, path: _Path, value: Any) -> pa.Array:
    if path:
        inner = pc.struct_field(column, [path[0]])
        return pc.and_(pc.is_valid(column), _matches(inner, path[1:], value))
    if value is None:
        return pc.is_null(column)
    type_ = column.type
    if pa.types.is_nested(type_):
        [wanted] = json_values(pa.array([value], type_))
        wanted = _in_order(wanted, type_)
        return pa.array([_in_order(each, type_) == wanted for each in json_values(column)], pa.bool_())
    if isinstance(value, float) and math.isnan(value):
        return pc.fill_null(pc.is_nan(column), False)
    return pc.fill_null(pc.equal(column, pa.scalar(value, type_)), False)


def _in_order(value: Any, type_: pa.DataType) -> Any:
    """A value of ``json_values`` with the pairs of maps in one order."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        pairs = [(_in_order(key, type_.key_type), _in_order(each, type_.item_type)) for key, each in value]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0]))
    if pa.types.is_list(type_):
        return [_in_order(each, type_.value_type) for each in value]
    if pa.types.is_struct(type_):
        return {field.name: _in_order(value[field.name], field.type) for field in type_}
    return value


def _read(value: Any, type_: pa.DataType) -> Any:
    """A value as Arrow takes it for this type: times as integers.

    Raises:
        _NotReadError: It is not of the type.
    """
    if value is None:
        return None
    if pa.types.is_map(type_):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not _is_list(pairs) or not all(_is_list(pair) and len(pair) == 2 for pair in pairs):
            raise _NotReadError('an object, such as {"a": 1}, or a list of pairs, such as [["a", 1]]')
        return [(_read(key, type_.key_type), _read(each, type_.item_type)) for key, each in pairs]
    if pa.types.is_list(type_):
        if not _is_list(value):
            raise _NotReadError("a list of values, in brackets")
        return [_read(each, type_.value_type) for each in value]
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        if not isinstance(value, Mapping) or sorted(value) != sorted(names):
            raise _NotReadError(f"values for {', '.join(names)} in each struct")
        return {field.name: _read(value[field.name], field.type) for field in type_}
    if pa.types.is_null(type_):
        raise _NotReadError("null")
    if pa.types.is_string(type_):
        return _string(value)
    if pa.types.is_boolean(type_):
        return _boolean(value)
    if pa.types.is_integer(type_):
        return _integer(value, type_)
    if pa.types.is_floating(type_):
        return _float(value, type_)
    if pa.types.is_decimal(type_):
        return _decimal(value, type_)
    if pa.types.is_binary(type_):
        return _binary(value)
    if pa.types.is_date(type_):
        return _date(value)
    if pa.types.is_timestamp(type_):
        return _time(value, bool(type_.tz))
    return _duration(value) if pa.types.is_duration(type_) else _clock(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(finite(value))
    if isinstance(value, decimal.Decimal):
        return decimal_text(value)
    raise _NotReadError("text")


def _boolean(value: Any) -> bool:
    found = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise _NotReadError("true or false")
    return bool(found)


def _number(value: Any) -> decimal.Decimal | None:
    """A number, exactly; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal, str)):
        return None
    try:
        found = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    except (decimal.InvalidOperation, ValueError):
        return None
    is_short = abs(found.adjusted()) <= _MOST_DIGITS and len(found.as_tuple().digits) <= _MOST_DIGITS
    return found if found.is_finite() and is_short else None


def _integer(value: Any, type_: pa.DataType) -> int:
    number = _number(value)
    highest = 1 << type_.bit_width - 1
    if number is None or number != number.to_integral_value() or not -highest <= number < highest:
        raise _NotReadError(f"a whole number from {-highest} to {highest - 1}")
    return int(number)


def _float(value: Any, type_: pa.DataType) -> float:
    text = value.lower() if isinstance(value, str) else ""
    if text.lstrip("+-") in _NAMES and len(text.lstrip("+-")) >= len(text) - 1:
        return math.copysign(_NAMES[text.lstrip("+-")], -1 if text.startswith("-") else 1)
    if isinstance(value, float) and not math.isfinite(value):
        return value
    number = _number(value)
    found = None if number is None else float(number)
    if found is None or math.isinf(found) or not math.isfinite(pa.scalar(found, type_).as_py()):
        raise _NotReadError("a number, NaN, Infinity or -Infinity")
    return found


def _decimal(value: Any, type_: pa.DataType) -> decimal.Decimal:
    number = _number(value)
    with decimal.localcontext(decimal.Context(prec=2 * _MOST_DIGITS)):
        unscaled = None if number is None else number.scaleb(type_.scale)
        if unscaled is None or unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**type_.precision:
            before = type_.precision - type_.scale
            raise _NotReadError(
                f"a number with at most {max(before, 0)} digits before the point and {max(type_.scale, 0)} after it"
            )
        return decimal.Decimal(int(unscaled)).scaleb(-type_.scale)


def _binary(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    digits = value if isinstance(value, str) else "-"
    if len(digits) % 2 or not re.fullmatch("[0-9a-fA-F]*", digits):
        raise _NotReadError("bytes as hexadecimal digits, such as 00ff")
    return bytes.fromhex(digits)


def _date(value: Any) -> int:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return days_of(value.year, value.month, value.day)
    found = _ONLY_DATE.fullmatch(value) if isinstance(value, str) else None
    try:
        days = days_of(*map(int, found.groups())) if found else None
    except ValueError:
        days = None
    if days is None or not -(1 << 31) <= days < 1 << 31:
        raise _NotReadError("a date, such as 2026-01-01")
    return days


def _time(value: Any, has_zone: bool) -> int:
    """The microseconds since 1970."""
    said = _TIMES if has_zone else "a time without a zone, such as 2026-01-01T10:00"
    if isinstance(value, datetime.datetime):
        value = value.isoformat()
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[8] and not has_zone):
        raise _NotReadError(said)
    year, month, day, *clock, zone = found.groups()
    try:
        at = days_of(int(year), int(month), int(day)) * 86_400_000_000 + _within_a_day(clock)
    except ValueError:
        raise _NotReadError(said) from None
    if zone and zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:] if len(zone) > 3 else 0)
        at -= (minutes if zone[0] == "+" else -minutes) * 60_000_000
    if not -(1 << 63) <= at < 1 << 63:
        raise _NotReadError(said)
    return at


def _duration(value: Any) -> int:
    """The microseconds."""
    if isinstance(value, datetime.timedelta):
        return int(value // datetime.timedelta(microseconds=1))
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    try:
        size = int(found[2] or 0) * 86_400_000_000 + _within_a_day(found.groups()[2:]) if found else None
    except ValueError:
        size = None
    size = -size if found and found[1] and size is not None else size
    if size is None or not -(1 << 63) <= size < 1 << 63:
        raise _NotReadError("a duration in days, hours, minutes and seconds, such as 1 02:03:04.5")
    return size


def _clock(value: Any) -> int:
    """The nanoseconds since midnight."""
    text = value.isoformat() if isinstance(value, datetime.time) and not value.tzinfo else value
    found = _ONLY_CLOCK.fullmatch(text) if isinstance(text, str) else None
    try:
        return _within_a_day(found.groups() if found else ("x",), 9)
    except ValueError:
        raise _NotReadError("a time of day, such as 10:00 or 10:00:00.5") from None


def _within_a_day(clock: Sequence[str | None], digits: int = 6) -> int:
    """A time of day, in units of a second that has so many digits.

    Raises:
        ValueError: There is no such time, or it has more digits.
    """
    hour, minute, second, part = (*(each or "0" for each in clock), "0", "0", "0")[:4]
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59 or len(part.rstrip("0")) > digits:
        raise ValueError("no time of day")
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return int(str(seconds) + part[:digits].ljust(digits, "0"))
