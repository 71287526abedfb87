"""Checkpoints that several processes share, on HDFS or on the disk."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.local_hdfs import CLIENT_SETTINGS
from tests.jvm.harness import MERGED_FILE_SYSTEM, PREFIX, TESTING, Checkpoint, View

_ANSWER_SECONDS = 90


class Place:
    """A directory of a file system, for one test.

    Args:
        jvm: py4j's view of a JVM.
        local: The test's directory on the disk.
        base: The file system's part of a URI, without a scheme of ours.
        directory: The directory there.
    """

    def __init__(self, jvm: Any, local: Path, base: str, directory: str) -> None:
        self.jvm = jvm
        self.local = local
        self.base = base
        self.checkpoint = f"{directory}/checkpoint"
        self.scheme = base.split(":")[0]
        conf = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in self.settings({}).items():
            conf.set(key, value)
        self.fs = jvm.org.apache.hadoop.fs.FileSystem.get(self.path("").toUri(), conf)

    def settings(self, options: Mapping[str, str]) -> dict[str, str]:
        """Hadoop settings of a process that works here, with options of merged state."""
        named = {PREFIX + name: value for name, value in options.items()}
        return {**CLIENT_SETTINGS, f"fs.merged+{self.scheme}.impl": MERGED_FILE_SYSTEM, **named}

    def location(self, relative: str = "", *, merged: bool = False) -> str:
        """The URI of something in the checkpoint."""
        return f"{'merged+' if merged else ''}{self.base}{self.checkpoint}{'/' if relative else ''}{relative}"

    def path(self, relative: str, *, merged: bool = False) -> Any:
        """The same as a Hadoop path."""
        return self.jvm.org.apache.hadoop.fs.Path(self.location(relative, merged=merged))

    def forget(self) -> None:
        """Closes what this JVM has open of the checkpoint, without sealing it."""
        self.jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(self.path(""))

    def merged_files(self) -> dict[str, int]:
        """The merged files and the lengths that a listing shows."""
        merged = self.path("state/_merged")
        listed = self.fs.listStatus(merged) if self.fs.exists(merged) else []
        return {status.getPath().getName(): status.getLen() for status in listed}

    def state(self) -> Path:
        """A copy of the state directory's merged files on the disk, as any reader gets them now."""
        state = Path(tempfile.mkdtemp(dir=self.local, prefix="copy-")) / "state"
        (state / "_merged").mkdir(parents=True)
        for name in self.merged_files():
            stream = self.fs.open(self.path(f"state/_merged/{name}"))
            try:
                (state / "_merged" / name).write_bytes(bytes(stream.readAllBytes()))
            finally:
                stream.close()
        return state

    def view(self) -> View:
        """What Python reads in the merged files."""
        return View.of(self.state())

    def contents(self) -> dict[str, bytes]:
        """The live files and their bytes, read by Python."""
        state = self.state()
        return View.of(state).contents()


class Hdfs(Place):
    """A directory on HDFS, named as the test's directory on the disk is."""

    def __init__(self, jvm: Any, local: Path, url: str) -> None:
        super().__init__(jvm, local, url, f"/{local.name}")


class Disk(Place):
    """A directory on the disk."""

    def __init__(self, jvm: Any, local: Path) -> None:
        super().__init__(jvm, local, "file:", str(local))


class SharedCheckpoint(Checkpoint):
    """This process's view of a checkpoint that others work on, too."""

    def __init__(self, place: Place, **options: str) -> None:
        self.place = place
        super().__init__(place.jvm, place.local / "unused", place.scheme, **options)

    def _file_system(self, options: Mapping[str, str]) -> Any:
        conf = self.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in self.place.settings(options).items():
            conf.set(key, value)
        uri = self.place.path("", merged=True).toUri()
        return self.jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, conf)

    def location(self, relative: str) -> str:
        """A logical file as Hadoop is told, with the merged scheme."""
        return str(self.place.path(f"state/{relative}", merged=True).toString())

    @property
    def log(self) -> Any:
        """The MergedLog; None before it is first used."""
        return self.jvm.io.pyspark.statestore.log.MergedLogs.open(self.place.path("state"))

    def forget(self) -> None:
        """What is left of a process that was killed: its unsealed files."""
        self.place.forget()

    def load(self, relative: str) -> bytes:
        """Reads a file as a load does: asks first, which refreshes the view."""
        assert self.exists(relative), relative
        return self.read(relative)


class Shell:
    """Another process with a JVM of its own that writes and reads a checkpoint (StateFileShell).

    Args:
        place: Where.
        jars: The shim's, and that of the tests.
        options: Of merged state.
    """

    def __init__(self, place: Place, jars: Sequence[Path], options: Mapping[str, str]) -> None:
        spark = Path(pyspark.__file__).parent / "jars" / "*"
        command = ["java", "-XX:-UsePerfData", "-Xmx256m", "-Xmn64m"]
        command += ["-cp", os.pathsep.join(map(str, [spark, *jars])), f"{TESTING}.StateFileShell"]
        command += [place.location("state", merged=True)]
        command += [f"{key}={value}" for key, value in place.settings(options).items()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.answer() == "ok ready"

    def tell(self, *words: str) -> None:
        """Says what to do, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Waits for the answer to what was said last."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        watchdog.start()
        try:
            return self._process.stdout.readline().strip()
        finally:
            watchdog.cancel()

    def write(self, relative: str, text: str) -> str:
        """Commits a logical file, or fails to."""
        self.tell("write", relative, text)
        return self.answer()

    def read(self, relative: str) -> str:
        """Reads a logical file as a load does."""
        self.tell("read", relative)
        return self.answer().removeprefix("ok ")

    def stop(self) -> None:
        """Stops the process in its tracks; `go_on` lets it run again."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets a stopped process run."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def text(path: str) -> str:
    """What tests write to a logical file."""
    return f"the bytes of {path} " * 20


def expected(*paths: str) -> dict[str, bytes]:
    """What these logical files hold then."""
    return {path: text(path).encode() for path in paths}


def write_all(writer: Shell, *paths: str) -> None:
    """Lets another process write them; each is acknowledged."""
    for path in paths:
        assert writer.write(path, text(path)) == "ok"
