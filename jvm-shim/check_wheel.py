"""Makes sure that a wheel can be released: it has these sources, and a jar of them for each minor version of Spark.

python jvm-shim/check_wheel.py dist/pyspark_statestore-*.whl
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build
import spark_releases as releases


def missing(wheel: Path, jars: Path, source: Path, stamps: Path) -> list[str]:
    """What a wheel lacks, in words; nothing if it can be released.

    Args:
        wheel: The wheel.
        jars: Where the jars were built.
        source: Holds main/ and the folders of minor versions.
        stamps: The notes of what the jars were built from.
    """
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for minor in releases.RELEASES:
            target = build.shim(source, jars, stamps, minor)
            name = f"pyspark_statestore/jars/{target.jar.name}"
            if name not in names:
                found.append(f"it has no {name}")
            elif not target.is_built() or archive.read(name) != target.jar.read_bytes():
                found.append(f"its {name} is not what the sources make")
        known = {f"pyspark_statestore/jars/{build.shim(source, jars, stamps, m).jar.name}" for m in releases.RELEASES}
        found += [f"it has {name}" for name in sorted(names - known) if name.endswith(".jar")]
    return found


def other_than(wheel: Path, roots: Sequence[Path]) -> list[str]:
    """What a wheel has beside its jars that is not in the sources, or has not, in words.

    Args:
        wheel: The wheel.
        roots: The packages' directories.
    """
    expected = {
        f"{root.name}/{path.relative_to(root).as_posix()}": path
        for root in roots
        for path in root.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not re.match(r"[^/]+\.dist-info/|.*\.jar$", name)}
        found = [f"it has no {name}" for name in sorted(expected.keys() - names)]
        found += [f"it has {name}" for name in sorted(names - expected.keys())]
        found += [
            f"its {name} is not that of the sources"
            for name in sorted(names & expected.keys())
            if archive.read(name) != expected[name].read_bytes()
        ]
    return found


def main(arguments: Sequence[str]) -> int:
    """Command line; returns the exit status."""
    shim = build.ROOT / "jvm-shim" / "src"
    packages = (build.ROOT / "pyspark_statestore", build.ROOT / "datasource" / "pyspark_checkpoint_files")
    status = 0
    for name in arguments:
        wheel = Path(name)
        problems = missing(wheel, build.ROOT / "pyspark_statestore" / "jars", shim, build.ROOT / "build")
        if build.project_version() != wheel.name.split("-")[1]:
            problems.append(f"it is not of version {build.project_version()}")
        for problem in problems + other_than(wheel, packages):
            print(f"{wheel} cannot be released: {problem}. Run: make full-wheel", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
