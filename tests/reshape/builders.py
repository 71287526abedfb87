"""Repartitionings without Spark, by the files that they leave."""

from __future__ import annotations

from pathlib import Path

from tests.inspect.builders import STAMP, merged_file
from tests.maintenance import builders
from tests.migration.test_unfinished_repartition import BATCH, begin_repartitioning


def repartition_by_hand(checkpoint: Path) -> Path:
    """Adds batch 4 to batches 0 to 3 with two partitions: a repartitioning to one, by the files that it leaves."""
    begin_repartitioning(checkpoint)
    entry = checkpoint / "offsets" / str(BATCH)
    entry.write_text(entry.read_text().replace('shuffle.partitions": "5"', 'shuffle.partitions": "1"'))
    files = builders.files_of_version(0, BATCH + 2)  # one with a snapshot
    with merged_file(checkpoint, BATCH + 1, plain=True) as out:
        for number, (path, data) in enumerate(files.items()):
            if not path.endswith(".changelog"):
                stamp = STAMP + 100 * (BATCH + 1) + number
                out.put(path.replace(f"/{BATCH + 2}.", f"/{BATCH + 1}."), data, stamp=stamp)
    (checkpoint / "commits" / str(BATCH)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return checkpoint
