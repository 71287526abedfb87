"""``list ROOT -o``: a page with a line for each checkpoint below a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint, rendering
from tests.cli.builders import write_checkpoint
from tests.cli.conftest import Invoke
from tests.cli.test_overview import root
from tests.inspect.builders import plain_file
from tests.report.pages import Page, loads
from tests.report.test_checkpoint import bloated, old

__all__ = ["root"]

LINES = "The checkpoints"


def test_every_checkpoint_has_a_line(root: Path, invoke: Invoke, tmp_path: Path) -> None:
    (bloated(root / "fat" / "q") / "commits").mkdir()
    out = tmp_path / "overview.html"
    done = invoke("list", root, "-o", out)
    page = Page(out.read_text())

    assert done.stdout == ""
    assert f"Wrote {out}" in done.stderr
    assert loads(out.read_text()) == []
    assert page.column(LINES, "checkpoint") == ["b", "broken", "fat/q", "stock", "team/a"]
    shown = {row[0]: dict(zip(page.tables[LINES][0], row, strict=True)) for row in page.tables[LINES][1:]}
    for name in ("b", "fat/q", "stock", "team/a"):
        [summary] = Checkpoint(root / name).inspect.summary().to_pylist()
        assert shown[name]["size"] == rendering.size(summary["file_size_in_bytes"])
        assert shown[name]["live"] == rendering.size(summary["live_bytes"])
        assert shown[name]["merged files"] == str(summary["file_count"])
        assert shown[name]["plain files"] == str(summary["plain_file_count"])
        assert shown[name]["space amplification"] == rendering.cell([summary["space_amplification"]], rendering.ratio)
        assert shown[name]["partitions"] == str(summary["partition_count"])
    assert shown["broken"]["what to do"].startswith("[PSS_CORRUPT_FILE]")
    assert shown["stock"]["what to do"] == "Go on with merged files"
    assert shown["fat/q"]["what to do"] == "Compact the merged files"
    assert page.tiles["checkpoints"] == ("5", "3 with something to do")
    headings = {heading: pasted for _, heading, pasted in page.cards}
    assert headings["Do thisFind out what is damaged"] == [f"pyspark-statestore verify {(root / 'broken').as_uri()}"]
    assert headings["Do thisCompact the merged files"] == [
        f"pyspark-statestore compact {(root / 'fat/q').as_uri()} --dry-run"
    ]


def test_the_options_of_the_list_hold_for_the_page(root: Path, invoke: Invoke) -> None:
    done = invoke("list", root, "--sort", "file_size_in_bytes", "--descending", "--limit", "2", "-o", "-")
    assert sorted(Page(done.stdout).column(LINES, "checkpoint")) == ["b", "team/a"]
    assert "--sort" in invoke("list", root, "--sort", "nothing", "-o", "-", status=2).stderr
    assert ".html" in invoke("list", root, "-o", "list.csv", status=2).stderr


def test_many_checkpoints_are_spoken_of_together(invoke: Invoke, tmp_path: Path) -> None:
    for number in range(12):
        folder = tmp_path / "root" / f"q{number:02}"
        for made in ("offsets", "commits"):
            (folder / made).mkdir(parents=True)
        plain_file(folder, "0/0/1.changelog", bytes(100))
    page = Page(invoke("list", tmp_path / "root", "-o", "-").stdout)

    [(level, heading, pasted)] = page.cards
    assert (level, heading) == ("act", "Do thisGo on with merged files")
    assert len(pasted) == 10
    assert "12 checkpoints. Of the first:" in page.text
    assert "There are commands for 10 of them" in page.text


@pytest.mark.parametrize("name", ["<b>bold</b>", "a&b", "'\""])
def test_names_of_directories_are_text(invoke: Invoke, tmp_path: Path, name: str) -> None:
    # No slash can be in a name.
    folder = old(write_checkpoint(tmp_path / "root" / name.replace("/", "")))
    html = invoke("list", tmp_path / "root", "-o", "-").stdout
    assert loads(html) == []
    assert Page(html).column(LINES, "checkpoint") == [folder.name]


def test_a_root_without_checkpoints(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "root" / "x").mkdir(parents=True)
    page = Page(invoke("list", tmp_path / "root", "-o", "-").stdout)
    assert page.tables[LINES] == [page.tables[LINES][0]]
    assert page.tiles["checkpoints"][0] == "0"
