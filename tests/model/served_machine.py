"""The state machine with an index service: what it, those whom it serves, strangers and the network may do."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.machine import FLUSH, OFTEN, PATH, PATHS, SELDOM, SKEWS, WHO
from tests.model.messages import Answer, Left, Looks, Message, Reply, Report, Reported
from tests.model.process import Flush, Process
from tests.model.served import Served
from tests.model.served_rules import ServedRules
from tests.model.service import Service
from tests.model.views import PythonView, ServedView, partition_of
from tests.model.world import CLOSED, IDLE, World

FATE = st.sampled_from(["arrives"] * 8 + ["late", "late", "doubled", "lost", "answer lost"])


class ServedMachine(RuleBasedStateMachine):
    """A service, three processes that it serves, and two strangers that work by themselves."""

    abides_by = ServedRules()

    def make_view(self) -> ServedView:
        """The index of a new process."""
        return PythonView(self.abides_by)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(PATHS)
        self.started = 0
        self.network: list[tuple[Message | Reply, Served | None]] = []
        self.fate = "arrives"
        self.service = self._start_service()
        self.served = [self._start_served(number) for number in range(3)]
        self.strangers: list[Process] = [self._start_stranger(number) for number in range(2)]

    def _new(self, letter: str) -> tuple[str, int]:
        self.started += 1
        return f"{letter}{self.started}", 1 + self.started * 7_919 % 997

    def _start_service(self) -> Service:
        name, writer = self._new("S")
        self.world.epoch = self.started
        service = Service(self.started, self.world, name, writer, 0, self.abides_by, self.make_view())
        service.begin_run()
        return service

    def _start_served(self, number: int) -> Served:
        name, writer = self._new("E")
        made: list[Served] = []

        def send(message: Message) -> None:
            self._send(message, made[0])

        arguments = (self.world, name, writer, SKEWS[number], self.abides_by, self.make_view())
        made.append(Served(self.service, send, *arguments))
        return made[0]

    def _start_stranger(self, number: int) -> Process:
        name, writer = self._new("P")
        process = Process(self.world, name, writer, SKEWS[number], self.abides_by, self.make_view())
        process.refresh()
        return process

    def _alive(self, who: int) -> Served:
        """The process; a new one where it has died, or has to begin anew because the service is another one."""
        if not self.served[who].alive or self.served[who].refused:
            self.served[who] = self._start_served(who)
        return self.served[who]

    def _stranger(self, who: int) -> Process:
        if not self.strangers[who % 2].alive:
            self.strangers[who % 2] = self._start_stranger(who % 2)
        return self.strangers[who % 2]

    # ---- the network

    def _send(self, message: Message, sender: Served) -> None:
        fate, self.fate = self.fate, "arrives"
        if isinstance(message, Left) or (isinstance(message, Report) and message.sealed):
            fate = {"answer lost": "arrives"}.get(fate, fate)
        if fate == "late":
            self.network.append((message, sender))
        elif fate == "answer lost":
            self.service.handle(message)
        elif fate != "lost":
            if fate == "doubled":
                self.network.append((message, sender))
            reply = self.service.handle(message)
            self._arrives(reply, sender)

    def _arrives(self, reply: Reply | None, sender: Served) -> None:
        if not sender.alive:
            return
        if isinstance(reply, Reported):
            sender.reported(reply)
        elif isinstance(reply, Answer):
            sender.answered(reply)

    @rule(number=st.integers(0, 5), fate=st.sampled_from(["arrives", "arrives", "answer late", "doubled", "lost"]))
    def delivers(self, number: int, fate: str) -> None:
        """What was late; it may be late once more, on its way back."""
        if not self.network:
            return
        at = number % len(self.network)
        message, sender = self.network[at]
        assert sender is not None
        if fate != "doubled":
            del self.network[at]
        if fate == "lost":
            return
        if isinstance(message, (Reported, Answer)):
            self._arrives(message, sender)
            return
        reply = self.service.handle(message)
        if fate == "answer late" and reply is not None:
            self.network.append((reply, sender))
        else:
            self._arrives(reply, sender)

    # ---- histories

    @initialize(prelude=st.integers(0, 4))
    def begins(self, prelude: int) -> None:
        """Most of what can go wrong begins like this; random steps would seldom lead there."""
        third = self.served[2]
        if prelude > 0:
            self.write(0, PATHS, Flush.OK, True, "arrives", "arrives", seals=True)
            third.ask_to_load({partition_of(path) for path in PATHS})
        if prelude > 1:
            third.begin_relocation(0)
        if prelude > 2:
            self.delete(1, PATHS[0], Flush.OK, "arrives", seals=True)
        if prelude > 3:
            self.goes_on(2, Flush.OK, "arrives", gives_up=False)

    @rule(by=st.sampled_from([1, IDLE // 2, IDLE + 1, CLOSED // 2 + 1, CLOSED]))
    def time_passes(self, by: int) -> None:
        self.world.now += by

    @rule(
        who=WHO,
        paths=st.sampled_from([PATHS[:1], PATHS[1:], PATHS]),
        flush=FLUSH,
        at_once=OFTEN,
        asked=FATE,
        told=FATE,
        seals=SELDOM,
    )
    def write(
        self, who: int, paths: tuple[str, ...], flush: Flush, at_once: bool, asked: str, told: str, seals: bool
    ) -> None:
        """A task loads and commits; where no answer comes, it fails."""
        process = self._alive(who)
        if not process.idle:
            return
        self.fate = asked
        process.ask_to_load({partition_of(path) for path in paths})
        if not process.idle or process.asked or not {partition_of(path) for path in paths} <= set(process.serves):
            return
        process.begin_put(paths)
        self.fate = told
        if at_once and process.end_append(flush) and seals and process.idle:
            process.seal()

    @rule(who=WHO, path=PATH, asked=FATE, looks_again=st.booleans())
    def load(self, who: int, path: str, asked: str, looks_again: bool) -> None:
        process = self._alive(who)
        self.fate = asked
        process.ask_to_load({partition_of(path)})
        if looks_again and not process.asked and process.misses(path):
            if self.abides_by.misses_are_asked_for:
                process.ask_to_load({partition_of(path)}, Looks.READS)
            if not process.refused and not process.asked:
                process.reads(path)

    @rule(who=WHO, path=PATH, flush=FLUSH, told=FATE, seals=st.booleans())
    def delete(self, who: int, path: str, flush: Flush, told: str, seals: bool) -> None:
        process = self._alive(who)
        process.delete(path)
        if process.idle:
            self.fate = told
            process.flush_tombstones(flush)
            if process.idle and seals:
                process.seal()

    @rule(who=WHO, flush=FLUSH, told=FATE, gives_up=SELDOM)
    def goes_on(self, who: int, flush: Flush, told: str, gives_up: bool) -> None:
        """With whatever it has begun."""
        process = self._alive(who)
        self.fate = told
        if process.flight:
            process.end_append(flush)
        elif process.reporting and gives_up:
            process.report_fails()
        elif process.may_end_relocation:
            process.end_relocation()
        elif process.reporting:
            pass
        elif process.relocation and process.relocation.copies:
            process.begin_copies()
        elif process.relocation and (process.relocation.copies is not None or not process.asked):
            process.end_relocation()
        else:
            process.flush_tombstones(flush)
        self.fate = "arrives"

    @rule(who=WHO, number=st.integers(0, 3), asked=FATE, told=FATE, steps=st.sampled_from(["all", "begun", "begun"]))
    def relocate(self, who: int, number: int, asked: str, told: str, steps: str) -> None:
        process = self._alive(who)
        if not process.idle or process.relocation:
            return
        self.fate = asked
        process.begin_relocation(number)
        if steps == "all" and process.relocation and process.relocation.copies:
            process.begin_copies()
            if process.flight:
                self.fate = told
                process.end_append(Flush.OK)
            if process.alive and process.may_end_relocation:
                process.end_relocation()

    @rule(who=WHO, path=PATH, step=st.sampled_from(["seals", "seals", "dies", "dies unseen", "forgets", "unlinks"]))
    def ends(self, who: int, path: str, step: str) -> None:
        process = self._alive(who)
        if step == "seals" and process.idle:
            process.seal()
        elif step.startswith("dies"):
            process.crash()
            if step == "dies":
                self.service.lost(process.writer)
        elif step == "forgets" and partition_of(path) in process.serves and process.idle and not process.asked:
            process.forget(partition_of(path))
        elif step == "unlinks" and not self.abides_by.only_the_service_unlinks:
            process.unlink_by_its_view()

    @rule(step=st.sampled_from(["cleans", "cleans", "begins to clean", "refreshes", "begins", "reads all", "repeats"]))
    def serves(self, step: str) -> None:
        """What the driver does by itself, or goes on with."""
        service = self.service
        if service.refreshing:
            service.read_next()
        elif service.cleaning:
            service.clean_next(Flush.OK)
        elif step == "cleans":
            service.begin_cleaning(complete=True, at_once=True)
            while service.cleaning:
                service.clean_next(Flush.OK)
            service.seal()
        elif step == "begins to clean":
            service.begin_cleaning(complete=True, at_once=False)
        elif step == "refreshes" or step == "reads all":
            service.look(everything=step == "reads all")
        elif step == "begins":
            service.begin_refresh()
        else:
            service.consolidate()

    @rule(how=st.sampled_from(["runs again", "restarts", "another driver"]))
    def drives(self, how: str) -> None:
        """A query begins in this application, or in another one; the former driver may still be there."""
        if how == "runs again":
            self.service.begin_run()
            return
        former, self.service = self.service, self._start_service()
        if how == "another driver":
            former.refreshing = None
            self.strangers[0] = former
        else:
            former.crash()

    @rule(
        who=st.integers(0, 1),
        step=st.sampled_from(
            ["writes", "deletes", "cleans", "cleans", "relocates", "begins", "goes-on", "dies", "seals"]
        ),
        path=PATH,
        flush=FLUSH,
        number=st.integers(0, 3),
    )
    def stranger(self, who: int, step: str, path: str, flush: Flush, number: int) -> None:
        """Maintenance from outside, a former driver, or an executor of it."""
        process = self._stranger(who)
        if step in ("writes", "deletes", "relocates", "begins", "seals") and not process.idle:
            step = "goes-on"
        if step == "writes":
            if isinstance(process, Service):
                process.look(everything=True)
            else:
                process.refresh()
            process.take_over(partition_of(path))
            process.begin_put([path])
            process.end_append(flush)
        elif step == "deletes":
            process.refresh()
            process.delete(path)
            process.flush_tombstones(flush)
        elif step == "relocates" and not process.relocation:
            process.begin_relocation(number, at_once=True)
        elif step == "begins":
            process.begin_put([path])
        elif step == "cleans" and process.idle and not process.cleaning:
            process.begin_cleaning(complete=True, at_once=True, flush=flush)
            while process.cleaning:
                process.clean_next(Flush.OK)
        elif step == "dies":
            process.crash()
        elif step == "seals":
            process.seal()
        elif process.flight:
            process.end_append(flush)
        elif process.relocation and process.relocation.copies:
            process.begin_copies()
        elif process.relocation:
            process.end_relocation()

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self) -> None:
        self.world.check()
        self.service.check_what_counts()

    def teardown(self) -> None:
        """A cold reader finds what lives, and so does the service of the next driver."""
        try:
            self.world.check()
            self.service.check_what_counts()
        except AssertionError:
            return
        service = self._start_service()
        for _ in range(4):
            self.world.now += CLOSED
            service.begin_cleaning(complete=True, at_once=True)
            while service.cleaning:
                service.clean_next(Flush.OK)
            service.seal()
            self.world.check()
            service.check_what_counts()
