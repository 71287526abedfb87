"""Takes out of the notebook what a run has left in it: python -m tests.examples.strip."""

from __future__ import annotations

from pathlib import Path

import nbformat

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "state_in_sql.ipynb"


def stripped(notebook: nbformat.NotebookNode) -> str:
    """The notebook without output and without what is of one machine, as Jupyter writes it."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    return str(nbformat.writes(notebook)) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(stripped(nbformat.read(NOTEBOOK, as_version=4)), encoding="utf-8")
