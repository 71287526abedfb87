"""What setup.cfg asks pip for, and what the docs and the messages tell people to install, are the same."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "pyspark_statestore").rglob("*.py"),
    *(ROOT / "datasource").rglob("*.py"),
]


def declared() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_extra_that_is_named_installs_something() -> None:
    extras = declared()["options.extras_require"]
    named = {
        (name.strip(), text.name)
        for text in TEXTS
        for found in re.findall(r"pyspark-statestore\[([a-z0-9, ]+)\]", text.read_text(encoding="utf-8"))
        for name in found.split(",")
    }
    assert {name for name, _ in named} >= {"s3", "plot"}
    assert [each for each in sorted(named) if not extras.get(each[0], "").strip()] == []


def test_what_the_first_examples_need_is_installed_with_the_package() -> None:
    parser = declared()
    required = re.findall(r"^[\w-]+", parser["options"]["install_requires"].strip(), re.MULTILINE)
    assert {"rocksdict", "pyarrow", "fsspec", "click", "pyspark"} <= set(required)
    extras = parser["options.extras_require"]
    # Its name outlives it by a release, for those who ask for it.
    assert extras["state"].strip() == ""
    assert "rocksdict" not in "".join(extras.values())
