"""The command line."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from pyspark_statestore import StateStoreFilesError, __version__
from pyspark_statestore.cli import main as cli_main
from pyspark_statestore.session import jvm


def test_version() -> None:
    result = CliRunner().invoke(cli_main.cli, ["--version"])

    assert result.exit_code == 0
    assert __version__ in result.output


def test_jar_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "jar_path", lambda spark: f"/lib/x-{spark}.jar")

    assert CliRunner().invoke(cli_main.cli, ["jar-path"]).output == "/lib/x-None.jar\n"
    assert CliRunner().invoke(cli_main.cli, ["jar-path", "--spark", "4.2"]).output == "/lib/x-4.2.jar\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StateStoreFilesError("PSS_BAD_PATH", {"path": "x", "reason": "y"}), "[PSS_BAD_PATH]"),
        (RuntimeError("boom"), "Unexpected RuntimeError: boom"),
    ],
)
def test_errors_are_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, words: str
) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr(jvm, "jar_path", fail)
    monkeypatch.setattr(sys, "argv", ["pyspark-statestore", "jar-path"])
    monkeypatch.delenv("PYSPARK_STATESTORE_DEBUG", raising=False)

    with pytest.raises(SystemExit) as exited:
        cli_main.main()

    assert exited.value.code == 1
    output = capsys.readouterr()
    assert words in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_unknown_commands_are_messages_too() -> None:
    code = "import sys; sys.argv[1:] = ['no-such']; from pyspark_statestore.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "No such command" in done.stderr
