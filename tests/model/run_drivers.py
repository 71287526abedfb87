"""Drivers that run the query of one checkpoint, step by step, on a real directory; each does what ``RunFiles`` does.

A driver's step is one call to the file system, so that others can come between any two.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from pyspark_statestore.format import MergedFileWriter, file_name
from pyspark_statestore.log.ended import ENDED_SUFFIX, RUNNING_SUFFIX, End, Ended
from pyspark_statestore.log.scan import scan
from pyspark_statestore.storage import Directory, Location

QUERY = "4f5b"
Steps = Generator[None, None, None]


@dataclass(frozen=True)
class RunRules:
    """What drivers and readers abide by. All on is what is guaranteed, one off a bug to find."""

    begins_with_a_word: bool = True  # a run that begins says so before anything of it is written
    takes_away_runs: bool = True  # and takes away what those have said that were killed
    says_it_again: bool = True  # and says it again where that was done to itself before it has begun
    names_only_its_own: bool = True  # nobody who lost a batch to another driver says that the query has ended
    waits_for_tasks: bool = True  # an end is said when no task can write any more
    runs_count: bool = True  # nobody believes an end beside a run that goes on
    batches_count: bool = True  # nor one beside a batch that is newer
    groups_count: bool = True  # nor one beside a group that it does not name


class Checkpoint:
    """The directory, and what is known of it from outside."""

    def __init__(self, path: Path, rules: RunRules) -> None:
        self.path = path
        self.rules = rules
        self.merged = path / "state" / "_merged"
        for folder in ("offsets", "commits", "state/_merged"):
            (path / folder).mkdir(parents=True)
        (path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
        self.names = 0
        self.stamp = 1_000 << 16
        self.newest_begun: Driver | None = None

    def next_name(self, writer: int, suffix: str) -> str:
        self.names += 1
        return file_name(1_700_000_000_000 + self.names, writer, self.names).removesuffix(".merged") + suffix

    def newest(self, log: str) -> int:
        return max((int(file.name) for file in (self.path / log).iterdir()), default=-1)

    def of_runs(self) -> list[str]:
        return sorted(file.name for file in self.merged.iterdir() if file.suffix in (RUNNING_SUFFIX, ENDED_SUFFIX))

    def write_group(self, app_id: str, writer: int) -> None:
        """A process of an application writes a merged file."""
        name = self.next_name(writer, ".merged")
        self.stamp += 1
        meta: dict[str, str | bool] = {"app_id": app_id, "executor_id": "1", "query_run_id": "", "plain": False}
        with (self.merged / name).open("wb") as out:
            file = MergedFileWriter(out, writer=writer, created_ms=int(name[:13]), meta=meta)
            file.put(f"0/0/{self.names}.changelog", b"of a batch", stamp=self.stamp)
            file.seal()

    def writers(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, file in scan(self.directory).files.items():
            stamp = max(group.trailer.group_stamp for group in file.groups)
            writer = int(name.split("-")[1], 16)
            found[writer] = max(stamp, found.get(writer, 0))
        return found

    @property
    def directory(self) -> Directory:
        return Directory(Location.of(str(self.path)))

    def is_believed(self) -> bool:
        """Whether somebody who needs a stopped query goes on: production's rule, but for what is switched off."""
        directory = self.directory
        if all((self.rules.runs_count, self.rules.batches_count, self.rules.groups_count)):
            return Ended.found(directory, scan(directory), (), QUERY, ()) is not None
        return any(self._seems(name) for name in self.of_runs() if name.endswith(ENDED_SUFFIX))

    def _seems(self, name: str) -> bool:
        end = End.decode((self.merged / name).read_bytes())
        if end is None:
            return False
        runs = self.rules.runs_count and any(each.endswith(RUNNING_SUFFIX) for each in self.of_runs())
        batches = self.newest("offsets") > end.planned or self.newest("commits") > end.batch
        groups = not all(map(end.accounts_for, scan(self.directory).files.values()))
        return not (runs or (self.rules.batches_count and batches) or (self.rules.groups_count and groups))

    def has_said(self, ended: Driver) -> None:
        """An end was said. Who writes beside another driver, and says nothing, is noticed if it took a batch."""
        driver = self.newest_begun
        if driver is not None and not driver.knows_marks and ended.last_entered >= driver.last_entered:
            driver.has_written = False

    def must_not_be_believed(self) -> str:
        """Why nobody may take the query for stopped now; empty where somebody may."""
        driver = self.newest_begun
        if driver is None or driver.has_ended:
            return ""
        if driver.knows_marks or driver.has_written:
            return f"{driver} has begun last and has not ended"
        return ""  # a build that says nothing, and has written nothing


