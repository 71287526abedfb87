"""The index: any order of reading gives the same view, and the view is what the rules say."""

from __future__ import annotations

import datetime
import io
import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_statestore.format import (
    BytesSource,
    Entry,
    Kind,
    MergedFile,
    MergedFileWriter,
    SegmentType,
    file_name,
    read_merged_file,
)
from pyspark_statestore.log import (
    MAX_GENERATION,
    Entries,
    FileState,
    Resolution,
    Status,
    TombstoneWatch,
    closed_tombstones,
    is_closed,
    is_expired,
    is_heeded,
    is_timely,
    newest_file,
    next_generation,
    pinned,
    plan_unlinks,
    relocatable,
    resolve,
)
from pyspark_statestore.log.pins import Pin

Files = dict[str, list[Entry]]
NAMES = [file_name(1_700_000_000_000, writer, 1) for writer in (5, 3, 9)]
PATHS = ["0/0/1.changelog", "0/0/2.zip", "0/1/1.changelog", "ü/1.delta"]


def entry(
    kind: Kind, path: str, stamp: int, writer: int = 1, generation: int = 0, *, offset: int = 0, length: int = 10
) -> Entry:
    if kind is Kind.DELETE:
        offset = length = 0
    return Entry(kind, SegmentType.of(path), generation, 0, stamp, writer, offset, length, 0, path)


def put(path: str, stamp: int, **more: int) -> Entry:
    return entry(Kind.PUT, path, stamp, **more)


def delete(path: str, stamp: int, **more: int) -> Entry:
    return entry(Kind.DELETE, path, stamp, **more)


def _placed(files: list[list[tuple[Any, ...]]]) -> Files:
    """Entries at places of their own, as in a file."""
    return {
        name: [entry(*fact, offset=100 + 10 * at) for at, fact in enumerate(facts)]
        for name, facts in zip(NAMES, files, strict=True)
    }


FACTS = st.tuples(
    st.sampled_from(Kind), st.sampled_from(PATHS), st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)
)
FILES = st.lists(st.lists(FACTS, max_size=8), min_size=len(NAMES), max_size=len(NAMES)).map(_placed)


def naive(files: Files) -> dict[str, tuple[str, int]]:
    """What lives, by the words of the rules 3 to 5: per path the file's name and the offset."""
    live = {}
    for path in {e.path for entries in files.values() for e in entries}:
        facts = [(e, name) for name, entries in files.items() for e in entries if e.path == path]
        deleted = [e.key for e, _ in facts if e.kind is Kind.DELETE]
        puts = [(e.key, e.generation, name, e.offset) for e, name in facts if e.kind is Kind.PUT]
        newest = max(puts, default=None)
        if newest and all(newest[0] > key for key in deleted):
            live[path] = newest[2:]
    return live


def found(resolution: Resolution) -> dict[str, tuple[str, int]]:
    table = resolution.to_arrow()
    columns = [table[name].to_pylist() for name in ("path", "file", "offset")]
    assert len(set(columns[0])) == len(columns[0])
    return {path: (name, offset) for path, name, offset in zip(*columns, strict=True)}


@settings(max_examples=150)
@given(FILES)
def test_it_agrees_with_a_plain_dictionary(files: Files) -> None:
    resolution = resolve(Entries.of(files))

    assert found(resolution) == naive(files)
    for name, expected in files.items():
        number = resolution.entries.files.index(name)
        expected = list(dict.fromkeys(expected))
        puts = [e for e in expected if e.kind is Kind.PUT]
        living = [place for place in naive(files).values() if place[0] == name]
        assert resolution.totals.segment_count[number] == len(puts)
        assert resolution.totals.tombstone_count[number] == len(expected) - len(puts)
        assert resolution.totals.live_segment_count[number] == len(living)
        assert resolution.totals.live_bytes[number] == 10 * len(living)


