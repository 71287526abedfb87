"""docs/errors.md explains every error."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark_statestore.errors import ERROR_CLASSES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def test_each_id_has_a_row() -> None:
    rows = re.findall(r"^\| `(PSS_\w+)` \| .+ \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(ERROR_CLASSES)
