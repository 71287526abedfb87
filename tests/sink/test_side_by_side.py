"""Verbs that change a sink's list never lose what another one does at the same moment: one of them refuses."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.sink import notes
from pyspark_statestore.sink.file_list import LIST
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.sink.rewriter import Rewriter
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.location import Location
from tests.conftest import MakeSpark
from tests.sink.sinks import REPLACED, FileSink, rows_of
from tests.sink.test_old_sinks import AT_ONCE, INTERVAL, old_sink

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

VERBS: dict[str, Callable[[Sink], object]] = {
    "compact": lambda sink: sink.compact(older_than=AT_ONCE),
    "publish": lambda sink: sink.publish(idle_for=AT_ONCE, force=True),
    "orphans": lambda sink: sink.remove_orphan_files(AT_ONCE, dry_run=False, force=True),
}


@pytest.fixture
def sink(make_spark: MakeSpark, tmp_path: Path) -> FileSink:
    """Two batches of stock Spark's, and one of which all rows wait; its list is one file."""
    made = old_sink(make_spark(), tmp_path / "sink", batches=2)
    made.feed(rows_of(2))
    made.run(conf=INTERVAL, maxDelay="10h")
    return made


@pytest.mark.parametrize("inner", VERBS)
@pytest.mark.parametrize("outer", ["compact", "publish"])
def test_one_between_the_last_look_of_another_and_its_change(
    sink: FileSink, monkeypatch: pytest.MonkeyPatch, outer: str, inner: str
) -> None:
    replace_list, refusals = Rewriter.replace_list, []

    def replace_after(*arguments: Any) -> None:
        monkeypatch.setattr(Rewriter, "replace_list", replace_list)
        try:
            VERBS[inner](Sink(sink.files))
        except StateStoreFilesError as error:
            refusals.append(str(error))
        replace_list(*arguments)

    monkeypatch.setattr(Rewriter, "replace_list", replace_after)
    VERBS[outer](Sink(sink.files))

    assert len(refusals) == (inner != "orphans")
    assert all("somebody else" in refusal for refusal in refusals)
    assert Sink(sink.files).verify().is_clean
    VERBS["publish"](Sink(sink.files))
    assert sink.ids() == list(range(120))
    VERBS["compact"](Sink(sink.files))
    VERBS["orphans"](Sink(sink.files))
    assert sink.ids() == list(range(120))
    sink.feed(rows_of(3))
    sink.run(conf=INTERVAL)
    assert sink.ids() == list(range(160))


@pytest.mark.parametrize("when", ["listed", "read"])
def test_no_note_is_missed_that_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """While others list the notes, or between their listing and their reading."""
    directory = Directory(Location.of(tmp_path))
    original = getattr(notes, f"_{when}" if when == "listed" else "_read_note")
    steps: list[Callable[[], object]] = []

    def once(*arguments: Any) -> Any:
        step = steps.pop() if steps else None
        if when == "listed" and step is not None:  # as a local disk may list: neither has it
            step()
            return {}
        if step is not None:
            step()
        return original(*arguments)

    intent = Intent(directory, "0.compact")
    with intent:
        monkeypatch.setattr(notes, original.__name__, once)
        steps.append(lambda: intent.replaces(["part-0"]))
        [note] = notes.read_notes(directory)
        assert (note.is_open, note.made_by, note.replaced) == (True, intent.attempt, frozenset(["part-0"]))
        steps.append(intent.__exit__)
        [note] = notes.read_notes(directory)
        assert (note.is_open, note.made_by, note.replaced) == (False, intent.attempt, frozenset(["part-0"]))
        assert not steps


def test_notes_that_never_stay_the_same_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory(Location.of(tmp_path))
    original = notes._read_note
    with Intent(directory, "0.compact") as intent:

        def anew(*arguments: Any) -> Any:
            intent.replaces(["part-0"])
            return original(*arguments)

        monkeypatch.setattr(notes, "_read_note", anew)
        with pytest.raises(StateStoreFilesError, match="PSS_READ_FAILED"):
            notes.read_notes(directory)


def test_what_a_process_that_died_has_left_holds_others_up_for_a_while(sink: FileSink) -> None:
    left = sink.files / REPLACED / "left.json"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text(json.dumps({"list": "2.compact", "replaced": [], "made_by": "0123456789abcdef", "open": True}))
    for verb in ("compact", "publish"):
        with pytest.raises(StateStoreFilesError, match=r"somebody else.*left\.json"):
            VERBS[verb](Sink(sink.files))
    os.utime(left, (time.time() - datetime.timedelta(minutes=31).total_seconds(),) * 2)
    VERBS["publish"](Sink(sink.files))
    VERBS["compact"](Sink(sink.files))
    assert sink.ids() == list(range(120))


@pytest.mark.parametrize("verb", ["compact", "publish"])
def test_a_process_that_stood_still_for_long_changes_nothing(
    sink: FileSink, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its note seemed to be of one that had died: others may have gone ahead, or removed what it has made."""
    before = {path.name: path.read_bytes() for path in (sink.files / LIST).iterdir() if path.is_file()}
    monkeypatch.setattr(notes, "LEASE", datetime.timedelta(microseconds=1))
    with pytest.raises(StateStoreFilesError, match=r"PSS_SINK_REWRITE_FAILED.*it stood still"):
        VERBS[verb](Sink(sink.files))
    assert {path.name: path.read_bytes() for path in (sink.files / LIST).iterdir() if path.is_file()} == before
    monkeypatch.undo()
    for each in ("publish", "compact", "orphans"):
        VERBS[each](Sink(sink.files))
    assert sink.ids() == list(range(120))
