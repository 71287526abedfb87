"""The command line as a process of its own: imports, pipes, signals, terminals."""

from __future__ import annotations

import array
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.builders import age, name, write_checkpoint, write_sink
from tests.conftest import ROOT
from tests.inspect.builders import simple_checkpoint

pytestmark = pytest.mark.sweep(1, files="sessions and processes of their own")

COMMAND = [sys.executable, "-m", "pyspark_statestore.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
IN_TIME = 60


def start(*arguments: object, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True, env=ENVIRONMENT, close_fds=True)


def wait_until_full(pipe: int) -> None:
    """Waits until who writes to a pipe has to wait for a reader: it is more than half full, and stays as it is."""
    half = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2
    end = time.monotonic() + IN_TIME
    before = after = 0
    while after < half or after != before:
        assert time.monotonic() < end
        time.sleep(0.2)
        before, after = after, array.array("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose segments fill a pipe."""
    return write_checkpoint(tmp_path_factory.mktemp("large") / "q1", partitions=20, versions=200)


@pytest.mark.parametrize("arguments", [["--help"], ["files", "--help"], ["plot", "--help"], ["files", "--no-such"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
sys.argv[1:] = {arguments!r}
from pyspark_statestore.cli.main import main
try:
    main()
except SystemExit:
    pass
heavy = "pyspark", "py4j", "pyarrow", "numpy", "pandas", "matplotlib", "fsspec", "rich"
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_error(large: Path) -> None:
    for form in ("table", "json"):
        process = start("segments", large, "--output", form)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(IN_TIME) == 0


def test_interrupted(large: Path) -> None:
    process = start("segments", large)
    assert process.stdout is not None
    # It cannot end: nobody reads, and the pipe is too small for all of it.
    try:
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGINT)

        assert process.wait(IN_TIME) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


ODD = "pr\u00fcfung \u65e5\u672c \U0001f600"
ENCODINGS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "latin-1, unbuffered": {"PYTHONIOENCODING": "latin-1", "PYTHONUNBUFFERED": "1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
}


@pytest.mark.parametrize("environment", ENCODINGS.values(), ids=ENCODINGS)
def test_every_letter_can_be_written_whatever_the_encoding(tmp_path: Path, environment: dict[str, str]) -> None:
    """Cron and CI have old locales, and a local disk has names that are no UTF-8."""
    odd, unreadable = (os.fsencode(tmp_path) + b"/" + place for place in (ODD.encode(), b"no \xff utf-8"))
    for path in (odd, unreadable):
        for file in write_checkpoint(Path(os.fsdecode(path)), partitions=1, versions=2).rglob("*"):
            age(file, minutes=60)
    commands = [[b"files", unreadable], [b"files", odd + b"?"], [b"list", os.fsencode(tmp_path)], [b"list", odd]]
    commands += [[b"files", odd], [b"verify", odd], [b"export", odd, b"--dry-run", b"--force"]]
    commands += [[b"report", odd, b"-o", b"-"], [b"report", unreadable, b"-o", b"-"]]
    script = f"""
import os, sys
from pyspark_statestore.cli.main import main
for command in {commands!r}:
    sys.argv[1:] = [os.fsdecode(each) for each in command]
    sys.stdout.flush()
    try:
        main()
    except SystemExit as done:
        print("=", command[0].decode(), done.code, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, env={**ENVIRONMENT, **environment}
    )

    statuses = [line.split() for line in done.stdout.decode("latin-1").splitlines() if line.startswith("= ")]
    # Where Python reads ASCII only, no path with such letters is text.
    refused = {unreadable, odd + b"?"} | ({odd} if "LC_ALL" in environment else set())
    assert statuses == [["=", command[0].decode(), str(int(command[1] in refused))] for command in commands]
    assert b"Unexpected" not in done.stderr
    assert done.stderr.count(b"[PSS_") == sum(command[1] in refused for command in commands), done.stderr
    assert b"[PSS_BAD_PATH]" in done.stdout, "in its line of the list"
    assert b"2 checkpoints" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells the threads of a process")
def test_no_thread_of_arrow_ends_with_the_process(tmp_path: Path) -> None:
    """Seldom, such a thread calls Python after its end, and C++ aborts a process whose work is done."""
    for path in write_checkpoint(tmp_path / "q1").rglob("*"):
        age(path, minutes=60)  # its query is stopped
    write_sink(tmp_path / "sink")
    commands = ["versions q1", "top q1", "verify q1", "compact q1 --dry-run", "compact q1 --dry-run --smaller-than 1m"]
    commands += ["report q1 -o q1.html", "plot q1 -o q1.png", "expire q1 --retain-last 1", "list . -o list.html"]
    commands += ["sink files sink", "sink verify sink", "sink report sink -o sink.html", "sink plot sink -o sink.png"]
    code = """
import json, os, sys, time
from click.testing import CliRunner
from pyspark_statestore.cli.main import cli

def is_left(task):
    try:
        with open(f"/proc/self/task/{task}/comm") as name:
            return not name.read().startswith("jemalloc")  # Arrow's allocator: it calls no Python
    except OSError:  # it has ended meanwhile
        return False

def count():
    return sum(map(is_left, os.listdir("/proc/self/task")))

for command in sys.argv[1:]:
    result = CliRunner().invoke(cli, command.split())
    end = time.monotonic() + 60  # a thread that was joined ends a moment later
    while count() > 1 and time.monotonic() < end:
        time.sleep(0.05)
    print(json.dumps([command, result.exit_code, count()]))
"""
    environment = {**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"}  # NumPy starts threads, which call no Python

    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [command for command, _, _ in found] == commands
    assert {command: code for command, code, _ in found if code} == {}
    assert {command: threads for command, _, threads in found if threads != 1} == {}


@pytest.mark.parametrize(("arguments", "status"), [(["files", "/no/such"], 1), (["no-such"], 2)])
def test_exit_status(arguments: list[str], status: int) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT)

    assert done.returncode == status
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def on_terminal(*arguments: object, stdout: bool, stderr: bool) -> tuple[str, str]:
    """Runs a command with a pseudo-terminal as stdout or stderr; returns what it shows, and what was piped."""
    control, terminal = pty.openpty()
    process = start(
        *arguments,
        stdout=terminal if stdout else subprocess.PIPE,
        stderr=terminal if stderr else subprocess.PIPE,
    )
    os.close(terminal)
    pipe = process.stdout or process.stderr
    seen = {control: b"", **({pipe.fileno(): b""} if pipe else {})}
    left = set(seen)
    while left:
        ready = select.select(list(left), [], [], IN_TIME)[0]
        assert ready
        for descriptor in ready:
            try:
                data = os.read(descriptor, 65536)
            except OSError:  # what the end of a terminal is on Linux
                data = b""
            seen[descriptor] += data
            if not data:
                left.remove(descriptor)
    assert process.wait(IN_TIME) == 0
    os.close(control)
    piped = seen[pipe.fileno()] if pipe else b""
    return seen[control].decode().replace("\r\n", "\n"), piped.decode()


def test_progress_on_a_terminal(large: Path) -> None:
    terminal, piped = on_terminal("segments", large, stdout=False, stderr=True)

    assert "Reading merged files" in terminal
    assert "3/3" in terminal
    assert piped.splitlines()[0].startswith("4,001 segments in ")
    assert "\x1b" not in piped
    assert sum(".changelog" in line for line in piped.splitlines()) == 4001


def test_progress_in_bytes(tmp_path: Path) -> None:
    small = simple_checkpoint(tmp_path / "q", files=3)

    terminal, piped = on_terminal("compact", small, stdout=False, stderr=True)

    assert "Rewriting merged files" in terminal
    assert "72/72 bytes" in terminal
    assert piped.startswith("Compaction of ")
    assert "\x1b" not in piped


def test_no_progress_but_where_stderr_is_a_terminal(large: Path) -> None:
    terminal, piped = on_terminal("segments", large, stdout=True, stderr=False)

    assert piped == ""
    assert "Reading" not in terminal
    lines = terminal.splitlines()
    assert "... and 3,951 more; --limit 0 shows all." in lines[-1]
    assert terminal.count(".changelog") == 50


def test_json_on_a_terminal_is_whole_and_bare(large: Path) -> None:
    control, terminal = pty.openpty()
    process = start("files", large, "--output", "json", stdout=terminal)
    os.close(terminal)
    data = b""
    while select.select([control], [], [], IN_TIME)[0]:
        try:
            more = os.read(control, 65536)
        except OSError:
            break
        if not more:
            break
        data += more
    assert process.wait(IN_TIME) == 0
    os.close(control)

    assert len(json.loads(data)) == 3
    assert name(1).encode() in data
