"""The house: rooms and Java packages import only from floors below; ARCHITECTURE.md says why each is where it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pyspark_statestore

PACKAGE = "pyspark_statestore"
ROOT = Path(pyspark_statestore.__file__).parent

FLOORS: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        (
            ("values",),
            ("_version", "errors", "grouping", "parsing", "rendering"),
            ("conf", "format", "paths", "sparkfiles"),
            ("session", "storage"),
            ("log",),
            ("inspect",),
            ("report",),
            ("forks", "maintenance", "migration", "sink", "state"),
            ("checkpoint",),
            ("background", "notebook", "plot"),
            ("__init__",),
            ("cli",),
        ),
    )
)
"""Files and folders of the package, from the ground up. No room imports another of its own floor."""

FACES = {"inspect": PACKAGE + ".inspect"}
"""Of these rooms, others import what the package itself hands out, and none of its modules."""


def name_of(path: Path) -> str:
    """The module that a file is."""
    parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str:
    return MODULES[module].relative_to(ROOT).parts[0].removesuffix(".py")


def imports_in(source: str) -> Iterator[str]:
    """Modules of the package that a source imports, wherever in it: also in functions, and for type checkers."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide from which floor they are"
            # `from package import module` is an import of the module.
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [each if each in MODULES else str(node.module) for each in whole]
        yield from (name for name in names if name.partition(".")[0] == PACKAGE)


IMPORTS: Mapping[str, frozenset[str]] = {
    module: frozenset(imports_in(path.read_text())) - {module} for module, path in MODULES.items()
}


def upward_in(imports: Mapping[str, frozenset[str]]) -> list[str]:
    floor_of = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return [
        f"{module} imports {imported}"
        for module, found in imports.items()
        for imported in sorted(found)
        if room_of(imported) != room_of(module) and floor_of[room_of(imported)] >= floor_of[room_of(module)]
    ]


def test_every_room_is_on_one_floor() -> None:
    assert sorted(room for rooms in FLOORS for room in rooms) == sorted(set(map(room_of, MODULES)))


def test_no_import_runs_upwards() -> None:
    assert upward_in(IMPORTS) == []


def test_other_rooms_use_only_the_face_of_inspect() -> None:
    inside = [
        f"{module} imports {imported}"
        for module, found in IMPORTS.items()
        for imported in found
        for room, face in FACES.items()
        if room_of(module) != room and imported.startswith(face + ".")
    ]
    assert inside == []


def test_no_files_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize(
    "line",
    [
        f"from {PACKAGE}.maintenance.cleaning import clean",
        f"def f():\n    from {PACKAGE}.maintenance import cleaning",
        f"import {PACKAGE}.cli.main",
        f"from {PACKAGE} import Checkpoint",
    ],
)
def test_an_import_that_runs_upwards_is_seen(line: str) -> None:
    assert upward_in({f"{PACKAGE}.log.scan": frozenset(imports_in(line))})


def test_a_circle_is_seen() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


JAVA = sorted((Path(__file__).parents[2] / "jvm-shim/src").glob("*/java/io/pyspark/statestore"))
"""The sources that all versions of Spark share, those of minor versions, and those of tests."""
JAVA_SOURCES = sorted(path for root in JAVA if root.parents[3].name != "test" for path in root.rglob("*.java"))
JAVA_FLOORS: tuple[frozenset[str], ...] = (
    frozenset({""}),
    frozenset({"format"}),
    frozenset({"log"}),
    frozenset({"fs", "heap", "reshape", "rocks", "sink"}),
    frozenset({"spark"}),
)
"""Packages of the shim, from the ground up; the empty name is ``io.pyspark.statestore`` itself."""


def java_package_of(path: Path) -> str:
    root = next(root for root in JAVA if path.is_relative_to(root))
    return path.relative_to(root).parent.as_posix().removeprefix(".")


def test_every_java_package_is_on_one_floor() -> None:
    found = {java_package_of(path) for path in JAVA_SOURCES}
    assert sorted(name for names in JAVA_FLOORS for name in names) == sorted(found)


def test_no_java_import_runs_upwards() -> None:
    floor_of = {name: number for number, names in enumerate(JAVA_FLOORS) for name in names}
    upward = []
    for path in JAVA_SOURCES:
        package = java_package_of(path)
        # Named in the code with its package, too, as two classes of one name have to be.
        named = re.findall(r"\bio\.pyspark\.statestore((?:\.[a-z]+)?)\.[A-Z]", path.read_text())
        for other in {name.removeprefix(".") for name in named} - {package}:
            if floor_of[other] >= floor_of[package]:
                upward.append(f"{path.name} in {package or 'the root'} names {other}")
    assert upward == []
