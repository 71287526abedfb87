"""JVMs of their own, beside that of the tests, that work on a checkpoint and can be frozen and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway


def spark_home(home: Path) -> Path:
    """The installed Spark under another name: a local cluster keeps its executors' directories in its ``work``."""
    if not home.exists():
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


def has_exited(pid: int) -> bool:
    """Whether a JVM is over, though its process may be left: it removes its performance data before the last step.

    The last step of an exit is RocksDB's: it waits for its threads. One that logs in Java (Spark has such a logger)
    waits for the JVM, which is over, so that process stays for ever. (ververica/ForSt#30 tells the same of another
    callback.) A worker of Spark kills it after ten seconds; that of a local cluster has ended with its driver by then.
    """
    folders = {Path("/tmp"), Path(tempfile.gettempdir())}
    return not any(any(folder.glob(f"hsperfdata_*/{pid}")) for folder in folders)


class Jvm:
    """A process with Spark's classes and the shim, without a session.

    Args:
        jars: The shim's jar and the test jar.
    """

    def __init__(self, jars: Sequence[Path]) -> None:
        spark = Path(pyspark.__file__).parent / "jars"
        (port, token, self.process) = launch_gateway(
            jarpath=str(next(spark.glob("py4j-*.jar"))),
            classpath=os.pathsep.join([*map(str, jars), f"{spark}/*"]),
            javaopts=["-XX:-UsePerfData", "-Xmx512m", "-Dlog4j2.level=ERROR"],
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
        )
        # Without memory management: finalizers that run at any time would call a process that may be dead or frozen.
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True, enable_memory_management=False)
        self.gateway = JavaGateway(gateway_parameters=parameters)

    @property
    def view(self) -> Any:
        """py4j's view of it."""
        return self.gateway.jvm

    def freeze(self) -> None:
        """Stops it where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, as kill -9 does; what it was asked before that fails."""
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        """Ends it, however it is; its files stay unsealed."""
        if self.process.poll() is None:
            self.kill()
        self.gateway.close()


@contextmanager
def second_jvm(*jars: Path) -> Iterator[Jvm]:
    """A JVM that is gone afterwards."""
    jvm = Jvm(jars)
    try:
        yield jvm
    finally:
        jvm.close()
