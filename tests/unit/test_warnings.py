"""No line of ours comes to a log at WARN unless somebody has something to do, which the line says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.test_floors import JAVA_SOURCES, MODULES

TO_DO = "What to do"
LEVELS = ("warning", "warn", "error", "exception", "critical")
_STATEMENT = re.compile(r"\bLOG\s*\.\s*(?:warn|error|atWarn|atError)\((.*?)\);$", re.DOTALL | re.MULTILINE)
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def warnings_in(path: Path) -> list[str]:
    """The texts of all lines that a source logs at WARN and above."""
    source = path.read_text()
    if path.suffix == ".java":
        return ["".join(_TEXT.findall(statement)) for statement in _STATEMENT.findall(source)]
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        if getattr(call.func, "attr", "") in LEVELS and "log" in ast.dump(call.func):
            texts = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant)]
            found.append("".join(text for text in texts if isinstance(text, str)))
    return found


SOURCES = {str(path): path for path in (*JAVA_SOURCES, *MODULES.values()) if warnings_in(path)}


@pytest.mark.parametrize("source", SOURCES)
def test_a_warning_says_what_to_do(source: str) -> None:
    assert [text for text in warnings_in(SOURCES[source]) if TO_DO not in text] == []


def test_warnings_are_found() -> None:
    found = [text for path in SOURCES.values() for text in warnings_in(path)]
    assert len(found) > 30
    assert {"Cleaner.java", "DoorCheck.java", "background.py", "fork_release.py"} <= {
        path.name for path in SOURCES.values()
    }
    assert any("with its {} store" in text and "--store {}" in text for text in found)
