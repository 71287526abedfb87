"""Two attempts of one task, on two executors, that both commit the same version.

Spark never starts a speculative attempt on the host of the first one, and all executors of a local cluster are on one
host, so that there is no speculation in it. What it comes down to for the state is here: two executors that load the
same version and commit the next one, at the same time or one after the other, neither of which is stopped in time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import Jvm, second_jvm
from tests.cluster.stores import STORE, open_store
from tests.jvm.lab import Checkpoint, View

pytestmark = pytest.mark.spark

VERSIONS = 10
RETAINED = 3


@pytest.mark.parametrize("changelog", [True, False], ids=["changelog", "snapshots"])
def test_two_attempts_that_commit_the_same_version(
    main_jar: Path, test_jar: Path, checkpoint_dir: Path, changelog: bool
) -> None:
    options = {"idleSeal": "2s", "closedAfter": "60s", "maxSpaceAmplification": "1.2"}
    both_wrote = 0
    with (
        second_jvm(main_jar, test_jar) as one,
        second_jvm(main_jar, test_jar) as other,
        ThreadPoolExecutor(2) as threads,
    ):

        def opened(jvm: Jvm) -> Any:
            return open_store(
                jvm.view, checkpoint_dir, changelog=changelog, compact=False, retain=RETAINED, options=options
            )

        stores = [opened(jvm) for jvm in (one, other)]
        logs = [Checkpoint(jvm.view, checkpoint_dir, **options) for jvm in (one, other)]
        for version in range(1, VERSIONS + 1):
            for store in stores:
                # An attempt is a task of its own: it begins with what is committed.
                store.rollback()
                store.load(version - 1)
                store.put("x", str(version))
                store.put(f"k{version}", "here")
            if version % 3:
                list(threads.map(lambda store: store.commit(), stores))
            else:
                # The one that lost goes on after the batch: commits, uploads.
                stores[version % 2].commit()
                stores[1 - version % 2].commit()
            if changelog:
                list(threads.map(lambda store: store.upload(), stores))
            list(threads.map(lambda store: store.cleanUp(), stores))
            for number, log in enumerate(logs):
                log.write(f"0/9/{number}.changelog")  # deletions ride in its group
            name = f"{STORE}/{version}.{'changelog' if changelog else 'zip'}"
            files = View.of(checkpoint_dir / "state").files.values()
            both_wrote += len({entry.writer for file in files for entry in file if entry.path == name}) == 2

        assert both_wrote >= VERSIONS / 2
        with second_jvm(main_jar, test_jar) as third:
            reader = opened(third)
            for version in range(VERSIONS - RETAINED + 1, VERSIONS + 1):
                reader.load(version)
                assert reader.get("x") == str(version)
                assert all(reader.get(f"k{number}") == "here" for number in range(1, version + 1))
                assert reader.get(f"k{version + 1}") is None
        for log in (*logs, *logs):
            log.log.seal()
            log.clean()
        view = View.of(checkpoint_dir / "state")
        # All that is left holds something, but for the file with the highest stamp.
        assert len(view.files.keys() - {file for file, _ in view.live.values()}) <= 1
