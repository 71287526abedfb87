"""The page about a checkpoint: what it holds, how that came, where it is skewed, and what to do about it."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.grouping import grouped
from pyspark_statestore.inspect import TABLES, Inspection, costs_of_segments
from pyspark_statestore.log.restorability import Store, committed, version_gaps
from pyspark_statestore.log.scan import Scan
from pyspark_statestore.log.spark_logs import COMMITS, content_of, entries, operator_metadata, operators
from pyspark_statestore.log.stopped import said_end
from pyspark_statestore.report.advice import (
    LITTLE,
    MOST_OPENS,
    PLAIN_FILE,
    SKEWED,
    SMALL_FILE,
    CheckpointFacts,
    PlannedCompaction,
    checkpoint_advice,
    merged_estimate,
)
from pyspark_statestore.report.charts import Series, growth, heat_map
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
    legend,
    note,
    page,
    section,
    table,
    tiles,
    title_of,
)
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.directory import FileInfo

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

_MAPS = 12
"""Operators of which there is a map; the page says how many there are."""

_LOGS = ("changelog", "delta")
_BASES = ("snapshot", "sst")


@dataclass(frozen=True)
class CheckpointReading:
    """What was read of a checkpoint.

    Attributes:
        url: Its URL.
        at: When it was read, in UTC.
        closed_after: The query's ``closedAfter``.
        files: The table ``files``.
        segments: The table ``segments``.
        plain: The table ``plain_files``.
        summary: The row of the table ``summary``.
        cold_opens: Merged files that a process opens when it starts.
        covered: Merged files that an index-only file speaks for.
        is_exported: Whether the merged files were exported, and do not count any more.
        names: The operators' names by their ids, as far as Spark's metadata has them.
        last_commit: The last committed batch and when that was; None without one.
        ended: When the query ended, if its last run has said so; None otherwise.
        gaps: What stores lack of versions that they should have.
    """

    url: str
    at: datetime.datetime
    closed_after: datetime.timedelta
    files: pa.Table
    segments: pa.Table
    plain: pa.Table
    summary: Mapping[str, Any]
    cold_opens: int
    covered: int
    is_exported: bool
    names: Mapping[int, str]
    last_commit: tuple[int, datetime.datetime | None] | None
    ended: datetime.datetime | None
    gaps: tuple[str, ...]

    @classmethod
    def of(
        cls, inspection: Inspection, directory: Directory, closed_after: datetime.timedelta, callback: Callback | None
    ) -> CheckpointReading:
        """Reads what a page needs.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        at = datetime.datetime.now(datetime.timezone.utc)
        before = committed(directory)
        tables = inspection.tables("files", "segments", "plain_files", "summary", callback=callback)
        scan = inspection.scan()
        commits = list(entries(directory, COMMITS).items())
        return cls(
            url=directory.location.url,
            at=at,
            closed_after=closed_after,
            files=tables["files"],
            segments=tables["segments"],
            plain=tables["plain_files"],
            summary=tables["summary"].to_pylist()[0],
            cold_opens=len(scan.files) - len(scan.covered),
            covered=len(scan.covered),
            is_exported=bool(scan.exports),
            names=_operator_names(directory),
            last_commit=(commits[-1][0], commits[-1][1].modified) if commits else None,
            ended=_ended(directory, scan, _infos(tables["plain_files"])),
            gaps=_gaps(directory, tables, before, [batch for batch, _ in commits]),
        )

    @cached_property
    def partitions(self) -> pa.Table:
        """The costs of the partitions."""
        return costs_of_segments(self.segments, self.plain, "partitions")

    @cached_property
    def types(self) -> pa.Table:
        """The costs of the types of files."""
        return costs_of_segments(self.segments, self.plain, "types")

    @property
    def store_kind(self) -> str:
        """What keeps the state, as the names of its files tell; empty without files."""
        paths = [*self.segments["logical_path"].chunks, *self.plain["logical_path"].chunks]
        for kind, pattern in (("RocksDB", r"\.(zip|sst|changelog)$"), ("heap store", r"\.(delta|snapshot)$")):
            if any(pc.any(pc.match_substring_regex(chunk, pattern)).as_py() for chunk in paths):
                return kind
        return ""

    def heap_bytes(self) -> int:
        """Bytes of the newest snapshot of each heap store."""
        newest: dict[str, tuple[int, int]] = {}
        for rows, size in ((self.segments, "length"), (self.plain, "file_size_in_bytes")):
            for path, length in zip(rows["logical_path"].to_pylist(), rows[size].to_pylist(), strict=True):
                if found := re.fullmatch(r"(.*)/(\d+)\.snapshot", path):
                    newest[found[1]] = max(newest.get(found[1], (-1, 0)), (int(found[2]), length))
        return sum(length for _, length in newest.values())

    @property
    def newest(self) -> datetime.datetime | None:
        """When something was written last, by any clock that has said so."""
        columns = [self.files["last_modified_at"], self.segments["written_at"], self.plain["last_modified_at"]]
        found = [pc.max(column).as_py() for column in columns]
        found.append(self.last_commit[1] if self.last_commit else None)
        return max((each for each in found if each is not None), default=None)

    @property
    def is_running(self) -> bool | None:
        """Whether the query counts as running; None where nothing says when it has written."""
        if self.ended is not None:
            return False
        return None if self.newest is None else self.at - self.newest < self.closed_after

    def skewed(self) -> tuple[int, int, float] | None:
        """The partition that stands out most of its operator, where that is worth a word."""
        worst = None
        for operator, found in _by_operator(self.partitions):
            sizes = found["total_bytes"].to_numpy()
            times = float(sizes.max() / max(sizes.mean(), 1))
            if times > SKEWED and sizes.max() >= PLAIN_FILE and (worst is None or times > worst[2]):
                worst = (operator, int(found["partition_id"][int(sizes.argmax())].as_py()), times)
        return worst

    def version_count(self) -> int:
        """The versions of the operator that has the most."""
        columns = ["operator_id", "version"]
        live = self.segments.filter(pc.equal(self.segments["status"], "live"))
        both = pa.concat_tables([live.select(columns), self.plain.select(columns)])
        each = grouped(both.filter(pc.is_valid(both["version"])), "operator_id").aggregate(
            [("version", "count_distinct")]
        )
        return int(pc.max(each["version_count_distinct"]).as_py() or 0)

    def facts(self, planned: Callable[[], PlannedCompaction | None]) -> CheckpointFacts:
        """The figures by which the page gives advice."""
        held = dict(zip(self.types["type"].to_pylist(), self.types["live_bytes"].to_pylist(), strict=True))
        small = pc.and_(
            pc.less_equal(self.files["file_size_in_bytes"], SMALL_FILE), pc.greater(self.files["live_segment_count"], 0)
        )
        return CheckpointFacts(
            url=self.url,
            summary=self.summary,
            is_running=self.is_running,
            is_exported=self.is_exported,
            needs_path_door=any(name.startswith("transformWithState") for name in self.names.values()),
            cold_opens=self.cold_opens,
            small_file_count=pc.sum(small).as_py() or 0,
            unsealed_count=self.files["is_sealed"].to_pylist().count(False),
            version_count=self.version_count(),
            log_bytes=sum(held.get(kind, 0) for kind in _LOGS),
            base_bytes=sum(held.get(kind, 0) for kind in _BASES),
            heap_bytes=self.heap_bytes(),
            gaps=self.gaps,
            skew=self.skewed(),
            planned=planned,
        )


