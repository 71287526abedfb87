"""The house: rooms and Java packages import only from floors below; ARCHITECTURE.md says why each is where it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pyspark_statestore
from tests.java_house import House, java_sources, package_of

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


JAVA_FLOORS: tuple[frozenset[str], ...] = (
    frozenset({""}),
    frozenset({"format", "sink.join"}),
    frozenset({"files"}),
    frozenset({"index"}),
    frozenset({"metrics"}),
    frozenset({"learn"}),
    frozenset({"read", "write"}),
    frozenset({"clean", "tables"}),
    frozenset({"service"}),
    frozenset({"log"}),
    frozenset({"fs", "heap", "reshape", "rocks", "sink", "tab"}),
    frozenset({"ahead", "balance"}),
    frozenset({"spark"}),
)
"""Packages of the shim, from the ground up; the empty name is ``io.pyspark.statestore`` itself."""

JAVA = House.of()
JAVA_SOURCES = java_sources()

LARGEST_CIRCLE, LARGEST_PACKAGE, MOST_USED = 3, 30, 30
"""Classes that use each other, classes of a package, and classes that one class uses."""


def java_upward_in(house: House) -> list[str]:
    floor_of = {name: number for number, names in enumerate(JAVA_FLOORS) for name in names}
    return [
        f"{house.package_of[name]}.{name} uses {house.package_of[other]}.{other}"
        for name, found in house.uses.items()
        for other in sorted(found)
        if house.package_of[other] != house.package_of[name]
        and floor_of[house.package_of[other]] >= floor_of[house.package_of[name]]
    ]


def test_every_java_package_is_on_one_floor() -> None:
    assert sorted(name for names in JAVA_FLOORS for name in names) == sorted(JAVA.sizes)


def test_no_java_class_uses_one_of_a_floor_above() -> None:
    assert java_upward_in(JAVA) == []


def test_no_java_package_is_a_knot() -> None:
    assert [circle for circle in JAVA.circles if len(circle) > LARGEST_CIRCLE] == []
    assert {name: size for name, size in JAVA.sizes.items() if size > LARGEST_PACKAGE} == {}
    assert {name: len(found) for name, found in JAVA.uses.items() if len(found) > MOST_USED} == {}


def test_every_java_package_says_what_it_is_for() -> None:
    said = {package_of(path.read_text(encoding="utf-8")) for path in JAVA_SOURCES if path.stem == "package-info"}
    assert JAVA.sizes.keys() - {""} == said


def test_java_that_runs_upwards_or_in_a_circle_is_seen() -> None:
    uses = {"A": {"B"}, "B": {"C"}, "C": {"D"}, "D": {"A"}, "E": {"A"}}
    house = House(dict.fromkeys("ABCD", "index") | {"E": "files"}, {name: frozenset(uses[name]) for name in uses})
    assert house.circles == [["A", "B", "C", "D"]]
    assert java_upward_in(house) == ["files.E uses index.A"]


def test_py4j_finds_each_static_method_of_a_test_class() -> None:
    # py4j looks at one method of a name, the first that the JVM lists, in an order that changes from run to run.
    method = re.compile(r"^  public (static )?[^\n(;={]*?[\w>\]] (\w+)\(", re.MULTILINE)
    sources = set((ROOT.parent / "jvm-shim" / "src").rglob("*.java")) - set(JAVA_SOURCES)
    assert {"test", "spark-4.1-on"} <= {path.relative_to(ROOT.parent).parts[2] for path in sources}
    for path in sorted(sources):
        found = method.findall(path.read_text(encoding="utf-8"))
        assert not {n for static, n in found if static} & {n for static, n in found if not static}, path
