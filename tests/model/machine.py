"""The state machine: what several processes may do to one directory, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.fork import Fork, Split, named
from tests.model.process import Flush, Process
from tests.model.rules import Rules
from tests.model.views import PythonView, View
from tests.model.world import CLOSED, IDLE, World

PATHS = ("0/0/1.changelog", "0/1/1.changelog")
SECONDS = {PATHS[0]: "0/2/1.changelog", PATHS[1]: "0/3/1.changelog"}
"""The second path of each, which nobody writes to."""
SKEWS = (0, 100_000, -100_000)
WHO = st.integers(0, 2)
PATH = st.sampled_from(PATHS)
ANY_PATH = st.sampled_from([*PATHS, *PATHS, *SECONDS.values()])
OFTEN = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False, False, False, True])
FLUSH = st.sampled_from([Flush.OK] * 16 + [flush for flush in Flush if flush is not Flush.OK])


class Machine(RuleBasedStateMachine):
    """Three processes, two paths in two partitions.

    A subclass says what is tested. The processes' steps are few rules with arguments, and what a process has begun goes
    on by one rule: most steps of a random history then do something.
    """

    abides_by = Rules()

    def make_view(self) -> View:
        """The index of a new process."""
        return PythonView(self.abides_by)

    def __init__(self) -> None:
        super().__init__()
        self.world = World((*PATHS, *SECONDS.values()))
        self.started = 0
        self.forks: list[Fork] = []
        self.split: Split | None = None
        self.processes = [self._start(number, SKEWS[number]) for number in range(3)]

    def _start(self, number: int, skew: int) -> Process:
        self.started += 1
        writer = 1 + self.started * 7_919 % 997
        name = f"P{number}.{self.started}"
        process = Process(self.world, name, writer, skew, self.abides_by, self.make_view())
        process.refresh()
        return process

    def _alive(self, who: int) -> Process:
        """The process; a new one where it has died."""
        if not self.processes[who].alive:
            self.processes[who] = self._start(who, self.processes[who].skew)
        return self.processes[who]

    def _take_over(self, process: Process, path: str) -> None:
        if self.abides_by.take_over_refreshes:
            process.refresh()
        process.take_over(path.rpartition("/")[0])

    @initialize(prelude=st.integers(0, 4))
    def begins(self, prelude: int) -> None:
        """Most of what can go wrong begins like this; random steps would seldom lead there."""
        first, second, third = self.processes
        if prelude > 0:
            self.write(0, PATHS, Flush.OK, at_once=True, seals=True)
            third.refresh()
        if prelude > 1:
            third.begin_relocation(0, at_once=True)
        second.refresh()
        if prelude > 2:
            self.delete(1, PATHS[0], Flush.OK, at_once=True, seals=True)
        if prelude > 3:
            third.begin_copies()
            third.end_append(Flush.OK)
            third.end_relocation()
        first.refresh()

    @rule(by=st.sampled_from([1, IDLE // 2, IDLE + 1, CLOSED // 2 + 1, CLOSED]))
    def time_passes(self, by: int) -> None:
        self.world.now += by

    @rule(who=WHO, paths=st.sampled_from([PATHS[:1], PATHS[1:], PATHS]), flush=FLUSH, at_once=OFTEN, seals=SELDOM)
    def write(self, who: int, paths: tuple[str, ...], flush: Flush, at_once: bool, seals: bool) -> None:
        process = self._alive(who)
        if process.idle:
            for path in paths:
                if path.rpartition("/")[0] not in process.owned:
                    self._take_over(process, path)
            process.begin_put(paths)
            if at_once and process.end_append(flush) and seals:
                process.seal()

    @rule(who=WHO, path=ANY_PATH, flush=FLUSH, at_once=OFTEN, seals=st.booleans())
    def delete(self, who: int, path: str, flush: Flush, at_once: bool, seals: bool) -> None:
        process = self._alive(who)
        process.delete(path)
        if process.idle and at_once:
            process.flush_tombstones(flush)
            if process.alive and seals:
                process.seal()

    @rule(who=WHO, flush=FLUSH, fails=SELDOM)
    def goes_on(self, who: int, flush: Flush, fails: bool) -> None:
        """With whatever it has begun."""
        process = self._alive(who)
        if process.flight:
            process.end_append(flush)
        elif process.refreshing:
            process.read_next()
        elif process.cleaning:
            process.clean_next(flush, fails=fails)
        elif process.relocation and process.relocation.copies:
            process.begin_copies()
        elif process.relocation:
            process.end_relocation()
        else:
            process.flush_tombstones(flush)

    @rule(who=WHO)
    def seal(self, who: int) -> None:
        if self._alive(who).idle:
            self._alive(who).seal()

    @rule(who=WHO, kind=st.sampled_from(["whole", "begin", "listing", "tail"]), number=st.integers(0, 3), path=ANY_PATH)
    def refresh(self, who: int, kind: str, number: int, path: str) -> None:
        process = self._alive(who)
        if process.refreshing:
            process.read_next()
        elif kind == "whole":
            process.refresh()
            process.look_up(path)
        elif kind == "begin":
            process.begin_refresh()
        elif kind == "listing":
            process.refresh_listing()
            process.look_up(path)
        else:
            process.read_tail(number)

    @rule(who=WHO, number=st.integers(0, 3), steps=st.sampled_from(["all", "refreshed", "begun"]))
    def relocate(self, who: int, number: int, steps: str) -> None:
        process = self._alive(who)
        if process.idle and not process.relocation and not process.refreshing:
            process.begin_relocation(number, at_once=steps != "begun")
            if steps == "all":
                process.begin_copies()
                if process.flight:
                    process.end_append(Flush.OK)
                process.end_relocation()

    @rule(who=WHO, complete=OFTEN, steps=st.sampled_from(["all", "all", "refreshed", "begun"]), flush=FLUSH)
    def clean(self, who: int, complete: bool, steps: str, flush: Flush) -> None:
        process = self._alive(who)
        if process.idle and not process.cleaning and not process.refreshing:
            process.begin_cleaning(complete=complete, at_once=steps != "begun", flush=flush)
            while steps == "all" and process.cleaning:
                process.clean_next(Flush.OK)

    @rule(who=WHO, writes=st.booleans())
    def index_only(self, who: int, writes: bool) -> None:
        if writes:
            self._alive(who).consolidate()
        else:
            self._alive(who).drop_index_only()

    @rule(step=st.sampled_from(["all", "begin", "on", "on", "on", "crash", "release"]))
    def fork(self, step: str) -> None:
        """Makes one, goes on with the one that was begun last, or drops the oldest."""
        last = self.forks[-1] if self.forks and not self.forks[-1].is_named else None
        if step == "release" and self.forks:
            self.forks.pop(0).release()
        elif step == "crash" and last:
            self.forks.pop().crash()
        elif last and last.has_looked:
            if not last.name_files():
                self.forks.pop()
        elif last:
            last.look(at_once=step == "all")
        elif step in ("all", "begin") and len(self.forks) < 3:
            self.started += 1
            self.forks.append(Fork(self.world, f"F{self.started}", self.abides_by, self.make_view()))
            if step == "all":
                self.forks[-1].look()
                self.forks[-1].name_files()

    @rule(step=st.sampled_from(["reads less", "reads less", "leaves", "comes back", "is looked for", "is looked for"]))
    def a_fork(self, step: str) -> None:
        """The oldest one that was made goes on, or somebody removes orphans."""
        for fork in named(self.forks)[:1]:
            if step == "reads less" and not fork.is_away:
                fork.read_less()
            elif step == "is looked for":
                fork.is_looked_for()
            else:
                fork.is_away = step == "leaves"
            if not fork.is_named:
                self.forks.remove(fork)

    @rule(step=st.sampled_from(["all", "begin", "on", "on", "on", "crash"]))
    def splits(self, step: str) -> None:
        """Gives second paths, or goes on with that."""
        if self.split is None and step in ("all", "begin"):
            self.started += 1
            self.split = Split(self.world, self.started, SECONDS, self.abides_by, self.make_view())
        if self.split is not None and step == "crash":
            self.split.crash()
            self.split = None
        while self.split is not None:
            if not self.split.has_looked:
                self.split.look(at_once=step == "all")
            elif not self.split.is_named:
                self.split.name_files()
            else:
                self.split.refer()
                self.split = None
            if step != "all":
                break

    @rule(who=WHO, cleanly=st.booleans(), skew=st.sampled_from(SKEWS))
    def restart(self, who: int, cleanly: bool, skew: int) -> None:
        process = self.processes[who]
        if process.alive and cleanly and process.idle:
            process.stop()
        elif process.alive:
            process.crash()
        self.processes[who] = self._start(who, skew)

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """What nobody needs is gone after a while, by the work of whoever is left."""
        if not self.processes_are_sound():
            return
        for fork in self.forks:
            fork.release()
        for process in self.processes:
            if process.alive:
                process.crash()
        last = self._start(0, 0)
        for _ in range(4):
            self.world.now += CLOSED
            last.begin_cleaning(complete=True, at_once=True)
            while last.cleaning:
                last.clean_next(Flush.OK)
            last.seal()
            self.world.check()
        left = set(self.world.files) - self.world.needed()
        assert len(left) <= 1, f"{sorted(left)} should have gone\n" + self.world.story()
        holders = {self.world.second.get((name, path), ("",))[0] for path, (name, _) in self.world.read().items()}
        own = [name for name, pin in self.world.pins.items() if pin.own and pin.files and holders.isdisjoint(pin.files)]
        assert not own, f"{own} should have gone\n" + self.world.story()
        assert not self.world.markers, "the markers of the dead should have gone\n" + self.world.story()

    def processes_are_sound(self) -> bool:
        """Whether the run has ended without an error, so that what is left can be judged."""
        try:
            self.world.check()
        except AssertionError:
            return False
        return True
