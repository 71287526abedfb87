"""Pictures of a checkpoint."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from pyspark_statestore import Checkpoint
from tests.cli.conftest import Invoke
from tests.conftest import ROOT


def colors(path: Path) -> set[tuple[int, ...]]:
    """The colors of an image, in eight bits."""
    pixels: Any = (image.imread(path)[:, :, :3] * 255).round().astype(int)
    return {tuple(pixel) for row in pixels for pixel in row.tolist()}


def test_an_image_shows_what_lives_and_what_is_dead(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    done = invoke("plot", checkpoint, "-o", tmp_path / "q1.png")

    assert done.stdout == ""
    height, width, _ = image.imread(tmp_path / "q1.png").shape
    assert min(height, width) > 500
    assert {(0x2A, 0x7F, 0x62), (0xD1, 0x60, 0x3D), (0xB9, 0xB9, 0xB9)} <= colors(tmp_path / "q1.png")


def test_a_page_has_the_picture_and_the_summary(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    invoke("plot", checkpoint, "-o", tmp_path / "q1.html")

    page = (tmp_path / "q1.html").read_text()
    [summary] = Checkpoint(checkpoint).inspect.summary().to_pylist()
    rows = page.partition("<h2>Summary</h2>")[2].partition("</table>")[0]
    cells = dict(re.findall(r"<tr><td>(\w+)</td><td>([^<]*)</td>", rows))
    assert set(cells) == set(summary)
    assert cells["segment_count"] == str(summary["segment_count"]) == "13"
    assert cells["live_bytes"].endswith(f"({summary['live_bytes']:,})")
    svg = page[page.index("<svg") : page.index("</svg>")]
    assert "State partitions by bytes" in svg
    assert "0/2" in svg
    assert svg.count("<path") > 20


def test_a_page_loads_nothing(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    invoke("plot", checkpoint, "-o", tmp_path / "q1.html")
    loads: list[str] = []

    class Look(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            loads.extend(
                f"{tag} {key}={value}"
                for key, value in attrs
                if tag in ("script", "link", "iframe")
                or (key in ("src", "href", "xlink:href") and value and value[0] != "#")
            )

    page = (tmp_path / "q1.html").read_text()
    Look().feed(page)

    assert loads == []
    assert page.count("<!DOCTYPE") == 1
    assert "<?xml" not in page
    assert "url(http" not in page
    assert "@import" not in page


def test_a_checkpoint_without_merged_files(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    shutil.rmtree(checkpoint / "state")

    invoke("plot", checkpoint, "-o", tmp_path / "q1.html")

    assert "no state files" in (tmp_path / "q1.html").read_text()


@pytest.mark.parametrize("out", ["q1.gif", "q1"])
def test_what_cannot_be_drawn(invoke: Invoke, checkpoint: Path, out: str) -> None:
    failed = invoke("plot", checkpoint, "-o", out, status=2)

    assert ".png or .html" in failed.stderr


@pytest.mark.parametrize("out", ["q1.png", "q1.html"])
def test_without_matplotlib_the_extra_is_named(
    invoke: Invoke, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    failed = invoke("plot", checkpoint, "-o", tmp_path / out, status=1)

    assert "[PSS_MISSING_DEPENDENCY]" in failed.stderr
    assert '"pyspark-statestore[plot]"' in failed.stderr


def test_a_failure_leaves_what_was_there(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "q1.png").write_text("older")
    occupied = tmp_path / "occupied.png"
    (occupied / "x").mkdir(parents=True)
    before = sorted(tmp_path.iterdir())

    assert "[PSS_NOT_A_CHECKPOINT]" in invoke("plot", tmp_path / "no", "-o", tmp_path / "q1.png", status=1).stderr
    assert "[PSS_WRITE_FAILED]" in invoke("plot", checkpoint, "-o", occupied, status=1).stderr
    assert "[PSS_WRITE_FAILED]" in invoke("plot", checkpoint, "-o", tmp_path / "no" / "q1.png", status=1).stderr
    assert (tmp_path / "q1.png").read_text() == "older"
    assert sorted(tmp_path.iterdir()) == before


def test_a_picture_that_cannot_be_written_whole_is_not_written(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "q1.png"
    out.parent.mkdir()
    out.write_text("older")
    code = f"""
import resource, sys
import matplotlib.font_manager  # has a cache to write
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.argv[1:] = ["plot", {str(checkpoint)!r}, "-o", {str(out)!r}]
from pyspark_statestore.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 1
    assert f"[PSS_WRITE_FAILED] Writing {out} failed: File too large" in done.stderr
    assert out.read_text() == "older"
    assert list(out.parent.iterdir()) == [out]


def test_a_picture_is_replaced(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "q1.PNG").write_text("older")

    invoke("plot", checkpoint, "-o", tmp_path / "q1.PNG")

    assert (tmp_path / "q1.PNG").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("command", ["plot", "report", "list", "sink plot", "sink report"])
def test_where_it_goes_is_looked_at_first(
    invoke: Invoke, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for listing in ("names", "files"):
        monkeypatch.setattr(f"pyspark_statestore.storage.Directory.{listing}", lambda *_: pytest.fail("it was read"))
    (tmp_path / "file").touch()
    (tmp_path / "folder.html").mkdir()
    wrong = {
        tmp_path / "never" / "x.html": f"the directory {tmp_path}/never does not exist",
        tmp_path / "file" / "x.html": f"{tmp_path}/file is no directory",
        tmp_path / "folder.html": "it is a directory",
    }
    for out, reason in wrong.items():
        said = invoke(*command.split(), checkpoint, "-o", out, status=1).stderr
        assert said.startswith(f"[PSS_WRITE_FAILED] Writing {out} failed: {reason}.")