class Driver:
    """A driver with one run of the query."""

    def __init__(self, checkpoint: Checkpoint, number: int, *, knows_marks: bool = True) -> None:
        self._checkpoint = checkpoint
        self._rules = checkpoint.rules
        self.number = number
        self.knows_marks = knows_marks
        self.has_begun = self.has_ended = self.has_written = self.is_dead = False
        self.batch: int | None = None
        self.open_task = False
        self._own: str | None = None
        self._entered: dict[str, int] = {}
        self._steps: Steps | None = None

    def __str__(self) -> str:
        return f"driver {self.number}"

    @property
    def last_entered(self) -> int:
        """The newest batch that it has entered in a log itself; a later one than all where it has entered none."""
        return max(self._entered.values(), default=1 << 60)

    @property
    def is_busy(self) -> bool:
        """Whether it is in the middle of something."""
        return self._steps is not None

    def do(self, steps: Steps) -> None:
        """Begins something."""
        self._steps = steps

    def step(self) -> None:
        """Makes the next call of what it has begun."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None

    def finish(self) -> None:
        """Ends what it has begun."""
        while self.is_busy:
            self.step()

    def kill(self) -> None:
        """It is gone; nobody else is told."""
        self.is_dead, self._steps = True, None

    def begin(self) -> Steps:
        checkpoint, rules = self._checkpoint, self._rules
        if self.knows_marks and rules.begins_with_a_word:
            earlier = checkpoint.of_runs()
            yield
            self._own = checkpoint.next_name(0xD00 + self.number, RUNNING_SUFFIX)
            (checkpoint.merged / self._own).touch()
            yield
            for name in earlier:
                if name.endswith(ENDED_SUFFIX) or rules.takes_away_runs:
                    (checkpoint.merged / name).unlink(missing_ok=True)
                    yield
            while rules.says_it_again and self._own not in checkpoint.of_runs():
                yield
                self._own = checkpoint.next_name(0xD00 + self.number, RUNNING_SUFFIX)
                (checkpoint.merged / self._own).touch()
                yield
        self.has_begun = True
        checkpoint.newest_begun = self

    def plan(self) -> Steps:
        """Enters a batch, or goes on with one that was begun; fails where another driver has entered it."""
        planned, committed = self._checkpoint.newest("offsets"), self._checkpoint.newest("commits")
        yield
        self.batch = planned if planned > committed else planned + 1
        if self.batch > planned and not self._create("offsets"):
            yield from self.fail()
        self.open_task = not self.is_dead

    def work(self) -> Steps:
        """A task of the batch writes."""
        self._checkpoint.write_group(f"app-{self.number}", self.number)
        self.has_written = True
        yield

    def commit(self) -> Steps:
        self.open_task = False
        if not self._create("commits"):
            yield from self.fail()
        self.batch = None
        yield

    def _create(self, log: str) -> bool:
        try:
            with (self._checkpoint.path / log / str(self.batch)).open("x"):
                self.has_written = True
                self._entered[log] = int(self.batch or 0)
                return True
        except FileExistsError:
            return False

    def fail(self) -> Steps:
        """Spark ends the query, as another one has taken its batch; its tasks are cancelled."""
        self.open_task = False
        yield from self.end()

    def end(self) -> Steps:
        checkpoint, rules = self._checkpoint, self._rules
        if rules.waits_for_tasks:
            self.open_task = False
        self.has_ended = not self.open_task
        if self.knows_marks and self._own is not None:
            self._name_all()
            yield
            self._look()
            yield
            if self._may_say:
                name = checkpoint.next_name(0xD00 + self.number, ENDED_SUFFIX)
                (checkpoint.merged / name).write_bytes(self._said.encode())
                checkpoint.has_said(self)
                yield
            (checkpoint.merged / self._own).unlink(missing_ok=True)
            yield
            for other in self._others if self._may_say else ():
                (checkpoint.merged / other).unlink(missing_ok=True)
                yield
        self.is_dead = not self.open_task

    def _name_all(self) -> None:
        checkpoint = self._checkpoint
        planned, batch = checkpoint.newest("offsets"), checkpoint.newest("commits")
        app_id = f"app-{self.number}"
        self._said = End(QUERY, f"run-{self.number}", app_id, batch, planned, 1, checkpoint.writers())

    def _look(self) -> None:
        found = self._checkpoint.of_runs()
        self._others = [name for name in found if name != self._own]
        is_alone = self._own in found and not any(name.endswith(RUNNING_SUFFIX) for name in self._others)
        newest = {"offsets": self._said.planned, "commits": self._said.batch}
        is_last = all(newest[log] == batch for log, batch in self._entered.items())
        self._may_say = is_alone and (is_last or not self._rules.names_only_its_own)
