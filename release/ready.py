"""Says whether this commit can be released: `make release` asks before it builds anything.

Run it as ``python -m release.ready``.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark_statestore._version import __version__

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "not released yet"
_SECTION = re.compile(r"^## \[([^\]]+)\](?: \S (.*))?$", re.MULTILINE)


def problems(root: Path, version: str) -> Iterator[str]:
    """Yields what stands in the way of a release, in words; nothing if it can be made.

    Args:
        root: The checkout.
        version: The version that is to be released.
    """
    yield from _in_the_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        if NOT_YET in " ".join(page.read_text(encoding="utf-8").split()) and page.name != "releases.md":
            yield f'{page.relative_to(root)} says "{NOT_YET}"'
    yield from _in_git(root, version)


def _in_the_changelog(text: str, version: str) -> Iterator[str]:
    sections = _SECTION.findall(text)
    if not sections or sections[0][0] != version:
        first = f"its first section is [{sections[0][0]}]" if sections else "it has no section"
        yield f"CHANGELOG.md does not begin with version {version}: {first}"
        return
    try:
        datetime.date.fromisoformat(sections[0][1])
    except ValueError:
        yield f"CHANGELOG.md has no date for [{version}], but {sections[0][1]!r}: it wants one as YYYY-MM-DD"


def _in_git(root: Path, version: str) -> Iterator[str]:
    try:
        changed = _git(root, "status", "--porcelain").splitlines()
        commit = _git(root, "rev-parse", "HEAD")
        tagged = _git(root, "tag", "--list", f"v{version}") and _git(root, "rev-parse", f"v{version}^{{commit}}")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        yield f"git cannot say what is in this checkout: {' '.join(reason.split())}"
        return
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield f"the work tree is not what is committed: {', '.join(line.strip() for line in changed[:3])}{more}"
    if tagged and tagged != commit:
        yield f"v{version} is the tag of another commit, {tagged[:12]}: a version is released once"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Command line; returns the exit status."""
    found = list(problems(ROOT, __version__))
    for problem in found:
        print(f"Version {__version__} cannot be released: {problem}.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
