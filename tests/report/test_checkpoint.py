"""The page about a checkpoint: what is on it is what the tables say, whatever the checkpoint is like."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.inspect_checkpoint import Shape
from benchmarks.inspect_checkpoint import write_checkpoint as write_large
from pyspark_statestore import Checkpoint, StateStoreFilesError, rendering
from pyspark_statestore.format import file_name
from pyspark_statestore.inspect import TABLES
from pyspark_statestore.log.pins import Pin
from pyspark_statestore.report.advice import MANY_SMALL, MOST_OPENS
from pyspark_statestore.report.markup import document, element
from pyspark_statestore.report.page import Report, tiles
from tests.browser import measured, needs_browser
from tests.cli.builders import age, name, write_checkpoint, write_index_only
from tests.cli.conftest import Invoke
from tests.conftest import ROOT
from tests.inspect.builders import STAMP, merged_file, plain_file, simple_checkpoint
from tests.report.pages import Page, loads

SUMMARY = "Summary of the checkpoint"
DEADEST, LARGEST = "Merged files with the highest dead_bytes", "Merged files with the highest file_size_in_bytes"
PARTITIONS = "The partitions with the most bytes"


def rules(folder: Path) -> list[str]:
    return [advice.rule for advice in Checkpoint(folder).report().advice]


def assert_figures_are_the_summary(page: Page, folder: Path) -> None:
    """Every figure of the summary, as the command line shows it."""
    [summary] = Checkpoint(folder).inspect.summary().to_pylist()
    assert page.figures(SUMMARY) == {
        column.name: rendering.exact(summary[column.name], rendering.form_of(column.name, column.type))
        for column in TABLES["summary"]
    }


def test_the_page_says_what_the_tables_say(checkpoint: Path) -> None:
    page = Page(Checkpoint(checkpoint).report().html)
    inspect = Checkpoint(checkpoint).inspect
    [summary] = inspect.summary().to_pylist()

    assert_figures_are_the_summary(page, checkpoint)
    assert page.tiles["space amplification"][0] == f"{summary['space_amplification']:.2f}"
    assert page.tiles["merged files"] == ("3", "2 not sealed by their writers")
    size, live = summary["file_size_in_bytes"], summary["live_bytes"]
    assert page.tiles["size"] == (
        rendering.size(size),
        f"{rendering.size(live)} live, {rendering.size(size - live)} dead",
    )
    assert page.tiles["live segments"] == ("9", "files to Spark; 4 dead beside them")
    assert page.tiles["a start opens"] == ("3 files", "no index-only file is there")
    assert page.tiles["state versions"] == ("2 to 4", "3 with files of their own")
    assert "RocksDB" in page.text
    files = {row["file_path"].rpartition("/")[2]: row for row in inspect.files().to_pylist()}
    shown = page.tables[DEADEST]
    assert {row[0] for row in shown[1:]} == set(files)
    for row in shown[1:]:
        there = files[row[0]]
        dead = there["file_size_in_bytes"] - there["live_bytes"]
        assert row[1:4] == [rendering.size(n) for n in (there["file_size_in_bytes"], there["live_bytes"], dead)]
    assert LARGEST not in page.tables  # all files are in the other list
    assert page.column(PARTITIONS, "partition") == ["2", "1", "0"]
    assert page.column(PARTITIONS, "live files") == ["3 of 4", "3 of 4", "3 of 5"]
    assert page.column("Bytes by type of file", "type") == ["changelog"]
    assert page.cards == [("fine", "Good to knowNothing", [])]


def test_a_page_loads_nothing_and_says_so_to_the_browser(checkpoint: Path) -> None:
    html = Checkpoint(checkpoint).report().html

    assert loads(html) == []
    [policy] = [a["content"] for tag, a in Page(html).elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "http:" not in html
    assert "https:" not in html


def test_pictures_say_what_they_show(checkpoint: Path) -> None:
    page = Page(Checkpoint(checkpoint).report().html)

    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == 5
    labels = [attributes["aria-label"] or "" for attributes in pictures]
    assert all(len(label) > 20 for label in labels)
    assert sum(tag == "desc" for tag, _ in page.elements) == 4
    assert any("live 9, dead by now 4" in label for label in labels)
    # The last moment of a growth is what there is.
    [summary] = Checkpoint(checkpoint).inspect.summary().to_pylist()
    assert any(f"live {rendering.size(summary['live_bytes'])}" in label for label in labels)


def test_stock_spark_before_a_conversion(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for batch in (1, 2):
        (tmp_path / "offsets" / str(batch)).write_text("v1\n{}\n{}")
    for partition in range(2):
        for version in range(1, 4):
            plain_file(tmp_path, f"0/{partition}/{version}.changelog", bytes(100 * (partition + 1)))
        plain_file(tmp_path, f"0/{partition}/3.zip", bytes(2 << 20))
    report = Checkpoint(tmp_path).report()
    page = Page(report.html)

    assert_figures_are_the_summary(page, tmp_path)
    assert page.tiles["plain files"] == ("8", "4.0 MiB, not merged")
    assert page.tiles["files of a version"][0] == "about 3"
    assert page.tiles["last commit"][0] == "batch 2"
    assert "8 plain files of 4.0 MiB, 6 of them smaller than 1.0 MiB. Merged, they would be about 5 files." in page.text
    assert sum(int(count) for count in page.column("Files by size", "files")) == 8
    [advice] = report.advice
    assert (advice.rule, advice.level) == ("convert", "act")
    assert page.cards[0][2][:2] == [
        f"pyspark-statestore convert {tmp_path.as_uri()} --to merged --dry-run",
        f"pyspark-statestore convert {tmp_path.as_uri()} --to merged",
    ]


def test_transform_with_state_takes_the_path_door(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    plain_file(tmp_path, "0/0/1.changelog", bytes(100))
    info = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"}, "stateStoreInfo": []}
    plain_file(tmp_path, "0/_metadata/v2/0", b"v2\n" + json.dumps(info).encode())
    [advice] = Checkpoint(tmp_path).report().advice

    assert advice.commands == ()
    assert advice.python[-1] == f"merged_path({tmp_path.as_uri()!r})"
    assert "transformWithStateExec" in Checkpoint(tmp_path).report().html


def bloated(folder: Path, *, seal: bool = True, size: int = 1 << 20) -> Path:
    """A checkpoint of which most is dead: each write of its only file has replaced the one before."""
    (folder / "offsets").mkdir(parents=True)
    for number in range(1, 5):
        with merged_file(folder, number, seal=seal) as file:
            file.put("0/0/1.changelog", bytes(size), stamp=STAMP + number)
    return folder


def old(folder: Path) -> Path:
    """Makes a checkpoint look as if nothing had been written for long. Its stamps are of 2023."""
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


def test_dead_bytes_of_a_stopped_query_are_compacted(tmp_path: Path) -> None:
    folder = old(bloated(tmp_path / "q 1"))
    planned = Checkpoint(folder).maintenance.compact(dry_run=True)
    [advice] = Checkpoint(folder).report().advice

    assert (advice.rule, advice.level) == ("compact", "act")
    assert "nothing cleans up" in advice.why
    sizes = [rendering.size(size) for size in (planned.added_bytes_count, planned.reclaimed_bytes_count)]
    assert f"write {sizes[0]} in the place of {planned.removed_files_count} files of {sizes[1]}" in advice.why
    assert planned.removed_files_count >= 3
    assert advice.commands[1] == f"pyspark-statestore compact '{Checkpoint(folder).url}'"
    run = subprocess.run(
        [
            "bash",
            "-c",
            advice.commands[0].replace("pyspark-statestore", f"{sys.executable} -m pyspark_statestore.cli", 1),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    Checkpoint(folder).maintenance.compact()
    assert rules(folder) == []


def test_a_compaction_that_would_gain_nothing_is_not_advised(tmp_path: Path) -> None:
    """Segments of 16 bytes have index entries that are larger than they are."""
    write_large(tmp_path / "q", Shape(segments=40_000, files=10, partitions=50))
    folder = old(tmp_path / "q")
    assert "compact" in rules(folder)
    Checkpoint(folder).maintenance.compact()

    report = Checkpoint(old(folder)).report()

    [summary] = Checkpoint(folder).inspect.summary().to_pylist()
    assert summary["space_amplification"] > 3
    assert summary["file_size_in_bytes"] - summary["live_bytes"] > 1 << 20
    assert "compact" not in {advice.rule for advice in report.advice}


def test_so_few_dead_bytes_are_left_alone(tmp_path: Path) -> None:
    report = Checkpoint(old(bloated(tmp_path, size=100_000))).report()
    page = Page(report.html)

    assert report.advice == ()
    assert float(page.tiles["space amplification"][0]) > 3
    assert page.tiles["space amplification"][1] == "bytes kept for each live one: too few to matter"
    assert "Less than 1.0 MiB is dead." in page.text


def test_a_stamp_that_is_far_ahead(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1) as file:
        file.put("0/0/1.changelog", bytes(100), stamp=(1 << 63) - 1)
    page = Page(Checkpoint(tmp_path).report().html)
    assert page.tiles["last written"] == ("1s ago", "its query counts as running until 10m after that")


def test_dead_bytes_beside_a_query_that_runs_are_looked_at(tmp_path: Path) -> None:
    [advice] = Checkpoint(bloated(tmp_path)).report().advice

    assert (advice.rule, advice.level) == ("compact", "look")
    assert "failedDeletes" in advice.why
    assert (
        Page(Checkpoint(tmp_path).report().html).tiles["last written"][1]
        == "its query counts as running until 10m after that"
    )


def test_files_that_nobody_has_sealed_want_to_be_abandoned(tmp_path: Path) -> None:
    """Their query was killed two hours ago: a compaction would leave them alone for a day."""
    folder = bloated(tmp_path, seal=False)
    for path in folder.rglob("*"):
        age(path, minutes=120)
    assert Checkpoint(folder).maintenance.compact(dry_run=True).reclaimed_bytes_count == 0

    [advice] = Checkpoint(folder).report().advice

    assert (advice.rule, advice.level) == ("compact", "act")
    assert advice.commands[-1].endswith("--abandoned-after 10m")
    assert "4 files may still be open in a process" in advice.why


def test_an_index_of_all_files(tmp_path: Path) -> None:
    folder = old(simple_checkpoint(tmp_path / "q", files=MOST_OPENS + 1))
    [advice] = Checkpoint(folder).report().advice
    assert (advice.rule, advice.level) == ("consolidate", "act")

    Checkpoint(folder).maintenance.consolidate_index()

    page = Page(Checkpoint(folder).report().html)
    assert page.tiles["a start opens"] == ("1 file", f"index-only files cover {MOST_OPENS + 1} more")
    assert rules(folder) == []


def test_many_small_files_and_long_lists(tmp_path: Path) -> None:
    folder = old(simple_checkpoint(tmp_path / "q", files=MANY_SMALL + 1))
    report = Checkpoint(folder).report()
    page = Page(report.html)

    assert {advice.rule for advice in report.advice} == {"join", "consolidate", "versions"}
    assert len(page.tables[DEADEST]) == len(page.tables[LARGEST]) == 16
    assert f"15 of {MANY_SMALL + 1}. All of them: pyspark-statestore files {folder.as_uri()}" in page.text


def test_a_partition_that_stands_out(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1) as file:
        for partition in range(8):
            file.put(f"3/{partition}/1.snapshot", bytes(2 << 20 if partition == 5 else 1000), stamp=STAMP)
    report = Checkpoint(tmp_path).report()
    page = Page(report.html)

    [advice] = report.advice
    assert advice.rule == "skew"
    assert "Partition 5 of operator 3 has 8.0 times" in advice.why
    assert advice.commands[1].endswith("--operator 3 --partition 5")
    cells = [a for tag, a in page.elements if tag == "i" and "cell" in (a.get("class") or "")]
    assert [a["class"] for a in cells] == [*["cell low"] * 5, "cell skewed", *["cell low"] * 2]
    assert "less than half of the average: 7more than 4 times the average: 1" in page.text
    assert "heap store" in page.text


def test_a_map_shows_who_has_more_and_who_has_less(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    sizes = [1000, 1100, 900, 400, 700, 1600, 1000]
    with merged_file(tmp_path, 1) as file:
        for partition, size in enumerate(sizes):
            file.put(f"0/{partition}/1.changelog", bytes(size), stamp=STAMP)
            file.put(f"1/{partition}/1.changelog", bytes(1000), stamp=STAMP)
    page = Page(Checkpoint(tmp_path).report().html)

    kinds = [a["class"] for tag, a in page.elements if tag == "i" and "cell" in (a.get("class") or "")]
    even = "cell even"
    assert kinds[:7] == [even, even, even, "cell low", "cell less", "cell more", even]
    assert kinds[7:] == [even] * 7, "a map of one color: all have the same"
    assert "about the average: 7" in page.text


def test_a_line_of_another_kind_has_another_color(checkpoint: Path) -> None:
    page = Page(Checkpoint(checkpoint).report().html)
    lines = [a["class"] for tag, a in page.elements if tag == "polyline"]
    assert lines == ["line seen"]
    sheet = Checkpoint(checkpoint).report().html.partition("<style>")[2].partition("</style>")[0]
    for scheme in sheet.split("@media (prefers-color-scheme:dark)"):
        named = re.findall(r"--(live|dead|plain|seen|low|less|even|more|skewed):(#\w+)", scheme)
        assert len({color for _, color in named}) == len(named) == 9


def test_what_is_known_of_a_query_that_has_ended(checkpoint: Path) -> None:
    """It ended a moment ago. The page says when that was, and what rules take it for: not that it runs."""
    page = Page(Checkpoint(checkpoint).report().html)
    assert "seems to" not in page.text
    page = Page(Checkpoint(checkpoint, closed_after=datetime.timedelta(seconds=90)).report().html)
    assert page.tiles["last written"][1] == "its query counts as running until 1m 30s after that"
    page = Page(Checkpoint(old(checkpoint)).report().html)
    assert page.tiles["last written"][1] == "its query counts as stopped 10m after that"


@pytest.mark.parametrize("count", range(1, 30))
def test_no_line_of_tiles_is_half_empty(count: int) -> None:
    shown = Page(document([element("title", "tiles")], [tiles([(f"t{n}", "1", "", "") for n in range(count)])]))

    for width, most in (("wide", 6), ("middle", 4), ("narrow", 2)):
        lines = shown.lines[width]
        at = 0
        lengths = []
        while at < count:  # the tiles of a line all say how many they are
            assert set(lines[at : at + lines[at]]) == {lines[at]}
            lengths.append(lines[at])
            at += lines[at]
        assert at == count
        assert max(lengths) <= most
        assert max(lengths) - min(lengths) <= 1
        assert len(lengths) == -(-count // most)


_EDGES = """[...document.querySelectorAll(".tile, .chart")].map(each => each.getBoundingClientRect())
    .map(box => [box.top, box.left, box.right])"""


@needs_browser
@pytest.mark.parametrize("width", [1280, 800, 390])
def test_a_browser_fills_all_lines(checkpoint: Path, tmp_path: Path, width: int) -> None:
    plain_file(checkpoint, "0/0/5.changelog", bytes(10))  # one tile and one chart more
    Checkpoint(checkpoint).report().write(tmp_path / "page.html")
    boxes = measured(tmp_path / "page.html", _EDGES, width=width)

    lines: dict[float, list[tuple[float, float]]] = {}
    for top, left, right in boxes:
        lines.setdefault(round(top), []).append((left, right))
    assert len(lines) > 3
    assert {round(min(left for left, _ in line)) for line in lines.values()} == {round(boxes[0][1])}
    assert len({round(max(right for _, right in line)) for line in lines.values()}) == 1


def test_a_heap_store_that_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the newest snapshot of each store."""
    monkeypatch.setattr("pyspark_statestore.report.advice.LARGE_HEAP", 5000)
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1) as file:
        for path, size in (("0/0/3", 9000), ("0/0/4", 3000), ("0/1/4", 2000)):
            file.put(f"{path}.snapshot", bytes(size), stamp=STAMP)
    assert "rocksdb" not in rules(tmp_path)
    with merged_file(tmp_path, 2) as file:
        file.put("0/2/4.snapshot", bytes(1), stamp=STAMP)
    (advice,) = (each for each in Checkpoint(tmp_path).report().advice if each.rule == "rocksdb")
    assert "heap.spill=auto" in advice.why
    assert "--store rocksdb" in advice.commands[0]


