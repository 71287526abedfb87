"""What must hold of a checkpoint however its processes ended."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_statestore.format import Kind
from pyspark_statestore.log.scan import INDEX_SUFFIX
from tests.cluster.application import CONF, PATIENCE, RETAINED, Application
from tests.jvm.harness import View
from tests.meanwhile import meanwhile

Key = tuple[int, int]


def names_in(state: Path) -> list[str]:
    """All that is in the directory of merged files, without what runs of the query say of themselves."""
    try:
        found = sorted(path.name for path in (state / "_merged").iterdir())
        return [name for name in found if not name.endswith((".running", ".ended"))]
    except FileNotFoundError:
        return []


def stable_view(state: Path) -> View:
    """Reads all merged files while others write and unlink them.

    A view is right only where no file came or went while it was read: the files are facts of different moments then,
    but none of them is missing.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        before = _merged_in(state)
        view = View.of(state)
        if _merged_in(state) == before:
            return view
    raise AssertionError(f"files in {state} come and go without a pause")


def _merged_in(state: Path) -> list[str]:
    return [name for name in names_in(state) if name.endswith(".merged")]


@dataclass
class Graveyard:
    """Remembers what has been deleted, so that nothing comes back.

    A tombstone that could be read once kills the entries of its path up to its key for ever, also when its own file
    is gone. A path that a retried task writes again is not that: its entry has a higher key.
    """

    state: Path
    buried: dict[str, Key] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def visit(self) -> View:
        """Looks at the checkpoint, and fails where something dead lives."""
        with self._lock:
            return self._visit()

    @contextmanager
    def watched(self) -> Iterator[Graveyard]:
        """Visits all the time, and fails at the end where something dead has lived."""
        with meanwhile(self.visit, 0.2):
            yield self

    def _visit(self) -> View:
        view = stable_view(self.state)
        for file in view.files.values():
            for entry in file:
                if entry.kind is Kind.DELETE:
                    self.buried[entry.path] = max(entry.key, self.buried.get(entry.path, entry.key))
        back = {p: (f, e.key) for p, (f, e) in view.live.items() if e.key <= self.buried.get(p, (-1, -1))}
        assert not back, f"deleted files are back: {back}"
        return view


def check_result(app: Application) -> None:
    """What the query gave out is what a batch computation of the same input gives."""
    assert app.given_out() == app.workload.result(app.rows())


def check_versions(app: Application) -> None:
    """Every version that Spark promises to keep can be restored, and is the state of a batch computation."""
    batches = range(max(0, app.fed - RETAINED), app.fed)
    for batch, parts in app.restore(*batches).items():
        assert parts == app.workload.state(app.rows(batch + 1)), f"state after batch {batch}"


_SNAPSHOT = re.compile(r"0/(\d+)/(?:[\w-]+/)?(\d+)\.(zip|snapshot)")


def check_replays(app: Application) -> None:
    """Every snapshot that a version to keep rests on gives the last version, with the changelogs after it."""
    if app.setting.store == "rocksdb" and not app.setting.changelog:
        return  # each snapshot is the whole of its version then
    if app.setting.workload == "join":
        # Its four stores write snapshots on their own, after a kill of different versions; Spark wants all of one.
        return
    expected = [set(part) for part in app.workload.state(app.rows())]
    view = stable_view(app.state)
    found = {(int(m[1]), int(m[2])) for path in view.live if (m := _SNAPSHOT.fullmatch(path))}
    # Older ones may be half deleted, or be back because their deletion was never written.
    bases = {partition: version for partition, version in sorted(found) if version <= app.fed - RETAINED + 1}
    found = {(partition, version) for partition, version in found if version >= bases.get(partition, 0)}
    latest: list[set[object]] = [set() for _ in expected]
    # Spark's reader begins at batches only that are still in the commit log, which keeps fewer than the state does.
    readable = {each for each in found if (app.checkpoint / "commits" / str(each[1] - 1)).exists()}
    for partition, version in sorted(readable):
        rows = app.replay(app.fed - 1, partition, version - 1)
        for part, whole, seen in zip(rows, expected, latest, strict=True):
            assert set(part) <= whole, f"partition {partition} from snapshot {version}"
            seen.update(part)
    assert latest == expected or {partition for partition, _ in readable} != set(
        range(int(CONF["spark.sql.shuffle.partitions"]))
    )


