"""Checkpoints travel: each version of Spark begins some, and each later one goes on with them, merged and exported.

Every version runs in an environment of its own (tests/other_spark.py). One that cannot be downloaded is left out, with
a warning in capital letters; the others still travel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import spark_releases as releases

from pyspark_statestore import Checkpoint
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS
from tests import other_spark
from tests.class_data import MINOR
from tests.conftest import _BASE_SETTINGS, ROOT
from tests.migration.builders import NOW
from tests.scripts import run_to_the_end
from tests.streaming.runs import PLAIN_STATE_FILE, Setting, merged_files, plain_state_files, segments
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.travel]

CASES = {
    "aggregation": Setting("provider", "rocksdb", changelog=True),
    "outer_join": Setting("path", "rocksdb", changelog=False),
    "dedup": Setting("provider", "heap"),
    "dedup_within_watermark": Setting("path", "heap"),
}
"""By workload: both doors, both stores, changelogs and snapshots."""

BEGUN, CONTINUED = range(3), range(3, 5)
SETTINGS = {
    **_BASE_SETTINGS,
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
}


@dataclass(frozen=True)
class Case:
    """A query of a workload, wherever its checkpoint is now."""

    name: str
    workload: str
    setting: Setting
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint."""
        return self.folder / "checkpoint"

    def by_stock(self) -> Case:
        """The same, with stock Spark."""
        return replace(self, name=f"stock {self.name}", setting=replace(self.setting, door="stock"))

    @property
    def said(self) -> dict[str, Any]:
        """What its process is told."""
        return {
            "name": self.name,
            "workload": self.workload,
            "provider": (MERGED_PROVIDERS if self.setting.door == "provider" else STOCK_PROVIDERS)[self.setting.store],
            "setting": asdict(self.setting),
            "folder": str(self.folder),
            "input": str(self.folder / "input"),
        }


Begun = dict[str, tuple[list[Case], dict[str, dict[int, list[str]]]]]
"""By version: its queries, half-way, and what they gave out by name and batch."""


@cache
def python(minor: str) -> Path | None:
    """The interpreter of a version of Spark, with its jar built; None if it cannot be had."""
    if minor == MINOR:
        return Path(sys.executable)
    try:
        found = releases.python_of(other_spark.environment(minor))
    except releases.ReleaseError as error:
        warnings.warn(f"NOT TESTED: SPARK {minor} CANNOT BE HAD HERE. {error}", stacklevel=2)
        return None
    subprocess.run([str(found), "jvm-shim/build.py"], cwd=ROOT, env=_environ(minor), check=True, capture_output=True)
    return found


def _environ(minor: str) -> dict[str, str]:
    home = Path(sys.prefix) if minor == MINOR else releases.environment(releases.RELEASES[minor])
    return other_spark.environ(home)


