"""Each option and each counter has a row in a table of some page, which says what it means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_statestore import OPTIONS, SINK_OPTIONS
from pyspark_statestore.conf import REMOVED, REMOVED_OF_SINKS, Option
from tests.conftest import ROOT

ROWS = [
    cells
    for page in sorted((ROOT / "docs").glob("*.md"))
    for line in page.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `") and len(cells := [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]) > 2
]
"""The rows of all pages that are about something with a name in code, in cells: name, default or unit, meaning."""


SETTINGS = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
ALL_OPTIONS = [*OPTIONS.values(), *SINK_OPTIONS.values()]


@pytest.mark.parametrize(
    "option", [option for option in ALL_OPTIONS if not option.internal], ids=lambda option: option.key
)
def test_an_option_has_a_row_with_its_default_and_with_who_sets_it(option: Option) -> None:
    (row,) = [row for row in ROWS if row[0] == f"`{option.name}`" and row[1] == option.default]

    assert len(row) == 4
    assert len(row[2]) > 20
    assert len(row[3]) > 20


def test_what_nobody_sets_is_named_below_the_table() -> None:
    below = SETTINGS.partition("by itself:")[2]
    nobody = [option.name for option in ALL_OPTIONS if option.internal] + [*REMOVED, *REMOVED_OF_SINKS]

    assert [name for name in nobody if f"`{name}`" not in below] == []
    assert [name for name in nobody if any(row[0] == f"`{name}`" for row in ROWS)] == []


def source(name: str) -> str:
    """A class of the shim."""
    (path,) = Path(ROOT / "jvm-shim" / "src" / "main").rglob(f"{name}.java")
    return path.read_text(encoding="utf-8")


def counters() -> list[str]:
    """What Spark's metrics system shows of each ``LogMetrics.Count``: its key, or what it is renamed to."""
    counts = source("LogMetrics").partition("enum Count {")[2].partition(";\n")[0]
    renamed = dict(re.findall(r'case ([A-Z_]+) -> "(\w+)";', source("FileMergingMetrics")))
    return [renamed.get(name, key) for name, key in re.findall(r'^    ([A-Z_]+)\("(\w+)"\)', counts, re.MULTILINE)]


def test_a_counter_has_a_row_that_says_what_it_counts() -> None:
    found = counters()

    assert len(found) > 20
    assert [name for name in found if not any(row[0] == f"`{name}`" and row[1] for row in ROWS)] == []
