"""How values look in a table for people."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from pyspark_statestore import values

Form: TypeAlias = Callable[..., str]
"""Makes one cell from the values of one column or of several."""

NOTHING = "-"
"""What a cell shows for null."""

_EPOCH = datetime.datetime(1970, 1, 1)
_LAST = (datetime.datetime.max - _EPOCH) // datetime.timedelta(microseconds=1)
_SPARKS_TIMES: Mapping[str, str] = {
    "expiresAtMicros": "microseconds",
    "ttlExpirationMs": "milliseconds",
    "expirationMs": "milliseconds",
    "expiryTimestampMs": "milliseconds",
    "timeoutTimestamp": "milliseconds",
}
"""Columns of Spark's own state that keep times as numbers, and the unit."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(value: int) -> str:
    """Bytes with a short unit, such as ``1.3 MiB``."""
    amount = float(value)
    for unit in _UNITS:
        # 1023.96 KiB is 1.0 MiB once it is rounded.
        if round(abs(amount), 1) < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{value} B" if unit == "B" else f"{amount:.1f} {unit}"


def count(value: int) -> str:
    """A number with separators, such as ``1,234``."""
    return f"{value:,}"


def counted(number: int, noun: str) -> str:
    """A count with its noun, such as ``1 segment`` or ``3 segments``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ratio(value: float) -> str:
    """A number with two digits after the point."""
    return f"{value:.2f}"


def share(value: float) -> str:
    """A share of 1, as percent."""
    return f"{value:.1%}"


def time(value: datetime.datetime | str) -> str:
    """A point in time in UTC, to the second; text is one that Python has no object for."""
    return value.partition(".")[0] if isinstance(value, str) else f"{value:%Y-%m-%d %H:%M:%S}"


def duration(value: datetime.timedelta) -> str:
    """A duration in the two largest units that it has, as options take it, such as ``10m`` or ``9m 12s``."""
    left = max(0, round(value.total_seconds() * 1000))
    parts = []
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"


def moment(value: datetime.datetime | str) -> str:
    """A point in time as a user's own data has it, with the part of a second where there is one.

    Text is one that Python has no object for.
    """
    if isinstance(value, str):
        return value
    utc = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return values.time_text((utc - _EPOCH) // datetime.timedelta(microseconds=1))


def milliseconds(value: int) -> str:
    """A number of milliseconds since 1970 that Spark keeps for a time, and the time in UTC."""
    return _with_time(value, 1000)


def microseconds(value: int) -> str:
    """A number of microseconds since 1970 that Spark keeps for a time, and the time in UTC."""
    return _with_time(value, 1_000_000)


def _with_time(value: int, per_second: int) -> str:
    at = value * 1_000_000 // per_second
    if abs(at) > _LAST:
        return str(value)  # as Long.MaxValue, for never
    return f"{value} ({values.time_text(at)})"


def collection(type_: pa.DataType) -> Form:
    """Makes the form for lists, maps and structs of a type: JSON, with times as elsewhere."""

    def shown(value: Any) -> str:
        return text(json.dumps(_simple(value, type_), ensure_ascii=False))

    return shown


def _simple(value: Any, type_: pa.DataType) -> Any:
    """Returns a value as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return values.finite(value)
    if pa.types.is_struct(type_):
        return {field.name: _simple(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {_key(_simple(key, type_.key_type)): _simple(each, type_.item_type) for key, each in value}
    if isinstance(value, list):
        return [_simple(each, type_.value_type) for each in value]
    return value_form(type_)(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flag(value: bool) -> str:
    """Yes or no."""
    return "yes" if value else "no"


def mark(value: object) -> str:
    """Yes, where there is a value at all."""
    return "yes"


def name(value: str) -> str:
    """The last part of a path: the file's name."""
    return text(value.rsplit("/", 1)[-1])


def state_name(value: str) -> str:
    """A merged file's name, or the path of a plain state file below ``state/``, since its name is not its only one."""
    below = value.rpartition("/state/")[2]
    return name(value) if below.startswith("_merged/") else text(below)


def text(value: object) -> str:
    """Any value as text. What could move a terminal's cursor is escaped."""
    shown = value.hex() if isinstance(value, bytes) else str(value)
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()


def lines(value: str) -> str:
    """Lines of text, in which what could move a terminal's cursor or turn the direction of text is escaped."""
    return "\n".join(map(_printable, value.split("\n")))


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def value_form(type_: pa.DataType) -> Form:
    """Chooses the form for a value of a user's own, by its type."""
    if pa.types.is_nested(type_):
        return collection(type_)
    if pa.types.is_timestamp(type_):
        return moment
    if pa.types.is_floating(type_):
        return number
    if pa.types.is_boolean(type_):
        return truth
    if pa.types.is_decimal(type_):
        return values.decimal_text
    return values.duration_text if pa.types.is_duration(type_) else text


def number(value: float) -> str:
    """A number of a user's own, with all its digits; ``NaN`` and ``Infinity`` as Spark has them."""
    return str(values.finite(value))


def truth(value: bool) -> str:
    """A boolean of a user's own, as SQL and JSON have it."""
    return "true" if value else "false"


def part_of(part: int, whole: int) -> str:
    """Two counts, such as ``3 of 7``."""
    return f"{part:,} of {whole:,}"


def file_state(is_sealed: bool, is_closed: bool, is_orphan: bool) -> str:
    """The state of a merged file in a word: open, closed, sealed or orphan."""
    if is_orphan:
        return "orphan"
    return "sealed" if is_sealed else "closed" if is_closed else "open"


def cell(values: Sequence[Any], form: Form) -> str:
    """One cell; :data:`NOTHING` where any of the values is null."""
    return NOTHING if any(value is None for value in values) else form(*values)


def exact(value: Any, form: Form) -> str:
    """A value where there is room: a size is also shown in bytes."""
    shown = cell([value], form)
    return f"{shown} ({value:,})" if form is size and value is not None and value >= 1024 else shown


IS_NUMBER: frozenset[Form] = frozenset((size, count, ratio, share, part_of))
"""The forms that are aligned to the right."""


def form_of(column: str, type_: pa.DataType) -> Form:
    """Chooses the form for a column that has none of its own, by its name and type."""
    if pa.types.is_nested(type_):
        return collection(type_)
    if "." in column:  # a field of a user's own, whatever its name is
        unit = _SPARKS_TIMES.get(column.rpartition(".")[2]) if pa.types.is_int64(type_) else None
        if unit is not None:
            return milliseconds if unit == "milliseconds" else microseconds
        return value_form(type_)
    if column in ("length", "size") or column.endswith(("_bytes", "_bytes_count")):
        return size
    if column == "share":
        return share
    if column.endswith("_count"):
        return count
    if pa.types.is_floating(type_):
        return ratio
    if pa.types.is_timestamp(type_):
        return time
    return flag if pa.types.is_boolean(type_) else text