@settings(max_examples=100)
@given(FILES, st.randoms(use_true_random=False), st.integers(0, 3))
def test_no_order_or_grouping_of_the_facts_matters(files: Files, rnd: random.Random, repeated: int) -> None:
    pieces = [(name, e) for name, entries in files.items() for e in entries]
    pieces += rnd.choices(pieces, k=repeated) if pieces else []
    rnd.shuffle(pieces)
    cut = rnd.randint(0, len(pieces))
    parts = []
    for some in (pieces[:cut], pieces[cut:]):
        part: Files = {name: [] for name in NAMES}
        for name, e in some:
            part[name].append(e)
        parts.append(Entries.of(part))
    rnd.shuffle(parts)

    whole, shuffled = resolve(Entries.of(files)), resolve(Entries.concat(parts))

    assert found(shuffled) == found(whole)
    for column in ("segment_count", "live_segment_count", "live_bytes", "tombstone_count"):
        distinct = resolve(Entries.of({name: list(dict.fromkeys(e)) for name, e in files.items()}))
        assert list(getattr(shuffled.totals, column)) == list(getattr(distinct.totals, column))


@settings(max_examples=50)
@given(FILES)
def test_saying_it_twice_changes_nothing(files: Files) -> None:
    once = Entries.of({name: list(dict.fromkeys(entries)) for name, entries in files.items()})
    twice = resolve(Entries.concat([once, once]))

    assert found(twice) == found(resolve(once))
    assert np.count_nonzero(twice.status == Status.REPEATED) == len(once)


def written(write: Callable[[MergedFileWriter], object], name: str = NAMES[0]) -> MergedFile:
    out = io.BytesIO()
    write(MergedFileWriter(out, writer=1, created_ms=1))
    return read_merged_file(BytesSource(out.getvalue()), name)


@settings(max_examples=30)
@given(FILES)
def test_files_are_read_into_columns(files: Files) -> None:
    def write(entries: list[Entry]) -> Callable[[MergedFileWriter], object]:
        def groups(file: MergedFileWriter) -> None:
            for e in entries:
                if e.kind is Kind.PUT:
                    file.put(e.path, b"0123456789", stamp=e.stamp, writer=e.writer, generation=e.generation)
                else:
                    file.delete(e.path, stamp=e.stamp, writer=e.writer)
                file.end_group()

        return groups

    merged = {name: written(write(entries), name) for name, entries in files.items()}

    entries = Entries.read(merged)

    assert entries.distinct
    expected = Entries.of({name: list(file) for name, file in merged.items()})
    rows = [list(zip(*table.to_pydict().values(), strict=True)) for table in (entries.to_arrow(), expected.to_arrow())]
    assert sorted(rows[0]) == sorted(rows[1])
    assert found(resolve(entries)) == naive({name: list(file) for name, file in merged.items()})


def test_an_index_only_file_speaks_for_others_and_for_itself_says_nothing() -> None:
    first = [put(PATHS[0], 1), put(PATHS[1], 2), delete(PATHS[2], 9)]
    second = [put(PATHS[2], 8), delete(PATHS[0], 1)]
    index = written(lambda file: file.seal_index_only({NAMES[0]: first, NAMES[1]: second}), NAMES[2])
    unread = MergedFile("", None, (), 0)

    entries = Entries.read({NAMES[0]: unread, NAMES[1]: unread, NAMES[2]: index})
    resolution = resolve(entries)

    assert found(resolution) == {PATHS[1]: (NAMES[0], 0)}
    assert resolution.totals.tombstone_count.tolist() == [1, 1, 0]  # by name: 3, 5, 9
    # What it says of a file that is gone does not count any more, tombstones included.
    alone = resolve(Entries.read({NAMES[1]: unread, NAMES[2]: index}))
    assert found(alone) == {PATHS[2]: (NAMES[1], 0)}
    # A file and what repeats it are the same facts.
    both = Entries.read({NAMES[1]: written(lambda file: _write(file, second), NAMES[1]), NAMES[2]: index})
    assert not both.distinct


ELSEWHERE = ("/a/state/_merged/" + NAMES[0], "/b/state/_merged/" + NAMES[1])


