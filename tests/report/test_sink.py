"""The page about a file sink."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path

import pytest

from pyspark_statestore import Sink, rendering
from tests.cli.builders import write_sink
from tests.cli.conftest import Invoke
from tests.report.pages import Page, loads

FIGURES = "Figures of the sink"
CREATED = datetime.datetime(2025, 10, 9, tzinfo=datetime.timezone.utc).timestamp()


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Four batches of two files for each of two days."""
    write_sink(tmp_path / "clicks")
    return tmp_path / "clicks"


def rules(folder: Path) -> list[str]:
    return [advice.rule for advice in Sink(folder).report().advice]


def test_the_page_says_what_the_tables_say(sink: Path) -> None:
    report = Sink(sink).report()
    page = Page(report.html)
    files = Sink(sink).files().to_pylist()
    sizes = [row["file_size_in_bytes"] for row in files]

    assert loads(report.html) == []
    figures = page.figures(FIGURES)
    assert figures["listed_files"] == str(len(files)) == "16"
    assert figures["listed_bytes"] == rendering.exact(sum(sizes), rendering.size)
    assert figures["small_files"] == "16"
    assert figures["joined_files"] == "2"
    assert figures["directories"] == "2"
    assert figures["list_entries"] == "16"
    assert (figures["waiting_files"], figures["unlisted_files"], figures["damages"]) == ("0", "0", "0")
    assert page.column("Partition values", "partition value") == ["day=1", "day=2"]
    assert page.tables["Partition values"][1][1:6] == ["8", "8", "1.6 KiB", "208 B", "0"]
    assert page.tables["Files by size"][1][:2] == ["128 B to 256 B", "16"]
    assert page.tiles["small files"] == ("16", "smaller than 128.0 MiB; joined about 2")
    assert page.tiles["last batch"][0] == "3"
    [advice] = report.advice
    assert (advice.rule, advice.level) == ("sink-join", "act")
    assert advice.commands[-1] == f"pyspark-statestore sink compact {sink.as_uri()} --older-than 0s"
    assert "16 of them are of the last fourteen days" in advice.why


def test_a_sink_that_is_in_order(sink: Path) -> None:
    log = sink / "_spark_metadata"
    for part in ("1", "2.compact", "3"):
        (log / part).unlink()
    file = next((sink / "day=1").iterdir())
    line = {"path": file.as_uri(), "size": 208, "isDir": False, "modificationTime": 1_760_000_000_000}
    (log / "0").write_text("v1\n" + json.dumps({**line, "blockReplication": 1, "blockSize": 1, "action": "add"}))
    report = Sink(sink).report()
    assert report.advice == ()
    assert "nothing is missing" in Page(report.html).text
    assert Page(report.html).figures(FIGURES)["unlisted_files"] == "15"


def listing(folder: Path, files: dict[str, int]) -> Path:
    """A sink whose list has one batch of these files, by path, of these sizes. The files are there."""
    log = folder / "_spark_metadata"
    log.mkdir(parents=True)
    lines = []
    for path, size in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(bytes(size))
        line = {"path": (folder / path).as_uri(), "size": size, "isDir": False, "modificationTime": 1_760_000_000_000}
        lines.append(json.dumps({**line, "blockReplication": 1, "blockSize": 1, "action": "add"}))
    (log / "0").write_text("\n".join(["v1", *lines]))
    return folder


def test_files_that_cannot_be_fewer(tmp_path: Path) -> None:
    assert rules(listing(tmp_path / "one each", {f"p={n}/part-0.parquet": 100 for n in range(12)})) == []
    assert rules(listing(tmp_path / "few", {f"p=1/part-{n}.parquet": 100 for n in range(10)})) == []
    assert rules(listing(tmp_path / "more", {f"p=1/part-{n}.parquet": 100 for n in range(11)})) == ["sink-join"]


def test_files_that_are_missing_and_that_nobody_lists(sink: Path) -> None:
    first, second, *_ = sorted((sink / "day=2").iterdir())
    whole = {path: path.read_bytes() for path in (first, second)}
    first.unlink()
    second.write_bytes(b"short")
    stray = sink / "day=2" / "part-00009-7f6c0000-0000-4000-8000-000000009999.c000.snappy.parquet"
    stray.write_bytes(bytes(1000))
    page = Page(Sink(sink).report().html)
    assert page.tiles["damages"][0] == page.figures(FIGURES)["damages"] == "2"
    assert page.tiles["unlisted files"] == ("1", "no reader sees them; 0 old enough to remove")
    assert rules(sink) == ["sink-damage", "sink-join"]

    os.utime(stray, (CREATED, CREATED))
    assert rules(sink) == ["sink-damage", "sink-join"]  # the list may be what is damaged
    for path, data in whole.items():
        path.write_bytes(data)
    assert rules(sink) == ["sink-join", "sink-orphans"]
    assert Page(Sink(sink).report().html).figures(FIGURES)["orphan_bytes"] == "1000 B"


