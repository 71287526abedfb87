"""A real query on a damaged checkpoint: right results, or an error of ours and right results with the original."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.conftest import MakeSpark
from tests.damage import attacks
from tests.damage.builders import write_old
from tests.damage.jvm import said_by_us
from tests.damage.settings import ONLY, RESTARTS, SEED
from tests.streaming.runs import Run, Setting
from tests.streaming.test_restart_from_every_batch import DATA_ONLY, copy_checkpoint
from tests.streaming.workloads import write_batches

pytestmark = pytest.mark.spark


def outcome(run: Run, expected: list[str]) -> str:
    """Runs the next batch, and says what came of it."""
    run.rows.clear()
    query = run.start(DATA_ONLY)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        cause = f"{error}\n{error.cause if hasattr(error, 'cause') else ''}"
        return "refused" if said_by_us(cause) else f"foreign: {cause}"
    return "right" if list(run.rows.values()) == [expected] else f"silent: {run.rows}"


@pytest.mark.slow
def test_a_restart_is_right_or_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider", store="heap")
    whole = Run(spark, "aggregation", Setting("provider", "heap"), tmp_path / "whole")
    write_batches(whole.input, range(3))
    whole.run(DATA_ONLY)
    merged = {
        str(path.relative_to(whole.checkpoint)): path.read_bytes()
        for path in whole.checkpoint.glob("state/_merged/*.merged")
    }
    copies = [
        Run(spark, "aggregation", whole.setting, tmp_path / str(number), input=whole.input)
        for number in ([int(ONLY)] if ONLY else range(RESTARTS))
    ]
    for copy in copies:
        copy_checkpoint(whole.checkpoint, copy.checkpoint)
    write_batches(whole.input, [3])
    whole.run(DATA_ONLY)
    expected = whole.rows[3]

    found = []
    for copy in copies:
        attack = attacks.choose(random.Random(f"{SEED} {copy.folder.name}"), merged, sorted(merged))
        attack.carry_out(copy.checkpoint, write_old)
        damaged = outcome(copy, expected)
        attack.undo(copy.checkpoint, write_old)
        mended = "right" if damaged == "right" else outcome(copy, expected)
        print(f"{copy.folder.name}: {attack.what}: {damaged}, with the original {mended}")
        if damaged not in ("right", "refused") or mended != "right":
            found.append(
                f"PSS_DAMAGE_SEED={SEED} PSS_DAMAGE_ONLY={copy.folder.name}: {attack.what}: {damaged}; {mended}"
            )
    assert not found, "\n".join(found)
