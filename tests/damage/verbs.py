"""What is done to a damaged checkpoint, in this process and by the command line."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.cli.commands import DAMAGED
from pyspark_statestore.cli.main import cli
from pyspark_statestore.inspect import TABLES
from tests.damage.builders import LAST, PARTITIONS, contents, read
from tests.forks.harness import state_of
from tests.migration.builders import plain_state

Answer = Mapping[Any, Any]
"""What a verb says that there is. That of the undamaged world is the right one."""

ALWAYS = datetime.timedelta(hours=1)


class RefusedError(Exception):
    """A verb ended with one of the package's errors, or says itself that there is damage."""


@dataclass(frozen=True)
class Place:
    """Where a verb works.

    Attributes:
        root: Of the world.
        name: Of the checkpoint in it.
        has_rows: Whether ``state()`` can decode it.
    """

    root: Path
    name: str
    has_rows: bool

    @property
    def path(self) -> Path:
        """Of the checkpoint."""
        return self.root / self.name

    @property
    def checkpoint(self) -> Checkpoint:
        """As it is now; nothing is remembered."""
        return Checkpoint(self.path)

    @property
    def target(self) -> Path:
        """A directory that is not there yet."""
        path = self.root / "target"
        shutil.rmtree(path, ignore_errors=True)
        return path


@dataclass(frozen=True)
class Verb:
    """Something that can be done.

    Attributes:
        name: What it is counted as.
        changes: Whether it writes to the checkpoint.
        run: Does it.
        last: Whether nothing else can be done afterwards.
    """

    name: str
    changes: bool
    run: Callable[[Place], Answer]
    last: bool = False


def refusal(error: BaseException) -> str | None:
    """The id of an error that the package raises on purpose; None for a foreign one."""
    if isinstance(error, StateStoreFilesError):
        return error.getErrorClass()
    return str(error) if isinstance(error, RefusedError) else None


def _command(*line: object) -> None:
    """The command line, in this process."""
    done = CliRunner().invoke(cli, [str(each) for each in line])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == DAMAGED:
        raise RefusedError("damage")
    if done.exit_code:
        found = re.search(r"\[(PSS_\w+)\]", done.output)
        assert found, f"{line} ended with {done.exit_code} and said: {done.output}"
        raise RefusedError(found[1])


def _read(place: Place) -> Answer:
    return read(place.root, (place.name,))


def _compact(place: Place) -> Answer:
    place.checkpoint.maintenance.compact()
    return {}


def _compact_all(place: Place) -> Answer:
    place.checkpoint.maintenance.compact(max_space_amplification=1.0)
    return {}


def _localize(place: Place) -> Answer:
    place.checkpoint.maintenance.compact(localize=True)
    return {}


def _orphans(place: Place) -> Answer:
    place.checkpoint.maintenance.remove_orphan_files(ALWAYS, dry_run=False)
    return {}


def _expire(place: Place) -> Answer:
    place.checkpoint.maintenance.expire(1, dry_run=False)
    return {}


def _consolidate(place: Place) -> Answer:
    place.checkpoint.maintenance.consolidate_index()
    return {}


def _repair(place: Place) -> Answer:
    place.checkpoint.maintenance.verify(repair=True)
    return {}


def _verify(place: Place) -> Answer:
    if not place.checkpoint.maintenance.verify().is_clean:
        raise RefusedError("damage")
    return {where: data for where, data in _read(place).items() if data is not None}  # it says that this is right


def _export(place: Place) -> Answer:
    target = place.target
    place.checkpoint.export(target)
    return _state_files(plain_state(target))


def _export_in_place(place: Place) -> Answer:
    place.checkpoint.export()
    return _state_files(plain_state(place.path))


def _drop(place: Place) -> Answer:
    place.checkpoint.export()
    place.checkpoint.drop_merged(dry_run=False)
    return _state_files(plain_state(place.path))


def _state_files(files: Mapping[str, bytes]) -> Answer:
    return {("", path): data for path, data in files.items()}


def _fork(mode: str) -> Callable[[Place], Answer]:
    def fork(place: Place) -> Answer:
        target = place.target
        place.checkpoint.fork(target, mode)
        return {("", path): data for path, data in state_of(target).items()}

    return fork


def _state(place: Place) -> Answer:
    if not place.has_rows:
        return {}
    table = place.checkpoint.state()
    version = int(table.schema.metadata[b"pyspark_statestore.version"])
    found: dict[int, set[Any]] = {}
    for row in table.to_pylist():
        pair = (tuple(row["key"].values()), tuple(row["value"].values()))
        found.setdefault(row["partition_id"], set()).add(pair)
    return {("state", partition, version): frozenset(rows) for partition, rows in found.items()}


def attempts(partition: int, version: int) -> list[frozenset[Any]]:
    """What ``state()`` may ever have said of a version: a batch was redone. Split partitions begin with the same."""
    return [frozenset(contents(partition % PARTITIONS, version, attempt).items()) for attempt in (0, 1)]


def _changes(place: Place) -> Answer:
    if not place.has_rows:
        return {}
    table = place.checkpoint.state_changes(LAST - 1, LAST)
    return {("change", row["partition_id"], str(row["key"])): str(row) for row in table.to_pylist()}


def _inspect(place: Place) -> Answer:
    tables = place.checkpoint.inspect.tables(*TABLES)
    live = (row for row in tables["segments"].to_pylist() if row["status"] == "live")
    found: dict[Any, Any] = {("live", row["logical_path"]): row["crc32c"] for row in live}
    for row in tables["versions"].to_pylist():
        if row["is_restorable"]:
            found["restorable", row["partition_id"], row["version"]] = True
    return found


def _by_command(*line: str) -> Callable[[Place], Answer]:
    def run(place: Place) -> Answer:
        words = [str(place.target) if word == "TARGET" else word for word in line[1:]]
        _command(line[0], place.path, *words)
        return {}

    return run


READ = Verb("read", False, _read)
VERBS = (
    READ,
    Verb("state", False, _state),
    Verb("state_changes", False, _changes),
    Verb("inspect", False, _inspect),
    Verb("verify", False, _verify),
    Verb("repair", True, _repair),
    Verb("compact", True, _compact),
    Verb("compact", True, _compact_all),
    Verb("localize", True, _localize),
    Verb("orphans", True, _orphans),
    Verb("expire", True, _expire),
    Verb("consolidate", True, _consolidate),
    Verb("export", False, _export),
    Verb("export in place", True, _export_in_place, last=True),
    Verb("drop-merged", True, _drop, last=True),
    *(Verb(f"fork {mode}", True, _fork(mode)) for mode in ("no_claim", "copy")),
    Verb("fork claim", True, _fork("claim"), last=True),
    Verb("compact", True, _by_command("compact")),
    Verb("orphans", True, _by_command("orphans", "--older-than", "1h", "--no-dry-run")),
    Verb("expire", True, _by_command("expire", "--retain-last", "1", "--no-dry-run")),
    Verb("consolidate", True, _by_command("consolidate")),
    Verb("repair", True, _by_command("verify", "--repair")),
    Verb("export", False, _by_command("export", "--to", "TARGET")),
    Verb("fork no_claim", True, _by_command("fork", "TARGET")),
    Verb("state", False, _by_command("state")),
    Verb("inspect", False, _by_command("versions")),
)