def go_on(minor: str, cases: Sequence[Case], temporary: Path) -> dict[str, dict[int, list[str]]]:
    """Starts each query where its checkpoint is, in processes on a version of Spark; what each gave out, by batch."""
    found: dict[str, dict[int, list[str]]] = {}
    for merged in (True, False):
        some = [case for case in cases if (case.setting.door != "stock") == merged]
        if not some:
            continue
        settings = {**SETTINGS, "spark.local.dir": str(temporary)}
        what = {"settings": settings, "merged": merged, "cases": [case.said for case in some]}
        command = [str(python(minor)), "-m", "tests.each_spark.traveller", json.dumps(what)]
        done = run_to_the_end(command, cwd=ROOT, env=_environ(minor), timeout=400)
        assert done.returncode == 0, f"Spark {minor}: {done.stderr[-6000:]}"
        (answer,) = (json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@"))
        assert releases.minor_of(answer["spark"]) == minor
        for name, by_batch in answer["rows"].items():
            found[name] = {int(batch): rows for batch, rows in by_batch.items()}
    return found


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """What every version has begun, merged and on stock Spark."""
    found: Begun = {}
    for minor in releases.RELEASES:
        if python(minor) is None or minor == MINOR:
            continue
        folder = tmp_path_factory.mktemp(f"begun-{minor}")
        cases = [Case(name, name, setting, folder / name) for name, setting in CASES.items()]
        cases += [replace(case.by_stock(), folder=folder / f"stock-{case.name}") for case in cases]
        for case in cases:
            write_batches(case.folder / "input", BEGUN)
        found[minor] = (cases, go_on(minor, cases, folder))
    return found


@pytest.mark.parametrize("later", list(releases.RELEASES)[1:])
def test_each_later_spark_goes_on(begun: Begun, later: str, tmp_path: Path) -> None:
    """What comes out is what comes out if stock Spark makes the same journey."""
    if python(later) is None:
        pytest.skip(f"Spark {later} cannot be downloaded here")
    older = [minor for minor in begun if releases.number(minor) < releases.number(later)]
    assert older, f"nothing older than Spark {later} can be had here"
    cases: list[Case] = []
    before: dict[str, dict[int, list[str]]] = {}

    def add(case: Case, name: str, rows: dict[int, list[str]]) -> Case:
        there = replace(case, name=name, folder=tmp_path / name.replace(" ", "-"))
        _copy(case, there.folder)
        write_batches(there.folder / "input", CONTINUED)
        cases.append(there)
        before[name] = rows
        return there

    for minor in older:
        written, by_then = begun[minor]
        for case in written:
            if case.setting.door == "stock":
                add(case, f"{minor} {case.workload} stock", by_then[case.name])
                continue
            add(case, f"{minor} {case.workload} merged", by_then[case.name])
            exported = add(case.by_stock(), f"{minor} {case.workload} exported", by_then[case.name])
            done = Checkpoint(exported.checkpoint, closed_after=NOW).export()
            assert done.exported_files_count > 0, exported.name
    plain = {case.name: set(plain_state_files(case.checkpoint)) for case in cases}
    after = go_on(later, cases, tmp_path)
    for case in cases:
        of_stock = f"{case.name.rpartition(' ')[0]} stock"
        assert after[case.name], case.name
        assert {**before[case.name], **after[case.name]} == {**before[of_stock], **after[of_stock]}, case.name
        if case.setting.door != "stock":
            assert set(plain_state_files(case.checkpoint)) <= plain[case.name], f"{case.name}: nothing plain is written"


def _copy(case: Case, folder: Path) -> None:
    """Copies a checkpoint and its input; where the query was started is in none of its files but the source's log."""
    shutil.copytree(case.folder, folder)
    for log in (folder / "checkpoint" / "sources" / "0").iterdir():
        if not log.name.startswith("."):
            text = log.read_text().replace(str(case.folder), str(folder))
            log.write_text(text)
            crc = log.with_name(f".{log.name}.crc")
            crc.unlink(missing_ok=True)


def test_the_newest_python_reads_all(begun: Begun) -> None:
    """``Checkpoint`` knows the files, the versions and the rows of checkpoints that every version has written."""
    for minor, (cases, rows) in begun.items():
        for case in (each for each in cases if each.setting.door != "stock"):
            checkpoint = Checkpoint(case.checkpoint)
            names = {row["logical_path"] for row in checkpoint.inspect.segments().to_pylist()}
            assert names <= set(segments(case.checkpoint)), (minor, case.name)
            assert not any(PLAIN_STATE_FILE.fullmatch(name) is None for name in names), (minor, case.name)
            versions = checkpoint.inspect.versions().to_pylist()
            newest = max(rows[case.name]) + 1
            assert {row["version"] for row in versions if row["is_restorable"]} >= {newest}, (minor, case.name)
            assert checkpoint.maintenance.verify().damages == (), (minor, case.name)
            assert merged_files(case.checkpoint), (minor, case.name)
            store = "left-keyToNumValues" if case.workload == "outer_join" else "default"
            assert checkpoint.state(store_name=store).to_pylist(), (minor, case.name)
