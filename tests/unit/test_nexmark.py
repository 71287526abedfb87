"""Nexmark without Spark: its events are those of the original's rules, and what is different is found."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from benchmarks import nexmark, nexmark_figures, nexmark_flink
from benchmarks.nexmark_events import AUCTION, BID, PERSON, Shape, write_files
from benchmarks.nexmark_places import PLACES
from benchmarks.nexmark_process import last_of_each_key, order_of_restarts, same, same_sums
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_sides import OF_PLACE, USUAL, orders, polling_at
from benchmarks.sides import BenchmarkError, require_plain_name, start_session

SHAPE = Shape(batches=2, events=50_000)
GIVEN = {"output": [3, 17], "state_rows": [5]}
"""What a batch gives out and leaves in state."""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    files = write_files(SHAPE, tmp_path_factory.mktemp("events") / "files", closing=True)
    return [pq.read_table(file) for file in files]


def column(table: Any, struct: str, name: str) -> Any:
    kind = {"person": PERSON, "auction": AUCTION, "bid": BID}[struct]
    rows = table.filter(np.asarray(table["event_type"]) == kind)
    return rows[struct].combine_chunks().field(name)


def test_there_are_46_bids_for_three_auctions_and_a_person(events: list[Any]) -> None:
    for table in events[:2]:
        assert Counter(table["event_type"].to_pylist()) == {PERSON: 1_000, AUCTION: 3_000, BID: 46_000}
        present = {name: sum(table[name].is_valid().to_pylist()) for name in ("person", "auction", "bid")}
        assert present == {"person": 1_000, "auction": 3_000, "bid": 46_000}


def test_ids_go_on_from_file_to_file(events: list[Any]) -> None:
    for struct, count in (("person", 1_000), ("auction", 3_000)):
        ids = [column(table, struct, "id").to_pylist() for table in events[:2]]
        assert ids[0] + ids[1] == [*range(1_000, 1_000 + 2 * count)]


def test_some_are_hot(events: list[Any]) -> None:
    """Half of all bids are for every hundredth auction, three quarters by the second of every hundred persons."""
    bids = events[1]
    auctions, bidders = (np.asarray(column(bids, "bid", name)) for name in ("auction", "bidder"))
    sellers = np.asarray(column(bids, "auction", "seller"))
    assert np.mean(auctions % 100 == 0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(bidders % 100 == 1) == pytest.approx(0.75, abs=0.02)
    assert np.mean(sellers % 100 == 0) == pytest.approx(0.75, abs=0.03)
    prices = np.log10(np.asarray(column(bids, "bid", "price")) / 100)
    assert np.histogram(prices, bins=6, range=(0, 6))[0] / len(prices) == pytest.approx(1 / 6, abs=0.02)


def test_bids_are_for_auctions_that_are_near(events: list[Any]) -> None:
    """For the last hundred, one of which may be the hot one of a hundred, or for one of ten that come."""
    table = events[1]
    newest, far = 999 + 3_000, []
    for kind, auction, bid in zip(*(table[name].to_pylist() for name in ("event_type", "auction", "bid")), strict=True):
        newest = auction["id"] if kind == AUCTION else newest
        if kind == BID:
            far.append(newest - bid["auction"])
    assert (min(far), max(far)) == (-10, 100)


def test_events_have_the_size_that_they_are_said_to_have(events: list[Any]) -> None:
    for struct, average, fixed, texts in (
        ("person", 200, 8, ("name", "emailAddress", "creditCard", "city", "state", "extra")),
        ("auction", 500, 48, ("itemName", "description", "extra")),
        ("bid", 100, 32, ("extra",)),
    ):
        sizes = sum(np.array([len(value) for value in column(events[0], struct, name).to_pylist()]) for name in texts)
        assert np.mean(sizes) + fixed == pytest.approx(average, rel=0.02)


def test_auctions_last_until_a_hundred_more_were_opened(events: list[Any]) -> None:
    opened, closed = (np.asarray(column(events[1], "auction", name)) for name in ("dateTime", "expires"))
    seconds = (closed - opened) / np.timedelta64(1, "s")
    assert 0 < seconds.min() < seconds.max() <= SHAPE.longest_auction_seconds
    # A hundred auctions are 1,666 events.
    assert seconds.mean() == pytest.approx(1_666 * SHAPE.seconds / SHAPE.events, rel=0.1)


def test_time_goes_on_and_so_does_arrival(events: list[Any]) -> None:
    times = []
    for table in events:
        for kind, *structs in zip(
            *(table[n].to_pylist() for n in ("event_type", "person", "auction", "bid")), strict=True
        ):
            times.append(structs[kind]["dateTime"])
    arrivals = [time for table in events for time in table["arrival"].to_pylist()]
    assert times == sorted(times)
    assert arrivals == sorted(arrivals)
    assert all(0 < (arrival - time).total_seconds() <= 2 for arrival, time in zip(arrivals, times, strict=True))


def test_a_seed_makes_the_same_files_however_many_there_are(tmp_path: Path, events: list[Any]) -> None:
    again = write_files(dataclasses.replace(SHAPE, batches=1), tmp_path / "again")
    other = write_files(dataclasses.replace(SHAPE, batches=1, seed=7), tmp_path / "other")
    assert pq.read_table(again[0]).equals(events[0])
    assert not pq.read_table(other[0]).equals(events[0])


def test_closing_events_have_nothing_to_do_with_others(events: list[Any]) -> None:
    ids: Counter[int] = Counter()
    for table in events[2:]:
        for struct, name in (
            ("person", "id"),
            ("auction", "id"),
            ("auction", "seller"),
            ("bid", "auction"),
            ("bid", "bidder"),
        ):
            ids.update(column(table, struct, name).to_pylist())
    assert len(ids) == 10
    assert max(ids) < 0


def test_rows_that_differ_are_named() -> None:
    same("q", [(1, "a"), (1, "a"), (2, None)], [(2, None), (1, "a"), (1, "a")])
    with pytest.raises(BenchmarkError, match=r"q differs: 1 of 2 rows are missing, 1 are too many; .*\(1, 'b'\)"):
        same("q", [(1, "a"), (2, "b")], [(1, "b"), (2, "b")])
    with pytest.raises(BenchmarkError, match="0 of 1 rows are missing, 1 are too many"):
        same("q", [(1, "a")], [(1, "a"), (1, "a")])


def test_the_last_update_of_a_key_counts() -> None:
    query = dataclasses.replace(QUERIES["q18"], key=("b",))
    assert last_of_each_key(query, ["a", "b"], {1: [(3, "x")], 0: [(1, "x"), (2, "y")]}) == [(3, "x"), (2, "y")]


def sides(**merged: float) -> dict[str, dict[str, float]]:
    stock = {"batch_seconds": 2.0, "cpu_seconds": 2.0, "state_calls": 1000.0, "all_calls": 1100.0}
    return {
        "stock": stock,
        "merged": {"batch_seconds": 2.0, "cpu_seconds": 1.0, "state_calls": 0.0, "all_calls": 100, **merged},
    }


def test_what_is_a_tenth_worse_is_found() -> None:
    published = {"local": {"q4": sides(), "q5": sides()}}
    found = {
        "local": {"q4": sides(batch_seconds=2.19), "q5": sides(cpu_seconds=1.15, state_calls=30)},
        "s3": {"q4": sides()},
    }
    worse = nexmark_figures.regressions(published, found)
    assert [(each.query, each.figure) for each in worse] == [("q5", "cpu_seconds"), ("q5", "state_calls")]
    assert str(worse[0]) == "local, q5, RocksDB, merged: cpu_seconds is 0.575 of stock's, and 0.5 was published"
    # A machine that is slower altogether is no regression, nor is a file more in ten batches.
    timed = ("batch_seconds", "cpu_seconds")
    slower = {
        name: {figure: value * 3 for figure, value in side.items() if figure in timed} for name, side in sides().items()
    }
    slower["merged"]["state_calls"] = 1.0
    assert nexmark_figures.regressions(published, {"local": {"q4": slower}}) == []


def test_means_are_compared_where_both_runs_have_them() -> None:
    """They differ less from run to run than medians do, which all runs have."""

    def mean(seconds: float) -> dict[str, dict[str, float]]:
        return {name: {**side, "mean_seconds": seconds if name == "merged" else 2.0} for name, side in sides().items()}

    def worse(published: Any, found: Any) -> list[str]:
        return [
            each.figure for each in nexmark_figures.regressions(*({"local": {"q4": of}} for of in (published, found)))
        ]

    assert worse(mean(2.0), mean(2.3)) == ["mean_seconds"]
    slow = mean(2.0)
    slow["merged"]["batch_seconds"] = 2.3
    assert worse(mean(2.0), slow) == []
    assert worse(sides(), slow) == ["batch_seconds"]
    assert nexmark_figures.not_compared({"local": {"q4": sides()}}, {"local": {"q4": slow}}) == []


def test_only_what_is_worse_twice_counts() -> None:
    published, asked = {"local": {"q4": sides(), "q5": sides()}}, []
    found = {"local": {"q4": sides(batch_seconds=3), "q5": sides(batch_seconds=3)}}

    def measure(place: str, query: str) -> list[dict[str, Any]]:
        asked.append(query)
        ms = {"q4": 2_000, "q5": 2_900}[query]
        side: dict[str, Any] = {
            "batches": [{"trigger_ms": 2_000, "cpu_seconds": 2.0, "state_calls": 1_000}],
            "left": {},
            "amplification": None,
        }
        merged = {**side, "batches": [{"trigger_ms": ms, "cpu_seconds": 2.0, "state_calls": 0}]}
        return [{"place": place, "query": query, "shape": {"events": 10}, "sides": {"stock": side, "merged": merged}}]

    worse = nexmark.check_again(published, found, measure)
    assert asked == ["q4", "q5"]
    assert [(each.query, each.figure) for each in worse] == [("q5", "batch_seconds")]


def test_what_is_not_compared_is_named() -> None:
    heap = {"heap-stock": sides()["stock"], "heap-merged": sides()["merged"]}
    published: nexmark_figures.Figures = {"local": {"q4": {**sides(), **heap}, "q7": sides()}}
    more = {**sides(state_files=1.0), "remote": sides()["merged"]}
    found = {"local": {"q4": more, "q5": sides()}, "s3": {"q4": sides()}}
    assert nexmark_figures.not_compared(published, found) == [
        "local q4 RocksDB, merged: state_files of only one run is known",
        "local q4 RocksDB, merged, remote-first was not published",
        "local q4 heap, merged was not run",
        "local q5 RocksDB, merged was not published",
        "s3 q4 RocksDB, merged was not published",
    ]
    assert nexmark_figures.compared(published, found).keys() == {
        ("local", "q4", "merged", figure) for figure in ("batch_seconds", "cpu_seconds", "state_calls", "all_calls")
    }
    assert nexmark_figures.not_compared(published, published) == []


@pytest.mark.parametrize(("count", "batches"), [(1, 16), (2, 16), (2, 46), (3, 16), (4, 16), (4, 46), (5, 16), (6, 16)])
def test_sides_take_turns(count: int, batches: int) -> None:
    """In the batches that figures are of, each follows each, itself too, about equally often."""
    rounds = orders(count, batches)
    assert len(rounds) == batches
    assert all(sorted(each) == [*range(count)] for each in rounds)
    turns = [(side, number) for number, each in enumerate(rounds) for side in each]
    pairs = Counter((before, side) for (before, _), (side, number) in itertools.pairwise(turns) if number >= 6)
    expected = (batches - 6) / count
    assert len(pairs) == count**2
    assert all(abs(found - expected) <= 1.5 for found in pairs.values()), pairs
    places = Counter((place, side) for each in rounds for place, side in enumerate(each))
    assert all(abs(found - batches / count) <= 3 for found in places.values()), places


@pytest.mark.parametrize(
    ("count", "first", "end"),
    [(1, 0, 1), (3, 1, 3), (15, 7, 15), (16, 6, 16), (20, 6, 16), (35, 6, 26), (46, 6, 46)],
)
def test_figures_are_of_tens_of_batches_with_a_snapshot_in_each(count: int, first: int, end: int) -> None:
    """Of fewer than sixteen it is the second half."""
    batches = [{"batch": number} for number in range(count)]
    assert nexmark_figures.steady_batches(batches) == batches[first:end]


def test_missed_targets_are_named() -> None:
    found = {"local": {"q4": sides(batch_seconds=2.2)}, "local5": {"q4": sides(batch_seconds=1.1, state_calls=21)}}
    assert nexmark_figures.missed(found) == [
        "local q4 RocksDB, merged: the median batch takes 1.1 of stock's, target 1.05",
        "local5 q4 RocksDB, merged: calls for state are 0.021 of stock's, target 0.02",
    ]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page into which figures are published; what else is published is beside it."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- nexmark:begin -->\nold\n<!-- nexmark:end -->\nafter\n")
    for name, path in (
        ("PAGE", page),
        ("PUBLISHED", tmp_path / "published" / "f.json"),
        ("PICTURE", tmp_path / "p.svg"),
    ):
        monkeypatch.setattr(nexmark, name, path)
    return page


def test_publishing_fills_the_page(tmp_path: Path, page: Path) -> None:
    about = {"spark": "4.3.0", "java": "17", "cpus": 2, "commit": "0123456789abcdef"}
    scenario = {"partitions": 4, "maintenance_interval": "1s"}
    shape = dataclasses.replace(SHAPE, batches=1)
    common: dict[str, Any] = {"environment": about, "shape": dataclasses.asdict(shape), "scenario": scenario}
    common |= {"differs": "", "compared": True}

    def raw(place: str, query: str, stock_ms: int, merged_ms: int) -> dict[str, Any]:
        both: dict[str, Any] = {
            name: {"batches": [{"trigger_ms": ms, "state_calls": calls, **GIVEN}], "left": {}, "amplification": None}
            for name, ms, calls in (("stock", stock_ms, 100), ("merged", merged_ms, 1))
        }
        return {**common, "place": place, "query": query, "sides": both}

    nexmark.publish([raw("local5", "q5", 1_000, 1_000)])
    nexmark.publish([raw("local5", "q4", 4_000, 1_000)])
    longer = dataclasses.asdict(dataclasses.replace(shape, seconds=3))
    nexmark.publish([{**raw("local", "q4", 9_000, 9_000), "shape": longer}])
    warm = dataclasses.asdict(dataclasses.replace(shape, warm_up=30))
    for other in ({"shape": longer}, {"shape": warm}, {"environment": {**about, "spark": "4.2.0"}}):
        with pytest.raises(click.ClickException, match="Publish all of them: --publish --place local5"):
            nexmark.publish([{**raw("local5", "q7", 9_000, 9_000), **other}])
        with pytest.raises(click.ClickException, match="Publish all of them: --publish --place s3"):
            nexmark.publish([raw("s3", "q4", 9_000, 9_000), {**raw("s3", "q7", 9_000, 9_000), **other}])
    nexmark.publish([{**raw("local", "q4", 2_000, 3_000), "shape": warm}])

    text = page.read_text()
    assert text.startswith("before\n<!-- nexmark:begin -->\n")
    assert text.endswith("<!-- nexmark:end -->\nafter\n")
    assert "old" not in text
    assert "| query | local, RocksDB | local5, RocksDB |" in text
    assert "| q4: average final price by category (join, two aggregations) | 1.50; 0.010 | 0.25; 0.010 |" in text
    assert "| q5: auctions with the most bids (three aggregations, join of windows) |  | 1.00; 0.010 |" in text
    assert "Not run there yet: q5, q7, q8," in text
    assert "Not run there yet: q7, q8," in text
    assert "4.2.0" not in text
    assert "2 cores; commit 01234567." in text
    assert text.count("events after 30 smaller ones to warm up,") == 1
    assert "9.00 → 9.00" not in (tmp_path / "published" / "f.md").read_text()
    assert "2.00 → 3.00 (1.50)" in (tmp_path / "published" / "f.md").read_text()
    kept = nexmark.published_figures(json.loads((tmp_path / "published" / "f.json").read_text()))
    assert [*kept] == ["local", "local5"]
    assert nexmark_figures.regressions(kept, kept) == []
    worse = nexmark.figures_of([raw("local", "q4", 2_000, 3_400), raw("local5", "q4", 4_000, 1_050)])
    assert [each.what for each in nexmark_figures.regressions(kept, worse)] == [
        ("local", "q4", "merged", "mean_seconds")
    ]
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(("count", "first", "end"), [(2, 1, 2), (6, 3, 6), (8, 4, 8), (16, 4, 16), (18, 4, 16)])
def test_figures_of_flink_are_of_fours_of_checkpoints(count: int, first: int, end: int) -> None:
    """Each fourth one has most of the state."""
    names = ("new_files", "new_bytes", "files", "bytes", "seconds")
    points = [dict.fromkeys(names, 10**number) for number in range(count)]
    found = nexmark_flink.flink_figures(points, 500)
    assert found["files"] == found["bytes"] == statistics.mean(10**number for number in range(first, end))
    assert found["files_left"] == found["bytes_left"] == 10 ** (end - 1)
    assert found["events_per_second"] == 500 / statistics.median(10**number for number in range(first, end))


def test_publishing_flink_fills_its_part_of_the_page(tmp_path: Path) -> None:
    page, published = tmp_path / "page.md", tmp_path / "published" / "f.json"
    page.write_text("before\n<!-- flink:begin -->\nold\n<!-- flink:end -->\nafter\n")
    about = {"flink": "2.3.0", "spark": "4.3.0", "java": "17", "cpus": 2, "parallelism": 4}
    about["shape"] = dataclasses.asdict(SHAPE)

    def figures(files: float) -> dict[str, Any]:
        same = {"files_left": 90, "bytes_left": 5_000_000, "restart_seconds": 2.5, "events_per_second": 12_345.6}
        return {"files": files, "bytes": 1_500_000, **same}

    older = {"about": {**about, "spark": "4.2.0"}, "queries": {"q9": {"stock": figures(77)}}}
    both = {"stock": figures(20), "merged": figures(3.5), "forst-merged": {"failed": "it was\ntoo | much"}}
    bare = tmp_path / "bare.md"
    bare.write_text("nothing\n")
    with pytest.raises(click.ClickException, match="has no <!-- flink:begin -->"):
        nexmark_flink.publish(older, published, bare)
    assert not published.exists()
    nexmark_flink.publish(older, published, page)
    kept = published.read_text()
    with pytest.raises(click.ClickException, match="q9 were run with .*4.2.0"):
        nexmark_flink.publish({"about": about, "queries": {"q5": both}}, published, page)
    assert published.read_text() == kept
    published.unlink()
    nexmark_flink.publish({"about": about, "queries": {"q5": both}}, published, page)
    nexmark_flink.publish({"about": about, "queries": {"q4": {"stock": figures(21)}}}, published, page)

    text = page.read_text()
    assert text.startswith("before\n<!-- flink:begin -->\n")
    assert text.endswith("<!-- flink:end -->\nafter\n")
    assert "old" not in text
    assert "| query | Spark | Spark, merged | Flink, ForSt, merged files |" in text
    assert "| q4 | 21.0; 1.50; 2.5 |  |  |\n| q5 | 20.0; 1.50; 2.5 | 3.5; 1.50; 2.5 | failed |" in text
    assert "q9" not in text
    table = published.with_suffix(".md").read_text()
    assert "| q5 | Spark, merged | 3.5 | 1.50 | 90 | 5.0 | 2.5 | 12,346 |" in table
    assert "| q5 | Flink, ForSt, merged files | failed: it was too / much |" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--side", "merged"], "each side needs the stock side of its store"),
        (["--publish", "--events", "500"], "--publish runs queries as they are by default"),
        (["--publish", "--no-build"], "--publish runs queries as they are by default"),
        (["--raw", __file__], "instead of running anything"),
        (["--publish", "--raw", __file__, "--query", "q4"], "instead of running anything"),
        (["--check", "--events", "5000"], "--check runs what was published"),
        (["--check", "--side", "stock", "--side", "merged"], "--check runs what was published"),
        (["--check"], "is missing; run this with --publish"),
        (["--check", "--place", "s3"], "nothing is published of s3"),
        (["--quick", "--place", "hdfs", "--events", "50"], "leave --events, --place out"),
        (["--door", "path", "--side", "stock", "--side", "remote"], "remote-first state needs --door provider"),
        (["--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    published = tmp_path / "published.json"
    monkeypatch.setattr(nexmark, "PUBLISHED", published)
    if "s3" in arguments:
        published.write_text('{"local": {}}')
    done = CliRunner().invoke(nexmark.main, arguments)
    assert done.exit_code != 0
    assert message in done.output


def test_figures_are_published_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=b"]
    (tmp_path / "jvm-shim").mkdir()
    for name in ("jvm-shim/A.java", "README.md"):
        (tmp_path / name).write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "c"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "README.md").write_text("2")
    assert nexmark.changes() == ""
    (tmp_path / "jvm-shim" / "A.java").write_text("2")
    done = CliRunner().invoke(nexmark.main, ["--publish", "--place", "local"])
    assert "these files of this run differ from it: jvm-shim/A.java" in done.output


def _measured(place: str, **changes: Any) -> dict[str, Any]:
    """Raw numbers of q4 as `--publish` would have run it, and what is different."""
    scenario, shape = nexmark.shapes_at([place], nexmark.SHAPE, nexmark.SCENARIO, set())[place]
    batches = [{"trigger_ms": 1_000, "state_calls": 10, **GIVEN}] * shape.batches
    again = {"seconds": 5.0, "memory": {"peak_resident": 1}, "output": [[3, 17]], "state_rows": [[5]]}
    side = {"batches": batches, "left": {}, "amplification": None, "restart": again}
    raw = {
        "place": place,
        "query": "q4",
        "environment": {"spark": "4.3.0", "java": "17", "cpus": 2, "commit": "0123456789abcdef"},
        "shape": dataclasses.asdict(shape),
        "scenario": scenario.to_json(),
        "sides": dict.fromkeys(OF_PLACE.get(place, USUAL), side),
        "differs": "",
        "compared": True,
    }
    return raw | changes


def test_parts_of_a_run_are_published_later(tmp_path: Path, page: Path) -> None:
    """If they were run as a whole run would have run them."""

    def say(*parts: dict[str, Any]) -> Result:
        arguments = ["--publish"]
        for number, part in enumerate(parts):
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps([part]))
            arguments += ["--raw", str(file)]
        return CliRunner().invoke(nexmark.main, arguments)

    parts = [_measured("s3"), _measured("s3", query="q5"), _measured("local")]
    assert say(*parts).exit_code == 0
    published = nexmark.PUBLISHED.read_text()
    figures = nexmark.published_figures(json.loads(published))
    assert {place: [*queries] for place, queries in figures.items()} == {"local": ["q4"], "s3": ["q4", "q5"]}
    text = page.read_text()
    whole = parts[0]
    without_restart = {
        name: {what: value for what, value in side.items() if what != "restart"}
        for name, side in whole["sides"].items()
    }
    for change in (
        {"shape": {**whole["shape"], "warm_up": 0}},
        {"scenario": {**whole["scenario"], "maintenance_interval": "1s"}},
        {"sides": {"stock": whole["sides"]["stock"], "merged": whole["sides"]["merged"]}},
        {"sides": without_restart},
    ):
        done = say(parts[1], {**whole, **change})
        assert done.exit_code == 2
        assert "with a restart, can be published: q4 at s3" in done.output
    unknown = {name: value for name, value in whole.items() if name != "differs"}
    for part, says in (({**whole, "differs": "jvm-shim/A.java"}, "jvm-shim/A.java"), (unknown, "nobody knows")):
        done = say(parts[1], part)
        assert done.exit_code == 2
        assert f"these files of q4 at s3 differ from it: {says}" in done.output
    assert (nexmark.PUBLISHED.read_text(), page.read_text()) == (published, text)


def _with(raw: dict[str, Any], side: str, **changes: Any) -> dict[str, Any]:
    """The same raw numbers, but for something of one side."""
    return {**raw, "sides": {**raw["sides"], side: {**raw["sides"][side], **changes}}}


def test_no_figures_are_published_of_sides_with_other_rows(page: Path) -> None:
    """Whatever wrote the raw numbers."""
    whole = _measured("local")
    batches, again = (whole["sides"]["stock"][name] for name in ("batches", "restart"))
    state = {"state_rows": [4]}
    nothing = [{**batch, "output": [0, 0]} for batch in batches]
    for raw, says in (
        (_with(whole, "merged", batches=batches[:2]), "q4 at local: RocksDB, merged ran 2 batches of 46"),
        (_with(whole, "stock", batches=batches[:7]), "q4 at local: RocksDB, stock ran 7 batches of 46"),
        (_with(whole, "merged", batches=[*batches[:-1], batches[0] | {"output": [3, 18]}]), r"batch 45: .*\[3, 18\]"),
        (_with(whole, "heap-merged", batches=[batches[0] | state, *batches[1:]]), "batch 0: heap, merged differs"),
        (_with(whole, "merged", restart=again | {"output": [[2, 17]]}), "after the restart: RocksDB, merged differs"),
        (_with(whole, "heap-stock", restart=again | {"state_rows": []}), "after the restart: heap, stock differs"),
        (whole | {"sides": {side: {"batches": nothing} for side in USUAL}}, "gave nothing out"),
    ):
        with pytest.raises(click.ClickException, match=f"not published: .*{says}"):
            nexmark.publish([raw])
    with pytest.raises(click.UsageError, match="that of q4 at local is not known"):
        nexmark.publish([whole | {"environment": {**whole["environment"], "commit": ""}}])
    with pytest.raises(click.UsageError, match="rows of q4 at local were not all compared"):
        nexmark.publish([whole | {"compared": False}])
    with pytest.raises(click.UsageError, match="q4 at local is there more than once"):
        nexmark.publish([whole, _measured("local", query="q5"), whole])
    assert "old" in page.read_text()
    assert not nexmark.PUBLISHED.exists()
    nexmark.publish([whole])
    assert "old" not in page.read_text()


def test_a_file_without_raw_numbers_is_not_published(tmp_path: Path, page: Path) -> None:
    file = tmp_path / "raw.json"
    whole = _measured("local")
    for text, says in (
        ("[]", "has the raw numbers of no query"),
        (json.dumps([whole])[:-100], "does not have the raw numbers of a whole run (JSONDecodeError"),
        (json.dumps(whole), "does not have the raw numbers of a whole run"),
        ("7", "does not have the raw numbers of a whole run"),
        ('[{"query": "q4"}]', "does not have the raw numbers of a whole run (KeyError"),
        (json.dumps([_with(whole, "merged", batches=[])]), "does not have the raw numbers of a whole run"),
        (json.dumps([_measured("local", query="q6")]), "can be published: q6 at local"),
        (json.dumps([_measured("local") | {"place": "moon"}]), "can be published: q4 at moon"),
    ):
        file.write_text(text)
        done = CliRunner().invoke(nexmark.main, ["--publish", "--raw", str(file)])
        assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.output
        assert says in " ".join(done.output.split()), done.output
    assert "old" in page.read_text()
    assert not nexmark.PUBLISHED.exists()


def test_results_that_cannot_be_written_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is there stays."""
    begun: list[Any] = []
    for where in (nexmark, nexmark_flink):
        monkeypatch.setattr(where, "build_shim", lambda: begun.append("jars"))
    (tmp_path / "file").write_text("kept")
    for out, says in (("/proc/self/out", "No such file"), (str(tmp_path / "file" / "below"), "Not a directory")):
        for main in (nexmark.main, nexmark_flink.main):
            done = CliRunner().invoke(main, ["--out", out])
            assert done.exit_code == 2
            assert f"--out {out} cannot be written: {says}" in done.output
    assert begun == []
    nexmark.require_writable(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("is_built", "first", "then", "says"),
    [
        (True, ("a", ""), ("a", ""), ""),
        (True, ("a", ""), ("a", " M jvm-shim/A.java"), "jvm-shim/A.java"),
        (True, ("a", " M jvm-shim/A.java"), ("a", ""), "jvm-shim/A.java"),
        (True, ("a", ""), ("b", ""), "the jars, which were built of a, and now b is here"),
        (True, ("a", ""), ("a", None), "those that git does not tell"),
        (False, ("a", ""), ("a", ""), "the jars, which were not built for this run"),
    ],
)
def test_a_run_says_what_differs_from_its_commit(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_built: bool,
    first: tuple[str, str],
    then: tuple[str, str | None],
    says: str,
) -> None:
    """Jars that were not built for it, or of another commit, or of files that are as before again, may be of any."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(nexmark, "ROOT", tmp_path)
    monkeypatch.setattr(nexmark, "run_part", lambda *_, **__: {"query": "q4", "place": "local"})

    def git_says(answers: tuple[str, str | None]) -> None:
        by_command = dict(zip(("rev-parse", "status"), answers, strict=True))
        for asks in ("benchmarks.nexmark.git", "benchmarks.sides.git"):
            monkeypatch.setattr(asks, lambda _, command, *__: by_command[command])

    git_says(first)
    begin = nexmark.Begin.now(is_built, compared=True)
    git_says(then)
    shapes = nexmark.shapes_at(["local"], nexmark.SHAPE, nexmark.SCENARIO, set())
    saved: list[dict[str, Any]] = []
    nexmark.measure_all(["q4"], ["local"], (), shapes, 3, begin, saved.extend)
    assert (saved[0]["differs"], saved[0]["compared"]) == (says, True)


@pytest.mark.parametrize("name", ["a b", "a,b", "50%", "it's", "[0]"])
def test_a_directory_in_which_spark_cannot_work_is_refused(tmp_path: Path, name: str) -> None:
    """By all benchmarks, at once."""
    work = tmp_path / name
    with pytest.raises(BenchmarkError, match="set TMPDIR to another directory"):
        start_session(nexmark.SCENARIO, work, {})
    assert not work.exists()
    require_plain_name(tmp_path / "ä+=@~b_c-1.d")


def test_each_side_is_the_first_to_restart() -> None:
    """For it no server has its cache warm yet."""
    found = [order_of_restarts(query, 6) for query in QUERIES]
    assert all(sorted(each) == [*range(6)] for each in found)
    assert {each[0] for each in found} == {*range(6)}


def test_nothing_is_published_of_a_run_in_which_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    """A query that failed, or files that were changed after the run had begun."""
    monkeypatch.setattr(nexmark, "changes", str)
    monkeypatch.setattr(nexmark, "build_shim", str)
    monkeypatch.setattr(nexmark, "compare_all", lambda *_: [])
    for failed, differs, says in (
        (["q5 differs"], "", "q5 differs"),
        ([], "jvm-shim/A.java", "these files of q4 at local differ from it: jvm-shim/A.java"),
        ([], "", "all of it took"),
    ):
        assert "old" in page.read_text()
        found = ([_measured("local", differs=differs)], failed)
        monkeypatch.setattr(nexmark, "measure_all", lambda *_, found=found: found)
        done = CliRunner().invoke(nexmark.main, ["--publish", "--place", "local", "--out", str(tmp_path)])
        assert says in done.output
    assert "old" not in page.read_text()


def test_what_a_part_has_started_ends_after_it(tmp_path: Path) -> None:
    """A part that was killed leaves a server behind, which has another parent then."""
    part = subprocess.Popen(
        ["/bin/sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/server; kill -9 $$"], start_new_session=True
    )
    assert part.wait() == -signal.SIGKILL
    server = psutil.Process(int((tmp_path / "server").read_text()))
    assert server.is_running()
    nexmark._end_all(part)
    until = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        # Nobody may wait for it in a container.
        while server.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_part_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark, "PART_SECONDS", 0.5)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(click.ClickException, match=r"equal was not over after 0.5 s, and was ended"):
        nexmark.run_part("equal", nexmark.SCENARIO, nexmark.SHAPE, queries=["q4"], sides=["stock"], all_states=False)
    assert not [each for each in psutil.Process().children(recursive=True) if each not in before and each.is_running()]


def test_nothing_stays_of_a_run_that_is_ended(tmp_path: Path) -> None:
    """Neither processes, of which one is a JVM, nor files, which are all in one folder."""
    script = nexmark.ROOT / "benchmarks" / "nexmark.py"
    # All queries take minutes: nothing of this ends by itself while the test waits.
    command = [sys.executable, str(script), "--quick", "--no-build"]
    run = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)})
    try:
        runs = psutil.Process(run.pid)
        # What a JVM has unpacked stays where it is killed.
        while not [*tmp_path.glob("nexmark-*/nexmark-*/tmp/artifacts-*")]:
            assert run.poll() is None
            time.sleep(0.05)
        started = runs.children(recursive=True)
        assert "java" in [each.name() for each in started]
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    finally:
        run.kill()
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert [*tmp_path.glob("nexmark-*")] == []


def test_signals_end_a_run_in_order() -> None:
    """A closed terminal, too, unless `nohup` has said that it is to go on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        nexmark.end_in_order()
        for number in before:
            with pytest.raises(SystemExit) as ended:
                os.kill(os.getpid(), number)
            assert ended.value.code == 128 + number
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        nexmark.end_in_order()
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_sides_ask_seldom_for_input_where_calls_wait() -> None:
    assert {place: polling_at(place) for place in PLACES} == {"local": None, "local5": "1s", "hdfs": "1s", "s3": "1s"}


def test_windows_go_on_in_the_next_batch_where_rows_are_compared() -> None:
    """Else no row of q8 depends on the state that the batch before has left."""
    assert all(batch * nexmark.QUICK["seconds"] % 10 for batch in range(1, nexmark.QUICK["batches"]))


def test_sums_that_differ_are_named() -> None:
    """Of rows, and of state that no row shows."""
    stock = {"output": [3, 17], "state_rows": [5, 2]}
    same_sums("q4, batch 7: RocksDB", stock, dict(stock))
    with pytest.raises(BenchmarkError, match=r"q4, batch 7: RocksDB differs: \[3, 18\], stock \[3, 17\] \(rows, sum"):
        same_sums("q4, batch 7: RocksDB", stock, {**stock, "output": [3, 18]})
    with pytest.raises(BenchmarkError, match=r"differs: \[5, 1\], stock \[5, 2\] \(rows of state of each operator\)"):
        same_sums("q4, batch 7: RocksDB", stock, {**stock, "state_rows": [5, 1]})
