"""Rows of some keys: what people know of a key, as Python or JSON has it, against the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError


def where_key(table: pa.Table, key: Any) -> pa.Table:
    """Keeps the rows whose key is this one.

    Args:
        table: With a column ``key``.
        key: Values by field, of all fields or some, in structs likewise; or a value, where the key has one field. Text
            stands for whatever Arrow reads it as, such as a timestamp.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where a field is not there, or a value is not of its type.
    """
    column = table.column("key")
    if not isinstance(key, Mapping):
        names = [field.name for field in column.type] if pa.types.is_struct(column.type) else []
        if len(names) != 1:
            raise _not_allowed(key, f"values by field, such as {{{_example(column.type)}}}")
        key = {names[0]: key}
    return table.filter(_matches(column.combine_chunks(), key, key))


def _matches(column: pa.Array, wanted: Any, whole: Any) -> pa.Array:
    if isinstance(wanted, Mapping):
        if not pa.types.is_struct(column.type):
            raise _not_allowed(whole, f"a value of type {column.type}, where values by field were given")
        known = [field.name for field in column.type]
        found = pc.is_valid(column)
        for name, value in wanted.items():
            if name not in known:
                raise _not_allowed(whole, f"a field of {', '.join(known)}")
            found = pc.and_(found, _matches(pc.struct_field(column, [name]), value, whole))
        return found
    if wanted is None:
        return pc.is_null(column)
    try:
        scalar = _scalar(wanted, column.type)
        return pc.fill_null(pc.equal(column, scalar), False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _not_allowed(whole, f"what can be compared with {column.type} ({error})") from error


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and not pa.types.is_string(type_):
        if pa.types.is_timestamp(type_) and type_.tz:
            return _time(value, type_)
        return pa.scalar(value).cast(type_)
    return pa.scalar(value, type_)


def _time(text: str, type_: pa.DataType) -> pa.Scalar:
    """A time without a zone is one in UTC."""
    import datetime

    at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return pa.scalar(at if at.tzinfo else at.replace(tzinfo=datetime.UTC), type_)


def _example(type_: pa.DataType) -> str:
    names = [field.name for field in type_] if pa.types.is_struct(type_) else []
    return ", ".join(f'"{name}": ...' for name in names)


def _not_allowed(key: Any, allowed: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_INVALID_OPTION", {"key": "key", "value": key, "allowed": allowed})