def test_changelogs_without_snapshots(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1) as file:
        for version in range(1, 4):
            file.put(f"0/0/{version}.delta", bytes(1 << 20), stamp=STAMP + version)
    assert rules(tmp_path) == ["snapshots"]


def test_what_an_export_has_left(checkpoint: Path) -> None:
    checkpoint = old(checkpoint)
    made = Checkpoint(checkpoint, closed_after=datetime.timedelta(0))
    made.export(force=True)

    report = Checkpoint(checkpoint).report()
    page = Page(report.html)

    assert [advice.rule for advice in report.advice] == ["exported"]
    assert_figures_are_the_summary(page, checkpoint)
    assert page.tiles["plain files"][0] == "9"

    merged = checkpoint / "state/_merged"
    pin = Pin(file_name(1, 98, 1).replace(".merged", ".fork"), "/fork", files=frozenset({file_name(1, 9, 1)}))
    (merged / pin.name).write_bytes(pin.encode())
    with pytest.raises(StateStoreFilesError, match="PSS_DROP_REFUSED"):
        made.drop_merged(dry_run=False)
    exported, forked = Checkpoint(checkpoint).report().advice
    assert (exported.rule, exported.commands, exported.python) == ("exported", (), ())
    assert "refuses as long as 1 fork of this checkpoint reads files here" in exported.why
    assert forked.why.startswith("1 fork of this checkpoint reads files here, and these stay until it is")