def test_a_reference_file_counts_segments_that_are_elsewhere() -> None:
    kept, moved, deleted, rewritten = (replace(put(path, 5, writer=4), length=10) for path in PATHS[:4])
    reference = written(
        lambda file: file.seal_references({ELSEWHERE[1]: [kept, moved], ELSEWHERE[0]: [deleted, rewritten]})
    )

    def write_own(file: MergedFileWriter) -> None:
        file.put(moved.path, b"home", stamp=5, writer=4, generation=moved.generation + 1)
        file.delete(deleted.path, stamp=5, writer=4)
        file.put(rewritten.path, b"new", stamp=6)
        file.seal()

    own = written(write_own, NAMES[1])

    entries = Entries.read({NAMES[0]: reference, NAMES[1]: own})
    resolution = resolve(entries)

    assert entries.foreign == ELSEWHERE
    where = {
        path: entries.foreign[origin - 1] if origin else entries.files[file]
        for path, origin, file in zip(
            entries.path.filter(pa.array(resolution.live)).to_pylist(),
            entries.origin[resolution.live],
            entries.file[resolution.live],
            strict=True,
        )
    }
    assert where == {kept.path: ELSEWHERE[1], moved.path: NAMES[1], rewritten.path: NAMES[1]}
    totals = resolution.totals  # by name: NAMES[1], NAMES[0]
    assert totals.live_segment_count.tolist() == [2, 1]
    assert totals.live_bytes.tolist() == [7, 0]
    assert totals.foreign_live_bytes.tolist() == [0, 10]
    # The file of the last of them goes when that has died.
    last = {NAMES[2]: written(lambda file: _write(file, [delete(kept.path, 5, writer=4)]), NAMES[2])}
    states = {name: FileState(closed=True, stamp=number) for number, name in enumerate(NAMES[:3])}
    everything = resolve(Entries.read({NAMES[0]: reference, NAMES[1]: own, **last}))
    assert [each.name for each in plan_unlinks(everything, states).unlink] == [NAMES[0]]


def test_parts_with_other_references_are_put_together() -> None:
    def part(name: str, path: str) -> Entries:
        return Entries.read({name: written(lambda file: file.seal_references({path: [put(PATHS[0], 5)]}), name)})

    parts = [part(NAMES[0], ELSEWHERE[1]), part(NAMES[1], ELSEWHERE[0])]

    both = Entries.concat([*parts, Entries.of({NAMES[2]: [put(PATHS[1], 1)]})])

    assert both.foreign == ELSEWHERE
    assert both.origin.tolist() == [2, 1, 0]
    assert both.take(np.array([1])).origin.tolist() == [1]


def test_of_two_places_in_one_reference_file_one_is_read() -> None:
    fact = put(PATHS[0], 5)
    entries = Entries.read({NAMES[0]: written(lambda file: file.seal_references({path: [fact] for path in ELSEWHERE}))})

    resolution = resolve(entries)

    assert resolution.status.tolist().count(Status.LIVE) == 1


def _write(file: MergedFileWriter, entries: list[Entry]) -> None:
    for e in entries:
        if e.kind is Kind.PUT:
            file.put(e.path, b"", stamp=e.stamp, writer=e.writer)
        else:
            file.delete(e.path, stamp=e.stamp, writer=e.writer)
    file.seal()


def test_nothing_is_in_nothing() -> None:
    for entries in (Entries.read({}), Entries.of({}), Entries.concat([]), Entries.read({NAMES[0]: written(id)})):
        resolution = resolve(entries)
        assert found(resolution) == {}
        assert resolution.live_bytes == 0
    assert plan_unlinks(resolve(Entries.of({})), {}).unlink == ()


def test_status_and_amplification() -> None:
    files = {
        NAMES[0]: [put(PATHS[0], 1), put(PATHS[1], 5), put(PATHS[2], 3)],
        NAMES[1]: [put(PATHS[0], 2), delete(PATHS[2], 3), put(PATHS[1], 5, generation=1, length=30)],
        NAMES[2]: [delete(PATHS[3], 1)],
    }
    resolution = resolve(Entries.of(files))

    status = dict(zip(Entries.of(files).to_arrow()["file"].to_pylist(), [0] * 7, strict=False))
    assert set(status) == set(NAMES)
    by_file = {
        name: [Status(s).name for s in resolution.status[resolution.entries.file == number]]
        for number, name in enumerate(resolution.entries.files)
    }
    assert by_file == {
        NAMES[0]: ["SUPERSEDED", "SUPERSEDED", "DELETED"],
        NAMES[1]: ["LIVE", "TOMBSTONE", "LIVE"],
        NAMES[2]: ["TOMBSTONE"],
    }
    amplification = dict(
        zip(resolution.entries.files, resolution.space_amplification(dict.fromkeys(NAMES, 80)), strict=True)
    )
    assert amplification[NAMES[1]] == 2.0
    assert math.isnan(amplification[NAMES[0]])
    assert resolution.live_bytes == 40


