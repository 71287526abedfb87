"""What mypy and ruff do not see of a Python that is too new: regular expressions are text to them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 refuses such an expression by itself")


def expressions() -> Iterator[tuple[str, str]]:
    """Each constant that is given to ``re.compile``, and where."""
    for folder in ("pyspark_statestore", "datasource", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
                    pattern = node.args[0]
                    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", pattern.value


def is_too_new(pattern: str) -> bool:
    """Whether an expression has a possessive quantifier or an atomic group, which came with Python 3.11."""
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    return "POSSESSIVE_REPEAT" in str(parsed) or "ATOMIC_GROUP" in str(parsed)


def test_no_expression_is_too_new_for_python_3_10() -> None:
    found = list(expressions())
    assert len(found) > 20
    assert [where for where, pattern in found if is_too_new(pattern)] == []


@pytest.mark.parametrize("pattern", ["a*+", '"(?:x)*+"?', "(?>a)b"])
def test_what_is_too_new_is_found(pattern: str) -> None:
    assert is_too_new(pattern)
