"""Makes sure that a wheel can be released: it has a jar for each minor version of Spark, compiled from these sources.

python jvm-shim/check_wheel.py dist/pyspark_statestore-*.whl
"""

from __future__ import annotations

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


def main(arguments: Sequence[str]) -> int:
    """Command line; returns the exit status."""
    shim = build.ROOT / "jvm-shim" / "src"
    status = 0
    for wheel in arguments:
        for problem in missing(Path(wheel), build.ROOT / "pyspark_statestore" / "jars", shim, build.ROOT / "build"):
            print(f"{wheel} cannot be released: {problem}. Run: make release", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