def checkpoint_report(reading: CheckpointReading, planned: Callable[[], PlannedCompaction | None]) -> Report:
    """Makes the page of a checkpoint.

    Args:
        reading: What was read.
        planned: Makes a dry run of ``compact``; None where that is not possible.
    """
    facts = reading.facts(planned)
    advice = checkpoint_advice(facts)
    fine = "Everything is within the limits that executors keep by themselves."
    if facts.is_bloated:
        fine = "What is not live is index, which compaction cannot make smaller: the files in this state are tiny."
    elif facts.is_amplified:
        fine = f"Less than {rendering.size(LITTLE)} is dead. Executors leave so little alone, whatever its share is."
    if not reading.summary["file_count"] and not reading.summary["plain_file_count"]:
        fine = "There is no state here yet, or the query has no stateful operator."
    sections: list[Part] = [
        tiles(_tiles(reading, facts)),
        section("What to do", cards(advice, fine)),
        section("Where the bytes are", _bytes(reading)),
        section("How it grew", _growth(reading)),
        *_partitions(reading),
        *_files(reading),
        section("All figures", figures("Summary of the checkpoint", _figures(reading))),
    ]
    text = page(title_of("Checkpoint", reading.url), reading.url, _verdict(reading, facts), reading.at, sections)
    return Report(text, advice)


