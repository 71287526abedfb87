"""Spark applications in processes of their own, for tests that kill parts of them."""

from __future__ import annotations

import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests import class_data
from tests.cluster.data import WORKLOADS, Rows, Workload, rows_of, write_input
from tests.cluster.processes import has_exited, spark_home
from tests.jvm import harness
from tests.jvm.harness import FORKLESS, TESTING, file_system_conf
from tests.streaming.runs import NO_FILE_CHECKSUMS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""Seconds that anything may take on a busy machine."""

_HANGS = 20.0
"""Seconds after which an executor whose JVM is over will not end by itself."""

_SCHEME = "killing"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "WARN",
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "UTC",
    # Executors die often here.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.locality.wait": "0s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.pollingDelay": "50ms",
    **FORKLESS,
    f"spark.hadoop.fs.{_SCHEME}.impl": f"{TESTING}.KillingFileSystem",
    f"spark.hadoop.fs.AbstractFileSystem.{_SCHEME}.impl": f"{TESTING}.KillingFs",
    **{f"spark.hadoop.{key}": value for key, value in file_system_conf(_SCHEME).items()},
}
"""Of every application: so that in a short run there is something to relocate and to unlink."""

OPTIONS = {"max_file_size": "64k", "max_space_amplification": "1.2", "closed_after": "5s"}
_REMOTE = {"restore": "remote", "local_size_limit": "16m"}
RETAINED = int(CONF["spark.sql.streaming.minBatchesToRetain"])
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class Setting:
    """How an application runs.

    Attributes:
        workload: A name in :data:`WORKLOADS`.
        master: ``local-cluster[2,1,1024]`` for executors in processes of their own, ``local[2]`` for none.
        door: ``provider`` or ``path``.
        store: ``rocksdb`` or ``heap``.
        changelog: Whether RocksDB writes changelogs and, in maintenance, snapshots, or a snapshot with each batch.
        index_service: Whether executors ask the driver what others have written.
        sink: The format of files to which the query writes its input, instead of the workload's result.
        is_remote: Whether state stays in the checkpoint, and parts of it go from the local disk all the time.
    """

    workload: str = "aggregation"
    master: str = "local-cluster[2,1,1024]"
    door: str = "provider"
    store: str = "rocksdb"
    changelog: bool = True
    index_service: bool = True
    sink: str = ""
    is_remote: bool = False

    def __str__(self) -> str:
        kind = self.store if self.store == "heap" else f"{self.store}-{'changelog' if self.changelog else 'snapshots'}"
        remote = "-remote" if self.is_remote else ""
        return f"{self.workload}-{self.door}-{kind}{remote}-{self.master.split('[')[0]}"


@dataclass
class Order:
    """A kill that was ordered.

    Attributes:
        file: Without its ending: see ``Killer`` for those.
    """

    file: Path

    @property
    def done(self) -> dict[str, str]:
        """What was done, empty as long as nothing was."""
        found = self.file.with_suffix(".done")
        if not found.exists():
            return {}
        return dict(line.split("=", 1) for line in found.read_text().splitlines())

    @property
    def dead(self) -> list[int]:
        """The processes that were killed."""
        return json.loads(self.done["pids"]) if self.done else []

    def withdraw(self) -> bool:
        """Takes the order back; whether it was still there."""
        try:
            self.file.with_suffix(".order").unlink()
        except FileNotFoundError:
            return False
        return True


@dataclass
class Application:
    """One query with its input and its checkpoint, and the processes that run it now.

    Attributes:
        root: For all of its files.
        setting: How it runs.
        jars: Both jars.
    """

    root: Path
    setting: Setting
    jars: tuple[Path, Path]
    fed: int = 0
    kills: int = 0
    last_order: Order = field(default_factory=lambda: Order(Path()))
    process: subprocess.Popen[str] | None = None
    _started: tuple[str, Mapping[str, str] | None] = ("", None)
    _answers: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for name in ("input", "out", "orders"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    @property
    def workload(self) -> Workload:
        """What it computes."""
        return WORKLOADS[self.setting.workload]

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint, on the local disk."""
        return self.root / "checkpoint"

    @property
    def state(self) -> Path:
        """The checkpoint's state directory, on the local disk."""
        return self.checkpoint / "state"

    @property
    def files(self) -> Path:
        """Where it writes, if it writes files."""
        return self.root / "files"

    def rows(self, batches: int | None = None) -> Rows:
        """The input of the first batches, of all that were fed if no number is given."""
        return [row for batch in range(self.fed if batches is None else batches) for row in rows_of(batch)]

    # ---- processes

    def start(self, master: str = "", options: Mapping[str, str] | None = None) -> None:
        """Starts or restarts the driver and the query, and waits until both are up.

        Args:
            master: Another one than the setting's.
            options: More options of merged state.
        """
        assert not self.running
        test = self.jars[1]
        java = class_data.use(test)
        conf = {
            **CONF,
            CHANGELOG: str(self.setting.changelog).lower(),
            **(NO_FILE_CHECKSUMS if (options or {}).get("group_commit_scope") == "batch" else {}),
            "spark.hadoop.fs.killing.orders": str(self.root / "orders"),
            "spark.driver.extraClassPath": str(test),
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraClassPath": str(test),
            "spark.executor.extraJavaOptions": java,
            "spark.local.dir": str(self.root / "tmp"),
            "spark.sql.warehouse.dir": str(self.root / "warehouse"),
            **(self._remote_conf if self.setting.is_remote else {}),
        }
        spec = {
            "root": str(self.root),
            "location": f"{'merged+' if self.setting.door == 'path' else ''}{_SCHEME}:{self.checkpoint}",
            "workload": self.setting.workload,
            "sink": self.setting.sink,
            "files": f"{_SCHEME}:{self.files}",
            "master": master or self.setting.master,
            "door": self.setting.door,
            "store": self.setting.store,
            "conf": conf,
            "options": {
                **OPTIONS,
                "index_service_enabled": str(self.setting.index_service).lower(),
                **(_REMOTE if self.setting.is_remote else {}),
                **(options or {}),
            },
        }
        file = self.root / "spec.json"
        file.write_text(json.dumps(spec))
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.driver", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.root,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_HOME": str(spark_home(self.root / "spark")),
                },
                # All processes that it starts are in its group, whoever their parent is by then.
                start_new_session=True,
            )
        self._answers = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=_collect, args=(self.process.stdout, self._answers), daemon=True).start()
        answer = self._answer()
        assert answer == {"ready": True}, f"{answer}: {self.said()}"
        self._started = master, options

    @property
    def _holes(self) -> Path:
        return self.root / "holes"

    @property
    def _remote_conf(self) -> dict[str, str]:
        return {
            "spark.plugins": "io.pyspark.statestore.testing.HolesPlugin",
            # Else classes of one jar do not see those of the other.
            "spark.executor.extraClassPath": os.pathsep.join(str(jar) for jar in self.jars),
            "spark.hadoop.fs.killing.holes": str(self._holes),
        }

    def gone_from_disks(self) -> int:
        """Bytes that have gone from the disks of processes whose state is remote."""
        return sum(int(file.read_text() or "0") for file in self._holes.glob("*"))

    def start_again(self) -> None:
        """Starts driver and query as they were started last."""
        self.start(*self._started)

    @property
    def _log(self) -> Path:
        return self.root / "driver.log"

    def said(self) -> str:
        """The end of the driver's log."""
        return self._log.read_text()[-6000:]

    @property
    def running(self) -> bool:
        """Whether any process of it is left."""
        if self.process is None:
            return False
        self.process.poll()  # so that nothing is left of it where it has ended
        return bool(self._processes())

    def _processes(self) -> list[int]:
        assert self.process is not None
        return [pid for pid, group in processes().items() if group == self.process.pid]

    def _await_executors(self) -> None:
        """Waits until all of its executors are gone, whose driver has ended; ends those that hang in their exit."""
        began = time.monotonic()

        def gone() -> bool:
            if time.monotonic() - began > _HANGS:
                for pid in filter(has_exited, self._processes()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            return not self.running

        until(gone, "the end of all executors")

    @property
    def driver_runs(self) -> bool:
        """Whether the driver has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Ends it as a user does, and waits until all of its processes are gone."""
        assert self.process is not None
        assert self.process.stdin is not None
        self._send({"do": "stop"})
        assert self.process.wait(PATIENCE) == 0, self.said()
        self._await_executors()

    def kill(self) -> None:
        """Ends all of its processes at once, by SIGKILL, and waits until they are gone."""
        if self.process is not None and self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            until(lambda: not self.running, "the end of all processes")

    def delete(self) -> None:
        """Removes all of its files. (Those of a test that fails are kept.)"""
        shutil.rmtree(self.root)

    def await_death(self) -> None:
        """Waits until a driver that was killed is gone, and its executors after it; restarts nothing."""
        assert self.process is not None
        assert self.process.wait(PATIENCE) != 0, "the driver stopped by itself"
        # Executors of a killed driver end by themselves; how fast is Spark's affair.
        self._await_executors()

    # ---- input and results

    def feed(self, batches: int = 1) -> None:
        """Adds input for so many batches.

        A driver that died may have entered a file into the source's log and not into the offset log. Its successor
        makes one batch of that file and the next one, if that has come by then. So this waits until it has begun.
        """
        if self.driver_runs:
            until(lambda: self._listed() <= self._begun() or not self.driver_runs, "the batch of a listed file")
        write_input(self.root / "input", range(self.fed, self.fed + batches))
        self.fed += batches

    def _listed(self) -> int:
        """The newest entry of the source's log."""
        return max(_numbers(self.checkpoint / "sources" / "0"), default=-1)

    def _begun(self) -> int:
        """The newest entry of the offset log."""
        return max(_numbers(self.checkpoint / "offsets"), default=-1)

    @property
    def committed(self) -> int:
        """How many batches are finished."""
        return max(_numbers(self.checkpoint / "commits"), default=-1) + 1

    def finish(self) -> None:
        """Waits until all input is processed."""

        def finished() -> bool:
            assert self.driver_runs, f"the driver is gone: {self.said()}"
            return self.committed >= self.fed

        until(finished, f"{self.fed} batches", PATIENCE)

    def given_out(self) -> Rows:
        """The query's result so far."""
        files = {int(path.stem): path for path in (self.root / "out").glob("[0-9]*.json")}
        batches = {number: [tuple(row) for row in json.loads(path.read_text())] for number, path in files.items()}
        return self.workload.given_out(batches)

    # ---- commands

    def restore(self, *batches: int) -> dict[int, list[Rows]]:
        """The state after each of these batches, part by part, as the ``statestore`` reader gives it."""
        found = self._call("restore", batches=list(batches))
        return {int(batch): [_rows(part) for part in parts] for batch, parts in found.items()}

    def replay(self, batch: int, partition: int, snapshot: int) -> list[Rows]:
        """The state of a partition after a batch, rebuilt from the snapshot after another one."""
        return [_rows(part) for part in self._call("replay", batch=batch, partition=partition, snapshot=snapshot)]

    def batch_result(self) -> Rows:
        """The query's result, computed at once by Spark."""
        return _rows(self._call("batch"))

    def _call(self, command: str, **arguments: Any) -> Any:
        self._send({"do": command, **arguments})
        answer = self._answer()
        assert "answer" in answer, f"{command} {arguments}: {answer}"
        return answer["answer"]

    def _send(self, command: Mapping[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        answer = self._answers.get(timeout=PATIENCE)
        assert answer, f"the driver is gone: {self.said()}"
        return answer

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        return [int(pid) for pid in self._call("executors")]

    # ---- kills

    def order(
        self,
        point: str,
        *,
        nth: int = 1,
        fraction: float = 0.0,
        victim: str = "self",
        process: str = "",
        after: str = "",
    ) -> Order:
        """Orders a kill; see the Java class ``Killer`` for what the arguments mean."""
        order = Order(self.root / "orders" / f"{next(self._order):04}")
        text = f"point={point}\nnth={nth}\nfraction={fraction}\nvictim={victim}\nprocess={process}\nafter={after}\n"
        hidden = order.file.with_suffix(".new")
        hidden.write_text(text)
        hidden.rename(order.file.with_suffix(".order"))
        self.last_order = order
        return order

    def feed_until_killed(self, order: Order, *, at_most: int = 40) -> None:
        """Adds batch after batch until an order is carried out, and the processes that it names are gone."""
        for _ in range(at_most):
            if not self.driver_runs:
                break
            self.feed()
            until(lambda: order.done or self.committed >= self.fed or not self.driver_runs, "a batch or a kill")
            if order.done:
                break
        assert order.done, f"nobody came to the point of {order.file} in {at_most} batches: {self.said()}"
        until(lambda: not processes().keys() & set(order.dead), f"the death of {order.done}")
        self.kills += 1


def _numbers(log: Path) -> list[int]:
    """The entries of one of Spark's logs; those that are compacted are named like ``9.compact``."""
    try:
        return [int(name.partition(".")[0]) for name in os.listdir(log) if name[0].isdigit()]
    except FileNotFoundError:
        return []


def _rows(answer: list[Any]) -> Rows:
    return [tuple(row) for row in answer]


def processes() -> dict[int, int]:
    """The processes of this machine and the group of each; without those that are dead but not buried."""
    if Path("/proc/self/stat").exists():
        lines = (_stat(pid) for pid in os.listdir("/proc") if pid.isdigit())
    else:
        command = ["ps", "-A", "-o", "pid=,pgid=,stat="]
        lines = (line.split() for line in subprocess.check_output(command, text=True).splitlines())
    return {int(line[0]): int(line[1]) for line in lines if line and not line[2].startswith("Z")}


def _stat(pid: str) -> list[str]:
    try:
        # After the command, which may hold anything: state, parent, group.
        state, _, group, *_ = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, group, state]


def _collect(lines: IO[str], answers: queue.Queue[dict[str, Any]]) -> None:
    for line in lines:
        if line.startswith("@"):
            answers.put(json.loads(line[1:]))
    answers.put({})


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Waits for something that another process brings about."""
    return harness.until(condition, what, seconds)


@contextmanager
def application(root: Path, setting: Setting, jars: tuple[Path, Path]) -> Iterator[Application]:
    """An application that leaves no process behind; it is not started yet."""
    made = Application(root, setting, jars)
    try:
        yield made
    finally:
        made.kill()
