"""What is shown of names that somebody else has chosen, and of what nobody is to read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyspark_statestore import Checkpoint, Sink, StateStoreFilesError
from pyspark_statestore.cli.main import cli, main
from pyspark_statestore.errors import redacted
from pyspark_statestore.plot import plot, plot_sink
from pyspark_statestore.rendering import lines
from pyspark_statestore.storage import Location
from tests.sink.made import line, make, name, put, write_list
from tests.state.small_stores import schema_json, write_schema, write_store

ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202e\u2066x"
"""Clears the screen, changes the window's title, goes back to the line's beginning, and turns text around."""

SECRET = "s3cr3t"


def run(*line: object) -> Result:
    done = CliRunner().invoke(cli, [str(each) for each in line])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def harmless(text: str) -> None:
    assert not [each for each in text if not each.isprintable() and each != "\n"], ascii(text)


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A sink with such names, and with a file that is listed and not there."""
    folder = make(tmp_path / f"t{ESCAPES}", [f"q=1{ESCAPES}/{name(1, '.c000.parquet')}"])
    put(folder, f"q=1{ESCAPES}/{name(2, '.c000.parquet')}", f"{ESCAPES}.txt")
    return folder


@pytest.mark.parametrize("command", ["files", "log", "waiting", "verify", "orphans"])
@pytest.mark.parametrize("output", ["table", "json"])
def test_no_name_moves_the_cursor(sink: Path, command: str, output: str) -> None:
    done = run("sink", command, sink, "--output", output)

    assert done.exit_code == 0
    assert "owned" in done.stdout or (command, output) == ("waiting", "json")
    harmless(done.output)


def test_no_name_in_a_message_moves_the_cursor(sink: Path) -> None:
    write_list(sink, [line(f"file:/{ESCAPES}", isDir=True), ESCAPES])

    done = run("sink", "files", sink)

    assert done.exit_code == 1
    assert "owned" in done.stderr
    harmless(done.output)


def test_no_column_of_a_state_moves_the_cursor(tmp_path: Path) -> None:
    path = write_store(tmp_path / f"q{ESCAPES}")
    write_schema(path, schema_json(("user", ESCAPES)), schema_json(("clicks",)))

    for options in ([], ["--limit", "1", "--wide"], ["--sort", "none"]):
        done = run("state", path, *options)
        assert "owned" in done.output
        harmless(done.output)
    for command in ("summary", "files", "versions", "verify"):
        harmless(run(command, path).output)


