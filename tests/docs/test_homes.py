"""The table of docs/guarantees.md names the one place where each rule is decided, in Java and in Python."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.conftest import ROOT
from tests.java_house import java_sources

TABLE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").partition("## Where is each rule decided?")[2]
ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[3:5]]
    for line in TABLE.partition("\n## ")[0].splitlines()
    if line.startswith("| ") and "`" in line
]
JAVA = {path.stem: path for path in java_sources()}


def test_the_table_has_the_rules() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize("name", [name for java, _ in ROWS for name in java])
def test_java_has_it(name: str) -> None:
    package, kind, *method = name.split(".")
    source = JAVA[kind].read_text(encoding="utf-8")
    assert f"package io.pyspark.statestore.{package};" in source
    assert all(re.search(rf"\b{each}\(", source) for each in method)


@pytest.mark.parametrize("names", [python for _, python in ROWS], ids=lambda names: names[0])
def test_python_has_it(names: list[str]) -> None:
    module = importlib.import_module(f"pyspark_statestore.{names[0].rpartition('.')[0]}")
    assert all(hasattr(module, name.rpartition(".")[2]) for name in names)
