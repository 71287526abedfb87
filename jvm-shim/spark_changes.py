"""Says what a release of Spark changed for the shim; build.py --against calls it, and builds nothing.

It compiles the sources that the newest known minor version has, shim and tests, against the release, and lists what
javac says by file. Then it compares the members of each class of Spark's that the sources import, between the newest
known release and the given one, since a method that Spark calls may change where nothing of ours does.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import spark_releases as releases

# What scalac writes for closures and for serialization is nobody's interface.
_NOISE = re.compile(r"\$anonfun|\$deserializeLambda|LogStringContext|\$default\$|\$adapted")


def report(source: Path, release: str, javac: Path) -> int:
    """Prints what changed, and returns 0 if everything compiles.

    Args:
        source: Holds main/, test/ and the folders of minor versions.
        release: The release, such as 4.4.0; pip installs it into the cache. Or a directory with Spark's jars.
        javac: The compiler.
    """
    newest = max(releases.RELEASES, key=releases.number)
    is_directory = Path(release).is_dir()
    jars = releases.checked_jars(Path(release)) if is_directory else releases.jars_of(release)
    minor = newest if is_directory else releases.minor_of(release)
    roots = [source / "main", *releases.folders(source, minor)]
    own = sorted(path for root in roots for path in (root / "java").rglob("*.java"))
    tests = sorted((source / "test" / "java").rglob("*.java"))
    tests += sorted(path for root in roots for path in (root / "test-java").rglob("*.java"))
    print(f"Spark {release} with the sources in {', '.join(root.name for root in roots)}", flush=True)
    errors = _compile(javac, [*own, *tests], jars)
    for name, count in sorted(Counter(name for name, _ in errors).items()):
        print(f"\n{count} errors in {name}")
        for place, what in errors:
            if place == name:
                print(f"  {what}")
    known = releases.RELEASES.get(minor) if minor in releases.RELEASES and not is_directory else None
    before = releases.RELEASES[newest] if known in (None, release) else known
    changes = _member_changes(javac.with_name("javap"), _imported([*own, *tests]), releases.jars_of(before), jars)
    for name, lines in changes.items():
        print(f"\n{name}, since {before}")
        for line in lines:
            print(f"  {line}")
    compiled = "all of it compiles" if not errors else f"{len(errors)} errors"
    print(f"\nSpark {release}: {compiled}; {len(changes)} of the classes that it uses have changed since {before}.")
    return 1 if errors else 0


def _compile(javac: Path, sources: Sequence[Path], jars: Path) -> list[tuple[str, str]]:
    """What javac says: for each error the file's name, and the line and the message."""
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as temporary:
        built_for = Path(temporary) / "BuiltFor.java"
        built_for.write_text('package io.pyspark.statestore; class BuiltFor { static String spark() { return "?"; } }')
        arguments = ["--release", "17", "-encoding", "UTF-8", "-proc:none", "-nowarn", "-Xmaxerrs", "10000"]
        arguments += ["-d", temporary, "-cp", os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))]
        listed = Path(temporary) / "javac.args"
        listed.write_text("\n".join(f'"{word}"' for word in [*arguments, *map(str, sources), str(built_for)]))
        done = subprocess.run([str(javac), f"@{listed}"], capture_output=True, text=True, check=False)
    found = []
    lines = done.stderr.splitlines()
    for at, line in enumerate(lines):
        if match := re.match(r"(.+\.java):(\d+): error: (.*)", line):
            symbol = next((each.strip() for each in lines[at : at + 5] if each.strip().startswith("symbol:")), "")
            found.append((Path(match[1]).name, " ".join(f"line {match[2]}: {match[3]} {symbol}".split())))
    return found


def _imported(sources: Iterable[Path]) -> list[str]:
    pattern = re.compile(r"^import (org\.apache\.(?:spark|hadoop)\.[\w.$]+);", re.MULTILINE)
    return sorted({name for source in sources for name in pattern.findall(source.read_text(encoding="utf-8"))})


def _member_changes(javap: Path, names: Sequence[str], before: Path, after: Path) -> dict[str, list[str]]:
    changes = {}
    old, new = _members(javap, names, before), _members(javap, names, after)
    for name in names:
        gone, come = old.get(name, set()) - new.get(name, set()), new.get(name, set()) - old.get(name, set())
        if name not in new:
            changes[name] = ["is gone, or has another name"]
        elif gone or come:
            changes[name] = [f"- {line}" for line in sorted(gone)] + [f"+ {line}" for line in sorted(come)]
    return changes


def _members(javap: Path, names: Sequence[str], jars: Path) -> dict[str, set[str]]:
    """The public and protected members of classes; a class that does not exist is left out."""
    path = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
    done = subprocess.run([str(javap), "-protected", "-cp", path, *names], capture_output=True, text=True, check=False)
    found: dict[str, set[str]] = {}
    current: set[str] = set()
    for line in done.stdout.splitlines():
        if header := re.match(r"(?:.* )?(?:class|interface|enum|@interface) ([\w.$]+).*\{$", line):
            # An import names an inner class with a dot.
            written = next((name for name in names if name in (header[1], header[1].replace("$", "."))), header[1])
            current = found.setdefault(written, set())
        elif line.startswith("  ") and not _NOISE.search(line):
            current.add(line.strip())
    return found
