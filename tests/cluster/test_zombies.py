"""An old run, or an executor of one, that goes on committing and deleting after a new run took over."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.checks import stable_view
from tests.cluster.processes import second_jvm
from tests.cluster.stores import STORE, fill, open_store
from tests.cluster.sums import OPTIONS, PARTITIONS, Hold, Sums, await_gone, expected, held_key, settings, write_input
from tests.jvm.harness import Checkpoint, java_error, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="clusters")]

ROOT = Path(__file__).resolve().parents[2]
MERGED = {"closedAfter": "5s", "maxSpaceAmplification": "1.2"}


@pytest.mark.parametrize("checksums", [False, True], ids=["bare", "checksums"])
def test_an_executor_of_an_old_run_goes_on(
    main_jar: Path, test_jar: Path, checkpoint_dir: Path, checksums: bool
) -> None:
    with second_jvm(main_jar, test_jar) as old, second_jvm(main_jar, test_jar) as new:
        zombie = open_store(old.view, checkpoint_dir, options=MERGED, checksums=checksums)
        for version in range(1, 6):
            fill(zombie, version, x=str(version), **{f"k{version}": "here"})
            zombie.upload()
            zombie.cleanUp()
        task_asks(old.view, checkpoint_dir, stage=6)
        zombie.load(5)
        zombie.put("x", "6")
        old.freeze()

        # A new run does the batch anew, and others after it.
        store = open_store(new.view, checkpoint_dir, options=MERGED, checksums=checksums)
        for version in range(6, 11):
            fill(store, version, x=str(version), **{f"k{version}": "here"} if version > 6 else {})
            store.upload()
            store.cleanUp()
        old.thaw()

        # The old one's task ends, its maintenance uploads and deletes what it thinks is old, and so do later tasks.
        zombie.commit()
        # It asks for a file that it does not know: from then on its view has the new run's.
        assert Checkpoint(old.view, checkpoint_dir).exists(f"{STORE}/10.zip")
        assert any(name.endswith(".crc") for name in stable_view(checkpoint_dir / "state").live) == checksums
        # A later task of its run finds the snapshot there, which its first one did not.
        task_asks(old.view, checkpoint_dir, stage=7)
        with java_error("PSS_STALE_SNAPSHOT"):
            zombie.upload()
        zombie.cleanUp()
        for version in range(7, 11):
            fill(zombie, version, x=str(version), **{f"k{version}": "here"})
            zombie.cleanUp()
        Checkpoint(old.view, checkpoint_dir).write("0/9/1.changelog")  # deletions ride in its group

        for version in (11, 12, 13):
            fill(store, version, x=str(version))
            store.upload()
            store.cleanUp()
        Checkpoint(new.view, checkpoint_dir).write("0/9/2.changelog")
        with second_jvm(main_jar, test_jar) as third:
            reader = open_store(third.view, checkpoint_dir, options=MERGED, checksums=checksums)
            for version in (12, 13):
                reader.load(version)
                assert reader.get("x") == str(version)
                assert all(reader.get(f"k{number}") == "here" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10))

        def old_versions_are_gone(version: int) -> bool:
            # Maintenance may work with a view that is some seconds old, and delete the rest with a later version.
            fill(store, version, x=str(version))
            store.upload()
            store.cleanUp()
            Checkpoint(new.view, checkpoint_dir).write("0/9/2.changelog")
            live = {path.removeprefix(f"{STORE}/") for path in stable_view(checkpoint_dir / "state").live}
            versions = {
                int(name.split(".")[0]) for name in live if name.endswith((".zip", ".changelog")) and "/" not in name
            }
            return versions <= {version - 2, version - 1, version}

        later = itertools.count(14)
        until(lambda: old_versions_are_gone(next(later)), "old versions to go")


def task_asks(jvm: Any, checkpoint: Path, stage: int) -> None:
    """A task of a query asks for something of the store's partition."""
    (log,) = (log for name, log in jvm.io.pyspark.statestore.log.MergedLogs.all().items() if str(checkpoint) in name)
    log.refreshFor(STORE, getattr(jvm.io.pyspark.statestore.learn, "FreshnessKey$StageAttempt")("app", stage, 0, True))


@contextmanager
def old_run(root: Path, hold: Path, *jars: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in processes of its own, which are gone afterwards."""
    with (root / "old_run.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.old_run", str(root), str(hold), os.pathsep.join(map(str, jars))],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def committed(checkpoint: Path, version: int) -> list[str]:
    """The changelogs of a version."""
    return [path for path in stable_view(checkpoint / "state").live if path.endswith(f"/{version}.changelog")]


def test_an_old_run_goes_on_after_a_new_one_took_over(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", range(4))
    holds = tmp_path / "holds"
    hold = Hold(holds, str(held_key(3)))
    with old_run(tmp_path, holds, main_jar, test_jar) as process:
        hold.wait()
        # Batch 3 is under way: its partitions are committed, but one. A task that was stopped in its commit would fail.
        until(lambda: len(committed(tmp_path / "checkpoint", 4)) == PARTITIONS - 1, "the other partitions' commits")
        os.killpg(process.pid, signal.SIGSTOP)

        spark = make_spark(settings((main_jar, test_jar)), mode="provider", master="local[2,4]", **OPTIONS)
        sums = Sums(spark, tmp_path, hold=holds)
        write_input(tmp_path / "input", range(4, 8))
        query = sums.start(available_now=False)
        query.processAllAvailable()
        assert min(sums.given) == 3

        hold.release()
        os.killpg(process.pid, signal.SIGCONT)
        said = tmp_path / "failed"
        write_input(tmp_path / "input", range(8, 10))
        until(lambda: said.exists() and said.read_text(), "the end of the old run's query", 120)
        assert "Concurrent update to the log" in said.read_text()
        write_input(tmp_path / "input", range(10, 13))
        query.processAllAvailable()

        for batch in range(3):
            sums.given[batch] = expected(batch + 1)  # what the old run gave out
        sums.assert_right(13)
        await_gone(sums, query, 13)
        query.stop()