def test_plain_files_beside_merged_ones(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1, plain=True) as file:
        file.put("0/0/2.changelog", bytes(100), stamp=STAMP)
    plain_file(tmp_path, "0/0/1.changelog", bytes(100))
    assert rules(tmp_path) == ["plain-left"]
    assert_figures_are_the_summary(Page(Checkpoint(tmp_path).report().html), tmp_path)


def test_orphans(checkpoint: Path) -> None:
    (checkpoint / "state" / "_merged" / name(9)).write_bytes(b"")
    assert rules(old(checkpoint)) == ["orphans"]


def test_a_checkpoint_without_state(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    report = Checkpoint(tmp_path).report()
    page = Page(report.html)

    assert report.advice == ()
    assert "There are no state files here." in page.text
    assert "no stateful operator" in page.text
    assert_figures_are_the_summary(page, tmp_path)


def test_an_index_only_file_is_counted_as_one(checkpoint: Path) -> None:
    write_index_only(checkpoint)
    page = Page(Checkpoint(checkpoint).report().html)
    assert page.tiles["a start opens"] == ("3 files", "index-only files cover 1 more")


def test_a_remote_file_system_and_a_merged_path(checkpoint: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(checkpoint), "/report-q1", recursive=True)
    local, remote = (
        Page(Checkpoint(path).report().html) for path in (f"merged+file:{checkpoint}", "memory://report-q1")
    )
    assert local.figures(SUMMARY) == remote.figures(SUMMARY)
    assert "memory://report-q1" in remote.text
    assert "merged+" not in local.text


HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(2)>"'&\u202egnp"""


def test_names_of_a_checkpoint_are_text_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "\N{FRACTION SLASH}")
    write_checkpoint(folder)
    info = {"operatorInfo": {"operatorId": 0, "operatorName": HOSTILE}, "stateStoreInfo": []}
    plain_file(folder, "0/_metadata/v2/0", b"v2\n" + json.dumps(info).encode())
    with merged_file(folder, 7) as file:
        file.put(f"0/0/{HOSTILE.replace('/', '')}/1.changelog", bytes(100), stamp=STAMP)
    html = Checkpoint(folder).report().html

    assert loads(html) == []
    page = Page(html)
    assert "<script>alert(1)</script>" in page.text
    assert "<script" not in html
    assert "<img" not in html
    assert "\u202e" not in html  # which would turn text around
    assert "\\u202egnp" in page.text