def test_no_unexpected_error_moves_the_cursor(
    sink: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError(f"{ESCAPES} s3a://user:{SECRET}@bucket/x")

    monkeypatch.setattr(Sink, "files", fail)
    monkeypatch.setattr("sys.argv", ["pyspark-statestore", "sink", "files", str(sink)])
    monkeypatch.setattr("pyspark_statestore.cli.main.prepare_stdout", lambda: None)
    with pytest.raises(SystemExit):
        main()

    said = capsys.readouterr().err
    assert "owned" in said
    assert SECRET not in said
    harmless(said)


@pytest.mark.parametrize("text", ["a\nb", "ü 漢字 🦆", "", "a\\x1b"])
def test_what_can_be_printed_stays(text: str) -> None:
    assert lines(text) == text


def test_half_a_character_can_be_printed() -> None:
    assert lines("a\ud800\tb").encode() == b"a\\ud800\\tb"


VALUES = (r"$\frac$", "$x", r"$\notacommand{", "a$b$c", "_^{}", ESCAPES, "x" * 200, "%", "\n")


@pytest.mark.parametrize("ending", ["png", "html"])
@pytest.mark.parametrize("place", [r"t$\frac$", ESCAPES])
def test_any_name_can_be_drawn(tmp_path: Path, place: str, ending: str) -> None:
    paths = [f"q={value}/{name(1, '.c000.parquet')}" for value in VALUES]
    folder, store = make(tmp_path / place / "t", paths), write_store(tmp_path / place / "q")
    pictures = [tmp_path / f"{each}.{ending}" for each in ("sink", "checkpoint")]

    plot_sink(Sink(folder), pictures[0])
    plot(Checkpoint(store), pictures[1])

    if ending == "html":
        harmless("".join(picture.read_text() for picture in pictures))


# Secrets.

URLS = [
    (f"s3a://AKIA:{SECRET}@bucket/t1", "s3a://***@bucket/t1"),
    (f"webhdfs://me:{SECRET}@nn:9870/t1", "webhdfs://***@nn:9870/t1"),
    (f"hdfs://me:{SECRET}@{SECRET}@nn/t1", "hdfs://***@nn/t1"),
    (
        f"https://a.blob.core.windows.net/c/t1?sv=1&sig={SECRET}&se=2",
        "https://a.blob.core.windows.net/c/t1?sv=1&sig=***&se=2",
    ),
    (f"http://h/x?X-Amz-Signature={SECRET}", "http://h/x?X-Amz-Signature=***"),
    (f"http://h/webhdfs/v1/x?op=OPEN&delegation={SECRET}", "http://h/webhdfs/v1/x?op=OPEN&delegation=***"),
    (f"{{'key': 'a', 'secret': '{SECRET}'}}", "{'key': 'a', 'secret': '***'}"),
    (f'{{"account_key": "{SECRET}"}}', '{"account_key": "***"}'),
]


@pytest.mark.parametrize(("text", "shown"), URLS)
def test_a_secret_is_never_shown(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(f"Could not read {text} or '{text}'") == f"Could not read {shown} or '{shown}'"
    error = StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": text, "reason": f"no {text}"})
    assert SECRET not in f"{error!r} {error} {error.getMessage()} {error.getMessageParameters()}"


@pytest.mark.parametrize(
    "text", ["abfss://container@account.dfs.core.windows.net/t1", "hdfs://nn:8020/a@b", "/t1/q=a:b@c", "s3a://b/k?x=1"]
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redacted(text) == text


@pytest.fixture
def logins() -> Iterator[str]:
    """A scheme whose file system takes a user and a password, as some of fsspec's do."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    class Logins(LocalFileSystem):
        protocol = ("file", "logins")
        given: str = ""

        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
            Logins.given = path
            return {}

        @classmethod
        def _strip_protocol(cls, path: Any) -> str:
            return str(super()._strip_protocol(str(path).replace(f"logins://me:{SECRET}@host", "")))

    fsspec.register_implementation("logins", Logins, clobber=True)
    yield f"logins://me:{SECRET}@host"
    assert SECRET in Logins.given  # the file system has it


def test_a_password_in_a_url_is_in_nothing_that_is_shown(
    logins: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = make(tmp_path / "t1", [f"q=1/{name(1, '.c000.parquet')}"])
    put(folder, f"q=1/{name(2, '.c000.parquet')}")
    store = write_store(tmp_path / "q1")
    shown = []
    for command in ("files", "log", "waiting", "verify", "orphans"):
        for output in ("table", "json"):
            shown.append(run("sink", command, f"{logins}{folder}", "--output", output).output)
    for command in ("summary", "versions", "verify", "files", "orphans"):
        shown.append(run(command, f"{logins}{store}").output)
    for command in ("summary", "sink files", "sink compact"):
        shown.append(run(*command.split(), f"{logins}/nowhere").output)
    shown.append(run("list", f"{logins}{tmp_path}", "--output", "json").output)
    assert '"partition_count": 2' in shown[-1]  # it was read
    shown += [run("list", f"{logins}{tmp_path}", "-o", "-").output, run("report", f"{logins}{store}", "-o", "-").output]
    sink, checkpoint = Sink(f"{logins}{folder}"), Checkpoint(f"{logins}{store}")
    shown += [sink.report().html, checkpoint.report().html, repr(sink), repr(checkpoint), sink.url, checkpoint.url]
    location = Location.of(f"{logins}{folder}")
    shown += [repr(location), repr(location.beside("/x")), location.display("x"), location.beside("/x").display()]
    for what in ("html", "png"):
        plot_sink(sink, tmp_path / f"p.{what}")
    shown += [(tmp_path / "p.html").read_text(), caplog.text, *capfd.readouterr()]

    assert not [text for text in shown if SECRET in text]
    assert "logins://***@host" in shown[0]
    assert location.beside("/x").exact_url == f"{logins}/x"
