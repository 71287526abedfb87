"""Links lead somewhere, in pages and in what code says of them; pages stay short; ARCHITECTURE.md names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "examples" / "README.md",
        ROOT / "benchmarks" / "README.md",
    ]
)
SOURCES = ROOT / "jvm-shim" / "src"
JAVA = [root for root in SOURCES.glob("*/java/io/pyspark/statestore") if not root.is_relative_to(SOURCES / "test")]
"""What all versions of Spark share, and what is for some of them."""
PYTHON = ROOT / "pyspark_statestore"
SPARKS = {"StateStoreProvider"}
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert not broken


def test_pages_stay_short() -> None:
    """A page that grows beyond this answers more than one question. Two are looked up, and not read."""
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").glob("*.md")}
    assert {name for name, count in words.items() if count > 3500} <= {"format.md", "guarantees.md"}
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_pages_that_code_names_exist() -> None:
    """In messages, reports, help and comments: ``docs/fork.md``."""
    folders = ("pyspark_statestore", "datasource", "jvm-shim/src", "benchmarks", "examples", "release", "website")
    named = {
        (page, str(file.relative_to(ROOT)))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".java", ".scala", ".ipynb")
        for page in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert sorted(each for each in named if not (ROOT / each[0]).is_file()) == []


def test_what_the_architecture_names_exists() -> None:
    text = CODE.sub("", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    java = "\n".join(file.read_text(encoding="utf-8") for root in JAVA for file in root.rglob("*.java"))
    python = "\n".join(
        file.read_text(encoding="utf-8") for file in [*PYTHON.rglob("*.py"), *(ROOT / "datasource").rglob("*.py")]
    )
    unknown = []
    for name in set(re.findall(r"`([\w./]*\w)`", text)) - SPARKS:
        if "/" in name:
            path, _, member = name.partition(".")
            found = any(
                base.joinpath(path).exists() or base.joinpath(path + end).exists()
                for base, end in (*((root, ".java") for root in JAVA), (PYTHON, ".py"), (ROOT, ".py"), (SOURCES, ""))
            )
            member = "" if member in ("py", "java") else member
        else:
            found, member = True, name.rpartition(".")[2]
        if not found or (member and not re.search(rf"\b{member}\b", java + python)):
            unknown.append(name)

    assert not sorted(unknown)


def test_the_architecture_has_a_place_for_each_class() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    classes = {file.stem for root in JAVA for file in root.rglob("*.java")}

    assert sorted(name for name in classes if not re.search(rf"\b{name}\b", text)) == []


def test_the_glossary_is_in_the_order_of_the_alphabet() -> None:
    words = re.findall(r"^\*\*(.+?)\.\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(words, key=lambda word: word.lower().replace("-", " "))
