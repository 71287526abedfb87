"""The state of a run, as Spark's ``statestore`` source reads it and as we do, in a form that can be compared."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyspark_statestore import Checkpoint
from tests.streaming.runs import Run, session_conf

Rows = list[str]


def rows_of(table: pa.Table) -> Rows:
    """The rows as text, in an order of their own; columns by name, times in UTC."""
    names = sorted(table.column_names)
    columns = [table.column(name).to_pylist() for name in names]
    return sorted(
        repr([(name, _plain(value)) for name, value in zip(names, row, strict=True)])
        for row in zip(*columns, strict=True)
    )


def read_by_spark(run: Run, version: int | None = None, **options: str) -> pa.Table:
    """What Spark reads; the batch before a version leaves it."""
    if version is not None:
        options["batchId"] = str(version - 1)
    with session_conf(run.spark, run.setting.conf):
        return run.spark.read.format("statestore").options(**options).load(run.location).toArrow()


def read_here(run: Run, version: int | None = None, **arguments: Any) -> pa.Table:
    """What we read, through the location that the query has."""
    table = Checkpoint(run.location).state(version=version, **arguments)
    assert not [field.name for field in table.schema if field.metadata], "all is decoded"
    return table


def renamed(table: pa.Table, paths: Mapping[str, str]) -> pa.Table:
    """Columns made of others and of fields in them, such as ``{"list_element": "value.value"}``."""
    columns = {}
    for name, path in paths.items():
        first, *fields = path.split(".")
        column = table.column(first).combine_chunks()
        for field in fields:
            column = column.field(field)
        columns[name] = column
    return pa.table(columns)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return (value.astimezone(datetime.timezone.utc) if value.tzinfo else value).isoformat()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
