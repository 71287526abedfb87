"""How the Java sources are built: packages, which class uses which, and what runs in a circle.

    python -m tests.java_house            # sizes, the classes that use most others, and circles
    python -m tests.java_house OLD/CLONE  # the same of another checkout

A class uses another if its code names it; comments and texts do not count. Nested classes count with the class around
them, and the variants of a class for several versions of Spark as one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE = "io.pyspark.statestore"

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TEXTS = re.compile(r'"(?:\\.|[^"\\\n])*"')
_PACKAGE = re.compile(rf"^package {re.escape(BASE)}((?:\.\w+)*);", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.])[A-Z]\w*\b")
_FOREIGN = re.compile(rf"^import (?!(?:static )?{re.escape(BASE)}\b)[\w.]*\.(\w+);", re.MULTILINE)


def java_sources(root: Path = ROOT) -> list[Path]:
    """The sources that all versions of Spark share, and those of some; without those of tests."""
    found = (root / "jvm-shim" / "src").glob("*/java/**/*.java")
    return sorted(path for path in found if path.relative_to(root / "jvm-shim" / "src").parts[0] != "test")


def package_of(source: str) -> str:
    """The package of a source, below the shim's."""
    found = _PACKAGE.search(source)
    assert found, source
    return found[1].removeprefix(".")


def _names(source: str) -> set[str]:
    """Classes that code names by their simple names, without those that it has from elsewhere, as with Map.Entry."""
    code = _TEXTS.sub('""', _COMMENTS.sub(" ", source))
    return set(_NAME.findall(code)) - set(_FOREIGN.findall(code))


@dataclass(frozen=True)
class House:
    """The sources of a checkout, without those of tests.

    Attributes:
        package_of: By class, its package below the shim's; empty for the shim's own.
        uses: By class, the other classes of the shim that it names.
    """

    package_of: Mapping[str, str]
    uses: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, root: Path = ROOT) -> House:
        """Reads a checkout's sources."""
        packages: dict[str, str] = {}
        names: defaultdict[str, set[str]] = defaultdict(set)
        for path in java_sources(root):
            if path.stem == "package-info":
                continue
            source = path.read_text(encoding="utf-8")
            packages[path.stem] = package_of(source)
            names[path.stem] |= _names(source)
        return cls(packages, {name: frozenset(found & packages.keys() - {name}) for name, found in names.items()})

    @cached_property
    def sizes(self) -> Counter[str]:
        """How many classes each package has."""
        return Counter(self.package_of.values())

    @cached_property
    def circles(self) -> list[list[str]]:
        """Classes each of which uses the others, by way of others or not; the largest circle first (Tarjan)."""
        order: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        found: list[list[str]] = []

        def visit(name: str) -> None:
            order[name] = low[name] = len(order)
            stack.append(name)
            for other in sorted(self.uses[name]):
                if other not in order:
                    visit(other)
                    low[name] = min(low[name], low[other])
                elif other in stack:
                    low[name] = min(low[name], order[other])
            if low[name] == order[name]:
                at = stack.index(name)
                circle = sorted(stack[at:])
                del stack[at:]
                if len(circle) > 1:
                    found.append(circle)

        for name in sorted(self.uses):
            if name not in order:
                visit(name)
        return sorted(found, key=len, reverse=True)

    def text(self) -> str:
        """What a person reads."""
        lines = [f"{len(self.package_of)} classes"]
        lines += [f"  {size:3} in {package or '(the root)'}" for package, size in self.sizes.most_common()]
        lines.append("the classes that use most others")
        most = sorted(self.uses, key=lambda name: -len(self.uses[name]))[:8]
        lines += [f"  {len(self.uses[name]):3} {self.package_of[name]}.{name}" for name in most]
        lines.append("circles")
        lines += [
            f"  {len(circle):3} {' '.join(f'{self.package_of[name]}.{name}' for name in circle)}"
            for circle in self.circles
        ]
        return "\n".join(lines)


if __name__ == "__main__":
    print(House.of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT).text())
