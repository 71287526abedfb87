"""docs/columns.md says what the tables are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_statestore.inspect import SINK_TABLES, TABLES, spark_schema_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "columns.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [*TABLES, *SINK_TABLES])
def test_each_column_is_explained(table: str) -> None:
    section = PAGE.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (.+) \|$", section, re.MULTILINE)[1:]

    assert ", ".join(f"{name} {type_}" for name, type_, _ in rows) == spark_schema_of(table)
    assert [about for _, _, about in rows] == [column.about for column in {**TABLES, **SINK_TABLES}[table]]