def check(app: Application, graveyard: Graveyard) -> None:
    """All that can be said while the query goes on. All input has to be processed."""
    check_result(app)
    check_versions(app)
    graveyard.visit()


def check_nothing_left(app: Application, graveyard: Graveyard, seconds: float = 2 * PATIENCE) -> None:
    """Waits for cleaning to finish, with hardly any input: a batch now and then, since long after the last one it ends.

    Each merged file has to be of use then, no relocation may be under way, and of old versions nothing may live.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        app.feed()
        app.finish()
        pause = time.monotonic() + PAUSE
        while time.monotonic() < pause:
            left = leftovers(app, graveyard)
            if not left:
                return
            time.sleep(0.2)
    raise AssertionError(f"still there after {seconds} s: {left}")


PAUSE = 15.0
"""Seconds without input, enough for files of dead processes to count as closed and then to go."""


def leftovers(app: Application, graveyard: Graveyard) -> list[str]:
    """What nobody needs: files without use, relocations that nobody ends, versions that Spark has deleted."""
    view = graveyard.visit()
    in_use = files_in_use(view)
    return [name for name in names_in(app.state) if name not in in_use] + old_versions(app, view)


def files_in_use(view: View) -> set[str]:
    """The merged files in which something lives, or that alone keep something dead that is in another file.

    And the one with the highest stamp, from which those who come later go on; and index-only files that save opens.
    """
    in_use = {file for file, _ in view.live.values()} | _index_files_in_use(view)
    stamps = {name: _stamp(view, name) for name in view.files}
    in_use |= {name for name, stamp in stamps.items() if stamp == max(stamps.values())}
    own = {name: file for name, file in view.files.items() if not name.endswith(INDEX_SUFFIX)}
    puts: dict[str, list[tuple[str, Key]]] = {}
    for name, file in own.items():
        for entry in file:
            if entry.kind is Kind.PUT:
                puts.setdefault(entry.path, []).append((name, entry.key))
    keepers: dict[str, tuple[Key, int, str]] = {}
    for name, file in own.items():
        for entry in file:
            others = [key for where, key in puts.get(entry.path, []) if where != name]
            if entry.kind is Kind.DELETE and any(key <= entry.key for key in others):
                mine = (entry.key, entry.generation, name)
                keepers[entry.path] = max(mine, keepers.get(entry.path, mine))
    return in_use | {name for _, _, name in keepers.values()}


def _stamp(view: View, name: str) -> int:
    return max((group.trailer.group_stamp for group in view.files[name].groups), default=0)


def _index_files_in_use(view: View) -> set[str]:
    """Those that repeat a file that exists and that none of a higher stamp repeats."""
    in_use = set()
    repeated: set[str] = set()
    indexes = [name for name in view.files if name.endswith(INDEX_SUFFIX)]
    for index in sorted(indexes, key=lambda name: (_stamp(view, name), name), reverse=True):
        names = {name for group in view.files[index].groups for name in group.index.names if name in view.files}
        if names - repeated:
            in_use.add(index)
        repeated |= names
    return in_use


def old_versions(app: Application, view: View) -> list[str]:
    """Live files of versions that are older than what Spark keeps.

    Spark keeps the last versions, and all that they are restored from: the newest snapshot before them, and what came
    after it.
    """
    found: dict[str, list[tuple[int, str, str]]] = {}
    for path in view.live:
        directory, name = path.rsplit("/", 1)
        if match := re.fullmatch(r"(\d+)\.(zip|changelog|delta|snapshot)", name):
            found.setdefault(directory, []).append((int(match[1]), match[2], path))
    oldest = app.fed - RETAINED + 1 - SLACK
    old = []
    for files in found.values():
        bases = [version for version, kind, _ in files if kind in ("zip", "snapshot") and version <= oldest]
        old += [path for version, _, path in files if bases and version < max(bases)]
    return old


SLACK = 2
"""Versions that Spark may leave for a later deletion: its ratioExtraSpaceAllowedInCheckpoint."""


def check_at_the_end(app: Application, graveyard: Graveyard) -> None:
    """All that can be said, with two more batches, after which the application is stopped."""
    app.feed(2)
    app.finish()
    check(app, graveyard)
    check_replays(app)
    assert app.batch_result() == app.given_out()
    check_nothing_left(app, graveyard)
    app.stop()
