"""What works on which version of Spark, and what state costs there: the table in docs/versions.md.

python benchmarks/matrix.py            # prints the table
python benchmarks/matrix.py --write    # and writes it into docs/versions.md, as `make matrix` does

Each version runs in an environment of its own (tests/other_spark.py). On each, benchmarks/small_files.py runs stock
Spark and merged state side by side, batch by batch, with the provider door and RocksDB, and fails where they differ.
benchmarks/probe.py tries all doors and stores, and what a version may lack.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "jvm-shim")]

import spark_releases as releases  # noqa: E402

from benchmarks.figures import figures  # noqa: E402
from benchmarks.report import put_into_page  # noqa: E402
from tests import other_spark  # noqa: E402

DOORS_AND_STORES = (("provider", "rocksdb"), ("path", "rocksdb"), ("provider", "heap"), ("path", "heap"))
MOST_CREATED = 3
"""Files under state/ that merged state may create in the small-files shape."""


class NotThere(Exception):
    """A version cannot be measured here; the message says why."""


def measure(minor: str, batches: int, partitions: int, counted: int) -> dict[str, Any]:
    """Runs everything on one version.

    Args:
        minor: The minor version.
        batches: How many batches each query has.
        partitions: Its shuffle partitions.
        counted: Of how many doors and stores to count files and calls.

    Returns:
        What probe.py says, and ``costs`` by door and store.

    Raises:
        NotThere: Its packages cannot be downloaded.
    """
    if releases.minor_of(releases.installed_release() or "") == minor:
        python, environ = sys.executable, None
    else:
        try:
            home = other_spark.environment(minor)
        except releases.ReleaseError as error:
            raise NotThere(str(error)) from error
        python, environ = str(releases.python_of(home)), other_spark.environ(home)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False)

    built = run("jvm-shim/build.py", "--tests")
    if built.returncode:
        raise click.ClickException(f"the shim could not be built for Spark {minor}")
    probed = run("-m", "benchmarks.probe")
    if probed.returncode:
        raise click.ClickException(f"Spark {minor} does not run")
    found: dict[str, Any] = json.loads(probed.stdout.splitlines()[-1])

    def small_files(*options: str) -> list[dict[str, Any]] | None:
        with tempfile.TemporaryDirectory() as out:
            done = run("benchmarks/small_files.py", "--no-build", "--out", out, *options)
            if done.returncode:
                return None
            raw: list[dict[str, Any]] = json.loads(Path(out, "small_files-custom.json").read_text())
            return raw

    shape = ("--batches", str(batches), "--partitions", str(partitions))
    found["costs"] = {}
    for door, store in DOORS_AND_STORES[:counted]:
        raw = small_files(*shape, "--door", door, "--store", store)
        if raw is None:
            raise click.ClickException(f"Spark {minor}, {door} door, {store}: stock Spark and merged state differ")
        sides = figures(raw[0]).sides
        found["costs"][f"{door} {store}"] = {
            name: {"created": side.created, "calls": side.calls_total} for name, side in sides.items()
        }
    return found


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The table in Markdown, a column for each version.

    Args:
        found: What ``measure`` returned, by minor version.
    """

    def costs(each: dict[str, Any], side: str, figure: str) -> str:
        values = sorted({each["costs"][key][side][figure] for key in each["costs"]})
        low, high = values[0], values[-1]
        return f"{low:,.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:,.0f} to {high:,.0f}"

    def yes(each: dict[str, Any], key: str, otherwise: str = "no") -> str:
        return "yes" if each[key] else otherwise

    rows: list[tuple[str, list[str]]] = [
        ("release that is tested", [each["spark"] for each in found.values()]),
        ("Scala; Hadoop", [f"{each['scala'].rpartition('.')[0]}; {each['hadoop']}" for each in found.values()]),
    ]
    for key, words in (
        ("provider rocksdb", "provider door, RocksDB"),
        ("path rocksdb", "path door, RocksDB"),
        ("provider heap", "provider door, heap"),
        ("path heap", "path door, heap"),
    ):
        rows.append((words, [yes(each, key) for each in found.values()]))
    rows += [
        ("heap store's shared maps", [yes(each, "shares_maps", "Spark's own") for each in found.values()]),
        ("`transformWithState` (path door)", [yes(each, "transform_with_state") for each in found.values()]),
        ("`checkpoint_files` in SQL", [yes(each, "checkpoint_files") for each in found.values()]),
        ("`checkpoint_files` as a stream", [yes(each, "checkpoint_files_stream") for each in found.values()]),
        ("`maxSegmentsPerTrigger` there", [yes(each, "max_segments_per_trigger") for each in found.values()]),
        ("file sinks without small files", [yes(each, "file_sink") for each in found.values()]),
        ("files created, stock", [costs(each, "stock", "created") for each in found.values()]),
        ("files created, merged", [costs(each, "merged", "created") for each in found.values()]),
        ("calls in a batch, stock", [costs(each, "stock", "calls") for each in found.values()]),
        ("calls in a batch, merged", [costs(each, "merged", "calls") for each in found.values()]),
    ]
    lines = ["| Spark | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    return lines + [f"| {words} | " + " | ".join(cells) + " |" for words, cells in rows]


@click.command(context_settings={"show_default": True})
@click.option("--batches", type=click.IntRange(2), default=12)
@click.option("--partitions", type=click.IntRange(1), default=50)
@click.option("--spark", "minors", type=click.Choice(list(releases.RELEASES)), multiple=True, help="Not all versions.")
@click.option("--every-door", is_flag=True, help="Count for both doors and stores, not only provider and RocksDB.")
@click.option("--write", "is_written", is_flag=True, help="Write the table into docs/versions.md.")
def main(batches: int, partitions: int, minors: tuple[str, ...], every_door: bool, is_written: bool) -> None:
    """Try each version of Spark, and print what works there and what it costs."""
    found: dict[str, dict[str, Any]] = {}
    for minor in minors or releases.RELEASES:
        try:
            found[minor] = measure(minor, batches, partitions, 4 if every_door else 1)
        except NotThere as error:
            print(f"\nNOT MEASURED: SPARK {minor} CANNOT BE HAD HERE. {error}\n", file=sys.stderr)
    if not found:
        raise click.ClickException("no version of Spark can be had here")
    out = ROOT / "build" / "benchmarks"
    out.mkdir(parents=True, exist_ok=True)
    (out / "matrix.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = table(found)
    print("\n".join(lines))
    if is_written:
        if list(found) != list(releases.RELEASES):
            raise click.ClickException("docs/versions.md has all versions or none: it was not changed")
        put_into_page(ROOT / "docs" / "versions.md", "matrix", lines)
    most = max(cost["merged"]["created"] for each in found.values() for cost in each["costs"].values())
    if most > MOST_CREATED:
        raise click.ClickException(f"merged state created {most} files under state/, more than {MOST_CREATED}")


if __name__ == "__main__":
    main()
