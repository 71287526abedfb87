"""`make demo`: a small one for real, its table, and what it says when a side fails."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from examples import demo
from tests.examples.look import run_commands

pytestmark = pytest.mark.sweep(0, files="what a reader runs first")

OPTIONS = demo.Options(
    days=6, batches=3, partitions=2, store="rocksdb", door="provider", delay=0, work_dir=Path("unused")
)


def side(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "batches": 4,
        "seconds": 12.0,
        "median_ms": 500,
        "processor_ms": 9_000,
        "calls": {"create": 1000, "rename": 500, "getFileStatus": 300, "write": 99_999},
        "files": 990,
        "bytes": 1_000_000,
        "amplification": None,
    }
    return facts | changes


def cells(results, title):
    table = demo.table(results, OPTIONS)
    titles = [str(cell).strip() for cell in table.columns[0].cells]
    return [list(column.cells)[titles.index(title)] for column in table.columns[1:]]


def test_table_shows_what_was_measured() -> None:
    merged = side(calls={"create": 4, "hflush": 20}, files=2, amplification=1.25, median_ms=400)
    results = {"stock": side(), "merged": merged}
    assert cells(results, "files created under state/") == ["1,000", "4", "0.004"]
    assert cells(results, "file-system calls for state") == ["1,800", "4", "0.0022"]
    assert cells(results, "hflush") == ["0", "20", ""]
    assert cells(results, "space amplification") == ["-", "1.25", ""]
    assert cells(results, "median batch") == ["0.50 s", "0.40 s", "0.8"]
    Console(file=io.StringIO()).print(demo.table(results, OPTIONS))


def test_one_side_alone_has_no_ratio() -> None:
    assert cells({"stock": side()}, "files left under state/") == ["990", ""]


def test_sides_that_wrote_other_rows_are_an_error(tmp_path) -> None:
    results = {}
    for state, departures in (("stock", [1, 2]), ("merged", [1, 3])):
        folder = tmp_path / state
        folder.mkdir()
        rows = {"origin": ["EWR", "JFK"], "start": [1, 1], "departures": departures}
        pq.write_table(pa.table(rows), folder / "000000.parquet")
        results[state] = {"output": str(folder)}
    assert demo.same_rows({"stock": results["stock"]}) == 2
    with pytest.raises(demo.DemoError, match="different rows"):
        demo.same_rows(results)


def test_a_side_that_fails_shows_the_end_of_its_log(tmp_path, monkeypatch) -> None:
    started = subprocess.Popen
    fails = [sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"]
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: started(fails, **more))
    options = demo.Options(**{**vars(OPTIONS), "work_dir": tmp_path})
    with pytest.raises(demo.DemoError, match=r"exit code 3(.|\n)*the reason"):
        demo.measure("stock", options)


@pytest.mark.spark
@pytest.mark.slow
def test_small_demo(test_jar, tmp_path) -> None:
    arguments = f"--days 6 --batches 3 --partitions 2 --door path --work-dir {tmp_path}"
    result = CliRunner().invoke(demo.main, arguments.split())
    assert result.exit_code == 0, result.output
    assert len(run_commands(result.stdout)) == 2
    assert "Both wrote the same" in result.output
    assert "merged state: batch 3 of 3" in result.stderr
    line = next(line for line in result.stdout.splitlines() if "files created under state/" in line)
    stock, merged = (int(cell.replace(",", "")) for cell in line.split("│")[2:4])
    assert 0 < merged < stock
    checkpoint = tmp_path / "demo-merged-path-rocksdb" / "checkpoint"
    assert list((checkpoint / "state" / "_merged").glob("*.merged"))