def test_deletions_that_no_file_tells_count_for_what_lives_only() -> None:
    entries = Entries.of({NAMES[0]: [put(PATHS[0], 1), put(PATHS[1], 1)]})

    resolution = resolve(entries, deletions=Entries.of({"": [delete(PATHS[0], 1), delete(PATHS[3], 1)]}))

    assert set(found(resolution)) == {PATHS[1]}
    assert resolution.totals.tombstone_count.tolist() == [0]


def plan(files: Files, droppable: frozenset[str] = frozenset(), **states: FileState) -> tuple[dict[str, int], Any]:
    """By name of a file that may go, how many tombstones it leaves behind; and why others stay."""
    known = {name: states.get(f"f{number}", FileState(True)) for number, name in enumerate(NAMES)}
    made = plan_unlinks(resolve(Entries.of(files)), {name: known[name] for name in files}, droppable)
    return {unlink.name: len(unlink.carry) for unlink in made.unlink}, made.kept


DEAD: Files = {
    NAMES[0]: [put(PATHS[0], 1), put(PATHS[1], 1)],
    NAMES[1]: [delete(PATHS[0], 1)],
    NAMES[2]: [put(PATHS[3], 9)],
}
NEWEST = FileState(True, stamp=99)


def test_rule_6_a_tombstone_is_carried_over_until_it_is_known_to_be_unneeded() -> None:
    assert plan(DEAD, f2=NEWEST)[0] == {NAMES[1]: 1}
    assert plan(DEAD, frozenset([NAMES[1]]), f2=NEWEST)[0] == {NAMES[1]: 0}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (FileState(False), "appended"),
        (FileState(True, whole_index_read=False), "not been read"),
        (FileState(True, index_only=True), "speaks for"),
        (FileState(True, accounted=False), "accounts for"),
        (FileState(True, stamp=100), "highest stamp"),
    ],
)
def test_rule_6_what_may_not_go(state: FileState, why: str) -> None:
    unlinked, kept = plan(DEAD, f1=state, f2=NEWEST)

    assert unlinked == {}
    assert why in kept[NAMES[1]]


def test_rule_6_of_two_copies_only_the_lesser_is_relied_on_by_nobody() -> None:
    twice = {**DEAD, NAMES[1]: [delete(PATHS[0], 1)], NAMES[2]: [delete(PATHS[0], 1)]}
    greater = max(NAMES[1], NAMES[2])

    unlinked, _ = plan(twice, f0=NEWEST)

    assert {name for name, carried in unlinked.items() if carried} == {greater}
    raised = {**twice, NAMES[1]: [delete(PATHS[0], 1, generation=1)]}
    assert plan(raised, f0=NEWEST)[0] == {NAMES[1]: 1, NAMES[2]: 0}


def test_rule_6_a_tombstone_is_unneeded_after_a_refresh_without_victims_and_markers() -> None:
    held = resolve(Entries.of(DEAD))
    free = resolve(Entries.of({NAMES[1]: DEAD[NAMES[1]], NAMES[2]: DEAD[NAMES[2]]}))
    one = {NAMES[1]: 1}
    watch = TombstoneWatch()

    def refreshed(known: dict[str, int], resolution: Resolution, *markers: str) -> bool:
        watch.begin(known)
        return NAMES[1] in watch.refreshed(resolution, markers)

    assert not refreshed({}, free)  # it may be younger than the listing
    assert refreshed(one, free)
    assert not refreshed(one, held)
    assert not refreshed(one, free, "a", "b")
    assert not refreshed(one, free, "b", "c")
    assert refreshed(one, free, "c", "d")  # c and d began when there was nothing left to copy
    assert not refreshed(one, held, "d")
    assert not refreshed(one, free, "d")  # from the beginning
    assert refreshed(one, free)


def test_rule_6_only_tombstones_in_closed_files_can_be_proven_unneeded() -> None:
    states = {NAMES[0]: FileState(True), NAMES[1]: FileState(True), NAMES[2]: FileState(False)}
    files = {**DEAD, NAMES[2]: [delete(PATHS[3], 9)]}

    assert closed_tombstones(resolve(Entries.of(files)), states) == {NAMES[0]: 0, NAMES[1]: 1}


