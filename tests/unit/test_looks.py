"""How objects and tables look to somebody who has them before them, and that both kinds of places have one shape."""

from __future__ import annotations

import datetime
import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint, Sink, notebook
from tests.cli.builders import write_checkpoint, write_sink


@pytest.mark.parametrize("kind", [Checkpoint, Sink])
@pytest.mark.parametrize("part", ["", ".inspect", ".maintenance"])
def test_an_object_says_what_it_is_and_where(kind: Any, part: str) -> None:
    made = kind("/q1")
    shown = made if not part else getattr(made, part[1:])
    assert repr(shown) == f"{kind.__name__}('file:///q1'){part}"


def test_a_sink_has_the_shape_of_a_checkpoint_and_its_own_short_forms(tmp_path: Path) -> None:
    write_sink(tmp_path)
    sink = Sink(tmp_path)
    assert sink.inspect.files().equals(sink.files())
    assert sink.inspect.files().num_rows
    assert sink.inspect.log().equals(sink.log())
    assert sink.inspect.waiting().equals(sink.waiting())
    assert sink.maintenance.verify().problems.equals(sink.verify().problems)
    hours = datetime.timedelta(hours=1)
    assert sink.maintenance.remove_orphan_files(hours).files.equals(sink.remove_orphan_files(hours).files)
    # What both do has the same name.
    of_checkpoints = {name for name, _ in inspect.getmembers(type(Checkpoint("/x").maintenance), inspect.isfunction)}
    verbs = {name for name, _ in inspect.getmembers(type(sink.maintenance), inspect.isfunction) if name[0] != "_"}
    assert verbs == {"compact", "publish", "remove_orphan_files", "verify"}
    assert verbs - of_checkpoints == {"publish"}


@pytest.fixture
def shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_a_notebook_shows_tables_as_tables_once_it_is_told_to(shell: Any, tmp_path: Path) -> None:
    files = Checkpoint(write_checkpoint(tmp_path / "q1")).inspect.files()
    assert "text/html" not in shell.display_formatter.format(files)[0]
    shell.run_line_magic("load_ext", "pyspark_statestore")
    shown = shell.display_formatter.format(files)[0]["text/html"]
    assert shown.count("<tr>") == 1 + files.num_rows
    assert all(f"<th>{name}</th>" in shown for name in files.column_names)
    assert type(files) is pa.Table
    shell.run_line_magic("unload_ext", "pyspark_statestore")
    assert "text/html" not in shell.display_formatter.format(files)[0]


def test_a_table_of_somebody_elses_names_is_text_and_ends() -> None:
    name = "<script>alert(1)</script>"
    shown = notebook.html_of(pa.table({name: [name, None, "a\x1b[2J"] + ["x"] * 100, "n_count": [1] * 103}))
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert shown.count("<tr>") == 1 + notebook.MOST_ROWS
    assert "... and 53 more rows" in shown
    assert '<td style="text-align: right">1</td>' in shown
    assert notebook.html_of(pa.table({})) == "<table><thead><tr></tr></thead><tbody></tbody></table>"
