"""What docs/look-inside.md shows works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pyspark_statestore.cli.main import cli
from tests.state.small_stores import write_store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "look-inside.md"


def blocks(language: str) -> list[str]:
    """The page's examples, for a store with three versions."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [re.sub(r"\b12\b", "3", re.sub(r"\b10\b", "1", block)) for block in found]


def test_python(tmp_path: Path) -> None:
    write_store(tmp_path / "q1", merged=True)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(
            block.replace("hdfs://nn/checkpoints/q1", str(tmp_path / "q1")).replace("partition_id=3", "partition_id=1"),
            names,
        )
    assert names["state"].num_rows == 2
    assert names["changes"].num_rows == 5


def test_command_line(tmp_path: Path) -> None:
    write_store(tmp_path / "q1")
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("pyspark-statestore")]
    assert len(lines) == 3
    for line in lines:
        arguments = shlex.split(line.replace("/checkpoints/q1", str(tmp_path / "q1")))[1:]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout
