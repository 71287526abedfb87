"""The notebook, from its first cell to its last, and the page that the site makes of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.examples.look import run_commands
from tests.examples.strip import NOTEBOOK, stripped

pytestmark = pytest.mark.sweep(0, files="what a reader runs first")


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: nbformat.NotebookNode) -> str:
    """What a cell shows, as text."""
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(shown)


@pytest.mark.spark
@pytest.mark.slow
def test_it_goes_from_nothing_to_sql_over_state(
    main_jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # An error in a cell is one here.
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = "\n".join(map(text_of, code_cells(notebook)))
    assert "batch 6 was the last one" in shown
    assert "batch 7 was the last one" in shown
    assert re.search(r"^\| *1\| *\d\d+\| *\d{4,}\| *1\.\d+\|$", shown, re.MULTILINE), shown
    assert re.search(r"^\| *snapshot\| *live\| *[1-9]\d*\|", shown, re.MULTILINE), shown
    assert re.search(r"^\| *7\| *8\| *true\|", shown, re.MULTILINE), shown
    assert re.search(r"^\| *S\d\d\| *\d{2,}\|2026-03-07 ", shown, re.MULTILINE), shown
    grown = re.findall(r"^\| *S\d\d\| *(\d{2,})\| *(\d{2,})\|$", shown, re.MULTILINE)
    assert len(grown) == 5, shown
    assert [each for each in grown if int(each[0]) >= int(each[1])] == []
    assert "'change': 'changed'" in shown
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    (page,) = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "&lt;svg" in page
    run_commands(shown, sys.executable)
    assert list(tmp_path.glob("TMPDIR/state-in-sql-*/report.html"))


def test_it_is_short_and_kept_without_output() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert 10 < len(code_cells(notebook)) <= 15
    assert stripped(notebook) == NOTEBOOK.read_text(encoding="utf-8"), "python -m tests.examples.strip"


def test_links_in_it_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", NOTEBOOK.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).is_file()] == []
