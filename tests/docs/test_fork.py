"""What docs/fork.md shows works, in its order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Sink
from pyspark_statestore.errors import ERROR_CLASSES
from tests.forks.harness import pins
from tests.maintenance.builders import make
from tests.sink import made

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fork.md").read_text(encoding="utf-8")


def test_its_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    source = make(tmp_path / "q1")
    made.make(tmp_path / "clicks", [made.name(3)], entry="3")
    names: dict[str, Any] = {}
    pinned = []
    for block in blocks:
        exec(re.sub("s3a://bucket/(checkpoints|tables)", str(tmp_path), block), names)
        pinned.append(len(pins(source)))

    assert capsys.readouterr().out == "4 2704\n"
    assert pinned == [1, 1, 0, 0, 1]
    assert Sink(tmp_path / "clicks-next").verify().is_clean


def test_what_it_names_exists() -> None:
    assert set(re.findall(r"PSS_\w+", PAGE)) <= set(ERROR_CLASSES)
    pages = set(re.findall(r"\]\(([\w-]+\.md)", PAGE))
    assert all((Path(__file__).resolve().parents[2] / "docs" / page).exists() for page in pages)
