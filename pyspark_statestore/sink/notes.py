"""Notes beside a sink's list: who is about to change it, and which files it does not name any more.

    sink/_spark_metadata/_replaced/<random>.json

Whoever changes the list from outside, a compaction or a publication, writes a note first, and then looks for notes of
others (:class:`Intent`). Each does both in this order, so of two that begin at the same moment one at least sees the
other, and refuses: Spark's list can be replaced, but not compared and replaced in one step. While a note is open,

* nobody else changes the list;
* a removal of orphans leaves alone what the same attempt has made, and all that is staged or waits.

An open note is written anew every few minutes. One that is older than :data:`LEASE` is of a process that has died. When
a compaction ends, its note stays, closed: readers that took the old list need the files that were replaced, until the
note is old.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import secrets
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import Clocks
from pyspark_statestore.log.scan import ATTEMPTS, always_gone
from pyspark_statestore.parsing import parse_object, relative_path
from pyspark_statestore.sink.file_list import LIST
from pyspark_statestore.storage.changes import delete, file_system_time, is_temporary, write
from pyspark_statestore.storage.directory import Directory, FileInfo

REPLACED = f"{LIST}/_replaced"
"""The directory of the notes. No reader looks there, by any way."""

FORMER_REPLACED = "_replaced"
"""Where the notes were before: a reader that was given ``sink/*`` took them for data. They still count."""

LEASE = datetime.timedelta(minutes=30)
"""An open note that is older is of a process that has died, and whose own note is older changes no list."""

LARGEST_NOTE = 1 << 30
"""Bytes: a note names as many files as a file of the list."""

_BEAT_SECONDS = 300.0
_ATTEMPT = re.compile(r"[0-9a-f]{16}")
_MADE = re.compile(r"part-\d+-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4})-")


def attempt_of(name: str) -> str:
    """The attempt that has made a file, by its name, if one from outside has; empty where the name says none.

    The same as the jar's ``JoinedFiles.isOf``.
    """
    made = _MADE.match(name.rpartition("/")[2])
    return made[1].replace("-", "") if made else ""


@dataclass(frozen=True)
class Note:
    """A note.

    Attributes:
        info: Its file.
        replaced: Files that a compaction took out of the list.
        made_by: The attempt that the names of its new files have in common; empty of an older release.
        is_open: Whether it says that somebody is about to change the list.
    """

    info: FileInfo
    replaced: frozenset[str]
    made_by: str
    is_open: bool

    def is_about_any(self, files: Collection[str], attempts: Collection[str]) -> bool:
        """Whether a reader, or who wrote it, may need one of these files, which such attempts have made."""
        return not self.replaced.isdisjoint(files) or (bool(self.made_by) and self.made_by in attempts)

    def is_at_work(self, clocks: Clocks) -> bool:
        """Whether who wrote it may still change the list."""
        return self.is_open and clocks.age(self.info.modified) < LEASE


def read_notes(directory: Directory) -> list[Note]:
    """Reads all notes of a sink.

    A note that is written anew has another name, and the one before goes. So two listings have to agree, with all that
    they name read in between: whoever misses a note takes files that somebody works with for orphans.

    Raises:
        StateStoreFilesError: PSS_READ_FAILED: nothing may be deleted where one is not understood, or where they never
            stay the same for long enough.
    """
    notes: dict[str, Note] = {}
    before: Collection[str] | None = None
    for _ in range(ATTEMPTS):
        infos = _listed(directory)
        if infos.keys() == before:
            return [notes[name] for name in sorted(infos)]
        read = {name: notes.get(name) or _read_note(directory, info) for name, info in infos.items()}
        notes = {name: note for name, note in read.items() if note is not None}
        before = notes.keys()
    raise always_gone(directory, folder=REPLACED)


def _listed(directory: Directory) -> dict[str, FileInfo]:
    infos = [(folder, info) for folder in (REPLACED, FORMER_REPLACED) for info in directory.find(folder)]
    named = [(f"{folder}/{info.name}", info) for folder, info in infos if not is_temporary(info.name)]
    return {name: FileInfo(name, info.size, info.modified) for name, info in named}


def _read_note(directory: Directory, info: FileInfo) -> Note | None:
    """Reads one; None where it is gone."""
    try:
        said = parse_object(directory.read(info.name, info.size, LARGEST_NOTE), LARGEST_NOTE)
        replaced, made_by, is_open = said["replaced"], said.get("made_by", ""), said.get("open", False)
        if not isinstance(replaced, list):
            raise ValueError("what it says was replaced is no list")
        if not isinstance(made_by, str) or ("made_by" in said and not _ATTEMPT.fullmatch(made_by)):
            raise ValueError("what it says of who made the new files is no attempt")
        if not isinstance(is_open, bool):
            raise ValueError("whether it is open is neither true nor false")
        return Note(info, frozenset(relative_path(each, "a file of the sink") for each in replaced), made_by, is_open)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        parameters = {
            "action": "read",
            "path": directory.location.display(info.name),
            "reason": f"it is no note: {error}",
        }
        raise StateStoreFilesError("PSS_READ_FAILED", parameters) from error


class Intent:
    """Says that this process is about to change a sink's list, as long as the block goes on.

    Args:
        directory: The sink's.
        part: The file of the list.

    Raises:
        StateStoreFilesError: On entering, PSS_SINK_REWRITE_FAILED: somebody else is about to, or a note cannot be
            written or read.
    """

    def __init__(self, directory: Directory, part: str) -> None:
        self.attempt = secrets.token_hex(8)
        self._directory = directory
        self._part = part
        self._replaced: Sequence[str] = ()
        self._name = ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._written: tuple[float, float] = (0, 0)

    def __enter__(self) -> Intent:
        self._write()
        try:
            self._look_for_others()
        except BaseException:
            self.__exit__()
            raise
        threading.Thread(target=self._beat, name="sink-note", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended.set()
        # A note that cannot be closed or deleted holds others up for the lease, and goes when it is old.
        with contextlib.suppress(Exception):
            if self._replaced:
                self._write(is_open=False)
            else:
                delete(self._directory, self._name)

    def _look_for_others(self) -> None:
        clocks = Clocks(datetime.datetime.now(datetime.timezone.utc), file_system_time(self._directory, REPLACED))
        for note in read_notes(self._directory):
            if note.made_by != self.attempt and note.is_at_work(clocks):
                minutes = int(LEASE.total_seconds()) // 60
                where = self._directory.location.display(note.info.name)
                reason = (
                    f"somebody else joins or publishes files of it, as {where} says. Where that process has died, wait "
                    f"until the note is {minutes} minutes old, or delete it"
                )
                raise self._refusal(reason)

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            # A failure is one only if it lasts: the lease tells.
            with contextlib.suppress(Exception):
                self._write(is_beat=True)

    def replaces(self, files: Sequence[str]) -> None:
        """Notes which files will not be listed any more. To be called right before the list is replaced.

        Raises:
            StateStoreFilesError: PSS_SINK_REWRITE_FAILED: the note was old for a while, so others may have gone ahead.
        """
        monotonic, wall = self._written
        late = max(time.monotonic() - monotonic, time.time() - wall)
        self._replaced = files
        self._write()
        if late > LEASE.total_seconds():
            reason = f"it stood still for {late:.0f} s, and others may have changed the list or removed the new files"
            raise self._refusal(reason)

    def _refusal(self, reason: str) -> StateStoreFilesError:
        return StateStoreFilesError(
            "PSS_SINK_REWRITE_FAILED", {"path": self._directory.location.display(), "reason": reason}
        )

    def _write(self, *, is_open: bool = True, is_beat: bool = False) -> None:
        with self._lock:
            if is_beat and self._ended.is_set():
                return
            note: dict[str, object] = {"list": self._part, "replaced": list(self._replaced), "made_by": self.attempt}
            note |= {"open": True} if is_open else {}
            at, name = (time.monotonic(), time.time()), f"{REPLACED}/{uuid.uuid4()}.json"
            # At each moment there is one that is whole.
            write(self._directory, name, json.dumps(note).encode())
            before, self._name, self._written = self._name, name, at
            if before:
                delete(self._directory, before)