def _verdict(reading: CheckpointReading, facts: CheckpointFacts) -> str:
    figures_, store = reading.summary, reading.store_kind
    kind = f" of a {store}" if store == "heap store" else f" of {store}" if store else ""
    if facts.is_stock or (reading.is_exported and figures_["plain_file_count"]):
        count, size = figures_["plain_file_count"], rendering.size(figures_["plain_bytes"])
        small = pc.sum(pc.less(reading.plain["file_size_in_bytes"], PLAIN_FILE)).as_py()
        said = f"State{kind} as stock Spark writes it: {rendering.counted(count, 'plain file')} of {size}, "
        said += f"{small:,} of them smaller than {rendering.size(PLAIN_FILE)}."
        return (
            said
            if reading.is_exported
            else f"{said} Merged, they would be about {merged_estimate(figures_['plain_bytes'])} files."
        )
    if not figures_["file_count"]:
        return "There are no state files here."
    said = f"Merged state{kind}: {rendering.counted(figures_['file_count'], 'merged file')} "
    held = rendering.counted(figures_["live_segment_count"], "live file")
    return f"{said}instead of the {held} that Spark knows by name."


def _tiles(reading: CheckpointReading, facts: CheckpointFacts) -> Iterator[tuple[str, str, str, str]]:
    figures_ = reading.summary
    yield from _restart(figures_)
    size, live = figures_["file_size_in_bytes"], figures_["live_bytes"]
    if figures_["file_count"]:
        amplification = rendering.cell([figures_["space_amplification"]], rendering.ratio)
        level = "act" if facts.wants_compaction else "" if facts.is_amplified else "fine"
        left_alone = ": too few to matter" if facts.is_amplified and not facts.is_bloated else ""
        yield "space amplification", amplification, f"bytes kept for each live one{left_alone}", level
        yield "merged files", rendering.count(figures_["file_count"]), _sealed(facts.unsealed_count or 0), ""
        yield "size", rendering.size(size), f"{rendering.size(live)} live, {rendering.size(size - live)} dead", ""
        held = f"{rendering.count(figures_['segment_count'] - figures_['live_segment_count'])} dead beside them"
        yield "live segments", rendering.count(figures_["live_segment_count"]), f"files to Spark; {held}", ""
        level = "act" if reading.cold_opens > MOST_OPENS else "fine"
        yield "a start opens", rendering.counted(reading.cold_opens, "file"), _covered(reading), level
    if figures_["plain_file_count"] or not figures_["file_count"]:
        level = "act" if facts.is_stock and not facts.is_converted else ""
        plain = rendering.size(figures_["plain_bytes"])
        yield "plain files", rendering.count(figures_["plain_file_count"]), f"{plain}, not merged", level
    if facts.is_stock:
        versioned = len(reading.plain) - reading.plain["version"].null_count
        each = versioned / max(facts.version_count or 1, 1)
        yield "files of a version", f"about {each:,.0f}", "and SSTs besides, where there are any", ""
    oldest, newest = figures_["min_version"], figures_["max_version"]
    versions = "-" if newest is None else f"{oldest:,} to {newest:,}"
    yield "state versions", versions, f"{facts.version_count or 0:,} with files of their own", ""
    stores = rendering.counted(figures_["partition_count"], "partition")
    names = ", ".join(sorted(set(reading.names.values())))
    named = f"{stores}: {names}" if names else stores
    yield "operators", rendering.count(figures_["operator_count"]), named, ""
    if reading.last_commit is not None:
        batch, at = reading.last_commit
        when = rendering.cell([at], rendering.time)
        yield "last commit", f"batch {batch:,}", f"{when} UTC", ""
    if reading.newest is not None:
        seconds = max(1, round((reading.at - reading.newest).total_seconds()))
        ago = rendering.duration(datetime.timedelta(seconds=seconds)).split()[0]
        yield "last written", f"{ago} ago", _running(reading), ""


