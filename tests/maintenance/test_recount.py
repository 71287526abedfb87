"""What lives is counted twice, by different means, and both agree."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.maintenance.verify import recount as recounting
from pyspark_statestore.maintenance.verify import verification
from pyspark_statestore.maintenance.verify.recount import Count, recount
from tests.inspect.builders import STAMP, add_index, merged_file, merged_paths, statuses
from tests.maintenance.builders import index_of, verify


def random_checkpoint(checkpoint: Path, seed: int) -> Path:
    """Writes, writes again, deletions and copies of a few paths."""
    choose = random.Random(seed)
    (checkpoint / "offsets").mkdir(parents=True)
    paths = [f"0/{partition}/{version}.delta" for partition in range(3) for version in range(4)]
    for number in range(1, 8):
        with merged_file(checkpoint, number, writer=choose.randrange(3), seal=choose.random() < 0.7) as out:
            for path in choose.sample(paths, 8):
                stamp, writer, generation = STAMP + choose.randrange(9), choose.randrange(2), choose.randrange(3)
                if choose.random() < 0.3:
                    out.delete(path, stamp=stamp, writer=writer, generation=generation)
                else:
                    out.put(path, bytes(choose.randrange(99)), stamp=stamp, writer=writer, generation=generation)
                if choose.random() < 0.3:
                    out.end_group()
    return checkpoint


@pytest.mark.parametrize("at_once", [200_000, 20])
@pytest.mark.parametrize("seed", range(20))
def test_both_agree_with_the_rules_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    monkeypatch.setattr(recounting, "_AT_ONCE", at_once)
    random_checkpoint(tmp_path, seed)
    files = {path.name: index_of(path) for path in merged_paths(tmp_path)}
    counted = recount(files)
    assert {name: count.live_segments for name, count in counted.items()} == {
        name: sum(of == name and status == "live" for of, _, _, status in statuses(tmp_path)) for name in files
    }
    table = Checkpoint(tmp_path).inspect.files().to_pylist()
    assert counted == {
        row["file_path"].rpartition("/")[2]: Count(row["live_segment_count"], row["live_bytes"]) for row in table
    }
    add_index(tmp_path)
    assert [each for each in verify(tmp_path).damages if each.kind == "reference_count"] == []


def test_a_difference_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a mistake were made in one of the two ways to count."""

    random_checkpoint(tmp_path, 1)
    name = merged_paths(tmp_path)[3].name

    def wrong(files: object) -> dict[str, Count]:
        counted = recount(files)  # type: ignore[arg-type]
        counted[name].live_bytes += 1
        return counted

    monkeypatch.setattr(verification, "recount", wrong)
    [found] = [each for each in verify(tmp_path).damages if each.kind == "reference_count"]
    assert found.name == name