def test_half_of_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    Report(element("p", "half \ud800"), ()).write(tmp_path / "q1.html")
    assert (tmp_path / "q1.html").read_text(encoding="utf-8") == "<p>half \\ud800</p>"


@pytest.mark.parametrize("metadata", [b"v2\nno json", b"", b'v2\n{"operatorInfo": 7}'])
def test_metadata_that_cannot_be_read_costs_the_names_only(checkpoint: Path, metadata: bytes) -> None:
    plain_file(checkpoint, "0/_metadata/v2/0", metadata)
    assert "Operator 0: 3 partitions" in Page(Checkpoint(checkpoint).report().html).text


def test_a_notebook_shows_the_page_in_a_frame(checkpoint: Path) -> None:
    report = Checkpoint(checkpoint).report()
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert "<html" not in shown
    assert repr(report) == "Report(advice=())"


def test_a_large_checkpoint_has_a_small_page(tmp_path: Path) -> None:
    write_large(tmp_path / "q", Shape(segments=100_000, files=300, partitions=2_000))
    report = Checkpoint(tmp_path / "q").report()
    page = Page(report.html)

    assert len(report.html) < 400_000
    assert (
        page.tiles["live segments"][0]
        == f"{Checkpoint(tmp_path / 'q').inspect.summary()['live_segment_count'][0].as_py():,}"
    )
    assert "Each cell is 3 partitions." in page.text
    assert "15 of 2,000. All of them: " in page.text
    assert "15 of 300. All of them: " in page.text