def test_rows_that_wait(sink: Path) -> None:
    log = sink / "_spark_metadata"
    waiting = sink / "_waiting"
    (waiting / "day=1").mkdir(parents=True)
    (waiting / "day=1" / "part-0.parquet").write_bytes(bytes(500))
    named = [{"path": "day=1/part-0.parquet", "size": 500, "since": 1_760_000_000_000}]
    manifest = waiting / "3-abcdef0123456789.json"
    manifest.write_text(json.dumps({"batch": 3, "form": "", "files": named}))
    line = {"path": manifest.as_uri(), "size": 0, "isDir": True, "modificationTime": 1_760_000_000_000}
    with (log / "3").open("a") as out:
        out.write("\n" + json.dumps({**line, "blockReplication": 0, "blockSize": 0, "action": "add"}))
    [waits] = Sink(sink).waiting().to_pylist()
    assert waits["file_size_in_bytes"] == 500

    by_rule = {advice.rule: advice for advice in Sink(sink).report().advice}
    assert by_rule["sink-waiting"].level == "fine"
    assert "Nothing is to be done while the query runs" in by_rule["sink-waiting"].why
    for part in log.iterdir():
        os.utime(part, (CREATED, CREATED))
    by_rule = {advice.rule: advice for advice in Sink(sink).report().advice}
    assert by_rule["sink-waiting"].level == "look"
    assert by_rule["sink-waiting"].commands[1].startswith("pyspark-statestore sink publish ")
    page = Page(Sink(sink).report().html)
    assert page.figures(FIGURES)["waiting_files"] == "1"
    assert page.tables["Partition values"][1][5] == "1"


def test_a_list_that_names_files_elsewhere(sink: Path, tmp_path: Path) -> None:
    shutil.move(sink, tmp_path / "moved")
    page = Page(Sink(tmp_path / "moved").report().html)
    assert page.figures(FIGURES)["orphan_files"] == "-"
    assert "the list names files elsewhere" in page.tiles["unlisted files"][1]


def test_partition_values_are_text(tmp_path: Path) -> None:
    value = "p=<script>alert(1)<"
    log = tmp_path / "sink" / "_spark_metadata"
    log.mkdir(parents=True)
    file = tmp_path / "sink" / value / "part-0.parquet"
    file.parent.mkdir()
    file.write_bytes(bytes(10))
    line = {"path": file.as_uri(), "size": 10, "isDir": False, "modificationTime": 1}
    (log / "0").write_text("v1\n" + json.dumps({**line, "blockReplication": 1, "blockSize": 1, "action": "add"}))
    html = Sink(tmp_path / "sink").report().html
    assert loads(html) == []
    assert Page(html).column("Partition values", "partition value") == [value]


def test_many_partition_values_have_a_small_page(tmp_path: Path) -> None:
    log = tmp_path / "sink" / "_spark_metadata"
    log.mkdir(parents=True)
    root = (tmp_path / "sink").as_uri()
    rest = {"isDir": False, "blockReplication": 1, "blockSize": 1, "action": "add"}
    lines = [
        json.dumps({"path": f"{root}/p={n % 5000}/part-{n}.parquet", "size": 1000 + n, "modificationTime": n, **rest})
        for n in range(20_000)
    ]
    (log / "0").write_text("\n".join(["v1", *lines]))
    sink = Sink(tmp_path / "sink")
    html = sink.report().html
    page = Page(html)
    assert len(html) < 150_000
    assert page.figures(FIGURES)["listed_files"] == "20,000"
    assert f"30 of 5,000. All of them: pyspark-statestore sink files {root}" in page.text
    assert sum(int(count.replace(",", "")) for count in page.column("Files by size", "files")) == 20_000


def test_the_command(invoke: Invoke, sink: Path, tmp_path: Path) -> None:
    out = tmp_path / "clicks.html"
    done = invoke("sink", "report", sink, "-o", out)
    assert f"Wrote {out}" in done.stderr
    assert Page(out.read_text()).figures(FIGURES) == Page(invoke("sink", "report", sink, "-o", "-").stdout).figures(
        FIGURES
    )
    assert "[PSS_NOT_A_SINK]" in invoke("sink", "report", tmp_path, "-o", tmp_path / "no.html", status=1).stderr
    assert not (tmp_path / "no.html").exists()
