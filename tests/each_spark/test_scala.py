"""The jar for Spark 3.5 is for Scala 2.12 and for Scala 2.13: what it refers to is the same in both.

PyPI has Spark 3.5 with Scala 2.12 only, so this is not run but read: all that the jar refers to in Scala's library must
be in the library of the installed Spark, which is 2.12 or 2.13; and in what it refers to in Spark no type may have
another meaning in the other Scala.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyspark
import pytest

from pyspark_statestore._version import __version__

JAR = (
    Path(__file__).resolve().parents[2]
    / "pyspark_statestore"
    / "jars"
    / f"pyspark-statestore-shim-spark-3.5-{__version__}.jar"
)
SPARK = Path(pyspark.__file__).parent / "jars"

pytestmark = [
    pytest.mark.each_spark,
    pytest.mark.skipif(not JAR.exists(), reason="the jar for Spark 3.5 is not built; `make jars` builds it"),
]

SAME_IN_BOTH = re.compile(
    r"scala/(Option|Function\d|PartialFunction|collection/(Iterator|Iterable|immutable/(List|Map)|mutable/Buffer)|concurrent/(Future|ExecutionContext)"
    r"|reflect/ClassTag|util/Try|runtime/\w+)"
)
"""Types that are one class in both. ``Seq``, for one, stands for another class in 2.13."""


@dataclass(frozen=True)
class ClassFile:
    """What a class refers to and declares.

    Attributes:
        parents: Its superclass and interfaces.
        references: Class, name and descriptor of each member that it refers to.
        declared: Name and descriptor of each member that it has.
    """

    parents: tuple[str, ...]
    references: frozenset[tuple[str, str, str]]
    declared: frozenset[tuple[str, str]]


def parse(data: bytes) -> ClassFile:
    """Reads a class file (JVM specification, chapter 4)."""
    at = 10
    (count,) = struct.unpack_from(">H", data, 8)
    pool: dict[int, tuple[int, object]] = {}
    index = 1
    sizes = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
    while index < count:
        tag = data[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, at + 1)
            pool[index] = (tag, data[at + 3 : at + 3 + size].decode("utf-8", "replace"))
            at += 3 + size
        else:
            pool[index] = (tag, data[at + 1 : at + 1 + sizes[tag]])
            at += 1 + sizes[tag]
        index += 2 if tag in (5, 6) else 1

    def two(number: int) -> tuple[int, ...]:
        raw = pool[number][1]
        assert isinstance(raw, bytes)
        return struct.unpack(">" + "H" * (len(raw) // 2), raw)

    def text(number: int) -> str:
        return str(pool[number][1])

    def class_name(number: int) -> str:
        return text(two(number)[0])

    references = set()
    for number, (tag, _) in pool.items():
        if tag in (9, 10, 11):
            owner, member = two(number)
            name, descriptor = two(member)
            references.add((class_name(owner), text(name), text(descriptor)))
    _, _, parent, interfaces = struct.unpack_from(">4H", data, at)
    at += 8
    parents = [class_name(parent)] if parent else []
    parents += [class_name(each) for each in struct.unpack_from(f">{interfaces}H", data, at)]
    at += 2 * interfaces
    declared = set()
    for _ in ("fields", "methods"):
        (members,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(members):
            _, name, descriptor, attributes = struct.unpack_from(">4H", data, at)
            declared.add((text(name), text(descriptor)))
            at += 8
            for _ in range(attributes):
                (size,) = struct.unpack_from(">I", data, at + 2)
                at += 6 + size
    return ClassFile(tuple(parents), frozenset(references), frozenset(declared))


@cache
def library() -> zipfile.ZipFile:
    (jar,) = SPARK.glob("scala-library-*.jar")
    return zipfile.ZipFile(jar)


@cache
def of_library(name: str) -> ClassFile | None:
    try:
        return parse(library().read(f"{name}.class"))
    except KeyError:
        return None


def resolves(owner: str, name: str, descriptor: str) -> bool:
    found = of_library(owner)
    if found is None:
        return owner.startswith("java/")  # a class of the JDK's: not Scala's affair
    return (name, descriptor) in found.declared or any(
        resolves(parent, name, descriptor) for parent in found.parents if parent.startswith("scala/")
    )


REFUSES = {
    f"io/pyspark/statestore/{name}.class"
    for name in (
        "balance/Places",
        "balance/StatefulStages",
        "balance/TaskLoads",
        "sink/CompactingCommitProtocol",
        "sink/join/FileFormats",
        "spark/MoreMetrics",
        "tab/StateFilesPage",
    )
}
"""Work with Scala 2.12 only; what uses them says so in another one before it does anything."""


def references() -> Iterator[tuple[str, str, str]]:
    with zipfile.ZipFile(JAR) as jar:
        assert set(jar.namelist()) >= REFUSES
        for name in jar.namelist():
            if name.endswith(".class") and name not in REFUSES:
                yield from parse(jar.read(name)).references


def test_all_that_it_needs_of_scala_is_in_this_scala() -> None:
    of_scala = {reference for reference in references() if reference[0].startswith("scala/")}
    assert ("scala/Option", "apply", "(Ljava/lang/Object;)Lscala/Option;") in of_scala
    assert {reference for reference in of_scala if not resolves(*reference)} == set()


def test_a_reference_that_is_not_there_is_found() -> None:
    assert not resolves("scala/Option", "apply", "(I)Lscala/Option;")
    assert resolves("scala/Some", "get", "()Ljava/lang/Object;")


SUPPORTED_METRICS = {
    (f"org/apache/spark/sql/execution/streaming/state/{store}StateStoreProvider", "supportedCustomMetrics")
    for store in ("RocksDB", "HDFSBacked")
}
"""What our providers call in a method that Spark calls with Scala 2.12 only, as ``ProgressFigures`` knows."""


def test_no_type_stands_for_another_class_in_the_other_scala() -> None:
    types = {
        match
        for owner, name, descriptor in references()
        for match in re.findall(r"scala/[\w/$]+", descriptor)
        if not owner.startswith("io/pyspark/") and (owner, name) not in SUPPORTED_METRICS
    }
    assert {each for each in types if not SAME_IN_BOTH.match(each) and not each.endswith("$")} == set()
