"""The page about a file sink: how large its files are, where the small ones are, what waits, and what to do."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.grouping import grouped
from pyspark_statestore.report.charts import Series, growth
from pyspark_statestore.report.markup import Markup, Part, element
from pyspark_statestore.report.page import (
    ROWS,
    Column,
    Report,
    bar,
    by_size,
    cards,
    figures,
    left_out,
    note,
    page,
    section,
    table,
    tiles,
    title_of,
)
from pyspark_statestore.report.sink_advice import TARGET_FILE_SIZE, SinkFacts, joined_estimate, sink_advice

_YOUNG = datetime.timedelta(days=14)
"""``compact`` leaves files of this time before the newest alone, unless it is told otherwise."""


@dataclass(frozen=True)
class SinkReading:
    """What was read of a sink.

    Attributes:
        url: Its URL.
        at: When it was read, in UTC.
        files: The table ``sink_files``.
        log: The table ``sink_log``.
        waiting: The table ``sink_waiting``.
        damages: Damages that a verification has found.
        unlisted: Files that no reader sees.
        orphans: Files that may be removed, and their bytes; None where nobody may say.
    """

    url: str
    at: datetime.datetime
    files: pa.Table
    log: pa.Table
    waiting: pa.Table
    damages: int
    unlisted: int
    orphans: tuple[int, int] | None

    @cached_property
    def sizes(self) -> np.ndarray:
        """The sizes of the listed files."""
        sizes: np.ndarray = self.files["file_size_in_bytes"].to_numpy()
        return sizes

    @cached_property
    def directories(self) -> pa.Table:
        """The files, small files and bytes of each partition value, those with the most files first."""
        small = pc.less(self.files["file_size_in_bytes"], TARGET_FILE_SIZE).cast(pa.int64())
        table_ = self.files.select(["directory", "file_size_in_bytes"]).append_column("small", small)
        sums = [("file_size_in_bytes", "count"), ("small", "sum"), ("file_size_in_bytes", "sum")]
        found = grouped(table_, "directory").aggregate(sums)
        names = {"file_size_in_bytes_count": "files", "small_sum": "small", "file_size_in_bytes_sum": "bytes"}
        found = found.rename_columns([names.get(name, name) for name in found.column_names])
        return found.sort_by([("files", "descending"), ("bytes", "descending"), ("directory", "ascending")])

    @cached_property
    def facts(self) -> SinkFacts:
        """The figures by which the page gives advice."""
        small = self.files.filter(pc.less(self.files["file_size_in_bytes"], TARGET_FILE_SIZE))
        by_value = grouped(small, "directory").aggregate([("file_size_in_bytes", "sum")])
        newest = pc.max(self.files["last_modified_at"]).as_py()
        young = 0
        if newest is not None:
            young = pc.sum(pc.greater(small["last_modified_at"], pa.scalar(newest - _YOUNG))).as_py() or 0
        changed = pc.max(self.log["last_modified_at"]).as_py()
        return SinkFacts(
            url=self.url,
            small_files=len(small),
            small_bytes=pc.sum(small["file_size_in_bytes"]).as_py() or 0,
            joined_files=sum(joined_estimate([size]) for size in by_value["file_size_in_bytes_sum"].to_pylist()),
            young_files=young,
            waiting_files=len(self.waiting),
            idle_for=None if changed is None else self.at - changed,
            damages=self.damages,
            unlisted=self.unlisted,
            orphans=None if self.orphans is None else self.orphans[0],
            orphan_bytes=0 if self.orphans is None else self.orphans[1],
        )


def sink_report(reading: SinkReading) -> Report:
    """Makes the page of a sink."""
    advice = sink_advice(reading.facts)
    sections: list[Part] = [
        tiles(_tiles(reading)),
        section("What to do", cards(advice, "Joining files would gain little, and nothing is missing.")),
        section("How large the files are", _sizes(reading)),
        section("How it grew", _growth(reading)),
        _values(reading),
        section("All figures", figures("Figures of the sink", _figures(reading))),
    ]
    return Report(page(title_of("Sink", reading.url), reading.url, _verdict(reading), reading.at, sections), advice)


def _verdict(reading: SinkReading) -> str:
    sizes, facts = reading.sizes, reading.facts
    if not len(sizes):
        return "No file is listed yet."
    said = (
        f"{rendering.counted(len(sizes), 'listed file')} of {rendering.size(int(sizes.sum()))}, half of them smaller "
    )
    said += f"than {rendering.size(int(np.median(sizes)))}."
    return f"{said} Joined, they would be about {_joined(reading):,}." if facts.is_fragmented else said


def _joined(reading: SinkReading) -> int:
    return len(reading.sizes) - reading.facts.small_files + reading.facts.joined_files


def _tiles(reading: SinkReading) -> Iterator[tuple[str, str, str, str]]:
    sizes, facts = reading.sizes, reading.facts
    yield "listed files", rendering.count(len(sizes)), f"{rendering.size(int(sizes.sum()))} that readers see", ""
    level = "act" if facts.is_fragmented else "fine"
    limit = f"smaller than {rendering.size(TARGET_FILE_SIZE)}"
    yield "small files", rendering.count(facts.small_files), f"{limit}; joined about {facts.joined_files:,}", level
    if len(sizes):
        middle = rendering.size(int(np.median(sizes)))
        yield (
            "median size",
            middle,
            f"smallest {rendering.size(int(sizes.min()))}, largest {rendering.size(int(sizes.max()))}",
            "",
        )
    each = len(sizes) / max(len(reading.directories), 1)
    yield "partition values", rendering.count(len(reading.directories)), f"{each:,.1f} files each on average", ""
    newest = pc.max(reading.log["batch_id"]).as_py()
    current = reading.log.filter(reading.log["is_current"])
    named = pc.sum(current["entry_count"]).as_py() or 0
    yield "last batch", rendering.cell([newest], rendering.count), f"{named:,} entries in Spark's list", ""
    waits = pc.sum(reading.waiting["file_size_in_bytes"]).as_py() or 0
    yield "waiting files", rendering.count(facts.waiting_files), f"{rendering.size(waits)} not published yet", ""
    removable = "the list names files elsewhere" if facts.orphans is None else f"{facts.orphans:,} old enough to remove"
    yield "unlisted files", rendering.count(facts.unlisted), f"no reader sees them; {removable}", ""
    level = "act" if facts.damages else "fine"
    yield "damages", rendering.count(facts.damages), "listed files that are not there as listed, and gaps", level


def _sizes(reading: SinkReading) -> list[Part]:
    sizes = reading.sizes
    if not len(sizes):
        return [note("No file is listed.")]
    return by_size(sizes, TARGET_FILE_SIZE)


def _growth(reading: SinkReading) -> list[Part]:
    # A list may have times that no calendar has.
    files = reading.files.filter(pc.is_valid(reading.files["last_modified_at"]))
    at: np.ndarray = files["last_modified_at"].cast(pa.int64()).to_numpy()
    sizes: np.ndarray = files["file_size_in_bytes"].to_numpy()
    is_small = sizes < TARGET_FILE_SIZE

    def parts(values: np.ndarray) -> list[Series]:
        small = Series.growing("dead", "small", at[is_small], values[is_small])
        return [Series.growing("live", "large", at[~is_small], values[~is_small]), small]

    charts = [
        growth("Listed files, by when they were written", rendering.count, parts(np.ones(len(at), "i8"))),
        growth("Listed bytes, by when they were written", rendering.size, parts(sizes)),
    ]
    return [element("div", charts, class_="charts")]


def _values(reading: SinkReading) -> Markup:
    found = reading.directories
    waits = Counter(reading.waiting["directory"].to_pylist())
    columns = [
        Column("partition value", "name"),
        Column("files", "number"),
        Column("small", "number"),
        Column("bytes", "number"),
        Column("on average", "number"),
        Column("wait", "number"),
        Column("files"),
    ]
    most = pc.max(found["files"]).as_py() or 1
    rows: list[list[Part]] = [
        [
            rendering.text(row["directory"]) or "no partition",
            rendering.count(row["files"]),
            rendering.count(row["small"]),
            rendering.size(row["bytes"]),
            rendering.size(row["bytes"] // row["files"]),
            rendering.count(waits[row["directory"]]),
            bar([("dead", row["small"]), ("live", row["files"] - row["small"])], most),
        ]
        for row in found.slice(0, 2 * ROWS).to_pylist()
    ]
    everything = left_out(len(rows), len(found), reading.facts.command("files"))
    return section("Partition values with the most files", table("Partition values", columns, rows), everything)


def _figures(reading: SinkReading) -> Iterator[tuple[str, str, str]]:
    facts = reading.facts
    current = reading.log.filter(reading.log["is_current"])
    waits = pc.sum(reading.waiting["file_size_in_bytes"]).as_py() or 0
    listed = int(reading.sizes.sum())
    yield "listed_files", f"{len(reading.sizes):,}", "Files that readers see."
    yield "listed_bytes", rendering.exact(listed, rendering.size), "Their size."
    yield "small_files", f"{facts.small_files:,}", f"Of these, smaller than {rendering.size(TARGET_FILE_SIZE)}."
    yield "joined_files", f"{facts.joined_files:,}", "About as many files are the small ones if they are joined."
    yield "directories", f"{len(reading.directories):,}", "Partition values with files."
    yield "list_entries", f"{pc.sum(current['entry_count']).as_py() or 0:,}", "Files that Spark's list names."
    yield "list_files", f"{len(current):,}", "Files of Spark's list that count."
    yield "waiting_files", f"{len(reading.waiting):,}", "Files whose rows no reader sees yet (maxDelay)."
    yield "waiting_bytes", rendering.exact(waits, rendering.size), "Their size."
    yield "unlisted_files", f"{facts.unlisted:,}", "Data files that Spark's list does not name."
    orphans = "-" if facts.orphans is None else f"{facts.orphans:,}"
    yield "orphan_files", orphans, "Files that no reader sees and that are older than three days."
    yield "orphan_bytes", rendering.exact(facts.orphan_bytes, rendering.size), "Their size."
    yield "damages", f"{facts.damages:,}", "What is not as Spark's list says."