def _running(reading: CheckpointReading) -> str:
    """What is known of the query: what it has said when it ended, or what the last write says."""
    if reading.ended is not None:
        return f"its query ended at {rendering.cell([reading.ended], rendering.time)} UTC"
    counts = "counts as running until" if reading.is_running else "counts as stopped"
    return f"its query {counts} {rendering.duration(reading.closed_after)} after that"


def _ended(directory: Directory, scan: Scan, plain: Iterator[FileInfo]) -> datetime.datetime | None:
    """When the query ended, as far as that can be found out."""
    with suppress(StateStoreFilesError):
        return said_end(directory, scan, plain)
    return None


def _infos(plain: pa.Table) -> Iterator[FileInfo]:
    """The rows of the table ``plain_files``, as a listing has them."""
    columns = (plain[name].to_pylist() for name in ("logical_path", "file_size_in_bytes", "last_modified_at"))
    return (FileInfo(*each) for each in zip(*columns, strict=True))


def _restart(figures_: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    committed_, restorable = figures_["committed_version"], figures_["restorable_version"]
    if committed_ is None:  # no batch, or it cannot be found out, and a card says so
        return
    if not figures_["not_restorable"]:
        yield "a restart", f"version {committed_:,}", "the last batch's state is all there", "fine"
        return
    can = "nor is an older one known to be" if restorable is None else f"the newest that can be is {restorable:,}"
    yield "a restart", "fails", f"version {committed_:,} cannot be restored; {can}", "act"


def _sealed(unsealed: int) -> str:
    return f"{unsealed:,} not sealed by their writers" if unsealed else "all sealed by their writers"


def _covered(reading: CheckpointReading) -> str:
    if not reading.covered:
        return "no index-only file is there"
    return f"index-only files cover {reading.covered:,} more"


def _bytes(reading: CheckpointReading) -> list[Part]:
    figures_ = reading.summary
    live, plain = figures_["live_bytes"], figures_["plain_bytes"]
    held = pc.sum(reading.segments["length"]).as_py() or 0
    parts = [
        ("live", "live segments", live),
        ("dead", "dead segments", held - live),
        ("rest", "indexes, headers, torn tails", figures_["file_size_in_bytes"] - held),
        ("plain", "plain files", plain),
    ]
    whole = figures_["file_size_in_bytes"] + plain
    shown = [(kind, f"{words} {rendering.size(size)}") for kind, words, size in parts if size]
    columns = [Column("type"), *_COSTS]
    rows = [[rendering.text(row["type"]), *_cost_cells(row)] for row in reading.types.to_pylist()]
    made: list[Part] = [bar([(kind, size) for kind, _, size in parts], whole, tall=True), legend(shown)]
    return [*made, table("Bytes by type of file", columns, rows)] if rows else made


_COSTS = (
    Column("bytes", "number"),
    Column("live", "number"),
    Column("dead", "number"),
    Column("live files", "number"),
    Column("share", "number"),
    Column("live and dead"),
)


def _cost_cells(row: Mapping[str, Any]) -> list[Part]:
    plain = row["plain_file_count"]
    count = f"{row['live_segment_count'] + plain:,} of {row['segment_count'] + plain:,}"
    kind = "plain" if plain and not row["segment_count"] else "live"
    drawn = bar([(kind, row["live_bytes"]), ("dead", row["dead_bytes"])], row["total_bytes"])
    sizes = [rendering.size(row[name]) for name in ("total_bytes", "live_bytes", "dead_bytes")]
    return [*sizes, count, rendering.share(row["share"]), drawn]


def _growth(reading: CheckpointReading) -> list[Part]:
    segments = reading.segments
    written = _micros(segments["written_at"])
    length, is_live = segments["length"].to_numpy(), pc.equal(segments["status"], "live").to_numpy()
    plain = reading.plain.filter(pc.is_valid(reading.plain["last_modified_at"]))
    changed = _micros(plain["last_modified_at"])

    def parts(of_segments: np.ndarray, of_plain: np.ndarray) -> list[Series]:
        return [
            Series.growing("live", "live", written[is_live], of_segments[is_live]),
            Series.growing("dead", "dead by now", written[~is_live], of_segments[~is_live]),
            Series.growing("plain", "plain", changed, of_plain),
        ]

    ones: tuple[np.ndarray, np.ndarray] = (np.ones(len(segments), "i8"), np.ones(len(plain), "i8"))
    by_version = pa.concat_tables(
        [
            pa.table([segments["version"], written], ["version", "at"]),
            pa.table([plain["version"], changed], ["version", "at"]),
        ]
    )
    by_version = by_version.filter(pc.is_valid(by_version["version"])).sort_by("at")
    highest = np.maximum.accumulate(by_version["version"].to_numpy()) if len(by_version) else np.zeros(0, "i8")
    versions = Series("seen", "newest version", by_version["at"].to_numpy(), highest)
    merged = _micros(reading.files["created_at"])
    charts = [
        growth(
            "Bytes that are there, by when they were written",
            rendering.size,
            parts(length, plain["file_size_in_bytes"].to_numpy()),
        ),
        growth("Files as Spark knows them", rendering.count, parts(*ones)),
        growth("The newest state version", rendering.count, [versions], stacked=False),
    ]
    if len(merged):
        series = [Series.growing("live", "merged files", merged, np.ones(len(merged), "i8"))]
        charts.append(growth("Merged files that are there, by when they were begun", rendering.count, series))
    if len(reading.plain):
        sizes = reading.plain["file_size_in_bytes"].to_numpy()
        charts.append(
            element("figure", element("h3", "Plain files by size"), by_size(sizes, PLAIN_FILE), class_="chart")
        )
    remark = (
        "What was deleted and cleaned away meanwhile is not counted any more. Copies keep the time of what they copy."
    )
    return [element("div", charts, class_="charts"), note(remark)]


def _partitions(reading: CheckpointReading) -> Iterator[Markup]:
    found = reading.partitions
    if not len(found):
        return
    maps: list[Markup] = []
    means: dict[int, float] = {}
    for operator, each in _by_operator(found):
        ordered = each.sort_by("partition_id")
        sizes = ordered["total_bytes"].to_pylist()
        means[operator] = sum(sizes) / len(sizes)
        times = max(sizes) / max(means[operator], 1)
        said = f"The largest has {times:.1f} times the average of {rendering.size(int(means[operator]))}."
        if len(maps) < _MAPS:
            title = f"Operator {operator}{_named(reading, operator)}: {rendering.counted(len(sizes), 'partition')}"
            maps.append(heat_map(title, ordered["partition_id"].to_pylist(), sizes, rendering.size, said))
    columns = [Column("operator"), Column("partition"), Column("times average", "number"), *_COSTS]
    rows = [
        [
            f"{row['operator_id']}{_named(reading, row['operator_id'])}",
            str(row["partition_id"]),
            f"{row['total_bytes'] / max(means[row['operator_id']], 1):.1f}",
            *_cost_cells(row),
        ]
        for row in found.slice(0, ROWS).to_pylist()
        if row["operator_id"] in means
    ]
    more = note(f"Maps of {_MAPS} of {len(means):,} operators.") if len(means) > _MAPS else None
    everything = left_out(len(rows), len(found), _command(reading, "top", "--by partitions", f"-n {len(found)}"))
    drawn = element("div", maps, class_="charts")
    largest = table("The partitions with the most bytes", columns, rows)
    yield section(
        "Operators and partitions",
        drawn,
        more,
        element("h3", "The largest", style="margin-top:1rem"),
        largest,
        everything,
    )


def _named(reading: CheckpointReading, operator: int) -> str:
    return f" ({reading.names[operator]})" if operator in reading.names else ""


def _files(reading: CheckpointReading) -> Iterator[Markup]:
    files = reading.files
    if len(files):
        dead = pc.subtract(files["file_size_in_bytes"], files["live_bytes"])
        ranked = files.append_column("dead_bytes", dead)
        columns = [
            Column("file", "name"),
            Column("size", "number"),
            Column("live", "number"),
            Column("dead", "number"),
            Column("space amplification", "number"),
            Column("live segments", "number"),
            Column("live and dead"),
            Column("state"),
            Column("begun (UTC)"),
            Column("by"),
        ]

        def list_of(order: str) -> tuple[list[list[Part]], Markup]:
            rows = [_file_cells(row) for row in ranked.sort_by([(order, "descending")]).slice(0, ROWS).to_pylist()]
            return rows, table(f"Merged files with the highest {order}", columns, rows)

        rows, deadest = list_of("dead_bytes")
        everything = left_out(len(rows), len(files), _command(reading, "files"))
        parts: list[Part] = [element("h3", "With the most dead bytes"), deadest]
        if len(files) > ROWS:
            parts += [element("h3", "The largest", style="margin-top:1rem"), list_of("file_size_in_bytes")[1]]
        remark = note("Of a file, all that is no live segment counts as dead, its index, too.")
        yield section("Merged files", *parts, remark, everything)
    if len(reading.plain):
        ranked = reading.plain.sort_by([("file_size_in_bytes", "descending")]).slice(0, ROWS)
        columns = [Column("file", "name"), Column("size", "number"), Column("type"), Column("changed (UTC)")]
        rows = [
            [
                rendering.text(row["logical_path"]),
                rendering.size(row["file_size_in_bytes"]),
                row["type"],
                rendering.cell([row["last_modified_at"]], rendering.time),
            ]
            for row in ranked.to_pylist()
        ]
        largest = table("The largest plain files", columns, rows)
        everything = left_out(len(rows), len(reading.plain), _command(reading, "files", "--plain"))
        yield section("The largest plain files", largest, everything)


def _file_cells(row: Mapping[str, Any]) -> list[Part]:
    size, live = row["file_size_in_bytes"], row["live_bytes"]
    return [
        rendering.name(row["file_path"]),
        rendering.size(size),
        rendering.size(live),
        rendering.size(row["dead_bytes"]),
        rendering.cell([row["space_amplification"]], rendering.ratio),
        rendering.part_of(row["live_segment_count"], row["segment_count"]),
        bar([("live", live), ("dead", size - live)], size),
        rendering.file_state(row["is_sealed"], row["is_closed"], row["is_orphan"]),
        rendering.cell([row["created_at"]], rendering.time),
        rendering.cell([row["executor_id"]], rendering.text),
    ]


def _figures(reading: CheckpointReading) -> Iterator[tuple[str, str, str]]:
    for column in TABLES["summary"]:
        form = rendering.form_of(column.name, column.type)
        yield column.name, rendering.exact(reading.summary[column.name], form), column.about


def _command(reading: CheckpointReading, verb: str, *options: str) -> str:
    return CheckpointFacts(reading.url, reading.summary).command(verb, *options)


def _gaps(
    directory: Directory, tables: Mapping[str, pa.Table], before: Sequence[int], later: Sequence[int]
) -> tuple[str, ...]:
    """What stores lack of versions that they should have, by the names of their files."""
    live = tables["segments"].filter(pc.equal(tables["segments"]["status"], "live"))
    names = ["operator_id", "partition_id", "store_name", "version"]
    there = pa.concat_tables([each.select(names) for each in (live, tables["plain_files"])])
    each = grouped(there.filter(pc.is_valid(there["version"])), names).aggregate([])
    have: dict[Store, set[int]] = defaultdict(set)
    for operator, partition, name, version in zip(*(each[column].to_pylist() for column in names), strict=True):
        have[operator, partition, name].add(version)
    return tuple(found.reason for found in version_gaps(directory, have, before, later))


def _by_operator(partitions: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The costs of each operator's partitions. Files that belong to none, as Spark never writes them, are left out."""
    known = partitions.filter(pc.and_(pc.is_valid(partitions["operator_id"]), pc.is_valid(partitions["partition_id"])))
    for operator in sorted(set(known["operator_id"].to_pylist())):
        yield operator, known.filter(pc.equal(known["operator_id"], operator))


def _micros(times: pa.ChunkedArray) -> np.ndarray:
    micros: np.ndarray = times.cast(pa.int64()).to_numpy()
    return micros


def _operator_names(directory: Directory) -> dict[int, str]:
    """The operators' names. Where Spark's metadata cannot be read, a number has to do."""
    found = {}
    for operator in operators(directory):
        try:
            metadata = operator_metadata(directory, operator)
            if metadata:
                found[operator] = str(content_of(metadata[1])["operatorInfo"]["operatorName"])
        except (ValueError, KeyError, TypeError, FileNotFoundError, StateStoreFilesError):
            continue
    return found
