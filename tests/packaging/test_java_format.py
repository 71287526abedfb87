"""jvm-shim/java_format.py: the formatter with lines of 120 characters, and what it says where it cannot be had."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import java_format
import pytest

PREFIX = "com/google/googlejavaformat/java/"
CALL = "call(" + ", ".join(f"argument{number}" for number in range(100, 108)) + ");"
"""A statement that Google's own style has no room for in a line."""
JAVA = f"""\
package x;

class P {{
  void p() {{
    {CALL}
  }}
}}
"""

needs_formatter = pytest.mark.skipif(
    not java_format.KEPT.exists(), reason="make lint fetches the formatter into the environment that it checks with"
)


def jar(classes: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in classes.items():
            archive.writestr(f"{PREFIX}{name}.class", content)
    return made.getvalue()


def known() -> dict[str, bytes]:
    return {name: b"?" + b"\x10\x64" * count for name, count in java_format._LOADS_WIDTH.items()}


def test_only_the_known_classes_are_made_wider() -> None:
    wide = java_format.widened(jar({**known(), "Main": b"\x10\x64"}))

    with zipfile.ZipFile(io.BytesIO(wide)) as archive:
        assert archive.read(f"{PREFIX}JavaCommentsHelper.class") == b"?\x10\x78\x10\x78"
        assert archive.read(f"{PREFIX}Main.class") == b"\x10\x64"


@pytest.mark.parametrize(
    ("change", "said"),
    [({"Formatter": b"\x10\x64\x10\x64"}, r"Formatter\.class does not load its width 1 times"), ({}, "has no .*Str")],
)
def test_another_release_is_refused(change: dict[str, bytes], said: str) -> None:
    classes = {**known(), **change}
    if not change:
        del classes["StringWrapper"]

    with pytest.raises(java_format.FormatterError, match=said):
        java_format.widened(jar(classes))


def test_without_npm_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr(java_format, "formatter", lambda: java_format._download())

    assert java_format.main(["--check"]) == 1
    assert "apt-get install npm" in capsys.readouterr().err
    assert java_format.main(["--check", "--if-possible"]) == 0
    assert "Nobody looks at the layout of Java here" in capsys.readouterr().err


@needs_formatter
def test_what_is_laid_out_stays_and_what_is_not_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 100 < len(f"    {CALL}") <= 120
    good, bad = tmp_path / "P.java", tmp_path / "Q.java"
    good.write_text(JAVA)
    bad.write_text(JAVA.replace("    call", "call"))

    assert java_format.main(["--check", str(good), str(bad)]) == 1
    assert capsys.readouterr().out == f"{bad} is not laid out; what to do: make format\n"
    assert java_format.main([str(good), str(bad)]) == 0
    assert good.read_text() == bad.read_text() == JAVA
    assert java_format.main(["--check", str(good), str(bad)]) == 0


@needs_formatter
def test_a_java_that_is_too_new_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "javac").write_text("#!/bin/sh\necho javac 99.0.1\n")
    (tmp_path / "java").write_text("#!/bin/sh\necho java.lang.NoSuchMethodError: x >&2\nexit 1\n")
    for name in ("java", "javac"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert java_format.main(["--check", "P.java"]) == 1
    assert f"does not run on {tmp_path}/java" in capsys.readouterr().err


@needs_formatter
def test_a_line_that_cannot_be_broken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "P.java"
    file.write_text("/** <pre>\n * " + "x" * 118 + "\n * </pre> */\nclass P {}\n")
    java_format.main([str(file)])

    assert java_format.main(["--check", str(file)]) == 1
    assert capsys.readouterr().out.startswith(f"{file}:5: 121 characters of 120; what to do: ")


@needs_formatter
def test_what_is_no_java_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "P.java"
    file.write_text("class {")

    assert java_format.main([str(file)]) == 1
    assert "P.java:1:8: error: reached end of file while parsing" in capsys.readouterr().err
    assert file.read_text() == "class {"