def test_rule_5_live_segments_are_copied_up_to_the_last_generation() -> None:
    files = {
        NAMES[0]: [
            put(PATHS[0], 1),
            put(PATHS[1], 1, generation=MAX_GENERATION),
            put(PATHS[2], 1, generation=MAX_GENERATION - 1),
        ],
        NAMES[1]: [put(PATHS[0], 2)],
    }
    resolution = resolve(Entries.of(files))

    def paths(**states: FileState) -> list[str]:
        rows = relocatable(resolution, {NAMES[int(number[1:])]: state for number, state in states.items()})
        return sorted(resolution.entries.take(rows).path.to_pylist())

    assert paths(f0=FileState(True)) == [PATHS[2]]
    assert paths(f0=FileState(True), f1=FileState(True)) == [PATHS[0], PATHS[2]]
    assert paths(f0=FileState(False), f1=FileState(True)) == [PATHS[0]]
    assert paths(f0=FileState(True, index_only=True)) == []
    assert len(relocatable(resolution, {"another": FileState(True)})) == 0
    assert len(relocatable(resolve(Entries.of({})), {})) == 0


def test_rule_5_a_copy_has_a_generation_more_up_to_the_last_one() -> None:
    generations = np.array([0, 7, MAX_GENERATION - 1, MAX_GENERATION], "i4")

    assert next_generation(generations).tolist() == [1, 8, MAX_GENERATION, MAX_GENERATION]


def test_rule_5_copies_are_begun_and_made_known_while_others_wait() -> None:
    assert (is_timely(4, 10), is_timely(5, 10)) == (True, False)
    assert (is_heeded(7, 10), is_heeded(7.5, 10)) == (True, False)
    second = datetime.timedelta(seconds=1)
    assert (is_timely(4 * second, 10 * second), is_timely(5 * second, 10 * second)) == (True, False)


def test_rule_6_the_newest_file_has_the_highest_stamp_and_then_the_highest_name() -> None:
    old, new = FileState(True, stamp=1), FileState(True, stamp=2)

    assert newest_file({"a": old, "b": new, "c": old}) == "b"
    assert newest_file({"a": new, "b": new, "c": old}) == "b"
    assert newest_file({"a": old, "b": FileState(True, stamp=9, index_only=True)}) == "a"
    assert newest_file({}) is None


def test_rule_6_what_forks_have_pinned() -> None:
    pins = {"some": Pin("some", "/fork", files=frozenset("a")), "begun": Pin("begun")}

    assert {name: pin.name for name, pin in pinned("ab", pins, ()).items()} == {"a": "begun", "b": "begun"}
    # One that has expired counts no more, where it says nothing; what a fork has named stays.
    assert {name: pin.name for name, pin in pinned("ab", pins, ["begun", "some"]).items()} == {"a": "some"}
    unreadable = {"bad": Pin("bad", damage="it has no JSON")}
    assert set(pinned("ab", unreadable, ["bad"])) == {"a", "b"}


def test_rule_7_closed() -> None:
    assert is_closed(sealed=True, unchanged=[0], closed_after=10)
    assert is_closed(sealed=False, unchanged=[10], closed_after=10)
    assert not is_closed(sealed=False, unchanged=[9], closed_after=10)


def test_rule_7_the_clock_that_says_least_decides() -> None:
    for is_over in (partial(is_closed, sealed=False, closed_after=10), partial(is_expired, patience=10)):
        assert is_over(unchanged=[10, 10])
        assert not is_over(unchanged=[10, 9])
        assert not is_over(unchanged=[9, 10])
        assert not is_over(unchanged=[10, None])
        assert not is_over(unchanged=[])
    assert is_closed(sealed=True, unchanged=[None], closed_after=10)


def test_keys_beyond_32_bits_and_equal_stamps() -> None:
    high = (1 << 63) - 1
    files = {
        NAMES[0]: [put(PATHS[0], high, writer=high - 1), put(PATHS[1], high, writer=high)],
        NAMES[1]: [put(PATHS[0], high, writer=high), delete(PATHS[1], high, writer=high - 1)],
    }

    assert found(resolve(Entries.of(files))) == {PATHS[0]: (NAMES[1], 0), PATHS[1]: (NAMES[0], 0)}
    killed = {**files, NAMES[2]: [replace(delete(PATHS[1], high), writer=high)]}
    assert set(found(resolve(Entries.of(killed)))) == {PATHS[0]}