def test_the_command_writes_a_file_or_stdout(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "q1.html"
    out.write_text("older")
    done = invoke("report", checkpoint, "-o", out)

    assert done.stdout == ""
    assert f"Wrote {out}" in done.stderr
    assert_figures_are_the_summary(Page(out.read_text()), checkpoint)
    piped = invoke("report", checkpoint, "-o", "-")
    assert Page(piped.stdout).figures(SUMMARY) == Page(out.read_text()).figures(SUMMARY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q1", "q1.html"]


def test_a_failure_leaves_what_was_there(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "q1.html").write_text("older")
    (tmp_path / "occupied.html").mkdir()
    before = sorted(tmp_path.iterdir())

    assert "[PSS_NOT_A_CHECKPOINT]" in invoke("report", tmp_path / "no", "-o", tmp_path / "q1.html", status=1).stderr
    for place in ("occupied.html", "no/q1.html"):
        assert "[PSS_WRITE_FAILED]" in invoke("report", checkpoint, "-o", tmp_path / place, status=1).stderr
    assert ".html" in invoke("report", checkpoint, "-o", tmp_path / "q1.pdf", status=2).stderr
    invoke("report", checkpoint, status=2)
    assert (tmp_path / "q1.html").read_text() == "older"
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(StateStoreFilesError, match="PSS_WRITE_FAILED"):
        Checkpoint(checkpoint).report().write(tmp_path / "occupied.html")


@pytest.mark.parametrize("out", ["q1.html", "-"])
def test_a_page_that_cannot_be_written_whole(checkpoint: Path, tmp_path: Path, out: str) -> None:
    """A full disk, as far as a process can tell: a file may have no more than so many bytes."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "q1.html").write_text("older")
    code = f"""
import resource, sys
import pyspark_statestore.cli.report, pyspark_statestore.report.page
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.argv[1:] = ["report", {str(checkpoint)!r}, "-o", {out!r}]
from pyspark_statestore.cli.main import main
main()
"""
    with (folder / "stdout").open("wb") as stdout:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )

    assert done.returncode == 1, done.stderr
    where = "the output" if out == "-" else out
    assert f"[PSS_WRITE_FAILED] Writing {where} failed: File too large" in done.stderr
    assert (folder / "q1.html").read_text() == "older"
    assert sorted(path.name for path in folder.iterdir()) == ["q1.html", "stdout"]


def test_without_matplotlib(checkpoint: Path, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["matplotlib"] = None
from pyspark_statestore import Checkpoint
Checkpoint({str(checkpoint)!r}).report().write({str(tmp_path / "q1.html")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    Page((tmp_path / "q1.html").read_text())
