"""The page about all checkpoints below a directory: a line for each, and what to do about which."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.report.advice import LEVELS, Advice, CheckpointFacts, checkpoint_advice
from pyspark_statestore.report.markup import Part, element
from pyspark_statestore.report.page import (
    Column,
    Report,
    bar,
    cards,
    left_out,
    legend,
    page,
    section,
    table,
    tiles,
    title_of,
)

LINES = 1000
"""Checkpoints that the page has lines for."""

_PASTED = 10
"""Checkpoints for which a card has commands."""


def overview_report(url: str, checkpoints: pa.Table, at: datetime.datetime) -> Report:
    """Makes the page of all checkpoints below a directory.

    Args:
        url: The directory's URL.
        checkpoints: A row for each checkpoint: ``checkpoint``, its URL, columns of the table ``summary``, and
            ``error``, which says why it could not be read.
        at: When they were read, in UTC.
    """
    rows = checkpoints.to_pylist()
    facts = [None if row["error"] else CheckpointFacts(row["checkpoint"], row) for row in rows]
    advice = [() if each is None else checkpoint_advice(each) for each in facts]
    together = _together(rows, advice)
    sections: list[Part] = [
        tiles(_tiles(checkpoints, advice)),
        section(
            "What to do", cards(together, "Every checkpoint is within the limits that executors keep by themselves.")
        ),
        section("The checkpoints", _lines(url, rows, advice)),
    ]
    verdict = (
        f"{rendering.counted(len(rows), 'checkpoint')}. Look at one with: pyspark-statestore report PATH -o q1.html"
    )
    return Report(page(title_of("Checkpoints in", url), url, verdict, at, sections), together)


def _together(rows: Sequence[Mapping[str, Any]], advice: Sequence[Sequence[Advice]]) -> tuple[Advice, ...]:
    """One advice for all checkpoints that a rule speaks of."""
    by_rule: dict[str, list[tuple[str, Advice]]] = {}
    for row, given in zip(rows, advice, strict=True):
        for each in given:
            by_rule.setdefault(each.rule, []).append((row["checkpoint"], each))
    made = []
    for rule, found in by_rule.items():
        first = found[0][1]
        why = first.why
        if len(found) > 1:
            why = f"{len(found):,} checkpoints. Of the first: {first.why}"
        commands = [each.commands[0] for _, each in found[:_PASTED] if each.commands]
        if len(found) > _PASTED:
            why += f" There are commands for {_PASTED} of them; the list below marks all."
        made.append(Advice(rule, first.level, first.title, why, tuple(commands), (), first.page))
    broken = [row for row in rows if row["error"]]
    if broken:
        why = f"{len(broken):,} of these cannot be read, or not be looked into. {broken[0]['error']}"
        where = [CheckpointFacts(row["checkpoint"], {}).command("verify") for row in broken[:_PASTED]]
        made.append(
            Advice("unreadable", "act", "Find out what is damaged", why, tuple(where), (), "docs/is-it-sound.md")
        )
    return tuple(sorted(made, key=lambda each: list(LEVELS).index(each.level)))


def _tiles(checkpoints: pa.Table, advice: Sequence[Sequence[Advice]]) -> Iterator[tuple[str, str, str, str]]:
    def total(name: str) -> int:
        return int(pc.sum(checkpoints[name]).as_py() or 0)

    urgent = sum(any(each.level == "act" for each in given) for given in advice)
    urgent += sum(error is not None for error in checkpoints["error"].to_pylist())
    size, live = total("file_size_in_bytes"), total("live_bytes")
    yield (
        "checkpoints",
        rendering.count(len(checkpoints)),
        f"{urgent:,} with something to do",
        "act" if urgent else "fine",
    )
    yield "merged files", rendering.count(total("file_count")), rendering.size(size), ""
    amplification = rendering.ratio(size / live) if live else rendering.NOTHING
    yield "space amplification", amplification, f"{rendering.size(live)} of the merged bytes live", ""
    yield (
        "plain files",
        rendering.count(total("plain_file_count")),
        f"{rendering.size(total('plain_bytes'))}, not merged",
        "",
    )
    yield "state partitions", rendering.count(total("partition_count")), f"of {total('operator_count'):,} operators", ""


def _lines(url: str, rows: Sequence[Mapping[str, Any]], advice: Sequence[Sequence[Advice]]) -> list[Part]:
    columns = [
        Column("checkpoint", "name"),
        Column("what to do", "wide"),
        Column("live, dead, plain"),
        Column("space amplification", "number"),
        Column("merged files", "number"),
        Column("size", "number"),
        Column("live", "number"),
        Column("plain files", "number"),
        Column("plain", "number"),
        Column("partitions", "number"),
        Column("version", "number"),
    ]
    whole = max((_size(row) for row in rows), default=0)
    made: list[list[Part]] = []
    for row, given in list(zip(rows, advice, strict=True))[:LINES]:
        name = row["checkpoint"].removeprefix(url.rstrip("/") + "/")
        said = ", ".join(each.title for each in given) or "-"
        if row["error"]:
            made.append([name, row["error"], *[rendering.NOTHING] * (len(columns) - 2)])
            continue
        live = row["live_bytes"]
        parts = [("live", live), ("dead", row["file_size_in_bytes"] - live), ("plain", row["plain_bytes"])]
        made.append(
            [
                name,
                said,
                bar(parts, whole),
                rendering.cell([row["space_amplification"]], rendering.ratio),
                rendering.count(row["file_count"]),
                rendering.size(row["file_size_in_bytes"]),
                rendering.size(live),
                rendering.count(row["plain_file_count"]),
                rendering.size(row["plain_bytes"]),
                rendering.count(row["partition_count"]),
                rendering.cell([row["max_version"]], rendering.count),
            ]
        )
    key = legend([("live", "live"), ("dead", "dead"), ("plain", "plain")])
    everything = left_out(len(made), len(rows), f"pyspark-statestore list {url} --limit 0")
    return [key, table("The checkpoints", columns, made), everything or element("p")]


def _size(row: Mapping[str, Any]) -> int:
    return (row["file_size_in_bytes"] or 0) + (row["plain_bytes"] or 0)
